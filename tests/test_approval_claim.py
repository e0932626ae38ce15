"""Approval: a call is claimed before it runs, and it runs at most once.

Here several deciders meet in one process, runs die at a chosen save, old pending lists
come back, and the code is another one when the answer comes. The same with processes
that are really killed is in `test_approval_processes.py`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
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
    die_with_the_tool_run,
    put_back,
    results_of,
)

from minagent import (
    Agent,
    AgentResult,
    Event,
    ExecutionContext,
    Note,
    PendingToolCall,
    Tool,
    ToolConfirmation,
    ToolResult,
    tool,
)
from minagent.errors import (
    AlreadyDecidedError,
    NothingToContinueError,
    SessionBusyError,
    SessionConflictError,
    UnknownCallError,
)
from minagent.marks import REWIND
from minagent.models import ScriptedModel

# --- Promise 21: claimed before run, and run at most once ----------------------


async def test_a_run_that_dies_before_the_claim_leaves_the_question_open(
    desk: Desk,
) -> None:
    asked = await desk.pause(DELETE_2)
    dying = Dying(await desk.place.open(), at=1, stored=False)
    with pytest.raises(Killed):
        await desk.decide(asked["c2"].approve(), session_manager=dying)
    await desk.restart()

    assert desk.ran == []
    await desk.decide(asked["c2"].approve())
    assert desk.ran == ["delete 2"]


async def test_a_run_that_dies_after_the_claim_leaves_the_outcome_unknown(
    desk: Desk,
) -> None:
    asked = await desk.pause(DELETE_2)
    dying = Dying(await desk.place.open(), at=1, stored=True)
    with pytest.raises(Killed):
        await desk.decide(asked["c2"].approve(), session_manager=dying)
    await desk.restart()

    with pytest.raises(AlreadyDecidedError):
        await desk.decide(asked["c2"].approve())
    result = await desk.agent("I do not know.").run(session_id="s")

    assert result.output == "I do not know."
    assert desk.ran == []
    assert await desk.statuses() == {"c2": "unknown"}


async def test_a_run_that_dies_before_the_result_does_not_run_it_again(
    desk: Desk,
) -> None:
    asked = await desk.pause(DELETE_2)
    dying = Dying(await desk.place.open(), at=2, stored=False)
    with pytest.raises(Killed):
        await desk.decide(asked["c2"].approve(), session_manager=dying)
    await desk.restart()

    await desk.agent("I do not know.").run(session_id="s")

    assert desk.ran == ["delete 2"]
    assert await desk.statuses() == {"c2": "unknown"}


async def test_a_run_that_dies_after_the_result_keeps_it(desk: Desk) -> None:
    asked = await desk.pause(DELETE_2)
    dying = Dying(await desk.place.open(), at=2, stored=True)
    with pytest.raises(Killed):
        await desk.decide(asked["c2"].approve(), session_manager=dying)
    await desk.restart()

    result = await desk.agent("It is gone.").run(session_id="s")

    assert result.output == "It is gone."
    assert desk.ran == ["delete 2"]
    assert await desk.statuses() == {"c2": "success"}


async def test_a_claim_that_meets_a_conflict_is_made_again(desk: Desk) -> None:
    """Somebody else decided on another call meanwhile; ours is still there."""
    asked = await desk.pause(DELETE_2, DELETE_3)

    async def deny_the_other() -> None:
        agent = desk.agent(session_manager=await desk.place.open())
        await agent.run(session_id="s", tool_confirmations=[asked["c3"].deny()])

    late = Interrupted(Beside(desk.sessions), 1, deny_the_other)
    result = await desk.decide(asked["c2"].approve(), session_manager=late)

    assert result.output == "Done."
    assert desk.ran == ["delete 2"]
    assert await desk.statuses() == {"c2": "success", "c3": "denied"}


async def test_a_claim_that_comes_second_is_refused(desk: Desk) -> None:
    asked = await desk.pause(DELETE_2)

    async def approve_first() -> None:
        agent = desk.agent("Done.", session_manager=await desk.place.open())
        await agent.run(session_id="s", tool_confirmations=[asked["c2"].approve()])

    late = Interrupted(Beside(desk.sessions), 1, approve_first)
    with pytest.raises(AlreadyDecidedError):
        await desk.decide(asked["c2"].approve(), session_manager=late)

    assert desk.ran == ["delete 2"]


async def test_a_restored_pending_list_does_not_revive_a_call(desk: Desk) -> None:
    # Promise 21: decisions are looked up in the log, which only grows.
    asked = await desk.pause(DELETE_2, DELETE_3)
    old = (await desk.session()).state
    await desk.decide(asked["c2"].approve(), asked["c3"].deny())
    await put_back(desk, old)
    assert await desk.listed() == ["c2", "c3"]

    for decision in (asked["c2"].approve(), asked["c3"].approve()):
        await put_back(desk, old)
        with pytest.raises(AlreadyDecidedError):
            await desk.decide(decision)

    assert desk.ran == ["delete 2"]


async def test_a_restored_pending_list_does_not_revive_a_claimed_call(
    desk: Desk,
) -> None:
    asked = await desk.pause(DELETE_2)
    old = (await desk.session()).state
    await die_with_the_tool_run(desk, asked["c2"].approve())
    await put_back(desk, old)

    with pytest.raises(AlreadyDecidedError):
        await desk.decide(asked["c2"].approve())

    assert desk.ran == ["delete 2"]


async def test_a_restored_pending_list_does_not_block_the_session(desk: Desk) -> None:
    asked = await desk.pause(DELETE_2)
    old = (await desk.session()).state
    await desk.decide(asked["c2"].approve())
    await put_back(desk, old)

    result = await desk.say("Hello?", "Hello.")

    assert result.output == "Hello."
    assert await desk.listed() == []
    assert await desk.statuses() == {"c2": "success"}


async def test_a_restored_pending_list_is_nothing_to_continue(desk: Desk) -> None:
    # Promises 9 and 10: the last word was an answer, and no request may end in one.
    asked = await desk.pause(DELETE_2)
    old = (await desk.session()).state
    await desk.decide(asked["c2"].approve())
    await put_back(desk, old)

    with pytest.raises(NothingToContinueError):
        await desk.agent().run(session_id="s")

    assert desk.model.requests == []


async def test_a_restored_pending_list_does_not_ask_about_a_claimed_call(
    desk: Desk,
) -> None:
    """It was decided: to ask again would be to wait for an answer that is refused."""
    asked = await desk.pause(DELETE_2)
    old = (await desk.session()).state
    await die_with_the_tool_run(desk, asked["c2"].approve())
    await put_back(desk, old)

    result = await desk.agent("I do not know.").run(session_id="s")

    assert result.status == "complete"
    assert await desk.statuses() == {"c2": "unknown"}


@pytest.mark.parametrize("hours", [0, 2], ids=["in time", "past the deadline"])
async def test_a_restored_pending_list_does_not_say_not_run_of_what_may_have_run(
    desk: Desk, hours: int
) -> None:
    asked = await desk.pause(PAY)
    old = (await desk.session()).state
    await die_with_the_tool_run(desk, asked["c5"].approve())
    await put_back(desk, old)
    desk.clock.forward(hours=hours)

    await desk.say("Never mind.", "Well.")

    assert desk.ran == ["pay 5"]
    assert await desk.statuses() == {"c5": "unknown"}


async def test_a_restored_pending_list_does_not_let_an_answered_call_expire(
    desk: Desk,
) -> None:
    # Promise 11: each call gets one result.
    asked = await desk.pause(PAY)
    old = (await desk.session()).state
    await desk.decide(asked["c5"].approve())
    await put_back(desk, old)
    desk.clock.forward(hours=2)

    with pytest.raises(AlreadyDecidedError):
        await desk.decide(asked["c5"].approve())
    await desk.say("Hello?", "Hello.")

    assert await desk.statuses() == {"c5": "success"}
    assert await desk.listed() == []


async def test_a_result_follows_what_others_decided_meanwhile(desk: Desk) -> None:
    asked = await desk.pause(DELETE_2, DELETE_3)
    others: list[AgentResult] = []

    @tool(requires_confirmation=True)
    async def delete(n: int, context: ExecutionContext) -> str:
        """Delete a page."""
        desk.ran.append(f"delete {n}")
        context.state[f"deleted {n}"] = True
        if n == 2:
            agent = desk.agent(
                tools=[delete], session_manager=Beside(await desk.place.open())
            )
            others.append(
                await agent.run(
                    session_id="s", tool_confirmations=[asked["c3"].approve()]
                )
            )
        return f"deleted {n}"

    model = ScriptedModel(["Done."])
    mine = Agent(model, tools=[delete], session_manager=desk.sessions)
    result = await mine.run(session_id="s", tool_confirmations=[asked["c2"].approve()])

    assert result.output == "Done."
    [other] = others
    assert (other.status, other.pending_tool_calls) == ("pending_confirmation", ())
    assert desk.ran == ["delete 2", "delete 3"]
    sent = model.requests[-1].turns[-1].content
    assert [item.tool_call_id for item in sent] == ["c2", "c3"]
    stored = await desk.session()
    assert stored.state == {"deleted 2": True, "deleted 3": True}


async def test_a_result_that_a_newer_message_overtook_is_carried_by_the_error(
    desk: Desk,
) -> None:
    asked = await desk.pause(DELETE_2)

    @tool(requires_confirmation=True)
    async def delete(n: int) -> str:
        """Delete a page."""
        desk.ran.append(f"delete {n}")
        agent = desk.agent("Hello.", session_manager=Beside(await desk.place.open()))
        await agent.run("Hello?", session_id="s")
        return f"deleted {n}"

    mine = Agent(ScriptedModel([]), tools=[delete], session_manager=desk.sessions)
    with pytest.raises(SessionConflictError) as raised:
        await mine.run(session_id="s", tool_confirmations=[asked["c2"].approve()])

    [unsaved] = results_of(raised.value.unsaved)
    assert (unsaved.tool_call_id, unsaved.content) == ("c2", "deleted 2")
    assert desk.ran == ["delete 2"]
    assert await desk.statuses() == {"c2": "unknown"}


# --- Promise 12: decisions are looked at first, busy or not --------------------


class Busy:
    """A run that is at work on the first of two gated calls."""

    def __init__(self, desk: Desk) -> None:
        self.desk, self.started, self.release = desk, asyncio.Event(), asyncio.Event()

    async def __aenter__(self) -> dict[str, PendingToolCall]:
        @tool(requires_confirmation=True)
        async def delete(n: int) -> str:
            """Delete a page."""
            self.desk.ran.append(f"delete {n}")
            self.started.set()
            await self.release.wait()
            return f"deleted {n}"

        asked = await self.desk.pause(DELETE_2, DELETE_3)
        first = asked["c2"].approve()
        self.run = asyncio.create_task(self.desk.decide(first, tools=[delete]))
        await self.started.wait()
        return asked

    async def __aexit__(self, *_: object) -> None:
        self.release.set()
        await self.run


async def test_a_decided_call_is_refused_even_while_a_run_is_at_work(
    desk: Desk,
) -> None:
    async with Busy(desk) as asked:
        with pytest.raises(AlreadyDecidedError):
            await desk.decide(asked["c2"].approve())

    assert desk.ran == ["delete 2"]


async def test_an_undecided_call_is_told_to_wait_while_a_run_is_at_work(
    desk: Desk,
) -> None:
    async with Busy(desk) as asked:
        with pytest.raises(SessionBusyError):
            await desk.decide(asked["c3"].approve())

    assert await desk.listed() == ["c3"]
    await desk.decide(asked["c3"].approve())
    assert desk.ran == ["delete 2", "delete 3"]


async def test_an_unknown_call_is_refused_even_while_a_run_is_at_work(
    desk: Desk,
) -> None:
    async with Busy(desk):
        with pytest.raises(UnknownCallError):
            await desk.decide(ToolConfirmation(tool_call_id="c9", approved=True))


async def test_a_message_is_told_to_wait_while_a_run_is_at_work(desk: Desk) -> None:
    async with Busy(desk):
        with pytest.raises(SessionBusyError):
            await desk.agent().run("Never mind.", session_id="s")

    assert await desk.listed() == ["c3"]


# --- Promise 22: some decided, some not ---------------------------------------


async def test_decisions_wait_for_a_call_that_another_process_was_told_to_run(
    desk: Desk,
) -> None:
    asked = await desk.pause(DELETE_2, DELETE_3)
    await die_with_the_tool_run(desk, asked["c2"].approve())
    await desk.restart()

    result = await desk.decide(asked["c3"].approve())

    assert result.status == "pending_confirmation"
    assert result.pending_tool_calls == ()
    assert desk.model.requests == []
    assert desk.ran == ["delete 2", "delete 3"]


async def test_a_run_without_decisions_takes_such_a_call_for_unknown(
    desk: Desk,
) -> None:
    asked = await desk.pause(DELETE_2, DELETE_3)
    await die_with_the_tool_run(desk, asked["c2"].approve())
    await desk.decide(asked["c3"].approve())
    await desk.restart()

    result = await desk.agent("Done.").run(session_id="s")

    assert result.output == "Done."
    assert [each.status for each in desk.sent()] == ["unknown", "success"]


async def test_a_free_call_that_a_crash_cut_off_is_unknown_and_the_question_stands(
    desk: Desk,
) -> None:
    dying = Dying(await desk.place.open(), at=3, stored=False)
    with pytest.raises(Killed):
        await desk.pause(READ, DELETE_2, session_manager=dying)
    await desk.restart()

    result = await desk.agent().run(session_id="s")

    assert desk.ran == ["read 1"]
    assert [each.tool_call_id for each in result.pending_tool_calls] == ["c2"]
    assert await desk.statuses() == {"c1": "unknown"}


# --- A pause that another version of the code resumes --------------------------


async def resumed_with(
    desk: Desk, tools: Sequence[Tool[..., Any]], **edit: Any
) -> ToolResult:
    """Pause on `delete(n=2)`, and approve it in a program that has these tools."""
    asked = await desk.pause(READ, DELETE_2)
    await desk.restart()
    result = await desk.decide(asked["c2"].approve(**edit), tools=tools)
    assert result.output == "Done."
    return await desk.result("c2")


async def test_a_tool_that_is_gone_gives_an_error_result(desk: Desk) -> None:
    result = await resumed_with(desk, [])

    assert result.status == "error"
    assert "'delete'" in result.content
    assert desk.ran == ["read 1"]


async def test_a_tool_that_is_gone_takes_no_edited_arguments_either(desk: Desk) -> None:
    result = await resumed_with(desk, [], arguments={"n": 3})

    assert result.status == "error"
    assert desk.ran == ["read 1"]


async def test_a_tool_that_was_renamed_is_not_run_under_its_new_name(
    desk: Desk,
) -> None:
    @tool(requires_confirmation=True)
    async def remove(n: int) -> str:
        """Delete a page."""
        desk.ran.append(f"remove {n}")
        return "removed"

    result = await resumed_with(desk, [remove])

    assert result.status == "error"
    assert "remove" in result.content  # the tools that there are
    assert desk.ran == ["read 1"]


async def test_a_tool_whose_signature_changed_is_not_entered(desk: Desk) -> None:
    @tool(requires_confirmation=True)
    async def delete(page: str) -> str:
        """Delete a page."""
        desk.ran.append(f"delete {page}")
        return "deleted"

    result = await resumed_with(desk, [delete])

    assert result.status == "error"
    assert "page:" in result.content
    assert desk.ran == ["read 1"]


async def test_a_tool_whose_signature_changed_takes_edited_arguments(
    desk: Desk,
) -> None:
    @tool(requires_confirmation=True)
    async def delete(page: str) -> str:
        """Delete a page."""
        desk.ran.append(f"delete {page}")
        return "deleted"

    result = await resumed_with(desk, [delete], arguments={"page": "two"})

    assert result.status == "success"
    assert desk.ran == ["read 1", "delete two"]


async def test_a_call_whose_tool_lost_its_gate_still_waits_for_the_answer(
    desk: Desk,
) -> None:
    @tool
    async def delete(n: int) -> str:
        """Delete a page."""
        desk.ran.append(f"delete {n}")
        return "deleted"

    asked = await desk.pause(DELETE_2)
    await desk.restart()

    again = await desk.agent(tools=[delete]).run(session_id="s")
    assert again.pending_tool_calls == (asked["c2"],)
    assert desk.ran == []
    await desk.decide(asked["c2"].approve(), tools=[delete])
    assert desk.ran == ["delete 2"]


@pytest.mark.parametrize("option", [{}, {"repeatable": True}, {"resumable": True}])
async def test_a_call_whose_tool_gained_a_gate_is_not_run_unasked(
    desk: Desk, option: dict[str, Any]
) -> None:
    """It was cut off when it was free; the code of today is what counts."""

    def delete(n: int) -> str:
        """Delete a page."""
        desk.ran.append(f"delete {n}")
        return "deleted"

    dying = Dying(await desk.place.open(), at=2, stored=True)
    free = tool(**option)(delete)
    with pytest.raises(Killed):
        await desk.pause(DELETE_2, tools=[free], session_manager=dying)
    await desk.restart()
    today = {**option, "repeatable": False, "requires_confirmation": True}

    result = await desk.agent("Well.", tools=[tool(**today)(delete)]).run(
        session_id="s"
    )

    assert desk.ran == []
    assert result.status == "pending_confirmation" or (
        await desk.statuses() == {"c2": "unknown"}
    )


async def test_new_instructions_are_sent_after_a_pause(desk: Desk) -> None:
    # O12, on resume from an approval.
    asked = await desk.pause(DELETE_2, instructions="Be terse.")
    await desk.restart()

    await desk.decide(asked["c2"].approve(), instructions="Be kind.")

    assert desk.model.requests[-1].instructions == "Be kind."
    assert "Be terse." not in (await desk.session()).to_json()


# --- What others do while an approved tool runs -----------------------------------


def appended(desk: Desk, kind: str) -> Callable[[], Awaitable[None]]:
    async def append() -> None:
        session = await desk.session()
        data = {"to": session.events[0].event_id} if kind == REWIND else {}
        note = Note(kind=kind, data=data)
        session.append(Event(author="somebody else", content=(note,)))
        await desk.sessions.save(session)

    return append


async def test_promise_21_a_note_of_somebody_else_keeps_no_result_out(
    desk: Desk,
) -> None:
    asked = await desk.pause(DELETE_2)
    manager = Interrupted(desk.sessions, 2, appended(desk, "mine"))

    result = await desk.decide(asked["c2"].approve(), session_manager=manager)

    assert (result.output, desk.ran) == ("Done.", ["delete 2"])
    assert await desk.statuses() == {"c2": "success"}


async def test_promise_21_a_rewind_of_somebody_else_ends_the_run(desk: Desk) -> None:
    """What it would go on with does not count any more."""
    asked = await desk.pause(DELETE_2)
    manager = Interrupted(desk.sessions, 2, appended(desk, REWIND))

    with pytest.raises(SessionConflictError) as raised:
        await desk.decide(asked["c2"].approve(), session_manager=manager)

    assert [r.status for r in results_of(raised.value.unsaved)] == ["success"]
    assert desk.ran == ["delete 2"]
