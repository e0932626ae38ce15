"""What the tests of foreign sessions share: an agent here goes on with them."""

from collections.abc import Sequence
from typing import Any

from claude import claude

from minagent import (
    Agent,
    Event,
    InMemorySessionManager,
    Message,
    Session,
    SessionManager,
    tool,
)
from minagent.cards import cards
from minagent.events import ContentItem
from minagent.foreign import Foreign
from minagent.ledger import open_calls
from minagent.models import ScriptedModel
from minagent.models.strict import violations
from minagent.transcript import turns

DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwAD"
DOT += "hgGAWjR9awAAAABJRU5ErkJggg=="
"""A picture of one point, in base64."""

ran: list[str] = []
"""What the tools were called with; an import runs none."""


@tool(repeatable=True)
def weather(city: str) -> str:
    """Tell the weather."""
    ran.append(city)
    return "Rain."


async def stored(foreign: Foreign) -> SessionManager:
    """Store what was read, as an import does."""
    sessions = InMemorySessionManager()
    session = await sessions.create(foreign.session_id, foreign.user_id)
    session.append(*foreign.events)
    session.state.update(foreign.state)
    await sessions.save(session)
    return sessions


async def continued(foreign: Foreign, said: str = "Go on.") -> list[Any]:
    """Go on with a session, here and over the double of Claude's API.

    Returns:
        The messages that Claude would get.
    """
    ran.clear()
    sessions = await stored(foreign)
    agent = Agent(ScriptedModel(["Here."]), tools=[weather], session_manager=sessions)
    assert (await agent.run(said, session_id=foreign.session_id)).output == "Here."
    async with claude(["There."]) as (api, model):
        sessions = await stored(foreign)
        agent = Agent(model, tools=[weather], session_manager=sessions)
        assert (await agent.run(said, session_id=foreign.session_id)).output == "There."
        messages: list[Any] = api.requests[-1]["messages"]
    assert ran == []
    expect_sound(foreign)
    return messages


def expect_sound(foreign: Foreign) -> None:
    """Expect that a strict provider takes the log, and that nothing in it is open."""
    asked = Event(author="user", content=(Message(role="user", content="Go on."),))
    session = Session("s", events=[*foreign.events, asked])
    assert list(violations(turns(session.events))) == []
    assert open_calls(foreign.events) == ()
    assert Session.from_json(session.to_json()).events == session.events
    assert cards(session.events)


def said(events: Sequence[Event]) -> list[tuple[str, tuple[ContentItem, ...]]]:
    """Who said what."""
    return [(event.author, event.content) for event in events]
