"""What grades the exercises: `--mine`, the fixture `work`, and a summary to read.

    pytest chapters/ch01_scripted_model --mine

A chapter's tests take the module that they grade from `work`: the chapter's solution,
or with `--mine` its exercise, which is the reader's. This file needs nothing that the
extra `book` does not install.
"""

import importlib
import re
from collections.abc import Generator
from types import ModuleType

import pytest

_MAX_LETTERS = 300


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--mine`."""
    parser.addoption(
        "--mine",
        action="store_true",
        help="grade the chapters' exercise.py, which is yours, and not solution.py",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """With `--mine`, show little but the summary below."""
    if config.getoption("mine"):
        config.option.reportchars = ""
        if config.option.tbstyle == "auto":
            config.option.tbstyle = "short"


@pytest.fixture
def work(request: pytest.FixtureRequest) -> ModuleType:
    """The module that is graded."""
    name = "exercise" if request.config.getoption("mine") else "solution"
    return importlib.import_module(f"{request.module.__package__}.{name}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With `--mine`, say in one line what is not written yet; no traceback helps."""
    report = yield
    error = call.excinfo.value if call.excinfo else None
    if item.config.getoption("mine") and isinstance(error, NotImplementedError):
        report.longrepr = str(error) or "something is not written yet"
    return report


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """With `--mine`, say in plain words what is still missing."""
    stats = terminalreporter.stats
    right = len(stats.get("passed", ()))
    wrong = [*stats.get("failed", ()), *stats.get("error", ())]
    if not config.getoption("mine") or not right + len(wrong):
        return
    terminalreporter.section("your exercise")
    if not wrong:
        terminalreporter.line(f"All {right} are right.")
        return
    missing: dict[str, list[str]] = {}
    for report in wrong:
        name = report.nodeid.rpartition("::")[2]
        missing.setdefault(_told(report), []).append(name)
    verb = "is" if right == 1 else "are"
    total = right + len(wrong)
    terminalreporter.line(f"{right} of {total} {verb} right. Still missing:")
    for told, names in missing.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        terminalreporter.line(f"- {told}")
        terminalreporter.line(f"  ({names[0]}{more})")


def _told(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return the words of a failure, without what pytest puts around them."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(crash.message if crash else report.longrepr)
    text = re.sub(r"^(?:NotImplementedError|AssertionError|Failed): ", "", text)
    text = " ".join(re.split(r"\nassert\b", text)[0].split())
    return text if len(text) <= _MAX_LETTERS else f"{text[:_MAX_LETTERS]}…"
