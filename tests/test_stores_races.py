"""Of many racers one wins: on every store, through several managers at once."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from stores import EVERY, Place, params

from minagent import (
    Event,
    Message,
    Session,
    SessionConflictError,
    SessionExistsError,
    SessionStore,
)

pytestmark = pytest.mark.heavy

MANAGERS = 8

every_store = pytest.mark.parametrize("store", params(*EVERY))


async def opened(store: str, folder: Path, stack: AsyncExitStack) -> list[SessionStore]:
    place = Place(store, folder, stack)
    return [await place.open() for _ in range(1 if store == "memory" else MANAGERS)]


async def got(store: SessionStore) -> Session:
    session = await store.get("ada")
    assert session is not None
    return session


@every_store
async def test_of_64_racing_creates_one_wins(store: str, tmp_path: Path) -> None:
    # Promise 13, O13
    async with AsyncExitStack() as stack:
        managers = await opened(store, tmp_path, stack)

        async def create(number: int) -> bool:
            try:
                manager = managers[number % len(managers)]
                await manager.create("ada", f"user-{number}")
            except SessionExistsError:
                return False
            return True

        won = await asyncio.gather(*map(create, range(64)))

        assert sum(won) == 1
        assert (await got(managers[0])).user_id == f"user-{won.index(True)}"
        assert [each.session_id for each in await managers[0].list()] == ["ada"]


@every_store
async def test_of_200_racing_saves_of_one_version_one_wins(
    store: str, tmp_path: Path
) -> None:
    # Promise 14, O14
    async with AsyncExitStack() as stack:
        managers = await opened(store, tmp_path, stack)
        await managers[0].create("ada")
        racers = [managers[number % len(managers)] for number in range(200)]
        sessions = [await got(each) for each in racers]

        async def save(number: int) -> bool:
            said = Message(role="user", content=f"{number}")
            sessions[number].append(Event(author="user", content=(said,)))
            try:
                await racers[number].save(sessions[number])
            except SessionConflictError:
                return False
            return True

        won = await asyncio.gather(*map(save, range(200)))

        assert sum(won) == 1
        [event] = (await got(managers[0])).events
        [item] = event.content
        assert isinstance(item, Message)
        assert item.content == f"{won.index(True)}"
