"""`minagent chat` at a terminal: what a person types, and what Ctrl-C ends."""

import asyncio
import sys
from contextlib import closing
from pathlib import Path

import pytest
from terminal import ESCAPE, MINAGENT, PACKAGE, TESTS, Terminal, chatting, minagent

from minagent import Session, ToolResult, pending_tool_calls
from minagent.stores import open_store

pytestmark = pytest.mark.heavy

OFFLINE = ("--tools", "shop:tools", "--session", "ada")
ASKED = "Refund 3 euros? approve, edit or deny? "


def read(url: str) -> Session:
    async def work() -> Session | None:
        async with open_store(url) as sessions:
            return await sessions.get("ada")

    session = asyncio.run(work())
    assert session is not None
    return session


def results(session: Session) -> list[tuple[str, str]]:
    items = [item for event in session.events for item in event.content]
    return [(x.status, x.content) for x in items if isinstance(x, ToolResult)]


# --- From one process to the next ---------------------------------------------


def test_what_was_left_is_asked_first_in_the_next_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/chat.db"
    with chatting(tmp_path, *OFFLINE, "--store", url) as t:
        t.type("call refund amount=3\n")
        t.wait_for(ASKED)
        t.type("\x04")
        assert t.exit_code() == 0

    with closing(_Waiting(tmp_path, *OFFLINE, "--store", url)) as t:
        t.wait_for("user\n    call refund amount=3\n")
        t.wait_for(ASKED)
        t.type("approve\n")
        t.wait_for("done: refunded 3\n")

    assert results(read(url)) == [("success", "refunded 3")]


class _Waiting(Terminal):
    """A chat that begins with a question, and not with the prompt."""

    def __init__(self, folder: Path, *options: str) -> None:
        more = {"TERM": "dumb", "PYTHONPATH": f"{PACKAGE}:{TESTS}"}
        super().__init__([*MINAGENT, "chat", *options], folder, **more)


# --- Questions ----------------------------------------------------------------


def test_a_person_edits_denies_with_a_reason_and_decides_later(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/chat.db"
    with chatting(tmp_path, *OFFLINE, "--store", url) as t:
        t.type("call refund amount=3\n")
        t.wait_for(ASKED)
        t.type("perhaps\n")
        t.wait_for('Please type "approve", "edit" or "deny".')
        t.wait_for(ASKED)
        t.type("edit\n")
        t.wait_for('{"amount": 3}')
        t.type('\x15{"amount": "all"}\n')
        t.wait_for("These do not fit: amount")
        t.wait_for(ASKED)
        t.type("e\n")
        t.wait_for('{"amount": 3}')
        t.type('\x15{"amount": 1}\n')
        t.wait_for('approved by eve, with {"amount": 1} instead')
        t.wait_for("\n> ")

        t.type("call refund amount=3\n")
        t.wait_for(ASKED)
        t.press_until("\x03", "(It goes on waiting.")
        assert len(pending_tool_calls(read(url))) == 1
        t.wait_for("\n> ")
        t.type("/continue\n")
        t.wait_for(ASKED)
        t.type("deny\n")
        t.wait_for("Why not? ")
        t.type("too much\n")
        t.wait_for("refund was denied by eve: too much")

    assert [status for status, _ in results(read(url))] == ["success", "denied"]


def test_a_question_that_somebody_else_decided_is_not_decided_again(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/chat.db"
    with chatting(tmp_path, *OFFLINE, "--store", url) as t:
        t.type("call refund amount=3\n")
        t.wait_for(ASKED)
        [asked] = pending_tool_calls(read(url))
        deny = ("deny", asked.fingerprint, "--by", "bob", "--store", url)
        assert minagent("approvals", *deny).exit_code == 0
        t.type("approve\n")
        t.wait_for("was decided or closed before")
        t.wait_for("\n> ")

    assert "denied by bob" in t.shown
    assert [status for status, _ in results(read(url))] == ["denied"]


# --- Leaving ------------------------------------------------------------------


def test_ctrl_c_at_the_prompt_ends_nothing_and_ctrl_d_the_chat(tmp_path: Path) -> None:
    with chatting(tmp_path, "--store", "memory:") as t:
        t.type("Half a mess")
        t.wait_for("Half a mess")
        t.press_until("\x03", "(Ctrl-D or /quit ends the chat.)\n\n> ")
        t.type("\x04")

        assert t.exit_code() == 0
    assert "Traceback" not in t.shown
    assert "This is kept" not in t.shown


def test_ctrl_c_just_before_an_answer_ends_nothing(tmp_path: Path) -> None:
    program = [sys.executable, "-c", PRESSED, "chat", "--store", "memory:"]
    with closing(Terminal(program, tmp_path, TERM="dumb")) as t:
        t.wait_for("\n> ")
        t.type("Hello.\n")
        t.wait_for("(/continue looks whether an answer is missing.)\n\n> ")
        t.type("My name is Ada.\n")
        t.wait_for("Ada.\n\n> ")
        t.type("\x04")

        assert t.exit_code() == 0
    assert t.shown.count("\nuser\n") == 0  # what was said is on the screen already
    assert t.shown.count("\nassistant\n") == 1


PRESSED = """
import asyncio, runpy, signal

def pressed(runner, get_loop=asyncio.Runner.get_loop):
    asyncio.Runner.get_loop = get_loop
    signal.raise_signal(signal.SIGINT)

asyncio.Runner.get_loop = pressed
runpy.run_module("minagent", run_name="__main__")
"""


def test_ctrl_c_while_a_tool_runs_answers_its_call(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/chat.db"
    with chatting(tmp_path, *OFFLINE, "--store", url) as t:
        t.type("call wait\n")
        while not (tmp_path / "waits").exists():
            pass
        t.type("\x03\x03\x03")
        t.wait_for("cancelled: Cancelled before there was a result")
        t.wait_for("(Cancelled.")
        t.type("Hello.\n")
        t.wait_for("    Hello.\n\n> ")

    assert [status for status, _ in results(read(url))] == ["cancelled"]


# --- The terminal -------------------------------------------------------------


def test_colours_and_what_passes_are_for_a_terminal_that_has_them(
    tmp_path: Path,
) -> None:
    with chatting(tmp_path, *OFFLINE, "--store", "memory:", TERM="xterm-256color") as t:
        t.type("weather place=Rome\n")
        t.wait_for("sunny in Rome")
        colour = t.shown
    with chatting(
        tmp_path, *OFFLINE, "--store", "memory:", TERM="xterm-256color", NO_COLOR="1"
    ) as t:
        t.type("weather place=Rome\n")
        t.wait_for("weather: sunny in Rome")

    assert f"{ESCAPE}[1;36massistant calls weather" in colour
    assert f"{ESCAPE}[2K" in colour
    assert f"{ESCAPE}[1" not in t.shown
    assert f"{ESCAPE}[2K" not in t.shown


def test_work_that_takes_its_time_is_shown_while_it_does(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/chat.db"
    minagent("chat", "--store", url, typed="Hello.\n")
    command = [*MINAGENT, "approvals", "list", "--store", url]

    shown = []
    for more in ({"TERM": "xterm"}, {"TERM": "xterm", "NO_COLOR": "1"}):
        with closing(Terminal(command, tmp_path, **more)) as t:
            assert t.exit_code() == 0
            shown.append(t.shown)

    assert "Looking into sessions" in shown[0]
    assert shown[1] == "minagent: no question waits\n"


def test_before_something_is_deleted_a_person_is_asked(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/chat.db"
    with chatting(tmp_path, "--session", "ada", "--store", url) as t:
        t.type("Hello.\n")
        t.wait_for("\n> ")
    command = [*MINAGENT, "sessions", "delete", "ada", "--store", url]

    for typed, code in (("\n", 1), ("\x04", 1), ("yes\n", 0)):
        with closing(Terminal(command, tmp_path, TERM="dumb")) as t:
            t.wait_for("Delete ada for good? [y/N] ")
            t.type(typed)
            assert t.exit_code() == code
        assert ("nothing was deleted" in t.shown) == bool(code)
