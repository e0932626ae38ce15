"""What the tests of approval share: a desk, and managers that get in the way."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from stores import Place

from minagent import (
    Agent,
    AgentResult,
    Event,
    PendingToolCall,
    Reasoning,
    Session,
    SessionManager,
    Tool,
    ToolCall,
    ToolConfirmation,
    ToolResult,
    pending_tool_calls,
    tool,
)
from minagent.events import ContentItem
from minagent.models import ScriptedModel

START = datetime(2026, 11, 30, 12, tzinfo=UTC)


class Clock:
    """Tells the time that it was set to."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def forward(self, **units: float) -> None:
        self.now += timedelta(**units)


class Beside(SessionManager):
    """Another manager of the same sessions, as another process has."""

    def __init__(self, inner: SessionManager) -> None:
        self.inner = inner

    async def create(self, session_id: str, user_id: str | None = None) -> Session:
        return await self.inner.create(session_id, user_id)

    async def get(self, session_id: str) -> Session | None:
        return await self.inner.get(session_id)

    async def save(self, session: Session) -> None:
        await self.inner.save(session)


class Recording(Beside):
    """Keeps what each save stored: the new items, and the pending list as it was."""

    def __init__(self, inner: SessionManager) -> None:
        super().__init__(inner)
        self.saves: list[tuple[list[ContentItem], list[str]]] = []

    async def save(self, session: Session) -> None:
        items = [item for event in session.unsaved for item in event.content]
        listed = session.state.get("pending_tool_calls", ())
        waiting = [each["tool_call_id"] for each in listed]
        await super().save(session)
        self.saves.append((items, waiting))

    def storing(self, item: ContentItem) -> tuple[list[ContentItem], list[str]]:
        """Return the save that stored this item."""
        [found] = [each for each in self.saves if item in each[0]]
        return found


class Interrupted(Beside):
    """Does something else right before one save, as another process may."""

    def __init__(
        self, inner: SessionManager, at: int, other: Callable[[], Awaitable[object]]
    ) -> None:
        super().__init__(inner)
        self.at, self.other = at, other

    async def save(self, session: Session) -> None:
        self.at -= 1
        if self.at == 0:
            await self.other()
        await super().save(session)


class Killed(BaseException):
    """The end of a process, as far as it can be played inside one."""


class Dying(Beside):
    """Raises `Killed` at one save, and whenever it is used again after that.

    Nothing that a run does on its way out is stored, as after a `kill -9`.

    Args:
        inner: Keeps the sessions.
        at: Which save, from 1 on.
        stored: Whether that save still reaches the store.
    """

    def __init__(self, inner: SessionManager, at: int, *, stored: bool) -> None:
        super().__init__(inner)
        self.at, self.stored, self.dead = at, stored, False

    async def get(self, session_id: str) -> Session | None:
        self._check()
        return await super().get(session_id)

    async def create(self, session_id: str, user_id: str | None = None) -> Session:
        self._check()
        return await super().create(session_id, user_id)

    async def save(self, session: Session) -> None:
        self._check()
        self.at -= 1
        if self.at != 0:
            return await super().save(session)
        if self.stored:
            await super().save(session)
        self.dead = True
        raise Killed

    def _check(self) -> None:
        if self.dead:
            raise Killed


def call(name: str, tool_call_id: str, **arguments: object) -> ToolCall:
    return ToolCall(name=name, tool_call_id=tool_call_id, arguments=arguments)


def items_of(events: Sequence[Event]) -> list[ContentItem]:
    return [item for event in events for item in event.content]


def results_of(events: Sequence[Event]) -> list[ToolResult]:
    return [item for item in items_of(events) if isinstance(item, ToolResult)]


def decisions_of(events: Sequence[Event]) -> list[ToolConfirmation]:
    return [item for item in items_of(events) if isinstance(item, ToolConfirmation)]


def statuses(events: Sequence[Event]) -> Mapping[str, str]:
    """Return what became of each call; a second result of one call is an error."""
    found: dict[str, str] = {}
    for result in results_of(events):
        assert result.tool_call_id not in found, f"two results: {result}"
        found[result.tool_call_id] = result.status
    return found


def thinking(text: str) -> Reasoning:
    return Reasoning(content=text, signature=f"signed: {text}", extra={"kept": None})


READ = call("read", "c1", n=1)
DELETE_2 = call("delete", "c2", n=2)
DELETE_3 = call("delete", "c3", n=3)
SEND = call("send", "c4", to="a", n=1)
PAY = call("pay", "c5", n=5)


class Desk:
    """An agent's tools and sessions, with a record of which tools ran."""

    def __init__(self, place: Place, sessions: SessionManager) -> None:
        self.place, self.sessions = place, sessions
        self.clock = Clock()
        self.ran: list[str] = []
        self.tools = tools_of(self.ran)
        self.model = ScriptedModel([])

    def agent(self, *steps: Any, **options: Any) -> Agent:
        self.model = ScriptedModel(steps)
        settings = {
            "tools": self.tools,
            "session_manager": self.sessions,
            "clock": self.clock,
        }
        return Agent(self.model, **{**settings, **options})

    async def pause(self, *reply: Any, **options: Any) -> dict[str, PendingToolCall]:
        """Run to a pause on this reply; return the questions by call."""
        agent = self.agent(reply, **options)
        result = await agent.run("Please.", session_id="s")
        assert result.status == "pending_confirmation"
        return {each.tool_call_id: each for each in result.pending_tool_calls}

    async def decide(self, *decisions: ToolConfirmation, **options: Any) -> AgentResult:
        """Take decisions; the model, if it is asked, says that it is done."""
        agent = self.agent("Done.", **options)
        return await agent.run(session_id="s", tool_confirmations=decisions)

    async def say(self, text: str, *steps: Any, **options: Any) -> AgentResult:
        result = await self.agent(*steps, **options).run(text, session_id="s")
        self.model.assert_done()
        return result

    async def restart(self) -> None:
        self.sessions = await self.place.open()

    async def session(self) -> Session:
        session = await self.sessions.get("s")
        assert session is not None
        return session

    async def statuses(self) -> dict[str, str]:
        return dict(statuses((await self.session()).events))

    async def result(self, tool_call_id: str) -> ToolResult:
        results = results_of((await self.session()).events)
        [found] = [each for each in results if each.tool_call_id == tool_call_id]
        return found

    async def listed(self) -> list[str]:
        """Return the ids of the calls that wait for a person."""
        pending = pending_tool_calls(await self.session())
        return [each.tool_call_id for each in pending]

    def sent(self) -> list[ToolResult]:
        """Return the results at the end of the last request."""
        content = self.model.requests[-1].turns[-1].content
        return [item for item in content if isinstance(item, ToolResult)]


def tools_of(ran: list[str]) -> list[Tool[..., Any]]:
    @tool
    async def read(n: int) -> str:
        """Read a page."""
        ran.append(f"read {n}")
        return f"page {n}"

    @tool(requires_confirmation=True)
    async def delete(n: int) -> str:
        """Delete a page."""
        ran.append(f"delete {n}")
        return f"deleted {n}"

    @tool(requires_confirmation=True, confirmation_message="Send {n} to {to}?")
    async def send(to: str = "nobody", n: int = 1) -> str:
        """Send pages."""
        ran.append(f"send {n} to {to}")
        return f"sent {n}"

    @tool(requires_confirmation=True, expires_in=timedelta(hours=1))
    async def pay(n: int) -> str:
        """Pay."""
        ran.append(f"pay {n}")
        return f"paid {n}"

    return [read, delete, send, pay]


async def put_back(desk: Desk, state: dict[str, Any]) -> None:
    session = await desk.session()
    session.state.update(state)
    await desk.sessions.save(session)


async def die_with_the_tool_run(desk: Desk, decision: ToolConfirmation) -> None:
    dying = Dying(await desk.place.open(), at=2, stored=False)
    with pytest.raises(Killed):
        await desk.decide(decision, session_manager=dying)
