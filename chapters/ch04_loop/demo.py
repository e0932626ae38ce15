"""One loop, three ends: an answer, too many steps, a model that fails.

Each indented line is an item of the log, in the order in which it was recorded.
"""

import asyncio
from itertools import repeat

from minagent import Agent, Event, ExecutionContext, MinagentError, ToolCall, tool
from minagent.models import ScriptedModel

QUESTION = "If we are out of pears, order a dozen."
COUNT = ToolCall(name="count", arguments={"fruit": "pears"})
ORDER = ToolCall(name="order", arguments={"fruit": "pears", "amount": 12})


@tool
def count(fruit: str) -> int:
    """Count the fruit in stock."""
    return {"apples": 3}.get(fruit, 0)


@tool
def order(fruit: str, amount: int) -> str:
    """Order fruit."""
    return f"{amount} {fruit} ordered"


def show(context: ExecutionContext, event: Event) -> None:
    for item in event.content:
        text = item.name if item.type == "tool_call" else getattr(item, "content", "")
        print(f"    {item.type}: {text}")


async def tell(title: str, agent: Agent, question: str | None) -> None:
    print(title)
    try:
        await agent.run(question, session_id="pears")
    except (ConnectionError, MinagentError) as error:
        print(f"    {type(error).__name__}: {error}")


async def main() -> None:
    model = ScriptedModel([COUNT, ORDER, "A dozen pears are ordered."])
    agent = Agent(model, tools=[count, order], on_event=show)
    await tell("a task in three steps", agent, QUESTION)

    model = ScriptedModel(repeat(COUNT))
    agent = Agent(model, tools=[count, order], max_steps=3, on_event=show)
    await tell("a model that never stops", agent, QUESTION)

    failure = ConnectionError("the line is dead")
    model = ScriptedModel([COUNT, failure, ORDER, "A dozen pears are ordered."])
    agent = Agent(model, tools=[count, order], on_event=show)
    await tell("a model that fails", agent, QUESTION)
    await tell("the run that goes on from there", agent, None)


if __name__ == "__main__":
    asyncio.run(main())
