"""The document of the API: it is true, and nothing that it allows breaks the server."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from serving import called, served

from minagent import Agent, Message, ModelRequest, ModelResponse, ToolCall, tool
from minagent.model import Emit
from minagent.models import ScriptedModel
from minagent.web import create_app
from minagent.web.app import Api

pytestmark = pytest.mark.heavy


@tool(requires_confirmation=True)
async def remove(path: str) -> str:
    """Remove a file."""
    return "removed"


class Asking:
    """A model that answers, and wants to remove a file with every second reply."""

    def __init__(self) -> None:
        self.count = 0

    async def generate(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        self.count += 1
        if self.count % 2:
            call = ToolCall(name="remove", arguments={"path": "a.md"})
            return ModelResponse((call,), stop_reason="tool_use")
        return ModelResponse((Message(role="assistant", content="Done."),))


async def document() -> Any:
    async with called(create_app(Agent(ScriptedModel([])))) as client:
        return (await client.get("/openapi.json")).json()


async def test_the_document_names_every_route_and_method() -> None:
    app = create_app(Agent(ScriptedModel([])))
    api: Any = next(each.app for each in app.routes if each.path == "/api")

    described = (await document())["paths"]

    assert {path: {*methods} for path, methods in described.items()} == {
        f"/api{route.path}": {name.lower() for name in route.methods}
        for route in api.routes
    }


async def test_what_a_body_may_be_stands_in_the_document() -> None:
    schemas = (await document())["components"]["schemas"]

    assert schemas["NewMessage"]["additionalProperties"] is False
    assert {*schemas["DecisionBody"]["properties"]} == {
        "tool_call_id",
        "verdict",
        "arguments",
        "reason",
        "answer",
        "fingerprint",
        "path",
    }


def test_every_route_says_what_it_does() -> None:
    routes = [value for name, value in vars(Api).items() if name[0] != "_"]

    assert [each for each in routes if not each.__doc__] == []


FOLLOW = r"follow$"
MAKE_AND_FOLLOW = r"(follow|sessions)$"


@pytest.mark.parametrize(
    "options",
    [
        ("--exclude-path-regex", FOLLOW, "--max-examples", "4"),
        # Of a stream without an end, it reads what comes in this time.
        ("--include-path-regex", MAKE_AND_FOLLOW, "--request-timeout", "0.3"),
    ],
    ids=["all but follow", "follow"],
)
async def test_nothing_that_the_document_allows_breaks_the_server(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    """Schemathesis asks what the document allows, and what it does not."""
    app = create_app(Agent(Asking(), tools=[remove]), max_body=100_000)
    async with served(app) as url:
        command = [sys.executable, "-m", "schemathesis.cli", "run"]
        command += [f"{url}/openapi.json", "--checks", "all", "--seed", "1"]
        done = await asyncio.to_thread(
            subprocess.run,
            [*command, "--no-color", "--max-examples", "3", *options],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )

    assert done.returncode == 0, done.stdout + done.stderr
