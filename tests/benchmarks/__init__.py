"""Programs that measure, run by hand: `python -m tests.benchmarks.sessions`."""
