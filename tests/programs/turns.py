"""A program that takes turns on a session until it is killed.

Each line of its input names a file `….db`, a folder or the address of a store, a
session and a time in seconds. For each it makes a process that takes turns with tools
for ever, and kills it when the time has passed.
The output says what that process knows to be true:

    start call_1  a tool has been entered
    event 0193…   `on_event` was told of an event: it is stored
    dead 9        the process has ended, by this signal
"""

import asyncio
import itertools
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from minagent import (
    Agent,
    ContentItem,
    Event,
    ExecutionContext,
    ModelRequest,
    NothingToContinueError,
    Reasoning,
    SessionStore,
    ToolCall,
    ToolResult,
    tool,
)
from minagent.models import ScriptedModel
from minagent.stores import (
    BlobSessionManager,
    FolderStorage,
    SQLiteSessionManager,
    open_store,
)


def tell(kind: str, what: object) -> None:
    # One write: whoever is killed in between has said it, or has not.
    os.write(1, f"{kind} {what}\n".encode())


@tool
async def at_once(context: ExecutionContext) -> str:
    """Return at once."""
    tell("start", context.tool_call_id)
    return "done"


@tool
async def in_a_while(context: ExecutionContext, milliseconds: int) -> str:
    """Return in a while."""
    tell("start", context.tool_call_id)
    context.state["calls"] = context.state.get("calls", 0) + 1
    await asyncio.sleep(milliseconds / 1000)
    return "done"


@tool
def in_a_thread(context: ExecutionContext, milliseconds: int) -> dict[str, int]:
    """Return in a while, from a thread."""
    tell("start", context.tool_call_id)
    time.sleep(milliseconds / 1000)
    return {"milliseconds": milliseconds}


CALLS = (
    ("at_once", {}),
    ("in_a_while", {"milliseconds": 3}),
    ("in_a_thread", {"milliseconds": 1}),
    ("no_such_tool", {}),
)


def reply(request: ModelRequest) -> Sequence[ContentItem | str]:
    """Ask for some calls, and for one more, and answer: by the transcript alone."""
    count = len(request.events)
    last = request.turns[-1].content
    if isinstance(last[-1], ToolResult):
        wanted = CALLS[count % 3 :][:1] if len(last) > 1 else ()
    else:
        wanted = CALLS[: count % 5]
    calls = [ToolCall(name=name, arguments=arguments) for name, arguments in wanted]
    thought = Reasoning(content=f"{count} so far.", signature=f"s{count}")
    return [thought, *calls] if calls else [thought, f"Answer {count}."]


def told(context: ExecutionContext, event: Event) -> None:
    tell("event", event.event_id)


def opened(path: str) -> SessionStore:
    """Return the store of an address, of a file `….db`, or else of a folder."""
    if "://" in path:
        return open_store(path)
    if path.endswith(".db"):
        return SQLiteSessionManager(path, durability="normal")
    return BlobSessionManager(FolderStorage(path, durability="normal"))


async def take_turns(store: SessionStore, session_id: str) -> None:
    async with store as sessions:
        agent = Agent(
            ScriptedModel(itertools.repeat(reply)),
            tools=[at_once, in_a_while, in_a_thread],
            session_manager=sessions,
            on_event=told,
        )
        with suppress(NothingToContinueError):
            await agent.run(session_id=session_id)
        for number in itertools.count():
            await agent.run(f"Question {number}?", session_id=session_id)


def main() -> None:
    for line in sys.stdin:
        path, session_id, seconds = line.split()
        store = opened(path)  # before the fork, so that its driver is imported once
        child = os.fork()
        if child == 0:
            asyncio.run(take_turns(store, session_id))
        time.sleep(float(seconds))
        os.kill(child, signal.SIGKILL)
        tell("dead", os.waitpid(child, 0)[1])


if __name__ == "__main__":
    main()
