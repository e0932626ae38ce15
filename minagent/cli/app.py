"""The group of commands. A command is added here and written in its own file."""

import typer

from minagent.cli import demo as _demo

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


@app.callback()
def group() -> None:
    """Conversations that survive: sessions, tools, approval."""


@app.command()
def demo() -> None:
    """See two runs recall a name, and a tool wait for you. Offline, in seconds.

    It tells a name to an agent, starts a second process, and asks for the name there.
    Then a tool that would delete a file stops and asks you. All of it happens in a
    temporary folder, which is removed at the end.

    Example: minagent demo
    """
    raise typer.Exit(_demo.run())
