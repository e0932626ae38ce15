"""Approval: tools that pause a run themselves, as an agent inside a tool does."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from approving import (
    DELETE_2,
    DELETE_3,
    PAY,
    READ,
    START,
    Beside,
    Desk,
    Dying,
    Killed,
    call,
    decisions_of,
    statuses,
)

from minagent import (
    Agent,
    ExecutionContext,
    Paused,
    PendingToolCall,
    Tool,
    ToolCall,
    ToolConfirmation,
    pending_tool_calls,
    tool,
)
from minagent.errors import AlreadyDecidedError, ApprovalExpiredError, UnknownCallError
from minagent.models import ScriptedModel

# --- Paused: a tool that asks -------------------------------------------------


def question(name: str, **more: Any) -> PendingToolCall:
    return PendingToolCall(
        tool_call_id=name,
        name=f"book_{name}",
        arguments={"what": name},
        confirmation_message=f"Book the {name}?",
        fingerprint=f"fingerprint of {name}",
        asked_at=START,
        **more,
    )


class Trip:
    """A resumable tool that asks until all of its questions are decided or expired."""

    def __init__(self, *questions: PendingToolCall) -> None:
        self.questions = questions
        self.seen: list[list[tuple[str, bool]]] = []
        self.call_ids: list[str | None] = []

        @tool(resumable=True)
        async def trip(context: ExecutionContext) -> str:
            """Plan a trip."""
            decided = {each.tool_call_id: each for each in context.decisions}
            self.seen.append([(d.tool_call_id, d.approved) for d in context.decisions])
            self.call_ids.append(context.tool_call_id)
            left = [each for each in questions if each.tool_call_id not in decided]
            left = [
                each
                for each in left
                if each.expires_at is None or each.expires_at > context.now
            ]
            if left:
                raise Paused(left)
            return f"booked {sum(each.approved for each in decided.values())}"

        self.tool = trip


TRIP = call("trip", "t")


async def test_a_tool_that_raises_paused_pauses_the_run(desk: Desk) -> None:
    # Promise 11.
    trip = Trip(question("train"), question("hotel"))

    asked = await desk.pause(READ, TRIP, tools=[trip.tool, *desk.tools])
    await desk.restart()

    assert {each: asked[each].path for each in asked} == {
        "train": ("t",),
        "hotel": ("t",),
    }
    assert pending_tool_calls(await desk.session()) == (*asked.values(),)
    assert await desk.statuses() == {"c1": "success"}


async def test_a_decision_reaches_the_tool_that_asked(desk: Desk) -> None:
    trip = Trip(question("train"))
    asked = await desk.pause(TRIP, tools=[trip.tool])
    await desk.restart()

    result = await desk.decide(asked["train"].approve(), tools=[trip.tool])

    assert result.output == "Done."
    assert trip.seen == [[], [("train", True)]]
    assert trip.call_ids == ["t", "t"]
    assert [each.content for each in desk.sent()] == ["booked 1"]
    assert await desk.listed() == []


async def test_a_denial_reaches_the_tool_that_asked(desk: Desk) -> None:
    """Only that tool knows what not to run, and what a no means to the rest."""
    trip = Trip(question("train"))
    asked = await desk.pause(TRIP, tools=[trip.tool])

    await desk.decide(asked["train"].deny("too far"), tools=[trip.tool])

    assert trip.seen[-1] == [("train", False)]
    assert [each.content for each in desk.sent()] == ["booked 0"]
    [decision] = decisions_of((await desk.session()).events)
    assert (decision.path, decision.reason) == (("t",), "too far")


async def test_partial_decisions_let_the_tool_pause_again(desk: Desk) -> None:
    trip = Trip(question("train"), question("hotel"))
    asked = await desk.pause(TRIP, tools=[trip.tool])

    again = await desk.decide(asked["hotel"].approve(), tools=[trip.tool])
    await desk.restart()
    result = await desk.decide(asked["train"].deny(), tools=[trip.tool])

    assert again.status == "pending_confirmation"
    assert again.pending_tool_calls == (asked["train"],)
    assert result.output == "Done."
    assert trip.seen == [[], [("hotel", True)], [("hotel", True), ("train", False)]]


async def test_a_tool_may_ask_something_new_when_it_pauses_again(desk: Desk) -> None:
    first, second = Trip(question("train")), Trip(question("train"), question("bus"))
    asked = await desk.pause(TRIP, tools=[first.tool])

    again = await desk.decide(asked["train"].deny(), tools=[second.tool])

    assert [each.tool_call_id for each in again.pending_tool_calls] == ["bus"]
    result = await desk.decide(
        *(each.approve() for each in again.pending_tool_calls), tools=[second.tool]
    )
    assert result.output == "Done."


async def test_a_question_inside_is_decided_once(desk: Desk) -> None:
    trip = Trip(question("train"), question("hotel"))
    asked = await desk.pause(TRIP, tools=[trip.tool])
    await desk.decide(asked["hotel"].approve(), tools=[trip.tool])
    before = await desk.session()

    with pytest.raises(AlreadyDecidedError):
        await desk.decide(
            asked["train"].approve(), asked["hotel"].deny(), tools=[trip.tool]
        )

    assert len(trip.seen) == 2
    assert (await desk.session()).to_json() == before.to_json()


async def test_a_hand_made_decision_finds_the_question_inside(desk: Desk) -> None:
    trip = Trip(question("train"))
    await desk.pause(TRIP, tools=[trip.tool])

    await desk.decide(
        ToolConfirmation(tool_call_id="train", approved=True), tools=[trip.tool]
    )

    assert trip.seen[-1] == [("train", True)]


async def test_the_call_that_asks_is_itself_no_question(desk: Desk) -> None:
    trip = Trip(question("train"))
    await desk.pause(TRIP, tools=[trip.tool])

    with pytest.raises(UnknownCallError):
        await desk.decide(
            ToolConfirmation(tool_call_id="t", approved=True), tools=[trip.tool]
        )


async def test_questions_of_one_id_inside_two_calls_are_told_apart(desk: Desk) -> None:
    trip = Trip(question("train"))
    calls = [call("trip", "t1"), call("trip", "t2")]
    paused = await desk.agent(calls, tools=[trip.tool]).run("Please.", session_id="s")
    one, two = paused.pending_tool_calls

    again = await desk.decide(two.deny(), tools=[trip.tool])
    assert again.pending_tool_calls == (one,)
    await desk.decide(one.approve(), tools=[trip.tool])

    contents = [(each.tool_call_id, each.content) for each in desk.sent()]
    assert contents == [("t1", "booked 1"), ("t2", "booked 0")]


async def test_edited_arguments_of_a_question_inside_reach_the_tool_that_asked(
    desk: Desk,
) -> None:
    """What they must look like only the agent inside can tell."""
    given: list[object] = []

    @tool(resumable=True)
    async def trip(context: ExecutionContext) -> str:
        """Plan a trip."""
        if not context.decisions:
            raise Paused([question("train")])
        given.append(context.decisions[0].modified_arguments)
        return "booked"

    asked = await desk.pause(TRIP, tools=[trip])

    await desk.decide(asked["train"].approve(arguments={"seat": 1}), tools=[trip])

    assert given == [{"seat": 1}]
    assert [each.content for each in desk.sent()] == ["booked"]


async def test_a_question_inside_expires(desk: Desk) -> None:
    deadline = START + timedelta(hours=1)
    trip = Trip(question("train", expires_at=deadline), question("hotel"))
    asked = await desk.pause(TRIP, tools=[trip.tool])
    desk.clock.forward(hours=2)

    with pytest.raises(ApprovalExpiredError):
        await desk.decide(asked["train"].approve(), tools=[trip.tool])
    again = await desk.agent(tools=[trip.tool]).run(session_id="s")
    assert again.pending_tool_calls == (asked["hotel"],)
    await desk.decide(asked["hotel"].approve(), tools=[trip.tool])

    assert trip.seen[-1] == [("hotel", True)]
    assert await desk.listed() == []
    assert await desk.statuses() == {"t": "success"}


async def test_a_tool_is_entered_again_when_its_last_question_expires(
    desk: Desk,
) -> None:
    trip = Trip(question("train", expires_at=START + timedelta(hours=1)))
    await desk.pause(TRIP, tools=[trip.tool])
    desk.clock.forward(hours=2)
    await desk.restart()

    result = await desk.agent("Done.", tools=[trip.tool]).run(session_id="s")

    assert result.output == "Done."
    assert [each.content for each in desk.sent()] == ["booked 0"]


async def test_a_new_message_replaces_the_call_that_asked(desk: Desk) -> None:
    trip = Trip(question("train"), question("hotel"))
    asked = await desk.pause(TRIP, tools=[trip.tool])
    await desk.restart()

    await desk.say("Never mind.", "Well.", tools=[trip.tool])

    assert await desk.listed() == []
    assert await desk.statuses() == {"t": "replaced"}
    assert (await desk.result("t")).name == "trip"
    assert trip.seen == [[]]
    with pytest.raises(AlreadyDecidedError):
        await desk.decide(asked["train"].approve(), tools=[trip.tool])


async def test_a_decision_inside_and_a_new_message_give_one_result(desk: Desk) -> None:
    # Promises 11 and 24: each call has one result, whatever comes together.
    trip = Trip(question("train"), question("hotel"))
    asked = await desk.pause(TRIP, tools=[trip.tool])

    result = await desk.agent("Well.", tools=[trip.tool]).run(
        "Never mind the rest.",
        session_id="s",
        tool_confirmations=[asked["train"].approve()],
    )

    assert result.output == "Well."
    assert await desk.listed() == []
    assert list(await desk.statuses()) == ["t"]


async def test_a_deadline_inside_and_a_new_message_give_one_result(desk: Desk) -> None:
    deadline = START + timedelta(hours=1)
    trip = Trip(question("train", expires_at=deadline), question("hotel"))
    await desk.pause(TRIP, tools=[trip.tool])
    desk.clock.forward(hours=2)

    result = await desk.say("Never mind.", "Well.", tools=[trip.tool])

    assert result.output == "Well."
    assert await desk.listed() == []
    assert list(await desk.statuses()) == ["t"]


async def test_a_run_without_input_does_not_enter_a_tool_that_waits(desk: Desk) -> None:
    trip = Trip(question("train"))
    asked = await desk.pause(TRIP, tools=[trip.tool])

    again = await desk.agent(tools=[trip.tool]).run(session_id="s")

    assert again.pending_tool_calls == (asked["train"],)
    assert trip.seen == [[]]


async def test_a_resumable_tool_that_a_crash_cut_off_is_entered_with_its_decisions(
    desk: Desk,
) -> None:
    # Promise 10.
    trip = Trip(question("train"))
    asked = await desk.pause(TRIP, tools=[trip.tool])
    dying = Dying(await desk.place.open(), at=1, stored=True)
    with pytest.raises(Killed):
        await desk.decide(
            asked["train"].approve(), tools=[trip.tool], session_manager=dying
        )
    await desk.restart()

    result = await desk.agent("Done.", tools=[trip.tool]).run(session_id="s")

    assert result.output == "Done."
    assert trip.seen == [[], [("train", True)]]
    assert trip.call_ids == ["t", "t"]


async def test_a_gated_tool_may_ask_on_its_own_account_as_well(desk: Desk) -> None:
    seen: list[tuple[int, int]] = []

    @tool(resumable=True, requires_confirmation=True)
    async def trip(days: int, context: ExecutionContext) -> str:
        """Plan a trip."""
        seen.append((days, len(context.decisions)))
        if len(context.decisions) < 2:
            raise Paused([question("train")])
        return f"{days} days"

    asked = await desk.pause(call("trip", "t", days=3), tools=[trip])
    assert list(asked) == ["t"]
    again = await desk.decide(asked["t"].approve(arguments={"days": 2}), tools=[trip])
    [inside] = again.pending_tool_calls
    await desk.restart()
    await desk.decide(inside.approve(), tools=[trip])

    assert inside.path == ("t",)
    assert seen == [(2, 1), (2, 2)]
    [sent] = desk.sent()
    assert '{"days":2}' in sent.content


async def test_a_state_that_a_pausing_tool_spoils_is_an_error_result(
    desk: Desk,
) -> None:
    # Promise 11: such a value is an error of the tool, and the state is as before.
    @tool(resumable=True)
    async def trip(context: ExecutionContext) -> str:
        """Plan a trip."""
        context.state["due"] = START
        raise Paused([question("train")])

    result = await desk.say(
        "Please.", [READ, TRIP], "Sorry.", tools=[trip, *desk.tools]
    )

    assert result.output == "Sorry."
    assert await desk.statuses() == {"c1": "success", "t": "error"}
    assert await desk.listed() == []
    assert (await desk.session()).state == {}


def delegate_to(inner: Callable[[], Agent], name: str) -> Tool[..., Any]:
    """Make a tool of an agent whose conversation is a session of its own."""

    @tool(name=name, resumable=True)
    async def delegate(context: ExecutionContext) -> str:
        """Hand the work on."""
        child = f"{context.session_id}/{context.tool_call_id}"
        manager = context.session_manager
        assert manager is not None
        known = await manager.get(child)
        pending = pending_tool_calls(known) if known else ()
        open_ = {(each.path, each.tool_call_id) for each in pending}
        decisions = [replace(each, path=each.path[1:]) for each in context.decisions]
        fresh = [each for each in decisions if (each.path, each.tool_call_id) in open_]
        result = await inner().run(
            None if known else "Please.", session_id=child, tool_confirmations=fresh
        )
        if result.status == "pending_confirmation":
            raise Paused(result.pending_tool_calls)
        return result.output or ""

    return delegate


def three_floors(desk: Desk, *asked: ToolCall) -> Tool[..., Any]:
    """Make a tool of an agent that has a tool of an agent that calls these tools."""
    replies = iter(
        [[call("clerk", "m")], [READ, *asked], "The clerk's words.", "The manager's."]
    )

    def below(*tools: Tool[..., Any]) -> Agent:
        model = ScriptedModel([lambda _: next(replies)])
        sessions, clock = desk.sessions, desk.clock
        return Agent(model, tools=tools, session_manager=sessions, clock=clock)

    clerk = delegate_to(lambda: below(*desk.tools), "clerk")
    return delegate_to(lambda: below(clerk), "manager")


async def test_an_approval_finds_its_way_to_an_agent_inside_an_agent(
    desk: Desk,
) -> None:
    """The path names the calls that lead there, outermost first."""
    manager = three_floors(desk, DELETE_2)
    asked = await desk.pause(call("manager", "o"), tools=[manager])
    await desk.restart()

    result = await desk.decide(asked["c2"].approve(by="ada"), tools=[manager])

    assert asked["c2"].path == ("o", "m")
    assert desk.ran == ["read 1", "delete 2"]
    assert (await desk.result("o")).content == "The manager's."
    assert result.output == "Done."


async def test_a_denied_call_of_an_agent_inside_an_agent_is_never_entered(
    desk: Desk,
) -> None:
    manager = three_floors(desk, DELETE_2)
    asked = await desk.pause(call("manager", "o"), tools=[manager])
    await desk.restart()

    result = await desk.decide(asked["c2"].deny("keep it"), tools=[manager])

    assert desk.ran == ["read 1"]
    assert result.output == "Done."
    inside = await desk.sessions.get("s/o/m")
    assert inside is not None
    assert statuses(inside.events) == {"c1": "success", "c2": "denied"}


async def test_partial_decisions_find_their_way_one_after_the_other(desk: Desk) -> None:
    manager = three_floors(desk, DELETE_2, DELETE_3)
    asked = await desk.pause(call("manager", "o"), tools=[manager])

    again = await desk.decide(asked["c3"].approve(), tools=[manager])
    await desk.restart()
    result = await desk.decide(asked["c2"].deny(), tools=[manager])

    assert again.pending_tool_calls == (asked["c2"],)
    assert desk.ran == ["read 1", "delete 3"]
    assert result.output == "Done."


async def test_a_question_of_an_agent_inside_an_agent_expires_there(desk: Desk) -> None:
    manager = three_floors(desk, PAY)
    asked = await desk.pause(call("manager", "o"), tools=[manager])
    desk.clock.forward(hours=2)
    await desk.restart()

    with pytest.raises(ApprovalExpiredError):
        await desk.decide(asked["c5"].approve(), tools=[manager])
    result = await desk.agent("Done.", tools=[manager]).run(session_id="s")

    assert desk.ran == ["read 1"]
    assert result.output == "Done."
    inside = await desk.sessions.get("s/o/m")
    assert inside is not None
    assert statuses(inside.events) == {"c1": "success", "c5": "expired"}


async def test_a_pause_follows_what_others_decided_meanwhile(desk: Desk) -> None:
    """A question must not be lost because a person was quick with another one."""

    @tool(resumable=True)
    async def trip(context: ExecutionContext) -> str:
        """Plan a trip."""
        [delete] = pending_tool_calls(await desk.session())
        agent = desk.agent(session_manager=Beside(await desk.place.open()))
        await agent.run(session_id="s", tool_confirmations=[delete.approve()])
        raise Paused([question("train")])

    mine = Agent(
        ScriptedModel([[DELETE_2, TRIP]]),
        tools=[trip, *desk.tools],
        session_manager=desk.sessions,
        clock=desk.clock,
    )
    result = await mine.run("Please.", session_id="s")

    assert [each.tool_call_id for each in result.pending_tool_calls] == ["train"]
    assert await desk.listed() == ["train"]
    assert await desk.statuses() == {"c2": "success"}
