"""SIGKILL at any moment of a graph: no node that has finished is run again."""

import asyncio
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import graphing
import pytest
from graphing import ANSWER, STATE, TRANSITIONS, seven
from stores import address_of

from minagent import PendingToolCall, Session, ToolConfirmation, pending_tool_calls
from minagent.multiagent import GraphRun
from minagent.stores import open_store

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL"),
]

Program = subprocess.Popen[str]


@contextmanager
def program() -> Iterator[Program]:
    process = subprocess.Popen(
        [sys.executable, graphing.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def run_in(program: Program, *words: object) -> int:
    """Let the program run the graph; return the signal that ended it, or 0."""
    assert program.stdin
    assert program.stdout
    program.stdin.write(" ".join(map(str, words)) + "\n")
    return int(program.stdout.readline())


def check(effects: Path, approved: list[str]) -> None:
    """What was done once, and stored, was not done again."""
    done: set[str] = set()
    entered: list[str] = []
    for line in effects.read_text().splitlines():
        what, name = line.split()
        if what == "done":
            done.add(name)
            continue
        assert name not in done, f"{name} had finished, and ran again"
        entered.append(name)
    for name in {*entered}:
        if name.partition("-")[0] in ("price", "publish", "look"):
            assert entered.count(name) <= 1 + approved.count(name), name


def decided(chance: random.Random, asked: PendingToolCall) -> ToolConfirmation:
    """Run it again; or say what became of it, which here is what it would return."""
    if asked.name == "price" or chance.random() < 0.5:
        return asked.approve(by="ann")
    return asked.answer("Ants. costs 10, by Facts 2.", by="ann")


async def ended(
    address: str, session_id: str, effects: Path, chance: random.Random
) -> tuple[Session, list[str], bool]:
    """Go on until the graph has ended, with a person who decides what is asked."""
    approved, answered = [], False
    async with open_store(address) as sessions:
        graph = seven(sessions, effects)
        while True:
            session = await sessions.get(session_id)
            assert session is not None
            if not (asked := pending_tool_calls(session)):
                return session, approved, answered
            assert len(asked) == 1
            decision = decided(chance, asked[0])
            if decision.approved:
                approved.append(asked[0].path[0])
            else:
                answered = True
            await graph.run(session_id=session_id, tool_confirmations=[decision])


@pytest.mark.parametrize(
    ("store", "kills", "longest"),
    [("sqlite", 60, 0.12), ("folder", 10, 0.15), ("postgres", 10, 0.25)],
)
def test_killed_at_any_moment_no_finished_node_runs_again(
    store: str, kills: int, longest: float, tmp_path: Path
) -> None:
    address = address_of(store, tmp_path)
    chance, killed = random.Random(store), 0
    with program() as process:
        for number in range(1_000):
            if killed >= kills:
                break
            session_id, effects = f"s{number}", tmp_path / f"effects-{number}"
            effects.touch()
            while True:
                seconds = chance.uniform(0.0, longest)
                died = run_in(process, address, session_id, effects, seconds)
                killed += died == signal.SIGKILL
                if chance.random() < 0.5 or died == 0:
                    break
            assert run_in(process, address, session_id, effects, "-") == 0

            session, approved, answered = asyncio.run(
                ended(address, session_id, effects, chance)
            )

            check(effects, approved)
            run = GraphRun.of(session.events)
            assert run.answer == ANSWER
            assert run.transitions == TRANSITIONS
            assert run.frontier == {}
            # Of a function that a person answered for, nobody knows what it changes.
            lost = {"published"} - {*run.state} if answered else set()
            assert run.state == {k: v for k, v in STATE.items() if k not in lost}
