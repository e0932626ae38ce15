"""The benchmarks work; how fast things are, they say when they are run by hand."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.heavy
def test_one_table_has_every_figure_and_whether_its_target_is_met() -> None:
    command = [sys.executable, "-m", "tests.benchmarks.sessions", "--quick"]

    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    _, _, heads, *lines = done.stdout.splitlines()
    assert heads.split() == [
        *("figure", "durability", "ms", "floor", "ms", "ratio", "target")
    ]
    assert {line.split("  ")[0] for line in lines} == {
        "a save / a transaction",
        "a turn at 1,000 / a transaction",
        "a turn at 5,000 / at 100",
        "reading 1,000 / json.dumps",
        "loading 10,000 / json.loads",
        "a request at 10,000 / json.dumps",
        "import minagent / pydantic",
    }
    assert {line.split()[-1] for line in lines} <= {"met", "MISSED"}
