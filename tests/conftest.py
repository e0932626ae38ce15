"""What the tests share."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from approving import Desk, Place
from hypothesis import HealthCheck, settings

from minagent import InMemorySessionManager, SessionStore
from minagent.stores import SQLiteSessionManager

# The machine may be busy with other things: how long an example takes says nothing.
settings.register_profile(
    "minagent",
    parent=settings(),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("minagent")


@pytest.fixture(params=["memory", "sqlite"])
async def sessions(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[SessionStore]:
    """Each shipped manager in turn."""
    if request.param == "memory":
        yield InMemorySessionManager()
        return
    async with SQLiteSessionManager(tmp_path / "sessions.db") as store:
        yield store


@pytest.fixture
def restarted(sessions: SessionStore, tmp_path: Path) -> Callable[[], SessionStore]:
    """Make a manager as another process would: it shares the file and nothing else.

    What is kept in memory has no file, so there the manager stays the same.
    """
    if isinstance(sessions, InMemorySessionManager):
        return lambda: sessions
    return lambda: SQLiteSessionManager(tmp_path / "sessions.db")


@pytest.fixture(params=["memory", "sqlite"])
async def desk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Desk]:
    """An agent with free and gated tools, on each shipped manager in turn."""
    path = tmp_path / "sessions.db" if request.param == "sqlite" else None
    async with AsyncExitStack() as opened:
        place = Place(path, opened)
        yield Desk(place, await place.open())
