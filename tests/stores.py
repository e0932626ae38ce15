"""Every store that minagent ships, with a place of its own for each test.

    memory  sqlite  folder  encrypted  s3  postgres

`Place(name, folder)` opens managers that share what is stored and nothing else, as
several processes would. The place follows from the test's own folder.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from minagent import InMemorySessionManager, SessionStore
from minagent.stores import (
    BlobSessionManager,
    FolderStorage,
    SQLiteSessionManager,
    open_store,
)

FAST = ("memory", "sqlite")
SERVED = ("s3", "postgres")
EVERY = (*FAST, "folder", "encrypted", *SERVED)
KEYS = {"key": bytes(range(32))}


def params(*names: str) -> Sequence[object]:
    """Return stores as parameters of a test; those with a server are slow."""
    slow = {each: pytest.param(each, marks=pytest.mark.heavy) for each in SERVED}
    return [slow.get(each, each) for each in names]


def address_of(name: str, folder: Path) -> str:
    """Return the address of a new store, for `open_store` in any process."""
    match name:
        case "sqlite":
            return f"sqlite:///{folder}/sessions.db"
        case "folder":
            return f"file://{folder}/objects"
        case "s3":
            from s3 import bucket_of, endpoint

            return f"s3://{bucket_of(folder)}/sessions?endpoint={endpoint()}"
        case "postgres":
            from postgres import new_database

            return new_database()
    raise ValueError(name)


class Place:
    """Where sessions are kept: it outlives the managers that are opened on it.

    Args:
        name: The store.
        folder: The test's own folder.
        opened: What closes the managers in the end.
    """

    def __init__(self, name: str, folder: Path, opened: AsyncExitStack) -> None:
        self._name, self._folder, self._opened = name, folder, opened
        self._memory = InMemorySessionManager()

    async def open(self) -> SessionStore:
        """Return a new manager; in memory there is but the one."""
        return await self._opened.enter_async_context(self.make())

    def make(self) -> SessionStore:
        """Return a new manager that was not entered, as a program without a block."""
        match self._name:
            case "memory":
                return self._memory
            case "sqlite":
                path = self._folder / "sessions.db"
                return SQLiteSessionManager(path, durability="normal")
            case "folder":
                return BlobSessionManager(self._folder_storage())
            case "encrypted":
                from minagent.stores import EncryptedStorage

                return BlobSessionManager(
                    EncryptedStorage(self._folder_storage(), KEYS)
                )
            case "s3":
                from s3 import bucket_of, endpoint

                bucket = bucket_of(self._folder)
                return open_store(f"s3://{bucket}?endpoint={endpoint()}")
            case "postgres":
                from postgres import opened

                return opened(self._folder)
        raise ValueError(self._name)

    def _folder_storage(self) -> FolderStorage:
        return FolderStorage(self._folder / "objects", durability="normal")
