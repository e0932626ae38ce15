"""The promises of `Storage`, as tests that every storage inherits.

Write this beside your storage, and run pytest on the file:

    class TestMine(StorageContract):
        def open_storage(self, tmp_path: Path) -> Storage:
            return Mine(tmp_path)

`BlobSessionManager` needs each of these promises: above all that of several racers who
create one key exactly one wins. This file knows no particular storage.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import ClassVar

import pytest
import pytest_asyncio

from minagent.errors import KeyTakenError, StoreClosedError
from minagent.stores import Storage

Reopen = Callable[[], Storage]

RACERS = 64


class StorageContract:
    """Inherit this, write `open_storage`, and pytest grades your storage.

    An ordinary class and no ABC: of an abstract test class pytest collects nothing,
    and stays green.

    Attributes:
        durable: Whether a second storage on the same folder finds what a first one
            stored. Set it to False if the objects live in the storage object.
    """

    pytestmark = pytest.mark.asyncio(loop_scope="function")
    durable: ClassVar[bool] = True

    def open_storage(self, tmp_path: Path) -> Storage:
        """Return your storage; called more than once with one folder.

        Args:
            tmp_path: An empty folder of the test's own.
        """
        raise NotImplementedError(
            f"write open_storage(self, tmp_path) in {type(self).__name__}: it returns "
            "your storage, and may keep things in the folder tmp_path"
        )

    @pytest_asyncio.fixture(loop_scope="function")
    async def reopen(self, tmp_path: Path) -> AsyncIterator[Reopen]:
        """Give a function that opens one more storage on the same place."""
        opened: list[Storage] = []

        def reopen() -> Storage:
            if self.durable or not opened:
                opened.append(self.open_storage(tmp_path))
            return opened[-1]

        yield reopen
        for storage in opened:
            await storage.aclose()

    @pytest.fixture
    def storage(self, reopen: Reopen) -> Storage:
        """Return the storage under test."""
        return reopen()

    # --- create, read, replace, delete ----------------------------------------

    async def test_what_is_not_there_is_none(self, storage: Storage) -> None:
        """To look is not to make."""
        assert await storage.read("a/b.json") is None, "read() of a free key gives None"
        assert await storage.list("") == [], "read() created an object"

    async def test_what_was_created_is_read(self, storage: Storage) -> None:
        """Byte for byte, whatever the bytes are."""
        contents = [b"", b"{}", bytes(range(256)), b"\r\n\x00\x1a", b"x" * 1_000_000]
        for number, data in enumerate(contents):
            await storage.create(f"a/{number}", data)

        for number, data in enumerate(contents):
            found = await storage.read(f"a/{number}")
            assert found == data, (
                f"read() gives other bytes than create() got ({data!r:.20})"
            )

    async def test_a_taken_key_is_refused_and_what_is_there_stays(
        self, storage: Storage
    ) -> None:
        """This is the version check of a session."""
        await storage.create("a", b"first")

        with pytest.raises(KeyTakenError) as raised:
            await storage.create("a", b"second")

        assert raised.value.key == "a", "the error names the wrong key"
        assert await storage.read("a") == b"first", "create() has overwritten an object"

    async def test_replace_stores_whether_or_not_the_key_is_taken(
        self, storage: Storage
    ) -> None:
        """The new object is all that is there."""
        await storage.create("taken", b"a longer object")

        await storage.replace("taken", b"new")
        await storage.replace("free", b"new")

        assert await storage.read("taken") == b"new", "replace() kept the old object"
        assert await storage.read("free") == b"new", "replace() must store anew as well"

    async def test_what_was_deleted_is_gone_and_its_key_is_free(
        self, storage: Storage
    ) -> None:
        """Deleting twice is harmless, since whoever was cut off does it again."""
        await storage.create("a/b", b"1")
        await storage.create("a/c", b"2")

        await storage.delete("a/b")
        await storage.delete("a/b")
        await storage.delete("never/there")

        assert await storage.read("a/b") is None, "delete() left the object"
        assert await storage.list("") == ["a/c"], "list() shows what was deleted"
        await storage.create("a/b", b"3")
        assert await storage.read("a/b") == b"3", "the key was not free again"

    async def test_a_key_may_begin_with_another_key(self, storage: Storage) -> None:
        """A key is a name and no path, though a folder may keep it as one."""
        keys = ["a", "a.json", "a.json/b", "a.json/b.json", "a/b", "a/b/c"]
        for key in keys:
            await storage.create(key, key.encode())

        assert await storage.list("") == sorted(keys), "some keys exclude each other"
        for key in keys:
            assert await storage.read(key) == key.encode(), f"{key!r} has other bytes"

    async def test_every_key_is_an_object_of_its_own(self, storage: Storage) -> None:
        """Also where a file system takes names for the same, or takes them not."""
        keys = ["ada", "Ada", "ADA", "é", "e\u0301", "\ufb01", "fi", "a b", "a ", " a"]
        keys += [
            ".",
            "..",
            "a.",
            "a..",
            ".a",
            "../a",
            "a/../a",
            "./a",
            "con",
            "nul.json",
        ]
        keys += [
            "a\\b",
            "a:b",
            "a*b",
            "a?b",
            "a%2fb",
            "%41",
            "a+",
            "a=",
            "~",
            "-rf",
            "$a",
        ]
        keys += ["x" * 1_024, "\U0001f600" * 255, "x" * 80, "x" * 81, "x" * 80 + "/x"]
        keys += ["A" * 300, "a" * 300, "." * 300, "COM1", "Con/Prn.Aux", "a'b\"c<d>|"]
        for key in keys:
            await storage.create(key, key.encode())

        for key in keys:
            found = await storage.read(key)
            assert found == key.encode(), f"the object {key!r:.40} has other bytes"
        expected = sorted(keys, key=str.encode)
        assert await storage.list("") == expected, "list() gives other keys"

    @pytest.mark.parametrize(
        "key", ["", "/", "/a", "a/", "a//b", "a\x00b", "a\nb", "\ud800", "x" * 1_025]
    )
    async def test_what_is_no_key_is_refused(self, storage: Storage, key: str) -> None:
        """Before anything is done with it."""
        for use in (
            storage.create(key, b""),
            storage.read(key),
            storage.replace(key, b""),
            storage.delete(key),
        ):
            with pytest.raises(ValueError, match="the key"):
                await use
        assert await storage.list("") == [], "something was stored"

    # --- list -----------------------------------------------------------------

    async def test_keys_are_listed_in_the_order_of_their_bytes(
        self, storage: Storage
    ) -> None:
        """U+FFFF comes before U+10000, and `a-` before `a/`."""
        expected = [
            "A",
            "B",
            "a-",
            "a.b",
            "a/b",
            "a/c",
            "a0",
            "b",
            "é",
            "\uffff",
            "\U00010000",
        ]
        for key in reversed(expected):
            await storage.create(key, b"")

        assert await storage.list("") == expected, "list() gives another order"

    async def test_a_prefix_may_end_anywhere(self, storage: Storage) -> None:
        """A prefix is the beginning of a text, and not a folder."""
        for key in ("a/b", "a/bc/d", "a/c", "ab", "b"):
            await storage.create(key, b"")

        assert await storage.list("a/b") == ["a/b", "a/bc/d"], "wrong for 'a/b'"
        assert await storage.list("a/") == ["a/b", "a/bc/d", "a/c"], "wrong for 'a/'"
        assert await storage.list("a") == ["a/b", "a/bc/d", "a/c", "ab"], (
            "wrong for 'a'"
        )
        assert await storage.list("a/bc/") == ["a/bc/d"], "wrong for 'a/bc/'"
        assert await storage.list("c") == [], "wrong for 'c'"
        assert await storage.list("A") == [], "a prefix has letters, upper or lower"

    async def test_pages_hold_every_key_once(self, storage: Storage) -> None:
        """`after` need not be a key: it may have been deleted meanwhile."""
        keys = sorted(f"p/{number % 3}/{number}" for number in range(20))
        for key in [*keys, "o/1", "q/1"]:
            await storage.create(key, b"")

        found: list[str] = []
        while page := await storage.list(
            "p/", after=found[-1] if found else None, limit=3
        ):
            assert len(page) <= 3, "list() gives more than the limit"
            found += page

        assert found == keys, "the pages hold other keys"
        assert await storage.list("p/", after="p/1/~", limit=2) == keys[14:16], (
            "after= must take a text that is no key"
        )
        assert await storage.list("p/", after="a", limit=2) == keys[:2], (
            "after= may stand before the prefix"
        )
        assert await storage.list("p/", after="q") == [], "after= may stand behind it"

    @pytest.mark.parametrize("limit", [0, -1])
    async def test_a_page_has_room_for_one(self, storage: Storage, limit: int) -> None:
        """Else a caller who counts down would be given everything, or nothing."""
        with pytest.raises(ValueError, match="limit"):
            await storage.list("", limit=limit)

    # --- Others ---------------------------------------------------------------

    async def test_of_many_racers_one_creates(self, storage: Storage) -> None:
        """All that keeps sessions whole hangs on this."""

        async def create(number: int) -> bool:
            try:
                await storage.create("race", f"{number}".encode())
            except KeyTakenError:
                return False
            return True

        won = await asyncio.gather(*map(create, range(RACERS)))

        assert sum(won) == 1, f"of {RACERS} racers {sum(won)} have won"
        assert await storage.read("race") == f"{won.index(True)}".encode(), (
            "the object is not that of the winner"
        )

    async def test_a_reader_finds_all_of_an_object_or_nothing(
        self, storage: Storage
    ) -> None:
        """Also while it is created, and replaced."""
        first, second = b"1" * 300_000, b"2" * 300_000
        found = []

        async def look() -> None:
            while second not in found:
                found.append(await storage.read("a"))

        looking = asyncio.ensure_future(look())
        await storage.create("a", first)
        await storage.replace("a", second)
        await looking

        assert set(found) <= {None, first, second}, "a reader has met a torn object"

    async def test_another_storage_finds_what_was_stored(self, reopen: Reopen) -> None:
        """A restart, or another process."""
        first = reopen()
        await first.create("a", b"1")
        second = reopen()

        assert await second.read("a") == b"1", "a second storage misses an object"
        with pytest.raises(KeyTakenError):
            await second.create("a", b"2")
        await second.delete("a")
        assert await first.read("a") is None, "the first one shows what is deleted"

    async def test_a_closed_storage_refuses_every_use(self, storage: Storage) -> None:
        """And closing twice is harmless."""
        async with storage as entered:
            assert entered is storage, "async with must give the storage"
            await storage.create("a", b"1")
        await storage.aclose()

        uses: list[Callable[[], Awaitable[object]]] = [
            lambda: storage.create("b", b""),
            lambda: storage.read("a"),
            lambda: storage.replace("a", b""),
            lambda: storage.list(""),
            lambda: storage.delete("a"),
        ]
        for use in uses:
            with pytest.raises(StoreClosedError):
                await use()
