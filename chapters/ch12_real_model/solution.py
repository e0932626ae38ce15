"""Chapter 12, a solution: a model behind an HTTP endpoint that is nobody's vendor."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from urllib.request import Request, urlopen

from minagent import Message, ModelRequest, ModelResponse, Opaque, ToolCall, ToolResult
from minagent.events import ContentItem
from minagent.model import Emit

Part = dict[str, Any]
"""A piece of a turn, in the endpoint's words: an object with a `kind`."""

STOPS = {"done": "end_turn", "calls": "tool_use", "length": "max_tokens"}


def item_of(part: Mapping[str, Any]) -> ContentItem:
    """Return the item for a part that the endpoint has said."""
    match part:
        case {"kind": "text", "text": text, **extra}:
            return Message(role="assistant", content=text, extra=extra)
        case {"kind": "call", "id": id, "name": name, "arguments": given, **extra}:
            return ToolCall(tool_call_id=id, name=name, arguments=given, extra=extra)
    return Opaque(block=dict(part))


def part_of(item: ContentItem) -> Part:
    """Return the part for an item of a request."""
    match item:
        case Message():
            return {"kind": "text", "text": item.content, **item.extra}
        case ToolCall():
            call = {"id": item.tool_call_id, "name": item.name}
            return {"kind": "call", **call, "arguments": item.arguments, **item.extra}
        case ToolResult():
            result = {"id": item.tool_call_id, "text": item.content}
            return {"kind": "result", **result, "failed": item.status != "success"}
        case Opaque():
            return dict(item.block)
    raise TypeError(f"the endpoint has no word for {item!r}")


class HttpModel:
    """A model that is asked over HTTP. It keeps nothing from one request to the next.

    Args:
        url: The endpoint.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    async def generate(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Ask the endpoint, and return its reply."""
        names = ("name", "description", "parameters")
        asked = {
            "system": request.instructions,
            "tools": [{x: getattr(tool, x) for x in names} for tool in request.tools],
            "turns": [
                {"role": turn.role, "parts": [*map(part_of, turn.content)]}
                for turn in request.turns
            ],
        }
        answer = await asyncio.to_thread(self._post, asked)
        stop = answer["stop"]
        items = tuple(map(item_of, answer["parts"]))
        return ModelResponse(items, stop_reason=STOPS.get(stop, stop))

    def _post(self, asked: Part) -> Part:
        headers = {"Content-Type": "application/json"}
        request = Request(self.url, json.dumps(asked).encode(), headers)
        with urlopen(request) as response:
            answer: Part = json.load(response)
        return answer
