"""What the tests of the web share: a real server, clients, and streams taken apart."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self

import httpx2
from starlette.applications import Starlette

from minagent.web import Server


@dataclass(frozen=True)
class Frame:
    """One server-sent event."""

    name: str
    data: Any
    event_id: str | None = None


class Client(httpx2.AsyncClient):
    """Talks to a server as a user, whose name it says in a header."""

    def __init__(
        self, url: str, user: str | None = None, *, app: Starlette | None = None
    ) -> None:
        headers = {"X-User": user} if user else {}
        transport = httpx2.ASGITransport(app) if app else None
        super().__init__(
            base_url=url,
            headers=headers,
            timeout=60,
            trust_env=False,
            verify=False,  # nothing here is https, and to load certificates takes time
            transport=transport,
        )

    async def new(self) -> str:
        """Make a session; return its path."""
        made = await self.post("/api/sessions")
        assert made.status_code == 201, made.text
        return f"/api/sessions/{made.json()['session_id']}"

    async def say(self, session: str, text: str | None) -> list[Frame]:
        """Say something and read the run to its end."""
        return await self.run(f"{session}/messages", {"text": text})

    async def run(self, path: str, body: object) -> list[Frame]:
        async with self.shown(path, body) as frames:
            return [each async for each in frames]

    @asynccontextmanager
    async def shown(self, path: str, body: object) -> AsyncIterator["Frames"]:
        """Start a run and see its frames as they come."""
        async with self.stream("POST", path, json=body) as response:
            assert response.status_code == 200, await response.aread()
            yield Frames(response)

    @asynccontextmanager
    async def following(
        self, session: str, *, last: str | None = None, **query: str
    ) -> AsyncIterator["Frames"]:
        """Follow a session, as a page does that has seen the event `last`."""
        headers = {"Last-Event-ID": last} if last else {}
        path = f"{session}/follow"
        async with self.stream("GET", path, params=query, headers=headers) as response:
            assert response.status_code == 200, await response.aread()
            yield Frames(response)

    async def whole(self, session: str) -> Any:
        """Read all of a session."""
        answer = await self.get(session)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def approve(self, session: str) -> httpx2.Response:
        """Approve the one call that waits, as a button does."""
        [asked] = (await self.whole(session))["pending"]
        return await self.decide(session, asked, verdict="approve")

    async def decide(
        self, session: str, asked: Mapping[str, Any], **decision: Any
    ) -> httpx2.Response:
        named = {key: asked[key] for key in ("tool_call_id", "fingerprint", "path")}
        body = {"decisions": [{**named, **decision}]}
        return await self.post(f"{session}/decisions", json=body)


class Frames:
    """The frames of a stream, one after the other."""

    def __init__(self, response: httpx2.Response) -> None:
        self._lines = response.aiter_lines()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Frame:
        fields: dict[str, str] = {}
        async for line in self._lines:
            if line:
                name, _, value = line.partition(":")
                fields[name] = value.removeprefix(" ")
            elif "data" in fields:
                data = json.loads(fields["data"])
                return Frame(fields["event"], data, fields.get("id"))
        raise StopAsyncIteration

    async def until(self, name: str, count: int = 1) -> list[Frame]:
        """Read on until frames of this name have come, and return all."""
        found: list[Frame] = []
        async with asyncio.timeout(20):
            while sum(each.name == name for each in found) < count:
                found.append(await anext(self))
        return found


def names(frames: list[Frame]) -> list[str]:
    return [each.name for each in frames]


def events_in(frames: list[Frame]) -> list[Any]:
    return [each.data for each in frames if each.name == "event"]


def text_in(frames: list[Frame]) -> str:
    """The words of the open replies."""
    deltas = [each.data for each in frames if each.name == "delta"]
    return "".join(each["text"] for each in deltas if each["kind"] == "text")


def parsed(text: str) -> list[Frame]:
    """The frames of a stream that was read to its end."""
    found = []
    for block in text.split("\n\n"):
        lines = (line.partition(": ") for line in block.splitlines())
        fields = {name: value for name, _, value in lines}
        if "data" in fields:
            data = json.loads(fields["data"])
            found.append(Frame(fields["event"], data, fields.get("id")))
    return found


def user_of(request: Any) -> str | None:
    """An `authenticate` that believes a header."""
    return request.headers.get("x-user")


@asynccontextmanager
async def served(app: Starlette) -> AsyncIterator[str]:
    """Serve an app on a real socket; yield its address."""
    server = Server(app, port=0)
    work = asyncio.create_task(server.serve())
    while not server.started:  # uvicorn has no event for this
        assert not work.done(), "the server did not start"
        await asyncio.sleep(0.01)
    try:
        yield "http://{}:{}".format(*server.servers[0].sockets[0].getsockname())
    finally:
        server.should_exit = True
        await work


@asynccontextmanager
async def visited(app: Starlette, user: str | None = None) -> AsyncIterator[Client]:
    """Serve an app, and open one client of it."""
    async with served(app) as url, Client(url, user) as client:
        yield client


@asynccontextmanager
async def called(app: Starlette, user: str | None = None) -> AsyncIterator[Client]:
    """Open a client that calls an app without a socket.

    It gets a stream only once that has ended; but it needs no server to come and go.
    """
    async with Client("http://127.0.0.1", user, app=app) as client:
        yield client
