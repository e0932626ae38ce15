"""Exercise 02: a kind of note that keeps a deadline."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from minagent import Event, Note

KIND = "deadline"


@dataclass(frozen=True)
class Deadline:
    """Something that is due on a day. It is written for you.

    Attributes:
        what: What is due, such as "the invoice".
        due: The day.
    """

    what: str
    due: date


def to_note(deadline: Deadline, *, tell_model: bool) -> Note:
    """Return a note of the kind `KIND` that keeps a deadline.

    All of the deadline is in `data`, in a form that JSON has a word for. A date is not,
    but the text of `date.isoformat()` is.

    Args:
        deadline: What to keep.
        tell_model: Whether the model is shown it. If so, the note's `text` holds what
            is due, and the day as in "2026-05-08"; if not, the note has no text.
    """
    raise NotImplementedError("to_note is not written yet")


def from_note(note: Note) -> Deadline | None:
    """Return the deadline that a note keeps, or None if it is of another kind.

    It is read from `data`, and equal to the one that `to_note` was given.
    """
    raise NotImplementedError("from_note is not written yet")


def deadlines(events: Sequence[Event]) -> list[Deadline]:
    """Return all deadlines in a log, in the order of the log.

    An event may hold several items, of any type; a deadline is found wherever it is.
    """
    raise NotImplementedError("deadlines is not written yet")
