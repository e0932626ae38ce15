"""What the Messages API (version 2026-10-21) refuses: each rule is one function.

A refusal has status 400 (401 for `auth`), and names each rule that the request breaks:

    rule           the request                                    where it comes from
    auth           brings a key                                   Errors
    version        says which version of the API it means         Versions
    schema         has the fields that no request can lack        Messages
    max_tokens     has max_tokens                                 Messages
    sampling       has no temperature, top_p or top_k             Migration
    V1             begins with the user, roles alternate          Messages; see below
    V2             has one result for each call, right behind it  Handle tool calls
    V3             has the results first in their message         Handle tool calls
    V4             has no blank text and no empty message         reports
    V5             has call ids that are unique and well-formed   reports
    V6             has each thinking block as it was sent         Thinking
    V7             is strict JSON in UTF-8                        RFC 8259
    V8             has an object as the input of each call        Messages
    V9             has no kind of block that the client made up   Messages
    V10            ends with the user, or in a pause_turn         Stop reasons
    document       has none directly in an assistant's message    Migration
    citations      has none in a user's message                   Migration
    signature      has a signature in each thinking block         Thinking
    last_block     has no assistant's message ending in thinking  reports
    binding        has nothing changed before a thinking block    Preserved thinking
    block_binding  has the beta header that this field needs      Preserved thinking

The names on the right are pages of platform.claude.com/docs; "reports" are error texts
in public issue trackers. Where these leave a case open, it is refused. The API itself
merges neighbours of one role; other providers of its protocol refuse them, and so does
V1 unless the request is read with `merge`. A `system` role in `messages` is not known.

Read `Request`, then the rules. `Sent`, at the end, is what makes V6, V9, V10 and
`binding` possible: what was sent may come back, as it was and where it was. Nothing
here knows of HTTP, nor of the replies: `fake_anthropic` does.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

VERSION = "2026-10-21"
BINDING_BETA = "thinking-binding-controls-2026-08-01"

Json: TypeAlias = dict[str, Any]
"""A JSON object: a content block, an event of a stream, the body of a request."""

# --- Kinds of blocks ----------------------------------------------------------

THINKING = {"thinking", "redacted_thinking"}
SERVER_CALLS = {"server_tool_use", "mcp_tool_use"}
CALLS = {"tool_use"} | SERVER_CALLS
SERVER_RESULTS = {
    *("web_search_tool_result", "web_fetch_tool_result", "code_execution_tool_result"),
    *("bash_code_execution_tool_result", "text_editor_code_execution_tool_result"),
    *("tool_search_tool_result", "advisor_tool_result", "mcp_tool_result"),
}
FROM_THE_ASSISTANT = {
    *(THINKING | CALLS | SERVER_RESULTS),
    *("mcp_tool_listing", "compaction", "fallback"),
}
IN_A_RESULT = {
    *("text", "image", "document", "search_result", "tool_reference", "browser_state")
}
KNOWN = {
    *FROM_THE_ASSISTANT,
    *("text", "image", "document", "search_result", "container_upload", "tool_result"),
}
WITH_BLOCKS = {"tool_result", "search_result"}
FIELDS: Mapping[str, Mapping[str, Any]] = {
    "text": {"text": str},
    "thinking": {"thinking": str},
    "tool_result": {"tool_use_id": str},
    **{kind: {"id": str} for kind in CALLS},
    **{kind: {"tool_use_id": str} for kind in SERVER_RESULTS},
}


# --- The request --------------------------------------------------------------


class RefusedError(Exception):
    """A request that the API would refuse.

    Attributes:
        status: The HTTP status.
        kind: The API's name for this kind of error.
    """

    def __init__(
        self, message: str, status: int = 400, kind: str = "invalid_request_error"
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


class Placed(NamedTuple):
    """A block, and where it stands: the path is as in the API's error messages."""

    path: str
    role: str
    block: Json


class Turn(NamedTuple):
    """A message; with `merge`, all of a role that follow one another."""

    path: str
    role: str
    placed: list[Placed]

    def of(self, kind: str) -> list[Json]:
        """Return the blocks of one kind."""
        return [block for _, _, block in self.placed if block["type"] == kind]


class Request:
    """A request, as the rules see it.

    Args:
        body: The parsed body.
        headers: Its headers, by lower-case name.
        sent: What the API has sent before.
        merge: Whether neighbours of one role are one turn.

    Attributes:
        turns: The messages.
        placed: The blocks of all turns, in order.
        reports: Whether the beta for `thinking.block_binding` is on.
        drops: Whether stale thinking is dropped, and no reason to refuse.
        prefix: What stands before the reply.
        stale: The paths of thinking blocks that are not where they were sent, and what
            has changed before them.

    Raises:
        RefusedError: It lacks what the rules rely on.
    """

    def __init__(
        self, body: Json, headers: Mapping[str, str], sent: "Sent", *, merge: bool
    ) -> None:
        _refuse({"schema": _schema(body)})
        self.body = body
        self.sent = sent
        self.turns = _turns(body, merge=merge)
        self.placed = [placed for turn in self.turns for placed in turn.placed]
        self.reports = BINDING_BETA in headers.get("anthropic-beta", "")
        thinking = body.get("thinking")
        controls = thinking.get("block_binding") if isinstance(thinking, dict) else None
        self.controls: Json = controls if isinstance(controls, dict) else {}
        behavior = self.controls.get("prefix_mismatch_behavior")
        self.drops = self.reports and behavior == "drop_block"
        self.prefix = Prefix(body)
        self.stale: dict[str, str] = {}
        for path, role, block in self.placed:
            if changed := sent.changed_before(block, self.prefix):
                self.stale[path] = changed
            else:
                self.prefix.add(role, block)

    def of(self, kinds: Collection[str], role: str = "") -> list[tuple[str, Json]]:
        """Return the blocks of these kinds, of one role or both, with their paths."""
        return [
            (path, block)
            for path, of_role, block in self.placed
            if block["type"] in kinds and role in ("", of_role)
        ]


def check_headers(headers: Mapping[str, str]) -> None:
    """Refuse a request that comes without a key, or for another version.

    Raises:
        RefusedError: It does.
    """
    if not headers.get("authorization") and not headers.get("x-api-key"):
        raise RefusedError("auth: there is no key", 401, "authentication_error")
    if headers.get("anthropic-version") != VERSION:
        raise RefusedError(f"version: the `anthropic-version` must be {VERSION}")


def parsed(raw: bytes) -> Json:
    """Parse a body.

    Raises:
        RefusedError: It is not strict JSON, or no object.
    """
    try:
        body = json.loads(raw.decode())
        # Half an emoji and NaN are seen on the way back.
        json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"V7: the body is not strict JSON: {error}") from None
    if not isinstance(body, dict):
        raise RefusedError("schema: the body is no object")
    return body


def check(request: Request, *, skipped: Collection[str] = ()) -> None:
    """Hold a request to the rules.

    Args:
        request: The request.
        skipped: The names of rules that do not count.

    Raises:
        RefusedError: It breaks some of them; all are named.
    """
    rules = {name: rule for name, rule in RULES.items() if name not in skipped}
    _refuse({name: rule(request) for name, rule in rules.items()})


def _refuse(found: Mapping[str, "Found"]) -> None:
    if lines := [f"{name}: {line}" for name, lines in found.items() for line in lines]:
        raise RefusedError("; ".join(lines))


def _schema(body: Json) -> Iterator[str]:
    yield from _lacking("the body", body, {"model": str, "messages": list})
    for number, tool in enumerate(_blocks(body.get("tools"))):
        yield from _lacking(f"tools.{number}", tool, {"name": str})
    for number, block in enumerate(_blocks(body.get("system"))):
        yield from _malformed(f"system.{number}", block)
    messages = _blocks(body.get("messages"))
    if not messages:
        yield "messages: at least one message is required"
    for index, message in enumerate(messages):
        path = f"messages.{index}"
        yield from _lacking(path, message, {"role": str, "content": str | list})
        if isinstance(message, dict):
            if message.get("role") not in ("user", "assistant"):
                yield f"{path}: the role must be user or assistant"
            for name in sorted({*message} - {"role", "content"}):
                yield f"{path}: {name} is not permitted"
            for number, block in enumerate(_blocks(message.get("content"))):
                yield from _malformed(f"{path}.content.{number}", block)


def _malformed(path: str, block: object) -> Iterator[str]:
    kind = str(block.get("type")) if isinstance(block, dict) else ""
    yield from _lacking(path, block, {"type": str, **FIELDS.get(kind, {})})
    if isinstance(block, dict) and kind in WITH_BLOCKS:
        for number, inner in enumerate(_blocks(block.get("content"))):
            yield from _malformed(f"{path}.content.{number}", inner)


def _lacking(path: str, value: object, fields: Mapping[str, Any]) -> Iterator[str]:
    given = value if isinstance(value, dict) else {}
    for name, kind in fields.items():
        if not isinstance(given.get(name), kind):
            yield f"{path}: {name} is missing or of the wrong type"


def _turns(body: Json, *, merge: bool) -> list[Turn]:
    turns: list[Turn] = []
    for index, message in enumerate(body["messages"]):
        path, role = f"messages.{index}", message["role"]
        if not (merge and turns and turns[-1].role == role):
            turns.append(Turn(path, role, []))
        turns[-1].placed.extend(
            Placed(f"{path}.content.{number}", role, block)
            for number, block in enumerate(_blocks(message["content"]))
        )
    return turns


def _blocks(content: Any) -> list[Json]:
    """Return a content as a list: a text stands for one block of text."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else []


def _nested(block: Json) -> Iterator[Json]:
    """Yield a block, and all in its content, however deep."""
    yield block
    if block["type"] in WITH_BLOCKS:
        for inner in _blocks(block.get("content")):
            yield from _nested(inner)


# --- The rules ----------------------------------------------------------------

Found: TypeAlias = Iterable[str]
"""A sentence for each place where a rule is broken."""


def _has_max_tokens(request: Request) -> Found:
    given = request.body.get("max_tokens")
    return [] if type(given) is int and given > 0 else ["the field is required"]


def _no_sampling(request: Request) -> Found:
    names = {"temperature", "top_p", "top_k"} & {*request.body}
    return [f"{name} is not permitted" for name in sorted(names)]


def _roles_alternate(request: Request) -> Found:
    if request.turns[0].role != "user":
        yield "the first message must be the user's"
    for before, after in pairwise(request.turns):
        if before.role == after.role:
            yield f"{after.path}: another message of the {after.role}"
    for path, block in [
        *request.of(FROM_THE_ASSISTANT, "user"),
        *request.of({"tool_result"}, "assistant"),
    ]:
        yield f"{path}: `{block['type']}` in a message of the other role"


def _each_call_has_one_result(request: Request) -> Found:
    calls: list[str] = []
    for turn in [*request.turns, Turn("the end", "user", [])]:
        results = [block["tool_use_id"] for block in turn.of("tool_result")]
        for call in calls:
            if call not in results:
                yield f"{turn.path}: `tool_use` without its `tool_result` here: {call}"
        for number, result in enumerate(results):
            if result not in calls or result in results[:number]:
                yield f"{turn.path}: unexpected `tool_result`: {result}"
        calls = [block["id"] for block in turn.of("tool_use")]
    begun: set[str] = set()
    for path, block in request.of(SERVER_CALLS | SERVER_RESULTS):
        if block["type"] in SERVER_CALLS:
            begun.add(block["id"])
        elif block["tool_use_id"] not in begun:
            yield f"{path}: unexpected `{block['type']}`: {block['tool_use_id']}"


def _results_come_first(request: Request) -> Found:
    open_calls: set[str] = set()
    for path, role, placed in request.turns:
        results = [block["type"] == "tool_result" for _, _, block in placed]
        if results != sorted(results, reverse=True):
            yield f"{path}: something stands before a `tool_result`"
        if role == "user" and open_calls and not all(results):
            yield f"{path}: not only results, while the server owes some: {open_calls}"
            open_calls = set()
        for _, _, block in placed:
            if block["type"] in SERVER_CALLS:
                open_calls.add(block["id"])
            elif block["type"] in SERVER_RESULTS:
                open_calls.discard(block["tool_use_id"])


def _nothing_is_blank(request: Request) -> Found:
    for turn in request.turns:
        if not turn.placed:
            yield f"{turn.path}: the content is empty"
    system = [("system", block) for block in _blocks(request.body.get("system"))]
    for path, block in [*system, *request.of(KNOWN)]:
        for inner in _nested(block):
            if inner["type"] == "text" and not inner["text"].strip():
                yield f"{path}: a text is empty or only whitespace"


def _ids_are_unique(request: Request) -> Found:
    seen: set[str] = set()
    for path, block in request.of(CALLS):
        if block["id"] in seen:
            yield f"{path}: the id {block['id']!r} occurs before"
        if not re.fullmatch("[a-zA-Z0-9_-]+", block["id"]):
            yield f"{path}: the id {block['id']!r} is not of a-zA-Z0-9_-"
        seen.add(block["id"])


def _thinking_is_as_sent(request: Request) -> Found:
    for path, block in request.of(THINKING):
        if request.sent.was_changed(block):
            yield f"{path}: Invalid `signature` in `thinking` block: it was changed"


def _inputs_are_objects(request: Request) -> Found:
    for path, block in request.of(CALLS):
        if not isinstance(block.get("input"), dict):
            yield f"{path}: the input must be an object"


def _kinds_are_known(request: Request) -> Found:
    for path, role, block in request.placed:
        sent = role == "assistant" and _canonical(block) in request.sent.unknown
        if block["type"] not in KNOWN and not sent:
            yield f"{path}: there is no `{block['type']}`"
    for path, block in request.of({"tool_result"}):
        for inner in _blocks(block.get("content")):
            if inner["type"] not in IN_A_RESULT:
                yield f"{path}: there is no `{inner['type']}` in a `tool_result`"


def _the_user_is_last(request: Request) -> Found:
    last = request.turns[-1]
    if last.role == "assistant" and not request.sent.ends_paused(last):
        yield "the conversation must end with a user message"


def _no_document(request: Request) -> Found:
    for path, _ in request.of({"document"}, "assistant"):
        yield f"{path}: a `document` directly in a message of the assistant"


def _no_citations(request: Request) -> Found:
    for path, block in request.of(KNOWN, "user"):
        for inner in _nested(block):
            if inner["type"] == "text" and inner.get("citations"):
                yield f"{path}: `citations` in a message of the user"


def _thinking_is_signed(request: Request) -> Found:
    for path, block in request.of(THINKING):
        if not _signature(block):
            yield f"{path}: the signature is missing or empty"


def _thinking_is_not_last(request: Request) -> Found:
    for path, _, placed in request.turns:
        if placed and placed[-1].block["type"] in THINKING:
            yield f"{path}: the final block cannot be `thinking`"


def _nothing_changed_before_thinking(request: Request) -> Found:
    for path, changed in {} if request.drops else request.stale.items():
        yield (
            f"{path}: Invalid `signature` in `thinking` block. "
            f"The block is bound to a different conversation. {changed}"
        )


def _controls_have_their_beta(request: Request) -> Found:
    if request.controls and not request.reports:
        yield f"`thinking.block_binding` needs the `anthropic-beta` {BINDING_BETA}"


RULES: Mapping[str, Callable[[Request], Found]] = {
    "max_tokens": _has_max_tokens,
    "sampling": _no_sampling,
    "V1": _roles_alternate,
    "V2": _each_call_has_one_result,
    "V3": _results_come_first,
    "V4": _nothing_is_blank,
    "V5": _ids_are_unique,
    "V6": _thinking_is_as_sent,
    "V8": _inputs_are_objects,
    "V9": _kinds_are_known,
    "V10": _the_user_is_last,
    "document": _no_document,
    "citations": _no_citations,
    "signature": _thinking_is_signed,
    "last_block": _thinking_is_not_last,
    "binding": _nothing_changed_before_thinking,
    "block_binding": _controls_have_their_beta,
}


# --- What was sent ------------------------------------------------------------


class Binding(NamedTuple):
    """What a thinking block is bound to."""

    system: str
    tools: str
    messages: str
    thinking: str | None  # the signature of the one before it


class Prefix:
    """What stands before a block. Thinking is no part of it, but forms a chain."""

    def __init__(self, body: Json) -> None:
        self._system = _digest(*map(_canonical, _blocks(body.get("system"))))
        self._tools = _digest(*map(_canonical, _blocks(body.get("tools"))))
        self._messages = ""
        self._thinking: str | None = None

    def add(self, role: str, block: Json) -> None:
        """Go on behind a block."""
        if block["type"] in THINKING:
            self._thinking = _signature(block) or None
        else:
            # Without the borders of messages: the API merges neighbours of one role.
            self._messages = _digest(self._messages, role, _canonical(block))

    def binding(self) -> Binding:
        """Return what a thinking block that stands here is bound to."""
        return Binding(self._system, self._tools, self._messages, self._thinking)


class Sent:
    """What the API has sent, and takes back as it was and where it was.

    Attributes:
        unknown: The blocks of kinds that nobody knows, in their canonical form.
    """

    def __init__(self) -> None:
        self.unknown: set[str] = set()
        self._paused: list[list[str]] = []
        self._bindings: dict[str, list[Binding]] = {}  # of each thinking block
        self._signatures: set[str] = set()

    def remember(self, message: Json, prefix: Prefix) -> None:
        """Note what is sent, and what it stands behind."""
        for block in message["content"]:
            if block["type"] in THINKING:
                if not (signature := _signature(block)):
                    continue  # it can't come back, so it is no link of the chain
                bindings = self._bindings.setdefault(_canonical(block), [])
                bindings.append(prefix.binding())
                self._signatures.add(signature)
            elif block["type"] not in KNOWN:
                self.unknown.add(_canonical(block))
            prefix.add("assistant", block)
        if message["stop_reason"] == "pause_turn":
            self._paused.append([*map(_canonical, message["content"])])

    def ends_paused(self, turn: Turn) -> bool:
        """Tell whether a turn ends with a message that was sent as `pause_turn`."""
        blocks = [_canonical(block) for _, _, block in turn.placed]
        return any(paused == blocks[-len(paused) :] for paused in self._paused)

    def was_changed(self, block: Json) -> bool:
        """Tell whether a thinking block has the signature of another."""
        known = _canonical(block) in self._bindings
        return not known and _signature(block) in self._signatures

    def changed_before(self, block: Json, prefix: Prefix) -> str:
        """Say what has changed before a thinking block since it was sent, if any."""
        if block["type"] not in THINKING:
            return ""
        if self.was_changed(block) or not _signature(block):
            return ""  # there are rules of their own for that
        changed = ["all, it was never sent"]
        for then in self._bindings.get(_canonical(block), ()):
            both = zip(Binding._fields, then, prefix.binding(), strict=True)
            # Thinking may be left out from the start, but not from the middle.
            changed = [name for name, old, now in both if now not in (old, None)]
            if not changed:
                return ""
        return f"What changed before it: {', '.join(changed)}."


def _signature(block: Json) -> str:
    return str(block.get("signature") or block.get("data") or "")


def _canonical(block: Json) -> str:
    """Write a block so that only what counts makes a difference."""
    return json.dumps(_unmarked(block), sort_keys=True)


def _unmarked(block: Json) -> Json:
    """Leave out the marks for the cache: they may come and go."""
    bare = {name: value for name, value in block.items() if name != "cache_control"}
    if block.get("type") in WITH_BLOCKS:
        bare["content"] = [*map(_unmarked, _blocks(block.get("content")))]
    return bare


def _digest(*parts: str) -> str:
    return sha256(json.dumps(parts).encode()).hexdigest()
