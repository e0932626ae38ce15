"""What grades exercise 02."""

from datetime import date
from types import ModuleType

import pytest

from minagent import ContentItem, Event, Message, Note
from minagent.transcript import turns


def event(*items: ContentItem) -> Event:
    return Event(author="user", content=items)


def shown(*events: Event) -> list[str]:
    items = [item for turn in turns(events) for item in turn.content]
    return [item.content for item in items if isinstance(item, Message)]


@pytest.mark.parametrize("tell_model", [True, False])
def test_a_deadline_survives_json(work: ModuleType, tell_model: bool) -> None:
    deadline = work.Deadline("the invoice", date(2026, 5, 8))
    note = work.to_note(deadline, tell_model=tell_model)

    [again] = Event.from_json(event(note).to_json()).content

    assert isinstance(again, Note), "to_note must return a Note"
    assert work.from_note(again) == deadline, (
        "from_note must give back an equal deadline, also after the note went through "
        "JSON, and whether or not the model is told"
    )


def test_the_kind_says_what_it_is(work: ModuleType) -> None:
    deadline = work.Deadline("the invoice", date(2026, 5, 8))

    note = work.to_note(deadline, tell_model=True)

    assert note.kind == work.KIND == "deadline", "the note must be of the kind KIND"


def test_the_model_is_told_if_it_is_to_be(work: ModuleType) -> None:
    deadline = work.Deadline("the invoice", date(2026, 5, 8))

    told = shown(event(work.to_note(deadline, tell_model=True)))

    assert len(told) == 1, "with tell_model=True the note must have a text"
    assert "the invoice" in told[0], "the text must hold what is due"
    assert "2026-05-08" in told[0], "the text must hold the day, as in 2026-05-08"


def test_the_model_is_not_told_otherwise(work: ModuleType) -> None:
    deadline = work.Deadline("the invoice", date(2026, 5, 8))
    hello = Message(role="user", content="Hello.")

    told = shown(event(hello), event(work.to_note(deadline, tell_model=False)))

    assert told == ["Hello."], "with tell_model=False the note must have no text"


def test_a_note_of_another_kind_keeps_no_deadline(work: ModuleType) -> None:
    note = Note(kind="summary", data={"what": "the invoice", "due": "2026-05-08"})

    assert work.from_note(note) is None, (
        "from_note must return None for a note of another kind, whatever its data is"
    )


def test_all_deadlines_of_a_log_are_found_in_order(work: ModuleType) -> None:
    first = work.Deadline("the invoice", date(2026, 5, 8))
    second = work.Deadline("the report", date(2026, 4, 1))
    hello = Message(role="user", content="Hello.")
    log = [
        event(hello, work.to_note(first, tell_model=False)),
        event(Note(kind="summary", text="They said hello.")),
        event(work.to_note(second, tell_model=True)),
    ]

    found = work.deadlines(log)

    assert found == [first, second], (
        "deadlines must find those in every event, beside other items too, and in the "
        "order of the log"
    )
