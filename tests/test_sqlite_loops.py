"""`SQLiteSessionManager` and event loops: how programs end, and how they begin again.

A notebook, a failed test and a script that was broken off never come to the end of an
`async with` block. None of that may hang, or lose what was acknowledged.
"""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

import minagent
from minagent import Event, Message, Session, SessionManager
from minagent.errors import (
    SessionConflictError,
    StoreClosedError,
    StoreUnavailableError,
)
from minagent.stores import SQLiteSessionManager

T = TypeVar("T")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


def said(text: str) -> Event:
    return Event(author="user", content=(Message(role="user", content=text),))


def texts(session: Session | None) -> list[str]:
    assert session is not None
    items = [item for event in session.events for item in event.content]
    return [item.content for item in items if isinstance(item, Message)]


async def say(sessions: SessionManager, session_id: str, *words: str) -> None:
    session = await sessions.get_or_create(session_id)
    session.append(*map(said, words))
    await sessions.save(session)


def in_its_own_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run in a fresh event loop, and fail rather than hang."""

    async def limited() -> T:
        async with asyncio.timeout(5):
            return await work

    return asyncio.run(limited())


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own, and fail rather than hang."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    package = str(Path(minagent.__file__).parents[1])
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=kept | {"PYTHONPATH": package},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,  # a hang is for ever; a busy machine is slow to start pytest
    )


# --- O16: the program never ends ----------------------------------------------

HEAD = """
import asyncio, sys, threading
from minagent import Event, Message
from minagent.stores import SQLiteSessionManager

sessions = SQLiteSessionManager("sessions.db")

async def say_hello():
    session = await sessions.create("ada")
    session.append(Event(author="user", content=(Message(role="user", content="Hi"),)))
    await sessions.save(session)
    return session
"""

PROGRAMS = {
    "never closed": (
        0,
        """
asyncio.run(say_hello())
""",
    ),
    "entered by hand and never left": (
        0,
        """
async def main():
    await sessions.__aenter__()
    await say_hello()

asyncio.run(main())
""",
    ),
    "an exception escapes": (
        1,
        """
async def main():
    await say_hello()
    raise LookupError

asyncio.run(main())
""",
    ),
    "an exception escapes from the block": (
        1,
        """
async def main():
    async with sessions:
        await say_hello()
        raise LookupError

asyncio.run(main())
""",
    ),
    "entered by hand, and an exception escapes": (
        1,
        """
async def main():
    await sessions.__aenter__()
    await say_hello()
    raise LookupError

asyncio.run(main())
""",
    ),
    "entered by hand, and the program exits with a code": (
        3,
        """
async def main():
    await sessions.__aenter__()
    await say_hello()
    sys.exit(3)

asyncio.run(main())
""",
    ),
    "entered by hand in a loop that is still open": (
        0,
        """
loop = asyncio.new_event_loop()
loop.run_until_complete(sessions.__aenter__())
loop.run_until_complete(say_hello())
""",
    ),
    "entered by hand in another thread": (
        0,
        """
async def main():
    await sessions.__aenter__()
    await say_hello()

thread = threading.Thread(target=asyncio.run, args=[main()])
thread.start()
thread.join()
""",
    ),
    "the program ends while a save is in flight": (
        0,
        """
async def main():
    await sessions.__aenter__()
    session = await say_hello()
    saving = asyncio.ensure_future(sessions.save(session))
    await asyncio.sleep(0)

asyncio.run(main())
""",
    ),
    "the program ends while a save without a block is in flight": (
        0,
        """
async def main():
    session = await say_hello()
    saving = asyncio.ensure_future(sessions.save(session))
    await asyncio.sleep(0)

asyncio.run(main())
""",
    ),
    "the program ends while a block is entered": (
        0,
        """
async def main():
    await say_hello()
    entering = asyncio.ensure_future(sessions.__aenter__())
    await asyncio.sleep(0)

asyncio.run(main())
""",
    ),
}


@pytest.mark.heavy
@pytest.mark.parametrize(("code", "program"), PROGRAMS.values(), ids=PROGRAMS.keys())
def test_o16_a_program_ends_by_itself(
    tmp_path: Path, path: Path, code: int, program: str
) -> None:
    (tmp_path / "program.py").write_text(HEAD + program)

    done = run("program.py", cwd=tmp_path)

    assert done.returncode == code, done.stderr
    assert "Exception in thread" not in done.stderr
    assert texts(asyncio.run(SQLiteSessionManager(path).get("ada"))) == ["Hi"]


CLOSED_BY_HAND = """
import sqlite3

locked = sqlite3.connect("sessions.db", isolation_level=None)

async def main():
    if {held}:
        await sessions.__aenter__()
    session = await say_hello()
    locked.execute("BEGIN IMMEDIATE")
    calls = [sessions.save(session), sessions.create("bob"), sessions.get("ada")]
    calls = [asyncio.ensure_future(call) for call in calls]
    await asyncio.sleep({seconds})  # by then the first two wait for the lock

loop = asyncio.new_event_loop()
loop.run_until_complete(main())
loop.close()
locked.close()
"""


@pytest.mark.heavy
@pytest.mark.parametrize("seconds", [0, 0.002, 0.3])
@pytest.mark.parametrize("held", [True, False], ids=["in its block", "without one"])
def test_o16_a_program_ends_though_its_loop_was_closed_with_calls_in_flight(
    tmp_path: Path, path: Path, held: bool, seconds: float
) -> None:
    """What breaks off there may complain; it must not hang."""
    program = CLOSED_BY_HAND.format(held=held, seconds=seconds)
    (tmp_path / "program.py").write_text(HEAD + program)

    done = run("program.py", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert texts(asyncio.run(SQLiteSessionManager(path).get("ada"))) == ["Hi"]


TESTS = {
    "never closed": "",
    "entered by hand and never left": "await sessions.__aenter__()",
}


@pytest.mark.heavy
@pytest.mark.parametrize("enter", TESTS.values(), ids=TESTS.keys())
def test_o16_a_test_run_ends_though_a_test_fails_in_the_middle(
    tmp_path: Path, path: Path, enter: str
) -> None:
    (tmp_path / "test_it.py").write_text(
        f"{HEAD}\n"
        "async def test_it():\n"
        f"    {enter}\n"
        "    await say_hello()\n"
        "    assert not sessions\n"
    )

    done = run("-m", "pytest", "-o", "asyncio_mode=auto", "test_it.py", cwd=tmp_path)

    assert done.returncode == 1, done.stdout
    assert "assert not sessions" in done.stdout
    assert texts(asyncio.run(SQLiteSessionManager(path).get("ada"))) == ["Hi"]


# --- O17: used again from another event loop ----------------------------------


async def contend(sessions: SessionManager) -> None:
    """Save twice from one version, at once; one of them has to lose."""
    await sessions.get_or_create("ada")
    racers = [await sessions.get("ada") for _ in range(2)]
    for racer in racers:
        assert racer is not None
        racer.append(said("Hello."))
    saves = [sessions.save(racer) for racer in racers if racer is not None]
    outcomes = await asyncio.gather(*saves, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {type(None), SessionConflictError}


@pytest.mark.parametrize("held", [True, False], ids=["in its block", "without one"])
def test_o17_a_manager_goes_on_in_a_second_loop(path: Path, held: bool) -> None:
    sessions = SQLiteSessionManager(path)

    async def first() -> None:
        if held:
            await sessions.__aenter__()
        await contend(sessions)

    async def second() -> list[str]:
        await contend(sessions)
        return texts(await sessions.get("ada"))

    in_its_own_loop(first())
    heard = in_its_own_loop(second())
    in_its_own_loop(sessions.aclose())

    assert heard == ["Hello.", "Hello."]


@pytest.mark.parametrize("held", [True, False], ids=["in its block", "without one"])
def test_o17_a_manager_goes_on_in_a_thread_with_its_own_loop(
    path: Path, held: bool
) -> None:
    async def main() -> list[str]:
        sessions = SQLiteSessionManager(path)
        if held:
            await sessions.__aenter__()
        await contend(sessions)
        async with asyncio.timeout(5):
            await asyncio.to_thread(in_its_own_loop, contend(sessions))
        await contend(sessions)
        heard = texts(await sessions.get("ada"))
        await sessions.aclose()
        return heard

    assert in_its_own_loop(main()) == ["Hello."] * 3


def test_o17_a_block_can_be_entered_in_a_second_loop(path: Path) -> None:
    """The cell of a notebook that is run again does so."""
    sessions = SQLiteSessionManager(path)

    async def first() -> None:
        await sessions.__aenter__()
        await say(sessions, "ada", "one")

    async def second() -> list[str]:
        async with sessions:
            await say(sessions, "ada", "two")
            return texts(await sessions.get("ada"))

    in_its_own_loop(first())

    assert in_its_own_loop(second()) == ["one", "two"]
    with pytest.raises(StoreClosedError):
        in_its_own_loop(sessions.get("ada"))


def test_o17_loops_in_threads_share_one_manager(path: Path) -> None:
    async def main() -> dict[str, list[str]]:
        async with SQLiteSessionManager(path, durability="normal") as sessions:

            async def work(name: str) -> None:
                for number in range(5):
                    await say(sessions, name, f"{number}")

            names = [f"s{number}" for number in range(4)]
            threads = [asyncio.to_thread(asyncio.run, work(name)) for name in names]
            async with asyncio.timeout(20):
                await asyncio.gather(work("main"), *threads)
            names.append("main")
            return {name: texts(await sessions.get(name)) for name in names}

    heard = asyncio.run(main())

    assert len(heard) == 5
    assert all(words == list("01234") for words in heard.values())


IN_FLIGHT = """
from minagent.errors import SessionConflictError

async def hello():
    return Event(author="user", content=(Message(role="user", content="Hello."),))

async def first():
    if {held}:
        await sessions.__aenter__()
    global stale
    stale = await say_hello()
    racers = [await sessions.get("ada") for _ in range(2)]
    for racer in racers:
        racer.append(await hello())
    saves = [asyncio.ensure_future(sessions.save(racer)) for racer in racers]
    await asyncio.wait(saves, return_when=asyncio.FIRST_COMPLETED)
    asyncio.ensure_future(sessions.get("ada"))
    session = await sessions.get("ada")
    session.append(await hello())
    asyncio.ensure_future(sessions.save(session))
    await asyncio.sleep(0)
    asyncio.ensure_future(sessions.list())

async def second():
    async with asyncio.timeout(5):
        while True:
            session = await sessions.get("ada")
            session.append(await hello())
            try:
                await sessions.save(session)
                break
            except SessionConflictError:
                pass  # the save that was in flight has come in between
        assert len((await sessions.get("ada")).events) == len(session.events)
        stale.append(await hello())
        try:
            await sessions.save(stale)
        except SessionConflictError as error:
            return type(error).__name__, len(session.events) in (3, 4)

loop = asyncio.new_event_loop()
loop.run_until_complete(first())
loop.close()

print(*asyncio.run(second()))
said = []
thread = threading.Thread(target=lambda: said.append(asyncio.run(second())))
thread.start()
thread.join()
print(said[0][0])

async def third():
    async with asyncio.timeout(5):
        await sessions.aclose()

asyncio.run(third())
"""


@pytest.mark.parametrize("held", [True, False], ids=["in its block", "without one"])
def test_o17_a_manager_goes_on_after_a_loop_was_closed_with_calls_in_flight(
    tmp_path: Path, held: bool
) -> None:
    (tmp_path / "program.py").write_text(HEAD + IN_FLIGHT.replace("{held}", f"{held}"))

    done = run("program.py", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert done.stdout == "SessionConflictError True\nSessionConflictError\n"


def test_o17_closing_from_another_loop_lets_go_of_the_file(path: Path) -> None:
    sessions = SQLiteSessionManager(path)

    async def first() -> None:
        await sessions.__aenter__()
        await say(sessions, "ada", "one")

    in_its_own_loop(first())
    in_its_own_loop(sessions.aclose())

    deadline = time.monotonic() + 5
    companions = [path.with_name("sessions.db-wal"), path.with_name("sessions.db-shm")]
    while any(each.exists() for each in companions) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(each.exists() for each in companions)
    with pytest.raises(StoreClosedError):
        in_its_own_loop(sessions.get("ada"))


# --- Nothing is left behind ---------------------------------------------------


def settled_threads(before: int) -> int:
    """Return how many threads there are, once those that end have ended."""
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    return threading.active_count()


def test_no_thread_is_left_behind(path: Path) -> None:
    asyncio.run(say(SQLiteSessionManager(path), "ada", "one"))
    before = threading.active_count()

    async def main() -> None:
        for _ in range(5):
            await say(SQLiteSessionManager(path), "ada", "two")
        async with SQLiteSessionManager(path) as sessions:
            await say(sessions, "ada", "three")

    asyncio.run(main())

    # One more waits, as a daemon, to close what a program forgets to close.
    assert settled_threads(before + 1) <= before + 1


@pytest.mark.parametrize("held", [True, False], ids=["in its block", "without one"])
def test_a_file_that_cannot_be_opened_is_an_error_and_no_more(
    path: Path, held: bool
) -> None:
    """50 times, since a thread that reports to a loop that is gone is seldom seen."""
    path.mkdir()
    before = threading.active_count()

    for _ in range(50):
        sessions = SQLiteSessionManager(path)
        with pytest.raises(StoreUnavailableError):
            asyncio.run(sessions.__aenter__() if held else sessions.get("ada"))

    assert settled_threads(before) <= before


def test_closing_from_another_loop_is_quiet(path: Path) -> None:
    """Many times, since a thread that reports to a loop that is gone is seldom seen."""
    for _ in range(30):
        sessions = SQLiteSessionManager(path)
        asyncio.run(sessions.__aenter__())

        asyncio.run(sessions.aclose())
