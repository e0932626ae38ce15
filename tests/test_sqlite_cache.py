"""What `SQLiteSessionManager` keeps in memory is never seen from outside.

A manager reads again only what it has not seen (promise 16). So every test here asks
one that has seen something for what has changed behind its back; the answer has to be
that of a manager that has seen nothing.
"""

import asyncio
import gc
import os
import random
import shutil
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest

from minagent import Event, Message, Session, SessionManager, SessionStore
from minagent.errors import (
    NotSerializableError,
    SessionConflictError,
    SessionExistsError,
    SessionNotFoundError,
)
from minagent.stores import SQLiteSessionManager

pytestmark = pytest.mark.heavy


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


@pytest.fixture(params=["in its block", "without a block"])
async def sessions(path: Path, request: Any) -> AsyncIterator[SessionStore]:
    manager = SQLiteSessionManager(path, durability="normal")
    if request.param == "in its block":
        await manager.__aenter__()
    yield manager
    await manager.aclose()


@pytest.fixture
def other(path: Path) -> SessionStore:
    """Another manager on the same file, as another process has one."""
    return SQLiteSessionManager(path, durability="normal")


def said(text: str, author: str = "user") -> Event:
    return Event(author=author, content=(Message(role="user", content=text),))


def texts(session: Session | None) -> list[str]:
    assert session is not None
    items = [item for event in session.events for item in event.content]
    return [item.content for item in items if isinstance(item, Message)]


async def got(sessions: SessionManager, session_id: str = "ada") -> Session:
    session = await sessions.get(session_id)
    assert session is not None
    return session


async def say(sessions: SessionManager, session: Session, *words: str) -> None:
    session.append(*map(said, words))
    await sessions.save(session)


# --- Others save, delete, create ----------------------------------------------


async def test_get_sees_what_others_saved(
    sessions: SessionStore, other: SessionStore
) -> None:
    await say(sessions, await sessions.create("ada"), "one")
    await got(sessions)
    theirs = await got(other)
    theirs.state["by"] = "the other"
    await say(other, theirs, "two", "three")

    session = await got(sessions)

    assert texts(session) == ["one", "two", "three"]
    assert session.state == {"by": "the other"}
    assert session.version == 2


async def test_get_sees_a_state_that_others_saved_without_an_event(
    sessions: SessionStore, other: SessionStore
) -> None:
    await say(sessions, await sessions.create("ada"), "one")
    theirs = await got(other)
    theirs.state["n"] = 1
    await other.save(theirs)

    session = await got(sessions)

    assert (session.state, session.version) == ({"n": 1}, 2)


async def test_a_session_that_others_deleted_is_gone(
    sessions: SessionStore, other: SessionStore
) -> None:
    await say(sessions, await sessions.create("ada"), "one")
    await other.delete("ada")

    assert await sessions.get("ada") is None


@pytest.mark.parametrize("words", [[], ["new"], ["new", "newer", "newest"]])
async def test_a_session_that_others_made_again_shows_nothing_of_the_old_one(
    sessions: SessionStore, other: SessionStore, words: list[str]
) -> None:
    """Also where the new one has as many events, or more, and as many versions."""
    await say(sessions, await sessions.create("ada"), "old")
    await say(sessions, await got(sessions), "older")
    await other.delete("ada")
    again = await other.create("ada")
    for word in words:
        await say(other, again, word)

    session = await got(sessions)

    assert texts(session) == words
    assert session.incarnation == again.incarnation


async def test_a_save_after_a_stale_get_conflicts_and_then_goes_through(
    sessions: SessionStore, other: SessionStore
) -> None:
    await sessions.create("ada")
    mine = await got(sessions)
    await say(other, await got(other), "theirs")

    mine.append(said("mine"))
    with pytest.raises(SessionConflictError):
        await sessions.save(mine)
    await say(sessions, await got(sessions), "mine")

    assert texts(await got(sessions)) == ["theirs", "mine"]
    assert texts(await got(other)) == ["theirs", "mine"]


async def test_a_session_got_from_one_manager_can_be_saved_by_another(
    sessions: SessionStore, other: SessionStore
) -> None:
    await say(other, await other.create("ada"), "one")
    await say(sessions, await got(other), "two")
    session = await got(sessions)
    session.append(said("three"))
    await other.save(session)

    assert texts(await got(sessions)) == ["one", "two", "three"]
    assert texts(await got(other)) == ["one", "two", "three"]


async def test_an_event_that_was_refused_is_not_remembered(
    sessions: SessionStore,
) -> None:
    session = await sessions.create("ada")
    await say(sessions, session, "one")
    session.append(said("never stored"))
    session.state["bad"] = object()
    with pytest.raises(NotSerializableError):
        await sessions.save(session)

    assert texts(await got(sessions)) == ["one"]


async def test_events_appended_while_a_save_runs_are_for_the_next_save(
    sessions: SessionStore,
) -> None:
    session = await sessions.create("ada")
    session.append(said("one"))

    saving = asyncio.ensure_future(sessions.save(session))
    await asyncio.sleep(0)
    session.append(said("two"))
    await saving

    assert texts(await got(sessions)) == ["one"]
    assert [event.content for event in session.unsaved] == [said("two").content]
    await sessions.save(session)
    assert texts(await got(sessions)) == ["one", "two"]


async def test_a_copy_that_grows_does_not_show_in_another(
    sessions: SessionStore,
) -> None:
    """Copies share the stored events, and nothing else."""
    await say(sessions, await sessions.create("ada"), "one")
    first, second = await got(sessions), await got(sessions)

    first.append(said("of the first"))
    second.append(said("of the second"))

    assert texts(first) == ["one", "of the first"]
    assert texts(second) == ["one", "of the second"]
    assert texts(await got(sessions)) == ["one"]


# --- An older copy of the file ------------------------------------------------


async def test_a_restored_older_copy_is_what_is_read(path: Path) -> None:
    """The backup of this morning is put back while the program runs."""
    sessions = SQLiteSessionManager(path)
    await say(sessions, await sessions.create("ada"), "one", "two")
    backup = shutil.copy(path, path.with_name("backup"))
    session = await got(sessions)
    session.state["n"] = 1
    await say(sessions, session, "three", "four")
    shutil.copy(backup, path)

    for _ in range(3):
        restored = await got(sessions)
        assert texts(restored) == ["one", "two"]
        assert (restored.state, restored.version) == ({}, 1)


async def test_a_conversation_goes_on_from_a_restored_copy(path: Path) -> None:
    """Also once it has as many events, and versions, as the one that was lost."""
    sessions = SQLiteSessionManager(path)
    await say(sessions, await sessions.create("ada"), "one")
    backup = shutil.copy(path, path.with_name("backup"))
    for word in ("two", "three"):
        await say(sessions, await got(sessions), word)
    shutil.copy(backup, path)

    heard = ["one"]
    for word in ("TWO", "THREE", "FOUR"):
        await say(sessions, await got(sessions), word)
        heard.append(word)

        assert texts(await got(sessions)) == heard
        assert texts(await got(SQLiteSessionManager(path))) == heard


async def test_a_restored_copy_that_others_went_on_from_is_what_is_read(
    path: Path,
) -> None:
    """They have saved as often as was lost, so that the versions are the same."""
    sessions, other = SQLiteSessionManager(path), SQLiteSessionManager(path)
    await say(sessions, await sessions.create("ada"), "one")
    backup = shutil.copy(path, path.with_name("backup"))
    await say(sessions, await got(sessions), "lost")
    shutil.copy(backup, path)
    await say(other, await got(other), "new")

    assert texts(await got(sessions)) == ["one", "new"]


async def test_a_file_that_was_removed_is_a_fresh_one(path: Path) -> None:
    sessions = SQLiteSessionManager(path)
    await say(sessions, await sessions.create("ada"), "one")
    os.unlink(path)

    assert await sessions.get("ada") is None
    assert texts(await sessions.get_or_create("ada")) == []


# --- Its size -----------------------------------------------------------------


def kept_events(author: str) -> int:
    gc.collect()
    alive = (each for each in gc.get_objects() if isinstance(each, Event))
    return sum(each.author == author for each in alive)


async def test_no_more_events_are_kept_than_allowed(path: Path) -> None:
    sessions = SQLiteSessionManager(path, durability="normal", cached_events=10)
    async with sessions:
        for number in range(12):
            session = await sessions.create(f"s{number}")
            for _ in range(4):
                session.append(said("Hello.", author="of the cache test"))
                await sessions.save(session)
        for number in (0, 5, 11):
            assert len((await got(sessions, f"s{number}")).events) == 4
        del session

        assert kept_events("of the cache test") <= 10


async def test_a_session_larger_than_the_cache_is_read_all_the_same(path: Path) -> None:
    sessions = SQLiteSessionManager(path, durability="normal", cached_events=10)
    session = await sessions.create("ada")
    expected = []
    for number in range(25):
        expected.append(f"{number}")
        await say(sessions, session, f"{number}")
        if number % 3 == 0:
            session = await got(sessions)
            assert texts(session) == expected

    assert texts(await got(sessions)) == expected


async def test_what_was_seen_is_not_read_again(path: Path) -> None:
    # Promise 16. Damage behind its back is what a reader of old rows would run into.
    async with SQLiteSessionManager(path, durability="normal") as sessions:
        await say(sessions, await sessions.create("ada"), "one", "two")
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE events SET data = '{' WHERE seq = 0")
        await say(sessions, await got(sessions), "three")

        assert texts(await got(sessions)) == ["one", "two", "three"]


# --- Any order of things ------------------------------------------------------

IDS = ("a", "a/b", "c")
OFTEN = ("get", "get", "save", "save", "save", "save stale")


class World:
    """Three managers on one file, and the sessions that each of them has got."""

    def __init__(self, folder: Path, managers: list[SQLiteSessionManager]) -> None:
        self.path = folder / "sessions.db"
        self.backup = folder / "backup.db"
        self.managers = managers
        self.held: dict[tuple[int, str], Session] = {}
        self.words: Iterator[str] = map(str, range(1_000_000))

    async def step(self, name: str, index: int, session_id: str, count: int) -> None:
        manager = self.managers[index]
        if name == "get":
            await self.get(index, session_id)
        elif name == "save":
            session = await self.get(index, session_id)
            if session is not None:
                await self.save(manager, session, count)
        elif name == "save stale":
            stale = self.held.get((index, session_id))
            if stale is not None:
                await self.save(manager, stale, count)
        elif name == "delete":
            await manager.delete(session_id)
        elif name == "create":
            with suppress(SessionExistsError):
                self.held[index, session_id] = await manager.create(session_id)
        elif name == "back up":
            shutil.copy(self.path, self.backup)
        elif name == "restore" and self.backup.exists():
            shutil.copy(self.backup, self.path)

    async def get(self, index: int, session_id: str) -> Session | None:
        session = await self.managers[index].get(session_id)
        if session is not None:
            self.held[index, session_id] = session
        return session

    async def save(self, manager: SessionManager, session: Session, count: int) -> None:
        words = [next(self.words) for _ in range(count)]
        session.append(*map(said, words))
        session.state["words"] = words
        with suppress(SessionConflictError, SessionNotFoundError):
            await manager.save(session)

    async def check(self) -> None:
        """Compare what each manager says with what one says that has seen nothing."""
        for session_id in IDS:
            cold = await SQLiteSessionManager(self.path).get(session_id)
            for manager in self.managers:
                warm = await manager.get(session_id)
                assert (warm and warm.to_json()) == (cold and cold.to_json())


async def compare(
    folder: Path, seed: int, names: tuple[str, ...], *, held: tuple[int, ...]
) -> None:
    """Take random steps, and compare after each one; `held` are in their blocks."""
    chance = random.Random(seed)
    path = folder / "sessions.db"
    managers = [
        SQLiteSessionManager(path, durability="normal"),
        SQLiteSessionManager(path, durability="normal"),
        SQLiteSessionManager(path, durability="normal", cached_events=4),
    ]
    async with AsyncExitStack() as stack:
        for index in held:
            await stack.enter_async_context(managers[index])
        for session_id in IDS:
            await managers[0].create(session_id)
        world = World(folder, managers)
        for _ in range(40):
            name, index = chance.choice(names), chance.randrange(3)
            await world.step(name, index, chance.choice(IDS), chance.randrange(4))
            await world.check()


@pytest.mark.parametrize("seed", range(3))
async def test_a_warm_manager_never_differs_from_a_cold_one(
    tmp_path: Path, seed: int
) -> None:
    steps = (*OFTEN, "create", "create", "delete")

    await compare(tmp_path, seed, steps, held=(0,))


@pytest.mark.parametrize("seed", range(3))
async def test_nor_does_it_when_older_copies_of_the_file_are_put_back(
    tmp_path: Path, seed: int
) -> None:
    """No manager holds a connection here, so the file may be exchanged at any time."""
    steps = (*OFTEN, "create", "back up", "restore")

    await compare(tmp_path, seed, steps, held=())


async def saved_and_read_cold(path: Path) -> str:
    async with SQLiteSessionManager(path, cached_events=0) as sessions:
        session = await sessions.create("ada")
        said = Event(author="user", content=(Message(role="user", content="Hi."),))
        session.append(said)
        await sessions.save(session)
    assert await SQLiteSessionManager(path, cached_events=0).get("ada") is not None
    return said.event_id


async def test_what_is_not_cached_is_not_held(path: Path) -> None:
    event_id = await saved_and_read_cold(path)

    gc.collect()
    held = [each for each in gc.get_objects() if isinstance(each, Event)]
    assert [each for each in held if each.event_id == event_id] == []
