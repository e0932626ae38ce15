"""Rows: how a memory becomes a row of `memories` and one of the index.

All of these are steps of a transaction that somebody else has begun. `index` is the one
to read: it writes the index row of a memory, and of those neighbours that repeat its
words, so that nothing is found by words that are gone.

This file knows nothing of queries.
"""

import hashlib
import json
import sqlite3
from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeAlias

from minagent.events import load_json
from minagent.memory.manager import Memory
from minagent.memory.words import index_words, words

AROUND_WORDS = 40
"""How many words of each neighbour are indexed. bm25 divides by the length of the whole
row, so a long neighbour would drown a short text."""

COLUMNS = """m.memory_id, m.user_id, m.session_id, m.event_id, m.author, m.created_at,
             m.updated_at, m.metadata, m.text"""
OF_EVENT = f"""
    SELECT {COLUMNS} FROM memories AS m
     WHERE user_id = ? AND ifnull(session_id, '') = ? AND event_id = ?
"""
ADD = """
    INSERT INTO memories (memory_id, user_id, session_id, event_id, author, created_at,
                          updated_at, metadata, text)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
WAS_DELETED = """
    SELECT 1 FROM deleted WHERE user_id = ? AND session_id = ? AND event_id = ?
"""
REMOVE = (
    """
    INSERT OR IGNORE INTO deleted
    SELECT user_id, ifnull(session_id, ''), event_id FROM memories
     WHERE {which} AND event_id IS NOT NULL
    """,
    "DELETE FROM words WHERE rowid IN (SELECT key FROM memories WHERE {which})",
    "DELETE FROM vectors WHERE key IN (SELECT key FROM memories WHERE {which})",
)
REMOVED = "DELETE FROM memories WHERE {which} RETURNING key, session_id"
# A session's rows around a place, as many as an index row of a neighbour needs.
IN_SESSION = "user_id = :user_id AND session_id = :session_id"
AT = "SELECT key, author, text FROM memories WHERE key = :key"
AT_AND_BEFORE = f"""
    SELECT key, author, text FROM memories
     WHERE {IN_SESSION} AND key <= :key ORDER BY key DESC LIMIT 4
"""
BEHIND = f"""
    SELECT key, author, text FROM memories
     WHERE {IN_SESSION} AND key > :key ORDER BY key LIMIT 3
"""

INDEX = "INSERT OR REPLACE INTO words (rowid, said, around, owner) VALUES (?, ?, ?, ?)"

Row: TypeAlias = tuple[Any, ...]


def add(connection: sqlite3.Connection, memory: Memory) -> Memory | None:
    """Store a memory; return what is stored of its event, None if that was deleted."""
    event = (memory.user_id, memory.session_id or "", memory.event_id)
    if memory.event_id is not None:
        if known := connection.execute(OF_EVENT, event).fetchone():
            return memory_of(known)
        if connection.execute(WAS_DELETED, event).fetchone():
            return None
    row = (
        *(memory.memory_id, memory.user_id, memory.session_id, memory.event_id),
        *(memory.author, memory.created_at.isoformat(), None),
        *(json.dumps(memory.metadata, ensure_ascii=False), memory.text),
    )
    key = connection.execute(ADD, row).lastrowid
    assert key is not None
    index(connection, memory.user_id, memory.session_id, key)
    return memory


def remove(
    connection: sqlite3.Connection, which: str, asked: Mapping[str, Any]
) -> list[tuple[int, str | None]]:
    """Remove the rows of which a condition holds; return their keys and sessions."""
    for statement in REMOVE:
        connection.execute(statement.format(which=which), asked)
    return connection.execute(REMOVED.format(which=which), asked).fetchall()


def index(
    connection: sqlite3.Connection, user_id: str, session_id: str | None, key: int
) -> None:
    """Index a row that was added, changed or removed, and the rows that repeat it."""
    asked = {"user_id": user_id, "session_id": session_id, "key": key}
    read = AT if session_id is None else AT_AND_BEFORE  # no session: no neighbours
    rows = connection.execute(read, asked).fetchall()[::-1]
    at = len(rows)  # of the first row behind it
    rows += connection.execute(BEHIND, asked).fetchall()
    first = at - 2 if at and rows[at - 1][0] == key else at - 1
    for place in range(max(first, 0), min(at + 2, len(rows))):
        number, author, text = rows[place]
        around: list[str] = []
        for *_, before in rows[max(place - 2, 0) : place]:
            around += words(before)[-AROUND_WORDS:]
        for *_, after in rows[place + 1 : place + 2]:
            around += words(after)[:AROUND_WORDS]
        said = " ".join(index_words(f"{author or ''} {text}"))
        columns = (number, said, " ".join(around), owner_word(user_id))
        connection.execute(INDEX, columns)


def owner_word(user_id: str) -> str:
    """Return the one word by which the index knows a user."""
    # Two users could share it, so the user id itself is compared as well.
    return f"u{hashlib.blake2b(user_id.encode(), digest_size=8).hexdigest()}"


def memory_of(row: Row) -> Memory:
    """Return the memory in a row that begins with `COLUMNS`."""
    memory_id, user_id, session_id, event_id, author, created, updated = row[:7]
    return Memory(
        memory_id=memory_id,
        user_id=user_id,
        session_id=session_id,
        event_id=event_id,
        author=author,
        created_at=datetime.fromisoformat(created),
        updated_at=updated and datetime.fromisoformat(updated),
        metadata=load_json(row[7]),
        text=row[8],
    )
