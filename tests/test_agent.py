"""The run: what is stored when, what ends it, and what is left of one that broke.

In this order: write-ahead; answers, steps and failures; input; sessions, owners and
contexts; instructions; callbacks and watchers; stop reasons; replies that broke off;
tools; cancels, interrupts and kills; one run at a time; two managers; the clock.
"""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

import pytest

import minagent
from minagent import (
    Agent,
    Event,
    ExecutionContext,
    InMemorySessionManager,
    MaxStepsExceededError,
    Media,
    Message,
    ModelRequest,
    ModelResponse,
    Note,
    NothingToContinueError,
    NotSerializableError,
    Reasoning,
    Session,
    SessionBusyError,
    SessionConflictError,
    SessionExistsError,
    SessionManager,
    SessionNotFoundError,
    SessionOwnerError,
    SessionStore,
    TextDelta,
    ToolCall,
    ToolConfirmation,
    ToolResult,
    UnknownCallError,
    Usage,
    tool,
)
from minagent.models import ScriptedModel
from minagent.stores import SQLiteSessionManager

Restart = Callable[[], SessionStore]


def call(name: str, call_id: str | None = None, **arguments: Any) -> ToolCall:
    if call_id is None:
        return ToolCall(name=name, arguments=arguments)
    return ToolCall(name=name, arguments=arguments, tool_call_id=call_id)


def words(events: Iterable[Event]) -> list[str]:
    """What was said, by whom, in order."""
    return [
        f"{item.role}: {item.content}"
        for event in events
        for item in event.content
        if isinstance(item, Message)
    ]


def results(events: Iterable[Event]) -> list[ToolResult]:
    items = [item for event in events for item in event.content]
    return [item for item in items if isinstance(item, ToolResult)]


def sent_words(request: ModelRequest) -> list[str]:
    """What a model was told, by whom, in order."""
    items = [item for turn in request.turns for item in turn.content]
    return [f"{i.role}: {i.content}" for i in items if isinstance(i, Message)]


def sent_results(request: ModelRequest) -> list[ToolResult]:
    """The results that a model was told last."""
    last = request.turns[-1].content
    return [item for item in last if isinstance(item, ToolResult)]


async def stored(sessions: SessionManager, session_id: str = "ada") -> Session:
    session = await sessions.get(session_id)
    assert session is not None
    return session


def reply(*content: Any, stop_reason: str = "end_turn", **more: Any) -> ModelResponse:
    items = tuple(
        Message(role="assistant", content=item) if isinstance(item, str) else item
        for item in content
    )
    return ModelResponse(items, stop_reason=stop_reason, **more)


async def others_finished() -> None:
    """Wait for tasks that a run has left behind."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:
        await asyncio.wait(left, timeout=10)


@tool
def clock(city: str = "Rome") -> str:
    """Tell the time."""
    return f"noon in {city}"


@tool
async def forever() -> NoReturn:
    """Never come back."""
    await asyncio.Event().wait()
    raise AssertionError


# --- Promise 6: write-ahead ---------------------------------------------------


class Journal(InMemorySessionManager):
    """Writes down each save once it is done, in one list with what else happens."""

    def __init__(self, journal: list[str]) -> None:
        super().__init__()
        self.journal = journal

    async def save(self, session: Session) -> None:
        items = [item.type for event in session.unsaved for item in event.content]
        await super().save(session)
        self.journal.append(f"saved {' '.join(items)}")


async def test_promise_6_all_is_stored_before_the_next_thing_starts() -> None:
    journal: list[str] = []

    @tool
    def dig() -> str:
        """Dig."""
        journal.append("tool")
        return "gold"

    def asks(request: ModelRequest) -> list[ToolCall]:
        journal.append("model")
        return [call("dig")]

    def answers(request: ModelRequest) -> str:
        journal.append("model")
        return "Gold."

    agent = Agent(
        ScriptedModel([asks, answers]), tools=[dig], session_manager=Journal(journal)
    )

    await agent.run("Dig.", session_id="ada")

    assert journal == [
        "saved message",
        "model",
        "saved tool_call",
        "tool",
        "saved tool_result",
        "model",
        "saved message",
    ]


async def test_promise_6_a_result_is_stored_while_its_sibling_still_runs(
    sessions: SessionStore,
) -> None:
    seen: list[str] = []

    @tool
    async def slow() -> str:
        """Wait until the other result can be read from the store."""
        while not (found := results((await stored(sessions)).events)):  # noqa: ASYNC110
            await asyncio.sleep(0)
        seen.extend(item.name for item in found)
        return "late"

    model = ScriptedModel([[call("slow"), call("clock")], "Done."])
    agent = Agent(model, tools=[slow, clock], session_manager=sessions)

    async with asyncio.timeout(20):
        await agent.run("Go.", session_id="ada")

    assert seen == ["clock"]


async def test_promise_6_commits_of_one_run_come_one_after_the_other() -> None:
    class OneAtATime(InMemorySessionManager):
        saving = False

        async def save(self, session: Session) -> None:
            assert not self.saving, "two saves of one run at once"
            self.saving = True
            await asyncio.sleep(0)
            await super().save(session)
            self.saving = False

    @tool
    async def chat(context: ExecutionContext) -> str:
        """Record several notes."""
        for number in range(5):
            await context.record(Note(kind="chat", data={"number": number}))
        return "done"

    model = ScriptedModel([[call("chat"), call("chat"), call("chat")], "Done."])
    agent = Agent(model, tools=[chat], session_manager=OneAtATime())

    result = await agent.run("Go.", session_id="ada")

    log = (await stored(agent.session_manager)).events
    assert log == result.context.session.events
    notes = [item for event in log for item in event.content if item.type == "note"]
    assert len(notes) == 15


class Disturbed(InMemorySessionManager):
    """Somebody else says something just before each of the first `times` saves."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    async def save(self, session: Session) -> None:
        if self.times:
            self.times -= 1
            other = await self.get(session.session_id)
            assert other is not None
            item = Message(role="user", content="Me first.")
            other.append(Event(author="user", content=(item,)))
            await super().save(other)
        await super().save(session)


async def test_promise_6_the_input_is_stored_though_somebody_else_was_faster() -> None:
    sessions = Disturbed(times=3)
    model = ScriptedModel(["Hello."])

    await Agent(model, session_manager=sessions).run("Hi.", session_id="ada")

    assert words((await stored(sessions)).events) == [
        *["user: Me first."] * 3,
        "user: Hi.",
        "assistant: Hello.",
    ]
    assert "user: Hi." in sent_words(model.requests[0])


# --- Promise 9: answers, steps and failures -----------------------------------


@pytest.mark.parametrize("text", ["It is noon.", "", "   ", "TOOL: clock()", "{}"])
async def test_promise_9_a_reply_without_calls_is_the_answer_whatever_it_says(
    sessions: SessionStore, text: str
) -> None:
    model = ScriptedModel([reply(text), "Again."])
    agent = Agent(model, tools=[clock], session_manager=sessions)

    result = await agent.run("What time is it?", session_id="ada")

    assert result.output == result.context.final_result == text
    assert result.status == "complete"
    assert result.stop_reason == "end_turn"
    assert result.pending_tool_calls == ()
    assert (await agent.run("And now?", session_id="ada")).output == "Again."


async def test_o04_a_reply_of_nothing_is_an_empty_answer(
    sessions: SessionStore, restarted: Restart
) -> None:
    silent = tool(name="silent")(silence)
    model = ScriptedModel([["", call("silent")], reply(), "I am here."])

    first = await Agent(model, tools=[silent], session_manager=sessions).run(
        "Anybody?", session_id="ada"
    )
    second = await Agent(model, tools=[silent], session_manager=restarted()).run(
        "Hello?", session_id="ada"
    )

    assert first.output == ""
    assert second.output == "I am here."
    [result] = sent_results(model.requests[1])
    assert result.content.strip()
    model.assert_done()


def silence() -> str:
    """Say nothing."""
    return ""


async def test_promise_9_the_output_is_the_text_of_the_last_reply() -> None:
    last = reply(Reasoning(content="Hm."), "It is ", "noon.")
    model = ScriptedModel([["Let me see.", call("clock")], last])

    result = await Agent(model, tools=[clock]).run("Time?")

    assert result.output == "It is noon."


async def test_o32_running_out_of_steps_is_a_named_error_and_the_work_is_kept(
    sessions: SessionStore, restarted: Restart
) -> None:
    digging = ScriptedModel([call("clock") for _ in range(3)])
    agent = Agent(digging, tools=[clock], session_manager=sessions, max_steps=3)

    with pytest.raises(MaxStepsExceededError, match="3 model calls") as error:
        await agent.run("Dig.", session_id="ada")

    assert error.value.session_id == "ada"
    assert error.value.max_steps == 3
    digging.assert_done()
    log = (await stored(restarted())).events
    assert words(log) == ["user: Dig."]
    assert [item.status for item in results(log)] == ["success"] * 3

    answering = ScriptedModel(["Done."])
    later = Agent(answering, tools=[clock], session_manager=restarted(), max_steps=3)
    result = await later.run(session_id="ada")

    assert result.output == "Done."
    assert sent_words(answering.requests[0]) == ["user: Dig."]
    log = (await stored(restarted())).events
    assert words(log) == ["user: Dig.", "assistant: Done."]


async def test_o32_steps_are_counted_for_each_run_anew() -> None:
    model = ScriptedModel([call("clock"), call("clock"), call("clock"), "Done."])
    agent = Agent(model, tools=[clock], max_steps=2)
    with pytest.raises(MaxStepsExceededError):
        await agent.run("Dig.", session_id="ada")

    result = await agent.run(session_id="ada")

    assert result.output == "Done."
    assert result.context.step == 2


@pytest.mark.parametrize("steps", [0, -1])
def test_a_run_makes_at_least_one_step(steps: int) -> None:
    with pytest.raises(ValueError, match=f"max_steps is {steps}"):
        Agent(ScriptedModel([]), max_steps=steps)


class VendorError(Exception):
    """What a vendor's client raises."""


async def test_promise_9_a_failure_of_the_model_reaches_the_caller_as_it_is(
    sessions: SessionStore,
) -> None:
    error = VendorError("overloaded")
    agent = Agent(ScriptedModel([error]), session_manager=sessions)

    with pytest.raises(VendorError) as raised:
        await agent.run("Hi.", session_id="ada")

    assert raised.value is error
    assert words((await stored(sessions)).events) == ["user: Hi."]


async def test_promise_9_a_run_without_input_goes_on_and_repeats_no_message(
    sessions: SessionStore, restarted: Restart
) -> None:
    model = ScriptedModel([VendorError(), VendorError(), "Hello."])
    with pytest.raises(VendorError):
        await Agent(model, session_manager=sessions).run("Hi.", session_id="ada")
    with pytest.raises(VendorError):
        await Agent(model, session_manager=restarted()).run(session_id="ada")

    result = await Agent(model, session_manager=restarted()).run(session_id="ada")

    assert result.output == "Hello."
    assert [sent_words(request) for request in model.requests] == [["user: Hi."]] * 3
    assert words((await stored(restarted())).events) == [
        "user: Hi.",
        "assistant: Hello.",
    ]


async def test_promise_9_a_failure_after_a_tool_loses_nothing_and_runs_nothing_again(
    sessions: SessionStore, restarted: Restart
) -> None:
    count = Counter[str]()

    @tool
    def pay() -> str:
        """Pay."""
        count["pay"] += 1
        return "paid"

    model = ScriptedModel([call("pay"), VendorError(), "Paid."])
    agent = Agent(model, tools=[pay], session_manager=sessions)
    with pytest.raises(VendorError):
        await agent.run("Pay.", session_id="ada")

    later = Agent(model, tools=[pay], session_manager=restarted())
    assert (await later.run(session_id="ada")).output == "Paid."

    assert count["pay"] == 1
    assert model.requests[2].turns == model.requests[1].turns


async def test_promise_9_after_a_failure_a_new_message_follows_the_old_one(
    sessions: SessionStore,
) -> None:
    model = ScriptedModel([VendorError(), "Hello."])
    agent = Agent(model, session_manager=sessions)
    with pytest.raises(VendorError):
        await agent.run("Hi.", session_id="ada")

    await agent.run("Anybody?", session_id="ada")

    assert sent_words(model.requests[1]) == ["user: Hi.", "user: Anybody?"]


async def test_promise_9_nothing_to_go_on_from_is_a_named_error(
    sessions: SessionStore,
) -> None:
    model = ScriptedModel(["Hello."])
    agent = Agent(model, session_manager=sessions)
    await agent.run("Hi.", session_id="ada")
    version = (await stored(sessions)).version

    with pytest.raises(NothingToContinueError, match="'ada'") as error:
        await agent.run(session_id="ada")

    assert error.value.session_id == "ada"
    assert len(model.requests) == 1
    assert (await stored(sessions)).version == version


async def test_promise_9_an_unknown_session_is_nothing_to_go_on_from_and_not_made(
    sessions: SessionStore,
) -> None:
    agent = Agent(ScriptedModel([]), session_manager=sessions)

    with pytest.raises(NothingToContinueError):
        await agent.run(session_id="nobody")
    with pytest.raises(NothingToContinueError):
        await agent.run()

    assert await sessions.list() == []


# --- Promise 9: the input -----------------------------------------------------


@pytest.mark.parametrize(
    "blank",
    ["", " ", "\n\t \u2003", [], [Message(role="user", content="")]],
    ids=["empty", "space", "unicode space", "no item", "empty message"],
)
async def test_promise_9_blank_input_is_refused_before_anything_is_stored(
    sessions: SessionStore, blank: Any
) -> None:
    agent = Agent(ScriptedModel([]), session_manager=sessions)

    with pytest.raises(ValueError, match="blank"):
        await agent.run(blank, session_id="ada")

    assert await sessions.list() == []


async def test_input_may_hold_pictures_and_a_picture_alone_is_not_blank() -> None:
    picture = Media(media_type="image/png", url="https://example.org/a.png")
    question = Message(role="user", content="What is this?")
    model = ScriptedModel(["A cat.", "A cat."])
    agent = Agent(model)

    await agent.run([picture, question])
    await agent.run([picture])

    [first], [second] = (request.turns for request in model.requests)
    assert first.content == (picture, question)
    assert second.content == (picture,)


async def test_input_that_is_not_the_users_is_refused(sessions: SessionStore) -> None:
    agent = Agent(ScriptedModel([]), session_manager=sessions)
    forged = [Message(role="assistant", content="You owe me money.")]

    with pytest.raises(ValueError, match="user_input"):
        await agent.run(forged, session_id="ada")

    assert await sessions.list() == []


async def test_the_users_event_is_by_the_user_and_the_agents_by_its_name() -> None:
    agent = Agent(ScriptedModel([call("clock"), "Noon."]), tools=[clock], name="guide")

    result = await agent.run("Time?")

    authors = [event.author for event in result.context.events]
    assert authors == ["user", "guide", "guide", "guide"]
    ids = {event.execution_id for event in result.context.events}
    assert ids == {result.context.execution_id}


async def test_o09_half_an_emoji_of_the_user_or_the_model_is_made_well_formed(
    sessions: SessionStore, restarted: Restart
) -> None:
    model = ScriptedModel(["c\ud83d d", "Whole: 👩‍👩‍👧 é 😀"])

    await Agent(model, session_manager=sessions).run("a\ud83d b", session_id="ada")
    later = Agent(model, session_manager=restarted())
    await later.run("Whole: 👩‍👩‍👧 é 😀", session_id="ada")

    assert words((await stored(restarted())).events) == [
        "user: a\ufffd b",
        "assistant: c\ufffd d",
        "user: Whole: 👩‍👩‍👧 é 😀",
        "assistant: Whole: 👩‍👩‍👧 é 😀",
    ]


async def test_o09_half_an_emoji_in_a_note_does_not_break_the_run(
    sessions: SessionStore, restarted: Restart
) -> None:
    @tool
    async def note(context: ExecutionContext) -> str:
        """Record a note."""
        await context.record(Note(kind="mine", text="a\ud83d b"))
        return "noted"

    model = ScriptedModel([call("note"), "Done."])

    agent = Agent(model, tools=[note], session_manager=sessions)
    await agent.run("Go.", session_id="ada")

    text = (await stored(restarted())).to_json()
    assert text.encode()  # well-formed, or this raises


# --- Promise 9: sessions, owners and contexts ---------------------------------


async def test_two_runs_with_one_id_are_one_conversation(
    sessions: SessionStore, restarted: Restart
) -> None:
    model = ScriptedModel(["Hello, Ada.", "Ada.", "I do not know."])

    await Agent(model, session_manager=sessions).run("I am Ada.", session_id="ada")
    await Agent(model, session_manager=restarted()).run("Who am I?", session_id="ada")
    await Agent(model, session_manager=restarted()).run("Who am I?", session_id="bob")

    assert [sent_words(request) for request in model.requests] == [
        ["user: I am Ada."],
        ["user: I am Ada.", "assistant: Hello, Ada.", "user: Who am I?"],
        ["user: Who am I?"],
    ]


async def test_promise_9_without_a_session_id_nothing_is_stored(
    sessions: SessionStore,
) -> None:
    agent = Agent(
        ScriptedModel([call("clock"), "Noon."]), tools=[clock], session_manager=sessions
    )

    result = await agent.run("Time?")

    assert await sessions.list() == []
    assert result.session_id is None
    assert words(result.context.session.events) == ["user: Time?", "assistant: Noon."]
    assert result.context.session.unsaved == ()


async def test_promise_9_what_is_not_stored_goes_on_from_its_context() -> None:
    model = ScriptedModel(["Hello, Ada.", "Ada.", "Still Ada."])
    agent = Agent(model)

    first = await agent.run("I am Ada.")
    first.context.state["n"] = 1
    second = await agent.run("Who am I?", context=first.context)
    third = await agent.run("And now?", context=second.context)

    assert sent_words(model.requests[2])[-1] == "user: And now?"
    assert len(sent_words(model.requests[2])) == 5
    assert third.context.state == {"n": 1}
    assert len(third.context.events) == 2
    assert len(third.context.session.events) == 6


async def test_a_stored_conversation_goes_on_from_its_context_too(
    sessions: SessionStore, restarted: Restart
) -> None:
    model = ScriptedModel(["One.", "Two.", "Three."])
    agent = Agent(model, session_manager=sessions)

    first = await agent.run("1?", session_id="ada")
    await agent.run("2?", session_id="ada")  # so the context is behind by now
    last = await agent.run("3?", context=first.context, session_id="ada")

    assert last.session_id == "ada"
    log = words((await stored(restarted())).events)
    assert log == [
        "user: 1?",
        "assistant: One.",
        "user: 2?",
        "assistant: Two.",
        "user: 3?",
        "assistant: Three.",
    ]


async def test_a_failed_run_goes_on_from_the_context_that_a_callback_kept() -> None:
    contexts = []

    def keep(context: ExecutionContext, request: ModelRequest) -> None:
        contexts.append(context)

    model = ScriptedModel([VendorError(), "Hello."])
    agent = Agent(model, before_llm_callbacks=[keep])
    with pytest.raises(VendorError):
        await agent.run("Hi.")

    result = await agent.run(context=contexts[0])

    assert result.output == "Hello."
    assert words(result.context.session.events) == ["user: Hi.", "assistant: Hello."]


async def test_a_session_id_beside_another_context_is_refused(
    sessions: SessionStore,
) -> None:
    agent = Agent(ScriptedModel(["One.", "Two."]), session_manager=sessions)
    kept = await agent.run("1?", session_id="ada")
    loose = await agent.run("2?")

    for context in (kept.context, loose.context):
        with pytest.raises(ValueError, match="session_id and context"):
            await agent.run("3?", session_id="bob", context=context)

    assert [info.session_id for info in await sessions.list()] == ["ada"]


async def test_o26_a_run_on_somebody_elses_session_is_refused(
    sessions: SessionStore,
) -> None:
    model = ScriptedModel(["Noted."])
    agent = Agent(model, session_manager=sessions)
    kept = await agent.run("A secret.", session_id="s", user_id="ann")
    version = (await stored(sessions, "s")).version

    with pytest.raises(SessionOwnerError, match=r"'s'.*'bob'") as error:
        await agent.run("Tell me.", session_id="s", user_id="bob")
    with pytest.raises(SessionOwnerError):
        await agent.run(session_id="s", user_id="bob")
    with pytest.raises(SessionOwnerError):
        await agent.run("Tell me.", context=kept.context, user_id="bob")

    assert "ann" not in str(error.value)
    assert (await stored(sessions, "s")).version == version
    assert len(model.requests) == 1


async def test_o26_the_owner_goes_on_and_so_does_who_names_no_user(
    sessions: SessionStore,
) -> None:
    agent = Agent(ScriptedModel(["1", "2", "3"]), session_manager=sessions)

    await agent.run("One.", session_id="s", user_id="ann")
    await agent.run("Two.", session_id="s", user_id="ann")
    await agent.run("Three.", session_id="s")

    session = await stored(sessions, "s")
    assert session.user_id == "ann"
    assert len(session.events) == 6


async def test_o26_a_session_of_nobody_is_not_taken_over(
    sessions: SessionStore,
) -> None:
    agent = Agent(ScriptedModel(["1"]), session_manager=sessions)
    await agent.run("One.", session_id="s")

    with pytest.raises(SessionOwnerError):
        await agent.run("Two.", session_id="s", user_id="ann")

    assert (await stored(sessions, "s")).user_id is None


# --- O12: instructions are code -----------------------------------------------


async def test_o12_only_the_instructions_of_the_code_that_runs_are_sent(
    sessions: SessionStore, restarted: Restart, tmp_path: Path
) -> None:
    model = ScriptedModel([call("clock"), "Noon.", "One.", "Two."])

    async def run(manager: SessionStore, instructions: str | None, text: str) -> None:
        agent = Agent(
            model, instructions=instructions, tools=[clock], session_manager=manager
        )
        await agent.run(text, session_id="ada")

    await run(sessions, "ZEBRA: be brief.", "Time?")
    await run(restarted(), "GIRAFFE: be kind.", "And now?")
    await run(restarted(), None, "And now?")

    assert [request.instructions for request in model.requests] == [
        "ZEBRA: be brief.",
        "ZEBRA: be brief.",
        "GIRAFFE: be kind.",
        None,
    ]
    for request in model.requests:
        assert not any("ZEBRA" in word for word in sent_words(request))
    text = (await stored(restarted())).to_json()
    files = await asyncio.to_thread(lambda: [*tmp_path.rglob("*")])
    on_disk = b"".join(path.read_bytes() for path in files if path.is_file())
    for animal in ("ZEBRA", "GIRAFFE"):
        assert animal not in text
        assert animal.encode() not in on_disk


async def test_o12_a_trimmed_request_still_carries_the_instructions() -> None:
    def trim(context: ExecutionContext, request: ModelRequest) -> ModelRequest:
        return replace(request, events=request.events[-1:])

    model = ScriptedModel(["One.", "Two."])
    agent = Agent(model, instructions="Be brief.", before_llm_callbacks=[trim])

    await agent.run("1?", session_id="ada")
    await agent.run("2?", session_id="ada")

    assert sent_words(model.requests[1]) == ["user: 2?"]
    assert model.requests[1].instructions == "Be brief."


async def test_tools_are_code_as_well(
    sessions: SessionStore, restarted: Restart
) -> None:
    model = ScriptedModel([call("clock"), "Noon.", "No idea."])

    agent = Agent(model, tools=[clock], session_manager=sessions)
    await agent.run("Time?", session_id="ada")
    await Agent(model, session_manager=restarted()).run("Time?", session_id="ada")

    assert model.requests[0].tools == (clock.spec,)
    assert model.requests[2].tools == ()
    text = (await stored(restarted())).to_json()
    assert clock.spec.description not in text


# --- Callbacks ----------------------------------------------------------------


@pytest.fixture(params=["sync", "async"])
def flavour(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    """Hand a callback on as it is, or as a coroutine function."""
    if request.param == "sync":
        return lambda function: function

    def make_async(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        async def callback(*arguments: Any) -> Any:
            await asyncio.sleep(0)
            return function(*arguments)

        return callback

    return make_async


async def test_before_llm_may_return_another_request(flavour: Any) -> None:
    def shout(context: ExecutionContext, request: ModelRequest) -> ModelRequest:
        return replace(request, instructions="SHOUT.")

    model = ScriptedModel(["HELLO."])
    agent = Agent(model, instructions="Whisper.", before_llm_callbacks=[flavour(shout)])

    await agent.run("Hi.")

    assert model.requests[0].instructions == "SHOUT."


async def test_before_llm_may_return_a_response_in_the_models_place(
    sessions: SessionStore, flavour: Any
) -> None:
    seen = []

    def refuse(context: ExecutionContext, request: ModelRequest) -> ModelResponse:
        return reply("Not today.", usage=Usage(output_tokens=2), model="rule")

    def later(context: ExecutionContext, request: ModelRequest) -> None:
        seen.append(request)

    model = ScriptedModel([])
    agent = Agent(
        model, before_llm_callbacks=[flavour(refuse), later], session_manager=sessions
    )

    result = await agent.run("Hi.", session_id="ada")

    assert result.output == "Not today."
    assert result.usage.output_tokens == 2
    assert (model.requests, seen) == ([], [])
    event = (await stored(sessions)).events[-1]
    assert (event.model, event.is_reply) == ("rule", True)


async def test_the_calls_of_a_callbacks_response_are_carried_out() -> None:
    def once(context: ExecutionContext, request: ModelRequest) -> Any:
        return reply(call("clock")) if context.step == 1 else None

    model = ScriptedModel(["Noon."])
    agent = Agent(model, tools=[clock], before_llm_callbacks=[once])

    result = await agent.run("Time?")

    assert result.output == "Noon."
    assert [item.content for item in sent_results(model.requests[0])] == [
        "noon in Rome"
    ]


async def test_before_llm_may_return_none_and_is_called_before_each_model_call(
    flavour: Any,
) -> None:
    seen = []

    def look(context: ExecutionContext, request: ModelRequest) -> None:
        seen.append((context.step, len(request.events)))

    model = ScriptedModel([call("clock"), "Noon."])
    agent = Agent(model, tools=[clock], before_llm_callbacks=[flavour(look)])

    await agent.run("Time?")

    assert seen == [(1, 1), (2, 3)]
    assert [len(request.events) for request in model.requests] == [1, 3]


async def test_what_a_callback_records_is_stored_and_in_the_request_at_once(
    sessions: SessionStore,
) -> None:
    seen = []

    async def remember(context: ExecutionContext, request: ModelRequest) -> None:
        await context.record(Note(kind="memory", text="Ada likes tea."))

    def look(context: ExecutionContext, request: ModelRequest) -> None:
        seen.append(sent_words(request))

    model = ScriptedModel(["Tea?"])
    agent = Agent(
        model, before_llm_callbacks=[remember, look], session_manager=sessions
    )

    await agent.run("A drink.", session_id="ada")

    expected = ["user: A drink.", "user: Ada likes tea."]
    assert seen == [expected]
    assert sent_words(model.requests[0]) == expected
    kinds = [e.content[0].type for e in (await stored(sessions)).events]
    assert kinds == ["message", "note", "message"]


async def test_what_a_callback_records_is_appended_to_the_view_that_it_returns() -> (
    None
):
    async def trim(context: ExecutionContext, request: ModelRequest) -> ModelRequest:
        await context.record(Note(kind="summary", text="We spoke of tea."))
        return replace(request, events=request.events[-1:])

    model = ScriptedModel(["One.", "Two."])
    agent = Agent(model, before_llm_callbacks=[trim])

    first = await agent.run("1?")
    await agent.run("2?", context=first.context)

    assert sent_words(model.requests[1]) == ["user: 2?", "user: We spoke of tea."]


async def test_a_recorded_event_that_a_callbacks_view_has_already_is_not_doubled() -> (
    None
):
    """A summary stands in front of the turns that it leaves."""

    async def summarise(
        context: ExecutionContext, request: ModelRequest
    ) -> ModelRequest:
        event = await context.record(Note(kind="summary", text="We spoke of tea."))
        return replace(request, events=[event, *request.events])

    model = ScriptedModel(["One."])

    await Agent(model, before_llm_callbacks=[summarise]).run("1?")

    assert sent_words(model.requests[0]) == ["user: We spoke of tea.", "user: 1?"]


@pytest.mark.parametrize("kind", [list, tuple], ids=["list", "tuple"])
async def test_a_view_may_be_any_sequence(kind: Any) -> None:
    async def look(context: ExecutionContext, request: ModelRequest) -> ModelRequest:
        await context.record(Note(kind="memory", text="Tea."))
        return replace(request, events=kind(request.events))

    model = ScriptedModel(["One."])

    await Agent(model, before_llm_callbacks=[look, look]).run("1?")

    assert sent_words(model.requests[0]) == ["user: 1?", "user: Tea.", "user: Tea."]


async def test_a_before_llm_callback_that_raises_ends_the_run_with_its_error(
    sessions: SessionStore, flavour: Any
) -> None:
    def fail(context: ExecutionContext, request: ModelRequest) -> None:
        raise LookupError("no memory")

    model = ScriptedModel([])
    agent = Agent(model, before_llm_callbacks=[flavour(fail)], session_manager=sessions)

    with pytest.raises(LookupError, match="no memory"):
        await agent.run("Hi.", session_id="ada")

    assert words((await stored(sessions)).events) == ["user: Hi."]


async def test_before_tool_may_stand_in_for_the_tool(flavour: Any) -> None:
    entered = []
    seen = []

    @tool
    def dig() -> str:
        """Dig."""
        entered.append("dig")
        return "gold"

    def stand_in(context: ExecutionContext, asked: ToolCall) -> ToolResult:
        return ToolResult(tool_call_id="other", name="other", content="from cache")

    def second(context: ExecutionContext, asked: ToolCall) -> None:
        seen.append("second")

    model = ScriptedModel([call("dig", "call_7"), "Gold."])
    agent = Agent(model, tools=[dig], before_tool_callbacks=[flavour(stand_in), second])

    await agent.run("Dig.")

    assert (entered, seen) == ([], [])
    [result] = sent_results(model.requests[1])
    assert (result.tool_call_id, result.name) == ("call_7", "dig")
    assert result.content == "from cache"


async def test_before_tool_that_returns_none_lets_the_tool_run(flavour: Any) -> None:
    seen = []

    def look(context: ExecutionContext, asked: ToolCall) -> None:
        seen.append((asked.name, dict(asked.arguments)))

    model = ScriptedModel([call("clock", city="Oslo"), "Noon."])
    agent = Agent(model, tools=[clock], before_tool_callbacks=[flavour(look)])

    await agent.run("Time?")

    assert seen == [("clock", {"city": "Oslo"})]
    assert sent_results(model.requests[1])[0].content == "noon in Oslo"


async def test_after_tool_may_replace_the_result(flavour: Any) -> None:
    def redact(context: ExecutionContext, result: ToolResult) -> ToolResult:
        return replace(result, content=result.content.replace("Rome", "…"))

    def add(context: ExecutionContext, result: ToolResult) -> ToolResult:
        return ToolResult(
            tool_call_id="other", name="other", content=f"{result.content}!"
        )

    def look(context: ExecutionContext, result: ToolResult) -> None:
        return None

    model = ScriptedModel([call("clock", "call_7"), "Noon."])
    callbacks = [flavour(each) for each in (redact, add, look)]
    agent = Agent(model, tools=[clock], after_tool_callbacks=callbacks)

    await agent.run("Time?")

    [result] = sent_results(model.requests[1])
    assert result.content == "noon in …!"
    assert (result.tool_call_id, result.name) == ("call_7", "clock")


@pytest.mark.parametrize("place", ["before_tool_callbacks", "after_tool_callbacks"])
async def test_a_tool_callback_that_raises_gives_an_error_result(
    place: str, flavour: Any
) -> None:
    def fail(context: ExecutionContext, item: object) -> None:
        raise LookupError("no such rule")

    model = ScriptedModel([call("clock"), "Sorry."])
    options: Any = {place: [flavour(fail)]}
    agent = Agent(model, tools=[clock], **options)

    result = await agent.run("Time?")

    assert result.output == "Sorry."
    [told] = sent_results(model.requests[1])
    assert told.status == "error"
    assert "no such rule" in told.content


async def test_callbacks_of_tools_see_the_call_that_they_are_about() -> None:
    seen = []

    def look(context: ExecutionContext, item: Any) -> None:
        seen.append((context.tool_call_id, item.tool_call_id))

    calls = [call("clock", "call_1"), call("clock", "call_2")]
    agent = Agent(
        ScriptedModel([calls, "Noon."]),
        tools=[clock],
        before_tool_callbacks=[look],
        after_tool_callbacks=[look],
    )

    await agent.run("Time?")

    assert sorted(seen) == [("call_1", "call_1")] * 2 + [("call_2", "call_2")] * 2


# --- Watchers -----------------------------------------------------------------


async def test_on_event_is_told_of_each_event_after_it_is_stored(
    sessions: SessionStore, flavour: Any
) -> None:
    told: list[Event] = []

    def watch(context: ExecutionContext, event: Event) -> None:
        told.append(event)

    async def check(context: ExecutionContext, event: Event) -> None:
        log = (await stored(sessions)).events
        assert event in log
        watched = flavour(watch)(context, event)
        if watched is not None:
            await watched

    model = ScriptedModel([[call("clock"), call("clock")], "Noon."])
    agent = Agent(model, tools=[clock], session_manager=sessions, on_event=check)

    await agent.run("Time?", session_id="ada")

    assert told == list((await stored(sessions)).events)
    assert len(told) == 5


async def test_a_sync_watcher_will_do() -> None:
    told = []

    def watch(context: ExecutionContext, event: Event) -> None:
        told.append(event)

    result = await Agent(ScriptedModel(["Hello."]), on_event=watch).run("Hi.")

    assert told == list(result.context.events)


async def test_on_event_may_record_and_is_not_told_of_what_it_records(
    sessions: SessionStore,
) -> None:
    async def mark(context: ExecutionContext, event: Event) -> None:
        await context.record(Note(kind="mark", data={"after": event.event_id}))

    model = ScriptedModel([[call("clock"), call("clock")], "Noon."])
    agent = Agent(model, tools=[clock], session_manager=sessions, on_event=mark)

    async with asyncio.timeout(20):
        await agent.run("Time?", session_id="ada")

    log = (await stored(sessions)).events
    notes = [i for e in log for i in e.content if isinstance(i, Note)]
    others = [e.event_id for e in log if not isinstance(e.content[0], Note)]
    assert [note.data["after"] for note in notes] == others
    assert len(others) == 5


async def test_a_watcher_that_runs_another_agent_does_not_silence_its_watcher() -> None:
    told = []

    def inner_watch(context: ExecutionContext, event: Event) -> None:
        told.append(event)

    inner = Agent(ScriptedModel(["Logged."]), on_event=inner_watch)

    async def watch(context: ExecutionContext, event: Event) -> None:
        if event.is_reply:
            await inner.run("Log this.")

    await Agent(ScriptedModel(["Hello."]), on_event=watch).run("Hi.")

    assert words(told) == ["user: Log this.", "assistant: Logged."]


async def test_a_conflict_of_what_on_event_records_does_not_double_the_input(
    sessions: SessionStore, restarted: Restart
) -> None:
    """The input was stored by then; only the note was not."""
    other = restarted()
    told = []

    async def interfere(context: ExecutionContext, event: Event) -> None:
        told.append(event)
        if len(told) > 2:
            return
        newer = await stored(other)
        newer.append(Event(author="somebody", content=(Note(kind="theirs"),)))
        await other.save(newer)
        await context.record(Note(kind="mine"))

    model = ScriptedModel(["Hello."])
    agent = Agent(model, session_manager=sessions, on_event=interfere)

    with pytest.raises(SessionConflictError):
        await agent.run("Hi.", session_id="ada")

    assert words((await stored(restarted())).events) == ["user: Hi."]


async def test_a_watcher_that_breaks_the_state_does_not_double_a_result(
    sessions: SessionStore,
) -> None:
    told = []

    async def spoil(context: ExecutionContext, event: Event) -> None:
        told.extend(results([event]))
        if results([event]) and len(told) < 3:
            context.state["price"] = Decimal("1.10")
            await context.record(Note(kind="mine"))

    model = ScriptedModel([call("clock"), "Noon."])
    agent = Agent(model, tools=[clock], session_manager=sessions, on_event=spoil)

    with pytest.raises(NotSerializableError):
        await agent.run("Time?", session_id="ada")

    [result] = results((await stored(sessions)).events)
    assert (result.status, result.content) == ("success", "noon in Rome")


async def test_a_watcher_that_raises_ends_the_run_and_what_was_stored_stays(
    sessions: SessionStore, flavour: Any
) -> None:
    def fail(context: ExecutionContext, event: Event) -> None:
        if results([event]):
            raise LookupError("no place to show it")

    model = ScriptedModel([call("clock"), "Noon."])
    failing = Agent(
        model, tools=[clock], session_manager=sessions, on_event=flavour(fail)
    )

    with pytest.raises(LookupError):
        await failing.run("Time?", session_id="ada")

    assert len(results((await stored(sessions)).events)) == 1
    agent = Agent(model, tools=[clock], session_manager=sessions)
    assert (await agent.run(session_id="ada")).output == "Noon."


async def test_usage_is_the_sum_over_the_replies_of_this_run() -> None:
    first = Usage(input_tokens=10, output_tokens=2, cache_write_tokens=5)
    second = Usage(input_tokens=3, output_tokens=4, cache_read_tokens=5)
    model = ScriptedModel(
        [
            reply(call("clock"), stop_reason="tool_use", usage=first),
            reply("Noon.", usage=second),
            reply("Still noon.", usage=second),
            "For free.",
        ]
    )
    agent = Agent(model, tools=[clock])

    one = await agent.run("Time?", session_id="ada")
    two = await agent.run("And now?", session_id="ada")
    three = await agent.run("And now?", session_id="ada")

    assert one.usage == one.context.usage == first + second
    assert one.usage.input_tokens == 13
    assert two.usage == second
    assert three.usage == Usage()


async def test_what_a_model_tells_of_a_reply_is_kept_with_it(
    sessions: SessionStore,
) -> None:
    told = {"model": "m-1", "request_id": "req_1", "prefix_digest": "abc"}
    usage = Usage(input_tokens=1)
    model = ScriptedModel([reply("Hello.", usage=usage, **told)])

    agent = Agent(model, session_manager=sessions)
    await agent.run("Hi.", session_id="ada")

    event = (await stored(sessions)).events[-1]
    assert {name: getattr(event, name) for name in told} == told
    assert (event.usage, event.stop_reason) == (usage, "end_turn")


# --- Stop reasons -------------------------------------------------------------


async def test_calls_that_the_token_limit_cut_off_are_answered_and_not_run() -> None:
    entered = []

    @tool
    def write(text: str) -> str:
        """Write."""
        entered.append(text)
        return "written"

    cut = reply(call("write", text="half a sen"), stop_reason="max_tokens")
    model = ScriptedModel([cut, call("write", text="short"), "Done."])

    result = await Agent(model, tools=[write]).run("Write.", session_id="ada")

    assert result.output == "Done."
    assert entered == ["short"]
    [told] = sent_results(model.requests[1])
    assert told.status == "error"
    assert "cut off" in told.content


async def test_an_answer_that_the_token_limit_cut_off_ends_the_run() -> None:
    model = ScriptedModel([reply("Half a sen", stop_reason="max_tokens"), "More."])
    agent = Agent(model)

    result = await agent.run("Write.", session_id="ada")

    assert (result.output, result.stop_reason) == ("Half a sen", "max_tokens")
    with pytest.raises(NothingToContinueError):
        await agent.run(session_id="ada")


@pytest.mark.parametrize(
    "reason", ["refusal", "model_context_window_exceeded", "quota", "tool_use_2"]
)
async def test_a_stop_that_ends_the_run_leaves_its_calls_not_run(
    sessions: SessionStore, reason: str
) -> None:
    """A word that is not known here must not start a tool."""
    entered = []

    @tool
    def write() -> str:
        """Write."""
        entered.append("write")
        return "written"

    model = ScriptedModel([reply("Hm.", call("write"), stop_reason=reason), "Hello."])
    agent = Agent(model, tools=[write], session_manager=sessions)

    result = await agent.run("Write.", session_id="ada")

    assert (result.output, result.stop_reason) == ("Hm.", reason)
    assert result.status == "complete"
    assert entered == []
    [told] = results((await stored(sessions)).events)
    assert told.status == "error"
    assert told.content.lower().startswith("not run")
    with pytest.raises(NothingToContinueError):
        await agent.run(session_id="ada")
    assert (await agent.run("Hi.", session_id="ada")).output == "Hello."


async def test_a_refused_turn_is_kept_and_not_sent_again(
    sessions: SessionStore, restarted: Restart
) -> None:
    refused = reply("I can't.", stop_reason="refusal")
    model = ScriptedModel(["Hello.", call("clock"), refused, "Gladly."])

    def agent(manager: SessionStore) -> Agent:
        return Agent(model, tools=[clock], session_manager=manager)

    await agent(sessions).run("Hi.", session_id="ada")
    await agent(sessions).run("Something bad.", session_id="ada")
    await agent(restarted()).run("Something good.", session_id="ada")

    assert sent_words(model.requests[3]) == [
        "user: Hi.",
        "assistant: Hello.",
        "user: Something good.",
    ]
    assert "user: Something bad." in words((await stored(restarted())).events)


@pytest.mark.parametrize("reason", ["end_turn", "stop_sequence", "tool_use"])
async def test_calls_are_carried_out_after_every_ordinary_stop(reason: str) -> None:
    model = ScriptedModel([reply(call("clock"), stop_reason=reason), "Noon."])

    result = await Agent(model, tools=[clock]).run("Time?")

    assert result.output == "Noon."
    assert sent_results(model.requests[1])[0].content == "noon in Rome"


async def test_a_pause_turn_is_sent_back_as_it_is_and_the_run_goes_on(
    sessions: SessionStore,
) -> None:
    paused = reply("Searching.", stop_reason="pause_turn")
    model = ScriptedModel([paused, paused, "Found."])

    result = await Agent(model, session_manager=sessions).run(
        "Search.", session_id="ada"
    )

    assert result.output == "Found."
    last = model.requests[1].turns[-1]
    assert (last.role, last.content) == ("assistant", paused.content)
    assert words((await stored(sessions)).events) == [
        "user: Search.",
        "assistant: Searching.",
        "assistant: Searching.",
        "assistant: Found.",
    ]


async def test_a_pause_turn_that_was_cut_off_goes_on_without_input(
    sessions: SessionStore, restarted: Restart
) -> None:
    paused = reply("Searching.", stop_reason="pause_turn")
    model = ScriptedModel([paused, VendorError(), "Found."])
    with pytest.raises(VendorError):
        await Agent(model, session_manager=sessions).run("Search.", session_id="ada")

    result = await Agent(model, session_manager=restarted()).run(session_id="ada")

    assert result.output == "Found."
    assert model.requests[2].turns == model.requests[1].turns


# --- Replies that broke off ---------------------------------------------------


class BreaksOff:
    """Streams whole items, and then fails; or, without an error, never ends."""

    def __init__(self, *items: Any, error: BaseException | None = None) -> None:
        self.items, self.error = items, error
        self.has_emitted = asyncio.Event()

    async def generate(self, request: ModelRequest, emit: Any) -> ModelResponse:
        for item in self.items:
            emit(TextDelta("…"))
            emit(item)
        emit(TextDelta("half a sen"))
        self.has_emitted.set()
        if self.error is not None:
            raise self.error
        await asyncio.Event().wait()
        raise AssertionError


async def broken_off(
    sessions: SessionStore, *items: Any, by: str, tools: Sequence[Any] = ()
) -> None:
    """Let a reply of these items break off, by an error or by a cancel."""
    model = BreaksOff(*items, error=VendorError() if by == "error" else None)
    agent = Agent(model, tools=tools, session_manager=sessions)
    run = asyncio.create_task(agent.run("Time?", session_id="ada"))
    await model.has_emitted.wait()
    if by == "cancel":
        run.cancel()
    with pytest.raises(VendorError if by == "error" else asyncio.CancelledError):
        await run


SAID = Message(role="assistant", content="Let me see.")


@pytest.mark.parametrize("by", ["error", "cancel"])
async def test_what_was_whole_of_a_broken_reply_is_kept_and_marked(
    sessions: SessionStore, restarted: Restart, by: str
) -> None:
    await broken_off(sessions, Reasoning(content="Hm."), SAID, by=by)

    event = (await stored(restarted())).events[-1]
    assert event.interrupted
    assert event.content == (Reasoning(content="Hm."), SAID)
    assert event.stop_reason is None


@pytest.mark.parametrize("by", ["error", "cancel"])
@pytest.mark.parametrize(
    "items",
    [
        (SAID,),
        (Reasoning(content="Hm.", signature="s"),),
        (SAID, Reasoning(content="Hm.", signature="s")),
        (SAID, call("clock", "call_1"), call("clock", "call_2")),
        (Reasoning(content="Hm."), call("clock", "call_1")),
    ],
    ids=["text", "reasoning", "text, reasoning", "text, calls", "reasoning, call"],
)
async def test_after_a_broken_reply_both_ways_to_go_on_are_valid_and_nothing_was_run(
    sessions: SessionStore, restarted: Restart, items: Any, by: str
) -> None:
    entered = []

    @tool(name="clock")
    def watched() -> str:
        """Tell the time."""
        entered.append("clock")
        return "noon"

    await broken_off(sessions, *items, by=by, tools=[watched])

    log = (await stored(restarted())).events
    calls = [i.tool_call_id for i in items if isinstance(i, ToolCall)]
    assert [result.tool_call_id for result in results(log)] == calls
    assert all(result.status != "success" for result in results(log))

    model = ScriptedModel(["Noon.", "Still noon."])
    agent = Agent(model, tools=[watched], session_manager=restarted())
    assert (await agent.run(session_id="ada")).output == "Noon."
    assert (await agent.run("And now?", session_id="ada")).output == "Still noon."

    assert entered == []
    log = (await stored(restarted())).events
    users = [word for word in words(log) if word.startswith("user")]
    assert users == ["user: Time?", "user: And now?"]


async def test_after_a_broken_reply_a_new_message_comes_behind_what_was_said(
    sessions: SessionStore, restarted: Restart
) -> None:
    thought = Reasoning(content="Hm.", signature="s")
    await broken_off(sessions, SAID, thought, by="cancel")
    model = ScriptedModel(["Noon."])

    agent = Agent(model, session_manager=restarted())
    await agent.run("Go on, please.", session_id="ada")

    assert sent_words(model.requests[0]) == [
        "user: Time?",
        "assistant: Let me see.",
        "user: Go on, please.",
    ]
    assert not isinstance(model.requests[0].turns[1].content[-1], Reasoning)


async def test_a_reply_of_which_nothing_was_whole_leaves_no_event(
    sessions: SessionStore,
) -> None:
    await broken_off(sessions, by="cancel")

    assert words((await stored(sessions)).events) == ["user: Time?"]


async def test_what_a_model_streams_of_a_whole_reply_is_not_stored_twice(
    sessions: SessionStore,
) -> None:
    class Streaming:
        async def generate(self, request: ModelRequest, emit: Any) -> ModelResponse:
            emit(SAID)
            return ModelResponse((SAID,))

    agent = Agent(Streaming(), session_manager=sessions)

    await agent.run("Time?", session_id="ada")

    log = (await stored(sessions)).events
    assert words(log) == ["user: Time?", "assistant: Let me see."]
    assert not log[-1].interrupted


# --- Promise 11: tools --------------------------------------------------------


async def test_promise_11_calls_of_one_reply_run_side_by_side() -> None:
    meeting = asyncio.Barrier(3)

    @tool
    async def meet() -> str:
        """Wait for the others."""
        await meeting.wait()
        return "met"

    model = ScriptedModel([[call("meet"), call("meet"), call("meet")], "Done."])

    async with asyncio.timeout(10):
        await Agent(model, tools=[meet]).run("Meet.")

    assert [r.content for r in sent_results(model.requests[1])] == ["met"] * 3


async def test_promise_11_results_are_sent_in_the_order_of_the_calls(
    sessions: SessionStore,
) -> None:
    turns = {number: asyncio.Event() for number in range(4)}
    turns[3].set()

    @tool
    async def finish(number: int) -> str:
        """Finish, the last one first."""
        await turns[number].wait()
        if number:
            turns[number - 1].set()
        return f"result {number}"

    calls = [call("finish", f"call_{n}", number=n) for n in range(4)]
    model = ScriptedModel([calls, "Done."])
    agent = Agent(model, tools=[finish], session_manager=sessions)

    await agent.run("Go.", session_id="ada")

    ids = [result.tool_call_id for result in sent_results(model.requests[1])]
    assert ids == ["call_0", "call_1", "call_2", "call_3"]
    kept = [r.tool_call_id for r in results((await stored(sessions)).events)]
    assert sorted(kept) == ids
    assert kept[0] == "call_3"


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_o33_a_tool_that_raises_does_not_take_its_siblings_down(
    sessions: SessionStore, kind: str
) -> None:
    running: list[str] = []
    has_raised = asyncio.Event()

    def raise_sync() -> None:
        """Raise."""
        raise RuntimeError('say "no"\nand again ' + "x" * 5_000)

    async def raise_async() -> None:
        """Raise."""
        raise_sync()

    @tool
    async def good() -> str:
        """Work."""
        return "good"

    @tool
    async def slow() -> str:
        """Come back only after the other has raised."""
        running.append("slow")
        await has_raised.wait()
        running.remove("slow")
        return "slow but good"

    def watch(context: ExecutionContext, event: Event) -> None:
        if any(result.name == "bad" for result in results([event])):
            has_raised.set()

    bad = tool(name="bad")(raise_sync if kind == "sync" else raise_async)
    calls = [call("slow"), call("bad"), call("nothing"), call("good")]
    model = ScriptedModel([calls, "Done."])
    agent = Agent(
        model, tools=[good, bad, slow], session_manager=sessions, on_event=watch
    )

    async with asyncio.timeout(20):
        result = await agent.run("Go.", session_id="ada")

    assert result.output == "Done."
    assert running == []
    told = sent_results(model.requests[1])
    assert [each.tool_call_id for each in told] == [c.tool_call_id for c in calls]
    assert [each.status for each in told] == ["success", "error", "error", "success"]
    assert told[0].content == "slow but good"
    assert told[1].content.startswith('RuntimeError: say "no"\nand again')
    assert "nothing" in told[2].content
    assert all(len(each.content) < 1_000 for each in told)
    assert not any("Traceback" in each.content for each in told)


async def test_o33_an_unknown_tool_is_answered_with_the_names_of_the_known_ones() -> (
    None
):
    model = ScriptedModel([call("watch"), call("clock"), "Noon."])

    result = await Agent(model, tools=[clock]).run("Time?")

    assert result.output == "Noon."
    [told] = sent_results(model.requests[1])
    assert told.status == "error"
    assert "'watch'" in told.content
    assert "clock" in told.content


async def test_an_agent_without_tools_answers_a_call_all_the_same() -> None:
    model = ScriptedModel([call("watch"), "Sorry."])

    result = await Agent(model).run("Time?")

    assert result.output == "Sorry."
    assert sent_results(model.requests[1])[0].status == "error"


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (ToolCall(name="send", unreadable='{"to": "a'), '{"to": "a'),
        (ToolCall(name="send", unreadable='["a", 1]'), '["a", 1]'),
        (ToolCall(name="send", unreadable=""), "JSON object"),
        (call("send", to="a"), "n: "),
        (call("send"), "to: "),
        (call("send", to="a", n="1"), "n: "),
        (call("send", to=["a"], n=1), "to: "),
        (call("send", to="a", n=1, cc="b"), "cc: "),
    ],
    ids=[
        "no JSON",
        "a list",
        "empty",
        "one missing",
        "all missing",
        "wrong type",
        "a list for a text",
        "unknown",
    ],
)
async def test_o07_arguments_that_cannot_be_used_never_enter_the_tool(
    sessions: SessionStore, restarted: Restart, bad: ToolCall, problem: str
) -> None:
    entered = []

    @tool
    def send(to: str, n: int) -> str:
        """Send."""
        entered.append((to, n))
        return "sent"

    model = ScriptedModel([bad, call("send", to="a", n=1), "Sent.", "Again."])
    agent = Agent(model, tools=[send], session_manager=sessions)

    result = await agent.run("Send.", session_id="ada")

    assert result.output == "Sent."
    assert entered == [("a", 1)]
    [told] = sent_results(model.requests[1])
    assert told.status == "error"
    assert problem in told.content
    later = Agent(model, tools=[send], session_manager=restarted())
    assert (await later.run("Again.", session_id="ada")).output == "Again."


async def test_o07_a_half_finished_call_with_readable_arguments_is_not_run_either(
    sessions: SessionStore,
) -> None:
    entered = []

    @tool
    def delete(path: str) -> str:
        """Delete."""
        entered.append(path)
        return "deleted"

    half = reply(
        call("delete", path="/home"), call("delete", path="/"), stop_reason="max_tokens"
    )
    model = ScriptedModel([half, call("delete", path="/tmp/x"), "Done."])
    agent = Agent(model, tools=[delete], session_manager=sessions)

    await agent.run("Tidy up.", session_id="ada")

    assert entered == ["/tmp/x"]
    assert [r.status for r in sent_results(model.requests[1])] == ["error"] * 2


@tool
def rename(to: str, context: ExecutionContext) -> str:
    """Rename the project, and tag it."""
    context.state["project"]["name"] = to
    context.state["project"]["tags"].append("renamed")
    return "renamed"


@tool
def untag(context: ExecutionContext) -> str:
    """Remove the last tag."""
    context.state["project"]["tags"].pop()
    return "untagged"


async def test_o10_a_nested_change_of_a_tool_is_saved(
    sessions: SessionStore, restarted: Restart
) -> None:
    session = await sessions.create("ada")
    session.state["project"] = {"name": "a", "tags": []}
    await sessions.save(session)
    model = ScriptedModel([call("rename", to="b"), "Done.", call("untag"), "Done."])

    def agent(manager: SessionStore) -> Agent:
        return Agent(model, tools=[rename, untag], session_manager=manager)

    await agent(sessions).run("Rename.", session_id="ada")
    renamed = (await stored(restarted())).state
    await agent(restarted()).run("Untag.", session_id="ada")
    untagged = (await stored(restarted())).state

    assert renamed == {"project": {"name": "b", "tags": ["renamed"]}}
    assert untagged == {"project": {"name": "b", "tags": []}}


async def test_a_change_of_a_tool_that_raises_is_saved_with_its_result(
    sessions: SessionStore,
) -> None:
    @tool
    def count(context: ExecutionContext) -> None:
        """Count, and fail."""
        context.state["tries"] = context.state.get("tries", 0) + 1
        raise RuntimeError("failed")

    model = ScriptedModel([call("count"), VendorError()])
    agent = Agent(model, tools=[count], session_manager=sessions)

    with pytest.raises(VendorError):
        await agent.run("Count.", session_id="ada")

    assert (await stored(sessions)).state == {"tries": 1}


def spoil_new(state: dict[Any, Any]) -> None:
    state["price"] = Decimal("1.10")


def spoil_nested(state: dict[Any, Any]) -> None:
    state["project"]["due"] = datetime.now(UTC)


def spoil_replaced(state: dict[Any, Any]) -> None:
    state["project"] = {1, 2}


def spoil_key(state: dict[Any, Any]) -> None:
    state[7] = "seven"


def spoil_cycle(state: dict[Any, Any]) -> None:
    state["project"]["self"] = state["project"]


def spoil_text(state: dict[Any, Any]) -> None:
    state["title"] = "a\ud83d b"


@pytest.mark.parametrize(
    ("spoil", "path"),
    [
        (spoil_new, "state.price"),
        (spoil_nested, "state.project.due"),
        (spoil_replaced, "state.project"),
        (spoil_key, "state"),
        (spoil_cycle, "state.project"),
        (spoil_text, "state.title"),
    ],
)
async def test_promise_11_a_state_that_json_cannot_keep_is_an_error_and_put_back(
    sessions: SessionStore,
    restarted: Restart,
    spoil: Callable[[dict[Any, Any]], None],
    path: str,
) -> None:
    before = {"project": {"name": "a"}, "kept": [1]}
    session = await sessions.create("ada")
    session.state.update(before)
    await sessions.save(session)

    @tool
    def price(context: ExecutionContext) -> str:
        """Leave something bad in the state."""
        spoil(context.state)
        return "all went well"

    model = ScriptedModel([call("price"), "Sorry."])
    agent = Agent(model, tools=[price], session_manager=sessions)

    result = await agent.run("Go.", session_id="ada")

    assert result.output == "Sorry."
    [told] = sent_results(model.requests[1])
    assert told.status == "error"
    assert path in told.content
    assert "all went well" in told.content  # the tool did take effect
    assert (await stored(restarted())).state == before
    assert result.context.state == before


async def test_promise_11_a_bad_state_of_one_tool_leaves_the_keys_of_its_sibling(
    sessions: SessionStore,
) -> None:
    ready = asyncio.Barrier(2)

    @tool
    async def bad(context: ExecutionContext) -> str:
        """Leave something bad in the state."""
        await ready.wait()
        context.state["bad"] = object()
        return "bad"

    @tool
    async def good(context: ExecutionContext) -> str:
        """Leave something good in the state."""
        context.state["good"] = {"n": 1}
        await ready.wait()
        return "good"

    model = ScriptedModel([[call("bad"), call("good")], "Done."])
    agent = Agent(model, tools=[bad, good], session_manager=sessions)

    await agent.run("Go.", session_id="ada")

    assert (await stored(sessions)).state == {"good": {"n": 1}}
    assert sent_results(model.requests[1])[0].status == "error"


async def test_promise_11_a_state_that_is_no_dict_any_more_is_an_error_and_put_back(
    sessions: SessionStore,
) -> None:
    @tool
    def replace_all(context: ExecutionContext) -> str:
        """Put something else in the place of the whole state."""
        context.session.state = ["no", "dict"]  # type: ignore[assignment]
        return "replaced"

    model = ScriptedModel([call("replace_all"), "Sorry."])
    agent = Agent(model, tools=[replace_all], session_manager=sessions)

    await agent.run("Go.", session_id="ada")

    [told] = sent_results(model.requests[1])
    assert told.status == "error"
    assert (await stored(sessions)).state == {}


async def test_a_call_id_that_the_log_has_already_gets_a_fresh_one(
    sessions: SessionStore, restarted: Restart
) -> None:
    """Local servers count from call_0 again in each reply."""
    seen = []

    @tool
    def look(n: int, context: ExecutionContext) -> str:
        """Look."""
        seen.append(context.tool_call_id)
        return f"result {n}"

    model = ScriptedModel(
        [
            [call("look", "call_0", n=1), call("look", "call_0", n=2)],
            call("look", "call_0", n=3),
            "Done.",
            [call("look", "call_0", n=4), call("look", "not:valid", n=5)],
            "Done.",
        ]
    )

    agent = Agent(model, tools=[look], session_manager=sessions)
    await agent.run("Look.", session_id="ada")
    again = Agent(model, tools=[look], session_manager=restarted())
    await again.run("Look again.", session_id="ada")

    log = (await stored(restarted())).events
    calls = [item for event in log for item in event.tool_calls]
    ids = [item.tool_call_id for item in calls]
    assert len(set(ids)) == 5
    assert ids[0] == "call_0"
    assert sorted(seen) == sorted(ids)
    answers = {result.tool_call_id: result.content for result in results(log)}
    assert [answers[each] for each in ids] == [f"result {n}" for n in range(1, 6)]


async def test_a_tool_may_run_another_agent() -> None:
    inner = Agent(ScriptedModel([call("clock", "call_0"), "Noon."]), tools=[clock])

    @tool
    async def ask(context: ExecutionContext) -> str:
        """Ask somebody else."""
        answer = await inner.run("Time?", session_id="inner")
        return f"{context.tool_call_id}: {answer.output}"

    model = ScriptedModel([call("ask", "call_0"), "Noon."])

    await Agent(model, tools=[ask]).run("Time?", session_id="outer")

    assert sent_results(model.requests[1])[0].content == "call_0: Noon."


# --- O02: a cancel ------------------------------------------------------------


def until(name: str, event: asyncio.Event) -> Any:
    """A watcher that sets an event when a tool's result is stored."""

    def watch(context: ExecutionContext, recorded: Event) -> None:
        if any(result.name == name for result in results([recorded])):
            event.set()

    return watch


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_o02_a_cancel_goes_through_and_every_call_is_answered(
    sessions: SessionStore, restarted: Restart, kind: str
) -> None:
    fast_is_stored = asyncio.Event()
    wake = threading.Event()

    @tool
    def fast() -> str:
        """Be quick."""
        return "real"

    def sleep_sync() -> None:
        """Sleep."""
        wake.wait(30)

    async def sleep_async() -> None:
        """Sleep."""
        await asyncio.Event().wait()

    sleepy = tool(name="sleepy")(sleep_sync if kind == "sync" else sleep_async)
    agent = Agent(
        ScriptedModel([[call("sleepy"), call("fast")]]),
        tools=[fast, sleepy],
        session_manager=sessions,
        on_event=until("fast", fast_is_stored),
    )
    run = asyncio.create_task(agent.run("Go.", session_id="ada"))
    await fast_is_stored.wait()
    started = time.monotonic()

    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    assert run.cancelled()
    assert time.monotonic() - started < 10
    wake.set()

    model = ScriptedModel(["Sorry."])
    later = Agent(model, tools=[fast, sleepy], session_manager=restarted())
    await later.run("What happened?", session_id="ada")

    told = sent_results(model.requests[0])
    assert [(each.name, each.status) for each in told] == [
        ("sleepy", "cancelled"),
        ("fast", "success"),
    ]
    assert "cancelled" in told[0].content.lower()
    assert told[1].content == "real"
    assert len(results((await stored(restarted())).events)) == 2


async def test_o02_the_answer_to_a_cancelled_call_says_that_it_may_have_taken_effect(
    sessions: SessionStore,
) -> None:
    entered = asyncio.Event()

    @tool
    async def pay() -> None:
        """Pay."""
        entered.set()
        await asyncio.Event().wait()

    agent = Agent(ScriptedModel([call("pay")]), tools=[pay], session_manager=sessions)
    run = asyncio.create_task(agent.run("Pay.", session_id="ada"))
    await entered.wait()
    run.cancel()
    await asyncio.wait([run])

    [result] = results((await stored(sessions)).events)
    assert "may still have taken effect" in result.content


async def test_o02_after_a_cancel_a_run_without_input_goes_on(
    sessions: SessionStore, restarted: Restart
) -> None:
    entered = asyncio.Event()

    @tool
    async def wait() -> None:
        """Wait."""
        entered.set()
        await asyncio.Event().wait()

    agent = Agent(ScriptedModel([call("wait")]), tools=[wait], session_manager=sessions)
    run = asyncio.create_task(agent.run("Go.", session_id="ada"))
    await entered.wait()
    run.cancel()
    await asyncio.wait([run])

    later = Agent(ScriptedModel(["Done."]), tools=[wait], session_manager=restarted())
    assert (await later.run(session_id="ada")).output == "Done."


async def test_o02_a_cancelled_tool_cleans_up_before_the_run_ends() -> None:
    steps = []
    entered = asyncio.Event()

    @tool
    async def tidy() -> None:
        """Work, and tidy up."""
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            steps.append("tidied up")

    agent = Agent(ScriptedModel([call("tidy")]), tools=[tidy])
    run = asyncio.create_task(agent.run("Go.", session_id="ada"))
    await entered.wait()
    run.cancel()
    await asyncio.wait([run])

    assert steps == ["tidied up"]


async def test_o02_a_tool_that_swallows_the_cancel_does_not_hold_the_run_up(
    sessions: SessionStore, restarted: Restart
) -> None:
    entered, release = asyncio.Event(), asyncio.Event()

    @tool
    async def stubborn() -> str:
        """Do not let go."""
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await release.wait()
        return "late"

    agent = Agent(
        ScriptedModel([[call("stubborn"), call("clock")]]),
        tools=[stubborn, clock],
        session_manager=sessions,
    )
    run = asyncio.create_task(agent.run("Go.", session_id="ada"))
    await entered.wait()
    started = time.monotonic()
    run.cancel()
    await asyncio.wait([run])
    took = time.monotonic() - started
    version = (await stored(restarted())).version

    release.set()  # and now the tool comes back, long after its run
    await others_finished()

    assert run.cancelled()
    assert took < 10
    session = await stored(restarted())
    by_name = {each.name: each.status for each in results(session.events)}
    assert by_name == {"stubborn": "cancelled", "clock": "success"}
    assert len(results(session.events)) == 2
    assert session.version == version


async def test_o02_a_second_cancel_changes_nothing(
    sessions: SessionStore, restarted: Restart
) -> None:
    entered, tidying, release = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @tool
    async def tidy() -> None:
        """Work, and tidy up."""
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            tidying.set()
            await release.wait()

    agent = Agent(ScriptedModel([call("tidy")]), tools=[tidy], session_manager=sessions)
    run = asyncio.create_task(agent.run("Go.", session_id="ada"))
    await entered.wait()
    run.cancel()
    await tidying.wait()
    run.cancel()
    await asyncio.sleep(0)
    release.set()
    await asyncio.wait([run])

    assert run.cancelled()
    [result] = results((await stored(restarted())).events)
    assert result.status == "cancelled"


async def test_o02_a_result_that_waits_to_be_stored_when_the_cancel_comes_is_kept() -> (
    None
):
    """The tool was done: to say that nobody knows its outcome would be a lie."""
    first_save, go_on = asyncio.Event(), asyncio.Event()
    returned = asyncio.Event()

    class Slow(InMemorySessionManager):
        async def save(self, session: Session) -> None:
            if results(session.unsaved) and not first_save.is_set():
                first_save.set()
                await go_on.wait()
            await super().save(session)

    @tool
    async def one() -> str:
        """Be first."""
        return "one"

    @tool
    async def two() -> str:
        """Be second: come back while the first result is being stored."""
        await first_save.wait()
        returned.set()
        return "two"

    manager = Slow()
    agent = Agent(
        ScriptedModel([[call("one"), call("two")]]),
        tools=[one, two],
        session_manager=manager,
    )
    run = asyncio.create_task(agent.run("Go.", session_id="ada"))
    await returned.wait()
    await asyncio.sleep(0)
    run.cancel()
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.wait([run])

    assert run.cancelled()
    found = {r.name: r.status for r in results((await stored(manager)).events)}
    assert found == {"one": "success", "two": "success"}


async def test_promise_15_a_save_that_has_begun_is_finished_before_a_cancel() -> None:
    saving, go_on = asyncio.Event(), asyncio.Event()

    class Slow(InMemorySessionManager):
        async def save(self, session: Session) -> None:
            saving.set()
            await go_on.wait()
            await super().save(session)

    manager = Slow()
    model = ScriptedModel([])
    agent = Agent(model, session_manager=manager)
    run = asyncio.create_task(agent.run("Hi.", session_id="ada"))
    await saving.wait()
    run.cancel()
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.wait([run])

    assert run.cancelled()
    assert model.requests == []
    assert words((await stored(manager)).events) in ([], ["user: Hi."])


# --- KeyboardInterrupt and its like -------------------------------------------


class Stop(BaseException):
    """Nothing may catch this."""


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize(
    "error",
    [KeyboardInterrupt(), SystemExit(3), Stop()],
    ids=lambda e: type(e).__name__,
)
def test_promise_11_what_stops_the_program_goes_through_and_the_calls_are_answered(
    error: BaseException, kind: str
) -> None:
    sessions = InMemorySessionManager()
    clock_is_stored = threading.Event()

    def watch(context: ExecutionContext, event: Event) -> None:
        if results([event]):
            clock_is_stored.set()

    def stop_sync() -> None:
        """Stop the program, once the first result is stored."""
        assert clock_is_stored.wait(20)
        raise error

    async def stop_async() -> None:
        """Stop the program, once the first result is stored."""
        while not clock_is_stored.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0)
        raise error

    stop = tool(name="stop")(stop_sync if kind == "sync" else stop_async)
    calls = [call("forever"), call("stop"), call("clock")]
    agent = Agent(
        ScriptedModel([calls]),
        tools=[forever, stop, clock],
        session_manager=sessions,
        on_event=watch,
    )

    # With a loop factory, the loop that pytest-asyncio has set stays as it is.
    with (
        pytest.raises(type(error)) as raised,
        asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner,
    ):
        runner.run(agent.run("Go.", session_id="ada"))

    assert raised.value is error
    model = ScriptedModel(["Sorry."])
    later = Agent(model, tools=[forever, stop, clock], session_manager=sessions)
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        runner.run(later.run("What happened?", session_id="ada"))
        log = runner.run(stored(sessions)).events
    told = sent_results(model.requests[0])
    assert [each.name for each in told] == ["forever", "stop", "clock"]
    assert [each.status for each in told] == ["cancelled", "cancelled", "success"]
    assert len(results(log)) == 3


async def test_promise_11_a_tool_that_raises_a_cancel_of_its_own_is_answered_too(
    sessions: SessionStore,
) -> None:
    @tool
    async def give_up() -> None:
        """Give up."""
        raise asyncio.CancelledError

    agent = Agent(
        ScriptedModel([[call("give_up"), call("clock")]]),
        tools=[give_up, clock],
        session_manager=sessions,
    )

    with pytest.raises(asyncio.CancelledError):
        await agent.run("Go.", session_id="ada")

    found = {r.name: r.status for r in results((await stored(sessions)).events)}
    assert found == {"give_up": "cancelled", "clock": "success"}


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_promise_11_the_calls_are_answered_before_the_event_loop_stops(
    error: BaseException,
) -> None:
    """A notebook's loop cancels nothing when it stops, as `asyncio.run` does."""

    @tool
    async def stop() -> None:
        """Stop the program."""
        raise error

    sessions = InMemorySessionManager()
    agent = Agent(
        ScriptedModel([[call("forever"), call("stop")]]),
        tools=[forever, stop],
        session_manager=sessions,
    )
    loop = asyncio.new_event_loop()

    with pytest.raises(type(error)):
        loop.run_until_complete(agent.run("Go.", session_id="ada"))

    log = loop.run_until_complete(stored(sessions)).events
    assert [result.status for result in results(log)] == ["cancelled", "cancelled"]
    loop.close()


INTERRUPTED = """
import asyncio, os, signal, sys
from minagent import Agent, ToolCall, tool
from minagent.models import ScriptedModel
from minagent.stores import SQLiteSessionManager

path, how = sys.argv[1:]

@tool
async def stop() -> None:
    "Stop the program."
    if how == "raise":
        raise KeyboardInterrupt
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.Event().wait()

@tool
async def forever() -> None:
    "Never come back."
    await asyncio.Event().wait()

async def main():
    async with SQLiteSessionManager(path) as sessions:
        calls = [ToolCall(name="forever"), ToolCall(name="stop")]
        agent = Agent(
            ScriptedModel([calls]), tools=[stop, forever], session_manager=sessions
        )
        await agent.run("Go.", session_id="ada")

asyncio.run(main())
"""


def run_python(code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=os.environ | {"PYTHONPATH": str(Path(minagent.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("how", ["raise", "signal"])
async def test_promise_11_an_interrupted_program_ends_at_once_with_all_calls_answered(
    tmp_path: Path, how: str
) -> None:
    path = str(tmp_path / "sessions.db")

    done = await asyncio.to_thread(run_python, INTERRUPTED, path, how)

    assert done.returncode == -signal.SIGINT, done.stderr
    assert done.stderr.splitlines()[-1] == "KeyboardInterrupt"
    sessions = SQLiteSessionManager(path)
    log = (await stored(sessions)).events
    assert {r.name: r.status for r in results(log)} == {
        "forever": "cancelled",
        "stop": "cancelled",
    }
    agent = Agent(ScriptedModel(["Sorry."]), session_manager=sessions)
    assert (await agent.run(session_id="ada")).output == "Sorry."


# --- O01: killed while a tool was running -------------------------------------

KILLED = """
import asyncio, os, sys
from minagent import Agent, ToolCall, tool
from minagent.models import ScriptedModel
from minagent.stores import SQLiteSessionManager

path, marks, option = sys.argv[1:]
clock_is_stored = asyncio.Event()

@tool
def clock() -> str:
    "Tell the time."
    return "noon"

@tool(**({option: True} if option else {}))
async def slow(n: int) -> str:
    "Die before there is a result."
    await clock_is_stored.wait()
    with open(marks, "a") as file:
        file.write(f"ran {n}\\n")
    os._exit(7)

def watch(context, event):
    if event.content[0].type == "tool_result":
        clock_is_stored.set()

async def main():
    sessions = SQLiteSessionManager(path)
    calls = [
        ToolCall(name="slow", arguments={"n": 1}, tool_call_id="call_slow"),
        ToolCall(name="clock", tool_call_id="call_clock"),
    ]
    agent = Agent(
        ScriptedModel([["Let me see.", *calls]]),
        tools=[clock, slow],
        session_manager=sessions,
        on_event=watch,
    )
    await agent.run("Go.", session_id="ada")

asyncio.run(main())
"""


class Killed:
    """A session that a killed process left behind, and the tools to go on with."""

    def __init__(self, folder: Path, **option: bool) -> None:
        self.path, self.marks = folder / "sessions.db", folder / "marks.txt"
        self.entered: list[str | None] = []
        self.sessions = SQLiteSessionManager(self.path)

        @tool(**option)  # type: ignore[call-overload, untyped-decorator]
        def slow(n: int, context: ExecutionContext) -> str:
            """Work."""
            with self.marks.open("a") as file:
                file.write(f"ran {n} again\n")
            self.entered.append(context.tool_call_id)
            return "finished"

        self.tools = [clock, slow]
        names = [name for name, value in option.items() if value]
        done = run_python(KILLED, str(self.path), str(self.marks), *(names or [""]))
        assert done.returncode == 7, done.stderr

    def agent(self, *steps: Any) -> tuple[Agent, ScriptedModel]:
        model = ScriptedModel(steps)
        tools = self.tools
        return Agent(model, tools=tools, session_manager=self.sessions), model


@pytest.mark.parametrize("with_input", [True, False], ids=["new message", "no input"])
async def test_o01_a_killed_tool_is_not_run_again_and_its_outcome_is_unknown(
    tmp_path: Path, with_input: bool
) -> None:
    killed = await asyncio.to_thread(Killed, tmp_path)
    agent, model = killed.agent("Something went wrong.", "Yes.")

    await agent.run("What happened?" if with_input else None, session_id="ada")
    await agent.run("Are you there?", session_id="ada")

    assert killed.marks.read_text() == "ran 1\n"
    told = sent_results(model.requests[0])
    assert [(each.name, each.status) for each in told] == [
        ("slow", "unknown"),
        ("clock", "success"),
    ]
    assert "unknown" in told[0].content
    before, after = (request.turns for request in model.requests)
    assert after[: len(before)] == before
    log = (await stored(killed.sessions)).events
    assert len(results(log)) == 2
    model.assert_done()


async def test_o01_a_repeatable_tool_is_carried_out_again(tmp_path: Path) -> None:
    killed = await asyncio.to_thread(Killed, tmp_path, repeatable=True)
    agent, model = killed.agent("Done.", "Yes.")

    await agent.run(session_id="ada")
    await agent.run("Are you there?", session_id="ada")

    assert killed.marks.read_text() == "ran 1\nran 1 again\n"
    told = sent_results(model.requests[0])
    assert [(each.name, each.status) for each in told] == [
        ("slow", "success"),
        ("clock", "success"),
    ]
    assert killed.entered == ["call_slow"]


async def test_o01_a_resumable_tool_is_entered_again_with_its_call_id(
    tmp_path: Path,
) -> None:
    killed = await asyncio.to_thread(Killed, tmp_path, resumable=True)
    agent, model = killed.agent("Done.", "Yes.")

    await agent.run(session_id="ada")
    await agent.run("Are you there?", session_id="ada")

    assert killed.entered == ["call_slow"]
    assert sent_results(model.requests[0])[0].content == "finished"


async def test_o01_a_broken_session_of_an_old_program_heals_without_being_changed(
    sessions: SessionStore, restarted: Restart
) -> None:
    """Two turns that were cut: the first call is far behind the end of the log."""
    session = await sessions.create("ada")
    for number in (1, 2):
        said = Message(role="user", content=f"Go {number}.")
        session.append(Event(author="user", content=(said,)))
        session.append(
            Event(author="assistant", content=(call("clock", f"call_{number}"),))
        )
    await sessions.save(session)
    broken = list(session.events)
    model = ScriptedModel(["Sorry.", "Yes."])

    agent = Agent(model, tools=[clock], session_manager=restarted())
    await agent.run("What happened?", session_id="ada")
    again = Agent(model, tools=[clock], session_manager=restarted())
    await again.run("Are you there?", session_id="ada")

    healed = [
        item
        for turn in model.requests[0].turns
        for item in turn.content
        if isinstance(item, ToolResult)
    ]
    assert [(r.tool_call_id, r.status) for r in healed] == [
        ("call_1", "unknown"),
        ("call_2", "unknown"),
    ]
    before, after = (request.turns for request in model.requests)
    assert after[: len(before)] == before
    assert list((await stored(restarted())).events[: len(broken)]) == broken


# --- Promise 12: one run at a time --------------------------------------------


class Readers(SessionManager):
    """A reader's manager: no `super().__init__()`, not hashable, equal to its like."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self) -> None:
        self.kept: dict[str, Session] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Readers)

    async def create(self, session_id: str, user_id: str | None = None) -> Session:
        if session_id in self.kept:
            raise SessionExistsError(session_id)
        self.kept[session_id] = Session(session_id, user_id)
        return self.kept[session_id].copy()

    async def get(self, session_id: str) -> Session | None:
        kept = self.kept.get(session_id)
        return kept and kept.copy()

    async def save(self, session: Session) -> None:
        if session.session_id not in self.kept:
            raise SessionNotFoundError(session.session_id)
        if self.kept[session.session_id].version != session.version:
            raise SessionConflictError(session.session_id)
        session.mark_saved()
        self.kept[session.session_id] = session.copy()


class Empty(Readers):
    """One that has a length, and is therefore false while it keeps nothing."""

    def __len__(self) -> int:
        return len(self.kept)


MANAGERS: dict[str, Callable[[Path], SessionManager]] = {
    "memory": lambda folder: InMemorySessionManager(),
    "sqlite": lambda folder: SQLiteSessionManager(folder / "sessions.db"),
    "a reader's": lambda folder: Readers(),
    "an empty one": lambda folder: Empty(),
}


@pytest.fixture(params=MANAGERS.values(), ids=MANAGERS.keys())
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> SessionManager:
    made: SessionManager = request.param(tmp_path)
    return made


class Held:
    """A model that waits until it may answer."""

    def __init__(self) -> None:
        self.is_asked, self.may_answer = asyncio.Event(), asyncio.Event()
        self.error: Exception | None = None

    async def generate(self, request: ModelRequest, emit: Any) -> ModelResponse:
        self.is_asked.set()
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        return reply("At last.")


async def test_promise_12_a_second_run_on_a_running_session_is_refused_at_once(
    manager: SessionManager,
) -> None:
    held, model = Held(), ScriptedModel([])
    first = Agent(held, session_manager=manager)
    run = asyncio.create_task(first.run("One.", session_id="ada"))
    await held.is_asked.wait()

    with pytest.raises(SessionBusyError, match="'ada'") as error:
        await Agent(model, session_manager=manager).run("Two.", session_id="ada")
    with pytest.raises(SessionBusyError):
        await first.run(session_id="ada")

    assert error.value.session_id == "ada"
    assert words((await stored(manager)).events) == ["user: One."]
    held.may_answer.set()
    assert (await run).output == "At last."
    assert words((await stored(manager)).events) == [
        "user: One.",
        "assistant: At last.",
    ]


async def test_promise_12_other_sessions_are_not_held_up(
    manager: SessionManager,
) -> None:
    held = Held()
    first = Agent(held, session_manager=manager)
    run = asyncio.create_task(first.run("One.", session_id="ada"))
    await held.is_asked.wait()

    other = Agent(ScriptedModel(["Hello."]), session_manager=manager)
    assert (await other.run("Two.", session_id="bob")).output == "Hello."

    held.may_answer.set()
    await run


@pytest.mark.parametrize("end", ["answer", "error", "cancel"])
async def test_promise_12_the_session_is_free_again_however_the_run_ends(
    manager: SessionManager, end: str
) -> None:
    held = Held()
    held.error = VendorError() if end == "error" else None
    agent = Agent(held, session_manager=manager)
    run = asyncio.create_task(agent.run("One.", session_id="ada"))
    await held.is_asked.wait()
    if end == "cancel":
        run.cancel()
    held.may_answer.set()
    await asyncio.wait([run])
    if not run.cancelled():
        run.exception()

    later = Agent(ScriptedModel(["Hello."]), session_manager=manager)
    assert (await later.run("Two.", session_id="ada")).output == "Hello."


async def test_promise_12_two_managers_do_not_block_each_other(tmp_path: Path) -> None:
    """They may be equal, and yet keep different sessions."""
    one, two = Readers(), Readers()
    assert one == two
    held = Held()
    run = asyncio.create_task(
        Agent(held, session_manager=one).run("One.", session_id="ada")
    )
    await held.is_asked.wait()

    other = Agent(ScriptedModel(["Hello."]), session_manager=two)
    assert (await other.run("Two.", session_id="ada")).output == "Hello."

    held.may_answer.set()
    assert (await run).output == "At last."


async def test_promise_12_a_tool_that_runs_on_its_own_session_is_told_that_it_is_busy(
    sessions: SessionStore,
) -> None:
    @tool
    async def recurse() -> str:
        """Run on the session of this run."""
        agent = Agent(ScriptedModel([]), session_manager=sessions)
        return str((await agent.run("Again.", session_id="ada")).output)

    model = ScriptedModel([call("recurse"), "Sorry."])
    agent = Agent(model, tools=[recurse], session_manager=sessions)

    async with asyncio.timeout(20):
        await agent.run("Go.", session_id="ada")

    [told] = sent_results(model.requests[1])
    assert told.status == "error"
    assert "SessionBusyError" in told.content


async def test_promise_12_a_context_that_is_at_work_is_busy_as_well() -> None:
    held = Held()
    first = await Agent(ScriptedModel(["Hello."])).run("One.")
    run = asyncio.create_task(Agent(held).run("Two.", context=first.context))
    await held.is_asked.wait()

    with pytest.raises(SessionBusyError):
        await Agent(ScriptedModel([])).run("Three.", context=first.context)

    held.may_answer.set()
    await run


async def test_promise_12_threads_with_loops_of_their_own_are_refused_too(
    manager: SessionManager,
) -> None:
    held = Held()
    agent = Agent(held, session_manager=manager)
    run = asyncio.create_task(agent.run("One.", session_id="ada"))
    await held.is_asked.wait()

    def in_thread() -> None:
        model = ScriptedModel([])
        second = Agent(model, session_manager=manager)
        asyncio.run(second.run("Two.", session_id="ada"))

    with pytest.raises(SessionBusyError):
        await asyncio.to_thread(in_thread)

    held.may_answer.set()
    await run


async def test_the_manager_that_an_agent_was_given_is_the_one_that_it_uses(
    manager: SessionManager,
) -> None:
    agent = Agent(ScriptedModel(["Hello."]), session_manager=manager)

    result = await agent.run("Hi.", session_id="ada")

    assert agent.session_manager is manager
    assert result.session_id == "ada"
    assert len((await stored(manager)).events) == 2


# --- O14: two managers on one session -----------------------------------------


@pytest.fixture
def two_managers(tmp_path: Path) -> tuple[SessionStore, SessionStore]:
    path = tmp_path / "sessions.db"
    return SQLiteSessionManager(path), SQLiteSessionManager(path)


async def test_o14_the_run_that_lost_ends_with_a_conflict_and_its_input_is_stored(
    two_managers: tuple[SessionStore, SessionStore],
) -> None:
    ours, theirs = two_managers
    their_model = ScriptedModel(["Theirs.", "Both."])
    they = Agent(their_model, session_manager=theirs)

    async def meanwhile(request: ModelRequest) -> str:
        await they.run("Their question.", session_id="ada")
        return "Ours."

    we = Agent(ScriptedModel([meanwhile]), session_manager=ours)
    with pytest.raises(SessionConflictError, match="'ada'") as error:
        await we.run("Our question.", session_id="ada")

    assert error.value.session_id == "ada"
    assert words(error.value.unsaved) == ["assistant: Ours."]
    assert words((await stored(theirs)).events) == [
        "user: Our question.",
        "user: Their question.",
        "assistant: Theirs.",
    ]
    await they.run("Go on.", session_id="ada")
    assert sent_words(their_model.requests[1]) == [
        "user: Our question.",
        "user: Their question.",
        "assistant: Theirs.",
        "user: Go on.",
    ]


async def test_o14_the_next_run_without_input_answers_the_question_that_lost(
    two_managers: tuple[SessionStore, SessionStore],
) -> None:
    ours, theirs = two_managers
    they = Agent(ScriptedModel([VendorError()]), session_manager=theirs)

    async def meanwhile(request: ModelRequest) -> str:
        with pytest.raises(VendorError):
            await they.run("Their question.", session_id="ada")
        return "Ours."

    model = ScriptedModel([meanwhile, "Both answered."])
    we = Agent(model, session_manager=ours)
    with pytest.raises(SessionConflictError):
        await we.run("Our question.", session_id="ada")

    result = await we.run(session_id="ada")

    assert result.output == "Both answered."
    assert words((await stored(theirs)).events) == [
        "user: Our question.",
        "user: Their question.",
        "assistant: Both answered.",
    ]


async def test_o14_a_result_that_comes_too_late_is_in_the_error_and_not_in_the_log(
    two_managers: tuple[SessionStore, SessionStore],
) -> None:
    """The other run took the call for lost, and has told its model so."""
    ours, theirs = two_managers

    @tool
    async def slow() -> str:
        """Take long enough for somebody else to ask."""
        agent = Agent(ScriptedModel(["Theirs."]), session_manager=theirs)
        await agent.run("Their question.", session_id="ada")
        return "our result"

    we = Agent(
        ScriptedModel([[call("slow"), call("forever")]]),
        tools=[slow, forever],
        session_manager=ours,
    )
    with pytest.raises(SessionConflictError) as error:
        async with asyncio.timeout(20):
            await we.run("Our question.", session_id="ada")

    assert [r.content for r in results(error.value.unsaved)] == ["our result"]
    log = (await stored(theirs)).events
    assert [(r.name, r.status) for r in results(log)] == [
        ("slow", "unknown"),
        ("forever", "unknown"),
    ]
    model = ScriptedModel(["Yes."])
    later = Agent(model, session_manager=ours)
    await later.run("Are you there?", session_id="ada")


async def test_o14_two_writers_in_a_row_lose_nothing_and_double_nothing(
    two_managers: tuple[SessionStore, SessionStore],
) -> None:
    """Each goes on without input until there is nothing to continue."""

    async def ask(manager: SessionStore, question: str) -> None:
        def answer(request: ModelRequest) -> str:
            return f"Answer to {sent_words(request)[-1]}"

        text: str | None = question
        while True:
            agent = Agent(
                ScriptedModel([answer]), tools=[clock], session_manager=manager
            )
            try:
                await agent.run(text, session_id="ada")
            except SessionConflictError:
                text = None
            except NothingToContinueError:
                return
            else:
                return

    asked = [f"question {who} {n}" for n in range(8) for who in (0, 1)]

    async def one_side(who: int) -> None:
        for n in range(8):
            await ask(two_managers[who], f"question {who} {n}")

    await asyncio.gather(one_side(0), one_side(1))

    log = (await stored(two_managers[0])).events
    said = Counter(word for word in words(log) if word.startswith("user"))
    assert said == Counter(f"user: {question}" for question in asked)
    assert words(log)[-1].startswith("assistant")


# --- O27: the clock -----------------------------------------------------------

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


async def test_the_clock_of_the_agent_is_the_time_of_its_events() -> None:
    times: list[datetime] = []

    def tick() -> datetime:
        times.append(NOON + timedelta(seconds=len(times)))
        return times[-1]

    model = ScriptedModel([call("clock"), "Noon."])
    agent = Agent(model, tools=[clock], clock=tick)

    result = await agent.run("Time?")

    stamps = [event.timestamp for event in result.context.events]
    assert set(stamps) <= set(times)
    assert stamps == sorted(stamps)
    assert stamps[0].tzinfo is UTC


async def test_the_time_of_a_tool_is_the_agents_and_is_kept_in_utc() -> None:
    zone = datetime.fromisoformat("2026-11-30T14:00:00+02:00")

    @tool
    def look(context: ExecutionContext) -> str:
        """Look at the clock."""
        return context.now.isoformat()

    model = ScriptedModel([call("look"), "Done."])

    result = await Agent(model, tools=[look], clock=lambda: zone).run("Look.")

    assert sent_results(model.requests[1])[0].content == zone.isoformat()
    assert {event.timestamp.isoformat() for event in result.context.events} == {
        NOON.isoformat()
    }


async def test_o27_the_order_is_that_of_writing_whatever_the_clock_says(
    sessions: SessionStore, restarted: Restart
) -> None:
    written: list[str] = []
    now = NOON

    def watch(context: ExecutionContext, event: Event) -> None:
        written.append(event.event_id)

    async def run(manager: SessionStore, steps: list[Any], text: str) -> None:
        agent = Agent(
            ScriptedModel(steps),
            tools=[clock],
            session_manager=manager,
            max_steps=30,
            clock=lambda: now,
            on_event=watch,
        )
        await agent.run(text, session_id="ada")

    await run(sessions, [*[call("clock") for _ in range(15)], "Done."], "Dig.")
    for number in range(3):
        await run(sessions, [f"Answer {number}."], f"Question {number}?")
    now = NOON - timedelta(hours=1)
    await run(restarted(), ["Earlier?"], "What time is it?")

    log = (await stored(restarted())).events
    assert [event.event_id for event in log] == written
    assert len(log) == 32 + 6 + 2
    assert words(log[-4:]) == [
        "user: Question 2?",
        "assistant: Answer 2.",
        "user: What time is it?",
        "assistant: Earlier?",
    ]
    assert words(log[-10:])[0] == "assistant: Done."


async def test_a_decision_on_an_unknown_session_leaves_no_session_behind(
    sessions: SessionStore,
) -> None:
    agent = Agent(ScriptedModel([]), session_manager=sessions)
    decision = ToolConfirmation(tool_call_id="c1", approved=True)

    with pytest.raises(UnknownCallError):
        await agent.run("Hi.", session_id="new", tool_confirmations=[decision])

    assert await sessions.get("new") is None


async def test_o04_an_empty_answer_is_in_the_log_and_is_nothing_to_go_on_from(
    sessions: SessionStore,
) -> None:
    agent = Agent(ScriptedModel([ModelResponse()]), session_manager=sessions)

    result = await agent.run("Hi.", session_id="ada")

    assert result.output == ""
    session = await sessions.get("ada")
    assert session is not None
    assert [(e.is_reply, e.content) for e in session.events][1:] == [(True, ())]
    with pytest.raises(NothingToContinueError):
        await agent.run(session_id="ada")
