"""A run built by hand: written as JSON, read back, compared, and shown to a model."""

import asyncio
import json

from minagent import ContentItem, Event, Message, Note, ToolCall, ToolResult
from minagent.transcript import turns

CALL = ToolCall(name="clock", arguments={"city": "Oslo"}, tool_call_id="call_1")
RUN: list[tuple[str, ContentItem]] = [
    ("user", Message(role="user", content="What time is it in Oslo?")),
    ("assistant", CALL),
    ("assistant", ToolResult(tool_call_id="call_1", name="clock", content="12:00")),
    ("assistant", Message(role="assistant", content="It is 12:00.")),
    ("clock", Note(kind="time-zone", data={"zone": "CET"})),
]


def told(item: ContentItem) -> str:
    """Return an item in a few words."""
    match item:
        case Message():
            return item.content
        case ToolCall():
            return f"{item.name} {json.dumps(item.arguments)}"
        case ToolResult():
            return f"{item.name} {item.status} {item.content}"
        case Note():
            return f"{item.text or 'not shown to the model'} {json.dumps(item.data)}"
        case _:
            return ""


async def main() -> None:
    """Send the run through JSON and back."""
    events = [Event(author=author, content=(item,)) for author, item in RUN]
    lines = [event.to_json() for event in events]

    again = [Event.from_json(line) for line in lines]

    for event in again:
        for item in event.content:
            print(f"{event.author:9}  {item.type:11}  {told(item)}")
    print("the same after JSON:", again == events)
    shown = [item for turn in turns(again) for item in turn.content]
    print(f"shown to the model: {len(shown)} of {len(events)} items")


if __name__ == "__main__":
    asyncio.run(main())
