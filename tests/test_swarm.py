"""Swarms: agents that hand a task over to each other, in any process."""

import asyncio
import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import swarming
from approving import Dying, Killed
from delegating import COST, planned
from stores import FAST, Place, address_of, params
from swarming import OVER, TASK, call, over, swarm, travel_agency

from minagent import (
    Agent,
    InMemorySessionManager,
    Message,
    ModelRequest,
    Session,
    SessionManager,
    SessionStore,
)
from minagent.errors import AlreadyDecidedError, NodeFailedError, NothingToContinueError
from minagent.events import said_by_user
from minagent.models import ScriptedModel
from minagent.multiagent import GraphBuilder, Peer, Swarm, SwarmRun
from minagent.stores import open_store
from minagent.tools import tool

pytestmark = pytest.mark.heavy

STORES = (*FAST, "folder", "postgres")


@pytest.fixture
def kept() -> SessionStore:
    """A manager for what does not depend on the store."""
    return InMemorySessionManager()


async def stored(sessions: SessionManager) -> Session:
    session = await sessions.get("s")
    assert session is not None
    return session


def last_words(request: ModelRequest) -> str:
    items = [item for item in request.turns[-1].content if isinstance(item, Message)]
    return items[-1].content


async def test_the_first_peer_gets_the_task_and_may_answer(kept: SessionStore) -> None:
    agency = swarm(kept, Agent(ScriptedModel(["Go by train."])), Agent(planned()))

    result = await agency.run(TASK, session_id="s")

    assert result.output == "Go by train."
    assert agency.at(await stored(kept)).handovers == ()


async def test_a_peer_hands_over_with_a_message_and_what_all_should_know(
    kept: SessionStore,
) -> None:
    booker = ScriptedModel(["Booked."])
    planner = Agent(planned(over("booker", "Book it.", "h", days=2)))

    result = await swarm(kept, planner, Agent(booker)).run(TASK, session_id="s")

    assert result.output == "Booked."
    [request] = booker.requests
    assert last_words(request) == (
        "planner has handed this over to you: Book it.\n\n"
        "The task: Two days in Rome.\n\n"
        'What all know: {"days":2}'
    )


async def test_whoever_hands_over_is_not_asked_for_more(kept: SessionStore) -> None:
    planner = ScriptedModel([[over("booker", "Book it.", "h")]])
    booker = Agent(ScriptedModel(["Booked."]))

    await swarm(kept, Agent(planner), booker).run(TASK, session_id="s")

    assert len(planner.requests) == 1


class Hurried(Agent):
    def __init__(self, model: ScriptedModel) -> None:
        super().__init__(model, max_steps=1)


@pytest.mark.parametrize("kind", ["of a type", "of one step", "of a class of its own"])
async def test_a_hand_over_stands_whatever_the_peer_would_have_to_answer(
    kept: SessionStore, kind: str
) -> None:
    model = ScriptedModel([[over("booker", "Book it.", "h")]])
    planner = {
        "of a type": lambda: Agent(model, output_type=int),
        "of one step": lambda: Agent(model, max_steps=1),
        "of a class of its own": lambda: Hurried(model),
    }[kind]()
    booker = Agent(ScriptedModel(["Booked."]))

    result = await swarm(kept, planner, booker).run(TASK, session_id="s")

    assert result.output == "Booked."


async def test_a_peer_is_told_who_the_others_are(kept: SessionStore) -> None:
    planner = ScriptedModel(["Done."])

    await swarm(kept, Agent(planner), Agent(planned())).run(TASK, session_id="s")

    [[spec]] = [request.tools for request in planner.requests]
    assert spec.name == "hand_over"
    assert spec.description == (
        "Hand the task over to somebody else, and stop.\n\n"
        "- booker: Books what is planned."
    )
    properties: Any = spec.parameters["properties"]
    assert properties["to"]["const"] == "booker"


async def test_nobody_hands_over_to_somebody_unknown(kept: SessionStore) -> None:
    planner = Agent(planned(over("cook", "Cook.", "h"), "I do it myself."))

    result = await swarm(kept, planner, Agent(planned())).run(TASK, session_id="s")

    assert result.output == "I do it myself."


async def test_of_two_hand_overs_in_one_reply_the_first_stands(
    kept: SessionStore,
) -> None:
    planner = ScriptedModel(
        [[over("booker", "First.", "h1"), over("booker", "Second.", "h2")]]
    )
    agency = swarm(kept, Agent(planner), Agent(ScriptedModel(["Booked."])))

    await agency.run(TASK, session_id="s")

    run = agency.at(await stored(kept))
    assert run.handovers == (("planner", "booker"),)


async def test_a_peer_that_gets_the_task_back_remembers(kept: SessionStore) -> None:
    planner = ScriptedModel([[over("booker", "Book it.", "h1")], "All set."])
    booker = Agent(planned(over("planner", "Booked.", "h2")))

    result = await swarm(kept, Agent(planner), booker).run(TASK, session_id="s")

    assert result.output == "All set."
    first, second = planner.requests
    assert second.turns[0] == first.turns[0]
    assert "booker has handed this over to you: Booked." in last_words(second)


async def test_hand_overs_have_a_bound(kept: SessionStore) -> None:
    def back_and_forth(to: str) -> ScriptedModel:
        return ScriptedModel([[over(to, "Yours.", f"{to}-{n}")] for n in range(9)])

    planner, booker = back_and_forth("booker"), back_and_forth("planner")
    agency = swarm(kept, Agent(planner), Agent(booker), max_handovers=3)

    with pytest.raises(NodeFailedError, match="handed over 3 times, the limit"):
        await agency.run(TASK, session_id="s")

    assert len(planner.requests) + len(booker.requests) == 4
    assert last_words(booker.requests[-1]).endswith(
        "Nobody is left to hand over to: answer yourself."
    )
    with pytest.raises(NodeFailedError, match="handed over 3 times, the limit"):
        await agency.run(session_id="s")


async def test_the_next_task_begins_with_the_first_peer(kept: SessionStore) -> None:
    planner = Agent(ScriptedModel([[over("booker", "Book it.", "h1")], "Home."]))
    agency = swarm(kept, planner, Agent(ScriptedModel(["Booked."])))
    await agency.run(TASK, session_id="s")

    result = await agency.run("And back.", session_id="s")

    assert result.output == "Home."
    assert agency.at(await stored(kept)).visits[0].node == "planner"


async def test_a_peer_that_fails_goes_on_from_its_log(kept: SessionStore) -> None:
    planner = Agent(planned(over("booker", "Book it.", "h1")))
    booker = Agent(ScriptedModel([ConnectionError("no line"), "Booked."]))
    agency = swarm(kept, planner, booker)
    with pytest.raises(NodeFailedError, match="'booker' failed: error: ConnectionErr"):
        await agency.run(TASK, session_id="s")

    result = await agency.run(session_id="s")

    assert result.output == "Booked."
    thread = await kept.get("s/booker")
    assert thread is not None
    assert sum(map(said_by_user, thread.events)) == 1


async def test_the_costs_of_the_peers_are_those_of_the_run(kept: SessionStore) -> None:
    planner = Agent(planned(over("booker", "Book it.", "h1")))

    result = await swarm(kept, planner, Agent(planned("Booked."))).run(
        TASK, session_id="s"
    )

    assert result.usage == COST + COST


async def test_a_graph_may_be_a_peer_and_a_swarm_a_node(kept: SessionStore) -> None:
    inner = GraphBuilder().add_node("a", lambda run: "By train.").build()
    planner = Agent(planned(over("tickets", "Look.", "h1")))
    agency = Swarm([Peer("planner", planner, "Plans."), Peer("tickets", inner, "Sell")])
    graph = GraphBuilder().add_node("agency", agency).build(session_manager=kept)

    result = await graph.run(TASK, session_id="s")

    assert result.output == "By train."
    assert await kept.get("s/agency/tickets/a") is None  # a function has no session
    assert await kept.get("s/agency/tickets") is not None


# --- The way back -------------------------------------------------------------


@pytest.mark.parametrize("store", params("sqlite", "folder", "postgres"))
def test_a_task_goes_there_and_back_through_three_processes(
    store: str, tmp_path: Path
) -> None:
    address = address_of(store, tmp_path)

    def process(order: str) -> Any:
        command = [sys.executable, swarming.__file__, address, order]
        return json.loads(subprocess.check_output(command))

    assert process("ask") == ["pending_confirmation", ["book"], None]
    assert process("approve") == ["pending_confirmation", ["pay"], None]
    assert process("approve") == ["complete", [], "All set."]

    async def look() -> SwarmRun:
        async with open_store(address) as sessions:
            return SwarmRun.of((await stored(sessions)).events)

    run = asyncio.run(look())
    assert run.handovers == (("planner", "booker"), ("booker", "planner"))
    assert run.shared == {"days": 2, "budget": 120}
    assert [visit.node for visit in run.visits] == ["planner", "booker", "planner"]


@pytest.mark.parametrize("stored_", [True, False], ids=["stored", "not stored"])
async def test_a_crash_at_any_save_loses_nothing(stored_: bool, place: Place) -> None:
    sessions = await place.open()
    is_fast = isinstance(sessions, InMemorySessionManager)
    planner_ran: list[str] = []

    @tool
    def look() -> str:
        """Look."""
        planner_ran.append("looked")
        return "Seen."

    def agency(inner: SessionManager) -> Swarm:
        planner = planned(
            call("look", "l"), over("booker", "Book.", "h1", days=2), OVER, "All set."
        )
        booker = planned(over("planner", "Booked.", "h2"))
        return swarm(inner, Agent(planner, tools=[look]), Agent(booker))

    counting = Dying(InMemorySessionManager(), 1_000, stored=True)
    await agency(counting).run(TASK, session_id="s")
    for at in range(1, 1_001 - counting.at, 1 if is_fast else 5):
        planner_ran.clear()
        session_id = f"s{at}"
        with pytest.raises(Killed):
            await agency(Dying(sessions, at, stored=stored_)).run(
                TASK, session_id=session_id
            )

        known = await sessions.get(session_id)
        words = None if known and known.events else TASK
        with suppress(NothingToContinueError):
            await agency(sessions).run(words, session_id=session_id)

        session = await sessions.get(session_id)
        assert session is not None
        run = SwarmRun.of(session.events)
        assert run.handovers == (("planner", "booker"), ("booker", "planner"))
        assert run.shared == {"days": 2}
        assert len(planner_ran) <= 1
        assert session.events[-1].content == (
            Message(role="assistant", content="All set."),
        )


async def test_a_new_message_closes_what_a_peer_has_asked(kept: SessionStore) -> None:
    agency = travel_agency(kept)
    [asked] = (await agency.run(TASK, session_id="s")).pending_tool_calls
    assert asked.path == ("booker-1",)

    await agency.run("Something else.", session_id="s")

    with pytest.raises(AlreadyDecidedError):
        await agency.run(session_id="s", tool_confirmations=[asked.approve()])


# --- What is seen of it ----------------------------------------------------------


async def test_a_drawing_shows_the_hand_overs_by_their_numbers(
    kept: SessionStore,
) -> None:
    planner = planned(over("booker", "1", "h1"), OVER, over("booker", "3", "h3"))
    booker = planned(over("planner", "2", "h2"), OVER, "Booked.")
    agency = swarm(kept, Agent(planner), Agent(booker))
    await agency.run(TASK, session_id="s")

    assert agency.to_mermaid(await stored(kept)) == (
        "flowchart TD\n"
        '    n0["planner"]:::done\n'
        '    n1["booker"]:::done\n'
        "    start([start])\n"
        "    start --> n0\n"
        "    n0 -->|1, 3| n1\n"
        "    n1 -->|2| n0\n"
        "    classDef done fill:#d3f2dd,stroke:#2b8a4b,color:#10381f"
    )
    assert "n0 --> n1\n    n1 --> n0" in agency.to_mermaid()


def test_a_swarm_that_could_not_run_is_refused() -> None:
    one = Peer("one", Agent(planned()), "One.")

    @tool
    def hand_over() -> None:
        """Hand over."""

    own = Agent(planned(), tools=[hand_over])

    with pytest.raises(ValueError, match="a swarm has at least two peers"):
        Swarm([one])
    with pytest.raises(ValueError, match="two peers have one name"):
        Swarm([one, one])
    with pytest.raises(ValueError, match="max_handovers is 0"):
        Swarm([one, Peer("two", Agent(planned()), "Two.")], max_handovers=0)
    with pytest.raises(ValueError, match="two tools have the name 'hand_over'"):
        Swarm([one, Peer("two", own, "Two.")])
