"""The conversation of an agent that works inside another one's session.

A call of the outer session hands a task to an agent. `Inside` is that agent at work: in
a session inside the outer one, `<session>/<thread>`, with the same manager and the same
owner. All progress is in that session's log. So the call may be entered again, after a
pause or after a crash, and the agent goes on from where its log ends: what it has done
is not done again.

Calls may share a thread. Then a Note says where the part of each call begins, and the
agent remembers what it said in those before.

What pauses the inner agent pauses the outer one (`Paused`), and decisions come in as
`context.decisions`. Either side knows only its neighbour, so this goes to any depth:
on its way out a question gets the id of each call before its path, on its way in a
decision loses it. What the inner agent costs is counted by a Note in the outer log.

This file knows nothing of stores, and the core knows nothing of this file.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast
from weakref import WeakKeyDictionary

from pydantic import JsonValue

from minagent.agent import Agent
from minagent.approval import Paused, pending_tool_calls
from minagent.context import ExecutionContext
from minagent.errors import (
    AlreadyDecidedError,
    ApprovalExpiredError,
    InvalidArgumentsError,
    MaxStepsExceededError,
    NothingToContinueError,
    SessionBusyError,
    SessionConflictError,
    SessionNotFoundError,
)
from minagent.events import (
    Event,
    Message,
    Note,
    Status,
    ToolConfirmation,
    ToolResult,
    Usage,
    said_by_user,
)
from minagent.log import EventLog
from minagent.marks import current, marks
from minagent.model import ends_run
from minagent.session import Session, check_owner
from minagent.store import SessionStore

DELEGATED = "delegated"
"""The kind of the Note on an event whose `usage` is what an inner agent has cost:
`{"session_id": …, "events": …}`, with how many of its events are counted by now."""

ENTERED = "entered"
"""The kind of the Note behind which the part of a call begins, where calls share a
thread: `{"tool_call_id": …, "task": …}`. The task is an event of the outer log: a graph
that saves seldom may have forgotten a call, and then makes another one with its id."""

MAX_ID_BYTES = 255

# Sessions that no manager keeps live as long as the session that they are inside of.
_unstored: WeakKeyDictionary[Session, dict[str, Session]] = WeakKeyDictionary()


def inner_session_id(session_id: str, thread: str) -> str:
    """Return the id of the session of a thread: of a call, or of a node of a graph.

    It is `<session>/<thread>`. Where that would be too long for an id, a digest of the
    thread stands in its place; and if that does not help, one of the session's id as
    well. Then `delete` cannot see any more what the session is inside of.
    """
    inner = f"{session_id}/{thread}"
    if len(inner.encode()) > MAX_ID_BYTES:
        inner = f"{session_id}/{_digest(thread)}"
    if len(inner.encode()) > MAX_ID_BYTES:
        inner = f"{_digest(session_id)}/{_digest(thread)}"
    return inner


def _digest(part: str) -> str:
    """Return half a SHA-256 in hex: 32 letters, which no two parts ever share."""
    return hashlib.sha256(part.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Inside:
    """An agent that carries out one call of another session.

    Attributes:
        agent: The agent. Its own `session_manager` is not used.
        context: The run that calls it.
        call_id: The call.
        thread: The conversation in which it works; None means one for this call alone.
    """

    agent: Agent
    context: ExecutionContext
    call_id: str
    thread: str | None = None

    async def answered(self, task: str) -> ToolResult:
        """Begin, or go on from where the log ends, and return the answer.

        Where the agent ends without an answer, the result is an error that says why.

        Args:
            task: What the agent is told, once.

        Raises:
            Paused: A person has to decide; or somebody else is at work on the session.
        """
        try:
            return await self._answered(task)
        finally:  # also of a pause or a failure: what was spent is spent
            await self._count_usage()

    async def part(self) -> EventLog:
        """Return what the agent's log has of this call."""
        known = await self._known()
        return EventLog(self._part_of(known) or () if known else ())

    async def _answered(self, task: str) -> ToolResult:
        unfit: dict[str, str] = {}
        while True:
            session = await self._known() or await self._made()
            context = ExecutionContext(session, self.context.session_manager)
            part = self._part_of(session)
            try:
                if part is None:
                    await context.record(self._entry, author=ENTERED)
                result = await self.agent.run(
                    None if part and any(map(said_by_user, part)) else task,
                    tool_confirmations=self._decisions(session, unfit),
                    context=context,
                )
            except NothingToContinueError:
                return self._answer(session)  # only the result was not stored yet
            except InvalidArgumentsError as error:
                # The decision is taken, so nobody can be asked again about this call.
                unfit[error.tool_call_id] = str(error)
            except ApprovalExpiredError:
                continue  # decided in time, but it got here too late; now it is closed
            except MaxStepsExceededError as error:
                return self._failed(
                    f"it took {error.max_steps} model calls, which is its limit"
                )
            except (AlreadyDecidedError, SessionBusyError, SessionConflictError):
                # Somebody else is at work on it, and will store the result.
                known = await self._known()
                raise Paused(pending_tool_calls(known) if known else ()) from None
            else:
                if result.status == "pending_confirmation":
                    raise Paused(result.pending_tool_calls)
                return self._answer(result.context.session)

    async def _count_usage(self) -> None:
        """Add what the agent has cost since this was last done to the run's usage."""
        known = await self._known()
        log = known.events if known else EventLog()
        outer = self.context.session
        if (manager := self.context.session_manager) is not None:
            # Whoever has decided beside this run may have counted just now.
            outer = await manager.get(outer.session_id) or outer
        new = log[self._counted(outer.events) :]
        spent = sum((each.usage for each in new if each.usage), start=Usage())
        if spent != Usage():
            data: dict[str, JsonValue]
            data = {"session_id": self._session_id, "events": len(log)}
            note = Note(kind=DELEGATED, data=data)
            event = self.context.event(note, author=DELEGATED, usage=spent)
            await self.context.commit(event)

    @property
    def _entry(self) -> Note:
        """What stands where the part of this call begins."""
        log = current(self.context.session.events)
        task = next((x.event_id for x in reversed(log) if said_by_user(x)), None)
        return Note(kind=ENTERED, data={"tool_call_id": self.call_id, "task": task})

    @property
    def _session_id(self) -> str:
        thread = self.thread or self.call_id
        return inner_session_id(self.context.session.session_id, thread)

    async def _known(self) -> Session | None:
        """Return the session as it stands, or None if it was not made or is deleted.

        Raises:
            SessionOwnerError: It is not that of the caller's owner.
        """
        outer = self.context.session
        if (manager := self.context.session_manager) is None:
            return _unstored.get(outer, {}).get(self._session_id)
        if (known := await manager.get(self._session_id)) is not None:
            check_owner(known, outer.user_id)
        return known

    async def _made(self) -> Session:
        """Make the session.

        Raises:
            SessionNotFoundError: The one that it is inside of is deleted; then what is
                made now would be left of it.
        """
        outer, session_id = self.context.session, self._session_id
        if (manager := self.context.session_manager) is not None:
            session = await manager.get_or_create(session_id, outer.user_id)
            known = await manager.get(outer.session_id)
            if known is None or known.incarnation != outer.incarnation:
                # One that somebody has said something in is not what was made here.
                if isinstance(manager, SessionStore) and session.version == 0:
                    await manager.delete(session_id, seen=session)
                raise SessionNotFoundError(outer.session_id)
            return session
        made = Session(session_id, outer.user_id)
        return _unstored.setdefault(outer, {}).setdefault(session_id, made)

    def _part_of(self, session: Session) -> EventLog | None:
        """Return what counts of the log for this call; None if it has not begun."""
        log = current(session.events)
        if self.thread is None:
            return log
        entry = self._entry
        for at, event in reversed([*enumerate(log)]):
            if entry in event.content:
                return EventLog(log[at + 1 :])
        return None

    def _decisions(
        self, session: Session, unfit: Mapping[str, str]
    ) -> list[ToolConfirmation]:
        """Return what was decided and has not come in yet, as it is meant in here."""
        asked = {(p.path, p.tool_call_id) for p in pending_tool_calls(session)}
        inner = [replace(d, path=d.path[1:]) for d in self.context.decisions if d.path]
        return [
            replace(d, approved=False, modified_arguments=None, reason=reason)
            if (reason := None if d.path else unfit.get(d.tool_call_id))
            else d
            for d in inner
            if (d.path, d.tool_call_id) in asked
        ]

    def _counted(self, outer: Sequence[Event]) -> int:
        """Return how many of the agent's events the log of the caller has counted."""
        for event in reversed(outer):
            for note in marks(event, DELEGATED):
                if note.data.get("session_id") == self._session_id:
                    return cast(int, note.data["events"])
            if self.thread is None and self._is_call(event):
                break
        return 0

    def _is_call(self, event: Event) -> bool:
        return any(call.tool_call_id == self.call_id for call in event.tool_calls)

    def _answer(self, session: Session) -> ToolResult:
        # From the log in any case, so that it reads the same after a crash.
        log = current(session.events)
        reply = next(each for each in reversed(log) if each.is_reply)
        said = [item.content for item in reply.content if isinstance(item, Message)]
        reason = reply.stop_reason
        if ends_run(reason) or reason == "max_tokens":
            return self._failed(f"its reply ended with {reason}", "".join(said))
        return self._result("".join(said))

    def _failed(self, problem: str, said: str = "") -> ToolResult:
        words = f" Its last words: {said}" if said else ""
        text = f"No answer: {problem}. What the agent has done stands.{words}"
        return self._result(text, "error")

    def _result(self, content: str, status: Status = "success") -> ToolResult:
        # The runner of the calls puts the name in.
        return ToolResult(
            tool_call_id=self.call_id, name="", content=content, status=status
        )
