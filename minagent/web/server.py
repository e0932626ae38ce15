"""A server for the app, which ends when it is told to.

A client that follows a session keeps its connection open for as long as it likes, and
uvicorn waits for all connections before it tells an app that it ends. So this server
tells it first: runs are cancelled, what they have done is stored, and streams end.

This file knows nothing of the routes.
"""

import socket

import uvicorn
from starlette.applications import Starlette

from minagent.web.runs import Runs

SHUTDOWN_SECONDS = 10
"""How long connections may take to end before they are cut."""


class Server(uvicorn.Server):
    """A uvicorn server of an app made by `create_app`.

    `await Server(app).serve()` runs until it gets SIGINT or SIGTERM.

    Args:
        app: The app.
        host: The address to listen on. Other machines reach no app without
            `authenticate`, whatever it is.
        port: The port; 0 means any that is free.
    """

    def __init__(
        self, app: Starlette, *, host: str = "127.0.0.1", port: int = 8000
    ) -> None:
        runs = app.state.runs
        assert isinstance(runs, Runs)
        self._runs = runs
        config = uvicorn.Config(
            app,
            host=host,
            port=port,
            log_level="warning",
            server_header=False,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        super().__init__(config)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the runs, and then the connections."""
        await self._runs.aclose()
        await super().shutdown(sockets)
