"""Delegation: an agent as a tool of another agent.

    research = delegate(Agent(model, tools=[...]), name="research", description="Finds")
    agent = Agent(model, tools=[research], session_manager=sessions)

Each call of the tool is a conversation of its own, in a session inside that of the
agent that calls: `<session>/<tool_call_id>`, with the same manager and the same owner.
All progress is in that session's log. So the tool may be entered again, after a pause
or after a crash, and the inner agent goes on from where its log ends: what it has done
is not done again.

What pauses the inner agent pauses the outer one (`Paused`), and decisions come in as
`context.decisions`. Either side knows only its neighbour, so this goes to any depth:
on its way out a question gets the id of each call before its path, on its way in a
decision loses it. What the inner agent costs is counted by a Note in the outer log.

Read `delegate` first, then `_Inside.answered`. This file knows nothing of stores, and
the core knows nothing of this file.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, cast
from weakref import WeakKeyDictionary

from pydantic import Field

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
)
from minagent.events import Message, Note, Status, ToolConfirmation, ToolResult, Usage
from minagent.log import EventLog
from minagent.marks import current, marks
from minagent.model import ends_run
from minagent.session import Session, check_owner
from minagent.tools import Tool, tool

DELEGATED = "delegated"
"""The kind of the Note on an event whose `usage` is what an inner agent has cost:
`{"tool_call_id": …, "events": …}`, with how many of its events are counted by now."""

MAX_ID_BYTES = 255

# Sessions that no manager keeps live as long as the session that they are inside of.
_unstored: WeakKeyDictionary[Session, dict[str, Session]] = WeakKeyDictionary()


def delegate(agent: Agent, *, name: str, description: str) -> Tool[..., Any]:
    """Return a tool that hands a task to an agent and returns its answer.

    The agent works in the store of whoever calls it; its own `session_manager` is not
    used. It sees the task, and nothing else of the conversation. Where it ends without
    an answer, the result is an error that says why.

    Args:
        agent: The agent.
        name: What the model calls it.
        description: What the model is told of it: what it is good for.

    Raises:
        ValueError: The description is empty, or the name is none that vendors take.
    """

    async def hand_over(
        task: Annotated[str, Field(description="The whole task, in words.")],
        context: ExecutionContext,
    ) -> ToolResult:
        call_id = context.tool_call_id
        if call_id is None:
            raise ValueError(f"tool {name!r} is carried out by a run, not by hand")
        inside = _Inside(agent, context, call_id)
        try:
            return await inside.answered(task)
        finally:  # also of a pause or a failure: what was spent is spent
            await inside.count_usage()

    hand_over.__doc__ = description
    return tool(name=name, resumable=True)(hand_over)


def inner_session_id(session_id: str, tool_call_id: str) -> str:
    """Return the id of the session in which a call's agent works.

    It is `<session>/<tool_call_id>`. Where that would be too long for an id, the
    SHA-256 of the longer part stands in its place, and of both if need be. Of a part
    that was the session's own id, `delete` cannot see what it is inside of.
    """
    parts = [session_id, tool_call_id]
    while len("/".join(parts).encode()) > MAX_ID_BYTES:
        longer = max(parts, key=lambda part: len(part.encode()))
        digest = hashlib.sha256(longer.encode()).hexdigest()
        parts[parts.index(longer)] = digest
    return "/".join(parts)


@dataclass(frozen=True, slots=True)
class _Inside:
    """The conversation in which an agent carries out one call.

    Attributes:
        agent: The agent.
        context: The run that calls it.
        call_id: The call.
    """

    agent: Agent
    context: ExecutionContext
    call_id: str

    async def answered(self, task: str) -> ToolResult:
        """Begin, or go on from where the log ends, and return the answer.

        Raises:
            Paused: A person has to decide; or somebody else is at work on the session.
        """
        unfit: dict[str, str] = {}
        while True:
            session = await self._known() or await self._made()
            try:
                result = await self.agent.run(
                    None if current(session.events) else task,
                    tool_confirmations=self._decisions(session, unfit),
                    context=ExecutionContext(session, self.context.session_manager),
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

    async def count_usage(self) -> None:
        """Add what the agent has cost since this was last done to the run's usage."""
        known = await self._known()
        log = known.events if known else EventLog()
        new = log[self._counted() :]
        spent = sum((each.usage for each in new if each.usage), start=Usage())
        if spent != Usage():
            note = Note(
                kind=DELEGATED, data={"tool_call_id": self.call_id, "events": len(log)}
            )
            event = self.context.event(note, author=DELEGATED, usage=spent)
            await self.context.commit(event)

    @property
    def _session_id(self) -> str:
        return inner_session_id(self.context.session.session_id, self.call_id)

    async def _known(self) -> Session | None:
        """Return the session as it stands, or None if it was not made or is deleted.

        Raises:
            SessionOwnerError: It is not that of the caller's owner.
        """
        outer = self.context.session
        if (manager := self.context.session_manager) is None:
            return _unstored.get(outer, {}).get(self.call_id)
        if (known := await manager.get(self._session_id)) is not None:
            check_owner(known, outer.user_id)
        return known

    async def _made(self) -> Session:
        outer = self.context.session
        if (manager := self.context.session_manager) is not None:
            return await manager.get_or_create(self._session_id, outer.user_id)
        made = Session(self._session_id, outer.user_id)
        return _unstored.setdefault(outer, {}).setdefault(self.call_id, made)

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

    def _counted(self) -> int:
        """Return how many of the agent's events the log of the caller has counted."""
        for event in reversed(self.context.session.events):
            for note in marks(event, DELEGATED):
                if note.data.get("tool_call_id") == self.call_id:
                    return cast(int, note.data["events"])
            if any(call.tool_call_id == self.call_id for call in event.tool_calls):
                break
        return 0

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
