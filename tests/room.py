"""A room for the tests of the page: a model that takes its time, tools, a window."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from browser import Tab, tabs
from serving import served

from minagent import (
    Agent,
    ContentItem,
    ExecutionContext,
    Message,
    ModelRequest,
    ModelResponse,
    Reasoning,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolInputDelta,
    ToolResult,
    tool,
)
from minagent.model import Emit
from minagent.web import create_app


class Slow:
    """A model that says its replies word by word.

    Attributes:
        holds_at: The word behind which it waits for `go`.
        go: Lets it go on, there and everywhere.
        requests: What it was asked.
    """

    def __init__(self, *replies: str | Sequence[ContentItem | str]) -> None:
        self._replies = iter(replies)
        self.holds_at, self.go = "", asyncio.Event()
        self.held = asyncio.Event()
        self.requests: list[ModelRequest] = []

    async def generate(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        self.requests.append(request)
        reply = next(self._replies)
        content = tuple(
            Message(role="assistant", content=item) if isinstance(item, str) else item
            for item in ([reply] if isinstance(reply, str) else reply)
        )
        for item in content:
            if isinstance(item, Reasoning):
                await self._say(item.content, lambda text: emit(ReasoningDelta(text)))
            elif isinstance(item, Message):
                await self._say(item.content, lambda text: emit(TextDelta(text)))
            elif isinstance(item, ToolCall):
                sent = json.dumps(dict(item.arguments))
                emit(ToolInputDelta(item.tool_call_id, item.name, sent))
        called = any(isinstance(item, ToolCall) for item in content)
        return ModelResponse(content, stop_reason="tool_use" if called else "end_turn")

    async def _say(self, text: str, say: Any) -> None:
        for word in re.findall(r"\S+\s*", text):
            say(word)
            if word.strip() == self.holds_at:
                self.held.set()
                await self.go.wait()
            await asyncio.sleep(0)


class Shop:
    """Tools, and what they did."""

    def __init__(self) -> None:
        self.refunds: list[tuple[int, str]] = []
        self.opens = asyncio.Event()

        @tool
        async def weather(place: str, context: ExecutionContext) -> ToolResult:
            """Tell what the weather is."""
            context.progress(f"Asking the station of {place}")
            await self.opens.wait()
            return ToolResult(
                tool_call_id="", name="weather", content="sunny", details={"station": 7}
            )

        @tool(
            requires_confirmation=True,
            confirmation_message="Refund {amount} euros to {customer}?",
        )
        def refund(amount: int, customer: str) -> str:
            """Refund money."""
            self.refunds.append((amount, customer))
            return f"refunded {amount}"

        self.tools = [weather, refund]


WEATHER = ToolCall(name="weather", arguments={"place": "Oslo"}, tool_call_id="c1")
REFUND = ToolCall(
    name="refund", arguments={"amount": 20, "customer": "Ada"}, tool_call_id="c2"
)
THOUGHT = Reasoning(content="First the weather, then the money.", signature="s")
ASKED = "Refund 20 euros to Ada?"


@asynccontextmanager
async def room(
    browser: Any, model: Slow, shop: Shop | None = None, **options: Any
) -> AsyncIterator[Any]:
    """An agent with a page, and a window to open tabs of it."""
    agent = Agent(model, name="clerk", tools=(shop or Shop()).tools)
    async with served(create_app(agent, **options)) as url, tabs(browser) as tab:

        async def opened(address: str = "") -> Tab:
            return await tab(address or url)

        yield opened


@asynccontextmanager
async def asking(browser: Any, *after: str | ToolCall) -> AsyncIterator[Any]:
    """A tab in which a question waits; and what opens further tabs, and the shop."""
    model, shop = Slow([REFUND], *(after or ["Done."])), Shop()
    async with room(browser, model, shop) as opened:
        tab = await opened()
        await tab.say("Refund it.")
        await tab.is_answered(ASKED)
        yield tab, opened, shop
