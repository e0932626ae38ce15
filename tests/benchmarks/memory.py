"""How well and how fast memories are found.

    python -m tests.benchmarks.memory [--quick] [--check]

The first table is about quality, on `memory_set.txt`: fifteen conversations of one
user, and questions with the messages that answer them. A figure is the share of these
messages that are among the first ten hits, in percent. Each further line switches one
part of the ranking off; a part that is worth its lines loses something then. The set
was written before the ranking, and nothing in the ranking was chosen by it. It is
small, so a difference of a point or two means nothing.

The second table is about speed, with many made-up rows of many users. Their words are
as frequent as those of real texts: half of them are stop words, the others follow the
law of Zipf and Mandelbrot.
"""

import argparse
import asyncio
import itertools
import os
import platform
import random
import re
import sqlite3
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

from minagent import Event, Message, Session
from minagent.memory import (
    SQLiteMemoryManager,
    sqlite,
    sqlite_rows,
    sqlite_schema,
    words,
)
from minagent.memory.words import STOP_TEXT

from .sessions import pin

SET = Path(__file__).with_name("memory_set.txt")
TOP = 10
KINDS = ("direct", "paraphrase", "follow-up", "answer", "cjk")

MIN_GAIN = 8.0
MIN_CJK = 40.0
MAX_SEARCH_MS = 5.0
MIN_ADDS = 300.0


# --- The set ------------------------------------------------------------------


@dataclass(frozen=True)
class Question:
    kind: str
    labels: tuple[str, ...]
    words: str


@dataclass
class Quality:
    """The set: sessions, the event ids of the labelled messages, and questions."""

    sessions: list[Session] = field(default_factory=list)
    labelled: dict[str, str] = field(default_factory=dict)
    questions: list[Question] = field(default_factory=list)


def read_set() -> Quality:
    """Read the set, and check that its labels fit together."""
    quality, day = Quality(), datetime(2026, 1, 1, tzinfo=UTC)
    for line in SET.read_text(encoding="utf-8").splitlines():
        if line.startswith("== ") and line != "== questions":
            _, name, date = line.split()
            day = datetime.fromisoformat(date).replace(tzinfo=UTC)
            quality.sessions.append(Session(name, "mira"))
        elif said := re.fullmatch(r"([UA]) (?:\[([\w-]+)\] )?(.+)", line):
            who, label, text = said.groups()
            role: Literal["user", "assistant"] = "user" if who == "U" else "assistant"
            message = Message(role=role, content=text)
            event = Event(author=role, content=(message,), timestamp=day)
            quality.sessions[-1].append(event)
            if label:
                quality.labelled[label] = event.event_id
        elif " | " in line and not line.startswith("#"):
            kind, labels, text = line.split(" | ")
            quality.questions.append(Question(kind, tuple(labels.split()), text))
    for each in quality.questions:
        if each.kind not in KINDS or not set(each.labels) <= set(quality.labelled):
            raise ValueError(f"a question with a wrong kind or label: {each}")
    return quality


# --- Quality ------------------------------------------------------------------


@dataclass(frozen=True)
class Variant:
    """The ranking, with some of it replaced.

    Attributes:
        name: The line's name.
        changes: Names in the manager's modules, and what stands there instead.
        options: Of the manager.
    """

    name: str
    changes: Mapping[str, object] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


def plain_words(text: str) -> list[str]:
    """Return the words as they stand there; FTS5 folds and stems them."""
    return re.findall(r"[^\W_]+", text)


def plain_query(query: str) -> list[str]:
    """Return each word once, without stop words, if others are left."""
    found, stop = list(dict.fromkeys(plain_words(query))), STOP_TEXT.split()
    return [word for word in found if word.lower() not in stop] or found


def without_author(text: str) -> list[str]:
    """Return the words of a row, of which the first is its author's name."""
    return words.index_words(text.partition(" ")[2])


NO_NEIGHBOURS = {"words": lambda text: []}
NO_AUTHOR = {"index_words": without_author}
NO_STOP_WORDS = {"query_words": lambda query: list(dict.fromkeys(words.words(query)))}
NO_STEMS = tuple(s.replace("porter ", "") for s in sqlite_schema.SCHEMA[0])
NO_BIGRAMS = {
    "words": plain_words,
    "index_words": plain_words,
    "query_words": plain_query,
}
BASELINE = {
    **NO_NEIGHBOURS,
    "index_words": lambda text: plain_words(text.partition(" ")[2]),
    "query_words": plain_query,
}
EVEN = {"author_weight": 1.0}
WHOLE = Variant("the whole")
PLAIN = Variant("FTS5 porter, OR of the words", BASELINE, EVEN)
PARTS = (
    Variant("- neighbours", NO_NEIGHBOURS),
    Variant("- author weight", options=EVEN),
    Variant("- author's name", NO_AUTHOR),
    Variant("- CJK bigrams", NO_BIGRAMS),
    Variant("- stop words", NO_STOP_WORDS),
    Variant("- stems", {"SCHEMA": (NO_STEMS,)}),
)


@contextmanager
def changed(changes: Mapping[str, object]) -> Iterator[None]:
    """Put other things in the places of these names for a while."""
    modules = (sqlite, sqlite_rows, sqlite_schema)
    homes = {name: next(m for m in modules if hasattr(m, name)) for name in changes}
    before = {name: getattr(home, name) for name, home in homes.items()}
    for name, value in changes.items():
        setattr(homes[name], name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(homes[name], name, value)


async def recall_of(
    variant: Variant, quality: Quality, folder: Path
) -> dict[str, float]:
    """Return the recall at ten of each kind of question, and of all, in percent."""
    shares: dict[str, list[float]] = {kind: [] for kind in KINDS}
    path = Path(tempfile.mkdtemp(dir=folder)) / "memory.db"
    with changed(variant.changes):
        async with SQLiteMemoryManager(path, **variant.options) as memory:
            for session in quality.sessions:
                await memory.add_session(session)
            for each in quality.questions:
                hits = await memory.search(each.words, user_id="mira", top_k=TOP)
                found = {hit.memory.event_id for hit in hits}
                wanted = {quality.labelled[label] for label in each.labels}
                shares[each.kind].append(len(found & wanted) / len(wanted))
    every = [share for kind in KINDS for share in shares[kind]]
    means = {kind: 100 * statistics.mean(shares[kind]) for kind in KINDS}
    return {"all": 100 * statistics.mean(every), **means}


async def measured_quality(folder: Path) -> bool:
    """Print the first table; return whether its targets are met."""
    quality = read_set()
    count = sum(len(session.events) for session in quality.sessions)
    print(
        f"{len(quality.questions)} questions, {len(quality.labelled)} labelled "
        f"messages of {count} in {len(quality.sessions)} sessions; "
        f"recall at {TOP} in %\n"
    )
    line = "{:<30}" + "{:>11}" * (1 + len(KINDS))
    print(line.format("ranking", "all", *KINDS))
    variants = [WHOLE, *PARTS, PLAIN]
    if find_spec("wordllama"):
        from minagent.memory import embed

        variants.append(Variant("+ embed", options={"embed": embed}))
    table = {}
    for variant in variants:
        table[variant.name] = figures = await recall_of(variant, quality, folder)
        print(line.format(variant.name, *(f"{x:.1f}" for x in figures.values())))
    whole, plain = table[WHOLE.name], table[PLAIN.name]
    gain = whole["all"] - plain["all"]
    harmful = [x.name for x in PARTS if table[x.name]["all"] > whole["all"]]
    return all(
        [
            told(
                "gain over FTS5 alone, points",
                gain,
                f">= {MIN_GAIN:g}",
                gain >= MIN_GAIN,
            ),
            told("CJK, %", whole["cjk"], f">= {MIN_CJK:g}", whole["cjk"] >= MIN_CJK),
            told("parts that do harm", len(harmful), "0", not harmful),
        ]
    )


# --- Speed --------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """How many rows there are, and how often things are measured."""

    users: int
    searches: int
    adds: int
    sessions: int = 10
    messages: int = 59


THOROUGH = Plan(users=100, searches=1_000, adds=1_000)
QUICK = Plan(users=4, searches=20, adds=20)


class Texts:
    """Makes texts of made-up words."""

    def __init__(self, seed: int = 1, count: int = 20_000) -> None:
        self._chance = random.Random(seed)
        letters = "aeioulnrstbcdfghkmp"
        self._words = [
            "".join(self._chance.choices(letters, k=self._chance.randint(3, 9)))
            for _ in range(count)
        ]
        frequencies = (1 / (rank + 20) for rank in range(count))
        self._weights = list(itertools.accumulate(frequencies))
        self._stop = STOP_TEXT.split()

    def text(self, shortest: int, longest: int) -> str:
        """Return a text of so many words."""
        count = self._chance.randint(shortest, longest)
        told = self._chance.choices(self._words, cum_weights=self._weights, k=count)
        stops = self._chance.choices(self._stop, k=count)
        pairs = zip(told, stops, strict=True)
        return " ".join(self._chance.choice(pair) for pair in pairs)


async def fill(memory: SQLiteMemoryManager, texts: Texts, plan: Plan) -> int:
    """Add sessions of many users; return how many rows there are."""
    for user, number in itertools.product(range(plan.users), range(plan.sessions)):
        session = Session(f"s{number}", f"u{user}")
        for at in range(plan.messages):
            role: Literal["user", "assistant"] = "assistant" if at % 2 else "user"
            message = Message(role=role, content=texts.text(8, 50))
            session.append(Event(author=role, content=(message,)))
        await memory.add_session(session)
    return plan.users * plan.sessions * plan.messages


async def seconds_of(count: int, work: Callable[[int], Any]) -> list[float]:
    """Do something so many times, one after the other; return how long each took."""
    times = []
    for number in range(count):
        start = perf_counter()
        await work(number)
        times.append(perf_counter() - start)
    return times


async def measured_speed(folder: Path, plan: Plan) -> bool:
    """Print the second table; return whether its targets are met."""
    texts, path = Texts(), folder / "speed.db"
    async with SQLiteMemoryManager(path, durability="normal") as memory:
        rows = await fill(memory, texts, plan)
        size = path.stat().st_size / 1e6
        print(f"\n{rows:,} rows of {plan.users} users, {size:.0f} MB\n")

        async def search(number: int) -> None:
            query, user = texts.text(7, 14), f"u{number % plan.users}"
            await memory.search(query, user_id=user, top_k=TOP)

        searches = sorted(await seconds_of(plan.searches, search))
    median = statistics.median(searches) * 1e3
    worst = searches[len(searches) * 95 // 100] * 1e3
    met = [
        told(
            "a search, ms (p50)",
            median,
            f"<= {MAX_SEARCH_MS:g}",
            median <= MAX_SEARCH_MS,
        ),
        told("a search, ms (p95)", worst),
    ]
    durabilities: Sequence[Literal["full", "normal"]] = ("full", "normal")
    for durability in durabilities:
        async with SQLiteMemoryManager(path, durability=durability) as memory:

            async def add(number: int) -> None:
                about = {"user_id": f"u{number % plan.users}", "session_id": "s0"}
                await memory.add(texts.text(8, 50), author="user", **about)

            rate = plan.adds / sum(await seconds_of(plan.adds, add))
            name = f"adds a second, {durability}"
            # What is promised holds for the default.
            default = durability == "normal"
            target = (f">= {MIN_ADDS:g}", rate >= MIN_ADDS) if default else ()
            met.append(told(name, rate, *target))
            [one] = await memory.list_memories(user_id="u0", limit=1)
            start = perf_counter()
            await memory.delete(one.memory_id, user_id="u0")
            met.append(told(f"a deletion, s, {durability}", perf_counter() - start))
    return all(met)


# --- The program --------------------------------------------------------------


def told(name: str, figure: float, target: str = "", is_met: bool = True) -> bool:
    """Print a figure beside its target; return whether it is met."""
    verdict = ("met" if is_met else "MISSED") if target else ""
    print(f"{name:<30}{figure:>11.1f}{target:>11}  {verdict}".rstrip())
    return is_met


async def measured(plan: Plan) -> bool:
    """Print both tables; return whether all targets are met."""
    with tempfile.TemporaryDirectory() as folder:
        quality = await measured_quality(Path(folder))
        speed = await measured_speed(Path(folder), plan)
    return quality and speed


def main() -> int:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.memory", description=__doc__.split("\n")[0]
    )
    parser.add_argument(
        "--quick", action="store_true", help="few rows only: it shows that it works"
    )
    parser.add_argument(
        "--check", action="store_true", help="end with 1 if a target is missed"
    )
    options = parser.parse_args()
    where = pin()
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    versions = f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    print(f"{versions}, {where}{load}\n")
    met = asyncio.run(measured(QUICK if options.quick else THOROUGH))
    return int(options.check and not met)


if __name__ == "__main__":
    raise SystemExit(main())
