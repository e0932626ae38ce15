"""How a chapter's README is read: prose, and blocks that run, show or quote.

    ```python                      runs; all blocks of a chapter share one namespace
    ```                            directly behind it: what it prints
    ```mermaid                     in its place: what it prints, which is a drawing
    ```python quote minagent/x.py  an excerpt of that file
    ```console                     commands after `$ `, each with what it prints

Whatever else is fenced is prose. `scripts/notebooks` and the tests read it alike.
"""

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parents[1]
CHAPTERS = sorted(
    path.parent for path in (ROOT / "chapters").glob("ch[0-9][0-9]_*/README.md")
)


@dataclass(frozen=True)
class Part:
    """A piece of a README.

    Attributes:
        kind: What it is; `code` is a block that runs.
        text: What it says, without the fence; of prose, as it stands.
        source: Of a quote: the file.
        output: Of code: what it prints, or "" if nothing is shown.
        is_drawn: Of code: whether that is a drawing, in the words of Mermaid.
    """

    kind: Literal["prose", "code", "quote", "console"]
    text: str
    source: str = ""
    output: str = ""
    is_drawn: bool = False


_FENCE = re.compile(r"^```(?P<info>.*)\n(?P<text>(?:.*\n)*?)```$\n?", re.MULTILINE)


def parts(readme: str) -> list[Part]:
    """Return the pieces of a README, in order."""
    found: list[Part] = []
    end = 0
    for fence in _FENCE.finditer(readme):
        before, info, text = readme[end : fence.start()], fence["info"], fence["text"]
        end = fence.end()
        is_behind_code = found and found[-1].kind == "code" and not before.strip()
        if info in ("", "mermaid") and is_behind_code:
            found[-1] = Part("code", found[-1].text, output=text, is_drawn=bool(info))
            continue
        if before.strip():
            found.append(Part("prose", before))
        if info == "python":
            found.append(Part("code", text))
        elif info.startswith("python quote "):
            found.append(Part("quote", text, source=info.split()[2]))
        elif info == "console":
            found.append(Part("console", text))
        else:
            found.append(Part("prose", fence[0]))
    if readme[end:].strip():
        found.append(Part("prose", readme[end:]))
    return found


def commands(console: str) -> list[tuple[str, str]]:
    """Return the commands of a console block, each with what it prints."""
    _, *found = re.split(r"^\$ (.*)\n", console, flags=re.MULTILINE)
    return list(zip(found[::2], found[1::2], strict=True))


def demo_command(chapter: Path) -> str:
    """Return what a reader types to run a chapter's demo."""
    return f"python -m chapters.{chapter.name}.demo"


def offline() -> dict[str, str]:
    """Return the environment of a process that has no network, no key, and no pytest.

    ipykernel, for one, behaves otherwise where it believes that pytest is at work.
    """
    gone = ("PYTEST", "ANTHROPIC", "PYTHONPATH")
    kept = {k: x for k, x in os.environ.items() if not k.startswith(gone)}
    return kept | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT / "tests" / "offline"),
        "PYTHONIOENCODING": "utf-8",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
