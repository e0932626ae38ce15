"""Stores: managers for whoever looks after many sessions, and one in memory.

A `SessionStore` can also list sessions, delete them, and take words out of them. Every
manager that minagent ships is one. A store of your own needs five methods more than a
`SessionManager`: `page`, `remove`, `rewrite`, `erase` and `aclose`; `list`, `delete`,
`prune` and `redact` are built on them. `minagent.testing.SessionStoreContract` holds it
to what is written here.

`InMemorySessionManager`, at the end, is the shortest whole example.

This file knows nothing of runs, models or tools.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from threading import Lock
from typing import Literal, Self

from minagent import errors
from minagent.events import Event, Note, ToolResult
from minagent.ledger import open_calls
from minagent.marks import REDACTION, marks
from minagent.session import (
    Session,
    SessionManager,
    check_session_id,
    check_user_id,
    finished,
)


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """What a list shows of a session.

    Attributes:
        session_id: Its id.
        user_id: Its owner, or None.
        version: The number of saves.
        event_count: The number of events.
        created_at: When it was created, in UTC.
        updated_at: When its newest event was recorded, in UTC.
    """

    session_id: str
    user_id: str | None
    version: int
    event_count: int
    created_at: datetime
    updated_at: datetime


class SessionStore(SessionManager):
    """A manager that can also list, delete and redact, and that is closed when done.

    Use it as `async with store:`, or call `aclose` at the end.
    """

    @abstractmethod
    async def page(
        self, *, user_id: str | None = None, limit: int = 100, after: str | None = None
    ) -> Sequence[SessionInfo]:
        """Return what is known of the stored sessions, in the order of their ids.

        Those inside others are among them; the arguments and errors are those of
        `list`.
        """

    @abstractmethod
    async def remove(self, session_id: str, *, seen: Session | None = None) -> bool:
        """Take out a session and those inside it; `delete` does this, and erases.

        Args:
            session_id: The session.
            seen: As for `delete`.

        Returns:
            Whether it was there, and is not any more.
        """

    @abstractmethod
    async def rewrite(self, session: Session, places: Sequence[int]) -> None:
        """Store events again, in the place of what stood there; for `redact`.

        Args:
            session: A session, as it is stored.
            places: Which of its events, counted from 0.
        """

    @abstractmethod
    async def erase(self) -> None:
        """Remove what `remove` and `rewrite` have left of the text in files.

        Raises:
            ErasurePendingError: Somebody still reads what was there before.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Let go of all resources. Closing twice is harmless.

        Any other call afterwards raises `StoreClosedError`.
        """

    async def list(
        self,
        *,
        user_id: str | None = None,
        limit: int = 100,
        after: str | None = None,
        children: bool = False,
    ) -> "list[SessionInfo]":
        """Return what is known of the stored sessions, in the order of their ids.

        Args:
            user_id: Whose sessions; None means everybody's.
            limit: How many at most, at least 1.
            after: The last id of the page before, or None for the first page.
            children: Whether those inside another of the same owner (`<session>/…`) are
                among them, such as those of agents that work for another agent.

        Raises:
            ValueError: `limit` is below 1, or an id is none.
        """
        found: list[SessionInfo] = []
        known: dict[str, str | None] = {}
        while len(found) < max(limit, 1):
            wanted = limit - len(found)
            infos = await self.page(user_id=user_id, limit=wanted, after=after)
            known |= {each.session_id: each.user_id for each in infos}
            found += [
                x for x in infos if children or not await self._is_child(x, known)
            ]
            if len(infos) < wanted:
                break
            after = infos[-1].session_id
        return found

    async def _is_child(
        self, info: SessionInfo, known: "dict[str, str | None]"
    ) -> bool:
        """Whether a session is inside another of its owner.

        Args:
            info: The session.
            known: Owners of sessions, by id; what is looked up is added.
        """
        outer = _outer_ids(info.session_id)
        for each in outer:
            if each not in known and (session := await self.get(each)):
                known[each] = session.user_id
        return any(known.get(each, ...) == info.user_id for each in outer)

    async def delete(self, session_id: str, *, seen: Session | None = None) -> bool:
        """Delete a session and the sessions inside it (`<session_id>/…`), for good.

        If it is cut off, call it again.

        Args:
            session_id: The session.
            seen: Delete it only if nobody has saved it since this was read.

        Returns:
            Whether it was deleted. Deleting what is not there is harmless.

        Raises:
            ErasurePendingError: It is deleted, but its text is not out of the files
                yet, since somebody reads them. `erase` finishes it, and so does the
                next deletion.
        """
        return await finished(self._delete(session_id, seen))

    async def _delete(self, session_id: str, seen: Session | None) -> bool:
        gone = await self.remove(session_id, seen=seen)
        await self.erase()  # in any case: a deletion before may have been cut off
        return gone

    async def prune(
        self, *, older_than: datetime, pending: Literal["keep", "delete"] = "keep"
    ) -> tuple[str, ...]:
        """Delete the sessions in which nothing has happened for long.

        A session and those inside it go together, once all of them are old enough.
        One that is saved while this is at work stays. (Of those inside it, one that is
        saved in the very moment of the deletion does not.)

        Args:
            older_than: A session goes if its newest event is older; an aware time.
            pending: Whether to keep a session in which a call has no result yet, such
                as one that waits for a person.

        Returns:
            The ids of the sessions that went, without those inside them.

        Raises:
            ValueError: The time is naive: in which time zone, nobody can tell.
            CorruptSessionError: One cannot be read; delete it, and prune again.
            ErasurePendingError: As for `delete`, once all is deleted.
        """
        if older_than.tzinfo is None:
            raise ValueError(f"older_than is {older_than!r}; give it a time zone")
        if pending not in ("keep", "delete"):
            raise ValueError(f"pending is {pending!r}, not 'keep' or 'delete'")
        gone: tuple[str, ...] = ()
        for infos in await self._old_families(older_than):
            family = [await self.get(info.session_id) for info in infos]
            session, session_id = family[0], infos[0].session_id
            stays = any(
                each is None
                or each.version != info.version
                or (pending == "keep" and open_calls(each.events))
                for each, info in zip(family, infos, strict=True)
            )
            if session is None or stays:
                continue
            if await self.remove(session_id, seen=session):
                gone += (session_id,)
        await self.erase()
        return gone

    async def _old_families(
        self, older_than: datetime
    ) -> Sequence[Sequence[SessionInfo]]:
        """Return the sessions that are old, each with those inside it behind it."""
        families: dict[str, tuple[SessionInfo, ...]] = {}
        young: set[str] = set()
        after: str | None = None
        while page := await self.page(after=after, limit=1_000):
            for info in page:
                # Whatever a session is inside of comes before it.
                outer = _outer_ids(info.session_id)
                root = next((x for x in outer if x in families), info.session_id)
                families[root] = (*families.get(root, ()), info)
                if info.updated_at >= older_than:
                    young.add(root)
            after = page[-1].session_id
        return [infos for root, infos in families.items() if root not in young]

    async def redact(self, session_id: str, event_id: str, text: str) -> None:
        """Take what an event says out of a session, for good.

        The log keeps its form: the event stays, and each of its items says `text`.
        First a mark is saved, which whoever loads the session obeys; then the words are
        removed from whatever holds them. If that is cut off, call this again. What a
        program has put into `state` is its own to change.

        Args:
            session_id: The session.
            event_id: The event.
            text: What stands there instead.

        Raises:
            SessionNotFoundError: There is no such session.
            UnknownEventError: It has no such event.
            OpenCallError: A call in it has no result yet; decide or continue it first.
            ErasurePendingError: As for `delete`.
        """
        while True:
            session = await self.get(session_id)
            if session is None:
                raise errors.SessionNotFoundError(session_id)
            places = _places(session, event_id)
            ids = [session.events[at].event_id for at in places]
            if all(_is_marked(session, each, text) for each in ids):
                break  # by a call that was cut off
            notes = tuple(
                Note(kind=REDACTION, data={"event_id": each, "text": text})
                for each in ids
            )
            session.append(Event(author="redact", content=notes))
            try:
                await self.save(session)
                break
            except errors.SessionConflictError:
                await asyncio.sleep(0)  # somebody was faster; mark what is there now
        await self.rewrite(session, _with_named(session, places))
        await self.erase()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class InMemorySessionManager(SessionStore):
    """Keeps sessions in a dictionary: for tests, demos and programs of one process.

    It is a faithful stand-in: what it keeps went through the same gate to JSON, and
    what it hands out are copies.
    """

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}
        self._closed = False
        # Several event loops, in threads of their own, may share one manager.
        self._lock = Lock()

    async def __aenter__(self) -> Self:
        with self._open():
            return self

    async def create(self, session_id: str, user_id: str | None = None) -> Session:
        session = Session(session_id, user_id)
        with self._open():
            if session_id in self._sessions:
                raise errors.SessionExistsError(session_id)
            self._sessions[session_id] = session.copy()
        return session

    async def get(self, session_id: str) -> Session | None:
        check_session_id(session_id)
        with self._open():
            kept = self._sessions.get(session_id)
            return kept and kept.copy()

    async def save(self, session: Session) -> None:
        newer = session.copy()
        with self._open():
            kept = self._sessions.get(session.session_id)
            if kept is None or kept.incarnation != session.incarnation:
                raise errors.SessionNotFoundError(session.session_id)
            if kept.version != session.version:
                raise errors.SessionConflictError(session.session_id)
            newer._user_id, newer._created_at = kept._user_id, kept._created_at
            newer.mark_saved()
            self._sessions[session.session_id] = newer
            session.mark_saved()

    async def page(
        self, *, user_id: str | None = None, limit: int = 100, after: str | None = None
    ) -> Sequence[SessionInfo]:
        check_page(user_id, limit, after)
        start = (after or "").encode()
        with self._open():
            kept = sorted((key.encode(), each) for key, each in self._sessions.items())
        found = [each for key, each in kept if key > start]
        mine = [each for each in found if user_id in (None, each.user_id)]
        return [
            SessionInfo(
                each.session_id,
                each.user_id,
                each.version,
                len(each.events),
                each.created_at,
                each.updated_at,
            )
            for each in mine[:limit]
        ]

    async def remove(self, session_id: str, *, seen: Session | None = None) -> bool:
        check_session_id(session_id)
        with self._open():
            kept = self._sessions.get(session_id)
            if seen is not None and not (kept and kept.is_as_in(seen)):
                return False
            for each in [*self._sessions]:
                if each.startswith(f"{session_id}/"):
                    del self._sessions[each]
            return self._sessions.pop(session_id, None) is not None

    async def rewrite(self, session: Session, places: Sequence[int]) -> None:
        with self._open():
            pass  # the save of the mark has stored the log without the words

    async def erase(self) -> None:
        with self._open():
            pass

    async def aclose(self) -> None:
        self._closed = True

    @contextmanager
    def _open(self) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise errors.StoreClosedError(store=type(self).__name__)
            yield


# --- For writers of stores ----------------------------------------------------


def check_page(user_id: str | None, limit: int, after: str | None) -> None:
    """Check what `SessionStore.list` was asked.

    Raises:
        ValueError: The limit is below 1, or an id is none.
    """
    check_user_id(user_id)
    check_user_id(after)  # of the same form
    if limit < 1:
        raise ValueError(f"limit is {limit}; a page has at least 1")


def _outer_ids(session_id: str) -> Sequence[str]:
    """Return the ids of the sessions that a session may be inside of."""
    parts = session_id.split("/")
    # Not the empty one in front of a first "/": that is no id.
    return ["/".join(parts[:n]) for n in range(1 + (not parts[0]), len(parts))]


def _places(session: Session, event_id: str) -> list[int]:
    """Return where an event stands, and where copies of its results do.

    Raises:
        UnknownEventError: The session has no such event.
        OpenCallError: A call in it has no result yet.
    """
    log = session.events
    named = [event for event in log if event.event_id == event_id]
    if not named:
        raise errors.UnknownEventError(session.session_id, event_id=event_id)
    found = _with_copies(log, named)
    left = {record.call.tool_call_id for record in open_calls(log)}
    for item in (item for event in found for item in event.content):
        if (call_id := getattr(item, "tool_call_id", "")) in left:
            raise errors.OpenCallError(call_id)
    return [at for at, event in enumerate(log) if event in found]


def _with_copies(log: Sequence[Event], found: Sequence[Event]) -> Sequence[Event]:
    """Return events, and those that have a result of theirs as well.

    One may have other results beside it. They go with it, so their copies go, too.
    """
    gone = [x for event in found for x in event.content if isinstance(x, ToolResult)]
    more = [e for e in log if e in found or any(item in gone for item in e.content)]
    return found if len(more) == len(found) else _with_copies(log, more)


def _with_named(session: Session, places: Sequence[int]) -> Sequence[int]:
    """Return the places, and those of the events that redactions in them name.

    For a redaction has its text twice: in the mark, and where it is obeyed.
    """
    log, found = session.events, set(places)
    for at in sorted(found, reverse=True):
        named = {note.data.get("event_id") for note in marks(log[at], REDACTION)}
        also = [each for each in range(at) if log[each].event_id in named]
        found |= {*_with_named(session, also)}
    return sorted(found)


def _is_marked(session: Session, event_id: str, text: str) -> bool:
    """Whether the newest redaction of an event says this."""
    notes = [note.data for event in session.events for note in marks(event, REDACTION)]
    about = [data for data in notes if data.get("event_id") == event_id]
    return bool(about) and about[-1].get("text") == text
