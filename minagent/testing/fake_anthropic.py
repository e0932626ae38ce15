"""A double of the Messages API, as strict as the API itself.

    async with FakeAnthropic(["Hello.", ApiError(529, "overloaded_error", "")]) as api:
        model = AnthropicModel("claude-...", base_url=api.url, max_tokens=1024)
        ...
    api.assert_done()

It speaks HTTP on loopback, so the real client is what is tested. It plays one reply for
each request, as JSON or as a stream, as the request asks. What the API would refuse, it
refuses as the API does; `anthropic_rules` has the rules and says where each comes from.

Read the replies first, then `FakeAnthropic`; how a message is taken apart for a stream
is at the end. It needs neither pytest nor a client, and knows nothing of minagent.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from inspect import isawaitable
from itertools import accumulate, pairwise
from types import TracebackType
from typing import Any, Self, TypeAlias
from uuid import uuid4

from minagent.testing.anthropic_rules import (
    CALLS,
    Json,
    RefusedError,
    Request,
    Sent,
    check,
    check_headers,
    parsed,
)

# --- Replies ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ApiError:
    """A reply that is an error.

    Attributes:
        status: The HTTP status; after 429, and from 500 on, the client tries again.
        type: The API's name for it: `rate_limit_error`, `overloaded_error`, ...
        message: What the error says.
        retry_after: How many seconds the client should wait; None lets it choose.
    """

    status: int
    type: str
    message: str
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Cut:
    """A reply that breaks off.

    Attributes:
        reply: What would have been sent.
        at_byte: How many bytes of the body arrive. If there are no more than that, the
            reply is whole.
        clean: Whether this looks like a proper end, not like a broken connection.
    """

    reply: "Reply"
    at_byte: int
    clean: bool = False


@dataclass(frozen=True, slots=True)
class Slow:
    """A reply that keeps the client waiting.

    Attributes:
        reply: What is sent.
        seconds: How long the client waits.
        at_byte: Before which byte of the body; 0 holds the headers back, too.
    """

    reply: "Reply"
    seconds: float
    at_byte: int = 0


@dataclass(frozen=True, slots=True)
class Edited:
    """A reply whose stream a function has changed: new kinds of deltas, errors in it.

    Attributes:
        reply: What is streamed.
        edit: Given the events, returns those that are sent. It has no say in an answer
            that is not streamed.
    """

    reply: "Reply"
    edit: "Edit"


Edit: TypeAlias = Callable[[list[Json]], list[Json]]
Reply: TypeAlias = (
    str
    | Sequence[Mapping[str, Any] | str]
    | Mapping[str, Any]
    | ApiError
    | Cut
    | Slow
    | Edited
    | Callable[[Json], "Reply | Awaitable[Reply]"]
)


# --- The server ---------------------------------------------------------------


class FakeAnthropic:
    """Plays prepared replies over HTTP, one for each request that it accepts.

    Args:
        script: The replies, in order. A text, or a list of content blocks and texts, is
            a message. A dict is one with `content` and any other field of a message.
            What is not given (ids, signatures, usage, stop reason) is filled in. An
            `input` that is a string is streamed as it is, so that it can be no JSON at
            all. A function is given the request's body and returns a reply, or awaits
            it; an error that it raises comes out of the `async with` block.
        strict_roles: Whether neighbours of one role are refused, and not merged.
        enforce_binding: Whether V6 and `binding` hold. For them the double remembers
            what it has sent, so a log with thinking from elsewhere needs them off.
        after: An earlier double. What that one has sent counts as sent by this one: a
            conversation goes on after a restart.

    Attributes:
        url: The address that it listens at: the `base_url` of the client.
        requests: The bodies of the requests for a message so far, refused ones too.
        headers: The headers of each, by lower-case name.
        refusals: What was said about each request that was refused.
        bodies: The body of each answer, whole even if it was cut.
    """

    def __init__(
        self,
        script: Iterable[Reply],
        *,
        strict_roles: bool = True,
        enforce_binding: bool = True,
        after: "FakeAnthropic | None" = None,
    ) -> None:
        self._script = iter(script)
        self._strict_roles = strict_roles
        self._enforce_binding = enforce_binding
        self._sent: Sent = Sent() if after is None else after._sent
        self._played = self._missing = 0
        self._connections: set[asyncio.Task[None]] = set()
        self._errors: list[BaseException] = []
        self.url = ""
        self.requests: list[Json] = []
        self.headers: list[dict[str, str]] = []
        self.refusals: list[str] = []
        self.bodies: list[bytes] = []

    def assert_done(self) -> None:
        """Check that each reply was asked for, and nothing more.

        Raises:
            AssertionError: Replies are left over, or there were not enough.
        """
        left = list(self._script)
        assert not left, f"{len(left)} replies of the script were not played: {left!r}"
        assert not self._missing, f"{self._missing} requests found no reply"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = "http://{}:{}".format(*self._server.sockets[0].getsockname())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()
        if self._errors:  # the cause of what the client raised, if it raised anything
            raise self._errors[0]

    def _connected(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if not self._server.is_serving():  # it came too late
            writer.close()
            return
        task = asyncio.create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._disconnected)

    def _disconnected(self, task: asyncio.Task[None]) -> None:
        self._connections.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._errors.append(error)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answer one request and close: a cut must end the connection anyway."""
        try:
            # The client may leave at any time.
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                line, *lines = head.strip().split("\r\n")
                split = (line.partition(":") for line in lines)
                headers = {name.lower(): value.strip() for name, _, value in split}
                raw = await reader.readexactly(int(headers.get("content-length", 0)))
                answering = self._answer(line, headers, raw)
                [answer] = await asyncio.gather(answering, return_exceptions=True)
                if isinstance(answer, BaseException):
                    self._errors.append(answer)
                    answer = _failure(f"a function of the script raised {answer!r}")
                self.bodies.append(b"".join(answer.parts))
                await answer.write(writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(
        self, line: str, headers: dict[str, str], raw: bytes
    ) -> "_Answer":
        endpoint = re.sub(r"(\?.*)? HTTP/1.1$", "", line)  # beta calls: ?beta=true
        counting = endpoint == "POST /v1/messages/count_tokens"
        if not counting and endpoint != "POST /v1/messages":
            return _error(404, "not_found_error", f"there is no {endpoint}")
        try:
            request = self._checked(headers, raw, counting=counting)
        except RefusedError as refused:
            self.refusals.append(str(refused))
            return _error(refused.status, refused.kind, str(refused))
        if counting:
            return _Answer([_json({"input_tokens": _tokens(request.body)})])
        return await self._play(request)

    def _checked(
        self, headers: dict[str, str], raw: bytes, *, counting: bool
    ) -> Request:
        check_headers(headers)
        body = parsed(raw)
        if not counting:
            self.requests.append(body)
            self.headers.append(headers)
        request = Request(body, headers, self._sent, merge=not self._strict_roles)
        skipped = {"max_tokens"} if counting else set()
        if not self._enforce_binding:
            skipped |= {"V6", "binding"}
        check(request, skipped=skipped)
        return request

    async def _play(self, request: Request) -> "_Answer":
        reply: Any = next(self._script, None)
        if reply is None:
            self._missing += 1
            return _failure(f"the script has {self._played} replies: one is missing")
        self._played += 1
        cut: Cut | None = None
        pauses: dict[int, float] = {}
        edits: list[Edit] = []
        while isinstance(reply, Cut | Slow | Edited) or callable(reply):
            if isinstance(reply, Cut):
                cut, reply = reply, reply.reply
            elif isinstance(reply, Slow):
                pauses[reply.at_byte], reply = reply.seconds, reply.reply
            elif isinstance(reply, Edited):
                edits[:0], reply = [reply.edit], reply.reply  # the innermost first
            else:
                reply = reply(request.body)
                reply = await reply if isawaitable(reply) else reply
        answer = self._rendered(reply, request, edits)
        return replace(answer, cut=cut, pauses=pauses)

    def _rendered(
        self, reply: Any, request: Request, edits: Iterable[Edit]
    ) -> "_Answer":
        if isinstance(reply, ApiError):
            wait = reply.retry_after
            headers = {} if wait is None else {"retry-after": f"{wait:g}"}
            return _error(reply.status, reply.type, reply.message, headers)
        message = _message(reply, request)
        self._sent.remember(message, request.prefix)
        if not request.body.get("stream"):
            return _Answer([_json(message)])
        events = _events(message)
        for edit in edits:
            events = edit(events)
        return _Answer([*map(_sse, events)], stream=True)


@dataclass(frozen=True, slots=True)
class _Answer:
    """An answer, and the way in which it arrives."""

    parts: Sequence[bytes]
    stream: bool = False
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: Cut | None = None
    pauses: Mapping[int, float] = field(default_factory=dict)

    async def write(self, writer: asyncio.StreamWriter) -> None:
        body = b"".join(self.parts)
        end, proper = len(body), True
        if self.cut is not None and self.cut.at_byte < end:
            end, proper = self.cut.at_byte, self.cut.clean
        await asyncio.sleep(self.pauses.get(0, 0))
        headers = {
            "content-type": "text/event-stream" if self.stream else "application/json",
            "request-id": _id("req"),
            "connection": "close",
            **self.headers,
        }
        if self.stream:
            headers["transfer-encoding"] = "chunked"
        else:
            headers["content-length"] = str(end if proper else len(body))
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"HTTP/1.1 {self.status} \r\n{lines}\r\n".encode())
        stops = {0, end, *self.pauses, *accumulate(map(len, self.parts))}
        for start, stop in pairwise(sorted(stop for stop in stops if stop <= end)):
            await writer.drain()
            await asyncio.sleep(self.pauses.get(start, 0) if start else 0)
            part = body[start:stop]
            writer.write(b"%x\r\n%b\r\n" % (len(part), part) if self.stream else part)
        if self.stream and proper:
            writer.write(b"0\r\n\r\n")
        await writer.drain()


def _error(
    status: int, kind: str, message: str, headers: Mapping[str, str] | None = None
) -> _Answer:
    body = {"type": "error", "error": {"type": kind, "message": message}}
    return _Answer([_json(body)], status=status, headers=headers or {})


def _failure(message: str) -> _Answer:
    """Tell that the test is wrong, with a 500 that the client does not repeat."""
    return _error(500, "api_error", message, {"x-should-retry": "false"})


# --- The message and its stream -----------------------------------------------

ID_PREFIXES = {
    "tool_use": "toolu",
    "server_tool_use": "srvtoolu",
    "mcp_tool_use": "mcptoolu",
}


def _message(reply: Any, request: Request) -> Json:
    given = dict(reply) if isinstance(reply, Mapping) else {"content": reply}
    parts = given.pop("content")
    content = [_filled(part) for part in ([parts] if isinstance(parts, str) else parts)]
    calls = any(block["type"] == "tool_use" for block in content)
    message = {
        "id": _id("msg"),
        "type": "message",
        "role": "assistant",
        "model": request.body["model"],
        "content": content,
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
    }
    if request.reports:
        reason = {"type": "thinking_dropped", "reason": "prefix_binding_mismatch"}
        dropped = [reason | {"path": path} for path in request.stale]
        message["input_transformations"] = dropped
    usage = {
        "input_tokens": _tokens(request.body),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": _tokens(content),
    }
    return message | given | {"usage": usage | given.get("usage", {})}


def _filled(part: Mapping[str, Any] | str) -> Json:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    kind = part["type"]
    if kind in CALLS:
        return {"type": kind, "id": _id(ID_PREFIXES[kind]), "input": {}, **part}
    if kind == "thinking":
        return {"type": kind, "thinking": "", "signature": _id("sig"), **part}
    if kind == "redacted_thinking":
        return {"type": kind, "data": _id("data"), **part}
    return dict(part)


def _events(message: Json) -> list[Json]:
    """Take a message apart, as the API streams it."""
    begun = message | {"content": [], "stop_reason": None, "stop_sequence": None}
    begun["usage"] = message["usage"] | {"output_tokens": 1}
    events: list[Json] = [{"type": "message_start", "message": begun}, {"type": "ping"}]
    for index, block in enumerate(message["content"]):
        first, deltas = _streamed(block)
        events.append(_event("start", index, content_block=first))
        events += [_event("delta", index, delta=delta) for delta in deltas]
        events.append(_event("stop", index))
    ending = ("stop_reason", "stop_sequence", "stop_details", "container")
    delta = {name: message[name] for name in ending if name in message}
    events.append({"type": "message_delta", "delta": delta, "usage": message["usage"]})
    return [*events, {"type": "message_stop"}]


def _event(what: str, index: int, **more: Json) -> Json:
    return {"type": f"content_block_{what}", "index": index, **more}


def _streamed(block: Json) -> tuple[Json, list[Json]]:
    """Return a block as it begins, and the deltas that complete it."""
    kind = block["type"]
    if kind == "text":
        deltas = _deltas("text", block["text"])
        cited = block.get("citations") or []
        deltas += [{"type": "citations_delta", "citation": one} for one in cited]
        return block | {"text": ""} | ({"citations": []} if cited else {}), deltas
    if kind == "thinking":
        deltas = _deltas("thinking", block["thinking"])
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
        return block | {"thinking": "", "signature": ""}, deltas
    if kind in CALLS:
        given = block["input"]
        text = given if isinstance(given, str) else json.dumps(given)
        first = {"type": "input_json_delta", "partial_json": ""}
        # For an empty object, the API sends nothing but this.
        return block | {"input": {}}, [
            first,
            *_deltas("input_json", "" if given == {} else text),
        ]
    return block, []


def _deltas(kind: str, text: str) -> list[Json]:
    """Cut a text small enough to part escapes, words and joined emoji."""
    field = "partial_json" if kind == "input_json" else kind
    return [
        {"type": f"{kind}_delta", field: text[start : start + 5]}
        for start in range(0, len(text), 5)
    ]


def _sse(event: Json) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), _json(event))


def _json(value: Any) -> bytes:
    # Half an emoji, which UTF-8 has no bytes for, goes out as JSON's escape.
    return json.dumps(value, ensure_ascii=False).encode(errors="backslashreplace")


def _tokens(value: Any) -> int:
    """Guess how many tokens these are: one for four bytes."""
    return len(_json(value)) // 4 + 1


def _id(prefix: str) -> str:
    return f"{prefix}_{uuid4().hex[:24]}"
