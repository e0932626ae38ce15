"""Preserved thinking, when a conversation goes back or has words taken out of it.

The double binds each thinking block to what was sent before it, and refuses a request
that changes that, as the API does.
"""

from itertools import count
from pathlib import Path
from typing import Any

import pytest
from claude import THOUGHT, Block, claude, cold, events, look

from minagent import Agent, Reasoning, Tool, tool
from minagent.marks import current
from minagent.timetravel import fork, rewind, undo

numbers = count(1)


@pytest.fixture
def looking() -> Tool[..., Any]:
    @tool(name="look")
    def looked(path: str) -> str:
        """Look at a file."""
        return f"the text of {path}"

    return looked


def thinks(*parts: Block | str) -> list[Block | str]:
    """A reply with a thought of its own in front."""
    seal = f"sealed-{next(numbers)}"
    return [THOUGHT | {"signature": seal}, *parts]


def seals(body: Block) -> list[str]:
    """The seals of the thoughts that a request carries, in order."""
    blocks = [b for m in body["messages"] for b in m["content"] if isinstance(b, dict)]
    return [block["signature"] for block in blocks if block["type"] == "thinking"]


def of(reply: list[Block | str]) -> str:
    thought = reply[0]
    assert isinstance(thought, dict)
    return str(thought["signature"])


async def test_going_back_and_forward_leaves_all_thinking_valid(
    tmp_path: Path, looking: Tool[..., Any]
) -> None:
    one, two = thinks(look()), thinks("One.")
    left, other = thinks("Left."), thinks("Other.")
    more, last = thinks("More."), thinks("Last.")
    async with (
        claude([one, two, left, other, more, last]) as (api, model),
        cold(tmp_path / "s.db") as sessions,
    ):
        agent = Agent(model, tools=[looking], session_manager=sessions)
        await agent.run("1?", session_id="s")
        await agent.run("2?", session_id="s")
        end_of_left = (await events(sessions))[-1].event_id
        await undo(sessions, "s")
        await agent.run("3?", session_id="s")
        await rewind(sessions, "s", to=end_of_left)
        await agent.run("4?", session_id="s")
        await fork(sessions, "s", "copy")
        await agent.run("5?", session_id="copy")

    assert api.refusals == []
    assert [seals(body) for body in api.requests] == [
        [],
        [of(one)],
        [of(one), of(two)],
        [of(one), of(two)],
        [of(one), of(two), of(left)],
        [of(one), of(two), of(left), of(more)],
    ]
    assert not any("block_binding" in b.get("thinking", {}) for b in api.requests)


async def test_results_that_are_taken_along_break_no_binding(
    tmp_path: Path, looking: Tool[..., Any]
) -> None:
    asks, one, again = thinks(look()), thinks("One."), thinks("Again.")
    async with (
        claude([asks, one, again]) as (api, model),
        cold(tmp_path / "s.db") as sessions,
    ):
        agent = Agent(model, tools=[looking], session_manager=sessions)
        await agent.run("1?", session_id="s")
        reply = next(e for e in await events(sessions) if e.tool_calls)
        await rewind(sessions, "s", to=reply.event_id)
        result = await agent.run(session_id="s")

    assert result.output == "Again."
    assert api.refusals == []
    assert api.requests[2]["messages"] == api.requests[1]["messages"]


async def test_thoughts_before_a_redaction_are_never_sent_again(
    tmp_path: Path, looking: Tool[..., Any]
) -> None:
    one, two = thinks(look()), thinks("One.")
    after, later = thinks("After."), thinks("Later.")
    at_last, in_copy = thinks("At last."), thinks("In the copy.")
    replies = [one, two, after, later, at_last, in_copy]
    async with claude(replies) as (api, model):
        async with cold(tmp_path / "s.db") as sessions:
            agent = Agent(model, tools=[looking], session_manager=sessions)
            await agent.run("My PIN is 1234.", session_id="s")
            log = await events(sessions)
            await sessions.redact("s", log[0].event_id, "[removed]")
        async with cold(tmp_path / "s.db") as sessions:
            agent = Agent(model, tools=[looking], session_manager=sessions)
            await agent.run("2?", session_id="s")
            await agent.run("3?", session_id="s")
            # Also from before the mark, thoughts from before it stay away.
            await rewind(sessions, "s", to=log[-1].event_id)
            await agent.run("4?", session_id="s")
            await fork(sessions, "s", "copy", at=log[-1].event_id)
            await agent.run("5?", session_id="copy")

    assert api.refusals == []
    assert [seals(body) for body in api.requests[2:]] == [[], [of(after)], [], []]
    assert not any("1234" in str(body) for body in api.requests[2:])


async def test_the_log_keeps_the_thoughts_of_other_events_for_people(
    tmp_path: Path,
) -> None:
    async with claude([thinks("One.")]) as (_, model), cold(tmp_path / "s.db") as kept:
        await Agent(model, session_manager=kept).run("1?", session_id="s")
        log = await events(kept)
        await kept.redact("s", log[0].event_id, "[removed]")

        after = await events(kept)

    thoughts = [i for e in after for i in e.content if isinstance(i, Reasoning)]
    shown = [i for e in current(after) for i in e.content if isinstance(i, Reasoning)]
    assert (len(thoughts), len(shown)) == (1, 0)
