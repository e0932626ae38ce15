"""What the real frameworks write is read, and an agent here goes on with it.

The frameworks are in an environment of their own: the one that `scripts/test --all` has
made, or one that is made here, if they can be had.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from importing import continued, said, stored
from terminal import minagent

from minagent import Agent, Event, Media, Message, Note, ToolResult
from minagent.foreign import Foreign, read_sessions
from minagent.models import OfflineModel
from minagent.stores import open_store

pytestmark = pytest.mark.heavy

PROGRAMS = Path(__file__).parent / "programs"
MADE = Path(__file__).parents[1] / ".venv-test" / "foreign"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python that has the frameworks."""
    if (MADE / "stamp").exists():
        return MADE / "bin" / "python"
    place = tmp_path_factory.mktemp("foreign")
    wanted = PROGRAMS / "foreign.txt"
    made = place / "bin" / "python"
    places = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    if uv := shutil.which("uv", path=os.pathsep.join(places)):
        commands = [
            [uv, "venv", "--quiet", "--clear", "--python", sys.executable, place],
            [uv, "pip", "install", "--quiet", "--python", made, "-r", wanted],
        ]
    else:
        commands = [
            [sys.executable, "-m", "venv", place],
            [made, "-m", "pip", "install", "--quiet", "-r", wanted],
        ]
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            last = (done.stderr.strip() or "no message").splitlines()[-1]
            pytest.skip(f"strands-agents and openai-agents cannot be had: {last}")
    return made


def written(python: Path, program: str, place: Path) -> Any:
    """Have a program write sessions, and return what it says of them."""
    done = subprocess.run(
        [python, PROGRAMS / program, place],
        capture_output=True,
        text=True,
        timeout=100,
        env={"OTEL_SDK_DISABLED": "true", "HOME": str(place.parent)},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def strands(python: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A folder of sessions by Strands, and what its agents have in mind."""
    folder = tmp_path_factory.mktemp("strands")
    return folder, written(python, "strands_sessions.py", folder)


@pytest.fixture(scope="module")
def openai(python: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A file with a session by OpenAI Agents, and the kinds of its items."""
    path = tmp_path_factory.mktemp("openai") / "chat.db"
    return path, written(python, "openai_agents_sessions.py", path)


def texts(foreign: Foreign) -> list[str]:
    items = [item for event in foreign.events for item in event.content]
    return [item.content for item in items if isinstance(item, Message)]


def results(foreign: Foreign) -> list[ToolResult]:
    items = [item for event in foreign.events for item in event.content]
    return [item for item in items if isinstance(item, ToolResult)]


def media(foreign: Foreign) -> list[str]:
    items = [item for event in foreign.events for item in event.content]
    return [item.media_type for item in items if isinstance(item, Media)]


async def test_message_files_of_strands_are_read_whole(
    strands: tuple[Path, Any],
) -> None:
    folder, _ = strands

    found = read_sessions(folder / "files")

    assert [each.session_id for each in found] == ["chat:critic", "chat:helper"]
    for each in found:
        assert texts(each) == [
            *("I am Ada. Weather?", "Let me look.", "Sunny in Rome."),
            *("Send it to Bob.", "Sending."),
        ]
        assert [result.status for result in results(each)] == [
            *("success", "error", "success", "success", "unknown")
        ]
        assert results(each)[0].content == 'Sunny in Rome.\n{"degrees": 21}'
        assert [part.media_type for part in results(each)[0].media] == ["image/png"]
        assert media(each) == ["image/png", "text/plain"]
        assert each.state == {"visits": {"count": 1}}
        assert each.events[1].usage is not None
        await continued(each)


async def test_a_snapshot_of_strands_is_what_its_agent_had_in_mind(
    strands: tuple[Path, Any],
) -> None:
    folder, minds = strands

    found = read_sessions(folder / "snapshots")

    for each, name in zip(found, ("critic", "helper"), strict=True):
        known = sum(["text"] in message[1:] for message in minds["snapshots"][name])
        assert len(texts(each)) == known > 0
        assert each.state == {"visits": {"count": 1}}
        await continued(each)


def test_what_strands_has_and_we_have_not_is_named(strands: tuple[Path, Any]) -> None:
    folder, _ = strands

    [snapshot, _] = read_sessions(folder / "snapshots")
    [files, _] = read_sessions(folder / "files")

    asked = "the interrupt 'sending', reason 'To Bob?': nobody is asked here"
    closed = (
        "the call 't5' of 'send' has no result: "
        "what became of it is unknown, and it is not run"
    )
    assert {asked, closed, "snapshot: system_prompt"} <= {*snapshot.unread}
    assert {asked, closed, "cachePoint"} <= {*files.unread}
    assert any("removed before the snapshot" in line for line in snapshot.unread)
    assert "the call id 't1', which was there before: it is 't1-2'" in files.unread


async def test_a_session_of_openai_agents_is_read_whole(
    openai: tuple[Path, Any],
) -> None:
    path, kinds = openai

    [found] = read_sessions(path)

    assert kinds == [
        *("user", "reasoning", "web_search_call", "function_call", "function_call"),
        *("function_call_output", "function_call_output", "message"),
        *("user", "message"),
    ]
    assert texts(found) == [
        *("I am Ada. Weather?", "Sunny in Rome.", "What is this?", "A point.")
    ]
    assert results(found)[0].content == "Sunny in Rome."
    assert "An error occurred" in results(found)[1].content
    assert media(found) == ["image/png"]
    await continued(found)


def test_what_openai_agents_has_and_we_have_not_is_named(
    openai: tuple[Path, Any],
) -> None:
    path, _ = openai

    [found] = read_sessions(path)

    notes = [i for e in found.events for i in e.content if isinstance(i, Note)]
    assert found.unread[:3] == (
        "row 2: the seal of a thought",
        "reasoning: id",
        "row 3: web_search_call",
    )
    assert [each.data["what"] for each in notes] == [found.unread[0], found.unread[2]]


async def test_an_agent_here_knows_what_was_said_there(
    openai: tuple[Path, Any], strands: tuple[Path, Any]
) -> None:
    found = [*read_sessions(openai[0]), *read_sessions(strands[0] / "files")]
    for each in found:
        agent = Agent(OfflineModel(), session_manager=await stored(each))

        result = await agent.run("Who am I?", session_id=each.session_id)

        assert "Ada" in result.output


def test_the_command_imports_them_and_says_what_it_has_not_read(
    openai: tuple[Path, Any], strands: tuple[Path, Any], tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path}/s.db"

    one = minagent("sessions", "import", openai[0], "--store", store)
    two = minagent("sessions", "import", strands[0] / "files", "--store", store)

    assert one.stdout == "Imported ada: 7 events.\n"
    assert "minagent: ada: not read: row 3: web_search_call\n" in one.stderr
    assert [line.split(":")[1] for line in two.stdout.splitlines()] == [
        *("critic", "helper")
    ]
    [read] = read_sessions(openai[0])
    assert said(asyncio.run(stored_at(store))) == said(read.events)


async def stored_at(store: str) -> Sequence[Event]:
    async with open_store(store) as sessions:
        session = await sessions.get("ada")
    assert session is not None
    return session.events
