"""Swarms: agents that hand a task over to each other, until one of them answers.

    swarm = Swarm(
        [
            Peer("planner", planner, "Plans trips."),
            Peer("booker", booker, "Books what is planned."),
        ],
        session_manager=sessions,
    )
    result = await swarm.run("Two days in Rome.", session_id="rome")

A `Swarm` is an agent that asks no model what to do next: it sends the first peer to
work, then whoever that one hands over to, and its answer is that of the last. Each peer
gets one tool more, `hand_over`, with a message to the other, and with what all should
know: the shared context. Each has one conversation, `<session>/<peer>`, and goes on in
it whenever it gets the task back.

`SwarmRun` is what is known of a run, read from the log. Read it first, and then
`Swarm._next`.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, cast

from pydantic import Field, JsonValue

from minagent.agent import Agent
from minagent.context import Clock, ExecutionContext, OnEvent
from minagent.errors import NodeFailedError
from minagent.events import Event, Message, ToolResult, dump_json, thaw, utc_now
from minagent.model import ModelRequest, ModelResponse
from minagent.multiagent.mermaid import flowchart, standings
from minagent.multiagent.visits import (
    Unasked,
    Visit,
    at_work,
    call_of,
    check_task,
    left_by_another_run,
    reply_of,
    since_task,
    task_of,
    visits,
)
from minagent.session import Session, SessionManager
from minagent.tools import Tool, tool

HAND_OVER = "hand_over"
"""The name of the tool with which a peer hands over."""


@dataclass(frozen=True, slots=True)
class Peer:
    """An agent of a swarm.

    Attributes:
        name: 1 to 64 of a-z, A-Z, 0-9, _ and -.
        agent: The agent.
        description: What the others are told of it: what it is good for.
    """

    name: str
    agent: Agent
    description: str


@dataclass(frozen=True, slots=True)
class SwarmRun:
    """What a swarm has done for its last task.

    Attributes:
        task: What the swarm was asked.
        visits: Each time that a peer was sent to work, in order.
        handovers: From whom to whom it was handed over, in order.
        shared: What peers want all to know, by key.
        message: What was said at the last hand-over.
        next_peer: Who was handed over to last; None before the first.
    """

    task: str
    visits: tuple[Visit, ...] = ()
    handovers: tuple[tuple[str, str], ...] = ()
    shared: Mapping[str, JsonValue] = field(default_factory=dict)
    message: str = ""
    next_peer: str | None = None

    @staticmethod
    def of(events: Sequence[Event]) -> "SwarmRun":
        """Return what a log tells.

        Args:
            events: The log of a swarm's session.
        """
        run = SwarmRun(task_of(events), visits(events))
        for visit in run.visits:
            details = visit.result.details if visit.result else None
            if visit.is_done and details:
                given = cast(dict[str, Any], thaw(details))
                run = replace(
                    run,
                    handovers=(*run.handovers, (visit.node, given["to"])),
                    shared={**run.shared, **given["shared"]},
                    message=given["message"],
                    next_peer=given["to"],
                )
        return run


class Swarm(Agent):
    """An agent that sends its peers to work where others ask a model.

    Args:
        peers: The agents, the first of which gets the task. Their own
            `session_manager` is not used.
        name: The author of its events.
        session_manager: Where sessions are kept; None means in memory.
        max_handovers: How often a task may be handed over.
        on_event: Called with the run and each event, after it is stored.
        clock: Tells the time, aware.

    Raises:
        ValueError: There are fewer than two peers, two have one name, an agent has a
            tool `hand_over` of its own, or `max_handovers` is below 1.

    Attributes:
        peers: The peers by name.
        max_handovers: How often a task may be handed over.
    """

    def __init__(
        self,
        peers: Sequence[Peer],
        *,
        name: str = "swarm",
        session_manager: SessionManager | None = None,
        max_handovers: int = 20,
        on_event: OnEvent | None = None,
        clock: Clock = utc_now,
    ) -> None:
        self.peers = {peer.name: peer for peer in peers}
        if len(self.peers) < len(peers):
            raise ValueError("two peers have one name")
        if len(peers) < 2:
            raise ValueError("a swarm has at least two peers; one is an agent")
        if max_handovers < 1:
            raise ValueError(f"max_handovers is {max_handovers}; it is at least 1")
        self.max_handovers = max_handovers
        super().__init__(
            Unasked(),
            name=name,
            tools=[self._entering(peer) for peer in peers],
            session_manager=session_manager,
            max_steps=max_handovers + 2,
            before_llm_callbacks=[self._next],
            on_event=on_event,
            clock=clock,
        )

    def at(self, session: Session) -> SwarmRun:
        """Return what is known of the last task in a session of this swarm."""
        return SwarmRun.of(session.events)

    def to_mermaid(self, session: Session | None = None) -> str:
        """Return the peers as a Mermaid flowchart.

        Args:
            session: A session of the swarm, to draw in how far its last task has come,
                and the hand-overs by their numbers; None draws who may hand to whom.
        """
        first, *_ = self.peers
        if session is None:
            ways = [(a, b, "") for a in self.peers for b in self.peers if a != b]
            return flowchart(self.peers, [(None, first, ""), *ways], {})
        numbers: dict[tuple[str, str], list[str]] = {}
        for number, way in enumerate(self.at(session).handovers, 1):
            numbers.setdefault(way, []).append(str(number))
        done = [(a, b, ", ".join(each)) for (a, b), each in numbers.items()]
        return flowchart(self.peers, [(None, first, ""), *done], standings(session))

    async def _next(
        self, context: ExecutionContext, request: ModelRequest
    ) -> ModelResponse:
        """Return the call of the next peer, or the answer of the last."""
        check_task(context.session.events)
        run, [first, *_] = SwarmRun.of(context.session.events), self.peers
        last = run.visits[-1] if run.visits else None
        if last and last.is_done and last.result and not last.result.details:
            words = Message(role="assistant", content=last.result.content)
            return ModelResponse((words,))
        failed = [last] if last and not last.is_done else []
        again = left_by_another_run(context, failed)
        [peer] = again or [run.next_peer or first]
        if len(run.handovers) > self.max_handovers:
            problem = f"the task was handed over {self.max_handovers} times, the limit"
            raise NodeFailedError(context.session_id, node=peer, problem=problem)
        return reply_of([call_of(context, peer, self._asked(run))], again)

    def _asked(self, run: SwarmRun) -> str:
        """Return what the next peer is told."""
        if not run.handovers:
            return run.task
        giver, _ = run.handovers[-1]
        told = [f"{giver} has handed this over to you: {run.message}"]
        told.append(f"The task: {run.task}")
        if run.shared:
            told.append(f"What all know: {dump_json(run.shared, 'shared')}")
        if len(run.handovers) == self.max_handovers:
            told.append("Nobody is left to hand over to: answer yourself.")
        return "\n\n".join(told)

    def _entering(self, peer: Peer) -> Tool[..., Any]:
        agent = peer.agent
        if not isinstance(agent.model, Unasked):  # a graph only answers
            others = [each for each in self.peers.values() if each is not peer]
            agent = copy(agent)  # of whatever class it is
            agent.tools = [*agent.tools, _hand_over(others)]
            agent.before_llm_callbacks = [
                _stop_if_handed_over,
                *agent.before_llm_callbacks,
            ]
            agent.__post_init__()

        async def enter(task: str, context: ExecutionContext) -> ToolResult:
            inside = at_work(peer.name, agent, context)
            result = await inside.answered(task)
            given = _handed_over(await inside.part())
            if given is None:
                return result
            # Whatever the agent still said or failed at: the hand-over stands.
            return replace(
                result, status="success", content=given.content, details=given.details
            )

        enter.__doc__ = f"Send {peer.name} to work."
        return tool(name=peer.name, resumable=True)(enter)


def _hand_over(others: Sequence[Peer]) -> Tool[..., Any]:
    known = "\n".join(f"- {each.name}: {each.description}" for each in others)

    async def hand_over(
        to: str,
        message: Annotated[str, Field(description="What they need to know.")],
        shared: Annotated[
            dict[str, JsonValue],
            Field(description="What everybody should know from now on, by name."),
        ] = {},  # noqa: B006  (a default for the schema; it is never changed)
    ) -> ToolResult:
        details: dict[str, JsonValue]
        details = {"to": to, "message": message, "shared": shared}
        return ToolResult(
            tool_call_id="", name="", content=f"Handed over to {to}.", details=details
        )

    names = tuple(each.name for each in others)
    hand_over.__annotations__["to"] = Literal[names]
    hand_over.__doc__ = f"Hand the task over to somebody else, and stop.\n\n{known}"
    # Of several the first stands, so one that a crash cut off may be done again.
    return tool(name=HAND_OVER, repeatable=True)(hand_over)


def _handed_over(part: Sequence[Event]) -> ToolResult | None:
    """Return the hand-over in a part of a peer's log; of several, the first stands."""
    for event in part:
        for item in event.content:
            if isinstance(item, ToolResult) and item.name == HAND_OVER and item.details:
                return item
    return None


async def _stop_if_handed_over(
    context: ExecutionContext, request: ModelRequest
) -> ModelResponse | None:
    """Answer in the model's place once the task is handed over."""
    given = _handed_over(since_task(context.session.events))
    if given is None:
        return None
    words = Message(role="assistant", content=given.content)
    # Not as an answer, which might have to be of some type.
    return ModelResponse((words,), stop_reason=HAND_OVER)
