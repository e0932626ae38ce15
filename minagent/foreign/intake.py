"""What readers of foreign sessions share: a log in the making, and what is left behind.

`Intake` takes what a reader has understood and keeps the log one that goes on:

- A call id that comes again gets a number, since here ids are unique in the log.
- A call without a result gets one that says so (`unknown`) before the next reply, and
  at the end. So a tool that somebody else had started is never run by an import.
- What has no item here is kept in a `Note` of the kind `foreign`, which no model is
  shown, and is named. It does not become `Opaque`: such a block goes back to its
  vendor, and the next model may be another's, who would refuse it for good.

`picture` and `document` make `Media` of what a model takes, and nothing of the rest.

This file knows nothing of any framework.
"""

import base64
import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from minagent.context import PENDING
from minagent.errors import MinagentError, NotSerializableError
from minagent.events import (
    ContentItem,
    Event,
    Media,
    Message,
    Note,
    Role,
    Status,
    ToolCall,
    ToolResult,
    Usage,
    from_model,
    load_json,
    new_call_id,
    plain,
    utc_now,
    well_formed,
)
from minagent.session import State
from minagent.transcript import UNKNOWN_OUTCOME

FOREIGN = "foreign"
"""The kind of the Note that keeps what has no item here: `{"what": …, "value": …}`."""

IMAGES = {
    **{"png": "image/png", "jpeg": "image/jpeg", "jpg": "image/jpeg"},
    **{"gif": "image/gif", "webp": "image/webp"},
}
"""The pictures that models take, by the end of a file's name."""

DOCUMENTS = {
    **{"pdf": "application/pdf", "txt": "text/plain", "md": "text/markdown"},
    **{"csv": "text/csv", "html": "text/html"},
}
"""The documents that models take, likewise."""

_ANY_IMAGE = "image/*"  # what is at an address, only its reader will know


@dataclass(frozen=True, slots=True)
class Foreign:
    """A session of another framework, in our items.

    Attributes:
        session_id: The id that it had there.
        user_id: Its owner, or None: the frameworks that are read know of none.
        events: Its log.
        state: Its state.
        unread: What could not be represented, a line each.
    """

    session_id: str
    user_id: str | None
    events: tuple[Event, ...]
    state: State
    unread: tuple[str, ...]


class Intake:
    """The log of one session, in the making.

    Args:
        agent: Who the replies are by.
    """

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._events: list[Event] = []
        self._unread: Counter[str] = Counter()  # keeps the order in which they came
        self._ids: set[str] = set()
        # What waits for a result, by the ids that they have there.
        self._open: dict[str, list[ToolCall]] = {}

    def leave(self, line: str) -> None:
        """Name something that is not represented."""
        self._unread[line] += 1

    def leave_rest(self, what: str, rest: Mapping[str, object]) -> None:
        """Name the fields that are left of something, if they say anything."""
        for key, value in rest.items():
            if value not in (None, "", [], {}):
                self.leave(f"{what}: {key}")

    def keep(self, what: str, value: object) -> Note:
        """Name something that has no item, and return a note that keeps it."""
        self.leave(what)
        data: dict[str, Any] = {"what": what, "value": value}
        try:
            return Note(kind=FOREIGN, data=data)
        except NotSerializableError:  # nested too deeply
            return Note(kind=FOREIGN, data={"what": what, "text": repr(value)})

    def call(self, call_id: object, name: str, given: object) -> ToolCall:
        """Return a call that waits for its result.

        Args:
            call_id: The id that it has there.
            name: The tool.
            given: The input; what is no JSON object is kept as unreadable.
        """
        theirs = call_id if isinstance(call_id, str) else ""
        ours, count = theirs or new_call_id(), 1
        while ours in self._ids:
            count += 1
            ours = f"{theirs}-{count}"
        made = _call(ours, name, given)
        if count > 1:
            self.leave(
                f"the call id {theirs!r}, which was there before: it is {ours!r}"
            )
        self._ids.add(ours)
        self._open.setdefault(theirs, []).append(made)
        return made

    def result(
        self, call_id: object, items: Sequence[ContentItem], *, failed: bool = False
    ) -> Iterator[ContentItem]:
        """Yield the result of a call, and what stood in it that no result holds.

        Args:
            call_id: The id that the call has there.
            items: What the tool returned.
            failed: Whether the tool did.
        """
        texts = [item.content for item in items if isinstance(item, Message)]
        yield from (item for item in items if not isinstance(item, Message | Media))
        media = tuple(item for item in items if isinstance(item, Media))
        waiting = self._open.get(call_id if isinstance(call_id, str) else "")
        if not waiting:
            what = f"the result of the call {call_id!r}, which is not there"
            yield self.keep(
                what, [plain(x) for x in items if isinstance(x, Message | Media)]
            )
            return
        status: Status = "error" if failed else "success"
        yield _result(waiting.pop(0), "\n".join(texts), status, media)

    def close_calls(self) -> None:
        """Give each call that still waits a result: nobody knows what became of it."""
        left = [call for calls in self._open.values() for call in calls]
        self._open.clear()
        for call in left:
            self.leave(
                f"the call {call.tool_call_id!r} of {call.name!r} has no result: "
                "what became of it is unknown, and it is not run"
            )
        results = [_result(call, UNKNOWN_OUTCOME, "unknown") for call in left]
        self.add("user", results)

    def add(
        self,
        role: Role,
        items: Sequence[ContentItem],
        at: datetime | None = None,
        usage: Usage | None = None,
    ) -> None:
        """Append an event, if there is anything in it.

        Args:
            role: Whose turn it is there.
            items: What is in it.
            at: When it happened; None means when the event before it did.
            usage: What it cost.
        """
        if not items:
            return
        shown = any(isinstance(item, Media | Message) for item in items)
        if role == "assistant" and shown and not any(map(from_model, items)):
            # Or a picture that a model made would pass for one of the user's.
            items = [Message(role="assistant", content=""), *items]
        before = self._events[-1].timestamp if self._events else utc_now()
        event = Event(
            author="user" if role == "user" and shown else self._agent,
            content=tuple(items),
            timestamp=at or before,
            usage=usage,
        )
        self._events.append(event)

    def foreign(self, session_id: str, state: object = None) -> Foreign:
        """Return what was taken in.

        Args:
            session_id: The id that it has there.
            state: Its state; what is no JSON object is named.
        """
        self.close_calls()
        if not isinstance(state, dict):
            self.leave_rest("the session", {"state": state})
            state = {}
        # It would be a list of questions here, and a forged one there.
        self.leave_rest("state", {PENDING: state.pop(PENDING, None)})
        lines = tuple(
            line if count == 1 else f"{line} ({count} times)"
            for line, count in self._unread.items()
        )
        return Foreign(session_id, None, tuple(self._events), state, lines)


@contextmanager
def taking(name: str) -> Iterator[None]:
    """Turn what goes wrong where a file is not as its framework writes it.

    Raises:
        MinagentError: Something in it has another form.
    """
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        problem = f"{name} is not as it should be: {error!r}"
        raise MinagentError(problem=problem) from error


def read_json(text: str, name: str) -> Any:
    """Return the value of a JSON text, without halves of emojis.

    Args:
        text: The text.
        name: What to call it in an error.

    Raises:
        MinagentError: It is none.
    """
    try:
        return well_formed(load_json(text))
    except (ValueError, RecursionError) as error:
        raise MinagentError(problem=f"{name} is no JSON: {error}") from error


def time_of(text: object) -> datetime | None:
    """Return a time that was written as ISO 8601; without a zone, it is in UTC."""
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def picture(kind: str, data: object = None, url: object = None) -> Media | None:
    """Return a picture, or None if models take none such.

    Args:
        kind: A key or a value of `IMAGES`.
        data: Its bytes in base64, or None.
        url: Its address, or None.
    """
    media_type = IMAGES.get(kind, kind)
    if url is not None and not media_type:
        return _media(_ANY_IMAGE, (_ANY_IMAGE,), None, url, {})
    return _media(media_type, IMAGES.values(), data, url, {})


def document(
    kind: str,
    data: object = None,
    url: object = None,
    about: Mapping[str, Any] | None = None,
) -> Media | None:
    """Return a document, or None if models take none such.

    Args:
        kind: A key or a value of `DOCUMENTS`.
        data: Its bytes in base64, or None.
        url: Its address, or None.
        about: What Anthropic's block has fields for: `title`, `context`, `citations`.
    """
    media_type = DOCUMENTS.get(kind, kind)
    if url is not None and media_type != DOCUMENTS["pdf"]:
        return None  # https://platform.claude.com/docs/en/build-with-claude/pdf-support
    return _media(media_type, DOCUMENTS.values(), data, url, about or {})


def _media(
    media_type: str,
    known: Collection[str],
    data: object,
    url: object,
    extra: Mapping[str, Any],
) -> Media | None:
    if media_type not in known:
        return None
    if isinstance(url, str) and url.startswith("https://"):
        return Media(media_type=media_type, url=url, extra=dict(extra))
    if isinstance(data, str) and data and _is_readable(data, media_type):
        return Media(media_type=media_type, data=data, extra=dict(extra))
    return None


def _is_readable(data: str, media_type: str) -> bool:
    try:
        found = base64.b64decode(data, validate=True)
        return not media_type.startswith("text/") or bool(found.decode().strip())
    except ValueError:
        return False


def _call(call_id: str, name: str, given: object) -> ToolCall:
    if isinstance(given, dict):
        try:
            return ToolCall(tool_call_id=call_id, name=name, arguments=given)
        except NotSerializableError:
            pass  # nested too deeply
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    return ToolCall(tool_call_id=call_id, name=name, unreadable=text)


def _result(
    call: ToolCall, text: str, status: Status, media: tuple[Media, ...] = ()
) -> ToolResult:
    return ToolResult(
        tool_call_id=call.tool_call_id,
        name=call.name,
        content=text,
        status=status,
        media=media,
    )
