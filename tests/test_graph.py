"""Graphs: nodes in the order of their edges, and the way back after anything."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import graphing
import pytest
from approving import Beside, Dying, Killed, items_of
from delegating import COST, planned
from graphing import ANSWER, STATE, TASK, TRANSITIONS, seven
from stores import FAST, Place

from minagent import (
    Agent,
    AgentResult,
    InMemorySessionManager,
    Media,
    Note,
    Session,
    SessionManager,
    SessionStore,
    ToolCall,
    pending_tool_calls,
    tool,
)
from minagent.errors import (
    AlreadyDecidedError,
    NodeFailedError,
    NothingToContinueError,
    SessionBusyError,
    SessionConflictError,
)
from minagent.events import said_by_user
from minagent.models import ScriptedModel
from minagent.multiagent import Graph, GraphBuilder, GraphRun, delegate
from minagent.timetravel import undo

pytestmark = pytest.mark.heavy

STORES = (*FAST, "folder", "postgres")


@pytest.fixture
def kept() -> SessionStore:
    """A manager for what does not depend on the store."""
    return InMemorySessionManager()


def says(text: str) -> Callable[[GraphRun], str]:
    return lambda run: text


def chain(*names: str, **nodes: Any) -> GraphBuilder:
    """Return a builder with nodes one behind the other; those not given say a name."""
    builder = GraphBuilder()
    for name in names:
        builder.add_node(name, nodes.get(name, says(name)))
    for source, target in pairwise(names):
        builder.add_edge(source, target)
    return builder


async def stored(sessions: SessionManager, session_id: str = "s") -> Session:
    session = await sessions.get(session_id)
    assert session is not None
    return session


async def run_of(sessions: SessionManager) -> GraphRun:
    return GraphRun.of((await stored(sessions)).events)


# --- The order of the nodes -------------------------------------------------------


async def test_a_node_gets_the_task_and_what_led_to_it(kept: SessionStore) -> None:
    asked: list[str] = []

    def note(run: GraphRun) -> str:
        asked.append(run.asked)
        return f"{len(asked)}."

    graph = chain("a", "b", a=note, b=note).build(session_manager=kept)

    result = await graph.run("On ants.", session_id="s")

    assert asked == ["On ants.", "On ants.\n\nFrom a:\n1."]
    assert result.output == "2."


async def test_what_a_node_is_asked_may_be_written_by_hand(kept: SessionStore) -> None:
    writer = ScriptedModel(["Written."])
    builder = GraphBuilder().add_node("facts", says("Six legs."))
    builder.add_node(
        "write",
        Agent(writer),
        asks=lambda run, sources: f"{sources[0]}: {run.results['facts']}",
    )
    graph = builder.add_edge("facts", "write").build(session_manager=kept)

    await graph.run("On ants.", session_id="s")

    [request] = writer.requests
    assert request.turns[-1].content[0].content == "facts: Six legs."  # type: ignore[union-attr]


async def test_nodes_of_a_step_run_side_by_side(kept: SessionStore) -> None:
    meeting = asyncio.Barrier(2)

    async def meet(run: GraphRun) -> str:
        async with asyncio.timeout(5):
            await meeting.wait()
        return "met"

    builder = GraphBuilder().add_node("a", meet).add_node("b", meet)

    result = await builder.build(session_manager=kept).run("Go.", session_id="s")

    assert result.output == "a:\nmet\n\nb:\nmet"


async def test_where_ways_join_a_node_waits_for_the_longest(kept: SessionStore) -> None:
    builder = chain("begin", "long", "longer", "end")
    builder.add_node("short", says("short"))
    builder.add_edge("begin", "short").add_edge("short", "end")
    graph = builder.build(session_manager=kept)

    await graph.run("Go.", session_id="s")

    run = await run_of(kept)
    assert [visit.node for visit in run.visits] == [
        *("begin", "long", "short", "longer", "end")
    ]
    assert [source for source, target in run.transitions if target == "end"] == [
        *("short", "longer")
    ]


async def test_nobody_waits_for_a_way_that_is_not_taken(kept: SessionStore) -> None:
    builder = chain("begin", "a", "end")
    builder.add_node("b", says("b"))
    builder.add_edge("begin", "b", when=lambda run: False).add_edge("b", "end")
    graph = builder.build(session_manager=kept)

    result = await graph.run("Go.", session_id="s")

    assert result.output == "end"
    assert (await run_of(kept)).times("b") == 0


async def test_within_a_loop_ways_are_joined_in_each_round(kept: SessionStore) -> None:
    builder = chain("begin", "left", "longer", "end")
    builder.add_node("right", says("right"))
    builder.add_edge("begin", "right").add_edge("right", "end")
    builder.add_edge("end", "begin", when=lambda run: run.times("end") < 3)
    graph = builder.build(session_manager=kept)

    await graph.run("Go.", session_id="s")

    run = await run_of(kept)
    assert {name: run.times(name) for name in graph.nodes} == dict.fromkeys(
        graph.nodes, 3
    )


async def test_a_condition_may_be_async(kept: SessionStore) -> None:
    async def when(run: GraphRun) -> bool:
        await asyncio.sleep(0)
        return bool(run.results["a"] == "yes")

    builder = GraphBuilder().add_node("a", says("yes")).add_node("b", says("b"))
    graph = builder.add_edge("a", "b", when=when).build(session_manager=kept)

    assert (await graph.run("Go.", session_id="s")).output == "b"


async def test_a_condition_that_raises_ends_the_run_and_nothing_is_lost(
    kept: SessionStore,
) -> None:
    broken = [True]

    def when(run: GraphRun) -> bool:
        if broken:
            raise LookupError("no such thing")
        return True

    builder = GraphBuilder().add_node("a", says("a")).add_node("b", says("b"))
    graph = builder.add_edge("a", "b", when=when).build(session_manager=kept)
    with pytest.raises(LookupError, match="no such thing"):
        await graph.run("Go.", session_id="s")
    broken.clear()

    result = await graph.run(session_id="s")

    assert result.output == "b"
    assert (await run_of(kept)).times("a") == 1


async def test_a_loop_comes_to_its_end(kept: SessionStore) -> None:
    builder = chain("a", "b").add_edge("b", "a")
    graph = builder.build(session_manager=kept, max_visits=3)

    with pytest.raises(NodeFailedError, match="'a' failed: it was entered 3 times"):
        await graph.run("Go.", session_id="s")

    run = await run_of(kept)
    assert (run.times("a"), run.times("b")) == (3, 3)
    with pytest.raises(NodeFailedError, match="entered 3 times"):
        await graph.run(session_id="s")


async def test_the_next_task_begins_anew_and_keeps_state_and_conversations(
    kept: SessionStore,
) -> None:
    model = ScriptedModel(["One.", "Two."])

    def count(run: GraphRun) -> None:
        run.state["tasks"] = run.state.get("tasks", 0) + 1

    builder = GraphBuilder().add_node("count", count).add_node("talk", Agent(model))
    graph = builder.add_edge("count", "talk").build(session_manager=kept)

    await graph.run("First?", session_id="s")
    result = await graph.run("Second?", session_id="s")

    run = await run_of(kept)
    assert result.output == "Two."
    assert run.task == "Second?"
    assert [visit.node for visit in run.visits] == ["count", "talk"]
    assert run.state == {"tasks": 2}
    assert len(model.requests[1].turns) == 3
    with pytest.raises(NothingToContinueError):
        await graph.run(session_id="s")


async def test_an_agent_goes_on_in_its_conversation_when_it_is_entered_again(
    kept: SessionStore,
) -> None:
    writer = ScriptedModel(["Draft.", "Better."])
    reviewer = Agent(ScriptedModel(["Again.", "Fine."]))
    builder = chain("write", "review", write=Agent(writer), review=reviewer)
    builder.add_edge("review", "write", when=graphing.is_told("Again."))
    graph = builder.build(session_manager=kept)

    result = await graph.run("Write.", session_id="s")

    assert result.output == "Fine."
    _, second = writer.requests
    assert [turn.role for turn in second.turns] == ["user", "assistant", "user"]
    thread = await stored(kept, "s/write")
    assert sum(map(said_by_user, thread.events)) == 2
    assert result.context.session.user_id is None


async def test_a_picture_is_not_lost_in_silence(kept: SessionStore) -> None:
    graph = chain("a").build(session_manager=kept)
    picture = Media(media_type="image/png", data="iVBORw0KGgo=")

    with pytest.raises(ValueError, match="hand on text, no pictures or documents"):
        await graph.run([picture], session_id="s")


# --- The state ---------------------------------------------------------------------


async def test_an_object_with_an_async_call_is_a_function() -> None:
    class Work:
        async def __call__(self, run: GraphRun) -> str:
            return f"done: {run.task}"

    graph = GraphBuilder().add_node("a", Work()).build()

    assert (await graph.run("Go.")).output == "done: Go."


async def test_a_function_that_hides_that_it_is_async_is_told_so() -> None:
    async def work(run: GraphRun) -> str:
        return "done"

    graph = GraphBuilder().add_node("a", lambda run: work(run)).build()

    with pytest.raises(NodeFailedError, match="'a' returned a coroutine; say `async"):
        await graph.run("Go.")


async def test_functions_share_a_state(kept: SessionStore) -> None:
    def first(run: GraphRun) -> None:
        run.state |= {"a": [1], "b": 2}

    async def second(run: GraphRun) -> dict[str, Any]:
        run.state["a"].append(2)
        del run.state["b"]
        return run.state

    graph = chain("x", "y", x=first, y=second).build(session_manager=kept)

    await graph.run("Go.", session_id="s")

    run = await run_of(kept)
    assert run.state == {"a": [1, 2]}
    assert run.results == {"x": "", "y": {"a": [1, 2]}}


async def test_of_two_that_set_a_key_the_one_that_was_added_later_has_the_last_word(
    kept: SessionStore,
) -> None:
    later_is_done = asyncio.Event()

    async def earlier(run: GraphRun) -> None:
        await later_is_done.wait()
        run.state["key"] = "earlier"

    async def later(run: GraphRun) -> None:
        run.state["key"] = "later"
        later_is_done.set()

    builder = GraphBuilder().add_node("earlier", earlier).add_node("later", later)

    await builder.build(session_manager=kept).run("Go.", session_id="s")

    assert (await run_of(kept)).state == {"key": "later"}


async def test_a_state_that_json_has_no_word_for_is_the_failure_of_its_node(
    kept: SessionStore,
) -> None:
    def spoil(run: GraphRun) -> None:
        run.state["set"] = {1, 2}

    graph = GraphBuilder().add_node("spoil", spoil).build(session_manager=kept)

    with pytest.raises(NodeFailedError, match="'spoil' failed"):
        await graph.run("Go.", session_id="s")

    assert (await run_of(kept)).state == {}


async def test_going_back_takes_the_state_back(kept: SessionStore) -> None:
    def count(run: GraphRun) -> None:
        run.state["tasks"] = run.state.get("tasks", 0) + 1

    graph = GraphBuilder().add_node("count", count).build(session_manager=kept)
    await graph.run("1", session_id="s")
    await graph.run("2", session_id="s")

    session = await undo(kept, "s")

    assert graph.at(session).state == {"tasks": 1}
    assert graph.at(session).task == "1"


# --- Failures ------------------------------------------------------------------


class Flaky:
    """A function that fails at first."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, run: GraphRun) -> str:
        self.runs += 1
        if self.runs == 1:
            raise LookupError("down")
        return "up"


async def test_a_function_that_failed_is_not_run_again_unless_a_person_says_so(
    kept: SessionStore,
) -> None:
    flaky = Flaky()
    graph = chain("a", "f", "b", f=flaky).build(session_manager=kept)
    with pytest.raises(NodeFailedError, match="'f' failed: error: LookupError: down"):
        await graph.run("Go.", session_id="s")

    result = await graph.run(session_id="s")

    [asked] = result.pending_tool_calls
    assert flaky.runs == 1
    assert asked.confirmation_message == (
        "f was cut off or failed, and what it has done is not known. Run it again?"
    )
    result = await graph.run(session_id="s", tool_confirmations=[asked.approve()])
    assert (result.output, flaky.runs) == ("b", 2)
    assert (await run_of(kept)).times("f") == 1


async def test_a_person_may_say_what_became_of_it(kept: SessionStore) -> None:
    flaky = Flaky()
    graph = chain("f", "b", f=flaky).build(session_manager=kept)
    with pytest.raises(NodeFailedError):
        await graph.run("Go.", session_id="s")
    [asked] = (await graph.run(session_id="s")).pending_tool_calls

    await graph.run(session_id="s", tool_confirmations=[asked.answer("It was up.")])

    assert (await run_of(kept)).results == {"f": "It was up.", "b": "b"}
    assert flaky.runs == 1


async def test_a_person_who_denies_is_asked_again_in_the_next_run(
    kept: SessionStore,
) -> None:
    flaky = Flaky()
    graph = chain("f", "b", f=flaky).build(session_manager=kept)
    with pytest.raises(NodeFailedError):
        await graph.run("Go.", session_id="s")
    [asked] = (await graph.run(session_id="s")).pending_tool_calls

    with pytest.raises(NodeFailedError, match="denied by ann: not today"):
        await graph.run(
            session_id="s", tool_confirmations=[asked.deny("not today", by="ann")]
        )
    [again] = (await graph.run(session_id="s")).pending_tool_calls

    assert again.tool_call_id != asked.tool_call_id
    with pytest.raises(AlreadyDecidedError):
        await graph.run(session_id="s", tool_confirmations=[asked.approve()])
    assert flaky.runs == 1


async def test_a_repeatable_function_is_tried_again(kept: SessionStore) -> None:
    flaky = Flaky()
    builder = GraphBuilder().add_node("f", flaky, repeatable=True)
    graph = builder.build(session_manager=kept)
    with pytest.raises(NodeFailedError):
        await graph.run("Go.", session_id="s")

    assert (await graph.run(session_id="s")).output == "up"


async def test_an_agent_that_failed_goes_on_from_its_log(kept: SessionStore) -> None:
    model = ScriptedModel([ConnectionError("no line"), "Here."])
    graph = chain("a", "b", a=Agent(model)).build(session_manager=kept)
    with pytest.raises(NodeFailedError, match="'a' failed: error: ConnectionError"):
        await graph.run("Go.", session_id="s")

    result = await graph.run(session_id="s")

    assert result.output == "b"
    thread = await stored(kept, "s/a")
    assert sum(map(said_by_user, thread.events)) == 1


async def test_what_ran_beside_a_failure_is_not_run_again(kept: SessionStore) -> None:
    flaky, beside = Flaky(), Flaky()
    beside.runs = 1
    builder = GraphBuilder().add_node("f", flaky, repeatable=True)
    builder.add_node("beside", beside).add_node("end", says("end"))
    builder.add_edge("f", "end").add_edge("beside", "end")
    graph = builder.build(session_manager=kept)
    with pytest.raises(NodeFailedError):
        await graph.run("Go.", session_id="s")

    result = await graph.run(session_id="s")

    assert result.output == "end"
    assert beside.runs == 2
    assert (await run_of(kept)).times("end") == 1


async def test_an_edge_may_be_for_failures(kept: SessionStore) -> None:
    builder = GraphBuilder().add_node("f", Flaky())
    builder.add_node("plan-b", lambda run: run.asked).add_node("next", says("next"))
    builder.add_edge("f", "plan-b", on_error=True).add_edge("f", "next")
    graph = builder.build(session_manager=kept)

    result = await graph.run("Go.", session_id="s")

    assert result.output == "Go.\n\nFrom f:\nLookupError: down"
    assert (await run_of(kept)).frontier == {}


async def test_a_loop_over_failures_comes_to_its_end(kept: SessionStore) -> None:
    model = ScriptedModel([ConnectionError("no line")] * 9)
    builder = GraphBuilder().add_node("a", Agent(model)).add_node("wait", says(""))
    builder.add_edge("a", "wait", on_error=True).add_edge("wait", "a")
    graph = builder.build(session_manager=kept, max_visits=3)

    with pytest.raises(NodeFailedError, match="'a' failed: it was entered 3 times"):
        await graph.run("Go.", session_id="s")

    run = await run_of(kept)
    assert (run.times("a"), run.times("wait")) == (3, 3)
    thread = await stored(kept, "s/a")
    assert sum(map(said_by_user, thread.events)) == 3


# --- People ------------------------------------------------------------------


def publishing(sessions: SessionManager, published: list[str]) -> Graph:
    """Return a graph in which a person approves what is published."""

    async def publish(run: GraphRun) -> str:
        published.append(run.asked)
        return "Published."

    builder = GraphBuilder().add_node("write", says("Draft."))
    builder.add_node(
        "publish",
        publish,
        requires_confirmation=True,
        confirmation_message="Publish this? {task}",
        asks=lambda run, sources: str(run.results["write"]),
    )
    return builder.add_edge("write", "publish").build(session_manager=sessions)


async def test_a_person_approves_a_node_in_another_process(place: Place) -> None:
    published: list[str] = []
    result = await publishing(await place.open(), published).run("Go.", session_id="s")
    [asked] = result.pending_tool_calls
    assert asked.confirmation_message == "Publish this? Draft."
    elsewhere = publishing(await place.open(), published)

    result = await elsewhere.run(session_id="s", tool_confirmations=[asked.approve()])

    assert result.output == "Published."
    assert published == ["Draft."]
    with pytest.raises(AlreadyDecidedError):
        await elsewhere.run(session_id="s", tool_confirmations=[asked.approve()])
    assert published == ["Draft."]


async def test_what_was_approved_and_cut_off_asks_a_person(kept: SessionStore) -> None:
    published: list[str] = []
    await publishing(kept, published).run("Go.", session_id="s")
    [asked] = pending_tool_calls(await stored(kept))
    dying = publishing(Dying(kept, 2, stored=False), published)  # at its result
    with pytest.raises(Killed):
        await dying.run(session_id="s", tool_confirmations=[asked.approve()])
    graph = publishing(kept, published)

    result = await graph.run(session_id="s")

    [again] = result.pending_tool_calls
    assert published == ["Draft."]
    result = await graph.run(session_id="s", tool_confirmations=[again.approve()])
    assert result.output == "Published."
    assert published == ["Draft.", "Draft."]


async def test_a_node_that_waits_does_not_stop_those_beside_it(place: Place) -> None:
    paid: list[str] = []

    @tool(requires_confirmation=True)
    def pay() -> str:
        """Pay."""
        paid.append("paid")
        return "Paid."

    def graph(sessions: SessionManager) -> Graph:
        model = planned(ToolCall(name="pay", tool_call_id="p"), "It is paid.")
        builder = GraphBuilder().add_node("pay", Agent(model, tools=[pay]))
        builder.add_node("beside", says("beside")).add_node("end", says("end"))
        builder.add_edge("pay", "end").add_edge("beside", "end")
        return builder.build(session_manager=sessions)

    result = await graph(await place.open()).run("Go.", session_id="s")

    assert result.status == "pending_confirmation"
    [asked] = result.pending_tool_calls
    assert asked.path == ("pay-1",)
    run = await run_of(await place.open())
    assert run.results == {"beside": "beside"}
    result = await graph(await place.open()).run(
        session_id="s", tool_confirmations=[asked.approve()]
    )
    assert result.output == "end"
    assert paid == ["paid"]


async def test_a_new_message_replaces_a_graph_that_waits(kept: SessionStore) -> None:
    published: list[str] = []
    graph = publishing(kept, published)
    [asked] = (await graph.run("Go.", session_id="s")).pending_tool_calls

    result = await graph.run("Something else.", session_id="s")

    [new] = result.pending_tool_calls
    assert new.tool_call_id != asked.tool_call_id
    with pytest.raises(AlreadyDecidedError):
        await graph.run(session_id="s", tool_confirmations=[asked.approve()])
    assert published == []


async def test_graphs_and_agents_may_be_inside_each_other(place: Place) -> None:
    """An agent asks a graph, which asks a graph, at whose bottom a tool is gated."""
    paid: list[str] = []

    @tool(requires_confirmation=True)
    def pay() -> str:
        """Pay."""
        paid.append("paid")
        return "Paid."

    def agent(sessions: SessionManager) -> Agent:
        clerk = Agent(
            planned(ToolCall(name="pay", tool_call_id="p"), "It is paid."), tools=[pay]
        )
        inner = chain("clerk", clerk=clerk).build()
        outer = chain("check", "inner", inner=inner).build()
        office = delegate(outer, name="office", description="An office.")
        call = ToolCall(name="office", tool_call_id="o", arguments={"task": "Pay."})
        return Agent(planned(call, "Done."), tools=[office], session_manager=sessions)

    result = await agent(await place.open()).run("Please.", session_id="s")
    [asked] = result.pending_tool_calls
    assert [*asked.path, asked.tool_call_id] == ["o", "inner-1", "clerk-1", "p"]

    result = await agent(await place.open()).run(
        session_id="s", tool_confirmations=[asked.approve(by="ann")]
    )

    assert (result.output, paid) == ("Done.", ["paid"])
    sessions = await place.open()
    assert await sessions.get("s/o/inner/clerk") is not None
    assert await sessions.delete("s")
    assert await sessions.get("s/o/inner/clerk") is None


# --- The way back -------------------------------------------------------------


async def saves_of(graph_of: Callable[[SessionManager], Graph]) -> int:
    """Return how many saves an undisturbed run makes."""
    counting = Dying(InMemorySessionManager(), 1_000_000, stored=True)
    await graph_of(counting).run(TASK, session_id="s")
    return 1_000_000 - counting.at


@pytest.mark.parametrize("stored_", [True, False], ids=["stored", "not stored"])
async def test_a_crash_at_any_save_repeats_no_finished_node(
    stored_: bool, place: Place, tmp_path: Path
) -> None:
    sessions = await place.open()
    is_fast = isinstance(sessions, InMemorySessionManager)
    total = await saves_of(lambda each: seven(each, tmp_path / "counted"))
    asked_for: set[str] = set()
    for at in range(1, total + 1, 1 if is_fast else 7):
        session_id, effects = f"s{at}", tmp_path / f"effects-{at}-{stored_}"
        dying = seven(Dying(sessions, at, stored=stored_), effects)
        with pytest.raises(Killed):
            await dying.run(TASK, session_id=session_id)

        graph, approved = seven(sessions, effects), []
        known = await sessions.get(session_id)
        words = None if known and known.events else TASK
        with suppress(NothingToContinueError):  # the last save was that of the answer
            result = await graph.run(words, session_id=session_id)
            while result.pending_tool_calls:
                [asked] = result.pending_tool_calls
                approved.append(asked.path[0])
                result = await graph.run(
                    session_id=session_id, tool_confirmations=[asked.approve()]
                )

        asked_for |= {*approved}
        run = graph.at(await stored(sessions, session_id))
        assert run.answer == ANSWER
        assert (run.state, run.transitions) == (STATE, TRANSITIONS)
        lines = effects.read_text().splitlines()
        for name in ("price-1", "publish-1", "look-1", "look-2"):
            assert lines.count(f"enter {name}") <= 1 + approved.count(name)
    if is_fast:
        assert asked_for == {"price-1", "publish-1"}


async def test_a_run_that_was_cancelled_goes_on(kept: SessionStore) -> None:
    begun, forever = asyncio.Event(), [True]

    async def wait(run: GraphRun) -> str:
        begun.set()
        if forever:
            await asyncio.Event().wait()
        return "waited"

    builder = GraphBuilder().add_node("wait", wait, repeatable=True)
    graph = builder.build(session_manager=kept)
    running = asyncio.create_task(graph.run("Go.", session_id="s"))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    forever.clear()

    assert (await graph.run(session_id="s")).output == "waited"


async def test_of_two_that_decide_at_once_each_node_runs_once(place: Place) -> None:
    """Two people, two processes, two questions of nodes that wait side by side."""
    paid: list[str] = []

    @tool(requires_confirmation=True)
    async def pay(what: str) -> str:
        """Pay."""
        paid.append(what)
        await asyncio.sleep(0.01)
        return "Paid."

    def graph(sessions: SessionManager) -> Graph:
        builder = GraphBuilder()
        for name in ("x", "y"):
            call = ToolCall(name="pay", tool_call_id="p", arguments={"what": name})
            builder.add_node(name, Agent(planned(call, "Done."), tools=[pay]))
        builder.add_node("end", says("end"))
        builder.add_edge("x", "end").add_edge("y", "end")
        return builder.build(session_manager=sessions)

    first, second = await place.open(), Beside(await place.open())
    result = await graph(first).run("Go.", session_id="s")
    asked = result.pending_tool_calls
    assert len(asked) == 2

    async def decide(sessions: SessionManager, number: int) -> AgentResult:
        return await graph(sessions).run(
            session_id="s", tool_confirmations=[asked[number].approve()]
        )

    await asyncio.gather(decide(first, 0), decide(second, 1))
    with suppress(NothingToContinueError):
        result = await graph(first).run(session_id="s")
        assert result.output == "end"

    assert sorted(paid) == ["x", "y"]
    assert (await run_of(first)).answer == "end"


async def test_a_graph_that_runs_is_busy(kept: SessionStore) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def wait(run: GraphRun) -> None:
        begun.set()
        await go_on.wait()

    for save_on in ("node", "run"):
        builder = GraphBuilder().add_node("wait", wait, repeatable=True)
        graph = builder.build(session_manager=kept, save_on=save_on)  # type: ignore[arg-type]
        running = asyncio.create_task(graph.run("Go.", session_id=save_on))
        await begun.wait()

        with pytest.raises(SessionBusyError):
            await graph.run("Go.", session_id=save_on)

        go_on.set()
        await running
        begun.clear()
        go_on.clear()


# --- One save for a run ---------------------------------------------------------


class Counting(Beside):
    """Counts the saves of each session."""

    def __init__(self, inner: SessionManager) -> None:
        super().__init__(inner)
        self.saves: dict[str, int] = {}

    async def save(self, session: Session) -> None:
        await super().save(session)
        count = self.saves.get(session.session_id, 0)
        self.saves[session.session_id] = count + 1


def three(sessions: SessionManager, model: ScriptedModel) -> Graph:
    builder = GraphBuilder().add_node("a", says("a"), repeatable=True)
    builder.add_node("talk", Agent(model)).add_node("b", says("b"), repeatable=True)
    builder.add_edge("a", "talk").add_edge("talk", "b")
    return builder.build(session_manager=sessions, save_on="run")


async def test_a_run_may_be_saved_when_it_begins_and_when_it_stops(
    place: Place,
) -> None:
    counting = Counting(await place.open())
    graph = three(counting, ScriptedModel(["Hello.", "Again."]))

    result = await graph.run("Go.", session_id="s")
    later = await graph.run("Go on.", context=result.context)

    assert (result.output, later.output) == ("b", "b")
    assert counting.saves["s"] == 4
    session = await stored(counting)
    assert session.events == later.context.session.events
    assert session.version == later.context.session.version


async def test_a_new_task_after_a_crash_is_not_answered_with_the_old_one(
    kept: SessionStore,
) -> None:
    model = ScriptedModel(["On ants.", "On bees."])

    def graph(sessions: SessionManager) -> Graph:
        builder = GraphBuilder().add_node("a", Agent(model))
        return builder.build(session_manager=sessions, save_on="run")

    with pytest.raises(Killed):  # at the last save, which is that of the run
        await graph(Dying(kept, 5, stored=False)).run("ants.", session_id="s")

    result = await graph(kept).run("bees.", session_id="s")

    assert result.output == "On bees."


async def test_a_crash_does_such_a_run_over_and_no_agent_does_its_work_twice(
    kept: SessionStore,
) -> None:
    model = ScriptedModel(["Hello."])
    counting = Counting(kept)
    with pytest.raises(Killed):  # at the last save, which is that of the run
        await three(Dying(counting, 5, stored=False), model).run("Go.", session_id="s")
    assert counting.saves == {"s": 1, "s/talk": 3}
    assert len((await stored(kept)).events) == 1

    result = await three(kept, model).run(session_id="s")

    assert result.output == "b"
    assert len(model.requests) == 1


async def test_such_a_run_that_pauses_is_stored(kept: SessionStore) -> None:
    builder = GraphBuilder().add_node("a", says("a"), repeatable=True)
    builder.add_node("ask", Agent(ScriptedModel(["Yes."])), requires_confirmation=True)
    builder.add_edge("a", "ask")
    graph = builder.build(session_manager=kept, save_on="run")
    result = await graph.run("Go.", session_id="s")
    [asked] = pending_tool_calls(await stored(kept))
    assert result.pending_tool_calls == (asked,)

    result = await graph.run(session_id="s", tool_confirmations=[asked.approve()])

    assert result.output == "Yes."


async def test_of_two_such_runs_at_once_one_is_told_of_the_conflict(
    kept: SessionStore,
) -> None:
    async def meddle(run: GraphRun) -> None:
        session = await stored(kept)
        session.append(session.events[0])
        await kept.save(session)

    builder = GraphBuilder().add_node("meddle", meddle, repeatable=True)
    graph = builder.build(session_manager=Beside(kept), save_on="run")

    with pytest.raises(SessionConflictError):
        await graph.run("Go.", session_id="s")


# --- What is seen of it ----------------------------------------------------------


async def test_the_costs_of_the_agents_are_those_of_the_run(kept: SessionStore) -> None:
    talk = Agent(planned("One.", "Two."))
    graph = chain("a", "talk", talk=talk).build(session_manager=kept)

    first = await graph.run("Go.", session_id="s")
    second = await graph.run("Go on.", session_id="s")

    assert (first.usage, second.usage) == (COST, COST)


async def test_a_step_is_one_reply_with_a_note_of_the_edges(kept: SessionStore) -> None:
    graph = chain("a", "b").build(session_manager=kept)

    await graph.run("Go.", session_id="s")

    items = items_of((await stored(kept)).events)
    notes = [item for item in items if isinstance(item, Note)]
    assert [each.kind for each in notes] == ["step", "step"]
    assert [each.data for each in notes] == [
        {"followed": [[None, "a"]]},
        {"followed": [["a", "b"]]},
    ]


async def test_a_drawing_shows_how_far_a_run_has_come(kept: SessionStore) -> None:
    graph = publishing(kept, [])
    await graph.run("Go.", session_id="s")

    assert graph.to_mermaid(await stored(kept)) == (
        "flowchart TD\n"
        '    n0["write"]:::done\n'
        '    n1["publish"]:::waiting\n'
        "    start([start])\n"
        "    start --> n0\n"
        "    n0 --> n1\n"
        "    classDef done fill:#d3f2dd,stroke:#2b8a4b,color:#10381f\n"
        "    classDef waiting fill:#fdedc8,stroke:#b07d12,color:#402c04"
    )


def test_a_drawing_names_the_conditions() -> None:
    def is_good(run: GraphRun) -> bool:
        return True

    builder = chain("a").add_node("b", says("b")).add_node("c", says("c"))
    builder.add_edge("a", "b", when=is_good).add_edge("a", "c", on_error=True)
    builder.add_edge("b", "c", when=lambda run: True)

    drawn = builder.build().to_mermaid()

    assert "n0 -->|is_good| n1\n" in drawn
    assert "n0 -->|on error| n2\n" in drawn
    assert "n1 -->|if| n2" in drawn
    assert "classDef" not in drawn


# --- What is refused ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda b: b.add_node("a", says("")), "two nodes have the name 'a'"),
        (lambda b: b.add_node("no good", says("")), "'no good' is no name: 1 to 64"),
        (lambda b: b.add_node("x", "text"), "node 'x': 'text' is neither agent nor"),
        (
            lambda b: b.add_node("x", Agent(ScriptedModel([])), repeatable=True),
            "node 'x': an agent goes on from its log anyway",
        ),
        (
            lambda b: b.add_node(
                "x", says(""), repeatable=True, requires_confirmation=True
            ),
            "node 'x': what was approved once runs once",
        ),
        (lambda b: b.add_edge("a", "z"), "there is no node 'z'; add it first"),
        (
            lambda b: b.add_edge("a", "b").add_edge("a", "b"),
            "there is an edge from 'a' to 'b' already",
        ),
        (lambda b: b.set_entries("a").build(), "nothing leads to the node 'b'"),
        (lambda b: b.set_entries("z").build(), "there is no node 'z' to begin with"),
        (lambda b: b.build(max_visits=0), "max_visits is 0; it is at least 1"),
        (lambda b: b.build(save_on="run"), "node 'a' is not repeatable, and with"),
        (lambda b: GraphBuilder().build(), "a graph has at least one node"),
    ],
)
def test_a_graph_that_could_not_run_is_refused(
    make: Callable[[Any], object], problem: str
) -> None:
    builder = GraphBuilder().add_node("a", says("a")).add_node("b", says("b"))

    with pytest.raises((TypeError, ValueError)) as refused:
        make(builder)

    assert problem in str(refused.value)
