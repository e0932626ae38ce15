"""Where sessions and memories are kept: `--store` and `--memory`, opened.

Without an address both are files in the user's data folder, so that a conversation is
found again from any current folder: `$XDG_DATA_HOME/minagent` (`~/.local/share`), or
what the system has in the place of that. `MINAGENT_STORE` and `MINAGENT_MEMORY` name
others for good.

This file knows which addresses there are, and nothing of what is done there.
"""

import os
import sys
from pathlib import Path
from typing import Annotated, TypeAlias
from urllib.parse import SplitResult, quote, unquote, urlsplit

import typer

from minagent.cli.outcome import UsageError, told
from minagent.errors import MinagentError
from minagent.memory import InMemoryMemoryManager, MemoryManager, SQLiteMemoryManager
from minagent.session import Session, check_user_id
from minagent.store import SessionStore
from minagent.stores import open_store

SESSIONS, MEMORIES = "sessions.db", "memory.db"
# Read here and not by typer, which forgot to in 0.26.0.
STORE_VARIABLE, MEMORY_VARIABLE = "MINAGENT_STORE", "MINAGENT_MEMORY"

Store: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="Where the sessions are: sqlite:///chat.db, file:///folder, s3://bucket, "
        f"postgresql://host/name or memory:. Without it: what {STORE_VARIABLE} says, "
        f"or {SESSIONS} in minagent's folder among your data.",
    ),
]
MemoryPlace: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="URL",
        help="Where the memories are: sqlite:///memory.db. Without it: what "
        f"{MEMORY_VARIABLE} says, or {MEMORIES} in minagent's folder among your data.",
    ),
]
SessionId: TypeAlias = Annotated[
    str, typer.Argument(metavar="SESSION", help="The id of the session.")
]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first.")]
AsJson: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print JSON, for a program to read.")
]


def store_at(url: str | None) -> SessionStore:
    """Return the store at an address, or at the default one; use it in `async with`.

    Raises:
        UsageError: There is no such address.
        MinagentError: The store needs an extra that is not installed.
    """
    try:
        return open_store(url or os.environ.get(STORE_VARIABLE) or default(SESSIONS))
    except ModuleNotFoundError as error:
        raise MinagentError(problem=str(error)) from error
    except ValueError as error:
        raise UsageError(f"--store: {error}") from error


def memory_at(url: str | None) -> MemoryManager:
    """Return the memories at an address, or at the default one.

    Raises:
        UsageError: There is no such address.
    """
    try:
        place = url or os.environ.get(MEMORY_VARIABLE) or default(MEMORIES)
        return _memory(urlsplit(place))
    except ValueError as error:
        raise UsageError(f"--memory: {error}") from error


def user_option(help: str) -> object:
    """Return the option `--user`, which takes what a user's id can be, and no more.

    Args:
        help: What the user is there for.
    """
    return typer.Option("--user", metavar="ID", help=help, callback=_checked_user)


def data_folder() -> Path:
    """Return the folder for the user's sessions and memories.

    Raises:
        MinagentError: The system does not know where the user is at home.
    """
    if sys.platform == "win32":
        found, at_home = os.environ.get("LOCALAPPDATA"), ("AppData", "Local")
    elif sys.platform == "darwin":
        found, at_home = None, ("Library", "Application Support")
    else:
        found, at_home = os.environ.get("XDG_DATA_HOME"), (".local", "share")
    try:
        folder = Path(found) if found else Path.home().joinpath(*at_home)
    except RuntimeError as error:
        raise MinagentError(
            problem="no home folder is known for this user: set HOME, or say where "
            "things are, with --store and --memory"
        ) from error
    return folder / "minagent"


async def stored(sessions: SessionStore, session_id: str) -> Session:
    """Return a session.

    Raises:
        MinagentError: It is not there.
    """
    session = await sessions.get(session_id)
    if session is None:
        raise MinagentError(problem=f"there is no session {session_id!r} in this store")
    return session


def default(name: str) -> str:
    """Return the address of a file in the user's data folder, which is made."""
    folder = data_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return f"sqlite:///{quote(str(folder / name))}"


def _memory(parts: SplitResult) -> MemoryManager:
    if parts.scheme not in ("memory", "sqlite"):
        raise ValueError(
            f"no memory has the scheme {parts.scheme!r}; there are memory:, sqlite:"
        )
    if parts.query:
        raise ValueError(f"{parts.scheme}: has no options here")
    if parts.scheme == "memory":
        return InMemoryMemoryManager()
    if parts.netloc or not parts.path.strip("/"):
        raise ValueError("a file is named like this: sqlite:///memory.db")
    path = unquote(parts.path.removeprefix("/"))
    if "\0" in path:
        raise ValueError("a file's name has no NUL in it")
    if parts.fragment:
        raise ValueError("a # in a file's name is written %23")
    return SQLiteMemoryManager(path)


def _checked_user(user: str | None) -> str | None:
    with told():  # typer calls this before the command, whose body has its own
        try:
            check_user_id(user)
        except ValueError as error:
            raise UsageError(f"--user: {error}") from None
    return user
