"""Turns as messages: what is left out, what is kept, and what thinking is bound to."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from strategies import logs

from minagent import (
    ContentItem,
    Event,
    EventLog,
    Media,
    Message,
    Opaque,
    Reasoning,
    ToolCall,
    ToolResult,
)
from minagent.models import anthropic_messages
from minagent.models.anthropic_messages import Conversation, Messages
from minagent.transcript import turns

HEAD = ["Be brief.", []]
SEALED = Reasoning(content="Hm.", signature="s")
PDF = Media(media_type="application/pdf", data="aGk=")
SEARCH = Opaque(
    block={"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}
)
FOUND = Opaque(
    block={"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []}
)


def says(*parts: str | ContentItem) -> Event:
    return Event(author="user", content=items("user", parts))


def replies(*parts: str | ContentItem, **more: Any) -> Event:
    more = {"stop_reason": "end_turn"} | more
    return Event(author="assistant", content=items("assistant", parts), **more)


def items(role: Any, parts: Sequence[str | ContentItem]) -> tuple[ContentItem, ...]:
    return tuple(
        Message(role=role, content=part) if isinstance(part, str) else part
        for part in parts
    )


def call(call_id: str = "c1") -> ToolCall:
    return ToolCall(name="look", tool_call_id=call_id)


def result(call_id: str = "c1", text: str = "Seen.") -> ToolResult:
    return ToolResult(tool_call_id=call_id, name="look", content=text)


def made(*log: Event, thinking: Any = "all", head: Any = HEAD) -> Conversation:
    return Messages(thinking).of(turns(log), head)


def shown(conversation: Conversation) -> list[tuple[str, list[str]]]:
    """Roles, and the kinds of blocks with their texts."""
    return [
        (message["role"], [block.get("text", block["type"]) for block in content])
        for message in conversation.messages
        if (content := message["content"])
    ]


# --- What is not sent -----------------------------------------------------------


@pytest.mark.parametrize("signature", [None, ""])
def test_a_thought_without_a_seal_is_not_sent(signature: str | None) -> None:
    thought = Reasoning(content="Hm.", signature=signature)

    sent = made(says("1"), replies(thought, "One."), says("2"))

    assert shown(sent) == [("user", ["1"]), ("assistant", ["One."]), ("user", ["2"])]


def test_a_hidden_thought_is_sent() -> None:
    hidden = Reasoning(content="", redacted="aGlkZGVu")

    sent = made(says("1"), replies(hidden, "One."), says("2"))

    assert shown(sent)[1] == ("assistant", ["redacted_thinking", "One."])


def test_a_thought_at_the_end_of_a_reply_is_not_sent() -> None:
    sent = made(says("1"), replies(SEALED, "One.", SEALED, SEALED), says("2"))

    assert shown(sent)[1] == ("assistant", ["thinking", "One."])


def test_of_a_reply_that_only_thinks_nothing_is_left_between_two_questions() -> None:
    thought = replies(SEALED, stop_reason="max_tokens")

    sent = made(says("1"), thought, says("2"))

    assert shown(sent) == [("user", ["1", "2"])]


def test_a_thought_at_the_end_of_a_paused_reply_stays_left_out_when_it_goes_on() -> (
    None
):
    paused = replies("One", SEALED, stop_reason="pause_turn")

    first = made(says("1"), paused)
    then = made(
        says("1"), paused, replies("two.", prefix_digest=first.digest), says("2")
    )

    assert shown(first)[1] == ("assistant", ["One"])
    assert shown(then)[1] == ("assistant", ["One", "two."])


def test_a_document_in_a_reply_is_not_sent_and_an_image_is() -> None:
    image = Media(media_type="image/png", data="aGk=")

    sent = made(says("1", PDF), replies(PDF, image, "One."), says("2"))

    assert shown(sent)[0] == ("user", ["1", "document"])
    assert shown(sent)[1] == ("assistant", ["image", "One."])


# --- V3: calls of the vendor's own tools -----------------------------------------


def test_v3_words_behind_an_open_call_of_the_vendor_go_into_the_last_result() -> None:
    reply = replies(SEARCH, call("c1"), call("c2"), stop_reason="tool_use")

    sent = made(says("1"), reply, says(result("c1")), says(result("c2"), "2", PDF))

    assert shown(sent)[1:] == [
        ("assistant", ["server_tool_use", "tool_use", "tool_use"]),
        ("user", ["tool_result", "tool_result"]),
    ]
    first, last = sent.messages[-1]["content"]
    assert first["content"] == "Seen."
    assert [block["type"] for block in last["content"]] == ["text", "text", "document"]


def test_v3_results_stay_as_they_are_where_nothing_else_is_said() -> None:
    reply = replies(SEARCH, call(), stop_reason="tool_use")

    sent = made(says("1"), reply, says(result()))

    assert sent.messages[-1]["content"][0]["content"] == "Seen."


def test_words_stay_where_they_are_if_the_vendor_has_answered_its_call() -> None:
    reply = replies(SEARCH, FOUND, call(), stop_reason="tool_use")

    sent = made(says("1"), reply, says(result(), "2"))

    assert shown(sent)[-1] == ("user", ["tool_result", "2"])


def test_v3_an_open_call_of_the_vendor_is_left_out_if_nothing_will_answer_it() -> None:
    paused = replies("One", SEALED, SEARCH, stop_reason="pause_turn")

    back = made(says("1"), paused)
    left = made(says("1"), paused, says("2"))

    assert shown(back)[1] == ("assistant", ["One", "thinking", "server_tool_use"])
    assert shown(left)[1] == ("assistant", ["One"])


# --- Binding ---------------------------------------------------------------------


def bound(*before: Event, head: Any = HEAD) -> Event:
    """A reply with thinking to these events."""
    return replies(SEALED, "One.", prefix_digest=made(*before, head=head).digest)


def test_thinking_is_not_stale_where_the_conversation_has_only_grown() -> None:
    log = [says("1")]
    for number in "234":
        log += [bound(*log), says(number)]

    assert not made(*log).is_stale


@pytest.mark.parametrize(
    "head", [["Be long.", []], [None, []], ["Be brief.", [{"name": "look"}]]]
)
def test_thinking_is_stale_behind_another_head(head: Any) -> None:
    assert made(says("1"), bound(says("1")), says("2"), head=head).is_stale


def test_thinking_is_stale_behind_other_words() -> None:
    assert made(says("1!"), bound(says("1")), says("2")).is_stale
    assert made(says("0"), replies("0"), says("1"), bound(says("1"))).is_stale


def test_thinking_without_a_digest_is_stale() -> None:
    assert made(says("1"), replies(SEALED, "One."), says("2")).is_stale


def test_what_is_not_sent_is_not_stale() -> None:
    unsealed = Reasoning(content="Hm.")

    assert not made(says("1"), replies(unsealed, "One."), says("2")).is_stale
    assert not made(says("1"), replies("One.", SEALED), says("2")).is_stale


def test_thinking_behind_a_blank_text_is_stale_since_the_text_cannot_be_sent() -> None:
    digest = made(says("1")).digest
    before = replies(SEALED, " ", call(), prefix_digest=digest, stop_reason="tool_use")
    behind = replies(SEALED, " ", SEALED, "One.", prefix_digest=digest)

    assert not made(says("1"), before, says(result())).is_stale
    assert made(says("1"), behind, says("2")).is_stale


def test_marks_for_the_cache_and_the_order_of_keys_change_no_digest() -> None:
    head = [[{"type": "text", "text": "a"}], [{"name": "b", "input_schema": {}}]]

    def marked(value: Any) -> Any:
        if isinstance(value, dict):
            found = {key: marked(value[key]) for key in reversed(value)}
            return found | {"cache_control": {"type": "ephemeral"}}
        return list(map(marked, value)) if isinstance(value, list) else value

    assert (
        made(says("1"), head=marked(head)).digest == made(says("1"), head=head).digest
    )


def test_thinking_itself_changes_no_digest() -> None:
    with_thinking = made(says("1"), bound(says("1")), says("2"))
    without = made(says("1"), replies("One."), says("2"))

    assert with_thinking.digest == without.digest


def test_a_reply_that_goes_on_after_a_pause_is_bound_to_what_was_paused() -> None:
    first = replies("One", stop_reason="pause_turn")
    second = replies(SEALED, "two.", prefix_digest=made(says("1"), first).digest)
    other = replies("ONE", stop_reason="pause_turn")

    assert not made(says("1"), first, second, says("2")).is_stale
    assert made(says("1"), other, second, says("2")).is_stale


def test_thinking_can_be_left_out_altogether() -> None:
    sent = made(says("1"), bound(says("1")), says("2"), thinking="none")

    assert shown(sent) == [("user", ["1"]), ("assistant", ["One."]), ("user", ["2"])]
    assert not sent.is_stale


def test_thinking_can_be_left_out_up_to_the_last_stale_block() -> None:
    log = [says("1"), bound(says("1"))]
    log += [says("2"), bound(*log, says("2"), head=["New."])]
    log += [says("3"), bound(*log, says("3"), head=HEAD), says("4")]

    old = made(*log, thinking="valid", head=HEAD)
    new = made(*log, thinking="valid", head=["New."])

    assert [len(blocks) for _, blocks in shown(old)] == [1, 1, 1, 1, 1, 2, 1]
    assert [len(blocks) for _, blocks in shown(new)] == [1] * 7
    assert not old.is_stale
    assert not new.is_stale


# --- Any log ---------------------------------------------------------------------


@given(logs)
def test_any_log_makes_messages_that_can_be_sent(log: list[Event]) -> None:
    sent = made(*log).messages

    roles = [message["role"] for message in sent]
    assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"] * (
        len(roles) % 2
    )
    for message in sent:
        assert message["content"]
        if message["role"] == "assistant":
            assert message["content"][-1]["type"] != "thinking"
    json.dumps(sent, allow_nan=False)


@given(logs)
def test_what_was_kept_is_what_would_be_made(log: list[Event]) -> None:
    keeping, grown = Messages(), EventLog()

    for event in log:
        grown = grown.extended([event])
        kept = keeping.of(turns(grown), HEAD)

        assert kept == Messages().of(turns(list(grown)), HEAD)


# --- Growth: promise 16 ----------------------------------------------------------


def long_log(count: int) -> EventLog:
    log: list[Event] = []
    for number in range(count // 4):
        log += [
            says(f"Question {number}"),
            replies(SEALED, call(f"c{number}"), stop_reason="tool_use"),
            says(result(f"c{number}")),
            replies("One."),
        ]
    return EventLog(log)


def test_after_a_turn_of_10_000_events_only_what_is_new_is_converted() -> None:
    messages, log = Messages(), long_log(10_000).extended([says("First.")])
    messages.of(turns(log), HEAD)
    before = messages.converted

    log = log.extended([replies("One."), says("Second.")])
    sent = messages.of(turns(log), HEAD)

    assert len(sent.messages) == 10_003
    assert messages.converted - before == 2


def test_another_system_prompt_converts_nothing_anew() -> None:
    messages, log = Messages(), long_log(100)
    messages.of(turns(log), HEAD)
    before = messages.converted

    sent = messages.of(turns(log), ["Be long.", []])

    assert messages.converted == before
    assert sent == Messages().of(turns(log), ["Be long.", []])


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A conversation longer than the bound is kept whole while it goes on."""
    monkeypatch.setattr(anthropic_messages, "MAX_KEPT", 10)
    messages = Messages()
    log = long_log(40)

    for _ in range(3):
        messages.of(turns(log), HEAD)
    converted = messages.converted
    for _ in range(3):
        messages.of(turns(long_log(12)), HEAD)
    messages.of(turns(log), HEAD)

    assert converted == 40
    assert messages.converted == 40 + 36 + 40
