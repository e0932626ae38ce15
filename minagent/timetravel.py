"""Time travel: checkpoints, forks and rewinds, with any `SessionManager`.

A log only grows, so every moment of a conversation is still in it, and the id of an
event is the name of a moment.

    checkpoint, checkpoints     keep a copy of `state` in the log, to go back to
    list_checkpoints            what was kept
    fork                        a new session that begins as another one stood
    rewind, undo                the same session goes on from an earlier moment

Going back erases nothing: a mark says which events count from now on (see `marks.py`),
so `rewind` also goes forward again, to what it has left before. And it undoes nothing
that tools have done: what ran has run, and its result is taken along. A question to a
person is asked in one place only: a copy does not ask it again, and where the call does
not count any more, the question is closed. So no approval is good for two runs.

This file is built on sessions alone; it knows nothing of stores and models.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from minagent.approval import changed, pending_tool_calls, waiting_call
from minagent.calls import failed
from minagent.context import PENDING, ExecutionContext, OnEvent
from minagent.errors import (
    NothingToUndoError,
    SessionConflictError,
    SessionNotFoundError,
    UnknownEventError,
)
from minagent.events import Event, Note, ToolCall, ToolResult, said_by_user, thaw
from minagent.ledger import open_calls, record_of
from minagent.log import EventLog
from minagent.marks import REDACTION, REWIND, current, marks
from minagent.session import Session, SessionManager, State, running
from minagent.transcript import UNKNOWN_OUTCOME

CHECKPOINT = "checkpoint"
"""The kind of the Note that keeps a state: `{"label": …, "state": …}`."""

FORK = "fork"
"""The kind of the Note at the end of what a fork copied: `{"from": …, "at": …}`."""

COPY = "Not run: this is a copy of the conversation."
LEFT = "Not run: the conversation went back to before this call."


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A moment to go back to.

    Attributes:
        event_id: Its name, for `fork` and `rewind`.
        label: What it was called.
        created_at: When it was made, in UTC.
    """

    event_id: str
    label: str
    created_at: datetime


def ends_turn(context: ExecutionContext, event: Event) -> bool:
    """Whether an event is an answer: a reply, whole, that asks for no tool."""
    is_whole = not event.interrupted and event.stop_reason != "pause_turn"
    return event.is_reply and is_whole and not event.tool_calls


async def checkpoint(context: ExecutionContext, label: str = "") -> str:
    """Keep a copy of the state in the log of a run, and return its event id.

    Args:
        context: The run.
        label: A name for people.

    Raises:
        NotSerializableError: The state holds what JSON has no word for.
        SessionConflictError: Somebody else saved the session meanwhile.
    """
    # The questions to people are no part of it: they are asked once, and then closed.
    state = {key: value for key, value in context.state.items() if key != PENDING}
    note = Note(kind=CHECKPOINT, data={"label": label, "state": state})
    return (await context.record(note, author=CHECKPOINT)).event_id


def checkpoints(
    *, when: Callable[[ExecutionContext, Event], bool] = ends_turn, label: str = ""
) -> OnEvent:
    """Return an `on_event` that makes checkpoints: `Agent(on_event=checkpoints())`.

    Args:
        when: Behind which events; as it stands, behind each answer.
        label: A name for people, for all of them.
    """

    async def on_event(context: ExecutionContext, event: Event) -> None:
        if when(context, event):
            await checkpoint(context, label)

    return on_event


def list_checkpoints(session: Session) -> tuple[Checkpoint, ...]:
    """Return the checkpoints of a session, in order, those it has left included."""
    return tuple(
        Checkpoint(event.event_id, str(note.data.get("label", "")), event.timestamp)
        for event in session.events
        for note in marks(event, CHECKPOINT)
    )


async def fork(
    sessions: SessionManager,
    session_id: str,
    new_id: str,
    *,
    at: str | None = None,
    user_id: str | None = None,
) -> Session:
    """Make a new session that begins as another one stood, and return it.

    A call that waits in the copy is closed, "not run: this is a copy"; it goes on
    waiting where it was asked. Sessions inside this one are not copied: an agent that
    has worked there remembers nothing of it in the copy.

    Args:
        sessions: Where both are stored.
        session_id: The session to copy; it stays as it is.
        new_id: The id of the copy.
        at: The last event of the copy, any of the log; None means as it stands now.
            With a checkpoint's id the copy has its state, else the state of now.
        user_id: Whose the copy is; None means its owner's.

    Raises:
        SessionNotFoundError: There is no such session.
        UnknownEventError: It has no such event.
        SessionExistsError: The new id is taken. (If a fork is cut off, an empty session
            may be left under it.)
    """
    source = await _session(sessions, session_id)
    log, state = _as_at(source, at)
    waiting = {waiting_call(each) for each in pending_tool_calls(source)}
    results = [*_known_results(source, log)]
    for record in open_calls([*log, *results]):
        if record.call.tool_call_id in waiting:
            result = failed(record.call, COPY, "cancelled")
        else:
            result = failed(record.call, UNKNOWN_OUTCOME, "unknown")
        results.append(Event(author=FORK, content=(result,)))
    redactions = [event for event in source.events if any(marks(event, REDACTION))]
    about = Note(kind=FORK, data={"from": session_id, "at": at})
    owner = source.user_id if user_id is None else user_id
    copy = await sessions.create(new_id, owner)
    copy.append(*log, *results, *redactions, Event(author=FORK, content=(about,)))
    copy.state.update(state)
    await sessions.save(copy)
    return copy


async def rewind(
    sessions: SessionManager, session_id: str, *, to: str | None
) -> Session:
    """Go on from an earlier moment of a session, and return the session.

    Questions to a person are closed if their calls do not count any more.

    Args:
        sessions: Where it is stored.
        session_id: The session.
        to: The event that is the last to count, any of the log; None means none. With
            a checkpoint's id the state is as it was kept, else it stays as it is.

    Raises:
        SessionNotFoundError: There is no such session.
        UnknownEventError: It has no such event.
        SessionBusyError: A run of this manager is at work on it.
    """
    return await _gone_back(sessions, session_id, lambda session: to)


async def undo(sessions: SessionManager, session_id: str) -> Session:
    """Go back to before the last thing that the user said, and return the session.

    Twice goes back two turns. The turn is still in the log: `rewind` to its last event
    brings it back.

    Args:
        sessions: Where it is stored.
        session_id: The session.

    Raises:
        SessionNotFoundError: There is no such session.
        NothingToUndoError: Nothing that the user said is left in it.
        SessionBusyError: A run of this manager is at work on it.
    """
    return await _gone_back(sessions, session_id, _before_last_turn)


async def _gone_back(
    sessions: SessionManager, session_id: str, choose: Callable[[Session], str | None]
) -> Session:
    """Rewind to the event that is chosen of the session as it stands."""
    with running(sessions, session_id):
        while True:
            session = await _session(sessions, session_id)
            try:
                return await _rewound(sessions, session, choose(session))
            except SessionConflictError:
                continue  # somebody else saved meanwhile: go back from there


def _before_last_turn(session: Session) -> str | None:
    log = current(session.events)
    said = [at for at, event in enumerate(log) if said_by_user(event)]
    if not said:
        raise NothingToUndoError(session.session_id)
    return log[said[-1] - 1].event_id if said[-1] else None


async def _session(sessions: SessionManager, session_id: str) -> Session:
    session = await sessions.get(session_id)
    if session is None:
        raise SessionNotFoundError(session_id)
    return session


async def _rewound(
    sessions: SessionManager, session: Session, to: str | None
) -> Session:
    log, state = _as_at(session, to) if to is not None else (EventLog(), session.state)
    kept = {call.tool_call_id for event in log for call in event.tool_calls}
    pending = pending_tool_calls(session)
    gone = [each for each in pending if waiting_call(each) not in kept]
    closed = dict.fromkeys(waiting_call(each) for each in gone)
    open_ = [record_of(session.events, call_id) for call_id in closed]
    left = [failed(each.call, LEFT, "cancelled") for each in open_ if each]
    mark = Note(kind=REWIND, data={"to": to})
    if left:
        session.append(Event(author=REWIND, content=tuple(left)))
    known = [*_known_results(session, log)]
    session.append(Event(author=REWIND, content=(mark,)), *known)
    asked = session.state.get(PENDING)
    session.state = dict(state) | ({PENDING: asked} if asked else {})
    if gone:
        changed(gone=gone)(session.state)
    await sessions.save(session)
    return session


def _as_at(session: Session, at: str | None) -> tuple[EventLog, State]:
    """Return what counted right behind an event, and the state to go on with.

    Raises:
        UnknownEventError: The session has no such event.
    """
    log, state = session.events, session.state
    if at is not None:
        ids = [event.event_id for event in log]
        if at not in ids:
            raise UnknownEventError(session.session_id, event_id=at)
        log = EventLog(log[: ids.index(at) + 1])
        for note in marks(log[-1], CHECKPOINT):
            state = thaw(note.data.get("state", state))  # one may be redacted
    return current(log), {key: x for key, x in state.items() if key != PENDING}


def _known_results(session: Session, log: EventLog) -> Iterator[Event]:
    """Yield the results that came later: what ran has run."""
    items = [item for event in log for item in event.content]
    have = {item.tool_call_id for item in items if isinstance(item, ToolResult)}
    for call in (item for item in items if isinstance(item, ToolCall)):
        record = record_of(session.events, call.tool_call_id)
        if record and record.result and call.tool_call_id not in have:
            # An event of its own each, so that each can be redacted by itself.
            yield Event(author=REWIND, content=(record.result,))
