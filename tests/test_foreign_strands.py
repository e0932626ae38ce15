"""Sessions of Strands Agents, as they are stored, are read and can be gone on with."""

import json
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from importing import DOT, continued, expect_sound, said

from minagent import Media, Message, Note, Reasoning, ToolCall, ToolResult, Usage
from minagent.errors import MinagentError
from minagent.foreign import Foreign, is_foreign, read_sessions
from minagent.transcript import UNKNOWN_OUTCOME

pytestmark = pytest.mark.heavy

Json = dict[str, Any]


def in_bytes(data: str) -> Json:
    """Bytes as Python's Strands writes them."""
    return {"__bytes_encoded__": True, "data": data}


def user(*blocks: Any) -> Json:
    return {"role": "user", "content": list(blocks)}


def model(*blocks: Any) -> Json:
    return {"role": "assistant", "content": list(blocks)}


def use(call_id: str = "t1", **more: Any) -> Json:
    call = {"toolUseId": call_id, "name": "weather", "input": {"city": "Rome"}}
    return {"toolUse": call | more}


def result(*content: Any, call_id: str = "t1", status: str = "success") -> Json:
    given = {"toolUseId": call_id, "status": status, "content": list(content)}
    return {"toolResult": given}


def snapshot(*messages: Any, **data: Any) -> Json:
    return {
        "scope": "agent",
        "schema_version": "1.0",
        "created_at": "2026-01-02T03:04:05Z",
        "data": {"messages": list(messages), **data},
        "app_data": {},
    }


def write(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path


@pytest.fixture
def read(tmp_path: Path) -> Any:
    """Read the one session of a snapshot of these messages."""

    def read(*messages: Any, **data: Any) -> Foreign:
        [found] = read_sessions(write(tmp_path / "s.json", snapshot(*messages, **data)))
        return found

    return read


def items(foreign: Foreign) -> list[Any]:
    return [item for event in foreign.events for item in event.content]


# --- The shapes of blocks -----------------------------------------------------

NESTED = [
    user({"text": "Weather?"}),
    model(
        {"reasoningContent": {"reasoningText": {"text": "Hm", "signature": "c2ln"}}},
        {"reasoningContent": {"redactedContent": in_bytes("eHg=")}},
        {"text": "Let me look."},
        use(),
    ),
    user(result({"text": "Sunny"}, {"json": {"t": 21}})),
    model({"text": "Sunny."}),
]
TYPESCRIPT = [
    user({"type": "textBlock", "text": "Weather?"}),
    model(
        {"type": "reasoningBlock", "text": "Hm", "signature": "c2ln"},
        {"reasoning": {"redactedContent": "eHg="}},
        {"text": "Let me look."},
        {"type": "toolUseBlock", **use()["toolUse"]},
    ),
    user(
        {
            **{"type": "toolResultBlock", "toolUseId": "t1", "status": "success"},
            "content": [
                {"type": "textBlock", "text": "Sunny"},
                {"type": "jsonBlock", "json": {"t": 21}},
            ],
        }
    ),
    {"type": "message", **model({"type": "textBlock", "text": "Sunny."})},
]
FLAT = [
    {"role": "user", "content": "Weather?"},
    model(
        {"type": "thinking", "thinking": "Hm", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "eHg="},
        {"type": "text", "text": "Let me look."},
        {
            **{"type": "tool_use", "id": "t1", "name": "weather"},
            "input": {"city": "Rome"},
        },
    ),
    user(
        {
            **{"type": "tool_result", "tool_use_id": "t1", "is_error": False},
            "content": [{"type": "text", "text": "Sunny"}, '{"t": 21}'],
        }
    ),
    model({"type": "text", "text": "Sunny."}),
]


@pytest.mark.parametrize("messages", [NESTED, TYPESCRIPT, FLAT])
async def test_nested_and_flat_blocks_say_the_same(
    read: Any, messages: list[Json]
) -> None:
    found = read(*messages)

    call = ToolCall(tool_call_id="t1", name="weather", arguments={"city": "Rome"})
    sunny = ToolResult(tool_call_id="t1", name="weather", content='Sunny\n{"t": 21}')
    look = Message(role="assistant", content="Let me look.")
    thoughts = (
        Reasoning(content="Hm", signature="c2ln"),
        Reasoning(content="", redacted="eHg="),
    )
    assert said(found.events) == [
        ("user", (Message(role="user", content="Weather?"),)),
        ("assistant", (*thoughts, look, call)),
        ("assistant", (sunny,)),
        ("assistant", (Message(role="assistant", content="Sunny."),)),
    ]
    assert found.unread == ()
    assert len(await continued(found)) == 5


async def test_pictures_and_documents_are_read_also_from_results(read: Any) -> None:
    picture = {"image": {"format": "png", "source": {"bytes": in_bytes(DOT)}}}
    text = {"document": {"format": "md", "name": "n", "source": {"text": "# Hello"}}}
    pdf = {"format": "pdf", "name": "Terms", "source": {"bytes": in_bytes("JVBERi0=")}}

    found = read(
        user({"text": "See."}, picture, text, {"document": pdf}),
        model(use()),
        user(result(picture, {"document": pdf}, status="error")),
    )

    seen = Media(media_type="image/png", data=DOT)
    terms = Media(
        media_type="application/pdf", data="JVBERi0=", extra={"title": "Terms"}
    )
    note = Media(media_type="text/markdown", data="IyBIZWxsbw==", extra={"title": "n"})
    assert found.events[0].content[1:] == (seen, note, terms)
    assert items(found)[-1].media == (seen, terms)
    assert items(found)[-1].status == "error"
    assert found.unread == ()
    await continued(found)


IN_A_BUCKET = {"location": {"type": "s3", "uri": "s3://bucket/a.png"}}


@pytest.mark.parametrize(
    ("block", "named"),
    [
        ({"video": {"format": "mp4", "source": {}}}, "message 0: video"),
        ({"audio": {"format": "mp3", "source": {}}}, "message 0: audio"),
        ({"hologram": {"of": "a cat"}}, "message 0: hologram"),
        ({"type": "hologramBlock", "of": "a cat"}, "message 0: hologramBlock"),
        ({"toolUse": {"name": "x"}}, "message 0: toolUse"),
        ({"text": 7}, "message 0: text"),
        (7, "message 0: no block"),
        (
            {"image": {"format": "png", "source": IN_A_BUCKET}},
            "message 0: an image that models do not take",
        ),
        (
            {"image": {"format": "png", "source": {"url": "http://example.com/a"}}},
            "message 0: an image that models do not take",
        ),
        (
            {"image": {"format": "png", "source": {"bytes": "?!"}}},
            "message 0: an image that models do not take",
        ),
        (
            {"document": {"format": "docx", "name": "n", "source": {"bytes": DOT}}},
            "message 0: a document that models do not take",
        ),
        (
            result({"text": "late"}, call_id="gone"),
            "the result of the call 'gone', which is not there",
        ),
        (result(use("t9"), call_id="gone"), "message 0, result of gone: toolUse"),
    ],
)
async def test_a_block_without_an_item_is_named_and_kept_and_shown_to_no_model(
    read: Any, block: Any, named: str
) -> None:
    found = read(user({"text": "Look."}, block))

    _, *notes = items(found)
    assert {type(note) for note in notes} == {Note}
    assert found.unread[0] == named
    assert notes[0].data["what"] == named
    [message] = await continued(found)
    assert [each["text"] for each in message["content"]] == ["Look.", "Go on."]


async def test_what_is_asked_to_be_guarded_or_is_cited_is_text(read: Any) -> None:
    guarded = {"text": {"text": "Secret?", "qualifiers": ["query"]}}
    cited = {
        "content": [{"text": "As "}, {"text": "said."}],
        "citations": [{"title": "A"}],
    }

    found = read(user({"guardContent": guarded}), model({"citationsContent": cited}))

    assert [item.content for item in items(found)[:2]] == ["Secret?", "As said."]
    assert found.unread == ("guardContent: qualifiers", "message 1: citations")
    await continued(found)


async def test_fields_without_a_place_are_named_once_with_their_number(
    read: Any,
) -> None:
    point = {"cachePoint": {"type": "default"}}
    usage = {"inputTokens": 3, "outputTokens": 2, "totalTokens": 5}
    more = {
        "tracking_id": "1",
        "metadata": {"usage": usage, "metrics": {"latencyMs": 1}},
    }

    found = read(
        {**user({"text": "Hi."}, point), "tracking_id": "0"},
        {**model(use(reasoningSignature="c2ln"), point), **more},
        user(result({"text": "Sunny"})),
    )

    assert found.unread == (
        "cachePoint (2 times)",
        "messages: tracking_id (2 times)",
        "toolUse: reasoningSignature",
        "messages: metrics",
    )
    assert found.events[1].usage == Usage(input_tokens=3, output_tokens=2)
    await continued(found)


# --- Calls --------------------------------------------------------------------


async def test_a_call_without_a_result_is_closed_and_not_run(read: Any) -> None:
    found = read(user({"text": "Weather?"}), model(use()))

    [closed] = found.events[-1].content
    assert (closed.status, closed.content) == ("unknown", UNKNOWN_OUTCOME)
    assert found.unread == (
        "the call 't1' of 'weather' has no result: "
        "what became of it is unknown, and it is not run",
    )
    await continued(found)


async def test_a_call_is_closed_before_the_next_reply(read: Any) -> None:
    found = read(
        *(user({"text": "Weather?"}), model(use()), user({"text": "Well?"})),
        model({"text": "I do not know."}),
    )

    *_, closed, last = items(found)
    assert (closed.status, last.content) == ("unknown", "I do not know.")
    await continued(found)


async def test_an_id_that_is_used_again_gets_a_number(read: Any) -> None:
    found = read(
        *(user({"text": "Weather?"}), model(use()), user(result({"text": "Sun"}))),
        *(model(use()), user(result({"text": "Rain"}))),
    )

    results = [item for item in items(found) if isinstance(item, ToolResult)]
    assert [each.content for each in results] == ["Sun", "Rain"]
    assert [each.tool_call_id for each in results] == ["t1", "t1-2"]
    assert found.unread == ("the call id 't1', which was there before: it is 't1-2'",)
    await continued(found)


async def test_an_input_that_is_no_object_is_unreadable(read: Any) -> None:
    found = read(user({"text": "Hi."}), model(use(input=[1])), user(result()))

    assert found.events[1].tool_calls[0].unreadable == "[1]"
    await continued(found)


async def test_an_interrupt_is_named_and_the_results_in_it_are_read(read: Any) -> None:
    pending = {
        "assistant_message": model(use("t1"), use("t2")),
        "completed_tool_results": [result({"text": "Sunny"})["toolResult"]],
    }
    asked = {"id": "i", "name": "ok", "reason": "May I?", "response": None}
    interrupted = {"interrupts": {"i": asked}, "activated": True, "context": {}}
    interrupted["pending_tool_execution"] = pending

    found = read(
        user({"text": "Both."}),
        model(use("t1"), use("t2")),
        interrupt_state=interrupted,
    )

    assert [item.status for item in items(found)[-2:]] == ["success", "unknown"]
    assert "the interrupt 'ok', reason 'May I?': nobody is asked here" in found.unread
    await continued(found)


# --- Odd conversations --------------------------------------------------------


async def test_a_window_that_begins_with_a_result_can_be_gone_on_with(
    read: Any,
) -> None:
    found = read(
        user(result({"text": "Sunny"})),
        model({"text": "So it is."}),
        conversation_manager_state={
            **{
                "__name__": "SlidingWindowConversationManager",
                "removed_message_count": 2,
            },
            "model_call_count": 0,
        },
    )

    assert found.unread[1:2] == ("2 messages that were removed before the snapshot",)
    await continued(found)


async def test_a_picture_that_a_model_made_is_not_the_users(read: Any) -> None:
    picture = {"image": {"format": "png", "source": {"bytes": in_bytes(DOT)}}}

    found = read(user({"text": "Draw."}), model(picture))

    assert [event.is_reply for event in found.events] == [False, True]
    assert found.events[1].author == "assistant"
    assert len(await continued(found)) == 3


async def test_two_of_one_side_and_empty_ones_can_be_gone_on_with(read: Any) -> None:
    found = read(
        *(model({"text": "Welcome."}), model(), user({"text": " "}), user()),
        *(user({"text": "a"}), user({"text": "b"}), model({"text": "c"})),
        model({"image": {"format": "png", "source": {"bytes": DOT}}}),
    )

    assert found.unread == ()
    await continued(found)


BLOCKS = st.sampled_from(
    [
        *({"text": "Hi."}, {"text": " "}, use("t1"), use("t2"), use("t1", input="{")),
        *(result({"text": "Sun"}), result(call_id="t2", status="error"), result()),
        *({"cachePoint": {}}, {"video": {}}, {"text": None}, 7, {}, None),
        {"reasoningContent": {"reasoningText": {"text": "Hm", "signature": "c2ln"}}},
        {"reasoningContent": {"reasoningText": {"text": "Hm"}}},
        {"reasoningContent": {"redactedContent": in_bytes("eHg=")}},
        {"image": {"format": "png", "source": {"bytes": in_bytes(DOT)}}},
        {"document": {"format": "pdf", "source": {"bytes": in_bytes("JVBERi0=")}}},
    ]
)
MESSAGES = st.lists(st.tuples(st.sampled_from([user, model]), st.lists(BLOCKS)))


@given(MESSAGES)
def test_whatever_is_read_can_be_gone_on_with(messages: list[Any]) -> None:
    given = [side(*blocks) for side, blocks in messages]
    with TemporaryDirectory() as folder:
        [found] = read_sessions(write(Path(folder) / "s.json", snapshot(*given)))

    expect_sound(found)


async def test_a_message_of_neither_side_is_named_and_kept(read: Any) -> None:
    system = {"role": "system", "content": [{"text": "Obey."}]}

    found = read(system, user({"text": "Hi."}))

    assert found.unread == ("message 0: of neither side",)
    assert len(await continued(found)) == 1


def test_half_an_emoji_is_repaired(read: Any) -> None:
    found = read(user({"text": "\ud83d"}))

    assert items(found) == [Message(role="user", content="\ufffd")]


# --- Snapshots and their places -----------------------------------------------


def test_the_state_and_the_rest_of_a_snapshot(read: Any) -> None:
    found = read(
        user({"text": "Hi."}),
        state={"city": "Rome", "pending_tool_calls": [{"forged": True}]},
        system_prompt=[{"text": "Be kind."}],
        conversation_manager_state={"summary_message": user({"text": "Before."})},
        model_state={"response_id": "r"},
    )

    assert found.state == {"city": "Rome"}
    assert found.events[0].timestamp == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert found.unread == (
        "conversation manager: summary_message",
        "snapshot: system_prompt",
        "snapshot: model_state",
        "state: pending_tool_calls",
    )


def test_a_snapshot_has_the_name_that_its_folders_have(tmp_path: Path) -> None:
    scope = tmp_path / "session" / "chat" / "scopes" / "agent" / "helper" / "snapshots"
    latest = write(scope / "snapshot_latest.json", snapshot(model({"text": "Hi."})))
    write(scope / "immutable_history" / "snapshot_1.json", snapshot())

    [found] = read_sessions(tmp_path)

    assert (found.session_id, found.events[0].author) == ("chat", "helper")
    assert found.unread == ("earlier snapshots: 1",)
    assert read_sessions(latest)[0].session_id == "chat"
    assert said(read_sessions(latest)[0].events) == said(found.events)


def test_each_agent_of_a_session_becomes_a_session(tmp_path: Path) -> None:
    scopes = tmp_path / "chat" / "scopes"
    for name in ("b", "a"):
        place = scopes / "agent" / name / "snapshots" / "snapshot_latest.json"
        write(place, snapshot(user({"text": name})))
    swarm = {"orchestrator_id": "s", "state": {"status": "completed"}}
    write(
        scopes / "multiAgent" / "s" / "snapshots" / "snapshot_latest.json",
        {**snapshot(), "scope": "multiAgent", "data": swarm},
    )

    found = read_sessions(tmp_path)

    assert [each.session_id for each in found] == ["chat:a", "chat:b", "chat:s"]
    assert found[2].state == {"strands": swarm}
    assert found[2].unread == (
        "the run of 's', a graph or swarm: it is in the state, whole",
    )


def test_a_bare_list_of_messages_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "ada.json", NESTED)

    [found] = read_sessions(path)

    assert is_foreign(path)
    assert (found.session_id, len(found.events)) == ("ada", 4)


# --- Message files ------------------------------------------------------------


def message_file(folder: Path, number: int, message: Json, **more: Any) -> None:
    entry = {"message": message, "message_id": number, "redact_message": None, **more}
    entry["created_at"] = f"2026-01-02T03:04:{number:02}+00:00"
    write(folder / "messages" / f"message_{number}.json", entry)


async def test_message_files_are_read_in_the_order_of_their_numbers(
    tmp_path: Path,
) -> None:
    agent = tmp_path / "session_chat" / "agents" / "agent_helper"
    for number in range(12):
        side = model if number % 2 else user
        message_file(agent, number, side({"text": f"{number}"}))
    write(agent / "agent.json", {"agent_id": "helper", "state": {"k": 1}})

    [found] = read_sessions(tmp_path)

    assert [item.content for item in items(found)] == [f"{n}" for n in range(12)]
    assert found.events[11].timestamp.second == 11
    assert (found.session_id, found.state, found.unread) == ("chat", {"k": 1}, ())
    await continued(found)


def test_what_was_redacted_is_not_read(tmp_path: Path) -> None:
    agent = tmp_path / "session_chat" / "agents" / "agent_default"
    hidden = user({"text": "[redacted]"})
    message_file(agent, 0, user({"text": "my secret"}), redact_message=hidden)

    [found] = read_sessions(tmp_path)

    assert items(found) == [Message(role="user", content="[redacted]")]
    assert found.unread == ("message 0: what it said before it was redacted",)


def test_messages_that_a_manager_left_out_are_in_the_log_again(tmp_path: Path) -> None:
    agent = tmp_path / "session_chat" / "agents" / "agent_default"
    message_file(agent, 0, user({"text": "first"}))
    managed = {"__name__": "S", "removed_message_count": 1}
    write(agent / "agent.json", {"conversation_manager_state": managed, "state": {}})
    (agent / "messages" / "notes.txt").touch()

    [found] = read_sessions(agent)

    assert items(found) == [Message(role="user", content="first")]
    assert found.unread == (
        "the file notes.txt",
        "that the model did not see the first 1 messages any more",
    )


def test_the_run_of_a_graph_is_kept_in_a_state(tmp_path: Path) -> None:
    root = tmp_path / "session_chat" / "multi_agents" / "multi_agent_g"
    write(root / "multi_agent.json", {"type": "graph", "status": "completed"})

    [found] = read_sessions(tmp_path)

    assert found.state == {"strands": {"type": "graph", "status": "completed"}}
    assert (found.session_id, found.events, len(found.unread)) == ("chat", (), 1)


# --- What is refused ----------------------------------------------------------


@pytest.mark.parametrize("text", ["{", '{"a": NaN}', "[" * 100_000, "\udc80"])
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "chat" / "scopes" / "agent" / "a" / "snapshots"
    path.mkdir(parents=True)
    (path / "snapshot_latest.json").write_text(text, errors="surrogateescape")

    with pytest.raises(MinagentError, match=r"snapshot_latest\.json is no"):
        read_sessions(tmp_path)


@pytest.mark.parametrize(
    "data",
    [
        *({"messages": 7}, {"interrupt_state": {"interrupts": [1]}}),
        {"messages": [{**user({"text": "Hi."}), "metadata": 7}]},
    ],
)
def test_a_snapshot_of_another_form_is_named(tmp_path: Path, data: Json) -> None:
    path = write(tmp_path / "s.json", {**snapshot(), "data": data})

    with pytest.raises(MinagentError, match=r"s\.json is not as it should be"):
        read_sessions(path)


def test_two_sessions_of_one_name_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        agent = tmp_path / name / "session_chat" / "agents" / "agent_x"
        message_file(agent, 0, user({"text": "Hi."}))

    with pytest.raises(MinagentError, match=r"2 sessions with the id 'chat:x'; name"):
        read_sessions(tmp_path)


def test_a_later_version_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "s.json", {**snapshot(), "schema_version": "2.0"})

    with pytest.raises(MinagentError, match=r"version '2\.0'; 1\.0 can be read"):
        read_sessions(path)


@pytest.mark.parametrize("linked", ["message_0.json", "messages"])
def test_a_link_in_a_folder_is_not_followed(tmp_path: Path, linked: str) -> None:
    message_file(tmp_path / "elsewhere", 0, user({"text": "secret"}))
    messages = tmp_path / "s" / "session_chat" / "agents" / "agent_x" / "messages"
    messages.parent.mkdir(parents=True)
    secret = tmp_path / "elsewhere" / "messages"
    if linked == "messages":
        messages.symlink_to(secret)
    else:
        messages.mkdir()
        (messages / linked).symlink_to(secret / linked)

    with pytest.raises(MinagentError, match=f"{linked} is a link"):
        read_sessions(tmp_path / "s")


def test_a_place_without_sessions_is_refused(tmp_path: Path) -> None:
    (tmp_path / "messages").mkdir()

    with pytest.raises(MinagentError, match="holds no session"):
        read_sessions(tmp_path)
    assert not is_foreign(write(tmp_path / "x.json", {"data": {}}))
