"""The tables in which memories are kept.

The words of the index are made in Python (see `words.py`), so rows that another program
adds are not found. How the file is made and opened stands in `stores/sqlite_file.py`.
"""

from minagent.stores.sqlite_file import ERASURES

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
        *ERASURES,
    ),
)
"""The statements that lead from each version of the schema to the next."""

APPLICATION_ID = 0x6D696E6D
"""Marks a file as one of minagent's memories ("minm"), in SQLite's own field."""
