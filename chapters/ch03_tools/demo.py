"""Three tools and four calls: one is right, and three get results that say why not."""

import asyncio
import json
import logging
from typing import Literal

from minagent import Agent, ToolCall, ToolResult, tool
from minagent.models import ScriptedModel


@tool
def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


@tool
def weather(city: str, unit: Literal["C", "F"] = "C") -> str:
    """Tell the temperature in a city."""
    return f"{city}: {21 if unit == 'C' else 70} degrees {unit}"


@tool
def read_page(title: str) -> str:
    """Read a page of the handbook."""
    raise LookupError(f"there is no page {title!r}")


CALLS = [
    ToolCall(name="weather", arguments={"city": "Oslo"}),
    ToolCall(name="weather", arguments={"city": "Oslo", "unit": "K"}),
    ToolCall(name="add", arguments={"a": "1", "b": 2}),
    ToolCall(name="read_page", arguments={"title": "Fjords"}),
]


async def main() -> None:
    """Let a model make the calls, and show what it reads."""
    logging.getLogger("minagent").setLevel(logging.ERROR)  # the results tell it, too
    model = ScriptedModel([CALLS, "Only the weather worked."])
    await Agent(model, tools=[add, weather, read_page]).run("Try all of them.")

    results = model.requests[-1].turns[-1].content
    for call, result in zip(CALLS, results, strict=True):
        assert isinstance(result, ToolResult)
        print(call.name, json.dumps(call.arguments))
        print(f"  {result.status}: {result.content}")


if __name__ == "__main__":
    asyncio.run(main())
