"""Visits: what the log of an orchestrator says of those that it has sent to work.

A graph and a swarm are agents that ask no model what to do next. Each reply of theirs
is made of calls, and a call is a *visit*: of a node, or of a peer. So what is known of
a run is known from its log: `visits` reads it. A visit has one call, and one more for
each time that it was tried again.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from minagent.agent import Agent
from minagent.context import ExecutionContext
from minagent.errors import NodeFailedError
from minagent.events import (
    Event,
    Media,
    Message,
    Note,
    ToolCall,
    ToolResult,
    said_by_user,
)
from minagent.marks import current, marks
from minagent.model import ModelRequest, ModelResponse
from minagent.multiagent.inside import Inside
from minagent.tools import Tool, tool

AGAIN = "again"
"""The kind of the Note in a reply that tries again: `{"nodes": [name, …]}`."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Visit:
    """A node at work, or when it has been.

    Attributes:
        node: Its name.
        number: The how manieth visit of this node for the task, from 1.
        tool_call_ids: Its call, and those that tried again.
        result: What became of the last of them, or None while it is open.
        execution_id: The run that stored the result, or None.
    """

    node: str
    number: int
    tool_call_ids: tuple[str, ...]
    result: ToolResult | None = None
    execution_id: str | None = None

    @property
    def is_done(self) -> bool:
        """Whether it has ended well; then it is never entered again."""
        return self.result is not None and self.result.status == "success"


def since_task(events: Sequence[Event]) -> Sequence[Event]:
    """Return what counts of a log, from the last thing that the user said on."""
    log = current(events)
    place = log.folded(_LastTask, lambda last: last.place)
    return () if place is None else log[place:]


class _LastTask:
    """Where the user has said something last: a fold (see `log.py`)."""

    def __init__(self) -> None:
        self.place: int | None = None
        self._count = 0

    def add(self, event: Event) -> None:
        if said_by_user(event):
            self.place = self._count
        self._count += 1


class _Called:
    """How often each tool was called: a fold."""

    def __init__(self) -> None:
        self.times = Counter[str]()

    def add(self, event: Event) -> None:
        self.times.update(call.name for call in event.tool_calls)


def task_of(events: Sequence[Event]) -> str:
    """Return the last thing that the user said, as text."""
    return "\n".join(each.content for each in _said(events, Message))


def check_task(events: Sequence[Event]) -> None:
    """Check that the last thing that the user said can be handed on.

    Raises:
        ValueError: There are pictures or documents in it.
    """
    if _said(events, Media):
        raise ValueError("a graph and a swarm hand on text, no pictures or documents")


def _said(events: Sequence[Event], kind: type[T]) -> list[T]:
    items = [item for event in since_task(events)[:1] for item in event.content]
    return [item for item in items if isinstance(item, kind)]


def visits(
    events: Sequence[Event], *, until: ToolCall | None = None
) -> tuple[Visit, ...]:
    """Return the visits for the last task, in the order in which they began.

    Args:
        events: A log.
        until: A call; what came after it is left out. None means all.
    """
    found: list[Visit] = []
    for event in since_task(events):
        again = {node for note in marks(event, AGAIN) for node in note.data["nodes"]}  # type: ignore[union-attr]
        for call in event.tool_calls:
            _begin(found, call, call.name in again)
        for item in event.content:
            if isinstance(item, ToolResult):
                for at, visit in enumerate(found):
                    if item.tool_call_id == visit.tool_call_ids[-1]:
                        run = event.execution_id
                        found[at] = replace(visit, result=item, execution_id=run)
        if until in event.tool_calls:
            break
    return tuple(found)


def _begin(found: list[Visit], call: ToolCall, is_again: bool) -> None:
    before = [at for at, visit in enumerate(found) if visit.node == call.name]
    if is_again and before:
        last = found[before[-1]]
        ids = (*last.tool_call_ids, call.tool_call_id)
        found[before[-1]] = replace(last, tool_call_ids=ids, result=None)
    else:
        found.append(Visit(call.name, len(before) + 1, (call.tool_call_id,)))


def reply_of(
    calls: Sequence[ToolCall], again: Sequence[str], *notes: Note
) -> ModelResponse:
    """Return the reply that sends nodes to work.

    Args:
        calls: The calls.
        again: Those of the nodes that are tried again.
        notes: What else is in the reply.
    """
    if again:
        notes += (Note(kind=AGAIN, data={"nodes": [*again]}),)
    return ModelResponse((*notes, *calls), stop_reason="tool_use")


def call_of(context: ExecutionContext, node: str, task: str) -> ToolCall:
    """Return a call that sends a node to work.

    Its id is the name of the node and how often it was called in this session, so a run
    that is repeated after a crash has the ids that it had.
    """
    log = context.session.events
    number = log.folded(_Called, lambda called: called.times[node]) + 1
    return ToolCall(
        name=node, arguments={"task": task}, tool_call_id=f"{node}-{number}"
    )


def left_by_another_run(
    context: ExecutionContext, failed: Sequence[Visit]
) -> tuple[str, ...]:
    """Return the nodes that failed in another run, so that this one tries again.

    Raises:
        NodeFailedError: One of them has failed in this run.
    """
    for visit in failed:
        if visit.result and visit.execution_id == context.execution_id:
            problem = f"{visit.result.status}: {visit.result.content}"
            raise NodeFailedError(context.session_id, node=visit.node, problem=problem)
    return tuple(visit.node for visit in failed)


def visit_of(context: ExecutionContext) -> Visit:
    """Return, inside a node, the visit that is going on.

    Raises:
        ValueError: None is; it was called by hand.
    """
    call_id = context.tool_call_id
    for visit in visits(context.session.events):
        if visit.tool_call_ids[-1] == call_id:
            return visit
    raise ValueError("a node is carried out by a run of its graph, not by hand")


def entering_agent(name: str, agent: Agent, **options: Any) -> Tool[..., Any]:
    """Return the tool that sends an agent to work, always in the same conversation.

    Args:
        name: Of the node; it is the thread, too.
        agent: The agent.
        options: Those of `tool`.
    """

    async def enter(task: str, context: ExecutionContext) -> ToolResult:
        return await at_work(name, agent, context).answered(task)

    enter.__doc__ = f"Send {name} to work."
    return tool(name=name, resumable=True, **options)(enter)


def at_work(name: str, agent: Agent, context: ExecutionContext) -> Inside:
    """Return an agent at work in a visit.

    What was tried before is gone on with, under the id that it began with.
    """
    return Inside(agent, context, visit_of(context).tool_call_ids[0], thread=name)


class Unasked:
    """The model of who asks none."""

    async def generate(self, request: ModelRequest, emit: object) -> ModelResponse:
        """Never be called.

        Raises:
            RuntimeError: In any case.
        """
        raise RuntimeError("a graph and a swarm ask no model what to do next")
