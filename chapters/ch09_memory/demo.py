"""Ann's Friday knows what her Monday was told; Bob's does not; forgotten is forgotten.

Sessions and memories are in two files, and both are opened anew for each question.
"""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from minagent import Agent
from minagent.memory import SQLiteMemoryManager, recall
from minagent.models import OfflineModel
from minagent.stores import SQLiteSessionManager


async def say(folder: Path, user_id: str, day: str, text: str) -> None:
    session_id = f"{user_id}-{day}"
    async with (
        SQLiteSessionManager(folder / "sessions.db") as sessions,
        SQLiteMemoryManager(folder / "memory.db") as memory,
    ):
        agent = Agent(
            OfflineModel(),
            session_manager=sessions,
            before_llm_callbacks=[recall(memory)],
        )
        result = await agent.run(text, session_id=session_id, user_id=user_id)
        await memory.add_session(result.context.session)
    print(f"{session_id}> {text}")
    print(f"{session_id}< {result.output}")


async def main() -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        await say(folder, "ann", "monday", "My kayak is red.")
        await say(folder, "ann", "friday", "What is my kayak?")
        await say(folder, "bob", "friday", "What is my kayak?")
        async with SQLiteMemoryManager(folder / "memory.db") as memory:
            print("forgotten:", await memory.forget(user_id="ann"))
        await say(folder, "ann", "sunday", "What is my kayak?")


if __name__ == "__main__":
    asyncio.run(main())
