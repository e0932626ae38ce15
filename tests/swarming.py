"""What the tests of swarms share: a planner and a booker, and a program that asks them.

    python swarming.py STORE ask
    python swarming.py STORE approve

is a process that asks the swarm, or approves what is asked. The planner hands over to
the booker, who hands back; each has to ask a person on the way. It prints how the run
ended, and what is asked.
"""

import asyncio
import json
import sys
from typing import Any

from delegating import planned

from minagent import (
    Agent,
    AgentResult,
    SessionManager,
    Tool,
    ToolCall,
    pending_tool_calls,
    tool,
)
from minagent.multiagent import Peer, Swarm
from minagent.stores import open_store

TASK = "Two days in Rome."
OVER = ""
"""In a plan: the place of the reply that stands in the model's after a hand-over."""


def over(to: str, message: str, call_id: str, **shared: Any) -> ToolCall:
    arguments = {"to": to, "message": message, "shared": shared}
    return ToolCall(name="hand_over", tool_call_id=call_id, arguments=arguments)


def call(name: str, call_id: str) -> ToolCall:
    return ToolCall(name=name, tool_call_id=call_id)


def travel_agency(sessions: SessionManager) -> Swarm:
    @tool(requires_confirmation=True)
    def book() -> str:
        """Book."""
        return "Booked."

    @tool(requires_confirmation=True)
    def pay() -> str:
        """Pay."""
        return "Paid."

    plans = over("booker", "Book it.", "h1", days=2, budget=300)
    books = over("planner", "It is booked.", "h2", budget=120)
    planner = Agent(planned(plans, OVER, call("pay", "p"), "All set."), tools=[pay])
    booker = Agent(planned(call("book", "b"), books), tools=[book])
    return swarm(sessions, planner, booker)


def swarm(
    sessions: SessionManager | None, planner: Agent, booker: Agent, **options: Any
) -> Swarm:
    peers = [
        Peer("planner", planner, "Plans trips."),
        Peer("booker", booker, "Books what is planned."),
    ]
    return Swarm(peers, session_manager=sessions, **options)


def tools_of(*tools: Tool[..., Any]) -> list[str]:
    return [each.name for each in tools]


async def main(store: str, order: str) -> None:
    async with open_store(store) as sessions:
        agency = travel_agency(sessions)
        result: AgentResult
        if order == "ask":
            result = await agency.run(TASK, session_id="s")
        else:
            session = await sessions.get("s")
            assert session is not None
            decisions = [each.approve() for each in pending_tool_calls(session)]
            result = await agency.run(session_id="s", tool_confirmations=decisions)
    asked = [each.name for each in result.pending_tool_calls]
    print(json.dumps([result.status, asked, result.output]))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
