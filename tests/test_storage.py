"""What a `Storage` promises, and what `FolderStorage` adds to it."""

import asyncio
import os
import stat
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from minagent.errors import KeyTakenError, StoreUnavailableError
from minagent.stores import FolderStorage, MemoryStorage, Storage
from minagent.stores.storage import LEFT_OVER_SECONDS, TEMPORARY, file_name
from minagent.testing import StorageContract

posix = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such thing")


class TestMemoryStorage(StorageContract):
    durable = False

    def open_storage(self, tmp_path: Path) -> Storage:
        return MemoryStorage()


class TestFolderStorage(StorageContract):
    def open_storage(self, tmp_path: Path) -> Storage:
        return FolderStorage(tmp_path / "objects", durability="normal")


class TestFolderStorageThatSyncs(StorageContract):
    def open_storage(self, tmp_path: Path) -> Storage:
        return FolderStorage(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "objects"


@pytest.fixture
def storage(folder: Path) -> FolderStorage:
    return FolderStorage(folder)


def files(folder: Path) -> list[str]:
    found = [path for path in folder.rglob("*") if not path.is_dir()]
    return sorted(path.relative_to(folder).as_posix() for path in found)


def modes(folder: Path) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for path in (folder, *folder.rglob("*")):
        kind = "folder" if path.is_dir() else "file"
        found.setdefault(kind, set()).add(stat.S_IMODE(path.stat().st_mode))
    return found


def path_of(folder: Path, key: str) -> Path:
    return folder.joinpath(*file_name(key))


# --- Making one ---------------------------------------------------------------


def test_making_a_storage_touches_nothing(folder: Path) -> None:
    FolderStorage(folder)

    assert not folder.exists()


def test_a_folder_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="'' is no folder"):
        FolderStorage("")


@pytest.mark.parametrize("durability", ["", "off", None])
def test_an_unknown_durability_is_refused(folder: Path, durability: Any) -> None:
    with pytest.raises(ValueError, match=f"durability is {durability!r}"):
        FolderStorage(folder, durability=durability)


async def test_a_folder_that_cannot_be_made_is_a_named_error(tmp_path: Path) -> None:
    storage = FolderStorage(tmp_path / "not" / "there")

    with pytest.raises(StoreUnavailableError, match="not"):
        await storage.create("a", b"")


# --- Names of files -----------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("sessions/ada.2ftrip/head.json", "sessions/ada.2ftrip/head.json"),
        ("a", "a="),
        ("a.json/b.json", "a.json=/b.json"),
        ("Ada/é.json", "%41da/%c3%a9.json"),
        ("../.a/b.", "%2e%2e/%2ea/b%2e="),
        ("con/nul.json", "%63on/%6eul.json"),
        ("x" * 100, "x" * 80 + "+/" + "x" * 20 + "="),
    ],
)
def test_a_key_is_written_so(key: str, expected: str) -> None:
    assert "/".join(file_name(key)) == expected


def test_no_name_is_too_long_for_a_file_system() -> None:
    for letter in "aA.\u00e9":
        names = file_name(letter * (1_024 // len(letter.encode())))
        assert max(map(len, names)) <= 255


def test_names_differ_by_more_than_upper_and_lower_case() -> None:
    keys = ["ada", "Ada", "aDa", "ADA", "ä", "Ä", "%41da"]

    assert len({"/".join(file_name(key)).casefold() for key in keys}) == len(keys)


# --- Files --------------------------------------------------------------------


@posix
async def test_files_and_folders_are_for_their_owner_only(
    storage: FolderStorage, folder: Path
) -> None:
    # Promise 18
    before = os.umask(0)
    try:
        await storage.create("a/b.json", b"1")
        await storage.replace("a/b.json", b"2")
    finally:
        os.umask(before)

    assert modes(folder) == {"folder": {0o700}, "file": {0o600}}


async def test_nothing_temporary_is_left(storage: FolderStorage, folder: Path) -> None:
    await storage.create("a.json", b"1")
    with pytest.raises(KeyTakenError):
        await storage.create("a.json", b"2")
    await storage.replace("a.json", b"3")

    assert files(folder) == ["a.json"]


async def test_what_a_killed_writer_left_is_ignored_and_in_time_removed(
    storage: FolderStorage, folder: Path
) -> None:
    await storage.create("a.json", b"1")
    old, new = folder / TEMPORARY / "old", folder / TEMPORARY / "new"
    for path in (old, new):
        path.write_bytes(b"half an obj")
    then = time.time() - LEFT_OVER_SECONDS - 1
    os.utime(old, (then, then))

    assert await storage.list("") == ["a.json"]
    await storage.delete("b.json")
    assert not old.exists()
    assert new.exists()


async def test_a_file_of_another_program_is_ignored(
    storage: FolderStorage, folder: Path
) -> None:
    await storage.create("a/b.json", b"1")
    for name in (".DS_Store", "Thumbs.db", "a/Über", "a/b.json~ (copy)", "a/%zz", "+"):
        (folder / name).write_bytes(b"")

    assert await storage.list("") == ["a/b.json"]


async def test_a_folder_goes_with_the_last_object_in_it(
    storage: FolderStorage, folder: Path
) -> None:
    await storage.create("a/secret/b.json", b"1")
    await storage.create("a/c.json", b"1")

    await storage.delete("a/secret/b.json")

    assert [path.name for path in (folder / "a").iterdir()] == ["c.json"]


async def test_creating_and_deleting_in_one_folder_disturb_each_other_not(
    folder: Path,
) -> None:
    """One removes the folder that the other is about to use."""
    storage = FolderStorage(folder, durability="normal")

    async def come_and_go(number: int) -> None:
        for _ in range(30):
            await storage.create(f"a/b/{number}", b"1")
            assert await storage.read(f"a/b/{number}") == b"1"
            await storage.delete(f"a/b/{number}")

    await asyncio.gather(*map(come_and_go, range(4)))

    assert await storage.list("") == []


# --- Symbolic links -----------------------------------------------------------


@posix
class TestSymbolicLinks:
    # Promise 18

    async def test_a_link_in_place_of_an_object_is_not_followed(
        self, storage: FolderStorage, folder: Path, tmp_path: Path
    ) -> None:
        outside = tmp_path / "outside"
        outside.write_bytes(b"outside")
        await storage.create("a/b.json", b"1")
        path_of(folder, "a/c.json").symlink_to(outside)

        with pytest.raises(StoreUnavailableError, match="symbolic link"):
            await storage.read("a/c.json")
        with pytest.raises(StoreUnavailableError, match="symbolic link"):
            await storage.list("")
        with pytest.raises(KeyTakenError):
            await storage.create("a/c.json", b"2")
        await storage.replace("a/c.json", b"3")
        assert await storage.read("a/c.json") == b"3"
        assert outside.read_bytes() == b"outside"

    async def test_nor_is_one_that_leads_nowhere(
        self, storage: FolderStorage, folder: Path, tmp_path: Path
    ) -> None:
        await storage.create("a/b.json", b"1")
        path_of(folder, "a/c.json").symlink_to(tmp_path / "outside")

        with pytest.raises(KeyTakenError):
            await storage.create("a/c.json", b"2")
        assert not (tmp_path / "outside").exists()

    @pytest.mark.parametrize("where", ["", "a", "a/b", TEMPORARY])
    async def test_nor_is_one_in_place_of_a_folder(
        self, storage: FolderStorage, folder: Path, tmp_path: Path, where: str
    ) -> None:
        outside = tmp_path / "outside"
        (outside / "a" / "b").mkdir(parents=True)
        (outside / "b").mkdir()
        link = folder / where if where else folder
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(outside)

        with pytest.raises(StoreUnavailableError, match="symbolic link"):
            await storage.create("a/b/c.json", b"1")
        with pytest.raises(StoreUnavailableError, match="symbolic link"):
            await storage.delete("a/b/c.json")
        assert files(outside) == []


# --- Threads ------------------------------------------------------------------


@posix
async def test_the_event_loop_is_free_while_a_file_is_read(
    storage: FolderStorage, folder: Path
) -> None:
    """A pipe in place of the file: reading it waits until somebody writes."""
    await storage.create("a.json", b"1")
    pipe = path_of(folder, "pipe.json")
    os.mkfifo(pipe)

    reading = asyncio.ensure_future(storage.read("pipe.json"))
    assert await storage.read("a.json") == b"1"
    assert not reading.done()
    await asyncio.to_thread(pipe.write_bytes, b"2")

    assert await reading == b"2"
