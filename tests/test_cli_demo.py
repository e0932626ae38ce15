"""`minagent demo`, run as people run it: in a shell, in a pipe, at a terminal."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from terminal import ESCAPE, MINAGENT, PACKAGE, Terminal, environment, run

from minagent.memory import SQLiteMemoryManager

pytestmark = pytest.mark.heavy


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal([*MINAGENT, "demo"], tmp_path, NO_COLOR="1")
    yield opened
    opened.close()


# --- The story ----------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("told")


@pytest.fixture(scope="module")
def told(folder: Path) -> subprocess.CompletedProcess[str]:
    """The demo in an empty folder, with its output going to a pipe."""
    return run(*MINAGENT, "demo", cwd=folder, TMPDIR=str(folder))


def expect_in_order(text: str, *parts: str) -> None:
    """Check that the parts stand in a text one behind the other."""
    at = 0
    for part in parts:
        found = text.find(part, at)
        if found < 0:
            pytest.fail(f"{part!r} does not follow in:\n{text[at:]}", pytrace=False)
        at = found + len(part)


def test_the_demo_succeeds_and_says_nothing_on_stderr(
    told: subprocess.CompletedProcess[str],
) -> None:
    assert told.stderr == ""
    assert told.returncode == 0


def test_the_second_process_recalls_the_name_and_another_id_does_not(
    told: subprocess.CompletedProcess[str],
) -> None:
    expect_in_order(
        told.stdout,
        "  first process\n",
        '    agent.run("Hello, my name is Ada.", session_id="ada")\n',
        "    -> Hello, Ada.\n",
        "  second process\n",
        '    agent.run("What is my name?", session_id="ada")\n',
        "    -> Your name is Ada.\n",
        '    agent.run("What is my name?", session_id="bob")\n',
        "    -> You have not told me your name.\n",
    )


def test_the_gated_tool_pauses_is_decided_elsewhere_and_runs_once(
    told: subprocess.CompletedProcess[str],
) -> None:
    expect_in_order(
        told.stdout,
        "  first process\n",
        '    agent.run("Please run delete_file path=old.txt", session_id="files")\n',
        "    -> pending_confirmation: Delete old.txt?\n",
        "    old.txt is still there; delete_file has not run.\n",
        "  second process\n",
        "    Delete old.txt?\n",
        "the default is taken: approve",
        "    -> delete_file: Deleted old.txt.\n",
        "    old.txt is gone; delete_file ran once.\n",
    )


def test_a_second_click_is_refused(told: subprocess.CompletedProcess[str]) -> None:
    expect_in_order(
        told.stdout,
        "old.txt is gone",
        "  first process\n",
        "    -> AlreadyDecidedError: call 'call_1' was decided or closed before",
        "    old.txt is gone; delete_file ran once.\n",
    )


def test_the_session_is_drawn_from_its_log(
    told: subprocess.CompletedProcess[str],
) -> None:
    expect_in_order(
        told.stdout.partition('What the file holds under "files"')[2],
        "Please run delete_file path=old.txt\n",
        "delete_file\n",
        '    path = "old.txt"\n',
        "approved by default\n",
        "Deleted old.txt.\n",
        "delete_file: Deleted old.txt.\n",
    )


def test_what_a_user_said_is_recalled_in_another_session_for_this_user_only(
    told: subprocess.CompletedProcess[str],
) -> None:
    expect_in_order(
        told.stdout,
        "Act 3",
        "  first process\n",
        '    agent.run("My kayak is red.", session_id="monday", user_id="ann")\n',
        "    -> Noted: your kayak is red.\n",
        "    memory.add_session(result.context.session)\n",
        "    -> 2 texts are remembered\n",
        "  second process\n",
        '    agent.run("What is my kayak?", session_id="friday", user_id="ann")\n',
        "    -> Your kayak is red.\n",
        '    agent.run("What is my kayak?", session_id="sunday", user_id="bob")\n',
        "    -> You have not told me your kayak.\n",
    )


def test_the_note_of_what_was_recalled_is_drawn_for_people(
    told: subprocess.CompletedProcess[str],
) -> None:
    drawn = told.stdout.partition('What the model was told in "friday"')[2]

    expect_in_order(
        drawn,
        "memory notes recalled\n",
        ", user, session monday: My kayak is red.\n",
        ", assistant, session monday: Noted: your kayak is red.\n",
    )
    assert "<" not in drawn
    assert "What is my kayak?" not in drawn


def test_a_pipe_gets_plain_text_of_at_most_80_columns(
    told: subprocess.CompletedProcess[str],
) -> None:
    assert ESCAPE not in told.stdout
    lines = told.stdout.splitlines()
    assert [
        line for line in lines if len(line) > 80 and "sessions.db" not in line
    ] == []
    assert [line for line in lines if line != line.rstrip()] == []


def test_nothing_is_left_behind(
    told: subprocess.CompletedProcess[str], folder: Path
) -> None:
    assert f"    {folder}/minagent-demo-" in told.stdout
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("act", "lost", "last"),
    [
        (
            "recall",
            "sessions.db",
            [
                "    -> You have not told me your name.",
                "",
                'The recall did not happen: "ada" should know the name, "bob" not.',
            ],
        ),
        (
            "remember",
            "memory.db",
            [
                "    -> You have not told me your kayak.",
                "",
                'The recall did not happen: "ann" should know the colour, "bob" not.',
            ],
        ),
    ],
)
def test_a_recall_that_did_not_happen_is_an_error(
    tmp_path: Path, act: str, lost: str, last: list[str]
) -> None:
    """A file is lost on the way from the first process to the second."""
    (tmp_path / "sitecustomize.py").write_text(
        "import pathlib, sys\n"
        f"if {act!r} in sys.orig_argv:\n"
        f"    for file in pathlib.Path(sys.orig_argv[-2]).glob('{lost}*'):\n"
        "        file.unlink()\n"
    )
    path = os.pathsep.join([str(tmp_path), str(PACKAGE)])

    done = run(*MINAGENT, "demo", cwd=tmp_path, PYTHONPATH=path)

    assert done.returncode == 1
    assert done.stderr == ""
    assert done.stdout.rstrip().splitlines()[-3:] == last


@pytest.mark.parametrize(("known_to", "code"), [(["ann"], 0), (["ann", "bob"], 1)])
async def test_what_another_user_knows_is_an_error(
    tmp_path: Path, known_to: list[str], code: int
) -> None:
    """The second process alone, with memories that the first one did not make."""
    async with SQLiteMemoryManager(tmp_path / "memory.db") as memory:
        for user_id in known_to:
            await memory.add("My kayak is red.", user_id=user_id)
    act = ("-m", "minagent.cli.demo", "remember", tmp_path, "offline")

    done = run(sys.executable, *act, cwd=tmp_path)

    assert (done.returncode, done.stderr) == (code, "")
    assert ('"bob" not.' in done.stdout) == bool(code)


# --- The ways to start it -----------------------------------------------------


def test_the_current_folder_does_not_matter_to_an_installed_command(
    tmp_path: Path,
) -> None:
    """A folder may hold anything; `python -m` would import from it."""
    for name in ("rich", "minagent", "random", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a trap')")
    script = tmp_path / "bin" / "minagent"
    script.parent.mkdir()
    script.write_text("from minagent.cli import main\nmain()\n")

    done = run(sys.executable, script, "demo", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    assert "-> Your name is Ada." in done.stdout


def test_help_lists_the_demo(tmp_path: Path) -> None:
    done = run(*MINAGENT, "--help", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: minagent [OPTIONS] COMMAND" in done.stdout
    assert re.search(r"\bdemo +See two runs recall a name", done.stdout)


def test_without_a_command_the_help_is_shown(tmp_path: Path) -> None:
    done = run(*MINAGENT, cwd=tmp_path)

    assert "Usage: minagent [OPTIONS] COMMAND" in done.stdout


def test_the_help_of_the_demo_says_what_happens_and_has_an_example(
    tmp_path: Path,
) -> None:
    done = run(*MINAGENT, "demo", "--help", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    assert "starts a second process" in done.stdout
    assert "Example: minagent demo" in done.stdout


def test_an_unknown_command_is_named(tmp_path: Path) -> None:
    done = run(*MINAGENT, "dmeo", cwd=tmp_path)

    assert done.returncode == 2
    assert "dmeo" in done.stderr


@pytest.mark.parametrize("missing", ["rich", "typer"])
def test_without_the_extra_one_sentence_says_how_to_get_it(
    tmp_path: Path, missing: str
) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; import minagent.cli as c"

    done = run(sys.executable, "-c", f"{code}; c.main()", cwd=tmp_path)

    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == f"minagent needs {missing}: pip install 'minagent[cli]'\n"


def test_the_entry_point_loads_neither_typer_nor_rich_nor_a_vendor(
    tmp_path: Path,
) -> None:
    code = (
        "import sys, minagent.cli; "
        "print({'typer', 'rich', 'anthropic', 'aiosqlite'} & {*sys.modules})"
    )

    done = run(sys.executable, "-c", code, cwd=tmp_path)

    assert done.stdout == "set()\n"


# --- Pipes that close ---------------------------------------------------------


@pytest.mark.heavy
@pytest.mark.parametrize("last_line", ["", "Act 1", "Your name is Ada"])
def test_a_reader_that_goes_away_is_no_news(tmp_path: Path, last_line: str) -> None:
    with subprocess.Popen(
        [*MINAGENT, "demo"],
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as demo:
        assert demo.stdout is not None
        assert demo.stderr is not None
        while last_line and last_line not in demo.stdout.readline():
            pass
        demo.stdout.close()
        complaint = demo.stderr.read()

    assert complaint == ""


# --- At a terminal ------------------------------------------------------------


@pytest.fixture(scope="module")
def approved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """The demo at a terminal, where a person pressed Enter."""
    folder = tmp_path_factory.mktemp("approved")
    terminal = Terminal([*MINAGENT, "demo"], folder, NO_COLOR="1")
    terminal.wait_for("approve or deny? [approve] ")
    terminal.type("\n")
    yield terminal
    terminal.close()


def test_a_person_is_asked_and_enter_approves(approved: Terminal) -> None:
    assert approved.exit_code() == 0
    expect_in_order(
        approved.shown,
        'decision = pending.approve(by="you")\n',
        "-> delete_file: Deleted old.txt.\n",
        "old.txt is gone; delete_file ran once.\n",
        "AlreadyDecidedError",
        "approved by you\n",
    )


def test_no_color_means_no_escape_sequences(approved: Terminal) -> None:
    assert approved.exit_code() == 0
    assert ESCAPE not in approved.shown


def test_a_person_who_denies_is_asked_why(terminal: Terminal) -> None:
    terminal.wait_for("approve or deny? [approve] ")
    terminal.type("deny\n")
    terminal.wait_for("Why not? ")
    terminal.type("keep it\n")

    assert terminal.exit_code() == 0
    expect_in_order(
        terminal.shown,
        "decision = pending.deny('keep it', by=\"you\")\n",
        "-> delete_file was denied by you: keep it\n",
        "old.txt is still there; delete_file has not run.\n",
        "AlreadyDecidedError",
        "old.txt is still there; delete_file has not run.\n",
        "denied by you",
    )


def test_an_answer_that_is_none_is_asked_for_again(terminal: Terminal) -> None:
    terminal.wait_for("approve or deny? [approve] ")
    terminal.type("perhaps\n")
    terminal.wait_for('Please type "approve" or "deny".')
    terminal.wait_for("approve or deny? [approve] ")
    terminal.type(" Yes \n")

    terminal.wait_for("old.txt is gone; delete_file ran once.")


def test_the_end_of_input_is_no_approval(terminal: Terminal) -> None:
    terminal.wait_for("approve or deny? [approve] ")
    terminal.type("\x04")  # Ctrl-D

    terminal.wait_for("-> delete_file was denied by default: nobody answered")
    terminal.wait_for("old.txt is still there; delete_file has not run.")


@pytest.mark.heavy
@pytest.mark.parametrize(
    "moment",
    ["approve or deny? [approve] ", "Act 1", "All that it has now is the file"],
)
def test_ctrl_c_ends_it_quietly_at_any_moment(
    terminal: Terminal, moment: str, tmp_path: Path
) -> None:
    terminal.wait_for(moment)
    terminal.type("\x03")

    assert terminal.exit_code() == 130
    assert "Traceback" not in terminal.shown
    assert terminal.shown.endswith("^C\nInterrupted.\n")
    assert list(tmp_path.iterdir()) == []


def test_a_terminal_gets_colours(tmp_path: Path) -> None:
    with closing(Terminal([*MINAGENT, "demo"], tmp_path)) as terminal:
        terminal.wait_for("Act 1")

        assert ESCAPE in terminal.shown


def test_a_question_that_nobody_would_see_is_not_asked(tmp_path: Path) -> None:
    """Standard input is a terminal, and the output goes to a pipe."""
    command = f"{sys.executable} -m minagent demo | cat"

    with closing(Terminal(["sh", "-c", command], tmp_path)) as terminal:
        terminal.wait_for("the default is taken: approve")
        terminal.wait_for("old.txt is gone; delete_file ran once.")
