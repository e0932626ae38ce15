"""Grades exercise 04: `pytest chapters/ch04_loop --mine`."""

from collections.abc import Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any

import pytest

from minagent import Agent, AgentResult, ExecutionContext, ToolCall, ToolResult, tool
from minagent.models import ScriptedModel


def called(name: str = "look", **arguments: Any) -> ToolCall:
    """Return a call with an id of its own."""
    return ToolCall(name=name, arguments=arguments)


class Shop:
    """Two tools that remember how often they ran, behind a guard."""

    def __init__(self, work: ModuleType, limit: int | None = None) -> None:
        guard = work.repeated_call_guard
        self.callback = guard() if limit is None else guard(limit)
        self.ran: list[str] = []

    async def run(
        self,
        *replies: ToolCall | Sequence[ToolCall],
        context: ExecutionContext | None = None,
    ) -> AgentResult:
        """Let a model ask for these calls, and then answer."""

        @tool
        def look(place: str, floor: int = 0) -> str:
            """Look somewhere."""
            self.ran.append(f"look {place} {floor}")
            return "nothing"

        @tool
        def dig(place: str) -> str:
            """Dig somewhere."""
            self.ran.append(f"dig {place}")
            return "nothing"

        model = ScriptedModel([*replies, "I give up."])
        agent = Agent(model, tools=[look, dig], before_tool_callbacks=[self.callback])
        return await agent.run("Find the key.", context=context)


def results(result: AgentResult) -> list[ToolResult]:
    """Return the results in the log of a run, in the order of their calls."""
    events = result.context.events
    items = [item for event in events for item in event.content]
    found = {i.tool_call_id: i for i in items if isinstance(i, ToolResult)}
    calls = [item for item in items if isinstance(item, ToolCall)]
    return [found[call.tool_call_id] for call in calls]


async def test_the_first_calls_go_through(work: ModuleType) -> None:
    shop = Shop(work)

    result = await shop.run(called(place="attic"), called(place="attic"))

    assert shop.ran == ["look attic 0"] * 2, (
        "two of the same calls are allowed by default; the guard must return None"
    )
    assert [each.status for each in results(result)] == ["success"] * 2, (
        "a call that is allowed must end with the tool's own result"
    )


async def test_the_next_one_is_not_run(work: ModuleType) -> None:
    shop = Shop(work)

    result = await shop.run(*(called(place="attic") for _ in range(4)))

    assert shop.ran == ["look attic 0"] * 2, (
        "the third and the fourth of the same calls must not run: return a ToolResult"
    )
    assert [each.status for each in results(result)[2:]] == ["error"] * 2, (
        'a refused call must have a result with the status "error"'
    )


async def test_the_model_reads_why(work: ModuleType) -> None:
    shop = Shop(work)

    result = await shop.run(*(called(place="attic") for _ in range(3)))

    refused = results(result)[-1]
    assert "look" in refused.content, "the text must name the tool"
    assert "2" in refused.content, "the text must say how often it was asked for: 2"
    assert result.output == "I give up.", "the run must go on after a refusal"


async def test_the_limit_can_be_set(work: ModuleType) -> None:
    shop = Shop(work, limit=1)

    await shop.run(called(place="attic"), called(place="attic"))

    assert shop.ran == ["look attic 0"], "with limit=1 the second one must not run"


async def test_a_limit_below_1_is_refused(work: ModuleType) -> None:
    with suppress(ValueError):
        Shop(work, limit=0)
        pytest.fail("repeated_call_guard(0) must raise ValueError", pytrace=False)


async def test_other_arguments_are_another_call(work: ModuleType) -> None:
    shop = Shop(work, limit=1)

    await shop.run(called(place="attic"), called(place="cellar"))

    assert shop.ran == ["look attic 0", "look cellar 0"], (
        "calls with other arguments are not the same call"
    )


async def test_another_tool_is_another_call(work: ModuleType) -> None:
    shop = Shop(work, limit=1)

    await shop.run(called(place="attic"), called("dig", place="attic"))

    assert shop.ran == ["look attic 0", "dig attic"], (
        "a call of another tool is not the same call, whatever its arguments"
    )


async def test_the_order_of_the_arguments_does_not_matter(work: ModuleType) -> None:
    shop = Shop(work, limit=1)

    await shop.run(called(place="attic", floor=3), called(floor=3, place="attic"))

    assert shop.ran == ["look attic 3"], (
        "the same arguments in another order are the same call: compare them as dicts"
    )


async def test_the_same_call_twice_in_one_reply_counts_twice(work: ModuleType) -> None:
    shop = Shop(work, limit=1)

    result = await shop.run([called(place="attic"), called(place="attic")])

    assert shop.ran == ["look attic 0"], (
        "of two same calls in one reply, with limit=1, exactly one must run: count the "
        "calls that stand before this one in the log"
    )
    assert [each.status for each in results(result)] == ["success", "error"], (
        "the first of them must run, and the second be refused"
    )


async def test_each_run_begins_at_zero(work: ModuleType) -> None:
    shop = Shop(work, limit=1)

    first = await shop.run(called(place="attic"))
    await shop.run(called(place="attic"), context=first.context)

    assert shop.ran == ["look attic 0"] * 2, (
        "a run must begin at zero: count in context.events, which are those of this run"
    )
