"""Sessions of OpenAI Agents, as they are stored, are read and can be gone on with."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from importing import DOT, continued, expect_sound, said

from minagent import Media, Message, Note, Reasoning, ToolCall, ToolResult
from minagent.errors import MinagentError, StoreUnavailableError
from minagent.foreign import Foreign, is_foreign, read_sessions

pytestmark = pytest.mark.heavy

Json = dict[str, Any]
Read = Callable[..., Foreign]

SCHEMA = """
CREATE TABLE agent_sessions (session_id TEXT PRIMARY KEY, created_at, updated_at);
CREATE TABLE agent_messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id TEXT NOT NULL,
    message_data TEXT NOT NULL,
    created_at TIMESTAMP DEFAULT '2026-01-02 03:04:05'
);
"""

ASKED = {"role": "user", "content": "Weather?"}
ANSWER: Json = {
    **{"type": "message", "role": "assistant", "status": "completed"},
    "content": [{"type": "output_text", "text": "Sunny.", "annotations": []}],
}
THOUGHT: Json = {
    **{"type": "reasoning", "encrypted_content": None},
    "summary": [{"type": "summary_text", "text": "Hm"}],
}


def call(call_id: str = "c1", arguments: str = '{"city": "Rome"}', **more: Any) -> Json:
    about = {"type": "function_call", "name": "weather", "status": "completed"}
    return {**about, "call_id": call_id, "arguments": arguments, **more}


def output(given: Any, call_id: str = "c1") -> Json:
    return {"type": "function_call_output", "call_id": call_id, "output": given}


def asked(*parts: Json) -> Json:
    return {"role": "user", "content": list(parts)}


def write(
    path: Path, *items: Any, session_id: str = "ada", schema: str = SCHEMA
) -> None:
    rows = [(session_id, x if isinstance(x, str) else json.dumps(x)) for x in items]
    with closing(sqlite3.connect(path)) as database, database:
        if schema:
            database.executescript(schema)
        insert = "INSERT INTO agent_messages (session_id, message_data) VALUES (?, ?)"
        database.executemany(insert, rows)


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Read the one session of a file with these items."""

    def read(*items: Any) -> Foreign:
        write(tmp_path / "chat.db", *items)
        [found] = read_sessions(tmp_path / "chat.db")
        return found

    return read


def items(foreign: Foreign) -> list[Any]:
    return [item for event in foreign.events for item in event.content]


async def test_what_a_model_says_in_several_items_is_one_reply(read: Read) -> None:
    found = read(
        *(ASKED, THOUGHT, ANSWER, call("c1"), call("c2")),
        *(output("Sun", "c1"), output("Rain", "c2"), ANSWER),
    )

    sunny = Message(role="assistant", content="Sunny.")
    calls = [
        ToolCall(tool_call_id=each, name="weather", arguments={"city": "Rome"})
        for each in ("c1", "c2")
    ]
    assert said(found.events) == [
        ("user", (Message(role="user", content="Weather?"),)),
        ("assistant", (Reasoning(content="Hm"), sunny, *calls)),
        ("assistant", (ToolResult(tool_call_id="c1", name="weather", content="Sun"),)),
        ("assistant", (ToolResult(tool_call_id="c2", name="weather", content="Rain"),)),
        ("assistant", (sunny,)),
    ]
    assert found.events[0].timestamp == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert found.unread == ()
    await continued(found)


async def test_pictures_and_files_are_read_also_from_results(read: Read) -> None:
    address = f"data:image/png;base64,{DOT}"
    picture = {"type": "input_image", "image_url": address, "detail": "auto"}
    far = {"type": "input_image", "image_url": "https://example.com/a"}
    file = {"type": "input_file", "file_data": "data:application/pdf;base64,JVBERi0="}
    bare = {"type": "input_file", "file_data": "SGVsbG8=", "filename": "a.txt"}

    found = read(asked(picture, far, file, bare), call(), output([picture, file]))

    seen = Media(media_type="image/png", data=DOT)
    terms = Media(media_type="application/pdf", data="JVBERi0=")
    assert found.events[0].content == (
        seen,
        Media(media_type="image/*", url="https://example.com/a"),
        terms,
        Media(media_type="text/plain", data="SGVsbG8=", extra={"title": "a.txt"}),
    )
    assert items(found)[-1].media == (seen, terms)
    assert found.unread == ()
    await continued(found)


async def test_the_seal_of_a_thought_is_kept_and_sent_to_nobody(read: Read) -> None:
    found = read(ASKED, {**THOUGHT, "encrypted_content": "c2VhbA=="}, ANSWER)

    assert found.unread == ("row 2: the seal of a thought",)
    assert items(found)[2].data["value"] == "c2VhbA=="
    assert "c2VhbA==" not in json.dumps(await continued(found))


@pytest.mark.parametrize(
    ("item", "named"),
    [
        ({"role": "system", "content": "Obey."}, "row 3: message of 'system'"),
        ({"type": "web_search_call", "id": "ws"}, "row 3: web_search_call"),
        ({"type": "computer_call_output", "output": {}}, "row 3: computer_call_output"),
        ({"__enc__": 1, "payload": "x"}, "row 3: message of None"),
        (call(name=7), "row 3: function_call"),
        ({"type": "message", "role": "user"}, "row 3: message"),
        ("{not json", "row 3: no JSON object"),
        (asked({"type": "input_audio", "input_audio": {}}), "row 3: input_audio"),
        (asked({"type": "input_image", "file_id": "file_1"}), "row 3: input_image"),
        (output("late", "c9"), "the result of the call 'c9', which is not there"),
    ],
)
async def test_an_item_without_a_place_is_named_and_kept_and_ends_no_reply(
    read: Read, item: Any, named: str
) -> None:
    found = read(ASKED, call(), item, output("Sun"), ANSWER)

    [note] = [each for each in items(found) if isinstance(each, Note)]
    assert found.unread == (named,)
    assert note.data["what"] == named
    [result] = [each for each in items(found) if isinstance(each, ToolResult)]
    assert (result.content, result.status) == ("Sun", "success")
    assert [each["role"] for each in await continued(found)] == [
        *("user", "assistant", "user", "assistant", "user")
    ]


async def test_a_refusal_is_text_and_sources_are_named(read: Read) -> None:
    refusal = {"type": "refusal", "refusal": "I must not."}
    source = {"type": "url_citation", "url": "https://example.com"}
    cited = {"type": "output_text", "text": "See.", "annotations": [source]}

    found = read(ASKED, {**ANSWER, "content": [refusal, cited]})

    assert [each.content for each in items(found) if isinstance(each, Message)] == [
        *("Weather?", "I must not.", "See.")
    ]
    assert found.unread == ("row 2: annotations",)
    await continued(found)


async def test_fields_without_a_place_are_named_once_with_their_number(
    read: Read,
) -> None:
    found = read(
        *(ASKED, call("c1", id="fc_1"), call("c2", id="fc_2")),
        *(output("Sun"), output("Rain", "c2"), {**ANSWER, "status": "incomplete"}),
    )

    assert found.unread == ("function_call: id (2 times)", "message: status")
    await continued(found)


@pytest.mark.parametrize(
    ("arguments", "unreadable"), [("", None), ("{oops", "{oops"), ("[1]", "[1]")]
)
async def test_arguments_that_are_no_object_are_unreadable(
    read: Read, arguments: str, unreadable: str | None
) -> None:
    found = read(ASKED, call(arguments=arguments), output("Sun"))

    assert found.events[1].tool_calls[0].unreadable == unreadable
    await continued(found)


async def test_a_call_without_a_result_is_closed_before_the_next_reply(
    read: Read,
) -> None:
    found = read(ASKED, call(), ASKED, ANSWER, call("c2"))

    closed = [each for each in items(found) if isinstance(each, ToolResult)]
    assert [each.status for each in closed] == ["unknown", "unknown"]
    assert len(found.unread) == 2
    await continued(found)


ITEMS = st.sampled_from(
    [
        *(ASKED, ANSWER, THOUGHT, {**THOUGHT, "encrypted_content": "c2VhbA=="}),
        *(call("c1"), call("c2"), output("Sun"), output("", "c2"), output(None)),
        *({**ANSWER, "content": []}, asked(), {"type": "web_search_call"}, "{", 7),
        {**THOUGHT, "summary": 7},
        asked({"type": "input_image", "image_url": f"data:image/png;base64,{DOT}"}),
    ]
)


@given(st.lists(ITEMS, min_size=1))
def test_whatever_is_read_can_be_gone_on_with(given: list[Any]) -> None:
    with TemporaryDirectory() as folder:
        write(Path(folder) / "chat.db", *given)
        [found] = read_sessions(Path(folder) / "chat.db")

    expect_sound(found)


def test_each_session_of_a_file_is_read_and_other_tables_are_named(
    tmp_path: Path,
) -> None:
    path = tmp_path / "chat.db"
    write(path, ASKED, session_id="bob")
    write(path, ASKED, ANSWER, schema="CREATE TABLE turn_usage (n);")

    found = read_sessions(path)

    assert [each.session_id for each in found] == ["ada", "bob"]
    assert [len(each.events) for each in found] == [2, 1]
    assert {each.unread for each in found} == {("the table turn_usage",)}


def test_tables_of_other_names_are_read(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    write(path, ASKED)
    with closing(sqlite3.connect(path)) as database:
        database.execute('ALTER TABLE agent_messages RENAME TO "my ""items"')

    [found] = read_sessions(path)

    assert len(found.events) == 1


def test_a_file_that_somebody_has_open_is_read_and_nothing_is_left_beside_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "chat?#%.db"
    with closing(sqlite3.connect(path)) as open_:
        open_.execute("PRAGMA journal_mode=WAL")
        write(path, ASKED)

        assert len(read_sessions(path)[0].events) == 1
    before = path.read_bytes()

    assert len(read_sessions(path)[0].events) == 1
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == before


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    write(path, *[ASKED] * 500)
    path.write_bytes(path.read_bytes()[:5000])

    with pytest.raises(StoreUnavailableError, match=r"chat\.db"):
        read_sessions(path)


def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE things (id, name)")

    assert is_foreign(path)
    with pytest.raises(MinagentError, match=r"other\.db holds no session"):
        read_sessions(path)
