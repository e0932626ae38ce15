"""Marks: notes in a log that change what counts of it, and erase nothing.

A log only grows. To go back, or to take words out of it, a note is appended that says
so. A *rewind* makes the log count as if it had ended with an earlier event; what is
appended behind the mark goes on from there. A *redaction* puts a text in the place of
what one event says.

`current(events)` is the log as it counts now: what a model is shown and a person sees.
It is a fold (see `log.py`), and for a log without marks it is the log itself.
`extended` appends, and obeys redactions at once: no loaded session has the words.

This file knows nothing of stores: who appends marks, and who removes the words from a
file, is written elsewhere (`timetravel.py`, `store.py`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from minagent.events import (
    ContentItem,
    Event,
    Media,
    Message,
    Note,
    Opaque,
    Reasoning,
    Role,
    ToolCall,
    ToolConfirmation,
    ToolResult,
)
from minagent.log import EventLog

REWIND = "rewind"
"""The kind of the Note that goes back: `{"to": event id}`, or null for the start."""

REDACTION = "redaction"
"""The kind of the Note that takes words out: `{"event_id": …, "text": …}`."""


def current(events: Sequence[Event]) -> EventLog:
    """Return the log as it counts now, without marks.

    Thoughts before a redaction are left out, since they may repeat the words. A mark
    that names no earlier event changes nothing.

    Args:
        events: A log, or any sequence of events.
    """
    log = EventLog(events)
    return log.folded(_Current, lambda fold: fold.of(log))


def extended(log: EventLog, events: Iterable[Event]) -> EventLog:
    """Return the log with these events at its end, and without what they redact.

    Args:
        log: The log, which stays as it is.
        events: What to append.
    """
    new = tuple(events)
    longer = log.extended(new)
    if any(any(marks(event, REDACTION)) for event in new):
        longer = EventLog(_without_words(longer))
    return longer


def redacted(event: Event, text: str) -> Event:
    """Return an event that says `text` and nothing else.

    Each item stays where it is, with its role, ids and status, so that the log keeps
    its form; its words, arguments, pictures and details go. A call in it can no longer
    be carried out. Thoughts go altogether.

    Args:
        event: The event.
        text: What stands there instead.
    """
    role: Role = "assistant" if event.is_reply else "user"
    items = (_redacted(item, text, role) for item in event.content)
    return _with_content(event, [item for item in items if item is not None], text)


def marks(event: Event, kind: str) -> Iterator[Note]:
    """Yield the notes of a kind in an event."""
    for item in event.content:
        if type(item) is Note and item.kind == kind:
            yield item


def is_mark(item: ContentItem) -> bool:
    """Whether an item is a mark."""
    return type(item) is Note and item.kind in (REWIND, REDACTION)


def _redacted(item: ContentItem, text: str, role: Role) -> ContentItem | None:
    match item:
        case Reasoning():
            return None
        case Note(kind="rewind"):
            return item
        case Note(kind="redaction", data=data):
            return Note(kind=REDACTION, data={**data, "text": text})
        case Note(kind=kind):
            return Note(kind=kind, text=None if item.text is None else text)
        case ToolCall(tool_call_id=call_id, name=name):
            return ToolCall(tool_call_id=call_id, name=name, unreadable=text)
        case ToolResult():
            return replace(item, content=text, media=(), details=None)
        case ToolConfirmation(modified_arguments=edited, reason=reason, answer=answer):
            return replace(
                item,
                modified_arguments=None if edited is None else {},
                reason=None if reason is None else text,
                answer=None if answer is None else text,
            )
        case Message():
            return Message(role=item.role, content=text)
        case Media() | Opaque():
            return Message(role=role, content=text)


def _with_content(event: Event, items: Sequence[ContentItem], text: str) -> Event:
    """Return an event with other items; a reply of thoughts alone says the text."""
    changed = replace(event, content=tuple(items))
    if changed.is_reply or not event.is_reply:
        return changed
    return replace(event, content=(*items, Message(role="assistant", content=text)))


def _without_words(events: Sequence[Event]) -> Sequence[Event]:
    """Return events without what later ones among them redact; the last word counts."""
    texts: dict[str, str] = {}
    found: list[Event] = []
    for event in reversed(events):
        if event.event_id in texts:
            event = redacted(event, texts[event.event_id])
        for mark in reversed([*marks(event, REDACTION)]):
            texts.setdefault(
                str(mark.data.get("event_id")), str(mark.data.get("text", ""))
            )
        found.append(event)
    return found[::-1]


class _Current:
    """The log as it counts now, looked through once for all marks that are new."""

    def __init__(self) -> None:
        self._events, self._counts = list[Event](), EventLog()
        # How many events there were behind the last mark, and when last looked at.
        self._marked = self._seen = 0

    def add(self, event: Event) -> None:
        self._events.append(event)
        if any(map(is_mark, event.content)):
            self._marked = len(self._events)

    def of(self, log: EventLog) -> EventLog:
        """Return what counts of the log, which is the one of this fold."""
        if self._seen < self._marked:
            self._counts = EventLog(self._counting())
        elif self._marked:
            self._counts = self._counts.extended(self._events[self._seen :])
        self._seen = len(self._events)
        return self._counts if self._marked else log

    def _counting(self) -> Iterator[Event]:
        """Yield what counts: the way back from the last event to the first."""
        events = _without_words(self._events)
        places = {event.event_id: at for at, event in enumerate(events)}
        before, redaction = [*range(-1, len(events) - 1)], -1
        for at, event in enumerate(events):
            for mark in marks(event, REWIND):
                to = mark.data.get("to", "")
                place = -1 if to is None else places.get(str(to), at)
                before[at] = place if place < at else before[at]
            if any(
                places.get(str(mark.data.get("event_id")), at) < at
                for mark in marks(event, REDACTION)
            ):
                redaction = at
        way, at = [], len(events) - 1
        while at >= 0:
            way.append(at)
            at = before[at]
        for at in reversed(way):
            event, gone = events[at], Reasoning if at < redaction else ()
            kept = [x for x in event.content if not (is_mark(x) or isinstance(x, gone))]
            if len(kept) == len(event.content):
                yield event
            elif kept or not any(map(is_mark, event.content)):
                yield _with_content(event, kept, "")
