"""Items and events: their JSON, their immutability, the gate, ids, times and text."""

import copy
import enum
import json
import operator
import pickle
import re
import uuid
from collections import (
    Counter,
    OrderedDict,
    UserDict,
    UserList,
    defaultdict,
    deque,
    namedtuple,
)
from collections.abc import (
    AsyncIterator,
    Callable,
    Mapping,
    MutableMapping,
    MutableSequence,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError, fields, replace
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from strategies import ITEMS, events_of, json_objects, json_values, times

from minagent import (
    ContentItem,
    Event,
    InMemorySessionManager,
    Media,
    Message,
    Note,
    NotSerializableError,
    Opaque,
    Reasoning,
    Session,
    SessionStore,
    ToolCall,
    ToolConfirmation,
    ToolResult,
    Usage,
)
from minagent.events import (
    MAX_DEPTH,
    MAX_INT_BITS,
    VALID_CALL_ID,
    dump_json,
    freeze,
    load_json,
    new_call_id,
    new_id,
    thaw,
    utc_now,
    well_formed,
)
from minagent.stores import SQLiteSessionManager

HALF = "\ud83d"  # the first half of an emoji


@pytest.fixture(params=["in memory", "SQLite"])
async def manager(request: Any, tmp_path: Path) -> AsyncIterator[SessionStore]:
    store: SessionStore = InMemorySessionManager()
    if request.param == "SQLite":
        store = SQLiteSessionManager(tmp_path / "sessions.db", durability="normal")
    async with store:
        yield store


def exactly(value: object) -> str:
    """Text that tells 1, 1.0 and True, and 0.0 and -0.0, apart; `==` does not."""
    return repr(thaw(value))


def nested(levels: int, *, in_list: bool = False) -> Any:
    """JSON with this many levels, of lists and dicts in turn."""
    value: Any = "bottom"
    for level in range(levels):
        value = [value] if (level % 2 == 0) == in_list else {"k": value}
    return value


# --- JSON, and back -----------------------------------------------------------


def test_what_is_drawn_here_covers_every_kind_of_item() -> None:
    [union, _] = get_args(ContentItem)

    assert set(ITEMS) == set(get_args(union))


@pytest.mark.parametrize("kind", ITEMS)
@given(data=st.data())
def test_every_item_comes_back_from_json_as_it_was(
    kind: type[ContentItem], data: st.DataObject
) -> None:
    item = data.draw(ITEMS[kind])
    event = Event(author="ada", content=(item,))

    [back] = Event.from_json(event.to_json()).content

    assert type(back) is kind
    assert back == item
    assert repr(back) == repr(item)


@given(event=events_of(st.one_of(*ITEMS.values())))
def test_every_event_comes_back_from_json_as_it_was(event: Event) -> None:
    back = Event.from_json(event.to_json())

    assert back == event
    assert back.timestamp.isoformat() == event.timestamp.isoformat()


@given(event=events_of(st.one_of(*ITEMS.values())))
def test_written_again_an_event_is_the_same_bytes(event: Event) -> None:
    written = event.to_json().encode()

    assert Event.from_json(written.decode()).to_json().encode() == written


@given(event=events_of(st.one_of(*ITEMS.values())))
def test_an_event_that_another_reader_has_parsed_is_the_same(event: Event) -> None:
    assert Event.from_plain(load_json(event.to_json())) == event


STORED_EVENT = (
    '{"author":"ada","content":['
    '{"type":"message","role":"user","content":"Look at this, é 🙂."},'
    '{"type":"media","media_type":"image/png","data":"aGk="},'
    '{"type":"media","media_type":"text/plain","url":"https://example.org/a.txt"},'
    '{"type":"message","role":"assistant","content":"","extra":{"citations":[]}},'
    '{"type":"reasoning","content":"Hm.","signature":"c2ln"},'
    '{"type":"reasoning","content":"","redacted":"c2VjcmV0"},'
    '{"type":"tool_call","name":"look","arguments":{"at":[1,1.0,null]},'
    '"tool_call_id":"call_1"},'
    '{"type":"tool_call","name":"look","tool_call_id":"call_2","unreadable":"[1"},'
    '{"type":"tool_result","tool_call_id":"call_1","name":"look","content":"A cat.",'
    '"media":[{"type":"media","media_type":"image/png","data":"aGk="}],'
    '"details":{"ms":12}},'
    '{"type":"tool_result","tool_call_id":"call_2","name":"look","status":"error"},'
    '{"type":"tool_confirmation","tool_call_id":"call_1","approved":true,'
    '"modified_arguments":{},"by":"bob","fingerprint":"f00","path":["call_0"]},'
    '{"type":"note","kind":"mark","text":"Here.","data":{"n":1}},'
    '{"type":"opaque","block":{"type":"brand_new","payload":{}}}],'
    '"event_id":"01a22d33-1ed7-7574-b208-39c928fa2118",'
    '"execution_id":"01a22d33-1ed7-77d9-acfa-76d0a1b2c3d4",'
    '"timestamp":"2026-11-30T16:04:14.682150+00:00",'
    '"usage":{"input_tokens":3,"output_tokens":4},"model":"m-1",'
    '"stop_reason":"tool_use","request_id":"req_1","prefix_digest":"d1",'
    '"interrupted":true}'
)


def test_the_stored_form_of_version_1_is_read_and_written_byte_for_byte() -> None:
    """Sessions of the first release stand in this form for good."""
    event = Event.from_json(STORED_EVENT)

    assert event.to_json() == STORED_EVENT
    assert {type(item) for item in event.content} == set(ITEMS)


def test_fields_at_their_defaults_are_not_written() -> None:
    event = Event(author="ada", content=(Message(role="user", content="Hi."),))

    written = json.loads(event.to_json())

    assert list(written) == ["author", "content", "event_id", "timestamp"]
    assert written["content"] == [{"type": "message", "role": "user", "content": "Hi."}]


def test_an_item_of_unknown_type_is_refused() -> None:
    text = '{"author":"ada","content":[{"type":"hologram","content":"Hi."}]}'

    with pytest.raises(ValueError, match="hologram"):
        Event.from_json(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"author":"ada","content":[],"mood":1}',
        '{"author":"ada","content":[{"type":"note","kind":"x","mood":1}]}',
        '{"author":"ada","content":[],"usage":{"mood":1}}',
        '{"author":"ada","content":[{"type":"tool_result","tool_call_id":"c",'
        '"name":"n","media":[{"type":"media","media_type":"x","url":"x","mood":1}]}]}',
    ],
    ids=["in the event", "in an item", "in the usage", "in a picture of a result"],
)
def test_an_unknown_field_is_refused(text: str) -> None:
    """It was written by a later version: dropping it would lose it."""
    with pytest.raises(ValueError, match="mood"):
        Event.from_json(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '"ada"',
        '{"author":"ada"}',
        '{"content":[]}',
        '{"author":"ada","content":{}}',
        '{"author":"ada","content":[{"role":"user","content":"no type"}]}',
        '{"author":"ada","content":[{"type":"message","role":"king","content":""}]}',
        '{"author":"ada","content":[{"type":"tool_call","name":"n","arguments":[]}]}',
        '{"author":"ada","content":[{"type":"opaque","block":"text"}]}',
        '{"author":"ada","content":[{"type":"media","media_type":"image/png"}]}',
        '{"author":"ada","content":[],"timestamp":"2026-11-30T16:04:14"}',
        '{"author":"ada","content":[],"timestamp":"yesterday"}',
        '{"author":"ada","content":[],"author":1}',
    ],
)
def test_a_damaged_event_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="validation error"):
        Event.from_json(text)


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_an_event_with_a_number_that_is_none_is_refused(word: str) -> None:
    data = f'{{"deep":[{word}]}}'
    note = f'{{"type":"note","kind":"x","data":{data}}}'
    text = f'{{"author":"ada","content":[{note}]}}'

    with pytest.raises(NotSerializableError) as caught:
        Event.from_json(text)

    assert caught.value.path == "data.deep[0]"


# --- Promise 1: immutable to the bottom ---------------------------------------

JSON = {"plain": {"deep": [1, {"deeper": ["x"]}]}, "list": [[], {}]}
HOLDERS: Mapping[str, Callable[[Any], ContentItem]] = {
    "extra of a Message": lambda v: Message(role="user", content="", extra=v),
    "extra of a Media": lambda v: Media(media_type="x", url="x", extra=v),
    "extra of a Reasoning": lambda v: Reasoning(content="", extra=v),
    "extra of a ToolCall": lambda v: ToolCall(name="n", extra=v),
    "arguments of a ToolCall": lambda v: ToolCall(name="n", arguments=v),
    "details of a ToolResult": lambda v: ToolResult(
        tool_call_id="c", name="n", details=v
    ),
    "modified_arguments of a ToolConfirmation": lambda v: ToolConfirmation(
        tool_call_id="c", approved=True, modified_arguments=v
    ),
    "data of a Note": lambda v: Note(kind="k", data=v),
    "block of an Opaque": lambda v: Opaque(block=v),
}
"""Every field that holds any JSON, and what makes an item with this in it."""


@pytest.fixture(params=HOLDERS)
def holder(request: Any) -> str:
    return str(request.param)


def held(item: ContentItem, holder: str) -> Any:
    return getattr(item, holder.split()[0])


@pytest.mark.parametrize("kind", [*ITEMS, Event, Usage], ids=lambda kind: kind.__name__)
def test_no_attribute_can_be_set_or_deleted(kind: type[Any]) -> None:
    event = replace(Event.from_json(STORED_EVENT), usage=Usage(input_tokens=1))
    things = [event, event.usage, *event.content]
    thing = next(each for each in things if type(each) is kind)
    before = repr(thing)

    for each in fields(kind):
        with pytest.raises(FrozenInstanceError):
            setattr(thing, each.name, getattr(thing, each.name))
        with pytest.raises(FrozenInstanceError):
            delattr(thing, each.name)

    assert repr(thing) == before


@pytest.mark.parametrize("kind", [*ITEMS, Event, Usage], ids=lambda kind: kind.__name__)
def test_no_attribute_can_be_added(kind: type[Any]) -> None:
    event = replace(Event.from_json(STORED_EVENT), usage=Usage(input_tokens=1))
    things = [event, event.usage, *event.content]
    thing = next(each for each in things if type(each) is kind)

    with pytest.raises((AttributeError, TypeError)):
        thing.mood = "good"

    assert not hasattr(thing, "mood")


def test_content_is_a_tuple_whatever_it_was_made_from() -> None:
    items = [Message(role="user", content="Hi.")]

    event = Event(author="ada", content=items)  # type: ignore[arg-type]
    items.clear()

    assert event.content == (Message(role="user", content="Hi."),)


MUTATORS_OF_DICT: Mapping[str, Callable[[Any], object]] = {
    "__setitem__": lambda d: operator.setitem(d, "list", 1),
    "__delitem__": lambda d: operator.delitem(d, "list"),
    "__ior__": lambda d: operator.ior(d, {"list": 1}),
    "clear": lambda d: d.clear(),
    "pop": lambda d: d.pop("list"),
    "popitem": lambda d: d.popitem(),
    "setdefault": lambda d: d.setdefault("new", 1),
    "update": lambda d: d.update(list=1),
}
MUTATORS_OF_LIST: Mapping[str, Callable[[Any], object]] = {
    "__setitem__": lambda a: operator.setitem(a, slice(None), []),
    "__delitem__": lambda a: operator.delitem(a, 0),
    "__iadd__": lambda a: operator.iadd(a, [1]),
    "__imul__": lambda a: operator.imul(a, 2),
    "append": lambda a: a.append(1),
    "clear": lambda a: a.clear(),
    "extend": lambda a: a.extend([1]),
    "insert": lambda a: a.insert(0, 1),
    "pop": lambda a: a.pop(),
    "remove": lambda a: a.remove([]),
    "reverse": lambda a: a.reverse(),
    "sort": lambda a: a.sort(key=str),
}


def test_the_tables_name_every_mutator() -> None:
    of_mappings = {*dir(MutableMapping), "__ior__"} - {*dir(Mapping)}
    of_mappings.discard("_MutableMapping__marker")
    of_sequences = {*dir(MutableSequence), "__imul__", "sort"} - {*dir(Sequence)}

    assert of_mappings == set(MUTATORS_OF_DICT)
    assert of_sequences == set(MUTATORS_OF_LIST)


@pytest.mark.parametrize("mutator", MUTATORS_OF_DICT)
def test_no_dict_in_an_item_can_be_changed(holder: str, mutator: str) -> None:
    item = HOLDERS[holder]({**JSON, "inner": JSON, "in a list": [JSON]})
    top = held(item, holder)

    for each in (top, top["inner"], top["in a list"][0]):
        with pytest.raises(TypeError, match="read-only"):
            MUTATORS_OF_DICT[mutator](each)

    assert top == {**JSON, "inner": JSON, "in a list": [JSON]}


@pytest.mark.parametrize("mutator", MUTATORS_OF_LIST)
def test_no_list_in_an_item_can_be_changed(holder: str, mutator: str) -> None:
    item = HOLDERS[holder]({"list": [[], "x"], "inner": [[[], "x"]]})
    top = held(item, holder)

    for each in (top["list"], top["inner"][0]):
        with pytest.raises(TypeError, match="read-only"):
            MUTATORS_OF_LIST[mutator](each)

    assert top == {"list": [[], "x"], "inner": [[[], "x"]]}


def test_changing_what_an_item_was_made_from_does_not_change_the_item(
    holder: str,
) -> None:
    given_value = copy.deepcopy(JSON)
    item = HOLDERS[holder](given_value)

    given_value["plain"]["deep"][1]["deeper"].append("y")  # type: ignore[call-overload]
    given_value["new"] = {}

    assert held(item, holder) == JSON


COPIES: Mapping[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{
        f"pickle {protocol}": lambda thing, protocol=protocol: pickle.loads(
            pickle.dumps(thing, protocol)
        )
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)
    },
}


@pytest.fixture(params=COPIES)
def copied(request: Any) -> Callable[[Any], Any]:
    return COPIES[request.param]


def test_a_copy_of_an_event_is_equal(copied: Callable[[Any], Any]) -> None:
    event = Event.from_json(STORED_EVENT)

    assert copied(event) == event
    assert copied(event).to_json() == STORED_EVENT


def test_a_copy_of_an_item_is_read_only_as_well(
    holder: str, copied: Callable[[Any], Any]
) -> None:
    item = copied(HOLDERS[holder](JSON))

    with pytest.raises(TypeError, match="read-only"):
        held(item, holder).clear()
    with pytest.raises(TypeError, match="read-only"):
        held(item, holder)["plain"]["deep"].append(1)

    assert held(item, holder) == JSON


def test_a_copy_of_the_deepest_value_that_passes_is_equal(
    copied: Callable[[Any], Any],
) -> None:
    item = Note(kind="k", data={"k": nested(MAX_DEPTH - 1)})

    assert copied(item) == item


def test_replace_gives_another_item_and_leaves_the_first() -> None:
    first = ToolCall(name="look", arguments={"at": [1]}, tool_call_id="call_1")

    second = replace(first, tool_call_id="call_2")

    assert first.tool_call_id == "call_1"
    assert (second.tool_call_id, second.arguments) == ("call_2", {"at": [1]})


def all_types(value: object) -> set[type]:
    inside = value.values() if isinstance(value, dict) else value
    if not isinstance(value, dict | list):
        return {type(value)}
    return {type(value)}.union(*(all_types(each) for each in inside))  # type: ignore[attr-defined]


def test_thaw_gives_a_plain_copy_to_change(holder: str) -> None:
    item = HOLDERS[holder](JSON)

    plain = thaw(held(item, holder))
    plain["plain"]["deep"][1]["deeper"].append("y")
    plain["new"] = 1

    assert all_types(plain) == {dict, list, int, str}
    assert held(item, holder) == JSON


@given(value=json_values)
def test_thaw_undoes_freeze(value: Any) -> None:
    thawed = thaw(freeze(value))

    assert repr(thawed) == repr(value)
    assert all_types(thawed) == all_types(value)


# --- Promise 4: the gate ------------------------------------------------------


class Color(enum.Enum):
    RED = "red"


class Number(enum.IntEnum):
    ONE = 1


class Word(enum.StrEnum):
    RED = "red"


class Text(str):
    pass


class Int(int):
    pass


class Float(float):
    pass


class List(list[int]):
    pass


class Model(BaseModel):
    name: str = "x"


Pair = namedtuple("Pair", "a b")

NO_JSON: Mapping[str, Any] = {
    # Case O08.
    "Decimal": Decimal("1.10"),
    "datetime": datetime(2026, 11, 30, tzinfo=UTC),
    "date": date(2026, 11, 30),
    "UUID": uuid.UUID(int=7),
    "Enum": Color.RED,
    "set": {1, 2},
    "tuple": (1, 2),
    "pydantic model": Model(),
    "object": object(),
    # And its kin.
    "timedelta": timedelta(seconds=1),
    "Fraction": Fraction(1, 3),
    "complex": 1j,
    "Path": Path("a"),
    "bytes": b"x",
    "bytearray": bytearray(b"x"),
    "IntEnum": Number.ONE,
    "StrEnum": Word.RED,
    "str subclass": Text("x"),
    "int subclass": Int(1),
    "float subclass": Float(1.0),
    "list subclass": List([1]),
    "OrderedDict": OrderedDict(a=1),
    "defaultdict": defaultdict(list, a=[1]),
    "Counter": Counter("aab"),
    "UserDict": UserDict(a=1),
    "UserList": UserList([1]),
    "read-only mapping": MappingProxyType({"a": 1}),
    "deque": deque([1]),
    "frozenset": frozenset({1}),
    "empty tuple": (),
    "namedtuple": Pair(1, 2),
    "range": range(2),
    "generator": (each for each in ()),
    "function": len,
    "class": int,
    "Ellipsis": ...,
    "stored item": Message(role="user", content="x"),
    "NaN": float("nan"),
    "inf": float("inf"),
    "-inf": float("-inf"),
    "int of 4,301 digits": 10**4300,
    "negative int of 4,301 digits": -(10**4300),
    "lone surrogate": f"a{HALF} b",
    "second half first": "\ude00\ud83d",
    "joined halves": "\ud83d\ude00",
}
"""Values that JSON has no word for, or not one that comes back the same."""


@pytest.fixture(params=NO_JSON)
def no_json(request: Any) -> Any:
    return NO_JSON[request.param]


def test_o08_a_value_that_json_would_change_is_refused_at_the_top(no_json: Any) -> None:
    with pytest.raises(NotSerializableError) as caught:
        dump_json(no_json, "state")

    assert caught.value.path == "state"


def test_o08_a_value_that_json_would_change_is_refused_with_the_path_to_it(
    no_json: Any,
) -> None:
    value = {"fine": [1], "a": [0, {"b c": no_json}]}

    with pytest.raises(NotSerializableError) as caught:
        dump_json(value, "state")

    assert caught.value.path == "state.a[1].b c"
    assert "state.a[1].b c" in str(caught.value)


def test_o08_a_value_that_json_would_change_gets_into_no_item(
    holder: str, no_json: Any
) -> None:
    with pytest.raises(NotSerializableError) as caught:
        HOLDERS[holder]({"a": [no_json]})

    assert caught.value.path == f"{holder.split()[0]}.a[0]"


async def test_o08_a_refused_state_leaves_what_is_stored_as_it_was(
    manager: SessionStore, no_json: Any
) -> None:
    session = await manager.create("ada")
    session.state = {"good": [1]}
    await manager.save(session)
    session.state["project"] = {"due": no_json}
    session.append(Event(author="ada", content=()))

    with pytest.raises(NotSerializableError) as caught:
        await manager.save(session)

    stored = await manager.get("ada")
    assert caught.value.path == "state.project.due"
    assert stored is not None
    assert (stored.version, stored.state, len(stored.events)) == (1, {"good": [1]}, 0)


BAD_KEYS: Mapping[str, Any] = {
    "int": 1,
    "float": 1.5,
    "bool": True,
    "None": None,
    "tuple": ("a",),
    "bytes": b"a",
    "IntEnum": Number.ONE,
    "StrEnum": Word.RED,
    "str subclass": Text("a"),
    "lone surrogate": HALF,
}


@pytest.mark.parametrize("key", BAD_KEYS.values(), ids=BAD_KEYS.keys())
def test_a_key_that_json_would_change_is_refused_with_the_path_to_its_dict(
    key: Any,
) -> None:
    with pytest.raises(NotSerializableError, match=r"state\.a\[0\]") as caught:
        dump_json({"a": [{"fine": 1, key: 2}]}, "state")

    assert "state.a[0]" in caught.value.path
    str(caught.value).encode()  # the message itself can be printed


@pytest.mark.parametrize("key", BAD_KEYS.values(), ids=BAD_KEYS.keys())
def test_a_key_that_json_would_change_gets_into_no_item(holder: str, key: Any) -> None:
    with pytest.raises(NotSerializableError) as caught:
        HOLDERS[holder]({key: 2})

    assert holder.split()[0] in caught.value.path


def test_what_contains_itself_is_refused() -> None:
    ring: list[Any] = [1]
    ring.append(ring)
    knot: dict[str, Any] = {}
    knot["a"] = [{"b": knot}]

    for value in (ring, knot):
        with pytest.raises(NotSerializableError, match="contains itself"):
            dump_json({"x": value}, "state")


def test_what_occurs_twice_without_a_ring_passes() -> None:
    shared = {"a": [1]}

    assert load_json(dump_json([shared, shared], "state")) == [shared, shared]


@pytest.mark.parametrize("in_list", [False, True])
def test_the_deepest_value_that_passes_comes_back(in_list: bool) -> None:
    value = nested(MAX_DEPTH, in_list=in_list)

    assert load_json(dump_json(value, "state")) == value


@pytest.mark.parametrize("in_list", [False, True])
@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 201, 100_000])
def test_one_level_more_is_refused_in_a_short_message(
    levels: int, in_list: bool
) -> None:
    value = nested(levels, in_list=in_list)

    with pytest.raises(NotSerializableError, match="levels") as caught:
        dump_json(value, "state")

    assert caught.value.path.startswith("state")
    assert len(str(caught.value)) < 300
    while isinstance(value, list | dict):  # or taking it apart overflows the stack
        value = value.popitem()[1] if isinstance(value, dict) else value.pop()


def test_the_deepest_value_that_passes_comes_back_in_an_event(holder: str) -> None:
    value = {"k": nested(MAX_DEPTH - 1)}
    event = Event(author="ada", content=(HOLDERS[holder](value),))

    back = Event.from_json(event.to_json())

    assert back == event


def test_the_deepest_value_that_passes_comes_back_in_a_picture_of_a_result() -> None:
    value = {"k": nested(MAX_DEPTH - 1)}
    picture = Media(media_type="image/png", data="aGk=", extra=value)
    result = ToolResult(tool_call_id="c", name="n", media=(picture,))
    event = Event(author="ada", content=(result,))

    assert Event.from_json(event.to_json()) == event


async def test_the_deepest_value_that_passes_is_saved_and_loaded(
    manager: SessionStore, tmp_path: Path, holder: str
) -> None:
    value = {"k": nested(MAX_DEPTH - 1)}
    session = await manager.create("ada")
    session.append(Event(author="ada", content=(HOLDERS[holder](value),)))
    session.state = value
    await manager.save(session)

    reader: SessionStore = manager
    if isinstance(manager, SQLiteSessionManager):  # one that has it in no cache
        reader = SQLiteSessionManager(tmp_path / "sessions.db")
    stored = await reader.get("ada")

    assert stored is not None
    assert stored.events == session.events
    assert stored.state == value


def test_the_deepest_value_that_passes_comes_back_in_a_session() -> None:
    value = {"k": nested(MAX_DEPTH - 1)}
    event = Event(author="ada", content=(Note(kind="k", data=value),))
    session = Session("ada", events=[event], state=value)

    back = Session.from_json(session.to_json())

    assert back.events == [event]
    assert back.state == value


@given(value=json_values)
def test_what_passes_comes_back_equal_and_of_the_same_types(value: Any) -> None:
    back = load_json(dump_json(value, "state"))

    assert back == value
    assert exactly(back) == exactly(value)


@given(value=json_objects)
def test_what_passes_is_kept_by_every_field_as_it_is(value: Any) -> None:
    for holder, make in HOLDERS.items():
        event = Event(author="ada", content=(make(value),))
        [back] = Event.from_json(event.to_json()).content

        assert exactly(held(back, holder)) == exactly(value)


@given(value=json_objects)
async def test_what_passes_is_kept_by_the_memory_manager(value: Any) -> None:
    manager = InMemorySessionManager()
    session = await manager.create("ada")
    session.state = value

    await manager.save(session)
    stored = await manager.get("ada")

    assert stored is not None
    assert exactly(stored.state) == exactly(value)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_int_that_passes_comes_back(sign: int) -> None:
    number = sign * ((1 << MAX_INT_BITS) - 1)
    event = Event(author="ada", content=(Note(kind="k", data={"n": number}),))

    assert load_json(dump_json(number, "state")) == number
    assert Event.from_json(event.to_json()) == event


@pytest.mark.parametrize("number", [0.0, -0.0, 5e-324, 1e308, 0.1, 1e22, 1.0, 2.0**53])
def test_a_float_stays_the_float_that_it_was(number: float) -> None:
    event = Event(author="ada", content=(Note(kind="k", data={"n": number}),))

    [back] = Event.from_json(event.to_json()).content

    assert isinstance(back, Note)
    assert repr(back.data["n"]) == repr(number)


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a":-Infinity}', "", "{", "x"])
def test_what_is_no_json_is_not_loaded(text: str) -> None:
    with pytest.raises(ValueError, match=r"JSON|[Ee]xpect"):
        load_json(text)


def test_a_text_of_nothing_but_brackets_is_no_json() -> None:
    """json raises a RecursionError, which no reader of stored data expects."""
    with pytest.raises(ValueError, match="JSON"):
        load_json("[" * 100_000)


@pytest.mark.parametrize("value", [[1], "text", 1, True])
@pytest.mark.parametrize("holder", [each for each in HOLDERS if "details" not in each])
def test_every_such_field_but_details_holds_an_object(
    holder: str, value: object
) -> None:
    with pytest.raises(ValueError, match="dict"):
        HOLDERS[holder](value)


@pytest.mark.parametrize("value", [None, True, 1, 1.5, "text", [1], {"a": 1}])
def test_details_are_any_json_value(value: Any) -> None:
    result = ToolResult(tool_call_id="c", name="n", details=value)
    event = Event(author="ada", content=(result,))

    assert exactly(result.details) == exactly(value)
    assert Event.from_json(event.to_json()) == event


# --- Case O09: lone surrogates ------------------------------------------------

WITH_HALF: Mapping[str, Callable[[], Event]] = {
    "author": lambda: Event(author=HALF, content=()),
    "model": lambda: Event(author="a", content=(), model=HALF),
    "stop_reason": lambda: Event(author="a", content=(), stop_reason=HALF),
    "a message": lambda: said(Message(role="user", content=f"a{HALF} b")),
    "a thought": lambda: said(Reasoning(content=HALF)),
    "a signature": lambda: said(Reasoning(content="", signature=HALF)),
    "a tool's name": lambda: said(ToolCall(name=HALF)),
    "a call id": lambda: said(ToolCall(name="n", tool_call_id=HALF)),
    "unreadable input": lambda: said(ToolCall(name="n", unreadable=HALF)),
    "a result": lambda: said(ToolResult(tool_call_id="c", name="n", content=HALF)),
    "a picture": lambda: said(Media(media_type="x", data=HALF)),
    "a picture of a result": lambda: said(
        ToolResult(
            tool_call_id="c", name="n", media=(Media(media_type="x", data=HALF),)
        )
    ),
    "a reason": lambda: said(
        ToolConfirmation(tool_call_id="c", approved=False, reason=HALF)
    ),
    "a note": lambda: said(Note(kind="k", text=HALF)),
}


def said(item: ContentItem) -> Event:
    return Event(author="ada", content=(item,))


@pytest.mark.parametrize("place", WITH_HALF)
async def test_o09_half_an_emoji_is_refused_before_anything_is_stored(
    manager: SessionStore, place: str
) -> None:
    """Both managers agree, or a program breaks when it moves to SQLite.

    It may be refused where the item is made, or where it is saved.
    """
    session = await manager.create("ada")

    async def keep() -> None:
        session.append(WITH_HALF[place]())
        await manager.save(session)

    with pytest.raises((NotSerializableError, ValueError)) as caught:
        await keep()

    stored = await manager.get("ada")
    assert not isinstance(caught.value, UnicodeError)
    assert stored is not None
    assert (stored.version, len(stored.events)) == (0, 0)


@pytest.mark.parametrize("place", WITH_HALF)
def test_o09_a_session_with_half_an_emoji_is_not_written(place: str) -> None:
    """A manager of one's own has the same gate."""
    with pytest.raises((NotSerializableError, ValueError)) as caught:
        Session("ada", events=[WITH_HALF[place]()]).to_json()

    assert not isinstance(caught.value, UnicodeError)


WELL_FORMED = {
    "plain": "Hello.",
    "emoji": "🙂",
    "ZWJ emoji": "👩‍👩‍👧‍👦 🏳️‍🌈",
    "skin tone": "👍🏽",
    "flag": "🇦🇶",
    "combining marks": "e\u0301 a\u0308\u0323",
    "line separators": "a\u2028b\u2029c\x85d",
    "NUL and controls": "a\x00b\x1b[0m",
    "byte order mark": "\ufeffa\ufeff",
    "non-characters": "\uffff\ufffe\U0010ffff",
    "replacement character": "\ufffd",
    "empty": "",
}


@pytest.mark.parametrize("text", WELL_FORMED.values(), ids=WELL_FORMED.keys())
def test_o09_proper_text_is_left_as_it_is(text: str) -> None:
    assert well_formed(text) == text
    assert well_formed({text: [text]}) == {text: [text]}


@pytest.mark.parametrize("text", WELL_FORMED.values(), ids=WELL_FORMED.keys())
async def test_o09_proper_text_is_kept_by_both_managers(
    manager: SessionStore, text: str
) -> None:
    session = await manager.create("ada")
    session.append(said(Message(role="user", content=text, extra={text: text})))
    session.state = {text: [text]}
    await manager.save(session)

    stored = await manager.get("ada")

    assert stored is not None
    assert stored.events == session.events
    assert stored.state == {text: [text]}


@pytest.mark.parametrize(
    ("text", "repaired"),
    [
        ("a\ud83d b", "a\ufffd b"),
        ("a\ude00", "a\ufffd"),
        ("\ud83d\ude00", "😀"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("\ud83d\ud83d\ude00", "\ufffd😀"),
        ("\ud83d\ude00\ude00", "😀\ufffd"),
        ("\ufeff\ud83d", "\ufeff\ufffd"),
        ("😀\ud83d😀", "😀\ufffd😀"),
    ],
)
def test_o09_halves_are_joined_or_replaced(text: str, repaired: str) -> None:
    assert well_formed(text) == repaired


def test_o09_values_and_keys_are_repaired_at_every_depth() -> None:
    value = {f"k{HALF}": [1, None, {"\ud83d\ude00": [HALF, 1.5, True]}], "fine": "x"}

    repaired = well_formed(value)

    assert repaired == {
        "k\ufffd": [1, None, {"😀": ["\ufffd", 1.5, True]}],
        "fine": "x",
    }


any_letters = st.text(st.characters(exclude_categories=()))


@given(text=any_letters)
def test_o09_repair_joins_and_replaces_halves_and_touches_nothing_else(
    text: str,
) -> None:
    joined = json.loads(json.dumps(text))  # which leaves halves alone as they are

    assert well_formed(text) == re.sub("[\ud800-\udfff]", "\ufffd", joined)


@given(text=any_letters)
def test_o09_repaired_text_stays_as_it_is(text: str) -> None:
    repaired = well_formed(text)

    assert well_formed(repaired) == repaired


@given(text=any_letters)
def test_o09_repaired_text_passes_the_gate(text: str) -> None:
    value = {text: [text]}

    assert load_json(dump_json(well_formed(value), "state")) == well_formed(value)


# --- Promise 2: ids and times -------------------------------------------------


def test_an_id_is_a_uuid_of_version_7_and_of_now() -> None:
    before = utc_now()
    made = new_id()
    after = utc_now()

    parsed = uuid.UUID(made)
    milliseconds = parsed.int >> 80
    assert (parsed.version, parsed.variant) == (7, uuid.RFC_4122)
    assert str(parsed) == made
    assert int(before.timestamp() * 1000) <= milliseconds <= after.timestamp() * 1000


def test_ids_made_in_order_sort_in_order() -> None:
    made = [new_id() for _ in range(20_000)]

    assert sorted(made) == made


def test_ids_made_side_by_side_are_all_different() -> None:
    with ThreadPoolExecutor(8) as pool:
        batches = pool.map(lambda _: [new_id() for _ in range(2_000)], range(8))

    assert len({each for batch in batches for each in batch}) == 16_000


def test_every_event_gets_an_id_of_its_own() -> None:
    first, second = (Event(author="ada", content=()) for _ in range(2))

    assert uuid.UUID(first.event_id).version == 7
    assert first.event_id < second.event_id


def test_a_call_without_an_id_gets_one_that_every_vendor_takes() -> None:
    calls = [ToolCall(name="look") for _ in range(100)]

    assert all(VALID_CALL_ID.fullmatch(call.tool_call_id) for call in calls)
    assert len({call.tool_call_id for call in calls}) == 100
    assert VALID_CALL_ID.fullmatch(new_call_id())


def test_an_event_happens_now_in_utc() -> None:
    before = utc_now()

    event = Event(author="ada", content=())

    assert before <= event.timestamp <= utc_now()
    assert event.timestamp.tzinfo is UTC


@given(time=times)
def test_a_time_of_any_zone_is_kept_as_the_same_moment_in_utc(time: datetime) -> None:
    event = Event(author="ada", content=(), timestamp=time)

    back = Event.from_json(event.to_json())

    assert event.timestamp == back.timestamp == time
    assert event.timestamp.tzinfo is UTC
    assert back.timestamp.tzinfo is UTC


def test_a_stored_time_of_another_zone_is_read_in_utc() -> None:
    text = '{"author":"a","content":[],"timestamp":"2026-11-30T01:00:00+02:00"}'

    event = Event.from_json(text)

    assert event.timestamp == datetime(2026, 11, 29, 23, tzinfo=UTC)
    assert event.timestamp.utcoffset() == timedelta(0)


def test_a_naive_time_is_refused() -> None:
    naive = datetime(2026, 11, 30)  # noqa: DTZ001

    with pytest.raises(ValueError, match="timezone"):
        Event(author="ada", content=(), timestamp=naive)


def test_events_that_differ_only_in_their_zone_are_equal() -> None:
    event = Event(author="ada", content=())
    there = event.timestamp.astimezone(timezone(timedelta(hours=9)))

    assert replace(event, timestamp=there) == event


# --- Small things -------------------------------------------------------------


@pytest.mark.parametrize("given_fields", [{}, {"data": "aGk=", "url": "https://x"}])
def test_media_has_either_data_or_a_url(given_fields: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="either data"):
        Media(media_type="image/png", **given_fields)


@pytest.mark.parametrize("given_fields", [{"data": "aGk="}, {"url": "https://x"}])
def test_media_with_one_of_data_and_url_is_made(given_fields: dict[str, str]) -> None:
    item = Media(media_type="image/png", **given_fields)

    assert {"data": item.data, "url": item.url} == {
        "data": None,
        "url": None,
        **given_fields,
    }


def test_usages_add_up() -> None:
    first = Usage(
        input_tokens=1, output_tokens=2, cache_read_tokens=3, cache_write_tokens=4
    )
    second = Usage(
        input_tokens=10, output_tokens=20, cache_read_tokens=30, cache_write_tokens=40
    )

    assert first + second == Usage(
        input_tokens=11, output_tokens=22, cache_read_tokens=33, cache_write_tokens=44
    )
    assert sum([first, second], start=Usage()) == first + second
    assert first + Usage() == first


@pytest.mark.parametrize(
    ("thing", "shown"),
    [
        (Message(role="user", content="Hi."), "Message(role='user', content='Hi.')"),
        (
            ToolCall(name="look", arguments={"at": [1]}, tool_call_id="c"),
            "ToolCall(name='look', arguments={'at': [1]}, tool_call_id='c')",
        ),
        (Opaque(block={"a": 1}), "Opaque(block={'a': 1})"),
        (Usage(input_tokens=3), "Usage(input_tokens=3)"),
        (Usage(), "Usage()"),
    ],
)
def test_a_repr_shows_what_is_set_and_no_more(thing: object, shown: str) -> None:
    assert repr(thing) == shown


def test_the_repr_of_an_event_shows_what_is_set_and_no_more() -> None:
    event = said(Message(role="user", content="Hi."))

    for word in ("usage", "model", "stop_reason", "interrupted", "extra", "type"):
        assert word not in repr(event)
    assert repr(event).startswith(
        "Event(author='ada', content=(Message(role='user', content='Hi.'),)"
    )


@pytest.mark.parametrize(
    ("items", "more", "is_reply"),
    [
        ([], {}, False),
        ([Message(role="user", content="Hi.")], {}, False),
        ([Media(media_type="x", url="x")], {}, False),
        ([ToolResult(tool_call_id="c", name="n")], {}, False),
        ([ToolConfirmation(tool_call_id="c", approved=True)], {}, False),
        ([Note(kind="k", text="x")], {}, False),
        ([Message(role="assistant", content="")], {}, True),
        ([Reasoning(content="")], {}, True),
        ([ToolCall(name="n")], {}, True),
        ([Opaque(block={})], {}, True),
        ([Message(role="user", content="Hi."), ToolCall(name="n")], {}, True),
        ([], {"stop_reason": "end_turn"}, True),
        ([], {"interrupted": True}, True),
    ],
)
def test_a_reply_is_what_only_a_model_says(
    items: list[ContentItem], more: dict[str, Any], is_reply: bool
) -> None:
    event = Event(author="ada", content=tuple(items), **more)

    assert event.is_reply is is_reply


def test_the_tool_calls_of_an_event_are_in_order() -> None:
    first, second = ToolCall(name="a"), ToolCall(name="b")
    text = Message(role="assistant", content="And:")

    event = Event(author="ada", content=(first, text, second))

    assert event.tool_calls == (first, second)
