"""A program that has Strands Agents, as it is, write sessions; it needs no network.

    python strands_sessions.py FOLDER

It writes `FOLDER/snapshots` and `FOLDER/files`: the same conversation by each of the
two session managers, with two agents, a picture, tools, thoughts, a window that
forgets, and at last a question to a person that nobody answers. It prints what each
agent has in mind then, by manager and agent: the kinds of the blocks, as JSON.
"""

import base64
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

from strands import Agent, ToolContext, tool
from strands.agent.conversation_manager import SlidingWindowConversationManager
from strands.models.model import Model
from strands.session import FileSessionManager, SnapshotSessionManager
from strands.storage import LocalFileStorage

Block = dict[str, Any]

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAA"
    "AABJRU5ErkJggg=="
)
PICTURE = {"image": {"format": "png", "source": {"bytes": PNG}}}
DOCUMENT = {"document": {"format": "txt", "name": "a", "source": {"bytes": b"Hello"}}}


@tool
def weather(city: str) -> dict[str, Any]:
    """Tell the weather.

    Args:
        city: Where.
    """
    if city == "Atlantis":
        raise ValueError("no such city")
    content = [{"text": f"Sunny in {city}."}, {"json": {"degrees": 21}}, PICTURE]
    return {"status": "success", "content": content}


@tool(context=True)
def send(to: str, tool_context: ToolContext) -> str:
    """Send a message.

    Args:
        to: To whom.
    """
    return f"Sent: {tool_context.interrupt('sending', reason=f'To {to}?')}"


class Scripted(Model):
    """A model that says what it was given, as a provider would stream it."""

    def __init__(self, *replies: list[Block]) -> None:
        self.replies = list(replies)

    def update_config(self, **config: Any) -> None:
        pass

    def get_config(self) -> Block:
        return {}

    def structured_output(self, *given: Any, **more: Any) -> Any:
        raise NotImplementedError

    async def stream(self, *given: Any, **more: Any) -> AsyncIterator[Block]:
        reply = self.replies.pop(0)
        yield {"messageStart": {"role": "assistant"}}
        for block in reply:
            start, delta = streamed(block)
            yield {"contentBlockStart": {"start": start}}
            for each in delta:
                yield {"contentBlockDelta": {"delta": each}}
            yield {"contentBlockStop": {}}
        calls = any("toolUse" in block for block in reply)
        yield {"messageStop": {"stopReason": "tool_use" if calls else "end_turn"}}
        usage = {"inputTokens": 30, "outputTokens": 7, "totalTokens": 37}
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 1}}}


def streamed(block: Block) -> tuple[Block, list[Block]]:
    """Return how a block begins, and what comes of it."""
    if "toolUse" in block:
        start = {key: x for key, x in block["toolUse"].items() if key != "input"}
        given = json.dumps(block["toolUse"]["input"])
        return {"toolUse": start}, [{"toolUse": {"input": given}}]
    if "reasoningContent" in block:
        parts = block["reasoningContent"]
        return {}, [{"reasoningContent": {key: x}} for key, x in parts.items()]
    return {}, [block]


def call(call_id: str, name: str, **given: str) -> Block:
    return {"toolUse": {"toolUseId": call_id, "name": name, "input": given}}


def thought(**parts: Any) -> Block:
    return {"reasoningContent": parts}


def talk(manager: Any, agent_id: str) -> list[Any]:
    """Have a conversation, and return what is left of it in the agent's mind."""
    agent = Agent(
        model=Scripted(
            [
                thought(text="Hm.", signature="c2lnbmVk"),
                {"text": "Let me look."},
                call("t1", "weather", city="Rome"),
                call("t2", "weather", city="Atlantis"),
            ],
            [thought(redactedContent=b"hidden"), {"text": "Sunny in Rome."}],
            [{"text": "Sending."}, call("t1", "weather", city="Bonn")],
            [call("t4", "weather", city="Oslo"), call("t5", "send", to="Bob")],
        ),
        agent_id=agent_id,
        tools=[weather, send],
        system_prompt="Be kind.",
        state={"visits": {"count": 1}},
        conversation_manager=SlidingWindowConversationManager(window_size=6),
        session_manager=manager,
        callback_handler=None,
    )
    agent(
        [
            {"text": "I am Ada. Weather?"},
            PICTURE,
            DOCUMENT,
            {"cachePoint": {"type": "default"}},
        ]
    )
    assert agent("Send it to Bob.").stop_reason == "interrupt"
    return [[m["role"], *map(list, m["content"])] for m in agent.messages]


def main(folder: str) -> None:
    """Write the sessions."""
    told: dict[str, dict[str, list[Any]]] = {"snapshots": {}, "files": {}}
    for agent_id in ("helper", "critic"):
        storage = LocalFileStorage(f"{folder}/snapshots")
        snapshots = SnapshotSessionManager("chat", storage=storage)
        told["snapshots"][agent_id] = talk(snapshots, agent_id)
        files = FileSessionManager("chat", storage_dir=f"{folder}/files")
        told["files"][agent_id] = talk(files, agent_id)
    print(json.dumps(told))


main(sys.argv[1])
