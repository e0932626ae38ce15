"""Approval: a question to a person, kept as data in the session, and its answer.

A call of a gated tool is neither run nor answered. It goes on the list of pending calls
in the session's state (`pending_tool_calls`), and the run ends. A person decides, in
this process or another, today or in three weeks: `pending.approve()`, `deny()` or
`answer()` makes a `ToolConfirmation`, which goes to `Agent.run`.

`decide` checks all decisions of a run before any is taken. Taking one means two things
in one save: the call leaves the list, and the decision enters the log. Of two people
who decide at once, one save wins; so an approved tool runs at most once. Decisions are
looked up in the log, which only grows, so no restored list revives a call.

This guards against the model. It does not guard against a client that may send any
confirmation it likes: who may decide is for the program to check.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from minagent import errors
from minagent.context import PENDING, Change, ExecutionContext
from minagent.events import (
    FrozenObject,
    Status,
    Stored,
    Text,
    ToolCall,
    ToolConfirmation,
    ToolResult,
    UtcTime,
    dump_json,
    plain,
    stored,
)
from minagent.ledger import record_of
from minagent.session import Session, State, reading
from minagent.tools import Tool


@stored
class PendingToolCall(Stored):
    """A tool call that waits for a person.

    Attributes:
        tool_call_id: The call.
        name: The tool.
        arguments: What the model wants to call it with.
        confirmation_message: The question.
        fingerprint: Of session, call, tool, arguments and time, so that a decision can
            only be about this question.
        asked_at: When it was asked.
        expires_at: When the question closes by itself, or None.
        path: For a question of an agent inside an agent: the ids of the calls that
            lead to it, outermost first.
    """

    tool_call_id: Text
    name: Text
    arguments: FrozenObject
    confirmation_message: Text
    fingerprint: Text
    asked_at: UtcTime
    expires_at: UtcTime | None = None
    path: tuple[Text, ...] = ()

    def approve(
        self, *, by: str | None = None, arguments: Mapping[str, Any] | None = None
    ) -> ToolConfirmation:
        """Return the decision to run it.

        Args:
            by: Who decides.
            arguments: What to run it with instead; `{}` means with none, None means as
                the model asked.
        """
        return self._decision(True, by=by, modified_arguments=arguments)

    def deny(
        self, reason: str | None = None, *, by: str | None = None
    ) -> ToolConfirmation:
        """Return the decision not to run it.

        Args:
            reason: Why not; the model is told.
            by: Who decides.
        """
        return self._decision(False, by=by, reason=reason)

    def answer(self, text: str, *, by: str | None = None) -> ToolConfirmation:
        """Return the decision to answer in the tool's place; it is not run.

        Args:
            text: What the model gets as the result.
            by: Who decides.
        """
        return self._decision(False, by=by, answer=text)

    def _decision(self, approved: bool, **more: Any) -> ToolConfirmation:
        more |= {"fingerprint": self.fingerprint, "path": self.path}
        return ToolConfirmation(
            tool_call_id=self.tool_call_id, approved=approved, **more
        )


class Paused(Exception):
    """Raised inside a tool to pause the run until a person has decided.

    The tool must be `resumable`: it is entered again with the same call id, and with
    the decisions in `context.decisions`.

    Args:
        pending: The questions inside the tool.
    """

    def __init__(self, pending: Iterable[PendingToolCall]) -> None:
        self.pending = tuple(pending)
        super().__init__(f"paused for {len(self.pending)} decisions")


def pending_tool_calls(session: Session) -> tuple[PendingToolCall, ...]:
    """Return the calls that wait for a person, in the order in which they were asked.

    Raises:
        CorruptSessionError: The list in the session's state is damaged.
    """
    with reading(session.session_id):
        return _adapter().validate_python(session.state.get(PENDING, ()))


def waiting_call(asked: PendingToolCall | ToolConfirmation) -> str:
    """Return the id of the session's own call that waits for this question."""
    return asked.path[0] if asked.path else asked.tool_call_id


def ask(
    context: ExecutionContext, call: ToolCall, tool: Tool[..., Any]
) -> PendingToolCall:
    """Return the question about a call.

    Args:
        context: The run.
        call: A call whose arguments fit.
        tool: Its tool.
    """
    now, session = context.now, context.session
    about = [call.tool_call_id, call.name, call.arguments, now.isoformat()]
    question = dump_json([session.session_id, session.incarnation, *about], "question")
    return PendingToolCall(
        tool_call_id=call.tool_call_id,
        name=call.name,
        arguments=call.arguments,
        confirmation_message=tool.question(call.arguments),
        fingerprint=hashlib.sha256(question.encode()).hexdigest(),
        asked_at=now,
        expires_at=now + tool.expires_in if tool.expires_in else None,
    )


def changed(
    *, gone: Sequence[PendingToolCall] = (), new: Sequence[PendingToolCall] = ()
) -> Change:
    """Return the change that takes calls off the list and puts others on it."""

    def change(state: State) -> None:
        leaving = [plain(each) for each in gone]
        listed = [each for each in state.pop(PENDING, ()) if each not in leaving]
        if listed or new:
            state[PENDING] = listed + [plain(each) for each in new]

    return change


@dataclass(slots=True)
class Ruling:
    """What a set of decisions comes to, if all of them can be taken.

    Attributes:
        gone: The questions that they answer.
        items: What enters the log: the decisions, and the results of the calls that are
            not to be run.
        calls: The ids of the calls to run, or to enter again.
    """

    gone: list[PendingToolCall] = field(default_factory=list)
    items: list[ToolConfirmation | ToolResult] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)


def decide(
    session: Session,
    decisions: Sequence[ToolConfirmation],
    tools: Mapping[str, Tool[..., Any]],
    late: Sequence[PendingToolCall] = (),
) -> Ruling:
    """Check decisions, and return what they come to. Nothing is changed.

    Args:
        session: The session, with the calls on its list that can be decided.
        decisions: All decisions of one run.
        tools: The agent's tools, to check edited arguments.
        late: The calls on the list whose deadline has passed.

    Raises:
        UnknownCallError: Nobody was asked about a call.
        AlreadyDecidedError: One was decided or closed before, or is decided twice.
        ApprovalExpiredError: The deadline of one has passed.
        FingerprintError: One was made for another question.
        InvalidArgumentsError: Edited arguments do not fit the tool.
    """
    ruling = Ruling()
    for decision in decisions:
        asked = _question_of(session, decision, late)
        if asked in ruling.gone:
            raise errors.AlreadyDecidedError(decision.tool_call_id)
        if decision.fingerprint not in (None, asked.fingerprint):
            raise errors.FingerprintError(decision.tool_call_id)
        edited, tool = decision.modified_arguments, tools.get(asked.name)
        if edited is not None and tool and not asked.path:  # inside, others check
            try:
                tool.checked(edited)
            except ValueError as error:
                call_id = decision.tool_call_id
                raise errors.InvalidArgumentsError(call_id, problem=error) from None
        ruling.gone.append(asked)
        taken = replace(decision, path=asked.path, fingerprint=asked.fingerprint)
        ruling.items.append(taken)
        if asked.path or decision.approved:
            ruling.calls.append(waiting_call(asked))
        elif decision.answer is not None:
            ruling.items.append(_result(asked, "success", decision.answer))
        else:
            by = f" by {decision.by}" if decision.by else ""
            text = f"Not run: denied{by}: {decision.reason or 'no reason was given'}"
            ruling.items.append(_result(asked, "denied", text))
    return ruling


def _result(asked: PendingToolCall, status: Status, content: str) -> ToolResult:
    call_id, name = asked.tool_call_id, asked.name
    return ToolResult(tool_call_id=call_id, name=name, status=status, content=content)


def _question_of(
    session: Session, decision: ToolConfirmation, late: Sequence[PendingToolCall]
) -> PendingToolCall:
    """Return the question that a decision answers; one made by hand has only an id."""
    call_id = decision.tool_call_id
    same = [p for p in pending_tool_calls(session) if p.tool_call_id == call_id]
    exact = [each for each in same if each.path == decision.path]
    if not exact and not decision.path and len(same) == 1:
        exact = same
    path = exact[0].path if exact else decision.path
    record = record_of(session.events, path[0] if path else call_id)
    result = record.result if record else None
    if any(each in late for each in exact) or (result and result.status == "expired"):
        raise errors.ApprovalExpiredError(call_id)
    # Asked of the log, which only grows: no restored list revives a call.
    taken = [(d.path, d.tool_call_id) for d in record.decisions] if record else []
    if result or (path, call_id) in taken:
        raise errors.AlreadyDecidedError(call_id)
    if not exact:
        raise errors.UnknownCallError(call_id)
    return exact[0]


@cache
def _adapter() -> TypeAdapter[tuple[PendingToolCall, ...]]:
    return TypeAdapter(tuple[PendingToolCall, ...])
