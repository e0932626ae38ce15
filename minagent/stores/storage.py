"""Bytes under keys: what `BlobSessionManager` needs of a place, and two such places.

A `Storage` is six verbs. `create` is the one that everything hangs on: of several
racers for one key exactly one wins. `MemoryStorage` is the shortest whole example,
`FolderStorage` keeps each object in a file of its own, and
`minagent.testing.StorageContract` holds a storage of your own to the promises.

A key is 1 to 1,024 bytes of UTF-8 without control characters, parts with `/` between
them, none of them empty. Keys are compared byte for byte.

This file knows nothing of sessions.
"""

import asyncio
import os
import re
import secrets
import stat
import time
import unicodedata
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Literal, Self, TypeVar
from urllib.parse import unquote_to_bytes

from minagent.errors import KeyTakenError, StoreClosedError, StoreUnavailableError
from minagent.session import finished

T = TypeVar("T")


class Storage(ABC):
    """Keeps bytes under keys.

    A verb that could not be carried out raises `StoreUnavailableError`, or an
    `OSError`; whether a write was done is then not known, and the caller looks. After
    `aclose` every verb raises `StoreClosedError`; a key that is none is a `ValueError`.
    """

    @abstractmethod
    async def create(self, key: str, data: bytes) -> None:
        """Store an object under a free key; of several racers exactly one wins.

        When this returns the object is safe, and a reader finds all of it or nothing.

        Raises:
            KeyTakenError: There is an object under the key; it stays as it is.
        """

    @abstractmethod
    async def read(self, key: str) -> bytes | None:
        """Return an object as it was last stored, or None if there is none."""

    @abstractmethod
    async def replace(self, key: str, data: bytes) -> None:
        """Store an object under a key, whether it is taken or free.

        A reader finds all of the old object or all of the new one.
        """

    @abstractmethod
    async def list(
        self, prefix: str, *, after: str | None = None, limit: int | None = None
    ) -> "list[str]":
        """Return the keys that begin with a prefix, in the order of their bytes.

        What was stored before the call is found; what is stored meanwhile may be.

        Args:
            prefix: How the keys begin; it may end in the middle of a part.
            after: Only keys behind this text, which need not be a key.
            limit: How many at most, at least 1; None means all.
        """

    @abstractmethod
    async def delete(self, key: str) -> None:
        """Remove an object. Deleting what is not there is harmless."""

    @abstractmethod
    async def aclose(self) -> None:
        """Let go of all resources. Closing twice is harmless."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def check_key(key: str) -> None:
    """Check a key before anything is done with it.

    Raises:
        ValueError: It is none that every storage can keep.
    """
    problem = None
    if not 1 <= len(key.encode(errors="replace")) <= 1_024:
        problem = "is not 1 to 1,024 bytes long"
    elif any(unicodedata.category(letter) in ("Cc", "Cs") for letter in key):
        problem = "holds a control character, or half an emoji"
    elif not all(key.split("/")):
        problem = "has an empty part"
    if problem:
        raise ValueError(f"the key {key!r:.80} {problem}")


def check_limit(limit: int | None) -> None:
    """Check how many keys `Storage.list` was asked for.

    Raises:
        ValueError: The limit is below 1.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit is {limit}; a page has at least 1")


class MemoryStorage(Storage):
    """Keeps objects in a dictionary: for tests, and as the model of a storage."""

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}
        self._keys: list[str] = []  # sorted; code points sort as their bytes do
        self._closed = False
        # Several event loops, in threads of their own, may share one storage.
        self._lock = Lock()

    async def create(self, key: str, data: bytes) -> None:
        check_key(key)
        with self._open():
            if key in self._objects:
                raise KeyTakenError(key)
            self._put(key, data)

    async def read(self, key: str) -> bytes | None:
        check_key(key)
        with self._open():
            return self._objects.get(key)

    async def replace(self, key: str, data: bytes) -> None:
        check_key(key)
        with self._open():
            self._put(key, data)

    async def list(
        self, prefix: str, *, after: str | None = None, limit: int | None = None
    ) -> "list[str]":
        check_limit(limit)
        with self._open():
            start = bisect_left(self._keys, prefix)
            if after is not None:
                start = max(start, bisect_right(self._keys, after))
            found: list[str] = []
            for at in range(start, len(self._keys)):
                if not self._keys[at].startswith(prefix) or len(found) == limit:
                    break
                found.append(self._keys[at])
            return found

    async def delete(self, key: str) -> None:
        check_key(key)
        with self._open():
            if self._objects.pop(key, None) is not None:
                del self._keys[bisect_left(self._keys, key)]

    async def aclose(self) -> None:
        self._closed = True

    def _put(self, key: str, data: bytes) -> None:
        if key not in self._objects:
            insort(self._keys, key)
        self._objects[key] = bytes(data)

    @contextmanager
    def _open(self) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise StoreClosedError(store=type(self).__name__)
            yield


# --- Files --------------------------------------------------------------------

LEFT_OVER_SECONDS = 600.0
"""How old a temporary file is when its writer counts as killed.

Nothing is lost if it was only slow: it writes again."""

TEMPORARY = ".writing"
"""The folder of what is being written; no key has a name that begins with a dot."""

PIECE = 80
"""How many bytes of a key's part go into one name, so that three letters each fit."""


class FolderStorage(Storage):
    """Keeps each object in a file of its own, for any number of processes.

    An object is written under a temporary name, synced, and then linked to its own
    name, which fails if that is taken: so a torn file is never seen. The files are
    readable by their owner only, and no symbolic link inside the folder is followed.

    A key is a path: its parts but the last are folders. What a file system might not
    keep apart (upper case, letters beyond ASCII, names such as `con`) is written as in
    a URL, `%41`; `file_name` says how in full.

    Args:
        folder: The folder; it is made, for its owner only, if it is not there.
        durability: `full`: what is acknowledged survives a power loss. `normal`: it
            survives a crash of the program, and writing is faster.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        durability: Literal["full", "normal"] = "full",
    ) -> None:
        if str(folder) == "":
            raise ValueError("'' is no folder")
        if durability not in ("full", "normal"):
            raise ValueError(f"durability is {durability!r}, not 'full' or 'normal'")
        self._folder = Path(folder).absolute()
        self._durable = durability == "full"
        self._closed = False

    async def create(self, key: str, data: bytes) -> None:
        check_key(key)
        await self._in_a_thread(lambda: self._write(key, data, _link))

    async def read(self, key: str) -> bytes | None:
        check_key(key)
        return await self._in_a_thread(lambda: self._read(key))

    async def replace(self, key: str, data: bytes) -> None:
        check_key(key)
        await self._in_a_thread(lambda: self._write(key, data, _move))

    async def list(
        self, prefix: str, *, after: str | None = None, limit: int | None = None
    ) -> "list[str]":
        check_limit(limit)
        found = await self._in_a_thread(lambda: sorted(self._found(prefix, after)))
        return [key.decode() for key in found[:limit]]

    async def delete(self, key: str) -> None:
        check_key(key)
        await self._in_a_thread(lambda: self._delete(key))

    async def aclose(self) -> None:
        self._closed = True

    async def _in_a_thread(self, work: Callable[[], T]) -> T:
        if self._closed:
            raise StoreClosedError(store=type(self).__name__)
        try:
            # To its end: whoever is cancelled finds the folder as it stays.
            loop = asyncio.get_running_loop()
            return await finished(loop.run_in_executor(None, work))
        except OSError as error:
            raise StoreUnavailableError(
                place=str(self._folder), problem=str(error)
            ) from error

    # The rest runs in threads.

    def _write(
        self, key: str, data: bytes, place: Callable[[str, str, str], None]
    ) -> None:
        folder, name = self._path(key)
        temporary = self._folder / TEMPORARY
        self._make(self._folder)
        for _ in range(100):
            made = temporary / secrets.token_hex(16)
            try:
                self._make(folder)
                self._make(temporary)
                self._write_file(made, data)
                place(str(made), str(folder / name), key)
            except FileNotFoundError:
                continue  # its folder was empty, and somebody has just removed it
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(made)
            self._sync(folder)
            return
        raise OSError(f"the folder of {key!r} is removed again and again")

    def _write_file(self, path: Path, data: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        with open(os.open(path, flags, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            if self._durable:
                os.fsync(file.fileno())

    def _read(self, key: str) -> bytes | None:
        folder, name = self._path(key)
        flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)
        try:
            self._check(folder / name)
            with open(os.open(folder / name, flags), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def _delete(self, key: str) -> None:
        folder, name = self._path(key)
        self._remove_left_overs()
        try:
            self._check(folder)
            os.unlink(folder / name)
        except FileNotFoundError:
            return
        self._sync(folder)
        # A name tells of what it held; so a folder goes with the last thing in it.
        while folder != self._folder:
            try:
                os.rmdir(folder)
            except OSError:
                return  # there is something else in it
            folder = folder.parent
            self._sync(folder)

    def _remove_left_overs(self) -> None:
        with suppress(FileNotFoundError):
            self._check(self._folder / TEMPORARY)
            for entry in [*os.scandir(self._folder / TEMPORARY)]:
                with suppress(FileNotFoundError):
                    age = time.time() - entry.stat(follow_symlinks=False).st_mtime
                    if age > LEFT_OVER_SECONDS:
                        os.unlink(entry.path)

    def _found(self, prefix: str, after: str | None) -> Iterator[bytes]:
        """Yield the keys that a list is about, from the folder that all are in."""
        above, slash, _ = prefix.rpartition("/")
        if slash and not all(above.split("/")):
            return  # no key has an empty part
        folder, start = self._folder, f"{above}{slash}"
        if start:
            folder = folder.joinpath(*file_name(f"{start}-")[:-1])
        try:
            self._check(folder)
        except FileNotFoundError:
            return
        first = start.encode(), prefix.encode(), (after or "").encode()
        yield from self._keys(str(folder), *first)

    def _keys(
        self, folder: str, start: bytes, prefix: bytes, after: bytes
    ) -> Iterator[bytes]:
        """Yield the keys below a folder, whose own path says how they start."""
        try:
            _refuse_link(folder)
            entries = [*os.scandir(folder)]
        except FileNotFoundError:
            return
        for entry in entries:
            if (found := _part(entry.name)) is None:
                continue  # of somebody else, or just being written
            part, end = found
            key = start + part + (b"/" if end == "folder" else b"")
            if end == "file":
                if key.startswith(prefix) and key > after:
                    if entry.is_symlink():
                        _refuse_link(entry.path)
                    yield key
            elif (key.startswith(prefix) or prefix.startswith(key)) and (
                key > after or after.startswith(key)
            ):
                yield from self._keys(entry.path, key, prefix, after)

    def _path(self, key: str) -> tuple[Path, str]:
        *folders, name = file_name(key)
        return self._folder.joinpath(*folders), name

    def _make(self, folder: Path) -> None:
        for each in self._down_to(folder):
            try:
                _refuse_link(each)
            except FileNotFoundError:
                with suppress(FileExistsError):
                    os.mkdir(each, 0o700)
                    self._sync(each.parent)

    def _check(self, path: Path) -> None:
        for each in self._down_to(path):
            _refuse_link(each)

    def _down_to(self, path: Path) -> Iterator[Path]:
        at = self._folder
        yield at
        for part in path.relative_to(self._folder).parts:
            at = at / part
            yield at

    def _sync(self, folder: Path) -> None:
        """Make what names stand in a folder safe; not every system can, nor need."""
        if not self._durable or os.name == "nt":
            return
        try:
            handle = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:
            return  # what was in it has been removed since
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _link(made: str, path: str, key: str) -> None:
    try:
        os.link(made, path)
    except FileExistsError:
        raise KeyTakenError(key) from None


def _move(made: str, path: str, _: str) -> None:
    os.replace(made, path)


def _refuse_link(path: str | Path) -> None:
    if stat.S_ISLNK(os.lstat(path).st_mode):
        raise OSError(f"{path} is a symbolic link, which is not followed")


# --- Names of files -----------------------------------------------------------

_PLAIN = re.compile(rb"[a-z0-9._~-]+")
# Names that some file systems keep for devices, whatever stands behind a dot.
_DEVICE = re.compile(rb"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$)")


def file_name(key: str) -> list[str]:
    """Return the path of a key's file, for programs that read the folder.

    Each part of the key is a name; one of more than 80 bytes is several, each but the
    last with a `+` behind it. Bytes other than `a-z 0-9 . _ ~ -` are written `%41`, and
    so are a dot at the start or the end of a name and the first letter of a name
    such as `con`. Files end in `.json` and folders do not: what would not follow that
    rule has a `=` behind it.
    """
    *folders, last = [_pieces(part.encode()) for part in key.split("/")]
    path = []
    for *pieces, end in folders:
        path += [*pieces, end + ("=" if end.endswith(".json") else "")]
    *pieces, end = last
    return [*path, *pieces, end + ("" if end.endswith(".json") else "=")]


def _pieces(part: bytes) -> list[str]:
    pieces = [part[at : at + PIECE] for at in range(0, len(part), PIECE)]
    names = [_escaped(piece) for piece in pieces]
    return [*(f"{name}+" for name in names[:-1]), names[-1]]


def _escaped(piece: bytes) -> str:
    first = piece.startswith(b".") or bool(_DEVICE.match(piece))
    last = piece.endswith(b".")
    if _PLAIN.fullmatch(piece) and not first and not last:
        return piece.decode()
    kept = [bool(_PLAIN.match(bytes([byte]))) for byte in piece]
    kept[0], kept[-1] = kept[0] and not first, kept[-1] and not last
    return "".join(
        chr(byte) if keep else f"%{byte:02x}"
        for byte, keep in zip(piece, kept, strict=True)
    )


def _part(name: str) -> tuple[bytes, Literal["file", "folder", "piece"]] | None:
    """Return what a name says of its keys, or None if `file_name` makes none such."""
    bare = name.rstrip("+=")
    mark, is_json = name[len(bare) :], bare.endswith(".json")
    part = unquote_to_bytes(bare.encode(errors="replace"))
    if not part or len(part) > PIECE or _escaped(part) != bare:
        return None
    if mark == "+":
        return (part, "piece") if len(part) == PIECE else None
    if mark not in ("", "="):
        return None
    return part, "file" if is_json == (mark == "") else "folder"
