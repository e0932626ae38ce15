"""Sessions in PostgreSQL: for any number of machines, any of which resumes any session.

One row a session, one row an event, as in the SQLite file. A save is one statement in
one round trip: it claims the version and appends the events, or does nothing. A get is
one statement, too, and reads only the events that this manager has not seen before.

A connection may be lost when a save is stored and its answer is still on the way. So
each save has a random write id, and the manager looks, on another connection, for what
became of it. Where it cannot look, the session object stays as it is, and its next save
finds out.

Read `SCHEMA` first, then `PostgresSessionManager` from top to bottom; behind it stand
the connections. It needs the extra `postgres`.

Other programs may read the tables: `data` holds an event as `Event.to_json` writes it,
`seq` counts from 0 without gaps, times are ISO 8601 in UTC. JSON is `text`, since
`jsonb` sorts the keys, refuses U+0000 and writes numbers anew. This file knows nothing
of runs.
"""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from selectors import EVENT_READ, DefaultSelector
from typing import Any, LiteralString, Self, TypeAlias
from weakref import WeakKeyDictionary

from minagent.errors import (
    MinagentError,
    NewerDataError,
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

try:
    import psycopg
    from psycopg import pq, sql
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
except ImportError as error:  # it is also what psycopg raises without its libpq
    if not (error.name or "psycopg").startswith("psycopg"):
        raise
    raise ModuleNotFoundError(
        "minagent.stores.postgres needs psycopg: pip install 'minagent[postgres]'",
        name="psycopg",
    ) from error

SCHEMA: tuple[tuple[LiteralString, ...], ...] = (
    (
        "CREATE TABLE {schema}.minagent_format (version integer NOT NULL)",
        "INSERT INTO {schema}.minagent_format VALUES (0)",
        # Ids are compared and sorted byte for byte, whatever the database's locale.
        # `write_id` names the last save, so that a writer who was not told can find
        # out.
        """
        CREATE TABLE {schema}.sessions (
            key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            session_id text COLLATE "C" NOT NULL UNIQUE,
            user_id text COLLATE "C",
            incarnation text NOT NULL,
            version bigint NOT NULL,
            write_id text NOT NULL,
            event_count bigint NOT NULL,
            created_at text NOT NULL,
            updated_at text NOT NULL,
            state text NOT NULL
        )
        """,
        "CREATE INDEX sessions_by_user ON {schema}.sessions (user_id, session_id)",
        # The cascade sees the events of a save that a deletion had to wait for; a
        # statement's own snapshot would not.
        """
        CREATE TABLE {schema}.events (
            session bigint NOT NULL REFERENCES {schema}.sessions ON DELETE CASCADE,
            seq bigint NOT NULL,
            data text NOT NULL,
            PRIMARY KEY (session, seq)
        )
        """,
    ),
)
"""The statements that lead from each version of the schema to the next."""

LOCK = 0x6D696E61
"""The advisory lock ("mina") under which the schema is made."""

CONNINFO = {
    "connect_timeout": "10",  # seconds
    "tcp_user_timeout": "30000",  # milliseconds; or a dead network is seen after hours
    "keepalives_idle": "30",  # seconds
    "fallback_application_name": "minagent",
}
"""What a connection string says unless it says something else."""

# A stricter isolation than PostgreSQL's own default would make an error of each
# conflict. Set here, it costs no round trip.
OPEN = """
    SELECT version, set_config('default_transaction_isolation', 'read committed', false)
      FROM {schema}.minagent_format
"""
TABLES = """
    SELECT relname
      FROM pg_namespace AS space LEFT JOIN pg_class ON relnamespace = space.oid
     WHERE nspname = %(schema)s
"""
CREATE = """
    INSERT INTO {schema}.sessions (
        session_id, user_id, incarnation, version, write_id, event_count,
        created_at, updated_at, state
    ) VALUES (
        %(session_id)s, %(user_id)s, %(incarnation)s, 0, '', 0, %(now)s, %(now)s, '{{}}'
    ) ON CONFLICT DO NOTHING RETURNING key
"""
SAVE = """
    WITH saved AS (
        UPDATE {schema}.sessions
           SET version = version + 1,
               write_id = %(write_id)s,
               updated_at = %(updated_at)s,
               state = %(state)s,
               event_count = event_count + %(added)s
         WHERE session_id = %(session_id)s
           AND incarnation = %(incarnation)s
           AND version = %(version)s
        RETURNING key, event_count - %(added)s AS base
    ), added AS (
        INSERT INTO {schema}.events (session, seq, data)
        SELECT key, base + place - 1, data
          FROM saved, unnest(%(events)s::text[]) WITH ORDINALITY AS new (data, place)
    )
    SELECT key FROM saved
"""
LOOK = """
    SELECT incarnation, version, write_id,
           ARRAY(SELECT data FROM {schema}.events
                  WHERE session = key AND seq >= %(base)s
                  ORDER BY seq LIMIT %(added)s)
      FROM {schema}.sessions WHERE session_id = %(session_id)s
"""
# The session's own row, and then its events from a place on. Joining the two would
# repeat the state.
READ = """
    WITH found AS (SELECT * FROM {schema}.sessions WHERE session_id = %(session_id)s)
    SELECT -1, user_id, incarnation, version, event_count, created_at, state
      FROM found
    UNION ALL
    SELECT seq, data, NULL, NULL, NULL, NULL, NULL
      FROM {schema}.events, found
     WHERE session = key
       AND seq >= CASE WHEN incarnation = %(incarnation)s THEN %(start)s ELSE 0 END
"""
LIST = """
    SELECT session_id, user_id, version, event_count, created_at, updated_at
      FROM {schema}.sessions
     WHERE session_id > %(after)s
       AND (%(user_id)s::text IS NULL OR user_id = %(user_id)s)
     ORDER BY session_id LIMIT %(limit)s
"""
# Locked in one order, so that two of these never wait for each other; who waits for a
# save sees the version that it leaves. '0' is the letter behind '/', so the range holds
# the sessions inside this one.
DELETE = """
    WITH family AS (
        SELECT key, session_id, incarnation, version FROM {schema}.sessions
         WHERE session_id = %(session_id)s
            OR (session_id >= %(session_id)s || '/'
                AND session_id < %(session_id)s || '0')
         ORDER BY session_id FOR UPDATE
    )
    DELETE FROM {schema}.sessions AS session USING family
     WHERE session.key = family.key
       AND (%(incarnation)s::text IS NULL
            OR EXISTS (SELECT FROM family
                        WHERE session_id = %(session_id)s
                          AND incarnation = %(incarnation)s
                          AND version = %(version)s))
    RETURNING session.session_id
"""
REWRITE = """
    UPDATE {schema}.events AS event SET data = new.data
      FROM {schema}.sessions AS session,
           unnest(%(places)s::bigint[], %(events)s::text[]) AS new (seq, data)
     WHERE session_id = %(session_id)s AND incarnation = %(incarnation)s
       AND event.session = session.key AND event.seq = new.seq
"""

Values: TypeAlias = Mapping[str, Any]


class PostgresSessionManager(SessionStore):
    """Keeps sessions in a PostgreSQL database, for any number of machines.

    `async with PostgresSessionManager(conninfo) as sessions:` keeps its connections for
    the block, which is fast. Without it each call opens and closes its own, which is
    right but slower; so does a call from another event loop.

    What is acknowledged is as durable as the server makes a commit. After a lost
    connection a `get` or `list` is tried once more, and a `create` or `save` is looked
    for. Where it is not found, or nobody can look, `StoreUnavailableError` is raised,
    and the call can be made again: nothing is stored twice. (A `create` may then meet
    the session that it has made; `get_or_create` does not mind.)

    What is deleted or redacted is in no row any more. The server keeps old versions of
    rows in its files until a VACUUM (its autovacuum comes by itself), and for as long
    as you keep them in its write-ahead log and in backups.

    Args:
        conninfo: A connection string, `postgresql://user@host/database` or
            `host=… dbname=…`. What it leaves open is taken from `PGHOST`, `PGPASSWORD`
            and their like, and from `~/.pgpass`. The database must be in UTF-8.
        schema: The schema for the tables; it is made if it is not there.
        max_connections: How many connections the block keeps at most; who needs one
            more waits.
        cached_events: How many events to keep in memory, over all sessions, so that
            they need not be read again.

    Raises:
        ValueError: One of these cannot be what it is meant for.
    """

    def __init__(
        self,
        conninfo: str,
        *,
        schema: str = "minagent",
        max_connections: int = 10,
        cached_events: int = 200_000,
    ) -> None:
        if not re.fullmatch(r"(?!pg_)[a-z_][a-z0-9_]{0,62}", schema):
            raise ValueError(f"the schema {schema!r} is no lower-case name in ASCII")
        if max_connections < 1:
            raise ValueError(f"max_connections is {max_connections}; give at least 1")
        self._server = _Server(conninfo, schema)
        self._max_connections = max_connections
        self._cache = EventCache(cached_events)
        self._pool: _Pool | None = None
        self._closed = False
        # By session object: the saves of which nobody knows whether they are stored.
        self._doubts: WeakKeyDictionary[Session, list[_Write]] = WeakKeyDictionary()

    # --- create ---------------------------------------------------------------

    async def create(self, session_id: str, user_id: str | None = None) -> Session:
        session = Session(session_id, user_id)
        await finished(self._create(session))
        self._cache.put(session)
        return session

    async def _create(self, session: Session) -> None:
        values = {
            "session_id": session.session_id,
            "user_id": session.user_id,
            "incarnation": session.incarnation,
            "now": session.created_at.isoformat(),
        }
        try:
            if await self._attempt(CREATE, values):
                return
        except _LostError as lost:
            # What is there now, if anything, tells.
            found = await self._look(_Write.of(session))
            if found is None:
                raise self._server.unavailable(lost.problem) from lost.__cause__
            if found.incarnation == session.incarnation:
                return
        raise SessionExistsError(session.session_id)

    # --- get ------------------------------------------------------------------

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
        asked = {"session_id": session_id, **known}
        rows = await self._rows(READ, asked, attempts=2)
        return sorted(rows, key=lambda row: row[0])  # they come so; nobody promises it

    # --- save -----------------------------------------------------------------

    async def save(self, session: Session) -> None:
        self._check_open()
        # All that is stored is taken down now: others may go on with the session.
        write = _Write.of(session)
        await finished(self._save(session, write))

    async def _save(self, session: Session, write: "_Write") -> None:
        doubts = self._doubts.get(session, [])
        try:
            stored = await self._attempt(SAVE, write.values())
        except _LostError as lost:
            self._doubts[session] = [*doubts, write]
            await self._settle(session, write, lost)
        except asyncio.CancelledError:
            # The event loop ends; even then the session and the table shall agree.
            self._doubts[session] = [*doubts, write]
            with suppress(MinagentError):
                await self._settle(session, write, _LostError(problem="cancelled"))
            raise
        else:
            if stored:
                self._done(session, len(write.events))
            else:
                await self._go_on(session, write, await self._look(write))

    async def _settle(
        self, session: Session, write: "_Write", lost: "_LostError"
    ) -> None:
        """Find out what became of a write, of which nobody told."""
        try:
            found = await self._look(write)
        except (StoreClosedError, StoreUnavailableError) as error:
            raise self._server.unavailable(
                f"{lost.problem}; whether this was saved, the next save will find out"
            ) from error
        if found is not None and found.is_before(write):
            raise self._server.unavailable(
                f"{lost.problem}; nothing was saved: save again"
            ) from lost.__cause__
        await self._go_on(session, write, found)

    async def _go_on(
        self, session: Session, write: "_Write", found: "_Found | None"
    ) -> None:
        """Go on from what stands there, if it is of a save of which nobody told.

        Raises:
            SessionNotFoundError: The session is not there, or another.
            SessionConflictError: Somebody else has saved.
        """
        if found is None or found.incarnation != write.incarnation:
            raise SessionNotFoundError(session.session_id)
        doubts = self._doubts.get(session, [])
        mine = [each for each in doubts if each.write_id == found.write_id]
        # Somebody else may have saved behind it: then the events tell.
        count = found.count(write) if doubts else 0
        if not mine and not count:
            raise SessionConflictError(session.session_id)
        self._done(session, count)
        rest = write.behind(count)
        if rest.events or any(each.state != rest.state for each in mine or doubts):
            await self._save(session, rest)

    def _done(self, session: Session, count: int) -> None:
        session.mark_saved(count)
        self._doubts.pop(session, None)
        self._cache.grow(session, count)

    async def _look(self, write: "_Write") -> "_Found | None":
        """Return what stands where a write would."""
        rows = await self._rows(LOOK, write.values(), attempts=2)
        return _Found(*rows[0]) if rows else None

    # --- list, delete, redact -------------------------------------------------

    async def page(
        self, *, user_id: str | None = None, limit: int = 100, after: str | None = None
    ) -> Sequence[SessionInfo]:
        check_page(user_id, limit, after)
        asked = {"after": after or "", "user_id": user_id, "limit": limit}
        return [info_of(*row) for row in await self._rows(LIST, asked, attempts=2)]

    async def remove(self, session_id: str, *, seen: Session | None = None) -> bool:
        check_session_id(session_id)
        asked = {
            "session_id": session_id,
            "incarnation": seen and seen.incarnation,
            "version": seen and seen.version,
        }
        gone = await finished(self._rows(DELETE, asked))
        for (each,) in gone:
            self._cache.forget(each)
        return any(each == session_id for (each,) in gone)

    async def rewrite(self, session: Session, places: Sequence[int]) -> None:
        values = {
            "session_id": session.session_id,
            "incarnation": session.incarnation,
            "places": [*places],
            "events": [session.events[at].to_json() for at in places],
        }
        await finished(self._rows(REWRITE, values, attempts=2))

    async def erase(self) -> None:
        self._check_open()  # in no row is anything left; the files are the server's

    # --- Connections ----------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._check_open()
        if self._pool is None or self._pool.loop.is_closed():
            pool = _Pool(self._server.connect, self._max_connections)
            async with pool.connection():
                pass  # so that a wrong address is told here
            self._pool = pool
        return self

    async def aclose(self) -> None:
        self._closed = True
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosedError(store=type(self).__name__)

    async def _rows(
        self, text: LiteralString, values: Values, *, attempts: int = 1
    ) -> Rows:
        """Run one statement, again after a lost connection, and return its rows."""
        while True:
            attempts -= 1
            try:
                return await self._attempt(text, values)
            except _LostError as lost:
                if not attempts:
                    raise self._server.unavailable(lost.problem) from lost.__cause__

    async def _attempt(self, text: LiteralString, values: Values) -> Rows:
        """Run one statement, which is committed at its end, and return its rows.

        Raises:
            _LostError: The connection was lost: it may have been done, or not.
            StoreUnavailableError: It was not done.
        """
        async with self._connection() as connection:
            try:
                return await self._server.execute(connection, text, values)
            except psycopg.Error as error:
                if connection.closed:
                    raise _LostError(problem=_one_line(error)) from error
                raise self._server.unavailable(error) from error

    @asynccontextmanager
    async def _connection(self) -> "AsyncIterator[_Connection]":
        self._check_open()
        pool = self._pool
        if pool is not None and pool.loop is asyncio.get_running_loop():
            async with pool.connection() as connection:
                self._check_open()  # it may have waited for long
                yield connection
        else:
            connection = await self._server.connect()
            try:
                yield connection
            finally:
                await connection.close()


class _LostError(MinagentError):
    """A connection was lost, and with it the answer."""

    problem: str


@dataclass(frozen=True, slots=True)
class _Write:
    """What one save stores.

    Attributes:
        version: The version that it is for.
        base: The place of its first event.
    """

    session_id: str
    incarnation: str
    version: int
    write_id: str
    updated_at: str
    state: str
    base: int
    events: tuple[Event, ...]

    @staticmethod
    def of(session: Session) -> "_Write":
        events = session.unsaved
        return _Write(
            session_id=session.session_id,
            incarnation=session.incarnation,
            version=session.version,
            write_id=secrets.token_hex(8),
            updated_at=session.updated_at.isoformat(),
            state=session.dump_state(),
            base=len(session.events) - len(events),
            events=events,
        )

    def values(self) -> dict[str, Any]:
        """Return what `SAVE` and `LOOK` ask for."""
        return {
            "session_id": self.session_id,
            "incarnation": self.incarnation,
            "version": self.version,
            "write_id": self.write_id,
            "updated_at": self.updated_at,
            "state": self.state,
            "base": self.base,
            "added": len(self.events),
            "events": [event.to_json() for event in self.events],
        }

    def behind(self, count: int) -> "_Write":
        """Return what is left to store when so many events are stored."""
        return replace(
            self,
            version=self.version + 1,
            write_id=secrets.token_hex(8),
            base=self.base + count,
            events=self.events[count:],
        )


@dataclass(frozen=True, slots=True)
class _Found:
    """What stands where a write would."""

    incarnation: str
    version: int
    write_id: str
    events: list[str]

    def is_before(self, write: _Write) -> bool:
        """Whether nobody has saved what the write was made for."""
        found = self.incarnation, self.version
        return found == (write.incarnation, write.version)

    def count(self, write: _Write) -> int:
        """Return how many of a write's events stand there, by the random ids."""
        pairs = zip(self.events, write.events, strict=False)
        same = [event.event_id in data for data, event in pairs]
        return same.index(False) if False in same else len(same)


# --- Connections --------------------------------------------------------------


class _Connection(psycopg.AsyncConnection[Any]):
    """A connection that closes without a word.

    A notebook or a failed test never comes to the end of a block.
    """

    def __del__(self) -> None:  # type: ignore[override]
        pass  # psycopg would warn; libpq closes in any case


class _Pool:
    """The connections of one event loop, as many as were needed at once.

    Not psycopg's own pool, which connects in the background: who waits for that is told
    of a time-out and not of its cause, and waits on when the server is back.
    """

    def __init__(self, connect: Callable[[], Awaitable[_Connection]], size: int):
        self.loop = asyncio.get_running_loop()
        self._connect = connect
        self._room = asyncio.Semaphore(size)
        self._idle: list[_Connection] = []
        self._closed = False

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[_Connection]:
        async with self._room:
            connection = await self._usable()
            try:
                yield connection
            finally:
                if connection.closed:
                    await self.drop()  # most likely, the others are lost as well
                elif self._closed or not _is_idle(connection):
                    await connection.close()
                else:
                    self._idle.append(connection)

    async def _usable(self) -> _Connection:
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return await self._connect()
            with DefaultSelector() as selector:
                selector.register(connection, EVENT_READ)
                if not selector.select(0):
                    return connection
            await connection.close()  # what a server says unasked is that it ends

    async def drop(self) -> None:
        """Close the connections that nobody uses."""
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()

    async def close(self) -> None:
        self._closed = True  # those in use are closed by whoever uses them
        await self.drop()


def _is_idle(connection: _Connection) -> bool:
    """Whether it was not broken off in the middle of a statement."""
    return connection.info.transaction_status == pq.TransactionStatus.IDLE


class _Server:
    """A schema of a database, and how to connect to it.

    Args:
        conninfo: A connection string.
        schema: The name of the schema.

    Attributes:
        place: Both, for messages: without any password.
    """

    def __init__(self, conninfo: str, schema: str) -> None:
        try:
            given: dict[str, Any] = {**conninfo_to_dict(conninfo)}
        except psycopg.Error:
            # Not what it says, since that repeats the string with the password.
            raise ValueError(
                "that is no connection string; give 'postgresql://user@host/database'"
            ) from None
        said = {**CONNINFO, **given, "client_encoding": "UTF8"}
        self._conninfo = make_conninfo(**said)
        shown = ("service", "host", "hostaddr", "port", "dbname", "user")
        place = make_conninfo(**{key: given[key] for key in shown if key in given})
        self.place = f"{place} (schema {schema})".strip()
        self._schema = schema

    def unavailable(self, problem: object) -> StoreUnavailableError:
        return StoreUnavailableError(place=self.place, problem=_one_line(problem))

    async def execute(
        self, connection: _Connection, text: LiteralString, values: Values
    ) -> Rows:
        statement = sql.SQL(text).format(schema=sql.Identifier(self._schema))
        cursor = await connection.execute(statement, values)
        return await cursor.fetchall() if cursor.description else []

    async def connect(self) -> _Connection:
        """Return a connection to the schema, made or brought up to date if need be."""
        try:
            # No prepared statements: not every proxy of PostgreSQL passes them on.
            connection = await _Connection.connect(
                self._conninfo, autocommit=True, prepare_threshold=None
            )
        except psycopg.Error as error:
            raise self.unavailable(error) from error
        try:
            await self._open(connection)
        except psycopg.Error as error:
            await connection.close()
            raise self.unavailable(error) from error
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _open(self, connection: _Connection) -> None:
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise self.unavailable(f"its encoding is {encoding}, and not UTF8")
        try:
            found = await self._version(connection)
        except psycopg.errors.UndefinedTable:
            found = 0
        if found < len(SCHEMA):
            await self._migrate(connection)
            await self._version(connection)

    async def _version(self, connection: _Connection) -> int:
        """Return the version of the schema.

        Raises:
            NewerDataError: It is newer than this program.
        """
        rows = await self.execute(connection, OPEN, {})
        found, known = max((row[0] for row in rows), default=0), len(SCHEMA)
        if found > known:
            raise NewerDataError(subject=self.place, found=found, known=known)
        return int(found)

    async def _migrate(self, connection: _Connection) -> None:
        await connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
            # Asked again: while this one waited, another process may have been here.
            rows = await self.execute(connection, TABLES, {"schema": self._schema})
            tables = {row[0] for row in rows}
            found = 0
            if "minagent_format" in tables:
                found = await self._version(connection)
            elif tables - {None}:
                raise self.unavailable("the schema is another program's")
            if not rows:  # to make it only if it is not there takes the same rights
                await self.execute(connection, "CREATE SCHEMA {schema}", {})
            for step in SCHEMA[found:]:
                for statement in step:
                    await self.execute(connection, statement, {})
            await self.execute(
                connection,
                "UPDATE {schema}.minagent_format SET version = %(version)s",
                {"version": len(SCHEMA)},
            )


def _one_line(problem: object) -> str:
    return " ".join(str(problem).split()).rstrip(".")
