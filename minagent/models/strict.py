"""What a strict provider refuses: the rules V1 to V10, checked on a transcript.

`violations` is an oracle: it shares no code with `transcript.py`, whose work it checks.
Each rule is one that some provider answers with an error, and for good: a request that
is built from the same log is refused for ever.

    V1  the first turn is the user's, and roles alternate
    V2  the turn behind a turn with calls has exactly one result for each of them
    V3  results come first in their turn
    V4  no text is empty or blank, and no turn is empty
    V5  call ids are unique in the whole transcript, and of letters, digits, - and _
    V6  (what a model said goes back as it came) needs the log beside the transcript
    V7  every text is well-formed, every number finite
    V8  the arguments of a call are an object
    V9  no item that minagent made up: a Note or a decision is none that a model knows
    V10 the last turn is the user's, except a `pause_turn` that is sent back
"""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from minagent.errors import MinagentError
from minagent.events import (
    ContentItem,
    Message,
    Note,
    Reasoning,
    ToolCall,
    ToolConfirmation,
    ToolResult,
    plain,
)
from minagent.transcript import Turn


class InvalidRequestError(MinagentError):
    """A provider would refuse this request; the message names the rules.

    Attributes:
        problems: One sentence a violation, each beginning with its rule.
    """

    template = "a provider would refuse this request: {text}"

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(problems=tuple(problems), text="; ".join(problems))


def check(turns: Sequence[Turn]) -> None:
    """Refuse a transcript as a strict provider does.

    Raises:
        InvalidRequestError: It violates one of the rules.
    """
    if problems := list(violations(turns)):
        raise InvalidRequestError(problems)


def violations(turns: Sequence[Turn]) -> Iterator[str]:
    """Yield a sentence for each violation."""
    if not turns or turns[0].role != "user":
        yield "V1: the first turn is not the user's"
    for before, after in pairwise(turns):
        if before.role == after.role:
            yield f"V1: two {before.role} turns in a row"
    for index, turn in enumerate(turns):
        yield from _in_turn(turn)
        yield from _results(turn, turns[index + 1 : index + 2])
    if turns and turns[0].role == "user":
        yield from _results_without_calls(turns[0])
    yield from _ids(turns)
    if turns and turns[-1].role == "assistant":
        last = turns[-1].events[-1:] if turns[-1].events else ()
        if not last or last[0].stop_reason != "pause_turn":
            yield "V10: the last turn is the assistant's"


def _in_turn(turn: Turn) -> Iterator[str]:
    if not turn.content:
        yield "V4: a turn is empty"
    for item in turn.content:
        yield from _of_the_wrong_side(item, turn)
        if isinstance(item, Message) and not item.content.strip():
            yield "V4: a text is blank"
        if isinstance(item, ToolResult) and not (item.content.strip() or item.media):
            yield "V4: a result is blank"
        if isinstance(item, ToolCall) and not isinstance(item.arguments, dict):
            yield "V8: arguments are no object"
        try:
            json.dumps(plain(item), ensure_ascii=False, allow_nan=False).encode()
        except ValueError as error:
            yield f"V7: {error}"


def _of_the_wrong_side(item: ContentItem, turn: Turn) -> Iterator[str]:
    name = type(item).__name__
    if isinstance(item, Note | ToolConfirmation):
        yield f"V9: a {name} is shown to the model"
    elif isinstance(item, Message) and item.role != turn.role:
        yield f"V1: a message of the {item.role} in a turn of the {turn.role}"
    elif isinstance(item, ToolResult) and turn.role == "assistant":
        yield "V2: a result in a turn of the assistant"
    elif isinstance(item, Reasoning | ToolCall) and turn.role == "user":
        yield f"V1: a {name} in a turn of the user"


def _results(turn: Turn, after: Sequence[Turn]) -> Iterator[str]:
    calls = [item.tool_call_id for item in turn.content if isinstance(item, ToolCall)]
    if not after:
        if calls:
            yield f"V2: calls without results: {calls}"
        return
    kinds = [isinstance(item, ToolResult) for item in after[0].content]
    if kinds != sorted(kinds, reverse=True):
        yield "V3: something stands before a result"
    results = [i.tool_call_id for i in after[0].content if isinstance(i, ToolResult)]
    if results != calls:
        yield f"V2: the results {results} are not those of the calls {calls}"


def _results_without_calls(first: Turn) -> Iterator[str]:
    if any(isinstance(item, ToolResult) for item in first.content):
        yield "V2: the first turn has a result"


def _ids(turns: Sequence[Turn]) -> Iterator[str]:
    seen: set[str] = set()
    for turn in turns:
        for item in turn.content:
            if isinstance(item, ToolCall):
                if item.tool_call_id in seen:
                    yield f"V5: the call id {item.tool_call_id!r} occurs twice"
                if not re.fullmatch(r"[a-zA-Z0-9_-]+", item.tool_call_id):
                    yield f"V5: the call id {item.tool_call_id!r}"
                seen.add(item.tool_call_id)
