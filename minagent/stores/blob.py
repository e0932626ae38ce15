"""Sessions as objects that never change, in a folder, in a bucket, in memory.

A save creates one object, whose name is the session's next version, and only if that
name is free: this is the version check, and all the locking that there is. So any
`Storage` will do, and any number of processes and machines may share it.

The objects, for other programs. Each is a JSON object with `format`, `session_id` and
`incarnation`; times are ISO 8601.

    sessions/<id>/head.json                          the session is there
        user_id, created_at
    sessions/<id>/<incarnation>/<version>.json       one save; versions count from 1
        version, write_id, event_count (so far), last_event_id, updated_at,
        state (all of it), events (those of this save, as `Event.to_json` writes them),
        closed (true on the last save of a session that is being deleted)
    sessions/<id>/<incarnation>/segments/<version>.json
        version, event_count, events: those of the 64 saves up to this version
    index/all/<id>-<incarnation>.json                for lists
    index/users/<hash>/<id>-<incarnation>.json       the same, for one owner's
        user_id, created_at, deleted

A version has 20 digits, `<hash>` is the SHA-256 of the owner's id in hex, and `<id>` is
written by `id_in_key`. The session is what the head says: objects of another
incarnation are what a crash left, and so is an index entry without its head. A segment
repeats what the saves hold, so that a long session is read in few requests; it is
written before the 65th, 129th, … save, and may be missing. Only a redaction replaces
objects, once its mark is saved (see `marks.py`); then older saves may lose their state.

Read `BlobSessionManager` from top to bottom. This file knows nothing of runs.
"""

import asyncio
import hashlib
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NoReturn, Self, TypeVar

from minagent.errors import (
    CorruptSessionError,
    KeyTakenError,
    MinagentError,
    MissingKeyError,
    NewerDataError,
    SessionConflictError,
    SessionExistsError,
    SessionNotFoundError,
    StoreClosedError,
    StoreUnavailableError,
    TamperedDataError,
)
from minagent.events import Event, dump_json, load_json, plain, utc_now
from minagent.marks import extended
from minagent.session import (
    Session,
    State,
    check_session_id,
    finished,
    reading,
    state_of,
)
from minagent.store import SessionInfo, SessionStore, check_page
from minagent.stores.cache import EventCache, Seen, nothing_seen
from minagent.stores.storage import Storage

FORMAT = 1
"""The version of the objects; it grows when an older reader could not follow."""

SEGMENT = 64
"""How many saves a segment repeats."""

AT_ONCE = 16
"""How many requests one call makes side by side."""

CLOSING = timedelta(minutes=1)
"""How old the last save of a session is when its deletion counts as cut off."""

CUT_OFF_AFTER = timedelta(hours=1)
"""How old an index entry without a head is when its creation counts as cut off."""

T = TypeVar("T")

# After these a write may have been done or not.
_IN_DOUBT = (StoreUnavailableError, OSError)
_UNREADABLE = (CorruptSessionError, NewerDataError, MissingKeyError, TamperedDataError)
_INCARNATION = re.compile(r"[0-9a-f]{32}")
_ENTRY = re.compile(r"index/all/([0-9a-z._~]+)-([0-9a-f]{32})\.json")


class BlobSessionManager(SessionStore):
    """Keeps sessions in a `Storage`, as objects that are created and never changed.

    Args:
        storage: Where the objects are kept. It is closed with the manager.
        cached_events: How many events to keep in memory, over all sessions, so that
            they need not be read again.
    """

    def __init__(self, storage: Storage, *, cached_events: int = 200_000) -> None:
        self._storage = storage
        self._cache = EventCache(cached_events)
        self._closed = False

    # --- create ---------------------------------------------------------------

    async def create(self, session_id: str, user_id: str | None = None) -> Session:
        session = Session(session_id, user_id)
        self._check_open()
        await finished(self._create(session))
        return session

    async def _create(self, session: Session) -> None:
        session_id = session.session_id
        while head := await self._head(session_id):
            with suppress(_GoneError):
                last = await self._last_save(head)
                if not (last and last.closed):
                    raise SessionExistsError(session_id)
                if utc_now() - last.updated_at > CLOSING:
                    await self._take_out(session_id, head.incarnation)  # cut off
                else:
                    await asyncio.sleep(0.05)  # it is being deleted
        keys = _Keys(session_id, session.incarnation)
        entry = _entry(session, deleted=False)
        # The index first: a session that is in no list would be worse than an entry
        # without a session. Each entry has a name that nobody else uses.
        entries = keys.entries(session.user_id)
        await self._each(entries, lambda key: self._is_created(key, entry))
        if not await self._is_created(keys.head, _head(session)):
            await self._remove(entries)
            raise SessionExistsError(session_id)
        self._cache.put(session)

    async def _is_created(self, key: str, data: bytes) -> bool:
        """Create an object that holds a random token; tell whether it stands there.

        An acknowledgement may be lost, and a client that tries again by itself meets
        its own object: so what is there tells.
        """
        try:
            await self._storage.create(key, data)
        except KeyTakenError:
            return await self._storage.read(key) == data
        except _IN_DOUBT as error:
            try:
                found = await self._storage.read(key)
            except (StoreClosedError, *_IN_DOUBT):
                raise error from None
            if found is None:
                raise
            return found == data
        return True

    # --- get ------------------------------------------------------------------

    async def get(self, session_id: str) -> Session | None:
        check_session_id(session_id)
        self._check_open()
        while True:
            with suppress(_GoneError):  # removed while it was read: look again
                return await self._get(session_id)

    async def _get(self, session_id: str) -> Session | None:
        head = await self._head(session_id)
        if head is None:
            return None
        seen = self._cache.get(session_id)
        if seen.incarnation != head.incarnation:
            seen = nothing_seen()
        read = await self._read_on(head, seen)
        if read is None:
            seen, read = nothing_seen(), await self._read_all(head)
        if read.last and read.last.closed:
            return None
        with reading(session_id):
            log = extended(seen.events, map(Event.from_plain, read.events))
            last = read.last
            if len(log) != (last.event_count if last else 0):
                raise ValueError(f"it has {len(log)} events, which is another number")
            session = Session(
                session_id,
                head.user_id,
                events=log,
                state=last.state if last else {},
                incarnation=head.incarnation,
                version=last.version if last else 0,
                created_at=head.created_at,
            )
        self._cache.put(session)
        return session

    async def _read_on(self, head: "_Head", seen: Seen) -> "_Read | None":
        """Read what stands behind the version that was seen; None if it is another.

        It is if somebody has put back an older copy of the storage.
        """
        if seen.version < 1:
            return None
        keys, at = head.keys, seen.version
        data = await self._read_each([keys.version(at), keys.version(at + 1)])
        if data[0] is None:
            return None
        last = self._save_of(head, at, data[0])
        events = seen.events
        if not last.leads_to(len(events), events[-1] if events else None):
            return None
        if data[1] is None:
            return _Read([], last)
        newest = await self._newest(head, at + 1)
        saves = await self._saves(head, range(at + 1, newest + 1))
        return _Read([event for save in saves for event in save.events], saves[-1])

    async def _read_all(self, head: "_Head") -> "_Read":
        keys = head.keys
        there = set(await self._storage.list(keys.segments))
        done = 0
        while keys.segment(done + SEGMENT) in there:
            done += SEGMENT
        newest = await self._newest(head, done)
        if newest == 0:
            return _Read([], None)
        names = [keys.segment(at) for at in range(SEGMENT, done + 1, SEGMENT)]
        events: list[Any] = []
        for name, data in zip(names, await self._read_each(names), strict=True):
            if data is None:
                await self._missing(head, name)
            events += self._events_of(head, name, data)
        # Where a segment ends the session, the state is still in the save.
        saves = await self._saves(head, range(min(done + 1, newest), newest + 1))
        events += [e for save in saves if save.version > done for e in save.events]
        return _Read(events, saves[-1])

    async def _newest(self, head: "_Head", known: int) -> int:
        """Return the newest version, which is at least the known one."""
        # Where a save is stored while a folder is read, a later one may be listed and
        # an earlier one not: so only the last name counts.
        after = head.keys.version(known - 1) if known > 1 else None
        found = await self._storage.list(head.keys.versions, after=after)
        if not found:
            if known:
                await self._missing(head, head.keys.version(known))
            return 0
        with reading(head.session_id):
            return int(found[-1].rpartition("/")[2].removesuffix(".json"))

    async def _saves(self, head: "_Head", versions: Sequence[int]) -> "list[_Save]":
        names = [head.keys.version(each) for each in versions]
        saves = []
        found = await self._read_each(names)
        for version, name, data in zip(versions, names, found, strict=True):
            if data is None:
                await self._missing(head, name)
            saves.append(self._save_of(head, version, data))
        return saves

    async def _missing(self, head: "_Head", name: str) -> NoReturn:
        """Raise what it means that an object is not there."""
        now = await self._head(head.session_id)
        if now is None or now.incarnation != head.incarnation:
            raise _GoneError
        raise CorruptSessionError(head.session_id, problem=f"{name} is missing")

    # --- save -----------------------------------------------------------------

    async def save(self, session: Session) -> None:
        self._check_open()
        # All that is stored is taken down now: others may go on with the session.
        write = _Write.of(session)
        await finished(self._save(session, write))

    async def _save(self, session: Session, write: "_Write") -> None:
        head = await self._head_of(session)
        made = [head.keys.version(write.version)]
        try:
            if not await self._follows(head, write):
                raise SessionConflictError(session.session_id)
            if write.version > SEGMENT and write.version % SEGMENT == 1:
                made.append(head.keys.segment(write.version - 1))
                await self._write_segment(head, write.version - 1)
        except _GoneError:
            await self._remove(made[1:])
            raise SessionNotFoundError(session.session_id) from None
        data = write.data(session)
        try:
            await self._commit(session, made, data)
        except asyncio.CancelledError:
            # The event loop ends; even then the session and the storage shall agree.
            if await self._storage.read(made[0]) == data:
                session.mark_saved(len(write.events))
            raise
        session.mark_saved(len(write.events))
        self._cache.grow(session, len(write.events))

    async def _commit(self, session: Session, made: Sequence[str], data: bytes) -> None:
        """Create the save's object, and take it back if the session is gone."""
        if not await self._is_created(made[0], data):
            try:
                head = await self._head_of(session)
                # Whoever was faster may have redacted what this segment repeats.
                for _ in made[1:]:
                    await self._write_segment(head, session.version)
            except (SessionNotFoundError, _GoneError):
                await self._remove(made[1:])
                raise SessionNotFoundError(session.session_id) from None
            raise SessionConflictError(session.session_id)
        # Whoever deletes removes the head first. So if it is still there, what was
        # just created is seen by whoever removes it later.
        try:
            await self._head_of(session)
        except SessionNotFoundError:
            with suppress(*_IN_DOUBT):
                await self._remove(made)
            raise
        except (StoreClosedError, *_IN_DOUBT):
            pass  # it is stored, and the head was there a moment ago

    async def _head_of(self, session: Session) -> "_Head":
        """Return the head, if it is still that of this session."""
        head = await self._head(session.session_id)
        if head is None or head.incarnation != session.incarnation:
            raise SessionNotFoundError(session.session_id)
        return head

    async def _follows(self, head: "_Head", write: "_Write") -> bool:
        """Whether what stands before a write is what it was made for.

        It is not if somebody has put back an older copy of the storage, and then the
        name being free would say nothing.
        """
        if write.version == 1:
            return True
        data = await self._storage.read(head.keys.version(write.version - 1))
        if data is None:
            now = await self._head(head.session_id)
            if now is None or now.incarnation != head.incarnation:
                raise _GoneError
            return False
        base = self._save_of(head, write.version - 1, data)
        return base.leads_to(write.count, write.last)

    async def _write_segment(self, head: "_Head", version: int) -> None:
        """Write a segment, until it says what its saves say.

        While they were read, or written here, somebody may have redacted them.
        """
        name, data = head.keys.segment(version), await self._segment(head, version)
        is_new = await self._is_created(name, data)
        stored = data if is_new else await self._storage.read(name)
        while stored != (data := await self._segment(head, version)):
            await self._storage.replace(name, data)
            stored = data

    async def _segment(self, head: "_Head", version: int) -> bytes:
        """Return what a segment has to say."""
        saves = await self._saves(head, range(version - SEGMENT + 1, version + 1))
        about = _about(head.session_id, head.incarnation)
        about |= {"version": version, "event_count": saves[-1].event_count}
        events = [event for save in saves for event in save.events]
        return dump_json({**about, "events": events}, "segment").encode()

    # --- list -----------------------------------------------------------------

    async def page(
        self, *, user_id: str | None = None, limit: int = 100, after: str | None = None
    ) -> Sequence[SessionInfo]:
        check_page(user_id, limit, after)
        self._check_open()
        prefix = _index(user_id)
        # Behind all incarnations of that id, and before the next longer one.
        place = None if after is None else f"{prefix}{id_in_key(after)}-~"
        found: list[SessionInfo] = []
        while len(found) < limit:
            wanted = limit - len(found)
            keys = await self._storage.list(prefix, after=place, limit=wanted)
            infos = await self._each(keys, self._info)
            found += [info for info in infos if info is not None]
            if len(keys) < wanted:
                break
            place = keys[-1]
        return found

    async def _info(self, key: str) -> SessionInfo | None:
        """Return what a list shows of an entry, or None if it has no session."""
        name = key.rpartition("/")[2]
        entry = _ENTRY.fullmatch(f"index/all/{name}")
        if entry is None:
            return None
        session_id = id_of_key(entry[1])
        head = await self._head(session_id)
        if head is None or head.incarnation != entry[2]:
            own = id_in_key(session_id)
            with suppress(*_UNREADABLE):
                # What a deletion has left that was cut off.
                await self._sweep(await self._storage.list(f"sessions/{own}/"))
                await self._sweep_index([f"index/all/{own}-"])
            return None
        with suppress(_GoneError):
            last = await self._last_save(head)
            if last and last.closed:
                if utc_now() - last.updated_at > CLOSING:
                    await self._take_out(session_id, head.incarnation)  # cut off
                return None
            return SessionInfo(
                session_id=session_id,
                user_id=head.user_id,
                version=last.version if last else 0,
                event_count=last.event_count if last else 0,
                created_at=head.created_at,
                updated_at=last.updated_at if last else head.created_at,
            )
        return None

    async def _last_save(self, head: "_Head") -> "_Save | None":
        segments = await self._storage.list(head.keys.segments)
        newest = await self._newest(head, len(segments) * SEGMENT)
        saves = await self._saves(head, [newest] if newest else [])
        return saves[0] if saves else None

    # --- delete ---------------------------------------------------------------

    async def remove(self, session_id: str, *, seen: Session | None = None) -> bool:
        check_session_id(session_id)
        self._check_open()
        return await finished(self._remove_session(session_id, seen))

    async def _remove_session(self, session_id: str, seen: Session | None) -> bool:
        if seen is not None:
            # One last save, so that nobody can save behind what was seen.
            close = _Write.closing(seen)
            try:
                head = await self._head_of(seen)
                name, data = head.keys.version(close.version), close.data(seen)
                if not await self._follows(head, close):
                    return False
                if not await self._is_created(name, data):
                    return False
            except (SessionNotFoundError, _GoneError):
                return False
        meant = None if seen is None else seen.incarnation
        return await self._take_out(session_id, meant)

    async def _take_out(self, session_id: str, incarnation: str | None) -> bool:
        """Remove the heads, then the rest; a call that was cut off can be repeated.

        Args:
            session_id: The session.
            incarnation: Which one is meant; one that was made since is left alone. None
                means whichever there is.
        """
        own, inside = id_in_key(session_id), id_in_key(f"{session_id}/")
        places = [f"sessions/{own}/", f"sessions/{inside}"]
        heads = [k for k in await self._list_each(places) if k.endswith("/head.json")]
        for key in heads:
            only = incarnation if key == f"sessions/{own}/head.json" else None
            if not await self._remove_head(key, only):
                return False
        await self._sweep(await self._list_each(places))
        await self._sweep_index([f"index/all/{own}-", f"index/all/{inside}"])
        return f"sessions/{own}/head.json" in heads

    async def rewrite(self, session: Session, places: Sequence[int]) -> None:
        self._check_open()
        await finished(self._rewrite(session, places))

    async def _rewrite(self, session: Session, places: Sequence[int]) -> None:
        head = await self._head_of(session)
        new = {session.events[at].event_id: session.events[at] for at in places}
        newest = head.keys.version(session.version)

        async def replace(name: str) -> None:
            data = await self._storage.read(name)
            if data is None:
                return
            found = self._parse(head.session_id, head.incarnation, data)
            held = [each for each in found["events"] if each["event_id"] in new]
            for each in held:
                found["events"][found["events"].index(each)] = plain(
                    new[each["event_id"]]
                )
            # The words may have stood in the state, too, and only the newest counts.
            has_state = name < newest and bool(found.get("state"))
            if has_state:
                found["state"] = {}
            if held or has_state:
                await self._storage.replace(name, dump_json(found, "object").encode())

        # The segments are looked for when no save has the words any more: see `save`.
        for place in (head.keys.versions, head.keys.segments):
            await self._each(await self._storage.list(place), replace)

    async def erase(self) -> None:
        self._check_open()  # nothing is ever left

    async def _remove_head(self, key: str, only: str | None) -> bool:
        """Remove a head, and say whether it was that of the only one that is meant."""
        session_id = id_of_key(key.split("/")[1])
        self._cache.forget(session_id)
        with suppress(*_UNREADABLE):
            head = await self._head(session_id)
            if head is not None and only in (None, head.incarnation):
                # If this is cut off, the next call knows what to do with the entry.
                entry = _entry(head, deleted=True)
                await self._storage.replace(head.keys.entries(None)[0], entry)
        if only is not None:
            # As late as can be, since no storage deletes on a condition.
            alive = await self._alive(session_id)
            if alive != only:
                return alive is None
        await self._storage.delete(key)
        return True

    async def _sweep(self, keys: Iterable[str]) -> None:
        """Remove the objects of incarnations that have no head, and never will."""
        alive: dict[str, str | None] = {}
        dead = []
        for key in keys:
            _, name, incarnation, *rest = key.split("/")
            if rest and name not in alive:
                alive[name] = await self._alive(id_of_key(name))
            if rest and alive[name] != incarnation:
                dead.append(key)
        await self._remove(dead)

    async def _sweep_index(self, prefixes: Sequence[str]) -> None:
        for key in await self._list_each(prefixes):
            entry = _ENTRY.fullmatch(key)
            if entry is None:
                continue
            session_id = id_of_key(entry[1])
            if await self._alive(session_id) == entry[2]:
                continue
            try:
                data = await self._storage.read(key)
                if data is None:
                    continue
                found = self._parse(session_id, entry[2], data)
                with reading(session_id):
                    # Without the mark, somebody may be about to create the head.
                    since = utc_now() - datetime.fromisoformat(found["created_at"])
                    if found["deleted"] or since > CUT_OFF_AFTER:
                        keys = _Keys(session_id, entry[2]).entries(found["user_id"])
                        await self._remove([*reversed(keys)])
            except _UNREADABLE:
                await self._storage.delete(key)

    async def _alive(self, session_id: str) -> str | None:
        """Return the incarnation that a session has now."""
        head = await self._head(session_id)
        return None if head is None else head.incarnation

    # --- Objects --------------------------------------------------------------

    async def _head(self, session_id: str) -> "_Head | None":
        data = await self._storage.read(_Keys(session_id, "").head)
        if data is None:
            return None
        found = self._parse(session_id, None, data)
        with reading(session_id):
            if not _INCARNATION.fullmatch(found["incarnation"]):
                raise ValueError("its incarnation is none")
            return _Head(
                session_id=session_id,
                incarnation=found["incarnation"],
                user_id=found["user_id"],
                created_at=datetime.fromisoformat(found["created_at"]),
            )

    def _save_of(self, head: "_Head", version: int, data: bytes) -> "_Save":
        found = self._parse(head.session_id, head.incarnation, data)
        with reading(head.session_id):
            if found["version"] != version:
                raise ValueError(f"save {version} says it is {found['version']}")
            return _Save(
                version=version,
                event_count=int(found["event_count"]),
                last_event_id=found["last_event_id"],
                updated_at=datetime.fromisoformat(found["updated_at"]),
                state=state_of(found["state"]),
                events=[*found["events"]],
                closed=bool(found.get("closed")),
            )

    def _events_of(self, head: "_Head", name: str, data: bytes) -> Sequence[Any]:
        found = self._parse(head.session_id, head.incarnation, data)
        with reading(head.session_id):
            if head.keys.segment(found["version"]) != name:
                raise ValueError(f"{name} is of version {found['version']}")
            return [*found["events"]]

    def _parse(self, session_id: str, incarnation: str | None, data: bytes) -> Any:
        with reading(session_id):
            found = load_json(data.decode())
            known = int(found["format"])
        if known > FORMAT:
            raise NewerDataError(subject=session_id, found=known, known=FORMAT)
        with reading(session_id):
            if found["session_id"] != session_id:
                raise ValueError(f"an object is of session {found['session_id']!r}")
            if incarnation not in (None, found["incarnation"]):
                raise ValueError("an object is of another incarnation")
        return found

    async def _read_each(self, keys: Sequence[str]) -> Sequence[bytes | None]:
        return await self._each(keys, self._storage.read)

    async def _list_each(self, prefixes: Sequence[str]) -> Sequence[str]:
        return [key for each in prefixes for key in await self._storage.list(each)]

    async def _remove(self, keys: Sequence[str]) -> None:
        # In their order: a reader who meets a gap knows that the session goes.
        for key in keys:
            await self._storage.delete(key)

    async def _each(
        self, keys: Sequence[str], work: Callable[[str], Awaitable[T]]
    ) -> Sequence[T]:
        """Do a work for each key, some side by side; all have ended on return."""
        done: dict[str, T] = {}
        waiting = iter(keys)

        async def take() -> None:
            for key in waiting:
                done[key] = await work(key)

        takers = [take() for _ in range(min(AT_ONCE, len(keys)))]
        for outcome in await asyncio.gather(*takers, return_exceptions=True):
            if outcome is not None:
                raise outcome
        return [done[key] for key in keys]

    # --- Closing --------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._check_open()
        return self

    async def aclose(self) -> None:
        self._closed = True
        await self._storage.aclose()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosedError(store=type(self).__name__)


class _GoneError(MinagentError):
    """A session was deleted while it was read."""

    template = "the session was deleted meanwhile"


# --- What the objects say -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Head:
    session_id: str
    incarnation: str
    user_id: str | None
    created_at: datetime

    @property
    def keys(self) -> "_Keys":
        return _Keys(self.session_id, self.incarnation)


@dataclass(frozen=True, slots=True)
class _Save:
    version: int
    event_count: int
    last_event_id: str | None
    updated_at: datetime
    state: State
    events: list[Any]
    closed: bool

    def leads_to(self, count: int, last: Event | None) -> bool:
        """Whether the session had so many events after this save, and this last."""
        last_id = None if last is None else last.event_id
        return (self.event_count, self.last_event_id) == (count, last_id)


@dataclass(frozen=True, slots=True)
class _Read:
    events: list[Any]
    last: _Save | None


@dataclass(frozen=True, slots=True)
class _Write:
    """A save that has begun; `count` and `last` are of the events before it."""

    version: int
    events: tuple[Event, ...]
    count: int
    last: Event | None
    state: str
    updated_at: datetime
    closed: bool = False

    @classmethod
    def of(cls, session: Session) -> "_Write":
        events = session.unsaved
        count = len(session.events) - len(events)
        return cls(
            version=session.version + 1,
            events=events,
            count=count,
            last=session.events[count - 1] if count else None,
            state=session.dump_state(),
            updated_at=session.updated_at,
        )

    @classmethod
    def closing(cls, session: Session) -> "_Write":
        """Return the last save of a session that is to be deleted."""
        write = cls.of(session)
        now = utc_now()
        return replace(write, events=(), state="{}", updated_at=now, closed=True)

    def data(self, session: Session) -> bytes:
        last = self.events[-1] if self.events else self.last
        about = _about(session.session_id, session.incarnation) | {
            "version": self.version,
            "write_id": secrets.token_hex(8),
            "event_count": self.count + len(self.events),
            "last_event_id": last and last.event_id,
            "updated_at": self.updated_at.isoformat(),
        }
        about |= {"closed": True} if self.closed else {}
        start = dump_json(about, "session")[:-1]
        texts = ",".join(event.to_json() for event in self.events)
        return f'{start},"state":{self.state},"events":[{texts}]}}'.encode()


def _about(session_id: str, incarnation: str) -> dict[str, Any]:
    return {"format": FORMAT, "session_id": session_id, "incarnation": incarnation}


def _head(session: Session) -> bytes:
    about = _about(session.session_id, session.incarnation)
    about |= {"user_id": session.user_id, "created_at": session.created_at.isoformat()}
    return dump_json(about, "session").encode()


def _entry(session: Session | _Head, *, deleted: bool) -> bytes:
    about = _about(session.session_id, session.incarnation)
    about |= {"user_id": session.user_id, "created_at": session.created_at.isoformat()}
    return dump_json({**about, "deleted": deleted}, "session").encode()


# --- Keys ---------------------------------------------------------------------


def id_in_key(session_id: str) -> str:
    """Return a session's id as it is written in a key.

    Digits and small letters stand for themselves. Any other byte is two hex digits
    with a sign before them: `.` if the byte is below the digits, `_` if it is below
    the small letters, `~` if it is above. So keys have the order of the ids, an id
    that begins like another has a key that does so too, and no two keys differ by
    upper and lower case alone.
    """
    return "".join(map(_in_key, session_id.encode()))


def id_of_key(text: str) -> str:
    """Return the id that `id_in_key` has written."""
    letters = re.findall(r"[._~]([0-9a-f]{2})|([0-9a-z])", text)
    coded = (bytes.fromhex(code) or letter.encode() for code, letter in letters)
    return b"".join(coded).decode()


def _in_key(byte: int) -> str:
    if byte < ord("0"):
        return f".{byte:02x}"
    if byte <= ord("9") or ord("a") <= byte <= ord("z"):
        return chr(byte)
    return f"_{byte:02x}" if byte < ord("a") else f"~{byte:02x}"


def _index(user_id: str | None) -> str:
    if user_id is None:
        return "index/all/"
    return f"index/users/{hashlib.sha256(user_id.encode()).hexdigest()}/"


@dataclass(frozen=True, slots=True)
class _Keys:
    session_id: str
    incarnation: str

    @property
    def head(self) -> str:
        return f"sessions/{id_in_key(self.session_id)}/head.json"

    @property
    def saved(self) -> str:
        return f"sessions/{id_in_key(self.session_id)}/{self.incarnation}"

    @property
    def versions(self) -> str:
        return f"{self.saved}/0"  # as 20 digits begin, and `segments` does not

    @property
    def segments(self) -> str:
        return f"{self.saved}/segments/"

    def version(self, version: int) -> str:
        return f"{self.saved}/{version:020}.json"

    def segment(self, version: int) -> str:
        return f"{self.segments}{version:020}.json"

    def entries(self, user_id: str | None) -> Sequence[str]:
        name = f"{id_in_key(self.session_id)}-{self.incarnation}.json"
        users = [] if user_id is None else [_index(user_id) + name]
        return [f"index/all/{name}", *users]
