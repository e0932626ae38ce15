"""What `InMemorySessionManager` promises: the contract, and what a store adds."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from minagent import (
    Event,
    InMemorySessionManager,
    Message,
    Session,
    SessionManager,
    SessionStore,
)
from minagent.errors import (
    InvalidSessionIdError,
    SessionConflictError,
    SessionNotFoundError,
    StoreClosedError,
)
from minagent.testing import SessionManagerContract


class TestInMemorySessionManager(SessionManagerContract):
    durable = False

    def open_manager(self, tmp_path: Path) -> SessionManager:
        return InMemorySessionManager()


@pytest.fixture
def store() -> SessionStore:
    return InMemorySessionManager()


def said(text: str) -> Event:
    return Event(author="user", content=(Message(role="user", content=text),))


async def test_list_of_an_empty_store_is_empty(store: SessionStore) -> None:
    assert await store.list() == []


async def test_list_shows_what_is_known_of_a_session(store: SessionStore) -> None:
    session = await store.create("ada", user_id="ann")
    session.append(said("Hello."), said("Goodbye."))
    await store.save(session)
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
    ids = ["A", "B", "a", "a/b", "b", "é", "\uffff", "\U00010000"]
    for session_id in reversed(ids):
        await store.create(session_id)

    pages, after = [], None
    while page := await store.list(limit=3, after=after):
        pages.append([info.session_id for info in page])
        after = pages[-1][-1]

    assert pages == [ids[:3], ids[3:6], ids[6:]]


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


async def test_delete_removes_the_session_and_nothing_beside(
    store: SessionStore,
) -> None:
    for session_id in ("ada", "ada-2", "Ada", "ada%", "x/ada"):
        await store.create(session_id)

    assert await store.delete("ada") is True

    assert await store.get("ada") is None
    left = [info.session_id for info in await store.list()]
    assert left == ["Ada", "ada%", "ada-2", "x/ada"]


async def test_delete_removes_the_sessions_inside(store: SessionStore) -> None:
    for session_id in ("trip", "trip/writer", "trip/writer/call_1", "trips/writer"):
        await store.create(session_id)

    assert await store.delete("trip") is True

    assert [info.session_id for info in await store.list()] == ["trips/writer"]


async def test_delete_takes_no_letter_of_an_id_for_a_pattern(
    store: SessionStore,
) -> None:
    for session_id in ("a_c/x", "abc/x", "a%/x", "*/x", "[a]/x", "a/x"):
        await store.create(session_id)

    for session_id in ("a_c", "a%", "*", "[a]"):
        await store.delete(session_id)

    assert [info.session_id for info in await store.list()] == ["a/x", "abc/x"]


async def test_delete_of_an_unknown_id_is_false_and_harmless(
    store: SessionStore,
) -> None:
    await store.create("ada")

    assert await store.delete("nobody") is False
    assert await store.delete("ada") is True
    assert await store.delete("ada") is False


async def test_delete_of_what_is_no_id_is_refused(store: SessionStore) -> None:
    with pytest.raises(InvalidSessionIdError):
        await store.delete("")


async def test_a_deleted_session_that_is_made_again_is_empty_and_another(
    store: SessionStore,
) -> None:
    before = await store.create("ada", user_id="ann")
    before.append(said("Hello."))
    await store.save(before)
    await store.delete("ada")

    before.append(said("too late"))
    with pytest.raises(SessionNotFoundError):
        await store.save(before)
    again = await store.create("ada", user_id="bob")
    with pytest.raises(SessionNotFoundError):
        await store.save(before)

    stored = await store.get("ada")
    assert stored is not None
    assert list(stored.events) == []
    assert stored.incarnation == again.incarnation != before.incarnation


Use = Callable[[SessionStore], Awaitable[object]]
USES: dict[str, Use] = {
    "create": lambda store: store.create("new"),
    "get": lambda store: store.get("ada"),
    "get_or_create": lambda store: store.get_or_create("ada"),
    "save": lambda store: store.save(Session("ada")),
    "list": lambda store: store.list(),
    "delete": lambda store: store.delete("ada"),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
async def test_a_closed_store_refuses_every_use(store: SessionStore, use: Use) -> None:
    await store.create("ada")
    await store.aclose()

    with pytest.raises(StoreClosedError):
        await use(store)


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
async def test_after_its_block_a_store_refuses_every_use(
    store: SessionStore, use: Use
) -> None:
    async with store as entered:
        await entered.create("ada")

    assert entered is store
    with pytest.raises(StoreClosedError):
        await use(store)


async def test_closing_twice_is_harmless(store: SessionStore) -> None:
    async with store:
        await store.aclose()
    await store.aclose()


async def test_an_error_in_the_block_closes_the_store_and_goes_on(
    store: SessionStore,
) -> None:
    with pytest.raises(LookupError):
        async with store:
            raise LookupError

    with pytest.raises(StoreClosedError):
        await store.get("ada")


def test_threads_with_their_own_loops_share_one_manager(store: SessionStore) -> None:
    async def write(word: str) -> None:
        while True:
            session = await store.get_or_create("ada")
            session.append(said(word))
            try:
                return await store.save(session)
            except SessionConflictError:
                await asyncio.sleep(0)

    async def in_threads() -> None:
        words = [f"thread {number}" for number in range(8)]
        runs = (asyncio.to_thread(asyncio.run, write(word)) for word in words)
        await asyncio.gather(*runs)

    asyncio.run(in_threads())

    stored = asyncio.run(store.get("ada"))
    assert stored is not None
    assert len({event.event_id for event in stored.events}) == 8
    assert stored.version == 8
