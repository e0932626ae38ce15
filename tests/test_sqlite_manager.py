"""What `SQLiteSessionManager` promises: the contract, and what a store adds.

The file and its format, the cache, and event loops have test files of their own.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from minagent import Event, Message, Session, SessionManager, SessionStore
from minagent.errors import (
    InvalidSessionIdError,
    SessionNotFoundError,
    StoreClosedError,
)
from minagent.stores import SQLiteSessionManager
from minagent.testing import SessionManagerContract


class TestSQLiteSessionManager(SessionManagerContract):
    def open_manager(self, tmp_path: Path) -> SessionManager:
        return SQLiteSessionManager(tmp_path / "sessions.db")


class HoldsItsConnection(SQLiteSessionManager):
    """Enters its block at the first call, since `open_manager` cannot await.

    The one above has the default durability, this one the other.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, durability="normal")
        self.one_at_a_time = asyncio.Lock()

    async def enter(self) -> None:
        async with self.one_at_a_time:
            await self.__aenter__()

    async def create(self, session_id: str, user_id: str | None = None) -> Session:
        await self.enter()
        return await super().create(session_id, user_id)

    async def get(self, session_id: str) -> Session | None:
        await self.enter()
        return await super().get(session_id)

    async def save(self, session: Session) -> None:
        await self.enter()
        await super().save(session)


class TestSQLiteSessionManagerInItsBlock(SessionManagerContract):
    def open_manager(self, tmp_path: Path) -> SessionManager:
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
    return [info.session_id for info in await store.list()]


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


# --- list ---------------------------------------------------------------------


async def test_list_of_a_fresh_file_is_empty(store: SessionStore) -> None:
    assert await store.list() == []


async def test_list_shows_what_is_known_of_a_session(store: SessionStore) -> None:
    session = await store.create("ada", user_id="ann")
    await say(store, session, "Hello.", "Goodbye.")
    session.append(said("never saved"))

    [info] = await store.list()

    assert info.session_id == "ada"
    assert info.user_id == "ann"
    assert info.version == 1
    assert info.event_count == 2
    assert info.created_at == session.created_at
    assert info.updated_at == session.events[1].timestamp


async def test_list_gives_pages_in_the_order_of_the_ids(store: SessionStore) -> None:
    # Ordered by their bytes: \uffff comes before \U00010000, not so in UTF-16.
    expected = ["A", "B", "a", "a/b", "b", "é", "\uffff", "\U00010000"]
    for session_id in reversed(expected):
        await store.create(session_id)

    pages: list[list[str]] = []
    after = None
    while page := await store.list(limit=3, after=after):
        pages.append([info.session_id for info in page])
        after = pages[-1][-1]

    assert pages == [expected[:3], expected[3:6], expected[6:]]


async def test_list_goes_on_after_an_id_that_is_gone(store: SessionStore) -> None:
    for session_id in ("a", "b", "c"):
        await store.create(session_id)
    await store.delete("b")

    assert [info.session_id for info in await store.list(after="b")] == ["c"]


async def test_list_of_one_user_shows_no_other(store: SessionStore) -> None:
    for number in range(4):
        await store.create(f"ann-{number}", user_id="ann")
        await store.create(f"bob-{number}", user_id="bob")
    await store.create("nobody's")

    first = await store.list(user_id="bob", limit=3)
    rest = await store.list(user_id="bob", after=first[-1].session_id)

    found = [info.session_id for info in [*first, *rest]]
    assert found == ["bob-0", "bob-1", "bob-2", "bob-3"]
    assert await store.list(user_id="Bob") == []
    assert len(await store.list()) == 9


@pytest.mark.parametrize("limit", [0, -1])
async def test_a_page_has_room_for_one(store: SessionStore, limit: int) -> None:
    with pytest.raises(ValueError, match=f"limit is {limit}"):
        await store.list(limit=limit)


# --- delete -------------------------------------------------------------------


async def test_delete_removes_the_session_and_those_inside_and_no_other(
    store: SessionStore,
) -> None:
    gone = ["trip", "trip/", "trip/writer", "trip/writer/call_1", "trip/\U0010ffff"]
    kept = ["tri", "trip ", "trip-2", "trip0", "trip0/writer", "tripx", "tripx/writer"]
    kept += ["Trip", "Trip/writer", "x/trip", "x/trip/writer", "trip\\writer", "trip."]
    for session_id in [*gone, *kept]:
        await store.create(session_id)

    assert await store.delete("trip") is True

    assert await ids(store) == sorted(kept)
    for session_id in gone:
        assert await store.get(session_id) is None


async def test_delete_takes_no_letter_of_an_id_for_a_pattern(
    store: SessionStore,
) -> None:
    for session_id in ("a_c/x", "abc/x", "a%/x", "*/x", "[a]/x", "a/x"):
        await store.create(session_id)

    for session_id in ("a_c", "a%", "*", "[a]"):
        await store.delete(session_id)

    assert await ids(store) == ["a/x", "abc/x"]


async def test_delete_of_an_unknown_id_is_false_and_harmless(
    store: SessionStore,
) -> None:
    await store.create("ada")

    assert await store.delete("nobody") is False
    assert await store.delete("ada") is True
    assert await store.delete("ada") is False


async def test_delete_of_an_id_with_sessions_inside_only_removes_them(
    store: SessionStore,
) -> None:
    """The parent may be gone already; what it left behind must be able to go."""
    await store.create("trip/writer")

    assert await store.delete("trip") is False

    assert await ids(store) == []


async def test_delete_of_what_is_no_id_is_refused(store: SessionStore) -> None:
    with pytest.raises(InvalidSessionIdError):
        await store.delete("")


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


async def test_a_deleted_session_that_is_made_again_is_empty_and_another(
    store: SessionStore,
) -> None:
    before = await store.create("ada", user_id="ann")
    await say(store, before, "Hello.")
    await store.delete("ada")

    before.append(said("too late"))
    with pytest.raises(SessionNotFoundError):
        await store.save(before)
    again = await store.create("ada", user_id="bob")
    with pytest.raises(SessionNotFoundError):
        await store.save(before)

    stored = await store.get("ada")
    assert texts(stored) == []
    assert stored is not None
    assert stored.incarnation == again.incarnation != before.incarnation


# --- Closing ------------------------------------------------------------------

Use = Callable[[SessionStore], Awaitable[object]]
USES: dict[str, Use] = {
    "create": lambda store: store.create("new"),
    "get": lambda store: store.get("ada"),
    "get_or_create": lambda store: store.get_or_create("ada"),
    "save": lambda store: store.save(Session("ada")),
    "list": lambda store: store.list(),
    "delete": lambda store: store.delete("ada"),
    "async with": lambda store: store.__aenter__(),
}
each_use = pytest.mark.parametrize("use", USES.values(), ids=USES.keys())


@each_use
async def test_a_closed_store_refuses_every_use(
    store: SessionStore, path: Path, use: Use
) -> None:
    await store.create("ada")
    await store.aclose()

    with pytest.raises(StoreClosedError):
        await use(store)

    again = SQLiteSessionManager(path)
    assert await ids(again) == ["ada"]


@each_use
async def test_after_its_block_a_store_refuses_every_use(path: Path, use: Use) -> None:
    store = SQLiteSessionManager(path)
    async with store as entered:
        await entered.create("ada")

    assert entered is store
    with pytest.raises(StoreClosedError):
        await use(store)


async def test_closing_twice_is_harmless(path: Path) -> None:
    store = SQLiteSessionManager(path)
    async with store:
        await store.aclose()
    await store.aclose()


async def test_closing_what_was_never_used_is_harmless(path: Path) -> None:
    await SQLiteSessionManager(path).aclose()

    assert list(path.parent.iterdir()) == []


async def test_an_error_in_the_block_closes_the_store_and_goes_on(path: Path) -> None:
    store = SQLiteSessionManager(path)
    with pytest.raises(LookupError):
        async with store:
            raise LookupError

    with pytest.raises(StoreClosedError):
        await store.get("ada")


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
