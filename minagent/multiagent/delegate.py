"""Delegation: an agent as a tool of another agent.

    research = delegate(Agent(model, tools=[...]), name="research", description="Finds")
    agent = Agent(model, tools=[research], session_manager=sessions)

Each call of the tool is a conversation of its own, in a session inside that of the
agent that calls: `<session>/<tool_call_id>`. How it pauses, goes on after a crash and
is paid for is written in `inside.py`.
"""

from typing import Annotated, Any

from pydantic import Field

from minagent.agent import Agent
from minagent.context import ExecutionContext
from minagent.events import ToolResult
from minagent.multiagent.inside import Inside
from minagent.tools import Tool, tool


def delegate(agent: Agent, *, name: str, description: str) -> Tool[..., Any]:
    """Return a tool that hands a task to an agent and returns its answer.

    The agent works in the store of whoever calls it; its own `session_manager` is not
    used. It sees the task, and nothing else of the conversation. Where it ends without
    an answer, the result is an error that says why.

    Args:
        agent: The agent.
        name: What the model calls it.
        description: What the model is told of it: what it is good for.

    Raises:
        ValueError: The description is empty, or the name is none that vendors take.
    """

    async def hand_over(
        task: Annotated[str, Field(description="The whole task, in words.")],
        context: ExecutionContext,
    ) -> ToolResult:
        if context.tool_call_id is None:
            raise ValueError(f"tool {name!r} is carried out by a run, not by hand")
        return await Inside(agent, context, context.tool_call_id).answered(task)

    hand_over.__doc__ = description
    return tool(name=name, resumable=True)(hand_over)
