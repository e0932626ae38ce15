"""What a caller gets of a run: its items while it goes on, and its result at the end.

This file knows a run only as a coroutine.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from minagent.approval import PendingToolCall
from minagent.context import ExecutionContext, Progress, SessionOpened
from minagent.events import Event, Usage
from minagent.model import Delta
from minagent.session import finished

StreamItem: TypeAlias = SessionOpened | Event | Delta | Progress
"""`SessionOpened` comes first. Each `Event` is stored; the others pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentResult:
    """How a run ended.

    Attributes:
        output: The answer: text, empty if it was, or what `Agent.output_type` makes of
            it. None while a person has to decide.
        context: The run; its session has the log.
        status: `complete`, or `pending_confirmation`.
        pending_tool_calls: The calls that wait for a person. Empty and pending means
            that another process is at work on a call that it was told to run.
        stop_reason: Why the last reply ended, in the vendor's word.
    """

    context: ExecutionContext
    output: Any = None
    status: Literal["complete", "pending_confirmation"] = "complete"
    pending_tool_calls: tuple[PendingToolCall, ...] = ()
    stop_reason: str | None = None

    @property
    def session_id(self) -> str | None:
        """The session that the run belongs to, or None if nothing is stored."""
        return self.context.session_id

    @property
    def usage(self) -> Usage:
        """What the model calls of the run cost."""
        return self.context.usage


class AgentStream:
    """A run that is watched: `async with` starts it, `async for` shows its items.

    Leaving the block before the end cancels the run. What it stored stays.

    Args:
        start: Makes the run, given what takes its items.
    """

    def __init__(
        self, start: Callable[[Callable[[Any], None]], Coroutine[Any, Any, AgentResult]]
    ) -> None:
        self._start = start
        self._items: asyncio.Queue[StreamItem | None] = asyncio.Queue()
        self._run: asyncio.Task[AgentResult] | None = None
        self._raised = False

    async def __aenter__(self) -> Self:
        loop, put = asyncio.get_running_loop(), self._items.put_nowait

        def emit(item: StreamItem) -> None:
            # An ordinary tool tells of its progress from a thread of its own.
            loop.call_soon_threadsafe(put, item)

        self._run = asyncio.create_task(self._start(emit))
        self._run.add_done_callback(lambda _: self._items.put_nowait(None))
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        run = self._running()
        run.cancel()
        await finished(asyncio.wait([run]))
        error = None if run.cancelled() else run.exception()
        if error is not None and exc is None and not self._raised:
            raise error  # nobody has seen it yet

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamItem:
        run = self._running()
        if (item := await self._items.get()) is not None:
            return item
        self._items.put_nowait(None)  # the end stays the end
        self._raised = True
        run.result()
        raise StopAsyncIteration

    @property
    def result(self) -> AgentResult:
        """How the run ended.

        Raises:
            RuntimeError: It has not ended yet; iterate to the end first.
        """
        if not self._running().done():
            raise RuntimeError("the run goes on; iterate to its end for the result")
        return self._running().result()

    def _running(self) -> "asyncio.Task[AgentResult]":
        if self._run is None:
            raise RuntimeError("not started; use it as `async with agent.stream(...)`")
        return self._run
