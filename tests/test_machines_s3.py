"""Several machines, with nothing but a bucket between them.

The server is a process of its own. The programs that take part are those of
`test_approval_processes.py` and `test_many_processes.py`, which do the same with a
file; what a tool has really done is told by a file that it writes.
"""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import s3
from approving import items_of, statuses
from test_approval_processes import Scene, Worker, at_once, check_what_is_left
from test_many_processes import ask_all

from minagent import Message
from minagent.models.strict import violations
from minagent.stores import open_store
from minagent.transcript import turns

pytestmark = pytest.mark.heavy

ROUNDS = 5
MACHINES, QUESTIONS = 4, 4
STEPS = (5, 7, 11, 13, 17)
"""After the saves of the reply, the decisions and a result; and at the end of a tool,
a free one and an approved one."""
WHOLE_RUN = {"input": None, "approve": ["one", "two"], "seconds": 0}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with s3.server_process() as place:
        yield place


@pytest.fixture
def address(server: str) -> str:
    """The address of an empty bucket, as a program's settings name it."""
    return f"s3://{s3.new_bucket(server)}/sessions?endpoint={server}"


@pytest.fixture
async def scene(tmp_path: Path, address: str) -> AsyncIterator[Scene]:
    async with open_store(address) as sessions:
        scene = Scene(tmp_path, sessions)
        scene.database = address  # type: ignore[assignment]
        yield scene


@pytest.fixture(scope="module")
def pair(server: str) -> Iterator[tuple[Worker, Worker]]:
    with Worker("race") as one, Worker("race") as two:
        yield one, two


def wait_for_traces(scene: Scene, number: int) -> None:
    while scene.traces("s").total() < number:
        time.sleep(0.01)


def told(worker: Worker, order: dict[str, Any]) -> Any:
    worker.order(**order)
    return worker.answer()


async def test_a_session_that_pauses_on_one_machine_resumes_on_the_other(
    scene: Scene, pair: tuple[Worker, Worker]
) -> None:
    question = {"input": "Please.", "approve": [], "seconds": 0, "pauses": True}

    paused = told(pair[0], scene.order("s", **question))
    resumed = told(pair[1], scene.order("s", **WHOLE_RUN))

    assert (paused["outcome"], paused["waiting"]) == (
        "pending_confirmation",
        ["one", "two"],
    )
    assert resumed == {
        "outcome": "complete",
        "waiting": [],
        "sent": ["free", "one", "two"],
    }
    assert scene.traces("s") == {"free": 1, "one": 1, "two": 1}


async def test_of_two_machines_that_resume_one_session_one_runs_the_tools(
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


async def test_when_one_machine_dies_in_a_tool_the_other_goes_on(
    scene: Scene, pair: tuple[Worker, Worker]
) -> None:
    await scene.pause("s")
    with Worker("race") as mortal:
        mortal.order(**scene.order("s", **{**WHOLE_RUN, "seconds": 600}))
        wait_for_traces(scene, 3)
        mortal.process.kill()

    late = told(pair[0], scene.order("s", **WHOLE_RUN))
    goes_on = told(pair[1], scene.order("s", **{**WHOLE_RUN, "approve": []}))

    assert late["outcome"] == "AlreadyDecidedError"
    assert goes_on["outcome"] == "complete"
    assert scene.traces("s") == {"free": 1, "one": 1, "two": 1}
    found = statuses((await scene.session("s")).events)
    assert found == {"free": "success", "one": "unknown", "two": "unknown"}


async def test_after_a_kill_between_two_steps_another_process_goes_on(
    scene: Scene,
) -> None:
    """Steps from the question to the answer: saves, tools and model calls."""
    with Worker("die") as mortal:
        for step in STEPS:
            order = scene.order(f"s{step}", story="together", step=step)

            assert told(mortal, order) == signal.SIGKILL

            await check_what_is_left(scene, f"s{step}", "together")


def test_4_machines_ask_in_one_session_and_every_question_is_kept(address: str) -> None:
    # Promises 6, 14
    start = time.monotonic()
    total = ask_all(address, QUESTIONS, MACHINES)
    print(dict(total), f"{time.monotonic() - start:.1f} s")

    events = asyncio.run(open_store(address).get("room")).events  # type: ignore[union-attr]
    said = [i for i in items_of(events) if isinstance(i, Message)]
    asked = [each.content for each in said if each.role == "user"]
    for name in (f"p{number}" for number in range(MACHINES)):
        mine = [content for content in asked if content.startswith(f"{name}:")]
        assert mine == [f"{name}: question {number}" for number in range(QUESTIONS)]
    assert len(asked) == MACHINES * QUESTIONS
    assert len(said) - len(asked) == total["answers"]
    assert list(violations(turns(events))) == ["V10: the last turn is the assistant's"]
