"""A solution of exercise 02."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from minagent import Event, Note

KIND = "deadline"


@dataclass(frozen=True)
class Deadline:
    """Something that is due on a day.

    Attributes:
        what: What is due, such as "the invoice".
        due: The day.
    """

    what: str
    due: date


def to_note(deadline: Deadline, *, tell_model: bool) -> Note:
    """Return a note of the kind `KIND` that keeps a deadline."""
    day = deadline.due.isoformat()
    text = f"{deadline.what} is due on {day}." if tell_model else None
    return Note(kind=KIND, text=text, data={"what": deadline.what, "due": day})


def from_note(note: Note) -> Deadline | None:
    """Return the deadline that a note keeps, or None if it is of another kind."""
    if note.kind != KIND:
        return None
    day = date.fromisoformat(str(note.data["due"]))
    return Deadline(what=str(note.data["what"]), due=day)


def deadlines(events: Sequence[Event]) -> list[Deadline]:
    """Return all deadlines in a log, in the order of the log."""
    items = [item for event in events for item in event.content]
    found = [from_note(item) for item in items if isinstance(item, Note)]
    return [each for each in found if each is not None]
