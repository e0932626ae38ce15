"""Where sessions are kept: each store is a `SessionStore` with a driver of its own.

A driver is imported when its store is first named, and not before.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minagent.stores.blob import BlobSessionManager
    from minagent.stores.sqlite import SQLiteSessionManager
    from minagent.stores.storage import (
        FolderStorage,
        KeyTakenError,
        MemoryStorage,
        Storage,
    )

__all__ = [
    "BlobSessionManager",
    "FolderStorage",
    "KeyTakenError",
    "MemoryStorage",
    "SQLiteSessionManager",
    "Storage",
]

_HOMES = {
    "BlobSessionManager": "minagent.stores.blob",
    "FolderStorage": "minagent.stores.storage",
    "KeyTakenError": "minagent.stores.storage",
    "MemoryStorage": "minagent.stores.storage",
    "SQLiteSessionManager": "minagent.stores.sqlite",
    "Storage": "minagent.stores.storage",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
