"""A real PostgreSQL server for tests: a cluster of its own, on a Unix socket.

`server()` starts it within seconds, once a process, and it ends with the process; the
processes that this one starts find it as well. Where no server is installed, the test
that asks for one is skipped. Each test takes a schema, or a database, for itself.

`Proxy` stands between a client and the server, and loses answers on the way.
"""

import asyncio
import hashlib
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import psycopg
import pytest

from minagent.stores.postgres import PostgresSessionManager

SOCKETS = "MINAGENT_TEST_POSTGRES"
"""The environment variable that tells the folder of the server's socket."""

OPTIONS = "-c listen_addresses='' -c fsync=off -c max_connections=200"


class Cluster:
    """A server with its data, in a folder with a short name (sockets ask for that)."""

    def __init__(self, programs: Path) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pgt"))
        self._programs = programs
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:  # it refuses to run as root
            shutil.chown(self.folder, "postgres")
            self._as = {"user": "postgres", "group": "postgres", "extra_groups": []}
        how = ("-A", "trust", "-U", "postgres", "--no-sync", "-E", "UTF8")
        self._run("initdb", "-D", self.folder / "data", *how, "--locale=C.UTF-8")

    def start(self) -> None:
        options = f"{OPTIONS} -c unix_socket_directories={self.folder}"
        self._control("-w", "-l", self.folder / "log", "-o", options, "start")

    def stop(self) -> None:
        self._control("-m", "fast", "stop")

    def end_with_this_process(self) -> None:
        """Let a process wait for the end of this one, however that comes."""
        stop = '"$1" -D "$2/data" -m immediate -s stop; rm -rf "$2"'
        # By way of 3, since what runs behind has nothing to read from 0.
        end = f"exec 3<&0; (read _ <&3; {stop}) &"
        words = [end, "sh", self._programs / "pg_ctl", self.folder]
        here, self._held = os.pipe()  # it is closed with this process
        subprocess.run(
            ["sh", "-c", *words],
            check=True,
            cwd="/",
            stdin=here,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # so that no Ctrl-C reaches it
            **self._as,
        )
        os.close(here)

    def _control(self, *arguments: object) -> None:
        self._run("pg_ctl", "-D", self.folder / "data", "-s", *arguments)

    def _run(self, program: str, *arguments: object) -> None:
        command = [self._programs / program, *map(str, arguments)]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run(command, check=True, cwd="/", **quiet, **self._as)


_clusters: list[Cluster] = []


def cluster() -> Cluster:
    """Return this process's own server, started."""
    if not _clusters:
        programs = shutil.which("pg_config") and Path(
            subprocess.check_output(["pg_config", "--bindir"], text=True).strip()
        )
        if not programs or not (programs / "initdb").exists():
            missing("no PostgreSQL server here: apt-get install -y postgresql")
        _clusters.append(Cluster(programs))
        _clusters[0].end_with_this_process()
        _clusters[0].start()
        os.environ[SOCKETS] = str(_clusters[0].folder)
    return _clusters[0]


def missing(reason: str) -> NoReturn:
    """Skip a test for want of a server; where every store must be tested, fail it."""
    if os.environ.get("MINAGENT_TEST_EVERY_STORE") == "yes":
        pytest.fail(reason)
    pytest.skip(reason)


def server(database: str = "postgres") -> str:
    """Return a connection string for a database of the server."""
    if SOCKETS not in os.environ:
        cluster()
    return f"postgresql://postgres@/{database}?host={os.environ[SOCKETS]}"


def new_database(options: str = "ENCODING 'UTF8'") -> str:
    """Make a database and return a connection string for it."""
    name = f"test_{secrets.token_hex(8)}"
    execute(server(), f"CREATE DATABASE {name} TEMPLATE template0 {options}")
    return server(name)


def schema_of(folder: Path) -> str:
    """Return the schema that belongs to a test's own folder, also in a new process."""
    return "test_" + hashlib.sha256(str(folder).encode()).hexdigest()[:16]


def opened(folder: Path, **options: Any) -> PostgresSessionManager:
    """Return a manager of the sessions that belong to a test's own folder."""
    return PostgresSessionManager(server(), schema=schema_of(folder), **options)


def execute(conninfo: str, *statements: str) -> list[Any]:
    """Run statements, as another program would, and return the rows of the last."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


class Proxy:
    """Passes on what client and server say, until it is told to lose something.

    Attributes:
        conninfo: Where it listens.
        questions: How many messages it had from clients.
        answered_bytes: How much the server has answered.
        skip: How many messages that could be lost are passed on before.
        lost: Set when something was lost.
        gate: While it is not set, a new connection has to wait.
        refuses: Whether a new connection is closed at once.
    """

    def __init__(self) -> None:
        self.conninfo = ""
        self.questions = self.answered_bytes = self.skip = 0
        self.lost, self.gate = asyncio.Event(), asyncio.Event()
        self.gate.set()
        self.refuses = False
        self._lose: tuple[str, bytes] | None = None
        self._socket = f"{cluster().folder}/.s.PGSQL.5432"
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[Any] = set()

    def lose_answer(self, to: bytes) -> None:
        """Let the server get the next message that says this, and lose its answer."""
        self._lose = "answer", to

    def lose_question(self, saying: bytes) -> None:
        """Lose the next message to the server that says this."""
        self._lose = "question", saying

    def cut(self) -> None:
        """Close all connections."""
        for writer in self._open:
            writer.close()

    @asynccontextmanager
    async def running(self) -> "AsyncIterator[Proxy]":
        serving = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = serving.sockets[0].getsockname()[1]
        self.conninfo = f"postgresql://postgres:secret@127.0.0.1:{port}/postgres"
        yield self
        serving.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(
        self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter
    ) -> None:
        self._tasks.add(asyncio.current_task())
        await self.gate.wait()
        if self.refuses:
            to_client.close()
            return
        server, to_server = await asyncio.open_unix_connection(self._socket)
        writers = {to_client, to_server}
        self._open |= writers
        back = asyncio.ensure_future(self._answer(server, to_client))
        with suppress(OSError):
            await self._ask(client, to_server, server, back)
        self._open -= writers
        for writer in writers:
            writer.close()
        await asyncio.gather(back, return_exceptions=True)

    async def _ask(
        self,
        client: asyncio.StreamReader,
        to_server: asyncio.StreamWriter,
        server: asyncio.StreamReader,
        back: "asyncio.Future[None]",
    ) -> None:
        while said := await client.read(1 << 20):
            self.questions += 1
            if self._lose is None or self._lose[1] not in said:
                to_server.write(said)
            elif self.skip:
                self.skip -= 1
                to_server.write(said)
            else:
                (what, _), self._lose = self._lose, None
                back.cancel()
                await asyncio.gather(back, return_exceptions=True)
                if what == "answer":
                    to_server.write(said)
                    await server.read(1 << 20)  # it answers when it is done
                self.lost.set()
                return

    async def _answer(
        self, server: asyncio.StreamReader, to_client: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError):
            while said := await server.read(1 << 20):
                self.answered_bytes += len(said)
                to_client.write(said)
        to_client.close()
