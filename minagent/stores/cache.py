"""The events that a store has read before, so that it reads only what is new.

Events are immutable, so every copy of a session shares them. Whether an entry still
holds is judged by the store that reads, by what it finds of the session now.

This file knows nothing of where the sessions are kept.
"""

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock

from minagent.log import EventLog
from minagent.marks import extended
from minagent.session import Session


@dataclass(frozen=True, slots=True)
class Seen:
    """What a store has seen of a session.

    Attributes:
        incarnation: The session's; with another one nothing holds.
        version: The version of the session then.
        events: Its events then.
    """

    incarnation: str
    version: int
    events: EventLog


def nothing_seen() -> Seen:
    """Return what was seen of a session that was never read.

    A fresh log each time: logs share their storage with those that grow from them, and
    one for all would hold on to the first session that was ever read.
    """
    return Seen("", -1, EventLog())


class EventCache:
    """What was seen of each session, least recently used first out.

    Args:
        capacity: How many events to keep, over all sessions.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._size = 0
        self._entries: OrderedDict[str, Seen] = OrderedDict()
        self._lock = Lock()

    def get(self, session_id: str) -> Seen:
        """Return what was seen of a session, or `nothing_seen()`."""
        with self._lock:
            if session_id in self._entries:
                self._entries.move_to_end(session_id)
            return self._entries.get(session_id) or nothing_seen()

    def put(self, session: Session) -> None:
        """Keep what was read: a session of which everything is saved."""
        seen = Seen(session.incarnation, session.version, session.events)
        with self._lock:
            present = self._entries.get(session.session_id) or nothing_seen()
            same = present.incarnation == seen.incarnation
            if same and present.version > seen.version:
                return  # somebody who asked later was answered first
            self._put(session.session_id, seen)

    def grow(self, session: Session, added: int) -> None:
        """Take over what a save has just stored, if its base is what is kept here."""
        with self._lock:
            present = self._entries.get(session.session_id) or nothing_seen()
            base = len(session.events) - len(session.unsaved) - added
            known = present.incarnation, present.version, len(present.events)
            if known == (session.incarnation, session.version - 1, base):
                log = session.events
                if session.unsaved:
                    log = extended(present.events, log[base : base + added])
                grown = Seen(session.incarnation, session.version, log)
                self._put(session.session_id, grown)

    def forget(self, session_id: str) -> None:
        """Drop what was seen of a session."""
        with self._lock:
            self._drop(session_id)

    def _put(self, session_id: str, seen: Seen) -> None:
        self._drop(session_id)
        self._entries[session_id] = seen
        self._size += len(seen.events) + 1
        while self._size > self._capacity:
            self._drop(next(iter(self._entries)))

    def _drop(self, session_id: str) -> None:
        if entry := self._entries.pop(session_id, None):
            self._size -= len(entry.events) + 1
