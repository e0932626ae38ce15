"""Delegation: an agent as a tool, whose conversation is a session of its own."""

import asyncio
import hashlib
import json
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from approving import (
    DELETE_2,
    DELETE_3,
    PAY,
    READ,
    Beside,
    Desk,
    Dying,
    Interrupted,
    Killed,
    call,
    decisions_of,
    items_of,
    results_of,
    statuses,
    tools_of,
)
from delegating import COST, hand_to, planned, three_floors
from stores import FAST, address_of, params

from minagent import (
    Agent,
    AgentResult,
    Event,
    ExecutionContext,
    InMemorySessionManager,
    Message,
    ModelResponse,
    Note,
    Session,
    SessionManager,
    SessionOpened,
    SessionStore,
    Tool,
    ToolCall,
    ToolConfirmation,
    Usage,
    pending_tool_calls,
    tool,
)
from minagent.errors import (
    AlreadyDecidedError,
    ApprovalExpiredError,
    NothingToContinueError,
    SessionNotFoundError,
)
from minagent.models import ScriptedModel
from minagent.multiagent import delegate, inner_session_id
from minagent.session import running
from minagent.timetravel import undo

pytestmark = pytest.mark.heavy

STORES = (*FAST, "folder", "postgres")


async def test_whoever_is_entered_in_a_deleted_session_leaves_nothing(
    sessions: SessionStore,
) -> None:
    clerk = Agent(ScriptedModel(["Filed."]))

    async def deleted(context: ExecutionContext, asked: ToolCall) -> None:
        await sessions.delete("s")

    manager = Agent(
        ScriptedModel([CLERK]),
        tools=[hand_to("clerk", clerk)],
        session_manager=sessions,
        before_tool_callbacks=[deleted],
    )

    with pytest.raises(SessionNotFoundError):
        await manager.run("Have it filed.", session_id="s")

    assert await sessions.list(children=True) == []


async def test_whoever_is_entered_in_a_session_made_anew_leaves_the_new_one_alone() -> (
    None
):
    class MadeAnew(InMemorySessionManager):
        async def get_or_create(
            self, session_id: str, user_id: str | None = None
        ) -> Session:
            if session_id == "s/t":
                await self.delete("s")
                await self.create("s")
                inner = await self.create("s/t")
                said = Message(role="user", content="Of the new one.")
                inner.append(Event(author="user", content=(said,)))
                await self.save(inner)
            return await super().get_or_create(session_id, user_id)

    sessions = MadeAnew()
    manager = Agent(
        ScriptedModel([CLERK]),
        tools=[hand_to("clerk", Agent(ScriptedModel(["Filed."])))],
        session_manager=sessions,
    )

    with pytest.raises(SessionNotFoundError):
        await manager.run("Have it filed.", session_id="s")

    inner = await sessions.get("s/t")
    assert inner is not None
    assert len(inner.events) == 1


CLERK = call("clerk", "t", task="File it.")
MANAGER = call("manager", "o", task="Have it filed.")


def clerk(desk: Desk, *replies: Any, **options: Any) -> Tool[..., Any]:
    """Make a tool of an agent with the tools of the desk."""
    settings: dict[str, Any] = {"tools": desk.tools, "clock": desk.clock}
    return hand_to("clerk", Agent(planned(*replies), **{**settings, **options}))


async def inner(desk: Desk, session_id: str = "s/t") -> Session:
    session = await desk.sessions.get(session_id)
    assert session is not None
    return session


def spent(session: Session) -> Usage:
    return sum((each.usage for each in session.events if each.usage), start=Usage())


def times(cost: Usage, number: int) -> Usage:
    return sum([cost] * number, start=Usage())


# --- One level ----------------------------------------------------------------


async def test_an_agent_answers_as_a_tool(desk: Desk) -> None:
    files = clerk(desk, [READ], "Filed.")

    result = await desk.say("Please.", [CLERK], "Done.", tools=[files])

    assert result.output == "Done."
    [sent] = desk.sent()
    assert (sent.name, sent.status, sent.content) == ("clerk", "success", "Filed.")
    assert desk.ran == ["read 1"]


def test_the_model_is_told_of_the_agent_and_asked_for_a_task() -> None:
    files = delegate(Agent(planned()), name="clerk", description="Files things.")

    assert (files.name, files.spec.description) == ("clerk", "Files things.")
    assert files.spec.parameters["required"] == ["task"]
    assert list(files.spec.parameters["properties"]) == ["task"]


async def test_the_inner_agent_sees_the_task_and_nothing_else(desk: Desk) -> None:
    model = ScriptedModel(["Filed."])
    files = hand_to("clerk", Agent(model, instructions="You file."))

    await desk.say("My secret.", [CLERK], "Done.", tools=[files])

    [request] = model.requests
    [turn] = request.turns
    assert request.instructions == "You file."
    assert [item.content for item in turn.content] == ["File it."]


async def test_the_inner_session_is_in_the_store_of_the_caller(desk: Desk) -> None:
    own = InMemorySessionManager()
    files = clerk(desk, "Filed.", session_manager=own)
    agent = desk.agent([CLERK], "Done.", tools=[files])

    await agent.run("Please.", session_id="s", user_id="ada")

    assert (await inner(desk)).user_id == "ada"
    assert await own.list() == []


async def test_deleting_a_session_deletes_what_is_inside(desk: Desk) -> None:
    await desk.say("Please.", [CLERK], "Done.", tools=[clerk(desk, "Filed.")])

    store = await desk.place.open()
    await store.delete("s")

    assert await store.get("s/t") is None


async def test_a_session_of_somebody_else_is_not_entered(desk: Desk) -> None:
    await desk.sessions.create("s/t", "bob")
    files = clerk(desk, [READ], "Filed.")
    agent = desk.agent([CLERK], "Done.", tools=[files])

    await agent.run("Please.", session_id="s", user_id="ada")

    [sent] = desk.sent()
    assert sent.status == "error"
    assert "SessionOwnerError" in sent.content
    assert not (await inner(desk)).events


async def test_two_calls_of_one_agent_are_two_conversations(desk: Desk) -> None:
    files = clerk(desk, "Filed.")
    calls = [CLERK, call("clerk", "u", task="File that.")]

    await desk.say("Please.", calls, "Done.", tools=[files])

    first, second = await inner(desk), await inner(desk, "s/u")
    assert [e.content[0].content for e in first.events] == ["File it.", "Filed."]
    assert [e.content[0].content for e in second.events] == ["File that.", "Filed."]


async def test_a_delegate_is_not_called_by_hand() -> None:
    files = hand_to("clerk", Agent(planned("Filed.")))

    with pytest.raises(ValueError, match="carried out by a run"):
        await files("File it.", ExecutionContext(Session("s")))


# --- Questions inside ---------------------------------------------------------


async def test_a_question_at_the_bottom_has_the_path_to_it(desk: Desk) -> None:
    # Promise 19.
    manager = three_floors(desk.tools, READ, DELETE_2, clock=desk.clock)

    asked = await desk.pause(MANAGER, tools=[manager])
    await desk.restart()
    result = await desk.decide(asked["c2"].approve(by="ada"), tools=[manager])

    assert asked["c2"].path == ("o", "m")
    assert desk.ran == ["read 1", "delete 2"]
    assert (await desk.result("o")).content == "The manager's."
    assert result.output == "Done."
    assert [d.path for d in decisions_of((await inner(desk, "s/o")).events)] == [("m",)]
    assert [d.path for d in decisions_of((await inner(desk, "s/o/m")).events)] == [()]


@pytest.mark.parametrize("store", params("sqlite", "folder", "postgres"))
def test_a_question_three_levels_down_is_decided_in_another_process(
    store: str, tmp_path: Path
) -> None:
    effects, address = tmp_path / "effects", address_of(store, tmp_path)
    script = Path(__file__).with_name("delegating.py")

    def process(order: str) -> Any:
        command = [sys.executable, script, address, effects, order]
        return json.loads(subprocess.check_output(command, timeout=60))

    assert process("ask") == ["pending_confirmation", [["o", "m", "p"]]]
    assert effects.read_text() == "looked\n"
    assert process("approve") == ["complete", []]
    assert effects.read_text() == "looked\npaid\n"


async def test_a_denial_reaches_the_agent_that_asked(desk: Desk) -> None:
    manager = three_floors(desk.tools, READ, DELETE_2, clock=desk.clock)
    asked = await desk.pause(MANAGER, tools=[manager])

    result = await desk.decide(asked["c2"].deny("keep it"), tools=[manager])

    assert result.output == "Done."
    assert desk.ran == ["read 1"]
    [denied] = results_of((await inner(desk, "s/o/m")).events)[1:]
    assert (denied.status, "keep it" in denied.content) == ("denied", True)


async def test_edited_arguments_reach_the_tool_inside(desk: Desk) -> None:
    manager = three_floors(desk.tools, DELETE_2, clock=desk.clock)
    asked = await desk.pause(MANAGER, tools=[manager])

    await desk.decide(asked["c2"].approve(arguments={"n": 7}), tools=[manager])

    assert desk.ran == ["delete 7"]


async def test_edited_arguments_that_do_not_fit_inside_run_nothing(desk: Desk) -> None:
    """The decision is taken outside, so that the question cannot be asked again."""
    manager = three_floors(desk.tools, DELETE_2, clock=desk.clock)
    asked = await desk.pause(MANAGER, tools=[manager])

    result = await desk.decide(
        asked["c2"].approve(arguments={"n": "x"}), tools=[manager]
    )

    assert desk.ran == []
    assert result.output == "Done."
    [refused] = results_of((await inner(desk, "s/o/m")).events)
    assert refused.status == "denied"
    assert "the edited arguments of call 'c2' do not fit: n:" in refused.content


async def test_edits_that_do_not_fit_harm_no_question_of_the_same_id_further_down(
    desk: Desk,
) -> None:
    junior = hand_to("junior", Agent(planned([DELETE_2], "Filed."), tools=desk.tools))
    calls = [call("junior", "j", task="Help."), DELETE_2]
    files = clerk(desk, calls, "Filed.", tools=[junior, *desk.tools])
    paused = await desk.agent([CLERK], tools=[files]).run("Please.", session_id="s")
    asked = {each.path: each for each in paused.pending_tool_calls}

    await desk.decide(
        asked["t",].approve(arguments={"n": "x"}),
        asked["t", "j"].approve(),
        tools=[files],
    )

    assert statuses((await inner(desk, "s/t")).events)["c2"] == "denied"
    assert statuses((await inner(desk, "s/t/j")).events) == {"c2": "success"}


async def test_an_answer_stands_in_the_place_of_the_tool_inside(desk: Desk) -> None:
    manager = three_floors(desk.tools, DELETE_2, clock=desk.clock)
    asked = await desk.pause(MANAGER, tools=[manager])

    await desk.decide(asked["c2"].answer("gone already"), tools=[manager])

    assert desk.ran == []
    [answered] = results_of((await inner(desk, "s/o/m")).events)
    assert (answered.status, answered.content) == ("success", "gone already")


async def test_a_question_inside_expires_there(desk: Desk) -> None:
    # Promise 25.
    manager = three_floors(desk.tools, READ, PAY, clock=desk.clock)
    asked = await desk.pause(MANAGER, tools=[manager])
    desk.clock.forward(hours=2)
    await desk.restart()

    with pytest.raises(ApprovalExpiredError):
        await desk.decide(asked["c5"].approve(), tools=[manager])
    result = await desk.agent("Done.", tools=[manager]).run(session_id="s")

    assert result.output == "Done."
    assert desk.ran == ["read 1"]
    found = statuses((await inner(desk, "s/o/m")).events)
    assert found == {"c1": "success", "c5": "expired"}


async def test_a_decision_that_comes_in_after_the_deadline_runs_nothing(
    desk: Desk,
) -> None:
    """It was taken outside in time; then a crash kept it from getting in."""
    manager = three_floors(desk.tools, PAY, clock=desk.clock)
    asked = await desk.pause(MANAGER, tools=[manager])
    dying = Dying(desk.sessions, at=1, stored=True)
    with pytest.raises(Killed):
        await desk.decide(asked["c5"].approve(), tools=[manager], session_manager=dying)
    desk.clock.forward(hours=2)

    result = await desk.agent("Done.", tools=[manager]).run(session_id="s")

    assert result.output == "Done."
    assert desk.ran == []
    assert statuses((await inner(desk, "s/o/m")).events) == {"c5": "expired"}


async def test_two_questions_in_one_agent_are_decided_one_after_the_other(
    desk: Desk,
) -> None:
    # Promise 22.
    manager = three_floors(desk.tools, READ, DELETE_2, DELETE_3, clock=desk.clock)
    asked = await desk.pause(MANAGER, tools=[manager])

    again = await desk.decide(asked["c3"].approve(), tools=[manager])
    await desk.restart()
    result = await desk.decide(asked["c2"].deny(), tools=[manager])

    assert again.pending_tool_calls == (asked["c2"],)
    assert desk.ran == ["read 1", "delete 3"]
    assert result.output == "Done."


TWO = [call("clerk", "t", task="One."), call("clerk", "u", task="Two.")]


async def pause_two(desk: Desk, files: Tool[..., Any]) -> dict[str, Any]:
    """Have two agents ask at once, with one call id; return the questions by path."""
    result = await desk.agent(TWO, tools=[files]).run("Please.", session_id="s")
    return {each.path[0]: each for each in result.pending_tool_calls}


async def test_two_agents_that_ask_at_once_are_decided_together(desk: Desk) -> None:
    files = clerk(desk, [READ, DELETE_2], "Filed.")
    asked = await pause_two(desk, files)

    result = await desk.decide(asked["t"].approve(), asked["u"].deny(), tools=[files])

    assert result.output == "Done."
    assert Counter(desk.ran) == {"read 1": 2, "delete 2": 1}
    assert spent(await desk.session()) == times(COST, 4)
    assert statuses((await inner(desk, "s/t")).events)["c2"] == "success"
    assert statuses((await inner(desk, "s/u")).events)["c2"] == "denied"


async def test_two_agents_that_ask_at_once_are_decided_apart(desk: Desk) -> None:
    files = clerk(desk, [READ, DELETE_2], "Filed.")
    asked = await pause_two(desk, files)

    again = await desk.decide(asked["u"].approve(), tools=[files])
    await desk.restart()
    result = await desk.decide(asked["t"].approve(), tools=[files])

    assert again.pending_tool_calls == (asked["t"],)
    assert result.output == "Done."
    assert Counter(desk.ran) == {"read 1": 2, "delete 2": 2}


async def test_a_question_inside_is_decided_once(desk: Desk) -> None:
    files = clerk(desk, [DELETE_2, DELETE_3], "Filed.")
    asked = await desk.pause(CLERK, tools=[files])
    await desk.decide(asked["c2"].approve(), tools=[files])

    with pytest.raises(AlreadyDecidedError):
        await desk.decide(asked["c2"].approve(), tools=[files])

    assert desk.ran == ["delete 2"]


async def test_a_decision_made_inside_meanwhile_is_not_taken_twice(desk: Desk) -> None:
    files = clerk(desk, [DELETE_2], "Filed.")
    asked = await desk.pause(CLERK, tools=[files])
    agent = Agent(
        planned([DELETE_2], "Filed."), tools=desk.tools, session_manager=desk.sessions
    )
    decision = ToolConfirmation(tool_call_id="c2", approved=True)
    await agent.run(session_id="s/t", tool_confirmations=[decision])

    result = await desk.decide(asked["c2"].approve(), tools=[files])

    assert result.output == "Done."
    assert desk.ran == ["delete 2"]


async def test_a_yes_to_the_call_is_no_yes_to_a_question_inside(desk: Desk) -> None:
    """Not even if a model inside gives its call the same id."""
    files = clerk(desk, [call("delete", "t", n=2)], "Filed.")
    gated = replace(files, requires_confirmation=True)
    asked = await desk.pause(CLERK, tools=[gated])

    again = await desk.decide(asked["t"].approve(), tools=[gated])

    [inside] = again.pending_tool_calls
    assert (inside.path, inside.tool_call_id) == (("t",), "t")
    assert desk.ran == []
    await desk.decide(inside.approve(), tools=[gated])
    assert desk.ran == ["delete 2"]


async def test_a_new_message_replaces_an_agent_that_waits(desk: Desk) -> None:
    # Promise 24.
    manager = three_floors(desk.tools, READ, DELETE_2, clock=desk.clock)
    asked = await desk.pause(MANAGER, tools=[manager])
    await desk.restart()

    await desk.say("Never mind.", "Well.", tools=[manager])

    assert await desk.listed() == []
    assert await desk.statuses() == {"o": "replaced"}
    with pytest.raises(AlreadyDecidedError):
        await desk.decide(asked["c2"].approve(), tools=[manager])
    assert desk.ran == ["read 1"]


async def test_a_run_without_input_does_not_ask_the_model_inside(desk: Desk) -> None:
    model = planned([DELETE_2], "Filed.")
    files = hand_to("clerk", Agent(model, tools=desk.tools, clock=desk.clock))
    asked = await desk.pause(CLERK, tools=[files])

    again = await desk.agent(tools=[files]).run(session_id="s")

    assert again.pending_tool_calls == (asked["c2"],)
    assert len(model.requests) == 1


# --- Cut off, and entered again -----------------------------------------------


def gone_on(desk: Desk) -> Tool[..., Any]:
    return three_floors(desk.tools, READ, DELETE_2, clock=desk.clock)


async def goes_on(
    sessions: SessionManager, session_id: str, tools: list[Tool[..., Any]]
) -> AgentResult:
    """Do what is next, as a program would that knows nothing but the session."""
    agent = Agent(planned(MANAGER, "Done."), tools=tools, session_manager=sessions)
    session = await sessions.get(session_id)
    if session is None or not session.events:
        return await agent.run("Please.", session_id=session_id)
    decisions = [each.approve() for each in pending_tool_calls(session)]
    return await agent.run(session_id=session_id, tool_confirmations=decisions)


async def to_the_end(
    sessions: SessionManager, session_id: str, tools: list[Tool[..., Any]]
) -> None:
    with suppress(NothingToContinueError):  # it was the answer's save that it died at
        for _ in range(10):
            if (await goes_on(sessions, session_id, tools)).status == "complete":
                return
        pytest.fail("it does not end")


async def all_spent(sessions: SessionManager, session_id: str) -> Usage:
    """Return what the replies in a session and those inside it have cost."""
    total = Usage()
    for suffix in ("", "/o", "/o/m"):
        session = await sessions.get(session_id + suffix)
        assert session is not None
        replies = [each.usage for each in session.events if each.is_reply]
        total = sum((each for each in replies if each), start=total)
    return total


@pytest.mark.parametrize("stored", [True, False])
async def test_a_crash_at_any_save_repeats_nothing_and_counts_all_once(
    desk: Desk, stored: bool
) -> None:
    # Promises 10 and 21.
    for at in count(1):
        ran: list[str] = []
        tools = [three_floors(tools_of(ran), READ, DELETE_2)]
        dying, session_id = Dying(desk.sessions, at=at, stored=stored), f"s{at}"
        try:
            await to_the_end(dying, session_id, tools)
        except Killed:
            await to_the_end(desk.sessions, session_id, tools)
        session = await inner(desk, session_id)
        found = await inner(desk, f"{session_id}/o/m")
        assert max(Counter(ran).values(), default=0) <= 1, at
        assert statuses(session.events) == {"o": "success"}, at
        assert set(statuses(found.events)) == {"c1", "c2"}, at
        assert spent(session) == await all_spent(desk.sessions, session_id), at
        if not dying.dead:
            break
    assert ran == ["read 1", "delete 2"]
    assert at > 12  # all the saves, of three sessions


async def test_an_answer_that_was_not_handed_out_is_not_asked_for_again(
    desk: Desk,
) -> None:
    model = planned("Filed.")
    files = hand_to("clerk", Agent(model))
    # Question, reply; question and reply inside; then what that cost; then the result.
    dying = Dying(desk.sessions, at=6, stored=False)
    with pytest.raises(Killed):
        await desk.agent([CLERK], tools=[files], session_manager=dying).run(
            "Please.", session_id="s"
        )

    result = await desk.agent("Done.", tools=[files]).run(session_id="s")

    assert result.output == "Done."
    assert [each.content for each in desk.sent()] == ["Filed."]
    assert len(model.requests) == 1


async def test_a_session_that_was_made_and_nothing_more_gets_the_task(
    desk: Desk,
) -> None:
    await desk.sessions.create("s/t")

    await desk.say("Please.", [CLERK], "Done.", tools=[clerk(desk, "Filed.")])

    assert [each.content for each in desk.sent()] == ["Filed."]


async def test_an_agent_that_another_process_is_at_work_on_is_left_alone(
    desk: Desk,
) -> None:
    """The other one stores the result; so here the run waits, with nobody to ask."""
    files = clerk(desk, [READ], "Filed.")
    other = Beside(await desk.place.open())

    async def go_on() -> None:
        agent = Agent(
            planned([READ], "Filed."), tools=desk.tools, session_manager=other
        )
        await agent.run(session_id="s/t")

    # Two saves outside, and two inside; then the other process is faster.
    between = Interrupted(desk.sessions, 5, go_on)
    agent = desk.agent([CLERK], tools=[files], session_manager=between)
    result = await agent.run("Please.", session_id="s")

    assert result.status == "pending_confirmation"
    assert result.pending_tool_calls == ()
    again = await desk.agent("Done.", tools=[files]).run(session_id="s")
    assert again.output == "Done."
    assert [each.content for each in desk.sent()] == ["Filed."]
    assert desk.ran == ["read 1"]


async def test_of_two_that_decide_at_once_one_runs_the_tool_inside(desk: Desk) -> None:
    # Promise 21.
    files = clerk(desk, [DELETE_2], "Filed.")
    asked = await desk.pause(CLERK, tools=[files])
    other = Beside(await desk.place.open())

    async def decide_inside() -> None:
        agent = Agent(
            planned([DELETE_2], "Filed."), tools=desk.tools, session_manager=other
        )
        decision = ToolConfirmation(tool_call_id="c2", approved=True)
        await agent.run(session_id="s/t", tool_confirmations=[decision])

    # One save outside; then the other process is faster than the first one inside.
    between = Interrupted(desk.sessions, 2, decide_inside)
    waits = await desk.decide(
        asked["c2"].approve(), tools=[files], session_manager=between
    )
    result = await desk.agent("Done.", tools=[files]).run(session_id="s")

    assert (waits.status, waits.pending_tool_calls) == ("pending_confirmation", ())
    assert result.output == "Done."
    assert desk.ran == ["delete 2"]


async def test_an_agent_whose_only_turn_was_undone_begins_again(desk: Desk) -> None:
    files = clerk(desk, "Filed.")
    dying = Dying(desk.sessions, at=6, stored=False)
    with pytest.raises(Killed):
        await desk.agent([CLERK], tools=[files], session_manager=dying).run(
            "Please.", session_id="s"
        )
    await undo(desk.sessions, "s/t")

    await desk.agent("Done.", tools=[files]).run(session_id="s")

    assert [each.content for each in desk.sent()] == ["Filed."]


async def test_an_agent_that_runs_already_is_left_alone(desk: Desk) -> None:
    files = clerk(desk, "Filed.")
    with running(desk.sessions, "s/t"):
        paused = await desk.agent([CLERK], tools=[files]).run("Please.", session_id="s")

    result = await desk.agent("Done.", tools=[files]).run(session_id="s")

    assert (paused.status, paused.pending_tool_calls) == ("pending_confirmation", ())
    assert result.output == "Done."
    assert [each.content for each in desk.sent()] == ["Filed."]


async def test_a_cancelled_run_cancels_the_agent_inside(desk: Desk) -> None:
    started = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        started.set()
        await asyncio.Event().wait()
        return "never"

    files = clerk(desk, [call("wait", "w")], "Filed.", tools=[wait])
    agent = desk.agent([CLERK], tools=[files])
    run = asyncio.create_task(agent.run("Please.", session_id="s"))
    await started.wait()

    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    assert await desk.statuses() == {"t": "cancelled"}
    assert statuses((await inner(desk)).events) == {"w": "cancelled"}
    assert spent(await desk.session()) == COST


# --- How it ends --------------------------------------------------------------


async def test_too_many_steps_inside_are_an_error_result(desk: Desk) -> None:
    files = clerk(desk, [READ], [call("read", "c9", n=9)], max_steps=2)

    await desk.say("Please.", [CLERK], "Sorry.", tools=[files])

    [sent] = desk.sent()
    assert (sent.name, sent.status) == ("clerk", "error")
    assert "it took 2 model calls, which is its limit" in sent.content
    assert spent(await desk.session()) == times(COST, 2)


async def test_a_model_that_fails_inside_is_an_error_result(desk: Desk) -> None:
    # Promise 11: a tool that raises does not take its siblings down.
    model = ScriptedModel([RuntimeError("overloaded")])
    files = hand_to("clerk", Agent(model))

    result = await desk.say(
        "Please.", [READ, CLERK], "Sorry.", tools=[files, *desk.tools]
    )

    assert result.output == "Sorry."
    assert await desk.statuses() == {"c1": "success", "t": "error"}
    assert "RuntimeError: overloaded" in (await desk.result("t")).content


@pytest.mark.parametrize("reason", ["refusal", "max_tokens"])
async def test_an_answer_that_was_cut_short_is_an_error_result(
    desk: Desk, reason: str
) -> None:
    words = Message(role="assistant", content="Half")
    half = ModelResponse((words,), stop_reason=reason)
    files = hand_to("clerk", Agent(ScriptedModel([half])))

    await desk.say("Please.", [CLERK], "Sorry.", tools=[files])

    [sent] = desk.sent()
    assert sent.status == "error"
    assert f"its reply ended with {reason}" in sent.content
    assert "Half" in sent.content


async def test_an_empty_answer_is_an_answer(desk: Desk) -> None:
    # Promise 9.
    await desk.say("Please.", [CLERK], "Done.", tools=[clerk(desk, "")])

    result = await desk.result("t")
    assert (result.status, result.content) == ("success", "")


async def test_an_answer_of_a_type_is_handed_out_as_json(desk: Desk) -> None:
    files = hand_to(
        "clerk", Agent(ScriptedModel(["no", "[1, 2]"]), output_type=list[int])
    )

    await desk.say("Please.", [CLERK], "Done.", tools=[files])

    assert [each.content for each in desk.sent()] == ["[1, 2]"]


# --- Usage --------------------------------------------------------------------


async def test_a_run_counts_what_the_agents_inside_have_cost(desk: Desk) -> None:
    manager = three_floors(desk.tools, READ)
    agent = Agent(
        planned(MANAGER, "Done."), tools=[manager], session_manager=desk.sessions
    )

    result = await agent.run("Please.", session_id="s")

    assert result.usage == times(COST, 6)
    assert spent(await desk.session()) == times(COST, 6)


async def test_each_run_counts_what_was_spent_in_it(desk: Desk) -> None:
    manager = three_floors(desk.tools, DELETE_2, clock=desk.clock)
    tools = [manager]
    first = await goes_on(desk.sessions, "s", tools)
    second = await goes_on(desk.sessions, "s", tools)

    assert first.usage == times(COST, 3)
    assert second.usage == times(COST, 3)
    assert spent(await desk.session()) == times(COST, 6)


async def test_an_agent_that_is_entered_in_vain_costs_nothing(desk: Desk) -> None:
    files = clerk(desk, [DELETE_2, DELETE_3], "Filed.")
    asked = await desk.pause(CLERK, tools=[files])

    again = await desk.decide(asked["c2"].deny(), tools=[files])

    assert again.usage == Usage()
    session = await desk.session()
    assert spent(session) == COST
    notes = [item for item in items_of(session.events) if isinstance(item, Note)]
    assert [note.kind for note in notes] == ["delegated"]


# --- Beside the store ---------------------------------------------------------


async def test_without_a_session_the_inner_conversation_lives_in_the_run(
    desk: Desk,
) -> None:
    # Promise 9.
    manager = three_floors(desk.tools, READ, DELETE_2, clock=desk.clock)
    paused = await desk.agent([MANAGER], tools=[manager]).run("Please.")
    [asked] = paused.pending_tool_calls

    result = await desk.agent("Done.", tools=[manager]).run(
        context=paused.context, tool_confirmations=[asked.approve()]
    )

    assert asked.path == ("o", "m")
    assert result.output == "Done."
    assert desk.ran == ["read 1", "delete 2"]
    store = await desk.place.open()
    assert await store.list() == []


async def test_without_a_session_the_owner_is_known_inside_as_well(desk: Desk) -> None:
    owners: list[str | None] = []

    @tool
    async def look(context: ExecutionContext) -> str:
        """Look."""
        owners.append(context.session.user_id)
        return "seen"

    files = clerk(desk, [call("look", "l")], "Filed.", tools=[look])
    await desk.agent([CLERK], "Done.", tools=[files]).run("Please.", user_id="ada")

    assert owners == ["ada"]


async def test_a_stream_shows_the_events_of_the_caller(desk: Desk) -> None:
    # Promise 8.
    agent = Agent(
        planned(MANAGER, "Done."),
        tools=[three_floors(desk.tools, READ)],
        session_manager=desk.sessions,
    )

    async with agent.stream("Please.", session_id="s") as stream:
        items = [item async for item in stream]

    shown = [item for item in items if isinstance(item, Event)]
    assert [type(item) for item in items].count(SessionOpened) == 1
    assert shown == [*(await desk.session()).events]
    assert stream.result.usage == times(COST, 6)


# --- Ids ----------------------------------------------------------------------


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


LONG, ACCENTS = "x" * 250, "é" * 120


@pytest.mark.parametrize(
    ("session_id", "call_id", "expected"),
    [
        ("s", "t", "s/t"),
        ("x" * 127, "y" * 127, "x" * 127 + "/" + "y" * 127),
        ("s" * 9, LONG, f"{'s' * 9}/{digest(LONG)}"),
        ("s" * 222, LONG, f"{'s' * 222}/{digest(LONG)}"),
        ("s" * 223, LONG, f"{digest('s' * 223)}/{digest(LONG)}"),
        (ACCENTS, "t" * 130, f"{digest(ACCENTS)}/{digest('t' * 130)}"),  # by bytes
        (LONG, "t" * 9, f"{digest(LONG)}/{digest('t' * 9)}"),
    ],
)
def test_an_id_that_would_be_too_long_has_a_digest_of_the_call_and_then_of_both(
    session_id: str, call_id: str, expected: str
) -> None:
    assert inner_session_id(session_id, call_id) == expected


async def test_an_agent_works_inside_a_session_with_the_longest_id(desk: Desk) -> None:
    session_id = "x" * 255
    files = clerk(desk, [READ, DELETE_2], "Filed.")
    agent = desk.agent([CLERK], "Done.", tools=[files])
    paused = await agent.run("Please.", session_id=session_id)

    await agent.run(
        session_id=session_id,
        tool_confirmations=[each.approve() for each in paused.pending_tool_calls],
    )

    assert desk.ran == ["read 1", "delete 2"]
    assert (await inner(desk, inner_session_id(session_id, "t"))).events
