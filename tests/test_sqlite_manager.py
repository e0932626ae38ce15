"""What `SQLiteSessionManager` promises: the contract, and what a store adds.

The file and its format, the cache, and event loops have test files of their own.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from minagent import Event, Message, Session, SessionManager, SessionStore
from minagent.errors import StoreClosedError
from minagent.stores import SQLiteSessionManager
from minagent.testing import SessionStoreContract


class TestSQLiteSessionManager(SessionStoreContract):
    def open_store(self, tmp_path: Path) -> SessionStore:
        return SQLiteSessionManager(tmp_path / "sessions.db")


class HoldsItsConnection(SQLiteSessionManager):
    """Enters its block at the first call, since `open_store` cannot await.

    The one above has the default durability, this one the other.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, durability="normal")
        self.one_at_a_time = asyncio.Lock()
        self.entered = False

    async def enter(self) -> None:
        if self.entered:
            return
        async with self.one_at_a_time:
            await self.__aenter__()
            self.entered = True

    async def create(self, session_id: str, user_id: str | None = None) -> Session:
        await self.enter()
        return await super().create(session_id, user_id)

    async def get(self, session_id: str) -> Session | None:
        await self.enter()
        return await super().get(session_id)

    async def save(self, session: Session) -> None:
        await self.enter()
        await super().save(session)


@pytest.mark.heavy
class TestSQLiteSessionManagerInItsBlock(SessionStoreContract):
    def open_store(self, tmp_path: Path) -> SessionStore:
        return HoldsItsConnection(tmp_path / "sessions.db")


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


def said(text: str) -> Event:
    return Event(author="user", content=(Message(role="user", content=text),))


def texts(session: Session | None) -> list[str]:
    assert session is not None
    items = [item for event in session.events for item in event.content]
    return [item.content for item in items if isinstance(item, Message)]


async def say(sessions: SessionManager, session: Session, *words: str) -> None:
    session.append(*map(said, words))
    await sessions.save(session)


async def ids(store: SessionStore) -> list[str]:
    return [info.session_id for info in await store.list(children=True)]


def rows(path: Path, sql: str) -> list[Any]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


# --- Making one ---------------------------------------------------------------


@pytest.mark.parametrize("name", ["", ":memory:"])
def test_a_path_that_names_no_file_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}' is no file"):
        SQLiteSessionManager(name)


@pytest.mark.parametrize("durability", ["", "off", "FULL", "extra", None])
def test_an_unknown_durability_is_refused(path: Path, durability: Any) -> None:
    with pytest.raises(ValueError, match=f"durability is {durability!r}"):
        SQLiteSessionManager(path, durability=durability)


@pytest.mark.parametrize("durability", ["full", "normal"])
async def test_either_durability_keeps_what_was_saved(
    path: Path, durability: Any
) -> None:
    async with SQLiteSessionManager(path, durability=durability) as sessions:
        await say(sessions, await sessions.create("ada"), "Hello.")

    assert texts(await SQLiteSessionManager(path).get("ada")) == ["Hello."]


def test_making_a_manager_touches_nothing(path: Path) -> None:
    SQLiteSessionManager(path)

    assert list(path.parent.iterdir()) == []


async def test_a_path_may_be_a_str(path: Path) -> None:
    await SQLiteSessionManager(str(path)).create("ada")

    assert await SQLiteSessionManager(path).get("ada") is not None


# --- Rows -------------------------------------------------------------------


async def test_no_row_of_a_deleted_session_is_left(
    store: SessionStore, path: Path
) -> None:
    await say(store, await store.create("other"), "one", "two")
    for session_id in ("trip", "trip/writer"):
        session = await store.create(session_id)
        session.state["secret"] = "marker"
        await say(store, session, "marker", "marker")

    await store.delete("trip")

    assert rows(path, "SELECT session_id FROM sessions") == [("other",)]
    assert rows(path, "SELECT count(*) FROM events") == [(2,)]
    assert texts(await store.get("other")) == ["one", "two"]


# --- Closing ------------------------------------------------------------------


async def test_another_store_reads_what_a_closed_one_saved(
    store: SessionStore, path: Path
) -> None:
    await store.create("ada")
    await store.aclose()

    assert await ids(SQLiteSessionManager(path)) == ["ada"]


async def test_closing_what_was_never_used_is_harmless(path: Path) -> None:
    await SQLiteSessionManager(path).aclose()

    assert list(path.parent.iterdir()) == []


async def test_a_store_that_is_closed_checkpoints_into_the_one_file(path: Path) -> None:
    """So that a copy of the file is a copy of the sessions."""
    async with SQLiteSessionManager(path) as sessions:
        await say(sessions, await sessions.create("ada"), "Hello.")

    assert [each.name for each in path.parent.iterdir()] == ["sessions.db"]


async def test_saves_that_a_close_meets_are_stored_or_refused(
    store: SessionStore, path: Path
) -> None:
    """Each caller is told the truth: acknowledged and stored, or closed and not."""
    sessions = [await store.create(f"s{number:02}") for number in range(20)]
    for session in sessions:
        session.append(said("Hello."))

    saves = [asyncio.ensure_future(store.save(session)) for session in sessions]
    await asyncio.wait(saves, return_when=asyncio.FIRST_COMPLETED)
    await store.aclose()
    outcomes = await asyncio.gather(*saves, return_exceptions=True)

    again = SQLiteSessionManager(path)
    for session, outcome in zip(sessions, outcomes, strict=True):
        assert outcome is None or isinstance(outcome, StoreClosedError)
        stored = await again.get(session.session_id)
        assert texts(stored) == (["Hello."] if outcome is None else [])
        assert session.version == (1 if outcome is None else 0)
