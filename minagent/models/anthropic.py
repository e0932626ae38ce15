"""Claude, through Anthropic's own client.

    model = AnthropicModel("claude-opus-5-5", max_tokens=4096)

Read `AnthropicModel.generate` first: it makes the arguments of one call, and a response
of what comes back. The other parts have files of their own, which do not know the
client: `anthropic_messages.py` makes messages of turns, `anthropic_reply.py` puts
together what is streamed, and `anthropic_blocks.py` is for one block at a time.

Retries, timeouts and the errors of the API are the client's; an error only gets a note
that says what to do. This is the one file that imports the client.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self
from weakref import WeakKeyDictionary

import anthropic
import httpx2
from pydantic import JsonValue

from minagent.errors import MinagentError
from minagent.events import thaw
from minagent.model import Emit, ModelRequest, ModelResponse, ToolSpec
from minagent.models.anthropic_blocks import Block
from minagent.models.anthropic_messages import Messages, Thinking
from minagent.models.anthropic_reply import (
    Reply,
    ReplyBrokenOffError,
    UnknownDeltaError,
)

BINDING_BETA = "thinking-binding-controls-2026-08-01"
"""With it a request may say what becomes of thinking that is bound to something else.

https://platform.claude.com/docs/en/build-with-claude/preserved-thinking/prefix-checks
"""

WHOLE_REPLY_SECONDS = 3600.0
"""How long a reply that is not streamed may take: the client's own estimate for the
longest ones, which it would rather see streamed."""

_CUT = (httpx2.RequestError, UnicodeDecodeError, json.JSONDecodeError)
"""What the client lets through of a stream that was cut, be it within a letter."""

_OURS = {"max_tokens", "messages", "model", "stream", "system", "thinking"}
_ADVICE = {
    401: "The key was refused: check ANTHROPIC_API_KEY, or the client that you passed.",
    403: "The key may not do this: may its workspace use {model!r}?",
    404: "Is there a model {model!r}? Check the name, and base_url if you passed one.",
}


class MissingKeyError(MinagentError):
    """There is no key for the API."""

    template = (
        "no key for the Anthropic API: set ANTHROPIC_API_KEY, or pass "
        "client=anthropic.AsyncAnthropic(api_key=...); "
        "minagent.models.OfflineModel needs none"
    )


class AnthropicModel:
    """Claude.

    Args:
        model: Its name at the API.
        max_tokens: How long a reply may be, thinking included.
        thinking: As the API takes it; None leaves it to the model.
        client: A client with a key of its own; it is not closed by this class.
        base_url: Where another server speaks this API. It gets ANTHROPIC_API_KEY, if
            that is set, and otherwise a placeholder.
        stream: Whether replies are streamed.
        cache: Whether the prompt is cached.
        extra: More arguments for `messages.create`, such as `metadata` or `timeout`.
            Its `tools` (those of the vendor) are added to the agent's, `betas` and the
            keys of `output_config` to what is sent of these; other arguments, such as
            `cache_control`, stand in the place of ours.

    Raises:
        MissingKeyError: There is no key, no client and no base_url.
        ValueError: The options exclude each other, or `extra` has what is an option.
    """

    def __init__(
        self,
        model: str,
        *,
        max_tokens: int,
        thinking: Mapping[str, Any] | None = None,
        client: anthropic.AsyncAnthropic | None = None,
        base_url: str | None = None,
        stream: bool = True,
        cache: bool = True,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        if max_tokens < 1:
            raise ValueError(f"max_tokens is {max_tokens}; a reply has at least 1")
        if client is not None and base_url is not None:
            raise ValueError("pass client or base_url; a client has its own base_url")
        if taken := _OURS & set(extra or ()):
            raise ValueError(f"extra has {sorted(taken)}, which are set elsewhere")
        self.model = model
        self._max_tokens = max_tokens
        self._thinking = dict(thinking) if thinking is not None else None
        self._client, self._base_url = client, base_url
        self._stream, self._cache = stream, cache
        self._extra = dict(extra or {})
        self._messages = Messages(_sent_thinking(self._thinking))
        # A connection belongs to an event loop, so each loop has a client. The first
        # is made here, because a missing key is found out where the model is named.
        self._clients: WeakKeyDictionary[
            asyncio.AbstractEventLoop, anthropic.AsyncAnthropic
        ] = WeakKeyDictionary()
        self._unused = None if client else self._new_client()

    async def generate(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Return Claude's reply.

        Raises:
            anthropic.APIError: The API, or the way to it, failed. What to do about a
                refused key or an unknown model is in the error's notes.
            ReplyBrokenOffError: The stream ended before the reply did.
            UnknownDeltaError: A streamed block cannot be put together.
            NotSerializableError: The reply has what JSON has no word for.
        """
        arguments, digest = self._prepared(request)
        client = self._client or self._client_of_loop()
        home: Any = client.beta if "betas" in arguments else client
        with self._advice():
            if not self._stream:
                message = await home.messages.create(**arguments)
                reply = Reply(emit)
                reply.take_whole(message)
            else:
                async with await home.messages.create(
                    stream=True, **arguments
                ) as stream:
                    reply = await _streamed(stream, emit)
        return reply.response(digest)

    def arguments(self, request: ModelRequest) -> dict[str, Any]:
        """Return what a request is sent as: the arguments of `messages.create`."""
        return self._prepared(request)[0]

    async def aclose(self) -> None:
        """Close the connections of this event loop. The next request opens new ones."""
        unused, self._unused = self._unused, None
        client = self._clients.pop(asyncio.get_running_loop(), None)
        for each in (unused, client):
            if each is not None:
                await each.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def _prepared(self, request: ModelRequest) -> tuple[dict[str, Any], str]:
        """Return the arguments of the call, and the digest of what they send."""
        made: dict[str, Any] = {"model": self.model, "max_tokens": self._max_tokens}
        extra = dict(self._extra)
        betas = list(extra.pop("betas", ()))
        tools = [_tool(each) for each in request.tools] + list(extra.pop("tools", ()))
        if request.instructions and request.instructions.strip():
            made["system"] = request.instructions
        if tools:
            made["tools"] = tools
        head = [made.get("system"), tools]
        conversation = self._messages.of(request.turns, head)
        made["messages"] = conversation.messages
        if self._cache:
            made["cache_control"] = {"type": "ephemeral"}
        if not self._stream:
            made["timeout"] = self._timeout()
        form = _form(request.output_schema)
        if form or "output_config" in extra:
            made["output_config"] = form | dict(extra.pop("output_config", {}))
        thinking = self._thinking
        if conversation.is_stale:
            dropping = {"prefix_mismatch_behavior": "drop_block"}
            thinking = {
                "type": "adaptive",  # what leaving it out means on models that bind
                "block_binding": dropping,
                **(thinking or {}),
            }
        if thinking is not None:
            made["thinking"] = thinking
            if "block_binding" in thinking and BINDING_BETA not in betas:
                betas.append(BINDING_BETA)
        if betas:
            made["betas"] = betas
        return made | extra, conversation.digest

    def _timeout(self) -> Any:
        """Return the time for a whole reply, which the client wants to be told."""
        theirs = self._client.timeout if self._client else anthropic.DEFAULT_TIMEOUT
        if theirs != anthropic.DEFAULT_TIMEOUT:
            return theirs
        return anthropic.Timeout(WHOLE_REPLY_SECONDS, connect=5.0)

    def _new_client(self) -> anthropic.AsyncAnthropic:
        client = anthropic.AsyncAnthropic(base_url=self._base_url)
        if any((client.api_key, client.auth_token, client.credentials)):
            return client
        if self._base_url is None:
            raise MissingKeyError
        return client.copy(api_key="none")

    def _client_of_loop(self) -> anthropic.AsyncAnthropic:
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            client, self._unused = self._unused or self._new_client(), None
            self._clients[loop] = client
        return client

    @contextmanager
    def _advice(self) -> Iterator[None]:
        try:
            yield
        except anthropic.APIStatusError as error:
            if note := _ADVICE.get(error.status_code):
                error.add_note(note.format(model=self.model))
            raise


def _sent_thinking(thinking: Mapping[str, Any] | None) -> Thinking:
    """Return what to send of earlier thinking."""
    match thinking:
        case None | {"type": "adaptive" | "enabled"}:
            return "all"  # the API can be told to drop what is stale
        case {"type": "disabled"}:
            return "none"
    return "valid"


def _tool(spec: ToolSpec) -> Block:
    schema = dict(spec.parameters)
    return {"name": spec.name, "description": spec.description, "input_schema": schema}


def _form(schema: Mapping[str, JsonValue] | None) -> Block:
    """Return the output format for a schema; nothing if the API has none for it.

    It takes objects of known keys only. The agent checks the answer in any case.
    """
    if schema is None or _has_open_objects(schema):
        return {}
    try:
        known = anthropic.transform_schema(thaw(schema))
    except ValueError:
        return {}
    return {"format": {"type": "json_schema", "schema": known}}


def _has_open_objects(schema: object) -> bool:
    if isinstance(schema, list):
        return any(map(_has_open_objects, schema))
    if not isinstance(schema, dict):
        return False
    is_open = schema.get("type") == "object" and "properties" not in schema
    return is_open or any(map(_has_open_objects, schema.values()))


async def _streamed(stream: Any, emit: Emit) -> Reply:
    """Return the reply of a stream, or hand over what was whole of it and raise."""
    reply = Reply(emit, stream.response.headers.get("request-id"))
    try:
        try:
            async for event in stream:
                reply.take(event)
        except _CUT as error:
            raise ReplyBrokenOffError(problem=str(error) or repr(error)) from error
        if not reply.is_whole:
            raise ReplyBrokenOffError(problem="the stream ended without a message_stop")
    except UnknownDeltaError:
        raise
    except BaseException:
        for item in reply.items:
            emit(item)
        raise
    return reply
