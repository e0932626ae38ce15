"""Three processes, one conversation; and a stale save that is refused.

The second process is killed before its model has answered. The third is given nothing
but the id, and answers.
"""

import asyncio
import os
import subprocess
import sys
from tempfile import TemporaryDirectory

from minagent import Agent, Event, Message, Model, ModelRequest, SessionConflictError
from minagent.models import OfflineModel, ScriptedModel
from minagent.stores import open_store


def killed(request: ModelRequest) -> str:
    os._exit(1)  # nothing is closed, nothing is tidied up


async def turn(address: str, how: str, question: str | None = None) -> None:
    model: Model = ScriptedModel([killed]) if how == "killed" else OfflineModel()
    async with open_store(address) as sessions:
        agent = Agent(model, session_manager=sessions)
        result = await agent.run(question, session_id="tea")
    print("    <", result.output)


def process(number: int, *arguments: str) -> None:
    command = [sys.executable, __file__, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    print(f"process {number}")
    for question in arguments[2:]:
        print("    >", question)
    print(done.stdout.rstrip() or "    (gone)")


async def main() -> None:
    with TemporaryDirectory() as folder:
        address = f"sqlite:///{folder}/chat.db"
        process(1, address, "well", "Hello, my name is Ada.")
        process(2, address, "killed", "What is my name?")
        process(3, address, "well")

        print("two saves of one version")
        async with open_store(address) as sessions:
            pair = [await sessions.get_or_create("tea") for _ in range(2)]
            for session in pair:
                said = Message(role="user", content="Hello again.")
                session.append(Event(author="user", content=(said,)))
                try:
                    await sessions.save(session)
                    print(f"    saved as version {session.version}")
                except SessionConflictError as error:
                    print(f"    refused: {error}")


if __name__ == "__main__":
    asyncio.run(turn(*sys.argv[1:]) if sys.argv[1:] else main())
