"""A streamed reply of Claude's, cut at every byte of it."""

from collections.abc import Iterator
from typing import Any

import pytest
from claude import claude, events

from minagent import (
    Agent,
    ContentItem,
    InMemorySessionManager,
    Message,
    Reasoning,
    ToolCall,
    ToolResult,
    tool,
)
from minagent.models.anthropic import ReplyBrokenOffError
from minagent.testing import Cut, Edited

# As short as may be: each byte is a run of its own.
REPLY: list[dict[str, Any]] = [
    {"type": "thinking", "thinking": "é🙂", "signature": "s"},
    {"type": "text", "text": "ü"},
    {"type": "tool_use", "id": "t", "name": "f", "input": {"a": "🙂"}},
]


def shortened(sent: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out what says nothing."""
    start, *rest = sent
    start = {**start, "message": {"model": "c", "usage": {"input_tokens": 1}}}
    kept = [each for each in rest if each["type"] != "ping"]
    return [
        start,
        *(each | {"usage": {}} if "usage" in each else each for each in kept),
    ]


@pytest.mark.heavy
@pytest.mark.parametrize(("clean", "step"), [(True, 3), (False, 7)])
async def test_wherever_a_stream_is_cut_the_next_run_is_accepted(
    clean: bool, step: int
) -> None:
    """Nothing half is stored, and no tool is run twice.

    The next request is made of the log alone, so of cuts that leave the same log the
    first is taken further.
    """
    ran: list[str] = []

    def f(a: str) -> str:
        """Note that it ran."""
        ran.append(a)
        return "Ok."

    at = 0
    seen: list[list[ContentItem]] = []
    script = iter(lambda: next(replies), None)

    async with claude(script) as (api, model):
        sessions = InMemorySessionManager()
        agent = Agent(model, tools=[tool(f)], session_manager=sessions)
        for at in range(0, 100_000, step):
            name = str(at)
            replies: Iterator[Any] = iter(
                [Cut(Edited(REPLY, shortened), at, clean=clean), "Done.", "Done."]
            )
            ran.clear()
            try:
                await agent.run("1?", session_id=name)
            except ReplyBrokenOffError:
                pass
            else:
                break
            log = await events(sessions, name)
            items = [item for event in log[1:] for item in event.content]
            assert all(event.interrupted for event in log[1:2])
            if items not in seen:
                seen.append(items)
                await agent.run("2?", session_id=name)
            assert ran == []

    size = len(api.bodies[0])
    assert size <= at < size + step
    assert ran == ["🙂"]
    assert api.refusals == []
    thought, word, call = (
        Reasoning(content="é🙂", signature="s"),
        Message(role="assistant", content="ü"),
        ToolCall(name="f", arguments={"a": "🙂"}, tool_call_id="t"),
    )
    *halves, (*whole, answer) = seen
    assert halves == [[], [thought], [thought, word]]
    assert whole == [thought, word, call]
    assert isinstance(answer, ToolResult)
    assert answer.status == "cancelled"
