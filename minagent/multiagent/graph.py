"""Graphs: agents and functions as nodes, and edges that say what comes after what.

    builder = GraphBuilder()
    builder.add_node("research", researcher)
    builder.add_node("write", writer)
    builder.add_edge("research", "write")
    graph = builder.build(session_manager=sessions)
    result = await graph.run("On ants.", session_id="ants")

A `Graph` is an agent that asks no model what to do next: it looks at its edges. Its
reply is a *step*, the calls of all nodes that can be entered now; they run side by
side. When all of them have ended, it looks again; its answer is what the last nodes
said. So what holds for an agent holds for a graph: the log, the stream, the questions
to people, the way back after a crash; and a graph may be a node, or a delegate.

A node is entered when an edge has led to it, and nothing that is still to come can lead
to it. So where ways join, it waits for all that were taken, and for no other. An edge
that leads back makes a loop, and for those nobody waits.

`GraphRun` is what is known of a run, and it is read from the log: results, transitions,
what comes next, and the state that functions share. Read it first, and then
`Graph._next`. How functions are entered is written in `functions.py`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeAlias

from minagent.agent import Agent
from minagent.context import Clock, ExecutionContext, OnEvent, resolved
from minagent.errors import NodeFailedError
from minagent.events import Message, Note, utc_now
from minagent.model import ModelRequest, ModelResponse
from minagent.multiagent.batch import in_one_save
from minagent.multiagent.functions import NodeFunction, entering_function
from minagent.multiagent.graph_run import STEP, GraphRun, Transition
from minagent.multiagent.mermaid import flowchart, standings
from minagent.multiagent.visits import (
    Unasked,
    Visit,
    call_of,
    check_task,
    entering_agent,
    left_by_another_run,
    reply_of,
)
from minagent.opening import Start
from minagent.session import Session, SessionManager
from minagent.stream import AgentResult
from minagent.tools import Gate, Tool

Condition: TypeAlias = Callable[[GraphRun], Awaitable[bool] | bool]
Asking: TypeAlias = Callable[[GraphRun, Sequence[str]], str]
SaveOn: TypeAlias = Literal["node", "run"]


@dataclass(frozen=True, slots=True)
class Node:
    """A node.

    Attributes:
        name: Its name.
        tool: What enters it.
        asks: Returns what it is asked, of the run and of the nodes that led to it.
        is_safe_to_repeat: Whether a run that is done over does no harm to it.
    """

    name: str
    tool: Tool[..., Any]
    asks: Asking
    is_safe_to_repeat: bool


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge.

    Attributes:
        source: The node that it leads from.
        target: The node that it leads to.
        when: Whether it is followed; None means whenever the source has ended.
        on_error: Whether it is for when the source has failed, and not for when not.
    """

    source: str
    target: str
    when: Condition | None = None
    on_error: bool = False


def ask_with_results(run: GraphRun, sources: Sequence[str]) -> str:
    """Return what a node is asked: the task, and what led to the node."""
    results = [f"From {name}:\n{run.text_of(name)}" for name in sources]
    return "\n\n".join([run.task, *results])


class GraphBuilder:
    """Collects nodes and edges, and makes a `Graph` of them."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._edges: list[Edge] = []
        self._entries: list[str] = []

    def add_node(
        self,
        name: str,
        work: Agent | NodeFunction,
        *,
        asks: Asking = ask_with_results,
        repeatable: bool = False,
        requires_confirmation: Gate = False,
        confirmation_message: str | None = None,
        expires_in: timedelta | None = None,
    ) -> "GraphBuilder":
        """Add a node, and return the builder.

        Args:
            name: 1 to 64 of a-z, A-Z, 0-9, _ and -.
            work: An agent (a graph and a swarm are some), which gets what `asks`
                returns; or a function, sync or async, of the `GraphRun`.
            asks: What it is asked, of the run and of the nodes that led to it; as it
                stands, the task and their results.
            repeatable: Say yes only if running the function twice does no harm: one
                that a crash cut off is then run again, and nobody is asked.
            requires_confirmation: Whether a person is asked before it is entered; or a
                function of `{"task": what it is asked}` that tells.
            confirmation_message: The question; `{task}` is what it is asked.
            expires_in: How long the question stands; None means for ever.

        Raises:
            TypeError: The work is neither agent nor function.
            ValueError: The name is taken, or none; or an option does not fit.
        """
        if name in self._nodes:
            raise ValueError(f"two nodes have the name {name!r}")
        options: dict[str, Any] = {
            "requires_confirmation": requires_confirmation,
            "confirmation_message": confirmation_message,
            "expires_in": expires_in,
        }
        if isinstance(work, Agent):
            if repeatable:
                raise ValueError(f"node {name!r}: an agent goes on from its log anyway")
            tool = entering_agent(name, work, **options)
        elif callable(work):
            if repeatable and requires_confirmation:
                raise ValueError(f"node {name!r}: what was approved once runs once")
            tool = entering_function(name, work, repeatable=repeatable, **options)
        else:
            raise TypeError(f"node {name!r}: {work!r} is neither agent nor function")
        safe = repeatable or isinstance(work, Agent)
        self._nodes[name] = Node(name, tool, asks, safe)
        return self

    def add_edge(
        self,
        source: str,
        target: str,
        *,
        when: Condition | None = None,
        on_error: bool = False,
    ) -> "GraphBuilder":
        """Add an edge between two nodes that were added, and return the builder.

        Args:
            source: The node that it leads from.
            target: The node that it leads to.
            when: Whether to follow it, told from the run; sync or async. None means
                whenever the source has ended.
            on_error: Whether it is for when the source has failed, and not for when
                not. If no such edge is followed, the failure ends the run.

        Raises:
            ValueError: There is no such node, or the edge is there already.
        """
        for name in (source, target):
            if name not in self._nodes:
                raise ValueError(f"there is no node {name!r}; add it first")
        same = (source, target, on_error)
        if any((e.source, e.target, e.on_error) == same for e in self._edges):
            raise ValueError(f"there is an edge from {source!r} to {target!r} already")
        self._edges.append(Edge(source, target, when, on_error))
        return self

    def set_entries(self, *names: str) -> "GraphBuilder":
        """Say with which nodes the graph begins, and return the builder.

        Without this it is those that no edge leads to; and if edges lead to all, the
        one that was added first.
        """
        self._entries = [*names]
        return self

    def build(
        self,
        *,
        name: str = "graph",
        session_manager: SessionManager | None = None,
        max_visits: int = 10,
        save_on: SaveOn = "node",
        on_event: OnEvent | None = None,
        clock: Clock = utc_now,
    ) -> "Graph":
        """Return the graph.

        Args:
            name: The author of its events.
            session_manager: Where sessions are kept; None means in memory.
            max_visits: How often one node may be entered for one task; so every loop
                comes to its end.
            save_on: Save the graph's own session whenever a node has ended, or (`run`)
                only when a run begins, and when it stops: fewer writes, and after a
                crash the run is done over. (Its agents go on from their own logs.)
            on_event: Called with the run and each event, after it is stored.
            clock: Tells the time, aware.

        Raises:
            ValueError: There is no node to begin with, or one that nothing leads to; or
                `save_on="run"` stands beside a function that is not `repeatable`.
        """
        return Graph(
            self._nodes.values(),
            self._edges,
            entries=self._entries,
            name=name,
            session_manager=session_manager,
            max_visits=max_visits,
            save_on=save_on,
            on_event=on_event,
            clock=clock,
        )


class Graph(Agent):
    """An agent that looks at its edges where others ask a model; see `GraphBuilder`.

    Attributes:
        nodes: The nodes by name, in the order in which they were added.
        edges: The edges.
        entries: The nodes with which it begins.
        max_visits: How often one node may be entered for one task.
        save_on: When the graph's own session is saved.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        edges: Iterable[Edge],
        *,
        entries: Sequence[str],
        name: str,
        session_manager: SessionManager | None,
        max_visits: int,
        save_on: SaveOn,
        on_event: OnEvent | None,
        clock: Clock,
    ) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.edges = (*edges,)
        targets = {edge.target for edge in self.edges}
        first = [each for each in self.nodes if each not in targets]
        self.entries = (*entries,) or (*first,) or (*[*self.nodes][:1],)
        self.max_visits, self.save_on = max_visits, save_on
        self._ahead = _ahead(self.nodes, self.edges, self.entries)
        self._check()
        super().__init__(
            Unasked(),
            name=name,
            tools=[node.tool for node in self.nodes.values()],
            session_manager=session_manager,
            max_steps=len(self.nodes) * max_visits + 1,
            before_llm_callbacks=[self._next],
            on_event=on_event,
            clock=clock,
        )

    def at(self, session: Session) -> GraphRun:
        """Return what is known of the last task in a session of this graph."""
        return GraphRun.of(session.events)

    def to_mermaid(self, session: Session | None = None) -> str:
        """Return the graph as a Mermaid flowchart.

        Args:
            session: A session of the graph, to draw in how far its last task has come:
                what is done, at work, waiting for a person, or failed.
        """
        begin = [(None, entry, "") for entry in self.entries]
        edges = [(edge.source, edge.target, _label(edge)) for edge in self.edges]
        standing = standings(session) if session else {}
        return flowchart(self.nodes, [*begin, *edges], standing)

    async def _next(
        self, context: ExecutionContext, request: ModelRequest
    ) -> ModelResponse:
        """Return the next step, or the answer."""
        check_task(context.session.events)
        run = GraphRun.of(context.session.events)
        followed: list[Transition] = []
        if not run.visits:
            followed = [(None, entry) for entry in self.entries]
        failed: list[Visit] = []
        for visit in run.step:
            ways = [edge async for edge in self._ways(visit, run)]
            followed += ways
            if not visit.is_done and not ways:
                failed.append(visit)
        again = left_by_another_run(context, failed)
        run = run.after(followed)
        names = [name for name in self.nodes if self._can_be_entered(name, run)]
        for name in names:
            if name not in again and run.times(name) >= self.max_visits:
                raise NodeFailedError(
                    context.session_id,
                    node=name,
                    problem=f"it was entered {self.max_visits} times, its limit",
                )
        calls = [
            call_of(context, name, self.nodes[name].asks(run, run.frontier[name]))
            for name in names
        ]
        if not calls:
            return ModelResponse((Message(role="assistant", content=run.answer),))
        data: dict[str, Any] = {"followed": [[*each] for each in followed]}
        return reply_of(calls, again, Note(kind=STEP, data=data))

    async def _ways(self, visit: Visit, run: GraphRun) -> AsyncIterator[Transition]:
        for edge in self.edges:
            if edge.source != visit.node or edge.on_error is visit.is_done:
                continue
            if edge.when is None or await resolved(edge.when(run)):
                yield edge.source, edge.target

    def _can_be_entered(self, name: str, run: GraphRun) -> bool:
        return name in run.frontier and not any(
            name in self._ahead[other] for other in run.frontier if other != name
        )

    async def _execute(self, start: Start, emit: Callable[[Any], None]) -> AgentResult:
        if self.save_on == "node":
            return await super()._execute(start, emit)
        async with in_one_save(start):
            return await super()._execute(start, emit)

    def _check(self) -> None:
        if self.max_visits < 1:
            raise ValueError(f"max_visits is {self.max_visits}; it is at least 1")
        if unknown := [each for each in self.entries if each not in self.nodes]:
            raise ValueError(f"there is no node {unknown[0]!r} to begin with")
        if not self.entries:
            raise ValueError("a graph has at least one node; add it")
        met = {*self.entries}.union(*(self._ahead[each] for each in self.entries))
        if lost := [each for each in self.nodes if each not in met]:
            raise ValueError(f"nothing leads to the node {lost[0]!r}; add an edge")
        nodes = self.nodes.values()
        unsafe = [node.name for node in nodes if not node.is_safe_to_repeat]
        if self.save_on == "run" and unsafe:
            raise ValueError(
                f"node {unsafe[0]!r} is not repeatable, and with save_on='run' a crash "
                "would run it twice; say repeatable=True, or save on nodes"
            )


def _label(edge: Edge) -> str:
    name = "" if edge.when is None else getattr(edge.when, "__name__", "")
    named = name if name.isidentifier() else ("if" if edge.when else "")
    return f"on error {named}".strip() if edge.on_error else named


def _ahead(
    nodes: Iterable[str], edges: Sequence[Edge], entries: Iterable[str]
) -> dict[str, set[str]]:
    """Return, for each node, those that it can lead to without going back.

    It is a walk in depth: an edge to a node that the walk is on its way from leads
    back.
    """
    found: dict[str, set[str]] = {}
    for start in (*entries, *nodes):
        way = [start] if start not in found else []
        todo = {start: [e.target for e in edges if e.source == start]}
        reach: dict[str, set[str]] = {start: set()}
        while way:
            name = way[-1]
            if todo[name]:
                target = todo[name].pop(0)
                if target in way:
                    continue
                if target not in found:
                    todo[name].insert(0, target)  # and once more, when it is known
                    way.append(target)
                    todo[target] = [e.target for e in edges if e.source == target]
                    reach[target] = set()
                    continue
                reach[name] |= {target, *found[target]}
            else:
                found[name] = reach[name]
                way.pop()
    return found
