"""Grades chapter 12: a model behind an HTTP endpoint, over a real socket."""

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from minagent import (
    Agent,
    InMemorySessionManager,
    Reasoning,
    Session,
    SessionManager,
    tool,
)
from minagent.stores import SQLiteSessionManager

Json = dict[str, Any]

CALL: Json = {"kind": "call", "id": "c1", "name": "add", "arguments": {"a": 2, "b": 2}}
SEAL: Json = {"kind": "seal", "data": ["x", 1, None, {"deep": 0.5}]}


def reply(*parts: str | Json, stop: str | None = None) -> Json:
    """Return an answer of the endpoint; a string is a text."""
    texts = [{"kind": "text", "text": x} if isinstance(x, str) else x for x in parts]
    calls = any(each["kind"] == "call" for each in texts)
    return {"parts": texts, "stop": stop or ("calls" if calls else "done")}


class Endpoint(ThreadingHTTPServer):
    """Gives prepared answers, and keeps what it was sent; a number is an error.

    With `at_once`, it answers when so many requests are there together.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/ask"
        self.answers: list[Json | int] = []
        self.requests: list[Json] = []
        self.types: list[str | None] = []
        self.at_once = threading.Barrier(1)


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.server.requests.append(json.loads(self.rfile.read(length)))
        self.server.types.append(self.headers["Content-Type"])
        try:
            self.server.at_once.wait(timeout=5)
            answer = self.server.answers.pop(0)
        except (threading.BrokenBarrierError, IndexError):
            answer = 503
        status = answer if isinstance(answer, int) else 200
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setenv("no_proxy", "*")
    with Endpoint() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


ADDED: list[int] = []


@pytest.fixture(autouse=True)
def _nothing_is_added() -> None:
    ADDED.clear()


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    if a > 99:
        raise ValueError("too large for me")
    ADDED.append(a + b)
    return a + b


async def run(
    work: ModuleType,
    endpoint: Endpoint,
    question: str | None = "2 and 2?",
    sessions: SessionManager | None = None,
) -> Session:
    """Ask an agent of a program that was started anew; return the session."""
    model = work.HttpModel(endpoint.url)
    sessions = sessions or InMemorySessionManager()
    agent = Agent(
        model, instructions="Be brief.", tools=[add], session_manager=sessions
    )
    return (await agent.run(question, session_id="sums")).context.session


def said(endpoint: Endpoint, role: str) -> list[Json]:
    """Return what one side has said, as the last request has it."""
    turns = endpoint.requests[-1]["turns"]
    return [part for turn in turns if turn["role"] == role for part in turn["parts"]]


async def test_a_question_is_sent_and_answered(
    work: ModuleType, endpoint: Endpoint
) -> None:
    endpoint.answers = [reply("Hello, Ada.")]
    agent = Agent(work.HttpModel(endpoint.url))

    result = await agent.run("I am Ada.")

    assert result.output == "Hello, Ada.", "the text of the answer must be the output"
    asked = {"kind": "text", "text": "I am Ada."}
    assert endpoint.requests == [
        {"system": None, "tools": [], "turns": [{"role": "user", "parts": [asked]}]}
    ], "a request must have `system`, `tools` and `turns`, as generate() says"
    assert endpoint.types == ["application/json"], "the Content-Type must be set"


async def test_a_call_is_carried_out_and_its_result_sent(
    work: ModuleType, endpoint: Endpoint
) -> None:
    endpoint.answers = [reply("Let me see.", CALL), reply("4.")]

    await run(work, endpoint)

    first = endpoint.requests[0]
    assert first["system"] == "Be brief.", "`system` must have the instructions"
    assert [(each["name"], each["description"]) for each in first["tools"]] == [
        ("add", "Add two numbers.")
    ], "`tools` must tell of each tool"
    assert [*first["tools"][0]["parameters"]["properties"]] == ["a", "b"], (
        "`parameters` must be the schema of the tool's arguments"
    )
    assert ADDED == [4], "a part of the kind `call` must become a ToolCall"
    assert said(endpoint, "user")[1:] == [
        {"kind": "result", "id": "c1", "text": "4", "failed": False}
    ], "the second request must have the result of the call"


async def test_a_result_says_whether_the_tool_failed(
    work: ModuleType, endpoint: Endpoint
) -> None:
    large = CALL | {"arguments": {"a": 100, "b": 2}}
    endpoint.answers = [reply(large), reply("Sorry.")]

    await run(work, endpoint)

    result = said(endpoint, "user")[-1]
    assert result["failed"] is True, "`failed` must be true if the tool raised"
    assert "too large for me" in result["text"], "and the text must say why"


@pytest.mark.parametrize(
    "part",
    [
        SEAL,
        {"kind": "seal"},
        {"kind": "text", "text": "Two.", "tone": "calm", "role": "x", "type": "y"},
        CALL | {"cost": 3, "extra": {"deep": [True]}},
    ],
    ids=["of an unknown kind", "and empty", "a text with more", "a call with more"],
)
async def test_what_it_said_goes_back_as_it_came_after_a_restart(
    work: ModuleType, endpoint: Endpoint, tmp_path: Path, part: Json
) -> None:
    is_call = part["kind"] == "call"
    first = reply("One.", part, "Three.")
    endpoint.answers = [first, *([reply("4.")] if is_call else []), reply("Yes.")]
    async with SQLiteSessionManager(tmp_path / "sums.db") as sessions:
        await run(work, endpoint, sessions=sessions)

    async with SQLiteSessionManager(tmp_path / "sums.db") as sessions:
        await run(work, endpoint, "Are you sure?", sessions)

    sent = said(endpoint, "assistant")[:3]
    assert part in sent, f"{part} must go back with all that is in it, and no more"
    assert sent == first["parts"], "what was said must go back in the order it came in"


async def test_a_reply_that_was_cut_off_calls_nothing(
    work: ModuleType, endpoint: Endpoint
) -> None:
    endpoint.answers = [reply(CALL, stop="length"), reply("Again?")]

    session = await run(work, endpoint)

    assert ADDED == [], "`length` must become `max_tokens`: its calls may be torn"
    assert [x.stop_reason for x in session.events if x.stop_reason] == [
        "max_tokens",
        "end_turn",
    ], "the log must have our words for the stops"


async def test_an_unknown_stop_ends_the_run(
    work: ModuleType, endpoint: Endpoint
) -> None:
    endpoint.answers = [reply(CALL, stop="filtered")]

    session = await run(work, endpoint)

    assert ADDED == [], "a stop that nobody knows must start no tool"
    stops = [x.stop_reason for x in session.events if x.stop_reason]
    assert stops == ["filtered"], "and its word must be in the log as it came"


async def test_an_error_is_no_answer(work: ModuleType, endpoint: Endpoint) -> None:
    sessions = InMemorySessionManager()
    endpoint.answers = [500, reply("4.")]

    with pytest.raises(OSError):  # noqa: PT011  (each client has its own words)
        await run(work, endpoint, sessions=sessions)
    session = await run(work, endpoint, None, sessions)

    said = [x.type for event in session.events for x in event.content]
    assert said == ["message", "message"], (
        "an error must be raised, so that a run without input can go on later"
    )


async def test_other_runs_go_on_while_it_waits(
    work: ModuleType, endpoint: Endpoint
) -> None:
    endpoint.at_once = threading.Barrier(2)
    endpoint.answers = [reply("4."), reply("4.")]

    runs = [run(work, endpoint), run(work, endpoint)]
    outcomes = await asyncio.gather(*runs, return_exceptions=True)

    if missing := [x for x in outcomes if isinstance(x, NotImplementedError)]:
        raise missing[0]
    assert [x for x in outcomes if isinstance(x, Exception)] == [], (
        "two requests must be on their way at once: wait in a thread, not in the loop"
    )


async def test_what_the_endpoint_has_no_word_for_is_refused(work: ModuleType) -> None:
    thought = Reasoning(content="Four, I think.")

    try:
        part = work.part_of(thought)
    except TypeError:
        part = None

    assert part is None, "part_of() must raise a TypeError, and lose nothing in silence"
