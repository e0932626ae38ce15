"""Events, the items in them, and the one gate to JSON.

An `Event` is one thing that happened in a conversation: somebody (`author`) added
some items (`content`) at some time. The items, in the order to read them:

    Message           text of the user or the assistant
    Media             a picture or a document
    Reasoning         what a model thought, with the vendor's signature
    ToolCall          a model asks for a tool
    ToolResult        what became of the call
    ToolConfirmation  what a person decided about a call
    Note              anything that a part of minagent, or you, wants to keep
    Opaque            a vendor's block of a kind that this version does not know

All of them are immutable to the bottom, so that copies of a session can share them.
Each item that stands for a vendor's block keeps the block's other fields in `extra`.

`freeze` and `dump_json` are the gate: a value passes only if JSON gives it back
equal and of the same type. `well_formed` repairs text where it comes in.

This file knows nothing of sessions, models or tools.
"""

import json
import math
import re
import secrets
import time
import uuid
from collections.abc import Hashable, Mapping
from dataclasses import field, fields
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, Literal, NoReturn, TypeVar, cast, dataclass_transform

import pydantic
from pydantic import JsonValue, PlainValidator, TypeAdapter, ValidationInfo
from pydantic.dataclasses import dataclass

from minagent.errors import NotSerializableError

MAX_DEPTH = 190
"""Levels of nesting that pass the gate. pydantic's reader stops at 200, and an
event adds a few levels around its items."""

MAX_INT_BITS = 14_000
"""Python reads and writes integers of up to 4,300 digits (`sys.int_info`)."""

VALID_CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")
"""The ids of tool calls that every vendor takes."""

T = TypeVar("T")

# --- Names and times ----------------------------------------------------------


def new_id() -> str:
    """Return a fresh UUIDv7 (RFC 9562, section 5.7): ids sort by time of making.

    The twelve bits behind the milliseconds hold the rest of the time (the RFC's
    method 3), so that ids of one millisecond sort as well.
    """
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    number = milliseconds << 80 | 7 << 76 | rest * 4096 // 1_000_000 << 64 | 2 << 62
    return str(uuid.UUID(int=number | secrets.randbits(62)))


def new_call_id() -> str:
    """Return a fresh id for a tool call, of the letters that every vendor takes."""
    return f"call_{secrets.token_hex(12)}"


def utc_now() -> datetime:
    """Return the present time, aware and in UTC."""
    return datetime.now(UTC)


# --- The gate to JSON ---------------------------------------------------------


def _refuse(self: object, *_: object, **__: object) -> NoReturn:
    raise TypeError("stored items are read-only; copy with thaw() to change them")


def _itself(self: T, _: object) -> T:
    return self


class FrozenDict(dict[str, JsonValue]):
    """A JSON object that cannot be changed; equal to the dict it was made from."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse
    __deepcopy__ = _itself

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (dict(self),)


class FrozenList(list[JsonValue]):
    """A JSON array that cannot be changed; equal to the list it was made from."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse
    __deepcopy__ = _itself

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenList, (list(self),)


def freeze(value: object, path: str = "value", *, _depth: int = 0) -> Any:
    """Return a read-only copy of a JSON value.

    Args:
        value: What JSON has a word for: None, bool, int, float, str, and lists and
            string-keyed dicts of these, of exactly these types.
        path: The name of the value, for the error.

    Raises:
        NotSerializableError: The value, or one inside it, would be lost or change
            its type on the way through JSON, or is nested over `MAX_DEPTH` levels.
    """
    kind = type(value)
    if kind is str and _SURROGATE.search(cast(str, value)):
        raise NotSerializableError(path, "holds half an emoji (a lone surrogate)")
    if (
        value is None
        or kind in (str, bool)
        or (kind is int and cast(int, value).bit_length() <= MAX_INT_BITS)
        or (kind is float and math.isfinite(cast(float, value)))
    ):
        return value
    if kind in (dict, list, FrozenDict, FrozenList):
        return _freeze_inside(cast(Any, value), path, _depth)
    detail = f" ({value})" if kind is float else ""
    raise NotSerializableError(
        path, f"is a {kind.__name__}{detail}, which JSON cannot keep"
    )


def _freeze_inside(value: dict[Any, Any] | list[Any], path: str, depth: int) -> Any:
    if depth >= MAX_DEPTH:
        problem = f"is nested over {MAX_DEPTH} levels, or contains itself"
        raise NotSerializableError(f"{path:.80}…", problem)
    if isinstance(value, list):
        items = enumerate(value)
        return FrozenList(freeze(x, f"{path}[{i}]", _depth=depth + 1) for i, x in items)
    for key in value:
        if type(key) is not str:
            raise NotSerializableError(path, f"has the key {key!r}, no str")
        freeze(key, f"a key of {path}")
    pairs = value.items()
    return FrozenDict({k: freeze(x, f"{path}.{k}", _depth=depth + 1) for k, x in pairs})


def thaw(value: object) -> Any:
    """Return a copy of a frozen value made of plain dicts and lists."""
    if isinstance(value, dict):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, list):
        return [thaw(item) for item in value]
    return value


def dump_json(value: object, path: str) -> str:
    """Return a value as JSON text.

    Args:
        value: As for `freeze`.
        path: The name of the value, for the error.

    Raises:
        NotSerializableError: As for `freeze`.
    """
    return _ENCODE(freeze(value, path))


def load_json(text: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: The text is no JSON, or says NaN or Infinity, which JSON has not.
    """
    try:
        return _DECODE(text)
    except RecursionError as error:
        raise ValueError("JSON nested deeper than any that is stored") from error


def well_formed(value: T) -> T:
    """Return text, or any JSON value, without lone surrogates.

    Halves of an emoji that belong together are joined; a half alone becomes U+FFFD.
    This is done where text comes in: from users, tools and models.
    """
    if isinstance(value, str) and _SURROGATE.search(value):
        pairs = value.encode("utf-16", "surrogatepass")
        return cast(T, pairs.decode("utf-16", "replace"))
    if isinstance(value, dict):
        return type(value)({well_formed(k): well_formed(v) for k, v in value.items()})
    if isinstance(value, list):
        return type(value)(well_formed(item) for item in value)
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_DECODE = json.JSONDecoder(parse_constant=_no_constant).decode
_SURROGATE = re.compile("[\ud800-\udfff]")


# --- The items ----------------------------------------------------------------


def _frozen(value: object, info: ValidationInfo) -> Any:
    return freeze(value, info.field_name or "value")


def _frozen_object(value: object, info: ValidationInfo) -> Any:
    if isinstance(value, dict):
        return _frozen(value, info)
    raise ValueError("must be a dict")


# pydantic looks into a text only where it has something to check: so half an emoji is
# refused here, and costs nothing where events are read from a store.
Text = Annotated[str, pydantic.StringConstraints(min_length=0)]
FrozenObject = Annotated[Mapping[str, JsonValue], PlainValidator(_frozen_object)]
FrozenValue = Annotated[JsonValue, PlainValidator(_frozen)]

_NOTHING = FrozenDict()


def _nothing() -> FrozenDict:
    # One object for all, since most items have nothing extra.
    return _NOTHING


@dataclass_transform(frozen_default=True, kw_only_default=True)
def stored(cls: type[T]) -> type[T]:
    """Make a class a frozen, keyword-only pydantic dataclass that can be stored.

    Unknown keys are refused: what this version cannot represent must not be dropped.
    The validator is built at first use, which keeps `import minagent` cheap.
    """
    config = pydantic.ConfigDict(extra="forbid", defer_build=True)
    make = dataclass(frozen=True, slots=True, kw_only=True, repr=False, config=config)
    return cast(type[T], make(cls))


class Stored:
    """What the stored dataclasses share: a short repr and a plain form."""

    __slots__ = ()

    def __repr__(self) -> str:
        shown = [f"{name}={value!r}" for name, value in _set_fields(self).items()]
        return f"{type(self).__name__}({', '.join(shown)})"


Role = Literal["user", "assistant"]


@stored
class Message(Stored):
    """Text that the user or the assistant said.

    Attributes:
        role: Who said it.
        content: The text; it may be empty.
        extra: The other fields of the vendor's block.
    """

    role: Role
    content: Text
    extra: FrozenObject = field(default_factory=_nothing)
    type: Literal["message"] = "message"


@stored
class Media(Stored):
    """A picture or a document, in itself or by its address.

    Attributes:
        media_type: Its MIME type, such as `image/png`.
        data: Its bytes in base64, or None if it has a `url`.
        url: Its address, or None if it has `data`.
        extra: The other fields of the vendor's block.

    Raises:
        ValueError: Neither or both of `data` and `url` are given.
    """

    media_type: Text
    data: Text | None = None
    url: Text | None = None
    extra: FrozenObject = field(default_factory=_nothing)
    type: Literal["media"] = "media"

    def __post_init__(self) -> None:
        if (self.data is None) == (self.url is None):
            raise ValueError("Media has either data (base64) or a url")


@stored
class Reasoning(Stored):
    """What a model thought on the way to its reply.

    Attributes:
        content: The thought in words; empty where the vendor hides it.
        signature: The vendor's seal on it, sent back as it came.
        redacted: The sealed thought of a redacted block, else None.
        extra: The other fields of the vendor's block.
    """

    content: Text
    signature: Text | None = None
    redacted: Text | None = None
    extra: FrozenObject = field(default_factory=_nothing)
    type: Literal["reasoning"] = "reasoning"


@stored
class ToolCall(Stored):
    """A model asks for a tool.

    Attributes:
        tool_call_id: Its id, unique in the log; made up if none is given.
        name: The tool's name, as the model wrote it.
        arguments: The input, a JSON object.
        unreadable: What stood in the place of an input that is no JSON object.
            Such a call is never carried out.
        extra: The other fields of the vendor's block.
    """

    name: Text
    arguments: FrozenObject = field(default_factory=_nothing)
    tool_call_id: Text = field(default_factory=new_call_id)
    unreadable: Text | None = None
    extra: FrozenObject = field(default_factory=_nothing)
    type: Literal["tool_call"] = "tool_call"


Status = Literal[
    "success", "error", "denied", "expired", "replaced", "cancelled", "unknown"
]


@stored
class ToolResult(Stored):
    """What became of a tool call; a call has exactly one.

    Attributes:
        tool_call_id: The id of the call.
        name: The tool's name.
        content: The text for the model.
        status: `success`; `error` (it failed, or was refused); `denied`, `expired`
            or `replaced` (a person said no, nobody answered in time, or a newer
            message came); `cancelled`; `unknown` (nobody can tell what happened).
        media: Pictures and documents for the model.
        details: Any JSON value for people. It is never sent to a model.
    """

    tool_call_id: Text
    name: Text
    content: Text = ""
    status: Status = "success"
    media: tuple[Media, ...] = ()
    details: FrozenValue = None
    type: Literal["tool_result"] = "tool_result"


@stored
class ToolConfirmation(Stored):
    """What a person decided about a tool call.

    `PendingToolCall.approve`, `deny` and `answer` make them.

    Attributes:
        tool_call_id: The call that was asked about.
        approved: Whether the tool may run.
        modified_arguments: The arguments to run it with; None means as asked for,
            `{}` means with none.
        reason: Why not, in words for the model.
        answer: The result to give in the tool's place; the tool does not run.
        by: Who decided.
        fingerprint: Of the question that was answered, or None if made by hand.
        path: For a question of an agent inside an agent: the ids of the calls that
            lead to it, outermost first.
    """

    tool_call_id: Text
    approved: bool
    modified_arguments: FrozenObject | None = None
    reason: Text | None = None
    answer: Text | None = None
    by: Text | None = None
    fingerprint: Text | None = None
    path: tuple[Text, ...] = ()
    type: Literal["tool_confirmation"] = "tool_confirmation"


@stored
class Note(Stored):
    """Something to keep that is neither said nor called: a summary, a mark, yours.

    Attributes:
        kind: What it is; whoever writes notes of a kind reads them.
        text: What the model is shown of it, or None for nothing.
        data: Whatever else there is to keep.
    """

    kind: Text
    text: Text | None = None
    data: FrozenObject = field(default_factory=_nothing)
    type: Literal["note"] = "note"


@stored
class Opaque(Stored):
    """A vendor's block of a kind that this version does not know.

    Attributes:
        block: The block, which goes back to its vendor as it came.
    """

    block: FrozenObject
    type: Literal["opaque"] = "opaque"


_Said = Message | Media | Reasoning | Opaque
_Called = ToolCall | ToolResult | ToolConfirmation
ContentItem = Annotated[_Said | _Called | Note, pydantic.Discriminator("type")]

# --- The event ----------------------------------------------------------------


@stored
class Usage(Stored):
    """What a reply cost, in tokens. Usages can be added.

    Attributes:
        input_tokens: Read, those from and for the cache not counted.
        output_tokens: Written.
        cache_read_tokens: Read from the prompt cache.
        cache_write_tokens: Read and put into the prompt cache.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        names = [each.name for each in fields(self)]
        return Usage(**{n: getattr(self, n) + getattr(other, n) for n in names})


def _in_utc(value: datetime) -> datetime:
    return value.astimezone(UTC)


UtcTime = Annotated[pydantic.AwareDatetime, pydantic.AfterValidator(_in_utc)]


@stored
class Event(Stored):
    """One thing that happened in a conversation.

    Attributes:
        author: Who it is by: `user`, an agent's name, or whoever wrote a note.
        content: The items, in order.
        event_id: A UUIDv7.
        execution_id: The run in which it happened; empty outside any run.
        timestamp: When it happened, aware; kept in UTC. Information only: the
            order of events is the order of the log.
        usage: On a model's reply, and on what else had a model work: what it cost.
        model: The model that wrote it.
        stop_reason: On a model's reply: why it ended there, in the vendor's word.
        request_id: On a model's reply: the vendor's name for the request.
        prefix_digest: On a model's reply with thinking: a digest of what was sent.
        interrupted: The reply broke off; `content` has the blocks that were whole.
    """

    author: Text
    content: tuple[ContentItem, ...]
    event_id: Text = field(default_factory=new_id)
    execution_id: Text = ""
    timestamp: UtcTime = field(default_factory=utc_now)
    usage: Usage | None = None
    model: Text | None = None
    stop_reason: Text | None = None
    request_id: Text | None = None
    prefix_digest: Text | None = None
    interrupted: bool = False

    @property
    def is_reply(self) -> bool:
        """Whether a model wrote it; also an empty reply is one."""
        items = any(from_model(item) for item in self.content)
        return items or self.interrupted or self.stop_reason is not None

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls in it, in order."""
        return tuple(item for item in self.content if isinstance(item, ToolCall))

    def to_json(self) -> str:
        """Return the event as JSON text, without the fields at their defaults."""
        return _ENCODE(plain(self))

    @staticmethod
    def from_json(text: str) -> "Event":
        """Return the event that `to_json` wrote.

        Raises:
            ValueError: The text is none that `to_json` writes, or holds an item of
                a type that this version does not know.
            NotSerializableError: It holds what JSON has no word for, such as NaN.
        """
        return _event_adapter().validate_json(text)

    @staticmethod
    def from_plain(data: object) -> "Event":
        """Return the event that was read from JSON already; raises as `from_json`."""
        return _event_adapter().validate_python(data)


def from_model(item: ContentItem) -> bool:
    """Whether an item is one that only a model says."""
    said = isinstance(item, Message) and item.role == "assistant"
    return said or isinstance(item, Reasoning | ToolCall | Opaque)


def said_by_user(event: Event) -> bool:
    """Whether an event is what the user says; a reminder that a run records is not."""
    return (
        any(
            isinstance(item, Media)
            or (isinstance(item, Message) and item.content.strip() != "")
            for item in event.content
        )
        and (event.author == "user" or not event.execution_id)
        and not event.is_reply
    )


@cache
def _event_adapter() -> TypeAdapter[Event]:
    return TypeAdapter(Event)


@cache
def _fields_of(kind: Hashable) -> tuple[tuple[str, object], ...]:
    """Return each field's name and fixed default, `type` apart."""
    return tuple(
        (each.name, _NOTHING if each.default_factory is _nothing else each.default)
        for each in fields(cast(Any, kind))
        if each.name != "type"
    )


def _set_fields(item: Any) -> dict[str, Any]:
    shown = _fields_of(item.__class__)
    return {name: x for name, fixed in shown if (x := getattr(item, name)) != fixed}


def plain(value: Any) -> Any:
    """Return a stored value as JSON data, without the fields at their defaults."""
    if isinstance(value, Stored):
        kind = {"type": value.type} if hasattr(value, "type") else {}
        return kind | {name: plain(x) for name, x in _set_fields(value).items()}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return value.isoformat() if isinstance(value, datetime) else value
