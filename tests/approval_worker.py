"""A process that decides on tool calls, and may be killed while it does.

    python approval_worker.py race

answers each line of its input, an order in JSON, with a line about how the run ended.

    python approval_worker.py die

plays the whole story that each line asks for in a child of its own, which is killed
with SIGKILL at the step, or after the time, that the line names. The answer is the
signal that ended the child, or 0. A fork costs far less than an interpreter's start.

Each order names a database (a file, or the address of a store), and a file `effects`:
what the tools do is to write their call id into it, and to disk.
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from approving import Beside, call

from minagent import (
    Agent,
    ExecutionContext,
    MinagentError,
    ModelRequest,
    PendingToolCall,
    Session,
    SessionManager,
    SessionStore,
    Tool,
    ToolConfirmation,
    ToolResult,
    pending_tool_calls,
    tool,
)
from minagent.models import ScriptedModel
from minagent.stores import SQLiteSessionManager, open_store

REPLY = [call("look", "free"), call("pay", "one", n=1), call("pay", "two", n=2)]
"""What the model asks for: one call that is free, and two that a person decides on."""

STORIES: Mapping[str, Sequence[Mapping[str, str]]] = {
    "together": [{"one": "approve", "two": "approve"}],
    "apart": [{"two": "approve"}, {"one": "approve"}],
    "edited and denied": [{"one": "edit", "two": "deny"}],
    "answered, then approved": [{"one": "answer"}, {"two": "approve"}],
}
"""By name, what a person decides: the decisions of one run after those of another."""

Passed = Callable[[], None]


def opened(place: str, durability: Literal["full", "normal"] = "full") -> SessionStore:
    if "://" in place:
        return open_store(place)
    return SQLiteSessionManager(place, durability=durability)


def decision_on(asked: PendingToolCall, verdict: str) -> ToolConfirmation:
    return {
        "approve": asked.approve(by="ada"),
        "edit": asked.approve(by="ada", arguments={"n": 7}),
        "deny": asked.deny("no", by="ada"),
        "answer": asked.answer("paid by hand", by="ada"),
    }[verdict]


def tools_of(effects: Path, passed: Passed, seconds: float = 0) -> list[Tool[..., Any]]:
    async def leave_trace(context: ExecutionContext) -> None:
        passed()
        handle = os.open(effects, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(handle, f"{context.session_id} {context.tool_call_id}\n".encode())
        os.fsync(handle)
        os.close(handle)
        passed()
        await asyncio.sleep(seconds)

    @tool
    async def look(context: ExecutionContext) -> str:
        """Look."""
        await leave_trace(context)
        return "seen"

    @tool(requires_confirmation=True)
    async def pay(n: int, context: ExecutionContext) -> str:
        """Pay."""
        await leave_trace(context)
        return f"paid {n}"

    return [look, pay]


async def approved(
    sessions: SessionManager, order: Mapping[str, Any]
) -> dict[str, Any]:
    """Run once, as the order says, and tell how it ended."""
    model = ScriptedModel([REPLY if order.get("pauses") else "Done."])
    tools = tools_of(Path(order["effects"]), lambda: None, order["seconds"])
    agent = Agent(model, tools=tools, session_manager=sessions)
    decisions = [
        ToolConfirmation(tool_call_id=each, approved=True) for each in order["approve"]
    ]
    try:
        result = await agent.run(
            order["input"], session_id=order["session"], tool_confirmations=decisions
        )
    except MinagentError as error:
        return {"outcome": type(error).__name__, "waiting": [], "sent": None}
    sent = None
    if model.requests:
        content = model.requests[-1].turns[-1].content
        sent = [each.tool_call_id for each in content if isinstance(each, ToolResult)]
    waiting = [each.tool_call_id for each in result.pending_tool_calls]
    return {"outcome": result.status, "waiting": waiting, "sent": sent}


class Counted(Beside):
    """Passes one step before each save, and one behind it."""

    def __init__(self, inner: SessionManager, passed: Passed) -> None:
        super().__init__(inner)
        self.passed = passed

    async def save(self, session: Session) -> None:
        self.passed()
        await super().save(session)
        self.passed()


async def told(store: SessionStore, order: Mapping[str, Any], passed: Passed) -> None:
    """Play a whole story: the question, the pause, the decisions and the answer."""

    def reply(request: ModelRequest) -> Any:
        passed()
        return "Done." if len(request.turns) > 1 else REPLY

    async with store as inner:
        agent = Agent(
            ScriptedModel([reply, reply]),
            tools=tools_of(Path(order["effects"]), passed),
            session_manager=Counted(inner, passed),
        )
        await agent.run("Please.", session_id=order["session"])
        for verdicts in STORIES[order["story"]]:
            session = await inner.get(order["session"])
            assert session is not None
            pending = {each.tool_call_id: each for each in pending_tool_calls(session)}
            decisions = [
                decision_on(pending[each], verdicts[each]) for each in verdicts
            ]
            await agent.run(session_id=order["session"], tool_confirmations=decisions)


def die(order: Mapping[str, Any]) -> int:
    """Play a story in a child and kill it; return the signal that ended it, or 0."""
    store = opened(order["database"])  # its driver is imported once, and not by each
    child = os.fork()
    if child == 0:
        left = order.get("step", 0)

        def passed() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        status = 1
        try:
            asyncio.run(told(store, order, passed))
            status = 0
        finally:
            os._exit(status)  # what the parent has buffered is the parent's to write
    if seconds := order.get("seconds"):
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code <= 0, f"the child failed with exit code {code}"
    return -code


def race(orders: Iterable[Mapping[str, Any]]) -> None:
    """Carry out each order; the database stays open for those that come after it."""
    with asyncio.Runner() as runner:
        open_: dict[str, SessionStore] = {}
        for order in orders:
            path = order["database"]
            if path not in open_:
                open_[path] = opened(path, "normal")
                runner.run(open_[path].__aenter__())
            print(json.dumps(runner.run(approved(open_[path], order))), flush=True)
        for sessions in open_.values():
            runner.run(sessions.aclose())


def main() -> None:
    orders = map(json.loads, sys.stdin)
    if sys.argv[1] == "race":
        race(orders)
    for order in orders:
        print(die(order), flush=True)


if __name__ == "__main__":
    main()
