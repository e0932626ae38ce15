"""What sessions cost, each figure as a ratio to a floor that is measured beside it.

    python -m tests.benchmarks.sessions [--durability full|normal] [--quick] [--check]

Absolute times say more about the machine than about the code, and thread hops may take
40 or 110 µs as the scheduler likes. So all is pinned to one CPU; the actions of a group
take turns, in a shuffled order; and what counts is the ratio of their medians. The
garbage collector is on for both sides, as in a program, and what one group leaves
behind is collected before the next begins.

Read `measured` for what is measured, and `Floor` for what most of it is measured
against. A single number of a busy machine proves little: run it twice.
"""

import argparse
import asyncio
import gc
import json
import os
import platform
import random
import sqlite3
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from time import perf_counter
from typing import Literal, TypeAlias

import aiosqlite

from minagent import (
    Agent,
    ContentItem,
    Event,
    EventLog,
    Message,
    Model,
    ModelRequest,
    ModelResponse,
    Reasoning,
    SessionManager,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
)
from minagent.model import Emit
from minagent.models import AnthropicModel
from minagent.stores import SQLiteSessionManager

ROOT = Path(__file__).resolve().parents[2]

Durability: TypeAlias = Literal["full", "normal"]
Action: TypeAlias = Callable[[], Awaitable[float]]
"""Does its work, and returns the seconds that the part to be measured took."""

ANSWER = "You said that your name is Ada, and that the report is due on Friday. " * 3
QUESTION = "What did I say my name is, and when is the report that we spoke of due?"


@dataclass(frozen=True)
class Figure:
    """One line of the table."""

    name: str
    seconds: float
    floor: float
    target: float
    durability: str = ""

    @property
    def ratio(self) -> float:
        return self.seconds / self.floor

    @property
    def is_met(self) -> bool:
        return self.ratio <= self.target


@dataclass(frozen=True)
class Plan:
    """How often things are measured.

    Attributes:
        rounds: Of saves and turns.
        loads: Of a long session.
        imports: In a process each.
        sessions: Over how many sessions of each length the turns are spread, so that
            none grows much.
    """

    rounds: int
    loads: int
    imports: int
    sessions: int


THOROUGH = Plan(rounds=300, loads=15, imports=21, sessions=10)
QUICK = Plan(rounds=12, loads=2, imports=2, sessions=2)


# --- The floor ----------------------------------------------------------------


class Floor:
    """Plain aiosqlite: one transaction that claims the version and appends rows.

    Four hops to the connection's thread, as one would write it down. It is given its
    rows as text, so that nothing is measured but the store.
    """

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection
        self._version = self._count = 0

    @classmethod
    async def open(cls, path: Path, durability: Durability) -> "Floor":
        connection = await aiosqlite.connect(path, isolation_level=None)
        for statement in (
            "PRAGMA journal_mode = WAL",
            f"PRAGMA synchronous = {durability}",
            "CREATE TABLE sessions (session_id TEXT PRIMARY KEY, version INTEGER,"
            " updated_at TEXT, state TEXT)",
            "CREATE TABLE events (session_id TEXT, seq INTEGER, data TEXT,"
            " PRIMARY KEY (session_id, seq)) WITHOUT ROWID",
            "INSERT INTO sessions VALUES ('s', 0, '', '{}')",
        ):
            await connection.execute(statement)
        return cls(connection)

    async def transaction(self, *rows: str) -> None:
        db = self._connection
        await db.execute("BEGIN")
        cursor = await db.execute(
            "UPDATE sessions SET version = version + 1, updated_at = ?, state = ?"
            " WHERE session_id = ? AND version = ?",
            ("2026-11-30T16:00:00+00:00", "{}", "s", self._version),
        )
        if cursor.rowcount != 1:
            raise RuntimeError("somebody else writes to the floor's database")
        values = [("s", self._count + n, row) for n, row in enumerate(rows)]
        await db.executemany("INSERT INTO events VALUES (?, ?, ?)", values)
        await db.execute("COMMIT")
        self._version += 1
        self._count += len(rows)

    async def aclose(self) -> None:
        await self._connection.close()


# --- Conversations ------------------------------------------------------------


def event(author: str, *items: ContentItem) -> Event:
    """One event, with what a vendor's reply brings along."""
    if author == "user":
        return Event(author=author, content=items)
    return Event(
        author=author,
        content=items,
        execution_id="01938f5e-7c00-7000-8000-000000000000",
        usage=Usage(input_tokens=812, output_tokens=64, cache_read_tokens=4096),
        model="a-model-of-2026",
        stop_reason="end_turn",
        request_id="req_011CSHoEeqs5C35K2UUqR7Fy",
    )


def plain_turns(messages: int) -> list[Event]:
    """A conversation of so many messages, question and answer by turns."""
    made = []
    for n in range(messages // 2):
        question = Message(role="user", content=f"{n}. {QUESTION}")
        answer = Message(role="assistant", content=f"{n}. {ANSWER}")
        made += [event("user", question), event("assistant", answer)]
    return made


def tool_turns(events: int) -> list[Event]:
    """So many events: question; reasoning and call; result; answer."""
    made: list[Event] = []
    for n in range(events // 4):
        question, answer = plain_turns(2)
        call = ToolCall(
            name="read_file", arguments={"path": f"notes/{n}.md", "lines": [1, 80]}
        )
        result = ToolResult(
            tool_call_id=call.tool_call_id,
            name=call.name,
            content=f"{n}: " + "The report is due on Friday. " * 12,
            details={"bytes": 348, "encoding": "utf-8"},
        )
        thought = Reasoning(
            content="The notes may say when it is due. " * 8,
            signature="EqQBCgIYAh" * 40,
        )
        made += [question, event("assistant", thought, call)]
        made += [Event(author="assistant", content=(result,)), answer]
    return made


class IgnoresRequest:
    """A model that answers without a look at what it is asked."""

    async def generate(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        return ModelResponse((Message(role="assistant", content=ANSWER),))


class ReadsAll:
    """A model that reads every message before it answers."""

    async def generate(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        read = "".join(
            item.content
            for turn in request.turns
            for item in turn.content
            if isinstance(item, Message)
        )
        return ModelResponse((Message(role="assistant", content=ANSWER + read[:1]),))


async def grown(
    sessions: SessionManager, name: str, count: int, log: Sequence[Event]
) -> Iterator[str]:
    """Store copies of one conversation; return their ids, round and round."""
    names = [f"{name}-{n}" for n in range(count)]
    for each in names:
        session = await sessions.create(each)
        session.append(*log)
        await sessions.save(session)
    return cycle(names)


# --- Measuring ----------------------------------------------------------------


async def medians(rounds: int, warm_up: int, *actions: Action) -> tuple[float, ...]:
    """Let the actions take turns; return the median seconds of each."""
    times: list[list[float]] = [[] for _ in actions]
    order, chance = list(range(len(actions))), random.Random(1)
    gc.collect()
    for _ in range(warm_up + rounds):
        chance.shuffle(order)
        for at in order:
            times[at].append(await actions[at]())
    return tuple(statistics.median(each[warm_up:]) for each in times)


def timed(work: Callable[[], Awaitable[object]]) -> Action:
    """Measure all of the work."""

    async def action() -> float:
        start = perf_counter()
        await work()
        return perf_counter() - start

    return action


async def saves_and_turns(
    folder: Path, durability: Durability, plan: Plan
) -> list[Figure]:
    """One save, and turns on sessions of several lengths, in one group."""
    floor_path = folder / f"floor-{durability}.db"
    path = folder / f"sessions-{durability}.db"
    async with (
        aclosing(await Floor.open(floor_path, durability)) as floor,
        SQLiteSessionManager(path, durability=durability) as sessions,
    ):
        figures = await _saves_and_turns(floor, sessions, plan)
    return [replace(each, durability=durability) for each in figures]


async def _saves_and_turns(
    floor: Floor, sessions: SessionManager, plan: Plan
) -> list[Figure]:
    log = plain_turns(5_000)
    question, answer = (each.to_json() for each in log[:2])
    messages = [
        {"role": each.author, "content": item.content}
        for each in log[:1_000]
        for item in each.content
        if isinstance(item, Message)
    ]
    saved = await sessions.create("saves")
    saved.append(*log[:1_000])
    await sessions.save(saved)

    async def save() -> None:
        saved.append(log[1])
        await sessions.save(saved)

    async def dumps() -> None:
        json.dumps(messages)

    async def turn(model: Model, name: str, length: int) -> Action:
        agent = Agent(model, session_manager=sessions)
        ids = await grown(sessions, name, plan.sessions, log[:length])
        return timed(lambda: agent.run(QUESTION, session_id=next(ids)))

    warm_up = 2 * plan.sessions  # until each session has had its turn
    one_save, floor_of_save = await medians(
        plan.rounds, warm_up, timed(save), timed(lambda: floor.transaction(answer))
    )
    at_100, at_1000, at_5000, reading, floor_of_turn, dump = await medians(
        plan.rounds,
        warm_up,
        await turn(IgnoresRequest(), "short", 100),
        await turn(IgnoresRequest(), "middle", 1_000),
        await turn(IgnoresRequest(), "long", 5_000),
        await turn(ReadsAll(), "read", 1_000),
        timed(lambda: floor.transaction(question, answer)),
        timed(dumps),
    )
    return [
        Figure("a save / a transaction", one_save, floor_of_save, 1.1),
        Figure("a turn at 1,000 / a transaction", at_1000, floor_of_turn, 4),
        Figure("a turn at 5,000 / at 100", at_5000, at_100, 1.25),
        Figure("reading 1,000 / json.dumps", reading - at_1000, dump, 4),
    ]


async def loading(folder: Path, plan: Plan) -> Figure:
    """A cold manager reads a long session."""
    path = folder / "long.db"
    log = plain_turns(5_000) + tool_turns(5_000)
    async with SQLiteSessionManager(path) as sessions:
        await grown(sessions, "long", 1, log)
    connection = sqlite3.connect(path)
    rows = [row for (row,) in connection.execute("SELECT data FROM events")]
    connection.close()
    if len(rows) != len(log) or len(log) != 10_000:
        raise RuntimeError(f"{len(rows)} rows of {len(log)} events")

    async def load() -> float:
        async with SQLiteSessionManager(path) as cold:
            gc.collect()
            start = perf_counter()
            session = await cold.get("long-0")
            spent = perf_counter() - start
        if session is None or len(session.events) != len(log):
            raise RuntimeError("the session was not loaded whole")
        return spent

    async def loads() -> float:
        gc.collect()
        start = perf_counter()
        found = [json.loads(row) for row in rows]
        spent = perf_counter() - start
        del found
        return spent

    ours, floor = await medians(plan.loads, 1, load, loads)
    return Figure("loading 10,000 / json.loads", ours, floor, 3)


async def requesting(plan: Plan) -> Figure:
    """Claude's next request in a long conversation, from log to body."""
    model = AnthropicModel("claude", max_tokens=1024, base_url="http://localhost")
    log = EventLog(plain_turns(5_000) + tool_turns(5_000))
    question, answer = plain_turns(2)
    tool = ToolSpec("read_file", "Read a file.", {"type": "object", "properties": {}})
    body = model.arguments(ModelRequest("Be brief.", log, (tool,)))
    await model.aclose()

    async def request() -> float:
        nonlocal log, body
        log = log.extended([question])
        start = perf_counter()
        body = model.arguments(ModelRequest("Be brief.", log, (tool,)))
        spent = perf_counter() - start
        log = log.extended([answer])
        return spent

    async def dumps() -> None:
        json.dumps(body)

    ours, floor = await medians(plan.loads, 1, request, timed(dumps))
    if len(body["messages"]) < 10_000:
        raise RuntimeError("the request is not whole")
    return Figure("a request at 10,000 / json.dumps", ours, floor, 2)


IMPORT = "import minagent"
IMPORT_FLOOR = """
from pydantic import BaseModel
class Point(BaseModel):
    x: int
"""


async def importing(plan: Plan) -> Figure:
    """A fresh interpreter imports the package; how it starts is not counted."""

    def of(code: str) -> Action:
        clock = "from time import perf_counter\nstart = perf_counter()\n"
        program = f"{clock}{code}\nprint(perf_counter() - start)"

        async def action() -> float:
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-c", program, cwd=ROOT, stdout=asyncio.subprocess.PIPE
            )
            printed, _ = await child.communicate()
            return float(printed)

        return action

    ours, floor = await medians(plan.imports, 1, of(IMPORT), of(IMPORT_FLOOR))
    return Figure("import minagent / pydantic", ours, floor, 1.6)


# --- The program --------------------------------------------------------------


def pin() -> str:
    """Stay on one CPU, with all that is started from here; say which."""
    if not hasattr(os, "sched_setaffinity"):
        return "not pinned"
    cpu = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpu})
    return f"pinned to CPU {cpu}"


def show(figures: Sequence[Figure]) -> None:
    """Print the table."""
    heads = ("figure", "durability", "ms", "floor ms", "ratio", "target", "")
    line = "{:<33} {:<10} {:>9} {:>9} {:>6} {:>7}  {}"
    print(line.format(*heads).rstrip())
    for each in figures:
        print(
            line.format(
                each.name,
                each.durability,
                f"{each.seconds * 1e3:.3f}",
                f"{each.floor * 1e3:.3f}",
                f"{each.ratio:.2f}",
                f"<= {each.target:g}",
                "met" if each.is_met else "MISSED",
            )
        )


async def measured(durabilities: Sequence[Durability], plan: Plan) -> list[Figure]:
    """Return all figures."""
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder:
        for durability in durabilities:
            figures += await saves_and_turns(Path(folder), durability, plan)
        figures.append(await loading(Path(folder), plan))
    figures.append(await requesting(plan))
    figures.append(await importing(plan))
    return figures


def main() -> int:
    """Measure, and print one table."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.sessions", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--durability", choices=["full", "normal"], help="default both")
    parser.add_argument(
        "--quick", action="store_true", help="a few rounds only: it shows that it works"
    )
    parser.add_argument(
        "--check", action="store_true", help="end with 1 if a target is missed"
    )
    options = parser.parse_args()
    chosen: list[Durability] = (
        [options.durability] if options.durability else ["full", "normal"]
    )
    where = pin()
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    versions = f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    print(f"{versions}, {where}{load}\n")
    figures = asyncio.run(measured(chosen, QUICK if options.quick else THOROUGH))
    show(figures)
    return int(options.check and not all(each.is_met for each in figures))


if __name__ == "__main__":
    raise SystemExit(main())
