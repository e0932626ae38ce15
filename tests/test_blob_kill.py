"""SIGKILL at any moment, on sessions in a folder: nothing acknowledged is lost.

As `test_kill.py` does with a SQLite file; `programs/turns.py` takes the turns.
"""

import asyncio
import random
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from test_kill import Told, go_on, killer, take_turns_and_die

from minagent.stores import BlobSessionManager, FolderStorage

SESSIONS = 12
KILLS_PER_SESSION = 5

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL"),
]


def kill_again_and_again(folder: Path, names: list[str]) -> Counter[str]:
    count: Counter[str] = Counter()
    with killer() as process:
        for name in names:
            told, chance = Told(), random.Random(name)
            for number in range(KILLS_PER_SESSION):
                seconds = chance.uniform(0.0, 0.3)
                told.add(take_turns_and_die(process, folder, name, seconds))
                count += asyncio.run(look(folder, name, told, further=number % 2 == 0))
            count["events"] += len(told.events)
            count["starts"] += len(told.starts)
    return count


async def look(folder: Path, name: str, told: Told, *, further: bool) -> Counter[str]:
    """Look with a manager that has seen nothing; and go on with the conversation."""
    storage = FolderStorage(folder, durability="normal")
    async with BlobSessionManager(storage) as sessions:
        session = await sessions.get(name)
        told.check(session)
        listed = [info for info in await sessions.list() if info.session_id == name]
        assert len(listed) == (session is not None), "a session is not in the list"
        # Every other time it is left to the next process to go on.
        return await go_on(sessions, name) if further else Counter({"kills": 1})


async def names_left(folder: Path, names: list[str]) -> list[str]:
    """Delete the sessions, and return the keys that are still there."""
    storage = FolderStorage(folder, durability="normal")
    async with BlobSessionManager(storage) as sessions:
        for name in names:
            await sessions.delete(name)
        return [
            key
            for key in await storage.list("")
            if not key.startswith("index/")  # of a creation that was cut off just now
        ]


def test_what_was_acknowledged_survives_a_kill_and_nothing_torn_is_read(
    tmp_path: Path,
) -> None:
    # Promises 6, 10, 15; O01
    lanes = [[f"{lane}-{n}" for n in range(SESSIONS // 2)] for lane in "ab"]
    folders = [tmp_path / "a", tmp_path / "b"]
    with ThreadPoolExecutor(2) as threads:
        counts = list(threads.map(kill_again_and_again, folders, lanes))

    total = sum(counts, start=Counter[str]())
    print(dict(total))
    assert total["kills"] == SESSIONS * KILLS_PER_SESSION >= 60
    # Otherwise the kills came where there was nothing to lose.
    assert total["cut off in a tool"] > 2
    assert total["events"] > total["kills"]
    for folder, names in zip(folders, lanes, strict=True):
        assert asyncio.run(names_left(folder, names)) == []
