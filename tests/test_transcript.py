"""The transcript: valid for any log, complete, and the same however it is reached.

`violations` is the judge: the rules V1 to V10, in code that the transcript shares
nothing with. Where a log ends in a finished answer, so does its transcript; only V10
could object, and nobody asks a model then. Everywhere else it is valid as it stands,
and with one more message of the user always.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from strategies import logs, whole_logs

from minagent import (
    ContentItem,
    Event,
    EventLog,
    Media,
    Message,
    Note,
    Opaque,
    Reasoning,
    ToolCall,
    ToolConfirmation,
    ToolResult,
    Turn,
)
from minagent.models.strict import violations
from minagent.transcript import CONVERSATION_START, NO_OUTPUT, UNKNOWN_OUTCOME, turns

PICTURE = Media(media_type="image/png", data="aGk=")


def user(*said: str | ContentItem) -> Event:
    items = (
        Message(role="user", content=each) if isinstance(each, str) else each
        for each in said
    )
    return Event(author="user", content=tuple(items))


def reply(
    *said: str | ContentItem, stop_reason: str = "end_turn", **more: Any
) -> Event:
    items = (answer(each) if isinstance(each, str) else each for each in said)
    return Event(
        author="assistant", content=tuple(items), stop_reason=stop_reason, **more
    )


def broken_off(*said: str | ContentItem) -> Event:
    return replace(reply(*said), stop_reason=None, interrupted=True)


def by_tool(*results: ContentItem) -> Event:
    return Event(author="assistant", content=results)


def answer(text: str) -> Message:
    return Message(role="assistant", content=text)


def heard(text: str) -> Message:
    return Message(role="user", content=text)


def call(call_id: str, **more: Any) -> ToolCall:
    return ToolCall(name="look", tool_call_id=call_id, **more)


def result(call_id: str, content: str = "Seen.", **more: Any) -> ToolResult:
    return ToolResult(tool_call_id=call_id, name="look", content=content, **more)


def unknown(call_id: str) -> ToolResult:
    return result(call_id, UNKNOWN_OUTCOME, status="unknown")


def shown(events: Sequence[Event]) -> list[tuple[str, ...] | Any]:
    """The transcript as (role, items) pairs."""
    return [(turn.role, list(turn.content)) for turn in turns(events)]


ONE_MORE = user("And now?")

# --- Promise 10: any log ------------------------------------------------------


def rules(transcript: Sequence[Turn]) -> set[str]:
    return {each.split(":")[0] for each in violations(transcript)}


@settings(max_examples=4 * settings().max_examples)
@given(log=logs)
@example(log=[broken_off(heard("Hi."), call("a"), result("a")), user("Well?")])
@example(
    log=[
        broken_off(call("a")),
        by_tool(result("a"), Note(kind="k", text="x")),
        ONE_MORE,
    ]
)
def test_every_log_gives_a_valid_request_with_the_next_message(
    log: list[Event],
) -> None:
    assert list(violations(turns([*log, ONE_MORE]))) == []


@settings(max_examples=4 * settings().max_examples)
@given(log=logs)
def test_every_log_gives_a_valid_transcript_but_for_how_it_ends(
    log: list[Event],
) -> None:
    transcript = turns(log)

    if not transcript:
        assert rules(transcript) == {"V1"}
    elif transcript[-1].role == "user":
        assert rules(transcript) == set()
    else:
        assert rules(transcript) <= {"V10"}


@given(log=logs)
def test_a_log_that_ends_with_the_users_words_is_valid_as_it_stands(
    log: list[Event],
) -> None:
    for end in (
        user("Hi."),
        user(PICTURE),
        user("", "Hi."),
        user(Note(kind="k"), "Hi."),
    ):
        assert list(violations(turns([*log, end]))) == []


@given(log=logs, calls=st.integers(1, 3))
def test_a_log_that_ends_with_calls_is_valid_as_it_stands(
    log: list[Event], calls: int
) -> None:
    asked = [call(f"call_{number}") for number in range(calls)]
    answered = [result(f"call_{number}") for number in range(calls)]

    for end in (
        [reply(*asked)],
        [reply(*asked), by_tool(answered[-1])],
        [reply(*asked), by_tool(*answered)],
    ):
        assert list(violations(turns([*log, ONE_MORE, *end]))) == []


@given(log=logs)
def test_every_prefix_of_a_log_is_valid_with_the_next_message(log: list[Event]) -> None:
    """A program can be killed behind any save."""
    for length in range(len(log)):
        assert list(violations(turns([*log[:length], ONE_MORE]))) == []


def rebuilt(transcript: Iterable[Turn]) -> list[Event]:
    """The transcript as a log of its own: one event a turn."""
    log = []
    for turn in transcript:
        if turn.role == "user":
            log.append(user(*turn.content))
            continue
        paused = turn.events[-1].stop_reason == "pause_turn"
        stop_reason = "pause_turn" if paused else "end_turn"
        log.append(reply(*turn.content, stop_reason=stop_reason))
    return log


@settings(max_examples=4 * settings().max_examples)
@given(log=logs)
def test_healing_twice_changes_nothing(log: list[Event]) -> None:
    once = shown(log)
    twice = shown(rebuilt(turns(log)))
    thrice = shown(rebuilt(turns(rebuilt(turns(log)))))

    assert once == twice == thrice


@settings(max_examples=4 * settings().max_examples)
@given(log=logs)
def test_a_growing_log_has_the_transcripts_that_its_parts_have_from_scratch(
    log: list[Event],
) -> None:
    growing = EventLog()

    for length, event in enumerate(log, start=1):
        growing = growing.extended([event])

        assert turns(growing) == turns(log[:length])


@given(log=logs, lengths=st.lists(st.integers(0, 10), max_size=6))
def test_read_in_any_order_the_parts_of_a_log_have_the_same_transcripts(
    log: list[Event], lengths: list[int]
) -> None:
    parts = [EventLog()]
    for event in log:
        parts.append(parts[-1].extended([event]))

    for length in lengths:
        part = parts[min(length, len(log))]

        assert turns(part) == turns(list(part))


@given(log=logs)
def test_what_is_read_stays_as_it_is(log: list[Event]) -> None:
    before = [event.to_json() for event in log]
    stored = EventLog(log)

    turns(stored)

    assert [event.to_json() for event in stored] == before


@given(log=logs)
def test_a_transcript_stays_as_it_is_when_the_log_goes_on(log: list[Event]) -> None:
    first = EventLog(log)
    transcript = turns(first)
    copied = [replace(turn) for turn in transcript]

    turns(first.extended([ONE_MORE, reply("Well."), *log]))

    assert list(transcript) == copied


# --- V6: what was said goes back as it came, and nothing is lost ---------------


def is_blank(item: ContentItem) -> bool:
    return isinstance(item, Message) and not item.content.strip()


def said_by_model(event: Event) -> list[ContentItem]:
    """What of a reply a model is shown again."""
    kinds = Reasoning | ToolCall | Opaque | Media
    items = [
        item
        for item in event.content
        if isinstance(item, kinds)
        or (isinstance(item, Message) and item.role == "assistant")
    ]
    items = [item for item in items if not is_blank(item)]
    while event.interrupted and items and isinstance(items[-1], Reasoning):
        items.pop()
    return items


def without_ids(items: Iterable[ContentItem]) -> list[ContentItem]:
    return [
        replace(item, tool_call_id="") if isinstance(item, ToolCall) else item
        for item in items
    ]


@settings(max_examples=4 * settings().max_examples)
@given(log=logs)
def test_a_turn_of_the_assistant_is_the_items_of_its_replies_in_order(
    log: list[Event],
) -> None:
    """But for empty texts, and for ids that a provider would refuse."""
    for turn in turns(log):
        if turn.role == "assistant":
            said = [item for event in turn.events for item in said_by_model(event)]

            assert without_ids(turn.content) == without_ids(said)


@given(log=whole_logs)
def test_no_item_of_a_whole_reply_is_lost_or_moved(log: list[Event]) -> None:
    said = [item for event in log if event.is_reply for item in said_by_model(event)]

    sent = [
        item for turn in turns(log) if turn.role == "assistant" for item in turn.content
    ]

    assert without_ids(sent) == without_ids(said)


def words_of_user(event: Event) -> list[ContentItem]:
    """What of an event the user said, or a note shows."""
    found: list[ContentItem] = []
    for item in event.content:
        if isinstance(item, Note):
            found.append(heard(item.text or ""))
        elif (isinstance(item, Message) and item.role == "user") or (
            isinstance(item, Media) and not event.is_reply
        ):
            found.append(item)
    return [item for item in found if not is_blank(item)]


def words_in(transcript: Iterable[Turn]) -> list[ContentItem]:
    return [
        item
        for turn in transcript
        if turn.role == "user" and turn.events
        for item in turn.content
        if not isinstance(item, ToolResult)
    ]


@given(log=whole_logs)
def test_no_word_of_the_user_is_lost_or_moved(log: list[Event]) -> None:
    said = [item for event in log for item in words_of_user(event)]

    assert words_in(turns(log)) == said


@settings(max_examples=4 * settings().max_examples)
@given(log=logs)
@example(
    log=[
        broken_off(call("a")),
        by_tool(result("a"), Note(kind="k", text="x")),
        ONE_MORE,
    ]
)
@example(log=[broken_off(call("a")), by_tool(result("a"), heard("x"))])
def test_no_word_of_the_user_is_doubled(log: list[Event]) -> None:
    said = Counter(repr(item) for event in log for item in words_of_user(event))

    sent = Counter(repr(item) for item in words_in(turns(log)))

    assert sent <= said


@given(log=logs)
def test_every_result_is_one_of_the_log_or_says_that_nobody_knows(
    log: list[Event],
) -> None:
    stored = [
        replace(item, tool_call_id="", content=item.content.strip())
        for event in log
        for item in event.content
        if isinstance(item, ToolResult)
    ]

    for turn in turns(log):
        for item in turn.content:
            if isinstance(item, ToolResult) and item.content != UNKNOWN_OUTCOME:
                content = item.content.strip() if item.content != NO_OUTPUT else ""
                assert replace(item, tool_call_id="", content=content) in stored


def test_a_valid_reply_goes_back_to_the_letter() -> None:
    said = (
        Reasoning(content="", signature="c2ln" * 1000, extra={"x": None}),
        Reasoning(content="", redacted="c2VjcmV0"),
        Reasoning(content="Hm \u2028 🙂", signature="c2ln"),
        Opaque(block={"type": "brand_new", "payload": {"b": 1, "a": [1.0, None]}}),
        answer("  I look. \n"),
        call("toolu_1", arguments={"at": [1]}, extra={"caller": None}),
    )
    log = [
        user("Hi."),
        reply(*said, stop_reason="tool_use"),
        by_tool(result("toolu_1")),
    ]

    [_, turn, _] = turns(log)

    assert turn.content == said
    assert [repr(sent) for sent in turn.content] == [repr(kept) for kept in said]


# --- Conversations that are whole ---------------------------------------------


def test_an_empty_log_has_no_turns() -> None:
    assert turns([]) == ()


def test_messages_and_answers_take_turns() -> None:
    log = [user("Hi."), reply("Hello."), user("Bye."), reply("So long.")]

    assert shown(log) == [
        ("user", [heard("Hi.")]),
        ("assistant", [answer("Hello.")]),
        ("user", [heard("Bye.")]),
        ("assistant", [answer("So long.")]),
    ]


def test_messages_in_a_row_are_one_turn() -> None:
    log = [user("Hi."), user("Anybody there?", PICTURE), reply("Yes.")]

    assert shown(log) == [
        ("user", [heard("Hi."), heard("Anybody there?"), PICTURE]),
        ("assistant", [answer("Yes.")]),
    ]


def test_a_turn_names_the_events_that_it_was_made_from() -> None:
    first, second = user("Hi."), user("Anybody there?")
    asked, seen, done = reply(call("a")), by_tool(result("a")), reply("Yes.")

    transcript = turns([first, second, asked, seen, done])

    assert [turn.events for turn in transcript] == [
        (first, second),
        (asked,),
        (seen,),
        (done,),
    ]


GROWTH = [
    user("Hi."),
    reply("I look.", call("a"), call("b")),
    by_tool(result("b")),
    by_tool(result("a")),
    reply(call("c")),
    user("Never mind."),
    reply("As you wish."),
    user("Bye."),
]


def test_a_turn_that_no_new_event_belongs_to_is_the_same_object() -> None:
    """So an adapter can keep what it made of a turn."""
    log, before = EventLog(), tuple[Turn, ...]()

    for event in GROWTH:
        log = log.extended([event])
        now = turns(log)

        equal = [
            (old, new) for old, new in zip(before, now, strict=False) if old == new
        ]
        assert all(old is new for old, new in equal)
        before = now


def test_a_turn_that_both_sides_have_answered_stays_the_same_object() -> None:
    log = EventLog(GROWTH)
    before = turns(log)[:-2]

    now = turns(log.extended([reply("So long."), *GROWTH]))

    assert len(before) == 5
    assert all(old is new for old, new in zip(before, now, strict=False))


def test_calls_are_followed_by_their_results() -> None:
    log = [
        user("Hi."),
        reply("I look.", call("a")),
        by_tool(result("a")),
        reply("Yes."),
    ]

    assert shown(log) == [
        ("user", [heard("Hi.")]),
        ("assistant", [answer("I look."), call("a")]),
        ("user", [result("a")]),
        ("assistant", [answer("Yes.")]),
    ]


def test_results_are_in_the_order_of_the_calls_whatever_the_order_in_the_log() -> None:
    log = [
        user("Hi."),
        reply(call("a"), call("b"), call("c")),
        by_tool(result("c", "third")),
        by_tool(result("a", "first")),
        by_tool(result("b", "second")),
    ]

    assert shown(log)[-1] == (
        "user",
        [result("a", "first"), result("b", "second"), result("c", "third")],
    )


def test_text_stands_behind_the_results_whatever_the_order_in_the_log() -> None:
    log = [
        user("Hi."),
        reply(call("a"), call("b")),
        by_tool(result("b")),
        user("Never mind.", PICTURE),
        by_tool(result("a")),
    ]

    assert shown(log)[-1] == (
        "user",
        [result("a"), result("b"), heard("Never mind."), PICTURE],
    )


def test_a_result_keeps_its_status_its_pictures_and_its_details() -> None:
    seen = result("a", "Half.", status="error", media=(PICTURE,), details={"ms": 1})

    assert shown([user("Hi."), reply(call("a")), by_tool(seen)])[-1] == ("user", [seen])


def test_a_note_is_shown_by_its_text_where_it_stands() -> None:
    log = [
        Event(author="memory", content=(Note(kind="recall", text="Likes tea."),)),
        user("Hi.", Note(kind="hint", text="Late."), "Well?"),
        reply("Hello."),
        Event(author="summary", content=(Note(kind="sum", text="All said."),)),
    ]

    assert shown(log) == [
        ("user", [heard("Likes tea."), heard("Hi."), heard("Late."), heard("Well?")]),
        ("assistant", [answer("Hello.")]),
        ("user", [heard("All said.")]),
    ]


@pytest.mark.parametrize("text", [None, "", " \n"])
def test_a_note_without_text_is_not_shown(text: str | None) -> None:
    note = Event(author="x", content=(Note(kind="mark", text=text, data={"a": 1}),))
    log = [note, user("Hi."), note, reply("Hello."), note, user("Bye."), note]

    assert shown(log) == shown([user("Hi."), reply("Hello."), user("Bye.")])


def test_a_note_of_unknown_kind_is_shown_by_its_text_as_well() -> None:
    note = Event(author="x", content=(Note(kind="never seen", text="Here."),))

    assert shown([note]) == [("user", [heard("Here.")])]


def test_a_decision_is_not_shown() -> None:
    decision = ToolConfirmation(tool_call_id="a", approved=False, reason="Secret.")
    log = [
        user("Hi."),
        reply(call("a")),
        Event(author="bob", content=(decision,)),
        by_tool(decision, result("a", "Denied.", status="denied")),
    ]

    assert shown(log)[-1] == ("user", [result("a", "Denied.", status="denied")])


def test_a_reply_that_paused_goes_back_as_it_is() -> None:
    log = [
        user("Hi."),
        reply("Let me see.", Opaque(block={}), stop_reason="pause_turn"),
    ]

    assert shown(log)[-1] == ("assistant", [answer("Let me see."), Opaque(block={})])
    assert list(violations(turns(log))) == []


def test_replies_over_a_pause_are_one_turn() -> None:
    first = reply("Let me see.", Opaque(block={"n": 1}), stop_reason="pause_turn")
    second = reply(Opaque(block={"n": 2}), stop_reason="pause_turn")
    third = reply("Found.", call("a"), stop_reason="tool_use")

    transcript = turns([user("Hi."), first, second, third, by_tool(result("a"))])

    assert [(turn.role, turn.events) for turn in transcript][1] == (
        "assistant",
        (first, second, third),
    )
    assert transcript[1].content == first.content + second.content + third.content
    assert transcript[2].content == (result("a"),)


def test_a_conversation_that_the_assistant_begins_gets_a_first_turn() -> None:
    log = [reply("Welcome."), user("Hi.")]

    assert shown(log) == [
        ("user", [heard(CONVERSATION_START)]),
        ("assistant", [answer("Welcome.")]),
        ("user", [heard("Hi.")]),
    ]
    assert CONVERSATION_START.strip()


# --- Cases O01, O02, O04: what crashes, cancels and silence leave --------------


def test_o01_a_call_that_a_crash_cut_off_has_an_unknown_outcome() -> None:
    log = [user("Hi."), reply(call("a")), user("Well?"), reply("Hm."), user("Bye.")]

    assert shown(log) == [
        ("user", [heard("Hi.")]),
        ("assistant", [call("a")]),
        ("user", [unknown("a"), heard("Well?")]),
        ("assistant", [answer("Hm.")]),
        ("user", [heard("Bye.")]),
    ]


def test_o01_the_model_is_told_that_the_outcome_is_unknown() -> None:
    [*_, last] = turns([user("Hi."), reply(call("a"))])

    [told] = last.content
    assert isinstance(told, ToolResult)
    assert (told.tool_call_id, told.name, told.status) == ("a", "look", "unknown")
    assert "unknown" in told.content.lower()
    assert "may or may not" in told.content


def test_o01_a_result_that_comes_after_the_next_reply_comes_too_late() -> None:
    """The model has gone on from an unknown outcome; that cannot be changed."""
    log = [user("Hi."), reply(call("a")), reply("Hm."), by_tool(result("a")), ONE_MORE]

    assert shown(log)[2:] == [
        ("user", [unknown("a")]),
        ("assistant", [answer("Hm.")]),
        ("user", [heard("And now?")]),
    ]


def test_o02_a_cancelled_call_keeps_its_result_beside_that_of_its_sibling() -> None:
    cancelled = result("b", "Cancelled.", status="cancelled")
    log = [
        user("Hi."),
        reply(call("a"), call("b")),
        by_tool(result("a")),
        by_tool(cancelled),
        user("Well?"),
    ]

    assert shown(log)[-1] == ("user", [result("a"), cancelled, heard("Well?")])


@pytest.mark.parametrize("empty", ["", " ", "\n", "\u2003"])
def test_o04_an_empty_text_is_left_out_and_its_call_is_not(empty: str) -> None:
    log = [user("Hi."), reply(empty, call("a")), by_tool(result("a"))]

    assert shown(log)[1] == ("assistant", [call("a")])


@pytest.mark.parametrize("empty", ["", " ", "\n", "\u2003"])
def test_o04_a_silent_tool_has_a_result_that_says_so(empty: str) -> None:
    log = [user("Hi."), reply(call("a")), by_tool(result("a", empty))]

    assert shown(log)[-1] == ("user", [result("a", "(no output)")])
    assert NO_OUTPUT == "(no output)"


def test_o04_a_tool_that_gives_only_a_picture_is_not_silent() -> None:
    seen = result("a", "", media=(PICTURE,))

    assert shown([user("Hi."), reply(call("a")), by_tool(seen)])[-1] == ("user", [seen])


@pytest.mark.parametrize("end", [reply(), reply(""), reply(" ", "\n")])
def test_o04_an_empty_answer_leaves_no_trace(end: Event) -> None:
    log = [user("Hi."), reply(call("a")), by_tool(result("a")), end]

    assert shown(log) == shown(log[:-1])
    assert shown([*log, user("Well?")])[-1] == ("user", [result("a"), heard("Well?")])


def test_o04_an_empty_text_in_an_answer_is_left_out_and_the_rest_is_not() -> None:
    thought = Reasoning(content="", signature="sig")

    log = [user("Hi.", ""), reply(thought, "", "Hello.", " "), user("", PICTURE)]

    assert shown(log) == [
        ("user", [heard("Hi.")]),
        ("assistant", [thought, answer("Hello.")]),
        ("user", [PICTURE]),
    ]


# --- Logs that no run of ours would leave -------------------------------------


def test_a_result_without_a_call_is_left_out() -> None:
    log = [by_tool(result("a")), user("Hi."), by_tool(result("b")), reply("Hello.")]

    assert shown(log) == shown([user("Hi."), reply("Hello.")])


def test_of_two_results_of_a_call_the_first_counts() -> None:
    log = [
        user("Hi."),
        reply(call("a")),
        by_tool(result("a", "first"), result("a", "second")),
        by_tool(result("a", "third")),
    ]

    assert shown(log)[-1] == ("user", [result("a", "first")])


def test_an_id_that_occurs_again_is_sent_as_another() -> None:
    log = [
        user("Hi."),
        reply(call("a")),
        by_tool(result("a", "first")),
        reply(call("a")),
        by_tool(result("a", "second")),
    ]

    [_, first, first_seen, second, second_seen] = turns(log)

    [asked], [seen] = second.content, second_seen.content
    assert first.content == (call("a"),)
    assert first_seen.content == (result("a", "first"),)
    assert isinstance(asked, ToolCall)
    assert asked.tool_call_id != "a"
    assert seen == result(asked.tool_call_id, "second")


def test_two_calls_with_one_id_in_a_reply_get_their_results_in_order() -> None:
    log = [
        user("Hi."),
        reply(call("a"), call("a")),
        by_tool(result("a", "first")),
        by_tool(result("a", "second")),
    ]

    [*_, last] = turns(log)

    assert [i.content for i in last.content if isinstance(i, ToolResult)] == [
        "first",
        "second",
    ]
    assert list(violations(turns(log))) == []


@pytest.mark.parametrize("odd", ["", "a b", "é", "functions.look:0", "a\n", "🙂"])
def test_an_id_of_odd_letters_is_sent_as_another(odd: str) -> None:
    log = [user("Hi."), reply(call(odd, arguments={"at": 1})), by_tool(result(odd))]

    [_, asking, seeing] = turns(log)

    [asked], [seen] = asking.content, seeing.content
    assert isinstance(asked, ToolCall)
    assert replace(asked, tool_call_id=odd) == call(odd, arguments={"at": 1})
    assert seen == result(asked.tool_call_id)
    assert list(violations(turns(log))) == []


def test_odd_ids_that_become_alike_are_kept_apart() -> None:
    log = [
        user("Hi."),
        reply(call("a b"), call("a_b"), call("a/b"), call("a_b-2")),
        by_tool(result("a/b", "third"), result("a_b", "second")),
        by_tool(result("a_b-2", "fourth"), result("a b", "first")),
    ]

    [*_, last] = turns(log)

    contents = [i.content for i in last.content if isinstance(i, ToolResult)]
    assert contents == ["first", "second", "third", "fourth"]
    assert list(violations(turns(log))) == []


def test_an_event_made_by_hand_may_hold_both_sides() -> None:
    event = Event(
        author="hand",
        content=(
            heard("Hi."),
            answer("I look."),
            result("a"),
            call("a"),
            Note(kind="k", text="Here."),
        ),
    )

    assert shown([user("Hm."), event]) == [
        ("user", [heard("Hm.")]),
        ("assistant", [answer("I look."), call("a")]),
        ("user", [result("a"), heard("Hi."), heard("Here.")]),
    ]


# --- Refusals -----------------------------------------------------------------

REFUSED = reply("I can't.", stop_reason="refusal")


def test_a_refused_turn_is_left_out_from_the_users_message_to_the_refusal() -> None:
    """Sent again, it would be refused again, and with it each later request."""
    log = [
        user("Hi."),
        reply("Hello."),
        user("Something bad."),
        reply(call("a")),
        by_tool(result("a")),
        REFUSED,
        user("Bye."),
    ]

    assert shown(log) == shown([user("Hi."), reply("Hello."), user("Bye.")])


def test_a_refused_first_turn_leaves_nothing() -> None:
    assert turns([user("Something bad."), REFUSED]) == ()
    assert shown([user("Something bad."), REFUSED, user("Hi.")]) == shown([user("Hi.")])


def test_a_refusal_without_words_is_a_refusal() -> None:
    log = [user("Hi."), reply("Hello."), user("Bad."), reply(stop_reason="refusal")]

    assert shown(log) == shown(log[:2])


def test_what_stood_before_a_refused_turn_stays_as_it_was() -> None:
    before = [
        user("Hi."),
        reply(call("a"), call("b")),
        by_tool(result("b")),
        Event(author="x", content=(Note(kind="k", text="Here."),)),
    ]
    log = [*before, user("Bad."), by_tool(result("a", "late")), REFUSED]

    assert shown(log) == shown(before)


def test_each_of_several_refused_turns_is_left_out_and_no_other() -> None:
    log = [
        user("Bad."),
        REFUSED,
        user("Hi."),
        reply("Hello."),
        user("Bad again."),
        REFUSED,
        user("Worse."),
        reply(call("a")),
        REFUSED,
        user("Bye."),
        reply("So long."),
    ]

    assert shown(log) == shown(
        [user("Hi."), reply("Hello."), user("Bye."), reply("So long.")]
    )


def test_an_input_of_text_and_pictures_is_refused_as_a_whole() -> None:
    log = [user("Hi."), reply("Hello."), user("Bad:", PICTURE, "Well?"), REFUSED]

    assert shown(log) == shown(log[:2])


def test_messages_in_a_row_are_refused_as_a_whole() -> None:
    """They were one turn, and nobody can tell which of them was refused."""
    log = [user("Hi."), reply("Hello."), user("Bad."), user("Well?"), REFUSED]

    assert shown(log) == shown(log[:2])


def test_a_note_between_two_refused_turns_stays() -> None:
    note = Event(author="x", content=(Note(kind="k", text="Here."),))
    before = [user("Hi."), reply("Hello.")]
    log = [*before, user("Bad."), REFUSED, note, user("Bad again."), REFUSED]

    assert shown(log) == shown([*before, note])


def test_the_calls_of_a_refusal_and_their_results_are_left_out_with_it() -> None:
    log = [
        user("Hi."),
        reply("Hello."),
        user("Bad."),
        reply(call("a"), stop_reason="refusal"),
        by_tool(result("a", "Not run.", status="error")),
        user("Bye."),
    ]

    assert shown(log) == shown([user("Hi."), reply("Hello."), user("Bye.")])


def test_a_refused_turn_takes_a_reply_that_broke_off_in_it_along() -> None:
    log = [
        user("Hi."),
        reply("Hello."),
        user("Bad."),
        broken_off("I would"),
        REFUSED,
        user("Bye."),
    ]

    assert shown(log) == shown([user("Hi."), reply("Hello."), user("Bye.")])


def test_a_reply_that_broke_off_before_a_refused_turn_stays() -> None:
    before = [user("Hi."), broken_off("Hel")]

    log = [*before, user("Bad."), REFUSED, user("Bye.")]

    assert shown(log) == shown([*before, user("Bye.")])


@given(log=whole_logs)
def test_after_any_whole_log_a_refused_turn_leaves_no_trace(log: list[Event]) -> None:
    before = [*log, reply("Well.")]

    after = [*before, user("Bad."), reply(call("z")), by_tool(result("z")), REFUSED]

    assert shown(after) == shown(before)


# --- Replies that broke off ---------------------------------------------------


def test_a_reply_that_broke_off_is_shown_when_the_user_speaks_next() -> None:
    log = [user("Hi."), broken_off("Hello, I"), user("Go on.")]

    assert shown(log) == [
        ("user", [heard("Hi.")]),
        ("assistant", [answer("Hello, I")]),
        ("user", [heard("Go on.")]),
    ]


def test_a_picture_is_a_way_to_speak() -> None:
    log = [user("Hi."), broken_off("Hello, I"), user(PICTURE)]

    assert shown(log)[1:] == [("assistant", [answer("Hello, I")]), ("user", [PICTURE])]


def test_a_reply_that_broke_off_is_left_out_where_it_is_the_last() -> None:
    """A run without input asks for the same reply again."""
    log = [user("Hi."), broken_off("Hello, I")]

    assert shown(log) == shown(log[:1])


def test_a_reply_that_broke_off_is_left_out_where_another_reply_follows() -> None:
    log = [user("Hi."), broken_off("Hello, I"), reply("Hello."), user("Bye.")]

    assert shown(log) == shown([user("Hi."), reply("Hello."), user("Bye.")])


def test_of_replies_that_broke_off_in_a_row_the_last_is_shown() -> None:
    log = [user("Hi."), broken_off("Hello, I"), broken_off("Hel"), user("Go on.")]

    assert shown(log)[1] == ("assistant", [answer("Hel")])


@pytest.mark.parametrize(
    "note",
    [
        Note(kind="mark"),
        ToolConfirmation(tool_call_id="x", approved=True),
        result("nobody's"),
    ],
)
def test_what_nobody_says_does_not_show_a_reply_that_broke_off(
    note: ContentItem,
) -> None:
    log = [user("Hi."), broken_off("Hello, I"), by_tool(note)]

    assert shown(log) == shown(log[:1])


def test_a_reply_that_broke_off_never_ends_in_a_thought() -> None:
    thought = Reasoning(content="Hm.", signature="sig")
    log = [
        user("Hi."),
        broken_off(thought, "Hello, I", thought, " ", thought),
        user("Go on."),
    ]

    assert shown(log)[1] == ("assistant", [thought, answer("Hello, I")])


def test_a_reply_that_broke_off_in_a_thought_leaves_nothing() -> None:
    log = [user("Hi."), broken_off(Reasoning(content="Hm.")), user("Go on.")]

    assert shown(log) == shown([user("Hi."), user("Go on.")])


def test_the_calls_of_a_reply_that_broke_off_are_answered() -> None:
    not_run = result("a", "Not run.", status="cancelled")
    log = [
        user("Hi."),
        broken_off("I look.", call("a"), call("b")),
        by_tool(not_run),
        user("Go on."),
    ]

    assert shown(log)[1:] == [
        ("assistant", [answer("I look."), call("a"), call("b")]),
        ("user", [not_run, unknown("b"), heard("Go on.")]),
    ]


def test_the_results_of_a_reply_that_is_left_out_are_left_out_with_it() -> None:
    log = [
        user("Hi."),
        broken_off(call("a")),
        by_tool(result("a", "Not run.", status="cancelled")),
        reply("Hello."),
    ]

    assert shown(log) == shown([user("Hi."), reply("Hello.")])
    assert shown(log[:3]) == shown(log[:1])


def test_a_reply_that_broke_off_after_a_pause_belongs_to_its_turn() -> None:
    paused = reply("Let me see.", stop_reason="pause_turn")
    log = [user("Hi."), paused, broken_off("I fou"), user("Go on.")]

    assert shown(log)[1] == ("assistant", [answer("Let me see."), answer("I fou")])


def test_a_note_beside_the_results_of_a_broken_off_reply_is_shown_once() -> None:
    log = [
        user("Hi."),
        broken_off("I look.", call("a")),
        by_tool(result("a"), Note(kind="k", text="Here.")),
        user("Go on."),
    ]

    assert words_in(turns(log)).count(heard("Here.")) == 1
