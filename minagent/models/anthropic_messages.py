"""The messages of a request to Anthropic: made once for each turn, and then kept.

A conversation only grows, so nearly all of a request was in the one before. `Messages`
keeps what it made of each turn, beside the turn: one that no new event belongs to is
the same object in the next transcript.

The vendor binds a thinking block to everything that was sent before it. So the log has
a digest of that for each reply with thinking, and `Messages` computes, along a chain,
to what each would be bound now: where the two differ, the block is stale. The chain has
neither thinking nor `cache_control`, to which nothing is bound.

How a turn becomes a message, apart from its blocks one by one:

- A thought without a seal is not sent, nor one at the end of a reply: both are refused.
  They are left out from the first request on, so that nothing is bound to them.
- A document in a turn of the assistant is not sent: the API takes none there.
- Behind calls of the vendor's own tools that are still open, a user turn has results
  and nothing else; what it says is put into the last of them. With no result either,
  the open calls are left out, since nothing will answer them.

This file knows the vendor's rules for messages; it knows neither the SDK nor the other
parts of a request.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Literal, TypeAlias

from minagent.events import ContentItem, Event, Media, Message, Reasoning
from minagent.models.anthropic_blocks import (
    Block,
    block_of,
    canonical,
    is_image,
    is_sealed,
    is_server_call,
    is_thinking,
)
from minagent.transcript import Turn

MAX_KEPT = 20_000
"""About how many converted turns are kept, of all conversations together."""

Thinking: TypeAlias = Literal["all", "valid", "none"]
"""What is sent of earlier thinking; `valid` is what comes after the last stale block.

Thinking is left out from the start or altogether: the vendor notices a gap.
"""


@dataclass(frozen=True, slots=True)
class Conversation:
    """The messages of one request.

    Attributes:
        messages: As the API takes them.
        digest: Of all that is sent, for the reply to be bound to.
        is_stale: Whether a thinking block is sent that is bound to something else.
    """

    messages: list[Block]
    digest: str
    is_stale: bool


class Messages:
    """Makes the messages of requests.

    Args:
        thinking: What to send of earlier thinking.

    Attributes:
        converted: How many turns were converted so far; the others were kept.
    """

    def __init__(self, thinking: Thinking = "all") -> None:
        self.converted = 0
        self._thinking = thinking
        # Two generations: what no request needs while one fills up is forgotten with
        # the other. Within a request nothing is, however long it is.
        self._kept: dict[tuple[int, bool], _Message] = {}
        self._older: dict[tuple[int, bool], _Message] = {}

    def of(self, turns: Sequence[Turn], head: object) -> Conversation:
        """Return the messages of a transcript.

        Args:
            turns: The transcript.
            head: What is sent before the messages, as JSON data.
        """
        made, state, bare = self._made(turns), _hashed(head), 0
        for at, each in enumerate(made):
            before, after, has_stale = each.link
            if before != state:
                _, after, has_stale = each.linked(state)
            state = after
            if has_stale:
                bare = at + 1
        is_stale = bare > 0 and self._thinking == "all"
        if self._thinking != "valid":
            bare = len(made) if self._thinking == "none" else 0
        sent = [each.bare for each in made[:bare]]
        sent += [each.body for each in made[bare:]]
        return Conversation(list(_joined(sent)), state.hex(), is_stale)

    def _made(self, turns: Sequence[Turn]) -> "list[_Message]":
        made: list[_Message] = []
        kept, last, is_open = self._kept, len(turns) - 1, False
        for at, turn in enumerate(turns):
            # What only the neighbours of a turn know about it.
            special = is_open if turn.role == "user" else at == last
            each = kept.get((id(turn), special)) or self._new(turn, special)
            is_open = each.is_open
            made.append(each)
        if len(kept) > MAX_KEPT:
            self._older, self._kept = kept, {}
        return made

    def _new(self, turn: Turn, special: bool) -> "_Message":
        key = id(turn), special
        made = self._older.get(key)
        if made is None:
            self.converted += 1
            heard = turn.role == "user"
            made = _heard(turn, special) if heard else _said(turn, special)
        self._kept[key] = made
        return made


@dataclass(frozen=True, slots=True)
class _Part:
    """What one event adds to a message; of a user's message, all that is in it."""

    blocks: Sequence[Block]
    bound_to: str | None = None


class _Message:
    """A turn as a message, and as a link of the chain.

    It keeps the turn, so that no other one gets the id by which it is found.
    """

    def __init__(self, turn: Turn, parts: Sequence[_Part], is_open: bool) -> None:
        self.turn = turn
        self.is_open = is_open  # a call of the vendor's own tools has no result yet
        self.body = self._body(part.blocks for part in parts)
        # The state of the chain before it and behind it, and whether it has a stale
        # block. One value, since a conversation may be read in several threads.
        self.link = b"", b"", False
        self._parts = [
            (
                part.bound_to,
                any(map(is_thinking, part.blocks)),
                _hashed([turn.role, *_without_thinking(part.blocks)]),
            )
            for part in parts
        ]

    @cached_property
    def bare(self) -> Block:
        """The message without thinking."""
        return self._body([_without_thinking(self.body["content"])])

    def _body(self, parts: Iterable[Iterable[Block]]) -> Block:
        return {"role": self.turn.role, "content": list(chain.from_iterable(parts))}

    def linked(self, before: bytes) -> tuple[bytes, bytes, bool]:
        """Return the link for another state of the chain before it; it is kept."""
        state, has_stale = before, False
        for bound_to, has_thinking, content in self._parts:
            if has_thinking and bound_to != state.hex():
                has_stale = True
            state = _digest(state + content)
        self.link = before, state, has_stale
        return self.link


def _heard(turn: Turn, results_only: bool) -> _Message:
    blocks = [block_of(item) for item in turn.content]
    results = [each for each in blocks if each["type"] == "tool_result"]
    if results_only and results:
        content, words = results[-1]["content"], blocks[len(results) :]
        if words and isinstance(content, str):
            content = [{"type": "text", "text": content}]
        if words:
            results[-1] = {**results[-1], "content": [*content, *words]}
        blocks = results
    return _Message(turn, [_Part(blocks)], is_open=False)


def _said(turn: Turn, is_last: bool) -> _Message:
    content = [
        (_event_of(item, turn), block_of(item))
        for item in turn.content
        if not isinstance(item, Media) or is_image(item)
    ]
    answered = {block.get("tool_use_id") for _, block in content}
    open_calls = [
        block
        for _, block in content
        if is_server_call(block) and block.get("id") not in answered
    ]
    calls = any(block.get("type") == "tool_use" for _, block in content)
    lost = [] if calls or is_last else open_calls
    parts: dict[int, list[Block]] = {}
    for at, block in reversed(content):
        part = parts.setdefault(at, [])
        # From the end: a thought with nothing behind it is the end of its reply.
        refused = is_thinking(block) and not (part and is_sealed(block))
        if not refused and block not in lost:
            part.append(block)
    made = [
        _Part(part[::-1], _bound_to(turn.events[at]) if turn.events else None)
        for at, part in sorted(parts.items())
        if part
    ]
    return _Message(turn, made, is_open=bool(open_calls) and calls)


def _bound_to(event: Event) -> str | None:
    """Return what the thinking of a reply is bound to, if all of that can be sent.

    A blank text never can: what was thought behind one is stale from the start.
    """
    is_blank = False
    for item in event.content:
        if is_blank and isinstance(item, Reasoning):
            return None
        is_blank |= isinstance(item, Message) and not item.content.strip()
    return event.prefix_digest


def _event_of(item: ContentItem, turn: Turn) -> int:
    """Return which event of a turn an item is of; several make one after a pause.

    A call may stand here under another id than in its event. But a reply with calls is
    always the last of its turn.
    """
    for at, event in enumerate(turn.events[:-1]):
        if any(item is each for each in event.content):
            return at
    return max(len(turn.events) - 1, 0)


def _joined(messages: Iterable[Block]) -> Iterator[Block]:
    """Leave out what is empty, and join what then has one role."""
    before: Block | None = None
    for message in messages:
        if not message["content"]:
            continue
        if before and before["role"] == message["role"]:
            content = [*before["content"], *message["content"]]
            before = {**before, "content": content}
            continue
        if before:
            yield before
        before = message
    if before:
        yield before


def _without_thinking(blocks: Iterable[Block]) -> list[Block]:
    return [block for block in blocks if not is_thinking(block)]


def _hashed(value: object) -> bytes:
    return _digest(canonical(_without_marks(value)).encode())


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _without_marks(value: Any) -> Any:
    """Return JSON data without the marks for the prompt cache."""
    if isinstance(value, dict):
        pairs = value.items()
        return {k: _without_marks(x) for k, x in pairs if k != "cache_control"}
    if isinstance(value, list):
        return [_without_marks(item) for item in value]
    return value
