"""The group of commands. A command is added here and written in its own file.

    chat        a conversation at the terminal      chat.py
    serve       a conversation in the browser       serve.py
    sessions    what is stored                      sessions.py, exports.py, pages.py
    approvals   questions that wait for a person    approvals.py
    memory      what is remembered of users         memories.py
    doctor      what is installed, and missing      doctor.py
    demo        a story to look at                  demo.py, stage.py

What they share: `outcome.py` (errors and exit codes), `places.py` (`--store`),
`agents.py` (`--model`, `--tools`), `screen.py`, and `live.py` (a run on the screen).
"""

from typing import Annotated

import typer

from minagent.cli import approvals, memories, sessions
from minagent.cli import demo as _demo
from minagent.cli.chat import chat
from minagent.cli.doctor import doctor
from minagent.cli.outcome import log_to_stderr
from minagent.cli.serve import serve

app = typer.Typer(
    no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="markdown"
)


@app.callback()
def group() -> None:
    """Conversations that survive: sessions, tools, approval."""
    log_to_stderr()


app.command()(chat)
app.command()(serve)
app.add_typer(sessions.app, name="sessions")
app.add_typer(approvals.app, name="approvals")
app.add_typer(memories.app, name="memory")
app.command()(doctor)


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
