"""Who is let in, and what a response says: hosts, origins, owners, limits, errors."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from serving import Client, called, user_of
from starlette.requests import Request

from minagent import Agent, InMemorySessionManager, Session, StoreUnavailableError
from minagent.models import ScriptedModel
from minagent.web import create_app

pytestmark = pytest.mark.heavy

ROUTES = [
    ("GET", "", None),
    ("DELETE", "", None),
    ("POST", "/messages", {"text": "Hi."}),
    ("POST", "/messages", {}),
    (
        "POST",
        "/decisions",
        {"decisions": [{"tool_call_id": "c1", "verdict": "approve"}]},
    ),
    ("GET", "/follow", None),
    ("GET", "/follow?after=x&cards=true", None),
    ("POST", "/cancel", None),
    ("POST", "/fork", {}),
]


@asynccontextmanager
async def chat(*steps: Any, **options: Any) -> AsyncIterator[Client]:
    async with called(create_app(Agent(ScriptedModel(steps)), **options)) as client:
        yield client


# --- Owners -------------------------------------------------------------------


@pytest.mark.parametrize(("method", "below", "body"), ROUTES)
async def test_another_users_session_is_answered_as_one_that_is_not_there(
    method: str, below: str, body: Any
) -> None:
    app = create_app(Agent(ScriptedModel(["Hello."])), authenticate=user_of)
    async with called(app, "ada") as ada, called(app, "eve") as eve:
        session = await ada.new()
        await ada.say(session, "Hi.")
        before = await ada.whole(session)

        theirs = await eve.request(method, session + below, json=body)
        nobodys = await eve.request(method, session[:-1] + "x" + below, json=body)

        after = await ada.whole(session)
    assert theirs.status_code == nobodys.status_code == 404
    assert theirs.text.replace(session[-36:], "") == nobodys.text.replace(
        session[-36:-1] + "x", ""
    )
    assert theirs.headers.raw == [
        pair for pair in nobodys.headers.raw if pair in theirs.headers.raw
    ]
    assert after == before


async def test_the_list_has_the_users_own_sessions_only() -> None:
    app = create_app(Agent(ScriptedModel([])), authenticate=user_of)
    async with called(app, "ada") as ada, called(app, "eve") as eve:
        mine, _ = await ada.new(), await eve.new()

        listed = (await ada.get("/api/sessions")).json()["sessions"]

    assert [each["session_id"] for each in listed] == [mine.rpartition("/")[2]]


async def test_a_session_without_an_owner_is_nobodys() -> None:
    store = InMemorySessionManager()
    await store.create("s")
    app = create_app(Agent(ScriptedModel([]), session_manager=store))
    async with called(app) as client:
        answer = await client.get("/api/sessions/s")

    assert answer.status_code == 404


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/api/me"), ("POST", "/api/sessions")]
)
async def test_nobody_is_asked_to_log_in(method: str, path: str) -> None:
    async with chat(authenticate=user_of) as client:
        answer = await client.request(method, path)

    assert answer.status_code == 401
    assert answer.json()["error"]["type"] == "Unauthorized"


async def test_authenticate_may_be_async() -> None:
    async def authenticate(request: Request) -> str | None:
        await asyncio.sleep(0)
        return "ada"

    async with chat(authenticate=authenticate) as client:
        answer = await client.get("/api/me")

    assert answer.json()["user_id"] == "ada"


async def test_without_a_login_other_machines_are_refused() -> None:
    app = create_app(Agent(ScriptedModel([])))
    transport = httpx2.ASGITransport(app, client=("192.0.2.7", 4000))
    async with httpx2.AsyncClient(
        transport=transport, base_url="http://localhost"
    ) as client:
        answer = await client.get("/api/me")

    assert answer.status_code == 403


# --- Hosts and origins --------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "LOCALHOST", "[::1]:80", "[::1]"])
async def test_a_host_of_this_machine_is_answered(host: str) -> None:
    async with chat() as client:
        answer = await client.get("/api/me", headers={"Host": host})

    assert answer.status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost:80:80", "", "::1"]
)
async def test_another_host_is_refused(host: str) -> None:
    async with chat() as client:
        answer = await client.get("/api/me", headers={"Host": host})

    assert answer.status_code == 421


async def test_hosts_can_be_named() -> None:
    async with chat(hosts=["chat.example"], authenticate=lambda _: "ada") as client:
        known = await client.get("/api/me", headers={"Host": "chat.example"})
        unknown = await client.get("/api/me")

    assert (known.status_code, unknown.status_code) == (200, 421)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:3000"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_page_from_elsewhere_is_refused(
    method: str, headers: dict[str, str]
) -> None:
    async with chat() as client:
        answer = await client.request(method, "/api/sessions", headers=headers)

        listed = (await client.get("/api/sessions")).json()["sessions"]
    assert answer.status_code == 403
    assert listed == []


async def test_its_own_page_is_answered() -> None:
    headers = {"Origin": "http://127.0.0.1", "Sec-Fetch-Site": "same-origin"}
    async with chat() as client:
        answer = await client.post("/api/sessions", headers=headers)

    assert answer.status_code == 201


async def test_a_link_from_elsewhere_opens_the_page() -> None:
    async with chat() as client:
        answer = await client.get("/", headers={"Sec-Fetch-Site": "cross-site"})

    assert answer.status_code == 200


# --- Bodies -------------------------------------------------------------------


async def test_a_body_that_says_it_is_too_large_is_refused() -> None:
    async with chat(max_body=100) as client:
        session = await client.new()

        answer = await client.post(f"{session}/messages", json={"text": "x" * 100})

    assert answer.status_code == 413


async def test_a_body_that_does_not_say_so_is_refused_at_the_limit() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b'{"text": "'
        for _ in range(20):
            yield b"x" * 10_000
        yield b'"}'

    headers = {"Content-Type": "application/json"}
    async with chat(max_body=100_000) as client:
        session = await client.new()

        answer = await client.post(
            f"{session}/messages", content=pieces(), headers=headers
        )

    assert answer.status_code == 413


async def test_a_body_of_another_type_is_refused() -> None:
    async with chat() as client:
        session = await client.new()

        answer = await client.post(f"{session}/messages", content=b'{"text": "Hi."}')

    assert answer.status_code == 415


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"\xff", 400),
        (b'{"text": NaN}', 400),
        (b'{"text": ' + b"[" * 900 + b"]" * 900 + b"}", 400),
        (b"[" * 100_000, 400),
        (b"9" * 10_000, 400),
        (b"[]", 422),
        (b'{"text": 7}', 422),
        (b'{"text": ""}', 422),
        (b'{"text": "  "}', 422),
        (b'{"text": "Hi.", "session_id": "mine"}', 422),
    ],
)
async def test_a_body_that_makes_no_sense_is_refused(body: bytes, status: int) -> None:
    headers = {"Content-Type": "application/json"}
    async with chat() as client:
        session = await client.new()

        answer = await client.post(f"{session}/messages", content=body, headers=headers)

        events = (await client.whole(session))["events"]
    assert answer.status_code == status
    assert {*answer.json()["error"]} == {"type", "message"}
    assert events == []


async def test_half_an_emoji_is_mended_at_the_door() -> None:
    headers = {"Content-Type": "application/json"}
    async with chat("Hello.") as client:
        session = await client.new()

        await client.post(
            f"{session}/messages", content=rb'{"text": "a \ud83d b"}', headers=headers
        )

        card = (await client.whole(session))["cards"][0]
    assert card["text"] == "a \ufffd b"


@pytest.mark.parametrize("arguments", ['{"n": 1e999}', '{"a":' * 195 + "1" + "}" * 195])
async def test_arguments_that_cannot_be_kept_are_refused(arguments: str) -> None:
    headers = {"Content-Type": "application/json"}
    about = '{"tool_call_id": "c1", "verdict": "approve", "arguments": '
    async with chat() as client:
        session = await client.new()

        answer = await client.post(
            f"{session}/decisions",
            content=f'{{"decisions": [{about}{arguments}}}]}}',
            headers=headers,
        )

    assert answer.status_code in (400, 422)


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "after=%00"])
async def test_a_page_of_the_list_that_makes_no_sense_is_refused(query: str) -> None:
    async with chat() as client:
        answer = await client.get(f"/api/sessions?{query}")

    assert answer.status_code == 422


@pytest.mark.parametrize("name", ["x" * 300, "%00", "%0a", "%ff", "a%2Fb", "…"])
async def test_an_id_that_is_none_is_not_found(name: str) -> None:
    async with chat() as client:
        answer = await client.get(f"/api/sessions/{name}")

    assert answer.status_code == 404


# --- Responses ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 200),
        ("GET", "/openapi.json", 200),
        ("GET", "/api/me", 200),
        ("GET", "/api/sessions/none", 404),
        ("GET", "/nowhere", 404),
        ("GET", "/../pyproject.toml", 404),
        ("PUT", "/api/sessions", 405),
        ("HEAD", "/api/sessions/none/follow", 405),
        ("POST", "/", 405),
    ],
)
async def test_every_response_says_what_a_browser_may_do(
    method: str, path: str, status: int
) -> None:
    async with chat() as client:
        answer = await client.request(method, path)

    policy = answer.headers["Content-Security-Policy"]
    assert answer.status_code == status
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert answer.headers["Cache-Control"] == "no-store"


async def test_a_method_that_a_path_lacks_is_answered_with_those_that_it_has() -> None:
    async with chat() as client:
        answer = await client.put("/api/sessions")

    assert {*answer.headers["Allow"].split(", ")} == {"GET", "POST"}


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RuntimeError("in /srv/chat.py"), 500),
        (StoreUnavailableError(place="/srv/chat.db", problem="is locked"), 503),
    ],
)
async def test_what_goes_wrong_inside_stays_inside(
    error: Exception, status: int
) -> None:
    class Broken(InMemorySessionManager):
        async def get(self, session_id: str) -> Session | None:
            raise error

    app = create_app(Agent(ScriptedModel([]), session_manager=Broken()))
    transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
    async with httpx2.AsyncClient(
        transport=transport, base_url="http://localhost"
    ) as client:
        answer = await client.get("/api/sessions/s")

    assert answer.status_code == status
    assert "srv" not in answer.text
    assert "Traceback" not in answer.text
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
