"""Deleted and redacted words are out of the SQLite file, its log and its index.

Deleting a row leaves its text in three places: in the page, in the write-ahead log, and
in pages that SQLite has filled anew since. The contract looks for words as well; here
the file is looked at where it is hard.
"""

import asyncio
import random
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from minagent import Event, Message, Session, SessionStore
from minagent.errors import ErasurePendingError, SessionConflictError
from minagent.stores import SQLiteSessionManager

pytestmark = pytest.mark.heavy

WORD = "xyzzy"
LATER = datetime.now(UTC) + timedelta(days=1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


@pytest.fixture(params=["in its block", "without a block"])
async def store(path: Path, request: Any) -> AsyncIterator[SessionStore]:
    manager = SQLiteSessionManager(path, durability="normal")
    if request.param == "in its block":
        await manager.__aenter__()
    yield manager
    await manager.aclose()


@pytest.fixture
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait long for readers that will not end."""
    monkeypatch.setattr("minagent.stores.sqlite_file.ERASE_SECONDS", 0.05)


def said(text: str) -> Event:
    return Event(author="user", content=(Message(role="user", content=text),))


def texts(session: Session | None) -> list[str]:
    assert session is not None
    items = [item for event in session.events for item in event.content]
    return [item.content for item in items if isinstance(item, Message)]


async def tell(store: SessionStore, session_id: str = "ada") -> Session:
    """Store a session with the word wherever it can be, some of it too long a page."""
    session = await store.create(session_id, WORD)
    session.state[WORD] = WORD
    session.append(said(f"{WORD} " * 3_000), said("Hello."))
    await store.save(session)
    return session


def found(path: Path) -> dict[str, int]:
    """How often the word is in each file that SQLite made, where it is."""
    counts = {
        each.name: each.read_bytes().count(WORD.encode())
        for each in path.parent.iterdir()
    }
    return {name: count for name, count in counts.items() if count}


# --- What erases --------------------------------------------------------------


async def delete(store: SessionStore) -> None:
    await store.delete("ada")


async def delete_from_outside(store: SessionStore) -> None:
    session = await store.get("ada")
    await store.delete("ada", seen=session)


async def prune(store: SessionStore) -> None:
    await store.prune(older_than=LATER)


async def redact(store: SessionStore) -> None:
    session = await store.get("ada")
    assert session is not None
    session.state.clear()
    await store.save(session)
    await store.redact("ada", session.events[0].event_id, "[gone]")


Erase = Callable[[SessionStore], Awaitable[None]]
each_way = pytest.mark.parametrize("erase", [delete, delete_from_outside, prune])


@each_way
async def test_o29_no_byte_of_a_deleted_session_is_left(
    store: SessionStore, path: Path, erase: Erase
) -> None:
    await tell(store)
    assert found(path)

    await erase(store)

    assert found(path) == {}


async def test_no_byte_of_a_redacted_event_is_left(
    store: SessionStore, path: Path
) -> None:
    session = await store.create("ada")
    for words in (f"{WORD} " * 3_000, WORD, "Hello."):
        session.append(said(words))
        await store.save(session)
    assert found(path)

    for event in session.events[:2]:
        await store.redact("ada", event.event_id, "[gone]")

    assert found(path) == {}
    assert texts(await store.get("ada")) == ["[gone]", "[gone]", "Hello."]


async def test_no_byte_is_left_where_the_log_was_emptied_before(
    store: SessionStore, path: Path
) -> None:
    await tell(store)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert [*found(path)] == ["sessions.db"]

    await store.delete("ada")

    assert found(path) == {}


SIZES = [5, 50, 200, 500, 900, 1_500, 3_000, 9_000]
# Of 60 seeds, those with which `secure_delete` alone left bytes behind (SQLite 3.40).
SPLITS = [("delete", seed) for seed in (5, 21, 24, 27, 29, 32, 34, 45, 58)]
SPLITS += [("redact", seed) for seed in (0, 19, 28, 38)]


@pytest.mark.parametrize(("verb", "seed"), SPLITS)
async def test_no_byte_is_left_in_pages_that_were_split(
    path: Path, verb: str, seed: int
) -> None:
    """Where sessions grow side by side, SQLite moves rows and leaves their bytes."""
    chance = random.Random(seed)
    async with SQLiteSessionManager(path, durability="normal") as store:
        count = chance.randint(2, 8)
        sessions = [await store.create(f"s{number}") for number in range(count)]
        target = sessions[chance.randrange(count)]
        for _ in range(chance.randint(20, 200)):
            session, size = sessions[chance.randrange(count)], chance.choice(SIZES)
            often = verb == "delete" or chance.random() < 0.3
            word = WORD if session is target and often else "plain"
            session.append(said(f"{word} " * (size // 6 + 1)))
            if session is target and verb == "delete":
                session.state["x"] = WORD * chance.randint(1, 300)
            await store.save(session)

        if verb == "delete":
            await store.delete(target.session_id)
        else:
            for event in target.events:
                if WORD in event.to_json():
                    await store.redact(target.session_id, event.event_id, "[gone]")

        assert found(path) == {}
        for session in sessions:
            if session is not target:
                assert texts(await store.get(session.session_id)) == texts(session)


async def test_who_holds_a_connection_and_reads_nothing_is_in_nobodys_way(
    store: SessionStore, path: Path
) -> None:
    async with SQLiteSessionManager(path) as other:
        await tell(store)
        await other.get("ada")

        await store.delete("ada")

        assert found(path) == {}


async def test_who_erases_at_the_same_time_is_in_nobodys_way(path: Path) -> None:
    """Two who delete each wait for a moment; nobody holds on to anything."""

    async def work(name: str) -> None:
        store = SQLiteSessionManager(path, durability="normal")
        for number in range(10):
            session_id = f"{name}, {number}"
            await tell(store, session_id)
            assert await store.delete(session_id) is True

    names = [f"worker {number}" for number in range(4)]
    await asyncio.gather(
        *(asyncio.to_thread(asyncio.run, work(name)) for name in names)
    )

    assert found(path) == {}


# --- A reader elsewhere -------------------------------------------------------


@contextmanager
def reader(path: Path) -> Iterator[sqlite3.Connection]:
    """Read in a transaction that does not end."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM events").fetchone()
        yield connection


@pytest.mark.usefixtures("in_a_hurry")
@each_way
async def test_a_reader_elsewhere_delays_the_erasure_and_not_the_deletion(
    store: SessionStore, path: Path, erase: Erase
) -> None:
    await tell(store)
    with reader(path):
        with pytest.raises(ErasurePendingError) as raised:
            await erase(store)

        assert raised.value.place == str(path)
        assert await store.get("ada") is None
        assert await store.list() == []
        assert found(path)
        with pytest.raises(ErasurePendingError):
            await store.erase()

    await store.erase()

    assert found(path) == {}


@pytest.mark.usefixtures("in_a_hurry")
async def test_a_reader_elsewhere_delays_the_erasure_and_not_the_redaction(
    store: SessionStore, path: Path
) -> None:
    await tell(store)
    with reader(path):
        with pytest.raises(ErasurePendingError):
            await redact(store)

        for each in (store, SQLiteSessionManager(path)):
            session = await each.get("ada")
            assert texts(session) == ["[gone]", "Hello."]
        assert found(path)

    await redact(store)  # the same once more

    session = await store.get("ada")
    assert session is not None
    assert len(session.events) == 3
    # The owner is named so, and stays.
    assert sum(found(path).values()) <= 2


@pytest.mark.usefixtures("in_a_hurry")
async def test_what_a_reader_elsewhere_reads_is_what_was_there_before(
    store: SessionStore, path: Path
) -> None:
    await tell(store)
    with reader(path) as connection:
        with suppress(ErasurePendingError):
            await store.delete("ada")

        assert connection.execute("SELECT count(*) FROM events").fetchone() == (2,)


@pytest.mark.usefixtures("in_a_hurry")
async def test_the_next_deletion_finishes_an_erasure(
    store: SessionStore, path: Path
) -> None:
    await tell(store)
    await store.create("bob")
    with reader(path), pytest.raises(ErasurePendingError):
        await store.delete("ada")

    await store.delete("bob")

    assert found(path) == {}


@pytest.mark.usefixtures("in_a_hurry")
async def test_another_store_finishes_an_erasure(
    store: SessionStore, path: Path
) -> None:
    await tell(store)
    with reader(path), pytest.raises(ErasurePendingError):
        await store.delete("ada")

    await SQLiteSessionManager(path).erase()

    assert found(path) == {}


@pytest.mark.usefixtures("in_a_hurry")
async def test_prune_deletes_all_before_it_tells_of_a_reader(
    store: SessionStore, path: Path
) -> None:
    for session_id in ("a", "b", "c"):
        await tell(store, session_id)
    with reader(path), pytest.raises(ErasurePendingError):
        await store.prune(older_than=LATER)

    assert await store.list() == []


async def test_a_reader_that_ends_soon_is_waited_for(
    store: SessionStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minagent.stores.sqlite_file.ERASE_SECONDS", 60.0)
    await tell(store)
    other = SQLiteSessionManager(path)
    with reader(path):
        deleting = asyncio.create_task(store.delete("ada"))
        while await other.get("ada") is not None:  # noqa: ASYNC110 (a file tells)
            await asyncio.sleep(0)
        assert not deleting.done()

    assert await deleting is True
    assert found(path) == {}


READER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN")
connection.execute("SELECT count(*) FROM events").fetchone()
print("reading", flush=True)
sys.stdin.read()
"""


@pytest.mark.usefixtures("in_a_hurry")
async def test_a_reader_in_another_process_delays_an_erasure_until_it_ends(
    store: SessionStore, path: Path
) -> None:
    await tell(store)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", READER, str(path)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert (await process.stdout.readline()).strip() == b"reading"
    with pytest.raises(ErasurePendingError):
        await store.delete("ada")
    process.kill()
    await process.wait()

    await store.erase()

    assert found(path) == {}


# --- Cut off ------------------------------------------------------------------


class CutOff(SQLiteSessionManager):
    """Is cut off before it erases, as a program that is killed there."""

    async def erase(self) -> None:
        raise KeyError("cut off")


@each_way
async def test_a_deletion_that_was_cut_off_is_finished_by_the_same_again(
    path: Path, erase: Erase
) -> None:
    async with SQLiteSessionManager(path) as store:
        await tell(store)
        with suppress(KeyError):
            await erase(CutOff(path))
        assert await store.get("ada") is None
        assert found(path)

        await store.delete("ada")

        assert found(path) == {}


async def test_a_redaction_that_was_cut_off_is_finished_by_the_same_again(
    path: Path,
) -> None:
    async with SQLiteSessionManager(path) as store:
        session = await store.create("ada")
        session.append(said(WORD))
        await store.save(session)
        event_id = session.events[0].event_id
        with suppress(KeyError):
            await CutOff(path).redact("ada", event_id, "[gone]")
        assert found(path)

        await store.redact("ada", event_id, "[gone]")

        assert found(path) == {}


@pytest.mark.parametrize("steps", range(0, 40, 4))
async def test_a_deletion_that_is_cancelled_is_finished_by_the_same_again(
    store: SessionStore, path: Path, steps: int
) -> None:
    await tell(store)
    deleting = asyncio.create_task(store.delete("ada"))
    for _ in range(steps):
        await asyncio.sleep(0)
    deleting.cancel()
    with suppress(asyncio.CancelledError):
        await deleting
    session = await store.get("ada")
    assert session is None or len(texts(session)) == 2

    await store.delete("ada")

    assert found(path) == {}


async def test_erasing_loses_nothing_that_others_save_meanwhile(path: Path) -> None:
    store, other = SQLiteSessionManager(path), SQLiteSessionManager(path)
    await other.create("bob")
    for number in range(5):
        await tell(store, f"ada-{number}")

    async def talk() -> None:
        for number in range(20):
            session = await other.get("bob")
            assert session is not None
            session.append(said(f"{number}"))
            with suppress(SessionConflictError):
                await other.save(session)

    async def forget() -> None:
        for number in range(5):
            with suppress(ErasurePendingError):  # somebody is at work
                await store.delete(f"ada-{number}")

    await asyncio.gather(talk(), forget())

    await store.erase()
    assert texts(await store.get("bob")) == [f"{number}" for number in range(20)]
    assert found(path) == {}
