"""`minagent demo`: two runs that are one conversation, and a tool that asks first.

Two processes tell the story. The first is the command. It starts the second one for
each act, as `python -m minagent.cli.demo recall FOLDER MODEL` and `... decide ...`.
They share the folder, with one SQLite file in it, and nothing else. Nothing is staged:
what is shown is what the agent returned.

Read the acts from `run` on; `_Stage`, behind them, has the agent and the printing.
"""

import asyncio
import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path

from rich.console import Console
from rich.text import Text

from minagent import (
    Agent,
    AgentResult,
    AlreadyDecidedError,
    MinagentError,
    Model,
    PendingToolCall,
    Session,
    Tool,
    ToolConfirmation,
    models,
    pending_tool_calls,
    tool,
)
from minagent.cards import cards, render_text
from minagent.models import OfflineModel
from minagent.stores import SQLiteSessionManager

FILE = "old.txt"
MIN_COLUMNS, MAX_COLUMNS = 40, 80

OFFLINE, LOCAL = "offline", "local"
INSTRUCTIONS = "You are a helpful assistant. Keep every answer to one short sentence."

_QUESTION = "approve or deny? [approve] "
_ANSWERS = {"": True, "approve": True, "a": True, "yes": True, "y": True}
_ANSWERS |= {"deny": False, "d": False, "no": False, "n": False}


def run(model: str = OFFLINE) -> int:
    """Tell the story, and return the exit code: 0 if all went as it should.

    Args:
        model: `offline`, `local`, or the name of a model at the Anthropic API.
    """
    with tempfile.TemporaryDirectory(prefix="minagent-demo-") as folder:
        stage = _Stage(Path(folder), model)
        before = signal.signal(signal.SIGINT, lambda *_: stage.stop())
        network = {OFFLINE: "No key, no network.", LOCAL: "No key, no network."}
        begin = network.get(model, f"The model is {model}, at the Anthropic API.")
        stage.say(f"{begin} Sessions are kept in one SQLite file:")
        stage.line(str(stage.database))
        exit_code = _told(stage, _recall) or _told(stage, _approval)
        signal.signal(signal.SIGINT, before)
    if exit_code == 0:
        stage.say("The file is removed again. The agent's loop is minagent/agent.py.")
    return exit_code


def _told(stage: "_Stage", act: Callable[["_Stage"], int]) -> int:
    """Tell an act; if the model cannot be had, say so in its own words."""
    try:
        return act(stage)
    except _model_errors(stage.model) as error:
        stage.say(f"{stage.model} could not be asked:")
        for text in (str(error), *getattr(error, "__notes__", ())):
            for line in text.splitlines():
                stage.line(line.strip())
        return 1


def _model_errors(model: str) -> tuple[type[Exception], ...]:
    """Return what may be raised where a model is not to be had."""
    if model == OFFLINE:
        return (MinagentError,)
    return (MinagentError, ImportError, import_module("anthropic").AnthropicError)


def _recall(stage: "_Stage") -> int:
    stage.act("Act 1: two runs, one conversation")
    stage.say(
        "A program forgets when it ends. A session does not: it is a log of what was "
        "said and done, kept under an id and stored step by step."
    )
    stage.process("first process")
    stage.ask(f"Hello, my name is {stage.name}.", stage.name.lower())
    stage.say("The program starts again. All that it has now is the file.")
    return stage.start_second_process("recall")


def _recall_in_second_process(stage: "_Stage") -> int:
    stage.process("second process")
    name, known = stage.name, stage.name.lower()
    recalled = stage.ask("What is my name?", known).output or ""
    control = stage.ask("What is my name?", "bob").output or ""
    if name not in recalled or name in control:
        expected = f'"{known}" should know the name, "bob" not'
        stage.say(f"The recall did not happen: {expected}.")
        return 1
    stage.say("Runs with one session id are one conversation; another id is another.")
    return 0


def _approval(stage: "_Stage") -> int:
    stage.act("Act 2: stop and ask")
    stage.say(
        "The tool delete_file has requires_confirmation=True. When the model calls it, "
        "it is not run: the question is stored in the session, and the run ends. No "
        "process has to wait until a person has time."
    )
    if stage.model == LOCAL:
        stage.say("The local model cannot call tools; the offline one plays this act.")
    stage.file.touch()
    stage.process("first process")
    stage.ask(f"Please run delete_file path={FILE}", "files")
    stage.tell_what_happened()
    stage.say("The program starts again, and finds the question in the file.")
    if exit_code := stage.start_second_process("decide"):
        return exit_code
    stage.say(
        "On the first process's screen the question still stands, and somebody clicks "
        "there, too: the same decision, once more."
    )
    stage.process("first process")
    if not stage.is_refused_once_more("files"):
        stage.say("It was taken twice. That must never happen.")
        return 1
    stage.tell_what_happened()
    stage.act('What the file holds under "files"')
    stage.draw("files")
    return 0


def _decide_in_second_process(stage: "_Stage") -> int:
    stage.process("second process")
    [pending] = pending_tool_calls(stage.session("files"))
    stage.decide("files", _decision(stage, pending))
    stage.tell_what_happened()
    return 0


def _decision(stage: "_Stage", pending: PendingToolCall) -> ToolConfirmation:
    """Ask the person at the terminal, or decide if there is none."""
    stage.line(pending.confirmation_message, "bold yellow")
    if not all(each and each.isatty() for each in (sys.stdin, sys.stdout)):
        stage.line(
            "(There is no terminal to ask at, so the default is taken: approve.)"
        )
        return pending.approve(by="default")
    try:
        word = stage.input(_QUESTION)
        while word.lower() not in _ANSWERS:
            stage.line('Please type "approve" or "deny".')
            word = stage.input(_QUESTION)
        if _ANSWERS[word.lower()]:
            return pending.approve(by="you")
        return pending.deny(stage.input("Why not? ") or None, by="you")
    except EOFError:
        stage.line("(No answer is not a yes: denied.)")
        return pending.deny("nobody answered", by="default")


class _Stage:
    """What both processes have: the folder, the agent, and a way to show what it does.

    Args:
        folder: Where the processes meet.
        model: Which model is asked.
    """

    def __init__(self, folder: Path, model: str) -> None:
        self.folder = folder
        self.model = model
        # The local model is so small that it keeps some names better than others.
        self.name = "Maria" if model == LOCAL else "Ada"
        self.database = folder / "sessions.db"
        self.file = folder / FILE
        self._second: subprocess.Popen[bytes] | None = None
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # an ASCII terminal shows a "?"
        # NO_COLOR is taken to mean no escape sequence at all: rich would keep bold.
        plain = bool(os.environ.get("NO_COLOR"))
        self._console = Console(highlight=False, color_system=None if plain else "auto")
        self._console.width = max(MIN_COLUMNS, min(self._console.width, MAX_COLUMNS))

    # --- The agent: made anew for each run, as if the program had just started

    def ask(self, question: str, session_id: str) -> AgentResult:
        """Run the agent with a message; show the call and what came of it."""
        self.line(f'agent.run("{question}", session_id="{session_id}")')
        result = asyncio.run(self._run(question, session_id))
        if result.pending_tool_calls:
            [pending] = result.pending_tool_calls
            question = pending.confirmation_message
            self.line(f"-> {result.status}: {question}", "bold yellow")
        else:
            self.line(f"-> {result.output}", "bold green")
        return result

    def decide(self, session_id: str, decision: ToolConfirmation) -> None:
        """Run the agent with a decision; show both and what came of it."""
        if decision.approved:
            self.line(f'decision = pending.approve(by="{decision.by}")')
        else:
            self.line(
                f'decision = pending.deny({decision.reason!r}, by="{decision.by}")'
            )
        self.line(
            f'agent.run(session_id="{session_id}", tool_confirmations=[decision])'
        )
        result = asyncio.run(self._run(None, session_id, decision))
        self.line(f"-> {result.output}", "bold green")

    def is_refused_once_more(self, session_id: str) -> bool:
        """Run the agent with the decision that was taken; show that it is refused."""
        events = self.session(session_id).events
        items = [item for event in events for item in event.content]
        [decision] = [item for item in items if isinstance(item, ToolConfirmation)]
        self.line(
            f'agent.run(session_id="{session_id}", tool_confirmations=[decision])'
        )
        try:
            asyncio.run(self._run(None, session_id, decision))
        except AlreadyDecidedError as error:
            self.line(f"-> AlreadyDecidedError: {error}", "bold green")
            return True
        return False

    def session(self, session_id: str) -> Session:
        """Return the session as it is stored."""
        session = asyncio.run(self._stored(session_id))
        assert session is not None
        return session

    async def _stored(self, session_id: str) -> Session | None:
        async with SQLiteSessionManager(self.database) as sessions:
            return await sessions.get(session_id)

    async def _run(
        self, question: str | None, session_id: str, *decisions: ToolConfirmation
    ) -> AgentResult:
        async with SQLiteSessionManager(self.database) as sessions:
            agent = Agent(
                self._made_model(session_id),
                instructions=INSTRUCTIONS,
                tools=[self._delete_file()],
                session_manager=sessions,
            )
            return await agent.run(
                question, session_id=session_id, tool_confirmations=decisions
            )

    def _made_model(self, session_id: str) -> Model:
        if self.model == OFFLINE or (self.model == LOCAL and session_id == "files"):
            return OfflineModel()
        # Named only now: each brings a driver that takes its time.
        if self.model == LOCAL:
            return models.LocalModel()
        return models.AnthropicModel(self.model, max_tokens=1024)

    def _delete_file(self) -> Tool[[str], str]:
        @tool(requires_confirmation=True, confirmation_message="Delete {path}?")
        def delete_file(path: str) -> str:
            """Delete a file."""
            with self._runs.open("a") as runs:
                runs.write("once\n")
            (self.folder / Path(path).name).unlink()
            return f"Deleted {path}."

        return delete_file

    @property
    def _runs(self) -> Path:
        return self.folder / "runs.txt"

    # --- The second process

    def start_second_process(self, act: str) -> int:
        """Tell an act in another process, and return its exit code."""
        # It imports what this process imports, whatever lies in the current folder.
        path = os.pathsep.join(each or os.curdir for each in sys.path)
        module = ["-P", "-m", "minagent.cli.demo", act, str(self.folder), self.model]
        with _deaf_to_ctrl_c():  # which the second process remains
            self._second = subprocess.Popen(
                [sys.executable, *module], env={**os.environ, "PYTHONPATH": path}
            )
        return self._second.wait()

    def stop(self) -> None:
        """End both processes at once, for Ctrl-C.

        Not by an exception: that may come where Python drops it, in a `__del__`.
        """
        if self._second is not None:
            self._second.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):  # the reader may be gone
            os.write(sys.stdout.fileno(), b"\nInterrupted.\n")
        os._exit(130)

    # --- Showing

    def act(self, title: str) -> None:
        """Begin a part of the story."""
        self._console.print()
        self._console.rule(Text(title, "bold"), align="left", style="dim")

    def say(self, text: str) -> None:
        """Tell what is going on, and why it matters."""
        self._console.print()
        self._print(text, "", indent=0)

    def process(self, name: str) -> None:
        """Tell which process it is that speaks now."""
        self._console.print()
        self._print(name, "bold cyan", indent=2)

    def line(self, text: str, style: str = "") -> None:
        """Show something as it is: a call, an output, a fact."""
        self._print(text, style, indent=4)

    def _print(self, text: str, style: str, indent: int) -> None:
        # By textwrap and not by rich, which would cut a long path.
        lines = textwrap.wrap(
            text,
            self._console.width - indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in lines:
            shown = Text(" " * indent).append(line, style)
            self._console.print(shown, soft_wrap=True)

    def tell_what_happened(self) -> None:
        """Show whether the file is there, and how often the tool ran."""
        there = "still there" if self.file.exists() else "gone"
        runs = len(self._runs.read_text().splitlines()) if self._runs.exists() else 0
        times = {0: "has not run", 1: "ran once"}.get(runs, f"ran {runs} times")
        self.line(f"{FILE} is {there}; delete_file {times}.")

    def draw(self, session_id: str) -> None:
        """Show a session as a person reads it: from the log, and from nothing else."""
        session = self.session(session_id)
        drawn = cards(session.events, pending_tool_calls(session))
        self._console.print()
        self._console.print(Text(render_text(drawn, width=self._console.width)))

    def input(self, question: str) -> str:
        """Ask the person at the terminal."""
        self._console.print(Text(f"    {question}"), end="")
        return input().strip()


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Hold back a Ctrl-C until the block ends; in a process started here, for good."""
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


if __name__ == "__main__":
    _, act, folder, model = sys.argv
    acts = {"recall": _recall_in_second_process, "decide": _decide_in_second_process}
    sys.exit(_told(_Stage(Path(folder), model), acts[act]))
