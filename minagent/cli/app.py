"""The group of commands. A command is added here and written in its own file."""

from typing import Annotated

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
def demo(
    model: Annotated[
        str, typer.Option(help="offline, local, or a model at the Anthropic API.")
    ] = "offline",
) -> None:
    """See two runs recall a name, a tool wait for you, and a memory. Offline.

    It tells a name to an agent, starts a second process, and asks for the name there.
    Then a tool that would delete a file stops and asks you. At last, what a user said
    in one session is recalled in another. All of it happens in a temporary folder,
    which is removed at the end.

    Example: minagent demo --model claude-opus-5-5
    """
    raise typer.Exit(_demo.run(model))
