"""The stage of `minagent demo`: the agent, the second process, and the printing.

A `Stage` does what the story in `demo.py` asks for, and shows what came of it. Both
processes have one, and they meet in its folder: there are the sessions, the memories,
and the file that is to be deleted.

This file does not know in which order things happen, and which outcome is right.
"""

import asyncio
import io
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path

from rich.console import Console
from rich.text import Text

from minagent import (
    Agent,
    AgentResult,
    AlreadyDecidedError,
    Model,
    Session,
    Tool,
    ToolConfirmation,
    models,
    pending_tool_calls,
    tool,
)
from minagent.cards import NoteCard, cards, render_text
from minagent.memory import SQLiteMemoryManager, recall
from minagent.models import OfflineModel
from minagent.stores import SQLiteSessionManager

FILE = "old.txt"
MIN_COLUMNS, MAX_COLUMNS = 40, 80

OFFLINE, LOCAL = "offline", "local"
INSTRUCTIONS = "You are a helpful assistant. Keep every answer to one short sentence."


class Stage:
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
        self.memories = folder / "memory.db"
        self.file = folder / FILE
        self._second: subprocess.Popen[bytes] | None = None
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # an ASCII terminal shows a "?"
        # NO_COLOR is taken to mean no escape sequence at all: rich would keep bold.
        plain = bool(os.environ.get("NO_COLOR"))
        self._console = Console(highlight=False, color_system=None if plain else "auto")
        self._console.width = max(MIN_COLUMNS, min(self._console.width, MAX_COLUMNS))

    # --- The agent: made anew for each run, as if the program had just started

    def ask(
        self, question: str, session_id: str, user_id: str | None = None
    ) -> AgentResult:
        """Run the agent with a message; show the call and what came of it."""
        user = f', user_id="{user_id}"' if user_id else ""
        self.line(f'agent.run("{question}", session_id="{session_id}"{user})')
        result = asyncio.run(self._run(question, session_id, user_id=user_id))
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

    def remember(self, result: AgentResult) -> None:
        """Add what was said in a run's session to the memories; show that."""
        self.line("memory.add_session(result.context.session)")
        count = asyncio.run(self._remember(result.context.session))
        self.line(f"-> {count} texts are remembered", "bold green")

    async def _remember(self, session: Session) -> int:
        async with SQLiteMemoryManager(self.memories) as memory:
            return len(await memory.add_session(session))

    def session(self, session_id: str) -> Session:
        """Return the session as it is stored."""
        session = asyncio.run(self._stored(session_id))
        assert session is not None
        return session

    async def _stored(self, session_id: str) -> Session | None:
        async with SQLiteSessionManager(self.database) as sessions:
            return await sessions.get(session_id)

    async def _run(
        self,
        question: str | None,
        session_id: str,
        *decisions: ToolConfirmation,
        user_id: str | None = None,
    ) -> AgentResult:
        async with (
            SQLiteSessionManager(self.database) as sessions,
            # Not held open, so that acts without a user do not even make the file.
            aclosing(SQLiteMemoryManager(self.memories)) as memory,
        ):
            agent = Agent(
                self._made_model(session_id),
                instructions=INSTRUCTIONS,
                tools=[self._delete_file()],
                session_manager=sessions,
                before_llm_callbacks=[recall(memory)],
            )
            return await agent.run(
                question,
                session_id=session_id,
                user_id=user_id,
                tool_confirmations=decisions,
            )

    def _made_model(self, session_id: str) -> Model:
        is_first_act = session_id in (self.name.lower(), "bob")
        if self.model == OFFLINE or (self.model == LOCAL and not is_first_act):
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

    def draw(self, session_id: str, *, notes_only: bool = False) -> None:
        """Show a session as a person reads it: from the log, and from nothing else."""
        session = self.session(session_id)
        drawn = cards(session.events, pending_tool_calls(session))
        if notes_only:
            drawn = [card for card in drawn if isinstance(card, NoteCard)]
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
