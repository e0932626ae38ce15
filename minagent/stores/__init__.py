"""Where sessions are kept: each store is a `SessionStore` with a driver of its own.

A driver is imported when its store is first named, and not before.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minagent.stores.sqlite import SQLiteSessionManager

__all__ = ["SQLiteSessionManager"]

_HOMES = {"SQLiteSessionManager": "minagent.stores.sqlite"}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
