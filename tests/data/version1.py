"""How `version1.db` was made: a file of the first schema, kept for good.

    python tests/data/version1.py

It has two sessions: `ada` with every kind of item, and `trip`, which waits for a
person. Do not run it again once there is a second schema: the file must be one that
the first release wrote.
"""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

from minagent import (
    Agent,
    Event,
    Media,
    Message,
    Note,
    Opaque,
    Reasoning,
    ToolCall,
    ToolConfirmation,
    ToolResult,
    Usage,
    tool,
)
from minagent.models import ScriptedModel
from minagent.stores import SQLiteSessionManager

PATH = Path(__file__).with_name("version1.db")

EXTRA = {"z": 1, "a": [1.0, -0.0, True, None, {"y": {}, "b": []}], "big": 2**70}
PICTURE = Media(media_type="image/png", data="aGVsbG8=", extra=EXTRA)


def every_kind_of_item() -> list[Event]:
    return [
        Event(
            author="user",
            content=(Message(role="user", content="Hello \U0001f600\u2028"), PICTURE),
        ),
        Event(
            author="assistant",
            content=(
                Reasoning(content="", signature="s" * 40),
                Reasoning(content="Hm.", signature="c2ln", extra=EXTRA),
                Reasoning(content="", redacted="c2VhbGVk"),
                Message(role="assistant", content="Let me see.", extra=EXTRA),
                ToolCall(name="find", tool_call_id="toolu_1", arguments=EXTRA),
                ToolCall(name="find", tool_call_id="toolu_2", extra=EXTRA),
                ToolCall(name="find", tool_call_id="toolu_3", unreadable='{"a": '),
                Opaque(block={"type": "brand_new", "payload": EXTRA}),
            ),
            execution_id="run-1",
            timestamp=datetime(2026, 3, 29, 1, 30, 0, 123_456, tzinfo=UTC),
            usage=Usage(
                input_tokens=1,
                output_tokens=2,
                cache_read_tokens=3,
                cache_write_tokens=4,
            ),
            model="a-model",
            stop_reason="tool_use",
            request_id="req_1",
            prefix_digest="d1",
        ),
        Event(
            author="user",
            content=(
                ToolConfirmation(
                    tool_call_id="toolu_1",
                    approved=True,
                    modified_arguments={"a": 1},
                    by="ann",
                    fingerprint="f1",
                    path=("call_1", "call_2"),
                ),
                ToolConfirmation(tool_call_id="toolu_2", approved=False, reason="no"),
                ToolConfirmation(tool_call_id="toolu_3", approved=True, answer="42"),
            ),
        ),
        Event(
            author="tool",
            content=(
                ToolResult(
                    tool_call_id="toolu_1",
                    name="find",
                    content="found",
                    media=(PICTURE, Media(media_type="image/png", url="https://x/y")),
                    details=[EXTRA],
                ),
                ToolResult(tool_call_id="toolu_2", name="find", status="denied"),
                ToolResult(tool_call_id="toolu_3", name="find", status="unknown"),
            ),
        ),
        Event(
            author="notes",
            content=(
                Note(kind="mine", text="shown", data=EXTRA),
                Note(kind="of a kind that nobody knows"),
            ),
        ),
        Event(author="assistant", content=(), interrupted=True),
        Event(
            author="assistant",
            content=(Message(role="assistant", content="Good-bye."),),
            stop_reason="end_turn",
        ),
    ]


@tool
def read(name: str) -> str:
    """Read a file."""
    return f"the text of {name}"


@tool(requires_confirmation=True, confirmation_message="Send it to {to}?")
def send(to: str) -> str:
    """Send what was read."""
    return f"sent to {to}"


async def main() -> None:
    async with SQLiteSessionManager(PATH) as sessions:
        session = await sessions.create("ada", user_id="ann")
        session.state = {"city": "Paris", "deep": {"list": [1, 1.0, True, None]}}
        session.append(*every_kind_of_item()[:2])
        await sessions.save(session)
        session.append(*every_kind_of_item()[2:])
        await sessions.save(session)

        calls = [
            Reasoning(content="First read.", signature="c2ln"),
            ToolCall(name="read", tool_call_id="call_1", arguments={"name": "x"}),
            ToolCall(name="send", tool_call_id="call_2", arguments={"to": "bob"}),
        ]
        model = ScriptedModel([calls])
        agent = Agent(model, tools=[read, send], session_manager=sessions)
        await agent.run("Read x, and send it to Bob.", session_id="trip")


if __name__ == "__main__":
    PATH.unlink(missing_ok=True)
    asyncio.run(main())
