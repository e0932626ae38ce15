"""The command line: `minagent`, or `python -m minagent`. It needs the extra `cli`.

`app.py` has the commands, and each has a file of its own.
"""

import sys


def main() -> None:
    """Run the command that the program's arguments name, and exit."""
    try:
        from minagent.cli.app import app  # it needs the extra
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        if missing not in ("rich", "typer"):
            raise
        sys.exit(f"minagent needs {missing}: pip install 'minagent[cli]'")
    except KeyboardInterrupt:
        sys.exit(130)
    app(prog_name="minagent")
