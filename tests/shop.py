"""Tools for the tests of the command line: `--tools shop:tools`."""

import asyncio
from datetime import timedelta

from minagent import Agent, tool
from minagent.models import OfflineModel
from minagent.multiagent import delegate


@tool
def weather(place: str) -> str:
    """Tell what the weather is."""
    return f"sunny in {place}"


@tool(requires_confirmation=True, confirmation_message="Refund {amount} euros?")
def refund(amount: int) -> str:
    """Refund money."""
    return f"refunded {amount}"


@tool(requires_confirmation=True, expires_in=timedelta(microseconds=1))
def hurry() -> str:
    """Do something that nobody can decide in time."""
    return "done"


@tool
def fail() -> str:
    """Fail."""
    raise RuntimeError("no \x1b[31mpaper")


@tool
async def wait() -> None:
    """Wait for ever, once a file `waits` says so."""
    with open("waits", "w"):  # noqa: ASYNC230 - as short as can be
        pass
    await asyncio.Event().wait()


clerk = delegate(
    Agent(OfflineModel(), tools=[refund], name="clerk"),
    name="clerk",
    description="Refunds money.",
)
tools = [weather, refund, hurry, fail, wait, clerk]
no_tool = print
