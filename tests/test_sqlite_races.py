"""Several managers, and several processes, on one fresh SQLite file at once."""

import asyncio
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from minagent import Event, Message, Session, SessionManager
from minagent.errors import SessionExistsError, StoreUnavailableError
from minagent.stores import SQLiteSessionManager

pytestmark = pytest.mark.heavy


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


def said(text: str) -> Event:
    return Event(author="user", content=(Message(role="user", content=text),))


def texts(session: Session | None) -> list[str]:
    assert session is not None
    items = [item for event in session.events for item in event.content]
    return [item.content for item in items if isinstance(item, Message)]


async def say(sessions: SessionManager, session: Session, *words: str) -> None:
    session.append(*map(said, words))
    await sessions.save(session)


def rows(path: Path, sql: str) -> list[Any]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


async def test_o13_of_8_creates_on_a_fresh_file_one_wins(tmp_path: Path) -> None:
    for attempt in range(20):
        path = tmp_path / f"{attempt}.db"
        managers = [SQLiteSessionManager(path), SQLiteSessionManager(path)] * 4

        outcomes = await asyncio.gather(
            *(manager.create("same", user_id="ann") for manager in managers),
            return_exceptions=True,
        )
        found = await asyncio.gather(
            *(manager.get_or_create("other") for manager in managers)
        )

        lost = [each for each in outcomes if isinstance(each, SessionExistsError)]
        [won] = [each for each in outcomes if isinstance(each, Session)]
        assert len(lost) == 7
        stored = await managers[0].get("same")
        assert stored is not None
        assert stored.incarnation == won.incarnation
        assert len({session.incarnation for session in found}) == 1


async def open_and_work(path: Path, name: str, held: bool) -> None:
    sessions = SQLiteSessionManager(path, durability="normal")
    if held:
        await sessions.__aenter__()
    session = await sessions.create(name)
    for number in range(5):
        await say(sessions, session, f"{number}")
    await sessions.aclose()


@pytest.mark.parametrize("held", [True, False], ids=["in blocks", "without blocks"])
async def test_o15_8_managers_open_a_fresh_file_together(
    tmp_path: Path, held: bool
) -> None:
    """20 times, since a race for the journal mode is lost only now and then."""
    for attempt in range(20):
        path = tmp_path / f"{attempt}.db"

        names = [f"s{number}" for number in range(8)]
        await asyncio.gather(*(open_and_work(path, name, held) for name in names))

        store = SQLiteSessionManager(path)
        infos = [(info.session_id, info.version) for info in await store.list()]
        assert infos == [(name, 5) for name in names]


FOUR = """
import asyncio, sys
from test_sqlite_races import Path, open_and_work

names = [f"{sys.argv[1]}-{number}" for number in range(2)]

async def main(path):
    await asyncio.gather(*(open_and_work(path, name, True) for name in names))

print("ready", flush=True)
for line in sys.stdin:
    asyncio.run(main(Path(line.strip())))
    print("done", flush=True)
"""


def test_o15_4_processes_open_a_fresh_file_together(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FOUR]
    processes = [
        subprocess.Popen(
            [*command, f"p{number}"],
            cwd=Path(__file__).parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        for number in range(4)
    ]
    try:
        said_so = [each.stdout.readline() for each in processes if each.stdout]
        assert said_so == ["ready\n"] * 4
        for attempt in range(20):
            path = tmp_path / f"{attempt}.db"
            for each in processes:
                assert each.stdin
                each.stdin.write(f"{path}\n")
            said_so = [each.stdout.readline() for each in processes if each.stdout]

            assert said_so == ["done\n"] * 4
            found = rows(path, "SELECT session_id, version FROM sessions ORDER BY 1")
            names = [f"p{number}-{each}" for number in range(4) for each in range(2)]
            assert found == [(name, 5) for name in names]
    finally:
        for each in processes:
            each.kill()
            each.communicate()


async def test_a_file_that_stays_locked_is_named_after_the_timeout(path: Path) -> None:
    sessions = SQLiteSessionManager(path, busy_timeout_seconds=0.05)
    session = await sessions.create("ada")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    session.append(said("Hello."))
    with pytest.raises(StoreUnavailableError) as caught:
        await sessions.save(session)

    other.close()
    assert caught.value.place == str(path)
    assert isinstance(caught.value.__cause__, sqlite3.Error)
    assert session.version == 0
    await sessions.save(session)  # nothing of the first try was left behind
    assert texts(await sessions.get("ada")) == ["Hello."]


async def test_a_reader_does_not_wait_for_a_writer(path: Path) -> None:
    sessions = SQLiteSessionManager(path, busy_timeout_seconds=0.05)
    await say(sessions, await sessions.create("ada"), "Hello.")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    assert texts(await sessions.get("ada")) == ["Hello."]

    other.close()
