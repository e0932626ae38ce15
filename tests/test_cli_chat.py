"""`minagent chat`, through a pipe: in this process, and so without a terminal.

What a person sees at a terminal, with questions and Ctrl-C, is in
`test_cli_terminal.py`.
"""

import asyncio
import json
import logging
import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from terminal import minagent

from minagent import (
    Agent,
    Event,
    Message,
    ModelRequest,
    ModelResponse,
    Note,
    Reasoning,
    ReasoningDelta,
    Session,
    TextDelta,
    ToolCall,
    pending_tool_calls,
)
from minagent.cards import MessageCard, cards, render_text
from minagent.cli.live import Live
from minagent.cli.screen import Screen
from minagent.model import Emit
from minagent.stores import open_store

pytestmark = pytest.mark.heavy


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/chat.db?durability=normal"


def shown(url: str, session_id: str = "ada") -> str:
    return minagent("sessions", "show", session_id, "--store", url).stdout


def chat(url: str, typed: str, *options: str, session_id: str = "ada") -> str:
    place = ("--session", session_id, "--store", url)
    done = minagent("chat", *place, *options, typed=typed)
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout


def test_what_is_seen_is_what_a_reload_shows(url: str) -> None:
    seen = chat(
        url,
        "Hello, my name is Ada.\nweather place=Rome\nWhat is my name?\n",
        *("--tools", "shop:tools"),
    )

    assert seen == shown(url)
    assert seen.endswith("assistant\n    Your name is Ada.\n")


def test_a_second_chat_begins_with_what_was_said(url: str) -> None:
    first = chat(url, "Hello, my name is Ada.\n")

    second = chat(url, "What is my name?\n")

    assert second.startswith(first)
    assert second == shown(url)
    assert "Your name is Ada." in second


def test_without_an_id_each_chat_is_a_new_one(url: str) -> None:
    for _ in range(2):
        minagent("chat", "--store", url, typed="Hello.\n")

    listed = minagent("sessions", "list", "--json", "--store", url)
    ids = {each["session_id"] for each in json.loads(listed.stdout)}
    assert len(ids) == 2
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d-[0-9a-f]{4}", each) for each in ids)


@pytest.mark.parametrize("typed", ["", "\n\n", "/quit\nHello.\n", "/help\n", "/exit\n"])
def test_a_chat_in_which_nothing_is_said_leaves_nothing(url: str, typed: str) -> None:
    done = minagent("chat", "--store", url, typed=typed)

    assert done.exit_code == 0
    assert minagent("sessions", "list", "--json", "--store", url).stdout == "[]\n"


def test_a_message_may_look_like_a_command(url: str) -> None:
    assert "/etc is a folder" in chat(url, "/etc is a folder\n")


def test_what_a_tool_raises_is_on_its_card_and_nowhere_else(url: str) -> None:
    seen = chat(url, "call fail\n", "--tools", "shop:tools")

    assert "failed: RuntimeError: no \\x1b[31mpaper" in seen


def test_a_session_of_another_user_is_not_shown(url: str) -> None:
    chat(url, "Hello.\n", "--user", "ada")
    as_bob = ("--session", "ada", "--user", "bob", "--store", url)

    done = minagent("chat", *as_bob, typed="Hello.\n")

    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == ("minagent: session 'ada' does not belong to user 'bob'\n")


# --- Questions, without a person ----------------------------------------------


def test_where_nobody_can_be_asked_the_question_goes_on_waiting(url: str) -> None:
    options = ("--session", "ada", "--store", url, "--tools", "shop:tools")
    typed = "call refund amount=3\nNever mind.\n"

    done = minagent("chat", *options, typed=typed)
    again = minagent("chat", *options, typed="Hello.\n")

    for each in (done, again):
        assert each.exit_code == 1
        assert "waits for a decision: Refund 3 euros?" in each.stdout
        assert "minagent approvals list" in each.stderr
    assert "Never mind." not in shown(url)


def test_continue_goes_on_from_what_a_crash_left(url: str) -> None:
    asyncio.run(leave(url))

    seen = chat(url, "/continue\n")

    assert seen.endswith("user\n    What is my name?\n\nassistant\n    " + UNTOLD)
    assert seen == shown(url)


UNTOLD = "You have not told me your name.\n"


async def leave(url: str) -> None:
    async with open_store(url) as sessions:
        session = await sessions.create("ada")
        said = Message(role="user", content="What is my name?")
        session.append(Event(author="user", content=(said,)))
        await sessions.save(session)


def test_with_nothing_to_continue_it_says_so(url: str) -> None:
    chat(url, "Hello.\n")

    done = minagent("chat", "--session", "ada", "--store", url, typed="/continue\n")

    assert done.exit_code == 1
    assert "nothing to go on from" in done.stderr


# --- Memory -------------------------------------------------------------------


def test_what_a_user_said_is_recalled_in_another_session(
    url: str, tmp_path: Path
) -> None:
    memory = ("--memory", f"sqlite:///{tmp_path}/memory.db", "--user")
    chat(url, "My kayak is red.\n", *memory, "ann", session_id="monday")

    ann = chat(url, "What is my kayak?\n", *memory, "ann", session_id="friday")
    bob = chat(url, "What is my kayak?\n", *memory, "bob", session_id="sunday")

    assert ann.endswith("Your kayak is red.\n")
    assert ann == shown(url, "friday")
    assert bob.endswith("You have not told me your kayak.\n")


def test_a_recall_that_fails_is_told_in_one_harmless_line(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    chat(url, "Hello.\n")  # from then on it is told

    logging.getLogger("minagent").warning("recall failed: %s", "no\n\x1b[31mfile")

    assert capsys.readouterr().err == "minagent: recall failed: no \\x1b[31mfile\n"


def test_a_memory_is_somebodys(url: str) -> None:
    done = minagent("chat", "--memory", "memory:", "--store", url, typed="Hello.\n")

    assert done.exit_code == 2
    assert "--memory needs --user" in done.stderr


# --- What streams -------------------------------------------------------------


class Streaming:
    """A model that thinks, speaks and calls, letter by letter."""

    def __init__(self, *items: Reasoning | Message | ToolCall) -> None:
        self.items = items

    async def generate(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        for item in self.items:
            if isinstance(item, ToolCall):
                continue
            delta = ReasoningDelta if isinstance(item, Reasoning) else TextDelta
            for letter in item.content:
                emit(delta(letter))
        return ModelResponse(self.items)


async def streamed(model: Streaming, live: Live) -> Session:
    async with Agent(model).stream("Hello.") as stream:
        async for item in stream:
            live.show(item)
    session = stream.result.context.session
    live.catch_up(session)
    return session


async def test_thoughts_and_words_stream_in_the_lines_of_their_cards(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = "One two three. " * 20 + "\n\n  - a list\n\n```\ncode\n```\n"
    model = Streaming(
        Reasoning(content="Let me think.\nWell."),
        Message(role="assistant", content=words),
    )
    screen = Screen()

    session = await streamed(model, Live(screen, "assistant"))

    drawn = render_text(cards(session.events), width=screen.width)
    assert capsys.readouterr().out == drawn + "\n"


letters = st.sampled_from("ab \n\t世🙂\x1b\u202e") | st.characters(
    exclude_characters="\r"
)


@given(st.lists(st.text(letters, max_size=60), max_size=6))
async def test_any_text_streams_in_the_lines_of_its_card(pieces: list[str]) -> None:
    screen, text = Screen(), "".join(pieces)
    screen.width = 24
    live = Live(screen, "assistant")
    card = MessageCard("", (), "assistant", role="assistant", text=text)

    with redirect_stdout(StringIO()) as written:
        for piece in pieces:
            live.show(TextDelta(piece))
        live.end()

    drawn = render_text([card], width=24) if text.strip() else ""
    assert without_blank_ends(written.getvalue()) == without_blank_ends(drawn)


def without_blank_ends(drawn: str) -> tuple[str, str]:
    """The heading, and the body without blank lines at its beginning and its end."""
    heading, _, body = drawn.partition("\n")
    return heading, body.strip("\n")


async def test_a_card_that_changed_meanwhile_is_drawn_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    call = ToolCall(name="refund", arguments={"amount": 3})
    session = Session("ada")
    session.append(Event(author="assistant", content=(call,), stop_reason="tool_use"))
    live = Live(Screen(), "assistant")
    live.catch_up(session)
    live.catch_up(session)
    once = capsys.readouterr().out

    session.append(Event(author="eve", content=(Note(kind="seen", text="Yes."),)))
    live.catch_up(session)

    assert once.count("calls refund") == 1
    assert "eve notes seen" in capsys.readouterr().out
    assert pending_tool_calls(session) == ()
