"""The screen: how the commands show what they have.

To a terminal goes colour, and what passes (`passing`; `at_work`, on stderr). To a pipe
goes plain text: the same words. Cards are drawn by `render_text`, so a session looks
here as it does everywhere.

This file knows nothing of stores and of runs.
"""

import io
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.cells import cell_len
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from minagent.cards import MIN_WIDTH, Card, render_text
from minagent.cli.outcome import printable

MAX_COLUMNS = 100
"""How wide a line of text gets on a wide terminal: what can be read."""

_STYLES = {
    "message": "bold",
    "reasoning": "dim",
    "tool": "bold cyan",
    "note": "magenta",
    "opaque": "yellow",
    "interrupted": "yellow",
}
_ERASE_LINE = "\r\x1b[2K"


class Screen:
    """Standard output, for people."""

    def __init__(self) -> None:
        for stream in (sys.stdin, sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")  # an ASCII terminal shows a "?"
        # NO_COLOR is taken to mean no escape sequence at all: rich would keep bold.
        plain = bool(os.environ.get("NO_COLOR"))
        self._console = Console(highlight=False, color_system=None if plain else "auto")
        self.width = max(MIN_WIDTH, min(self._console.width, MAX_COLUMNS))
        self.is_terminal = sys.stdout.isatty()
        self._erases = self.is_terminal and not (
            plain or self._console.is_dumb_terminal
        )
        self._passes = self._is_below = False

    def card(self, card: Card, *, more: str = "") -> None:
        """Draw a card.

        Args:
            card: The card.
            more: What else to write behind its heading.
        """
        heading, _, body = render_text([card], width=self.width).partition("\n")
        self.heading(heading, _STYLES[card.type], more=more)
        if body:
            self.write(f"{body}\n")

    def heading(self, text: str, style: str = "bold", *, more: str = "") -> None:
        """Begin a part of the output with a line of its own."""
        self._end_passing()
        if self._is_below:
            print()
        line = Text(text, style)
        if more:
            line.append(f"  {more}", "dim")
        self._show(line)

    def line(self, text: str, style: str = "") -> None:
        """Write a line, with what a terminal would obey spelled out."""
        self._end_passing()
        self._show(Text(printable(text), style))

    def write(self, text: str) -> None:
        """Write text that is harmless already, now."""
        self._end_passing()
        sys.stdout.write(text)
        sys.stdout.flush()

    def passing(self, text: str) -> None:
        """Show a line on a terminal until something else is shown."""
        if self._erases:
            shown = printable(" ".join(text.split()))
            while cell_len(shown) >= self.width:
                shown = shown[:-1]
            self._end_passing()
            sys.stdout.write(shown)
            sys.stdout.flush()
            self._passes = True

    def rows(self, rows: Sequence[Sequence[str]]) -> None:
        """Write rows of cells, one below the other; the first row names them."""
        shown = [[printable(cell) for cell in row] for row in rows]
        widths = [max(map(cell_len, column)) for column in zip(*shown, strict=True)]
        for number, row in enumerate(shown):
            padded = [
                cell + " " * (width - cell_len(cell))
                for cell, width in zip(row, widths, strict=True)
            ]
            self._show(Text("  ".join(padded).rstrip(), "" if number else "bold"))

    def ask(self, question: str) -> str:
        """Ask the person at the terminal, and return the line that was typed.

        Raises:
            EOFError: There is none any more.
        """
        self._end_passing()
        typed = input(printable(question))
        self._is_below = True
        return typed.strip()

    def _end_passing(self) -> None:
        if self._passes:
            sys.stdout.write(_ERASE_LINE)
            self._passes = False

    def _show(self, line: Text) -> None:
        # Not by rich where nothing is coloured: it would end the program by itself if
        # the reader is gone.
        if self._console.color_system is None:
            print(line.plain)
        else:
            self._console.print(line, soft_wrap=True)
        self._is_below = True


def print_json(value: object) -> None:
    """Print JSON: what a terminal would obey is escaped, as all that is not ASCII."""
    print(json.dumps(value, indent=2))


@contextmanager
def at_work(what: str, total: int | None = None) -> Iterator["Work"]:
    """Show on stderr, if that is a terminal, that something takes its time.

    Args:
        what: What is done.
        total: Of how many steps it consists, if that is known.
    """
    # Not `disable=`, with which older versions of rich still end the line.
    if not sys.stderr.isatty() or os.environ.get("NO_COLOR"):
        yield Work()
        return
    known = (BarColumn(), MofNCompleteColumn()) if total else ()
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        *known,
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as progress:
        progress.add_task(printable(what), total=total)
        yield Work(progress)


class Work:
    """Something that takes its time, in steps; without a progress, nobody watches."""

    def __init__(self, progress: Progress | None = None) -> None:
        self._progress = progress

    def step(self) -> None:
        """Note that a step is done."""
        if self._progress is not None:
            self._progress.advance(self._progress.task_ids[0])


def cells(values: Iterable[object]) -> list[str]:
    """Return values as the cells of a row; one that is None is empty."""
    return ["" if each is None else str(each) for each in values]
