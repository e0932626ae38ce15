"""The double of the Messages API: each rule is broken once, beside its good twin.

The requests go through the vendor's own client, and past it where the client would not
send them. The client's parsing is what the answers are held to.
"""

import asyncio
import copy
import gc
import json
import re
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import httpx2
import pytest
from anthropic import (
    APIError,
    APIStatusError,
    APITimeoutError,
    AsyncAnthropic,
    AuthenticationError,
    BadRequestError,
    InternalServerError,
    omit,
)
from anthropic.types import Message

from minagent.testing import ApiError, Cut, Edited, FakeAnthropic, Slow
from minagent.testing import anthropic_rules as rules

pytestmark = pytest.mark.heavy

Json = dict[str, Any]
Send = Callable[[Json], Awaitable[Message]]

MODEL = "claude-opus-5-5"
BETA = "thinking-binding-controls-2026-08-01"
HEADERS = {"authorization": "Bearer key", "anthropic-version": "2026-10-21"}
TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # loopback needs none; it costs 60 ms


@asynccontextmanager
async def connected(api: FakeAnthropic, **more: Any) -> AsyncIterator[AsyncAnthropic]:
    """The vendor's client, which here tries once only."""
    options = {"api_key": "key", "base_url": api.url, "max_retries": 0} | more
    http = httpx2.AsyncClient(verify=TLS)
    async with AsyncAnthropic(**options, http_client=http) as client:
        yield client


async def send(api: FakeAnthropic, body: Json, headers: Any = None) -> Message:
    """Send a body through the vendor's client, whatever is in it."""
    required = {"model": MODEL, "max_tokens": 100} | body
    known = {name: required.pop(name) for name in ("model", "max_tokens", "messages")}
    async with connected(api) as client:
        return await client.messages.create(
            **known, extra_body=required, extra_headers=headers
        )


async def send_raw(
    api: FakeAnthropic, raw: bytes, headers: Mapping[str, str] = HEADERS
) -> httpx2.Response:
    async with httpx2.AsyncClient(verify=TLS) as client:
        return await client.post(f"{api.url}/v1/messages", content=raw, headers=headers)


def asking(*messages: Json, **more: Any) -> Json:
    return {"model": MODEL, "max_tokens": 100, "messages": list(messages)} | more


def user(*content: Any) -> Json:
    return {"role": "user", "content": list(content)}


def assistant(*content: Any) -> Json:
    return {"role": "assistant", "content": list(content)}


def text(words: str, **more: Any) -> Json:
    return {"type": "text", "text": words} | more


def call(call_id: str, **more: Any) -> Json:
    return {"type": "tool_use", "id": call_id, "name": "look", "input": {}} | more


def result(call_id: str, content: Any = "Seen.") -> Json:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


def search(call_id: str) -> Json:
    return call(call_id, type="server_tool_use", name="web_search")


def search_result(call_id: str) -> Json:
    return {"type": "web_search_tool_result", "tool_use_id": call_id, "content": []}


def changed(body: Json, change: Callable[[Json], object]) -> Json:
    """A copy of a body, after a function has changed it in place."""
    other = copy.deepcopy(body)
    change(other)
    return other


def named(message: str) -> list[str]:
    """The rules that a refusal names."""
    return sorted({*re.findall(r"(?:^|; )(\w+): ", message)})


async def refusal(sent: Awaitable[object]) -> list[str]:
    """The rules that a request is told to have broken."""
    with pytest.raises(BadRequestError) as caught:
        await sent
    body = caught.value.body
    assert isinstance(body, dict)
    assert body["type"] == "error"
    assert body["error"]["type"] == "invalid_request_error"
    return named(body["error"]["message"])


# --- Rules that a single request can break ------------------------------------

HI = user(text("Hi."))
HELLO = assistant(text("Hello."))
BYE = user(text("Bye."))
PDF = {"type": "document", "source": {"type": "text", "data": "x"}, "title": "A title"}
CITED = text("Blue.", citations=[{"type": "char_location", "cited_text": "blue"}])
FOUND = {"type": "search_result", "source": "https://x/y", "title": "Sky"}
FETCHED = {
    "type": "web_fetch_tool_result",
    "tool_use_id": "srv_1",
    "content": {"type": "web_fetch_result", "url": "https://x/y", "content": PDF},
}

BROKEN: Mapping[str, tuple[str, Json, Json]] = {
    # What is wrong: the rule, the request that breaks it, its good twin.
    "max_tokens is no whole number": (
        "max_tokens",
        asking(HI, max_tokens=1.5),
        asking(HI, max_tokens=1),
    ),
    "max_tokens is 0": ("max_tokens", asking(HI, max_tokens=0), asking(HI)),
    "there is a temperature": ("sampling", asking(HI, temperature=1.0), asking(HI)),
    "there is a top_p": ("sampling", asking(HI, top_p=0.9), asking(HI)),
    "there is a top_k": ("sampling", asking(HI, top_k=5), asking(HI)),
    "there is no message": ("schema", asking(), asking(HI)),
    "a role is neither": (
        "schema",
        asking({"role": "tool", "content": "Hi."}),
        asking({"role": "user", "content": "Hi."}),
    ),
    "a message has a field of its own": (
        "schema",
        asking(HI | {"name": "ada"}),
        asking(HI),
    ),
    "a block has no type": ("schema", asking(user({"text": "Hi."})), asking(HI)),
    "a text block has no text": ("schema", asking(user({"type": "text"})), asking(HI)),
    "a content is a number": (
        "schema",
        asking({"role": "user", "content": 1}),
        asking(HI),
    ),
    "a block of a result has no type": (
        "schema",
        asking(HI, assistant(call("a")), user(result("a", [{"text": "Seen."}]))),
        asking(HI, assistant(call("a")), user(result("a", [text("Seen.")]))),
    ),
    "the system prompt has a block that is no block": (
        "schema",
        asking(HI, system=["Be kind."]),
        asking(HI, system=[text("Be kind.")]),
    ),
    "a tool has no name": (
        "schema",
        asking(HI, tools=[{"input_schema": {"type": "object"}}]),
        asking(HI, tools=[{"name": "look", "input_schema": {"type": "object"}}]),
    ),
    "the assistant comes first": ("V1", asking(HELLO, BYE), asking(HI, HELLO, BYE)),
    "two messages of the user in a row": (
        "V1",
        asking(HI, BYE),
        asking(user(text("Hi."), text("Bye."))),
    ),
    "two messages of the assistant in a row": (
        "V1",
        asking(HI, HELLO, HELLO, BYE),
        asking(HI, assistant(text("Hello."), text("Hello.")), BYE),
    ),
    "a server's call in a message of the user": (
        "V1",
        asking(user(text("Hi."), search("s"))),
        asking(HI, assistant(search("s"), search_result("s")), BYE),
    ),
    "a call has no result": (
        "V2",
        asking(HI, assistant(call("a"), call("b")), user(result("b"))),
        asking(HI, assistant(call("a"), call("b")), user(result("b"), result("a"))),
    ),
    "a result comes one message late": (
        "V2",
        asking(HI, assistant(call("a")), BYE, HELLO, user(result("a"))),
        asking(HI, assistant(call("a")), user(result("a")), HELLO, BYE),
    ),
    "a call has two results": (
        "V2",
        asking(HI, assistant(call("a")), user(result("a"), result("a"))),
        asking(HI, assistant(call("a")), user(result("a"))),
    ),
    "a result has no call": (
        "V2",
        asking(HI, HELLO, user(result("a"))),
        asking(HI, assistant(text("Hello."), call("a")), user(result("a"))),
    ),
    "the first message is a result": ("V2", asking(user(result("a"))), asking(HI)),
    "a server's result has no call": (
        "V2",
        asking(HI, assistant(search_result("s")), BYE),
        asking(HI, assistant(search("s"), search_result("s")), BYE),
    ),
    "a text stands before a result": (
        "V3",
        asking(HI, assistant(call("a")), user(text("Well."), result("a"))),
        asking(HI, assistant(call("a")), user(result("a"), text("Well."))),
    ),
    "a text follows results while the server owes one": (
        "V3",
        asking(HI, assistant(search("s"), call("a")), user(result("a"), text("So?"))),
        asking(HI, assistant(search("s"), call("a")), user(result("a"))),
    ),
    "a text follows a server's call without result": (
        "V3",
        asking(HI, assistant(search("s")), BYE),
        asking(HI, assistant(search("s"), search_result("s")), BYE),
    ),
    "a text is empty": ("V4", asking(user(text(""), text("Hi."))), asking(HI)),
    "a text is blank": ("V4", asking(user(text(" \n\t"))), asking(HI)),
    "a content is a blank string": (
        "V4",
        asking({"role": "user", "content": " "}),
        asking({"role": "user", "content": "Hi."}),
    ),
    "a content is an empty list": (
        "V4",
        asking(HI, assistant(), BYE),
        asking(HI, HELLO, BYE),
    ),
    "a result is an empty string": (
        "V4",
        asking(HI, assistant(call("a")), user(result("a", ""))),
        asking(HI, assistant(call("a")), user(result("a", "(nothing)"))),
    ),
    "a text in a result is empty": (
        "V4",
        asking(HI, assistant(call("a")), user(result("a", [text("")]))),
        asking(HI, assistant(call("a")), user(result("a", []))),
    ),
    "a block of the system prompt is empty": (
        "V4",
        asking(HI, system=[text("")]),
        asking(HI, system=[text("Be kind.")]),
    ),
    "two calls of one message have the same id": (
        "V5",
        asking(HI, assistant(*2 * [search("a"), search_result("a")]), BYE),
        asking(
            HI,
            assistant(search("a"), search("b"), search_result("a"), search_result("b")),
            BYE,
        ),
    ),
    "two calls of two messages have the same id": (
        "V5",
        asking(*2 * [HI, assistant(call("a")), user(result("a")), HELLO], BYE),
        asking(
            *(HI, assistant(call("a")), user(result("a")), HELLO),
            *(HI, assistant(call("b")), user(result("b")), HELLO, BYE),
        ),
    ),
    "a call id has a colon": (
        "V5",
        asking(HI, assistant(call("call:1")), user(result("call:1"))),
        asking(HI, assistant(call("call_-1")), user(result("call_-1"))),
    ),
    "a call id is empty": (
        "V5",
        asking(HI, assistant(call("")), user(result(""))),
        asking(HI, assistant(call("a")), user(result("a"))),
    ),
    "the input is a string": (
        "V8",
        asking(HI, assistant(call("a", input='{"x": 1}')), user(result("a"))),
        asking(HI, assistant(call("a", input={"x": 1})), user(result("a"))),
    ),
    "the input is a list": (
        "V8",
        asking(HI, assistant(call("a", input=[1])), user(result("a"))),
        asking(HI, assistant(call("a", input={})), user(result("a"))),
    ),
    "there is no input": (
        "V8",
        asking(
            HI,
            assistant({"type": "tool_use", "id": "a", "name": "look"}),
            user(result("a")),
        ),
        asking(HI, assistant(call("a")), user(result("a"))),
    ),
    "the user has a block of an unknown kind": (
        "V9",
        asking(user(text("Hi."), {"type": "note", "text": "x"})),
        asking(user(text("Hi."), text("x"))),
    ),
    "the assistant has a block that nobody sent": (
        "V9",
        asking(HI, assistant(text("Hello."), {"type": "note"}), BYE),
        asking(HI, assistant(text("Hello."), text("x")), BYE),
    ),
    "a result has a block of an unknown kind": (
        "V9",
        asking(HI, assistant(call("a")), user(result("a", [{"type": "note"}]))),
        asking(HI, assistant(call("a")), user(result("a", [PDF]))),
    ),
    "the assistant comes last": ("V10", asking(HI, HELLO), asking(HI, HELLO, BYE)),
    "a document of the assistant": (
        "document",
        asking(HI, assistant(text("Hello."), PDF), BYE),
        asking(HI, assistant(search("srv_1"), FETCHED), user(PDF)),
    ),
    "a citation of the user": (
        "citations",
        asking(user(CITED)),
        asking(user(text("Blue.", citations=[])), assistant(CITED), BYE),
    ),
    "a citation in a search result of the user": (
        "citations",
        asking(user(FOUND | {"content": [CITED]})),
        asking(
            user(FOUND | {"content": [text("Blue.")], "citations": {"enabled": True}})
        ),
    ),
    "a citation in a tool's result": (
        "citations",
        asking(HI, assistant(call("a")), user(result("a", [CITED]))),
        asking(HI, assistant(call("a")), user(result("a", [text("Blue.")]))),
    ),
    "the field of a beta without its header": (
        "block_binding",
        asking(HI, thinking={"type": "adaptive", "block_binding": {"x": 1}}),
        asking(HI, thinking={"type": "adaptive"}),
    ),
}


@pytest.mark.parametrize("wrong", BROKEN)
async def test_a_broken_request_is_refused_and_its_good_twin_is_not(wrong: str) -> None:
    rule, broken, good = BROKEN[wrong]

    async with FakeAnthropic(["Fine."]) as api:
        assert await refusal(send(api, broken)) == [rule]
        message = await send(api, good)

    assert message.to_dict()["content"] == [text("Fine.")]
    assert [named(line) for line in api.refusals] == [[rule]]
    api.assert_done()


async def test_a_request_is_told_all_that_is_wrong() -> None:
    async with FakeAnthropic([]) as api:
        broken = asking(HI, assistant(call("a:b"), text("")), top_k=1)

        assert await refusal(send(api, broken)) == ["V10", "V2", "V4", "V5", "sampling"]


async def test_neighbours_of_one_role_are_merged_unless_roles_are_strict() -> None:
    late = asking(HI, assistant(call("a")), user(result("a")), BYE, HELLO, HELLO, BYE)

    async with FakeAnthropic(["Fine."], strict_roles=False) as api:
        await send(api, late)

    async with FakeAnthropic([]) as api:
        assert await refusal(send(api, late)) == ["V1"]


# --- Rules that the client keeps by itself ------------------------------------

GOOD = json.dumps(asking(HI)).encode()
RAW: Mapping[str, tuple[int, str, bytes, Mapping[str, str]]] = {
    "there is no key": (
        401,
        "auth",
        GOOD,
        {"anthropic-version": HEADERS["anthropic-version"]},
    ),
    "there is no version": (400, "version", GOOD, {"x-api-key": "key"}),
    "the version is an old one": (
        400,
        "version",
        GOOD,
        HEADERS | {"anthropic-version": "2023-06-01"},
    ),
    "the body is cut off": (400, "V7", GOOD[:-1], HEADERS),
    "the body is empty": (400, "V7", b"", HEADERS),
    "the body has a NaN": (400, "V7", GOOD.replace(b"100", b"NaN"), HEADERS),
    "the body has an endless number": (
        400,
        "V7",
        GOOD.replace(b"100", b"1e999"),
        HEADERS,
    ),
    "the body has half an emoji": (
        400,
        "V7",
        GOOD.replace(b"Hi.", rb"\ud83d"),
        HEADERS,
    ),
    "the body is not UTF-8": (400, "V7", GOOD.replace(b"Hi.", b"\xff"), HEADERS),
    "the body is nested without end": (400, "V7", b"[" * 100_000, HEADERS),
    "the body is no object": (400, "schema", b"[]", HEADERS),
    "there is no max_tokens": (
        400,
        "max_tokens",
        GOOD.replace(b"max_tokens", b"min_tokens"),
        HEADERS,
    ),
    "there is no model": (400, "schema", GOOD.replace(b"model", b"mode"), HEADERS),
    "the messages are no list": (
        400,
        "schema",
        json.dumps(asking() | {"messages": {}}).encode(),
        HEADERS,
    ),
}


@pytest.mark.parametrize("wrong", RAW)
async def test_what_the_client_would_not_send_is_refused_too(wrong: str) -> None:
    status, rule, body, headers = RAW[wrong]

    async with FakeAnthropic(["Fine."]) as api:
        refused = await send_raw(api, body, headers)
        accepted = await send_raw(api, GOOD)

    error = refused.json()["error"]
    kind = "authentication_error" if status == 401 else "invalid_request_error"
    assert (refused.status_code, error["type"]) == (status, kind)
    assert named(error["message"]) == [rule]
    assert accepted.status_code == 200


async def test_a_key_in_either_header_will_do() -> None:
    version = {"anthropic-version": HEADERS["anthropic-version"]}

    async with FakeAnthropic(["One.", "Two."]) as api:
        for key in ({"x-api-key": "key"}, {"Authorization": "Bearer key"}):
            assert (await send_raw(api, GOOD, version | key)).status_code == 200


async def test_a_client_without_a_key_is_told_so() -> None:
    async with FakeAnthropic([]) as api:
        with pytest.raises(AuthenticationError, match="auth: there is no key"):
            await send(api, asking(HI), {"Authorization": omit})


async def test_there_is_no_other_endpoint() -> None:
    async with FakeAnthropic([]) as api, httpx2.AsyncClient(verify=TLS) as client:
        found = await client.get(f"{api.url}/v1/messages", headers=HEADERS)

    assert found.status_code == 404
    assert found.json()["error"]["type"] == "not_found_error"


# --- Thinking -----------------------------------------------------------------

TOOLS = [
    {"name": "look", "description": "Look.", "input_schema": {"type": "object"}},
    {"name": "wait", "input_schema": {"type": "object"}},
]
THOUGHTS: list[Any] = [
    [{"type": "thinking", "thinking": "First.", "n": 1}, "Let me see.", call("a")],
    [
        {"type": "thinking", "thinking": ""},
        {"type": "redacted_thinking"},
        "It is blue.",
        {"type": "thinking", "thinking": "Third."},
        "Really.",
    ],
]


async def told(api: FakeAnthropic, **more: Any) -> Json:
    """A conversation with four thinking blocks, and a question that comes next."""
    body = asking(user(text("What colour?")), system="Be kind.", tools=TOOLS) | more
    for answer in (result("a"), text("And at night?")):
        message = await send(api, body)
        content = [block.to_dict(warnings=False) for block in message.content]
        body["messages"] += [assistant(*content), user(answer)]
    return copy.deepcopy(body)


# Where its parts are.
FIRST, SECOND = 1, 3
A, B, C, D = (FIRST, 0), (SECOND, 0), (SECOND, 1), (SECOND, 3)  # the thinking


def at(body: Json, place: tuple[int, int]) -> Json:
    message, number = place
    block: Json = body["messages"][message]["content"][number]
    return block


def without(*places: tuple[int, int]) -> Callable[[Json], None]:
    def remove(body: Json) -> None:
        for message, number in sorted(places, reverse=True):
            del body["messages"][message]["content"][number]

    return remove


def swap(body: Json) -> None:
    content = body["messages"][SECOND]["content"]
    content[0], content[3] = content[3], content[0]


def hand_over(body: Json) -> None:
    """Make a text of the assistant one of the user, without moving it."""
    without(A)(body)
    said = body["messages"][FIRST]["content"].pop(0)
    body["messages"][0]["content"].append(said)


THINKING_BROKEN: Mapping[str, tuple[str, Callable[[Json], object]]] = {
    # What is wrong: the rule, and the change that breaks it. The twin is unchanged.
    "the system prompt is another": ("binding", lambda b: b.update(system="Be brief.")),
    "the system prompt is gone": ("binding", lambda b: b.pop("system")),
    "a tool is described in other words": (
        "binding",
        lambda b: b["tools"][0].update(description="Look!"),
    ),
    "a tool is new": ("binding", lambda b: b["tools"].append({"name": "new"})),
    "the tools are gone": ("binding", lambda b: b.pop("tools")),
    "the question is another": ("binding", lambda b: at(b, (0, 0)).update(text="How?")),
    "the question has something added": (
        "binding",
        lambda b: b["messages"][0]["content"].append(text("(by the way)")),
    ),
    "a result is another": ("binding", lambda b: at(b, (2, 0)).update(content="Red.")),
    "an input has another type": (
        "binding",
        lambda b: at(b, (FIRST, 2)).update(input={"x": 1.0}),
    ),
    "a text between two thoughts is another": (
        "binding",
        lambda b: at(b, (SECOND, 2)).update(text="It is red."),
    ),
    "a text was said by the other": ("binding", hand_over),
    "the start is another": (
        "binding",
        lambda b: b["messages"].__setitem__(slice(0, 3), [HI]),
    ),
    "a thought in the middle is left out": ("binding", without(B)),
    "a redacted thought in the middle is left out": ("binding", without(C)),
    "two thoughts in the middle are left out": ("binding", without(B, C)),
    "two thoughts are swapped": ("binding", swap),
    "a thought is there twice": (
        "binding",
        lambda b: b["messages"][SECOND]["content"].insert(1, at(b, B)),
    ),
    "a thought is from elsewhere": (
        "binding",
        lambda b: at(b, A).update(signature="of another"),
    ),
    "a redacted thought is another": ("binding", lambda b: at(b, C).update(data="x")),
    "a thought has other words": ("V6", lambda b: at(b, A).update(thinking="First!")),
    "a thought is blanked and keeps its signature": (
        "V6",
        lambda b: at(b, D).update(thinking=""),
    ),
    "a thought lost a field": ("V6", lambda b: at(b, A).pop("n")),
    "a thought has a field more": ("V6", lambda b: at(b, B).update(citations=None)),
    "a signature is empty": ("signature", lambda b: at(b, A).update(signature="")),
    "a signature is missing": ("signature", lambda b: at(b, B).pop("signature")),
    "the data of a redacted thought is empty": (
        "signature",
        lambda b: at(b, C).update(data=""),
    ),
    "a message ends in a thought": ("last_block", without((SECOND, 4))),
}


@pytest.mark.parametrize("wrong", THINKING_BROKEN)
async def test_thinking_that_is_not_as_and_where_it_was_is_refused(wrong: str) -> None:
    rule, change = THINKING_BROKEN[wrong]

    async with FakeAnthropic([*THOUGHTS, "Dark."]) as api:
        good = await told(api)

        assert await refusal(send(api, changed(good, change))) == [rule]
        await send(api, good)

    api.assert_done()


def mark(body: Json) -> None:
    """Set the marks for the cache everywhere."""
    marked = {"cache_control": {"type": "ephemeral"}}
    body.update(marked)
    body["system"] = [text(body["system"]) | marked]
    body["tools"][1].update(marked)
    at(body, (0, 0)).update(marked)
    at(body, (2, 0)).update(marked, content=[text("Seen.") | marked])


def reorder(body: Json) -> None:
    for message in body["messages"]:
        message["content"] = [dict(reversed(b.items())) for b in message["content"]]
    body["tools"] = [dict(reversed(tool.items())) for tool in body["tools"]]


HARMLESS: Mapping[str, Callable[[Json], object]] = {
    "the marks for the cache come": mark,
    "the keys have another order": reorder,
    "a text is written as a string": (
        lambda b: b["messages"][0].update(content="What colour?")
    ),
    "effort and format change": (
        lambda b: b.update(output_config={"effort": "low"}, max_tokens=7, stream=False)
    ),
    "the first thought is left out": without(A),
    "the first two thoughts are left out": without(A, B),
    "the first three thoughts are left out": without(A, B, C),
    "all thoughts are left out": without(A, B, C, D),
    "the last thought is left out": without(D),
    "the last three thoughts are left out": without(B, C, D),
    "the last question is another": lambda b: at(b, (4, 0)).update(text="Why?"),
}


@pytest.mark.parametrize("change", HARMLESS)
async def test_what_does_not_count_may_change_before_thinking(change: str) -> None:
    async with FakeAnthropic([*THOUGHTS, "Dark."]) as api:
        body = await told(api)

        await send(api, changed(body, HARMLESS[change]))

    assert api.refusals == []


@pytest.mark.parametrize("wrong", THINKING_BROKEN)
async def test_binding_can_be_off(wrong: str) -> None:
    rule, change = THINKING_BROKEN[wrong]

    async with FakeAnthropic([*THOUGHTS, "Dark."], enforce_binding=False) as api:
        sent = send(api, changed(await told(api), change))

        if rule in {"V6", "binding"}:
            await sent
        else:
            assert await refusal(sent) == [rule]


def dropping(body: Json, behavior: str = "drop_block") -> None:
    controls = {"block_binding": {"prefix_mismatch_behavior": behavior}}
    body["thinking"] = {"type": "adaptive"} | controls


async def test_stale_thinking_can_be_dropped_and_is_reported() -> None:
    async with FakeAnthropic([*THOUGHTS, "Dark.", "Yes."]) as api:
        body = changed(await told(api), dropping)
        fresh = await send(api, body, {"anthropic-beta": BETA})
        body["messages"][2]["content"][0]["content"] = "Green."
        stale = await send(api, body, {"anthropic-beta": f"other-1, {BETA}"})

    assert fresh.to_dict()["input_transformations"] == []
    assert stale.to_dict()["input_transformations"] == [
        {
            "type": "thinking_dropped",
            "path": f"messages.{SECOND}.content.{number}",
            "reason": "prefix_binding_mismatch",
        }
        for number in (0, 1, 3)
    ]


async def test_stale_thinking_is_dropped_on_request_only() -> None:
    async with FakeAnthropic(THOUGHTS) as api:
        body = changed(await told(api), lambda b: b.update(system="Be brief."))
        drop, error = changed(body, dropping), changed(body, lambda b: dropping(b, "x"))
        beta = {"anthropic-beta": BETA}

        assert await refusal(send(api, body, beta)) == ["binding"]
        assert await refusal(send(api, error, beta)) == ["binding"]
        assert await refusal(send(api, drop)) == ["binding", "block_binding"]


async def test_changed_thinking_is_refused_even_if_stale_thinking_is_dropped() -> None:
    async with FakeAnthropic(THOUGHTS) as api:
        body = changed(await told(api), dropping)
        at(body, A)["thinking"] = "Second."

        assert await refusal(send(api, body, {"anthropic-beta": BETA})) == ["V6"]


async def test_thinking_that_comes_after_dropped_thinking_is_bound_in_its_turn() -> (
    None
):
    thought = [{"type": "thinking", "thinking": "Fifth."}, "Dark."]
    beta = {"anthropic-beta": BETA}

    async with FakeAnthropic([*THOUGHTS, thought, "One.", "Two.", "Three."]) as api:
        body = changed(await told(api), dropping)
        body["system"] = "Be brief."
        message = await send(api, body, beta)
        content = [block.to_dict() for block in message.content]
        body["messages"] += [assistant(*content), BYE]

        kept = await send(api, body, beta)
        fresh = changed(body, without(A, B, C, D))
        del fresh["thinking"]
        left_out = await send(api, fresh)
        back = await send(api, body | {"system": "Be kind."}, beta)

    paths = [f"messages.{m}.content.{n}" for m, n in (A, B, C, D)]
    assert dropped(kept) == paths
    assert "input_transformations" not in left_out.to_dict()
    assert dropped(back) == ["messages.5.content.0"]


def dropped(message: Message) -> list[str]:
    transformations: Any = message.to_dict()["input_transformations"]
    return [one["path"] for one in transformations]


async def test_a_refusal_says_what_has_changed_before_the_thinking() -> None:
    async with FakeAnthropic(THOUGHTS) as api:
        body = await told(api)
        for change in (
            lambda b: b.update(system="Be brief.", tools=[]),
            without(B),
            lambda b: at(b, A).update(signature="of another"),
        ):
            await refusal(send(api, changed(body, change)))

    both, missing, elsewhere = api.refusals
    assert "bound to a different conversation" in both
    assert "What changed before it: system, tools." in both
    assert "What changed before it: thinking." in missing
    assert "What changed before it: all, it was never sent." in elsewhere


async def test_the_same_thought_may_be_sent_in_two_places() -> None:
    thought = [{"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}, "Well."]

    async with FakeAnthropic([thought, thought, "Fine."]) as api:
        body = asking(HI)
        for _ in range(2):
            message = await send(api, body)
            content = [block.to_dict() for block in message.content]
            body["messages"] += [assistant(*content), BYE]
        await send(api, body)

    assert api.refusals == []


async def test_a_thought_that_was_sent_without_signature_cannot_come_back() -> None:
    unsigned = {"type": "thinking", "thinking": "Hm.", "signature": ""}
    thought = {"type": "thinking", "thinking": "Hm."}

    async with FakeAnthropic([[thought, unsigned, thought, "Well."], "Fine."]) as api:
        message = await send(api, asking(HI))
        first, second, *rest = [block.to_dict() for block in message.content]
        with_it = send(api, asking(HI, assistant(first, second, *rest), BYE))
        assert await refusal(with_it) == ["signature"]
        await send(api, asking(HI, assistant(first, *rest), BYE))


async def test_a_double_takes_over_what_an_earlier_one_has_sent() -> None:
    new = {"type": "brand_new", "payload": [1]}

    async with FakeAnthropic([*THOUGHTS, [new, "Dark."]]) as first:
        body = await told(first)
        await send(first, body)
        body["messages"] += [assistant(new, text("Dark.")), BYE]
    async with FakeAnthropic(["Fine."], after=first) as second:
        await send(second, body)
    async with FakeAnthropic([]) as stranger:
        assert await refusal(send(stranger, body)) == ["V9", "binding"]


# --- What the double has sent comes back --------------------------------------

NEW = {"type": "brand_new", "payload": {"b": [1, 1.0, None], "a": "\U0001f600"}}


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_block_of_an_unknown_kind_comes_back_as_it_was(streamed: bool) -> None:
    async with FakeAnthropic([["Hello.", NEW], "Fine.", "Fine."]) as api:
        async with connected(api) as client:
            asked = {"model": MODEL, "max_tokens": 100, "messages": [HI]}
            if streamed:
                async with client.messages.stream(**asked) as stream:
                    message = await stream.get_final_message()
            else:
                message = await client.messages.create(**asked)
        content = [block.to_dict(warnings=False) for block in message.content]
        assert content == [text("Hello."), NEW]

        await send(api, asking(HI, assistant(*content), BYE))
        marked = NEW | {"cache_control": {"type": "ephemeral"}}
        await send(api, asking(HI, assistant(*content[:1], marked), BYE))
        for other in (NEW | {"payload": {}}, NEW | {"citations": None}):
            broken = asking(HI, assistant(text("Hello."), other), BYE)
            assert await refusal(send(api, broken)) == ["V9"]
        assert await refusal(send(api, asking(user(NEW)))) == ["V9"]


PAUSED = {"content": ["Let me see.", search("s")], "stop_reason": "pause_turn"}


async def test_a_paused_turn_is_sent_back_as_it_was() -> None:
    paused = assistant(text("Let me see."), search("s"))

    async with FakeAnthropic([PAUSED, PAUSED | {"content": ["So."]}, "Blue."]) as api:
        first = await send(api, asking(HI))
        assert first.stop_reason == "pause_turn"
        assert await refusal(send(api, asking(HI, HELLO))) == ["V10"]
        other = assistant(text("Let me see!"), search("s"))
        assert await refusal(send(api, asking(HI, other))) == ["V10"]

        await send(api, asking(HI, paused))
        longer = assistant(*paused["content"], text("So."))
        message = await send(api, asking(HI, longer))

    assert message.stop_reason == "end_turn"


async def test_a_paused_turn_with_thinking_stays_bound_when_it_goes_on() -> None:
    thought = {"type": "thinking", "thinking": "Hm."}
    paused = {"content": [thought, search("s")], "stop_reason": "pause_turn"}
    rest = [search_result("s"), thought, "Blue."]

    async with FakeAnthropic([paused, rest, "Fine."]) as api:
        content: list[Any] = []
        body = asking(HI)
        for _ in range(2):
            message = await send(api, body)
            content += [block.to_dict(warnings=False) for block in message.content]
            body = asking(HI, assistant(*content))
        await send(api, asking(HI, assistant(*content), BYE))

    assert api.refusals == []


# --- Replies ------------------------------------------------------------------


async def test_requests_are_recorded_with_their_headers() -> None:
    async with FakeAnthropic(["One.", "Two."]) as api:
        await send(api, asking(HI))
        await refusal(send(api, asking(HELLO)))
        await send(api, asking(BYE), {"anthropic-beta": BETA})

    assert [body["messages"] for body in api.requests] == [[HI], [HELLO], [BYE]]
    assert api.requests[0] == asking(HI)
    assert api.headers[0]["authorization"] == "Bearer key"
    assert api.headers[0]["anthropic-version"] == "2026-10-21"
    assert "anthropic-beta" not in api.headers[0]
    assert api.headers[2]["anthropic-beta"] == BETA


async def test_what_a_reply_leaves_out_is_filled_in() -> None:
    parts = [
        {"type": "thinking", "thinking": "Hm."},
        {"type": "redacted_thinking"},
        "Let me see.",
        {"type": "tool_use", "name": "look"},
        {"type": "server_tool_use", "name": "web_search"},
        {"type": "mcp_tool_use", "name": "find", "server_name": "x"},
    ]

    async with FakeAnthropic([parts, parts, []]) as api:
        messages = [await send(api, asking(HI)) for _ in range(2)]
        empty = await send(api, asking(HI))

    [first, second] = [message.to_dict(warnings=False) for message in messages]
    thinking, redacted, said, tool, server, mcp = first["content"]  # type: ignore[misc]
    assert thinking["signature"]
    assert redacted["data"]
    assert said == text("Let me see.")
    assert tool == call(tool["id"])
    assert [b["id"].split("_")[0] for b in (tool, server, mcp)] == [
        "toolu",
        "srvtoolu",
        "mcptoolu",
    ]
    assert first["role"] == "assistant"
    assert first["model"] == MODEL
    assert first["stop_reason"] == "tool_use"
    assert first["id"] != second["id"]
    assert {json.dumps(b) for b in first["content"]} & {  # type: ignore[union-attr]
        json.dumps(b)
        for b in second["content"]  # type: ignore[union-attr]
    } == {json.dumps(said)}
    assert messages[0]._request_id != messages[1]._request_id
    assert (empty.content, empty.stop_reason) == ([], "end_turn")


async def test_what_a_reply_says_is_kept() -> None:
    refused = {
        "id": "msg_1",
        "content": [],
        "stop_reason": "refusal",
        "stop_details": {"type": "refusal", "category": "cyber", "explanation": None},
        "usage": {"cache_read_input_tokens": 7, "output_tokens": 3},
        "more": {"x": 1},
    }

    async with FakeAnthropic([refused]) as api:
        message = await send(api, asking(HI))

    got = message.to_dict()
    assert got["usage"].pop("input_tokens")  # type: ignore[attr-defined]
    assert got == refused | {
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "stop_sequence": None,
        "usage": {
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 7,
            "output_tokens": 3,
        },
    }


async def test_usage_grows_with_what_is_asked_and_said() -> None:
    async with FakeAnthropic(["Hi.", "Hi, and good morning to you."]) as api:
        short = await send(api, asking(HI))
        long = await send(api, asking(user(text("Hi, and good morning to you."))))

    assert 0 < short.usage.input_tokens < long.usage.input_tokens
    assert 0 < short.usage.output_tokens < long.usage.output_tokens


async def test_tokens_are_counted_without_a_reply() -> None:
    async with FakeAnthropic([]) as api, connected(api) as client:
        short = await client.messages.count_tokens(model=MODEL, messages=[HI])
        long = await client.messages.count_tokens(
            model=MODEL, messages=[HI, HELLO, BYE], system="Be kind."
        )
        broken = client.messages.count_tokens(model=MODEL, messages=[HELLO, BYE])
        assert await refusal(broken) == ["V1"]

    assert 0 < short.input_tokens < long.input_tokens
    assert api.requests == []
    api.assert_done()


async def test_a_function_makes_the_reply_from_the_request() -> None:
    def echo(body: Json) -> str:
        return str(body["messages"][-1]["content"][0]["text"])

    async def later(body: Json) -> Any:
        await asyncio.sleep(0)
        return lambda again: [f"{len(again['messages'])} of", {**text("it")}]

    async with FakeAnthropic([echo, later]) as api:
        first = await send(api, asking(HI))
        second = await send(api, asking(HI, HELLO, BYE))

    assert [block.to_dict() for block in first.content] == [text("Hi.")]
    assert [block.to_dict() for block in second.content] == [text("3 of"), text("it")]


async def test_an_error_of_a_function_comes_out_of_the_block() -> None:
    def wrong(body: Json) -> str:
        assert body["messages"] == [], "not what I expected"
        return "Fine."

    with pytest.raises(AssertionError, match="not what I expected") as caught:
        async with (
            FakeAnthropic([wrong, "Left."]) as api,
            connected(api, max_retries=5) as client,
        ):
            await client.messages.create(**asking(HI))

    assert isinstance(caught.value.__context__, InternalServerError)
    assert len(api.requests) == 1  # the client was told not to try again


async def test_a_missing_reply_makes_itself_known() -> None:
    async with FakeAnthropic(["One."]) as api, connected(api, max_retries=5) as client:
        await client.messages.create(**asking(HI))
        with pytest.raises(InternalServerError, match="has 1 replies: one is missing"):
            await client.messages.create(**asking(HI))

    assert len(api.requests) == 2
    with pytest.raises(AssertionError, match="1 requests found no reply"):
        api.assert_done()


async def test_a_reply_that_was_not_asked_for_makes_itself_known() -> None:
    async with FakeAnthropic(["One.", "Two."]) as api:
        await send(api, asking(HI))

    with pytest.raises(AssertionError, match=r"1 replies .* were not played: \['Two"):
        api.assert_done()


async def test_a_refused_request_uses_up_no_reply() -> None:
    async with FakeAnthropic(["One."]) as api:
        await refusal(send(api, asking(HELLO)))
        await send(api, asking(HI))

    api.assert_done()


# --- Errors -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind"),
    [(429, "rate_limit_error"), (500, "api_error"), (529, "overloaded_error")],
)
async def test_the_client_waits_and_tries_again(status: int, kind: str) -> None:
    error = ApiError(status, kind, "Not now.", retry_after=0.02)

    script = [error, error, "Fine."]
    async with FakeAnthropic(script) as api, connected(api, max_retries=2) as client:
        began = time.monotonic()
        message = await client.messages.create(**asking(HI))

    assert [block.to_dict() for block in message.content] == [text("Fine.")]
    assert len(api.requests) == 3
    # Without the header, the first wait alone would be at least 0.375 s.
    assert time.monotonic() - began >= 0.04
    assert [h["x-stainless-retry-count"] for h in api.headers] == ["0", "1", "2"]
    api.assert_done()


async def test_an_error_is_the_client_s_error() -> None:
    error = ApiError(529, "overloaded_error", "Too much.", retry_after=3)

    async with FakeAnthropic([error]) as api:
        with pytest.raises(APIStatusError) as caught:
            await send(api, asking(HI))

    assert caught.value.status_code == 529
    assert caught.value.response.headers["retry-after"] == "3"
    assert caught.value.body == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "Too much."},
    }


# --- Streams ------------------------------------------------------------------

EVERYTHING: list[Any] = [
    {"type": "thinking", "thinking": "Hm\u2028\U0001f600 well.", "signature": "s" * 40},
    {"type": "thinking", "thinking": "", "signature": "t"},
    {"type": "redacted_thinking", "data": "c2VhbGVk"},
    text("Na\u00efve \U0001f469\u200d\U0001f467.\r\n\n", more={"x": [1.0]}),
    CITED
    | {"citations": [{"type": "char_location", "cited_text": str(i)} for i in "12"]},
    search("srvtoolu_1") | {"input": {"query": "sky"}},
    search_result("srvtoolu_1"),
    {"type": "code_execution_tool_result", "tool_use_id": "srvtoolu_1", "content": {}},
    NEW,
    call("toolu_1", input={"a": [1, 1.0, "\U0001f600", {"b": None}], "\u00e9": {}}),
    call("toolu_2"),
    text(""),
]


async def streamed(api: FakeAnthropic, body: Json) -> list[Any]:
    async with connected(api) as client:
        return [
            event async for event in await client.messages.create(**body, stream=True)
        ]


async def test_a_stream_amounts_to_the_same_as_json() -> None:
    reply = {"content": EVERYTHING, "usage": {"output_tokens": 9}, "id": "msg_1"}

    async with FakeAnthropic([reply, reply]) as api, connected(api) as client:
        plain = await client.messages.create(**asking(HI))
        async with client.messages.stream(**asking(HI)) as stream:
            put_together = await stream.get_final_message()

    def content(message: Message) -> list[Json]:
        return [block.to_dict(warnings=False) for block in message.content]

    assert content(plain) == EVERYTHING
    assert content(put_together) == EVERYTHING
    rest = ({"content", "usage"}, plain, put_together)
    assert rest[1].model_dump(exclude=rest[0], warnings=False) == rest[2].model_dump(
        exclude=rest[0], warnings=False
    )
    assert put_together.usage.output_tokens == 9


async def test_the_events_of_a_stream_are_those_of_the_api() -> None:
    reply = [{"type": "thinking", "thinking": "Hm."}, "Well, now.", CITED, call("a")]

    async with FakeAnthropic([reply, reply]) as api:
        events = await streamed(api, asking(HI))
        raw = await send_raw(api, json.dumps(asking(HI, stream=True)).encode())

    opened, *_, ended, closed = events
    assert opened.message.content == []
    assert opened.message.stop_reason is None
    assert opened.message.usage.input_tokens > 0
    assert opened.message.usage.output_tokens == 1
    assert ended.delta.stop_reason == "tool_use"
    assert ended.usage.output_tokens > 1
    assert closed.type == "message_stop"
    assert [e.delta.type for e in events if e.type == "content_block_delta"] == [
        *("thinking_delta", "signature_delta"),
        *("text_delta", "text_delta"),
        *("text_delta", "citations_delta"),
        "input_json_delta",
    ]
    assert [e.index for e in events if e.type == "content_block_start"] == [0, 1, 2, 3]
    assert [e.index for e in events if e.type == "content_block_stop"] == [0, 1, 2, 3]
    assert raw.headers["content-type"] == "text/event-stream"
    lines = raw.text.split("\n\n")
    assert lines.pop() == ""
    assert 'event: ping\ndata: {"type": "ping"}' in lines
    assert all(
        line.startswith(f"event: {json.loads(line.partition('data: ')[2])['type']}\n")
        for line in lines
    )


@pytest.mark.parametrize("given", ['{"city": "Par', "[1]", "nonsense", [1], []])
async def test_an_input_can_be_no_object_at_all(given: Any) -> None:
    reply = [call("a", input=given)]

    async with FakeAnthropic([reply, reply]) as api:
        message = await send(api, asking(HI))
        events = await streamed(api, asking(HI))

    deltas = [e.delta.partial_json for e in events if e.type == "content_block_delta"]
    assert message.to_dict(warnings=False)["content"] == reply
    assert "".join(deltas) == (given if isinstance(given, str) else json.dumps(given))


async def test_half_an_emoji_is_streamed_as_an_escape() -> None:
    async with FakeAnthropic(["a\ud83d b"]) as api:
        events = await streamed(api, asking(HI))

    said = "".join(e.delta.text for e in events if e.type == "content_block_delta")
    assert said == "a\ud83d b"
    assert rb"a\ud83d b" in api.bodies[0]


async def test_a_stream_tells_why_it_was_refused() -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": None}
    refused = {"content": [], "stop_reason": "refusal", "stop_details": details}

    async with FakeAnthropic([refused]) as api:
        [_, ended, _] = await streamed(api, asking(HI))

    assert ended.delta.stop_reason == "refusal"
    assert ended.delta.stop_details.to_dict() == details


async def test_a_stream_can_be_edited() -> None:
    def add(*new: Json) -> Callable[[list[Json]], list[Json]]:
        return lambda events: [*events[:3], *new, *events[3:]]

    delta = {"type": "brand_new_delta", "x": 1}
    unknown = {"type": "content_block_delta", "index": 0, "delta": delta}
    reply = Edited(Edited("Hello.", add({"type": "brand_new_event"})), add(unknown))

    async with FakeAnthropic([reply, reply]) as api:
        events = await streamed(api, asking(HI))
        message = await send(api, asking(HI))

    kinds = [(e.type, getattr(getattr(e, "delta", None), "type", "")) for e in events]
    assert kinds[2:4] == [
        ("content_block_delta", "brand_new_delta"),
        ("brand_new_event", ""),
    ]
    assert [block.to_dict() for block in message.content] == [text("Hello.")]


async def test_a_stream_can_end_in_an_error() -> None:
    overloaded = {"type": "overloaded_error", "message": "Too much."}
    error = {"type": "error", "error": overloaded}

    async with FakeAnthropic([Edited("Hello.", lambda e: [*e[:4], error])]) as api:
        with pytest.raises(APIStatusError) as caught:
            await streamed(api, asking(HI))

    assert caught.value.status_code == 200
    assert caught.value.body == error


# --- Streams that break off or stall ------------------------------------------

SHORT: list[Any] = [
    {"type": "thinking", "thinking": "\U0001f600", "signature": "s"},
    text("\u00e9"),
    call("a", input={"x": 1}),
]
BREAKS = (APIError, httpx2.HTTPError, UnicodeDecodeError)


async def test_a_stream_can_be_cut_at_every_byte() -> None:
    """Every other cut looks like a proper end, the rest like a broken connection."""

    def cuts() -> Iterator[Cut]:
        for byte in count():
            yield Cut(SHORT, byte, clean=byte % 2 == 0)

    async with FakeAnthropic(cuts()) as api, connected(api) as client:
        for byte in count():
            seen, error = await watched(client)
            if byte >= len(api.bodies[byte]):
                break
            assert "message_stop" not in seen
            assert error or byte % 2 == 0

    assert byte > 1_000
    assert (seen[-1], error) == ("message_stop", None)


async def watched(client: AsyncAnthropic) -> tuple[list[str], Exception | None]:
    """The kinds of events of a stream, and the error that ended it, if one did."""
    seen = []
    try:
        async with asyncio.timeout(10):
            async for event in await client.messages.create(**asking(HI), stream=True):
                seen.append(event.type)
    except BREAKS as error:
        return seen, error
    return seen, None


async def test_a_cut_behind_the_last_byte_is_none() -> None:
    async with FakeAnthropic([SHORT]) as api:
        await streamed(api, asking(HI))
    size = len(api.bodies[0])

    async with FakeAnthropic([Cut(SHORT, size), Cut(SHORT, size + 1)]) as api:
        for _ in range(2):
            events = await streamed(api, asking(HI))
            assert events[-1].type == "message_stop"


async def test_an_answer_that_is_not_streamed_can_be_cut_too() -> None:
    async with FakeAnthropic([Cut("Hello.", 20)]) as api:
        with pytest.raises(APIError, match="Connection error"):
            await send(api, asking(HI))
    async with FakeAnthropic([Cut("Hello.", 20, clean=True)]) as api:
        cut = await send_raw(api, GOOD)

    assert cut.content == api.bodies[0][:20]


async def test_the_first_byte_can_be_slow() -> None:
    reply = Slow("Fine.", 0.2)

    async with FakeAnthropic([reply, reply, Slow(ApiError(400, "x", "y"), 9)]) as api:
        for timeout, stream in ((0.05, False), (0.05, True)):
            async with connected(api, timeout=timeout) as client:
                with pytest.raises(APITimeoutError):
                    await client.messages.create(**asking(HI), stream=stream)
        async with connected(api, timeout=0.05) as client:
            with pytest.raises(APITimeoutError):
                await client.messages.create(**asking(HI))


async def test_a_slow_reply_is_whole_in_the_end() -> None:
    reply = Slow(Slow("Fine.", 0.05), 0.05, at_byte=50)

    async with FakeAnthropic([reply]) as api:
        began = time.monotonic()
        events = await streamed(api, asking(HI))

    assert events[-1].type == "message_stop"
    assert time.monotonic() - began >= 0.1


async def test_a_stream_can_stall_and_the_client_can_leave() -> None:
    stalled = Slow("One two three four five.", 30, at_byte=800)

    began = time.monotonic()
    async with (
        FakeAnthropic([stalled]) as api,
        connected(api) as client,
        await client.messages.create(**asking(HI), stream=True) as stream,
    ):
        async for event in stream:
            if event.type == "content_block_delta":
                break

    assert event.type == "content_block_delta"
    assert time.monotonic() - began < 10


# --- The end ------------------------------------------------------------------


async def test_leaving_the_block_ends_every_connection() -> None:
    before = asyncio.all_tasks()
    asked = asyncio.Event()

    def late(_: Json) -> Slow:
        asked.set()
        return Slow("Late.", 30)

    async with FakeAnthropic([late]) as api:
        host, port = api.url.removeprefix("http://").split(":")
        connections = [await asyncio.open_connection(host, int(port)) for _ in range(3)]
        _, half, whole = [writer for _, writer in connections]
        half.write(b"POST /v1/messages HTTP/1.1\r\ncontent-length: 9\r\n\r\n{")
        head = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
        head += f"content-length: {len(GOOD)}\r\n"
        whole.write(f"POST /v1/messages HTTP/1.1\r\n{head}\r\n".encode() + GOOD)
        await asyncio.wait_for(asked.wait(), 10)

    assert asyncio.all_tasks() == before
    for reader, writer in connections:
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()
        await writer.wait_closed()
    with pytest.raises(ConnectionError):
        await asyncio.open_connection(host, int(port))
    gc.collect()  # a socket left open would warn, and a warning is an error


async def test_an_error_in_the_block_goes_through() -> None:
    async with FakeAnthropic([]) as api:
        with pytest.raises(InternalServerError):
            await send(api, asking(HI))

    with pytest.raises(AssertionError, match="found no reply"):
        async with api:
            api.assert_done()


def test_the_double_needs_neither_pytest_nor_the_client() -> None:
    code = (
        "import sys; sys.modules['pytest'] = sys.modules['anthropic'] = None\n"
        "from minagent.testing import FakeAnthropic; FakeAnthropic(['Hello.'])"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr


def test_each_rule_is_in_the_table_and_is_broken_here() -> None:
    in_code = {*rules.RULES, "auth", "version", "schema", "V7"}
    table = re.findall(r"^    (\w+) {2,}", str(rules.__doc__), re.MULTILINE)
    broken = {rule for rule, *_ in [*BROKEN.values(), *THINKING_BROKEN.values()]}
    broken |= {rule for _, rule, *_ in RAW.values()}

    assert table[0] == "rule"
    assert sorted(table[1:]) == sorted(in_code)
    assert broken == in_code
