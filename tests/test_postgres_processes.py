"""Several processes, with nothing but a PostgreSQL database between them.

The programs that take part are those of `test_many_processes.py`, `test_kill.py` and
`test_approval_processes.py`, which do the same with a file.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from approval_worker import STORIES
from approving import statuses
from postgres import execute, new_database
from test_approval_processes import Scene, Worker, at_once, check_what_is_left
from test_kill import Told, go_on, killer, take_turns_and_die
from test_many_processes import PROCESSES, QUESTIONS, ask_all

from minagent import Message
from minagent.models.strict import violations
from minagent.stores import PostgresSessionManager
from minagent.transcript import turns

pytestmark = pytest.mark.heavy

ROUNDS = 50
SESSIONS = 12
KILLS_PER_SESSION = 5

# --- Many that talk -----------------------------------------------------------


def test_8_processes_ask_50_questions_each_in_one_session() -> None:
    # Promises 6, 14
    database = new_database()

    start = time.monotonic()
    total = ask_all(database)
    print(dict(total), f"{time.monotonic() - start:.1f} s")

    session = asyncio.run(PostgresSessionManager(database).get("room"))
    assert session is not None
    items = [item for event in session.events for item in event.content]
    said = [(i.role, i.content) for i in items if isinstance(i, Message)]
    asked = [content for role, content in said if role == "user"]
    names = [f"p{number}" for number in range(PROCESSES)]
    assert sorted(asked) == sorted(
        f"{name}: question {number}" for name in names for number in range(QUESTIONS)
    )
    assert len(said) - len(asked) == total["answers"]
    assert total["conflicts"] > 0  # otherwise there was no race
    assert list(violations(turns(session.events))) == [
        "V10: the last turn is the assistant's"
    ]


# --- Some that are killed -----------------------------------------------------


def kill_again_and_again(names: list[str]) -> Counter[str]:
    database, total = new_database(), Counter[str]()
    with killer() as process:
        for name in names:
            told, chance = Told(), random.Random(name)
            for number in range(KILLS_PER_SESSION):
                seconds = chance.uniform(0.0, 0.3)
                told.add(take_turns_and_die(process, database, name, seconds))
                wait_for_the_dead(database)
                total += asyncio.run(look(database, name, told, number % 2 == 0))
            total["events"] += len(told.events)
            total["starts"] += len(told.starts)
    return total


def wait_for_the_dead(database: str, alive: int = 0) -> None:
    """Wait until the server has noticed: it ends the statement that it is in."""
    others = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
        "AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )
    while execute(database, others) > [(alive,)]:
        pass


async def look(database: str, name: str, told: Told, further: bool) -> Counter[str]:
    """Look with a manager that has seen nothing; and go on with the conversation."""
    async with PostgresSessionManager(database) as sessions:
        session = await sessions.get(name)
        told.check(session)
        # Every other time it is left to the next process to go on.
        return await go_on(sessions, name) if further else Counter({"kills": 1})


def test_what_was_acknowledged_survives_a_kill_and_nothing_torn_is_read() -> None:
    # Promises 6, 10, 15; O01
    lanes = [[f"{lane}-{n}" for n in range(SESSIONS // 2)] for lane in "ab"]
    new_database()  # so that there is a server before there are threads
    with ThreadPoolExecutor(2) as threads:
        counts = list(threads.map(kill_again_and_again, lanes))

    total = sum(counts, start=Counter[str]())
    print(dict(total))
    assert total["kills"] == SESSIONS * KILLS_PER_SESSION >= 60
    # Otherwise the kills came where there was nothing to lose.
    assert total["cut off in a tool"] > 2
    assert total["events"] > total["kills"]


# --- Two workers and a person -------------------------------------------------


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    """A database, and the file in which the tools leave their traces."""
    database = new_database()
    async with PostgresSessionManager(database) as sessions:
        scene = Scene(tmp_path, sessions)
        scene.database = database  # type: ignore[assignment]
        yield scene


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Worker, Worker]]:
    with Worker("race") as one, Worker("race") as two:
        yield one, two


@pytest.fixture(scope="module")
def mortal() -> Iterator[Worker]:
    with Worker("die") as worker:
        yield worker


async def test_a_session_that_pauses_in_one_process_resumes_in_another(
    scene: Scene, pair: tuple[Worker, Worker]
) -> None:
    base: dict[str, Any] = {"approve": [], "input": None, "seconds": 0}
    pair[0].order(**scene.order("s", **base | {"input": "Please.", "pauses": True}))
    assert pair[0].answer()["waiting"] == ["one", "two"]

    pair[1].order(**scene.order("s", **base | {"approve": ["one", "two"]}))
    answer = pair[1].answer()

    assert answer == {
        "outcome": "complete",
        "waiting": [],
        "sent": ["free", "one", "two"],
    }
    assert scene.traces("s") == {"free": 1, "one": 1, "two": 1}
    assert set(statuses((await scene.session("s")).events).values()) == {"success"}


async def test_of_two_processes_that_resume_one_session_one_runs_the_tools(
    scene: Scene, pair: tuple[Worker, Worker]
) -> None:
    # Promise 21
    ends: Counter[tuple[str, ...]] = Counter()
    ran: Counter[str] = Counter()
    for number in range(ROUNDS):
        await scene.pause(f"s{number}")
        order = scene.order(f"s{number}", approve=["one", "two"])

        answers = at_once(pair, order, order)

        ends[tuple(sorted(each["outcome"] for each in answers))] += 1
        ran += scene.traces(f"s{number}")

    assert ends == {("AlreadyDecidedError", "complete"): ROUNDS}
    assert ran == {"free": ROUNDS, "one": ROUNDS, "two": ROUNDS}


@pytest.mark.parametrize("story", ["apart", "edited and denied"])
async def test_after_a_kill_between_any_two_steps_another_process_goes_on(
    scene: Scene, mortal: Worker, story: str
) -> None:
    """All steps from the question to the answer: saves, tools and model calls."""
    for step in count(1):
        mortal.order(**scene.order(f"s{step}", story=story, step=step))
        if mortal.answer() == 0:
            break
        wait_for_the_dead(str(scene.database), alive=1)
        await check_what_is_left(scene, f"s{step}", story)

    assert step > 16


async def test_after_a_kill_at_any_moment_another_process_goes_on(
    scene: Scene, mortal: Worker
) -> None:
    """Also in the middle of a write, where no step ends."""
    chance, killed = random.Random(20261130), 0
    start = time.monotonic()
    mortal.order(**scene.order("whole", story="apart"))
    mortal.answer()
    whole_story = time.monotonic() - start
    for number in range(30):
        story = chance.choice([*STORIES])
        seconds = chance.uniform(0.2, 1) * whole_story
        mortal.order(**scene.order(f"s{number}", story=story, seconds=seconds))
        killed += mortal.answer() != 0
        wait_for_the_dead(str(scene.database), alive=1)
        await check_what_is_left(scene, f"s{number}", story)

    assert killed > 5
