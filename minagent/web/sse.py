"""Server-sent events: one frame, and a response of many.

JSON has no line break in it, so nothing that is said in a conversation can end a frame
and begin another. An id that could is left out.

`EventStream` is a response that ends as soon as its client has gone, also while there
is nothing to send, and always closes what it streams.

This file knows nothing of what the events say.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

COMMENT = b":\n\n"
"""A frame that says nothing, so that nobody in between takes the stream for dead."""


def frame(name: str, data: bytes, event_id: str | None = None) -> bytes:
    """Return one server-sent event.

    Args:
        name: What kind it is.
        data: JSON text on one line.
        event_id: What a client names when it comes back: `Last-Event-ID`.
    """
    known = (
        event_id if event_id and event_id.isascii() and event_id.isprintable() else ""
    )
    line = f"id: {known}\n" if known else ""
    return b"%sevent: %s\ndata: %s\n\n" % (line.encode(), name.encode(), data)


class EventStream(Response):
    """A response of server-sent events.

    Args:
        frames: What to send.
        close: Called once at the end, however it comes.
    """

    media_type = "text/event-stream"

    def __init__(
        self, frames: AsyncGenerator[bytes], *, close: Callable[[], None]
    ) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._frames, self._close = frames, close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the frames until they end, or until the client has gone."""
        tasks = [
            asyncio.ensure_future(self._send_all(send)),
            asyncio.ensure_future(_left(receive)),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._close()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        if not tasks[0].cancelled():
            tasks[0].result()

    async def _send_all(self, send: Send) -> None:
        start = {"status": self.status_code, "headers": self.raw_headers}
        await send({"type": "http.response.start", **start})
        async with aclosing(self._frames) as frames:
            async for each in frames:
                part = {"type": "http.response.body", "body": each, "more_body": True}
                await send(part)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _left(receive: Receive) -> None:
    """Return when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
