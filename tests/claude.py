"""What the tests of Claude share: the model over the double, and things to say."""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from minagent import Event, SessionManager, SessionStore
from minagent.models import AnthropicModel
from minagent.stores import SQLiteSessionManager
from minagent.testing import FakeAnthropic

MODEL = "claude-opus-5-5"

Block = dict[str, Any]

THOUGHT: Block = {"type": "thinking", "thinking": "Hm 🙂", "signature": "c2lnbmVk"}
HIDDEN: Block = {"type": "redacted_thinking", "data": "aGlkZGVu"}
TEXT: Block = {"type": "text", "text": "Let me look."}


def look(path: str = "a.md", call_id: str = "toolu_1", **more: Any) -> Block:
    """A call of the tool that most tests have."""
    given = {"path": path}
    return {"type": "tool_use", "id": call_id, "name": "look", "input": given, **more}


@asynccontextmanager
async def claude(
    replies: Iterable[Any], *, after: FakeAnthropic | None = None, **options: Any
) -> AsyncIterator[tuple[FakeAnthropic, AnthropicModel]]:
    """Open the double, and a model that talks to it."""
    settings: dict[str, Any] = {"max_tokens": 1024} | options
    async with AsyncExitStack() as opened:
        api = await opened.enter_async_context(FakeAnthropic(replies, after=after))
        model = AnthropicModel(MODEL, base_url=api.url, **settings)
        await opened.enter_async_context(model)
        yield api, model


@asynccontextmanager
async def cold(path: Path) -> AsyncIterator[SessionStore]:
    """Open a manager that has read nothing yet, as another process does."""
    async with SQLiteSessionManager(path) as sessions:
        yield sessions


async def events(sessions: SessionManager, session_id: str = "s") -> Sequence[Event]:
    """The log of a session that is there."""
    session = await sessions.get(session_id)
    assert session is not None
    return session.events


def said(api: FakeAnthropic, at: int = 1) -> Any:
    """The content of one message of the last request."""
    return api.requests[-1]["messages"][at]["content"]
