"""Sessions over HTTP: made, listed, read, spoken to, decided, cancelled, deleted."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from approving import Clock
from serving import (
    Client,
    called,
    events_in,
    names,
    parsed,
    served,
    text_in,
    user_of,
    visited,
)

from minagent import (
    Agent,
    Event,
    ExecutionContext,
    InMemorySessionManager,
    Message,
    Note,
    Reasoning,
    Session,
    SessionManager,
    Tool,
    ToolCall,
    tool,
)
from minagent.errors import StoreUnavailableError
from minagent.memory import InMemoryMemoryManager, recall
from minagent.models import ScriptedModel
from minagent.multiagent import GraphBuilder, GraphRun, delegate
from minagent.stores import SQLiteSessionManager
from minagent.web import create_app


def remover(ran: list[str], **options: Any) -> Tool[..., Any]:
    @tool(requires_confirmation=True, **options)
    async def remove(path: str) -> str:
        """Remove a file."""
        ran.append(path)
        return f"removed {path}"

    return remove


REMOVE = ToolCall(name="remove", tool_call_id="c1", arguments={"path": "a.md"})


@asynccontextmanager
async def chat(
    *steps: Any, real: bool = False, **options: Any
) -> AsyncIterator[Client]:
    """A client of an agent that says these things; on a real socket, to see it live."""
    app_options = {
        key: options.pop(key) for key in ("memory", "poll_seconds") if key in options
    }
    app = create_app(Agent(ScriptedModel(steps), **options), **app_options)
    async with visited(app) if real else called(app) as client:
        yield client


# --- Made, listed, read -------------------------------------------------------


async def test_a_new_session_has_an_id_of_the_server_and_is_empty() -> None:
    async with chat() as client:
        session = await client.new()

        whole = await client.whole(session)

    assert whole["session_id"] == session.rpartition("/")[2]
    assert whole["events"] == whole["cards"] == whole["pending"] == []
    assert (whole["user_id"], whole["running"]) == ("you", False)


async def test_two_sessions_have_two_ids() -> None:
    async with chat() as client:
        assert await client.new() != await client.new()


async def test_the_list_comes_in_pages_with_first_words() -> None:
    async with chat(*["Yes."] * 3) as client:
        made = [await client.new() for _ in range(3)]
        for number, session in enumerate(made):
            await client.say(session, f"Question\n{number}")

        first = (await client.get("/api/sessions?limit=2")).json()
        second = (await client.get(f"/api/sessions?after={first['next']}")).json()

    shown = first["sessions"] + second["sessions"]
    assert [{*each} for each in shown] == [{*first["sessions"][0]}] * 3
    assert [f"/api/sessions/{each['session_id']}" for each in shown] == made
    assert [each["title"] for each in shown] == [f"Question {n}" for n in range(3)]
    assert len(first["sessions"]) == 2
    assert second["next"] is None


async def test_a_title_is_not_kept_longer_than_the_words_that_it_quotes() -> None:
    store = InMemorySessionManager()
    async with chat("Yes.", session_manager=store) as client:
        session = await client.new()
        [_, said, *_] = await client.say(session, "My secret")
        session_id = session.rpartition("/")[2]
        before = (await client.get("/api/sessions")).json()["sessions"][0]["title"]

        await store.redact(session_id, said.data["event_id"], "(removed)")

        after = (await client.get("/api/sessions")).json()["sessions"][0]["title"]
    assert (before, after) == ("My secret", "(removed)")


async def test_reading_a_session_gives_cards_with_all_keys() -> None:
    model = [Reasoning(content="Hm."), "It is ", "noon."]
    async with chat(model) as client:
        session = await client.new()
        await client.say(session, "What time is it?")

        found = (await client.whole(session))["cards"]

    assert [(card["type"], card["text"]) for card in found] == [
        ("message", "What time is it?"),
        ("reasoning", "Hm."),
        ("message", "It is noon."),
    ]
    assert {"key", "event_ids", "author", "role", "text", "media", "type"} == {
        *found[0]
    }


async def test_who_asks_is_told_who_that_is() -> None:
    async with chat(name="Mina") as client:
        answer = await client.get("/api/me")

    assert answer.json() == {"user_id": "you", "agent": "Mina"}


# --- A run that is shown ------------------------------------------------------


async def test_promise_7_a_run_is_shown_from_opened_to_ended() -> None:
    async with chat([Reasoning(content="Hm."), "Hello."]) as client:
        session = await client.new()

        frames = await client.say(session, "Hi.")

        whole = await client.whole(session)
    assert names(frames) == ["opened", "event", "delta", "delta", "event", "ended"]
    assert frames[0].data["session_id"] == whole["session_id"]
    assert text_in(frames) == "Hello."
    assert frames[-1].data["status"] == "complete"
    assert frames[-1].data["stop_reason"] == "end_turn"


async def test_promise_8_the_events_shown_are_those_that_are_read() -> None:
    async with chat("Hello.") as client:
        session = await client.new()

        frames = await client.say(session, "Hi.")

        assert events_in(frames) == (await client.whole(session))["events"]
    shown = [each for each in frames if each.name == "event"]
    assert [each.event_id for each in shown] == [
        e["event_id"] for e in events_in(frames)
    ]


async def test_what_passes_has_no_id() -> None:
    async with chat("Hello.") as client:
        frames = await client.say(await client.new(), "Hi.")

    assert {each.name for each in frames if each.event_id is None} == {
        "opened",
        "delta",
        "ended",
    }


async def test_progress_of_a_tool_is_shown() -> None:
    @tool
    async def climb(context: ExecutionContext) -> str:
        """Climb a hill."""
        context.progress("half way up")
        return "on top"

    call = ToolCall(name="climb", tool_call_id="c1")
    async with chat(call, "Done.", tools=[climb]) as client:
        frames = await client.say(await client.new(), "Climb.")

    [progress] = [each.data for each in frames if each.name == "progress"]
    assert progress == {"text": "half way up", "tool_call_id": "c1"}


async def test_half_an_emoji_in_a_delta_is_whole_when_they_are_joined() -> None:
    class Halves:
        async def generate(self, request: Any, emit: Any) -> Any:
            from minagent import ModelResponse, TextDelta

            for text in ("Hi \ud83d", "\ude42"):
                emit(TextDelta(text))
                await asyncio.sleep(0)
            return ModelResponse((Message(role="assistant", content="Hi 🙂"),))

    async with called(create_app(Agent(Halves()))) as client:
        frames = await client.say(await client.new(), "Hi.")

    joined = text_in(frames).encode("utf-16", "surrogatepass").decode("utf-16")
    assert joined == "Hi 🙂"


async def test_words_that_look_like_frames_stay_words() -> None:
    forged = 'x\n\nid: forged\nevent: ended\ndata: {"status": "complete"}\r\n\r\n'
    async with chat(forged) as client:
        frames = await client.say(await client.new(), forged)

    assert names(frames) == ["opened", "event", "delta", "event", "ended"]
    assert text_in(frames) == forged


async def test_an_id_that_would_break_a_frame_is_left_out() -> None:
    async def odd(context: ExecutionContext, request: Any) -> None:
        note = Note(kind="mark")
        if context.step == 1:
            event = Event(author="hand", content=(note,), event_id="a\ndata: {}\n\n")
            await context.commit(event)

    async with chat("Hello.", before_llm_callbacks=[odd]) as client:
        frames = await client.say(await client.new(), "Hi.")

    assert names(frames) == ["opened", "event", "event", "delta", "event", "ended"]
    assert frames[2].event_id is None


async def test_who_asks_for_json_gets_the_id_of_the_run_at_once() -> None:
    go = asyncio.Event()

    async def wait(request: Any) -> str:
        await go.wait()
        return "Hello."

    async with chat(wait, real=True) as client:
        session = await client.new()

        answer = await client.post(
            f"{session}/messages",
            json={"text": "Hi."},
            headers={"Accept": "application/json"},
        )

        during = await client.whole(session)
        go.set()
        async with client.following(session) as frames:
            shown = await frames.until("ended")
    assert answer.status_code == 202
    assert answer.json()["execution_id"] == shown[0].data["execution_id"]
    assert [card["text"] for card in during["cards"]] == ["Hi."]
    assert during["running"] is True


async def test_a_model_that_fails_ends_the_run_and_tells_nothing_of_the_server() -> (
    None
):
    async with chat(RuntimeError("key sk-123 in /etc/passwd")) as client:
        session = await client.new()

        frames = await client.say(session, "Hi.")

        events = (await client.whole(session))["events"]
    assert frames[-1].data["status"] == "failed"
    assert frames[-1].data["error"]["type"] == "InternalError"
    assert "sk-123" not in str(frames)
    assert events == events_in(frames)


async def test_which_node_of_a_graph_has_failed_is_told() -> None:
    def fails(run: GraphRun) -> str:
        raise ValueError("no such town")

    graph = GraphBuilder().add_node("look", fails).build()
    async with called(create_app(graph)) as client:
        frames = await client.say(await client.new(), "Hi.")

    error = frames[-1].data["error"]
    assert error["type"] == "NodeFailedError"
    assert "'look'" in error["message"]


async def test_without_a_text_the_run_goes_on_from_where_it_failed() -> None:
    async with chat(RuntimeError("down"), "Hello.") as client:
        session = await client.new()
        await client.say(session, "Hi.")

        frames = await client.say(session, None)

        whole = await client.whole(session)
    assert frames[-1].data["status"] == "complete"
    assert [card["text"] for card in whole["cards"]] == ["Hi.", "Hello."]


async def test_where_nothing_is_open_there_is_nothing_to_go_on_from() -> None:
    async with chat() as client:
        session = await client.new()

        answer = await client.post(f"{session}/messages", json={})

    assert answer.status_code == 409
    assert answer.json()["error"]["type"] == "NothingToContinueError"


async def test_a_second_message_during_a_run_is_refused_and_not_stored() -> None:
    go = asyncio.Event()

    async def wait(request: Any) -> str:
        await go.wait()
        return "Hello."

    async with chat(wait, real=True) as client:
        session = await client.new()
        async with client.shown(f"{session}/messages", {"text": "Hi."}) as frames:
            await frames.until("event")

            answer = await client.post(f"{session}/messages", json={"text": "And?"})

            go.set()
            await frames.until("ended")
        events = (await client.whole(session))["events"]
    assert answer.status_code == 409
    assert answer.json()["error"]["type"] == "SessionBusyError"
    assert len(events) == 2


# --- Approval -----------------------------------------------------------------


async def test_a_question_is_in_the_end_of_the_run_and_in_the_session() -> None:
    async with chat(REMOVE, tools=[remover([])]) as client:
        session = await client.new()

        ended = (await client.say(session, "Remove it."))[-1].data

        whole = await client.whole(session)
    assert ended["status"] == "pending_confirmation"
    assert ended["pending"] == whole["pending"]
    assert (whole["waiting"], whole["cards"][-1]["status"]) == (1, "pending")
    assert whole["cards"][-1]["pending"] == whole["pending"]


async def test_who_approves_is_in_the_log_and_the_run_is_shown() -> None:
    ran: list[str] = []
    async with chat(REMOVE, "Done.", tools=[remover(ran)]) as client:
        session = await client.new()
        await client.say(session, "Remove it.")

        frames = parsed((await client.approve(session)).text)

        card = (await client.whole(session))["cards"][1]
    assert ran == ["a.md"]
    assert names(frames) == ["opened", "event", "event", "delta", "event", "ended"]
    assert card["decisions"][0]["verdict"] == "approved"
    assert card["decisions"][0]["by"] == "you"


@pytest.mark.parametrize(
    ("decision", "expected", "effect"),
    [
        ({"verdict": "approve", "arguments": {"path": "b.md"}}, "success", ["b.md"]),
        ({"verdict": "deny", "reason": "no"}, "denied", []),
        ({"verdict": "answer", "answer": "gone already"}, "success", []),
    ],
)
async def test_a_call_can_be_edited_denied_or_answered(
    decision: dict[str, Any], expected: str, effect: list[str]
) -> None:
    ran: list[str] = []
    async with chat(REMOVE, "Done.", tools=[remover(ran)]) as client:
        session = await client.new()
        ended = (await client.say(session, "Remove it."))[-1].data

        answer = await client.decide(session, ended["pending"][0], **decision)

        card = (await client.whole(session))["cards"][1]
    assert answer.status_code == 200
    assert (card["status"], ran) == (expected, effect)


async def test_promise_21_a_double_click_approves_once() -> None:
    ran: list[str] = []
    async with chat(REMOVE, "Done.", tools=[remover(ran)]) as client:
        session = await client.new()
        await client.say(session, "Remove it.")

        answers = await asyncio.gather(client.approve(session), client.approve(session))

    answers.sort(key=lambda each: each.status_code)
    assert [each.status_code for each in answers] == [200, 409]
    assert answers[1].json()["error"]["type"] == "AlreadyDecidedError"
    assert ran == ["a.md"]


async def test_a_decision_after_the_deadline_is_refused_and_closes_the_call() -> None:
    clock, ran = Clock(), list[str]()
    slow = remover(ran, expires_in=timedelta(minutes=5))
    async with chat(REMOVE, tools=[slow], clock=clock) as client:
        session = await client.new()
        await client.say(session, "Remove it.")
        clock.forward(minutes=6)

        answer = await client.approve(session)

        card = (await client.whole(session))["cards"][1]
    assert answer.status_code == 409
    assert answer.json()["error"]["type"] == "ApprovalExpiredError"
    assert (card["status"], ran) == ("expired", [])


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"fingerprint": "0" * 64}, "FingerprintError"),
        ({"tool_call_id": "c9"}, "UnknownCallError"),
        ({"path": ["c9"]}, "UnknownCallError"),
        ({"arguments": {"path": 7}}, "InvalidArgumentsError"),
    ],
)
async def test_a_decision_that_cannot_be_taken_is_a_conflict_with_a_name(
    change: dict[str, Any], expected: str
) -> None:
    async with chat(REMOVE, tools=[remover([])]) as client:
        session = await client.new()
        ended = (await client.say(session, "Remove it."))[-1].data
        asked = {**ended["pending"][0], **change}
        more = {key: x for key, x in change.items() if key == "arguments"}

        answer = await client.decide(session, asked, verdict="approve", **more)

        pending = (await client.whole(session))["pending"]
    assert (answer.status_code, answer.json()["error"]["type"]) == (409, expected)
    assert pending == ended["pending"]


async def test_a_question_of_an_agent_inside_is_decided_in_the_outer_session() -> None:
    ran: list[str] = []
    inside = Agent(ScriptedModel([REMOVE, "Removed."]), tools=[remover(ran)])
    helper = delegate(inside, name="helper", description="Removes files.")
    task = ToolCall(name="helper", tool_call_id="h1", arguments={"task": "Remove it."})
    async with chat(task, "Done.", tools=[helper]) as client:
        session = await client.new()
        [asked] = (await client.say(session, "Remove it."))[-1].data["pending"]

        answer = await client.approve(session)

        whole = await client.whole(session)
        listed = (await client.get("/api/sessions")).json()["sessions"]
    assert (asked["path"], answer.status_code, ran) == (["h1"], 200, ["a.md"])
    assert whole["cards"][-1]["text"] == "Done."
    assert len(listed) == 1  # the session inside is the agent's, and not shown


async def test_a_server_that_was_restarted_takes_the_decision(tmp_path: Path) -> None:
    ran: list[str] = []

    def started(*steps: Any, instructions: str) -> Agent:
        store = SQLiteSessionManager(tmp_path / "chat.db")
        return Agent(
            ScriptedModel(steps),
            tools=[remover(ran)],
            session_manager=store,
            instructions=instructions,
        )

    async with called(create_app(started(REMOVE, instructions="Old."))) as client:
        session = await client.new()
        await client.say(session, "Remove it.")
    agent = started("Done.", instructions="New.")
    async with called(create_app(agent)) as client:
        answer = await client.approve(session)

        cards = (await client.whole(session))["cards"]

    assert answer.status_code == 200
    assert [card["type"] for card in cards] == ["message", "tool", "message"]
    assert ran == ["a.md"]
    # The system prompt is never stored, so it cannot go stale.
    assert isinstance(agent.model, ScriptedModel)
    assert [each.instructions for each in agent.model.requests] == ["New."]


# --- Cancel, delete, fork -----------------------------------------------------


async def test_a_run_that_is_cancelled_leaves_a_log_that_goes_on() -> None:
    started = asyncio.Event()

    @tool(repeatable=True)
    async def wait() -> str:
        """Wait for ever."""
        started.set()
        await asyncio.Event().wait()
        return "never"

    call = ToolCall(name="wait", tool_call_id="c1")
    async with chat(call, "Hello.", tools=[wait], real=True) as client:
        session = await client.new()
        async with client.shown(f"{session}/messages", {"text": "Hi."}) as frames:
            await started.wait()

            answer = await client.post(f"{session}/cancel")

            shown = await frames.until("ended")
        whole = await client.whole(session)
        after = await client.say(session, "Still there?")
    assert answer.json() == {"cancelled": True}
    assert shown[-1].data["status"] == "cancelled"
    assert events_in(shown) == whole["events"]
    assert whole["cards"][-1]["status"] == "cancelled"
    assert after[-1].data["status"] == "complete"


async def test_cancelling_where_nothing_runs_is_harmless() -> None:
    async with chat() as client:
        answer = await client.post(f"{await client.new()}/cancel")

    assert answer.json() == {"cancelled": False}


async def test_what_was_remembered_of_a_deleted_session_is_forgotten() -> None:
    memory = InMemoryMemoryManager()
    async with chat("I see.", "So do I.", memory=memory) as client:
        deleted, kept = await client.new(), await client.new()
        await client.say(deleted, "I like figs.")
        await client.say(kept, "I like plums.")

        await client.delete(deleted)

    left = await memory.list_memories(user_id="you")
    assert {each.session_id for each in left} == {kept.rpartition("/")[2]}


async def test_a_session_is_deleted_only_once_it_is_forgotten() -> None:
    class Away(InMemoryMemoryManager):
        is_away = True

        async def forget(self, *, user_id: str, session_id: str | None = None) -> int:
            if self.is_away:
                raise StoreUnavailableError(place="memory.db", problem="is locked")
            return await super().forget(user_id=user_id, session_id=session_id)

    memory = Away()
    async with chat("I see.", memory=memory) as client:
        session = await client.new()
        await client.say(session, "I like figs.")

        failed = await client.delete(session)
        memory.is_away = False
        done = await client.delete(session)

    assert (failed.status_code, done.status_code) == (503, 204)
    assert await memory.list_memories(user_id="you") == []


async def test_a_session_deleted_while_a_message_is_on_its_way_stays_deleted() -> None:
    async with chat("Hello.", real=True) as client:
        session = await client.new()

        async def slowly() -> AsyncIterator[bytes]:
            yield b'{"text": '
            assert (await client.delete(session)).status_code == 204
            yield b'"Hi."}'

        as_json = {"Content-Type": "application/json"}
        answer = await client.post(
            f"{session}/messages", content=slowly(), headers=as_json
        )

        assert answer.status_code == 404
        assert (await client.get(session)).status_code == 404


async def test_a_deleted_session_is_gone_also_while_it_runs() -> None:
    async def wait(request: Any) -> str:
        await asyncio.Event().wait()
        return "never"

    async with chat(wait, real=True, poll_seconds=None) as client:
        session = await client.new()
        async with (
            client.following(session) as followed,
            client.shown(f"{session}/messages", {"text": "Hi."}) as frames,
        ):
            await frames.until("event")

            answer = await client.delete(session)

            told = names(await frames.until("ended"))
            seen = names(await followed.until("deleted"))
        again = await client.get(session)
        listed = (await client.get("/api/sessions")).json()["sessions"]
    assert (answer.status_code, again.status_code, listed) == (204, 404, [])
    assert (told[-1], seen[-1]) == ("ended", "deleted")


async def test_a_fork_is_a_session_of_its_own() -> None:
    async with chat("One.", "Two.", "Other.") as client:
        session = await client.new()
        first = await client.say(session, "First?")
        await client.say(session, "Second?")

        at = events_in(first)[-1]["event_id"]
        answer = await client.post(f"{session}/fork", json={"at": at})

        copy = f"/api/sessions/{answer.json()['session_id']}"
        await client.say(copy, "Or else?")
        texts = [card["text"] for card in (await client.whole(copy))["cards"]]
        kept = [card["text"] for card in (await client.whole(session))["cards"]]
    assert answer.status_code == 201
    assert [each for each in texts if each] == ["First?", "One.", "Or else?", "Other."]
    assert kept == ["First?", "One.", "Second?", "Two."]


async def test_a_fork_at_an_event_that_is_not_there_is_refused() -> None:
    async with chat() as client:
        answer = await client.post(f"{await client.new()}/fork", json={"at": "x"})

    assert answer.status_code == 404
    assert answer.json()["error"]["type"] == "UnknownEventError"


# --- Memory -------------------------------------------------------------------


async def test_what_was_said_is_recalled_in_the_next_session_and_has_a_card() -> None:
    memory = InMemoryMemoryManager()
    options = {"memory": memory, "before_llm_callbacks": [recall(memory)]}
    async with chat("Noted.", "Ada.", **options) as client:
        await client.say(await client.new(), "My boat is called Ada.")
        session = await client.new()

        await client.say(session, "What is my boat called?")

        cards = (await client.whole(session))["cards"]
    assert [card["type"] for card in cards] == ["message", "note", "message"]
    assert cards[1]["kind"] == "recalled"
    assert "My boat is called Ada." in str(cards[1]["entries"])


async def test_a_memory_that_fails_takes_no_run_down() -> None:
    class Broken(InMemoryMemoryManager):
        async def add_session(self, session: Session, **_: Any) -> Any:
            raise OSError("no space")

    async with chat("Noted.", memory=Broken()) as client:
        frames = await client.say(await client.new(), "Hi.")

    assert frames[-1].data["status"] == "complete"


# --- Apps ---------------------------------------------------------------------


def test_a_manager_that_cannot_list_is_refused() -> None:
    class Three(SessionManager):
        create = get = save = InMemorySessionManager.create  # type: ignore[assignment]

    with pytest.raises(TypeError, match="no SessionStore"):
        create_app(Agent(ScriptedModel([]), session_manager=Three()))


def test_a_wish_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="'go_on' or 'cancel'"):
        create_app(Agent(ScriptedModel([])), on_disconnect="stop")  # type: ignore[arg-type]


async def test_a_server_that_ends_ends_runs_and_streams_and_keeps_what_is_stored(
    tmp_path: Path,
) -> None:
    async def wait(request: Any) -> str:
        await asyncio.Event().wait()
        return "never"

    agent = Agent(
        ScriptedModel([wait]),
        session_manager=SQLiteSessionManager(tmp_path / "chat.db"),
    )
    app = create_app(agent, authenticate=user_of)
    async with served(app) as url:
        client = Client(url, "ada")
        session = await client.new()
        run = client.shown(f"{session}/messages", {"text": "Hi."})
        follow = client.following(session)
        frames, followed = await run.__aenter__(), await follow.__aenter__()
        await frames.until("event")

    shown = [each async for each in frames]
    seen = [each async for each in followed]
    await client.aclose()
    stored = await SQLiteSessionManager(tmp_path / "chat.db").get(
        session.rpartition("/")[2]
    )
    assert shown[-1].data["status"] == seen[-1].data["status"] == "cancelled"
    assert stored is not None
    assert len(stored.events) == 1
