"""While a chat goes on, a page is reloaded after each event, and misses nothing."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import minagent
from minagent import Agent, AgentStream, Event, Reasoning, Session, ToolCall
from minagent.cards import cards, render_text
from minagent.models import ScriptedModel
from minagent.stores import SQLiteSessionManager

THOUGHT = Reasoning(content="She has a card, and the book is here.")
CALL = ToolCall(name="lend_book", arguments={"title": "Emma"})


@minagent.tool(requires_confirmation=True)
def lend_book(title: str) -> str:
    """Lend a book."""
    return f"{title} is lent until Friday."


async def reloaded(path: Path) -> Session:
    async with SQLiteSessionManager(path) as sessions:
        return await sessions.get_or_create("library")


async def watch(stream: AgentStream, path: Path) -> None:
    live = [*(await reloaded(path)).events]
    async with stream:
        async for item in stream:
            if isinstance(item, Event):
                live.append(item)
                stored = (await reloaded(path)).events[: len(live)]
                same = "yes" if cards(stored) == cards(live) else "no"
                kinds = ", ".join(each.type for each in item.content)
                print(f"{kinds}: does a reload show it? {same}")


async def main() -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "chat.db"
        agent = Agent(
            ScriptedModel([[THOUGHT, CALL], "Take it."]),
            tools=[lend_book],
            session_manager=SQLiteSessionManager(path),
        )
        await watch(agent.stream("May I have Emma?", session_id="library"), path)
        pending = minagent.pending_tool_calls(await reloaded(path))
        yes = [each.approve(by="ada") for each in pending]
        await watch(agent.stream(session_id="library", tool_confirmations=yes), path)
        print("", render_text(cards((await reloaded(path)).events)), sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
