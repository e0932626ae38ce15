"""What the tests of graphs share: a graph of seven nodes, and a program that runs it.

The graph has a diamond, a condition and a loop:

    plan -> research -> merge -> review -> publish -> archive
    plan -> price ----> merge    review -> research (once)

Each line of the program's input names a store, a session, a file and a time in seconds.
For each it makes a process that runs the graph, or goes on with it, and kills it when
the time has passed; `-` lets it come to its end. Nodes note in the file what they do.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from delegating import planned

from minagent import (
    Agent,
    Event,
    ExecutionContext,
    NothingToContinueError,
    SessionManager,
    ToolCall,
    ToolResult,
    tool,
)
from minagent.multiagent import Graph, GraphBuilder, GraphRun
from minagent.stores import open_store

TASK = "Ants."
ANSWER = "kept: Ants. costs 10, by Facts 2."
TRANSITIONS = (
    (None, "plan"),
    ("plan", "research"),
    ("plan", "price"),
    ("research", "merge"),
    ("price", "merge"),
    ("merge", "review"),
    ("review", "research"),
    ("research", "merge"),
    ("merge", "review"),
    ("review", "publish"),
    ("publish", "archive"),
)
STATE = {"plan": TASK, "drafts": 2, "published": True}


def look(number: int) -> ToolCall:
    return ToolCall(name="look", tool_call_id=f"look-{number}")


class Work:
    """What the nodes do; they write `enter NODE-VISIT`, and once stored, `done`.

    Args:
        effects: The file.
        pause: How long each takes, in seconds.
    """

    def __init__(self, effects: Path, pause: float) -> None:
        self.effects, self.pause = effects, pause

    def trace(self, text: str) -> None:
        with self.effects.open("a") as file:
            file.write(f"{text}\n")

    async def enter(self, name: str) -> None:
        self.trace(f"enter {name}")
        await asyncio.sleep(self.pause)

    def done(self, context: ExecutionContext, event: Event) -> None:
        for item in event.content:
            if isinstance(item, ToolResult):
                self.trace(f"done {item.tool_call_id}")

    async def plan(self, run: GraphRun) -> None:
        await self.enter(f"plan-{run.times('plan')}")
        run.state["plan"] = run.task

    async def price(self, run: GraphRun) -> dict[str, int]:
        await self.enter(f"price-{run.times('price')}")
        await asyncio.sleep(5 * self.pause)
        return {"euros": 10}

    async def merge(self, run: GraphRun) -> str:
        await self.enter(f"merge-{run.times('merge')}")
        run.state["drafts"] = run.state.get("drafts", 0) + 1
        costs, by = run.results["price"]["euros"], run.results["research"]
        return f"{run.state['plan']} costs {costs}, by {by}"

    def publish(self, run: GraphRun) -> str:
        self.trace(f"enter publish-{run.times('publish')}")
        time.sleep(5 * self.pause)
        run.state["published"] = True
        return str(run.results["merge"])

    async def archive(self, run: GraphRun) -> str:
        await self.enter(f"archive-{run.times('archive')}")
        return f"kept: {run.results['publish']}"


def seven(sessions: SessionManager, effects: Path, pause: float = 0.0) -> Graph:
    """Return the graph."""
    work = Work(effects, pause)

    @tool(name="look")
    async def looked(context: ExecutionContext) -> str:
        """Look."""
        await work.enter(context.tool_call_id or "")
        return "Seen."

    replies = (look(1), "Facts 1.", look(2), "Facts 2.")
    builder = GraphBuilder()
    builder.add_node("plan", work.plan, repeatable=True)
    builder.add_node("research", Agent(planned(*replies), tools=[looked]))
    builder.add_node("price", work.price)
    builder.add_node("merge", work.merge, repeatable=True)
    builder.add_node("review", Agent(planned("Again.", "Fine.")))
    builder.add_node("publish", work.publish)
    builder.add_node("archive", work.archive, repeatable=True)
    builder.add_edge("plan", "research").add_edge("plan", "price")
    builder.add_edge("research", "merge").add_edge("price", "merge")
    builder.add_edge("merge", "review")
    builder.add_edge("review", "research", when=is_told("Again."))
    builder.add_edge("review", "publish", when=is_told("Fine."))
    builder.add_edge("publish", "archive")
    return builder.build(session_manager=sessions, on_event=work.done)


def is_told(word: str) -> Callable[[GraphRun], bool]:
    """Whether the review said this."""
    return lambda run: bool(run.results["review"] == word)


async def go_on(address: str, session_id: str, effects: str) -> None:
    """Run the graph, or go on with it, until it ends or waits for a person."""
    async with open_store(address) as sessions:
        graph = seven(sessions, Path(effects), pause=0.002)
        known = await sessions.get(session_id)
        words = None if known and known.events else TASK
        with suppress(NothingToContinueError):
            await graph.run(words, session_id=session_id)


def main() -> None:
    for line in sys.stdin:
        address, session_id, effects, seconds = line.split()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                asyncio.run(go_on(address, session_id, effects))
                code = 0
            finally:
                os._exit(code)
        if seconds != "-":
            time.sleep(float(seconds))
            os.kill(child, signal.SIGKILL)
        print(os.waitpid(child, 0)[1], flush=True)


if __name__ == "__main__":
    main()
