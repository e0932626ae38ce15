"""The notebooks are the chapters: made again, they are the same, byte for byte."""

import ast
import asyncio
import importlib.util
import json
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from chapter_text import CHAPTERS, ROOT, Part, commands, demo_command, offline, parts

from minagent.testing import FakeAnthropic

SCRIPT = ROOT / "scripts" / "notebooks"
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MAX_CODE_CELLS = 25

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """`scripts/notebooks`, as a module."""
    loader = SourceFileLoader("notebooks_script", str(SCRIPT))
    spec = importlib.util.spec_from_loader("notebooks_script", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def read(path: Path) -> dict[str, Any]:
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return notebook


def code_cells(path: Path) -> list[dict[str, Any]]:
    return [cell for cell in read(path)["cells"] if cell["cell_type"] == "code"]


def printed(cell: dict[str, Any]) -> str:
    return "".join("".join(each["text"]) for each in cell["outputs"] if "text" in each)


def drawn(cell: dict[str, Any]) -> str:
    data = [each["data"] for each in cell["outputs"] if "data" in each]
    return "".join("".join(each["text/markdown"]) for each in data)


def test_each_chapter_has_its_notebook_and_each_notebook_its_chapter() -> None:
    chapters = [chapter.name for chapter in CHAPTERS]

    assert [f"ch{path.stem}" for path in NOTEBOOKS] == chapters


@pytest.mark.heavy
@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.name)
def test_made_again_a_notebook_is_the_same(script: ModuleType, chapter: Path) -> None:
    kept = script.path_of(chapter).read_text(encoding="utf-8")

    assert script.built(chapter) == kept, "run scripts/notebooks"


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.name)
def test_a_notebook_has_the_text_of_its_chapter(
    script: ModuleType, chapter: Path
) -> None:
    cells = read(script.path_of(chapter))["cells"]

    found = [(cell["cell_type"], "".join(cell["source"])) for cell in cells]
    assert found == script.cells_of(chapter)


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.name)
def test_a_cell_prints_what_the_chapter_shows(
    script: ModuleType, chapter: Path
) -> None:
    text = (chapter / "README.md").read_text(encoding="utf-8")
    shown = {
        script.source_of(part): part.output
        for part in parts(text)
        if part.output and not part.is_drawn
    }
    for console in [part.text for part in parts(text) if part.kind == "console"]:
        for command, output in commands(console):
            if command == demo_command(chapter):
                shown[script.DEMO.format(name=chapter.name)] = output

    cells = code_cells(script.path_of(chapter))

    found = {"".join(cell["source"]): printed(cell) for cell in cells}
    assert {source: found[source] for source in shown} == shown


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.name)
def test_a_drawing_of_a_chapter_is_drawn(script: ModuleType, chapter: Path) -> None:
    text = (chapter / "README.md").read_text(encoding="utf-8")
    shown = {
        script.source_of(part): f"```mermaid\n{part.output}```"
        for part in parts(text)
        if part.is_drawn
    }

    cells = code_cells(script.path_of(chapter))

    assert {"".join(x["source"]): drawn(x) for x in cells if drawn(x)} == shown


def test_a_block_that_draws_ends_with_what_prints_the_drawing(
    script: ModuleType,
) -> None:
    part = Part("code", "show(graph)\n", output="flowchart TD\n", is_drawn=True)

    with pytest.raises(SystemExit, match=r"'show\(graph\)' draws nothing; end with"):
        script.source_of(part)


@each_notebook
def test_every_cell_ran_in_order_and_none_failed(path: Path) -> None:
    cells = code_cells(path)

    counts = [cell["execution_count"] for cell in cells]
    kinds = {
        (each["output_type"], each.get("name"))
        for cell in cells
        for each in cell["outputs"]
    }
    assert counts == [*range(1, len(cells) + 1)]
    assert kinds - {("display_data", None)} == {("stream", "stdout")}


@each_notebook
def test_the_first_cell_prints_the_version_and_the_last_was_skipped(path: Path) -> None:
    first, *_, last = read(path)["cells"]

    assert printed(first).startswith("minagent ")
    assert printed(last) == "Skipped: ANTHROPIC_API_KEY is not set.\n"


@each_notebook
def test_a_notebook_keeps_nothing_of_the_machine_or_the_moment(path: Path) -> None:
    notebook = read(path)

    assert notebook["metadata"]["language_info"].get("version") is None
    assert [cell["metadata"] for cell in notebook["cells"] if cell["metadata"]] == []
    ids = [cell["id"] for cell in notebook["cells"]]
    assert ids == [f"cell-{at:02d}" for at in range(1, len(ids) + 1)]


@each_notebook
def test_a_notebook_is_short_and_defines_nothing_of_the_package(path: Path) -> None:
    import minagent

    cells = code_cells(path)

    # A chapter may await at the top of a cell; as a module, that still parses.
    defined = {
        node.name
        for cell in cells
        for node in ast.walk(ast.parse("".join(cell["source"])))
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert len(cells) <= MAX_CODE_CELLS
    assert defined & {*minagent.__all__} == set()


@pytest.mark.heavy
def test_the_check_says_what_would_change(script: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    (tmp_path / "scripts").mkdir()
    (tmp_path / "notebooks").mkdir()
    copy = tmp_path / "scripts" / "notebooks"
    copy.write_bytes(SCRIPT.read_bytes())
    kept = script.path_of(CHAPTERS[0])
    text = kept.read_text(encoding="utf-8").replace("not set", "not there")
    stale = tmp_path / "notebooks" / kept.name
    stale.write_text(text, encoding="utf-8")
    command = [sys.executable, str(copy), "--check", CHAPTERS[0].name]

    done = subprocess.run(command, capture_output=True, text=True, timeout=100)

    assert done.returncode == 1, done.stderr
    assert f"notebooks/{kept.name}: would change" in done.stdout
    assert "not there" in done.stdout
    assert stale.read_text(encoding="utf-8") == text


@pytest.mark.heavy
async def test_with_a_key_the_last_cell_asks_the_model(script: ModuleType) -> None:
    program = [sys.executable, str(ROOT / "tests" / "programs" / "blocks.py")]
    async with FakeAnthropic(["Hello, Ada.", "Your name is Ada."]) as api:
        key = {"ANTHROPIC_API_KEY": "key", "ANTHROPIC_BASE_URL": api.url}

        done = await asyncio.to_thread(
            subprocess.run,
            program,
            input=json.dumps([script.REAL]),
            env=offline() | key,
            capture_output=True,
            text=True,
            timeout=100,
        )

    assert done.stderr == ""
    assert json.loads(done.stdout) == ["Hello, Ada.\nYour name is Ada.\n"]
