"""Anthropic's content blocks and minagent's items, one at a time, both ways.

    text                           Message
    thinking, redacted_thinking    Reasoning
    tool_use                       ToolCall
    tool_result                    ToolResult, which is only ever sent
    image, document                Media
    all the others                 Opaque: server tools, their results, what is new

What a model said goes back as it came. So `item_of` keeps the fields that an item has
no name for in `extra`, converts what it made back with `block_of`, and where that is
not the same JSON keeps the block whole, as `Opaque`.

This file knows neither the SDK nor a conversation.
"""

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from minagent.errors import NotSerializableError
from minagent.events import (
    ContentItem,
    Media,
    Message,
    Note,
    Opaque,
    Reasoning,
    ToolCall,
    ToolConfirmation,
    ToolResult,
    new_call_id,
    well_formed,
)

Block: TypeAlias = dict[str, Any]


def item_of(block: Mapping[str, Any]) -> ContentItem:
    """Return the item for a block of a reply.

    Args:
        block: The block as JSON data. The input of a `tool_use` may be the text that
            came, where it could not be read.

    Raises:
        NotSerializableError: The block holds what JSON has no word for, such as NaN.
    """
    given: Block = well_formed(dict(block))
    kind = given.get("type")
    if kind == "tool_use" and isinstance(given.get("name"), str):
        return _tool_call(given)
    if make := _ITEMS.get(str(kind)):
        try:
            item = make(given)
        except (AttributeError, KeyError, TypeError, ValueError):
            return Opaque(block=given)
        if is_same(block_of(item), given):
            return item
    return Opaque(block=given)


def block_of(item: ContentItem) -> Block:
    """Return the block for an item of a transcript.

    Raises:
        TypeError: It is a note or a decision, which no transcript holds.
    """
    match item:
        case Message():
            extra = dict(item.extra)
            if item.role == "user":  # refused there, and the text may be a quotation
                extra.pop("citations", None)
            return extra | {"type": "text", "text": item.content}
        case Reasoning(redacted=str(data)):
            return {**item.extra, "type": "redacted_thinking", "data": data}
        case Reasoning():
            signed = {} if item.signature is None else {"signature": item.signature}
            block = {**item.extra, "type": "thinking", "thinking": item.content}
            return block | signed
        case ToolCall():
            call = {"id": item.tool_call_id, "name": item.name, "input": item.arguments}
            return {**item.extra, "type": "tool_use", **call}
        case ToolResult():
            return _tool_result(item)
        case Media():
            kind = "image" if is_image(item) else "document"
            return {**item.extra, "type": kind, "source": _source(item)}
        case Opaque():
            return dict(item.block)
        case Note() | ToolConfirmation():
            raise TypeError(f"{item!r} is not for a model")


def is_thinking(block: Mapping[str, Any]) -> bool:
    """Whether a block is a thought, readable or not."""
    return block.get("type") in ("thinking", "redacted_thinking")


def is_sealed(block: Mapping[str, Any]) -> bool:
    """Whether a thought has the seal without which it is refused."""
    return bool(block.get("signature") or block.get("data"))


def is_server_call(block: Mapping[str, Any]) -> bool:
    """Whether a block is a call that the vendor's side carries out."""
    kind = str(block.get("type"))
    return kind.endswith("_tool_use")


def is_image(media: Media) -> bool:
    """Whether it is sent as an image, and not as a document."""
    return media.media_type.startswith("image/")


def is_same(one: object, other: object) -> bool:
    """Whether two values are the same JSON: keys, values and types."""
    return canonical(one) == canonical(other)


def canonical(value: object) -> str:
    """Return JSON text that does not depend on the order of keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


# --- Blocks to items ----------------------------------------------------------


def _rest(block: Block, *known: str) -> Block:
    return {key: x for key, x in block.items() if key not in ("type", *known)}


def _message(block: Block) -> Message:
    extra = _rest(block, "text")
    return Message(role="assistant", content=block["text"], extra=extra)


def _thought(block: Block) -> Reasoning:
    return Reasoning(
        content=block["thinking"],
        signature=block.get("signature"),
        extra=_rest(block, "thinking", "signature"),
    )


def _hidden_thought(block: Block) -> Reasoning:
    return Reasoning(content="", redacted=block["data"], extra=_rest(block, "data"))


def _media(block: Block) -> Media:
    source, any_type = block["source"], {"image": "image/*"}
    return Media(
        media_type=source.get("media_type") or any_type.get(block["type"], "*/*"),
        data=source.get("data"),
        url=source.get("url"),
        extra=_rest(block, "source"),
    )


def _tool_call(block: Block) -> ToolCall:
    """A call stays a call in any case: without a result for it, nothing goes on."""
    given, call_id = block.get("input"), block.get("id")
    extra = _rest(block, "id", "name", "input")
    name = block["name"]
    call_id = call_id if isinstance(call_id, str) else new_call_id()
    if isinstance(given, dict):
        try:
            return ToolCall(
                name=name, arguments=given, tool_call_id=call_id, extra=extra
            )
        except NotSerializableError:
            pass  # nested too deeply, or a number that no JSON holds
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    return ToolCall(name=name, tool_call_id=call_id, unreadable=text, extra=extra)


_ITEMS: Mapping[str, Callable[[Block], ContentItem]] = {
    "text": _message,
    "thinking": _thought,
    "redacted_thinking": _hidden_thought,
    "image": _media,
    "document": _media,
}


# --- Items to blocks ----------------------------------------------------------


def _tool_result(result: ToolResult) -> Block:
    content: str | list[Block] = result.content
    if result.media:
        text = [{"type": "text", "text": result.content}]
        media = [block_of(each) for each in result.media]
        content = [*(text if result.content.strip() else []), *media]
    block: Block = {"type": "tool_result", "tool_use_id": result.tool_call_id}
    block |= {"content": content}
    return block if result.status == "success" else block | {"is_error": True}


def _source(media: Media) -> Block:
    if media.url is not None:
        return {"type": "url", "url": media.url}
    if media.media_type.startswith("text/"):  # base64 is for PDF only
        try:
            text = base64.b64decode(media.data or "", validate=True).decode()
        except ValueError:
            pass  # then the API says what is wrong
        else:
            return {"type": "text", "media_type": "text/plain", "data": text}
    return {"type": "base64", "media_type": media.media_type, "data": media.data}
