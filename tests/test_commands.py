"""Every command that a reader is shown works, as it is shown.

The commands are collected: from the README and the chapters, and from the `Example:`
of each command's help. Each has a line below that says how it is run, or which test
runs it; a command without one fails `test_it_is_known_how_each_command_is_run`. What a
chapter shows in a `console` block is run by `test_chapters.py`.
"""

import asyncio
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, build_opener

import pytest
from terminal import MINAGENT, PACKAGE, TESTS, environment, minagent, run
from typer.main import get_command

from minagent.cli.app import app
from minagent.cli.doctor import LOCAL_LINES
from minagent.testing import FakeAnthropic

README = PACKAGE / "README.md"
CHAPTERS = [PACKAGE / "chapters" / "README.md"]
CHAPTERS += sorted((PACKAGE / "chapters").glob("ch*/README.md"))
AT_THE_TERMINAL = "## At the terminal, and in the browser\n"

MEANT = {"claude-…": "claude-opus-5-5", "module:name": "shop:agent"}
"""What a reader writes in the place of what stands there."""

PROGRAMS = r"(?:minagent|pip|pytest|python3?|git) \S|export [A-Z]|scripts/\w+"


@dataclass(frozen=True)
class Ran:
    """What a command comes to.

    Attributes:
        says: What is in its output.
        makes: The file that it writes.
        exit_code: How it ends.
    """

    says: str = ""
    makes: str = ""
    exit_code: int = 0


CLAUDE = "minagent chat --session ada --model claude-opus-5-5 --tools shop:tools"
SERVES = (
    "minagent serve shop:agent",
    "minagent serve shop:clerk --store sqlite:///shop.db --open",
)
SERVER = "postgresql://ada@db.example.org/chat"
RUNS = {
    "minagent sessions list": Ran("monday"),
    "minagent sessions list --user ada --json": Ran('"session_id": "ada"'),
    "minagent sessions show ada --ids": Ran("    Hello, my name is Ada."),
    "minagent sessions export ada --format html -o ada.html": Ran(makes="ada.html"),
    "minagent sessions import ada.jsonl --as ada-2": Ran("Imported ada-2: 2 events."),
    "minagent sessions fork ada ada-2": Ran("ada-2 begins as ada stood"),
    "minagent sessions rewind ada": Ran("ada went back: 0 cards"),
    "minagent sessions delete ada bob --yes": Ran(),
    "minagent sessions prune --older-than 30d --yes": Ran("0 sessions deleted."),
    "minagent approvals list": Ran("Refund 3 euros?"),
    "minagent approvals approve 3fa94c --tools shop:refund": Ran("done: refunded 3"),
    "minagent approvals deny 3fa94c --reason 'keep it'": Ran("keep it"),
    "minagent memory add 'My kayak is red.' --user ann": Ran("Remembered as "),
    "minagent memory search 'What is my kayak?' --user ann": Ran("My kayak is red."),
    "minagent memory list --user ann": Ran("My kayak is red."),
    "minagent memory forget --user ann --session monday --yes": Ran("2 forgotten."),
    "minagent doctor": Ran("it opens"),
    f"minagent doctor --store {SERVER}": Ran("the store does not open", exit_code=1),
}
NEEDS = {
    "minagent demo --model claude-opus-5-5": "ANTHROPIC_API_KEY",
    "minagent demo --model local": LOCAL_LINES[0].rpartition(": ")[2],
}
"""What those say that need what is not here."""

ELSEWHERE = {
    r"minagent serve": (
        "test_cli_serve.py::test_without_an_agent_there_is_one_that_remembers"
    ),
    r"minagent demo": "test_readme.py::test_the_first_command_succeeds",
    r"(python worker\.py|export STORE=).*": (
        "test_readme.py::test_workers_share_a_store_and_nothing_else"
    ),
    r"pytest --noconftest tests/taste/exercise\.py": (
        "test_taste.py::test_the_exercise_starts_with_what_the_extra_of_it_installs"
    ),
    r"python -m chapters\.ch\d\d_\w+\.demo": (
        "test_chapters.py::test_a_demo_prints_what_is_shown_and_leaves_no_file"
    ),
    r"pytest chapters/ch\d\d_\w+ --mine( -x)?": (
        "test_chapters.py::test_every_test_fails_on_the_stub"
    ),
    r"scripts/notebooks": "test_notebooks.py::test_made_again_a_notebook_is_the_same",
}
"""Patterns of commands, and the test that runs them."""

NOT_OURS = {
    "git checkout",
    "pip install notebook",
    "python -m asyncio",
    "python -m ipykernel install --user --name minagent",
    "python -m pytest",
    "python3 -m venv .venv && source .venv/bin/activate",
}
BY_HAND = {
    "python -m tests.benchmarks.stores": "tests/benchmarks/stores.py",  # for minutes
    "scripts/test": "scripts/test",  # it runs this
}
"""What no test runs, and the file."""


# --- The commands that are shown ----------------------------------------------


def of_a_page(path: Path) -> Iterator[str]:
    """The commands of a page: of its plain blocks, and in its prose."""
    text = path.read_text(encoding="utf-8")
    fenced = re.compile(r"^```(.*)\n((?:.*\n)*?)```$", re.MULTILINE)
    for info, block in fenced.findall(text):
        is_run_already = info == "console" and path != README
        if info in ("", "console") and not is_run_already:
            typed = re.findall(r"^\$ (.*)", block, re.MULTILINE)
            yield from typed or re.findall(f"^(?:{PROGRAMS}).*", block, re.MULTILINE)
    for quoted in re.findall("`([^`]+)`", fenced.sub("", text)):
        if re.match(PROGRAMS, quoted):
            yield " ".join(quoted.split())


def of_the_help() -> dict[str, str]:
    """The example of each command."""
    found = {}

    def walk(command: Any, name: str) -> None:
        for word, below in getattr(command, "commands", {}).items():
            walk(below, f"{name} {word}")
        if not hasattr(command, "commands"):
            examples = re.findall(r"^Example: (.*)", command.help, re.MULTILINE)
            found[name] = "\n".join(examples)

    walk(get_command(app), "minagent")
    return found


def of_the_table() -> list[str]:
    """The names of commands in the README's table: `minagent x a`, `b` is two."""
    section = README.read_text().partition(AT_THE_TERMINAL)[2].partition("\n## ")[0]
    found = []
    for row in re.findall(r"^\| (`minagent .*?) \|", section, re.MULTILINE):
        first, *more = re.findall("`([^`]+)`", row)
        group, _, _ = first.rpartition(" ")
        found.append(first)
        found += [x if x.startswith("minagent ") else f"{group} {x}" for x in more]
    return found


def commands() -> list[str]:
    """All of them, as a reader would type them."""
    pages = [command for page in (README, *CHAPTERS) for command in of_a_page(page)]
    found = [*pages, *of_the_table(), *of_the_help().values()]
    return list(dict.fromkeys(map(meant, found)))


def meant(command: str) -> str:
    for placeholder, word in MEANT.items():
        command = command.replace(placeholder, word)
    return re.sub(r"\s+# .*", "", command).strip()


COMMANDS = commands()


# --- That each is known -------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_it_is_known_how_each_command_is_run(command: str) -> None:
    in_the_table = command in of_the_table()

    assert (
        command in {*RUNS, *SERVES, *NEEDS, CLAUDE, *NOT_OURS, *BY_HAND}
        or any(re.fullmatch(pattern, command) for pattern in ELSEWHERE)
        or command.startswith("pip install ")
        # The table names commands; what is to be typed behind them, the help says.
        or (in_the_table and command in of_the_help())
    ), "say here how it is run"


def test_what_is_run_here_is_shown_somewhere() -> None:
    assert {*RUNS, *SERVES, *NEEDS, CLAUDE} - {*COMMANDS} == set()


def test_every_command_has_one_example_in_its_help_which_is_of_itself() -> None:
    for name, example in of_the_help().items():
        assert f"{example} ".startswith(f"{name} "), name
        assert "\n" not in example


def test_the_tests_that_run_the_others_are_there() -> None:
    for place in ELSEWHERE.values():
        file, _, name = place.partition("::")

        assert f"def {name}(" in (TESTS / file).read_text(encoding="utf-8")
    for file in BY_HAND.values():
        assert (PACKAGE / file).exists()


@pytest.mark.parametrize("command", [x for x in COMMANDS if x.startswith("pip ")])
def test_what_is_to_be_installed_is_something_that_there_is(command: str) -> None:
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    *_, package = shlex.split(command)

    if extras := re.fullmatch(r"(?:\.|minagent)\[(.+)\]", package):
        assert {*extras[1].split(",")} <= {*project["optional-dependencies"]}
    else:
        assert command in NOT_OURS or any(command in line for line in LOCAL_LINES)


# --- Running them -------------------------------------------------------------


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of somebody who has followed along, and a question that waits."""
    folder = tmp_path_factory.mktemp("followed")
    agents = 'agent = clerk = Agent(OfflineModel(), name="agent")\n'
    (folder / "shop.py").write_text((TESTS / "shop.py").read_text() + agents)
    with pytest.MonkeyPatch.context() as patch:
        at(folder, patch)
        said = {"ada": "Hello, my name is Ada.", "bob": "call refund amount=3"}
        for user, words in said.items():
            chat = ("chat", "--session", user, "--user", user, "--tools", "shop:tools")
            minagent(*chat, typed=f"{words}\n")
        remembers = ("--user", "ann", "--memory", "sqlite:///memory.db")
        minagent("chat", "--session", "monday", *remembers, typed="My kayak is red.\n")
        minagent("sessions", "export", "ada", "-o", "ada.jsonl")
        question = minagent("approvals", "list").stdout.splitlines()[1].split()[0]
    return folder, question[:6]


def at(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Be in a folder, with its stores at hand, and with no key."""
    patch.chdir(folder)
    patch.setenv("XDG_DATA_HOME", str(folder))
    patch.setenv("MINAGENT_STORE", "sqlite:///chat.db")
    patch.setenv("MINAGENT_MEMORY", "sqlite:///memory.db")
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"):
        patch.delenv(name, raising=False)


@pytest.fixture
def folder(
    followed: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A copy of that folder, to be in."""
    shutil.copytree(followed[0], tmp_path, dirs_exist_ok=True)
    at(tmp_path, monkeypatch)
    return tmp_path


@pytest.mark.parametrize("command", RUNS)
def test_a_command_does_what_it_says(
    command: str, folder: Path, followed: tuple[Path, str]
) -> None:
    expected = RUNS[command]
    typed = command.replace("3fa94c", followed[1])
    # A server that is known not to be there.
    typed = typed.replace("db.example.org", "127.0.0.1:1")

    _, *words = shlex.split(typed)
    done = minagent(*words)

    assert done.exit_code == expected.exit_code, done.output
    assert expected.says in done.output
    assert (folder / expected.makes).exists()


@pytest.mark.heavy
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", NEEDS)
def test_a_command_that_needs_more_says_what(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)

    _, *words = shlex.split(command)
    done = minagent(*words)

    assert done.exit_code == 1
    assert NEEDS[command] in done.output


@pytest.mark.heavy
async def test_a_chat_with_claude_uses_the_tools_that_are_named(folder: Path) -> None:
    call = {
        **{"type": "tool_use", "id": "toolu_1"},
        **{"name": "weather", "input": {"place": "Rome"}},
    }
    chat = [*MINAGENT, *shlex.split(CLAUDE)[1:]]
    piped = ("sh", "-c", 'echo "How is Rome?" | "$0" "$@"', *chat)
    async with FakeAnthropic([[call], "Sunny, it seems."]) as api:
        place = {"ANTHROPIC_BASE_URL": api.url, "ANTHROPIC_API_KEY": "a-key"}
        place |= {"MINAGENT_STORE": "sqlite:///claude.db"}

        done = await asyncio.to_thread(run, *piped, cwd=folder, **place)
        api.assert_done()

    assert (done.returncode, done.stderr) == (0, "")
    assert "sunny in Rome" in done.stdout
    assert "Sunny, it seems." in done.stdout


@pytest.mark.heavy
@pytest.mark.parametrize("command", SERVES)
def test_a_server_starts_and_ends(command: str, folder: Path) -> None:
    """With `--open`, the browser of this place says what it is asked to show."""
    more = {"MINAGENT_STORE": "sqlite:///chat.db", "BROWSER": "echo"}
    more |= {"MINAGENT_MEMORY": "sqlite:///recalled.db", "XDG_DATA_HOME": str(folder)}
    _, *words = shlex.split(command)
    with subprocess.Popen(
        [*MINAGENT, *words, "--port", "0"],
        cwd=folder,
        env=environment(**more),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as server:
        assert server.stdout is not None
        try:
            line = server.stdout.readline()
            shown = server.stdout.readline() if "--open" in words else ""
            [address] = re.findall(r"http://\S+", line)
            with build_opener(ProxyHandler({})).open(address, timeout=30) as page:
                answered = page.status
            server.send_signal(signal.SIGINT)

            assert (answered, server.wait(30)) == (200, 0)
        finally:
            server.kill()

    assert line.startswith("agent is at http://127.0.0.1:"), line
    assert shown in ("", f"{address}\n")
    assert (folder / "recalled.db").exists()
