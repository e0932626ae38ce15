"""The ledger: what was asked, what was decided, and what became of each call."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from strategies import logs

from minagent import (
    Agent,
    ContentItem,
    Event,
    EventLog,
    InMemorySessionManager,
    Message,
    Note,
    Reasoning,
    ToolCall,
    ToolConfirmation,
    ToolResult,
    tool,
)
from minagent.events import VALID_CALL_ID
from minagent.ledger import CallRecord, open_calls, record_of
from minagent.models import ScriptedModel


def event(*items: ContentItem, **more: object) -> Event:
    return Event(author="assistant", content=items, **more)  # type: ignore[arg-type]


def call(call_id: str, **more: object) -> ToolCall:
    return ToolCall(name="look", tool_call_id=call_id, **more)  # type: ignore[arg-type]


def result(call_id: str, content: str = "Seen.") -> ToolResult:
    return ToolResult(tool_call_id=call_id, name="look", content=content)


def decision(call_id: str, *path: str, approved: bool = True) -> ToolConfirmation:
    return ToolConfirmation(tool_call_id=call_id, approved=approved, path=path)


HELLO = Event(author="user", content=(Message(role="user", content="Hello."),))


def open_ids(events: Sequence[Event]) -> list[str]:
    return [record.call.tool_call_id for record in open_calls(events)]


# --- Open calls ---------------------------------------------------------------


def test_an_empty_log_has_no_open_calls() -> None:
    assert open_calls([]) == ()


def test_calls_without_a_result_are_open_in_the_order_of_the_calls() -> None:
    log = [HELLO, event(call("b"), call("c"), call("a")), event(result("c"))]

    assert open_ids(log) == ["b", "a"]


def test_answered_calls_are_not_open() -> None:
    log = [HELLO, event(call("a"), call("b")), event(result("b")), event(result("a"))]

    assert open_calls(log) == ()


def test_an_open_call_comes_with_its_decisions() -> None:
    first, second = decision("a", approved=False), decision("inner", "a")
    log = [HELLO, event(call("a"), call("b")), event(first, second)]

    assert open_calls(log) == (
        CallRecord(call("a"), (first, second)),
        CallRecord(call("b")),
    )


def test_only_the_calls_of_the_last_reply_are_open() -> None:
    """A reply after them means that they were given up."""
    log = [HELLO, event(call("a")), HELLO, event(call("b"))]

    assert open_ids(log) == ["b"]


@pytest.mark.parametrize(
    "reply",
    [
        event(Message(role="assistant", content="Done.")),
        event(stop_reason="end_turn"),
        event(interrupted=True),
    ],
    ids=["an answer", "an empty reply", "a reply that broke off"],
)
def test_a_reply_without_calls_leaves_none_open(reply: Event) -> None:
    assert open_calls([HELLO, event(call("a")), reply]) == ()


@pytest.mark.parametrize(
    "later",
    [HELLO, event(Note(kind="mark", text="Here.")), event(decision("a"))],
    ids=["a message", "a note", "a decision"],
)
def test_what_is_no_reply_leaves_calls_open(later: Event) -> None:
    assert open_ids([HELLO, event(call("a")), later]) == ["a"]


def test_the_result_of_another_call_leaves_a_call_open() -> None:
    assert open_ids([HELLO, event(call("a")), event(result("b"))]) == ["a"]


def test_a_call_with_the_id_of_an_answered_one_is_open() -> None:
    """Old logs may hold an id twice; the later call has not run."""
    log = [HELLO, event(call("a")), event(result("a")), HELLO, event(call("a"))]

    assert open_ids(log) == ["a"]


# --- Records ------------------------------------------------------------------


def test_nobody_asked_for_an_unknown_call() -> None:
    log = [HELLO, event(call("a")), event(result("b"), decision("b"))]

    assert record_of(log, "b") is None
    assert record_of([], "a") is None


def test_a_record_has_the_call_its_decisions_and_its_result() -> None:
    log = [
        HELLO,
        event(call("a", arguments={"at": [1]})),
        event(decision("a", approved=False)),
        event(result("a", "Denied.")),
        HELLO,
        event(Message(role="assistant", content="As you wish.")),
    ]

    assert record_of(log, "a") == CallRecord(
        call("a", arguments={"at": [1]}),
        (decision("a", approved=False),),
        result("a", "Denied."),
    )


def test_the_first_result_of_a_call_stands() -> None:
    log = [HELLO, event(call("a")), event(result("a", "first"), result("a", "second"))]

    record = record_of(log, "a")

    assert record is not None
    assert record.result == result("a", "first")


def test_decisions_about_questions_inside_a_call_are_on_its_record_in_order() -> None:
    inside = decision("inner", "a", "middle")
    log = [HELLO, event(call("a"), call("inner")), event(decision("a")), event(inside)]

    outer, other = record_of(log, "a"), record_of(log, "inner")

    assert outer is not None
    assert other is not None
    assert outer.decisions == (decision("a"), inside)
    assert other.decisions == ()


def test_a_record_stays_as_it_is_when_the_log_grows() -> None:
    log = EventLog([HELLO, event(call("a"))])
    before = record_of(log, "a")
    [open_before] = open_calls(log)

    longer = log.extended([event(decision("a")), event(result("a"))])
    after = record_of(longer, "a")

    assert before == open_before == CallRecord(call("a"))
    assert after == CallRecord(call("a"), (decision("a"),), result("a"))
    assert record_of(log, "a") == before


def plainly_open(events: Sequence[Event]) -> list[str]:
    """The same question, answered by searching the log."""
    replies = [at for at, each in enumerate(events) if each.is_reply]
    if not replies:
        return []
    last, later = events[replies[-1]], events[replies[-1] + 1 :]
    found = []
    for asked in last.tool_calls:
        at = max(i for i, item in enumerate(last.content) if item is asked)
        items = [*last.content[at:], *(item for each in later for item in each.content)]
        answered = {i.tool_call_id for i in items if isinstance(i, ToolResult)}
        if asked.tool_call_id not in answered:
            found.append(asked.tool_call_id)
    return found


@given(events=logs)
def test_the_ledger_of_any_log_is_what_a_search_finds(events: list[Event]) -> None:
    log = EventLog()

    for length, each in enumerate(events, start=1):
        log = log.extended([each])

        assert set(open_ids(log)) == set(plainly_open(events[:length]))


@given(events=logs)
def test_a_growing_ledger_is_as_if_made_fresh(events: list[Event]) -> None:
    log = EventLog()

    for length, each in enumerate(events, start=1):
        log = log.extended([each])

        fresh = events[:length]
        assert open_calls(log) == open_calls(fresh)
        for call_id in ("call_0", "call_1", "a b", ""):
            assert record_of(log, call_id) == record_of(fresh, call_id)


# --- Promise 4: fresh ids at the door -----------------------------------------


@tool
def look() -> str:
    """Look around."""
    return "Seen."


async def stored(log: Sequence[Event], *reply: ContentItem) -> Event:
    """Let a model reply after this log; return the reply as it is stored."""
    sessions = InMemorySessionManager()
    session = await sessions.create("ada")
    session.append(*log)
    await sessions.save(session)
    model = ScriptedModel([list(reply), "Done."])
    agent = Agent(model, tools=[look], session_manager=sessions)

    run = await agent.run("Go on.", session_id="ada")

    return next(each for each in run.context.events if each.is_reply)


def ids(reply: Event) -> list[str]:
    return [each.tool_call_id for each in reply.tool_calls]


async def test_new_ids_of_plain_letters_stay() -> None:
    reply = await stored([event(call("call_1"))], call("call_0"), call("toolu_01-Az"))

    assert ids(reply) == ["call_0", "toolu_01-Az"]


async def test_an_id_that_the_log_has_is_made_fresh() -> None:
    """Some servers count from `call_0` again in each reply."""
    log = [HELLO, event(call("call_0")), event(result("call_0"))]

    [fresh] = ids(await stored(log, call("call_0")))

    assert fresh != "call_0"
    assert VALID_CALL_ID.fullmatch(fresh)


@pytest.mark.parametrize(
    "before",
    [
        event(call("call_0"), interrupted=True),
        event(call("call_0"), stop_reason="refusal"),
        event(call("call_0"), Message(role="user", content="by hand")),
    ],
    ids=["a reply that broke off", "a refused one", "an event made by hand"],
)
async def test_an_id_that_was_used_in_any_event_is_made_fresh(before: Event) -> None:
    [fresh] = ids(await stored([HELLO, before], call("call_0")))

    assert fresh != "call_0"


async def test_of_calls_with_one_id_in_a_reply_all_but_the_first_get_fresh_ones() -> (
    None
):
    reply = await stored([], call("call_0"), call("call_0"), call("call_0"))

    first, *others = ids(reply)
    assert first == "call_0"
    assert len({first, *others}) == 3


@pytest.mark.parametrize("odd", ["", "a b", "é", "functions.look:0", "a\n", "a/b"])
async def test_an_id_of_odd_letters_is_made_fresh(odd: str) -> None:
    [fresh] = ids(await stored([], call(odd)))

    assert VALID_CALL_ID.fullmatch(fresh)


async def test_nothing_but_the_id_of_a_call_is_changed() -> None:
    thought = Reasoning(content="Hm.", signature="sig")
    text = Message(role="assistant", content="I look.", extra={"citations": []})
    twin = call("call_0", arguments={"at": [1]}, unreadable="x", extra={"y": 1})

    reply = await stored([HELLO, event(call("call_0"))], thought, twin, text)

    renamed = replace(twin, tool_call_id=ids(reply)[0])
    assert reply.content == (thought, renamed, text)


async def test_a_reply_without_calls_is_stored_as_it_came() -> None:
    thought = Reasoning(content="Hm.", signature="sig")
    text = Message(role="assistant", content="Hi.", extra={"citations": []})

    reply = await stored([HELLO, event(call("call_0"))], thought, text)

    assert reply.content == (thought, text)


@given(log=logs)
async def test_after_any_log_the_ids_of_a_reply_are_new_and_unique(
    log: list[Event],
) -> None:
    used = {each.tool_call_id for event in log for each in event.tool_calls}
    asked = (call("call_0"), call("call_1"), call("call_0"), call("a b"))

    fresh = ids(await stored(log, *asked))

    assert len({*fresh}) == len(asked)
    assert not {*fresh} & used
    assert all(VALID_CALL_ID.fullmatch(each) for each in fresh)
