"""`python -m minagent` is `minagent`."""

from minagent.cli import main

if __name__ == "__main__":
    main()
