"""The file of `SQLiteSessionManager`: where it may be, what it may hold, its versions.

What cannot be read is left as it is, byte for byte.
"""
# ruff: noqa: ASYNC240 - nothing else is waiting while a test touches a file.

import asyncio
import os
import random
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from minagent import (
    Agent,
    Event,
    Message,
    Session,
    SessionManager,
    pending_tool_calls,
    tool,
)
from minagent.errors import (
    CorruptSessionError,
    MinagentError,
    NewerDataError,
    StoreUnavailableError,
)
from minagent.models import ScriptedModel
from minagent.stores import SQLiteSessionManager

VERSION_1 = Path(__file__).parent / "data" / "version1.db"


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


async def make(path: Path, *ids: str) -> None:
    """Make a file with sessions of three events, all of it in the one file."""
    async with SQLiteSessionManager(path) as sessions:
        for session_id in ids:
            await say(sessions, await sessions.create(session_id), "one", "two", "3")


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def content(folder: Path) -> dict[str, bytes | None]:
    """Return all that is in a folder, byte for byte."""
    return {
        str(each.relative_to(folder)): each.read_bytes() if each.is_file() else None
        for each in folder.rglob("*")
    }


# --- Where it may be ----------------------------------------------------------


async def test_the_file_and_its_companions_are_for_the_owner_only(path: Path) -> None:
    # Promise 18
    before = os.umask(0)
    try:
        async with SQLiteSessionManager(path) as sessions:
            await say(sessions, await sessions.create("ada"), "Hello.")
            modes = {
                each.name: stat.S_IMODE(each.stat().st_mode)
                for each in path.parent.iterdir()
            }
    finally:
        os.umask(before)

    names = ["sessions.db", "sessions.db-shm", "sessions.db-wal"]
    assert modes == dict.fromkeys(names, 0o600)


async def test_only_the_file_is_left_of_making_it(path: Path) -> None:
    await SQLiteSessionManager(path).create("ada")

    assert [each.name for each in path.parent.iterdir()] == ["sessions.db"]


async def test_a_link_to_a_file_is_not_followed(tmp_path: Path, path: Path) -> None:
    # Promise 18
    await make(tmp_path / "target.db", "ada")
    path.symlink_to(tmp_path / "target.db")
    before = content(tmp_path)

    with pytest.raises(StoreUnavailableError, match="symbolic link") as caught:
        await SQLiteSessionManager(path).get("ada")

    assert caught.value.place == str(path)
    assert content(tmp_path) == before


async def test_a_link_to_nothing_is_not_followed(tmp_path: Path, path: Path) -> None:
    # Promise 18
    path.symlink_to(tmp_path / "target.db")

    with pytest.raises(StoreUnavailableError, match="symbolic link"):
        await SQLiteSessionManager(path).create("ada")
    with pytest.raises(StoreUnavailableError, match="symbolic link"):
        await SQLiteSessionManager(path).__aenter__()

    assert not (tmp_path / "target.db").exists()


async def test_a_missing_folder_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "sessions.db"

    with pytest.raises(StoreUnavailableError) as caught:
        await SQLiteSessionManager(path).create("ada")

    assert caught.value.place == str(path)
    assert list(tmp_path.iterdir()) == []


async def test_a_folder_is_no_file(path: Path) -> None:
    path.mkdir()

    with pytest.raises(StoreUnavailableError) as caught:
        await SQLiteSessionManager(path).get("ada")

    assert caught.value.place == str(path)
    assert list(path.iterdir()) == []


@pytest.fixture
def not_root() -> Iterator[int]:
    """Be somebody whom the modes of files mean something to."""
    if os.geteuid() != 0:
        yield os.geteuid()
        return
    os.seteuid(65534)
    try:
        yield 65534
    finally:
        os.seteuid(0)


@pytest.fixture
def read_only() -> Iterator[Path]:
    """A folder that everybody may read, with a file that everybody may write."""
    # Not in `tmp_path`, which only its owner may enter.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asyncio.run(make(folder / "sessions.db", "ada"))
        (folder / "sessions.db").chmod(0o666)
        folder.chmod(0o555)
        yield folder
        folder.chmod(0o755)


@pytest.mark.skipif(sys.platform == "win32", reason="modes mean little there")
@pytest.mark.parametrize("name", ["new.db", "sessions.db"])
def test_a_read_only_folder_is_a_named_error(
    read_only: Path, not_root: int, name: str
) -> None:
    """Also for a file that is there: SQLite needs to put its log beside it."""
    before = content(read_only)

    with pytest.raises(StoreUnavailableError) as caught:
        asyncio.run(SQLiteSessionManager(read_only / name).create("bob"))

    assert caught.value.place == str(read_only / name)
    assert content(read_only) == before


async def test_a_relative_path_stays_what_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call may open the file anew, and a program may change its folder."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    sessions = SQLiteSessionManager("sessions.db")
    await sessions.create("ada")

    monkeypatch.chdir(tmp_path / "elsewhere")

    assert await sessions.get("ada") is not None
    assert list((tmp_path / "elsewhere").iterdir()) == []


# --- What it may hold ---------------------------------------------------------


@pytest.mark.parametrize("size", [5, 16, 100, 5000])
async def test_a_file_that_is_no_database_is_left_as_it_is(
    path: Path, size: int
) -> None:
    path.write_bytes((b"hello" * size)[:size])
    before = content(path.parent)

    for use in ("get", "create", "delete"):
        with pytest.raises(StoreUnavailableError, match="not a database") as caught:
            await getattr(SQLiteSessionManager(path), use)("ada")
        assert caught.value.place == str(path)
    with pytest.raises(StoreUnavailableError, match="not a database"):
        await SQLiteSessionManager(path).__aenter__()

    assert content(path.parent) == before


async def test_an_empty_file_becomes_a_database(path: Path) -> None:
    path.touch()

    await SQLiteSessionManager(path).create("ada")

    assert await SQLiteSessionManager(path).get("ada") is not None


@pytest.mark.parametrize("user_version", [-1, 0, 1, 2, 99])
async def test_the_database_of_another_program_is_left_as_it_is(
    path: Path, user_version: int
) -> None:
    """Whatever its version says: many programs count theirs from 1, too."""
    execute(
        path,
        "CREATE TABLE songs (title TEXT)",
        "INSERT INTO songs VALUES ('Yesterday')",
        f"PRAGMA user_version = {user_version}",
    )
    before = content(path.parent)

    for use in ("get", "create"):
        with pytest.raises((StoreUnavailableError, NewerDataError), match="sessions"):
            await getattr(SQLiteSessionManager(path), use)("ada")

    assert content(path.parent) == before


# --- Versions of the schema ---------------------------------------------------


@pytest.mark.parametrize("journal_mode", ["wal", "delete"])
async def test_a_newer_schema_is_left_as_it_is(path: Path, journal_mode: str) -> None:
    # Promise 5
    await make(path, "ada")
    execute(path, "PRAGMA user_version = 99", f"PRAGMA journal_mode = {journal_mode}")
    before = content(path.parent)

    for use in ("get", "create", "delete"):
        with pytest.raises(NewerDataError, match="99") as caught:
            await getattr(SQLiteSessionManager(path), use)("ada")
        assert caught.value.subject == str(path)
    with pytest.raises(NewerDataError):
        await SQLiteSessionManager(path).__aenter__()

    assert content(path.parent) == before


@pytest.fixture
def version_1(path: Path) -> Path:
    """A copy of a file that the first schema wrote; `data/version1.py` tells how."""
    return Path(shutil.copy(VERSION_1, path))


def test_o28_the_kept_file_is_of_the_first_schema() -> None:
    uri = f"{VERSION_1.as_uri()}?mode=ro&immutable=1"
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        [version] = connection.execute("PRAGMA user_version").fetchone()

    assert version == 1


async def test_o28_a_file_of_the_first_schema_is_listed(version_1: Path) -> None:
    infos = await SQLiteSessionManager(version_1).list()

    shown = [(i.session_id, i.user_id, i.version, i.event_count) for i in infos]
    assert shown == [("ada", "ann", 2, 7), ("trip", None, 3, 3)]


async def test_o28_a_file_of_the_first_schema_is_read(version_1: Path) -> None:
    with closing(sqlite3.connect(version_1)) as connection:
        rows = connection.execute(
            "SELECT data FROM events JOIN sessions ON key = session "
            "WHERE session_id = 'ada' ORDER BY seq"
        ).fetchall()

    session = await SQLiteSessionManager(version_1).get("ada")

    assert session is not None
    assert session.user_id == "ann"
    assert session.version == 2
    assert repr(session.state["deep"]) == "{'list': [1, 1.0, True, None]}"
    assert [event.to_json() for event in session.events] == [row[0] for row in rows]
    found = {item.type for event in session.events for item in event.content}
    assert len(found) == 8


async def test_o28_a_session_of_the_first_schema_goes_on(version_1: Path) -> None:
    async with SQLiteSessionManager(version_1) as sessions:
        model = ScriptedModel(["Welcome back."])
        agent = Agent(model, session_manager=sessions)

        await agent.run("Do you remember me?", session_id="ada", user_id="ann")

    stored = await SQLiteSessionManager(version_1).get("ada")
    assert texts(stored)[0] == "Hello \U0001f600\u2028"
    assert texts(stored)[-2:] == ["Do you remember me?", "Welcome back."]
    assert stored is not None
    assert stored.version == 4
    assert stored.state["city"] == "Paris"


async def test_o28_a_question_of_the_first_schema_can_be_answered(
    version_1: Path,
) -> None:
    sent = []

    @tool(requires_confirmation=True)
    def send(to: str) -> str:
        """Send what was read."""
        sent.append(to)
        return f"sent to {to}"

    sessions = SQLiteSessionManager(version_1)
    paused = await sessions.get("trip")
    assert paused is not None
    [question] = pending_tool_calls(paused)
    agent = Agent(ScriptedModel(["Done."]), tools=[send], session_manager=sessions)

    yes = question.approve(by="ann")
    result = await agent.run(session_id="trip", tool_confirmations=[yes])

    assert question.confirmation_message == "Send it to bob?"
    assert sent == ["bob"]
    assert result.output == "Done."


OPEN = """
import asyncio, sys
from minagent.stores import SQLiteSessionManager
path = sys.argv[1]
print("ready", flush=True)
sys.stdin.readline()
[first, *_] = asyncio.run(SQLiteSessionManager(path).list())
print(first.session_id, first.version)
"""


def test_o28_two_processes_open_a_file_of_the_first_schema(version_1: Path) -> None:
    command = [sys.executable, "-c", OPEN, str(version_1)]
    processes = [
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        for _ in range(2)
    ]
    ready = [process.stdout and process.stdout.readline() for process in processes]

    for process in processes:
        assert process.stdin
        process.stdin.write("go\n")
    heard = [process.communicate(timeout=20)[0] for process in processes]

    assert ready == ["ready\n"] * 2
    assert heard == ["ada 2\n"] * 2


KILLED_IN_CREATION = """
import asyncio, os, signal, sqlite3, sys
from minagent.stores import SQLiteSessionManager

folder, connect = sys.argv[1], sqlite3.connect

def killed_after(count):
    def statement(text):
        nonlocal count
        if count == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        count -= 1

    def traced(*args, **kwargs):
        connection = connect(*args, **kwargs)
        connection.set_trace_callback(statement)
        return connection

    return traced

count = status = -1
while status != 0:
    count += 1
    child = os.fork()
    if child == 0:
        sqlite3.connect = killed_after(count)
        asyncio.run(SQLiteSessionManager(f"{folder}/{count:02}.db").create("ada"))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    print(status, flush=True)
"""


def test_o28_killed_at_any_statement_of_the_first_creation_it_opens_again(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", KILLED_IN_CREATION, str(tmp_path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=60)

    *killed, ended = map(int, done.stdout.split())
    assert ended == 0
    assert len(killed) > 10
    assert set(killed) == {signal.SIGKILL}

    async def goes_on(path: Path) -> None:
        sessions = SQLiteSessionManager(path)
        session = await sessions.get_or_create("ada")
        await say(sessions, session, "Hello.")
        assert texts(await SQLiteSessionManager(path).get("ada")) == ["Hello."]

    for count in range(len(killed)):
        asyncio.run(goes_on(tmp_path / f"{count:02}.db"))


# --- Damage -------------------------------------------------------------------

OF_BOB = "session = (SELECT key FROM sessions WHERE session_id = 'bob')"
DAMAGED = {
    "an event is no JSON": f"UPDATE events SET data = '{{' WHERE seq = 1 AND {OF_BOB}",
    "an event is empty": f"UPDATE events SET data = '' WHERE seq = 1 AND {OF_BOB}",
    "an event is another thing": f"UPDATE events SET data = '[]' WHERE {OF_BOB}",
    "an event has a key too many": (
        f"UPDATE events SET data = json_set(data, '$.more', 1) WHERE {OF_BOB}"
    ),
    "an event lacks a key": (
        f"UPDATE events SET data = json_remove(data, '$.author') WHERE {OF_BOB}"
    ),
    "an item is of an unknown type": (
        f"UPDATE events SET data = json_set(data, '$.content[0].type', 'new') "
        f"WHERE {OF_BOB}"
    ),
    "an event is no UTF-8": (
        f"UPDATE events SET data = CAST(x'7bff7d' AS TEXT) WHERE seq = 1 AND {OF_BOB}"
    ),
    "the first event is missing": f"DELETE FROM events WHERE seq = 0 AND {OF_BOB}",
    "an event is missing": f"DELETE FROM events WHERE seq = 1 AND {OF_BOB}",
    "the last event is missing": f"DELETE FROM events WHERE seq = 2 AND {OF_BOB}",
    "all events are missing": f"DELETE FROM events WHERE {OF_BOB}",
    "an event has moved": f"UPDATE events SET id = id + 6 WHERE seq = 1 AND {OF_BOB}",
    "there is an event too many": (
        f"INSERT INTO events (id, data) SELECT id + 1, data FROM events "
        f"WHERE seq = 2 AND {OF_BOB}"
    ),
    "the state is no JSON": "UPDATE sessions SET state = '{' WHERE session_id = 'bob'",
    "the state says NaN": (
        "UPDATE sessions SET state = '{\"a\": NaN}' WHERE session_id = 'bob'"
    ),
    "the state is a list": "UPDATE sessions SET state = '[]' WHERE session_id = 'bob'",
    "the state is null": "UPDATE sessions SET state = 'null' WHERE session_id = 'bob'",
    "the state is no UTF-8": (
        "UPDATE sessions SET state = CAST(x'7bff7d' AS TEXT) WHERE session_id = 'bob'"
    ),
    "the time of creation is none": (
        "UPDATE sessions SET created_at = 'noon' WHERE session_id = 'bob'"
    ),
}


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED.keys())
async def test_a_damaged_session_is_named_and_left_and_the_others_are_read(
    path: Path, damage: str
) -> None:
    # Promise 5
    await make(path, "ada", "bob", "cyd")
    execute(path, damage)
    before = content(path.parent)
    sessions = SQLiteSessionManager(path)

    for call in (sessions.get, sessions.get, sessions.get_or_create):
        with pytest.raises(CorruptSessionError, match="'bob'") as caught:
            await call("bob")
        assert caught.value.session_id == "bob"

    for session_id in ("ada", "cyd"):
        assert texts(await sessions.get(session_id)) == ["one", "two", "3"]
    assert content(path.parent) == before


async def test_a_run_on_a_damaged_session_stores_nothing(path: Path) -> None:
    # Promise 5
    await make(path, "bob")
    execute(path, DAMAGED["an event is missing"])
    before = content(path.parent)
    model = ScriptedModel([])
    agent = Agent(model, session_manager=SQLiteSessionManager(path))

    with pytest.raises(CorruptSessionError, match="'bob'"):
        await agent.run("Hello?", session_id="bob")

    assert model.requests == []
    assert content(path.parent) == before


async def test_a_damaged_session_can_be_deleted(path: Path) -> None:
    """Otherwise its id could never be used again."""
    await make(path, "ada", "bob")
    execute(path, DAMAGED["an event is no JSON"])
    sessions = SQLiteSessionManager(path)

    assert await sessions.delete("bob") is True

    assert texts(await sessions.get_or_create("bob")) == []
    assert texts(await sessions.get("ada")) == ["one", "two", "3"]


@pytest.mark.parametrize("seed", range(8))
async def test_garbage_in_a_page_of_one_session_leaves_the_others_readable(
    path: Path, seed: int
) -> None:
    # Promise 5
    async with SQLiteSessionManager(path) as sessions:
        for session_id in ("ada", "bob", "cyd"):
            words = [f"{session_id} {n} ".ljust(300, ".") for n in range(200)]
            await say(sessions, await sessions.create(session_id), *words)
    chance = random.Random(seed)
    place = path.read_bytes().index(f"bob {chance.randrange(40, 160)} ".encode())
    page = place - place % 4096
    with path.open("r+b") as file:
        file.seek(page)
        file.write(chance.randbytes(4096))
    before = content(path.parent)
    sessions = SQLiteSessionManager(path)

    with pytest.raises(CorruptSessionError, match="'bob'"):
        await sessions.get("bob")

    for session_id in ("ada", "cyd"):
        assert len(texts(await sessions.get(session_id))) == 200
    assert content(path.parent) == before


async def test_a_file_cut_in_half_is_a_named_error(path: Path) -> None:
    # Promise 5
    async with SQLiteSessionManager(path) as sessions:
        for session_id in ("ada", "bob"):
            words = [f"{session_id} {n} ".ljust(300, ".") for n in range(200)]
            await say(sessions, await sessions.create(session_id), *words)
    half = path.read_bytes()[: path.stat().st_size // 2]
    path.write_bytes(half)

    with pytest.raises(MinagentError):
        await SQLiteSessionManager(path).get("bob")

    assert path.read_bytes() == half
