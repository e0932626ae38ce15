"""The stream of a run: what it shows equals what is stored, and leaving it is safe."""

import asyncio
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minagent import (
    Agent,
    AgentStream,
    Event,
    ExecutionContext,
    InMemorySessionManager,
    Message,
    ModelRequest,
    ModelResponse,
    Note,
    NothingToContinueError,
    Progress,
    Reasoning,
    ReasoningDelta,
    Session,
    SessionBusyError,
    SessionManager,
    SessionOpened,
    SessionStore,
    TextDelta,
    ToolCall,
    ToolInputDelta,
    ToolResult,
    tool,
)
from minagent.models import ScriptedModel
from minagent.stores import SQLiteSessionManager

Restart = Callable[[], SessionStore]
Passing = TextDelta | ReasoningDelta | ToolInputDelta | Progress


class VendorError(Exception):
    """What a vendor's client raises."""


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(name=name, arguments=arguments)


def words(events: Any) -> list[str]:
    """What was said, by whom, in order."""
    return [
        f"{item.role}: {item.content}"
        for event in events
        for item in event.content
        if isinstance(item, Message)
    ]


def results(events: Any) -> list[ToolResult]:
    items = [item for event in events for item in event.content]
    return [item for item in items if isinstance(item, ToolResult)]


async def stored(sessions: SessionManager, session_id: str = "ada") -> Session:
    session = await sessions.get(session_id)
    assert session is not None
    return session


async def watched(stream: AgentStream, items: list[Any]) -> None:
    """Add the items of a stream to a list, up to its end."""
    async with stream:
        async for item in stream:
            items.append(item)


async def run_ended() -> None:
    """Wait for the run behind a stream, without looking at it."""
    if left := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(left, timeout=10)


@tool
def clock(city: str = "Rome") -> str:
    """Tell the time."""
    return f"noon in {city}"


@tool
async def jot(text: str, context: ExecutionContext) -> str:
    """Record a note, and then say something that passes."""
    await context.record(Note(kind="jot", text=text))
    context.progress(f"jotted {text}")
    return "jotted"


@tool
def fail() -> str:
    """Fail."""
    raise RuntimeError("failed")


class Unending:
    """Streams a word and the items that it was given, and then never ends."""

    def __init__(self, *items: Any) -> None:
        self.items = items
        self.is_asked = asyncio.Event()

    async def generate(self, request: ModelRequest, emit: Any) -> ModelResponse:
        emit(TextDelta("Let "))
        for item in self.items:
            emit(item)
        self.is_asked.set()
        await asyncio.Event().wait()
        raise AssertionError


# --- Promise 7: the session is known first ------------------------------------


async def test_promise_7_the_first_item_names_the_session_before_the_model_is_called(
    sessions: SessionStore, restarted: Restart
) -> None:
    is_known = asyncio.Event()

    async def wait(context: ExecutionContext, request: ModelRequest) -> None:
        await is_known.wait()

    model = ScriptedModel(["Hello."])
    agent = Agent(model, session_manager=sessions, before_llm_callbacks=[wait])

    async with asyncio.timeout(20), agent.stream("Hi.", session_id="ada") as stream:
        first = await anext(stream)
        log = (await stored(restarted())).events
        requests = [*model.requests]
        is_known.set()
        rest = [item async for item in stream]

    assert isinstance(first, SessionOpened)
    assert first.session_id == "ada"
    assert first.execution_id == stream.result.context.execution_id
    assert words(log) == ["user: Hi."]
    assert requests == []
    assert not any(isinstance(item, SessionOpened) for item in rest)


async def test_promise_7_it_is_the_first_item_without_input_as_well(
    sessions: SessionStore,
) -> None:
    model = ScriptedModel([VendorError(), "Hello."])
    agent = Agent(model, session_manager=sessions)
    with pytest.raises(VendorError):
        await agent.run("Hi.", session_id="ada")
    items: list[Any] = []

    await watched(agent.stream(session_id="ada"), items)

    assert isinstance(items[0], SessionOpened)
    assert words(item for item in items if isinstance(item, Event)) == [
        "assistant: Hello."
    ]


async def test_promise_7_without_a_session_nothing_is_stored_and_the_id_is_none() -> (
    None
):
    agent = Agent(ScriptedModel(["Hello."]))
    items: list[Any] = []

    await watched(agent.stream("Hi."), items)

    assert items[0].session_id is None
    assert {item.execution_id for item in items if isinstance(item, Event)} == {
        items[0].execution_id
    }


async def test_promise_7_a_run_that_cannot_start_names_no_session(
    sessions: SessionStore,
) -> None:
    agent = Agent(ScriptedModel([]), session_manager=sessions)
    items: list[Any] = []

    with pytest.raises(NothingToContinueError):
        await watched(agent.stream(session_id="ada"), items)

    assert items == []


# --- Promise 8: what was streamed is what is stored ---------------------------

TEXTS = st.text(max_size=12)
CALLS = st.one_of(
    st.builds(lambda city: call("clock", city=city), TEXTS),
    st.builds(lambda text: call("jot", text=text), TEXTS),
    st.sampled_from(
        [call("fail"), call("nowhere"), call("clock", city=3), call("clock", x=1)]
    ).map(lambda each: call(each.name, **each.arguments)),
    st.just("the same id").map(lambda _: ToolCall(name="clock", tool_call_id="call_0")),
    st.just("{").map(lambda text: ToolCall(name="clock", unreadable=text)),
)
SAID = st.builds(
    lambda thought, text: [Reasoning(content=thought, signature="s"), text],
    TEXTS,
    TEXTS,
)
WORK = st.builds(
    lambda said, calls: [*said, *calls], SAID, st.lists(CALLS, min_size=1, max_size=4)
)
STEPS = WORK | st.builds(
    lambda step, reason: ModelResponse(
        tuple(item for item in step if not isinstance(item, str)), stop_reason=reason
    ),
    WORK,
    st.sampled_from(["max_tokens", "end_turn"]),
)
ENDS = st.one_of(
    TEXTS,
    SAID,
    st.just([]),
    st.builds(VendorError),
    st.builds(lambda step: ModelResponse(tuple(step[2:]), stop_reason="another"), WORK),
)
RUNS = st.tuples(st.lists(STEPS, max_size=3), ENDS, st.booleans())


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@given(runs=st.lists(RUNS, min_size=1, max_size=3))
async def test_promise_8_the_events_of_the_streams_are_those_of_a_reload(
    kind: str, runs: Any
) -> None:
    """Texts, thoughts, calls side by side, notes and failures, in any order."""

    async def mark(context: ExecutionContext, event: Event) -> None:
        if event.is_reply:
            await context.record(Note(kind="mark", data={"after": event.event_id}))

    async def play(manager: SessionStore) -> list[Any]:
        items: list[Any] = []
        for number, (steps, end, marks) in enumerate(runs):
            agent = Agent(
                ScriptedModel([*steps, end]),
                tools=[clock, jot, fail],
                session_manager=manager,
                on_event=mark if marks else None,
            )
            known = len(items)
            stream = agent.stream(f"Question {number}", session_id="ada")
            if isinstance(end, VendorError):
                with pytest.raises(VendorError):
                    await watched(stream, items)
            else:
                await watched(stream, items)
            assert isinstance(items[known], SessionOpened)
        return items

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sessions.db"
        memory = InMemorySessionManager()
        if kind == "memory":
            items = await play(memory)
            log = (await stored(memory)).events
        else:
            async with SQLiteSessionManager(path, durability="normal") as manager:
                items = await play(manager)
            log = (await stored(SQLiteSessionManager(path))).events

    durable = [item for item in items if isinstance(item, Event)]
    assert durable == list(log)
    others = [item for item in items if not isinstance(item, Event)]
    assert all(isinstance(item, SessionOpened | Passing) for item in others)
    assert sum(isinstance(item, SessionOpened) for item in others) == len(runs)


async def test_promise_8_deltas_come_before_the_event_that_they_are_pieces_of() -> None:
    steps = [[Reasoning(content="Hm."), "Let me see.", call("clock")], "Noon."]
    agent = Agent(ScriptedModel(steps), tools=[clock])
    items: list[Any] = []

    await watched(agent.stream("Time?"), items)

    assert [type(item).__name__ for item in items] == [
        "SessionOpened",
        "Event",
        "ReasoningDelta",
        "TextDelta",
        "ToolInputDelta",
        "Event",
        "Event",
        "TextDelta",
        "Event",
    ]
    assert [item.text for item in items if isinstance(item, TextDelta)] == [
        "Let me see.",
        "Noon.",
    ]
    assert [item.text for item in items if isinstance(item, ToolInputDelta)] == ["{}"]


async def test_promise_8_progress_passes_and_is_not_stored(
    sessions: SessionStore,
) -> None:
    model = ScriptedModel([call("jot", text="tea"), "Done."])
    agent = Agent(model, tools=[jot], session_manager=sessions)
    items: list[Any] = []

    await watched(agent.stream("Go.", session_id="ada"), items)

    [progress] = [item for item in items if isinstance(item, Progress)]
    log = (await stored(sessions)).events
    [result] = results(log)
    assert progress == Progress("jotted tea", result.tool_call_id)
    assert "jotted tea" not in (await stored(sessions)).to_json()


async def test_promise_8_progress_of_a_sync_tool_is_shown_while_it_works() -> None:
    """It comes from another thread, and must wake the loop."""
    is_shown = threading.Event()

    @tool
    def work(context: ExecutionContext) -> str:
        """Work until somebody has seen how far it is."""
        time.sleep(0.2)  # by now the loop has nothing to do, and sleeps
        context.progress("half done")
        return "seen" if is_shown.wait(5) else "nobody looked"

    agent = Agent(ScriptedModel([call("work"), "Done."]), tools=[work])

    async with agent.stream("Go.") as stream:
        async for item in stream:
            if isinstance(item, Progress):
                is_shown.set()

    assert [r.content for r in results(stream.result.context.events)] == ["seen"]


async def test_promise_8_what_a_run_heals_before_it_starts_is_streamed_too(
    sessions: SessionStore, restarted: Restart
) -> None:
    session = await sessions.create("ada")
    said = Message(role="user", content="Time?")
    session.append(Event(author="user", content=(said,)))
    session.append(Event(author="assistant", content=(call("clock"),)))
    await sessions.save(session)
    agent = Agent(ScriptedModel(["Sorry."]), tools=[clock], session_manager=sessions)
    items: list[Any] = []

    await watched(agent.stream("What happened?", session_id="ada"), items)

    durable = [item for item in items if isinstance(item, Event)]
    assert durable == list((await stored(restarted())).events[2:])
    assert [result.status for result in results(durable)] == ["unknown"]


async def test_promise_8_the_input_is_streamed_though_a_watcher_failed_on_it(
    sessions: SessionStore,
) -> None:
    def watch(context: ExecutionContext, event: Event) -> None:
        raise LookupError

    agent = Agent(ScriptedModel([]), session_manager=sessions, on_event=watch)
    items: list[Any] = []

    with pytest.raises(LookupError):
        await watched(agent.stream("Hi.", session_id="ada"), items)

    assert isinstance(items[0], SessionOpened)
    assert items[1:] == list((await stored(sessions)).events)


async def test_promise_8_a_reply_that_broke_off_is_streamed_before_the_error(
    sessions: SessionStore,
) -> None:
    class BreaksOff:
        async def generate(self, request: ModelRequest, emit: Any) -> ModelResponse:
            emit(TextDelta("Let me see."))
            emit(Message(role="assistant", content="Let me see."))
            raise VendorError

    agent = Agent(BreaksOff(), session_manager=sessions)
    items: list[Any] = []

    with pytest.raises(VendorError):
        await watched(agent.stream("Time?", session_id="ada"), items)

    durable = [item for item in items if isinstance(item, Event)]
    assert durable == list((await stored(sessions)).events)
    assert [event.interrupted for event in durable] == [False, True]


# --- The result, and errors ---------------------------------------------------


async def test_the_result_is_there_at_the_end_and_not_before() -> None:
    may_answer = asyncio.Event()

    async def answer(request: ModelRequest) -> str:
        await may_answer.wait()
        return "Hello."

    stream = Agent(ScriptedModel([answer])).stream("Hi.")

    with pytest.raises(RuntimeError):
        _ = stream.result
    async with stream:
        await anext(stream)
        with pytest.raises(RuntimeError):
            _ = stream.result
        may_answer.set()
        async for _ in stream:
            pass
        inside = stream.result

    assert inside.output == "Hello."
    assert stream.result is inside


async def test_iterating_a_second_time_ends_at_once() -> None:
    async with Agent(ScriptedModel(["Hello."])).stream("Hi.") as stream:
        items = [item async for item in stream]

        async with asyncio.timeout(10):
            again = [item async for item in stream]

    assert len(items) > 2
    assert again == []


async def test_a_stream_that_was_not_entered_says_so() -> None:
    stream = Agent(ScriptedModel(["Hello."])).stream("Hi.")

    with pytest.raises(RuntimeError, match="async with"):
        async with asyncio.timeout(1):
            await anext(stream)


async def test_an_error_of_the_run_is_raised_from_the_iteration_behind_its_items() -> (
    None
):
    error = VendorError("overloaded")
    stream = Agent(ScriptedModel([call("clock"), error]), tools=[clock]).stream("Hi.")
    items: list[Any] = []

    with pytest.raises(VendorError) as raised:
        await watched(stream, items)

    assert raised.value is error
    assert len([item for item in items if isinstance(item, Event)]) == 3
    with pytest.raises(VendorError):
        _ = stream.result


async def test_an_error_that_was_seen_is_not_raised_again_at_the_end_of_the_block() -> (
    None
):
    async def read(stream: AgentStream) -> None:
        async for _ in stream:
            pass

    async with Agent(ScriptedModel([VendorError()])).stream("Hi.") as stream:
        with pytest.raises(VendorError):
            await read(stream)


async def leave_unread(stream: AgentStream, error: Exception | None = None) -> None:
    """Enter the block, and leave it after the end of the run."""
    async with stream:
        await anext(stream)
        await run_ended()
        if error is not None:
            raise error


async def test_an_error_that_nobody_saw_is_raised_at_the_end_of_the_block() -> None:
    error = VendorError("overloaded")
    stream = Agent(ScriptedModel([error])).stream("Hi.")

    with pytest.raises(VendorError) as raised:
        await leave_unread(stream)

    assert raised.value is error


async def test_an_error_of_the_block_counts_for_more_than_one_of_the_run() -> None:
    stream = Agent(ScriptedModel([VendorError()])).stream("Hi.")

    with pytest.raises(LookupError):
        await leave_unread(stream, LookupError())


async def test_blank_input_is_refused_before_anything_is_stored(
    sessions: SessionStore,
) -> None:
    agent = Agent(ScriptedModel([]), session_manager=sessions)

    with pytest.raises(ValueError, match="blank"):
        await watched(agent.stream(" ", session_id="ada"), [])

    assert await sessions.list() == []


async def test_a_stream_that_is_never_entered_starts_nothing(
    sessions: SessionStore,
) -> None:
    model = ScriptedModel([])

    Agent(model, session_manager=sessions).stream("Hi.", session_id="ada")
    await asyncio.sleep(0)

    assert model.requests == []
    assert await sessions.list() == []


async def test_a_stream_on_a_session_at_work_is_refused(sessions: SessionStore) -> None:
    agent = Agent(Unending(), session_manager=sessions)
    items: list[Any] = []

    async with agent.stream("One.", session_id="ada") as stream:
        await anext(stream)
        with pytest.raises(SessionBusyError):
            await watched(agent.stream("Two.", session_id="ada"), items)

    assert items == []
    assert words((await stored(sessions)).events) == ["user: One."]


# --- O18: the tab is closed in the middle of the answer -----------------------


async def leave_by_break(agent: Agent) -> None:
    async with agent.stream("Hi.", session_id="ada") as stream:
        async for item in stream:
            if isinstance(item, TextDelta):
                break


async def leave_at_once(agent: Agent) -> None:
    async with agent.stream("Hi.", session_id="ada") as stream:
        await anext(stream)


async def watch_until_text(agent: Agent, and_then: Callable[[], None]) -> None:
    async with agent.stream("Hi.", session_id="ada") as stream:
        async for item in stream:
            if isinstance(item, TextDelta):
                and_then()


async def leave_by_error(agent: Agent) -> None:
    def disconnect() -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        await watch_until_text(agent, disconnect)


async def leave_by_cancel(agent: Agent) -> None:
    consumer = asyncio.create_task(watched(agent.stream("Hi.", session_id="ada"), []))
    assert isinstance(agent.model, Unending)
    await agent.model.is_asked.wait()
    consumer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await consumer


async def leave_by_timeout(agent: Agent) -> None:
    limit = asyncio.timeout(None)

    async def watch() -> None:
        async with limit:
            now = asyncio.get_running_loop().time()
            await watch_until_text(agent, lambda: limit.reschedule(now))

    with pytest.raises(TimeoutError):
        await watch()


async def cancel_a_run(agent: Agent) -> None:
    run = asyncio.create_task(agent.run("Hi.", session_id="ada"))
    assert isinstance(agent.model, Unending)
    await agent.model.is_asked.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run


@pytest.fixture(
    params=[
        leave_by_break,
        leave_at_once,
        leave_by_error,
        leave_by_cancel,
        leave_by_timeout,
        cancel_a_run,
    ],
    ids=lambda function: function.__name__,
)
def leave(request: pytest.FixtureRequest) -> Callable[[Agent], Any]:
    """Each way to stop listening in the middle of the answer."""
    found: Callable[[Agent], Any] = request.param
    return found


async def test_o18_the_message_is_kept_once_and_the_next_turn_works(
    sessions: SessionStore, restarted: Restart, leave: Callable[[Agent], Any]
) -> None:
    await leave(Agent(Unending(), session_manager=sessions))

    assert words((await stored(restarted())).events) == ["user: Hi."]

    model = ScriptedModel(["Here I am."])
    agent = Agent(model, session_manager=restarted())
    await agent.run("continue", session_id="ada")

    [turn] = model.requests[0].turns
    assert [getattr(item, "content", None) for item in turn.content] == [
        "Hi.",
        "continue",
    ]
    assert words((await stored(restarted())).events) == [
        "user: Hi.",
        "user: continue",
        "assistant: Here I am.",
    ]


async def test_o18_the_session_is_released_at_once_and_goes_on_without_input(
    sessions: SessionStore, leave: Callable[[Agent], Any]
) -> None:
    await leave(Agent(Unending(), session_manager=sessions))

    agent = Agent(ScriptedModel(["Hello."]), session_manager=sessions)
    result = await agent.run(session_id="ada")

    assert result.output == "Hello."
    assert words((await stored(sessions)).events) == ["user: Hi.", "assistant: Hello."]


async def test_o18_what_was_whole_of_the_answer_is_kept_and_marked(
    sessions: SessionStore, restarted: Restart
) -> None:
    said = Message(role="assistant", content="Let me see.")
    await leave_by_break(Agent(Unending(said), session_manager=sessions))
    log = (await stored(restarted())).events
    interrupted = [event.interrupted for event in log]

    model = ScriptedModel(["Noon."])
    agent = Agent(model, session_manager=restarted())
    await agent.run("continue", session_id="ada")

    if len(interrupted) == 2:  # else the tab was closed before the item was whole
        assert interrupted == [False, True]
        roles = [turn.role for turn in model.requests[0].turns]
        assert roles == ["user", "assistant", "user"]
    users = [w for w in words((await stored(restarted())).events) if "user" in w]
    assert users == ["user: Hi.", "user: continue"]


async def test_leaving_while_a_tool_works_answers_its_call(
    sessions: SessionStore, restarted: Restart
) -> None:
    entered = asyncio.Event()

    @tool
    async def work() -> None:
        """Work for ever."""
        entered.set()
        await asyncio.Event().wait()

    model = ScriptedModel([[call("work"), call("clock")], "Sorry."])
    agent = Agent(model, tools=[work, clock], session_manager=sessions)

    async with agent.stream("Go.", session_id="ada"):
        await entered.wait()

    log = (await stored(restarted())).events
    statuses = {result.name: result.status for result in results(log)}
    assert statuses["work"] == "cancelled"
    assert len(results(log)) == 2
    assert (await agent.run(session_id="ada")).output == "Sorry."


async def test_leaving_is_bounded_in_time_though_a_tool_does_not_let_go() -> None:
    entered, release = asyncio.Event(), asyncio.Event()

    @tool
    async def stubborn() -> None:
        """Do not let go."""
        entered.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    agent = Agent(ScriptedModel([call("stubborn")]), tools=[stubborn])

    async with agent.stream("Go."):
        await entered.wait()
        started = time.monotonic()

    assert time.monotonic() - started < 10
    release.set()
    await run_ended()


async def test_a_cancel_while_the_block_is_left_still_releases_the_session(
    sessions: SessionStore,
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

    model = ScriptedModel([call("tidy"), "Sorry."])
    agent = Agent(model, tools=[tidy], session_manager=sessions)
    consumer = asyncio.create_task(watched(agent.stream("Go.", session_id="ada"), []))
    await entered.wait()
    consumer.cancel()
    await tidying.wait()
    consumer.cancel()
    await asyncio.sleep(0)
    release.set()
    await asyncio.wait([consumer])

    assert consumer.cancelled()
    assert (await agent.run(session_id="ada")).output == "Sorry."


async def test_leaving_after_the_end_cancels_nothing(sessions: SessionStore) -> None:
    agent = Agent(ScriptedModel(["Hello."]), session_manager=sessions)

    async with agent.stream("Hi.", session_id="ada") as stream:
        async for _ in stream:
            pass

    assert stream.result.output == "Hello."
    assert words((await stored(sessions)).events) == ["user: Hi.", "assistant: Hello."]


async def test_a_run_that_is_done_when_the_block_is_left_unread_keeps_its_result(
    sessions: SessionStore,
) -> None:
    agent = Agent(ScriptedModel(["Hello."]), session_manager=sessions)

    async with agent.stream("Hi.", session_id="ada") as stream:
        await run_ended()

    assert stream.result.output == "Hello."
