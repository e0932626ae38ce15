"""Strands' content blocks as items, in each of the forms in which they are stored.

    {"toolUse": {"toolUseId": …, "name": …}}    nested: Python, and TypeScript's JSON
    {"type": "toolUseBlock", "toolUseId": …}    flat: TypeScript's classes
    {"type": "tool_use", "id": …, "name": …}    flat: as Anthropic writes it

`items_of` opens a block to its kind and its fields; then there is one converter for
each kind, which takes the fields that it knows out of them. What is left is named, and
a block that has no converter, or is damaged, is kept in a note.

    text, guardContent, citationsContent    Message
    reasoningContent                        Reasoning
    toolUse, toolResult                     ToolCall, ToolResult
    image, document                         Media, if models take such
    cachePoint                              nothing: the adapter puts its own
    audio, video, all the others            a note

This file knows nothing of files.
"""

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from minagent.events import ContentItem, Message, Reasoning, Role
from minagent.foreign.intake import Intake, document, picture

Fields: TypeAlias = dict[str, Any]

_FLAT = {
    **{"textBlock": "text", "jsonBlock": "json"},
    **{"tool_use": "toolUse", "toolUseBlock": "toolUse"},
    **{"tool_result": "toolResult", "toolResultBlock": "toolResult"},
    **{"thinking": "reasoningContent", "redacted_thinking": "reasoningContent"},
    **{"reasoning": "reasoningContent", "reasoningBlock": "reasoningContent"},
    **{"imageBlock": "image", "documentBlock": "document"},
    **{"cache_point": "cachePoint", "cachePointBlock": "cachePoint"},
    **{"guardContentBlock": "guardContent", "citations": "citationsContent"},
    "citationsBlock": "citationsContent",
}
"""The other names of the kinds."""


def items_of(
    intake: Intake, role: Role, content: object, where: str
) -> Iterator[ContentItem]:
    """Yield the items of a message, or of a tool's result.

    Args:
        intake: Where they go.
        role: Whose message it is.
        content: Its blocks, or its text.
        where: What to call it.
    """
    blocks = content if isinstance(content, list) else [content]
    for block in blocks:
        if isinstance(block, str):
            block = {"text": block}
        for kind, fields in _opened(block):
            yield from _items(intake, role, kind, fields, where)


def _opened(block: object) -> Iterator[tuple[str, Any]]:
    if not isinstance(block, dict):
        yield "no block", block
    elif isinstance(flat := block.get("type"), str):
        yield _FLAT.get(flat, flat), {k: v for k, v in block.items() if k != "type"}
    else:
        for kind, value in block.items():
            name = _FLAT.get(str(kind), str(kind))
            yield name, {name: value} if name in _BARE else value


def _items(
    intake: Intake, role: Role, kind: str, fields: Any, where: str
) -> list[ContentItem]:
    make = _KINDS.get(kind)
    if make and isinstance(fields, dict) and role != _NEVER_OF.get(kind):
        left = dict(fields)
        try:
            found = list(make(intake, role, left, where))
        except (AttributeError, KeyError, TypeError, ValueError):
            pass  # it is not what its kind says
        else:
            intake.leave_rest(kind, left)
            return found
    return [intake.keep(f"{where}: {kind}", fields)]


# --- One for each kind: they take out of the fields what they know ------------


def _text(intake: Intake, role: Role, fields: Fields, where: str) -> Iterator[Any]:
    yield Message(role=role, content=fields.pop("text"))


def _json(intake: Intake, role: Role, fields: Fields, where: str) -> Iterator[Any]:
    # As Strands itself shows it to a model.
    text = json.dumps(fields.pop("json"), ensure_ascii=False)
    yield Message(role=role, content=text)


def _guarded(intake: Intake, role: Role, fields: Fields, where: str) -> Iterator[Any]:
    if "text" in fields:
        inner = dict(fields.pop("text"))
        yield Message(role=role, content=inner.pop("text"))
        intake.leave_rest("guardContent", inner)
    if "image" in fields:
        yield from _items(intake, role, "image", fields.pop("image"), where)


def _cited(intake: Intake, role: Role, fields: Fields, where: str) -> Iterator[Any]:
    texts = [each["text"] for each in fields.pop("content")]
    yield Message(role=role, content="".join(texts))
    if citations := fields.pop("citations", None):
        yield intake.keep(f"{where}: citations", citations)


def _thought(intake: Intake, role: Role, fields: Fields, where: str) -> Iterator[Any]:
    fields |= fields.pop("reasoningText", None) or {}
    text = fields.pop("text", None) or fields.pop("thinking", None) or ""
    signature = fields.pop("signature", None)
    if text or signature:
        yield Reasoning(content=text, signature=signature)
    hidden = fields.pop("redactedContent", None) or fields.pop("data", None)
    if hidden is not None:
        yield Reasoning(content="", redacted=_base64(hidden))


def _call(intake: Intake, role: Role, fields: Fields, where: str) -> Iterator[Any]:
    call_id = fields.pop("toolUseId", None) or fields.pop("id", None)
    yield intake.call(call_id, fields.pop("name"), fields.pop("input"))


def _result(intake: Intake, role: Role, fields: Fields, where: str) -> Iterator[Any]:
    call_id = fields.pop("toolUseId", None) or fields.pop("tool_use_id", None)
    failed = fields.pop("status", "success") == "error"
    failed |= fields.pop("is_error", False) is True
    content = fields.pop("content")
    items = [*items_of(intake, "user", content, f"{where}, result of {call_id}")]
    yield from intake.result(call_id, items, failed=failed)


def _picture(intake: Intake, role: Role, fields: Fields, where: str) -> Iterator[Any]:
    data, url, media_type = _source(fields["source"])
    made = picture(fields.get("format") or media_type, data, url)
    yield made or intake.keep(f"{where}: an image that models do not take", {**fields})
    for key in ("source", "format"):
        fields.pop(key, None)


def _document(intake: Intake, role: Role, fields: Fields, where: str) -> Iterator[Any]:
    data, url, media_type = _source(fields["source"])
    # Strands says for each of these what Anthropic says, under nearly the same names.
    named = {"title": fields.get("name") or fields.get("title")}
    named |= {key: fields.get(key) for key in ("context", "citations")}
    about = {key: value for key, value in named.items() if value}
    made = document(fields.get("format") or media_type, data, url, about)
    what = f"{where}: a document that models do not take"
    yield made or intake.keep(what, {**fields})
    for key in ("source", "format", "name", "title", "context", "citations"):
        fields.pop(key, None)


def _nothing(intake: Intake, role: Role, fields: Fields, where: str) -> Iterator[Any]:
    fields.clear()
    intake.leave("cachePoint")
    yield from ()


def _source(source: Mapping[str, Any]) -> tuple[str | None, Any, str]:
    """Return the bytes in base64, the address, and the MIME type, as far as given."""
    text = source.get("text")
    if source.get("type") == "text":  # Anthropic's
        text = source["data"]
    if isinstance(text, str):
        return base64.b64encode(text.encode()).decode(), None, "text/plain"
    given = source.get("bytes", source.get("data"))
    data = None if given is None else _base64(given)
    return data, source.get("url"), source.get("media_type", "")


def _base64(value: Any) -> str:
    """Return bytes in base64: Python wraps them in an object, TypeScript does not."""
    found = value["data"] if isinstance(value, dict) else value
    if not isinstance(found, str):
        raise TypeError("no bytes")
    return found


_KINDS: Mapping[str, Callable[[Intake, Role, Fields, str], Iterator[ContentItem]]] = {
    "text": _text,
    "json": _json,
    "guardContent": _guarded,
    "citationsContent": _cited,
    "reasoningContent": _thought,
    "toolUse": _call,
    "toolResult": _result,
    "image": _picture,
    "document": _document,
    "cachePoint": _nothing,
}

_BARE = ("text", "json")
"""The kinds whose value is no object of fields."""

_NEVER_OF: Mapping[str, Role] = {
    **{"reasoningContent": "user", "toolUse": "user"},
    "toolResult": "assistant",
}
"""Who never says such: a model would be refused for it, or believed."""
