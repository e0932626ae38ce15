"""Approval among processes: several that decide, and some that are killed.

Each of the two programs that take part is `approval_worker.py`. What a tool has really
done is told by a file that it writes, and by nothing that the package says.
"""

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from approval_worker import REPLY, STORIES, decision_on, tools_of
from approving import decisions_of, items_of, statuses

from minagent import (
    Agent,
    Message,
    ModelRequest,
    Session,
    SessionManager,
    ToolCall,
    ToolConfirmation,
    pending_tool_calls,
)
from minagent.errors import AlreadyDecidedError, NothingToContinueError
from minagent.models import ScriptedModel
from minagent.models.strict import violations
from minagent.stores import SQLiteSessionManager
from minagent.transcript import turns

pytestmark = pytest.mark.heavy

ROUNDS = 50


class Worker:
    """A process that answers each order with one line."""

    def __init__(self, mode: str) -> None:
        script = Path(__file__).with_name("approval_worker.py")
        self.process = subprocess.Popen(
            [sys.executable, script, mode],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate(timeout=10)

    def order(self, **order: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")

    def answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())


class Scene:
    """One database, and the file in which the tools leave their traces."""

    def __init__(self, folder: Path, sessions: SessionManager) -> None:
        self.database, self.effects = folder / "sessions.db", folder / "effects"
        self.sessions = sessions

    def order(self, session_id: str, **order: Any) -> dict[str, Any]:
        """Return an order about one session, for a worker."""
        places = {"database": str(self.database), "effects": str(self.effects)}
        return {"session": session_id, **places, **order}

    def agent(self, *steps: Any) -> Agent:
        return Agent(
            ScriptedModel(steps),
            tools=tools_of(self.effects, lambda: None),
            session_manager=self.sessions,
        )

    async def pause(self, session_id: str) -> None:
        result = await self.agent(REPLY).run("Please.", session_id=session_id)
        assert result.status == "pending_confirmation"

    async def session(self, session_id: str) -> Session:
        session = await self.sessions.get(session_id)
        assert session is not None
        return session

    def traces(self, session_id: str) -> Counter[str]:
        """Return how often each call of a session has taken effect."""
        if not self.effects.exists():
            return Counter()
        lines = [line.split() for line in self.effects.read_text().splitlines()]
        return Counter(call_id for session, call_id in lines if session == session_id)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    path = tmp_path / "sessions.db"
    async with SQLiteSessionManager(path, durability="normal") as sessions:
        yield Scene(tmp_path, sessions)


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Worker, Worker]]:
    with Worker("race") as one, Worker("race") as two:
        yield one, two


@pytest.fixture(scope="module")
def killer() -> Iterator[Worker]:
    with Worker("die") as worker:
        yield worker


def at_once(
    pair: tuple[Worker, Worker], one: dict[str, Any], two: dict[str, Any]
) -> list[dict[str, Any]]:
    """Give both their orders, and only then read how they went."""
    base: dict[str, Any] = {"input": None, "approve": [], "seconds": 0}
    for worker, order in zip(pair, (one, two), strict=True):
        worker.order(**{**base, **order})
    return [worker.answer() for worker in pair]


# --- Two processes that decide at once ----------------------------------------


async def test_of_two_processes_that_approve_one_call_one_runs_it(
    scene: Scene, pair: tuple[Worker, Worker]
) -> None:
    # Promise 21.
    ends: Counter[tuple[str, ...]] = Counter()
    ran: Counter[str] = Counter()
    for number in range(ROUNDS):
        session_id = f"s{number}"
        await scene.pause(session_id)
        order = scene.order(session_id, approve=["one", "two"])

        answers = at_once(pair, order, order)

        ends[tuple(sorted(each["outcome"] for each in answers))] += 1
        ran += scene.traces(session_id)

    assert ends == {("AlreadyDecidedError", "complete"): ROUNDS}
    assert ran == {"free": ROUNDS, "one": ROUNDS, "two": ROUNDS}


async def test_two_processes_that_approve_two_calls_of_a_reply_go_on_once(
    scene: Scene, pair: tuple[Worker, Worker]
) -> None:
    # Promise 22: the run that stores the last result goes on.
    ran: Counter[str] = Counter()
    for number in range(ROUNDS):
        session_id, seconds = f"s{number}", number % 5 / 1000
        await scene.pause(session_id)

        answers = at_once(
            pair,
            scene.order(session_id, approve=["one"], seconds=seconds),
            scene.order(session_id, approve=["two"]),
        )

        [last] = [each for each in answers if each["outcome"] == "complete"]
        [first] = [each for each in answers if each is not last]
        assert first["outcome"] == "pending_confirmation"
        assert (first["sent"], last["sent"]) == (None, ["free", "one", "two"])
        assert first["waiting"] in ([], ["one"], ["two"])
        events = (await scene.session(session_id)).events
        assert set(statuses(events).values()) == {"success"}
        said = [i.content for i in items_of(events) if isinstance(i, Message)]
        assert said == ["Please.", "Done."]
        ran += scene.traces(session_id)

    assert ran == {"free": ROUNDS, "one": ROUNDS, "two": ROUNDS}


async def test_a_process_that_approves_and_one_that_moves_on_leave_a_true_log(
    scene: Scene, pair: tuple[Worker, Worker]
) -> None:
    """Who comes first is open. That the log says what happened is not."""
    for number in range(ROUNDS // 2):
        session_id = f"s{number}"
        await scene.pause(session_id)

        approving, _ = at_once(
            pair,
            scene.order(session_id, approve=["one"], seconds=number % 5 / 500),
            scene.order(session_id, input="Never mind."),
        )

        events = (await scene.session(session_id)).events
        found, traces = statuses(events), scene.traces(session_id)
        assert found["two"] == "replaced"
        assert traces["two"] == 0
        assert traces["one"] <= 1
        possible = {"success", "unknown"} if traces["one"] else {"replaced"}
        assert found["one"] in possible
        if approving["outcome"] == "AlreadyDecidedError":
            assert found["one"] == "replaced"
        assert list(violations(turns(events)[:-1])) == []


# --- A process that is killed -------------------------------------------------


@pytest.mark.parametrize("story", STORIES)
async def test_killed_between_any_two_steps_no_call_runs_twice(
    scene: Scene, killer: Worker, story: str
) -> None:
    """All steps from the question to the answer: saves, tools and model calls."""
    for step in count(1):
        session_id = f"s{step}"
        killer.order(**scene.order(session_id, story=story, step=step))
        if killer.answer() == 0:
            break
        await check_what_is_left(scene, session_id, story)

    assert step > 16  # so that with all stories over 60 processes die


async def test_killed_at_any_moment_no_call_runs_twice(
    scene: Scene, killer: Worker
) -> None:
    """Also in the middle of a write, where no step ends."""
    chance, killed = random.Random(20261130), 0
    start = time.monotonic()
    killer.order(**scene.order("whole", story="apart"))
    killer.answer()
    whole_story = time.monotonic() - start
    for number in range(30):
        session_id, story = f"s{number}", chance.choice([*STORIES])
        seconds = chance.uniform(0.2, 1) * whole_story
        killer.order(**scene.order(session_id, story=story, seconds=seconds))
        killed += killer.answer() == signal.SIGKILL
        await check_what_is_left(scene, session_id, story)

    assert killed > 5


async def check_what_is_left(scene: Scene, session_id: str, story: str) -> None:
    """Bring the conversation of a dead process to its end; the log must stay true."""
    at_death = await scene.sessions.get(session_id)
    ran = scene.traces(session_id)
    expected = what_the_log_must_say(at_death, story)

    await finish(scene, session_id, story)

    final = statuses((await scene.session(session_id)).events)
    assert {each: final[each] for each in expected} == expected
    for call_id, status in final.items():
        times = scene.traces(session_id)[call_id]
        assert times <= 1, f"{call_id} ran {times} times"
        if status == "unknown":
            # It is not run again, and only a dead process leaves one behind.
            assert expected[call_id] == "unknown"
            assert times == ran[call_id]
        elif status == "success" and not answered(story, call_id):
            assert times == 1
        else:
            assert times == 0


def answered(story: str, call_id: str) -> bool:
    return any(verdicts.get(call_id) == "answer" for verdicts in STORIES[story])


def what_the_log_must_say(session: Session | None, story: str) -> dict[str, str]:
    """Return what becomes of each call that stood in the log when the process died.

    A call with a result keeps it. One that waits for a person gets what the person
    decides. What is left was let go, and whether it ran nobody can tell.
    """
    if session is None:
        return {}
    found = dict(statuses(session.events))
    pending = {each.tool_call_id for each in pending_tool_calls(session)}
    claimed = {each.tool_call_id for each in decisions_of(session.events)}
    verdicts = {each: v for taken in STORIES[story] for each, v in taken.items()}
    for item in items_of(session.events):
        if isinstance(item, ToolCall) and item.tool_call_id not in found:
            call_id = item.tool_call_id
            if call_id in pending:
                denied = verdicts[call_id] == "deny"
                found[call_id] = "denied" if denied else "success"
            else:
                # The pending list is stored in the save of the reply: never later.
                assert item.name == "look" or call_id in claimed
                found[call_id] = "unknown"
    return found


async def finish(scene: Scene, session_id: str, story: str) -> None:
    """Go on as a person would: look, decide on what still waits, until the end."""

    def reply(request: ModelRequest) -> Any:
        return "Done." if len(request.turns) > 1 else REPLY

    agent = scene.agent(reply, reply, reply)
    session = await scene.sessions.get(session_id)
    if session is None or not session.events:
        await agent.run("Please.", session_id=session_id)
    else:
        await no_decision_is_taken_twice(scene, session)
        try:
            await agent.run(session_id=session_id)
        except NothingToContinueError:
            return
    for verdicts in STORIES[story]:
        pending = pending_tool_calls(await scene.session(session_id))
        decisions = [
            decision_on(each, verdicts[each.tool_call_id])
            for each in pending
            if each.tool_call_id in verdicts
        ]
        if decisions:
            await agent.run(session_id=session_id, tool_confirmations=decisions)
    with pytest.raises(NothingToContinueError):
        await agent.run(session_id=session_id)


async def no_decision_is_taken_twice(scene: Scene, session: Session) -> None:
    for taken in decisions_of(session.events):
        again = ToolConfirmation(tool_call_id=taken.tool_call_id, approved=True)
        with pytest.raises(AlreadyDecidedError):
            await scene.agent().run(
                session_id=session.session_id, tool_confirmations=[again]
            )
