"""The command `minagent` as people run it: in this process, in a shell, at a terminal.

minagent("sessions", "list")     in this process, which is fast
run(*MINAGENT, ...)              a process of its own, with its output in a pipe
Terminal([*MINAGENT, ...])       a process at a terminal of its own
"""

import codecs
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import minagent as package

PACKAGE = Path(package.__file__).parents[1]
TESTS = Path(__file__).parent
MINAGENT = (sys.executable, "-m", "minagent")
ESCAPE = "\x1b"
TIMEOUT_SECONDS = 60


def minagent(*arguments: str | Path, typed: str | bytes = "") -> Result:
    """Run a command in this process; whatever it raises but its exit is a failure.

    Args:
        arguments: What stands behind `minagent`.
        typed: What comes through a pipe.
    """
    from minagent.cli.app import app

    environment = {"COLUMNS": "100", "TERMINAL_WIDTH": "100", "NO_COLOR": "1"}
    words = [str(each) for each in arguments]
    done = CliRunner().invoke(app, words, input=typed, env=environment)
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def environment(**more: str) -> dict[str, str]:
    """What a shell passes on, without what would change colours, widths or places."""
    changes = ("PYTEST", "NO_COLOR", "FORCE_COLOR", "TTY_", "COLUMNS", "TERM")
    changes += ("ANTHROPIC", "MINAGENT_STORE", "MINAGENT_MEMORY")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(changes)}
    return {**kept, "PYTHONPATH": str(PACKAGE), "TERM": "xterm-256color", **more}


def run(
    *command: str | Path, cwd: Path, **more: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=cwd,
        env=environment(**more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=TIMEOUT_SECONDS,
    )


class Terminal:
    """A program at a terminal of its own; what it writes is in `shown`.

    It leads a session, so that Ctrl-C reaches it and the processes that it starts.
    """

    def __init__(self, command: Sequence[str], cwd: Path, **more: str) -> None:
        self.shown = ""
        self._looked_at = 0
        self._deadline = time.monotonic() + TIMEOUT_SECONDS
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        # The other end stays open here, or reading would fail when the program ends.
        self._master, self._slave = pty.openpty()
        at_terminal = 'exec "$@" <"$0" >"$0" 2>&1'
        self._process = subprocess.Popen(
            ["sh", "-c", at_terminal, os.ttyname(self._slave), *command],
            cwd=cwd,
            env=environment(TMPDIR=str(cwd), **more),
            start_new_session=True,
        )

    def wait_for(self, text: str) -> None:
        """Read until a text is shown, behind the one that was waited for before."""
        while text not in self.shown[self._looked_at :]:
            self._read(text)
        self._looked_at = self.shown.index(text, self._looked_at) + len(text)

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def press_until(self, keys: str, text: str) -> None:
        """Type keys, again each second, until a text is shown.

        For Ctrl-C at a prompt: Python sees it only while it waits for a key, and the
        prompt is shown a moment before that.
        """
        again = 0.0
        while text not in self.shown[self._looked_at :]:
            if time.monotonic() >= again:
                self.type(keys)
                again = time.monotonic() + 1
            self._read(text)
        self.wait_for(text)

    def exit_code(self) -> int:
        """Read until the program has ended, and all that it wrote."""
        while self._process.poll() is None:
            self._read("its end")
        while self._is_readable(0):
            self._read("what it wrote last")
        return self._process.returncode

    def close(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        os.close(self._slave)
        os.close(self._master)

    def _read(self, awaited: str) -> None:
        if time.monotonic() > self._deadline:
            pytest.fail(f"waited for {awaited!r}; the terminal shows:\n{self.shown}")
        if self._is_readable(0.1):
            text = self._decoder.decode(os.read(self._master, 65_536))
            self.shown += text.replace("\r", "")

    def _is_readable(self, timeout_seconds: float) -> bool:
        return bool(select.select([self._master], [], [], timeout_seconds)[0])


@contextmanager
def chatting(folder: Path, *options: str, **more: str) -> Iterator[Terminal]:
    """A chat at a terminal, with the tests' tools at hand."""
    # A dumb terminal: no colours, and a line of input as it is typed.
    more = {"TERM": "dumb", "PYTHONPATH": f"{PACKAGE}:{TESTS}", **more}
    more = {"XDG_DATA_HOME": str(folder), "LOGNAME": "eve", **more}
    with closing(Terminal([*MINAGENT, "chat", *options], folder, **more)) as terminal:
        terminal.wait_for("\n> ")
        yield terminal
