"""A model that plays what it was given, for tests and chapters.

    model = ScriptedModel([ToolCall(name="clock"), "It is noon."])

Each step is one reply. The model records every request, refuses one that a strict
provider would refuse, and fails when it is asked more often than it has steps.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from minagent.context import resolved
from minagent.events import ContentItem, Message, ToolCall, dump_json, well_formed
from minagent.model import (
    Emit,
    ModelRequest,
    ModelResponse,
    ReasoningDelta,
    TextDelta,
    ToolInputDelta,
)
from minagent.models.strict import check


@dataclass(frozen=True, slots=True)
class Delay:
    """A step that waits, and then plays another.

    Attributes:
        seconds: How long.
        step: What comes then.
    """

    seconds: float
    step: "Step"


Reply: TypeAlias = (
    str | ContentItem | Sequence[ContentItem | str] | ModelResponse | BaseException
)
Step: TypeAlias = Reply | Delay | Callable[[ModelRequest], Reply | Awaitable[Reply]]


class ScriptedModel:
    """Plays prepared replies, one for each request.

    Args:
        steps: The replies, in order. A text is an answer; an item or a list of items
            (and texts) is a reply of these, with the stop reason `tool_use` if one is a
            call; a `ModelResponse` is played as it is; an exception is raised; a
            function is given the request and returns one of these; a `Delay` waits.
        check_requests: Whether to refuse what a strict provider would refuse. It reads
            the whole transcript, so speed is measured without it.

    Attributes:
        requests: The requests so far, in order.
    """

    def __init__(self, steps: Iterable[Step], *, check_requests: bool = True) -> None:
        self._steps = iter(steps)
        self._check_requests = check_requests
        self.requests: list[ModelRequest] = []

    async def generate(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Play the next step; a reply's items are streamed, one delta each.

        Raises:
            InvalidRequestError: A strict provider would refuse the request.
            AssertionError: There is no step left.
        """
        self.requests.append(request)
        if self._check_requests:
            check(request.turns)
        try:
            step = next(self._steps)
        except StopIteration:
            count = len(self.requests) - 1
            message = f"the script has {count} steps and was asked for one more"
            raise AssertionError(message) from None
        response = await _played(step, request)
        for item in response.content:
            _stream(item, emit)
        return response

    def assert_done(self) -> None:
        """Check that every step was played.

        Raises:
            AssertionError: Steps are left over.
        """
        left = list(self._steps)
        assert not left, f"{len(left)} steps of the script were not played: {left!r}"


async def _played(step: Step, request: ModelRequest) -> ModelResponse:
    while isinstance(step, Delay) or callable(step):
        if isinstance(step, Delay):
            await asyncio.sleep(step.seconds)
            step = step.step
        else:
            step = await resolved(step(request))
    if isinstance(step, BaseException):
        raise step
    if isinstance(step, ModelResponse):
        return step
    parts = step if isinstance(step, Sequence) and not isinstance(step, str) else [step]
    content = tuple(
        Message(role="assistant", content=well_formed(part))
        if isinstance(part, str)
        else part
        for part in parts
    )
    called = any(isinstance(item, ToolCall) for item in content)
    return ModelResponse(content, stop_reason="tool_use" if called else "end_turn")


def _stream(item: ContentItem, emit: Emit) -> None:
    if item.type == "message":
        emit(TextDelta(item.content))
    elif item.type == "reasoning" and item.content:
        emit(ReasoningDelta(item.content))
    elif item.type == "tool_call":
        sent = dump_json(item.arguments, "arguments")
        emit(ToolInputDelta(item.tool_call_id, item.name, sent))
