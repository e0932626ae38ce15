"""Memories in one SQLite file, found by SQLite's full-text index.

Two tables go together: `memories` has what was stored, `words` (FTS5) what it is found
by. A row of the index has three columns:

    said    the words of the text, and its author's name
    around  words of the two messages before it and the one after, in its session: "the
            red one" is found by what was asked; they count `AROUND` as much
    owner   one word made of the user's id, so that a search reads the rows of one user

A search is an OR of the query's words, ranked by FTS5's bm25; what the user said counts
`author_weight` times what others said. With `embed` there is a second ranking, by
meaning, and the two are fused by their ranks.

To delete takes more than DELETE: see `SQLiteFile.erase`. All SQL runs in one thread of
the manager's own, a transaction at a time, so the event loop stays free.

Read the tables in `sqlite_schema.py`, how a row is indexed in `sqlite_rows.py`, and
then `SQLiteMemoryManager`. This file knows nothing of models.
"""

import asyncio
import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Literal, Self, TypeAlias, TypeVar

from pydantic import JsonValue

from minagent.errors import ErasurePendingError, StoreClosedError, StoreUnavailableError
from minagent.events import utc_now, well_formed
from minagent.memory.excerpts import Select, selected, spoken_text
from minagent.memory.manager import (
    Memory,
    MemoryHit,
    MemoryManager,
    check_count,
    check_page,
    check_user,
    new_memory,
    new_text,
)
from minagent.memory.sqlite_rows import (
    COLUMNS,
    Row,
    add,
    index,
    memory_of,
    owner_word,
    remove,
)
from minagent.memory.sqlite_schema import APPLICATION_ID, SCHEMA
from minagent.memory.words import query_words
from minagent.session import Session, finished
from minagent.stores.sqlite_file import ASK_TO_ERASE, SQLiteFile, transaction

AROUND = 0.3
"""How much a word of a neighbour counts, against one of the text itself."""

WORDS_WEIGHT, MEANING_WEIGHT, RANK_OFFSET, CANDIDATES = 2.0, 1.0, 60, 50
"""Of the fusion by reciprocal rank (Cormack, Clarke and Büttcher, 2009)."""

Embed: TypeAlias = Callable[[list[str]], list[list[float]]]
"""Given texts, it returns a vector for each."""

# CROSS JOIN, so that SQLite does not begin with the memories.
SEARCH = f"""
    SELECT {COLUMNS}, m.key, -bm25(words, 1.0, :around, 0.0) * CASE
               WHEN m.author IS NULL OR m.author = 'user' THEN :author_weight ELSE 1.0
           END AS score
      FROM words CROSS JOIN memories AS m ON m.key = words.rowid
     WHERE words MATCH :match AND m.user_id = :user_id
       AND (:without IS NULL OR m.session_id IS NOT :without)
     ORDER BY score DESC, m.created_at DESC, m.key DESC LIMIT :limit
"""
LIST = f"""
    SELECT {COLUMNS} FROM memories AS m
     WHERE m.user_id = :user_id AND (:session_id IS NULL OR m.session_id = :session_id)
     ORDER BY m.key LIMIT :limit OFFSET :offset
"""
UPDATE = """
    UPDATE memories SET text = :text, updated_at = :now
     WHERE user_id = :user_id AND memory_id = :memory_id RETURNING key, session_id
"""
THIS = "user_id = :user_id AND memory_id = :memory_id"
ALL_OF = "user_id = :user_id AND (:session_id IS NULL OR session_id = :session_id)"
BY_KEYS = f"""
    SELECT {COLUMNS}, m.key FROM memories AS m
     WHERE m.key IN (SELECT value FROM json_each(?))
"""

T = TypeVar("T")


class SQLiteMemoryManager(MemoryManager):
    """Keeps memories in one SQLite file, for one machine and any number of processes.

    `async with SQLiteMemoryManager(path) as memory:` holds one connection open for the
    block, which is fast. Without it each call opens and closes its own.

    Deleting, updating and forgetting remove the words from the file, its index and its
    log. That writes the file anew, so it takes a second for each 100 MB.

    Args:
        path: The file; it is made, readable by its owner only, if it is not there.
        embed: Makes vectors of texts, so that things are found by what they mean, too.
            Always the same for one file; `minagent.memory.embed` is one. Rows get their
            vectors when they are first searched.
        author_weight: How much what the user said counts, against what others said.
        durability: `normal`: what is acknowledged survives a crash of the program. A
            power loss may take the last additions (no deletion); add their sessions
            again. `full`: it survives that, too, and adding is slower.
        busy_timeout_seconds: How long to wait while other processes write.

    Raises:
        ValueError: `path` names no file, such as `:memory:`.
        ModuleNotFoundError: `embed` is given, and numpy is not installed.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        embed: Embed | None = None,
        author_weight: float = 3.0,
        durability: Literal["full", "normal"] = "normal",
        busy_timeout_seconds: float = 30.0,
    ) -> None:
        if str(path) in ("", ":memory:"):
            raise ValueError(
                f"{str(path)!r} is no file; to keep nothing, use InMemoryMemoryManager"
            )
        if durability not in ("full", "normal"):
            raise ValueError(f"durability is {durability!r}, not 'full' or 'normal'")
        where, patience = Path(path).absolute(), busy_timeout_seconds
        self._file = SQLiteFile(where, APPLICATION_ID, SCHEMA, durability, patience)
        self._author_weight = author_weight
        self._embed = embed
        if embed is not None:
            import minagent.memory.embeddings  # noqa: F401 - says at once what is missing
        self._connection: sqlite3.Connection | None = None
        self._thread = ThreadPoolExecutor(1, "minagent-memory")
        self._closed = False

    async def add(
        self,
        text: str,
        *,
        user_id: str,
        session_id: str | None = None,
        event_id: str | None = None,
        author: str | None = None,
        created_at: datetime | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
    ) -> Memory | None:
        given = (session_id, event_id, author, created_at, metadata)
        [added] = await self._add([new_memory(text, user_id, *given)])
        return added

    async def add_session(
        self, session: Session, *, select: Select = spoken_text
    ) -> list[Memory]:
        owner, excerpts = await selected(session, select)
        where = session.session_id
        made = [
            new_memory(**asdict(x), user_id=owner, session_id=where) for x in excerpts
        ]
        return [each for each in await self._add(made) if each is not None]

    async def _add(self, memories: Sequence[Memory]) -> list[Memory | None]:
        def work(connection: sqlite3.Connection) -> list[Memory | None]:
            with transaction(connection):
                added = [add(connection, each) for each in memories]
            with suppress(ErasurePendingError):  # of an earlier deletion; it can wait
                self._file.erase(connection, seconds=0)
            return added

        return await self._run(work)

    async def search(
        self,
        query: str,
        *,
        user_id: str,
        top_k: int = 5,
        exclude_session: str | None = None,
    ) -> list[MemoryHit]:
        check_user(user_id)
        check_count("top_k", top_k)
        query = well_formed(query)
        if not (found := query_words(query)):
            self._check_open()
            return []
        owner, any_word = owner_word(user_id), " OR ".join(f'"{x}"' for x in found)
        asked = {
            "match": f'owner : "{owner}" AND {{said around}} : ({any_word})',
            "user_id": user_id,
            "without": well_formed(exclude_session),
            "around": AROUND,
            "author_weight": self._author_weight,
            "limit": top_k if self._embed is None else max(top_k, CANDIDATES),
        }

        def work(connection: sqlite3.Connection) -> list[Row]:
            rows = connection.execute(SEARCH, asked).fetchall()
            if self._embed is None:
                return rows
            from minagent.memory.embeddings import by_meaning  # needs numpy

            nearest = by_meaning(connection, self._embed, query, asked, CANDIDATES)
            return _fused(connection, rows, nearest)[:top_k]

        rows = await self._run(work)
        return [MemoryHit(memory=memory_of(row), score=row[-1]) for row in rows]

    async def list_memories(
        self,
        *,
        user_id: str,
        session_id: str | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[Memory]:
        check_user(user_id)
        check_page(session_id, limit, offset)
        asked = {
            "user_id": user_id,
            "session_id": session_id,
            "limit": limit,
            "offset": offset,
        }
        rows = await self._run(lambda c: c.execute(LIST, asked).fetchall())
        return [memory_of(row) for row in rows]

    async def update(self, memory_id: str, text: str, *, user_id: str) -> bool:
        check_user(user_id)
        asked = {"memory_id": well_formed(memory_id), "user_id": user_id}
        asked |= {"text": new_text(text), "now": utc_now().isoformat()}

        def work(connection: sqlite3.Connection) -> bool:
            with self._erasing(connection):
                found = connection.execute(UPDATE, asked).fetchall()
                for key, session_id in found:
                    connection.execute("DELETE FROM vectors WHERE key = ?", (key,))
                    index(connection, user_id, session_id, key)
            return bool(found)

        return await self._run(work)

    async def delete(self, memory_id: str, *, user_id: str) -> bool:
        check_user(user_id)
        asked = {"memory_id": well_formed(memory_id), "user_id": user_id}

        def work(connection: sqlite3.Connection) -> bool:
            with self._erasing(connection):
                found = remove(connection, THIS, asked)
                for key, session_id in found:
                    index(connection, user_id, session_id, key)
            return bool(found)

        return await self._run(work)

    async def forget(self, *, user_id: str, session_id: str | None = None) -> int:
        check_user(user_id)
        asked = {"user_id": user_id, "session_id": well_formed(session_id)}

        def work(connection: sqlite3.Connection) -> int:
            # Of a session that goes, no neighbour stays to be indexed anew.
            with self._erasing(connection):
                return len(remove(connection, ALL_OF, asked))

        return await self._run(work)

    async def erase(self) -> None:
        """Remove what is left of deleted words in the file and its log.

        Only after an `ErasurePendingError` is there any. The next write does it, too.

        Raises:
            ErasurePendingError: Somebody still reads what was there before.
        """
        await self._run(self._file.erase)

    async def __aenter__(self) -> Self:
        self._check_open()
        try:
            await self._in_thread(self._hold)
        except asyncio.CancelledError:
            await self._in_thread(self._let_go)
            raise
        return self

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            await self._in_thread(self._let_go)
            self._thread.shutdown(wait=False)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosedError(store=type(self).__name__)

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do the work in the thread, on the connection that is held or on a new one."""

        def with_connection() -> T:
            if self._connection is not None:
                return work(self._connection)
            with closing(self._file.open()) as connection:
                return work(connection)

        self._check_open()
        return await self._in_thread(with_connection)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        try:
            return await finished(loop.run_in_executor(self._thread, work))
        except (sqlite3.Error, OSError) as error:
            problem = {"place": str(self._file.path), "problem": str(error)}
            raise StoreUnavailableError(**problem) from error

    def _hold(self) -> None:
        self._connection = self._connection or self._file.open()

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @contextmanager
    def _erasing(self, connection: sqlite3.Connection) -> Iterator[None]:
        """Begin a transaction, and see to it that no word it removes is in the files.

        The index only marks words as deleted, until `optimize` writes it anew.

        Raises:
            ErasurePendingError: All is committed, but not all words are removed.
        """
        before = connection.total_changes
        with transaction(connection):
            yield
            if connection.total_changes == before:
                return
            connection.execute("INSERT INTO words (words) VALUES ('optimize')")
            connection.execute(ASK_TO_ERASE)
        self._file.erase(connection)


def _fused(
    connection: sqlite3.Connection, by_words: list[Row], by_meaning: list[int]
) -> list[Row]:
    """Return the rows of both rankings, by the sum of what their ranks are worth."""
    scores: dict[int, float] = {}
    rankings = (
        (WORDS_WEIGHT, [row[-2] for row in by_words]),
        (MEANING_WEIGHT, by_meaning),
    )
    for weight, ranking in rankings:
        for rank, key in enumerate(ranking, start=1):
            scores[key] = scores.get(key, 0.0) + weight / (RANK_OFFSET + rank)
    rows = connection.execute(BY_KEYS, (json.dumps([*scores]),)).fetchall()
    scored = [(*row, scores[row[-1]]) for row in rows]
    return sorted(scored, key=lambda row: (row[-1], row[5], row[-2]), reverse=True)
