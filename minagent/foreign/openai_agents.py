"""Sessions of OpenAI Agents: the SQLite file of a `SQLiteSession`.

A row of `agent_messages` is an item of the Responses API, as JSON. Any table with the
columns `id`, `session_id` and `message_data` is read as such a one, since the tables
can be given other names; so the rows of `AdvancedSQLiteSession` are read too, but not
on which branch they are. The other tables are named.

    message of the user                 Message, Media
    message of the assistant            Message
    reasoning                           Reasoning: its words; its seal is in a note
    function_call                       ToolCall
    function_call_output                ToolResult
    messages of system or developer,
    hosted tools, all the others        a note

What one model said stands there in several items one after another: here it is one
reply, which ends where somebody else speaks.

This file opens the database to read only, and leaves nothing beside it.
"""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias

from minagent.errors import StoreUnavailableError
from minagent.events import (
    ContentItem,
    Message,
    Reasoning,
    Role,
    load_json,
    well_formed,
)
from minagent.foreign.intake import Foreign, Intake, document, picture, time_of

Fields: TypeAlias = dict[str, Any]
Make: TypeAlias = Callable[[Intake, Fields, str], Iterator[ContentItem]]

_COLUMNS = {"id", "session_id", "message_data"}


def sessions_in(path: Path) -> list[Foreign]:
    """Return the sessions of a SQLite file, or none.

    Raises:
        StoreUnavailableError: The file is damaged, or locked.
    """
    # Without a log beside it, nobody is at work on the file. And to be read only, one
    # that will have a log needs files that nobody would remove again.
    alone = not path.with_name(f"{path.name}-wal").exists()
    address = f"{path.as_uri()}?mode=ro{'&immutable=1' if alone else ''}"
    try:
        with closing(sqlite3.connect(address, uri=True)) as database:
            return [*_sessions(database)]
    except sqlite3.Error as error:
        raise StoreUnavailableError(place=path.name, problem=str(error)) from error


def _sessions(database: sqlite3.Connection) -> Iterator[Foreign]:
    tables = {
        name: {
            row[1] for row in database.execute(f"PRAGMA table_info({_quoted(name)})")
        }
        for (name,) in database.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' "
            "AND name NOT LIKE 'sqlite_%' ORDER BY name"
        )
    }
    read = [name for name, columns in tables.items() if columns >= _COLUMNS]
    others = [
        name
        for name, columns in tables.items()
        if name not in read and columns != {"session_id", "created_at", "updated_at"}
    ]
    for table in read:
        at = "created_at" if "created_at" in tables[table] else "NULL"
        ids = f"SELECT DISTINCT session_id FROM {_quoted(table)} ORDER BY 1"
        for (session_id,) in database.execute(ids).fetchall():
            rows = database.execute(
                f"SELECT id, message_data, {at} FROM {_quoted(table)} "
                "WHERE session_id = ? ORDER BY id",
                (session_id,),
            )
            yield _session(str(session_id), rows, others)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _session(session_id: str, rows: sqlite3.Cursor, others: list[str]) -> Foreign:
    intake = Intake("assistant")
    for name in others:
        intake.leave(f"the table {name}")
    reply: list[ContentItem] = []
    said_at = None
    for row_id, text, created_at in rows:
        item, where, at = _item(text), f"row {row_id}", time_of(created_at)
        side, make = _maker(item)
        if side == "assistant" and not reply:
            intake.close_calls()
        made = _made(make, intake, item, where)
        if side == "assistant" or (side is None and reply):
            reply, said_at = reply + made, at
            continue
        intake.add("assistant", reply, said_at)
        reply = []
        intake.add("user", made, at)
    intake.add("assistant", reply, said_at)
    return intake.foreign(session_id)


def _item(text: object) -> Any:
    """Return what a row says; a text that is no JSON stays one."""
    try:
        return well_formed(load_json(str(text)))
    except (ValueError, RecursionError):
        return well_formed(str(text))


def _maker(item: Any) -> tuple[Role | None, Make | None]:
    """Return who says an item, and what makes ours of it; neither of what is unknown.

    What is unknown ends no reply: hosted tools are at work inside one.
    """
    if not isinstance(item, dict):
        return None, None
    kind = str(item.get("type") or "message")
    return _MAKERS.get((kind, item.get("role")), (None, None))


def _made(
    make: Make | None, intake: Intake, item: Any, where: str
) -> list[ContentItem]:
    """Return the items of an item, or a note if it is of another kind, or damaged."""
    if make:
        left = {key: x for key, x in item.items() if key != "type"}
        try:
            found = list(make(intake, left, where))
        except (AttributeError, KeyError, TypeError, ValueError):
            pass
        else:
            if left.get("status") == "completed":
                del left["status"]
            intake.leave_rest(item.get("type") or "message", left)
            return found
    return [intake.keep(f"{where}: {_name(item)}", item)]


def _name(item: Any) -> str:
    if not isinstance(item, dict):
        return "no JSON object"
    return str(item.get("type") or f"message of {item.get('role')!r}")


# --- One for each kind: they take out of the item what they know ---------------


def _answer(intake: Intake, item: Fields, where: str) -> Iterator[ContentItem]:
    item.pop("role")
    yield from _parts(intake, "assistant", item.pop("content"), where)


def _thought(intake: Intake, item: Fields, where: str) -> Iterator[ContentItem]:
    parts = [*(item.pop("summary", None) or []), *(item.pop("content", None) or [])]
    yield Reasoning(content="\n\n".join(part["text"] for part in parts))
    if sealed := item.pop("encrypted_content", None):
        # Not as `redacted`: another vendor would refuse it.
        yield intake.keep(f"{where}: the seal of a thought", sealed)


def _call(intake: Intake, item: Fields, where: str) -> Iterator[ContentItem]:
    text = item.pop("arguments")
    given = _item(text) if text else {}
    found = given if isinstance(given, dict) else text
    yield intake.call(item.pop("call_id"), item.pop("name"), found)


def _question(intake: Intake, item: Fields, where: str) -> Iterator[ContentItem]:
    item.pop("role")
    yield from _parts(intake, "user", item.pop("content"), where)


def _result(intake: Intake, item: Fields, where: str) -> Iterator[ContentItem]:
    call_id = item.pop("call_id")
    items = [*_parts(intake, "user", item.pop("output"), where)]
    yield from intake.result(call_id, items)


def _parts(
    intake: Intake, role: Role, content: Any, where: str
) -> Iterator[ContentItem]:
    """Yield the items of a message's content, or of what a tool returned."""
    for part in content if isinstance(content, list) else [content]:
        left = {"text": part} if isinstance(part, str) else dict(part)
        kind = left.pop("type", "text")
        if kind in ("input_text", "output_text", "text", "refusal"):
            text = left.pop("refusal" if kind == "refusal" else "text")
            yield Message(role=role, content=text)
            if notes := left.pop("annotations", None):
                yield intake.keep(f"{where}: annotations", notes)
        elif made := _media(kind, left):
            yield made
        else:
            yield intake.keep(f"{where}: {kind}", part)
            continue
        intake.leave_rest(kind, left)


def _media(kind: str, part: Fields) -> ContentItem | None:
    """Return a picture or a document, if models take it, and take it from the part."""
    if kind == "input_image":
        media_type, data, url = _opened(part.get("image_url"))
        made = picture(media_type, data, url)
        taken = ["image_url"] + ["detail"] * (part.get("detail") == "auto")
    elif kind == "input_file":
        media_type, data, url = _opened(part.get("file_data") or part.get("file_url"))
        title = part.get("filename")
        about = {"title": title} if title else {}
        end = str(title or url).rpartition(".")[2].lower()
        made = document(media_type or end, data, url, about)
        taken = ["file_data", "file_url", "filename"]
    else:
        return None
    if made:
        for key in taken:
            part.pop(key, None)
    return made


def _opened(address: object) -> tuple[str, str | None, str | None]:
    """Return the MIME type, the bytes in base64 and the address of a URL."""
    if not isinstance(address, str):
        return "", None, None
    if not address.startswith("data:"):
        is_url = "://" in address
        return "", None if is_url else address, address if is_url else None
    head, _, data = address.removeprefix("data:").partition(",")
    media_type, *options = head.split(";")
    return media_type, data if "base64" in options else None, None


_MAKERS: Mapping[tuple[str, Any], tuple[Role, Make]] = {
    ("message", "user"): ("user", _question),
    ("message", "assistant"): ("assistant", _answer),
    ("reasoning", None): ("assistant", _thought),
    ("function_call", None): ("assistant", _call),
    ("function_call_output", None): ("user", _result),
}
"""By type and role: who says it, and what makes ours of it."""
