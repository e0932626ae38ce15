"""Solution 04: a guard that counts in the log."""

from collections.abc import Callable
from itertools import takewhile
from typing import TypeAlias

from minagent import ExecutionContext, ToolCall, ToolResult

BeforeTool: TypeAlias = Callable[[ExecutionContext, ToolCall], ToolResult | None]


def repeated_call_guard(limit: int = 2) -> BeforeTool:
    """Return a callback for `before_tool_callbacks` that refuses repeated calls.

    Args:
        limit: How many of the same calls may run in one run, at least 1.

    Raises:
        ValueError: `limit` is below 1.
    """
    if limit < 1:
        raise ValueError(f"limit is {limit}; a call may run at least once")

    def guard(context: ExecutionContext, call: ToolCall) -> ToolResult | None:
        asked = (each for event in context.events for each in event.tool_calls)
        before = takewhile(lambda x: x.tool_call_id != call.tool_call_id, asked)
        wanted = (call.name, call.arguments)
        count = sum((each.name, each.arguments) == wanted for each in before)
        if count < limit:
            return None
        return ToolResult(
            tool_call_id=call.tool_call_id,
            name=call.name,
            status="error",
            content=f"You have asked for {call.name} with these arguments {count} "
            "times. It was not run again. Do something else, or answer.",
        )

    return guard
