"""`minagent chat`: a conversation at the terminal.

Read `Chat.go`: it shows what is stored, asks what waits for a person, and then takes
one line after the other. While a line is typed, no event loop runs; while an answer
comes, Ctrl-C cancels the run and nothing else (`Chat._finish`). What is stored stays,
so the conversation goes on from there, now or later.

Where no person sits at the terminal, lines come from a pipe and nothing is asked: the
command ends at the first question, at the first error, and with Ctrl-C.

This file knows nothing of where sessions are kept, and of how cards are drawn.
"""

import asyncio
import getpass
import secrets
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

import typer

from minagent import (
    Agent,
    AgentResult,
    MinagentError,
    PendingToolCall,
    Session,
    SessionStore,
    ToolConfirmation,
    pending_tool_calls,
)
from minagent.cli.agents import (
    OFFLINE,
    ModelName,
    ToolNames,
    asking,
    made_model,
    named_tools,
    windows,
)
from minagent.cli.live import Live
from minagent.cli.outcome import UsageError, complain, told
from minagent.cli.places import Store, memory_at, store_at, user_option
from minagent.cli.questions import decision_on
from minagent.cli.screen import Screen
from minagent.marks import current
from minagent.memory import MemoryManager, recall
from minagent.opening import awaits_model
from minagent.session import check_owner
from minagent.tools import toolbox

_HELP = """\
/continue   go on from where the conversation stands, without a new message
/help       this
/quit       end, as Ctrl-D does; Ctrl-C cancels an answer"""


def chat(
    session: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The conversation; without it, a new one."),
    ] = None,
    user: Annotated[str | None, user_option("Whose conversation it is.")] = None,
    store: Store = None,
    model: ModelName = OFFLINE,
    tools: ToolNames = None,
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory",
            metavar="URL",
            help="Recall from here what the user said in other conversations, and keep "
            "what is said: sqlite:///memory.db. Needs --user.",
        ),
    ] = None,
) -> None:
    """Talk to a model, in a conversation that survives.

    Ctrl-C cancels an answer, and Ctrl-D ends the chat. Type /help for the commands. A
    tool that needs your consent asks for it in place; what you do not decide goes on
    waiting.

    Example: minagent chat --session ada --model claude-opus-5-5 --tools shop:tools
    """
    with told():
        if memory is not None and user is None:
            raise UsageError("--memory needs --user: memories are a user's")
        sessions = store_at(store)
        memories = None if memory is None else memory_at(memory)
        agent = Agent(
            made_model(model, is_watched=sys.stdout.isatty()),
            tools=named_tools(tools or ()),
            session_manager=sessions,
            before_llm_callbacks=windows(model),
        )
        Chat(Screen(), agent, model, sessions, memories, session, user).go()


class Chat:
    """One conversation at the terminal.

    Args:
        screen: The terminal.
        agent: Who answers.
        model: The name of its model.
        sessions: Where the conversation is kept; it is opened, and closed.
        memory: Where to recall from, and to keep what is said; likewise.
        session_id: The conversation, or None for a new one.
        user_id: Whose it is.
    """

    def __init__(
        self,
        screen: Screen,
        agent: Agent,
        model: str,
        sessions: SessionStore,
        memory: MemoryManager | None,
        session_id: str | None,
        user_id: str | None,
    ) -> None:
        self._screen, self._agent, self._model = screen, agent, model
        self._sessions, self._memory = sessions, memory
        self._session_id, self._user_id = session_id, user_id
        self._by = user_id or login_name()
        self._is_talk = sys.stdin.isatty() and screen.is_terminal
        self._live = Live(screen, agent.name, echoes=self._is_talk)
        self._runner = asyncio.Runner()

    def go(self) -> None:
        """Talk until the person has enough.

        Raises:
            MinagentError: The store cannot be used, or there is nobody to ask.
        """
        with self._runner:
            opened = AsyncExitStack()
            try:
                self._runner.run(self._open(opened))
                with suppress(EOFError):
                    self._talk()
            finally:
                self._runner.run(opened.aclose())
        if self._is_talk and self._live.has_drawn:
            name = self._session_id
            self._screen.line("")
            self._screen.line(f"This is kept: --session {name} goes on with it.")

    async def _open(self, opened: AsyncExitStack) -> None:
        await opened.enter_async_context(self._sessions)
        if self._memory is not None:
            await opened.enter_async_context(self._memory)
            callbacks = [recall(self._memory), *self._agent.before_llm_callbacks]
            self._agent.before_llm_callbacks = callbacks
        if hasattr(self._agent.model, "aclose"):
            opened.push_async_callback(self._agent.model.aclose)
        while self._session_id is None:
            # Short enough to be typed. It is made with the first message, so a chat in
            # which nothing is said leaves nothing.
            name = f"{datetime.now(UTC):%Y-%m-%d}-{secrets.token_hex(2)}"
            if await self._sessions.get(name) is None:
                self._session_id = name

    # --- What the person does

    def _talk(self) -> None:
        """Take one line after the other.

        Raises:
            EOFError: There is none any more.
        """
        session = self._catch_up()
        if self._is_talk:
            name = self._session_id
            kind = "goes on" if session else "is new"
            self._screen.line(f"Session {name} {kind}. /help tells what you can type.")
        if session is not None:
            with self._ctrl_c_ends_nothing():
                self._decide(pending_tool_calls(session))
                self._tell_if_unanswered()
        while (words := self._read()) not in ("/quit", "/exit"):
            with self._ctrl_c_ends_nothing():
                self._obey(words)

    def _read(self) -> str:
        """Return the next line; an empty one for Ctrl-C, which has no answer to end."""
        if self._is_talk:
            try:
                self._screen.write("\n")
                return self._screen.ask("> ")
            except KeyboardInterrupt:
                self._screen.line("")
                self._screen.line("(Ctrl-D or /quit ends the chat.)")
                return ""
        if not (line := sys.stdin.readline()):
            raise EOFError
        return line.strip()

    def _obey(self, words: str) -> None:
        """Do what a line says."""
        match words:
            case "":
                pass
            case "/help":
                for line in _HELP.splitlines():
                    self._screen.line(line)
            case "/continue":
                self._turn(None)
            case _:
                self._turn(words)

    def _turn(self, words: str | None) -> None:
        """Run until there is an answer; ask the person what comes up on the way."""
        result = self._finish(words, ())
        if result is None:
            return
        if result.status == "pending_confirmation" and not result.pending_tool_calls:
            self._screen.line(
                "(Another process is at work on a call: /continue looks.)"
            )
        self._decide(result.pending_tool_calls)

    def _decide(self, pending: Sequence[PendingToolCall]) -> None:
        """Ask about what waits, and go on with the decisions; as long as there is any.

        Raises:
            EOFError: The person left; what waits goes on waiting.
            MinagentError: There is no person.
        """
        while pending:
            if not self._is_talk:
                raise MinagentError(
                    problem="a question waits for a person, and there is none here; "
                    "see: minagent approvals list"
                )
            tools = toolbox(self._agent.tools)
            try:
                decisions = [
                    decision_on(each, self._screen, tools, self._by) for each in pending
                ]
            except KeyboardInterrupt:
                self._screen.line("")
                self._screen.line(
                    "(It goes on waiting. /continue asks again; a message closes it.)"
                )
                return
            result = self._finish(None, decisions)
            if result is None:
                session = self._catch_up()
                pending = () if session is None else pending_tool_calls(session)
            else:
                pending = result.pending_tool_calls

    def _tell_if_unanswered(self) -> None:
        session = self._runner.run(self._get())
        if session is None or pending_tool_calls(session) or not self._is_talk:
            return
        if awaits_model(current(session.events)):
            self._screen.line("(The last message has no answer yet: /continue.)")

    @contextmanager
    def _ctrl_c_ends_nothing(self) -> Iterator[None]:
        """Let the chat go on where Ctrl-C comes just before an answer, or behind it."""
        try:
            yield
        except KeyboardInterrupt:
            if not self._is_talk:
                raise
            self._screen.line("")
            self._screen.line("(/continue looks whether an answer is missing.)")

    # --- What the agent does

    async def _answer(
        self, words: str | None, decisions: Sequence[ToolConfirmation]
    ) -> AgentResult:
        """Run the agent, and show what it does."""
        with asking(self._model):
            async with self._agent.stream(
                words,
                session_id=self._session_id,
                user_id=self._user_id,
                tool_confirmations=decisions,
            ) as stream:
                async for item in stream:
                    self._live.show(item)
        self._live.catch_up(stream.result.context.session)
        if self._memory is not None:
            await self._memory.add_session(stream.result.context.session)
        return stream.result

    def _finish(
        self, words: str | None, decisions: Sequence[ToolConfirmation]
    ) -> AgentResult | None:
        """Answer to the end; None if Ctrl-C has cancelled that, or it failed."""
        loop = self._runner.get_loop()
        # From here to the end of the answer, Ctrl-C raises nothing.
        with _ctrl_c_cancels(loop) as ctrl_c:
            task = ctrl_c.task = loop.create_task(self._answer(words, decisions))
            if ctrl_c.was_pressed:
                task.cancel()

            async def ended() -> None:
                await asyncio.wait([task])

            self._runner.run(ended())
        if ctrl_c.was_pressed and not task.cancelled() and not self._is_talk:
            raise KeyboardInterrupt  # it came when the answer had just ended
        try:
            return task.result()
        except asyncio.CancelledError:
            self._catch_up()
            if not self._is_talk:
                raise KeyboardInterrupt from None
            self._screen.line("(Cancelled. What was said is kept: /continue answers.)")
        except MinagentError as error:
            self._catch_up()
            if not self._is_talk:
                raise
            complain(str(error))
        return None

    def _catch_up(self) -> Session | None:
        """Draw what is stored and not on the screen yet."""
        session = self._runner.run(self._get())
        if session is not None:
            self._live.catch_up(session)
        return session

    async def _get(self) -> Session | None:
        assert self._session_id is not None
        session = await self._sessions.get(self._session_id)
        if session is not None:
            check_owner(session, self._user_id)
        return session


@dataclass
class _CtrlC:
    """Whether Ctrl-C was pressed, and what it cancels."""

    was_pressed: bool = False
    task: "asyncio.Task[AgentResult] | None" = None


@contextmanager
def _ctrl_c_cancels(loop: asyncio.AbstractEventLoop) -> Iterator[_CtrlC]:
    """Let Ctrl-C cancel a task, however often: it stores what it must, and ends."""
    ctrl_c = _CtrlC()

    def stop(*_: object) -> None:
        ctrl_c.was_pressed = True
        if ctrl_c.task is not None:
            loop.call_soon_threadsafe(ctrl_c.task.cancel)

    # The loop's own handler only wakes it: what comes when it stands still already, the
    # loop would never tell, or tell of the next answer.
    with suppress(NotImplementedError):  # on Windows, where it wakes by itself
        loop.add_signal_handler(signal.SIGINT, lambda: None)
    signal.signal(signal.SIGINT, stop)
    yield ctrl_c
    with suppress(NotImplementedError):
        loop.remove_signal_handler(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def login_name() -> str | None:
    """Return who sits at this machine, as far as it knows."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None
