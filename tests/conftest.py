"""What the tests share."""

import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from approving import Desk
from hypothesis import HealthCheck, settings
from stores import EVERY, FAST, Place, params

from minagent import SessionStore

# No test speaks TLS, and to read all certificates of the machine costs each client of
# the API 40 ms. Programs that tests start inherit this; one that does speak TLS has to
# be started without it.
os.environ["SSL_CERT_DIR"] = os.devnull

# The machine may be busy with other things: how long an example takes says nothing.
# In CI the examples are the same each time, so that it judges the change, and not luck.
settings.register_profile(
    "minagent",
    max_examples=30,
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
# `--hypothesis-profile few` is for the Pythons on which the whole is only repeated, and
# `many` for whoever has changed what a rule is about.
settings.register_profile("few", settings.get_profile("minagent"), max_examples=8)
settings.register_profile("many", settings.get_profile("minagent"), max_examples=1_000)
settings.load_profile("minagent")


# What these cases say holds on every store; of the others, on two, unless their file
# names its own `STORES`.
ON_EVERY_STORE = re.compile(r"test_o(08|09|1[0-5]|19|20|21|2[5-9])_")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that have heavy tests, so that no worker ends long after."""
    heavy = {item.path for item in items if item.get_closest_marker("heavy")}
    items.sort(key=lambda item: item.path not in heavy)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Choose the stores that a test runs on."""
    if "store_name" in metafunc.fixturenames:
        of_every = ON_EVERY_STORE.match(metafunc.function.__name__)
        names = getattr(metafunc.module, "STORES", EVERY if of_every else FAST)
        metafunc.parametrize("store_name", params(*names))


@pytest.fixture
async def place(store_name: str, tmp_path: Path) -> AsyncIterator[Place]:
    """Where the sessions of a test are kept, on each store in turn."""
    async with AsyncExitStack() as opened:
        yield Place(store_name, tmp_path, opened)


@pytest.fixture
async def sessions(place: Place) -> SessionStore:
    """A manager on each store in turn."""
    return await place.open()


@pytest.fixture
def restarted(place: Place) -> Callable[[], SessionStore]:
    """Make a manager as another process would: it shares what is stored, no more."""
    return place.make


@pytest.fixture
async def desk(place: Place) -> Desk:
    """An agent with free and gated tools, on each store in turn."""
    return Desk(place, await place.open())
