"""The three scripts of tests/taste/ run as they stand, outside the repository."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import minagent

pytestmark = pytest.mark.heavy

PACKAGE = Path(minagent.__file__).parents[1]
TASTE = Path(__file__).parent / "taste"
STRICT = (
    *("-W", "error", "-o", "asyncio_mode=auto"),
    *("-o", "asyncio_default_fixture_loop_scope=function"),
)


def test_the_exercise_starts_red_and_says_what_is_not_written(tmp_path: Path) -> None:
    copy("exercise.py", tmp_path)

    done = run("-m", "pytest", "exercise.py", cwd=tmp_path)

    expect_all_red(done)


def test_the_exercise_starts_with_what_the_extra_of_it_installs(tmp_path: Path) -> None:
    """The README's command, in the clone, where no other extra is installed."""
    others = ("hypothesis", "cryptography", "psycopg", "aiobotocore", "typer", "rich")
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys; sys.modules.update(dict.fromkeys({others}))"
    )
    readme = (PACKAGE / "README.md").read_text(encoding="utf-8")
    [command] = re.findall(r"^pytest .*taste/exercise\.py", readme, re.MULTILINE)

    done = run(
        *("-m", *shlex.split(command)),
        cwd=PACKAGE,
        PYTHONPATH=f"{tmp_path}{os.pathsep}{PACKAGE}",
        # Nor are the plugins that they bring; and the clone is left as it is.
        PYTEST_DISABLE_PLUGIN_AUTOLOAD="1",
        PYTEST_ADDOPTS="-p pytest_asyncio.plugin -p no:cacheprovider",
    )

    expect_all_red(done)


def expect_all_red(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 1, done.stdout
    failures = re.findall(r"^FAILED .* - (.*)$", done.stdout, re.MULTILINE)
    assert set(failures) == {
        f"Failed: {verb} is not written yet" for verb in ("create", "get", "save")
    }
    assert re.search(rf"^=+ {len(failures)} failed in ", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("options", [(), STRICT], ids=["plain", "strict"])
def test_a_right_solution_turns_the_exercise_green(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    solution = (TASTE / "solution.py").read_text(encoding="utf-8")
    exercise = (TASTE / "exercise.py").read_text(encoding="utf-8")
    # The class of the solution, in the place of the stub.
    class_of = re.compile(
        r"^class JsonFile.*?(?=^class Test)", re.DOTALL | re.MULTILINE
    )
    head = solution[: solution.index("class JsonFile")]
    [stub] = class_of.findall(exercise)
    [right] = class_of.findall(solution)
    text = exercise.replace(stub, head + right)
    (tmp_path / "exercise.py").write_text(text, encoding="utf-8")

    done = run("-m", "pytest", "exercise.py", *options, cwd=tmp_path)

    assert done.returncode == 0, done.stdout
    assert re.search(r"^=+ \d+ passed in ", done.stdout, re.MULTILINE)


def test_a_class_without_open_manager_is_told_what_to_write(tmp_path: Path) -> None:
    (tmp_path / "exercise.py").write_text(
        "from minagent.testing import SessionManagerContract\n"
        "class TestMine(SessionManagerContract): pass\n"
    )

    done = run("-m", "pytest", "exercise.py", "-x", cwd=tmp_path)

    assert done.returncode == 1
    assert "write open_manager(self, tmp_path) in TestMine: it returns" in done.stdout


@pytest.mark.parametrize("missing", ["pytest", "pytest_asyncio"])
def test_without_pytest_the_extra_is_named(tmp_path: Path, missing: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from minagent.testing import SessionManagerContract"
    )

    done = run("-c", code, cwd=tmp_path)

    assert done.returncode == 1
    needs = f"minagent.testing needs {missing}: pip install 'minagent[book]'"
    assert done.stdout.endswith(f"ModuleNotFoundError: {needs}\n")


def test_hello_recalls_the_name_in_its_own_session_only(tmp_path: Path) -> None:
    copy("hello.py", tmp_path)

    for _ in range(2):  # the second time, on the database of the first
        done = run("hello.py", cwd=tmp_path)

        assert done.returncode == 0, done.stdout
        lines = done.stdout.splitlines()
        assert lines[0] == "ada> Hello, my name is Ada."
        assert lines[1].startswith("ada< ")
        assert lines[2:] == [
            "ada> What is my name?",
            "ada< Your name is Ada.",
            "bob> What is my name?",
            "bob< You have not told me your name.",
        ]


def test_approval_pauses_and_resumes(tmp_path: Path) -> None:
    copy("approval.py", tmp_path)

    for _ in range(2):
        done = run("approval.py", cwd=tmp_path)

        assert done.returncode == 0, done.stdout
        status, *question, answer = done.stdout.splitlines()
        assert status == "pending_confirmation"
        assert "old.txt" in "\n".join(question)
        assert answer == "Done."
        assert not (tmp_path / "old.txt").exists()


def copy(name: str, folder: Path) -> None:
    (folder / name).write_bytes((TASTE / name).read_bytes())


def run(*arguments: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run Python as a reader does, in a folder that has nothing to do with ours."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    wide = {"COLUMNS": "200", "PYTHONPATH": str(PACKAGE), "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=kept | wide | more,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
        timeout=100,
    )
