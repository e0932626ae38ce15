"""SIGKILL at any moment of a run with tools: nothing acknowledged is lost.

`programs/turns.py` takes turns with tools, and says what it was told. It is killed, and
then the file has to bear out all that it said, and the conversation has to go on.
"""

import asyncio
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from minagent import Agent, Message, Session, ToolResult
from minagent.models import ScriptedModel
from minagent.stores import SQLiteSessionManager
from minagent.transcript import UNKNOWN_OUTCOME

PROGRAM = Path(__file__).parent / "programs" / "turns.py"
SESSIONS = 20
KILLS_PER_SESSION = 5

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL"),
]

Killer = subprocess.Popen[str]


@contextmanager
def killer() -> Iterator[Killer]:
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM)],
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


def take_turns_and_die(
    killer: Killer, path: Path, session_id: str, seconds: float
) -> list[tuple[str, str]]:
    """Return what a process said that took turns for so long."""
    assert killer.stdin
    assert killer.stdout
    killer.stdin.write(f"{path} {session_id} {seconds}\n")
    heard = []
    for line in killer.stdout:
        kind, what = line.split()
        if kind == "dead":
            assert int(what) == signal.SIGKILL, "it failed before it was killed"
            return heard
        heard.append((kind, what))
    pytest.fail("the program has ended")


class Told:
    """What the killed processes said of one session, and whether it is true."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.starts: list[str] = []

    def add(self, heard: list[tuple[str, str]]) -> None:
        self.events += [what for kind, what in heard if kind == "event"]
        self.starts += [what for kind, what in heard if kind == "start"]

    def check(self, session: Session | None) -> None:
        if session is None:
            assert self.events == []
            return
        log = [event.event_id for event in session.events]
        assert len(set(log)) == len(log), "an event is in the log twice"
        acknowledged = set(self.events)
        assert [each for each in log if each in acknowledged] == self.events, (
            "an acknowledged event is lost, or has moved"
        )
        assert len(set(self.starts)) == len(self.starts), "a tool was run again"
        asked = [call.tool_call_id for e in session.events for call in e.tool_calls]
        assert set(self.starts) <= set(asked), "a tool ran before its call was stored"


def results(session: Session) -> dict[str, ToolResult]:
    """Return the result of each call, which has to be one."""
    found = [
        item
        for event in session.events
        for item in event.content
        if isinstance(item, ToolResult)
    ]
    by_id = {item.tool_call_id: item for item in found}
    assert len(by_id) == len(found), "a call has two results"
    return by_id


async def go_on(sessions: SQLiteSessionManager, session_id: str) -> Counter[str]:
    """Say something new in a session that a kill cut off; return what was open."""
    before = await sessions.get_or_create(session_id)
    done = results(before)
    calls = [call for event in before.events for call in event.tool_calls]
    cut_off = [call.tool_call_id for call in calls if call.tool_call_id not in done]
    model = ScriptedModel(["Here I am."])  # it refuses a request that is not valid

    result = await Agent(model, session_manager=sessions).run(
        "Are you there?", session_id=session_id
    )

    assert result.output == "Here I am."
    after = await sessions.get(session_id)
    assert after is not None
    assert after.events[: len(before.events)] == before.events[:]
    answered = results(after)
    assert set(answered) == {call.tool_call_id for call in calls}
    new = {key: each for key, each in answered.items() if key not in done}
    assert set(new) == set(cut_off)
    assert {each.status for each in new.values()} <= {"unknown"}
    assert {each.content for each in new.values()} <= {UNKNOWN_OUTCOME}
    last = after.events[-1].content[-1]
    assert isinstance(last, Message)
    assert last.content == "Here I am."
    return Counter({"cut off in a tool": bool(cut_off), "kills": 1})


def kill_again_and_again(path: Path, names: list[str]) -> Counter[str]:
    sessions = SQLiteSessionManager(path, durability="normal")
    count: Counter[str] = Counter()
    with killer() as process:
        for name in names:
            told, chance = Told(), random.Random(name)
            for number in range(KILLS_PER_SESSION):
                seconds = chance.uniform(0.0, 0.2)
                told.add(take_turns_and_die(process, path, name, seconds))
                told.check(asyncio.run(sessions.get(name)))
                # Every other time it is left to the next process to go on.
                if number % 2 == 0:
                    count += asyncio.run(go_on(sessions, name))
                else:
                    count["kills"] += 1
            count["events"] += len(told.events)
            count["starts"] += len(told.starts)
    return count


def test_what_was_acknowledged_survives_a_kill_and_no_tool_runs_twice(
    tmp_path: Path,
) -> None:
    # Promises 6, 10, 15; O01
    lanes = [[f"{lane}-{n}" for n in range(SESSIONS // 2)] for lane in "ab"]
    with ThreadPoolExecutor(2) as threads:
        paths = [tmp_path / "a.db", tmp_path / "b.db"]
        counts = list(threads.map(kill_again_and_again, paths, lanes))

    total = sum(counts, start=Counter[str]())
    print(dict(total))
    assert total["kills"] == SESSIONS * KILLS_PER_SESSION >= 60
    # Otherwise the kills came where there was nothing to lose.
    assert total["cut off in a tool"] > 5
    assert total["events"] > total["kills"]
