"""Grades chapter 10: a compaction rule for one tool, in front of a limit."""

import json
from types import ModuleType

import pytest

from minagent import (
    Agent,
    InMemorySessionManager,
    ModelRequest,
    SessionManager,
    ToolCall,
    ToolResult,
    tool,
)
from minagent.models import ScriptedModel

ABOUT = "A quiet house by the harbour, with a garden, and breakfast until noon. " * 5
ANKER: dict[str, str | int] = {
    "id": "h1",
    "name": "Anker",
    "price": 120,
    "about": ABOUT,
}
BRISTOL: dict[str, str | int] = {
    "id": "h2",
    "name": "Bristol",
    "price": 95,
    "about": ABOUT,
}
SHORT = "find_hotels found in Oslo: h1 Anker 120, h2 Bristol 95"
CALL = ToolCall(name="find_hotels", arguments={"city": "Oslo"})


def found(content: str, name: str = "find_hotels") -> ToolResult:
    return ToolResult(tool_call_id=CALL.tool_call_id, name=name, content=content)


@tool
def find_hotels(city: str) -> list[dict[str, str | int]]:
    """Find hotels in a city."""
    return [ANKER, BRISTOL]


async def ask(
    sessions: SessionManager, work: ModuleType, limit: int, *steps: ToolCall | str
) -> ModelRequest:
    """Ask an agent of a program that was started anew; return what was sent last."""
    model = ScriptedModel(steps)
    agent = Agent(
        model,
        tools=[find_hotels],
        session_manager=sessions,
        before_llm_callbacks=work.windows(limit),
    )
    await agent.run("I am Ada, and go on.", session_id="trip")
    return model.requests[-1]


def results(request: ModelRequest) -> list[str]:
    items = [item for turn in request.turns for item in turn.content]
    return [item.content for item in items if isinstance(item, ToolResult)]


# --- The rule -----------------------------------------------------------------


def test_of_a_search_remain_ids_names_and_prices(work: ModuleType) -> None:
    shown = work.brief(CALL, found(json.dumps([ANKER, BRISTOL])))

    assert shown == SHORT, f"brief() must make of two hotels: {SHORT!r}"


def test_the_order_stays(work: ModuleType) -> None:
    shown = work.brief(CALL, found(json.dumps([BRISTOL, ANKER])))

    assert shown == "find_hotels found in Oslo: h2 Bristol 95, h1 Anker 120", (
        "'the first one' must still be the first: keep the order"
    )


def test_results_of_other_tools_stay(work: ModuleType) -> None:
    call = ToolCall(name="find_flats", arguments={"city": "Oslo"})

    shown = work.brief(call, found(json.dumps([ANKER]), "find_flats"))

    assert shown is None, "the rule is for find_hotels: leave other tools' results"


def test_a_failed_search_stays(work: ModuleType) -> None:
    failed = ToolResult(
        tool_call_id=CALL.tool_call_id,
        name="find_hotels",
        content=json.dumps([ANKER]),
        status="error",
    )

    assert work.brief(CALL, failed) is None, "a result without success must stay"


@pytest.mark.parametrize(
    "content",
    [
        "Anker and Bristol. " * 20,
        json.dumps({"hotels": [ANKER, BRISTOL]}),
        json.dumps([ANKER, {"id": "h2", "about": ABOUT}]),
        json.dumps([1, 2, 3] * 30),
        json.dumps(ABOUT),
        json.dumps(None).ljust(99),
    ],
    ids=["words", "an object", "no price", "numbers", "a text", "null"],
)
def test_what_has_another_form_stays(work: ModuleType, content: str) -> None:
    shown = work.brief(CALL, found(content))

    assert shown is None, f"leave a content that is no list of hotels: {content[:40]!r}"


def test_what_would_not_be_shorter_stays(work: ModuleType) -> None:
    assert work.brief(CALL, found("[]")) is None, (
        "leave a content that is shorter than your text"
    )


# --- The windows --------------------------------------------------------------


async def test_older_searches_are_shown_in_brief_and_the_newest_whole(
    work: ModuleType,
) -> None:
    sessions = InMemorySessionManager()

    await ask(sessions, work, 10_000, CALL, "Two hotels.")
    second, third = [
        await ask(sessions, work, 10_000, *steps)
        for steps in ([CALL, "Two again."], ["You have two."])
    ]

    whole = json.dumps([ANKER, BRISTOL])
    shown = [text == SHORT for text in results(second)]
    assert shown == [True, False], "the older search in brief, the newest in full"
    assert json.loads(results(second)[1]) == json.loads(whole), (
        "the newest search must be shown as it was stored"
    )
    assert results(third) == [SHORT, SHORT], "by the next question, both are old"


async def test_what_is_stored_stays_whole(work: ModuleType) -> None:
    sessions = InMemorySessionManager()

    for _ in range(3):
        await ask(sessions, work, 10, CALL, "Two hotels.")

    session = await sessions.get("trip")
    assert session is not None
    kept = [
        json.loads(item.content)
        for event in session.events
        for item in event.content
        if isinstance(item, ToolResult)
    ]
    assert kept == [[ANKER, BRISTOL]] * 3, "only what is sent may change, not the log"


async def test_turns_that_fit_once_they_are_short_are_not_cut(work: ModuleType) -> None:
    sessions = InMemorySessionManager()

    requests = [await ask(sessions, work, 700, CALL, "Two hotels.") for _ in range(3)]

    assert len(results(requests[-1])) == 3, (
        "shorten first and count then: with short results all three turns fit"
    )


async def test_a_limit_leaves_out_the_oldest_turns(work: ModuleType) -> None:
    sessions = InMemorySessionManager()

    requests = [await ask(sessions, work, 350, CALL, "Two hotels.") for _ in range(3)]

    count = len(results(requests[-1]))
    assert count < 3, "with more than `limit` tokens, older turns must be left out"
    assert count > 0, "the newest turn must be shown, however small the limit is"
