"""A ladder to climb with a book on building agents: one idea a chapter, all of it runs.

Start with README.md beside this file. The chapters import `minagent` and copy nothing
of it; each is a text, a demo, an exercise, a solution, and the tests that grade both.
"""
