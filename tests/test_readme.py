"""The README says what is so: its programs run, its outputs and its tree are real."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from stores import SERVED, address_of, params

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)
PROGRAMS = {
    "hello.py": 0,
    "approval.py": 1,
    "double.py": 2,
    "memory.py": 4,
    "graph.py": 5,
}
WORKER = 3
KEPT = ("hello.py", "approval.py")


def programs_with_outputs() -> list[tuple[str, str]]:
    """Each Python block, and the block behind it, which shows what it prints."""
    return [
        (text, BLOCKS[at + 1][1])
        for at, (language, text) in enumerate(BLOCKS)
        if language == "python"
    ]


@pytest.mark.parametrize("name", KEPT)
def test_a_program_of_the_readme_is_one_that_is_kept(name: str) -> None:
    program, _ = programs_with_outputs()[PROGRAMS[name]]

    assert program == (ROOT / "tests" / "taste" / name).read_text()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_prints_what_the_readme_shows_also_when_run_again(
    name: str, tmp_path: Path
) -> None:
    program, output = programs_with_outputs()[PROGRAMS[name]]
    (tmp_path / name).write_text(program)

    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-W", "error", name],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )

        assert (done.stdout, done.stderr) == (output, "")


@pytest.mark.parametrize("store", params("sqlite", *SERVED))
def test_workers_share_a_store_and_nothing_else(store: str, tmp_path: Path) -> None:
    program, session = programs_with_outputs()[WORKER]
    (tmp_path / "worker.py").write_text(program)
    _, *said = re.split(r"^\$ python (.*)\n", session, flags=re.MULTILINE)
    address = address_of(store, tmp_path)

    for command, shown in zip(said[::2], said[1::2], strict=True):
        arguments = [
            address if x == "$STORE" else x for x in shlex.split(command, comments=True)
        ]
        done = subprocess.run(
            [sys.executable, "-W", "error", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )

        assert (done.stdout, done.stderr) == (shown, "")


def test_the_first_command_succeeds(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "minagent", "demo"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_the_tree_names_every_file_and_room_of_the_package() -> None:
    [tree] = [text for _, text in BLOCKS if text.startswith("minagent/\n")]
    named = set(re.findall(r"^[├└]── (\S+)", tree, flags=re.MULTILINE))
    package = ROOT / "minagent"
    files = {path.name for path in package.glob("*.py") if path.name[0] != "_"}
    rooms = {f"{path.parent.name}/" for path in package.glob("*/__init__.py")}

    assert named == files | rooms


def test_every_file_that_the_readme_names_is_there() -> None:
    places = re.findall(r"(?:tests|scripts|minagent)/[\w./-]+\w", README)
    links = re.findall(r"\]\(([^)#]+)\)", README)

    assert [each for each in (*places, *links) if not (ROOT / each).exists()] == []
