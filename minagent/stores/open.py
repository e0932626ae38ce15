"""From an address to a store: what a program's settings and its command line name.

    memory:                                        this process, and no longer
    sqlite:///chat.db                              a file, from the current folder
    sqlite:////var/lib/chat.db                     a file, from the root: a slash more
    file:///var/lib/sessions                       a folder
    s3://bucket/prefix                             a bucket; needs the extra `s3`
    postgresql://user@host/database                a server; needs the extra `postgres`

The slashes of `sqlite:` are SQLAlchemy's, those of `file:` are RFC 8089's; `file:here`
is in the current folder. Options stand behind a question mark: `durability=normal`
(sqlite, file), `endpoint=` and `region=` (s3). A PostgreSQL address is libpq's.

This file knows the stores' names and options, and imports only the one that is named.
"""

from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from minagent.store import InMemorySessionManager, SessionStore

SCHEMES = ("memory", "sqlite", "file", "s3", "postgresql")
"""What an address may begin with."""


def open_store(url: str) -> SessionStore:
    """Return the store at an address; nothing is read or made before its first use.

    Use it as `async with open_store(url) as sessions:`.

    Args:
        url: The address, as at the top of this file.

    Raises:
        ValueError: The address is none, begins with none of `SCHEMES`, names no place,
            or has an option that the store does not know.
        ModuleNotFoundError: The store needs an extra; the message says how to get it.
    """
    try:
        parts = urlsplit(url)
    except ValueError:  # its message would show the password
        raise ValueError("this address cannot be read; see open_store") from None
    match parts.scheme:
        case "memory":
            _options(parts)
            return InMemorySessionManager()
        case "sqlite":
            return _sqlite(parts)
        case "file":
            return _folder(parts)
        case "s3":
            return _bucket(parts)
        case "postgresql" | "postgres":
            from minagent.stores.postgres import PostgresSessionManager

            return PostgresSessionManager(url)
    # The address itself may hold a password, so only its beginning is shown.
    known = ", ".join(f"{each}:" for each in SCHEMES)
    raise ValueError(f"no store has the scheme {parts.scheme!r}; there are {known}")


def _sqlite(parts: SplitResult) -> SessionStore:
    from minagent.stores.sqlite import SQLiteSessionManager

    if parts.netloc or not parts.path.strip("/"):
        raise ValueError("a file is named like this: sqlite:///chat.db")
    options = _options(parts, "durability")
    return SQLiteSessionManager(_path(parts).removeprefix("/"), **options)


def _folder(parts: SplitResult) -> SessionStore:
    from minagent.stores.blob import BlobSessionManager
    from minagent.stores.storage import FolderStorage

    if parts.netloc not in ("", "localhost") or not parts.path.strip("/"):
        raise ValueError("a folder is named like this: file:///var/lib/sessions")
    options = _options(parts, "durability")
    return BlobSessionManager(FolderStorage(_path(parts), **options))


def _bucket(parts: SplitResult) -> SessionStore:
    from minagent.stores.blob import BlobSessionManager
    from minagent.stores.s3 import S3Storage

    if not parts.netloc:
        raise ValueError("a bucket is named like this: s3://bucket/prefix")
    options = _options(parts, "endpoint", "region")
    prefix = _path(parts).strip("/")
    return BlobSessionManager(S3Storage(parts.netloc, prefix=prefix, **options))


def _path(parts: SplitResult) -> str:
    if parts.fragment:
        raise ValueError(f"{parts.scheme}: a # in a name is written %23")
    if "\0" in (path := unquote(parts.path)):
        raise ValueError(f"{parts.scheme}: no name has a null byte in it")
    return path


def _options(parts: SplitResult, *known: str) -> dict[str, Any]:
    found = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := sorted(found.keys() - set(known)):
        there = f"there are: {', '.join(known)}" if known else "there is none"
        raise ValueError(f"{parts.scheme}: has no option {unknown[0]!r}; {there}")
    if empty := [name for name, value in found.items() if not value]:
        raise ValueError(f"{parts.scheme}: the option {empty[0]!r} is empty")
    return found
