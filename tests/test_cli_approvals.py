"""`minagent approvals`: the questions that wait, and what is decided about them."""

import asyncio
import json
from pathlib import Path
from shutil import copy

import pytest
import shop
from terminal import minagent

from minagent import Agent, Session, ToolCall, ToolResult, pending_tool_calls
from minagent.models import OfflineModel, ScriptedModel
from minagent.stores import open_store

pytestmark = pytest.mark.heavy

TOOLS = ("--tools", "shop:tools")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which two sessions wait, to be copied."""
    file = tmp_path_factory.mktemp("asked") / "chat.db"
    asyncio.run(ask(f"sqlite:///{file}", "ada", "call refund amount=3"))
    asyncio.run(ask(f"sqlite:///{file}", "bob", "call refund amount=4"))
    return file


@pytest.fixture
def url(file: Path, tmp_path: Path) -> str:
    copy(file, tmp_path)
    return f"sqlite:///{tmp_path}/chat.db?durability=normal"


async def ask(url: str, session_id: str, words: str) -> None:
    async with open_store(url) as sessions:
        agent = Agent(OfflineModel(), tools=shop.tools, session_manager=sessions)
        await agent.run(words, session_id=session_id, user_id=session_id)


def read(url: str, session_id: str) -> Session:
    async def work() -> Session | None:
        async with open_store(url) as sessions:
            return await sessions.get(session_id)

    session = asyncio.run(work())
    assert session is not None
    return session


def result_of(session: Session) -> ToolResult:
    items = [item for event in session.events for item in event.content]
    [result] = [item for item in items if isinstance(item, ToolResult)]
    return result


def question(url: str, session_id: str) -> str:
    [pending] = pending_tool_calls(read(url, session_id))
    return pending.fingerprint


# --- Seeing them --------------------------------------------------------------


def test_the_list_has_the_questions_of_all_sessions_the_oldest_first(url: str) -> None:
    done = minagent("approvals", "list", "--store", url)

    _, ada, bob = done.stdout.splitlines()
    assert ada.startswith(question(url, "ada")[:12])
    assert ada.endswith("waits  Refund 3 euros?")
    assert "bob" in bob


def test_the_list_of_one_session_has_no_others(url: str) -> None:
    done = minagent("approvals", "list", "--session", "bob", "--json", "--store", url)

    [asked] = json.loads(done.stdout)
    assert asked["id"] == question(url, "bob")
    assert (asked["session_id"], asked["user_id"]) == ("bob", "bob")
    assert (asked["name"], asked["arguments"]) == ("refund", {"amount": 4})
    assert asked["confirmation_message"] == "Refund 4 euros?"


def test_a_question_that_came_too_late_is_shown_as_such(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/chat.db"
    asyncio.run(ask(url, "ada", "call hurry"))

    done = minagent("approvals", "list", "--json", "--store", url)

    assert [each["state"] for each in json.loads(done.stdout)] == ["expired"]


# --- Deciding -----------------------------------------------------------------


def test_an_approved_tool_runs_and_the_conversation_goes_on(url: str) -> None:
    start = question(url, "ada")[:7]

    done = minagent(
        "approvals", "approve", start, *TOOLS, "--by", "eve", "--store", url
    )

    assert done.exit_code == 0, done.stderr
    assert done.stdout == (
        "assistant calls refund\n"
        "    amount = 3\n"
        "    approved by eve\n"
        "    done: refunded 3\n"
        "\n"
        "assistant\n"
        "    refund: refunded 3\n"
    )
    assert "bob" in minagent("approvals", "list", "--store", url).stdout


def test_it_can_run_with_other_arguments(url: str) -> None:
    edit = ("--arguments", '{"amount": 1}', "--json", "--by", "eve", "--store", url)

    done = minagent("approvals", "approve", question(url, "ada"), *TOOLS, *edit)

    told = json.loads(done.stdout)
    assert told["status"] == "complete"
    assert told["pending"] == []
    assert "refunded 1" in told["output"]


@pytest.mark.parametrize(
    ("typed", "code", "problem"),
    [
        ("{", 2, "--arguments"),
        ("[1]", 2, "it is no JSON object"),
        ('{"amount": "much"}', 1, "do not fit: amount"),
    ],
)
def test_arguments_that_do_not_fit_decide_nothing(
    url: str, typed: str, code: int, problem: str
) -> None:
    start = question(url, "ada")

    done = minagent(
        "approvals", "approve", start, *TOOLS, "--arguments", typed, "--store", url
    )

    assert done.exit_code == code
    assert problem in done.stderr
    assert question(url, "ada") == start


def test_a_denied_tool_does_not_run_and_need_not_be_there(url: str) -> None:
    deny = ("deny", question(url, "ada"), "--reason", "keep it", "--by", "eve")

    done = minagent("approvals", *deny, "--store", url)

    assert done.exit_code == 0, done.stderr
    assert "refund was denied by eve: keep it" in done.stdout
    assert result_of(read(url, "ada")).status == "denied"


def test_without_the_tool_nothing_is_approved(url: str) -> None:
    """The core would take the decision, and the call would come to an error."""
    approve = ("approve", question(url, "ada"), "--tools", "shop:weather")

    done = minagent("approvals", *approve, "--store", url)

    assert done.exit_code == 2
    assert "nothing was decided: the tool 'refund' is needed" in done.stderr
    assert question(url, "ada") == approve[1]


@pytest.mark.parametrize("option", ["--by", "--reason"])
def test_words_that_are_no_text_decide_nothing(url: str, option: str) -> None:
    asked = question(url, "ada")

    done = minagent("approvals", "deny", asked, option, "a\udcff", "--store", url)

    assert done.exit_code == 2
    assert f"{option}: 'a\\udcff' is no text" in done.stderr
    assert question(url, "ada") == asked


def test_a_second_decision_finds_no_question(url: str) -> None:
    approve = ("approvals", "approve", question(url, "ada"), *TOOLS, "--store", url)
    minagent(*approve)

    done = minagent(*approve)

    assert done.exit_code == 1
    assert "was decided or closed" in done.stderr
    assert result_of(read(url, "ada")).content == "refunded 3"


def test_a_beginning_that_fits_two_questions_decides_none(url: str) -> None:
    text = minagent("sessions", "export", "ada", "--store", url).stdout
    minagent("sessions", "import", "-", "--as", "copy", "--store", url, typed=text)
    start = question(url, "ada")[:6]

    done = minagent("approvals", "approve", start, *TOOLS, "--store", url)

    assert done.exit_code == 1
    assert "the start of 2 questions, in 'ada', 'copy'" in done.stderr
    assert question(url, "ada") == question(url, "copy")


@pytest.mark.parametrize("command", ["approve", "deny"])
@pytest.mark.parametrize("letters", [0, 1, 3])
def test_a_beginning_that_names_nothing_decides_nothing(
    url: str, command: str, letters: int
) -> None:
    """Also where only one question waits, which it would fit."""
    asked = question(url, "ada")
    words = (asked[:letters], *TOOLS, "--session", "ada", "--store", url)

    done = minagent("approvals", command, *words)

    assert done.exit_code == 2
    assert "at least 4 letters of it" in done.stderr
    assert question(url, "ada") == asked


@pytest.mark.parametrize("command", ["approve", "deny"])
def test_a_blank_is_the_beginning_of_no_question(url: str, command: str) -> None:
    done = minagent("approvals", command, " " * 4, *TOOLS, "--store", url)

    assert done.exit_code == 2
    assert "at least 4 letters of it" in done.stderr


def test_a_session_that_no_model_has_signed_needs_one_to_be_named(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/chat.db"
    call = ToolCall(name="refund", arguments={"amount": 3})

    async def work() -> None:
        async with open_store(url) as sessions:
            agent = Agent(
                ScriptedModel([call]), tools=shop.tools, session_manager=sessions
            )
            await agent.run("Please.", session_id="ada")

    asyncio.run(work())
    approve = ("approvals", "approve", question(url, "ada"), *TOOLS, "--store", url)

    unnamed, named = minagent(*approve), minagent(*approve, "--model", "offline")

    assert unnamed.exit_code == 2
    assert "say which: --model" in unnamed.stderr
    assert named.exit_code == 0


def test_a_question_of_an_agent_inside_another_is_decided_in_the_outer_session(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/chat.db"
    asyncio.run(ask(url, "ada", 'call clerk task="call refund amount=5"'))
    listed = json.loads(minagent("approvals", "list", "--json", "--store", url).stdout)
    [asked] = listed
    decide = ("approvals", "approve", asked["id"], "--by", "eve", "--store", url)

    without, done = (
        minagent(*decide, "--tools", "shop:refund"),
        minagent(*decide, *TOOLS),
    )

    assert asked["session_id"] == "ada"
    assert without.exit_code == 2
    assert "the tool 'clerk' is needed" in without.stderr
    assert "refunded 5" in done.stdout
    assert minagent("approvals", "list", "--json", "--store", url).stdout == "[]\n"


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        ("shop", "'shop' is no module:name"),
        ("nowhere:tools", "No module named 'nowhere'"),
        ("shop:nothing", "shop has no 'nothing'"),
        ("shop:no_tool", "is no tool; put @tool before the function"),
        (".shop:tools", "'.shop:tools' is no module:name"),
    ],
)
def test_tools_that_are_not_there_are_named(url: str, place: str, problem: str) -> None:
    approve = ("approvals", "approve", question(url, "ada"))

    done = minagent(*approve, "--tools", place, "--store", url)

    assert done.exit_code == 2
    assert problem in done.stderr
    assert question(url, "ada") == approve[2]
