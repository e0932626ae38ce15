"""What the agent and a model say to each other.

A `Model` is anything with one method, `generate`: it takes a `ModelRequest` and returns
a `ModelResponse`. On the way it may `emit` pieces of the reply as they come: deltas,
for whoever watches, and each item once it is whole, so that it is kept if the reply
breaks off.

This file knows no vendor. Which words a vendor has for a stop, and which of them end a
run, stands with `ModelResponse`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeAlias

from pydantic import JsonValue

from minagent.events import ContentItem, Event, Message, ToolCall, Usage
from minagent.transcript import Turn, turns


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More of the answer's text. Passing: what lasts is the event that follows."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of what the model thinks. Passing, as `TextDelta` is."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolInputDelta:
    """More of the input of a tool call, as JSON text. Passing, as `TextDelta` is."""

    tool_call_id: str
    name: str
    text: str


Delta: TypeAlias = TextDelta | ReasoningDelta | ToolInputDelta
Emit: TypeAlias = Callable[[Delta | ContentItem], None]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """What a model is told of a tool.

    Attributes:
        name: Its name.
        description: What it does, from its docstring.
        parameters: The JSON schema of its arguments, an object.
    """

    name: str
    description: str
    parameters: Mapping[str, JsonValue]


@dataclass(frozen=True)
class ModelRequest:
    """What a model is asked.

    Attributes:
        instructions: The system prompt of the code that runs now, or None.
        events: The log, or a view of it.
        tools: The tools that it may call.
        output_schema: The JSON schema that the answer must follow, or None.
    """

    instructions: str | None
    events: Sequence[Event]
    tools: tuple[ToolSpec, ...] = ()
    output_schema: Mapping[str, JsonValue] | None = None

    @cached_property
    def turns(self) -> tuple[Turn, ...]:
        """The valid transcript of the events, made when it is first asked for."""
        return turns(self.events)


# After these the run goes on, if there are calls to carry out. Any other stop ends it:
# the words are Anthropic's, and one that is not known here must not start a tool.
_GOES_ON_AFTER = frozenset(
    {"end_turn", "tool_use", "stop_sequence", "pause_turn", "max_tokens"}
)


@dataclass(frozen=True, slots=True)
class ModelResponse:
    """What a model replied.

    Attributes:
        content: The items, in the order in which they came.
        stop_reason: Why the reply ends here. `end_turn`, `tool_use`, `stop_sequence`;
            `pause_turn` (send it back to go on); `max_tokens` (cut off: its calls are
            not carried out); `refusal`; or another word, which ends the run.
        usage: What it cost.
        model: The name of the model that wrote it.
        request_id: The vendor's name for the request.
        prefix_digest: A digest of what was sent, where the reply is bound to it.
    """

    content: tuple[ContentItem, ...] = ()
    stop_reason: str = "end_turn"
    usage: Usage | None = None
    model: str | None = None
    request_id: str | None = None
    prefix_digest: str | None = None

    @property
    def text(self) -> str:
        """The words of the answer; empty if it has none."""
        return "".join(
            item.content for item in self.content if isinstance(item, Message)
        )

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls that it asks for, in order."""
        return tuple(item for item in self.content if isinstance(item, ToolCall))

    @property
    def ends_run(self) -> bool:
        """Whether the run ends here whatever the reply asks for."""
        return ends_run(self.stop_reason)


def ends_run(stop_reason: str | None) -> bool:
    """Whether a run ends with a reply that stopped for this reason."""
    return stop_reason is not None and stop_reason not in _GOES_ON_AFTER


class Model(Protocol):
    """Anything that replies to a request."""

    async def generate(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Return the reply to a request.

        What it raises ends the run and reaches the caller as it is.

        Args:
            request: What is asked.
            emit: Takes deltas, and items that are whole. A model that does not stream
                need not call it.
        """
        ...
