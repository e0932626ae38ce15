"""The runs in progress, and who watches them.

A run belongs to the server, not to the connection that asked for it: a client that
leaves loses nothing. `Runs.start` begins one and returns once the session, with what
the run began with, is stored; `Runs.watch` lets any number of clients see its items.

Who comes later is first given the open part: what was streamed of the reply that is not
stored yet, joined to one delta for each part of it, and the last progress of each tool.
A client that reads slowly gets its deltas joined likewise, so it costs no more memory
than the reply does.

This file knows nothing of HTTP. It tells what passes; what lasts is read from the store
(`follow.py`).
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeAlias

from minagent.agent import Agent
from minagent.approval import PendingToolCall
from minagent.context import Progress, SessionOpened
from minagent.errors import StoreUnavailableError
from minagent.events import Event, ToolConfirmation, ToolResult, Usage
from minagent.memory import MemoryManager
from minagent.model import Delta, ToolInputDelta
from minagent.session import Session
from minagent.stream import AgentResult

logger = logging.getLogger("minagent")

OnDisconnect: TypeAlias = Literal["go_on", "cancel"]
Outcome: TypeAlias = Literal["complete", "pending_confirmation", "cancelled", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a run ended.

    Attributes:
        execution_id: The run.
        status: As `AgentResult.status`; or `cancelled`; or `failed`.
        stop_reason: Why the last reply ended, in the vendor's word.
        pending: The calls that wait for a person.
        usage: What its model calls cost, if it came to a result.
        error: What it failed with.
    """

    execution_id: str
    status: Outcome
    stop_reason: str | None = None
    pending: tuple[PendingToolCall, ...] = ()
    usage: Usage | None = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Touched:
    """The session was changed by somebody else than a run: look at the store."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The server ends."""


Item: TypeAlias = SessionOpened | Event | Delta | Progress | Ended | Touched | Closed


class Joined:
    """Items in order. Deltas of one part of a reply that follow each other are one."""

    def __init__(self) -> None:
        self._parts: list[tuple[Item, list[str]]] = []

    def add(self, item: Item) -> None:
        """Put an item at the end."""
        last = self._parts[-1] if self._parts else None
        if last and isinstance(item, Delta) and _same_part(last[0], item):
            last[1].append(item.text)
        else:
            self._parts.append((item, [item.text] if isinstance(item, Delta) else []))

    def take(self) -> list[Item]:
        """Return the items, and forget them."""
        items = self.items()
        self._parts.clear()
        return items

    def items(self) -> list[Item]:
        """Return the items."""
        return [
            replace(item, text="".join(texts)) if isinstance(item, Delta) else item
            for item, texts in self._parts
        ]


class Watcher:
    """One client's view of the runs of a session.

    Attributes:
        session_id: The session.
        run: The run in progress when this began to watch, or None.
        passed: The ids of that run's events which its items were past by then.
    """

    def __init__(self, session_id: str, run: "Run | None" = None) -> None:
        self.session_id, self.run = session_id, run
        self.passed = frozenset(run.passed) if run else frozenset[str]()
        self._items, self._there = Joined(), asyncio.Event()
        for item in run.open_part() if run else ():
            self.put(item)

    def put(self, item: Item) -> None:
        """Add an item."""
        self._items.add(item)
        self._there.set()

    async def items(self, seconds: float) -> list[Item]:
        """Return what came since the last call, or nothing if there is none in time.

        Args:
            seconds: How long to wait.
        """
        try:
            async with asyncio.timeout(seconds):
                await self._there.wait()
        except TimeoutError:
            return []
        self._there.clear()
        return self._items.take()


class Run:
    """One run in progress.

    Attributes:
        session_id: The session.
        execution_id: Its id, once it is open.
        passed: The ids of its events so far.
        task: The work; awaiting it waits for the end.
    """

    def __init__(self, session_id: str) -> None:
        self.session_id, self.execution_id = session_id, ""
        self.passed: set[str] = set()
        self.task: asyncio.Task[AgentResult]
        self.is_open = asyncio.Event()
        self._reply, self._progress = Joined(), dict[str | None, Progress]()

    def take(self, item: Item) -> None:
        """Keep the open part up to date."""
        if isinstance(item, Progress):
            self._progress[item.tool_call_id] = item
        elif isinstance(item, Delta):
            self._reply.add(item)
        elif isinstance(item, Event):
            self.passed.add(item.event_id)
            if item.is_reply:
                self._reply = Joined()
            for result in item.content:
                if isinstance(result, ToolResult):
                    self._progress.pop(result.tool_call_id, None)

    def open_part(self) -> list[Item]:
        """Return what was streamed and is not stored: the reply, and progress."""
        return [*self._reply.items(), *self._progress.values()]


class Runs:
    """The runs in progress of one agent, by session.

    Args:
        agent: Runs.
        memory: Where the session goes after each run that came to a result, or None.
        on_disconnect: Whether a run goes on when the last client that watched it has
            left, or is cancelled then.
    """

    def __init__(
        self,
        agent: Agent,
        *,
        memory: MemoryManager | None = None,
        on_disconnect: OnDisconnect = "go_on",
    ) -> None:
        if on_disconnect not in ("go_on", "cancel"):
            raise ValueError(f"on_disconnect is {on_disconnect!r}: 'go_on' or 'cancel'")
        self._agent, self._memory = agent, memory
        self._cancels, self._closed = on_disconnect == "cancel", False
        self._runs: dict[str, Run] = {}
        self._tasks: set[asyncio.Task[AgentResult]] = set()
        self._watchers: dict[str, set[Watcher]] = {}

    def get(self, session_id: str) -> Run | None:
        """Return the run in progress, or None."""
        return self._runs.get(session_id)

    async def start(
        self,
        session_id: str,
        user_id: str,
        text: str | None = None,
        decisions: Sequence[ToolConfirmation] = (),
        watcher: Watcher | None = None,
    ) -> Run:
        """Begin a run, and return it once it is open.

        Args:
            session_id: A session that is there.
            user_id: Whose it is.
            text: What the user says, or None to go on.
            decisions: What the user decided.
            watcher: A new one, to see all of the run; `leave` ends it.

        Raises:
            StoreUnavailableError: The server is ending.
            MinagentError: What `Agent.run` raises before the run is open. A decision
                that cannot be taken always is among these.
        """
        if self._closed:
            raise StoreUnavailableError(place="", problem="the server is ending")
        run = Run(session_id)
        work = self._work(run, watcher, user_id, text, tuple(decisions))
        run.task = asyncio.create_task(work)
        self._tasks.add(run.task)
        run.task.add_done_callback(partial(self._end, run))
        opening = asyncio.create_task(run.is_open.wait())
        try:
            await asyncio.wait([run.task, opening], return_when=asyncio.FIRST_COMPLETED)
        finally:
            opening.cancel()
        if not run.is_open.is_set():
            self.touch(session_id)  # what was overdue may have been closed
            if run.task.cancelled():
                raise StoreUnavailableError(place="", problem="the server is ending")
            run.task.result()  # raises why not
        return run

    def watch(self, session_id: str) -> Watcher:
        """Return a new watcher of a session; `leave` ends it."""
        watcher = Watcher(session_id, self.get(session_id))
        self._watchers.setdefault(session_id, set()).add(watcher)
        return watcher

    def leave(self, watcher: Watcher) -> None:
        """End a watcher, and the run that nobody watches any more, if so wished."""
        session_id = watcher.session_id
        others = self._watchers.get(session_id, set())
        others.discard(watcher)
        if not others:
            self._watchers.pop(session_id, None)
            if self._cancels and (run := self.get(session_id)):
                run.task.cancel()

    def touch(self, session_id: str) -> None:
        """Have whoever watches a session look at the store."""
        self._tell(session_id, Touched())

    async def cancel(self, session_id: str) -> bool:
        """Cancel the run in progress, wait for its end, and say whether there was one.

        What it has stored stays, and its open calls are answered in the log.
        """
        run = self.get(session_id)
        if run is not None:
            run.task.cancel()
            await asyncio.wait([run.task])
        return run is not None

    async def aclose(self) -> None:
        """Cancel all runs, wait for their ends, and let all watchers go."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for session_id in self._watchers:
            self._tell(session_id, Closed())

    async def _work(
        self,
        run: Run,
        watcher: Watcher | None,
        user_id: str,
        text: str | None,
        decisions: tuple[ToolConfirmation, ...],
    ) -> AgentResult:
        stream = self._agent.stream(
            text,
            session_id=run.session_id,
            user_id=user_id,
            tool_confirmations=decisions,
        )
        held: list[Item] = []
        async with stream:
            async for item in stream:
                held.append(item)
                if not run.is_open.is_set():
                    if isinstance(item, SessionOpened):
                        run.execution_id = item.execution_id
                    if not _opens(item, decisions):
                        continue
                    await self._open(run, watcher)
                for each in held:
                    run.take(each)
                    self._tell(run.session_id, each)
                held.clear()
        await self._remember(stream.result.context.session)
        return stream.result

    async def _open(self, run: Run, watcher: Watcher | None) -> None:
        # The run before has left the session free, but may not be through with us yet.
        while before := self.get(run.session_id):
            await asyncio.wait([before.task])
        self._runs[run.session_id] = run
        if watcher is not None:
            watcher.run = run
            self._watchers.setdefault(run.session_id, set()).add(watcher)
        run.is_open.set()

    async def _remember(self, session: Session) -> None:
        if self._memory is None:
            return
        try:
            await self._memory.add_session(session)
        except Exception as error:
            # The manager may be anybody's, and the run itself has come to its end.
            told = f"{type(error).__name__}: {error}"
            logger.warning("session=%s | not remembered: %s", session.session_id, told)

    def _end(self, run: Run, task: "asyncio.Task[AgentResult]") -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if run.is_open.is_set():
            del self._runs[run.session_id]
            if error is not None:
                session_id = run.session_id
                logger.error("session=%s | run failed", session_id, exc_info=error)
            self._tell(run.session_id, _ended(run, task, error))

    def _tell(self, session_id: str, item: Item) -> None:
        for watcher in self._watchers.get(session_id, ()):
            watcher.put(item)


def _same_part(one: Item, other: Delta) -> bool:
    if isinstance(one, ToolInputDelta) and isinstance(other, ToolInputDelta):
        return one.tool_call_id == other.tool_call_id
    return type(one) is type(other)


def _opens(item: Item, decisions: Sequence[ToolConfirmation]) -> bool:
    """Whether a run has stored what it began with.

    One whose decisions cannot be taken may store that others are overdue before it
    fails; so there, the decisions have to be in the log.
    """
    if not decisions:
        return isinstance(item, SessionOpened)
    return isinstance(item, Event) and any(
        isinstance(each, ToolConfirmation) for each in item.content
    )


def _ended(
    run: Run, task: "asyncio.Task[AgentResult]", error: BaseException | None
) -> Ended:
    if task.cancelled():
        return Ended(execution_id=run.execution_id, status="cancelled")
    if error is not None:
        return Ended(execution_id=run.execution_id, status="failed", error=error)
    result = task.result()
    return Ended(
        execution_id=run.execution_id,
        status=result.status,
        stop_reason=result.stop_reason,
        pending=result.pending_tool_calls,
        usage=result.usage,
    )
