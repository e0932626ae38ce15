"""One SQLite file: made, opened, brought up to date, and rid of what was deleted.

Sessions and memories are kept in files of this kind, each with tables of its own.
`SQLiteFile.open` makes the file if it is not there, brings an older one up to date,
and refuses what is not ours. Other programs may read such a file: `user_version` is
the version of its schema, and `application_id` says what it is.

To delete takes more than DELETE, as `SQLiteFile.erase` tells. That it is to be done is
noted in the file, in the table `erasures`, so that it is not forgotten if a program
ends before.

This file knows nothing of what is kept. All of it blocks: call it from a thread.
"""

import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from minagent.errors import ErasurePendingError, NewerDataError

ERASE_SECONDS = 1.0
"""How long `erase` waits for others who read or write."""

ERASURES: tuple[str, ...] = (
    "CREATE TABLE erasures (asked INTEGER NOT NULL, done INTEGER NOT NULL) STRICT",
    "INSERT INTO erasures VALUES (0, 0)",
)
"""For a schema: how many deletions there were, and how many of them left no trace."""

ASK_TO_ERASE = "UPDATE erasures SET asked = asked + 1"
"""For whatever deletes, in the same transaction."""

# One statement, so that no half of another process's migration is seen.
STATUS = """
    SELECT (SELECT application_id FROM pragma_application_id),
           (SELECT user_version FROM pragma_user_version),
           EXISTS (SELECT 1 FROM sqlite_master)
"""


@dataclass(frozen=True, slots=True)
class SQLiteFile:
    """A file with a schema.

    Attributes:
        path: Where it is.
        application_id: Marks it as ours, in SQLite's own field for that.
        schema: The statements that lead from each version of the schema to the next.
        durability: `full` or `normal`, as SQLite's `synchronous` understands them.
        patience: How many seconds to wait while other processes write.
    """

    path: Path
    application_id: int
    schema: Sequence[Sequence[str]]
    durability: str
    patience: float

    def open(self) -> sqlite3.Connection:
        """Return a connection to the file, made or brought up to date if need be.

        Raises:
            NewerDataError: A later version of minagent has written it.
            OSError: It cannot be had, or it is none of ours.
            sqlite3.Error: As SQLite says.
        """
        self._make()
        connection = sqlite3.connect(
            self.path,
            timeout=self.patience,
            isolation_level=None,
            check_same_thread=False,  # its thread may have ended when it is closed
        )
        try:
            connection.execute("PRAGMA secure_delete = ON")
            if not self._is_current(connection):  # asked before anything is changed
                self._use_wal(connection)
                self._migrate(connection)
            connection.execute(f"PRAGMA synchronous = {self.durability}")
        except BaseException:
            connection.close()
            raise
        return connection

    def erase(
        self,
        connection: sqlite3.Connection | None = None,
        *,
        seconds: float | None = None,
    ) -> None:
        """Remove what is left of deleted text, if there may be any.

        `secure_delete` overwrites what is deleted. But the log keeps pages as they
        were until it is emptied, and while somebody reads them, it cannot be. And where
        SQLite moves rows within or between pages, copies may stay in what a page does
        not use (seen with 3.40): VACUUM writes all pages anew, 100 MB in a second.

        Args:
            connection: One to use; None means one of its own.
            seconds: How long to wait for others; None means `ERASE_SECONDS`.

        Raises:
            ErasurePendingError: Somebody still reads what was there before.
        """
        if connection is None:
            if self.path.exists():
                with closing(self.open()) as own:
                    self.erase(own, seconds=seconds)
            return
        if self._to_erase(connection) is None:
            return
        seconds = ERASE_SECONDS if seconds is None else seconds
        deadline = time.monotonic() + seconds
        connection.execute(f"PRAGMA busy_timeout = {seconds * 1000:.0f}")
        try:
            while not self._is_erased(connection):
                if time.monotonic() > deadline:
                    raise ErasurePendingError(place=str(self.path))
                time.sleep(0.01)  # others erase, and SQLite does not wait for them
        finally:
            connection.execute(f"PRAGMA busy_timeout = {self.patience * 1000:.0f}")

    def _to_erase(self, connection: sqlite3.Connection) -> int | None:
        """Return up to which deletion there is text left, or None if there is none."""
        asked, done = connection.execute("SELECT asked, done FROM erasures").fetchone()
        return None if asked == done else int(asked)

    def _is_erased(self, connection: sqlite3.Connection) -> bool:
        if (asked := self._to_erase(connection)) is None:
            return True
        try:
            # First: while somebody reads, the rest is of no use.
            for statement in (EMPTY_LOG, "VACUUM", EMPTY_LOG):
                if next(connection.execute(statement), [0])[0]:  # the log is in use
                    return False
            connection.execute("UPDATE erasures SET done = max(done, ?)", (asked,))
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
            return False
        return True

    def _make(self) -> None:
        if self.path.is_symlink():
            raise OSError("it is a symbolic link, which is not followed")
        if not self.path.exists():
            # Made elsewhere and linked, since closing a file of this name would drop
            # the locks that SQLite holds on it in this process (sqlite.org/howtocorrupt
            # 2.2). A temporary file is readable by its owner only, and SQLite gives
            # its companions (-wal, -shm) the same mode.
            handle, made = tempfile.mkstemp(dir=self.path.parent, prefix=".minagent-")
            os.close(handle)
            try:
                with suppress(FileExistsError):
                    os.link(made, self.path)
            finally:
                os.unlink(made)

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        # Several first openers may collide here before the busy timeout applies.
        deadline = time.monotonic() + self.patience
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def _migrate(self, connection: sqlite3.Connection) -> None:
        with transaction(connection):
            # Asked again: while this one waited, another process may have been here.
            if not self._is_current(connection):
                found = connection.execute("PRAGMA user_version").fetchone()[0]
                for step in self.schema[found:]:
                    for statement in step:
                        connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {self.application_id}")
                connection.execute(f"PRAGMA user_version = {len(self.schema)}")

    def _is_current(self, connection: sqlite3.Connection) -> bool:
        """Whether the schema is there, and up to date; refuse what is not ours."""
        owner, found, anything = connection.execute(STATUS).fetchone()
        if owner != self.application_id and (owner or found or anything):
            raise OSError("it is the database of another program")
        known = len(self.schema)
        if found > known:
            raise NewerDataError(subject=str(self.path), found=found, known=known)
        return bool(found == known)


EMPTY_LOG = "PRAGMA wal_checkpoint(TRUNCATE)"


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


def is_busy(error: BaseException | None) -> bool:
    """Whether an error says that others are at work on the file just now."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
