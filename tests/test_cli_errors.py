"""What every command has in common: its help, and how it fails."""

import asyncio
import json
import re
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from terminal import MINAGENT, PACKAGE, TESTS, environment, minagent, run

from minagent import Session
from minagent.cli.exports import jsonl
from minagent.memory import SQLiteMemoryManager
from minagent.stores import SQLiteSessionManager, open_store
from minagent.testing import FakeAnthropic

READS = {
    "sessions list": (),
    "sessions show": ("ada",),
    "sessions export": ("ada",),
    "approvals list": (),
    "doctor": (),
}
WRITES = {
    "sessions import": ("ada.jsonl",),
    "sessions fork": ("ada", "ada-2"),
    "sessions rewind": ("ada",),
    "sessions delete": ("ada", "--yes"),
    "sessions prune": ("--older-than", "30d", "--yes"),
    "approvals approve": ("3fa94c",),
    "approvals deny": ("3fa94c",),
    "chat": ("--session", "ada"),
}
OF_SESSIONS = READS | WRITES
OF_MEMORY = {
    "memory add": ("One.", "--user", "ann"),
    "memory search": ("One?", "--user", "ann"),
    "memory list": ("--user", "ann"),
    "memory forget": ("--all", "--user", "ann", "--yes"),
}
EVERY = OF_SESSIONS | OF_MEMORY
STORE = "sqlite:///chat.db"
ABOUT_ONE = [
    name for name in OF_SESSIONS if "ada" in OF_SESSIONS[name] and name != "chat"
]
GROUPS = ("sessions", "approvals", "memory")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a session to import; no other store is at hand."""
    session = Session("ada")
    (tmp_path / "ada.jsonl").write_text("".join(f"{each}\n" for each in jsonl(session)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    for name in ("MINAGENT_STORE", "MINAGENT_MEMORY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def at(place: str, name: str) -> tuple[str, ...]:
    """A command at a place."""
    option = "--memory" if name in OF_MEMORY else "--store"
    return (*name.split(), *EVERY[name], option, place)


def expect_one_line(stderr: str) -> None:
    assert re.fullmatch(r"minagent: .+\n", stderr), stderr


# --- Help ---------------------------------------------------------------------


@pytest.mark.heavy  # of no other Python is more to be learned
@pytest.mark.parametrize("name", EVERY)
def test_the_help_of_a_command_has_an_example(name: str) -> None:
    done = minagent(*name.split(), "--help")

    assert (done.exit_code, done.stderr) == (0, "")
    assert f"Example: minagent {name}" in " ".join(done.stdout.split())


@pytest.mark.parametrize("name", GROUPS)
def test_a_group_without_a_command_shows_what_there_is(name: str) -> None:
    asked, bare = minagent(name, "--help"), minagent(name)

    assert asked.exit_code == 0
    commands = [each.split()[1] for each in EVERY if each.startswith(name)]
    assert all(re.search(rf"│ {each} +[A-Z]", asked.output) for each in commands)
    assert bare.output.strip() == asked.output.strip()


@pytest.mark.heavy  # of no other Python is more to be learned
@pytest.mark.parametrize("name", EVERY)
def test_an_option_that_is_none_is_a_wrong_usage(name: str) -> None:
    done = minagent(*name.split(), *EVERY[name], "--no-such-option")

    assert done.exit_code == 2
    assert "--no-such-option" in done.stderr


def test_the_shell_can_complete_what_is_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_MINAGENT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "minagent sessions re")
    monkeypatch.setenv("COMP_CWORD", "2")
    from typer.testing import CliRunner

    from minagent.cli.app import app

    done = CliRunner().invoke(app, [], prog_name="minagent")

    assert done.stdout.split() == ["rewind"]


# --- Where nothing is ---------------------------------------------------------


@pytest.mark.parametrize("name", ["sessions list", "approvals list", "memory list"])
def test_a_list_of_nothing_is_no_error(name: str) -> None:
    done, as_json = (
        minagent(*at("memory:", name)),
        minagent(*at("memory:", name), "--json"),
    )

    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr.count("\n") == 1
    assert (json.loads(as_json.stdout), as_json.stderr) == ([], "")


@pytest.mark.parametrize("name", ["memory search", "sessions prune"])
def test_finding_nothing_is_no_error(name: str) -> None:
    done = minagent(*at("memory:", name), "--json")

    assert (done.exit_code, json.loads(done.stdout)) == (0, [])


@pytest.mark.parametrize("name", ABOUT_ONE)
def test_a_session_that_is_not_there_is_named(name: str) -> None:
    done = minagent(*at("memory:", name))

    assert done.exit_code == 1
    assert done.stderr == "minagent: there is no session 'ada' in this store\n"


@pytest.mark.parametrize("name", ["approvals approve", "approvals deny"])
def test_a_question_that_is_not_there_is_named(name: str) -> None:
    done = minagent(*at("memory:", name))

    assert done.exit_code == 1
    assert done.stderr.startswith("minagent: no question '3fa94c' waits")


@pytest.mark.parametrize("name", ABOUT_ONE)
def test_an_id_that_is_none_is_refused_in_one_line(name: str) -> None:
    words = ["\x1bada\n" if each == "ada" else each for each in at("memory:", name)]

    done = minagent(*words)

    assert done.exit_code == 1
    expect_one_line(done.stderr)
    assert "holds a control character" in done.stderr


# --- Stores that cannot be used -----------------------------------------------


@pytest.mark.parametrize("name", EVERY)
def test_an_address_that_is_none_is_named(name: str, folder: Path) -> None:
    before = sorted(folder.rglob("*"))

    done = minagent(*at("nonsense:chat", name))

    assert done.exit_code == (1 if name == "doctor" else 2)
    expect_one_line(done.stderr)
    assert "has the scheme 'nonsense'" in done.stderr
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://chat.db",
        "sqlite:",
        "memory:?x=1",
        "file:",
        "s3:",
        "http://[",
        "sqlite",
    ],
)
def test_an_address_of_no_place_is_refused(url: str) -> None:
    done, memory = (
        minagent(*at(url, "sessions list")),
        minagent(*at(url, "memory list")),
    )

    for each in (done, memory):
        assert each.exit_code == 2
        expect_one_line(each.stderr)


@pytest.mark.parametrize("name", OF_MEMORY)
def test_a_file_name_with_a_nul_in_it_is_refused(name: str) -> None:
    done = minagent(*at("sqlite:///x%00y.db", name))

    assert done.exit_code == 2
    expect_one_line(done.stderr)
    assert "--memory: a file's name has no NUL in it" in done.stderr


def test_a_file_name_that_would_end_before_a_hash_is_refused() -> None:
    done = minagent(*at("sqlite:///a#b.db", "memory list"))

    assert done.exit_code == 2
    expect_one_line(done.stderr)
    assert "--memory: a # in a file's name is written %23" in done.stderr


@pytest.mark.parametrize("name", ["sessions list", "memory list"])
def test_without_a_home_it_says_how_to_name_a_place(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container, for a user whom the system does not know."""
    for variable in ("HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)

    done, doctor = minagent(*name.split(), *EVERY[name]), minagent("doctor")

    assert (done.exit_code, doctor.exit_code) == (1, 1)
    expect_one_line(done.stderr)
    assert "no home folder is known" in done.stderr
    assert "the store does not open: no home folder is known" in doctor.stderr


def test_who_has_named_a_data_folder_needs_no_home(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)

    done = minagent("sessions", "list")

    assert done.exit_code == 0
    assert (folder / "minagent").is_dir()


@pytest.mark.heavy  # of no other Python is more to be learned
@pytest.mark.parametrize("name", EVERY)
def test_a_file_of_another_kind_is_left_as_it_is(name: str, folder: Path) -> None:
    text = "This is no database. " * 100
    (folder / "chat.db").write_text(text)

    done = minagent(*at(STORE, name))

    assert done.exit_code == 1
    expect_one_line(done.stderr)
    assert "file is not a database" in done.stderr
    assert (folder / "chat.db").read_text() == text


@pytest.fixture
def locked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A file that somebody else holds, and stores that wait but a moment for it."""
    for manager in (SQLiteSessionManager, SQLiteMemoryManager):
        defaults = manager.__init__.__kwdefaults__  # type: ignore[misc]
        monkeypatch.setitem(defaults, "busy_timeout_seconds", 0.01)
    with closing(sqlite3.connect(folder / "chat.db")) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        yield STORE


@pytest.mark.heavy  # of no other Python is more to be learned
@pytest.mark.parametrize("name", EVERY)
def test_a_locked_file_is_an_error_of_one_line(name: str, locked: str) -> None:
    done = minagent(*at(locked, name))

    assert done.exit_code == 1
    expect_one_line(done.stderr)
    assert "database is locked" in done.stderr


@pytest.mark.heavy  # of no other Python is more to be learned
@pytest.mark.parametrize("name", EVERY)
def test_a_folder_that_is_not_there_is_an_error_of_one_line(name: str) -> None:
    done = minagent(*at("sqlite:///no/chat.db", name))

    assert done.exit_code == 1
    expect_one_line(done.stderr)


@pytest.mark.parametrize(
    ("url", "module", "extra"),
    [
        ("s3://bucket", "aiobotocore.config", "s3"),
        ("postgresql://host/name", "psycopg", "postgres"),
    ],
)
def test_a_missing_extra_comes_with_the_line_that_adds_it(
    url: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for home in ("minagent.stores.s3", "minagent.stores.postgres"):
        monkeypatch.delitem(sys.modules, home, raising=False)
    monkeypatch.setitem(sys.modules, module, None)

    done = minagent(*at(url, "sessions list"))

    assert done.exit_code == 1
    expect_one_line(done.stderr)
    assert f"pip install 'minagent[{extra}]'" in done.stderr


# --- A session that cannot be read --------------------------------------------


@pytest.fixture
def damaged() -> str:
    """A store of two sessions, of which `ada` is damaged."""
    for name in ("ada", "bob"):
        minagent("chat", "--session", name, "--store", STORE, typed="Hello.\n")
    with closing(sqlite3.connect("chat.db")) as connection, connection:
        [[key]] = connection.execute(
            "SELECT key FROM sessions WHERE session_id = 'ada'"
        ).fetchall()
        connection.execute("UPDATE events SET data = '{}' WHERE session = ?", (key,))
    return STORE


@pytest.mark.parametrize(
    "name",
    ["sessions show", "sessions export", "sessions fork", "sessions rewind", "chat"],
)
def test_a_damaged_session_is_named_and_left_as_it_is(name: str, damaged: str) -> None:
    done = minagent(*at(damaged, name))

    assert (done.exit_code, done.stdout) == (1, "")
    expect_one_line(done.stderr)
    assert "session 'ada' cannot be read" in done.stderr


def test_a_damaged_session_is_listed_and_can_be_deleted(damaged: str) -> None:
    listed = minagent(*at(damaged, "sessions list"))
    deleted = minagent(*at(damaged, "sessions delete"))

    assert "ada" in listed.stdout
    assert deleted.exit_code == 0
    assert "ada" not in minagent(*at(damaged, "sessions list")).stdout


def test_a_damaged_session_does_not_hide_the_questions_of_others(damaged: str) -> None:
    tools = ("--tools", "shop:tools", "--store", damaged)
    minagent("chat", "--session", "bob", *tools, typed="call refund amount=3\n")

    done = minagent(*at(damaged, "approvals list"))

    assert "Refund 3 euros?" in done.stdout
    assert done.exit_code == 1
    assert "session 'ada' cannot be read" in done.stderr


# --- Readers that leave, and Ctrl-C -------------------------------------------


@pytest.fixture
def full(folder: Path) -> str:
    """A store with more in it than fits into a pipe."""

    async def fill() -> None:
        async with open_store("file:///" + str(folder / "full")) as sessions:
            session = await sessions.create("ada")
            session.state["text"] = "words " * 40_000
            await sessions.save(session)
        memory = SQLiteMemoryManager(folder / "memory.db")
        async with memory:
            await memory.add("words " * 40_000, user_id="ann")

    asyncio.run(fill())
    return "file:///" + str(folder / "full")


@pytest.mark.heavy
@pytest.mark.parametrize(
    "command",
    [
        "sessions list",
        "sessions show ada --json",
        "sessions export ada",
        "sessions export ada --format html",
        "memory list --memory sqlite:///memory.db --user ann",
        "doctor",
        "sessions --help",
        "chat --session ada",
    ],
)
def test_a_reader_that_goes_away_is_no_news(
    command: str, full: str, folder: Path
) -> None:
    words = f"yes Hello. | {sys.executable} -m minagent {command} | true"

    done = run("sh", "-c", words, cwd=folder, MINAGENT_STORE=full)

    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.heavy
def test_ctrl_c_ends_a_command_with_130(folder: Path) -> None:
    """It waits for a server that accepts and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"postgresql://ada@127.0.0.1:{server.getsockname()[1]}/chat"
        process = subprocess.Popen(
            [*MINAGENT, "sessions", "list", "--store", url],
            cwd=folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        connection, _ = server.accept()
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=30)
        connection.close()

    assert (process.returncode, stdout) == (130, "")
    assert stderr == "minagent: interrupted\n"


@pytest.mark.heavy
@pytest.mark.parametrize("typed", ["Hello.\n", "call wait\n"])
def test_ctrl_c_ends_a_chat_without_a_terminal(typed: str, folder: Path) -> None:
    """It waits for the next line, or for a tool."""
    chat = (*MINAGENT, "chat", "--session", "ada", "--tools", "shop:wait")
    with subprocess.Popen(
        [*chat, "--store", STORE],
        cwd=folder,
        env=environment(PYTHONPATH=f"{PACKAGE}:{TESTS}", PYTHONUNBUFFERED="1"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(typed)
        process.stdin.flush()
        if typed == "Hello.\n":
            while "assistant" not in process.stdout.readline():
                assert process.poll() is None
        else:
            while not (folder / "waits").exists():
                assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=30)

    assert process.returncode == 130
    assert stderr == "minagent: interrupted\n"


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_ctrl_c_while_the_loop_of_a_chat_stands_still_is_not_lost(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes behind each of the four runs that the loop has in a chat of one turn."""
    run_of, runs = asyncio.Runner.run, iter(range(1, 5))

    def interrupted(*given: Any) -> Any:
        done = run_of(*given)
        if next(runs) == count:
            signal.raise_signal(signal.SIGINT)
        return done

    monkeypatch.setattr(asyncio.Runner, "run", interrupted)

    done = minagent("chat", "--store", "memory:", typed="Hello.\n")

    assert (done.exit_code, done.stderr) == (130, "minagent: interrupted\n")


# --- Users --------------------------------------------------------------------

OF_A_USER = {
    "chat": ("--store", "memory:"),
    "sessions list": ("--store", "memory:"),
    "sessions fork": ("ada", "ada-2", "--store", "memory:"),
    "memory add": ("One.", "--memory", "memory:"),
    "memory search": ("One?", "--memory", "memory:"),
    "memory list": ("--memory", "memory:"),
    "memory forget": ("--all", "--yes", "--memory", "memory:"),
}


@pytest.mark.parametrize("user", ["", "a\udcff", "a\nb", "a" * 256])
@pytest.mark.parametrize("name", OF_A_USER)
def test_a_user_that_can_be_none_is_refused_in_one_line(name: str, user: str) -> None:
    done = minagent(*name.split(), *OF_A_USER[name], "--user", user)

    assert (done.exit_code, done.stdout) == (2, "")
    expect_one_line(done.stderr)
    assert done.stderr.startswith("minagent: --user: the user id ")


# --- Modules of one's own -----------------------------------------------------

BROKEN = {
    "def f(:\n": "SyntaxError: invalid syntax",
    "1 / 0\n": "ZeroDivisionError: division by zero",
    "import os\nos.no_such_name\n": "AttributeError: module 'os' has no attribute",
    "import no_such_package\n": "ModuleNotFoundError: No module named 'no_such_pack",
    "raise SystemExit(0)\n": "SystemExit: 0",
}


@pytest.mark.parametrize("name", ["chat --tools", "serve"])
@pytest.mark.parametrize("text", BROKEN)
def test_what_is_wrong_with_a_module_is_told_in_one_line(
    name: str, text: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "broken.py").write_text(text)
    monkeypatch.syspath_prepend(folder)

    done = minagent(*name.split(), "broken:refund", "--store", "memory:")

    assert done.exit_code == 2
    expect_one_line(done.stderr)
    assert f"broken:refund: {BROKEN[text]}" in done.stderr


# --- Models -------------------------------------------------------------------


def test_a_model_that_is_none_is_named() -> None:
    done = minagent("chat", "--model", "ofline", "--store", "memory:", typed="Hello.\n")

    assert done.exit_code == 2
    expect_one_line(done.stderr)
    assert "'ofline' is none of offline, local and claude-" in done.stderr


@pytest.mark.heavy  # it loads the client
def test_without_a_key_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)

    done = minagent("chat", "--model", "claude-x", "--store", "memory:", typed="Hello.")

    assert done.exit_code == 1
    expect_one_line(done.stderr)
    assert "ANTHROPIC_API_KEY" in done.stderr


@pytest.mark.heavy
async def test_what_a_model_refuses_is_told_and_the_message_is_kept(
    folder: Path,
) -> None:
    chat = ("chat", "--model", "claude-none", "--session", "ada", "--store", STORE)
    piped = ("sh", "-c", 'echo Hello. | "$0" "$@"', *MINAGENT, *chat)
    async with FakeAnthropic([]) as api:
        place = {"ANTHROPIC_BASE_URL": f"{api.url}/nowhere", "ANTHROPIC_API_KEY": "a"}

        done = await asyncio.to_thread(run, *piped, cwd=folder, **place)

    assert done.returncode == 1
    expect_one_line(done.stderr)
    assert "claude-none could not be asked" in done.stderr
    shown = run(*MINAGENT, "sessions", "show", "ada", "--store", STORE, cwd=folder)
    assert shown.stdout == "user\n    Hello.\n"
