"""Checkpoints, forks and rewinds, on shipped stores and on a reader's own manager."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from taste.solution import JsonFileSessionManager

from minagent import (
    Agent,
    AlreadyDecidedError,
    Event,
    ExecutionContext,
    InMemorySessionManager,
    Message,
    ModelRequest,
    Note,
    NothingToUndoError,
    Session,
    SessionBusyError,
    SessionExistsError,
    SessionManager,
    SessionNotFoundError,
    SessionStore,
    ToolCall,
    ToolResult,
    UnknownEventError,
    pending_tool_calls,
    tool,
)
from minagent.cards import MessageCard, cards
from minagent.marks import REDACTION, REWIND, current, is_mark
from minagent.models import OfflineModel, ScriptedModel
from minagent.stores import BlobSessionManager, FolderStorage, SQLiteSessionManager
from minagent.timetravel import (
    checkpoint,
    checkpoints,
    fork,
    list_checkpoints,
    rewind,
    undo,
)


@pytest.fixture(params=["memory", "sqlite", "folder", "json"])
async def sessions(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[SessionManager]:
    match request.param:
        case "memory":
            yield InMemorySessionManager()
        case "json":
            (tmp_path / "json").mkdir()
            yield JsonFileSessionManager(tmp_path / "json")
        case "folder":
            async with BlobSessionManager(FolderStorage(tmp_path / "folder")) as store:
                yield store
        case _:
            async with SQLiteSessionManager(tmp_path / "sessions.db") as store:
                yield store


async def stored(sessions: SessionManager, session_id: str = "ada") -> Session:
    session = await sessions.get(session_id)
    assert session is not None
    return session


def texts(events: Sequence[Event]) -> list[str]:
    """What is said in a log as it counts."""
    items = [item for event in current(events) for item in event.content]
    return [item.content for item in items if isinstance(item, Message)]


async def talked(sessions: SessionManager, *turns: tuple[str, str]) -> Agent:
    """Have a conversation "ada" of these questions and answers."""
    model = ScriptedModel([answer for _, answer in turns])
    agent = Agent(model=model, session_manager=sessions)
    for question, _ in turns:
        await agent.run(question, session_id="ada", user_id="ada@example.org")
    return agent


class Desk:
    """An agent whose tool counts what it sent; each call needs a yes."""

    def __init__(self, sessions: SessionManager, *steps: object) -> None:
        self.sent: list[str] = []

        @tool(requires_confirmation=True)
        def send(to: str) -> str:
            """Send it."""
            self.sent.append(to)
            return f"sent to {to}"

        self.agent = Agent(
            model=ScriptedModel(list(steps)), session_manager=sessions, tools=[send]
        )


SEND = ToolCall(name="send", arguments={"to": "bob"}, tool_call_id="call_send")


# --- Going back ---------------------------------------------------------------


async def test_after_an_undo_the_model_is_not_shown_the_turn(
    sessions: SessionManager,
) -> None:
    await talked(sessions, ("I am Ada.", "Hello."), ("I like tea.", "Noted."))

    await undo(sessions, "ada")

    model = ScriptedModel(["Yes?"])
    await Agent(model=model, session_manager=sessions).run("Well?", session_id="ada")
    said = [i for turn in model.requests[0].turns for i in turn.content]
    assert [i.content for i in said if isinstance(i, Message)] == [
        "I am Ada.",
        "Hello.",
        "Well?",
    ]


async def test_an_undo_erases_nothing(sessions: SessionManager) -> None:
    await talked(sessions, ("I am Ada.", "Hello."))
    before = (await stored(sessions)).events

    after = await undo(sessions, "ada")

    assert after.events[: len(before)] == tuple(before)
    assert texts(after.events) == []


async def test_every_undo_goes_back_one_turn_until_none_is_left(
    sessions: SessionManager,
) -> None:
    await talked(sessions, ("one", "1"), ("two", "2"), ("three", "3"))

    left = [texts((await undo(sessions, "ada")).events) for _ in range(3)]

    assert left == [["one", "1", "two", "2"], ["one", "1"], []]
    with pytest.raises(NothingToUndoError, match="'ada'"):
        await undo(sessions, "ada")


async def test_a_reminder_that_a_run_records_begins_no_turn(
    sessions: SessionManager,
) -> None:
    async def remind(context: ExecutionContext, request: ModelRequest) -> None:
        await context.record(Message(role="user", content="(Be brief.)"))

    agent = Agent(
        model=ScriptedModel(["1"]),
        session_manager=sessions,
        before_llm_callbacks=[remind],
    )
    await agent.run("one", session_id="ada")

    session = await undo(sessions, "ada")

    assert texts(session.events) == []


async def test_a_rewind_also_goes_forward_to_what_was_left(
    sessions: SessionManager,
) -> None:
    await talked(sessions, ("one", "1"), ("two", "2"))
    end = (await stored(sessions)).events[-1].event_id
    await undo(sessions, "ada")
    await undo(sessions, "ada")

    await rewind(sessions, "ada", to=end)

    assert texts((await stored(sessions)).events) == ["one", "1", "two", "2"]


async def test_a_conversation_goes_on_from_where_it_was_rewound_to(
    sessions: SessionManager,
) -> None:
    await talked(sessions, ("one", "1"), ("two", "2"))
    asked = (await stored(sessions)).events[2].event_id
    await rewind(sessions, "ada", to=asked)

    agent = Agent(model=ScriptedModel(["better"]), session_manager=sessions)
    result = await agent.run(session_id="ada")

    assert result.output == "better"
    assert texts((await stored(sessions)).events) == ["one", "1", "two", "better"]


async def test_what_does_not_count_is_not_drawn(sessions: SessionManager) -> None:
    await talked(sessions, ("one", "1"), ("two", "2"))

    session = await undo(sessions, "ada")

    drawn = [card.text for card in cards(session.events) if type(card) is MessageCard]
    assert drawn == ["one", "1"]


async def test_a_rewind_to_what_is_not_there_changes_nothing(
    sessions: SessionManager,
) -> None:
    await talked(sessions, ("one", "1"))
    version = (await stored(sessions)).version

    with pytest.raises(UnknownEventError, match="no event 'nowhere'"):
        await rewind(sessions, "ada", to="nowhere")
    with pytest.raises(SessionNotFoundError, match="'bob'"):
        await rewind(sessions, "bob", to=None)
    with pytest.raises(SessionNotFoundError, match="'bob'"):
        await undo(sessions, "bob")

    assert (await stored(sessions)).version == version


async def test_nobody_rewinds_under_a_run_of_the_same_manager(
    sessions: SessionManager,
) -> None:
    refused: list[type[Exception]] = []

    async def meddle(context: ExecutionContext, event: Event) -> None:
        for attempt in (undo(sessions, "ada"), rewind(sessions, "ada", to=None)):
            try:
                await attempt
            except SessionBusyError as error:
                refused.append(type(error))

    agent = Agent(
        model=ScriptedModel(["Hi."]), session_manager=sessions, on_event=meddle
    )
    await agent.run("Hello", session_id="ada")

    assert refused == [SessionBusyError] * 4


async def test_a_rewind_that_meets_another_writer_goes_back_from_there(
    sessions: SessionManager,
) -> None:
    await talked(sessions, ("one", "1"))
    first = (await stored(sessions)).events[0].event_id

    class Busy(SessionManager):
        meddled = False

        async def create(self, session_id: str, user_id: str | None = None) -> Session:
            return await sessions.create(session_id, user_id)

        async def get(self, session_id: str) -> Session | None:
            return await sessions.get(session_id)

        async def save(self, session: Session) -> None:
            if not self.meddled:
                self.meddled = True
                other = await stored(sessions)
                other.append(Event(author="x", content=(Note(kind="x"),)))
                await sessions.save(other)
            await sessions.save(session)

    await rewind(Busy(), "ada", to=first)

    assert texts((await stored(sessions)).events) == ["one"]


# --- What tools did -----------------------------------------------------------


async def test_what_ran_has_run_and_its_result_is_taken_along(
    sessions: SessionManager,
) -> None:
    desk = Desk(sessions, SEND, "done", "again")
    paused = await desk.agent.run("Send it", session_id="ada")
    yes = paused.pending_tool_calls[0].approve()
    await desk.agent.run(session_id="ada", tool_confirmations=[yes])
    reply = next(e for e in (await stored(sessions)).events if e.tool_calls)

    await rewind(sessions, "ada", to=reply.event_id)
    result = await desk.agent.run(session_id="ada")

    assert result.output == "again"
    assert desk.sent == ["bob"]
    [known] = [
        item
        for event in current(result.context.session.events)
        for item in event.content
        if isinstance(item, ToolResult)
    ]
    assert (known.content, known.status) == ("sent to bob", "success")


async def test_a_question_is_closed_when_its_call_does_not_count_any_more(
    sessions: SessionManager,
) -> None:
    desk = Desk(sessions, SEND)
    paused = await desk.agent.run("Send it", session_id="ada")

    session = await undo(sessions, "ada")

    assert pending_tool_calls(session) == ()
    yes = paused.pending_tool_calls[0].approve()
    with pytest.raises(AlreadyDecidedError):
        await desk.agent.run(session_id="ada", tool_confirmations=[yes])
    assert desk.sent == []


async def test_a_question_waits_on_where_its_call_still_counts(
    sessions: SessionManager,
) -> None:
    desk = Desk(sessions, SEND, "done")
    paused = await desk.agent.run("Send it", session_id="ada")
    last = (await stored(sessions)).events[-1].event_id

    session = await rewind(sessions, "ada", to=last)
    yes = pending_tool_calls(session)[0].approve()
    await desk.agent.run(session_id="ada", tool_confirmations=[yes])

    assert session.state.keys() == {"pending_tool_calls"}
    assert pending_tool_calls(session) == paused.pending_tool_calls
    assert desk.sent == ["bob"]


async def test_no_rewind_lets_one_approval_run_twice(sessions: SessionManager) -> None:
    desk = Desk(sessions, SEND, "done", "again", "and again")
    paused = await desk.agent.run("Send it", session_id="ada")
    asked = (await stored(sessions)).events[-1].event_id
    yes = paused.pending_tool_calls[0].approve()
    await desk.agent.run(session_id="ada", tool_confirmations=[yes])

    await undo(sessions, "ada")
    await rewind(sessions, "ada", to=asked)
    with pytest.raises(AlreadyDecidedError):
        await desk.agent.run(session_id="ada", tool_confirmations=[yes])
    await desk.agent.run(session_id="ada")

    assert desk.sent == ["bob"]


# --- Checkpoints --------------------------------------------------------------


async def test_a_rewind_to_a_checkpoint_brings_its_state_back(
    sessions: SessionManager,
) -> None:
    names: list[str] = []

    @tool
    async def count(context: ExecutionContext) -> str:
        """Count."""
        context.state["count"] = context.state.get("count", 0) + 1
        context.state["seen"] = [*context.state.get("seen", []), context.state["count"]]
        names.append(await checkpoint(context, f"count {context.state['count']}"))
        return "counted"

    call = ToolCall(name="count")
    agent = Agent(
        model=ScriptedModel([call, "1", call, "2"]),
        session_manager=sessions,
        tools=[count],
    )
    await agent.run("Count", session_id="ada")
    await agent.run("Count", session_id="ada")

    session = await rewind(sessions, "ada", to=names[0])

    assert session.state == {"count": 1, "seen": [1]}
    assert (await stored(sessions)).state == {"count": 1, "seen": [1]}
    assert [each.label for each in list_checkpoints(session)] == ["count 1", "count 2"]


async def test_checkpoints_stand_behind_each_answer_so_undo_restores_the_state(
    sessions: SessionManager,
) -> None:
    @tool
    def note(context: ExecutionContext, text: str) -> str:
        """Note it."""
        context.state["note"] = text
        return "noted"

    steps = [ToolCall(name="note", arguments={"text": t}) for t in ("tea", "coffee")]
    agent = Agent(
        model=ScriptedModel([steps[0], "ok", steps[1], "ok"]),
        session_manager=sessions,
        tools=[note],
        on_event=checkpoints(label="turn"),
    )
    await agent.run("tea", session_id="ada")
    await agent.run("coffee", session_id="ada")

    session = await undo(sessions, "ada")

    assert session.state == {"note": "tea"}
    assert [each.label for each in list_checkpoints(session)] == ["turn", "turn"]


async def test_a_checkpoint_is_not_shown_to_the_model(sessions: SessionManager) -> None:
    model = ScriptedModel(["Hi.", "Hi again."])
    agent = Agent(model=model, session_manager=sessions, on_event=checkpoints())
    await agent.run("Hello", session_id="ada")

    await agent.run("Hello again", session_id="ada")

    assert len(model.requests[1].turns) == 3


async def test_a_checkpoint_keeps_no_question(sessions: SessionManager) -> None:
    desk = Desk(sessions, SEND)
    desk.agent.on_event = checkpoints(when=lambda _, event: bool(event.tool_calls))
    await desk.agent.run("Send it", session_id="ada")
    session = await stored(sessions)
    [kept] = list_checkpoints(session)

    rewound = await rewind(sessions, "ada", to=kept.event_id)

    [event] = [e for e in rewound.events if e.event_id == kept.event_id]
    assert "bob" not in event.to_json()
    assert len(pending_tool_calls(rewound)) == 1


# --- Forks --------------------------------------------------------------------


async def test_a_fork_is_a_conversation_of_its_own(sessions: SessionManager) -> None:
    agent = Agent(model=OfflineModel(), session_manager=sessions)
    await agent.run("My name is Ada.", session_id="ada")

    await fork(sessions, "ada", "ada-2")
    await agent.run("My name is Grace.", session_id="ada-2")

    first = await agent.run("What is my name?", session_id="ada")
    second = await agent.run("What is my name?", session_id="ada-2")
    assert ("Ada" in first.output, "Grace" in second.output) == (True, True)


async def test_a_fork_may_begin_as_it_stood_at_any_event(
    sessions: SessionManager,
) -> None:
    await talked(sessions, ("one", "1"), ("two", "2"))
    log = (await stored(sessions)).events
    await undo(sessions, "ada")

    copy = await fork(sessions, "ada", "ada-2", at=log[2].event_id)

    assert texts(copy.events) == ["one", "1", "two"]
    assert texts((await stored(sessions, "ada-2")).events) == ["one", "1", "two"]
    assert texts((await stored(sessions)).events) == ["one", "1"]


async def test_a_fork_has_the_owner_of_its_source_or_the_one_named(
    sessions: SessionManager,
) -> None:
    await talked(sessions, ("one", "1"))

    mine = await fork(sessions, "ada", "ada-2")
    hers = await fork(sessions, "ada", "grace", user_id="grace@example.org")

    assert mine.user_id == "ada@example.org"
    assert hers.user_id == "grace@example.org"


async def test_a_fork_has_a_state_of_its_own(sessions: SessionManager) -> None:
    session = await sessions.create("ada")
    session.state["list"] = [1]
    await sessions.save(session)

    copy = await fork(sessions, "ada", "ada-2")
    copy.state["list"].append(2)
    await sessions.save(copy)

    assert (await stored(sessions)).state == {"list": [1]}
    assert (await stored(sessions, "ada-2")).state == {"list": [1, 2]}


async def test_a_fork_asks_no_question_again(sessions: SessionManager) -> None:
    desk = Desk(sessions, SEND, "in the copy", "done")
    paused = await desk.agent.run("Send it", session_id="ada")
    yes = paused.pending_tool_calls[0].approve()

    copy = await fork(sessions, "ada", "ada-2")
    assert pending_tool_calls(copy) == ()
    with pytest.raises(AlreadyDecidedError):
        await desk.agent.run(session_id="ada-2", tool_confirmations=[yes])
    await desk.agent.run(session_id="ada-2")
    assert desk.sent == []

    await desk.agent.run(session_id="ada", tool_confirmations=[yes])
    assert desk.sent == ["bob"]


async def test_a_fork_to_a_taken_id_or_from_nothing_is_refused(
    sessions: SessionManager,
) -> None:
    await talked(sessions, ("one", "1"))

    with pytest.raises(SessionExistsError, match="'ada'"):
        await fork(sessions, "ada", "ada")
    with pytest.raises(SessionNotFoundError, match="'bob'"):
        await fork(sessions, "bob", "bob-2")
    with pytest.raises(UnknownEventError, match="'nowhere'"):
        await fork(sessions, "ada", "ada-2", at="nowhere")
    assert await sessions.get("ada-2") is None


async def test_a_fork_does_not_bring_redacted_words_back(
    sessions: SessionManager,
) -> None:
    await talked(sessions, ("SECRET", "1"), ("two", "2"))
    session = await stored(sessions)
    first, second = session.events[0].event_id, session.events[2].event_id
    data = {"event_id": first, "text": "[removed]"}
    session.append(Event(author="ada", content=(Note(kind=REDACTION, data=data),)))
    await sessions.save(session)

    copy = await fork(sessions, "ada", "ada-2", at=second)
    back = await rewind(sessions, "ada", to=second)

    assert texts(copy.events) == texts(back.events) == ["[removed]", "1", "two"]
    assert "SECRET" not in (await stored(sessions, "ada-2")).to_json()
    assert "SECRET" not in (await stored(sessions)).to_json()


@pytest.mark.parametrize("author", ["tools", REWIND])
async def test_a_redaction_finds_the_words_in_each_copy_that_a_rewind_made(
    sessions: SessionManager, author: str
) -> None:
    """Two results in one event have a copy each; the words of either are in three."""
    if not isinstance(sessions, SessionStore):
        return
    asks = Event(
        author="clerk",
        content=(ToolCall(name="look", tool_call_id=each) for each in ("c1", "c2")),
    )
    gives = Event(
        author="tools",
        content=(
            ToolResult(tool_call_id=each, name="look", content=f"SECRET {each}")
            for each in ("c1", "c2")
        ),
    )
    session = await sessions.create("ada")
    session.append(asks, gives)
    await sessions.save(session)
    session = await rewind(sessions, "ada", to=asks.event_id)
    given = [
        e for e in session.events if e.author == author and not is_mark(*e.content[:1])
    ]

    await sessions.redact("ada", given[0].event_id, "[removed]")

    assert "SECRET" not in (await stored(sessions)).to_json()
