"""Exercise 04: a guard against a model that asks for the same thing again and again.

A cap on the steps stops such a model late, and with an error. A guard stops it early,
and with words: from the third time on, the tool is not run, and the model reads why.
"""

from collections.abc import Callable
from typing import TypeAlias

from minagent import ExecutionContext, ToolCall, ToolResult

BeforeTool: TypeAlias = Callable[[ExecutionContext, ToolCall], ToolResult | None]


def repeated_call_guard(limit: int = 2) -> BeforeTool:
    """Return a callback for `before_tool_callbacks` that refuses repeated calls.

    Two calls are the same if they have the same `name` and equal `arguments`. In one
    run, the first `limit` of the same calls go through: the callback returns None. For
    each further one it returns a `ToolResult` with the call's `tool_call_id` and
    `name`, the `status` "error", and a `content` that names the tool and says how often
    it was asked for already, so that the model can do something else.

    The log knows what was asked for: `context.events` are the events of this run, and
    `event.tool_calls` are the calls in one of them. The call that the callback is given
    is in the log already, and perhaps others of the same reply behind it; count those
    that stand before it. So the callback needs no memory of its own, and one guard
    can serve any number of runs.

    Args:
        limit: How many of the same calls may run in one run, at least 1.

    Raises:
        ValueError: `limit` is below 1.
    """
    raise NotImplementedError("repeated_call_guard returns no callback yet")
