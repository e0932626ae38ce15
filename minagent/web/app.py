"""The app: the routes of the API, and the page.

`create_app` puts the parts together; `Api` has a method for each route, and the module
`minagent.web` says what they do. Before any of them looks at a session, `_session`
finds out who asks, and whether it is theirs: another user's session is answered exactly
as one that is not there.

This file knows nothing of how runs are watched (`runs.py`, `follow.py`), and decides
nothing about a conversation: that is the agent's.
"""

import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import fields
from pathlib import Path
from typing import TypeAlias, TypeVar

import pydantic
from pydantic import JsonValue
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.staticfiles import StaticFiles

from minagent.agent import Agent
from minagent.approval import pending_tool_calls
from minagent.cards import cards
from minagent.context import resolved
from minagent.errors import (
    ErasurePendingError,
    InvalidSessionIdError,
    MinagentError,
    SessionNotFoundError,
    UnknownEventError,
)
from minagent.events import (
    Message,
    ToolConfirmation,
    load_json,
    new_id,
    plain,
    said_by_user,
    well_formed,
)
from minagent.marks import current
from minagent.memory import MemoryManager
from minagent.session import Session
from minagent.store import SessionInfo, SessionStore
from minagent.timetravel import fork
from minagent.web.follow import Follower
from minagent.web.openapi import Branch, Decisions, NewMessage, document
from minagent.web.runs import OnDisconnect, Runs, Watcher
from minagent.web.safety import LOOPBACK, Safety, read_body, secure
from minagent.web.sse import EventStream
from minagent.web.wire import as_json, refusal, response

logger = logging.getLogger("minagent")

Authenticate: TypeAlias = Callable[[Request], Awaitable[str | None] | str | None]

YOU = "you"
"""The user of whoever asks, where there is no `authenticate`."""

MAX_LIMIT = 100
MAX_TITLE = 80
MAX_KNOWN = 10_000
PAGE = Path(__file__).parent / "page"

B = TypeVar("B", bound=pydantic.BaseModel)


def create_app(
    agent: Agent,
    *,
    authenticate: Authenticate | None = None,
    memory: MemoryManager | None = None,
    on_disconnect: OnDisconnect = "go_on",
    hosts: Sequence[str] = LOOPBACK,
    max_body: int = 1_000_000,
    poll_seconds: float | None = 1.0,
) -> Starlette:
    """Return an app in which people talk to an agent.

    The store is the agent's. The app does not close it, or the memory: who made them
    does.

    Args:
        agent: The agent.
        authenticate: Given a request, returns the user's id, or None for nobody; sync
            or async. Without one, all who ask are one user, `you`, and must be on this
            machine.
        memory: Where a session goes after each run that came to a result, and what
            forgets it when it is deleted; for recall, the agent has a callback or tool.
        on_disconnect: Whether a run goes on when the last client that watched it has
            left, or is cancelled then.
        hosts: The hosts that the server is known by, without port.
        max_body: How large the body of a request may be, in bytes.
        poll_seconds: How often a client that follows a session is told what other
            processes have done; None means never.

    Raises:
        TypeError: The agent's session manager is no `SessionStore`, so it cannot list
            and delete.
        ValueError: `on_disconnect` is none.
    """
    store = agent.session_manager
    if not isinstance(store, SessionStore):
        raise TypeError(f"{store!r} is no SessionStore; a page lists and deletes")
    runs = Runs(agent, memory=memory, on_disconnect=on_disconnect)
    api = Api(store, runs, agent, authenticate, max_body, poll_seconds, memory)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        yield
        await runs.aclose()

    async def refused(request: Request, error: Exception) -> Response:
        answer = refusal(error)
        if answer.status_code >= 500 and isinstance(error, MinagentError):
            logger.error("path=%s | failed", request.url.path, exc_info=error)
        secure(answer.headers)
        return answer

    routes: list[BaseRoute] = [
        Route("/openapi.json", api.openapi),
        Mount("/api", app=Router(api.routes(), redirect_slashes=False)),
    ]
    if PAGE.is_dir():
        routes.append(Mount("/", app=StaticFiles(directory=PAGE, html=True)))
    safety = Middleware(
        Safety, hosts=hosts, max_body=max_body, local=authenticate is None
    )
    app = Starlette(
        routes=routes,
        middleware=[safety],
        exception_handlers=dict.fromkeys(
            [HTTPException, MinagentError, Exception], refused
        ),
        lifespan=lifespan,
    )
    app.state.runs = runs
    return app


class Api:
    """The routes.

    Args:
        store: Where sessions are kept.
        runs: The runs in progress.
        agent: The agent, for its name and its clock.
        authenticate: As for `create_app`.
        max_body: As for `create_app`.
        poll_seconds: As for `create_app`.
        memory: As for `create_app`.
    """

    def __init__(
        self,
        store: SessionStore,
        runs: Runs,
        agent: Agent,
        authenticate: Authenticate | None,
        max_body: int,
        poll_seconds: float | None,
        memory: MemoryManager | None,
    ) -> None:
        self._store, self._runs, self._agent = store, runs, agent
        self._authenticate, self._memory = authenticate, memory
        self._max_body, self._poll_seconds = max_body, poll_seconds
        # By session: its version, and what a list shows of that.
        self._known: OrderedDict[str, tuple[int, dict[str, JsonValue]]] = OrderedDict()

    def routes(self) -> list[Route]:
        """Return the routes, below `/api`."""
        one = "/sessions/{session_id}"
        return [
            _route("/me", GET=self.me),
            _route("/sessions", GET=self.list, POST=self.create),
            _route(one, GET=self.read, DELETE=self.delete),
            _route(f"{one}/messages", POST=self.message),
            _route(f"{one}/decisions", POST=self.decide),
            _route(f"{one}/follow", GET=self.follow),
            _route(f"{one}/cancel", POST=self.cancel),
            _route(f"{one}/fork", POST=self.fork),
        ]

    async def openapi(self, request: Request) -> Response:
        """Describe the API."""
        return response(document())

    async def me(self, request: Request) -> Response:
        """Say who asks, and who answers."""
        return response(
            {"user_id": await self._user(request), "agent": self._agent.name}
        )

    async def create(self, request: Request) -> Response:
        """Make a session."""
        session = await self._store.create(new_id(), await self._user(request))
        return response(self._about(session), 201)

    async def list(self, request: Request) -> Response:
        """List the user's sessions, a page of them."""
        user, query = await self._user(request), request.query_params
        limit, after = query.get("limit", "50"), query.get("after") or None
        if not limit.isdecimal() or not 1 <= int(limit[:9]) <= MAX_LIMIT:
            raise HTTPException(422, f"limit is a number from 1 to {MAX_LIMIT}")
        try:
            page = await self._store.list(user_id=user, limit=int(limit), after=after)
        except ValueError as error:
            raise HTTPException(422, f"after: {error}") from None
        shown = [await self._listed(each) for each in page]
        following = page[-1].session_id if len(page) == int(limit) else None
        return response({"sessions": [*shown], "next": following})

    async def read(self, request: Request) -> Response:
        """Tell all of a session."""
        _, session = await self._session(request)
        pending = pending_tool_calls(session)
        data: JsonValue = {
            **self._about(session),
            "pending": as_json(pending),
            "events": [plain(event) for event in session.events],
            "cards": [as_json(card) for card in cards(session.events, pending)],
        }
        return response(data)

    async def delete(self, request: Request) -> Response:
        """Delete a session, and cancel its run."""
        _, session = await self._session(request)
        await self._runs.cancel(session.session_id)
        session_id, user_id = session.session_id, session.user_id
        if self._memory is not None and user_id is not None:
            # First, so that one that fails can be tried again.
            forgetting = self._memory.forget(user_id=user_id, session_id=session_id)
            await _erased(session_id, forgetting)
        await _erased(session_id, self._store.delete(session_id))
        self._known.pop(session.session_id, None)
        self._runs.touch(session.session_id)
        return Response(status_code=204)

    async def message(self, request: Request) -> Response:
        """Say something, or go on, and show the run."""
        await self._session(request)
        new = await self._body(request, NewMessage)
        # Once more: a body takes its time, and a run makes a session that is deleted.
        user, session = await self._session(request)
        return await self._run(request, session, user, new.text)

    async def decide(self, request: Request) -> Response:
        """Decide about calls, and show the run."""
        user, session = await self._session(request)
        body = await self._body(request, Decisions)
        decisions = [each.confirmation(by=user) for each in body.decisions]
        return await self._run(request, session, user, None, decisions)

    async def follow(self, request: Request) -> Response:
        """Show what happens in a session, from a place on."""
        _, session = await self._session(request)
        query = request.query_params
        if (with_cards := query.get("cards", "false")) not in ("true", "false"):
            raise HTTPException(422, "cards is true or false")
        after = request.headers.get("last-event-id") or query.get("after")
        ids = [event.event_id for event in session.events]
        if after and after not in ids:
            raise UnknownEventError(session.session_id, event_id=after)
        watcher = self._runs.watch(session.session_id)
        follower = Follower(
            self._store,
            watcher,
            session,
            ids.index(after) + 1 if after else 0,
            with_cards=with_cards == "true",
            poll_seconds=self._poll_seconds,
        )
        return self._stream(follower, watcher)

    async def cancel(self, request: Request) -> Response:
        """Cancel the run in progress."""
        _, session = await self._session(request)
        return response({"cancelled": await self._runs.cancel(session.session_id)})

    async def fork(self, request: Request) -> Response:
        """Make a session that begins as this one stood."""
        user, session = await self._session(request)
        at = (await self._body(request, Branch)).at
        copy = await fork(
            self._store, session.session_id, new_id(), at=at, user_id=user
        )
        return response(self._about(copy), 201)

    async def _run(
        self,
        request: Request,
        session: Session,
        user: str,
        text: str | None,
        decisions: Sequence[ToolConfirmation] = (),
    ) -> Response:
        session_id = session.session_id
        if request.headers.get("accept", "").startswith("application/json"):
            run = await self._runs.start(session_id, user, text, decisions)
            opened = {"session_id": session_id, "execution_id": run.execution_id}
            return response({**opened}, 202)
        watcher = Watcher(session_id)
        run = await self._runs.start(session_id, user, text, decisions, watcher)
        place, until = len(session.events), run.execution_id
        follower = Follower(self._store, watcher, session, place, until=until)
        return self._stream(follower, watcher)

    def _stream(self, follower: Follower, watcher: Watcher) -> Response:
        return EventStream(follower.frames(), close=lambda: self._runs.leave(watcher))

    async def _user(self, request: Request) -> str:
        """Return who asks.

        Raises:
            HTTPException: Nobody that is known.
        """
        if self._authenticate is None:
            return YOU
        if user := await resolved(self._authenticate(request)):
            return user
        raise HTTPException(401, "log in first")

    async def _session(self, request: Request) -> tuple[str, Session]:
        """Return who asks, and the session that the path names.

        Raises:
            HTTPException: Nobody that is known.
            SessionNotFoundError: There is no such session, or it is another's.
        """
        user, session_id = await self._user(request), request.path_params["session_id"]
        try:
            session = await self._store.get(session_id)
        except InvalidSessionIdError:
            session = None
        if session is None or session.user_id != user:
            raise SessionNotFoundError(session_id)
        return user, session

    async def _body(self, request: Request, kind: type[B]) -> B:
        """Return what was sent.

        Raises:
            HTTPException: It is too large, no JSON, or not what is asked for.
        """
        body = await read_body(request, self._max_body)
        media_type = request.headers.get("content-type", "").partition(";")[0]
        if media_type.strip().lower() != "application/json":
            raise HTTPException(415, "send application/json")
        try:
            return kind.model_validate(well_formed(load_json(body.decode())))
        except pydantic.ValidationError as error:
            raise HTTPException(422, _problems(error)) from None
        except (ValueError, RecursionError):
            raise HTTPException(400, "the body is no JSON that can be kept") from None

    async def _listed(self, info: SessionInfo) -> dict[str, JsonValue]:
        """Return what a list shows; what is read for it is kept until the next save."""
        version, about = self._known.pop(info.session_id, (-1, {}))
        if version != info.version:
            session = await self._store.get(info.session_id)
            about = _gist(session) if session else {"title": "", "waiting": 0}
        self._known[info.session_id] = info.version, about
        while len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        running = self._runs.get(info.session_id) is not None
        facts = {each.name: as_json(getattr(info, each.name)) for each in fields(info)}
        return {**facts, **about, "running": running}

    def _about(self, session: Session) -> dict[str, JsonValue]:
        """Return the same of a session that was read."""
        return {
            "session_id": session.session_id,
            "user_id": session.user_id,
            "version": session.version,
            "event_count": len(session.events),
            "created_at": as_json(session.created_at),
            "updated_at": as_json(session.updated_at),
            "running": self._runs.get(session.session_id) is not None,
            **_gist(session),
        }


async def _erased(session_id: str, work: Awaitable[object]) -> None:
    try:
        await work
    except ErasurePendingError as error:
        logger.warning("session=%s | %s", session_id, error)


def _route(path: str, **methods: Callable[[Request], Awaitable[Response]]) -> Route:
    """Return a route of several methods, so that a 405 names all of them."""

    async def endpoint(request: Request) -> Response:
        return await methods[request.method](request)

    route = Route(path, endpoint, methods=[*methods])
    route.methods = {*methods}  # without HEAD, whose answer might never end
    return route


def _gist(session: Session) -> dict[str, JsonValue]:
    """Return the first words of a session, and how many calls wait in it."""
    said = (
        item.content
        for event in current(session.events)
        if said_by_user(event)
        for item in event.content
        if isinstance(item, Message)
    )
    words = " ".join(next(said, "").split())
    title = words if len(words) <= MAX_TITLE else f"{words[: MAX_TITLE - 1]}…"
    return {"title": title, "waiting": len(pending_tool_calls(session))}


def _problems(error: pydantic.ValidationError) -> str:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    named = [(".".join(map(str, each["loc"])), each["msg"]) for each in found[:10]]
    return "; ".join(
        f"{place}: {problem}" if place else problem for place, problem in named
    )
