"""What a run does before it calls the model: close, decide, take the input.

A run may find calls that wait for a person, calls whose deadline has passed, and calls
that a crash cut off. `plan` says, for the session as it stands, what to add to the log
and which calls to carry out; it changes nothing. If the save of it meets a conflict,
the agent loads the session again and makes a new plan. `Start` is what a run was
started with.

This file runs no tool and calls no model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from minagent import errors
from minagent.approval import (
    PendingToolCall,
    Ruling,
    decide,
    pending_tool_calls,
    waiting_call,
)
from minagent.calls import failed
from minagent.context import ExecutionContext
from minagent.events import (
    ContentItem,
    Event,
    Media,
    Message,
    Note,
    Status,
    ToolConfirmation,
    ToolResult,
    from_model,
    new_id,
    well_formed,
)
from minagent.ledger import CallRecord, open_calls
from minagent.model import ends_run
from minagent.session import Session, SessionManager, check_owner
from minagent.tools import Tool
from minagent.transcript import UNKNOWN_OUTCOME

UserInput: TypeAlias = str | Sequence[Message | Media]

INVALID_OUTPUT = "invalid_output"
"""The kind of the Note that tells a model what is wrong with its answer."""

EXPIRED = "Expired, not run: nobody decided in time."
REPLACED = "Not run: replaced by a newer message."


class Start:
    """What a run was started with.

    Args:
        manager: The agent's, for a session that is named by its id.
        user_input: What the user says, or None.
        session_id: The conversation, or None.
        user_id: Who asks.
        decisions: What people decided.
        context: A run to go on from, or None.

    Raises:
        TypeError: A decision is none.
        ValueError: The input is blank, or two conversations are named.
        SessionOwnerError: The context's session is not this user's.

    Attributes:
        manager: Where the session is stored, or None if it is not.
        session: The session, where it need not be loaded.
        words: What the user says, as items.
    """

    def __init__(
        self,
        manager: SessionManager | None,
        user_input: UserInput | None,
        session_id: str | None,
        user_id: str | None,
        decisions: Sequence[ToolConfirmation],
        context: ExecutionContext | None,
    ) -> None:
        if isinstance(user_input, str):
            user_input = (Message(role="user", content=well_formed(user_input)),)
        self.words: tuple[Message | Media, ...] = tuple(user_input or ())
        self.decisions, self.user_id = tuple(decisions), user_id
        if odd := [
            w for w in self.words if not isinstance(w, Media | Message) or from_model(w)
        ]:
            raise ValueError(f"user_input holds {odd[0]!r}, which no user says")
        said = [w for w in self.words if isinstance(w, Media) or w.content.strip()]
        if user_input is not None and not said:
            raise ValueError("user_input is blank; pass None to go on without input")
        if wrong := [
            each for each in self.decisions if not isinstance(each, ToolConfirmation)
        ]:
            raise TypeError(f"{wrong[0]!r} is no decision; pass what approve() returns")
        self.manager: SessionManager | None = manager
        self.session: Session | None = None
        if context is not None:
            if session_id not in (None, context.session_id):
                raise ValueError("session_id and context name two conversations")
            self.manager, self.session = context.session_manager, context.session
            check_owner(context.session, user_id)
        elif session_id is None:
            self.manager, self.session = None, Session(new_id(), user_id)
        self.session_id = self.session.session_id if self.session else session_id or ""

    async def load(self) -> Session:
        """Return the stored session; with input alone, make it if it is new."""
        if self.manager is None:
            return cast(Session, self.session)
        if self.words and not self.decisions:
            return await self.manager.get_or_create(self.session_id, self.user_id)
        session = await self.manager.get(self.session_id)
        if session is None:
            asked = [each.tool_call_id for each in self.decisions]
            raise (
                errors.UnknownCallError(asked[0])
                if asked
                else errors.NothingToContinueError(self.session_id)
            )
        check_owner(session, self.user_id)
        return session


@dataclass(slots=True)
class Plan:
    """What a run does first.

    Attributes:
        events: What to append to the log: decisions and results, and then the input.
        gone: The questions that these answer or close.
        calls: The ids of the calls to carry out.
        is_idle: Whether there is nothing to do, and nobody to wait for.
        error: A decision that cannot be taken. It is raised once what is overdue has
            been closed; nothing else of the plan is left then.
    """

    events: list[Event] = field(default_factory=list)
    gone: list[PendingToolCall] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    is_idle: bool = False
    error: errors.ApprovalError | None = None


def plan(
    context: ExecutionContext,
    tools: Mapping[str, Tool[..., Any]],
    decisions: Sequence[ToolConfirmation],
    words: Sequence[ContentItem],
) -> Plan:
    """Return what the run does first.

    Args:
        context: The run, with its session as it stands.
        tools: The agent's tools by name.
        decisions: What people decided.
        words: What the user says; it replaces what is undecided.
    """
    session, made, ruling = context.session, Plan(), Ruling()
    left = {record.call.tool_call_id: record for record in open_calls(session.events)}
    pending = pending_tool_calls(session)
    asked = [each for each in pending if _still_waits(each, left)]
    late = [p for p in asked if p.expires_at and p.expires_at <= context.now]
    try:
        ruling = decide(session, decisions, tools, late)
    except errors.ApprovalError as error:
        made.error, words = error, ()
    # What is overdue inside a call is closed there: the call is entered again.
    calls = [each.path[0] for each in late if each.path] + ruling.calls
    closing: dict[str, tuple[Status, str]] = {
        each.tool_call_id: ("expired", EXPIRED) for each in late if not each.path
    }
    made.gone = [*late, *ruling.gone, *(each for each in pending if each not in asked)]
    waiting = [each for each in pending if each not in made.gone]
    if words:
        replaced = [each for each in waiting if waiting_call(each) not in calls]
        closing |= {waiting_call(p): ("replaced", REPLACED) for p in replaced}
        made.gone += replaced
    busy = {*calls, *map(waiting_call, asked)}
    for call_id, record in left.items():
        tool = tools.get(record.call.name)
        # Whose run brings decisions alone may have another process beside it, which is
        # at work on the call and will store the result.
        if call_id in busy or made.error or (decisions and not words):
            continue
        if not words and tool and _may_run_again(tool, record):
            calls.append(call_id)
        else:
            closing[call_id] = ("unknown", UNKNOWN_OUTCOME)
    items: list[ContentItem] = [*ruling.items]
    items += [failed(left[key].call, text, how) for key, (how, text) in closing.items()]
    made.calls = [] if made.error else list(dict.fromkeys(calls))
    made.events = [context.event(*items)] if items else []
    made.events += [context.event(*words, author="user")] if words else []
    made.is_idle = not (made.events or made.calls or waiting or made.error)
    return made


def _still_waits(pending: PendingToolCall, left: Mapping[str, CallRecord]) -> bool:
    """Whether a call on the list does wait; the list may be one that was put back."""
    if (record := left.get(waiting_call(pending))) is None:
        return False
    taken = [(each.path, each.tool_call_id) for each in record.decisions]
    return (pending.path, pending.tool_call_id) not in taken


def _may_run_again(tool: Tool[..., Any], record: CallRecord) -> bool:
    """Whether a call that was cut off may be carried out without asking anybody."""
    approved = any(each.approved and not each.path for each in record.decisions)
    asks = tool.requires_confirmation is not False
    return (tool.resumable and (approved or not asks)) or (
        tool.repeatable and not record.decisions and not asks
    )


def awaits_model(events: Sequence[Event]) -> bool:
    """Whether the last thing in a log is one that a model should reply to."""
    passed = (Note, ToolResult, ToolConfirmation)
    for event in reversed(events):
        if any(isinstance(i, Note) and i.kind == INVALID_OUTPUT for i in event.content):
            return True
        if event.is_reply:
            return (
                event.interrupted
                or event.stop_reason == "pause_turn"
                or bool(event.tool_calls and not ends_run(event.stop_reason))
            )
        if not all(isinstance(item, passed) for item in event.content):
            return True
    return False
