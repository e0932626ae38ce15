"""What each store costs, and how that grows: the figures of the README's table.

    python -m tests.benchmarks.stores [STORE ...] [--quick] [--check]

A turn is `Agent.run` with a model that answers at once: the session is read, the
question saved, the answer saved. What counts are ratios, all from one run on one CPU:
of a store to itself at another length, and of SQLite to plain aiosqlite. The times in
milliseconds are for comparing the stores on this machine; those of S3 are moto's, a
server in Python on the same CPU, and say how many requests are made and little more.

Read `Place` for where sessions are put, and `measured` for what is measured.
"""

import argparse
import asyncio
import gc
import json
import os
import platform
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

from minagent import Agent, SessionStore
from minagent.stores import (
    BlobSessionManager,
    EncryptedStorage,
    FolderStorage,
    open_store,
)
from tests.benchmarks.sessions import (
    QUESTION,
    Floor,
    IgnoresRequest,
    pin,
    plain_turns,
    tool_turns,
)

# The servers that the tests start.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

POSTGRES_SIZE = """
    SELECT sum(pg_total_relation_size(oid)) FROM pg_class
     WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'minagent')
       AND relkind = 'r'
"""

LENGTHS = (100, 1_000, 5_000)


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    turns: int
    sessions: int
    at_once: int
    lengths: tuple[int, ...]
    events: int


THOROUGH = Plan(40, 10_000, 64, LENGTHS, 10_000)
QUICK = Plan(3, 30, 4, (10, 20), 40)


@dataclass(frozen=True)
class Place:
    """Where a store keeps its sessions.

    Attributes:
        name: What the table calls it.
        open: Makes a store that has read nothing yet.
        size: Tells how many bytes are kept there.
    """

    name: str
    open: Callable[[], SessionStore]
    size: Callable[[], int]


@dataclass(frozen=True)
class Figure:
    """One line of the table; without a target it is for information."""

    store: str
    name: str
    value: str
    ratio: float | None = None
    limit: float | None = None
    at_least: bool = False

    @property
    def is_met(self) -> bool:
        if self.ratio is None or self.limit is None:
            return True
        return self.ratio >= self.limit if self.at_least else self.ratio <= self.limit


# --- The places ---------------------------------------------------------------


def bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@asynccontextmanager
async def place_of(name: str, folder: Path) -> AsyncIterator[Place]:
    """Open a place for one store."""
    match name:
        case "sqlite" | "sqlite-normal":
            durability = "normal" if name.endswith("normal") else "full"
            url = f"sqlite:///{folder / 'sessions.db'}?durability={durability}"
            yield Place(name, lambda: open_store(url), lambda: bytes_in(folder))
        case "folder":
            url = f"file://{folder}"
            yield Place(name, lambda: open_store(url), lambda: bytes_in(folder))
        case "encrypted":
            keys = {"k": b"k" * 32}

            def encrypted() -> SessionStore:
                storage = EncryptedStorage(FolderStorage(folder), keys)
                return BlobSessionManager(storage)

            yield Place(name, encrypted, lambda: bytes_in(folder))
        case "s3":
            from s3 import new_bucket, server_process

            with server_process() as endpoint:
                bucket = new_bucket(endpoint)
                url = f"s3://{bucket}?endpoint={endpoint}"
                size = bucket_size(endpoint, bucket)
                yield Place(name, lambda: open_store(url), size)
        case "postgres":
            from postgres import execute, new_database

            address = new_database()

            def size_of_tables() -> int:
                [[found]] = execute(address, POSTGRES_SIZE)
                return int(found or 0)

            yield Place(name, lambda: open_store(address), size_of_tables)
        case _:
            raise SystemExit(f"no store {name!r}; there are: {', '.join(STORES)}")


STORES = ("sqlite", "sqlite-normal", "folder", "encrypted", "postgres", "s3")


def bucket_size(endpoint: str, bucket: str) -> Callable[[], int]:
    """Return what tells how many bytes are in a bucket."""

    def size() -> int:
        import botocore.session

        client = botocore.session.get_session().create_client(
            "s3", endpoint_url=endpoint
        )
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        return sum(each["Size"] for page in pages for each in page.get("Contents", []))

    return size


# --- Measuring ----------------------------------------------------------------


async def turns(place: Place, plan: Plan) -> list[Figure]:
    """Turns on sessions of several lengths: what one costs, and what it writes."""
    milliseconds, written = {}, {}
    for length in plan.lengths:
        name = f"at-{length}"
        async with place.open() as store:
            session = await store.create(name)
            log = plain_turns(length)
            for start in range(0, length, 2):
                session.append(*log[start : start + 2])
                await store.save(session)
        before, times = place.size(), []  # closed, since SQLite's log is emptied then
        async with place.open() as store:
            agent = Agent(IgnoresRequest(), session_manager=store)
            await agent.run(QUESTION, session_id=name)
            gc.collect()
            for _ in range(plan.turns):
                start_at = perf_counter()
                await agent.run(QUESTION, session_id=name)
                times.append(perf_counter() - start_at)
        written[length] = (place.size() - before) / (plan.turns + 1)
        milliseconds[length] = median(times) * 1e3
    first = plan.lengths[0]
    found = []
    for length in plan.lengths:
        ratio = None if length == first else milliseconds[length] / milliseconds[first]
        value = f"{milliseconds[length]:.2f} ms"
        found.append(Figure(place.name, f"a turn at {length:,}", value, ratio))
    for length in plan.lengths:
        ratio = None if length == first else written[length] / max(written[first], 1)
        value = f"{written[length] / 1e3:.1f} kB"
        found.append(Figure(place.name, f"written a turn at {length:,}", value, ratio))
    return found


async def growing(place: Place, plan: Plan) -> Figure:
    """How much more is kept of twice as many turns."""
    start, half, sizes = place.size(), 5 * plan.turns, []
    for _ in range(2):
        async with place.open() as store:
            agent = Agent(IgnoresRequest(), session_manager=store)
            for _ in range(half):
                await agent.run(QUESTION, session_id="growing")
        sizes.append(place.size() - start)
    name, value = f"kept of {2 * half} / of {half} turns", f"{sizes[1] / 1e6:.2f} MB"
    return Figure(place.name, name, value, sizes[1] / max(sizes[0], 1), 2.2)


async def loading(place: Place, plan: Plan) -> Figure:
    """A store that has read nothing yet loads a long session."""
    log = plain_turns(plan.events // 2) + tool_turns(plan.events // 2)
    async with place.open() as store:
        session = await store.create("long")
        for start in range(0, len(log), 4):
            session.append(*log[start : start + 4])
            await store.save(session)
    rows = [event.to_json() for event in log]
    times, floors = [], []
    for _ in range(5):
        gc.collect()
        start_at = perf_counter()
        for row in rows:
            json.loads(row)
        floors.append(perf_counter() - start_at)
        async with place.open() as cold:
            gc.collect()
            start_at = perf_counter()
            found = await cold.get("long")
            times.append(perf_counter() - start_at)
        if found is None or len(found.events) != len(log):
            raise RuntimeError("the session was not loaded whole")
    value = f"{median(times) * 1e3:.0f} ms"
    ratio = median(times) / median(floors)
    return Figure(place.name, f"loading {plan.events:,} / json.loads", value, ratio)


async def listing(place: Place, plan: Plan) -> Figure:
    """A page of 50 among many sessions, from the middle."""
    many = plan.sessions
    async with place.open() as store:
        numbers = iter(range(many))

        async def create() -> None:
            for number in numbers:
                await store.create(f"list-{number:06}", f"user-{number % 100}")

        await asyncio.gather(*(create() for _ in range(16)))
        times = []
        for _ in range(9):
            start_at = perf_counter()
            await store.list(limit=50, after=f"list-{many // 2:06}")
            times.append(perf_counter() - start_at)
    value = f"{median(times) * 1e3:.2f} ms"
    return Figure(place.name, f"a page among {many:,} sessions", value)


async def at_once(place: Place, plan: Plan, folder: Path) -> Figure:
    """Turns a second of many sessions side by side; for SQLite, against its floor."""
    log = plain_turns(2)
    question, answer = (each.to_json() for each in log)
    rounds = max(plan.turns // 8, 1)
    async with place.open() as store:
        agent = Agent(IgnoresRequest(), session_manager=store)

        async def conversation(number: int) -> None:
            for _ in range(rounds):
                await agent.run(QUESTION, session_id=f"at-once-{number}")

        await asyncio.gather(*(conversation(n) for n in range(plan.at_once)))
        gc.collect()
        start_at = perf_counter()
        await asyncio.gather(*(conversation(n) for n in range(plan.at_once)))
        ours = plan.at_once * rounds / (perf_counter() - start_at)
    name, value = f"{plan.at_once} sessions at once", f"{ours:.0f} turns/s"
    if not place.name.startswith("sqlite"):
        return Figure(place.name, name, value)
    durability = "normal" if place.name.endswith("normal") else "full"
    async with aclosing(await Floor.open(folder / "floor.db", durability)) as floor:
        one_writes = asyncio.Lock()  # one connection has one transaction at a time

        async def plain() -> None:
            for _ in range(2 * rounds):
                for row in (question, answer):
                    async with one_writes:
                        await floor.transaction(row)

        start_at = perf_counter()
        await asyncio.gather(*(plain() for _ in range(plan.at_once)))
        floors = 2 * plan.at_once * rounds / (perf_counter() - start_at)
    return Figure(place.name, name, value, ours / floors, 0.4, at_least=True)


async def measured(name: str, plan: Plan) -> list[Figure]:
    """Return all figures of one store, each on an empty place."""
    figures: list[Figure] = []
    async with AsyncExitStack() as opened:

        async def fresh() -> tuple[Place, Path]:
            folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
            return await opened.enter_async_context(place_of(name, folder)), folder

        figures += await turns((await fresh())[0], plan)
        figures.append(await growing((await fresh())[0], plan))
        figures.append(await loading((await fresh())[0], plan))
        figures.append(await listing((await fresh())[0], plan))
        place, _ = await fresh()
        floor = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        figures.append(await at_once(place, plan, floor))
    return figures


# --- The program --------------------------------------------------------------


def show(figures: Sequence[Figure]) -> None:
    """Print figures as lines of the table."""
    for each in figures:
        ratio = "" if each.ratio is None else f"{each.ratio:.2f}"
        limit = met = ""
        if each.limit is not None:
            limit = f"{'>=' if each.at_least else '<='} {each.limit:g}"
            met = "met" if each.is_met else "MISSED"
        line = (
            f"{each.store:<14} {each.name:<32} {each.value:>14} {ratio:>7} {limit:>7}"
        )
        print(f"{line}  {met}".rstrip(), flush=True)


def main() -> int:
    """Measure store after store, and print one table."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.stores", description=__doc__.split("\n")[0]
    )
    parser.add_argument("store", nargs="*", help=f"of {', '.join(STORES)}; default all")
    parser.add_argument(
        "--quick", action="store_true", help="a few rounds only: it shows that it works"
    )
    parser.add_argument(
        "--check", action="store_true", help="end with 1 if a target is missed"
    )
    options = parser.parse_args()
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    print(f"Python {platform.python_version()}, {pin()}{load}\n")
    print(f"{'store':<14} {'figure':<32} {'':>14} {'ratio':>7} {'target':>7}")
    plan = QUICK if options.quick else THOROUGH
    figures: list[Figure] = []
    for name in options.store or STORES:
        found = asyncio.run(measured(name, plan))
        show(found)
        figures += found
    return int(options.check and not all(each.is_met for each in figures))


if __name__ == "__main__":
    raise SystemExit(main())
