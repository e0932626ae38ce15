"""Two runs recall without an id, with the same id, and with another one.

At the end stands what is kept under the id, and who may not have it.
"""

import asyncio

from minagent import Agent, InMemorySessionManager, SessionManager, SessionOwnerError
from minagent.models import OfflineModel


async def ask(question: str, sessions: SessionManager, session_id: str | None) -> None:
    # A new agent for each question: nothing is kept in it.
    agent = Agent(OfflineModel(), session_manager=sessions)
    result = await agent.run(question, session_id=session_id, user_id="ann")
    print(f"    > {question}\n    < {result.output}")


async def main() -> None:
    sessions = InMemorySessionManager()
    print("two runs without an id")
    await ask("Hello, my name is Ada.", sessions, None)
    await ask("What is my name?", sessions, None)

    print("two runs with one id")
    await ask("Hello, my name is Ada.", sessions, "tea")
    await ask("What is my name?", sessions, "tea")

    print("a run with another id")
    await ask("What is my name?", sessions, "work")

    print("what is kept under the first")
    session = await sessions.get_or_create("tea")
    print(f"    version {session.version}, owner {session.user_id}")
    for event in session.events:
        print(f"    {event.author}: {[item.type for item in event.content]}")

    print("another user who knows the id")
    try:
        await sessions.get_or_create("tea", user_id="bob")
    except SessionOwnerError as error:
        print(f"    {error}")


if __name__ == "__main__":
    asyncio.run(main())
