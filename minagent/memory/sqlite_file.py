"""The file in which memories are kept: its tables, and how it is opened.

Other programs may read it: `user_version` is the version of the schema. `opened` makes
the file if it is not there, brings an older one up to date, and refuses what is not
ours. The words of the index are made in Python (see `words.py`), so rows that another
program adds are not found.

This file knows nothing of ranking.
"""

import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from minagent.errors import NewerDataError

SCHEMA: tuple[tuple[str, ...], ...] = (
    (
        """
        CREATE TABLE memories (
            key INTEGER PRIMARY KEY,
            memory_id TEXT NOT NULL UNIQUE,
            user_id TEXT NOT NULL,
            session_id TEXT,
            event_id TEXT,
            author TEXT,
            created_at TEXT NOT NULL,
            updated_at TEXT,
            metadata TEXT NOT NULL,
            text TEXT NOT NULL
        ) STRICT
        """,
        "CREATE INDEX memories_in_order ON memories (user_id, session_id, key)",
        """
        CREATE UNIQUE INDEX memories_by_event
            ON memories (user_id, ifnull(session_id, ''), event_id)
         WHERE event_id IS NOT NULL
        """,
        # The events whose memories were deleted, without a word of them.
        """
        CREATE TABLE deleted (
            user_id TEXT NOT NULL,
            session_id TEXT NOT NULL,
            event_id TEXT NOT NULL,
            PRIMARY KEY (user_id, session_id, event_id)
        ) STRICT, WITHOUT ROWID
        """,
        """
        CREATE VIRTUAL TABLE words
            USING fts5(said, around, owner, tokenize = 'porter unicode61')
        """,
        "CREATE TABLE vectors (key INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT",
        # How many deletions there were, and how many of them left no trace.
        "CREATE TABLE erasures (asked INTEGER NOT NULL, done INTEGER NOT NULL) STRICT",
        "INSERT INTO erasures VALUES (0, 0)",
    ),
)
"""The statements that lead from each version of the schema to the next."""

APPLICATION_ID = 0x6D696E6D
"""Marks a file as one of minagent's memories ("minm"), in SQLite's own field."""

# One statement, so that no half of another process's migration is seen.
STATUS = """
    SELECT (SELECT application_id FROM pragma_application_id),
           (SELECT user_version FROM pragma_user_version),
           EXISTS (SELECT 1 FROM sqlite_master)
"""


def opened(path: Path, durability: str, patience: float) -> sqlite3.Connection:
    """Return a connection to the file, made or brought up to date if need be."""
    _make(path)
    connection = sqlite3.connect(
        path, timeout=patience, isolation_level=None, check_same_thread=False
    )
    try:
        if not _is_current(connection, path):  # asked before anything is changed
            _use_wal(connection, patience)
            _migrate(connection, path)
        connection.execute(f"PRAGMA synchronous = {durability}")
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA temp_store = MEMORY")  # no words in other files
    except BaseException:
        connection.close()
        raise
    return connection


def _make(path: Path) -> None:
    if path.is_symlink():
        raise OSError("it is a symbolic link, which is not followed")
    if not path.exists():
        # Made elsewhere and linked, so that it is its owner's from the beginning, and
        # nobody closes a file of this name (sqlite.org/howtocorrupt, 2.2).
        handle, made = tempfile.mkstemp(dir=path.parent, prefix=".minagent-")
        os.close(handle)
        try:
            with suppress(FileExistsError):
                os.link(made, path)
        finally:
            os.unlink(made)


def _use_wal(connection: sqlite3.Connection, patience: float) -> None:
    # Several first openers may collide here before the busy timeout applies.
    deadline = time.monotonic() + patience
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            busy = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            if error.sqlite_errorcode & 0xFF not in busy or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    with transaction(connection):
        # Asked again: while this one waited, another process may have been here.
        if not _is_current(connection, path):
            [found] = connection.execute("PRAGMA user_version").fetchone()
            for step in SCHEMA[found:]:
                for statement in step:
                    connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {len(SCHEMA)}")


def _is_current(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the schema is there, and up to date; refuse what is not ours."""
    owner, found, anything = connection.execute(STATUS).fetchone()
    if owner != APPLICATION_ID and (owner or found or anything):
        raise OSError("it is the database of another program")
    if found > len(SCHEMA):
        raise NewerDataError(subject=str(path), found=found, known=len(SCHEMA))
    return bool(found == len(SCHEMA))


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Do all of the block, or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.OperationalError):  # SQLite may have done it by itself
            connection.execute("ROLLBACK")
        raise
