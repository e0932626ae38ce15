"""What `S3Storage` promises: the contract over real HTTP, and what a network adds."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import s3
from aiobotocore.config import AioConfig

import minagent
from minagent import Event, Message
from minagent.errors import (
    KeyTakenError,
    SessionConflictError,
    StoreClosedError,
    StoreUnavailableError,
)
from minagent.stores import BlobSessionManager, Storage
from minagent.stores.s3 import PAUSES, S3Storage, key_of_name, name_of_key

pytestmark = pytest.mark.heavy

ONCE = AioConfig(retries={"total_max_attempts": 1})
"""A client that does not try again, so that a test sees each failure."""


@pytest.fixture
def bucket() -> str:
    return s3.new_bucket()


@pytest.fixture
async def storage(bucket: str) -> AsyncIterator[S3Storage]:
    async with S3Storage(bucket, endpoint=s3.endpoint()) as storage:
        yield storage


# --- The line to the server ---------------------------------------------------


class Line:
    """An HTTP proxy before the server: what it does to requests, a test says.

    Attributes:
        requests: The methods of the requests that came.
        answers: What the next requests of a method get instead of the server's answer.
        lost: How many answers of a method are lost, after the server has done its work.
        cut: By how many bytes the answers are too short.
        held: The answers to requests of a method wait for this event.
        came: Is set when the server has answered a request.
    """

    def __init__(self, place: str) -> None:
        self.requests: list[str] = []
        self.answers: dict[str, list[bytes]] = {}
        self.lost: dict[str, int] = {}
        self.cut = 0
        self.held: dict[str, asyncio.Event] = {}
        self.came = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None] | None] = set()
        self._to = urlsplit(place)
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            left = [task for task in self._serving if task is not None]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            await self._server.wait_closed()

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        self._serving.add(task)
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                writer.write(await self._answer(reader, writer))
                await writer.drain()
        finally:
            self._serving.discard(task)
            writer.close()

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bytes:
        first, *lines = (await reader.readuntil(b"\r\n\r\n"))[:-4].split(b"\r\n")
        headers = {
            name.lower(): value
            for name, _, value in (line.partition(b": ") for line in lines)
        }
        if headers.pop(b"expect", None):
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        headers[b"connection"] = b"close"
        body = await reader.readexactly(int(headers.get(b"content-length", 0)))
        method = first.partition(b" ")[0].decode()
        self.requests.append(method)
        if self.answers.get(method):
            return self.answers[method].pop(0)
        parts = [first, *(name + b": " + value for name, value in headers.items())]
        answer = await self._forwarded(b"\r\n".join(parts) + b"\r\n\r\n" + body)
        self.came.set()
        if method in self.held:
            await self.held[method].wait()
        if self.lost.get(method):
            self.lost[method] -= 1
            return b""
        return answer[: len(answer) - self.cut]

    async def _forwarded(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(self._to.hostname, self._to.port)
        try:
            writer.write(request)
            return await reader.read()
        finally:
            writer.close()


def answer(status: str, code: str) -> bytes:
    body = f"<Error><Code>{code}</Code><Message>So it is.</Message></Error>"
    return whole(status, "application/xml", body)


def whole(status: str, kind: str, body: str) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nConnection: close\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()


CONFLICT = answer("409 Conflict", "ConditionalRequestConflict")


@pytest.fixture
async def line() -> AsyncIterator[Line]:
    line = Line(s3.endpoint())
    await line.open()
    yield line
    await line.close()


@pytest.fixture
async def far(line: Line, bucket: str) -> AsyncIterator[S3Storage]:
    """A storage at the other end of the line."""
    async with S3Storage(bucket, endpoint=line.url) as storage:
        yield storage


# --- Making one ---------------------------------------------------------------


def test_making_a_storage_touches_nothing() -> None:
    S3Storage("nowhere", prefix="a/b", endpoint="http://127.0.0.1:1", region="x")


@pytest.mark.parametrize("bucket", ["", "a/b", "s3://a"])
def test_what_is_no_bucket_is_refused(bucket: str) -> None:
    with pytest.raises(ValueError, match="is no bucket; a folder in it is the prefix"):
        S3Storage(bucket)


@pytest.mark.parametrize("prefix", ["a//b", "a\nb", "\ud800", "x" * 1_025])
def test_a_prefix_that_no_key_can_have_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="the key"):
        S3Storage("bucket", prefix=prefix)


@pytest.mark.parametrize("prefix", [".", "..", "a/../b"])
def test_a_prefix_that_might_lead_elsewhere_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="a part of dots alone"):
        S3Storage("bucket", prefix=prefix)


@pytest.mark.parametrize("endpoint", ["", "localhost:9000", "http://", "s3://a"])
def test_an_endpoint_without_http_is_refused(endpoint: str) -> None:
    with pytest.raises(ValueError, match="does not begin with http"):
        S3Storage("bucket", endpoint=endpoint)


def test_without_its_extra_it_says_what_to_install() -> None:
    done = run("""
import sys
sys.modules["aiobotocore"] = None
try:
    import minagent.stores.s3
except ModuleNotFoundError as error:
    print(error)
""")

    assert done.stdout == (
        "minagent.stores.s3 needs aiobotocore: pip install 'minagent[s3]'\n"
    )


# --- Creating -----------------------------------------------------------------


async def test_of_64_racing_creates_through_many_clients_one_wins(bucket: str) -> None:
    # O13
    storages = [S3Storage(bucket, endpoint=s3.endpoint()) for _ in range(8)]

    async def create(number: int) -> bool:
        with suppress(KeyTakenError):
            await storages[number % 8].create("a", f"{number}".encode())
            return True
        return False

    won = await asyncio.gather(*map(create, range(64)))

    assert sum(won) == 1
    assert await storages[0].read("a") == f"{won.index(True)}".encode()
    for storage in storages:
        await storage.aclose()


async def test_a_creation_that_meets_another_one_is_tried_again(
    far: S3Storage, line: Line
) -> None:
    line.answers["PUT"] = [CONFLICT, CONFLICT]

    await far.create("a", b"1")

    assert await far.read("a") == b"1"
    assert line.requests == ["PUT", "PUT", "PUT", "GET"]


async def test_a_creation_that_has_lost_to_another_one_finds_the_key_taken(
    far: S3Storage, line: Line, storage: S3Storage
) -> None:
    await storage.create("a", b"theirs")
    line.answers["PUT"] = [CONFLICT]

    with pytest.raises(KeyTakenError):
        await far.create("a", b"mine")


async def test_a_creation_is_not_tried_for_ever(far: S3Storage, line: Line) -> None:
    line.answers["PUT"] = [CONFLICT] * 100

    with pytest.raises(StoreUnavailableError, match="ConditionalRequestConflict"):
        await far.create("a", b"1")

    assert line.requests == ["PUT"] * (len(PAUSES) + 1)


async def test_a_server_that_cannot_create_only_if_absent_is_a_named_error(
    far: S3Storage, line: Line
) -> None:
    line.answers["PUT"] = [answer("501 Not Implemented", "NotImplemented")]

    with pytest.raises(StoreUnavailableError, match="NotImplemented"):
        await far.create("a", b"1")


# --- A lost answer ------------------------------------------------------------


def said(text: str) -> Event:
    return Event(author="user", content=(Message(role="user", content=text),))


def texts(events: Any) -> list[str]:
    return [item.content for event in events for item in event.content]


@pytest.mark.parametrize("config", [None, ONCE], ids=["tries again", "gives up"])
async def test_a_save_whose_answer_was_lost_is_no_conflict_and_stands_there_once(
    bucket: str, line: Line, config: AioConfig | None
) -> None:
    # Promise 15
    store = BlobSessionManager(S3Storage(bucket, endpoint=line.url, config=config))
    async with store:
        session = await store.create("ada")
        for number in range(3):
            line.lost["PUT"] = 1
            session.append(said(f"{number}"))
            await store.save(session)
            assert line.lost["PUT"] == 0

        found = await BlobSessionManager(
            S3Storage(bucket, endpoint=s3.endpoint())
        ).get_or_create("ada")

    assert texts(found.events) == ["0", "1", "2"]
    assert (session.version, session.unsaved) == (3, ())


async def test_a_conflict_is_one_also_where_answers_are_lost(
    bucket: str, line: Line, storage: S3Storage
) -> None:
    async with BlobSessionManager(S3Storage(bucket, endpoint=line.url)) as store:
        mine = await store.create("ada")
        other = BlobSessionManager(storage)
        theirs = await other.get_or_create("ada")
        theirs.append(said("theirs"))
        await other.save(theirs)
        line.lost["PUT"] = 1

        mine.append(said("mine"))
        with pytest.raises(SessionConflictError):
            await store.save(mine)

    assert texts((await other.get_or_create("ada")).events) == ["theirs"]


# --- What cannot be done ------------------------------------------------------

Use = Callable[[Storage], Coroutine[Any, Any, object]]
USES: dict[str, Use] = {
    "create": lambda storage: storage.create("a", b"1"),
    "read": lambda storage: storage.read("a"),
    "replace": lambda storage: storage.replace("a", b"1"),
    "list": lambda storage: storage.list(""),
    "delete": lambda storage: storage.delete("a"),
}
each_use = pytest.mark.parametrize("use", USES.values(), ids=USES.keys())


@each_use
async def test_a_bucket_that_is_not_there_is_a_named_error(use: Use) -> None:
    """Above all `read` must not say that there is no such object."""
    async with S3Storage("nowhere", prefix="a/b", endpoint=s3.endpoint()) as storage:
        with pytest.raises(
            StoreUnavailableError, match="there is no bucket 'nowhere'; make it"
        ) as raised:
            await use(storage)

    assert raised.value.place == "s3://nowhere/a/b"


@each_use
async def test_a_server_that_is_gone_is_a_named_error_and_found_when_it_is_back(
    bucket: str, line: Line, use: Use
) -> None:
    async with S3Storage(bucket, endpoint=line.url, config=ONCE) as storage:
        await storage.replace("b", b"")
        await line.close()
        with pytest.raises(StoreUnavailableError, match="Could not connect"):
            await use(storage)

        await line.open()
        await use(storage)


@each_use
async def test_a_refusal_is_a_named_error(far: S3Storage, line: Line, use: Use) -> None:
    denied = answer("403 Forbidden", "AccessDenied")
    line.answers = {method: [denied] for method in ("PUT", "GET", "DELETE")}

    with pytest.raises(StoreUnavailableError, match="AccessDenied"):
        await use(far)


async def test_an_answer_that_breaks_off_is_a_named_error(
    bucket: str, line: Line, storage: S3Storage
) -> None:
    await storage.create("a", b"a long object")
    async with S3Storage(bucket, endpoint=line.url, config=ONCE) as far:
        line.cut = 3
        with pytest.raises(StoreUnavailableError):
            await far.read("a")
        with pytest.raises(StoreUnavailableError):
            await far.list("")
        line.cut = 0

        assert await far.read("a") == b"a long object"


@pytest.mark.parametrize("page", ["<p>Welcome<br>", "<html><p>Welcome</p></html>", ""])
async def test_a_page_of_some_other_server_is_no_empty_list(
    bucket: str, line: Line, page: str
) -> None:
    """Such as the one that asks for a password in a hotel."""
    line.answers["GET"] = [whole("200 OK", "text/html", page)]
    async with S3Storage(bucket, endpoint=line.url, config=ONCE) as far:
        with pytest.raises(StoreUnavailableError):
            await far.list("")


@each_use
async def test_missing_credentials_are_a_named_error_that_says_which(
    bucket: str, monkeypatch: pytest.MonkeyPatch, use: Use
) -> None:
    place = s3.endpoint()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)

    async with S3Storage(bucket, endpoint=place) as storage:
        with pytest.raises(StoreUnavailableError, match="set AWS_ACCESS_KEY_ID and"):
            await use(storage)


async def test_credentials_that_come_over_the_network_are_asked_for_once(
    bucket: str, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a container gets those of its role; the first calls come all at once."""
    place = s3.endpoint()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", line.url)
    role = '{"AccessKeyId": "a", "SecretAccessKey": "b", "Token": "c", "Expiration": '
    body = role + '"2099-01-01T00:00:00Z"}'
    line.answers["GET"] = [whole("200 OK", "application/json", body)] * 9

    async with S3Storage(bucket, endpoint=place) as storage:
        await asyncio.gather(*(storage.read("a") for _ in range(9)))

    assert line.requests == ["GET"]


async def test_half_of_the_credentials_is_no_less_an_error(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one that is met before there is a client; the next call makes it."""
    async with S3Storage(bucket, endpoint=s3.endpoint()) as storage:
        with monkeypatch.context() as without:
            without.delenv("AWS_SECRET_ACCESS_KEY")
            with pytest.raises(StoreUnavailableError, match="AWS_SECRET_ACCESS_KEY"):
                await storage.read("a")

        assert await storage.read("a") is None


async def test_a_bad_name_of_a_bucket_is_a_named_error() -> None:
    async with S3Storage("no such name", endpoint=s3.endpoint()) as storage:
        with pytest.raises(StoreUnavailableError, match="no such name"):
            await storage.read("a")


# --- Keys and prefixes --------------------------------------------------------


async def test_only_what_is_below_the_prefix_is_seen(bucket: str) -> None:
    place = s3.endpoint()
    s3.fill(bucket, ["a", "team/a", "team/b/c", "team2/a", "tea", "teal/a"])

    async with S3Storage(bucket, prefix="/team/", endpoint=place) as storage:
        await storage.create("d", b"1")

        assert await storage.list("") == ["a", "b/c", "d"]
        assert await storage.list("", after="a") == ["b/c", "d"]
        assert await storage.list("b") == ["b/c"]
        assert await storage.list("", after="", limit=1) == ["a"]
        assert await storage.read("team/a") is None

    async with S3Storage(bucket, endpoint=place) as whole:
        assert await whole.read("team/d") == b"1"


async def test_storages_with_different_prefixes_share_nothing(bucket: str) -> None:
    place = s3.endpoint()
    one = S3Storage(bucket, prefix="a", endpoint=place)
    two = S3Storage(bucket, prefix="a/b", endpoint=place)

    await one.create("c", b"1")
    await two.create("c", b"2")
    await two.delete("c")

    assert await one.read("c") == b"1"
    assert await two.list("") == []
    await one.aclose()
    await two.aclose()


async def test_a_key_that_is_too_long_with_the_prefix_is_refused(bucket: str) -> None:
    async with S3Storage(bucket, prefix="p" * 99, endpoint=s3.endpoint()) as storage:
        await storage.create("x" * 924, b"1")
        assert await storage.list("") == ["x" * 924]
        with pytest.raises(ValueError, match="has 1025 bytes where the prefix"):
            await storage.create("x" * 925, b"1")


async def test_an_id_of_255_bytes_is_a_session_below_a_prefix_of_140(
    bucket: str,
) -> None:
    inner = S3Storage(bucket, prefix="p" * 140, endpoint=s3.endpoint())
    async with BlobSessionManager(inner) as store:
        await store.create("é" * 127 + "E", "ann")

        [info] = await store.list(user_id="ann")

    assert info.session_id == "é" * 127 + "E"


ODD = [
    ".",
    "..",
    "./a",
    "../a",
    ".a",
    "..a",
    "a/.",
    "a/..",
    "a/../a",
    "a/.b",
    "._",
    "_",
]
ODD += ["...", "._.", "a._b", "a.b", "a/._/.", "-", "0", "a", "a-"]


def test_a_name_in_the_bucket_can_be_read_back() -> None:
    assert [key_of_name(name_of_key(key)) for key in ODD] == ODD


def test_names_in_the_bucket_have_the_order_of_the_keys() -> None:
    assert sorted(ODD, key=name_of_key) == sorted(ODD)


def test_no_name_in_the_bucket_has_a_part_of_dots_alone() -> None:
    parts = {part for key in ODD for part in name_of_key(key).split("/")}

    assert parts.isdisjoint({".", "..", "..."})


@pytest.mark.parametrize("name", [".a", "a/", "a//b", "/a", "a\x01b", "a/.", ""])
def test_a_name_that_no_key_is_written_as_is_none(name: str) -> None:
    assert key_of_name(name) is None


async def test_objects_of_other_programs_are_passed_over(
    bucket: str, storage: S3Storage
) -> None:
    """Such as the empty object `folder/` of Amazon's own page."""
    await storage.create("a/b", b"1")
    await storage.create("z", b"1")
    s3.fill(bucket, ["a/", ".dot", "m\x01n", "a/c//d"])

    assert await storage.list("") == ["a/b", "z"]
    assert await storage.list("", limit=2) == ["a/b", "z"]
    assert await storage.list("", after="a/b", limit=1) == ["z"]


AFTER = [
    "",
    "\x00",
    "b\x00",
    "b\x1fz",
    "b\x7f",
    "b\ud800",
    "b\x80",
    "b" + "\uffff" * 400,
]
AFTER += ["a", "b", "b/", "b/.", "b/..", "b/c", "ba", "c" * 2_000, "\U0010ffff" * 300]


async def test_a_list_goes_on_after_any_text(storage: S3Storage) -> None:
    keys = ["a", "b", "b ", "b/.", "b/c", "b~", "b\u00a0", "b\ue000", "c", "c" * 1_000]
    await asyncio.gather(*(storage.create(key, b"") for key in keys))

    for after in AFTER:
        expected = [key for key in sorted(keys, key=str.encode) if key > after]
        assert await storage.list("", after=after) == expected
        assert await storage.list("", after=after, limit=2) == expected[:2]


async def test_nothing_begins_with_what_no_key_has(storage: S3Storage) -> None:
    await storage.create("a" * 1_000, b"")

    for prefix in ("\x00", "a\x00", "a\ud800", "a" * 2_000, "a//", "\uffff"):
        assert await storage.list(prefix) == []


async def test_2500_keys_are_listed_over_pages(bucket: str, storage: S3Storage) -> None:
    keys = [f"a/{number:04}" for number in range(2_500)]
    s3.fill(bucket, [*keys, "b"])

    assert await storage.list("a/") == keys
    assert await storage.list("a/", limit=2_001) == keys[:2_001]
    assert await storage.list("a/", after=keys[1_200]) == keys[1_201:]
    assert await storage.list("a/", after=keys[10], limit=3) == keys[11:14]


# --- Cancelling and closing ---------------------------------------------------


async def test_after_a_call_that_was_cancelled_the_storage_is_as_good_as_new(
    far: S3Storage, line: Line
) -> None:
    await far.create("b", b"1")
    for method, use in [("GET", "read"), ("PUT", "create"), ("DELETE", "delete")] * 2:
        line.held = {method: asyncio.Event()}
        line.came.clear()
        call = asyncio.ensure_future(USES[use](far))
        await line.came.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        line.held.clear()

        assert await far.read("b") == b"1"


async def test_a_cancel_while_the_client_is_made_leaves_no_trace(bucket: str) -> None:
    for steps in (0, 1, 2, 4, 8):
        async with S3Storage(bucket, endpoint=s3.endpoint()) as storage:
            first = asyncio.ensure_future(storage.read("a"))
            second = asyncio.ensure_future(storage.read("a"))
            for _ in range(steps):
                await asyncio.sleep(0)
            first.cancel()
            with suppress(asyncio.CancelledError):
                await first

            assert await second is None


async def test_a_close_waits_for_the_calls_that_are_at_work(
    far: S3Storage, line: Line, storage: S3Storage
) -> None:
    line.held["PUT"] = asyncio.Event()
    call = asyncio.ensure_future(far.create("a", b"1"))
    await line.came.wait()

    closing = asyncio.ensure_future(far.aclose())
    await asyncio.sleep(0)
    with pytest.raises(StoreClosedError):
        await far.read("a")
    assert not closing.done()
    line.held["PUT"].set()
    await asyncio.gather(closing, call)

    assert await storage.read("a") == b"1"


async def test_a_storage_that_was_never_used_can_be_closed(bucket: str) -> None:
    storage = S3Storage(bucket, endpoint=s3.endpoint())

    await storage.aclose()

    with pytest.raises(StoreClosedError):
        await storage.list("")


# --- Event loops --------------------------------------------------------------


def test_each_event_loop_has_a_client_of_its_own(bucket: str) -> None:
    # O16
    storage = S3Storage(bucket, endpoint=s3.endpoint())

    asyncio.run(storage.create("a", b"1"))
    found = asyncio.run(storage.read("a"))
    asyncio.run(storage.aclose())

    assert found == b"1"


def test_event_loops_of_two_threads_use_one_storage_at_once(bucket: str) -> None:
    storage = S3Storage(bucket, endpoint=s3.endpoint())
    both = threading.Barrier(2, timeout=30)
    wins: list[str] = []

    async def work(name: str) -> None:
        await storage.read("a")
        both.wait()
        for number in range(10):
            with suppress(KeyTakenError):
                await storage.create(f"{number}", name.encode())
                wins.append(f"{number}")

    threads = [
        threading.Thread(target=asyncio.run, args=[work(name)]) for name in ("x", "y")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(wins) == [f"{number}" for number in range(10)]
    asyncio.run(storage.aclose())


def test_a_close_in_one_event_loop_closes_those_of_others(bucket: str) -> None:
    storage = S3Storage(bucket, endpoint=s3.endpoint())
    used, closed = threading.Event(), threading.Event()

    async def elsewhere() -> None:
        await storage.create("a", b"1")
        used.set()
        await asyncio.to_thread(closed.wait, 30)
        with pytest.raises(StoreClosedError):
            await storage.read("a")

    thread = threading.Thread(target=asyncio.run, args=[elsewhere()])
    thread.start()
    used.wait(30)
    asyncio.run(storage.aclose())
    closed.set()
    thread.join()


HEAD = """
import asyncio, gc, os, sys
from minagent.stores.s3 import S3Storage

async def use(storage):
    await storage.replace("a", b"1")
    await asyncio.gather(*(storage.read("a") for _ in range(5)))
    assert await storage.read("a") == b"1"

def new():
    return S3Storage(os.environ["BUCKET"], endpoint=os.environ["MINAGENT_TEST_S3"])

storage = new()
"""
PROGRAMS = {
    "never closed": "asyncio.run(use(storage))",
    "used in two event loops and closed in a third": """
asyncio.run(use(storage))
asyncio.run(use(storage))
asyncio.run(storage.aclose())
""",
    "closed in an event loop that nobody tidies up": """
async def main():
    await use(storage)
    await storage.aclose()
    assert asyncio.all_tasks() == {asyncio.current_task()}

loop = asyncio.new_event_loop()
loop.run_until_complete(main())
loop.close()
""",
    "dropped while the event loop goes on": """
async def main():
    await use(new())
    gc.collect()
    await asyncio.sleep(0.1)

asyncio.run(main())
gc.collect()
""",
    "broken off in mid-call": """
async def main():
    calls = [asyncio.ensure_future(use(storage)) for _ in range(5)]
    await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)

asyncio.run(main())
""",
    "closed by async with": """
async def main():
    async with new() as mine:
        await use(mine)

asyncio.run(main())
""",
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_a_program_ends_without_a_warning(bucket: str, program: str) -> None:
    s3.endpoint()

    done = run(HEAD + program, BUCKET=bucket)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own, with every warning an error."""
    package = str(Path(minagent.__file__).parents[1])
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env=os.environ | {"PYTHONPATH": package} | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


# --- A server of its own ------------------------------------------------------


async def test_a_server_in_another_process_will_do_as_well() -> None:
    with s3.server_process() as place:
        async with S3Storage(s3.new_bucket(place), endpoint=place) as storage:
            await storage.create("a", b"1")

            assert await storage.read("a") == b"1"
