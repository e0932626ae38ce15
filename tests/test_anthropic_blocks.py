"""Blocks and items: what a model said goes back as it came, whatever it was."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import json_objects, json_values, text

from minagent import Media, Message, Note, Opaque, Reasoning, ToolCall, ToolResult
from minagent.models.anthropic_blocks import block_of, is_same, item_of

THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"path": "a"}}
SOURCE = {"type": "base64", "media_type": "image/png", "data": "aGk="}
PDF = SOURCE | {"media_type": "application/pdf"}
TYPED = [
    ({"type": "text", "text": "Hi."}, Message),
    ({"type": "text", "text": "", "citations": None, "new": [1, 1.0]}, Message),
    ({"type": "text", "text": "Hi.", "citations": [{"cited_text": "H"}]}, Message),
    (THOUGHT, Reasoning),
    (THOUGHT | {"thinking": ""}, Reasoning),
    ({"type": "thinking", "thinking": "Without a seal."}, Reasoning),
    ({"type": "redacted_thinking", "data": "aGlkZGVu"}, Reasoning),
    (CALL, ToolCall),
    (CALL | {"input": {}, "caller": {"type": "direct"}}, ToolCall),
    ({"type": "image", "source": SOURCE}, Media),
    ({"type": "image", "source": {"type": "url", "url": "https://a.b/c"}}, Media),
    ({"type": "document", "source": PDF, "title": "A"}, Media),
]
OPAQUE = [
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
    {"type": "brand_new", "payload": {"a": [None, 1.5, {"b": True}]}},
    {"text": "no type"},
    {"type": ["odd"], "text": "no type that is a text"},
    {"type": "text", "text": None},
    {"type": "text"},
    {"type": "thinking", "thinking": 1, "signature": "s"},
    {"type": "thinking", "thinking": "Hm.", "signature": None},
    {"type": "redacted_thinking", "data": None},
    {"type": "image", "source": "a string"},
    {"type": "image", "source": {"type": "file", "file_id": "f"}},
    {"type": "image", "source": SOURCE | {"more": 1}},
    {"type": "tool_use", "id": "toolu_1", "name": None, "input": {}},
]


@pytest.mark.parametrize(("block", "kind"), TYPED)
def test_a_known_block_is_an_item_with_its_other_fields(
    block: dict[str, Any], kind: type
) -> None:
    item = item_of(block)

    assert type(item) is kind
    assert is_same(block_of(item), block)


@pytest.mark.parametrize("block", OPAQUE)
def test_every_other_block_is_kept_whole(block: dict[str, Any]) -> None:
    item = item_of(block)

    assert item == Opaque(block=block)
    assert is_same(block_of(item), block)


kinds = st.sampled_from(
    [*("text", "thinking", "redacted_thinking", "image", "document", "new"), None]
)
fields = st.sampled_from(
    [*("text", "thinking", "signature", "data", "source", "citations", "extra")]
)


@given(
    kinds,
    st.dictionaries(fields | text, json_values, max_size=4),
    st.fixed_dictionaries(
        {}, optional=dict.fromkeys(["text", "thinking", "signature", "data"], text)
    ),
)
def test_any_block_comes_back_as_the_same_json(
    kind: str | None, anything: dict[str, Any], words: dict[str, str]
) -> None:
    block = anything | words | {"type": kind}

    assert is_same(block_of(item_of(block)), block)


@given(text, text, json_objects, json_objects)
def test_any_call_comes_back_as_the_same_json(
    call_id: str, name: str, arguments: dict[str, Any], extra: dict[str, Any]
) -> None:
    named = {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
    block = extra | named

    item = item_of(block)

    assert isinstance(item, ToolCall)
    assert is_same(block_of(item), block)


def test_an_integer_and_a_float_are_not_the_same_json() -> None:
    assert not is_same({"n": 1}, {"n": 1.0})
    assert not is_same({"n": 1}, {"n": True})
    assert is_same({"a": 1, "b": 2}, {"b": 2, "a": 1})


# --- What cannot be kept as it came ---------------------------------------------


def test_o09_half_an_emoji_is_replaced_and_two_halves_are_joined() -> None:
    item = item_of({"type": "text", "text": "a\ud83d b \ud83d\ude42"})

    assert item == Message(role="assistant", content="a\ufffd b 🙂")


@pytest.mark.parametrize("given", ["{no json", [1, 2], 7, None, True])
def test_o07_an_input_that_is_no_object_is_kept_as_text_and_sent_as_an_empty_one(
    given: Any,
) -> None:
    item = item_of(CALL | {"input": given})

    assert isinstance(item, ToolCall)
    assert item.unreadable == (given if isinstance(given, str) else json.dumps(given))
    assert block_of(item) == CALL | {"input": {}}


def test_o07_an_input_that_json_has_no_word_for_is_kept_as_text() -> None:
    deep: Any = {}
    for _ in range(200):
        deep = {"a": deep}

    nan = item_of(CALL | {"input": {"x": float("nan")}})
    nested = item_of(CALL | {"input": deep})

    assert isinstance(nan, ToolCall)
    assert nan.unreadable == '{"x": NaN}'
    assert isinstance(nested, ToolCall)
    assert nested.unreadable == json.dumps(deep)


@pytest.mark.parametrize("call_id", [None, 7])
def test_a_call_without_an_id_gets_one(call_id: object) -> None:
    item = item_of(CALL | {"id": call_id})

    assert isinstance(item, ToolCall)
    assert item.tool_call_id.startswith("call_")


# --- What is only sent ----------------------------------------------------------


@pytest.mark.parametrize(
    "status", ["error", "denied", "expired", "replaced", "cancelled", "unknown"]
)
def test_a_result_of_any_status_but_success_is_an_error(status: Any) -> None:
    result = ToolResult(tool_call_id="c", name="look", content="No.", status=status)

    assert block_of(result)["is_error"] is True


def test_a_result_is_sent_without_its_details() -> None:
    result = ToolResult(tool_call_id="c", name="look", content="Yes.", details="secret")

    assert block_of(result) == {
        "type": "tool_result",
        "tool_use_id": "c",
        "content": "Yes.",
    }


@pytest.mark.parametrize("words", ["Here.", ""])
def test_a_result_with_media_is_a_list_of_blocks(words: str) -> None:
    picture = Media(media_type="image/png", data="aGk=")
    result = ToolResult(
        tool_call_id="c", name="look", content=words, media=(picture, picture)
    )

    content = block_of(result)["content"]

    image = {"type": "image", "source": SOURCE}
    assert content == [
        *([{"type": "text", "text": words}] if words else []),
        image,
        image,
    ]


@pytest.mark.parametrize(
    ("media", "block"),
    [
        (
            Media(media_type="image/webp", url="https://a.b/c"),
            {"type": "image", "source": {"type": "url", "url": "https://a.b/c"}},
        ),
        (
            Media(media_type="application/pdf", data="aGk=", extra={"title": "T"}),
            {"type": "document", "title": "T", "source": PDF},
        ),
        (
            Media(media_type="text/csv", data=base64.b64encode(b"a;\xc3\xa9").decode()),
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "a;é"},
            },
        ),
        (
            Media(media_type="text/plain", data="no base64"),
            {
                "type": "document",
                "source": {
                    "type": "base64",
                    "media_type": "text/plain",
                    "data": "no base64",
                },
            },
        ),
    ],
)
def test_media_is_sent_as_an_image_or_a_document(
    media: Media, block: dict[str, Any]
) -> None:
    assert block_of(media) == block


def test_a_users_text_is_sent_without_citations() -> None:
    cited: dict[str, Any] = {"citations": [{"cited_text": "H"}], "other": 1}

    quoted = Message(role="user", content="Hi.", extra=cited)

    assert block_of(quoted) == {"type": "text", "text": "Hi.", "other": 1}


def test_what_no_transcript_holds_is_refused() -> None:
    with pytest.raises(TypeError, match="Note"):
        block_of(Note(kind="mark"))
