"""Approval: what a person is asked, and what becomes of the answer.

First the cases O19 to O24, then what is asked (promise 19) and how decisions are taken
(promises 20, 24 and 25). That a call runs at most once is in `test_approval_claim.py`,
tools that pause a run themselves are in `test_approval_paused.py`. All of it holds for
both managers.
"""

import asyncio
import json
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from approving import (
    DELETE_2,
    DELETE_3,
    PAY,
    READ,
    SEND,
    START,
    Beside,
    Desk,
    Recording,
    call,
    decisions_of,
    items_of,
    thinking,
)
from pydantic import BaseModel

from minagent import (
    AgentResult,
    ApprovalError,
    Event,
    ExecutionContext,
    Message,
    ModelRequest,
    ModelResponse,
    PendingToolCall,
    SessionOpened,
    ToolCall,
    ToolConfirmation,
    ToolResult,
    pending_tool_calls,
    tool,
)
from minagent.errors import (
    AlreadyDecidedError,
    ApprovalExpiredError,
    FingerprintError,
    InvalidArgumentsError,
    NotSerializableError,
    SessionBusyError,
    SessionOwnerError,
    UnknownCallError,
)

# --- O19: three calls, one needs approval -------------------------------------


async def test_o19_the_pause_lists_exactly_the_gated_calls(desk: Desk) -> None:
    asked = await desk.pause(READ, DELETE_2, DELETE_3)

    assert {each: dict(asked[each].arguments) for each in asked} == {
        "c2": {"n": 2},
        "c3": {"n": 3},
    }
    assert pending_tool_calls(await desk.session()) == (*asked.values(),)


async def test_o19_a_free_sibling_runs_before_the_pause_and_once(desk: Desk) -> None:
    asked = await desk.pause(READ, DELETE_2, DELETE_3)
    before = [*desk.ran]

    await desk.decide(asked["c2"].deny(), asked["c3"].deny())

    assert before == ["read 1"]
    assert desk.ran == ["read 1"]


async def test_o19_decisions_taken_together_reach_their_calls(desk: Desk) -> None:
    asked = await desk.pause(READ, DELETE_2, DELETE_3)
    await desk.restart()

    result = await desk.decide(asked["c3"].deny("keep"), asked["c2"].approve())

    assert result.output == "Done."
    assert desk.ran == ["read 1", "delete 2"]
    sent = [(each.tool_call_id, each.status) for each in desk.sent()]
    assert sent == [("c1", "success"), ("c2", "success"), ("c3", "denied")]


async def test_o19_decisions_taken_apart_reach_their_calls(desk: Desk) -> None:
    asked = await desk.pause(READ, DELETE_2, DELETE_3)
    await desk.restart()

    await desk.decide(asked["c3"].deny("keep"))
    await desk.restart()
    result = await desk.decide(asked["c2"].approve())

    assert result.output == "Done."
    assert desk.ran == ["read 1", "delete 2"]
    sent = [(each.tool_call_id, each.content) for each in desk.sent()]
    assert sent[:2] == [("c1", "page 1"), ("c2", "deleted 2")]
    assert sent[2][0] == "c3"
    assert "keep" in sent[2][1]


async def test_o19_no_model_is_called_while_a_decision_is_missing(desk: Desk) -> None:
    asked = await desk.pause(READ, DELETE_2, DELETE_3)
    await desk.restart()

    result = await desk.decide(asked["c3"].approve())

    assert result.status == "pending_confirmation"
    assert result.pending_tool_calls == (asked["c2"],)
    assert result.output is None
    assert desk.model.requests == []


# --- O20: approved twice ------------------------------------------------------


async def test_o20_a_second_approval_is_refused(desk: Desk) -> None:
    asked = await desk.pause(DELETE_2)
    await desk.decide(asked["c2"].approve())
    await desk.restart()

    with pytest.raises(AlreadyDecidedError, match="'c2'"):
        await desk.decide(asked["c2"].approve())

    assert desk.ran == ["delete 2"]


async def test_o20_two_approvals_at_once_in_one_manager_run_it_once(desk: Desk) -> None:
    asked = await desk.pause(DELETE_2)

    first, second = await asyncio.gather(
        desk.decide(asked["c2"].approve()),
        desk.decide(asked["c2"].approve()),
        return_exceptions=True,
    )

    assert desk.ran == ["delete 2"]
    assert isinstance(first, AgentResult)
    assert first.output == "Done."
    assert isinstance(second, SessionBusyError | AlreadyDecidedError)


async def test_o20_two_approvals_at_once_in_two_managers_run_it_once(
    desk: Desk,
) -> None:
    asked = await desk.pause(DELETE_2)
    other = Beside(await desk.place.open())

    outcomes = await asyncio.gather(
        desk.decide(asked["c2"].approve()),
        desk.decide(asked["c2"].approve(), session_manager=other),
        return_exceptions=True,
    )

    assert desk.ran == ["delete 2"]
    kinds = {type(each) for each in outcomes}
    assert kinds == {AgentResult, AlreadyDecidedError}


@pytest.mark.parametrize("second", ["approve", "deny", "answer"])
@pytest.mark.parametrize("first", ["approve", "deny", "answer"])
async def test_o20_the_first_decision_stands(
    desk: Desk, first: str, second: str
) -> None:
    asked = (await desk.pause(DELETE_2))["c2"]
    decisions = {
        "approve": asked.approve(),
        "deny": asked.deny("no"),
        "answer": asked.answer("as if"),
    }
    await desk.decide(decisions[first])
    ran, before = [*desk.ran], await desk.session()
    await desk.restart()

    with pytest.raises(AlreadyDecidedError):
        await desk.decide(decisions[second])

    assert desk.ran == ran
    assert (await desk.session()).to_json() == before.to_json()


async def test_o20_the_claim_is_stored_before_the_tool_starts(desk: Desk) -> None:
    seen: list[tuple[list[ToolConfirmation], list[str]]] = []

    @tool(requires_confirmation=True)
    async def delete(n: int) -> str:
        """Delete a page."""
        stored = await desk.session()
        seen.append((decisions_of(stored.events), await desk.listed()))
        return "deleted"

    asked = await desk.pause(DELETE_2, tools=[delete])
    await desk.decide(asked["c2"].approve(by="ada"), tools=[delete])

    [(decisions, listed)] = seen
    assert [(each.tool_call_id, each.by) for each in decisions] == [("c2", "ada")]
    assert listed == []


# --- O21: a new message instead of a decision ---------------------------------


async def test_o21_a_new_message_closes_the_pending_call(desk: Desk) -> None:
    await desk.pause(DELETE_2)
    await desk.restart()

    result = await desk.say("Never mind, do X instead.", "X it is.")

    assert result.output == "X it is."
    assert desk.ran == []
    assert await desk.listed() == []
    assert await desk.statuses() == {"c2": "replaced"}
    closing, message = desk.model.requests[-1].turns[-1].content
    assert isinstance(closing, ToolResult)
    assert "Not run: replaced by a newer message" in closing.content
    assert message == Message(role="user", content="Never mind, do X instead.")


async def test_o21_a_late_approval_of_a_replaced_call_is_refused(desk: Desk) -> None:
    asked = await desk.pause(DELETE_2)
    await desk.restart()
    await desk.say("Never mind, do X instead.", "X it is.")
    await desk.restart()

    with pytest.raises(AlreadyDecidedError):
        await desk.decide(asked["c2"].approve())

    assert desk.ran == []


async def test_o21_what_was_decided_is_not_replaced(desk: Desk) -> None:
    asked = await desk.pause(DELETE_2, DELETE_3)
    await desk.decide(asked["c2"].approve())

    await desk.say("Never mind.", "Well.")

    assert await desk.statuses() == {"c2": "success", "c3": "replaced"}


async def test_o21_silence_is_no_decision_either(desk: Desk) -> None:
    """A run without input or decisions asks again; it is free of charge."""
    asked = await desk.pause(READ, DELETE_2)
    before = await desk.session()
    await desk.restart()

    result = await desk.agent().run(session_id="s")

    assert result.status == "pending_confirmation"
    assert result.pending_tool_calls == (asked["c2"],)
    assert desk.model.requests == []
    assert (await desk.session()).to_json() == before.to_json()


# --- O22: saying no -----------------------------------------------------------


async def test_o22_a_denial_lets_the_run_end_normally(desk: Desk) -> None:
    asked = await desk.pause(DELETE_2)
    await desk.restart()

    result = await desk.decide(asked["c2"].deny("keep it"))

    assert (result.status, result.output) == ("complete", "Done.")
    assert desk.ran == []
    assert await desk.statuses() == {"c2": "denied"}


async def test_o22_the_reason_and_who_gave_it_are_in_the_next_request(
    desk: Desk,
) -> None:
    asked = await desk.pause(DELETE_2)

    await desk.decide(asked["c2"].deny("the only copy", by="ada"))

    [sent] = desk.sent()
    assert "Not run" in sent.content
    assert "the only copy" in sent.content
    assert "ada" in sent.content


async def test_o22_later_turns_are_normal(desk: Desk) -> None:
    asked = await desk.pause(DELETE_2)
    await desk.decide(asked["c2"].deny("keep it"))
    await desk.restart()

    result = await desk.say("Hello?", "Hello.")

    assert result.output == "Hello."
    assert await desk.statuses() == {"c2": "denied"}


async def test_o22_all_of_several_calls_can_be_denied(desk: Desk) -> None:
    asked = await desk.pause(DELETE_2, SEND, DELETE_3)

    result = await desk.decide(*(each.deny() for each in asked.values()))

    assert result.output == "Done."
    assert desk.ran == []
    assert [each.status for each in desk.sent()] == ["denied"] * 3


# --- O23: approved with other arguments ---------------------------------------


async def test_o23_the_tool_gets_exactly_the_edited_arguments(desk: Desk) -> None:
    asked = await desk.pause(SEND)
    await desk.restart()

    await desk.decide(asked["c4"].approve(arguments={"to": "b"}))

    assert desk.ran == ["send 1 to b"]


async def test_o23_the_result_says_what_really_ran(desk: Desk) -> None:
    asked = await desk.pause(SEND)

    await desk.decide(asked["c4"].approve(arguments={"to": "b", "n": 7}))

    [sent] = desk.sent()
    assert '{"to":"b","n":7}' in sent.content
    assert "changed the arguments" in sent.content
    assert "sent 7" in sent.content


async def test_o23_also_an_error_says_what_really_ran(desk: Desk) -> None:
    @tool(requires_confirmation=True)
    def send(to: str, n: int) -> str:
        """Send pages."""
        raise LookupError(f"no such person: {to}")

    asked = await desk.pause(SEND, tools=[send])

    await desk.decide(asked["c4"].approve(arguments={"to": "b", "n": 1}), tools=[send])

    [sent] = desk.sent()
    assert sent.status == "error"
    assert '{"to":"b","n":1}' in sent.content


async def test_o23_proposed_and_executed_and_who_decided_are_on_record(
    desk: Desk,
) -> None:
    asked = await desk.pause(SEND)
    await desk.decide(asked["c4"].approve(by="ada", arguments={"to": "b"}))
    await desk.restart()

    events = (await desk.session()).events

    [proposed] = [item for item in items_of(events) if isinstance(item, ToolCall)]
    [decision] = decisions_of(events)
    assert proposed.arguments == {"to": "a", "n": 1}
    assert decision.modified_arguments == {"to": "b"}
    assert (decision.approved, decision.by) == (True, "ada")


@pytest.mark.parametrize(
    "arguments", [{"n": "many"}, {"to": "b", "cc": "c"}, {"to": None}, {"n": 1.5}]
)
async def test_o23_an_invalid_edit_runs_nothing_and_the_call_still_waits(
    desk: Desk, arguments: dict[str, Any]
) -> None:
    asked = await desk.pause(SEND)
    before = await desk.session()

    with pytest.raises(InvalidArgumentsError, match="'c4'"):
        await desk.decide(asked["c4"].approve(arguments=arguments))

    assert desk.ran == []
    assert (await desk.session()).to_json() == before.to_json()
    assert pending_tool_calls(before) == (asked["c4"],)


async def test_o23_a_required_field_cannot_be_edited_away(desk: Desk) -> None:
    asked = await desk.pause(DELETE_2)

    with pytest.raises(InvalidArgumentsError):
        await desk.decide(asked["c2"].approve(arguments={}))

    assert await desk.listed() == ["c2"]


async def test_o23_an_edit_leaves_the_reply_as_it_came(desk: Desk) -> None:
    """V6: a vendor's signature covers the thoughts; nothing may change beside them."""
    proposed = replace(SEND, extra={"caller": None, "index": 1})
    reply = (
        thinking("a\u2028🙂"),
        replace(thinking(""), redacted="sealed"),
        Message(role="assistant", content="Sending.", extra={"citations": [1]}),
        proposed,
    )
    asked = await desk.pause(*reply)
    await desk.restart()

    await desk.decide(asked["c4"].approve(arguments={"to": "b"}))

    turns = desk.model.requests[-1].turns
    assert turns[-2].role == "assistant"
    assert turns[-2].content == reply


# --- O24: too late ------------------------------------------------------------


async def test_o24_looking_at_the_question_changes_nothing(desk: Desk) -> None:
    asked = await desk.pause(PAY)
    before = await desk.session()

    for _ in range(10):
        desk.clock.forward(minutes=5)
        again = await desk.agent().run(session_id="s")
        assert again.pending_tool_calls == (asked["c5"],)

    assert (await desk.session()).to_json() == before.to_json()


async def test_o24_before_the_deadline_a_yes_counts(desk: Desk) -> None:
    asked = await desk.pause(PAY)
    await desk.restart()
    desk.clock.forward(minutes=59, seconds=59)

    await desk.decide(asked["c5"].approve())

    assert desk.ran == ["pay 5"]


async def test_o24_after_the_deadline_a_yes_is_no_yes(desk: Desk) -> None:
    asked = await desk.pause(PAY)
    await desk.restart()
    desk.clock.forward(hours=1, seconds=1)

    with pytest.raises(ApprovalExpiredError, match="'c5'"):
        await desk.decide(asked["c5"].approve())

    assert desk.ran == []


async def test_o24_the_model_is_told_that_it_was_not_run(desk: Desk) -> None:
    asked = await desk.pause(PAY)
    await desk.restart()
    desk.clock.forward(hours=2)
    with pytest.raises(ApprovalExpiredError):
        await desk.decide(asked["c5"].approve())

    result = await desk.say("And now?", "It is too late.")

    assert result.output == "It is too late."
    [sent] = desk.sent()
    assert sent.status == "expired"
    assert "not run" in sent.content.lower()
    assert "expired" in sent.content.lower()


async def test_o24_expired_and_denied_can_be_told_apart(desk: Desk) -> None:
    asked = await desk.pause(PAY, DELETE_2)
    desk.clock.forward(hours=2)

    await desk.decide(asked["c2"].deny())

    assert await desk.statuses() == {"c5": "expired", "c2": "denied"}
    expired, denied = desk.sent()
    assert "denied" not in expired.content.lower()
    assert "expired" not in denied.content.lower()


async def test_o24_a_run_without_input_goes_on_after_the_deadline(desk: Desk) -> None:
    await desk.pause(PAY)
    await desk.restart()
    desk.clock.forward(hours=2)

    result = await desk.agent("Nobody answered.").run(session_id="s")

    assert result.output == "Nobody answered."
    assert await desk.statuses() == {"c5": "expired"}
    assert await desk.listed() == []


@pytest.mark.parametrize("decision", ["approve", "deny", "answer"])
async def test_o24_a_closed_question_stays_expired(desk: Desk, decision: str) -> None:
    asked = (await desk.pause(PAY))["c5"]
    desk.clock.forward(hours=2)
    await desk.say("And now?", "It is too late.")
    late = {
        "approve": asked.approve(),
        "deny": asked.deny(),
        "answer": asked.answer(""),
    }

    with pytest.raises(ApprovalExpiredError):
        await desk.decide(late[decision])

    assert await desk.statuses() == {"c5": "expired"}


# --- Promise 19: what is asked, and how it is kept ----------------------------


async def test_a_question_has_all_that_a_person_and_a_program_need(desk: Desk) -> None:
    # Promise 19.
    asked = (await desk.pause(PAY))["c5"]

    assert (asked.tool_call_id, asked.name, asked.arguments) == ("c5", "pay", {"n": 5})
    assert asked.confirmation_message == "Run pay(n=5)?"
    assert asked.asked_at == START
    assert asked.expires_at == START + timedelta(hours=1)
    assert asked.fingerprint
    assert asked.path == ()


async def test_a_question_without_expires_in_stands_for_ever(desk: Desk) -> None:
    asked = await desk.pause(DELETE_2)
    assert asked["c2"].expires_at is None
    await desk.restart()
    desk.clock.forward(days=365 * 40)

    await desk.decide(asked["c2"].approve())

    assert desk.ran == ["delete 2"]


async def test_a_question_cannot_be_changed(desk: Desk) -> None:
    await desk.pause(DELETE_2)
    [asked] = pending_tool_calls(await desk.session())
    arguments: Any = asked.arguments

    with pytest.raises(TypeError, match="read-only"):
        arguments["n"] = 3
    with pytest.raises(FrozenInstanceError):
        asked.name = "read"  # type: ignore[misc]


async def test_the_pending_list_is_plain_json_in_the_state(desk: Desk) -> None:
    # Promise 19: nothing of the Python stack is kept.
    await desk.pause(DELETE_2)

    state = (await desk.session()).state

    assert json.loads(json.dumps(state)) == state
    assert [each["tool_call_id"] for each in state["pending_tool_calls"]] == ["c2"]


async def test_an_empty_pending_list_is_not_kept(desk: Desk) -> None:
    asked = await desk.pause(DELETE_2)

    await desk.decide(asked["c2"].approve())

    assert (await desk.session()).state == {}


async def test_the_pending_list_is_stored_in_the_save_of_the_reply(desk: Desk) -> None:
    # Promise 6: before the siblings run.
    recording = Recording(desk.sessions)

    await desk.pause(READ, DELETE_2, DELETE_3, session_manager=recording)

    _, waiting = recording.storing(DELETE_2)
    assert waiting == ["c2", "c3"]
    assert all(waiting == ["c2", "c3"] for _, waiting in recording.saves[1:])


async def test_fingerprints_differ_wherever_the_questions_do(desk: Desk) -> None:
    seen: list[str] = []
    for session_id, number, minutes in [
        ("s", 2, 0),
        ("t", 2, 0),
        ("u", 3, 0),
        ("v", 2, 1),
    ]:
        desk.clock.now = START + timedelta(minutes=minutes)
        agent = desk.agent([call("delete", "c2", n=number), call("delete", "c9", n=2)])
        result = await agent.run("Please.", session_id=session_id)
        seen += [each.fingerprint for each in result.pending_tool_calls]

    assert len(seen) == len(set(seen)) == 8


@pytest.mark.parametrize(
    ("arguments", "problem"), [({}, "n"), ({"n": "many"}, "n"), ({"n": 1, "m": 2}, "m")]
)
async def test_a_gated_call_with_invalid_arguments_is_no_question(
    desk: Desk, arguments: dict[str, Any], problem: str
) -> None:
    bad = ToolCall(name="delete", tool_call_id="c2", arguments=arguments)

    result = await desk.say("Please.", bad, "Sorry.")

    assert result.output == "Sorry."
    assert desk.ran == []
    [sent] = desk.sent()
    assert sent.status == "error"
    assert f"{problem}:" in sent.content


async def test_a_gated_call_with_an_unreadable_input_is_no_question(desk: Desk) -> None:
    bad = ToolCall(name="send", tool_call_id="c4", unreadable='{"to": ')

    result = await desk.say("Please.", bad, "Sorry.")

    assert result.output == "Sorry."
    assert [each.status for each in desk.sent()] == ["error"]


async def test_a_predicate_tells_which_calls_are_asked_about(desk: Desk) -> None:
    given: list[object] = []

    def is_large(arguments: Any) -> bool:
        given.append(dict(arguments))
        return arguments["n"] > 100

    @tool(requires_confirmation=is_large)
    async def buy(n: int) -> str:
        """Buy."""
        desk.ran.append(f"buy {n}")
        return "bought"

    asked = await desk.pause(
        call("buy", "a", n=5), call("buy", "b", n=500), tools=[buy]
    )

    assert list(asked) == ["b"]
    assert desk.ran == ["buy 5"]
    assert given == [{"n": 5}, {"n": 500}]


async def test_a_predicate_is_not_asked_again_about_edited_arguments(
    desk: Desk,
) -> None:
    @tool(requires_confirmation=lambda arguments: arguments["n"] > 100)
    async def buy(n: int) -> str:
        """Buy."""
        desk.ran.append(f"buy {n}")
        return "bought"

    asked = await desk.pause(call("buy", "b", n=500), tools=[buy])

    await desk.decide(asked["b"].approve(arguments={"n": 900}), tools=[buy])

    assert desk.ran == ["buy 900"]


async def test_a_gate_that_raises_asks(desk: Desk) -> None:
    """What cannot tell whether it is safe is not run unasked."""

    def is_large(arguments: Any) -> bool:
        raise LookupError("no price list")

    @tool(requires_confirmation=is_large)
    async def buy(n: int) -> str:
        """Buy."""
        desk.ran.append(f"buy {n}")
        return "bought"

    asked = await desk.pause(call("buy", "b", n=5), tools=[buy])

    assert list(asked) == ["b"]
    assert desk.ran == []


@pytest.mark.parametrize(
    ("arguments", "question"),
    [
        ({"to": "ada", "n": 3}, "Send 3 to ada?"),
        ({"to": "ada"}, "Send 1 to ada?"),
        ({}, "Send 1 to nobody?"),
        ({"to": "{n}"}, "Send 1 to {n}?"),
    ],
)
async def test_a_message_shows_the_arguments_and_the_defaults(
    desk: Desk, arguments: dict[str, Any], question: str
) -> None:
    asked = await desk.pause(
        ToolCall(name="send", tool_call_id="c", arguments=arguments)
    )

    assert asked["c"].confirmation_message == question


async def test_a_message_that_does_not_suit_a_value_still_asks(desk: Desk) -> None:
    """A person can decide on a clumsy question, and on none if the run has failed."""

    @tool(requires_confirmation=True, confirmation_message="Buy {n:.2f} of it?")
    async def buy(n: float | None = None) -> str:
        """Buy."""
        return "bought"

    asked = await desk.pause(call("buy", "b"), tools=[buy])

    assert "buy" in asked["b"].confirmation_message.lower()


@pytest.mark.parametrize(
    "message",
    [
        "Send {ot}?",
        "Send {}?",
        "Send {0}?",
        "Send {to.name}?",
        "Send {to[0]}?",
        "Send {context}?",
        "Send {",
        "Send }",
        "Send {to!z}?",
        "Send {to:{width}}?",
    ],
)
def test_a_bad_placeholder_fails_when_the_tool_is_made(message: str) -> None:
    def send(to: str, context: ExecutionContext) -> str:
        """Send."""
        return to

    with pytest.raises(ValueError, match="'send'"):
        tool(requires_confirmation=True, confirmation_message=message)(send)


def test_a_message_may_hold_braces_of_its_own() -> None:
    @tool(requires_confirmation=True, confirmation_message="Send {{to}} {to!r:>5}?")
    def send(to: str) -> str:
        """Send."""
        return to

    assert send.question({"to": "a"}) == "Send {to}   'a'?"


@pytest.mark.parametrize("seconds", [0, -1])
def test_a_deadline_that_is_over_at_once_is_refused(seconds: int) -> None:
    """It must not be mistaken for none, which stands for ever."""

    def send() -> str:
        """Send."""
        return ""

    with pytest.raises(ValueError, match="'send'"):
        tool(requires_confirmation=True, expires_in=timedelta(seconds=seconds))(send)


def test_what_a_person_approves_once_cannot_be_repeatable() -> None:
    # Promise 10.
    def send() -> str:
        """Send."""
        return ""

    with pytest.raises(ValueError, match="'send'"):
        tool(requires_confirmation=True, repeatable=True)(send)


@pytest.mark.parametrize(
    ("stop_reason", "steps"),
    [
        ("max_tokens", ["In less."]),
        ("model_context_window_exceeded", []),
        ("refusal", []),
        ("brand_new_reason", []),
    ],
)
async def test_a_gated_call_of_a_reply_that_was_stopped_is_not_asked(
    desk: Desk, stop_reason: str, steps: list[str]
) -> None:
    stopped = ModelResponse((DELETE_2,), stop_reason=stop_reason)

    result = await desk.say("Please.", stopped, *steps)

    assert result.status == "complete"
    assert desk.ran == []
    assert await desk.listed() == []
    assert (await desk.result("c2")).status == "error"
    assert "Not run" in (await desk.result("c2")).content


async def test_a_reply_that_a_callback_gave_is_gated_as_well(desk: Desk) -> None:
    def reply(context: ExecutionContext, request: ModelRequest) -> ModelResponse:
        return ModelResponse((DELETE_2,), stop_reason="tool_use")

    agent = desk.agent(before_llm_callbacks=[reply])

    result = await agent.run("Please.", session_id="s")

    assert [each.tool_call_id for each in result.pending_tool_calls] == ["c2"]
    assert desk.ran == []


async def test_a_call_id_that_was_used_before_is_asked_about_under_a_fresh_one(
    desk: Desk,
) -> None:
    """Some servers count from call_0 again; a yes of yesterday must not fit today."""
    first = await desk.pause(call("delete", "call_0", n=1))
    await desk.decide(first["call_0"].approve())

    second = await desk.pause(call("delete", "call_0", n=2))

    assert "call_0" not in second
    with pytest.raises(AlreadyDecidedError):
        await desk.decide(first["call_0"].approve())
    await desk.decide(*(each.approve() for each in second.values()))
    assert desk.ran == ["delete 1", "delete 2"]


async def test_two_calls_of_one_id_in_one_reply_are_two_questions(desk: Desk) -> None:
    asked = await desk.pause(call("delete", "c", n=1), call("delete", "c", n=2))

    await desk.decide(*(each.approve() for each in asked.values()))

    assert len(asked) == 2
    assert desk.ran == ["delete 1", "delete 2"]


async def test_what_siblings_put_into_the_state_is_kept(desk: Desk) -> None:
    @tool
    async def note(text: str, context: ExecutionContext) -> str:
        """Note."""
        context.state.setdefault("notes", []).append(text)
        return "noted"

    tools = [note, *desk.tools]

    asked = await desk.pause(
        call("note", "a", text="one"),
        DELETE_2,
        call("note", "b", text="two"),
        tools=tools,
    )
    await desk.restart()
    state = (await desk.session()).state

    assert sorted(state["notes"]) == ["one", "two"]
    assert await desk.listed() == ["c2"]
    await desk.decide(asked["c2"].approve(), tools=tools)
    assert sorted((await desk.session()).state["notes"]) == ["one", "two"]


async def test_a_sibling_that_fails_does_not_take_the_question_down(desk: Desk) -> None:
    @tool
    async def read(n: int) -> str:
        """Read a page."""
        raise OSError("no such page")

    asked = await desk.pause(READ, DELETE_2, tools=[read, *desk.tools[1:]])

    await desk.decide(asked["c2"].approve())

    assert await desk.statuses() == {"c1": "error", "c2": "success"}


async def test_a_cancelled_run_leaves_the_question_open(desk: Desk) -> None:
    started = asyncio.Event()

    @tool
    async def read(n: int) -> str:
        """Read a page."""
        started.set()
        await asyncio.Event().wait()
        return "never"

    agent = desk.agent([READ, DELETE_2], tools=[read, *desk.tools[1:]])
    run = asyncio.create_task(agent.run("Please.", session_id="s"))
    await started.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    assert await desk.statuses() == {"c1": "cancelled"}
    assert await desk.listed() == ["c2"]
    [asked] = pending_tool_calls(await desk.session())
    await desk.decide(asked.approve())
    assert desk.ran == ["delete 2"]


async def test_a_run_that_is_cancelled_with_a_spoilt_state_ends_as_cancelled(
    desk: Desk,
) -> None:
    # Promise 11: the open calls are answered, and then the cancel goes through.
    started = asyncio.Event()

    @tool
    async def spoil(context: ExecutionContext) -> str:
        """Spoil."""
        context.state["due"] = START
        started.set()
        await asyncio.Event().wait()
        return "never"

    agent = desk.agent([call("spoil", "a"), DELETE_2], tools=[spoil, *desk.tools])
    run = asyncio.create_task(agent.run("Please.", session_id="s"))
    await started.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    assert await desk.statuses() == {"a": "cancelled"}
    assert await desk.listed() == ["c2"]


async def test_a_conversation_that_is_not_stored_can_pause_as_well(desk: Desk) -> None:
    paused = await desk.agent([READ, DELETE_2]).run("Please.")
    [asked] = paused.pending_tool_calls

    result = await desk.agent("Done.").run(
        context=paused.context, tool_confirmations=[asked.approve()]
    )

    assert result.output == "Done."
    assert desk.ran == ["read 1", "delete 2"]
    with pytest.raises(AlreadyDecidedError):
        await desk.agent().run(
            context=result.context, tool_confirmations=[asked.approve()]
        )


# --- O08, in the arguments of a pending approval and at its pause --------------


class Color(Enum):
    RED = "red"


class Point(BaseModel):
    x: int = 1


UNFIT = [
    Decimal("1.10"),
    START,
    date(2026, 11, 30),
    UUID(int=1),
    Color.RED,
    {1, 2},
    (1, 2),
    Point(),
    object(),
    float("nan"),
    b"bytes",
]


@pytest.mark.parametrize("value", UNFIT, ids=lambda value: type(value).__name__)
def test_o08_a_call_cannot_be_made_with_what_json_has_no_word_for(value: Any) -> None:
    with pytest.raises(NotSerializableError, match=r"arguments\.deep\[0\]"):
        call("delete", "c2", deep=[value])


@pytest.mark.parametrize("value", UNFIT, ids=lambda value: type(value).__name__)
async def test_o08_arguments_of_a_pending_approval_cannot_be_edited_to_it(
    desk: Desk, value: Any
) -> None:
    asked = await desk.pause(SEND)
    before = await desk.session()

    with pytest.raises(NotSerializableError, match=r"modified_arguments\.to"):
        asked["c4"].approve(arguments={"to": value})

    assert (await desk.session()).to_json() == before.to_json()


async def test_o08_a_question_comes_back_equal(desk: Desk) -> None:
    @tool(requires_confirmation=True)
    async def keep(value: dict[str, Any]) -> str:
        """Keep."""
        desk.ran.append(repr(value))
        return "kept"

    value = {
        "float": 1.0,
        "int": 1,
        "none": None,
        "big": 10**30,
        "deep": [{"a": "é🙂"}],
    }
    asked = await desk.pause(call("keep", "k", value=value), tools=[keep])
    await desk.restart()

    [again] = pending_tool_calls(await desk.session())
    await desk.decide(again.approve(), tools=[keep])

    assert again == asked["k"]
    assert repr(again.arguments["value"]) == repr(value)
    assert desk.ran == [repr(value)]


@pytest.mark.parametrize("value", UNFIT, ids=lambda value: type(value).__name__)
async def test_o08_a_sibling_that_spoils_the_state_does_not_lose_the_question(
    desk: Desk, value: Any
) -> None:
    @tool
    async def spoil(context: ExecutionContext) -> str:
        """Spoil."""
        context.state["bad"] = {"deep": [value]}
        return "spoilt"

    await desk.pause(call("spoil", "a"), DELETE_2, tools=[spoil, *desk.tools])
    await desk.restart()

    assert await desk.statuses() == {"a": "error"}
    assert "state.bad.deep[0]" in (await desk.result("a")).content
    assert await desk.listed() == ["c2"]


async def test_o08_a_state_that_is_spoilt_before_the_pause_stores_nothing_of_it(
    desk: Desk,
) -> None:
    def spoil(context: ExecutionContext, request: ModelRequest) -> None:
        context.state["due"] = START

    agent = desk.agent([READ, DELETE_2], before_llm_callbacks=[spoil])

    with pytest.raises(NotSerializableError, match=r"state\.due"):
        await agent.run("Please.", session_id="s")

    stored = await desk.session()
    assert items_of(stored.events) == [Message(role="user", content="Please.")]
    assert stored.state == {}
    assert desk.ran == []


# --- Promise 20: the decisions of one run are taken together, or none ----------


BAD = {
    "nobody asked": UnknownCallError,
    "decided before": AlreadyDecidedError,
    "expired before": ApprovalExpiredError,
    "another question": FingerprintError,
    "invalid arguments": InvalidArgumentsError,
    "the same call again": AlreadyDecidedError,
}


def bad_decision(kind: str, asked: dict[str, PendingToolCall]) -> ToolConfirmation:
    foreign = replace(asked["third"].approve(), fingerprint=asked["first"].fingerprint)
    return {
        "nobody asked": ToolConfirmation(tool_call_id="c9", approved=True),
        "decided before": asked["denied"].approve(),
        "expired before": asked["expired"].approve(),
        "another question": foreign,
        "invalid arguments": asked["third"].approve(arguments={"n": "many"}),
        "the same call again": asked["first"].deny(),
    }[kind]


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("kind", BAD)
async def test_one_bad_decision_among_three_changes_nothing(
    desk: Desk, kind: str, at: int
) -> None:
    # Promise 20.
    ids = ["denied", "first", "second", "third"]
    calls = [call("delete", each, n=n) for n, each in enumerate(ids)]
    asked = await desk.pause(*calls, call("pay", "expired", n=9))
    await desk.decide(asked["denied"].deny())
    desk.clock.forward(hours=2)
    await desk.agent().run(session_id="s")  # closes the question that has expired
    before = await desk.session()
    decisions = [asked["first"].approve(), asked["second"].deny("no")]
    decisions.insert(at, bad_decision(kind, asked))
    await desk.restart()

    with pytest.raises(ApprovalError) as raised:
        await desk.decide(*decisions)

    assert type(raised.value) is BAD[kind]
    assert raised.value.tool_call_id in (decisions[at].tool_call_id, "first")
    assert desk.ran == []
    assert (await desk.session()).to_json() == before.to_json()
    assert await desk.listed() == ["first", "second", "third"]


async def test_after_a_bad_decision_the_good_ones_can_be_taken(desk: Desk) -> None:
    asked = await desk.pause(DELETE_2, DELETE_3)
    bad = ToolConfirmation(tool_call_id="c9", approved=True)
    with pytest.raises(UnknownCallError):
        await desk.decide(asked["c2"].approve(), asked["c3"].approve(), bad)

    await desk.decide(asked["c2"].approve(), asked["c3"].approve())

    assert desk.ran == ["delete 2", "delete 3"]


async def test_a_bad_decision_does_not_keep_overdue_calls_open(desk: Desk) -> None:
    # Promise 20: overdue calls are closed all the same.
    asked = await desk.pause(PAY, DELETE_2, DELETE_3)
    desk.clock.forward(hours=2)

    with pytest.raises(UnknownCallError):
        await desk.decide(
            asked["c2"].approve(), ToolConfirmation(tool_call_id="c9", approved=True)
        )

    assert await desk.statuses() == {"c5": "expired"}
    assert await desk.listed() == ["c2", "c3"]
    assert decisions_of((await desk.session()).events) == []
    assert desk.ran == []


async def test_a_decision_that_comes_too_late_takes_none_beside_it(desk: Desk) -> None:
    asked = await desk.pause(PAY, DELETE_2)
    desk.clock.forward(hours=2)

    with pytest.raises(ApprovalExpiredError):
        await desk.decide(asked["c2"].approve(), asked["c5"].approve())

    assert await desk.statuses() == {"c5": "expired"}
    assert await desk.listed() == ["c2"]
    assert desk.ran == []


async def test_an_input_beside_a_bad_decision_replaces_nothing(desk: Desk) -> None:
    await desk.pause(DELETE_2)
    before = await desk.session()

    with pytest.raises(UnknownCallError):
        await desk.agent().run(
            "Go on.",
            session_id="s",
            tool_confirmations=[ToolConfirmation(tool_call_id="c9", approved=True)],
        )

    assert (await desk.session()).to_json() == before.to_json()


async def test_one_call_decided_twice_in_one_list_is_refused(desk: Desk) -> None:
    asked = await desk.pause(DELETE_2)

    with pytest.raises(AlreadyDecidedError):
        await desk.decide(asked["c2"].approve(), asked["c2"].approve())

    assert desk.ran == []
    assert await desk.listed() == ["c2"]


async def test_a_decision_made_by_hand_needs_only_the_id(desk: Desk) -> None:
    await desk.pause(DELETE_2, DELETE_3)
    await desk.restart()

    await desk.decide(
        ToolConfirmation(tool_call_id="c2", approved=True),
        ToolConfirmation(tool_call_id="c3", approved=False, reason="keep"),
    )

    assert desk.ran == ["delete 2"]
    assert await desk.statuses() == {"c2": "success", "c3": "denied"}


async def test_a_decision_on_the_same_call_of_another_session_is_refused(
    desk: Desk,
) -> None:
    await desk.pause(DELETE_2)
    elsewhere = await desk.agent([DELETE_2]).run("Please.", session_id="t")

    with pytest.raises(FingerprintError, match="'c2'"):
        await desk.decide(elsewhere.pending_tool_calls[0].approve())

    assert desk.ran == []
    assert await desk.listed() == ["c2"]


async def test_a_question_in_the_place_of_a_decision_is_misuse(desk: Desk) -> None:
    asked: Any = await desk.pause(DELETE_2)
    before = await desk.session()

    with pytest.raises((TypeError, ValueError)):
        await desk.decide(asked["c2"])

    assert (await desk.session()).to_json() == before.to_json()


async def test_empty_arguments_run_the_tool_with_none(desk: Desk) -> None:
    asked = await desk.pause(SEND)

    await desk.decide(asked["c4"].approve(arguments={}))

    assert desk.ran == ["send 1 to nobody"]


async def test_no_edited_arguments_run_the_tool_as_it_was_asked_for(desk: Desk) -> None:
    asked = await desk.pause(SEND)

    await desk.decide(asked["c4"].approve(arguments=None))

    assert desk.ran == ["send 1 to a"]
    assert [each.content for each in desk.sent()] == ["sent 1"]


async def test_an_answer_stands_in_the_place_of_the_tool(desk: Desk) -> None:
    asked = await desk.pause(SEND)
    await desk.restart()

    result = await desk.decide(asked["c4"].answer("I sent it myself.", by="ada"))

    assert result.output == "Done."
    assert desk.ran == []
    [sent] = desk.sent()
    assert (sent.status, sent.content) == ("success", "I sent it myself.")
    [decision] = decisions_of((await desk.session()).events)
    assert (decision.answer, decision.by) == ("I sent it myself.", "ada")


async def test_an_empty_answer_is_an_answer(desk: Desk) -> None:
    asked = await desk.pause(SEND)

    await desk.decide(asked["c4"].answer(""))

    assert await desk.statuses() == {"c4": "success"}


async def test_a_decision_in_a_session_that_is_not_there_is_about_no_call(
    desk: Desk,
) -> None:
    decision = ToolConfirmation(tool_call_id="c2", approved=True)

    with pytest.raises(UnknownCallError, match="'c2'"):
        await desk.decide(decision)

    assert await desk.sessions.get("s") is None


async def test_a_call_that_nobody_was_asked_about_cannot_be_decided(desk: Desk) -> None:
    await desk.pause(READ, DELETE_2)

    with pytest.raises((UnknownCallError, AlreadyDecidedError)):
        await desk.decide(ToolConfirmation(tool_call_id="c1", approved=True))

    assert desk.ran == ["read 1"]


async def test_somebody_elses_session_cannot_be_decided_on(desk: Desk) -> None:
    # Promises 13 and 26: who decides names himself, and is no stranger.
    result = await desk.agent([DELETE_2]).run("Please.", session_id="s", user_id="ann")
    [asked] = result.pending_tool_calls

    with pytest.raises(SessionOwnerError):
        await desk.agent().run(
            session_id="s", user_id="bob", tool_confirmations=[asked.approve()]
        )

    assert await desk.listed() == ["c2"]
    assert desk.ran == []


# --- Promise 24: a new message, alone and beside decisions ---------------------


async def test_decisions_come_before_the_message_that_replaces_the_rest(
    desk: Desk,
) -> None:
    # Promise 24.
    asked = await desk.pause(READ, DELETE_2, DELETE_3, SEND)
    await desk.restart()

    result = await desk.agent("Well.").run(
        "Never mind the rest.",
        session_id="s",
        tool_confirmations=[asked["c3"].approve(), asked["c4"].deny("no")],
    )

    assert result.output == "Well."
    assert desk.ran == ["read 1", "delete 3"]
    assert await desk.listed() == []
    sent = [(each.tool_call_id, each.status) for each in desk.sent()]
    assert sent == [
        ("c1", "success"),
        ("c2", "replaced"),
        ("c3", "success"),
        ("c4", "denied"),
    ]
    last = desk.model.requests[-1].turns[-1].content[-1]
    assert last == Message(role="user", content="Never mind the rest.")


async def test_a_message_does_not_replace_what_has_expired(desk: Desk) -> None:
    await desk.pause(PAY, DELETE_2)
    desk.clock.forward(hours=2)

    await desk.say("Never mind.", "Well.")

    assert await desk.statuses() == {"c5": "expired", "c2": "replaced"}


async def test_decisions_and_message_are_stored_in_one_save(desk: Desk) -> None:
    asked = await desk.pause(DELETE_2, DELETE_3)
    recording = Recording(desk.sessions)

    await desk.agent("Well.", session_manager=recording).run(
        "Never mind.", session_id="s", tool_confirmations=[asked["c2"].approve()]
    )

    items, waiting = recording.saves[0]
    assert [type(item) for item in items] == [ToolConfirmation, ToolResult, Message]
    assert waiting == []


# --- Promise 25: what is past its deadline ------------------------------------


async def test_all_overdue_calls_are_closed_in_one_save(desk: Desk) -> None:
    # Promise 25.
    await desk.pause(PAY, DELETE_2, call("pay", "c6", n=6))
    desk.clock.forward(hours=2)
    recording = Recording(desk.sessions)

    result = await desk.agent(session_manager=recording).run(session_id="s")

    [(items, waiting)] = recording.saves
    closed = [item for item in items if isinstance(item, ToolResult)]
    assert [(each.tool_call_id, each.status) for each in closed] == [
        ("c5", "expired"),
        ("c6", "expired"),
    ]
    assert waiting == ["c2"]
    assert [each.tool_call_id for each in result.pending_tool_calls] == ["c2"]


async def test_the_deadline_counts_from_the_question(desk: Desk) -> None:
    await desk.pause(PAY)
    desk.clock.forward(minutes=50)
    await desk.say("Once more.", [call("pay", "c6", n=6)])
    [asked] = pending_tool_calls(await desk.session())
    desk.clock.forward(minutes=50)

    await desk.decide(asked.approve())

    assert desk.ran == ["pay 6"]


async def test_times_of_any_zone_can_be_told(desk: Desk) -> None:
    zone = datetime.strptime("+05:30", "%z").tzinfo
    desk.clock.now = START.astimezone(zone)

    asked = await desk.pause(PAY)

    assert asked["c5"].asked_at == START
    assert asked["c5"].asked_at.tzinfo is UTC


# --- Promise 8: what was streamed is what is stored ----------------------------


async def test_a_resumed_run_streams_what_it_stores(desk: Desk) -> None:
    asked = await desk.pause(PAY, DELETE_2, DELETE_3)
    known = len((await desk.session()).events)
    desk.clock.forward(hours=2)
    agent = desk.agent("Done.")
    decisions = [asked["c2"].approve(), asked["c3"].deny()]

    async with agent.stream(session_id="s", tool_confirmations=decisions) as stream:
        items = [item async for item in stream]

    assert isinstance(items[0], SessionOpened)
    durable = [item for item in items if isinstance(item, Event)]
    assert durable == list((await desk.session()).events[known:])
    assert stream.result.output == "Done."


async def test_a_stream_ends_in_the_pause(desk: Desk) -> None:
    async with desk.agent([READ, DELETE_2]).stream("Please.", session_id="s") as stream:
        async for _ in stream:
            pass

    assert stream.result.status == "pending_confirmation"
    assert [each.tool_call_id for each in stream.result.pending_tool_calls] == ["c2"]


# --- Callbacks, and what a tool is told ---------------------------------------


async def test_callbacks_run_for_approved_calls_when_they_run(desk: Desk) -> None:
    seen: list[object] = []

    def before(context: ExecutionContext, called: ToolCall) -> None:
        seen.append(("before", called.tool_call_id, dict(called.arguments)))

    async def after(context: ExecutionContext, result: ToolResult) -> ToolResult:
        seen.append(("after", result.tool_call_id, result.content))
        return replace(result, content=result.content.upper())

    callbacks = {"before_tool_callbacks": [before], "after_tool_callbacks": [after]}
    asked = await desk.pause(SEND, DELETE_2, **callbacks)
    assert seen == []

    await desk.decide(
        asked["c4"].approve(arguments={"to": "b"}), asked["c2"].deny(), **callbacks
    )

    assert seen == [("before", "c4", {"to": "b"}), ("after", "c4", "sent 1")]
    assert "SENT 1" in (await desk.result("c4")).content


async def test_a_callback_can_still_stop_an_approved_call(desk: Desk) -> None:
    def stop(context: ExecutionContext, called: ToolCall) -> ToolResult:
        return ToolResult(
            tool_call_id=called.tool_call_id,
            name=called.name,
            status="error",
            content="not on a Sunday",
        )

    asked = await desk.pause(DELETE_2)

    await desk.decide(asked["c2"].approve(), before_tool_callbacks=[stop])

    assert desk.ran == []
    assert [each.content for each in desk.sent()] == ["not on a Sunday"]


async def test_an_approved_tool_sees_its_call_and_the_decision(desk: Desk) -> None:
    seen: list[object] = []

    @tool(requires_confirmation=lambda arguments: arguments["n"] == 2)
    async def look(n: int, context: ExecutionContext) -> str:
        """Look."""
        by = [(each.approved, each.by) for each in context.decisions]
        seen.append((context.tool_call_id, by))
        return "seen"

    calls = call("look", "a", n=1), call("look", "b", n=2)
    asked = await desk.pause(*calls, tools=[look])

    await desk.decide(asked["b"].approve(by="ada"), tools=[look])

    assert seen == [("a", []), ("b", [(True, "ada")])]


async def test_what_an_approved_tool_raises_is_an_error_result(desk: Desk) -> None:
    @tool(requires_confirmation=True)
    async def delete(n: int) -> str:
        """Delete a page."""
        desk.ran.append(f"delete {n}")
        raise PermissionError("read-only disk")

    asked = await desk.pause(DELETE_2, tools=[delete])

    result = await desk.decide(asked["c2"].approve(), tools=[delete])

    assert result.output == "Done."
    assert desk.ran == ["delete 2"]
    [sent] = desk.sent()
    assert (sent.status, "read-only disk" in sent.content) == ("error", True)
