"""What `BlobSessionManager` promises: the contract, and what a store adds."""

import asyncio
import json
import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from minagent import Event, Message, Session, SessionManager, SessionStore
from minagent.errors import (
    CorruptSessionError,
    KeyTakenError,
    NewerDataError,
    SessionConflictError,
    SessionExistsError,
    SessionNotFoundError,
    StoreClosedError,
    StoreUnavailableError,
)
from minagent.events import utc_now
from minagent.stores import BlobSessionManager, FolderStorage, MemoryStorage, Storage
from minagent.stores.blob import SEGMENT, id_in_key, id_of_key
from minagent.testing import SessionStoreContract

pytestmark = pytest.mark.heavy


class TestBlobSessionManagerInAFolder(SessionStoreContract):
    def open_store(self, tmp_path: Path) -> SessionStore:
        return BlobSessionManager(FolderStorage(tmp_path / "s", durability="normal"))


class TestBlobSessionManagerInMemory(SessionStoreContract):
    durable = False

    def open_store(self, tmp_path: Path) -> SessionStore:
        return BlobSessionManager(MemoryStorage())


@pytest.fixture(params=["memory", "folder"])
def storage(tmp_path: Path, request: Any) -> Storage:
    if request.param == "memory":
        return MemoryStorage()
    return FolderStorage(tmp_path / "objects", durability="normal")


@pytest.fixture
def store(storage: Storage) -> SessionStore:
    return BlobSessionManager(storage)


@pytest.fixture
def other(storage: Storage) -> SessionStore:
    """Another manager on the same storage, as another process has one."""
    return BlobSessionManager(storage)


class Wrapped(Storage):
    """A storage in memory, with something between it and its user."""

    def __init__(self) -> None:
        self.inner = MemoryStorage()

    async def create(self, key: str, data: bytes) -> None:
        await self.inner.create(key, data)

    async def read(self, key: str) -> bytes | None:
        return await self.inner.read(key)

    async def replace(self, key: str, data: bytes) -> None:
        await self.inner.replace(key, data)

    async def list(
        self, prefix: str, *, after: str | None = None, limit: int | None = None
    ) -> "list[str]":
        return await self.inner.list(prefix, after=after, limit=limit)

    async def delete(self, key: str) -> None:
        await self.inner.delete(key)

    async def aclose(self) -> None:
        await self.inner.aclose()


def said(text: str) -> Event:
    return Event(author="user", content=(Message(role="user", content=text),))


def texts(session: Session | None) -> list[str]:
    assert session is not None
    items = [item for event in session.events for item in event.content]
    return [item.content for item in items if isinstance(item, Message)]


async def say(sessions: SessionManager, session: Session, *words: str) -> None:
    session.append(*map(said, words))
    await sessions.save(session)


async def say_often(sessions: SessionManager, session: Session, count: int) -> None:
    for number in range(count):
        await say(sessions, session, f"{number}")


async def got(sessions: SessionManager, session_id: str = "ada") -> Session:
    session = await sessions.get(session_id)
    assert session is not None
    return session


async def ids(store: SessionStore) -> list[str]:
    return [info.session_id for info in await store.list(children=True)]


# --- Racers -------------------------------------------------------------------


async def test_of_64_racing_creates_one_wins(storage: Storage) -> None:
    # Promise 13, O13
    managers = [BlobSessionManager(storage) for _ in range(64)]

    async def create(number: int) -> str | None:
        with suppress(SessionExistsError):
            user = f"user-{number}"
            return (await managers[number].create("ada", user)).user_id
        return None

    won = [each for each in await asyncio.gather(*map(create, range(64))) if each]

    assert len(won) == 1
    assert (await got(managers[0])).user_id == won[0]
    assert await ids(managers[0]) == ["ada"]
    # The losers have left nothing behind.
    assert len(await storage.list("index/")) == 2
    assert len(await storage.list("sessions/")) == 1


async def test_a_stale_holder_is_refused_after_delete_and_create_again(
    store: SessionStore, other: SessionStore, storage: Storage
) -> None:
    # Promise 14
    stale = await store.create("ada", "ann")
    await say(store, stale, "old")
    await other.delete("ada")

    with pytest.raises(SessionNotFoundError):
        await say(store, stale, "too late")
    again = await other.create("ada", "bob")
    for _ in range(3):
        with pytest.raises(SessionNotFoundError):
            await store.save(stale)
        await say(other, again, "new")

    assert texts(await got(store)) == ["new"] * 3
    assert await storage.list(f"sessions/ada/{stale.incarnation}") == []


async def test_a_save_that_meets_a_delete_takes_its_object_back() -> None:
    """The head goes between its look before and its look behind."""

    class DeletedMeanwhile(Wrapped):
        async def create(self, key: str, data: bytes) -> None:
            if key.endswith(f"/{2:020}.json"):
                await other.delete("ada")
                await other.create("ada")
            await super().create(key, data)

    storage = DeletedMeanwhile()
    store, other = BlobSessionManager(storage), BlobSessionManager(storage)
    session = await store.create("ada")
    await say(store, session, "one")

    with pytest.raises(SessionNotFoundError):
        await say(store, session, "two")

    assert (session.version, len(session.unsaved)) == (1, 1)
    assert await storage.list(f"sessions/ada/{session.incarnation}") == []
    assert texts(await got(store)) == []


async def test_a_segment_that_meets_a_delete_is_taken_back() -> None:
    """Its words were read before the delete, and are written behind it."""

    class DeletedMeanwhile(Wrapped):
        async def create(self, key: str, data: bytes) -> None:
            if "/segments/" in key:
                await other.delete("ada")
            await super().create(key, data)

    storage = DeletedMeanwhile()
    store, other = BlobSessionManager(storage), BlobSessionManager(storage)
    session = await store.create("ada")
    await say(store, session, "marker")
    await say_often(store, session, SEGMENT - 1)

    with pytest.raises(SessionNotFoundError):
        await say(store, session, "more")

    assert await words_in(storage, "marker") == []


async def test_a_get_that_meets_a_delete_finds_the_session_or_none() -> None:
    class DeletedMeanwhile(Wrapped):
        async def read(self, key: str) -> bytes | None:
            if key.endswith(f"/{1:020}.json"):
                await other.delete("ada")
            return await super().read(key)

    storage = DeletedMeanwhile()
    other = BlobSessionManager(storage)
    await say(other, await other.create("ada"), "one")

    assert await BlobSessionManager(storage).get("ada") is None


async def test_a_save_that_is_cancelled_is_finished_first() -> None:
    # Promise 15
    class Slow(Wrapped):
        async def create(self, key: str, data: bytes) -> None:
            if key.endswith(f"/{1:020}.json"):
                begun.set()
                await go_on.wait()
            await super().create(key, data)

    begun, go_on = asyncio.Event(), asyncio.Event()
    store = BlobSessionManager(Slow())
    session = await store.create("ada")
    session.append(said("Hello."))
    saving = asyncio.ensure_future(store.save(session))
    await begun.wait()

    saving.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await saving

    assert (session.version, session.unsaved) == (1, ())
    assert texts(await got(store)) == ["Hello."]


@pytest.mark.parametrize("steps", range(0, 60, 3))
def test_a_save_that_the_end_of_the_event_loop_meets_agrees_with_the_storage(
    tmp_path: Path, steps: int
) -> None:
    """`asyncio.run` cancels every task, those that shield a save as well."""
    # Promise 15
    store = BlobSessionManager(FolderStorage(tmp_path, durability="normal"))

    async def leave_a_save() -> Session:
        session = await store.create("ada")
        session.append(said("Hello."))
        saving = asyncio.ensure_future(store.save(session))
        for _ in range(steps):
            await asyncio.sleep(0)
        del saving
        return session

    session = asyncio.run(leave_a_save())

    stored = asyncio.run(got(store))
    assert (session.version, len(session.events) - len(session.unsaved)) == (
        stored.version,
        len(stored.events),
    )


class Hesitant(Wrapped):
    """Waits before each verb and after it, for nobody knows how long."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.chance = random.Random(seed)

    async def _wait(self) -> None:
        for _ in range(self.chance.choice((0, 0, 1, 2, 5, 20))):
            await asyncio.sleep(0)

    async def create(self, key: str, data: bytes) -> None:
        await self._wait()
        await super().create(key, data)
        await self._wait()

    async def read(self, key: str) -> bytes | None:
        await self._wait()
        data = await super().read(key)
        await self._wait()
        return data

    async def list(
        self, prefix: str, *, after: str | None = None, limit: int | None = None
    ) -> "list[str]":
        await self._wait()
        return await super().list(prefix, after=after, limit=limit)

    async def delete(self, key: str) -> None:
        await self._wait()
        await super().delete(key)
        await self._wait()


@pytest.mark.parametrize("seed", range(10))
async def test_whatever_happens_at_once_the_rest_is_whole(seed: int) -> None:
    """Some create, save and read a session while others delete it."""
    storage, chance = Hesitant(seed), random.Random(seed)
    held: list[Session] = []

    async def work(number: int) -> None:
        store = BlobSessionManager(storage)
        for turn in range(12):
            session_id = chance.choice(("a", "a/b"))
            step = chance.choice(("open", "open", "open", "list", "delete"))
            if step == "delete":
                await store.delete(session_id)
            elif step == "list":
                await store.list(children=True)
            else:
                with suppress(SessionConflictError, SessionNotFoundError):
                    session = await store.get_or_create(session_id, "ann")
                    held.append(session)
                    await say(store, session, f"{number}.{turn}")

    await asyncio.gather(*map(work, range(6)))

    store = BlobSessionManager(storage)
    there = [each for each in ("a", "a/b") if await store.get(each) is not None]
    assert await ids(store) == there
    hers = await store.list(user_id="ann", children=True)
    assert [info.session_id for info in hers] == there
    alive = {(await got(store, each)).incarnation for each in there}
    for session in held:
        left = await storage.list(
            f"sessions/{id_in_key(session.session_id)}/{session.incarnation}/"
        )
        assert session.incarnation in alive or left == []
        if session.incarnation in alive:
            stored = texts(await got(store, session.session_id))
            saved = session.events[: len(session.events) - len(session.unsaved)]
            assert stored[: len(saved)] == texts(Session("s", events=saved))


# --- A lost acknowledgement ---------------------------------------------------


class Forgetful(Wrapped):
    """Stores what it is given, and then says that it could not."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    async def create(self, key: str, data: bytes) -> None:
        await super().create(key, data)
        raise self.error


each_error = pytest.mark.parametrize(
    "error",
    [
        KeyTakenError("key"),  # of a client that has tried again by itself
        StoreUnavailableError(place="there", problem="the line is dead"),
        ConnectionResetError("the line is dead"),
    ],
    ids=lambda error: type(error).__name__,
)


@each_error
async def test_a_lost_acknowledgement_is_no_conflict(error: Exception) -> None:
    # Promise 15
    storage = Forgetful(error)
    store = BlobSessionManager(storage)

    session = await store.create("ada", "ann")
    await say_often(store, session, SEGMENT + 2)

    assert texts(await got(store)) == [f"{number}" for number in range(SEGMENT + 2)]
    assert texts(await got(BlobSessionManager(storage))) == texts(session)
    assert await ids(store) == ["ada"]


@each_error
async def test_a_conflict_is_one_also_where_acknowledgements_are_lost(
    error: Exception,
) -> None:
    storage = Forgetful(error)
    store, other = BlobSessionManager(storage), BlobSessionManager(storage)
    mine = await store.create("ada")
    await say(other, await got(other), "theirs")

    with pytest.raises(SessionConflictError):
        await say(store, mine, "mine")
    with pytest.raises(SessionExistsError):
        await store.create("ada")

    assert texts(await got(store)) == ["theirs"]


async def test_a_save_that_was_not_stored_says_why_and_can_be_repeated() -> None:
    class Down(Wrapped):
        down = False

        async def create(self, key: str, data: bytes) -> None:
            if self.down:
                raise StoreUnavailableError(place="there", problem="down")
            await super().create(key, data)

    storage = Down()
    store = BlobSessionManager(storage)
    session = await store.create("ada")
    storage.down = True
    with pytest.raises(StoreUnavailableError):
        await say(store, session, "Hello.")
    assert (session.version, len(session.unsaved)) == (0, 1)

    storage.down = False
    await store.save(session)

    assert texts(await got(store)) == ["Hello."]


# --- Cut off ------------------------------------------------------------------


class CutOff(Wrapped):
    """Does a number of writes, and then nothing any more."""

    left = 1_000_000

    def _count(self) -> None:
        if self.left == 0:
            raise StoreUnavailableError(place="there", problem="cut off")
        self.left -= 1

    async def create(self, key: str, data: bytes) -> None:
        self._count()
        await super().create(key, data)

    async def replace(self, key: str, data: bytes) -> None:
        self._count()
        await super().replace(key, data)

    async def delete(self, key: str) -> None:
        self._count()
        await super().delete(key)


@pytest.mark.parametrize("writes", range(16))
async def test_a_delete_that_was_cut_off_can_be_repeated(writes: int) -> None:
    storage = CutOff()
    store = BlobSessionManager(storage)
    for session_id in ("trip", "trip/writer"):
        await say_often(store, await store.create(session_id, "ann"), 3)
    storage.left = writes
    with suppress(StoreUnavailableError):
        await store.delete("trip")

    storage.left = 1_000_000
    again = BlobSessionManager(storage)
    for session_id in ("trip", "trip/writer"):
        found = await again.get(session_id)
        assert found is None or len(texts(found)) == 3
    await again.delete("trip")

    assert await storage.list("") == []


async def words_in(storage: Storage, word: str) -> list[str]:
    """The keys of the objects that hold a word."""
    keys = await storage.list("")
    return [key for key in keys if word.encode() in (await storage.read(key) or b"")]


@pytest.mark.parametrize("writes", range(8))
async def test_a_delete_of_what_was_seen_that_was_cut_off_can_be_repeated(
    writes: int,
) -> None:
    storage = CutOff()
    store = BlobSessionManager(storage)
    session = await store.create("ada", "ann")
    await say_often(store, session, 3)
    storage.left = writes
    with suppress(StoreUnavailableError):
        await store.delete("ada", seen=session)

    storage.left = 1_000_000
    again = BlobSessionManager(storage)
    found = await again.get("ada")
    assert found is None or len(texts(found)) == 3
    assert await ids(again) == (["ada"] if found else [])
    await again.delete("ada")

    assert await storage.list("") == []


@pytest.mark.parametrize("writes", range(8))
async def test_a_prune_that_was_cut_off_can_be_repeated(
    writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minagent.stores.blob.CLOSING", timedelta(0))  # a minute later
    storage = CutOff()
    store = BlobSessionManager(storage)
    await say(store, await store.create("ada", "ann"), "marker")
    later = utc_now() + timedelta(days=1)
    storage.left = writes
    with suppress(StoreUnavailableError):
        await store.prune(older_than=later)

    storage.left = 1_000_000
    await BlobSessionManager(storage).prune(older_than=later)

    assert await words_in(storage, "marker") == []


@pytest.mark.parametrize("writes", range(6))
async def test_a_redaction_that_was_cut_off_can_be_repeated(writes: int) -> None:
    storage = CutOff()
    store = BlobSessionManager(storage)
    session = await store.create("ada")
    await say(store, session, "marker", "Hello.")
    await say_often(store, session, SEGMENT + 2)
    assert len(await words_in(storage, "marker")) == 2  # a save, and a segment
    event_id = session.events[0].event_id
    storage.left = writes
    with suppress(StoreUnavailableError):
        await store.redact("ada", event_id, "[gone]")

    storage.left = 1_000_000
    for each in (store, BlobSessionManager(storage)):
        first = "marker" if writes == 0 else "[gone]"
        assert texts(await got(each))[:3] == [first, "Hello.", "0"]
    await BlobSessionManager(storage).redact("ada", event_id, "[gone]")

    assert await words_in(storage, "marker") == []
    assert texts(await got(store))[:3] == ["[gone]", "Hello.", "0"]


@pytest.mark.parametrize("saves", [SEGMENT - 1, SEGMENT, SEGMENT + 1])
@pytest.mark.parametrize("seed", range(5))
async def test_no_segment_that_is_written_meanwhile_keeps_a_redacted_word(
    seed: int, saves: int
) -> None:
    """A save repeats older ones in a segment; what it read may be redacted by then."""
    storage = Hesitant(seed)
    store, other = BlobSessionManager(storage), BlobSessionManager(storage)
    session = await store.create("ada")
    await say(store, session, "marker")
    await say_often(store, session, saves - 1)

    async def talk() -> None:
        for number in range(3):
            with suppress(SessionConflictError):
                await say(other, await got(other), f"more {number}")

    await asyncio.gather(
        talk(), store.redact("ada", session.events[0].event_id, "[gone]")
    )

    assert await words_in(storage, "marker") == []
    assert texts(await got(BlobSessionManager(storage)))[0] == "[gone]"


async def test_a_redaction_removes_the_words_from_states_that_do_not_count() -> None:
    storage = MemoryStorage()
    store = BlobSessionManager(storage)
    session = await store.create("ada")
    session.state["note"] = "marker"
    await say(store, session, "marker")
    session.state["note"] = ""
    await say(store, session, "Hello.")

    await store.redact("ada", session.events[0].event_id, "[gone]")

    assert await words_in(storage, "marker") == []
    assert (await got(store)).state == {"note": ""}


class Held(MemoryStorage):
    """Shows another one's objects, and waits before the first look at a session."""

    def __init__(self, shown: MemoryStorage) -> None:
        self.__dict__ = shown.__dict__.copy()
        self.looks, self.go_on = asyncio.Event(), asyncio.Event()

    async def list(
        self, prefix: str, *, after: str | None = None, limit: int | None = None
    ) -> Sequence[str]:
        if prefix == "sessions/ada/":
            self.looks.set()
            await self.go_on.wait()
        return await super().list(prefix, after=after, limit=limit)


@pytest.mark.parametrize("kind", ["a prune", "a list"])
async def test_a_session_that_is_made_meanwhile_is_not_the_one_to_delete(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prune stops behind its last save; or a list finishes one that was killed."""
    monkeypatch.setattr("minagent.stores.blob.CLOSING", timedelta(0))  # a minute later
    storage = MemoryStorage()
    store, held = BlobSessionManager(storage), Held(storage)
    await say(store, await store.create("ada"), "old")
    pruning = BlobSessionManager(held).prune(older_than=utc_now() + timedelta(days=1))
    work = asyncio.create_task(pruning)
    await held.looks.wait()
    if kind == "a list":
        again = Held(storage)
        work = asyncio.gather(work, BlobSessionManager(again).list())  # type: ignore[assignment]
        await again.looks.wait()
        again.go_on.set()
    await store.delete("ada")
    await say(store, await store.create("ada"), "new")

    held.go_on.set()
    await work

    assert texts(await got(store)) == ["new"]


@pytest.mark.parametrize("writes", range(4))
async def test_a_create_that_was_cut_off_can_be_repeated(writes: int) -> None:
    storage = CutOff()
    storage.left = writes
    with suppress(StoreUnavailableError):
        await BlobSessionManager(storage).create("ada", "ann")

    storage.left = 1_000_000
    store = BlobSessionManager(storage)
    assert await ids(store) == ([] if writes < 3 else ["ada"])
    session = await store.get_or_create("ada", "ann")
    await say(store, session, "Hello.")

    assert await ids(store) == ["ada"]
    assert [each.session_id for each in await store.list(user_id="ann")] == ["ada"]
    assert texts(await got(store)) == ["Hello."]


@pytest.mark.parametrize(("hours", "left"), [(0, 2), (2, 0)])
async def test_delete_removes_an_entry_whose_creation_was_cut_off_long_ago(
    hours: int, left: int
) -> None:
    """And no other: somebody may be about to create the session."""
    storage = CutOff()
    storage.left = 2
    store = BlobSessionManager(storage)
    with suppress(StoreUnavailableError):
        await store.create("ada", "ann")
    storage.left = 1_000_000
    for key in await storage.list("index/"):
        entry = json.loads(await storage.read(key) or b"")
        then = datetime.fromisoformat(entry["created_at"]) - timedelta(hours=hours)
        entry["created_at"] = then.isoformat()
        await storage.replace(key, json.dumps(entry).encode())

    await store.delete("ada")

    assert len(await storage.list("index/")) == left


# --- Objects that are not as they were written --------------------------------


async def saved_often(storage: Storage) -> dict[str, str]:
    """Save until there is an object of each kind; return their keys."""
    store = BlobSessionManager(storage)
    await say_often(store, await store.create("ada"), SEGMENT + 2)
    base = f"sessions/ada/{(await got(store)).incarnation}/"
    return {
        "head": "sessions/ada/head.json",
        "save": f"{base}{SEGMENT + 1:020}.json",
        "last save": f"{base}{SEGMENT + 2:020}.json",
        "segment": f"{base}segments/{SEGMENT:020}.json",
    }


each_kind = pytest.mark.parametrize("kind", ["head", "save", "last save", "segment"])


@each_kind
@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff", b'{"format":1}'])
async def test_an_object_that_is_damaged_is_a_named_error(
    kind: str, data: bytes
) -> None:
    # Promise 5
    storage = MemoryStorage()
    key = (await saved_often(storage))[kind]
    await storage.replace(key, data)

    with pytest.raises(CorruptSessionError) as raised:
        await BlobSessionManager(storage).get("ada")

    assert raised.value.session_id == "ada"
    assert await storage.read(key) == data


CHANGES: list[dict[str, Any]] = [
    {"format": "one"},
    {"session_id": "bob"},
    {"incarnation": "f" * 31},
    {"version": 7},
    {"events": None},
    {"events": [{}]},
    {"event_count": 3},
    {"state": []},
    {"updated_at": "today"},
    {"created_at": "today"},
]


@each_kind
@pytest.mark.parametrize("change", CHANGES, ids=str)
async def test_an_object_that_says_something_else_is_a_named_error(
    kind: str, change: dict[str, Any]
) -> None:
    storage = MemoryStorage()
    key = (await saved_often(storage))[kind]
    found = json.loads(await storage.read(key) or b"")
    if not set(change) <= set(found):
        return  # an object of this kind says nothing of it
    await storage.replace(key, json.dumps(found | change).encode())

    if "event_count" in change and kind != "last save":
        assert len(texts(await got(BlobSessionManager(storage)))) == SEGMENT + 2
        return
    with pytest.raises(CorruptSessionError):
        await BlobSessionManager(storage).get("ada")


@each_kind
async def test_an_object_of_a_later_version_is_a_named_error(kind: str) -> None:
    # Promise 5
    storage = MemoryStorage()
    key = (await saved_often(storage))[kind]
    newer = (await storage.read(key) or b"").replace(b'"format":1', b'"format":2')
    await storage.replace(key, newer)

    with pytest.raises(NewerDataError):
        await BlobSessionManager(storage).get("ada")

    assert await storage.read(key) == newer


async def test_a_save_that_is_missing_is_a_named_error() -> None:
    storage = MemoryStorage()
    await storage.delete((await saved_often(storage))["save"])

    with pytest.raises(CorruptSessionError, match="is missing"):
        await BlobSessionManager(storage).get("ada")


async def test_a_segment_may_be_missing() -> None:
    storage = MemoryStorage()
    await storage.delete((await saved_often(storage))["segment"])

    session = await got(BlobSessionManager(storage))

    assert texts(session) == [f"{number}" for number in range(SEGMENT + 2)]


async def test_a_save_on_what_a_later_version_stored_is_refused() -> None:
    storage = MemoryStorage()
    key = (await saved_often(storage))["last save"]
    store = BlobSessionManager(storage)
    session = await got(store)
    newer = (await storage.read(key) or b"").replace(b'"format":1', b'"format":2')
    await storage.replace(key, newer)

    with pytest.raises(NewerDataError):
        await say(store, session, "Hello.")


# --- Growth -------------------------------------------------------------------


class Counting(Wrapped):
    reads = 0

    async def read(self, key: str) -> bytes | None:
        self.reads += 1
        return await super().read(key)


@pytest.mark.parametrize("saves", [1, 63, 64, 65, 127, 128, 129, 200])
async def test_a_session_is_read_as_it_was_saved(saves: int) -> None:
    """On either side of a segment's end."""
    storage = MemoryStorage()
    store = BlobSessionManager(storage)
    session = await store.create("ada")
    for number in range(saves):
        session.state["n"] = number
        await say(store, session, *(["Hello."] * (number % 3)))

    cold = await got(BlobSessionManager(storage))

    assert cold.to_json() == session.to_json()
    [info] = await store.list()
    assert (info.version, info.event_count) == (saves, len(session.events))
    await say(store, cold, "one more")
    assert (await got(store)).to_json() == cold.to_json()


async def test_5000_turns_are_read_from_at_most_180_objects() -> None:
    storage = Counting()
    store = BlobSessionManager(storage)
    session = await store.create("ada")
    for number in range(5_000):
        await say(store, session, f"Question {number}?")
        await say(store, session, f"Answer {number}.")
    storage.reads = 0

    cold = await got(BlobSessionManager(storage))

    assert len(cold.events) == 10_000
    assert storage.reads <= 180


async def test_a_save_and_a_get_cost_the_same_in_a_long_session() -> None:
    # Promise 16
    storage = Counting()
    store = BlobSessionManager(storage)
    session = await store.create("ada")
    costs = []
    for _ in range(SEGMENT * 3):
        before = storage.reads
        await say(store, session, "Hello.")
        await got(store)
        costs.append(storage.reads - before)

    assert sorted(costs)[-4] <= 6
    assert sum(costs[-SEGMENT:]) <= sum(costs[SEGMENT : 2 * SEGMENT])


async def test_bytes_grow_with_the_turns(tmp_path: Path) -> None:
    storage = FolderStorage(tmp_path, durability="normal")
    store = BlobSessionManager(storage)
    session = await store.create("ada", "ann")
    session.state["summary"] = "word " * 20
    sizes = {}
    for turn in range(1, 401):
        await say(store, session, f"Question {turn}? " + "because " * 20)
        await say(store, session, f"Answer {turn}. " + "therefore " * 50)
        if turn in (200, 400):
            sizes[turn] = size_of(tmp_path)

    assert sizes[400] <= 2.2 * sizes[200]


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*")]


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in files_in(folder))


# --- What others did ----------------------------------------------------------


class Backed(Wrapped):
    """A storage of which an older copy can be put back."""

    def __init__(self) -> None:
        super().__init__()
        self.backup: dict[str, bytes] | None = None

    async def back_up(self) -> None:
        self.backup = await self.all_objects()

    async def restore(self) -> None:
        if self.backup is None:
            return
        for key in await self.list(""):
            await self.delete(key)
        for key, data in self.backup.items():
            await self.create(key, data)

    async def all_objects(self) -> dict[str, bytes]:
        return {key: await self.read(key) or b"" for key in await self.list("")}


IDS = ("a", "a/b", "c")
OFTEN = ("get", "get", "save", "save", "save", "save stale", "create")


class World:
    """Three managers on one storage, and the sessions that each of them has got."""

    def __init__(self) -> None:
        self.storage = Backed()
        sizes = (200_000, 200_000, 4)
        self.managers = [
            BlobSessionManager(self.storage, cached_events=size) for size in sizes
        ]
        self.held: dict[tuple[int, str], Session] = {}
        self.words: Iterator[str] = map(str, range(1_000_000))

    async def step(self, name: str, index: int, session_id: str, count: int) -> None:
        manager = self.managers[index]
        if name in ("get", "save"):
            session = await manager.get(session_id)
            if session is not None:
                self.held[index, session_id] = session
        if name in ("save", "save stale") and (index, session_id) in self.held:
            await self.save(manager, self.held[index, session_id], count)
        elif name.startswith("delete"):
            held = self.held.get((index, session_id))
            await manager.delete(
                session_id, seen=held if name == "delete seen" else None
            )
        elif name == "create":
            with suppress(SessionExistsError):
                self.held[index, session_id] = await manager.create(session_id)
        elif name == "redact":
            await self.redact(manager, session_id, count)
        elif name == "back up":
            await self.storage.back_up()
        elif name == "restore":
            await self.storage.restore()

    async def save(self, manager: SessionManager, session: Session, count: int) -> None:
        words = [next(self.words) for _ in range(count)]
        session.state["words"] = words
        with suppress(SessionConflictError, SessionNotFoundError):
            await say(manager, session, *words)

    async def redact(self, store: SessionStore, session_id: str, place: int) -> None:
        session = await store.get(session_id)
        if session is not None and session.events:
            event = session.events[place % len(session.events)]
            await store.redact(session_id, event.event_id, next(self.words))

    async def check(self) -> None:
        """Compare what each manager says with what one says that has seen nothing."""
        for session_id in IDS:
            cold = await BlobSessionManager(self.storage).get(session_id)
            for manager in self.managers:
                warm = await manager.get(session_id)
                assert (warm and warm.to_json()) == (cold and cold.to_json())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "more",
    [("delete", "delete seen"), ("back up", "restore"), ("redact", "delete")],
    ids=str,
)
async def test_a_warm_manager_never_differs_from_a_cold_one(
    seed: int, more: tuple[str, ...]
) -> None:
    """Whatever others save, delete, create again, redact, or restore from a backup."""
    chance, world = random.Random(seed), World()
    for session_id in IDS:
        await world.managers[0].create(session_id)
    for _ in range(100):
        name, index = chance.choice([*OFTEN, *more]), chance.randrange(3)
        await world.step(name, index, chance.choice(IDS), chance.randrange(4))
        await world.check()


async def test_events_appended_while_a_save_runs_are_for_the_next_save(
    store: SessionStore,
) -> None:
    session = await store.create("ada")
    session.append(said("one"))

    saving = asyncio.ensure_future(store.save(session))
    await asyncio.sleep(0)
    session.append(said("two"))
    await saving

    assert texts(await got(store)) == ["one"]
    await store.save(session)
    assert texts(await got(store)) == ["one", "two"]


# --- Keys ---------------------------------------------------------------------

ODD = ["a", "A", "Z9", "é", "e\u0301", "a b", "-", ".", "/", "//", "a/", "a.", "~", "_"]
ODD += ["trip", "trip/w", "trip-2", "trip.", "trip0", "\uffff", "\U00010000", "x" * 255]


def test_an_id_in_a_key_can_be_read_back() -> None:
    assert [id_of_key(id_in_key(each)) for each in ODD] == ODD


def test_ids_in_keys_have_the_order_of_the_ids() -> None:
    by_bytes = sorted(ODD, key=str.encode)

    assert sorted(ODD, key=id_in_key) == by_bytes


def test_ids_in_keys_differ_by_more_than_upper_and_lower_case() -> None:
    keys = {id_in_key(each) for each in (*ODD, "ada", "Ada", "ADA")}

    assert keys == {key.lower() for key in keys}
    assert len(keys) == len(ODD) + 3


async def test_o25_every_accepted_id_is_a_session_of_its_own(
    store: SessionStore,
) -> None:
    odd = [*ODD, "..", "../../x", "con", "\U0001f600" * 63, "A" * 255, "." * 255]
    for session_id in odd:
        await say(store, await store.create(session_id, session_id), session_id)

    for session_id in odd:
        assert texts(await got(store, session_id)) == [session_id]
        [info] = await store.list(user_id=session_id)
        assert info.session_id == session_id
    assert await ids(store) == sorted(odd, key=str.encode)


# --- list ---------------------------------------------------------------------


async def test_list_of_one_user_reads_no_session_of_another() -> None:
    storage = Counting()
    store = BlobSessionManager(storage)
    for number in range(30):
        await store.create(f"ann-{number}", user_id="ann")
    for number in range(4):
        await store.create(f"bob-{number}", user_id="bob")
    await store.create("nobody's")
    storage.reads = 0

    first = await store.list(user_id="bob", limit=3)
    rest = await store.list(user_id="bob", after=first[-1].session_id)

    assert storage.reads <= 8
    found = [info.session_id for info in [*first, *rest]]
    assert found == ["bob-0", "bob-1", "bob-2", "bob-3"]
    assert await store.list(user_id="Bob") == []
    assert len(await store.list()) == 35


async def test_a_page_is_full_although_entries_without_a_session_stand_between() -> (
    None
):
    storage = CutOff()
    store = BlobSessionManager(storage)
    for number in range(10):
        storage.left = 1 if number % 3 else 1_000_000
        with suppress(StoreUnavailableError):
            await store.create(f"s{number}")

    assert [info.session_id for info in await store.list(limit=3)] == ["s0", "s3", "s6"]


async def test_o29_nothing_of_a_deleted_session_is_left(tmp_path: Path) -> None:
    store = BlobSessionManager(FolderStorage(tmp_path / "s", durability="normal"))
    for session_id in ("marker", "marker/writer"):
        session = await store.create(session_id, "marker")
        session.state["secret"] = "marker"
        await say_often(store, session, SEGMENT + 2)

    await store.delete("marker")

    assert files_in(tmp_path) == []
    assert names_in(tmp_path / "s") == [".writing"]


async def test_a_session_that_is_damaged_can_be_deleted(
    store: SessionStore, storage: Storage
) -> None:
    await say(store, await store.create("ada"), "Hello.")
    await storage.replace("sessions/ada/head.json", b"{")

    assert await store.delete("ada") is True

    assert await store.get("ada") is None
    assert await storage.list("sessions/") == []


# --- Closing ------------------------------------------------------------------


async def test_closing_closes_the_storage(
    store: SessionStore, storage: Storage
) -> None:
    await store.aclose()

    with pytest.raises(StoreClosedError):
        await storage.read("a")


async def test_saves_that_a_close_meets_are_stored_or_refused(tmp_path: Path) -> None:
    """Each caller is told the truth: acknowledged and stored, or closed and not."""
    store = BlobSessionManager(FolderStorage(tmp_path, durability="normal"))
    sessions = [await store.create(f"s{number:02}") for number in range(20)]
    for session in sessions:
        session.append(said("Hello."))

    saves = [asyncio.ensure_future(store.save(session)) for session in sessions]
    await asyncio.wait(saves, return_when=asyncio.FIRST_COMPLETED)
    await store.aclose()
    outcomes = await asyncio.gather(*saves, return_exceptions=True)

    again = BlobSessionManager(FolderStorage(tmp_path))
    for session, outcome in zip(sessions, outcomes, strict=True):
        assert outcome is None or isinstance(outcome, StoreClosedError)
        stored = await again.get(session.session_id)
        assert texts(stored) == (["Hello."] if outcome is None else [])
        assert session.version == (1 if outcome is None else 0)
