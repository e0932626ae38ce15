"""The log: an immutable sequence of events that grows by making longer ones.

`log.extended(events)` costs only the new events, because a longer log shares the
storage of the shorter one, as slices of a growing array do. A log that is not the
longest of its storage copies itself before it grows, so no log ever sees the events
of another. Copies of a session, the cache of a store and the view that a model gets
are therefore the same few bytes.

What is computed from a log (the transcript, what became of each call) is a `Fold`: an
object that is given each event once, in order. The storage keeps it, so that the next
turn continues the computation where the last one left it.

This file knows nothing of what the events mean.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from threading import Lock
from typing import Protocol, TypeVar, overload

from minagent.events import Event


class Fold(Protocol):
    """A computation over a log, one event at a time. `add` must not raise."""

    def add(self, event: Event) -> None:
        """Take the next event."""


F = TypeVar("F", bound=Fold)
R = TypeVar("R")


@dataclass(slots=True)
class _Storage:
    events: list[Event]
    folds: dict[type[Fold], tuple[Fold, int]] = field(default_factory=dict)
    # Sessions of one manager may live in several threads.
    lock: Lock = field(default_factory=Lock)


class EventLog(Sequence[Event]):
    """An immutable sequence of events; equal to any sequence of the same events."""

    __slots__ = ("_length", "_storage")

    _storage: _Storage
    _length: int

    def __init__(self, events: Iterable[Event] = ()) -> None:
        if isinstance(events, EventLog):
            self._storage, self._length = events._storage, events._length
        else:
            self._storage = _Storage(list(events))
            self._length = len(self._storage.events)

    def extended(self, events: Iterable[Event]) -> "EventLog":
        """Return the log that has these events as well, at its end."""
        new = tuple(events)
        with self._storage.lock:
            if len(self._storage.events) == self._length:
                self._storage.events.extend(new)
                longer = EventLog(self)
                longer._length += len(new)
                return longer
        return EventLog([*self, *new])

    def folded(self, kind: type[F], read: Callable[[F], R]) -> R:
        """Return what `read` finds in a fold of this log.

        Args:
            kind: The fold's class; it is made without arguments.
            read: Takes what it needs. It must not keep the fold, which goes on.
        """
        with self._storage.lock:
            fold, done = self._storage.folds.get(kind, (None, 0))
            if not isinstance(fold, kind) or done > self._length:
                # A longer log was folded before; this one is computed anew.
                fold, done = kind(), 0
            for at in range(done, self._length):
                fold.add(self._storage.events[at])
            self._storage.folds[kind] = fold, self._length
            return read(fold)

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Event, ...]: ...
    def __getitem__(self, index: int | slice) -> Event | tuple[Event, ...]:
        if isinstance(index, slice):
            chosen = range(*index.indices(self._length))
            return tuple(self._storage.events[at] for at in chosen)
        if not -self._length <= index < self._length:
            raise IndexError("no event at this place of the log")
        return self._storage.events[index if index >= 0 else index + self._length]

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Event]:
        return islice(self._storage.events, self._length)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(
            mine == theirs for mine, theirs in zip(self, other, strict=True)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<EventLog of {self._length} events>"
