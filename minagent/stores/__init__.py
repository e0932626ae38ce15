"""Where sessions are kept: each store is a `SessionStore` with a driver of its own.

`open_store(url)` makes one from an address. A driver is imported when its store is
first named, and not before.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from minagent.stores.open import open_store

if TYPE_CHECKING:
    from minagent.stores.blob import BlobSessionManager
    from minagent.stores.encrypted import EncryptedStorage
    from minagent.stores.postgres import PostgresSessionManager
    from minagent.stores.s3 import S3Storage
    from minagent.stores.sqlite import SQLiteSessionManager
    from minagent.stores.storage import FolderStorage, MemoryStorage, Storage

__all__ = [
    "BlobSessionManager",
    "EncryptedStorage",
    "FolderStorage",
    "MemoryStorage",
    "PostgresSessionManager",
    "S3Storage",
    "SQLiteSessionManager",
    "Storage",
    "open_store",
]

_HOMES = {
    "BlobSessionManager": "minagent.stores.blob",
    "EncryptedStorage": "minagent.stores.encrypted",
    "FolderStorage": "minagent.stores.storage",
    "MemoryStorage": "minagent.stores.storage",
    "PostgresSessionManager": "minagent.stores.postgres",
    "S3Storage": "minagent.stores.s3",
    "SQLiteSessionManager": "minagent.stores.sqlite",
    "Storage": "minagent.stores.storage",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
