"""Claude through its real client, over the double's real socket."""

import asyncio
import json
import os
import sys
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import anthropic
import pytest
from claude import HIDDEN, MODEL, TEXT, THOUGHT, Block, claude, cold, events, look, said
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from strategies import json_objects, json_values

from minagent import (
    Agent,
    Event,
    ExecutionContext,
    InMemorySessionManager,
    Media,
    Message,
    ModelRequest,
    Note,
    Opaque,
    Reasoning,
    ReasoningDelta,
    TextDelta,
    Tool,
    ToolCall,
    ToolInputDelta,
    ToolResult,
    Usage,
    pending_tool_calls,
    tool,
)
from minagent.events import well_formed
from minagent.models.anthropic import (
    BINDING_BETA,
    AnthropicModel,
    MissingKeyError,
    ReplyBrokenOffError,
    UnknownDeltaError,
)
from minagent.models.anthropic_blocks import canonical
from minagent.testing import ApiError, Cut, Edited, FakeAnthropic, Slow


@pytest.fixture(params=[True, False], ids=["streamed", "whole"])
def stream(request: pytest.FixtureRequest) -> bool:
    """Each way in which a reply may come."""
    found: bool = request.param
    return found


@pytest.fixture
def looked() -> list[str]:
    """What the tool was asked for."""
    return []


@pytest.fixture
def looking(looked: list[str]) -> Tool[..., Any]:
    def look(path: str) -> str:
        """Look at a file."""
        looked.append(path)
        return f"All is well in {path}."

    return tool(look)


numbers = count()
Talk: TypeAlias = tuple[list[Any], FakeAnthropic, AnthropicModel]


@pytest.fixture
async def talk(stream: bool) -> AsyncIterator[Talk]:
    """What is to be replied next, the double, and a model that talks to it."""
    script: list[Any] = []
    endless = iter(lambda: script.pop(0), None)
    async with claude(endless, stream=stream) as (api, model):
        yield script, api, model


def silent(item: object) -> None:
    """Takes what a model emits, and shows nothing."""


def request(*log: Event, **more: Any) -> ModelRequest:
    asked = log or (Event(author="user", content=(Message(role="user", content="1"),)),)
    return ModelRequest(more.pop("instructions", None), asked, **more)


def same(one: object, other: object) -> bool:
    return canonical(one) == canonical(other)


# --- What is sent ---------------------------------------------------------------


async def test_a_request_has_the_prompt_the_tools_and_the_words(
    looking: Tool[..., Any], stream: bool
) -> None:
    async with claude(["One."], stream=stream) as (api, model):
        agent = Agent(model, instructions="Be brief.", tools=[looking])

        await agent.run("1?")

    [body] = api.requests
    assert body.pop("stream", False) is stream
    assert body == {
        "model": MODEL,
        "max_tokens": 1024,
        "system": "Be brief.",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "1?"}]}],
        "tools": [
            {
                "name": "look",
                "description": "Look at a file.",
                "input_schema": dict(looking.spec.parameters),
            }
        ],
        "cache_control": {"type": "ephemeral"},
    }


@pytest.mark.parametrize("instructions", [None, "", " \n"])
def test_what_there_is_none_of_is_not_sent(instructions: str | None) -> None:
    model = AnthropicModel(MODEL, max_tokens=1, base_url="http://x", cache=False)

    sent = model.arguments(request(instructions=instructions))

    assert sorted(sent) == ["max_tokens", "messages", "model"]


def test_extra_is_merged_into_the_call() -> None:
    search = {"type": "web_search_20260101", "name": "web_search"}
    model = AnthropicModel(
        MODEL,
        max_tokens=1,
        base_url="http://x",
        extra={
            "tools": [search],
            "betas": ["a-beta"],
            "metadata": {"user_id": "ann"},
            "output_config": {"effort": "low"},
            "cache_control": {"type": "ephemeral", "ttl": "1h"},
        },
    )
    schema = {"type": "object", "properties": {}}

    sent = model.arguments(request(output_schema=schema))

    assert sent["tools"] == [search]
    assert sent["betas"] == ["a-beta"]
    assert sent["metadata"] == {"user_id": "ann"}
    assert sent["output_config"]["effort"] == "low"
    assert sent["output_config"]["format"]["type"] == "json_schema"
    assert sent["cache_control"] == {"type": "ephemeral", "ttl": "1h"}


async def test_betas_go_out_as_a_header() -> None:
    async with claude(["One."], extra={"betas": ["a-beta"]}) as (api, model):
        await Agent(model).run("1?")

    assert api.headers[0]["anthropic-beta"] == "a-beta"


def test_an_output_schema_is_sent_as_the_api_takes_it() -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 1}},
        "required": ["n"],
    }
    model = AnthropicModel(MODEL, max_tokens=1, base_url="http://x")

    sent = model.arguments(request(output_schema=schema))["output_config"]["format"]

    assert sent["type"] == "json_schema"
    assert sent["schema"]["additionalProperties"] is False
    assert "minimum" not in sent["schema"]["properties"]["n"]


@pytest.mark.parametrize(
    "schema",
    [{}, {"type": "object", "additionalProperties": {"type": "integer"}}],
    ids=["anything", "any keys"],
)
def test_an_output_schema_that_the_api_cannot_hold_is_left_to_the_agent(
    schema: Any,
) -> None:
    model = AnthropicModel(MODEL, max_tokens=1, base_url="http://x")

    assert "output_config" not in model.arguments(request(output_schema=schema))


async def test_what_is_not_streamed_may_be_long() -> None:
    """The client refuses so many tokens at once, unless it is told how long to wait."""
    async with claude(["One."], stream=False, max_tokens=64_000) as (_, model):
        result = await Agent(model).run("1?")

    assert result.output == "One."


async def test_a_clients_own_timeout_stands() -> None:
    async with FakeAnthropic([Slow("One.", 30)]) as api:
        client = anthropic.AsyncAnthropic(
            api_key="k", base_url=api.url, timeout=0.05, max_retries=0
        )
        model = AnthropicModel(MODEL, max_tokens=64_000, client=client, stream=False)

        async with client:
            with pytest.raises(anthropic.APITimeoutError):
                await Agent(model).run("1?")


# --- Wrong use ------------------------------------------------------------------


@pytest.fixture
def no_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("ANTHROPIC_")]:
        monkeypatch.delenv(name)
    for name in ("HOME", "XDG_CONFIG_HOME"):  # where the client looks for others
        monkeypatch.setenv(name, str(tmp_path))


@pytest.mark.usefixtures("no_key")
def test_a_missing_key_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(MissingKeyError) as caught:
        AnthropicModel(MODEL, max_tokens=1)

    for way_out in ("ANTHROPIC_API_KEY", "client=", "OfflineModel"):
        assert way_out in str(caught.value)


@pytest.mark.usefixtures("no_key")
async def test_another_server_needs_no_key() -> None:
    async with claude(["One."]) as (api, model):
        await Agent(model).run("1?")

    assert api.headers[0]["authorization"] == "Bearer none"


async def test_a_key_from_the_environment_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")

    async with claude(["One."]) as (api, model):
        await Agent(model).run("1?")

    assert api.headers[0]["authorization"] == "Bearer sk-test"


@pytest.mark.parametrize(
    "options",
    [
        {"max_tokens": 0},
        {"max_tokens": 1, "client": anthropic.AsyncAnthropic(api_key="k")},
        {"max_tokens": 1, "extra": {"thinking": {"type": "disabled"}}},
        {"max_tokens": 1, "extra": {"messages": []}},
    ],
)
def test_options_that_make_no_sense_fail_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"max_tokens|client|extra"):
        AnthropicModel(MODEL, base_url="http://x", **options)


@pytest.mark.parametrize(
    ("status", "kind", "advice"),
    [
        (401, "authentication_error", "ANTHROPIC_API_KEY"),
        (403, "permission_error", MODEL),
        (404, "not_found_error", MODEL),
    ],
)
async def test_the_apis_error_comes_with_a_note_that_says_what_to_do(
    status: int, kind: str, advice: str, stream: bool
) -> None:
    replies = [ApiError(status, kind, "no")]
    async with claude(replies, stream=stream) as (_, model):
        with pytest.raises(anthropic.APIStatusError) as caught:
            await Agent(model).run("1?")

    assert caught.value.status_code == status
    assert advice in "".join(caught.value.__notes__)


async def test_the_client_tries_again_and_the_run_does_not_notice(stream: bool) -> None:
    overloaded = ApiError(529, "overloaded_error", "later", retry_after=0.01)
    async with claude([overloaded, "One."], stream=stream) as (api, model):
        result = await Agent(model).run("1?")

    assert result.output == "One."
    assert len(api.requests) == 2


async def test_after_a_failure_a_run_without_input_goes_on() -> None:
    replies = [ApiError(400, "invalid_request_error", "no"), "One."]
    async with claude(replies) as (api, model):
        agent = Agent(model)
        with pytest.raises(anthropic.BadRequestError):
            await agent.run("1?", session_id="s")

        result = await agent.run(session_id="s")

    assert result.output == "One."
    assert [len(body["messages"]) for body in api.requests] == [1, 1]


def test_one_model_serves_one_event_loop_after_another() -> None:
    ready, done = threading.Event(), threading.Event()
    urls: list[str] = []

    async def serve() -> None:
        async with FakeAnthropic(["One.", "Two."]) as api:
            urls.append(api.url)
            ready.set()
            await asyncio.to_thread(done.wait, 30)

    async def ask() -> str:
        found: str = (await Agent(model).run("1?")).output
        await model.aclose()
        return found

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        ready.wait(30)
        model = AnthropicModel(MODEL, max_tokens=1, base_url=urls[0])

        assert [asyncio.run(ask()), asyncio.run(ask())] == ["One.", "Two."]
    finally:
        done.set()
        thread.join()


# --- What comes back ------------------------------------------------------------


async def test_a_reply_says_what_it_cost_and_which_request_it_was(stream: bool) -> None:
    usage = {
        "input_tokens": 3,
        "output_tokens": 5,
        "cache_read_input_tokens": 7,
        "cache_creation_input_tokens": 11,
    }
    reply = {"content": ["One."], "usage": usage, "model": "claude-opus-5-5-20261001"}
    sessions = InMemorySessionManager()
    async with claude([reply], stream=stream) as (_, model):
        await Agent(model, session_manager=sessions).run("1?", session_id="s")

    event = (await events(sessions))[-1]
    assert event.usage == Usage(
        input_tokens=3, output_tokens=5, cache_read_tokens=7, cache_write_tokens=11
    )
    assert event.model == "claude-opus-5-5-20261001"
    assert event.stop_reason == "end_turn"
    assert event.request_id is not None
    assert event.request_id.startswith("req_")


async def test_a_figure_that_comes_once_stands() -> None:
    """At its end a stream repeats the totals, but not all of them."""

    def edit(sent: list[Block]) -> list[Block]:
        last = {"output_tokens": 5, "input_tokens": None}
        return [e | {"usage": last} if "usage" in e else e for e in sent]

    usage = {"input_tokens": 3, "cache_read_input_tokens": 7, "output_tokens": 1}
    reply = Edited({"content": ["One."], "usage": usage}, edit)
    async with claude([reply]) as (_, model):
        response = await model.generate(request(), silent)

    assert response.usage == Usage(input_tokens=3, output_tokens=5, cache_read_tokens=7)


async def test_deltas_joined_are_what_is_stored(looking: Tool[..., Any]) -> None:
    reply = [
        THOUGHT,
        {"type": "text", "text": "Joined 👩‍👩‍👧 and half \ud83d, "},
        {"type": "text", "text": "and two halves \ud83d\ude42 \ud83d"},
        look("é/🙂.md"),
    ]
    async with claude([reply, "One."]) as (_, model):
        agent = Agent(model, tools=[looking])
        async with agent.stream("1?") as stream:
            seen = [item async for item in stream]

    [event, _, last] = [i for i in seen if isinstance(i, Event) and i.author != "user"]
    thought, *words, call = event.content
    assert thought == Reasoning(
        content="".join(item.text for item in seen if isinstance(item, ReasoningDelta)),
        signature=THOUGHT["signature"],
    )
    shown = "".join(item.text for item in seen if isinstance(item, TextDelta))
    assert shown == "".join(
        getattr(each, "content", "") for each in (*words, *last.content)
    )
    assert "half \ufffd, and two halves 🙂 \ufffd" in shown
    inputs = [item for item in seen if isinstance(item, ToolInputDelta)]
    assert isinstance(call, ToolCall)
    assert json.loads("".join(each.text for each in inputs)) == call.arguments
    assert {(each.tool_call_id, each.name) for each in inputs} == {("toolu_1", "look")}


letters = st.text(st.characters(exclude_categories=()), max_size=20)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=letters, thought=letters)
@example(text="five\ud83d\ude42", thought="five\ud83d\ude42")  # the double parts them
async def test_o09_deltas_are_well_formed_wherever_the_stream_parts_an_emoji(
    text: str, thought: str, stream: bool, talk: Talk
) -> None:
    """What is not streamed has no deltas."""
    script, _, model = talk
    thinking = THOUGHT | {"thinking": thought, "signature": str(next(numbers))}
    script[:] = [[thinking, {"type": "text", "text": text}]]
    shown: list[Any] = []

    response = await model.generate(request(), shown.append)

    kept, words = response.content
    assert isinstance(kept, Reasoning)
    assert isinstance(words, Message)
    assert (kept.content, words.content) == (well_formed(thought), well_formed(text))
    for item, kind in ((kept, ReasoningDelta), (words, TextDelta)):
        parts = [each.text for each in shown if isinstance(each, kind)]
        assert "".join(parts) in ([item.content] if stream else [""])


async def test_o04_what_is_empty_is_no_reason_to_be_refused(
    looking: Tool[..., Any], stream: bool
) -> None:
    empty = {"type": "text", "text": ""}
    replies = [[empty, look()], [], [empty], "Four."]

    def hush(context: ExecutionContext, result: ToolResult) -> ToolResult:
        return replace(result, content="")

    async with claude(replies, stream=stream) as (api, model):
        agent = Agent(model, tools=[looking], after_tool_callbacks=[hush])
        outputs = [
            (await agent.run(question, session_id="s")).output
            for question in ("1?", "2?", "3?")
        ]

    assert outputs == ["", "", "Four."]
    assert api.refusals == []
    api.assert_done()


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ('{"path": "a', "no JSON object"),
        ("[1, 2]", "no JSON object"),
        ('"a"', "no JSON object"),
        ('{"path": NaN}', "no JSON object"),
        ('{"path": 1}', "do not fit"),
    ],
)
async def test_o07_an_input_that_cannot_be_used_is_answered_and_not_run(
    given: str, problem: str, looking: Tool[..., Any], looked: list[str]
) -> None:
    bad = [look() | {"input": given}]
    good = [look("b.md", "toolu_2")]
    async with claude([bad, good, "One."]) as (api, model):
        result = await Agent(model, tools=[looking]).run("1?")

    assert result.output == "One."
    assert looked == ["b.md"]
    [answer] = said(api, 2)
    assert answer["is_error"] is True
    assert problem in answer["content"]
    api.assert_done()


async def test_o07_an_input_that_is_no_object_is_sent_back_as_an_empty_one(
    looking: Tool[..., Any], stream: bool
) -> None:
    """The double refuses any other (V8)."""
    bad = [look() | {"input": '{"path": "a'}]
    async with claude([bad, "One."], stream=stream) as (api, model):
        await Agent(model, tools=[looking]).run("1?")

    assert said(api)[0]["input"] == {}


# Events of unknown types may come between any two others.
def with_news(sent: list[Block]) -> list[Block]:
    news = {"type": "brand_new_event", "payload": {"a": 1}}
    return [each for event in sent for each in (event, news)]


async def test_events_of_unknown_types_are_skipped(looking: Tool[..., Any]) -> None:
    reply = Edited([THOUGHT, TEXT, look()], with_news)
    async with claude([reply, Edited("One.", with_news)]) as (api, model):
        result = await Agent(model, tools=[looking]).run("1?")

    assert result.output == "One."
    assert same(said(api), [THOUGHT, TEXT, look()])


# --- O05, O06 and any block -----------------------------------------------------

O05 = {
    "as in the report": [THOUGHT, HIDDEN, TEXT, look()],
    "no text": [THOUGHT | {"thinking": ""}, HIDDEN, TEXT, look()],
    "odd letters": [THOUGHT | {"thinking": "🙂 a\u2028b\u2029c \x00 é"}, TEXT, look()],
    "long seal": [THOUGHT | {"signature": "Eq/+" * 1_000}, HIDDEN, look()],
}
O06 = {
    "unknown blocks and fields": [
        THOUGHT,
        {"type": "brand_new", "payload": {"a": [1, 1.0, None, {"b": False}]}},
        TEXT | {"brand_new_field": {"x": None}, "citations": None},
        look(caller={"type": "direct"}, brand_new_field=[1]),
    ]
}
OTHERS = {
    "citations": [
        TEXT | {"citations": [{"type": "char_location", "cited_text": "H", "x": None}]},
        look(),
    ],
    "tools of the vendor": [
        {
            "type": "server_tool_use",
            "id": "srvtoolu_1",
            "name": "web_search",
            "input": {"query": "é"},
        },
        {
            "type": "web_search_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": [{"type": "web_search_result", "url": "u", "page_age": None}],
        },
        TEXT,
        look(),
    ],
    "a document inside a result": [
        {
            "type": "server_tool_use",
            "id": "srvtoolu_1",
            "name": "web_fetch",
            "input": {"url": "u"},
        },
        {
            "type": "web_fetch_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": {
                "type": "web_fetch_result",
                "retrieved_at": "2026-11-30T12:00:00Z",
                "content": {
                    "type": "document",
                    "source": {"type": "text", "data": "D"},
                },
            },
        },
        look(),
    ],
    "a picture": [
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": "aGk="},
        },
        look(),
    ],
    "calls only": [look(), look("b.md", "toolu_2")],
}


@pytest.mark.parametrize("named", [*O05, *O06, *OTHERS])
async def test_o05_o06_a_reply_goes_back_as_it_came_after_a_restart(
    named: str, stream: bool, looking: Tool[..., Any], tmp_path: Path
) -> None:
    reply = (O05 | O06 | OTHERS)[named]
    path = tmp_path / "s.db"
    async with claude([reply, "One.", "Two."], stream=stream) as (api, model):
        async with cold(path) as sessions:
            agent = Agent(model, tools=[looking], session_manager=sessions)
            await agent.run("1?", session_id="s")
        in_the_turn = said(api)
        async with cold(path) as sessions:
            agent = Agent(model, tools=[looking], session_manager=sessions)
            result = await agent.run("2?", session_id="s")
            log = await events(sessions)

    assert same(in_the_turn, reply)
    assert same(said(api), reply)
    assert result.output == "Two."
    assert "Let me look." not in result.output
    assert all(repr(item) for event in log for item in event.content)  # it prints
    api.assert_done()


async def test_o06_unknown_blocks_are_kept_apart_from_the_words(
    looking: Tool[..., Any], stream: bool
) -> None:
    [reply] = O06.values()
    async with claude([[*reply[:3]]], stream=stream) as (_, model):
        result = await Agent(model, tools=[looking]).run("1?")

    assert result.output == "Let me look."
    assert Opaque(block=reply[1]) in result.context.events[-1].content


words = st.text(min_size=1).filter(str.strip)
ids = st.uuids().map(lambda each: f"toolu_{each.hex}")
extras = st.dictionaries(st.sampled_from(["new", "newer"]), json_values, max_size=2)
# The double knows each seal again, so there is a new one each time.
sealed = st.text(max_size=60).map(lambda each: f"{next(numbers)}{each}")


def block(kind: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Block]:
    made = st.fixed_dictionaries({"type": st.just(kind), **fields})
    return st.builds(lambda extra, known: extra | known, extras, made)


citations = st.lists(
    st.fixed_dictionaries({"type": st.just("char_location"), "cited_text": words}),
    min_size=1,
    max_size=2,
)
said_blocks = st.one_of(
    block("text", text=words),
    block("text", text=words, citations=citations),
    block("thinking", thinking=st.text(), signature=sealed),
    block("redacted_thinking", data=sealed),
    block("tool_use", id=ids, name=st.just("look"), input=json_objects),
    block("brand_new", payload=json_values),
    block(
        "image",
        source=st.just({"type": "base64", "media_type": "image/png", "data": "aGk="}),
    ),
)
searches = st.builds(
    lambda call_id, given, found: [
        {"type": "server_tool_use", "id": call_id, "name": "s", "input": given},
        {"type": "web_search_tool_result", "tool_use_id": call_id, "content": found},
    ],
    ids,
    json_objects,
    json_values,
)
any_replies = st.builds(
    lambda parts, end: [*(each for part in parts for each in part), end],
    st.lists(said_blocks.map(lambda one: [one]) | searches, max_size=5),
    block("text", text=words),  # a reply does not end in a thought
)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(reply=any_replies)
async def test_any_reply_goes_back_as_it_came_after_a_restart(
    reply: list[Block], talk: Talk, looking: Tool[..., Any], tmp_path: Path
) -> None:
    script, api, model = talk
    path = tmp_path / f"{next(numbers)}.db"
    calls = any(each["type"] == "tool_use" for each in reply)
    script[:] = [reply, *(["Done."] if calls else []), "Two."]

    for question in ("1?", "2?"):
        async with cold(path) as sessions:
            agent = Agent(model, tools=[looking], session_manager=sessions)
            await agent.run(question, session_id="s")

    assert same(said(api), reply)
    assert script == []


PROGRAM = """
import asyncio, sys
from minagent import Agent
from minagent.models import AnthropicModel
from minagent.stores import SQLiteSessionManager

async def main(url, path):
    model = AnthropicModel("claude-opus-5-5", max_tokens=1024, base_url=url)
    async with model, SQLiteSessionManager(path) as sessions:
        await Agent(model, session_manager=sessions).run("2?", session_id="s")

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.heavy
async def test_a_reply_goes_back_as_it_came_from_another_process(
    stream: bool, looking: Tool[..., Any], tmp_path: Path
) -> None:
    reply = [*OTHERS["tools of the vendor"][:2], *O06["unknown blocks and fields"]]
    path = tmp_path / "s.db"
    async with claude([reply, "One.", "Two."], stream=stream) as (api, model):
        async with cold(path) as sessions:
            agent = Agent(model, tools=[looking], session_manager=sessions)
            await agent.run("1?", session_id="s")
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROGRAM, api.url, str(path)
        )

        assert await child.wait() == 0

    assert same(said(api), reply)
    api.assert_done()


# --- Stop reasons ---------------------------------------------------------------


@pytest.mark.parametrize(
    "reason",
    [
        *("end_turn", "stop_sequence", "max_tokens", "refusal"),
        *("model_context_window_exceeded", "brand_new_reason"),
    ],
)
async def test_a_reply_without_calls_ends_the_run_whatever_its_reason(
    reason: str, stream: bool
) -> None:
    reply = {"content": ["One."], "stop_reason": reason}
    async with claude([reply], stream=stream) as (api, model):
        result = await Agent(model).run("1?")

    assert (result.output, result.stop_reason) == ("One.", reason)
    api.assert_done()


@pytest.mark.parametrize(
    "reason", ["refusal", "model_context_window_exceeded", "brand_new_reason"]
)
async def test_a_call_in_a_reply_that_ends_the_run_is_answered_and_not_run(
    reason: str, looking: Tool[..., Any], looked: list[str], stream: bool
) -> None:
    reply = {"content": [THOUGHT, look()], "stop_reason": reason}
    async with claude([reply, "Two."], stream=stream) as (api, model):
        agent = Agent(model, tools=[looking])
        result = await agent.run("1?", session_id="s")
        await agent.run("2?", session_id="s")

    assert result.stop_reason == reason
    assert looked == []
    sent = json.dumps(api.requests[-1]["messages"])
    assert ("Not run" in sent) is (reason != "refusal")  # which is left out
    api.assert_done()


async def test_o07_a_call_that_was_cut_off_by_the_limit_is_answered_and_not_run(
    looking: Tool[..., Any], looked: list[str]
) -> None:
    half = [look() | {"input": '{"path": "a'}]
    reply = {"content": half, "stop_reason": "max_tokens"}
    async with claude([reply, "One."]) as (api, model):
        result = await Agent(model, tools=[looking]).run("1?")

    assert result.output == "One."
    assert looked == []
    assert "cut off" in said(api, 2)[0]["content"]


async def test_a_paused_turn_is_sent_back_as_it_came_and_goes_on(stream: bool) -> None:
    search, found = OTHERS["tools of the vendor"][:2]
    paused = {"content": [THOUGHT, search], "stop_reason": "pause_turn"}
    rest = [found, THOUGHT | {"signature": "bmV4dA=="}, TEXT]
    async with claude([paused, rest, "Two."], stream=stream) as (api, model):
        agent = Agent(model)
        result = await agent.run("1?", session_id="s")
        paused_request = api.requests[1]["messages"]
        await agent.run("2?", session_id="s")

    assert result.output == "Let me look."
    assert same(paused_request[-1]["content"], [THOUGHT, search])
    assert same(said(api), [THOUGHT, search, *rest])
    assert "thinking" not in api.requests[-1]  # nothing is stale
    api.assert_done()


async def test_v3_a_turn_with_an_open_call_of_the_vendor_gets_results_only(
    looking: Tool[..., Any], stream: bool
) -> None:
    """A Note that is recorded meanwhile does not stand beside the results."""
    search, found = OTHERS["tools of the vendor"][:2]

    async def note(context: ExecutionContext, event: Event) -> None:
        if any(isinstance(item, ToolResult) for item in event.content):
            await context.record(Note(kind="hint", text="Mind the gap."))

    replies = [[search, look()], [found, "One."], "Two."]
    async with claude(replies, stream=stream) as (api, model):
        agent = Agent(model, tools=[looking], on_event=note)
        await agent.run("1?", session_id="s")
        await agent.run("2?", session_id="s")

    [answer] = said(api, 2)
    assert [each["text"] for each in answer["content"]] == [
        "All is well in a.md.",
        "Mind the gap.",
    ]
    api.assert_done()


# --- A stream that breaks off -----------------------------------------------------


def inserted(*news: Block, behind: str) -> Any:
    """Put events behind the first one of a type."""

    def edit(sent: list[Block]) -> list[Block]:
        at = [each["type"] for each in sent].index(behind) + 1
        return [*sent[:at], *news, *sent[at:]]

    return edit


async def test_a_delta_of_an_unknown_type_is_an_error_that_names_the_way_out(
    looking: Tool[..., Any], looked: list[str]
) -> None:
    """Whole blocks came before it, and nothing of the reply is stored."""
    news = {
        "type": "content_block_delta",
        "index": 2,
        "delta": {"type": "brand_new_delta", "payload": 1},
    }

    def edit(sent: list[Block]) -> list[Block]:
        at = max(
            n for n, each in enumerate(sent) if each["type"] == "content_block_stop"
        )
        return [*sent[:at], news, *sent[at:]]

    reply = Edited([THOUGHT, TEXT, look()], edit)
    sessions = InMemorySessionManager()
    async with claude([reply]) as (_, model):
        agent = Agent(model, tools=[looking], session_manager=sessions)
        with pytest.raises(UnknownDeltaError, match=r"brand_new_delta.*stream=False"):
            await agent.run("1?", session_id="s")

    assert [event.author for event in await events(sessions)] == ["user"]
    assert looked == []


async def test_the_way_out_of_an_unknown_delta_works(looking: Tool[..., Any]) -> None:
    reply = [THOUGHT, TEXT, look()]
    news = {"type": "brand_new_delta", "payload": 1}
    odd = inserted(
        {"type": "content_block_delta", "index": 0, "delta": news},
        behind="content_block_start",
    )
    replies = [Edited(reply, odd), reply, "One."]
    async with claude(replies) as (api, model):
        agent = Agent(model, tools=[looking])
        with pytest.raises(UnknownDeltaError):
            await agent.run("1?", session_id="s")
        async with AnthropicModel(
            MODEL, max_tokens=1024, base_url=api.url, stream=False
        ) as whole:
            agent.model = whole

            result = await agent.run(session_id="s")

    assert result.output == "One."
    assert same(said(api), reply)


async def test_an_error_in_the_middle_of_a_stream_is_the_clients_error(
    looking: Tool[..., Any], looked: list[str]
) -> None:
    """It came with status 200, so the client does not try again."""
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "later"}}
    broken = Edited(
        [THOUGHT, TEXT, look()], inserted(error, behind="content_block_stop")
    )
    sessions = InMemorySessionManager()
    async with claude([broken, "One."]) as (api, model):
        agent = Agent(model, tools=[looking], session_manager=sessions)
        with pytest.raises(anthropic.APIStatusError) as caught:
            await agent.run("1?", session_id="s")
        result = await agent.run(session_id="s")

    assert caught.value.status_code == 200
    event = (await events(sessions))[1]
    assert event.interrupted
    assert [type(item) for item in event.content] == [Reasoning]
    assert result.output == "One."
    assert len(api.requests) == 2


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "torn"])
async def test_a_stream_without_an_end_is_an_error_that_keeps_whole_blocks(
    clean: bool, looking: Tool[..., Any], looked: list[str]
) -> None:
    sessions = InMemorySessionManager()
    size = await whole_size([THOUGHT, TEXT, look()])
    cut = Cut([THOUGHT, TEXT, look()], size - 20, clean=clean)
    async with claude([cut, "Two."]) as (api, model):
        agent = Agent(model, tools=[looking], session_manager=sessions)
        with pytest.raises(ReplyBrokenOffError, match="run without input"):
            await agent.run("1?", session_id="s")
        await agent.run("2?", session_id="s")

    broken, answer = (await events(sessions))[1:3]
    assert broken.interrupted
    assert [type(i) for i in broken.content] == [Reasoning, Message, ToolCall]
    assert [item.status for item in answer.content if isinstance(item, ToolResult)] == [
        "cancelled"
    ]
    assert looked == []
    assert same(said(api), [THOUGHT, TEXT, look()])
    api.assert_done()


async def whole_size(reply: Any) -> int:
    async with claude([reply]) as (api, model):
        await model.generate(request(), silent)
    return len(api.bodies[0])


async def test_cancelling_in_the_middle_of_a_stream_keeps_what_was_whole(
    looking: Tool[..., Any],
) -> None:
    size = await whole_size([THOUGHT, TEXT])
    slow = Slow([THOUGHT, TEXT, look()], 60, at_byte=size - 150)
    sessions = InMemorySessionManager()
    async with claude([slow, "Two."]) as (api, model):
        agent = Agent(model, tools=[looking], session_manager=sessions)
        async with agent.stream("1?", session_id="s") as stream:
            async for item in stream:
                if isinstance(item, TextDelta):
                    break

        result = await agent.run("2?", session_id="s")

    broken = (await events(sessions))[1]
    assert broken.interrupted
    assert [type(item) for item in broken.content] == [Reasoning]
    assert result.output == "Two."
    assert [each["role"] for each in api.requests[-1]["messages"]] == ["user"]


# --- Preserved thinking ------------------------------------------------------------


def thinks(*parts: Block | str) -> list[Block | str]:
    """A reply with a thought of its own in front."""
    seal = f"seal-{next(numbers)}"
    return [THOUGHT | {"signature": seal}, *parts]


def drops_stale(body: Block) -> bool:
    """Whether a request has the API drop thinking that is bound to something else."""
    binding = body.get("thinking", {}).get("block_binding")
    return bool(binding == {"prefix_mismatch_behavior": "drop_block"})


@pytest.mark.parametrize(
    "thinking", [None, {"type": "adaptive"}, {"type": "enabled", "budget_tokens": 1024}]
)
async def test_every_request_of_a_changeable_conversation_is_accepted(
    thinking: Block | None, stream: bool, looking: Tool[..., Any], tmp_path: Path
) -> None:
    sent: list[str] = []

    def send(to: str) -> str:
        """Send a mail."""
        sent.append(to)
        return "Sent."

    mail = tool(requires_confirmation=True)(send)
    call = look() | {"id": "toolu_9", "name": "send", "input": {"to": "bob"}}

    def last_question(context: ExecutionContext, asked: ModelRequest) -> ModelRequest:
        log = list(asked.events)
        starts = [n for n, event in enumerate(log) if event.author == "user"]
        return ModelRequest(asked.instructions, log[starts[-2] :], asked.tools)

    replies = [
        thinks(look()),
        thinks(TEXT, look("b.md", "toolu_2"), look("c.md", "toolu_3")),
        thinks("One."),
        thinks(HIDDEN, TEXT, call),
        thinks("Two."),
        thinks("Three."),
        thinks("Four."),
        thinks(look("d.md", "toolu_4")),
        thinks("Five."),
        thinks("Six."),
        thinks("Seven."),
        thinks("Eight."),
    ]
    async with claude(replies, stream=stream, thinking=thinking) as (api, model):

        async def ask(question: str | None, **how: Any) -> None:
            """Each time as another process would, with what the code has by then."""
            decisions = how.pop("tool_confirmations", ())
            settings = {"instructions": "Be brief.", "tools": [looking, mail]} | how
            async with cold(tmp_path / "s.db") as sessions:
                agent = Agent(model, session_manager=sessions, **settings)
                await agent.run(question, session_id="s", tool_confirmations=decisions)

        async def note(context: ExecutionContext, event: Event) -> None:
            if event.author == "user":
                await context.record(Note(kind="hint", text="Mind the gap."))

        await ask("1?")
        await ask("2?")
        async with cold(tmp_path / "s.db") as sessions:
            session = await sessions.get("s")
            assert session is not None
            [pending] = pending_tool_calls(session)
        await ask(None, tool_confirmations=[pending.approve(arguments={"to": "ann"})])
        await ask("3?", on_event=note)
        unchanged = len(api.requests)
        await ask("4?", instructions="Be long.")
        await ask("5?", tools=[looking])
        await ask("6?", before_llm_callbacks=[last_question])
        await ask("7?")
        await ask("8?", instructions=None, tools=[])

        assert api.refusals == []
        api.assert_done()

    assert sent == ["ann"]
    assert [drops_stale(body) for body in api.requests] == [
        *[False] * unchanged,
        *[True] * (len(replies) - unchanged),
    ]
    for body, headers in zip(api.requests, api.headers, strict=True):
        assert (BINDING_BETA in headers.get("anthropic-beta", "")) is drops_stale(body)
        kind = (thinking or {"type": "adaptive"})["type"]
        assert body.get("thinking", {"type": kind})["type"] == kind


async def test_a_reply_with_thinking_has_a_digest_of_what_it_is_bound_to(
    stream: bool,
) -> None:
    sessions = InMemorySessionManager()
    async with claude([thinks("One."), "Two."], stream=stream) as (_, model):
        agent = Agent(model, session_manager=sessions)
        await agent.run("1?", session_id="s")
        await agent.run("2?", session_id="s")

    _, first, _, second = await events(sessions)
    assert first.prefix_digest
    assert second.prefix_digest is None


async def test_after_thinking_that_was_interrupted_stale_thinking_is_dropped() -> None:
    """What it was bound to is not in the log, so the API has to decide."""
    reply = thinks(TEXT, "more")
    size = await whole_size(reply)
    async with claude([Cut(reply, size - 20), "Two."]) as (api, model):
        agent = Agent(model)
        with pytest.raises(ReplyBrokenOffError):
            await agent.run("1?", session_id="s")
        await agent.run("2?", session_id="s")

    assert drops_stale(api.requests[-1])
    assert api.refusals == []


async def test_with_thinking_disabled_none_is_sent() -> None:
    async with claude([thinks(HIDDEN, "One."), "Two."]) as (api, model):
        sessions = InMemorySessionManager()
        await Agent(model, session_manager=sessions).run("1?", session_id="s")
        off = AnthropicModel(
            MODEL, max_tokens=1024, base_url=api.url, thinking={"type": "disabled"}
        )
        async with off:
            await Agent(off, session_manager=sessions).run("2?", session_id="s")

    assert api.requests[-1]["thinking"] == {"type": "disabled"}
    assert said(api) == [{"type": "text", "text": "One."}]


async def test_a_kind_of_thinking_that_cannot_drop_what_is_stale_sends_none_of_it(
    stream: bool,
) -> None:
    options = {"thinking": {"type": "between_tools"}, "stream": stream}
    replies = [thinks("One."), thinks("Two."), thinks("Three."), "Four."]
    async with claude(replies, **options) as (api, model):
        sessions = InMemorySessionManager()

        async def ask(question: str, instructions: str) -> list[int]:
            agent = Agent(model, instructions=instructions, session_manager=sessions)
            await agent.run(question, session_id="s")
            messages = api.requests[-1]["messages"]
            return [len(each["content"]) for each in messages if each["role"] != "user"]

        assert await ask("1?", "Old.") == []
        assert await ask("2?", "Old.") == [2]
        assert await ask("3?", "New.") == [1, 1]
        assert await ask("4?", "New.") == [1, 1, 2]

    assert all(body["thinking"] == {"type": "between_tools"} for body in api.requests)
    assert api.refusals == []


def test_a_block_binding_of_ones_own_stands_and_gets_its_beta() -> None:
    own = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "error"}}
    model = AnthropicModel(MODEL, max_tokens=1, base_url="http://x", thinking=own)

    sent = model.arguments(request())

    assert sent["thinking"] == own
    assert sent["betas"] == [BINDING_BETA]


# --- O03: windows ------------------------------------------------------------------


def long_history(*, long_turn_last: bool) -> list[Event]:
    """Twelve turns: plain ones, one call, three calls side by side, ten in a row."""

    def turn(number: int, *calls: int) -> list[Event]:
        made = [event("user", Message(role="user", content=f"Question {number}"))]
        for step, beside in enumerate(calls):
            ids = [f"c{number}-{step}-{n}" for n in range(beside)]
            made.append(
                event(
                    "assistant",
                    *(
                        ToolCall(name="look", tool_call_id=i, arguments={"path": i})
                        for i in ids
                    ),
                )
            )
            made += [
                event(
                    "assistant", ToolResult(tool_call_id=i, name="look", content="Ok.")
                )
                for i in ids
            ]
        answer = Message(role="assistant", content=f"Answer {number}")
        return [*made, event("assistant", answer)]

    def event(author: str, *content: Any) -> Event:
        reply = any(isinstance(each, ToolCall) for each in content)
        reason = "tool_use" if reply else None
        return Event(author=author, content=content, stop_reason=reason)

    plans: list[tuple[int, ...]] = [
        (),
        (1,),
        (3,),
        (),
        (1,),
        (),
        (),
        (3,),
        (),
        (1,),
        (),
    ]
    plans.insert(11 if long_turn_last else 4, (1,) * 10)
    return [each for n, plan in enumerate(plans) for each in turn(n, *plan)]


@pytest.mark.parametrize("long_turn_last", [False, True])
async def test_o03_a_window_of_any_size_makes_a_request_that_is_accepted(
    long_turn_last: bool, looking: Tool[..., Any]
) -> None:
    history = long_history(long_turn_last=long_turn_last)
    size = 0

    def window(context: ExecutionContext, asked: ModelRequest) -> ModelRequest:
        """The last events, and what the user said last in any case."""
        log = asked.events
        newest = max(n for n, event in enumerate(log) if event.author == "user")
        start = min(len(log) - size, newest)
        return ModelRequest(asked.instructions, log[start:], asked.tools)

    sessions = InMemorySessionManager()
    script = (["Done."] for _ in range(len(history) + 1))
    async with claude(script) as (api, model):
        agent = Agent(
            model,
            instructions="Be brief.",
            tools=[looking],
            session_manager=sessions,
            before_llm_callbacks=[window],
        )
        for size in range(1, len(history) + 2):
            session = await sessions.create(f"s{size}")
            session.append(*history)
            await sessions.save(session)

            await agent.run("And now?", session_id=f"s{size}")

            kept = (await events(sessions, f"s{size}"))[: len(history)]
            assert list(kept) == history
            words = api.requests[-1]["messages"][-1]["content"][-1]
            assert words == {"type": "text", "text": "And now?"}

    assert api.refusals == []
    assert {body["system"] for body in api.requests} == {"Be brief."}
    api.assert_done()


# --- Odds and ends -----------------------------------------------------------------


async def test_pictures_and_documents_of_the_user_are_sent() -> None:
    media: list[Message | Media] = [
        Message(role="user", content="See."),
        Media(media_type="image/png", data="aGk="),
        Media(media_type="application/pdf", url="https://a.b/c.pdf"),
    ]
    async with claude(["One."]) as (api, model):
        await Agent(model).run(media)

    assert [each["type"] for each in said(api, 0)] == ["text", "image", "document"]


async def test_a_model_that_is_closed_may_be_used_again() -> None:
    async with claude(["One.", "Two."]) as (_, model):
        agent = Agent(model)
        await agent.run("1?")
        await model.aclose()
        await model.aclose()

        assert (await agent.run("2?")).output == "Two."
