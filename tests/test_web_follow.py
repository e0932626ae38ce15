"""Following a session: what is seen live is what is stored, whoever comes and goes."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from approving import Clock
from hypothesis import given, settings
from hypothesis import strategies as st
from serving import (
    Client,
    Frame,
    Frames,
    events_in,
    names,
    parsed,
    served,
    text_in,
    visited,
)

from minagent import (
    Agent,
    ExecutionContext,
    InMemorySessionManager,
    Message,
    ModelRequest,
    ModelResponse,
    Reasoning,
    Session,
    SessionOpened,
    TextDelta,
    ToolCall,
    tool,
)
from minagent.context import Progress
from minagent.memory import InMemoryMemoryManager, Memory
from minagent.model import Emit
from minagent.models import ScriptedModel
from minagent.stores import SQLiteSessionManager
from minagent.timetravel import undo
from minagent.web import create_app, follow
from minagent.web.follow import Follower
from minagent.web.runs import Ended, Run, Watcher

pytestmark = pytest.mark.heavy


class Paced:
    """A model that says each piece when the test puts it in; None ends the reply."""

    def __init__(self) -> None:
        self.pieces: asyncio.Queue[str | None] = asyncio.Queue()

    async def generate(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        text = ""
        while (piece := await self.pieces.get()) is not None:
            emit(TextDelta(piece))
            text += piece
            self.pieces.task_done()
        return ModelResponse((Message(role="assistant", content=text),))

    def say(self, *pieces: str | None) -> None:
        for piece in pieces:
            self.pieces.put_nowait(piece)


@asynccontextmanager
async def paced(**options: Any) -> AsyncIterator[tuple[Paced, Client, str]]:
    """A model to pace, a client, and a session."""
    model = Paced()
    async with visited(create_app(Agent(model), **options)) as client:
        yield model, client, await client.new()


@asynccontextmanager
async def speaking(client: Client, session: str) -> AsyncIterator[Frames]:
    """A run that has begun."""
    async with client.shown(f"{session}/messages", {"text": "Hi."}) as frames:
        await frames.until("event")
        yield frames


async def begun(client: Client, session: str) -> None:
    """Start a run that nobody watches yet."""
    as_json = {"Accept": "application/json"}
    path, body = f"{session}/messages", {"text": "Hi."}
    assert (await client.post(path, json=body, headers=as_json)).status_code == 202


def redrawn(cards: list[Any], frames: Sequence[Frame]) -> list[Any]:
    """Apply to a page's cards what a stream says of changes."""
    for data in (each.data for each in frames if each.name == "cards"):
        gone = [card["key"] for card in cards] if data["anew"] else data["gone"]
        cards = [card for card in cards if card["key"] not in gone]
        for change in data["changed"]:
            key = change["card"]["key"]
            cards = [card for card in cards if card["key"] != key]
            cards.insert(change["at"], change["card"])
    return cards


# --- Live ---------------------------------------------------------------------


async def test_two_who_follow_see_the_same_as_who_asked() -> None:
    async with (
        paced() as (model, client, session),
        client.following(session) as one,
        client.following(session) as two,
    ):
        async with speaking(client, session) as asked:
            model.say("Hel", "lo", None)
            shown = await asked.until("ended")
        seen = [await each.until("ended") for each in (one, two)]

    for frames in (shown, *seen):
        assert text_in(frames) == "Hello"
        assert frames[-1] == shown[-1]
    assert events_in(seen[0]) == events_in(seen[1])
    assert events_in(seen[0])[-1] == events_in(shown)[-1]


async def test_the_runs_of_a_session_are_seen_one_after_the_other() -> None:
    async with paced() as (model, client, session):
        model.say("One.", None, "Two.", None)
        async with client.following(session) as frames:
            await client.say(session, "First?")
            await client.say(session, "Second?")

            seen = await frames.until("ended", 2)

    kept = [name for name in names(seen) if name in ("opened", "ended")]
    assert kept == ["opened", "ended"] * 2
    assert text_in(seen) == "One.Two."


async def test_a_run_has_ended_for_all_before_the_next_one_begins() -> None:
    entered, go = asyncio.Event(), asyncio.Event()

    class Slow(InMemoryMemoryManager):
        async def add_session(self, session: Session, **_: Any) -> list[Memory]:
            entered.set()
            await go.wait()
            return []

    async with (
        paced(memory=Slow()) as (model, client, session),
        client.following(session) as frames,
    ):
        model.say("One.", None, "Two.", None)
        await begun(client, session)
        await entered.wait()  # the session is free, but the run has not ended yet

        second = asyncio.create_task(client.say(session, "And?"))
        while len((await client.whole(session))["events"]) < 3:
            pass
        go.set()
        seen = await frames.until("ended", 2)
        await second

    kept = [name for name in names(seen) if name in ("opened", "ended")]
    assert kept == ["opened", "ended"] * 2


async def test_what_is_overdue_is_seen_by_all_when_somebody_decides_too_late() -> None:
    @tool(requires_confirmation=True, expires_in=timedelta(minutes=5))
    async def remove(path: str) -> str:
        """Remove a file."""
        return "removed"

    call = ToolCall(name="remove", tool_call_id="c1", arguments={"path": "a.md"})
    clock = Clock()
    agent = Agent(ScriptedModel([call]), tools=[remove], clock=clock)
    async with visited(create_app(agent, poll_seconds=None)) as client:
        session = await client.new()
        async with client.following(session) as other:
            await client.say(session, "Remove it.")
            clock.forward(minutes=6)
            answer = await client.approve(session)

            seen = await other.until("event", 3)

    assert answer.status_code == 409
    assert events_in(seen)[-1]["content"][0]["status"] == "expired"


async def test_what_one_tab_decides_the_other_shows() -> None:
    @tool(requires_confirmation=True)
    async def remove(path: str) -> str:
        """Remove a file."""
        return "removed"

    call = ToolCall(name="remove", tool_call_id="c1", arguments={"path": "a.md"})
    model = ScriptedModel([call, "Done."])
    async with visited(create_app(Agent(model, tools=[remove]))) as client:
        session = await client.new()
        async with client.following(session, cards="true") as other:
            await client.say(session, "Remove it.")
            before = await other.until("ended")
            await client.approve(session)
            after = await other.until("ended")
        whole = await client.whole(session)

    asked = redrawn([], before)
    assert [card["type"] for card in asked] == ["message", "tool"]
    assert asked[-1]["status"] == "pending"
    assert redrawn(asked, after) == whole["cards"]
    assert [card["type"] for card in whole["cards"]] == ["message", "tool", "message"]
    assert whole["cards"][1]["status"] == "success"


async def test_the_reply_that_cards_hold_is_closed_by_them() -> None:
    async with (
        paced() as (model, client, session),
        client.following(session, cards="true") as frames,
    ):
        await begun(client, session)
        model.say("Hello.")
        opening = await frames.until("delta")
        model.say(None)
        closing = await frames.until("ended")

    drawn = [each.data["closes_reply"] for each in opening if each.name == "cards"]
    assert drawn == [False]
    [cards] = [each.data for each in closing if each.name == "cards"]
    assert cards["closes_reply"] is True
    assert [each["card"]["text"] for each in cards["changed"]] == ["Hello."]
    assert names(closing) == ["cards", "event", "ended"]


async def test_another_process_is_followed_through_the_store(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    agent = Agent(ScriptedModel([]), session_manager=SQLiteSessionManager(path))
    app = create_app(agent, poll_seconds=0.05)
    async with visited(app) as client:
        session = await client.new()
        async with client.following(session, cards="true") as frames:
            elsewhere = Agent(
                ScriptedModel(["Hello."]), session_manager=SQLiteSessionManager(path)
            )
            await elsewhere.run("Hi.", session_id=session.rpartition("/")[2])

            seen = await frames.until("event", 2)
        whole = await client.whole(session)

    assert events_in(seen) == whole["events"]
    assert redrawn([], seen) == whole["cards"]


async def test_a_rewind_takes_cards_away() -> None:
    store = InMemorySessionManager()
    agent = Agent(ScriptedModel(["Hello."]), session_manager=store)
    async with visited(create_app(agent, poll_seconds=0.05)) as client:
        session = await client.new()
        async with client.following(session, cards="true") as frames:
            await client.say(session, "Hi.")
            seen = await frames.until("ended")
            await undo(store, session.rpartition("/")[2])
            seen += await frames.until("event")

    assert len(redrawn([], seen[:-2])) == 2
    assert redrawn([], seen) == []


async def test_a_quiet_stream_says_now_and_then_that_it_lives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(follow, "QUIET_SECONDS", 0.05)
    async with (
        paced(poll_seconds=None) as (_, client, session),
        client.stream("GET", f"{session}/follow") as response,
    ):
        first = await anext(response.aiter_lines())

    assert first == ":"


# --- Gone, and back -----------------------------------------------------------


async def test_who_leaves_and_comes_back_misses_nothing_and_sees_nothing_twice() -> (
    None
):
    async with paced() as (model, client, session):
        async with client.shown(f"{session}/messages", {"text": "Hi."}) as asked:
            model.say("Hel")
            left = await asked.until("delta")
        last = left[-2].event_id

        model.say("lo", ", ")
        await model.pieces.join()
        async with client.following(session, last=last) as frames:
            back = await frames.until("delta")
            model.say("you", None)
            back += await frames.until("ended")
        whole = await client.whole(session)

    assert names(left) == ["opened", "event", "delta"]
    assert names(back) == ["opened", "delta", "delta", "event", "ended"]
    assert back[1].data == {"kind": "text", "text": "Hello, "}
    assert events_in(left) + events_in(back) == whole["events"]
    assert whole["cards"][-1]["text"] == text_in(back) == "Hello, you"


async def test_a_client_that_has_gone_does_not_take_the_run_with_it() -> None:
    async with paced() as (model, client, session):
        async with speaking(client, session):
            pass

        async with client.following(session) as frames:
            model.say("Hello.", None)
            seen = await frames.until("ended")

    assert seen[-1].data["status"] == "complete"


async def test_a_run_can_be_made_to_end_with_its_last_client() -> None:
    async with paced(on_disconnect="cancel") as (model, client, session):
        async with client.following(session) as follower:
            async with speaking(client, session):
                pass
            model.say("Hel")
            await follower.until("delta")  # it goes on: one is left

        while (whole := await client.whole(session))["running"]:
            pass

    assert [card["text"] for card in whole["cards"]] == ["Hi."]


async def test_a_run_that_nobody_watches_yet_goes_on_in_any_case() -> None:
    async with paced(on_disconnect="cancel") as (model, client, session):
        await begun(client, session)
        model.say("Hello.", None)

        async with client.following(session) as frames:
            await frames.until("event", 2)


async def test_a_page_that_comes_back_redraws_its_cards() -> None:
    async with paced() as (model, client, session):
        await begun(client, session)
        page = await client.whole(session)
        last = page["events"][-1]["event_id"]
        model.say("Hello.", None)
        async with client.following(session) as frames:
            await frames.until("event", 2)

        async with client.following(session, after=last, cards="true") as frames:
            back = await frames.until("event")
        whole = await client.whole(session)

    assert redrawn(page["cards"], back) == whole["cards"]


async def test_a_page_that_comes_back_after_a_rewind_takes_cards_away() -> None:
    store = InMemorySessionManager()
    agent = Agent(ScriptedModel(["Hello."]), session_manager=store)
    async with visited(create_app(agent)) as client:
        session = await client.new()
        await client.say(session, "Hi.")
        page = await client.whole(session)
        last = page["events"][-1]["event_id"]
        await undo(store, session.rpartition("/")[2])

        async with client.following(session, last=last, cards="true") as frames:
            back = await frames.until("event")

    assert redrawn(page["cards"], back) == []


async def test_a_page_that_comes_back_after_a_redaction_has_no_word_left() -> None:
    store = InMemorySessionManager()
    thought = Reasoning(content="A secret.")
    model = ScriptedModel([[thought, "It is safe."]])
    async with visited(create_app(Agent(model, session_manager=store))) as client:
        session = await client.new()
        await client.say(session, "My secret.")
        page = await client.whole(session)
        first, *_, last = [event["event_id"] for event in page["events"]]
        await store.redact(session.rpartition("/")[2], first, "[gone]")

        async with client.following(session, last=last, cards="true") as frames:
            back = await frames.until("event")
        whole = await client.whole(session)

    assert redrawn(page["cards"], back) == whole["cards"]
    assert "secret" not in str(redrawn(page["cards"], back))


async def test_who_comes_later_is_told_the_last_progress_of_open_calls() -> None:
    go, asked_again, answer = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @tool
    async def climb(context: ExecutionContext) -> str:
        """Climb a hill."""
        context.progress("at the foot")
        context.progress("half way up")
        await go.wait()
        return "on top"

    async def last(request: ModelRequest) -> str:
        asked_again.set()
        await answer.wait()
        return "Done."

    model = ScriptedModel([["Up!", ToolCall(name="climb", tool_call_id="c1")], last])
    async with visited(create_app(Agent(model, tools=[climb]))) as client:
        session = await client.new()
        async with client.shown(f"{session}/messages", {"text": "Up."}) as asked:
            await asked.until("progress", 2)
        async with client.following(session) as frames:
            during = await frames.until("progress")
        go.set()
        await asked_again.wait()
        async with client.following(session) as frames:
            after = await frames.until("event", 3)
            answer.set()
            after += await frames.until("ended")

    assert names(during) == ["opened", "event", "event", "progress"]
    assert during[-1].data["text"] == "half way up"
    assert names(after) == ["opened", *["event"] * 3, "delta", "event", "ended"]


async def test_a_place_that_is_not_in_the_log_is_refused() -> None:
    async with paced() as (_, client, session):
        answer = await client.get(
            f"{session}/follow", headers={"Last-Event-ID": "elsewhere"}
        )

    assert answer.status_code == 404
    assert answer.json()["error"]["type"] == "UnknownEventError"


# --- What is stored is ahead of what passes -------------------------------------


async def test_deltas_of_a_reply_that_was_sent_whole_are_left_out() -> None:
    """A look at the store may find the reply before its last deltas have come."""
    store = InMemorySessionManager()
    result = await Agent(ScriptedModel(["Hello."]), session_manager=store).run(
        "Hi.", session_id="s"
    )
    session = await store.get("s")
    assert session is not None
    said, replied = session.events
    run = Run("s")
    run.execution_id = result.context.execution_id
    for passed in (said, TextDelta("Hel")):
        run.take(passed)
    watcher = Watcher("s", run)
    ended = Ended(execution_id=run.execution_id, status="complete")
    stale = (TextDelta("lo."), Progress("half", "c1"))
    for item in (*stale, replied, TextDelta("Next"), ended):
        watcher.put(item)
    watcher.put(SessionOpened("s", "another"))

    frames = Follower(store, watcher, session, 0, poll_seconds=None).frames()
    text = b"".join([await anext(frames) for _ in range(6)]).decode()
    await frames.aclose()

    seen = parsed(text)
    assert names(seen) == ["opened", "event", "event", "delta", "ended", "opened"]
    assert text_in(seen) == "Next"


async def test_deltas_of_a_reply_that_cards_show_whole_are_left_out() -> None:
    store = InMemorySessionManager()
    result = await Agent(ScriptedModel(["Hello."]), session_manager=store).run(
        "Hi.", session_id="s"
    )
    session = await store.get("s")
    assert session is not None
    said, replied = session.events
    run = Run("s")
    run.execution_id = result.context.execution_id
    watcher = Watcher("s", run)
    ended = Ended(execution_id=run.execution_id, status="complete")
    for item in (said, TextDelta("Hello."), replied, ended):
        watcher.put(item)

    follower = Follower(
        store, watcher, session, 0, with_cards=True, until=run.execution_id
    )
    seen = parsed(b"".join([each async for each in follower.frames()]).decode())

    assert names(seen) == ["opened", "cards", "event", "event", "ended"]


async def test_the_same_holds_for_who_had_the_reply_before_and_came_back() -> None:
    store = InMemorySessionManager()
    result = await Agent(ScriptedModel(["Hello."]), session_manager=store).run(
        "Hi.", session_id="s"
    )
    session = await store.get("s")
    assert session is not None
    said, replied = session.events
    run = Run("s")
    run.execution_id = result.context.execution_id
    for passed in (said, TextDelta("Hel")):
        run.take(passed)
    watcher = Watcher("s", run)
    for item in (TextDelta("lo."), replied, Progress("half", "c1")):
        watcher.put(item)

    frames = Follower(store, watcher, session, 2, poll_seconds=None).frames()
    seen = parsed(b"".join([await anext(frames) for _ in range(2)]).decode())
    await frames.aclose()

    assert names(seen) == ["opened", "progress"]


async def test_a_slow_client_keeps_one_delta_for_each_part() -> None:
    watcher = Watcher("s")
    for _ in range(1_000):
        watcher.put(TextDelta("x"))

    [joined] = await watcher.items(1)

    assert joined == TextDelta("x" * 1_000)


# --- Promise 8, for any run -----------------------------------------------------


@tool
async def look(n: int, context: ExecutionContext) -> str:
    """Look at a page."""
    context.progress(f"looking at {n}")
    return f"page {n}"


@tool
async def fail() -> str:
    """Fail."""
    raise OSError("no such page")


@tool(requires_confirmation=True)
async def remove(n: int) -> str:
    """Remove a page."""
    return f"removed {n}"


@dataclass
class Scripts:
    """A model that plays, for each thing that a user says, a script of its own."""

    scripts: dict[str, list[Any]] = field(default_factory=dict)

    async def generate(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        said = [
            item.content
            for event in request.events
            for item in event.content
            if isinstance(item, Message) and item.content in self.scripts
        ]
        script = self.scripts[said[-1]]
        reply = script.pop(0) if script else "Done."
        return await ScriptedModel([reply]).generate(request, emit)


@pytest.fixture(scope="module")
def everything() -> Iterator[tuple[Scripts, str]]:
    """A server in a thread, for tests that cannot await one."""
    scripts, ready, ended = Scripts(), threading.Event(), asyncio.Event()
    agent = Agent(scripts, tools=[look, fail, remove])
    where: list[Any] = []

    async def serve() -> None:
        async with served(create_app(agent)) as url:
            where.extend([url, asyncio.get_running_loop()])
            ready.set()
            await ended.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(20)
    yield scripts, where[0]
    where[1].call_soon_threadsafe(ended.set)
    thread.join()


texts = st.sampled_from(["Hello.", "", " ", "two\nlines", "🙂", "id: 1\n\n"])
calls = st.builds(
    ToolCall,
    name=st.sampled_from(["look", "look", "remove", "fail", "nothing"]),
    arguments=st.just({"n": 1}) | st.just({}),
)
items = texts | calls | st.builds(Reasoning, content=texts)
replies = st.lists(items, min_size=1, max_size=3) | st.just(RuntimeError("down"))
turns = st.lists(
    st.lists(replies, max_size=3) | st.sampled_from(["approve", "deny", "come back"]),
    max_size=4,
)


def taken(url: str, scripts: Scripts, turns: list[Any]) -> None:
    """Take turns in a session, and compare what is seen with what is read."""
    with httpx2.Client(base_url=url, timeout=20, verify=False) as client:
        made = client.post("/api/sessions").json()["session_id"]
        session, shown = f"/api/sessions/{made}", list[Frame]()
        followed, cards = list[Frame](), list[Any]()
        for turn in [*turns, "come back"]:
            whole = client.get(session).json()
            if turn == "come back":
                back = seen_since(client, session, followed, whole["events"])
                followed += back
                cards = redrawn(cards, back)
                assert cards == whole["cards"]
            elif isinstance(turn, list):
                text = f"say {uuid4()}"
                scripts.scripts[text] = list(turn)
                answer = client.post(f"{session}/messages", json={"text": text})
                shown += parsed(answer.text)
            elif whole["pending"]:
                keys = ("tool_call_id", "fingerprint")
                asked = whole["pending"][0]
                decision = {"verdict": turn} | {key: asked[key] for key in keys}
                answer = client.post(
                    f"{session}/decisions", json={"decisions": [decision]}
                )
                shown += parsed(answer.text)
        events = client.get(session).json()["events"]

    assert events_in(shown) == events
    assert events_in(followed) == events


def seen_since(
    client: httpx2.Client, session: str, before: list[Frame], events: list[Any]
) -> list[Frame]:
    """What a page sees that comes back, up to the last event."""
    missing = len(events) - len(events_in(before))
    if not missing:
        return []
    last = [each.event_id for each in before if each.event_id]
    headers = {"Last-Event-ID": last[-1]} if last else {}
    text = ""
    path = f"{session}/follow?cards=true"
    with client.stream("GET", path, headers=headers) as response:
        for piece in response.iter_text():
            text += piece
            if len(events_in(parsed(text.rpartition("\n\n")[0]))) == missing:
                return parsed(text)
    raise AssertionError("the stream ended too early")


@settings(max_examples=settings().max_examples // 4)
@given(turns=turns)
def test_promise_8_what_is_streamed_is_what_is_read_for_any_run(
    everything: tuple[Scripts, str], turns: list[Any]
) -> None:
    scripts, url = everything

    taken(url, scripts, turns)
