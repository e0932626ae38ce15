"""What a command comes to: an exit code, and one line on stderr where it could not.

    0    it did what was asked
    1    it could not: a locked store, a session that is not there, a reader that left
    2    it was asked for something that it does not understand
    130  Ctrl-C

A command's body stands in `told()`, or is a coroutine for `run`. What anything below
raises on purpose becomes that line there; a traceback is a bug.

This file knows nothing of sessions.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import typer

from minagent.errors import MinagentError

T = TypeVar("T")


class UsageError(Exception):
    """What was typed cannot be meant: an unknown scheme, a number of days that is none.

    Typer finds what it can by itself; this is for what it cannot know.
    """


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's work to its end and return what it returns; see `told`."""
    with told():
        return asyncio.run(work)


@contextmanager
def told() -> Iterator[None]:
    """Turn whatever a command may fail with into one line and an exit code.

    Raises:
        typer.Exit: It did not do what was asked.
    """
    try:
        yield
        sys.stdout.flush()  # now, and not when Python ends: the reader may be gone
    except UsageError as error:
        complain(str(error))
        raise typer.Exit(2) from None
    except BrokenPipeError:
        _forget_the_reader()
        raise typer.Exit(1) from None
    except (MinagentError, OSError) as error:
        complain(*whole_story(error))
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        complain("interrupted")
        raise typer.Exit(130) from None


def whole_story(error: BaseException) -> tuple[str, ...]:
    """Return what an error says, and the advice that was added to it."""
    return (str(error), *getattr(error, "__notes__", ()))


def complain(*texts: str) -> None:
    """Write one line to stderr: what went wrong, and what to do."""
    words = " ".join(" ".join(texts).split())
    print(f"minagent: {printable(words)}", file=sys.stderr)


def printable(text: str) -> str:
    """Return a text of one line with nothing in it that a terminal would obey."""
    return "".join(x if x.isprintable() else _spelled(x) for x in text)


def log_to_stderr() -> None:
    """Write the package's warnings to stderr, a line each."""
    logger = logging.getLogger("minagent")
    if not any(isinstance(each, _Complaining) for each in logger.handlers):
        logger.addHandler(_Complaining(logging.WARNING))


class _Complaining(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if not record.getMessage().startswith("tool="):  # that is on the tool's card
            complain(record.getMessage())


def _spelled(letter: str) -> str:
    return letter.encode("unicode_escape").decode()


def _forget_the_reader() -> None:
    # Or Python would complain, when it ends, of what it cannot write any more.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
