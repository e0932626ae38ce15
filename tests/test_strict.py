"""The oracle of valid requests: what breaks each rule, beside its good twin."""

from collections.abc import Mapping
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minagent import (
    ContentItem,
    Event,
    Media,
    Message,
    MinagentError,
    Note,
    Opaque,
    Reasoning,
    ToolCall,
    ToolConfirmation,
    ToolResult,
    Turn,
)
from minagent.models.strict import InvalidRequestError, check, violations

Turns = tuple[Turn, ...]


def turn(
    role: Literal["user", "assistant"], *items: ContentItem, stop_reason: Any = None
) -> Turn:
    event = Event(author=role, content=items, stop_reason=stop_reason)
    return Turn(role, items, (event,))


def says(text: str) -> Message:
    return Message(role="user", content=text)


def answers(text: str) -> Message:
    return Message(role="assistant", content=text)


def call(call_id: str, **more: Any) -> ToolCall:
    return ToolCall(name="look", tool_call_id=call_id, **more)


def result(call_id: str, content: str = "Seen.", **more: Any) -> ToolResult:
    return ToolResult(tool_call_id=call_id, name="look", content=content, **more)


def forced(item: ContentItem, **changes: Any) -> Any:
    """Give an item values that it would refuse."""
    for name, value in changes.items():
        object.__setattr__(item, name, value)
    return item


def user(*items: ContentItem) -> Turn:
    return turn("user", *items)


def assistant(*items: ContentItem, stop_reason: str | None = "end_turn") -> Turn:
    return turn("assistant", *items, stop_reason=stop_reason)


HI = user(says("Hi."))
HELLO = assistant(answers("Hello."))
BYE = user(says("Bye."))
PICTURE = Media(media_type="image/png", data="aGk=")
CALLS = assistant(call("a"), call("b"))
RESULTS = user(result("a"), result("b"))

BROKEN: Mapping[str, tuple[str, Turns, Turns]] = {
    # What is wrong: the rules that it breaks, the broken one, its good twin.
    "there is no turn": ("V1", (), (HI,)),
    "the assistant comes first": ("V1", (HELLO, BYE), (HI, HELLO, BYE)),
    "two turns of the user in a row": (
        "V1",
        (HI, BYE),
        (user(says("Hi."), says("Bye.")),),
    ),
    "two turns of the assistant in a row": (
        "V1",
        (HI, HELLO, HELLO, BYE),
        (HI, assistant(answers("Hello."), answers("Hello.")), BYE),
    ),
    "the user says what the assistant said": (
        "V1",
        (user(answers("Hello.")),),
        (user(says("Hello.")),),
    ),
    "the assistant says what the user said": (
        "V1",
        (HI, assistant(says("Hello.")), BYE),
        (HI, assistant(answers("Hello.")), BYE),
    ),
    "the user thinks": (
        "V1",
        (user(Reasoning(content="Hm."), says("Hi.")),),
        (HI, assistant(Reasoning(content="Hm."), answers("Hello.")), BYE),
    ),
    "a call has no result": (
        "V2",
        (HI, CALLS, user(result("a"))),
        (HI, CALLS, RESULTS),
    ),
    "no call has a result": ("V2", (HI, CALLS, BYE), (HI, CALLS, RESULTS)),
    "nothing comes after the calls": ("V2 V10", (HI, CALLS), (HI, CALLS, RESULTS)),
    "a call has two results": (
        "V2",
        (HI, CALLS, user(result("a"), result("b"), result("b"))),
        (HI, CALLS, RESULTS),
    ),
    "the results are of other calls": (
        "V2",
        (HI, CALLS, user(result("a"), result("c"))),
        (HI, CALLS, RESULTS),
    ),
    "the results are in another order": (
        "V2",
        (HI, CALLS, user(result("b"), result("a"))),
        (HI, CALLS, RESULTS),
    ),
    "the results come a turn too late": (
        "V2",
        (HI, CALLS, BYE, HELLO, RESULTS),
        (HI, CALLS, RESULTS, HELLO, BYE),
    ),
    "the first turn has a result": ("V2", (user(result("a"), says("Hi.")),), (HI,)),
    "a result stands behind an answer": (
        "V2",
        (HI, HELLO, user(result("a"))),
        (HI, HELLO, BYE),
    ),
    "the assistant gives a result": (
        "V2",
        (HI, assistant(result("a"), answers("Hello.")), BYE),
        (HI, HELLO, BYE),
    ),
    "the assistant begins, and with a result": (
        "V1 V2",
        (assistant(result("a"), answers("Hello.")), BYE),
        (HI, HELLO, BYE),
    ),
    "text stands before a result": (
        "V3",
        (HI, CALLS, user(says("Look:"), result("a"), result("b"))),
        (HI, CALLS, user(result("a"), result("b"), says("Look:"))),
    ),
    "a picture stands between results": (
        "V3",
        (HI, CALLS, user(result("a"), PICTURE, result("b"))),
        (HI, CALLS, user(result("a"), result("b"), PICTURE)),
    ),
    "the user's text is empty": ("V4", (user(says("")),), (HI,)),
    "the user's text is blank": ("V4", (user(says(" \n\t\u2003")),), (HI,)),
    "one text of two is blank": ("V4", (user(says("Hi."), says(" ")),), (HI,)),
    "the assistant's text is blank": (
        "V4",
        (HI, assistant(answers("\n"), PICTURE), BYE),
        (HI, assistant(PICTURE), BYE),
    ),
    "a turn is empty": ("V4", (HI, assistant(), BYE), (HI, HELLO, BYE)),
    "a result is blank": (
        "V4",
        (HI, assistant(call("a")), user(result("a", " "))),
        (HI, assistant(call("a")), user(result("a", "(no output)"))),
    ),
    "a result is blank and has no picture": (
        "V4",
        (HI, assistant(call("a")), user(result("a", ""))),
        (HI, assistant(call("a")), user(result("a", "", media=(PICTURE,)))),
    ),
    "an id occurs twice in a turn": (
        "V5",
        (HI, assistant(call("a"), call("a")), user(result("a"), result("a"))),
        (HI, CALLS, RESULTS),
    ),
    "an id occurs twice, far apart": (
        "V5",
        (HI, CALLS, RESULTS, HELLO, BYE, CALLS, RESULTS),
        (HI, CALLS, RESULTS, HELLO, BYE),
    ),
    "an id is empty": (
        "V5",
        (HI, assistant(call("")), user(result(""))),
        (HI, assistant(call("-")), user(result("-"))),
    ),
    "an id has odd letters": (
        "V5",
        (HI, assistant(call("a b")), user(result("a b"))),
        (HI, assistant(call("a_b-9")), user(result("a_b-9"))),
    ),
    "an id ends in a line break": (
        "V5",
        (HI, assistant(call("a\n")), user(result("a\n"))),
        (HI, assistant(call("a")), user(result("a"))),
    ),
    "an id has letters of other scripts": (
        "V5",
        (HI, assistant(call("é")), user(result("é"))),
        (HI, assistant(call("e")), user(result("e"))),
    ),
    "a text has half an emoji": (
        "V7",
        (user(forced(says("Hi."), content="a\ud83d b")),),
        (user(says("a🙂 b")),),
    ),
    "a key has half an emoji": (
        "V7",
        (HI, assistant(forced(Opaque(block={}), block={"\ud83d": 1})), BYE),
        (HI, assistant(Opaque(block={"🙂": 1})), BYE),
    ),
    "a number is not finite": (
        "V7",
        (
            HI,
            assistant(forced(call("a"), arguments={"at": [float("nan")]})),
            user(result("a")),
        ),
        (HI, assistant(call("a", arguments={"at": [1.5]})), user(result("a"))),
    ),
    "arguments are a list": (
        "V8",
        (HI, assistant(forced(call("a"), arguments=[1])), user(result("a"))),
        (HI, assistant(call("a", arguments={})), user(result("a"))),
    ),
    "arguments are a text": (
        "V8",
        (HI, assistant(forced(call("a"), arguments="{}")), user(result("a"))),
        (HI, assistant(call("a", unreadable='"{}"')), user(result("a"))),
    ),
    "a note is shown": (
        "V9",
        (user(says("Hi."), Note(kind="mark", text="Here.")),),
        (user(says("Hi."), says("Here.")),),
    ),
    "a decision is shown": (
        "V9",
        (
            HI,
            assistant(call("a")),
            user(result("a"), ToolConfirmation(tool_call_id="a", approved=True)),
        ),
        (HI, assistant(call("a")), user(result("a"))),
    ),
    "the last turn is the assistant's": ("V10", (HI, HELLO), (HI, HELLO, BYE)),
    "the last turn ended by itself": (
        "V10",
        (HI, assistant(answers("Let me see."), stop_reason="end_turn")),
        (HI, assistant(answers("Let me see."), stop_reason="pause_turn")),
    ),
    "the last turn came from nowhere": (
        "V10",
        (HI, Turn("assistant", (answers("Hello."),), ())),
        (HI, Turn("assistant", (answers("Hello."),), ()), BYE),
    ),
}


@pytest.mark.parametrize(("rules", "broken", "good"), BROKEN.values(), ids=BROKEN)
def test_a_broken_transcript_violates_its_rule_and_no_other(
    rules: str, broken: Turns, good: Turns
) -> None:
    found = list(violations(broken))

    assert {each.split(":")[0] for each in found} == set(rules.split())


@pytest.mark.parametrize(("rules", "broken", "good"), BROKEN.values(), ids=BROKEN)
def test_its_good_twin_violates_none(rules: str, broken: Turns, good: Turns) -> None:
    assert list(violations(good)) == []


def test_every_rule_that_a_transcript_alone_can_break_is_broken_here() -> None:
    """V6 says that what a model said goes back as it came: that needs the log."""
    broken = {rule for rules, _, _ in BROKEN.values() for rule in rules.split()}

    assert broken == {f"V{number}" for number in range(1, 11)} - {"V6"}


def test_a_conversation_of_everything_violates_none() -> None:
    turns = (
        user(says("Hi."), PICTURE),
        assistant(
            Reasoning(content="", signature="sig"),
            Reasoning(content="", redacted="secret"),
            Opaque(block={"type": "brand_new"}),
            answers("I look."),
            call("a", arguments={"at": [None, 1.5, {"é": "🙂"}]}),
            call("b", unreadable="["),
        ),
        user(
            result("a", "", media=(PICTURE,)),
            result("b", "No.", status="error"),
            says("Well?"),
        ),
        assistant(Reasoning(content="Hm.")),
        BYE,
        assistant(Opaque(block={}), stop_reason="pause_turn"),
    )

    assert list(violations(turns)) == []


def test_check_names_every_violation() -> None:
    turns = (HELLO, user(says(" ")))

    with pytest.raises(InvalidRequestError, match=r"V1: .*V4: ") as caught:
        check(turns)

    assert isinstance(caught.value, MinagentError)
    assert list(caught.value.problems) == list(violations(turns))


def test_check_lets_a_valid_transcript_pass() -> None:
    check((HI, CALLS, RESULTS, HELLO, BYE))


@given(at=st.integers(0, 4))
def test_a_turn_less_in_a_valid_transcript_is_found(at: int) -> None:
    turns = [HI, CALLS, RESULTS, HELLO, BYE]

    del turns[at]

    assert list(violations(turns)) != []
