"""Sessions in one SQLite file: the promises of `SessionManager`, made durable.

One row a session, one row an event. A save is one statement: an INSERT into the view
`saves`, whose trigger claims the version and appends the events, or refuses. SQLite
makes it atomic; nothing here begins or commits. A get is one statement, too, and reads
only the events that this manager has not seen before.

Read `SCHEMA` first, then `SQLiteSessionManager` from top to bottom. How the file is
made and opened stands in `sqlite_file.py`.

This file knows nothing of runs. Other programs may read the file: `data` holds an
event as `Event.to_json` writes it, `session` is the key of its session, `seq` counts
from 0 without gaps, and `user_version` is the version of the schema.
"""

import asyncio
import json
import os
import secrets
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from threading import Thread, main_thread
from typing import Any, Literal, Self, TypeAlias

import aiosqlite

from minagent.errors import (
    CorruptSessionError,
    MinagentError,
    SessionConflictError,
    SessionExistsError,
    SessionNotFoundError,
    StoreClosedError,
    StoreUnavailableError,
)
from minagent.events import Event
from minagent.session import Session, check_session_id, finished
from minagent.store import SessionInfo, SessionStore, check_page
from minagent.stores.cache import EventCache, Seen, nothing_seen
from minagent.stores.rows import Rows, info_of, leads_to, session_of
from minagent.stores.sqlite_file import ERASURES, SQLiteFile

SCHEMA: tuple[tuple[str, ...], ...] = (
    (
        # `write_id` names the last save, so that a writer who was not told can find
        # out.
        """
        CREATE TABLE sessions (
            key INTEGER PRIMARY KEY,
            session_id TEXT NOT NULL UNIQUE,
            user_id TEXT,
            incarnation TEXT NOT NULL,
            epoch TEXT NOT NULL,
            version INTEGER NOT NULL,
            write_id TEXT NOT NULL,
            event_count INTEGER NOT NULL,
            created_at TEXT NOT NULL,
            updated_at TEXT NOT NULL,
            state TEXT NOT NULL
        ) STRICT
        """,
        "CREATE INDEX sessions_by_user ON sessions (user_id, session_id)",
        """
        CREATE TABLE events (
            session INTEGER NOT NULL,
            seq INTEGER NOT NULL,
            data TEXT NOT NULL,
            PRIMARY KEY (session, seq)
        ) STRICT, WITHOUT ROWID
        """,
        """
        CREATE TRIGGER delete_events AFTER DELETE ON sessions BEGIN
            DELETE FROM events WHERE session = OLD.key;
        END
        """,
        """
        CREATE VIEW saves (
            session_id, incarnation, version, write_id, updated_at, state, added, events
        ) AS SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL WHERE 0
        """,
        # `events` is a JSON array of strings, so that each text is stored byte for byte
        # and not as SQLite would write its JSON.
        """
        CREATE TRIGGER save INSTEAD OF INSERT ON saves BEGIN
            UPDATE sessions
               SET version = version + 1,
                   write_id = NEW.write_id,
                   updated_at = NEW.updated_at,
                   state = NEW.state,
                   event_count = event_count + NEW.added
             WHERE session_id = NEW.session_id
               AND incarnation = NEW.incarnation
               AND version = NEW.version;
            SELECT RAISE(ABORT, 'stale') WHERE changes() = 0;
            INSERT INTO events (session, seq, data)
            SELECT s.key, s.event_count - NEW.added + e.key, e.value
              FROM sessions AS s, json_each(NEW.events) AS e
             WHERE s.session_id = NEW.session_id;
        END
        """,
    ),
    (
        # A row of a table that has a rowid fits into its page up to 4 kB; without one,
        # as before, up to 1 kB, and what does not fit takes a page more.
        *ERASURES,
        "DROP TRIGGER save",
        "DROP TRIGGER delete_events",
        "ALTER TABLE sessions DROP COLUMN epoch",  # the incarnation tells as much
        "ALTER TABLE events RENAME TO events_of_version_1",
        """
        CREATE TABLE events (
            id INTEGER PRIMARY KEY,
            data TEXT NOT NULL,
            session INTEGER AS (id >> 32),
            seq INTEGER AS (id & 4294967295)
        ) STRICT
        """,
        """
        INSERT INTO events (id, data)
        SELECT (session << 32) + seq, data
          FROM events_of_version_1 ORDER BY session, seq
        """,
        "DROP TABLE events_of_version_1",
        # Not a foreign key: SQLite enforces those only where a connection asks for it.
        """
        CREATE TRIGGER delete_events AFTER DELETE ON sessions BEGIN
            DELETE FROM events
             WHERE id BETWEEN OLD.key << 32 AND (OLD.key << 32) + 4294967295;
            UPDATE erasures SET asked = asked + 1;
        END
        """,
        """
        CREATE TRIGGER rewrite_event AFTER UPDATE OF data ON events BEGIN
            UPDATE erasures SET asked = asked + 1;
        END
        """,
        """
        CREATE TRIGGER save INSTEAD OF INSERT ON saves BEGIN
            UPDATE sessions
               SET version = version + 1,
                   write_id = NEW.write_id,
                   updated_at = NEW.updated_at,
                   state = NEW.state,
                   event_count = event_count + NEW.added
             WHERE session_id = NEW.session_id
               AND incarnation = NEW.incarnation
               AND version = NEW.version;
            SELECT RAISE(ABORT, 'stale') WHERE changes() = 0;
            INSERT INTO events (id, data)
            SELECT (s.key << 32) + s.event_count - NEW.added + e.key, e.value
              FROM sessions AS s, json_each(NEW.events) AS e
             WHERE s.session_id = NEW.session_id;
        END
        """,
    ),
)
"""The statements that lead from each version of the schema to the next."""

STOP_SECONDS = 2.0
"""How long closing waits for a connection whose event loop is another one."""

APPLICATION_ID = 0x6D696E61
"""Marks a file as one of minagent's ("mina"), in SQLite's own field for that."""

CREATE = """
    INSERT INTO sessions (
        session_id, user_id, incarnation, version, write_id, event_count,
        created_at, updated_at, state
    ) VALUES (?, ?, ?, 0, '', 0, ?, ?, '{}')
"""
SAVE = "INSERT INTO saves VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
LAST_WRITE = """
    SELECT incarnation, write_id,
           (SELECT data FROM events WHERE id = (sessions.key << 32) + :seq)
      FROM sessions WHERE session_id = :session_id
"""
# The session's own row, and then its events from a place on. Joining the two would
# repeat the state.
READ = """
    SELECT -1, user_id, incarnation, version, event_count, created_at, state
      FROM sessions WHERE session_id = :session_id
    UNION ALL
    SELECT seq, data, NULL, NULL, NULL, NULL, NULL
      FROM events
     WHERE id BETWEEN (
               SELECT (key << 32)
                    + CASE WHEN incarnation = :incarnation THEN :start ELSE 0 END
                 FROM sessions WHERE session_id = :session_id
           ) AND (
               SELECT (key << 32) + 4294967295
                 FROM sessions WHERE session_id = :session_id
           )
"""
LIST = """
    SELECT session_id, user_id, version, event_count, created_at, updated_at
      FROM sessions
     WHERE session_id > :after AND (:user_id IS NULL OR user_id = :user_id)
     ORDER BY session_id LIMIT :limit
"""
# '0' is the letter behind '/', so the range holds the sessions inside this one.
DELETE = """
    DELETE FROM sessions
     WHERE (session_id = :session_id
            OR (session_id >= :session_id || '/' AND session_id < :session_id || '0'))
       AND (:version IS NULL
            OR (:incarnation, :version) = (SELECT incarnation, version FROM sessions
                                            WHERE session_id = :session_id))
    RETURNING session_id
"""
REWRITE = """
    UPDATE events SET data = :data
     WHERE id = (SELECT (key << 32) + :seq FROM sessions
                  WHERE session_id = :session_id AND incarnation = :incarnation)
"""

Values: TypeAlias = Sequence[Any] | dict[str, Any]


class SQLiteSessionManager(SessionStore):
    """Keeps sessions in one SQLite file, for one machine and any number of processes.

    `async with SQLiteSessionManager(path) as sessions:` holds one connection open for
    the block, which is fast. Without it each call opens and closes its own, which is
    right but slower; so does a call from another event loop.

    Args:
        path: The file; it is made, readable by its owner only, if it is not there.
        durability: `full`: what is acknowledged survives a power loss. `normal`: it
            survives a crash of the program, and saves are several times faster.
        busy_timeout_seconds: How long to wait while other processes write.
        cached_events: How many events to keep in memory, over all sessions, so that
            they need not be read again.

    Raises:
        ValueError: `path` names no file, such as `:memory:`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Literal["full", "normal"] = "full",
        busy_timeout_seconds: float = 30.0,
        cached_events: int = 200_000,
    ) -> None:
        if str(path) in ("", ":memory:"):
            raise ValueError(
                f"{str(path)!r} is no file; to keep nothing, use InMemorySessionManager"
            )
        if durability not in ("full", "normal"):
            raise ValueError(f"durability is {durability!r}, not 'full' or 'normal'")
        where, patience = Path(path).absolute(), busy_timeout_seconds
        self._file = SQLiteFile(where, APPLICATION_ID, SCHEMA, durability, patience)
        self._cache = EventCache(cached_events)
        self._connection: aiosqlite.Connection | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    async def create(self, session_id: str, user_id: str | None = None) -> Session:
        session = Session(session_id, user_id)
        now = session.created_at.isoformat()
        row = (session_id, user_id, session.incarnation, now, now)
        try:
            await finished(self._rows(CREATE, row, session_id))
        except sqlite3.IntegrityError:
            raise SessionExistsError(session_id) from None
        self._cache.put(session)
        return session

    async def get(self, session_id: str) -> Session | None:
        check_session_id(session_id)
        seen = self._cache.get(session_id)
        rows = await self._read(session_id, seen)
        if rows and not leads_to(seen, rows):
            seen = nothing_seen()
            rows = await self._read(session_id, seen)
        if not rows:
            return None
        session = session_of(session_id, seen, rows)
        self._cache.put(session)
        return session

    async def _read(self, session_id: str, seen: Seen) -> Rows:
        """Return the session's row, the last event seen, and those behind it."""
        start = max(len(seen.events) - 1, 0)
        known = {"incarnation": seen.incarnation, "start": start}
        rows = await self._rows(READ, {"session_id": session_id, **known}, session_id)
        return sorted(rows, key=lambda row: row[0])  # they come so; nobody promises it

    async def save(self, session: Session) -> None:
        events, write_id = session.unsaved, secrets.token_hex(8)
        row = (
            session.session_id,
            session.incarnation,
            session.version,
            write_id,
            session.updated_at.isoformat(),
            session.dump_state(),
            len(events),
            json.dumps([event.to_json() for event in events]),
        )
        try:
            await self._rows(SAVE, row, session.session_id)
        except sqlite3.IntegrityError:
            await self._refuse(session)
        except asyncio.CancelledError:
            # The statement is on its way already, and this look stands behind it: so
            # the session and the file agree in any case.
            await finished(self._settle(session, write_id, events))
            raise
        session.mark_saved(len(events))
        self._cache.grow(session, len(events))

    async def _settle(
        self, session: Session, write_id: str, events: tuple[Event, ...]
    ) -> None:
        """Find out whether a save of these events was done."""
        rows = await self._last_write(session)
        found = (rows[0][2] or "") if rows else ""
        # Somebody else may have saved behind it: then the events tell.
        if (rows and rows[0][1] == write_id) or (
            events and events[0].event_id in found
        ):
            session.mark_saved(len(events))

    async def _last_write(self, session: Session) -> Rows:
        seq = len(session.events) - len(session.unsaved)
        asked = {"session_id": session.session_id, "seq": seq}
        return await self._rows(LAST_WRITE, asked, session.session_id)

    async def _refuse(self, session: Session) -> None:
        rows = await self._last_write(session)
        if not rows or rows[0][0] != session.incarnation:
            raise SessionNotFoundError(session.session_id) from None
        raise SessionConflictError(session.session_id) from None

    async def page(
        self, *, user_id: str | None = None, limit: int = 100, after: str | None = None
    ) -> Sequence[SessionInfo]:
        check_page(user_id, limit, after)
        asked = {"after": after or "", "user_id": user_id, "limit": limit}
        rows = await self._rows(LIST, asked)
        return [info_of(*row) for row in rows]

    async def remove(self, session_id: str, *, seen: Session | None = None) -> bool:
        check_session_id(session_id)
        asked = {
            "session_id": session_id,
            "incarnation": seen and seen.incarnation,
            "version": seen and seen.version,
        }
        gone = await finished(self._rows(DELETE, asked, session_id))
        for (each,) in gone:
            self._cache.forget(each)
        return any(each == session_id for (each,) in gone)

    async def rewrite(self, session: Session, places: Sequence[int]) -> None:
        self._check_open()
        about = {"session_id": session.session_id, "incarnation": session.incarnation}
        for at in places:
            row = {**about, "seq": at, "data": session.events[at].to_json()}
            await finished(self._rows(REWRITE, row, session.session_id))

    async def erase(self) -> None:
        self._check_open()
        loop = asyncio.get_running_loop()
        try:
            await finished(loop.run_in_executor(None, self._file.erase))
        except sqlite3.Error as error:
            raise self._problem(error, None) from error
        except OSError as error:
            problem = {"place": str(self._file.path), "problem": str(error)}
            raise StoreUnavailableError(**problem) from error

    async def __aenter__(self) -> Self:
        self._check_open()
        if self._connection is None:
            try:
                await finished(self._hold())
            except asyncio.CancelledError:
                await finished(self._let_go())
                raise
        return self

    async def _hold(self) -> None:
        self._connection = await self._connect()
        self._loop = asyncio.get_running_loop()

    async def aclose(self) -> None:
        self._closed = True
        await finished(self._let_go())

    async def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if self._loop is asyncio.get_running_loop():
            await connection.close()
        else:
            # Its loop may be gone, and its thread with it: then nobody tells us.
            if (stopped := connection.stop()) is not None:
                await asyncio.wait([stopped], timeout=STOP_SECONDS)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosedError(store=type(self).__name__)

    async def _rows(
        self, sql: str, values: Values, session_id: str | None = None
    ) -> Rows:
        """Run one statement to its end and return its rows."""
        self._check_open()
        held = self._connection
        try:
            if held is not None and self._loop is asyncio.get_running_loop():
                return await _to_its_end(held, sql, values)
            return await finished(self._rows_of_own_connection(sql, values))
        except sqlite3.IntegrityError:
            raise
        except sqlite3.Error as error:
            # Its traceback holds the cursor, and with it a connection that was closed.
            cause = error.with_traceback(None)
            raise self._problem(error, session_id) from cause

    async def _rows_of_own_connection(self, sql: str, values: Values) -> Rows:
        connection = await self._connect()
        try:
            return [*await connection.execute_fetchall(sql, values)]
        finally:
            await connection.close()

    async def _connect(self) -> aiosqlite.Connection:
        errors: list[Exception] = []
        made: list[sqlite3.Connection] = []

        def opened() -> sqlite3.Connection:  # called in the connection's thread
            try:
                made.append(self._file.open())
            except (sqlite3.Error, OSError, MinagentError) as error:
                # Its thread ends without a word where opening fails; so it does not.
                errors.append(error)
                made.append(sqlite3.connect(":memory:", check_same_thread=False))
            return made[0]

        connection = _Connection(opened, iter_chunk_size=64)
        try:
            await connection
        except asyncio.CancelledError:
            # The event loop ends, and has cancelled even what is finished elsewhere.
            await connection.wait_stopped()
            for each in made:
                each.close()
            raise
        if not errors:
            return connection
        await connection.close()
        if isinstance(errors[0], sqlite3.Error):
            raise self._problem(errors[0], None) from errors[0]
        if isinstance(errors[0], OSError):
            raise StoreUnavailableError(
                place=str(self._file.path), problem=str(errors[0])
            ) from errors[0]
        raise errors[0]

    def _problem(self, error: sqlite3.Error, session_id: str | None) -> MinagentError:
        """Return the named error for one of the driver."""
        codes = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
        damaged = getattr(error, "sqlite_errorcode", 0) in codes
        if session_id is not None and (damaged or "decode to UTF-8" in str(error)):
            problem = f"{self._file.path}: {error}"
            return CorruptSessionError(session_id, problem=problem)
        return StoreUnavailableError(place=str(self._file.path), problem=str(error))


async def _to_its_end(
    connection: aiosqlite.Connection, sql: str, values: Values
) -> Rows:
    try:
        return [*await connection.execute_fetchall(sql, values)]
    except asyncio.CancelledError:
        # The statement goes on in the connection's thread. What is asked now is
        # answered after it; the event loop must not be gone by then.
        await finished(connection.execute_fetchall("SELECT 1"))
        raise


# --- The connection -----------------------------------------------------------


class _Connection(aiosqlite.Connection):
    """A connection whose end can be waited for, and that does not hang the program.

    Its thread would keep the interpreter from exiting. But a notebook or a failed test
    never comes to the end of a block, and an event loop may be closed in mid-call.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        global _closer
        super().__init__(*args, **kwargs)
        self.stopped: asyncio.Future[Any] | None = None
        _held.add(self)
        if _closer is None or not _closer.is_alive():
            _closer = Thread(target=_stop_all_after_main, daemon=True)
            _closer.start()

    def stop(self) -> "asyncio.Future[Any] | None":
        """Let the thread end; return what tells of it, if there is an event loop."""
        _held.discard(self)
        self.stopped = super().stop()
        return None if self.stopped is None else asyncio.shield(self.stopped)

    async def close(self) -> None:
        """Close, and wait for the thread to end, even if cancelled meanwhile."""
        try:
            await super().close()
        finally:
            await self.wait_stopped()

    async def wait_stopped(self) -> None:
        """Wait until the thread has ended; its last word needs the event loop."""
        if self.stopped is not None:
            await finished(self.stopped)


_held: set[_Connection] = set()
_closer: Thread | None = None


def _stop_all_after_main() -> None:
    main_thread().join()
    for connection in [*_held]:
        connection.stop()
