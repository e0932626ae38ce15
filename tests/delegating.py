"""What the tests of delegation share: models that go by the conversation, and staff.

    python delegating.py STORE EFFECTS ask
    python delegating.py STORE EFFECTS approve

is a process that asks three agents, one inside the other, or approves what is asked. It
prints how the run ended, and the paths of the questions.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any

from minagent import (
    Agent,
    Message,
    ModelRequest,
    ModelResponse,
    Tool,
    ToolCall,
    Usage,
    pending_tool_calls,
    tool,
)
from minagent.models import ScriptedModel
from minagent.multiagent import delegate
from minagent.stores import open_store

COST = Usage(input_tokens=10, output_tokens=1)
"""What each reply costs."""


def planned(*replies: Any) -> ScriptedModel:
    """Return a model whose reply depends on how often it has replied already.

    So it says the same again if a crash has lost what it said.
    """

    def reply(request: ModelRequest) -> ModelResponse:
        said = [turn for turn in request.turns if turn.role == "assistant"]
        step = replies[len(said)]
        parts = step if isinstance(step, list) else [step]
        content = tuple(
            Message(role="assistant", content=part) if isinstance(part, str) else part
            for part in parts
        )
        called = any(isinstance(part, ToolCall) for part in content)
        reason = "tool_use" if called else "end_turn"
        return ModelResponse(content, stop_reason=reason, usage=COST)

    return ScriptedModel(repeat(reply))


def hand_to(name: str, agent: Agent) -> Tool[..., Any]:
    return delegate(agent, name=name, description=f"Hand work to the {name}.")


def three_floors(
    tools: Sequence[Tool[..., Any]],
    *asked: ToolCall,
    clock: Callable[[], Any] | None = None,
) -> Tool[..., Any]:
    """Make a tool of an agent that has a tool of an agent that has these tools."""
    more = {"clock": clock} if clock else {}
    clerk = Agent(planned([*asked], "The clerk's words."), tools=tools, **more)
    call = ToolCall(name="clerk", tool_call_id="m", arguments={"task": "File it."})
    hand_down = hand_to("clerk", clerk)
    manager = Agent(planned(call, "The manager's."), tools=[hand_down], **more)
    return hand_to("manager", manager)


async def main(store: str, effects: str, order: str) -> None:
    def trace(text: str) -> str:
        with Path(effects).open("a") as file:
            file.write(f"{text}\n")
        return text

    @tool
    async def look() -> str:
        """Look."""
        return trace("looked")

    @tool(requires_confirmation=True)
    async def pay() -> str:
        """Pay."""
        return trace("paid")

    calls = [
        ToolCall(name="look", tool_call_id="l"),
        ToolCall(name="pay", tool_call_id="p"),
    ]
    outer = ToolCall(name="manager", tool_call_id="o", arguments={"task": "Pay it."})
    async with open_store(store) as sessions:
        agent = Agent(
            planned(outer, "Done."),
            tools=[three_floors([look, pay], *calls)],
            session_manager=sessions,
        )
        if order == "ask":
            result = await agent.run("Please.", session_id="s")
        else:
            session = await sessions.get("s")
            assert session is not None
            decisions = [each.approve() for each in pending_tool_calls(session)]
            result = await agent.run(session_id="s", tool_confirmations=decisions)
    paths = [[*each.path, each.tool_call_id] for each in result.pending_tool_calls]
    print(json.dumps([result.status, paths]))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
