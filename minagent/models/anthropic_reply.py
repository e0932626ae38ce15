"""A reply of Claude's on its way in.

The client can put a stream together, too. But it drops what it does not know, and gives
up on half an emoji in a tool's input. So `Reply` takes the events of a stream, or a
message that comes at once, and makes items of the blocks: each when it is whole.

What comes is told apart by its `type`, never by its class: of what is new, the client
makes an object of some class that it knows.

This file knows neither requests nor connections.
"""

from typing import Any

from minagent.errors import MinagentError
from minagent.events import ContentItem, Usage, load_json, new_call_id, well_formed
from minagent.model import (
    Delta,
    Emit,
    ModelResponse,
    ReasoningDelta,
    TextDelta,
    ToolInputDelta,
)
from minagent.models.anthropic_blocks import Block, is_thinking, item_of


class ReplyBrokenOffError(MinagentError):
    """A stream ended before the reply did. The blocks that were whole are kept."""

    template = "the reply broke off: {problem}; run without input to go on"


class UnknownDeltaError(MinagentError):
    """A streamed block grows in a way that this version does not know.

    Nothing of the reply is stored: it cannot be given back as it was.

    Attributes:
        kind: The type of the delta.
    """

    template = (
        "the API streams a {kind!r}, which this version of minagent cannot put "
        "together; AnthropicModel(stream=False) takes whole replies"
    )
    kind: str


class Reply:
    """A reply on its way in: its blocks are put together, and its deltas passed on.

    Args:
        emit: Takes the deltas.
        request_id: The vendor's name for the request; a whole message brings its own.

    Attributes:
        items: What is whole of it so far.
        is_whole: Whether all of it came.
    """

    def __init__(self, emit: Emit, request_id: str | None = None) -> None:
        self.items: list[ContentItem] = []
        self.is_whole = False
        self._emit, self._request_id = emit, request_id
        self._open: dict[int, _OpenBlock] = {}
        self._model: str | None = None
        self._stop_reason: str | None = None
        self._usage: dict[str, Any] = {}
        self._has_thinking = False

    def take_whole(self, message: Any) -> None:
        """Take a reply that comes at once."""
        self._request_id = message._request_id
        self._begin(message)
        self._stop_reason = message.stop_reason
        for block in message.content:
            self._keep(_plain(block))

    def take(self, event: Any) -> None:
        """Take the next event of a stream; those of unknown types are skipped.

        Raises:
            UnknownDeltaError: A block grows in an unknown way.
            ReplyBrokenOffError: A piece of the stream is missing.
        """
        match event.type:
            case "message_start":
                self._begin(event.message)
            case "content_block_start":
                block = _plain(event.content_block)
                self._open[event.index] = _OpenBlock(block, self._emit)
            case "content_block_delta":
                self._opened(event.index).grow(event.delta)
            case "content_block_stop":
                self._keep(self._opened(event.index).closed())
                del self._open[event.index]
            case "message_delta":
                self._count(event.usage)
                self._stop_reason = event.delta.stop_reason
            case "message_stop":
                for each in self._open.values():
                    self._keep(each.closed())
                self.is_whole = True

    def response(self, digest: str) -> ModelResponse:
        """Return the reply.

        Args:
            digest: Of what was sent, in case that the reply is bound to it.
        """
        counts = {name: self._usage.get(key) or 0 for name, key in _COUNTS.items()}
        return ModelResponse(
            tuple(self.items),
            stop_reason=self._stop_reason or "end_turn",
            usage=Usage(**counts),
            model=self._model,
            request_id=self._request_id,
            prefix_digest=digest if self._has_thinking else None,
        )

    def _begin(self, message: Any) -> None:
        self._model = message.model
        self._count(message.usage)

    def _count(self, usage: Any) -> None:
        # The figures are totals so far; one that is left out stands as it was.
        given = _plain(usage) if usage is not None else {}
        self._usage |= {key: x for key, x in given.items() if x is not None}

    def _opened(self, index: int) -> "_OpenBlock":
        if index not in self._open:
            raise ReplyBrokenOffError(problem=f"block {index} has no beginning")
        return self._open[index]

    def _keep(self, block: Block) -> None:
        self.items.append(item_of(block))
        self._has_thinking = self._has_thinking or is_thinking(block)


_COUNTS = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_tokens": "cache_read_input_tokens",
    "cache_write_tokens": "cache_creation_input_tokens",
}


def _plain(value: Any) -> Block:
    """Return an object of the client as the JSON that it was made from.

    `model_dump` would add the keys that the client knows and the API did not send.
    """
    found: Block = value.to_dict(warnings=False)
    return found


class _OpenBlock:
    """A block of a stream that is not whole yet."""

    def __init__(self, block: Block, emit: Emit) -> None:
        if block.get("type") == "tool_use" and not isinstance(block.get("id"), str):
            block["id"] = new_call_id()
        self._block, self._emit = block, emit
        self._pieces: dict[str, list[str]] = {}
        self._words = _Words()
        for field in ("text", "thinking"):
            if isinstance(text := block.get(field), str):
                self._add(field, text)

    def grow(self, delta: Any) -> None:
        """Take what a delta adds.

        Raises:
            UnknownDeltaError: Its type is not known.
        """
        match delta.type:
            case "text_delta":
                self._add("text", delta.text)
            case "thinking_delta":
                self._add("thinking", delta.thinking)
            case "input_json_delta":
                self._add("input", delta.partial_json)
            case "signature_delta":
                self._block["signature"] = delta.signature
            case "citations_delta":
                known = self._block.get("citations") or []
                self._block["citations"] = [*known, _plain(delta.citation)]
            case kind:
                raise UnknownDeltaError(kind=kind)

    def closed(self) -> Block:
        """Return the block, now that nothing more comes."""
        self._show(self._words.rest())
        whole = {field: "".join(pieces) for field, pieces in self._pieces.items()}
        text = whole.pop("input", "")
        if text.strip():
            whole |= self._input(text)
        return self._block | whole

    def _input(self, text: str) -> Block:
        try:
            value = load_json(text)
        except ValueError:
            value = None
        if isinstance(value, dict):
            return {"input": value}
        # Of a tool of ours the text is kept; other blocks stay as they began.
        return {"input": text} if self._block.get("type") == "tool_use" else {}

    def _add(self, field: str, piece: str) -> None:
        self._pieces.setdefault(field, []).append(piece)
        self._show(self._words.take(piece))

    def _show(self, text: str) -> None:
        if text and (delta := self._delta(text)):
            self._emit(delta)

    def _delta(self, text: str) -> Delta | None:
        match self._block:
            case {"type": "text"}:
                return TextDelta(text)
            case {"type": "thinking"}:
                return ReasoningDelta(text)
            case {"type": "tool_use", "id": call_id, "name": str(name)}:
                return ToolInputDelta(call_id, name, text)
        return None


class _Words:
    """Text that comes in pieces, which may split a letter of two halves."""

    def __init__(self) -> None:
        self._half = ""

    def take(self, piece: str) -> str:
        """Return what is whole of it; a half that nothing belongs to is replaced."""
        text, self._half = self._half + piece, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return well_formed(text)

    def rest(self) -> str:
        """Return what is left, now that nothing more comes."""
        half, self._half = self._half, ""
        return well_formed(half)
