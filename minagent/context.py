"""One run in progress.

An `ExecutionContext` is what callbacks and tools see of a run: its session and state,
and `record`, which adds to the log. `commit` is the only way in which a run changes
what is stored: append, save, then tell whoever watches. Commits of one run happen one
after the other.

This file knows nothing of models and tools; it only carries the ids that they need.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeAlias, TypeVar

from minagent.errors import NotSerializableError, SessionConflictError
from minagent.events import (
    ContentItem,
    Event,
    Note,
    ToolConfirmation,
    ToolResult,
    Usage,
    dump_json,
    load_json,
    new_id,
    utc_now,
)
from minagent.ledger import record_of
from minagent.marks import is_mark
from minagent.session import Session, SessionManager, State

PENDING = "pending_tool_calls"
"""The key in `session.state` of the calls that wait for a person."""

T = TypeVar("T")

Clock: TypeAlias = Callable[[], datetime]
Change: TypeAlias = Callable[[State], None]
Mend: TypeAlias = Callable[[NotSerializableError], Event]
OnEvent: TypeAlias = Callable[["ExecutionContext", Event], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """The first item of a stream: the session, and the input, are stored.

    Attributes:
        session_id: The session, or None if nothing is stored.
        execution_id: The run.
    """

    session_id: str | None
    execution_id: str


@dataclass(frozen=True, slots=True)
class Progress:
    """What a tool says of its progress. Passing: it is shown and not stored."""

    text: str
    tool_call_id: str | None


async def resolved(value: Awaitable[T] | T) -> T:
    """Return what a callback returned, which may be sync or async."""
    return await value if isinstance(value, Awaitable) else value


# Which call is being carried out, and what was decided about it: the calls of a reply
# run side by side, and each has a value of its own.
_call: ContextVar[tuple[str | None, tuple[ToolConfirmation, ...]]]
_call = ContextVar("minagent_call", default=(None, ()))
# The runs whose watchers are at work: they are not told of what they record themselves.
_watched: ContextVar[tuple["ExecutionContext", ...]]
_watched = ContextVar("minagent_watched", default=())


class ExecutionContext:
    """One run in progress, or one that has ended.

    Args:
        session: The conversation.
        session_manager: Where it is stored; None means nowhere.
        author: Who the run's events are by.
        clock: Tells the time, aware.
        emit: Takes what a stream shows.
        on_event: Told of each event after it is stored, but of none that it records
            itself.

    Attributes:
        session: The conversation; all of its log is in `session.events`.
        session_manager: Where it is stored, or None.
        execution_id: The id of this run, which its events carry.
        step: The number of model calls so far.
        is_open: Whether the session, with what the run began with, is stored.
        final_result: The output, once the run has ended with an answer.
    """

    def __init__(
        self,
        session: Session,
        session_manager: SessionManager | None = None,
        *,
        author: str = "assistant",
        clock: Clock = utc_now,
        emit: Callable[[Any], None] = lambda item: None,
        on_event: OnEvent | None = None,
    ) -> None:
        self.session, self.session_manager = session, session_manager
        self.execution_id = new_id()
        self.step, self.is_open = 0, False
        self.final_result: Any = None
        self.emit = emit
        self._author, self._clock, self._on_event = author, clock, on_event
        self._start = len(session.events)
        self._saved_state = session.dump_state()
        self._lock = asyncio.Lock()

    @property
    def session_id(self) -> str | None:
        """The id under which the session is stored, or None if it is not."""
        return None if self.session_manager is None else self.session.session_id

    @property
    def state(self) -> State:
        """The session's state; changes are saved with the next commit."""
        return self.session.state

    @property
    def now(self) -> datetime:
        """The time, by the agent's clock."""
        return self._clock()

    @property
    def events(self) -> tuple[Event, ...]:
        """The events of this run, in order."""
        mine, later = self.execution_id, self.session.events[self._start :]
        return tuple(each for each in later if each.execution_id == mine)

    @property
    def usage(self) -> Usage:
        """What the model calls of this run cost."""
        return sum((each.usage for each in self.events if each.usage), start=Usage())

    @property
    def tool_call_id(self) -> str | None:
        """Inside a tool: the call that is being carried out."""
        return _call.get()[0]

    @property
    def decisions(self) -> tuple[ToolConfirmation, ...]:
        """Inside a tool: what people decided about it and in it, in order."""
        return _call.get()[1]

    async def record(self, *items: ContentItem, author: str | None = None) -> Event:
        """Add one event with these items to the log, and store it.

        Args:
            items: What to add, such as a `Note`.
            author: Who it is by; None means the agent.

        Raises:
            SessionConflictError: Somebody else saved the session meanwhile.
            NotSerializableError: The state holds what JSON has no word for.
        """
        event = self.event(*items, author=author)
        await self.commit(event)
        return event

    def progress(self, text: str) -> None:
        """Show whoever watches how far a tool has come. Nothing is stored."""
        self.emit(Progress(text, self.tool_call_id))

    # --- For the agent --------------------------------------------------------

    def event(
        self, *items: ContentItem, author: str | None = None, **more: Any
    ) -> Event:
        """Return an event of this run, not yet in the log.

        Args:
            items: Its content.
            author: Who it is by; None means the agent.
            more: The other fields of `Event`.
        """
        more |= {"execution_id": self.execution_id, "timestamp": self.now}
        return Event(author=author or self._author, content=items, **more)

    def open(self) -> None:
        """Tell whoever watches, once, that the run has begun."""
        if not self.is_open:
            self.is_open = True
            self.emit(SessionOpened(self.session_id, self.execution_id))

    @staticmethod
    def enter_call(call_id: str, decisions: Sequence[ToolConfirmation]) -> None:
        """Set `tool_call_id` and `decisions` for the rest of this task."""
        _call.set((call_id, tuple(decisions)))

    async def commit(
        self, *events: Event, change: Change | None = None, mend: Mend | None = None
    ) -> None:
        """Append events and save, and then tell whoever watches.

        A call has one result: another one is left out. Where others have only decided
        or answered calls since, or made notes that are no marks, results, and notes of
        what they cost, are put behind what they saved.

        Args:
            events: The events to append; there may be none.
            change: Changes the state in the same save.
            mend: If JSON has no word for something in the state: makes the events to
                append instead, and the state is put back to what it was.

        Raises:
            SessionConflictError: Somebody else saved the session meanwhile.
            NotSerializableError: The state holds what JSON has no word for; nothing
                was appended.
        """
        async with self._lock:
            version, new = self.session.version, events
            if change is not None:
                change(self.session.state)
            try:
                state = self.session.dump_state()
            except NotSerializableError as error:
                if mend is None:
                    raise
                self.mend_state()
                new, state = (mend(error),), self.session.dump_state()
            new = tuple(
                event
                for event in map(self._without_late, new)
                if event.content or event.is_reply
            )
            if not new and change is None:
                return
            self.session.append(*new)
            try:
                state = await self._save(change) or state
            finally:
                # Also after a cancel: what is stored is shown.
                if self.session.version > version:
                    self._saved_state = state
                    self.open()
                    for event in new:
                        self.emit(event)
        if self._on_event is not None and self not in _watched.get():
            token = _watched.set((*_watched.get(), self))
            try:
                for event in new:
                    await resolved(self._on_event(self, event))
            finally:
                _watched.reset(token)

    def _without_late(self, event: Event) -> Event:
        """Return an event without results of calls that have one."""
        results = [item for item in event.content if isinstance(item, ToolResult)]
        records = [record_of(self.session.events, r.tool_call_id) for r in results]
        late = {r.call.tool_call_id for r in records if r and r.result}
        kept = [i for i in event.content if getattr(i, "tool_call_id", "") not in late]
        return replace(event, content=tuple(kept)) if late else event

    def mend_state(self) -> NotSerializableError | None:
        """Put those keys of the state back to what was last saved that JSON refuses.

        Returns:
            What JSON refused, or None if all was well.
        """
        saved, refused = load_json(self._saved_state), None
        if not isinstance(self.state, dict):
            refused = NotSerializableError("state", "is no dict")
            self.session.state = saved
        for key, value in list(self.state.items()):
            try:
                dump_json({key: value}, "state")
            except NotSerializableError as error:
                refused = error
                del self.state[key]
                self.state.update({key: saved[key]} if key in saved else {})
        return refused

    async def _save(self, change: Change | None) -> str | None:
        """Save; return the state as JSON text if it is another one than before."""
        state = None
        if self.session_manager is None:
            self.session.mark_saved()
            return None
        while True:
            try:
                await self.session_manager.save(self.session)
                return state
            except SessionConflictError as error:
                error.unsaved = self.session.unsaved
                newer = await self.session_manager.get(self.session.session_id)
                if newer is None or not self._can_follow(newer):
                    raise
                self._rebase(newer, change)
                state = self.session.dump_state()

    def _can_follow(self, newer: Session) -> bool:
        """Whether what is unsaved are results and costs, which may follow others."""
        mine = [
            item
            for event in self.session.unsaved
            for item in event.content
            if not (event.usage and isinstance(item, Note))
        ]
        known = len(self.session.events) - len(self.session.unsaved)
        theirs = [item for event in newer.events[known:] for item in event.content]
        open_ = [
            record_of(newer.events, each.tool_call_id)
            for each in mine
            if isinstance(each, ToolResult)
        ]
        return (
            len(open_) == len(mine)
            and all(record and record.result is None for record in open_)
            and all(
                isinstance(each, Note | ToolConfirmation | ToolResult)
                and not is_mark(each)
                for each in theirs
            )
            and newer.incarnation == self.session.incarnation
        )

    def _rebase(self, newer: Session, change: Change | None) -> None:
        """Go on with the newer session, and bring along what this run did."""
        before, mine = load_json(self._saved_state), dict(self.state)
        self._saved_state = newer.dump_state()
        for key in {*before, *mine} - {PENDING}:
            if key not in mine:
                newer.state.pop(key, None)
            elif key not in before or before[key] != mine[key]:
                newer.state[key] = mine[key]
        if change is not None:
            change(newer.state)
        # Tools may hold the dict, so it stays the same one.
        self.state.clear()
        self.state.update(newer.state)
        newer.state = self.state
        newer.append(*self.session.unsaved)
        self.session = newer
