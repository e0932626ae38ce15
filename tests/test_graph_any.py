"""Of any graph: which nodes run, in which order, and that a crash changes nothing."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from approving import Dying, Killed
from hypothesis import given, settings
from hypothesis import strategies as st

from minagent import InMemorySessionManager, SessionManager, ToolCall, ToolResult
from minagent.errors import NothingToContinueError
from minagent.multiagent import Graph, GraphBuilder, GraphRun

pytestmark = pytest.mark.heavy

Pair = tuple[int, int]


@dataclass(frozen=True)
class Plan:
    """A graph without loops, and which of its edges are followed.

    Attributes:
        size: How many nodes there are, from 0 on.
        edges: From a node to a later one, and whether it is followed.
        loop: An edge back, which is followed once; or None.
    """

    size: int
    edges: Mapping[Pair, bool] = field(default_factory=dict)
    loop: Pair | None = None


@st.composite
def plans(draw: st.DrawFn, *, with_loop: bool) -> Plan:
    size = draw(st.integers(1, 7))
    pairs = [(a, b) for b in range(size) for a in range(b)]
    edges: dict[Pair, bool] = {}
    if pairs:
        chosen = draw(st.lists(st.sampled_from(pairs), unique=True))
        edges = {pair: draw(st.booleans()) for pair in sorted(chosen)}
    loop = None
    if with_loop and (ways := [pair for pair, taken in edges.items() if taken]):
        source, target = draw(st.sampled_from(ways))
        loop = (target, source)
    return Plan(size, edges, loop)


def graph_of(plan: Plan, sessions: SessionManager) -> Graph:
    def node(name: str) -> Callable[[GraphRun], Awaitable[str]]:
        async def enter(run: GraphRun) -> str:
            await asyncio.sleep(0)
            run.state[name] = run.state.get(name, 0) + 1
            return f"{name} {run.times(name)}"

        return enter

    builder = GraphBuilder()
    for number in range(plan.size):
        builder.add_node(f"n{number}", node(f"n{number}"), repeatable=True)
    for (source, target), is_taken in plan.edges.items():
        builder.add_edge(
            f"n{source}", f"n{target}", when=lambda run, is_taken=is_taken: is_taken
        )
    if plan.loop is not None:
        source, target = (f"n{each}" for each in plan.loop)
        builder.add_edge(source, target, when=lambda run: run.times(source) < 2)
    builder.set_entries(*(f"n{number}" for number in begin_of(plan)))
    return builder.build(session_manager=sessions)


def begin_of(plan: Plan) -> list[int]:
    """Return the nodes that no edge leads to, loops aside."""
    targets = {target for _, target in plan.edges}
    return [number for number in range(plan.size) if number not in targets]


async def log_of(sessions: SessionManager) -> list[ToolCall | ToolResult]:
    session = await sessions.get("s")
    assert session is not None
    items = [item for event in session.events for item in event.content]
    return [item for item in items if isinstance(item, ToolCall | ToolResult)]


@given(plan=plans(with_loop=False))
async def test_a_node_runs_once_if_a_way_leads_to_it_and_after_all_that_do(
    plan: Plan,
) -> None:
    sessions = InMemorySessionManager()

    result = await graph_of(plan, sessions).run("Go.", session_id="s")

    met = set(begin_of(plan))
    for (source, target), is_taken in sorted(plan.edges.items()):
        if is_taken and source in met:  # sources come before their targets
            met.add(target)
    log = await log_of(sessions)
    calls = [item.name for item in log if isinstance(item, ToolCall)]
    assert sorted(calls) == sorted(f"n{number}" for number in met)
    for (source, target), is_taken in plan.edges.items():
        if is_taken and source in met:
            done = next(
                at
                for at, item in enumerate(log)
                if isinstance(item, ToolResult) and item.name == f"n{source}"
            )
            entered = next(
                at
                for at, item in enumerate(log)
                if isinstance(item, ToolCall) and item.name == f"n{target}"
            )
            assert done < entered, f"n{target} did not wait for n{source}"
    taken = {source for (source, _), is_taken in plan.edges.items() if is_taken}
    ends = [f"n{number} 1" for number in sorted(met - taken)]
    assert all(end in str(result.output) for end in ends)


@given(plan=plans(with_loop=True), at=st.integers(1, 40), is_stored=st.booleans())
@settings(max_examples=2 * settings().max_examples)
async def test_after_a_crash_at_any_save_it_ends_as_if_there_had_been_none(
    plan: Plan, at: int, is_stored: bool
) -> None:
    whole, broken = InMemorySessionManager(), InMemorySessionManager()
    await graph_of(plan, whole).run("Go.", session_id="s")
    with suppress(Killed):
        await graph_of(plan, Dying(broken, at, stored=is_stored)).run(
            "Go.", session_id="s"
        )

    known = await broken.get("s")
    words = None if known and known.events else "Go."
    with suppress(NothingToContinueError):
        await graph_of(plan, broken).run(words, session_id="s")

    one, two = [await sessions.get("s") for sessions in (whole, broken)]
    assert one is not None
    assert two is not None
    expected, found = GraphRun.of(one.events), GraphRun.of(two.events)
    assert found.transitions == expected.transitions
    assert (found.results, found.state) == (expected.results, expected.state)
    assert found.answer == expected.answer
    assert [visit.node for visit in found.visits] == [
        visit.node for visit in expected.visits
    ]
