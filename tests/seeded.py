"""Contracts against bugs on purpose: each must be caught by the test that is meant to.

A file of seeded bugs has a class `Seeded…` for each, which inherits the contract and
names the test in `caught_by`. pytest would collect none of them by itself.
"""

import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

Outcomes: TypeAlias = Mapping[tuple[str, str], str]
"""The message of each test that was run, by class and test; empty if it passed."""

SETTINGS = """\
[pytest]
python_classes = Seeded*
filterwarnings = error
asyncio_default_fixture_loop_scope = function
markers = heavy: slow
timeout = 120
"""


def outcomes_of(file: str, chosen: Iterable[str], folder: Path) -> Outcomes:
    """Run tests of the seeded classes of a file, in a pytest of their own.

    Args:
        file: The file.
        chosen: Classes, or `Class::test`.
        folder: Where to put what is needed for that.
    """
    settings, report = folder / "pytest.ini", folder / "report.xml"
    settings.write_text(SETTINGS)
    done = subprocess.run(
        [
            # Tracebacks, which nobody reads, take ten times as long as the tests.
            *(sys.executable, "-m", "pytest", "-q", "--tb=no"),
            *("-p", "no:cacheprovider"),
            *(f"--config-file={settings}", f"--junitxml={report}"),
            *(f"{file}::{each}" for each in chosen),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
    )
    assert report.exists(), done.stdout
    outcomes: dict[tuple[str, str], str] = {}
    for case in ET.parse(report).iter("testcase"):  # one whose end fails, too, is twice
        key = case.get("classname", "").rpartition(".")[2], case.get("name", "")
        said = "".join(problem.get("message", "") for problem in case)
        outcomes[key] = outcomes.get(key, "") + said
    return outcomes


def check_caught(message: str) -> None:
    """Check that a test noticed, in its own words and not by some error."""
    assert message, "the contract did not notice the bug"
    assert message.startswith(("AssertionError: ", "Failed: "))
