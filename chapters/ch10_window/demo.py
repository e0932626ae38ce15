"""One conversation in four views, each sent again by an agent that reads the file."""

import asyncio
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from minagent import Agent, ToolCall, ToolResult, tool, windows
from minagent.agent import BeforeLlm
from minagent.models import OfflineModel, ScriptedModel
from minagent.stores import SQLiteSessionManager

CALLS = [ToolCall(name="trains", arguments={"to": x}) for x in ("Oslo", "Rome", "Bonn")]
ASKED = [f"When can I go to {each.arguments['to']}?" for each in CALLS]
WRITER = ScriptedModel(["The user's name is Ada. She asks for trains."])


@tool
def trains(to: str) -> str:
    """List today's trains to a city."""
    return "\n".join(f"{h:02}:10 to {to}, platform {h % 4}" for h in range(7, 21))


def first_train(call: ToolCall, result: ToolResult) -> str:
    return result.content.splitlines()[0]


async def run(path: Path, model: ScriptedModel, by: BeforeLlm, *questions: str) -> str:
    async with SQLiteSessionManager(path) as sessions:
        agent = Agent(model, tools=[trains], session_manager=sessions)
        agent.before_llm_callbacks = [by]
        for said in questions or (None,):
            result = await agent.run(said, session_id="trip")
        return f"{result.output} ({len(result.context.session.events)} events stored)"


async def show(name: str, by: BeforeLlm) -> None:
    replies = [step for call in CALLS for step in (call, "From 7:10 on.")]
    one = ScriptedModel(["Hello.", *replies, ConnectionError("the line is dead")])
    two = ScriptedModel([lambda x: OfflineModel().generate(x, lambda item: None)])
    with TemporaryDirectory() as folder:
        with suppress(ConnectionError):
            said = ("My name is Ada.", *ASKED, "What is my name?")
            await run(Path(folder) / "chat.db", one, by, *said)
        told = await run(Path(folder) / "chat.db", two, by)
    same = one.requests[-1].turns == two.requests[-1].turns
    tokens = sum(map(windows.estimate_tokens, two.requests[-1].events))
    print(f"{name}: about {tokens} tokens; sent again, the same: {same}")
    print(f"    {told}")


async def main() -> None:
    await show("the whole log", lambda context, request: None)
    await show("keep_last_turns", windows.keep_last_turns(2))
    await show("compact_tool_results", windows.compact_tool_results(render=first_train))
    await show("summarize", windows.summarize(WRITER, limit=300, keep=1))


if __name__ == "__main__":
    asyncio.run(main())
