"""One story from a script and over Claude's API, and what the page shows of it."""

import asyncio
import socket
from tempfile import TemporaryDirectory
from urllib.request import urlopen

from minagent import Agent, Model, Reasoning, ToolCall, pending_tool_calls, tool
from minagent.cards import cards, render_text
from minagent.models import AnthropicModel, ScriptedModel
from minagent.stores import SQLiteSessionManager
from minagent.testing import FakeAnthropic
from minagent.web import Server, create_app

TRAIN, ANSWER = {"train": "7:10"}, "Have a good trip."
CALL = ToolCall(name="book", arguments=TRAIN)
THOUGHT = {"type": "thinking", "thinking": "Early."}
BLOCK = {"type": "tool_use", "name": "book", "input": TRAIN}


@tool(requires_confirmation=True, confirmation_message="Book the {train}?")
def book(train: str) -> str:
    """Book a train."""
    return "It is booked."


async def program(path: str, model: Model, said: str | None) -> str:
    async with SQLiteSessionManager(path) as sessions:
        agent = Agent(model, tools=[book], session_manager=sessions)
        session = await sessions.get_or_create("trip", user_id="you")
        yes = [each.approve(by="ada") for each in pending_tool_calls(session)]
        result = await agent.run(said, session_id="trip", tool_confirmations=yes)
        drawn = cards(result.context.session.events, result.pending_tool_calls)
        if yes:
            server = Server(create_app(agent))
            listening = socket.create_server(("127.0.0.1", 0))
            serving = asyncio.create_task(server.serve([listening]))
            url = "http://{}:{}/api/sessions/trip".format(*listening.getsockname())
            page = await asyncio.to_thread(lambda: urlopen(url).read().decode())
            server.should_exit = True
            await serving
            print("The page has each card:", all(x.key in page for x in drawn))
    return render_text(drawn)


async def main() -> None:
    script = ScriptedModel([[Reasoning(content="Early."), CALL], ANSWER])
    with TemporaryDirectory() as folder:
        async with FakeAnthropic([[THOUGHT, BLOCK], ANSWER]) as api:
            for said in ("To Oslo!", None):  # each time in new programs
                claude = AnthropicModel("claude", max_tokens=99, base_url=api.url)
                scripted = await program(f"{folder}/1.db", script, said)
                real = await program(f"{folder}/2.db", claude, said)
                print("They tell the same:", scripted == real)
    print("", real, sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
