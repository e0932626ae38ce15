"""What hypothesis draws in several test files: JSON, items, events, and whole logs."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import get_args

from hypothesis import strategies as st

from minagent import (
    ContentItem,
    Event,
    Media,
    Message,
    Note,
    Opaque,
    Reasoning,
    ToolCall,
    ToolConfirmation,
    ToolResult,
    Usage,
)
from minagent.events import Status

# --- What passes the gate -----------------------------------------------------

text = st.text()  # any letters but lone surrogates
maybe_text = st.none() | text

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | text
)
json_values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4)
    ),
    max_leaves=12,
)
json_objects = st.dictionaries(text, json_values, max_size=3)

# --- Items of every kind, with anything in them -------------------------------

media = st.builds(Media, media_type=text, data=text, extra=json_objects) | st.builds(
    Media, media_type=text, url=text, extra=json_objects
)
ITEMS: Mapping[type[ContentItem], st.SearchStrategy[ContentItem]] = {
    Message: st.builds(
        Message,
        role=st.sampled_from(["user", "assistant"]),
        content=text,
        extra=json_objects,
    ),
    Media: media,
    Reasoning: st.builds(
        Reasoning,
        content=text,
        signature=maybe_text,
        redacted=maybe_text,
        extra=json_objects,
    ),
    Opaque: st.builds(Opaque, block=json_objects),
    ToolCall: st.builds(
        ToolCall,
        name=text,
        arguments=json_objects,
        tool_call_id=text,
        unreadable=maybe_text,
        extra=json_objects,
    ),
    ToolResult: st.builds(
        ToolResult,
        tool_call_id=text,
        name=text,
        content=text,
        status=st.sampled_from(get_args(Status)),
        media=st.lists(media, max_size=2).map(tuple),
        details=json_values,
    ),
    ToolConfirmation: st.builds(
        ToolConfirmation,
        tool_call_id=text,
        approved=st.booleans(),
        modified_arguments=st.none() | json_objects,
        reason=maybe_text,
        answer=maybe_text,
        by=maybe_text,
        fingerprint=maybe_text,
        path=st.lists(text, max_size=2).map(tuple),
    ),
    Note: st.builds(Note, kind=text, text=maybe_text, data=json_objects),
}
"""By kind, what draws items of it."""

tokens = st.integers(min_value=0, max_value=10**9)
usages = st.builds(
    Usage,
    input_tokens=tokens,
    output_tokens=tokens,
    cache_read_tokens=tokens,
    cache_write_tokens=tokens,
)
offsets = st.integers(-1439, 1439).map(lambda m: timezone(timedelta(minutes=m)))
times = st.datetimes(
    min_value=datetime(1900, 1, 1),  # noqa: DTZ001 (the zone is drawn)
    max_value=datetime(2900, 1, 1),  # noqa: DTZ001
    timezones=offsets,
)


def events_of(items: st.SearchStrategy[ContentItem]) -> st.SearchStrategy[Event]:
    """Events with any such items, and with anything in their own fields."""
    return st.builds(
        Event,
        author=text,
        content=st.lists(items, max_size=3).map(tuple),
        event_id=text,
        execution_id=text,
        timestamp=times,
        usage=st.none() | usages,
        model=maybe_text,
        stop_reason=maybe_text,
        request_id=maybe_text,
        prefix_digest=maybe_text,
        interrupted=st.booleans(),
    )


# --- Logs as odd as a crash, a race or a hand can leave them ------------------

# Few ids, so that they meet; and what healing makes of odd ones is among them.
call_ids = st.sampled_from(
    [
        "call_0",
        "call_0",
        "call_0",
        "call_1",
        "call_1",
        "call_0-2",
        "a b",
        "a_b",
        "",
        "é",
    ]
)
words = st.sampled_from(["", " ", "\n\t", "\u2003", "Hello.", "Well …", "🙂"])
extras = st.just({}) | st.just({"citations": [{"n": 1}], "x": None})
pictures = st.sampled_from(
    [
        Media(media_type="image/png", data="aGk="),
        Media(media_type="image/png", url="https://example.org/a.png"),
    ]
)
user_words = st.builds(Message, role=st.just("user"), content=words)
results = st.builds(
    ToolResult,
    tool_call_id=call_ids,
    name=st.just("look"),
    content=words,
    status=st.sampled_from(["success", "error", "cancelled"]),
    media=st.just(()) | pictures.map(lambda picture: (picture,)),
)
beside = st.builds(Note, kind=st.just("mark"), text=st.none() | words) | st.builds(
    ToolConfirmation, tool_call_id=call_ids, approved=st.booleans()
)
said = (
    st.builds(Message, role=st.just("assistant"), content=words, extra=extras)
    | st.builds(
        Reasoning, content=words, signature=st.none() | st.just("sig"), extra=extras
    )
    | st.builds(ToolCall, name=st.just("look"), tool_call_id=call_ids, extra=extras)
    | st.builds(ToolCall, name=st.just("look"), tool_call_id=call_ids)
    | st.just(Opaque(block={"type": "brand_new", "payload": [1, {"a": None}]}))
    | pictures
)
stops = st.sampled_from(
    [None, "end_turn", "tool_use", "max_tokens", "pause_turn", "brand_new_reason"]
)
no_stop = st.none()
whole = st.just(False)
moment = datetime(2026, 11, 30, tzinfo=UTC)


def _events(
    items: st.SearchStrategy[ContentItem],
    author: str,
    *,
    most: int = 4,
    stop_reason: st.SearchStrategy[str | None] = no_stop,
    interrupted: st.SearchStrategy[bool] = whole,
) -> st.SearchStrategy[Event]:
    return st.builds(
        Event,
        author=st.just(author),
        content=st.lists(items, max_size=most).map(tuple),
        timestamp=st.just(moment),
        stop_reason=stop_reason,
        interrupted=interrupted,
    )


inputs = _events(user_words | pictures, "user", most=2)
replies = _events(said, "assistant", stop_reason=stops)
answers = _events(results, "assistant", most=3)
marks = _events(beside, "somebody", most=2)
refusals = _events(said, "assistant", most=2, stop_reason=st.just("refusal"))
broken_off = _events(said, "assistant", interrupted=st.just(True))
by_hand = _events(said | user_words | results | beside, "hand", stop_reason=stops)
anything = _events(
    said | user_words | results | beside,
    "hand",
    stop_reason=stops | st.just("refusal"),
    interrupted=st.booleans(),
)

whole_logs = st.lists(inputs | replies | answers | marks | by_hand, max_size=10)
"""Without refused and broken-off replies: nothing of them is left out."""

logs = st.lists(
    inputs | replies | answers | marks | by_hand | refusals | broken_off | anything,
    max_size=10,
)
"""Whatever a log may hold."""
