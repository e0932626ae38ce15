"""Chapter 12, your turn: a model behind an HTTP endpoint that is nobody's vendor.

Check it with `pytest chapters/ch12_real_model --mine`.
"""

from collections.abc import Mapping
from typing import Any

from minagent import ModelRequest, ModelResponse
from minagent.events import ContentItem
from minagent.model import Emit

Part = dict[str, Any]
"""A piece of a turn, in the endpoint's words: an object with a `kind`."""


def item_of(part: Mapping[str, Any]) -> ContentItem:
    """Return the item for a part that the endpoint has said.

        {"kind": "text", "text": "Hello."}                              Message
        {"kind": "call", "id": "c1", "name": "add", "arguments": {}}    ToolCall
        any other kind                                                  Opaque

    A text or a call may have more fields than these. They are kept in `extra`, without
    the `kind`.
    """
    raise NotImplementedError("item_of() makes no item of a part yet")


def part_of(item: ContentItem) -> Part:
    """Return the part for an item of a request.

    What `item_of` made an item of becomes the same part again. What a user said is a
    text, too. And the result of a call is

        {"kind": "result", "id": "c1", "text": "4", "failed": False}

    where `failed` is whether its `status` is something else than "success".

    Raises:
        TypeError: The endpoint has no word for such an item.
    """
    raise NotImplementedError("part_of() makes no part of an item yet")


class HttpModel:
    """A model that is asked over HTTP. It keeps nothing from one request to the next.

    Args:
        url: The endpoint.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    async def generate(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Ask the endpoint, and return its reply.

        A request is one POST, with the header `Content-Type: application/json` and

            {"system": "Be brief.",
             "tools": [{"name": "add", "description": "...", "parameters": {...}}],
             "turns": [{"role": "user", "parts": [...]}, ...]}

        `system` is null if there are no instructions. The answer is

            {"parts": [...], "stop": "done"}

        `stop` is `done`, `calls` or `length`, which are our `end_turn`, `tool_use` and
        `max_tokens`. Keep any other word as it is: it ends the run.

        It is not streamed, so there is nothing to `emit`. While it waits, other runs go
        on; `urllib.request` waits in a thread, if `asyncio.to_thread` calls it.

        Raises:
            OSError: The endpoint can't be reached, or its status is an error. (What
                `urllib.request` raises is one.)
        """
        raise NotImplementedError("generate() does not ask the endpoint yet")
