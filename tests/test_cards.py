"""What a person sees of a session: cards of a log, and their drawing as text."""

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import cycle
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import ITEMS, events_of, logs

from minagent import (
    Agent,
    ContentItem,
    Event,
    InMemorySessionManager,
    Media,
    Message,
    ModelRequest,
    ModelResponse,
    Note,
    Opaque,
    PendingToolCall,
    Reasoning,
    SessionStore,
    ToolCall,
    ToolConfirmation,
    ToolResult,
    pending_tool_calls,
    tool,
)
from minagent.cards import (
    Card,
    Decision,
    InterruptedCard,
    MessageCard,
    NoteCard,
    OpaqueCard,
    ReasoningCard,
    ToolCard,
    cards,
    render_text,
)
from minagent.events import Status, new_id
from minagent.log import EventLog
from minagent.models import ScriptedModel
from minagent.timetravel import checkpoints, fork

CAT = Media(media_type="image/png", data="aGk=")
NOW = datetime(2026, 11, 30, 16, 0, tzinfo=UTC)
any_events = st.lists(events_of(st.one_of(*ITEMS.values())), max_size=4)


def by(author: str, *items: ContentItem, **more: Any) -> Event:
    return Event(author=author, content=items, **more)


def said(text: str) -> Message:
    return Message(role="assistant", content=text)


def asked(text: str) -> Event:
    return by("user", Message(role="user", content=text))


def call(call_id: str = "c1", name: str = "look", **arguments: Any) -> ToolCall:
    return ToolCall(tool_call_id=call_id, name=name, arguments=arguments)


def result(
    call_id: str = "c1", text: str = "seen", status: Status = "success", **more: Any
) -> ToolResult:
    return ToolResult(
        tool_call_id=call_id, name="look", content=text, status=status, **more
    )


def question(call_id: str = "c1", **more: Any) -> PendingToolCall:
    fields: dict[str, Any] = {
        "tool_call_id": call_id,
        "name": "delete",
        "arguments": {"path": "old.txt"},
        "confirmation_message": "Delete old.txt?",
        "fingerprint": "f",
        "asked_at": NOW,
    }
    return PendingToolCall(**fields | more)


def recalled(*texts: str, **about: str) -> Note:
    """What `minagent.memory` stores when it recalls these texts."""
    about = {"memory_id": "m1", "date": "2026-11-30", **about}
    memories: list[Any] = [{**about, "text": text} for text in texts]
    return Note(
        kind="recalled", text="<recalled_memories>…", data={"memories": memories}
    )


def tools_in(found: Sequence[Card]) -> list[ToolCard]:
    return [card for card in found if isinstance(card, ToolCard)]


def keys(found: Sequence[Card]) -> list[str]:
    return [card.key for card in found]


# --- What was said and thought ------------------------------------------------


def test_a_question_and_its_answer_are_two_cards() -> None:
    log = [asked("Who am I?"), by("assistant", said("You are Ada."))]

    assert cards(log) == [
        MessageCard(
            f"{log[0].event_id}:0",
            (log[0].event_id,),
            "user",
            role="user",
            text="Who am I?",
        ),
        MessageCard(
            f"{log[1].event_id}:0",
            (log[1].event_id,),
            "assistant",
            role="assistant",
            text="You are Ada.",
        ),
    ]


def test_texts_of_a_reply_that_follow_each_other_are_one_card() -> None:
    log = [by("assistant", said("Rain "), said("falls."), call(), said("Look."))]

    first, _, last = cards(log)

    assert isinstance(first, MessageCard)
    assert first.text == "Rain falls."
    assert isinstance(last, MessageCard)
    assert last.text == "Look."


def test_replies_that_follow_each_other_stay_apart() -> None:
    log = [by("ann", said("Rain.")), by("bob", said("Sun."))]

    assert [card.author for card in cards(log)] == ["ann", "bob"]


def test_pictures_belong_to_the_words_before_them() -> None:
    first, second = (Message(role="user", content=text) for text in ("This?", "That?"))
    log = [by("user", first, CAT, second, CAT, CAT)]

    shown = [(card.text, card.media) for card in cards(log)]  # type: ignore[union-attr]

    assert shown == [("This?", (CAT,)), ("That?", (CAT, CAT))]


@pytest.mark.parametrize(
    ("event", "role"),
    [(by("user", CAT), "user"), (by("a", CAT, stop_reason="end_turn"), "assistant")],
)
def test_a_picture_alone_is_a_message_of_its_side(event: Event, role: str) -> None:
    [card] = cards([event])

    assert isinstance(card, MessageCard)
    assert (card.role, card.text, card.media) == (role, "", (CAT,))


def test_a_blank_text_is_no_card() -> None:
    log = [by("assistant", said(" \n"), call()), by("assistant", result())]

    assert [card.type for card in cards(log)] == ["tool"]


def test_what_a_model_thought_is_a_card() -> None:
    log = [
        by(
            "assistant",
            Reasoning(content="Hm.", signature="s"),
            Reasoning(content="", signature="s"),
            Reasoning(content="", redacted="sealed"),
        )
    ]

    found = [card for card in cards(log) if isinstance(card, ReasoningCard)]

    assert [(card.text, card.visibility) for card in found] == [
        ("Hm.", "shown"),
        ("", "hidden"),
        ("", "redacted"),
    ]


def test_a_note_is_a_card_even_if_the_model_does_not_see_it() -> None:
    log = [by("assistant", Note(kind="mine", data={"count": {"n": 1}}))]

    [card] = cards(log)

    assert isinstance(card, NoteCard)
    assert (card.kind, card.text, card.data) == ("mine", None, {"count": {"n": 1}})


def test_the_card_of_a_checkpoint_has_its_label_and_not_the_state() -> None:
    data: dict[str, Any] = {"label": "before lunch", "state": {"n": 1}}

    [card] = cards([by("checkpoint", Note(kind="checkpoint", data=data))])

    assert isinstance(card, NoteCard)
    assert (card.title, card.text, card.data) == ('"before lunch"', None, {})


def test_the_card_of_a_summary_has_its_words() -> None:
    note = Note(kind="summary", data={"up_to": "e1", "text": "Ada has a red kayak."})

    [card] = cards([by("summary", note)])

    assert isinstance(card, NoteCard)
    assert (card.entries, card.data) == (("Ada has a red kayak.",), {})


@pytest.mark.parametrize(
    ("kind", "data", "title", "entries"),
    [
        ("delegated", {"session_id": "s/a", "events": 3}, 'to "s/a"', ()),
        ("entered", {"tool_call_id": "a-1", "task": "e1"}, 'by call "a-1"', ()),
        ("again", {"nodes": ["a", "b"]}, "", ("a", "b")),
        (
            "step",
            {"followed": [[None, "a"], ["a", "b"], [1]]},
            "",
            ("-> a", "a -> b", "[1]"),
        ),
    ],
)
def test_the_notes_of_agents_that_work_together_have_words_for_people(
    kind: str, data: Any, title: str, entries: tuple[str, ...]
) -> None:
    [card] = cards([by("graph", Note(kind=kind, data=data))])

    assert isinstance(card, NoteCard)
    assert (card.title, card.entries, card.data) == (title, entries, {})


def test_the_card_of_what_was_recalled_has_words_for_people() -> None:
    [card] = cards([by("memory", recalled("My kayak is red.", author="user"))])

    assert isinstance(card, NoteCard)
    assert card.text == "<recalled_memories>…"
    assert card.entries == ("2026-11-30, user: My kayak is red.",)
    assert card.data == {}


@pytest.mark.parametrize(
    "note",
    [
        Note(kind="checkpoint", data={"state": {}}),
        Note(kind="checkpoint", data={"label": 1, "state": {}}),
        Note(kind="fork", data={"at": None}),
        Note(kind="recalled", text="<m>x</m>", data={"memory_ids": ["m1"]}),
        Note(kind="recalled", text="[redacted]"),
        Note(kind="recalled", text="x", data={"memories": []}),
        Note(kind="recalled", text="x", data={"memories": "none"}),
    ],
)
def test_a_note_of_another_form_is_shown_as_it_is(note: Note) -> None:
    [card] = cards([by("ann", note)])

    assert isinstance(card, NoteCard)
    assert (card.kind, card.text, card.data) == (note.kind, note.text, note.data)
    assert (card.title, card.entries) == ("", ())


def test_what_else_such_a_note_keeps_is_not_lost() -> None:
    data: dict[str, Any] = {"label": "a", "state": {}, "why": "lunch"}

    [card] = cards([by("checkpoint", Note(kind="checkpoint", data=data))])

    assert isinstance(card, NoteCard)
    assert card.data == {"why": "lunch"}


def test_a_block_of_an_unknown_kind_is_a_card() -> None:
    block: dict[str, Any] = {"type": "brand_new", "payload": [1]}
    log = [by("assistant", said("Hm."), Opaque(block=block))]

    _, card = cards(log)

    assert isinstance(card, OpaqueCard)
    assert card.block == block


def test_a_reply_that_broke_off_ends_in_a_mark() -> None:
    log = [by("assistant", said("It was"), interrupted=True)]

    words, mark = cards(log)

    assert isinstance(words, MessageCard)
    assert isinstance(mark, InterruptedCard)
    assert mark.event_ids == (log[0].event_id,)


# --- Calls --------------------------------------------------------------------


def test_a_result_is_folded_into_the_card_of_its_call() -> None:
    log = [
        by("assistant", said("I look."), call(path="a.txt"), call("c2")),
        by("assistant", result("c2", "second")),
        by("assistant", result(text="first", media=(CAT,), details={"rows": 3})),
        by("assistant", said("Done.")),
    ]

    _, first, second, last = cards(log)

    assert first == ToolCard(
        f"{log[0].event_id}:1",
        (log[0].event_id, log[2].event_id),
        "assistant",
        tool_call_id="c1",
        name="look",
        arguments={"path": "a.txt"},
        status="success",
        text="first",
        media=(CAT,),
        details={"rows": 3},
    )
    assert isinstance(second, ToolCard)
    assert second.text == "second"
    assert isinstance(last, MessageCard)


@pytest.mark.parametrize("status", get_args(Status))
def test_a_card_has_the_status_of_its_result(status: Status) -> None:
    log = [by("assistant", call()), by("assistant", result(status=status))]

    [card] = tools_in(cards(log))

    assert card.status == status


def test_a_call_without_a_result_is_open() -> None:
    [card] = tools_in(cards([asked("Look."), by("assistant", call())]))

    assert card.status == "open"


def test_the_outcome_is_unknown_once_the_conversation_went_on() -> None:
    log = [by("assistant", call()), asked("Hm?"), by("assistant", said("Well."))]

    [card] = tools_in(cards(log))

    assert card.status == "unknown"


def test_a_result_that_comes_late_is_shown_all_the_same() -> None:
    log = [by("assistant", call()), by("assistant", said("Well.")), by("b", result())]

    [card] = tools_in(cards(log))

    assert (card.status, card.text) == ("success", "seen")


def test_arguments_that_cannot_be_read_are_shown_as_they_came() -> None:
    log = [by("assistant", ToolCall(name="look", unreadable='{"path": "a'))]

    [card] = tools_in(cards(log))

    assert card.unreadable == '{"path": "a'


def test_a_result_without_its_call_has_a_card_of_its_own() -> None:
    log = [asked("Hm?"), by("assistant", result("lost"))]

    _, card = cards(log)

    assert isinstance(card, ToolCard)
    assert card.arguments is None
    assert (card.tool_call_id, card.name, card.text) == ("lost", "look", "seen")


def test_a_second_result_has_a_card_of_its_own() -> None:
    log = [by("assistant", call()), by("a", result()), by("a", result(text="again"))]

    first, second = tools_in(cards(log))

    assert (first.text, second.text) == ("seen", "again")


def test_an_id_that_is_used_again_means_the_later_call() -> None:
    log = [
        by("assistant", call("call_0", path="a")),
        by("assistant", call("call_0", path="b")),
        by("assistant", result("call_0")),
    ]

    first, second = tools_in(cards(log))

    assert (first.status, second.status) == ("unknown", "success")


def test_two_calls_of_one_reply_with_one_id_take_their_results_in_order() -> None:
    log = [
        by("assistant", call("call_0", path="a"), call("call_0", path="b")),
        by("assistant", result("call_0", "a"), result("call_0", "b")),
    ]

    assert [card.text for card in tools_in(cards(log))] == ["a", "b"]


# --- Questions and decisions --------------------------------------------------


def test_a_call_that_waits_shows_its_question() -> None:
    log = [by("assistant", call("c1", "delete"), call("c2"))]

    first, second = tools_in(cards(log, [question()]))

    assert (first.status, first.pending) == ("pending", (question(),))
    assert (second.status, second.pending) == ("open", ())


def test_questions_inside_a_call_stand_on_its_card() -> None:
    log = [by("assistant", call("outer", "research"))]
    inner = [question("i1", path=("outer",)), question("i2", path=("outer", "x"))]

    [card] = tools_in(cards(log, inner))

    assert (card.status, card.pending) == ("pending", tuple(inner))


def test_a_question_about_a_call_outside_the_events_can_be_seen() -> None:
    _, card = cards([asked("Hm?")], [question("long-ago")])

    assert isinstance(card, ToolCard)
    assert (card.name, card.arguments) == ("delete", {"path": "old.txt"})
    assert (card.key, card.event_ids) == ("pending:long-ago", ())
    assert card.pending == (question("long-ago"),)


def test_a_question_that_has_its_result_waits_no_more() -> None:
    log = [by("assistant", call()), by("assistant", result(status="replaced"))]

    [card] = tools_in(cards(log, [question()]))

    assert (card.status, card.pending) == ("replaced", ())


@pytest.mark.parametrize(
    ("taken", "decision"),
    [
        (question().approve(), Decision(verdict="approved")),
        (
            question().approve(by="ada", arguments={}),
            Decision(verdict="approved", by="ada", arguments={}),
        ),
        (
            question().deny("keep it", by="ada"),
            Decision(verdict="denied", by="ada", reason="keep it"),
        ),
        (
            question().answer("I did it.", by="bob"),
            Decision(verdict="answered", by="bob", answer="I did it."),
        ),
    ],
)
def test_a_decision_is_folded_into_the_card_of_its_call(
    taken: ToolConfirmation, decision: Decision
) -> None:
    log = [by("assistant", call()), by("assistant", taken), by("assistant", result())]

    [card] = tools_in(cards(log))

    assert card.decisions == (decision,)
    assert card.event_ids == tuple(event.event_id for event in log)


def test_a_decision_inside_a_call_is_folded_into_the_outer_card() -> None:
    log = [
        by("assistant", call("outer")),
        by("assistant", question("inner", path=("outer", "middle")).approve(by="ada")),
    ]

    [card] = tools_in(cards(log))

    assert card.decisions == (
        Decision(verdict="approved", by="ada", inside=("middle", "inner")),
    )


def test_a_decision_and_a_result_without_their_call_share_a_card() -> None:
    log = [by("assistant", question().approve()), by("assistant", result())]

    [card] = tools_in(cards(log))

    assert (card.name, card.text, len(card.decisions)) == ("look", "seen", 1)


# --- Any log ------------------------------------------------------------------


@given(logs | any_events)
def test_cards_keep_their_place_and_their_key_while_a_log_grows(
    log: list[Event],
) -> None:
    whole = cards(log)

    for length in range(len(log)):
        part = cards(log[:length])
        assert keys(part) == keys(whole)[: len(part)]
        assert [card.type for card in part] == [
            card.type for card in whole[: len(part)]
        ]


@given(logs | any_events)
def test_cards_of_a_log_that_grows_are_those_of_the_whole(log: list[Event]) -> None:
    growing = EventLog()

    for length, event in enumerate(log, start=1):
        growing = growing.extended([event])
        waiting = [question(each.tool_call_id) for each in tools_in(cards(growing))]
        assert cards(growing, waiting) == cards(log[:length], waiting)
        assert cards(growing) == cards(log[:length])


def test_a_longer_log_draws_only_what_is_new() -> None:
    log = EventLog([asked("Look."), by("clerk", call()), by("clerk", result())])
    before = cards(log)

    after = cards(log.extended([by("clerk", said("Seen."))]))

    assert [card in before for card in after] == [True, True, False]
    assert all(one is other for one, other in zip(before, after, strict=False))


@given(logs)
def test_no_two_cards_have_one_key(log: list[Event]) -> None:
    found = keys(cards(log))

    assert len(found) == len(set(found))


@given(logs)
def test_every_item_that_is_not_blank_stands_on_a_card(log: list[Event]) -> None:
    drawn = {event_id for card in cards(log) for event_id in card.event_ids}

    for event in log:
        shown = [i for i in event.content if not is_blank(i)]
        assert not shown or event.event_id in drawn


def is_blank(item: ContentItem) -> bool:
    return isinstance(item, Message) and not item.content.strip()


@given(logs | any_events)
def test_a_log_that_was_stored_has_the_same_cards(log: list[Event]) -> None:
    stored = [Event.from_json(event.to_json()) for event in log]

    assert cards(stored) == cards(log)


# --- Live and after a reload --------------------------------------------------


@tool
def look(path: str) -> ToolResult:
    """Look at something."""
    text = f"There is {path}."
    details: dict[str, Any] = {"path": path, "size": [1, 2.5, None]}
    return ToolResult(
        tool_call_id="", name="", content=text, details=details, media=(CAT,)
    )


@tool
def fail() -> str:
    """Fail."""
    raise RuntimeError("no\nluck")


@tool(requires_confirmation=True)
def delete(path: str = "old.txt") -> str:
    """Delete something."""
    return f"Deleted {path}."


class BreaksOff:
    """A model whose reply is cut off behind a few whole items."""

    def __init__(self, items: Iterable[ContentItem]) -> None:
        self.items = items

    async def generate(
        self, request: ModelRequest, emit: Callable[[Any], None]
    ) -> ModelResponse:
        for item in self.items:
            emit(item)
        raise ConnectionError


parts = st.sampled_from(
    [
        said("I shall see."),
        Reasoning(content="Hm.", signature="s"),
        Reasoning(content="", redacted="sealed"),
        Opaque(block={"type": "brand_new", "n": 1.0}),
        call(path="a.txt"),
        call("call_0", "missing"),
        ToolCall(name="look", arguments={"wrong": 1}),
        ToolCall(name="look", unreadable="[1]"),
        ToolCall(name="fail"),
        ToolCall(name="delete", arguments={"path": "b.txt"}),
        ToolCall(name="delete"),
    ]
)
replies = st.lists(parts, min_size=1, max_size=4)
scripts = st.lists(st.tuples(st.lists(replies, max_size=2), st.booleans()), max_size=3)
choices = st.lists(
    st.sampled_from(["approve", "edit", "deny", "answer", "wait"]), min_size=1
)


def decided(pending: PendingToolCall, choice: str) -> list[ToolConfirmation]:
    taken = {
        "approve": pending.approve(by="ada"),
        "edit": pending.approve(arguments={"path": "c.txt"}),
        "deny": pending.deny("keep it", by="ada"),
        "answer": pending.answer("Not today.", by="bob"),
    }
    return [taken[choice]] if choice in taken else []


async def watched(
    agent: Agent, *args: Any, **options: Any
) -> tuple[list[Event], Sequence[PendingToolCall]]:
    """Return the events of a stream, and the calls that wait at its end."""
    seen: list[Event] = []
    pending: Sequence[PendingToolCall] = ()
    with suppress(ConnectionError):
        async with agent.stream(*args, **options) as stream:
            async for item in stream:
                if isinstance(item, Event):
                    seen.append(item)
            pending = stream.result.pending_tool_calls
    return seen, pending


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(scripts, choices)
async def test_what_was_watched_and_what_is_reloaded_have_the_same_cards(
    sessions: SessionStore,
    restarted: Callable[[], SessionStore],
    script: list[tuple[list[list[ContentItem]], bool]],
    choices: list[str],
) -> None:
    # Promise 8
    session_id, live, decide = new_id(), list[Event](), cycle(choices)

    async def check(seen: list[Event], pending: Sequence[PendingToolCall]) -> None:
        live.extend(seen)
        session = await restarted().get(session_id)
        assert session is not None
        reloaded = cards(session.events, pending_tool_calls(session))
        assert cards(live, pending) == reloaded

    for turn, breaks_off in script:
        steps = [*turn, "Done."]
        model: Any = BreaksOff(turn[0]) if breaks_off and turn else ScriptedModel(steps)
        agent = Agent(model, tools=[look, fail, delete], session_manager=sessions)
        seen, pending = await watched(agent, "Please.", session_id=session_id)
        await check(seen, pending)
        for _ in range(3):
            taken = [t for p in pending for t in decided(p, next(decide))]
            if taken:
                seen, pending = await watched(
                    agent, session_id=session_id, tool_confirmations=taken
                )
                await check(seen, pending)


# --- Drawn as text ------------------------------------------------------------


def test_a_session_is_drawn() -> None:
    log = [
        by("user", Message(role="user", content="Please tidy up."), CAT),
        by(
            "assistant",
            Reasoning(content="The old file can go."),
            Reasoning(content="", redacted="sealed"),
            said("I tidy up."),
            call("c1", "delete", path="old.txt"),
            call("c2", "look"),
        ),
        by("assistant", result("c2", "a.txt\nb.txt", details={"files": 2})),
        by("assistant", question().approve(by="ada", arguments={"path": "a.txt"})),
        by("assistant", result("c1", "No such file.", "error")),
        by("assistant", Note(kind="memory", text="Ada is tidy.", data={"n": 1})),
        by("assistant", call("c3", "delete", path="b.txt"), call("c4", "delete")),
        by("ada", question("c4").answer("I did it.", by="ada")),
        by("assistant", result("c4", "I did it.")),
        by("assistant", Opaque(block={"type": "brand_new"}), interrupted=True),
    ]
    waiting = question(
        "c3", confirmation_message="Delete b.txt?", expires_at=NOW, path=()
    )

    assert render_text(cards(log, [waiting])) == (
        """\
user
    Please tidy up.
    [image/png, 3 bytes]

assistant thinks
    The old file can go.

assistant thinks (redacted)

assistant
    I tidy up.

assistant calls delete
    path = "old.txt"
    approved by ada, with {"path": "a.txt"} instead
    failed: No such file.

assistant calls look
    done:
      a.txt
      b.txt
    details: {"files": 2}

assistant notes memory
    Ada is tidy.
    data: {"n": 1}

assistant calls delete
    path = "b.txt"
    waits for a decision until 2026-11-30 16:00 UTC: Delete b.txt?

assistant calls delete
    answered by ada
    answer: I did it.

assistant sent brand_new, not known here
    {"type": "brand_new"}

assistant broke off here"""
    )


def test_notes_that_minagent_writes_are_drawn_for_people() -> None:
    """A checkpoint and a fork in one line; no state, no ids, no marks for models."""
    kept: dict[str, Any] = {"label": "before lunch", "state": {"n": 1}}
    unnamed: dict[str, Any] = {"label": "", "state": {"n": 1}}
    log = [
        by("memory", recalled("My kayak is red.", author="user", session="monday")),
        by("checkpoint", Note(kind="checkpoint", data=kept)),
        by("checkpoint", Note(kind="checkpoint", data=unnamed)),
        by("fork", Note(kind="fork", data={"from": "ada", "at": None})),
        by("assistant", Note(kind="invalid_output", text="No JSON.")),
    ]

    assert render_text(cards(log)) == (
        """\
memory notes recalled
    2026-11-30, user, session monday: My kayak is red.

note: checkpoint "before lunch"

note: checkpoint

note: fork of "ada"

assistant notes invalid_output
    No JSON."""
    )


async def test_checkpoints_and_forks_are_drawn_as_timetravel_stores_them() -> None:
    sessions = InMemorySessionManager()
    agent = Agent(
        ScriptedModel(["Hello."]),
        session_manager=sessions,
        on_event=checkpoints(label="hello"),
    )
    await agent.run("Hi.", session_id="ada")

    copy = await fork(sessions, "ada", "copy")

    drawn = render_text(cards(copy.events)).split("\n\n")
    assert drawn[-2:] == ['note: checkpoint "hello"', 'note: fork of "ada"']


def test_a_memory_cannot_draw_another_memory() -> None:
    text = "tea\n2026-11-30, user: I owe Eve money." + "x" * 80 + "\n2026-11-30: y"

    lines = render_text(cards([by("memory", recalled(text))])).split("\n")

    assert [line for line in lines if line.startswith("    2026")] == [
        "    2026-11-30: tea"
    ]


def test_names_in_a_note_are_quoted() -> None:
    label: dict[str, Any] = {"label": "a\nuser", "state": {}}
    log = [
        by("memory", recalled("tea", author="eve: I like", session="a\nb")),
        by("checkpoint", Note(kind="checkpoint", data=label)),
        by("fork", Note(kind="fork", data={"from": "a\nb", "at": None})),
    ]

    assert render_text(cards(log)).split("\n") == [
        "memory notes recalled",
        r'    2026-11-30, "eve: I like", session "a\nb": tea',
        "",
        r'note: checkpoint "a\nuser"',
        "",
        r'note: fork of "a\nb"',
    ]


def test_no_cards_are_no_text() -> None:
    assert render_text([]) == ""


@pytest.mark.parametrize("status", ["open", *get_args(Status)])
def test_every_status_is_put_in_words(status: Any) -> None:
    card = ToolCard("k", ("e",), "ann", tool_call_id="c", name="look", status=status)

    _, words = render_text([card]).split("\n")

    assert words.strip().isprintable()


def test_a_question_inside_a_call_is_drawn_with_its_own_arguments() -> None:
    log = [by("assistant", call("outer", "research"))]

    drawn = render_text(cards(log, [question("inner", path=("outer",))]))

    assert drawn.split("\n") == [
        "assistant calls research",
        "    inside, delete waits for a decision: Delete old.txt?",
        '    path = "old.txt"',
    ]


def test_lines_are_wrapped_between_words_and_keep_their_indentation() -> None:
    code = "Try this:\n\n    if rain:\n        stay()"
    log = [by("a", said(code)), by("b", said("one two three four five"))]

    assert render_text(cards(log), width=20).split("\n") == [
        "a",
        "    Try this:",
        "",
        "        if rain:",
        "            stay()",
        "",
        "b",
        "    one two three",
        "    four five",
    ]


def test_wide_letters_count_twice() -> None:
    drawn = render_text(cards([by("a", said("漢字" * 10))]), width=20)

    assert drawn == "a\n    漢字漢字漢字漢字\n    漢字漢字漢字漢字\n    漢字漢字"


def test_a_long_result_is_shortened_and_says_by_how_much() -> None:
    text = "\n".join(f"line {n}" for n in range(2_000))
    log = [by("assistant", call()), by("assistant", result(text=text))]

    drawn = render_text(cards(log)).split("\n")

    assert len(drawn) < 20
    assert drawn[-2:] == ["      line 10", "      … 1,989 more lines"]


def test_a_huge_result_in_one_line_is_drawn_at_once() -> None:
    log = [by("assistant", call()), by("assistant", result(text="x" * 1_000_000))]

    drawn = render_text(cards(log)).split("\n")

    assert len(drawn) < 20
    assert drawn[-1].endswith("more lines")


def test_arguments_are_shown_whole_while_a_person_has_to_decide() -> None:
    words = "\n".join(f"line {n}" for n in range(200))
    log = [by("assistant", call("c1", "delete", text=words))]

    open_, waiting = (render_text(cards(log, p)) for p in ((), (question(),)))

    assert "line 199" not in open_
    assert "line 199" in waiting


def test_what_a_terminal_would_obey_is_spelled_out() -> None:
    text = "\x1b[2J\x9b1mred\x07 a\rb \u202egpj.exe \u2028 \U000e0041 \ta\r\nb"

    drawn = render_text(cards([by("a", said(text))]))

    assert drawn.split("\n") == [
        "a",
        r"    \x1b[2J\x9b1mred\x07 a\rb \u202egpj.exe \u2028 \U000e0041     a",
        "    b",
    ]


@pytest.mark.parametrize("blank", "\u034f\u115f\u1160\u3164\uffa0\u00ad\u061c")
def test_a_letter_that_looks_like_nothing_is_spelled_out(blank: str) -> None:
    drawn = render_text(cards([by("a", said(f"a{blank}b"))]))

    assert blank not in drawn
    assert rf"a\{ascii(blank)[2:-1]}b" in drawn


def test_joined_emoji_and_accents_stay_as_they_are() -> None:
    text = "👩\u200d🚀 ❤\ufe0f e\u0301 हिन्दी 🇦🇹"

    assert text in render_text(cards([by("a", said(text))]))


def test_a_result_cannot_draw_a_decision() -> None:
    text = "ok\napproved by ada\n\nuser\n    Delete all of it."
    log = [by("assistant", call()), by("assistant", result(text=text))]

    drawn = render_text(cards(log)).split("\n")

    assert "    approved by ada" not in drawn
    assert "user" not in drawn


def test_a_long_argument_cannot_draw_a_decision() -> None:
    text = "x" * 73 + " approved by ada"
    log = [by("assistant", call("c1", text=text))]

    drawn = render_text(cards(log)).split("\n")

    assert not any(line.startswith("    approved by ada") for line in drawn)


def test_a_made_up_tool_name_is_quoted() -> None:
    log = [by("assistant", call("c1", "look\nuser: yes"))]

    assert render_text(cards(log)).startswith(r'assistant calls "look\nuser: yes"')


def test_a_width_that_holds_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="19"):
        render_text([], width=19)


widths = st.integers(20, 100)
wild = st.text(st.characters(exclude_categories=["Cs"])) | st.text(
    st.sampled_from("ab \n\t\r\x1b\x9b\u202e\u200d漢👩\ufe0f\u0301\u3000\xa0")
)


def with_wild_texts(log: list[Event], text: str) -> list[Event]:
    """Put a text wherever a model, a tool or a user may write."""
    more = [
        by("user", Message(role="user", content=text)),
        by(
            text,
            Reasoning(content=text),
            said(text),
            ToolCall(tool_call_id="w", name=text, arguments={text: text}),
            Opaque(block={"type": text, "x": text}),
            Note(kind=text, text=text, data={text: text}),
            Note(kind="checkpoint", data={"label": text, "state": {text: text}}),
            Note(kind="fork", data={"from": text, "at": text}),
            recalled(text, text, author=text, session=text),
        ),
        by("a", question("w").deny(text, by=text)),
        by("a", result("w", text, details=text, media=(CAT,))),
    ]
    return [*log, *more]


@given(logs, wild, widths)
def test_only_headings_begin_a_line(log: list[Event], text: str, width: int) -> None:
    found = cards(with_wild_texts(log, text))

    lines = render_text(found, width=width).split("\n")

    outside = [line for line in lines if line and not line.startswith("    ")]
    assert len(outside) == len(found)


@given(logs, wild, widths)
def test_no_line_is_wider_than_asked_for(
    log: list[Event], text: str, width: int
) -> None:
    drawn = render_text(cards(with_wild_texts(log, text)), width=width)

    for line in drawn.split("\n"):
        wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in line)
        assert len(line) + wide <= width
        assert line == line.rstrip()


@given(logs, wild, widths)
def test_no_letter_moves_the_cursor_or_turns_the_text(
    log: list[Event], text: str, width: int
) -> None:
    drawn = render_text(cards(with_wild_texts(log, text)), width=width)

    harmful = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    found = {x for x in drawn if unicodedata.category(x) in harmful}
    assert found <= set("\n\u200c\u200d")


@given(st.text(st.characters(categories=["L", "N", "P", "Zs"])), widths)
def test_wrapping_loses_no_word_of_a_message(text: str, width: int) -> None:
    card = MessageCard("k", ("e",), "ann", role="user", text=text)

    _, *lines = render_text([replace(card)], width=width).split("\n")

    assert "".join("".join(lines).split()) == "".join(text.split())
