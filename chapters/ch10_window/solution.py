"""Chapter 10, a solution: a compaction rule for one tool, in front of a limit."""

import json

from minagent import ToolCall, ToolResult
from minagent.windows import Window, compact_tool_results, keep_tokens


def brief(call: ToolCall, result: ToolResult) -> str | None:
    """Return what is left of an old search for hotels, or None to leave it as it is."""
    if call.name != "find_hotels" or result.status != "success":
        return None
    try:
        hotels = [
            f"{hotel['id']} {hotel['name']} {hotel['price']}"
            for hotel in json.loads(result.content)
        ]
    except (ValueError, TypeError, KeyError):
        return None  # another version of the program has stored it
    text = f"find_hotels found in {call.arguments['city']}: {', '.join(hotels)}"
    return text if len(text) < len(result.content) else None


def windows(limit: int) -> list[Window]:
    """Return the callbacks of the agent, for `before_llm_callbacks`."""
    return [compact_tool_results(render=brief), keep_tokens(limit)]
