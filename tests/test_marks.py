"""Marks: what counts of a log after rewinds and redactions, however it was reached.

`counting` below is the judge: it keeps the whole way to each event, which is slow and
plain, and shares no code with `marks.py` but `redacted`, which has tests of its own.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import ITEMS, events_of, logs, text

from minagent import (
    ContentItem,
    Event,
    EventLog,
    Media,
    Message,
    Note,
    Opaque,
    Reasoning,
    Session,
    ToolCall,
    ToolConfirmation,
    ToolResult,
)
from minagent.cards import cards
from minagent.ledger import open_calls, record_of
from minagent.marks import REDACTION, REWIND, current, extended, marks, redacted
from minagent.models.strict import violations
from minagent.transcript import turns


def said(words: str, **more: Any) -> Event:
    return Event(author="user", content=(Message(role="user", content=words),), **more)


def reply(*items: str | ContentItem, **more: Any) -> Event:
    content = tuple(
        Message(role="assistant", content=item) if isinstance(item, str) else item
        for item in items
    )
    return Event(author="assistant", content=content, stop_reason="end_turn", **more)


def marked(*notes: ContentItem) -> Event:
    return Event(author="mark", content=notes)


def to(target: Event | str | None) -> Note:
    event_id = target.event_id if isinstance(target, Event) else target
    return Note(kind=REWIND, data={"to": event_id})


def hide(target: Event | str, words: str = "[gone]") -> Note:
    event_id = target.event_id if isinstance(target, Event) else target
    return Note(kind=REDACTION, data={"event_id": event_id, "text": words})


def thought(words: str = "Hm.") -> Reasoning:
    return Reasoning(content=words, signature="sig")


def words_of(events: Sequence[Event]) -> list[str]:
    items = (item for event in events for item in event.content)
    return [item.content for item in items if isinstance(item, Message)]


A, B, C, D = (said(letter) for letter in "ABCD")


def letters(*log: Event) -> str:
    """What counts of a log, as the letters that are said in it."""
    return "".join(words_of(current(log)))


# --- Without marks ------------------------------------------------------------


class Given:
    """A fold that counts what it is given, over all of its kind."""

    count: ClassVar[int] = 0

    def add(self, event: Event) -> None:
        type(self).count += 1


def given_to_a_fold(log: EventLog) -> int:
    """How many events a fold of this log had not seen yet."""
    before = Given.count
    log.folded(Given, lambda fold: None)
    return Given.count - before


@given(log=logs)
def test_without_marks_the_log_counts_as_it_is(log: list[Event]) -> None:
    found = current(log)

    assert found == log
    assert all(mine is theirs for mine, theirs in zip(found, log, strict=True))


def test_without_marks_nothing_is_copied() -> None:
    log = EventLog([A, B, C])

    assert given_to_a_fold(log) == 3
    assert given_to_a_fold(current(log)) == 0  # it has the storage, and its folds


def test_a_mark_of_another_kind_changes_nothing() -> None:
    note = Note(kind="checkpoint", data={"to": A.event_id, "event_id": A.event_id})
    log = [A, B, marked(note), C]

    assert current(log) == log


def test_marks_are_found_by_their_kind() -> None:
    both = marked(to(A), Message(role="user", content="x"), hide(B), to(None))

    assert [*marks(both, REWIND)] == [to(A), to(None)]
    assert [*marks(both, REDACTION)] == [hide(B)]


# --- Rewinds ------------------------------------------------------------------


def test_after_a_rewind_the_log_counts_up_to_the_event_that_it_names() -> None:
    assert letters(A, B, C, marked(to(A))) == "A"
    assert letters(A, B, C, marked(to(B)), D) == "ABD"


def test_the_mark_itself_does_not_count_but_what_stands_beside_it_does() -> None:
    why = Note(kind="why", text="a new try")
    back = marked(to(A), why)

    assert current([A, B, back, C]) == [A, replace(back, content=(why,)), C]


def test_a_rewind_to_null_is_a_new_start() -> None:
    assert letters(A, B, marked(to(None)), C) == "C"


def test_a_rewind_may_lead_into_a_branch_that_was_left() -> None:
    # B was left for C; then C is left, and B counts again.
    assert letters(A, B, marked(to(A)), C, marked(to(B)), D) == "ABD"


def test_a_rewind_may_lead_to_a_mark() -> None:
    back = marked(to(A))

    assert letters(A, B, back, C, marked(to(back)), D) == "AD"


def test_rewinds_may_follow_each_other() -> None:
    assert letters(A, B, C, marked(to(B)), marked(to(A)), D) == "AD"
    assert letters(A, B, C, marked(to(A)), marked(to(C)), D) == "ABCD"
    assert letters(A, B, marked(to(None)), marked(to(A)), D) == "AD"


def test_of_several_rewinds_in_one_event_the_last_counts() -> None:
    assert letters(A, B, C, marked(to(A), to(B)), D) == "ABD"
    assert letters(A, B, C, marked(to(B), to(None)), D) == "D"
    assert letters(A, B, C, marked(to(B), to("nobody knows")), D) == "ABD"


@pytest.mark.parametrize("target", ["nobody knows", "", D])
def test_a_rewind_to_no_event_before_it_changes_nothing(target: Event | str) -> None:
    assert letters(A, B, marked(to(target)), D) == "ABD"


def test_a_rewind_to_itself_changes_nothing() -> None:
    itself = Event(author="mark", content=(to("me"),), event_id="me")

    assert letters(A, itself, B) == "AB"


def test_a_shorter_log_knows_nothing_of_later_marks() -> None:
    log = EventLog([A, B])
    longer = log.extended([marked(to(A))])

    assert words_of(current(longer)) == ["A"]
    assert words_of(current(log)) == ["A", "B"]
    assert words_of(current(longer)) == ["A"]


def test_two_logs_may_go_on_differently_from_the_same_events() -> None:
    log = EventLog([A, B])
    one, other = log.extended([marked(to(A)), C]), log.extended([D])

    assert words_of(current(other)) == ["A", "B", "D"]
    assert words_of(current(one)) == ["A", "C"]


# --- Redactions ---------------------------------------------------------------


def test_a_redacted_event_says_the_text() -> None:
    assert words_of(current([A, B, marked(hide(A, "X")), C])) == ["X", "B", "C"]


def test_the_newest_redaction_of_an_event_counts() -> None:
    one, two = marked(hide(A, "X")), marked(hide(A, "Y"))

    assert words_of(current([A, one, two])) == ["Y"]
    assert words_of(current([A, marked(hide(A, "X"), hide(A, "Y"))])) == ["Y"]


def test_words_are_gone_also_from_a_branch_that_is_entered_again() -> None:
    log = [A, B, marked(to(A)), C, marked(hide(B, "X")), marked(to(B)), D]

    assert words_of(current(log)) == ["A", "X", "D"]


def test_words_stay_gone_where_the_redaction_itself_was_left_behind() -> None:
    assert words_of(current([A, B, marked(hide(A, "X")), marked(to(B))])) == ["X", "B"]


def test_thoughts_before_the_newest_redaction_are_left_out() -> None:
    before, between, after = (reply(thought(), letter) for letter in "bcd")
    log = [A, before, marked(hide(A)), between, marked(hide(A, "X")), after]

    found = [item for event in current(log) for item in event.content]

    assert [item for item in found if isinstance(item, Reasoning)] == [thought()]
    assert words_of(current(log)) == ["X", "b", "c", "d"]
    assert current(log)[-1] is after


def test_a_redaction_that_names_no_event_changes_nothing() -> None:
    log = [A, reply(thought(), "b"), marked(hide("nobody knows"))]

    assert current(log) == log[:2]


def test_a_session_that_is_given_a_redaction_obeys_at_once() -> None:
    session = Session("ada")
    session.append(A, B)
    before = session.events

    session.append(marked(hide(A, "X")))

    assert words_of(session.events) == ["X", "B"]
    assert len(session.events) == len(session.unsaved) == 3
    assert words_of(before) == ["A", "B"]  # a log that somebody holds stays as it is


def test_a_session_that_is_loaded_obeys_the_redactions_in_it() -> None:
    log = [A, B, marked(hide(A, "X"))]

    assert words_of(Session("ada", events=log).events) == ["X", "B"]
    assert words_of(Session("ada", events=EventLog(log)).copy().events)[1:] == ["B"]


def test_a_session_keeps_what_a_rewind_leaves() -> None:
    session = Session("ada")
    session.append(A, B, marked(to(A)))

    assert words_of(session.events) == ["A", "B"]


# --- Any log ------------------------------------------------------------------


@st.composite
def marked_logs(draw: st.DrawFn) -> list[Event]:
    """Any log, with any marks in it that name events before them, or none."""
    log: list[Event] = []
    for event in draw(logs):
        log.append(event)
        ids = st.sampled_from([each.event_id for each in log])
        rewinds = st.builds(to, ids | st.none() | st.just("nobody knows"))
        redactions = st.builds(hide, ids, st.sampled_from(["[gone]", "[a name]", ""]))
        others = st.just(Message(role="user", content="beside a mark"))
        notes = draw(st.lists(rewinds | redactions | others, max_size=3))
        if notes:
            log.append(marked(*notes))
    return log


def counting(log: Sequence[Event]) -> list[Event]:
    """What counts of a log, by the way that leads to each event."""
    ways: list[list[int]] = []
    ids = [event.event_id for event in log]
    newest = -1
    for at, event in enumerate(log):
        way = ways[-1] if ways else []
        for item in event.content:
            if isinstance(item, Note) and item.kind == REWIND:
                if item.data["to"] is None:
                    way = []
                elif item.data["to"] in ids[:at]:
                    way = ways[ids.index(str(item.data["to"]))]
            elif isinstance(item, Note) and item.kind == REDACTION:
                newest = at if item.data["event_id"] in ids[:at] else newest
        ways.append([*way, at])
    plain = extended(EventLog(), log)
    chosen = [without_marks(plain[at], at < newest) for at in (ways or [[]])[-1]]
    return [event for event in chosen if event is not None]


def without_marks(event: Event, without_thoughts: bool) -> Event | None:
    """An event without marks; None if there was nothing else in it."""
    all_marks = [*marks(event, REWIND), *marks(event, REDACTION)]
    kept = [item for item in event.content if item not in all_marks]
    if all_marks and not kept:
        return None
    if without_thoughts:
        kept = [item for item in kept if not isinstance(item, Reasoning)]
    if event.is_reply and not replace(event, content=tuple(kept)).is_reply:
        kept.append(Message(role="assistant", content=""))  # an empty reply
    return replace(event, content=tuple(kept))


@given(log=marked_logs())
def test_what_counts_is_the_way_to_the_last_event(log: list[Event]) -> None:
    assert current(log) == counting(log)


@given(log=marked_logs(), data=st.data())
def test_it_is_the_same_however_the_log_has_grown(
    log: list[Event], data: st.DataObject
) -> None:
    grown, at = EventLog(), 0
    while at < len(log):
        step = data.draw(st.integers(1, len(log) - at))
        grown, at = grown.extended(log[at : at + step]), at + step

        assert current(grown) == current(log[:at])


@given(log=marked_logs())
def test_what_counts_counts_as_it_is(log: list[Event]) -> None:
    assert current(current(log)) == current(log)


def test_what_counts_counts_as_it_is_also_where_a_newer_text_was_left_behind() -> None:
    """The agent looks twice: at what counts for the run, and again for the request."""
    older, newer = marked(hide(A, "oops")), marked(hide(A, "[gone]"))
    log = [A, older, newer, marked(to(older))]

    assert words_of(current(log)) == ["[gone]"]
    assert words_of(current(current(log))) == ["[gone]"]


@given(log=marked_logs(), data=st.data())
def test_a_session_has_no_redacted_word_however_it_was_appended(
    log: list[Event], data: st.DataObject
) -> None:
    at_once, grown, at = extended(EventLog(), log), EventLog(), 0
    while at < len(log):
        step = data.draw(st.integers(1, len(log) - at))
        grown, at = extended(grown, log[at : at + step]), at + step

    assert grown == at_once
    assert [event.event_id for event in grown] == [event.event_id for event in log]
    assert current(grown) == current(log)
    assert extended(EventLog(), grown) == grown


@given(log=logs, more=logs)
def test_without_redactions_appending_is_appending(
    log: list[Event], more: list[Event]
) -> None:
    assert extended(EventLog(log), more) == [*log, *more]


def test_a_redaction_hides_nothing_that_is_appended_behind_it() -> None:
    """Or the log of a live session would not be what is loaded later."""
    early = marked(hide(A, "X"))
    step_by_step = extended(extended(EventLog(), [early]), [A])

    assert step_by_step == extended(EventLog(), [early, A])
    assert words_of(current([early, A, marked(hide(B))])) == ["A"]


def test_a_log_that_grows_behind_a_rewind_is_not_read_again() -> None:
    log = EventLog([A, B, marked(to(A))])
    given_to_a_fold(current(log))

    for _ in range(50):
        log = log.extended([C])

        assert given_to_a_fold(current(log)) == 1


# --- redacted -----------------------------------------------------------------

SECRET = "secret"
HELD: dict[str, Any] = {"a": [SECRET]}
PICTURE = Media(media_type="image/png", data=SECRET, extra=HELD)
CALL = ToolCall(name="pay", tool_call_id="c", arguments=HELD, extra=HELD)
RESULT = ToolResult(
    tool_call_id="c",
    name="pay",
    content=SECRET,
    status="denied",
    media=(PICTURE,),
    details=HELD,
)
DECISION = ToolConfirmation(
    tool_call_id="c",
    approved=False,
    modified_arguments=HELD,
    reason=SECRET,
    answer=SECRET,
    by="ann",
    fingerprint="f",
    path=("b", "c"),
)
CASES: list[tuple[ContentItem, ContentItem]] = [
    (
        Message(role="user", content=SECRET, extra=HELD),
        Message(role="user", content="X"),
    ),
    (
        Message(role="assistant", content=SECRET, extra=HELD),
        Message(role="assistant", content="X"),
    ),
    (PICTURE, Message(role="user", content="X")),
    (Opaque(block=HELD), Message(role="assistant", content="X")),
    (CALL, ToolCall(name="pay", tool_call_id="c", unreadable="X")),
    (
        ToolCall(name="pay", tool_call_id="c", unreadable=SECRET),
        ToolCall(name="pay", tool_call_id="c", unreadable="X"),
    ),
    (RESULT, ToolResult(tool_call_id="c", name="pay", content="X", status="denied")),
    (DECISION, replace(DECISION, modified_arguments={}, reason="X", answer="X")),
    (
        ToolConfirmation(tool_call_id="c", approved=True),
        ToolConfirmation(tool_call_id="c", approved=True),
    ),
    (Note(kind="mine", text=SECRET, data=HELD), Note(kind="mine", text="X")),
    (Note(kind="mine", data=HELD), Note(kind="mine")),
    (to(A), to(A)),
    (hide(A, SECRET), hide(A, "X")),
]


@pytest.mark.parametrize(
    ("item", "expected"), CASES, ids=lambda item: type(item).__name__
)
def test_a_redacted_item_keeps_its_place_and_no_word(
    item: ContentItem, expected: ContentItem
) -> None:
    assert redacted(Event(author="a", content=(item,)), "X").content == (expected,)


def test_a_redacted_event_keeps_no_thought() -> None:
    event = reply(thought(SECRET), "b", Reasoning(content="", redacted=SECRET), CALL)

    assert [type(item) for item in redacted(event, "X").content] == [Message, ToolCall]


def test_a_picture_of_a_reply_becomes_words_of_the_assistant() -> None:
    found = redacted(reply("b", PICTURE), "X").content

    assert found == (Message(role="assistant", content="X"),) * 2


def test_a_message_keeps_its_role_also_beside_one_of_the_other() -> None:
    event = reply("b", Message(role="user", content="by hand"))

    roles = [getattr(item, "role", None) for item in redacted(event, "X").content]

    assert roles == ["assistant", "user"]


def test_a_reply_that_was_nothing_but_a_thought_stays_a_reply() -> None:
    event = Event(author="assistant", content=(thought(),))

    assert event.is_reply
    assert redacted(event, "X").is_reply


any_event = st.one_of([events_of(items) for items in ITEMS.values()])


@given(event=any_event, words=text)
def test_what_is_about_an_event_stays_as_it_was(event: Event, words: str) -> None:
    found = redacted(event, words)

    assert replace(found, content=()) == replace(event, content=())
    kept = [item for item in event.content if not isinstance(item, Reasoning)]
    if event.is_reply and not replace(event, content=tuple(kept)).is_reply:
        kept.append(Message(role="assistant", content=""))  # a reply it stays
    for before, after in zip(kept, found.content, strict=True):
        for name in ("tool_call_id", "name", "status", "approved", "kind", "path"):
            assert getattr(after, name, None) == getattr(before, name, None)


@given(event=any_event, words=text, before=text)
def test_redacting_twice_is_redacting_once_with_the_last_text(
    event: Event, words: str, before: str
) -> None:
    assert redacted(redacted(event, before), words) == redacted(event, words)


def test_no_word_is_left_of_a_redacted_event() -> None:
    event = reply(*(case for case, _ in CASES), thought(SECRET))

    assert SECRET in event.to_json()
    assert SECRET not in redacted(event, "X").to_json()


# --- Who obeys ----------------------------------------------------------------


def call(call_id: str = "c") -> ToolCall:
    return ToolCall(name="pay", tool_call_id=call_id)


def result(call_id: str = "c", content: str = "Paid.") -> Event:
    item = ToolResult(tool_call_id=call_id, name="pay", content=content)
    return Event(author="assistant", content=(item,))


def open_ids(*log: Event) -> list[str]:
    return [record.call.tool_call_id for record in open_calls(log)]


def test_a_call_of_a_branch_that_was_left_is_not_open() -> None:
    asked = reply(call())

    assert open_ids(A, asked) == ["c"]
    assert open_ids(A, asked, marked(to(A))) == []
    assert open_ids(A, asked, marked(to(A)), B, reply(call("d"))) == ["d"]


def test_a_call_whose_branch_is_entered_again_is_open_again() -> None:
    asked = reply(call())

    assert open_ids(A, asked, marked(to(A)), B, marked(to(asked))) == ["c"]


def test_a_call_whose_result_stands_in_a_branch_that_was_left_is_not_open() -> None:
    """It was carried out; going back does not undo that, so it is not run again."""
    asked = reply(call())
    log = [A, asked, result(), reply("Done."), marked(to(asked))]

    assert open_ids(*log) == []
    record = record_of(log, "c")
    assert record is not None
    assert record.result is not None


def test_a_decision_in_a_branch_that_was_left_is_still_known() -> None:
    asked = reply(call())
    decision = ToolConfirmation(tool_call_id="c", approved=True)
    log = [A, asked, Event(author="user", content=(decision,)), marked(to(asked))]

    [record] = open_calls(log)

    assert record.decisions == (decision,)


def test_a_redacted_call_with_a_result_is_closed() -> None:
    asked = reply(call())

    assert open_ids(A, asked, result(), marked(hide(asked))) == []


def shown(events: Sequence[Event]) -> list[str]:
    items = (item for turn in turns(events) for item in turn.content)
    return [getattr(item, "content", "") for item in items]


def test_a_model_is_shown_what_counts() -> None:
    log = [A, reply("b"), B, reply("c"), marked(to(A)), C, reply("d")]

    assert shown(log) == ["A", "C", "d"]


def test_a_model_is_shown_no_redacted_word() -> None:
    asked, answered = reply(thought(), "b", CALL), result(content=SECRET)
    log = [
        A,
        asked,
        answered,
        *(marked(hide(each)) for each in (A, asked, answered)),
        B,
    ]

    assert SECRET not in repr(turns(log))
    assert not any(
        isinstance(i, Reasoning) for turn in turns(log) for i in turn.content
    )
    assert list(violations(turns(log))) == []


@given(log=marked_logs())
def test_every_log_gives_a_valid_request_with_the_next_message(
    log: list[Event],
) -> None:
    # Promise 10
    assert list(violations(turns([*log, said("And now?")]))) == []


def drawn(events: Sequence[Event]) -> str:
    return repr(cards(events))


def test_a_person_sees_what_counts() -> None:
    one, two = said("the first way"), said("the second way")
    log = [A, one, marked(to(A)), two]

    assert "the first way" not in drawn(log)
    assert "the second way" in drawn(log)


def test_a_person_sees_no_redacted_word() -> None:
    log = [said(SECRET), reply(thought(SECRET), CALL), result(content=SECRET)]
    log += [marked(*map(hide, log))]

    assert SECRET not in drawn(log)
    assert "[gone]" in drawn(log)


@given(log=marked_logs())
def test_a_person_sees_the_cards_of_what_counts(log: list[Event]) -> None:
    assert cards(log) == cards(counting(log))
