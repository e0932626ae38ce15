"""A program that has OpenAI Agents, as it is, write a session; it needs no network.

    python openai_agents_sessions.py FILE

It writes the SQLite file of a conversation with a picture, tools and thoughts, and
prints the types and roles of the items that the session says it has, as JSON.
"""

import asyncio
import json
import sys

from agents import Agent, Runner, SQLiteSession, function_tool, set_tracing_disabled
from agents.testing import ScriptedModel
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseFunctionWebSearch,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseReasoningItem,
)
from openai.types.responses.response_function_web_search import ActionSearch
from openai.types.responses.response_reasoning_item import Summary

DOT = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAA"
    "AABJRU5ErkJggg=="
)


@function_tool
def weather(city: str) -> str:
    """Tell the weather."""
    if city == "Atlantis":
        raise ValueError("no such city")
    return f"Sunny in {city}."


def thought(text: str) -> ResponseReasoningItem:
    return ResponseReasoningItem(
        type="reasoning",
        id="rs_1",
        summary=[Summary(type="summary_text", text=text)],
        encrypted_content="c2VhbGVk",
    )


def call(call_id: str, city: str) -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(
        type="function_call",
        id=f"fc_{call_id}",
        call_id=call_id,
        name="weather",
        arguments=json.dumps({"city": city}),
        status="completed",
    )


def searched() -> ResponseFunctionWebSearch:
    return ResponseFunctionWebSearch(
        type="web_search_call",
        id="ws_1",
        status="completed",
        action=ActionSearch(type="search", query="weather"),
    )


def answer(text: str) -> ResponseOutputMessage:
    said = ResponseOutputText(type="output_text", text=text, annotations=[])
    return ResponseOutputMessage(
        type="message", id="msg_1", role="assistant", status="completed", content=[said]
    )


async def main(path: str) -> None:
    """Write the session."""
    set_tracing_disabled(True)
    model = ScriptedModel(
        [
            [thought("Hm."), searched(), call("c1", "Rome"), call("c2", "Atlantis")],
            [answer("Sunny in Rome.")],
            [answer("A point.")],
        ]
    )
    agent = Agent(name="Helper", instructions="Be kind.", model=model, tools=[weather])
    session = SQLiteSession("ada", path)
    await Runner.run(agent, "I am Ada. Weather?", session=session)
    picture = {"type": "input_image", "image_url": f"data:image/png;base64,{DOT}"}
    words = {"type": "input_text", "text": "What is this?"}
    message = {"role": "user", "content": [words, picture | {"detail": "auto"}]}
    await Runner.run(agent, [message], session=session)
    items = await session.get_items()
    print(json.dumps([item.get("type") or item.get("role") for item in items]))
    session.close()


asyncio.run(main(sys.argv[1]))
