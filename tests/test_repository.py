"""What is committed must work on any machine, and name none."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Written so that this file does not match itself.
FORBIDDEN = {
    "an absolute path": re.compile(r"(?<![\w.~-])/(?:root|work|home)/"),
    "a package registry": re.compile(
        r"pypi[.]org|pythonhosted[.]org|npmjs[.]org|yarnpkg[.]com|crates[.]io"
        r"|deb[.]debian[.]org|proxy[.]golang[.]org"
    ),
}


@pytest.fixture(scope="module")
def committed() -> list[Path]:
    """The files that git has, or would take with the next commit."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    )
    paths = [ROOT / name for name in listing.stdout.split("\0") if name]
    return [path for path in paths if path.is_file()]


def test_no_file_names_a_machine(committed: list[Path]) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {what}: {line.strip()}"
        for path in committed
        for number, line in enumerate(lines(path), start=1)
        for what, pattern in FORBIDDEN.items()
        if pattern.search(line)
    ]

    assert found == []


def lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        return []  # not a text file


def test_no_lock_file_is_committed(committed: list[Path]) -> None:
    # It names a registry for every package; the pins are in constraints.txt.
    assert [path for path in committed if path.name == "uv.lock"] == []


def test_every_script_is_executable(committed: list[Path]) -> None:
    scripts = {path for path in committed if path.read_bytes().startswith(b"#!")}
    scripts |= {ROOT / "scripts" / "test", ROOT / ".ci" / "run"}

    assert [path for path in sorted(scripts) if not os.access(path, os.X_OK)] == []


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("an absolute path", "open('/{}/x')".format("root")),
        ("an absolute path", "see /{}/ada/notes".format("home")),
        ("a package registry", "--index-url https://pypi{}org/simple".format(".")),
        ("a package registry", "https://files.pythonhosted{}org/x".format(".")),
    ],
)
def test_a_machine_in_a_file_is_found(what: str, text: str) -> None:
    assert FORBIDDEN[what].search(text)
