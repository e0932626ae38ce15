"""A graph in three processes: one is gone in the middle, one asks, one is answered."""

import asyncio
import os
import sys
from pathlib import Path
from subprocess import PIPE
from tempfile import TemporaryDirectory

from minagent import Agent, ToolCall, pending_tool_calls, tool
from minagent.models import ScriptedModel
from minagent.models.scripted import Step
from minagent.multiagent import GraphBuilder
from minagent.stores import SQLiteSessionManager

LOOK, BOOK = ToolCall(name="look"), ToolCall(name="book")
STEPS: list[list[Step]] = [[LOOK, lambda request: os._exit(1)], [BOOK], ["Have fun."]]


@tool
def look() -> None:
    """Look for a hotel."""
    print("    looks for a hotel", flush=True)


@tool(requires_confirmation=True, confirmation_message="Book it?")
def book() -> None:
    """Book the hotel."""
    print("    books the hotel")


async def process(path: str, number: int) -> None:
    agent = Agent(ScriptedModel(STEPS[number - 1]), tools=[look, book])
    builder = GraphBuilder().add_node("train", lambda run: print("    finds a train"))
    builder.add_node("hotel", agent).add_edge("train", "hotel")
    async with SQLiteSessionManager(Path(path)) as sessions:
        graph = builder.build(session_manager=sessions)
        session = await sessions.get_or_create("trip")
        for visit in graph.at(session).visits:
            print(f"    ({visit.node} is {'done' if visit.is_done else 'not done'})")
        yes = [each.approve(by="ada") for each in pending_tool_calls(session)]
        task = None if session.events else "A trip to Oslo."
        result = await graph.run(task, session_id="trip", tool_confirmations=yes)
        print("   ", result.output or result.pending_tool_calls[0].confirmation_message)


async def main() -> None:
    program = [sys.executable, "-m", "chapters.ch11_several_agents.demo"]
    root = Path(__file__).parents[2]
    with TemporaryDirectory() as folder:
        for number in "123":
            given = (*program, f"{folder}/trip.db", number)
            child = await asyncio.create_subprocess_exec(*given, cwd=root, stdout=PIPE)
            printed, _ = await child.communicate()
            print(f"process {number}, exit code {child.returncode}")
            print(printed.decode().rstrip())


if __name__ == "__main__":
    asyncio.run(process(sys.argv[1], int(sys.argv[2])) if sys.argv[1:] else main())
