"""The shape of the package: its floors, its rooms, and its size.

The core is the .py files directly in minagent/, except the room modules. A core
file imports the standard library, pydantic, and core files of lower floors. The
checks are functions over a root folder, so that the last tests here can hand them
a tree that breaks each rule.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Low to high. Modules on one floor do not import each other.
FLOORS = (
    {"errors"},
    {"events"},
    {"log"},
    {"marks"},
    {"ledger", "transcript"},
    {"session", "model"},
    {"store"},
    {"context"},
    {"tools"},
    {"approval"},
    {"calls", "stream"},
    {"opening"},
    {"agent"},
)
FLOOR = {name: number for number, names in enumerate(FLOORS) for name in names}
ROOM_MODULES = {"cards", "timetravel", "windows"}
NOT_CORE = ROOM_MODULES | {"__init__", "__main__"}

CORE_MAY_IMPORT = sys.stdlib_module_names | {"pydantic", "pydantic_core"}
# Who may import a driver: a file, or a folder with all that is in it.
DRIVERS = {
    "anthropic": ("minagent/models/anthropic.py",),
    "aiosqlite": ("minagent/stores/", "minagent/memory/"),
    "aiobotocore": ("minagent/stores/s3.py",),
    "aiohttp": ("minagent/stores/s3.py",),
    "botocore": ("minagent/stores/s3.py",),
    "cryptography": ("minagent/stores/encrypted.py",),
    "psycopg": ("minagent/stores/postgres.py",),
    "starlette": ("minagent/web/",),
    "uvicorn": ("minagent/web/",),
}
MAX_STATEMENTS = 1_720


def core_files(root: Path) -> list[Path]:
    files = sorted((root / "minagent").glob("*.py"))
    return [path for path in files if path.stem not in NOT_CORE]


def unknown_files(root: Path) -> list[str]:
    return [
        f"minagent/{path.name}: not known here; put it on a floor in FLOORS, or, if "
        "the core never imports it, in ROOM_MODULES"
        for path in core_files(root)
        if path.stem not in FLOOR
    ]


def broken_floors(root: Path) -> list[str]:
    """Imports of the core that go up, sideways, into a room or out to a vendor."""
    found = []
    for path in core_files(root):
        floor = FLOOR.get(path.stem, len(FLOORS))  # unknown: has its own report
        for node, target in imports(path, root):
            top, _, rest = target.partition(".")
            module = rest.partition(".")[0]
            if top != "minagent":
                if top not in CORE_MAY_IMPORT:
                    found.append(problem(root, path, node, f"a core file needs {top}"))
            elif not module:
                found.append(problem(root, path, node, "import from the module itself"))
            elif module not in FLOOR:
                found.append(problem(root, path, node, f"{module} is not in the core"))
            elif FLOOR[module] >= floor:
                found.append(problem(root, path, node, f"{module} is not below"))
    return found


def hidden_imports(root: Path) -> list[str]:
    """What a core file could do to dodge the floors: each is a misplaced name."""
    found = []
    for path in core_files(root):
        tree = parse(path)
        bodies = [node for node in ast.walk(tree) if isinstance(node, FUNCTIONS)]
        hidden = {node for body in bodies for node in ast.walk(body) if is_import(node)}
        for node in ast.walk(tree):
            if node in hidden:
                found.append(problem(root, path, node, "an import inside a function"))
            elif isinstance(node, ast.If) and "TYPE_CHECKING" in names(node.test):
                found.append(problem(root, path, node, "an import for types only"))
            elif isinstance(node, ast.Call) and names(node.func) & IMPORTERS:
                found.append(problem(root, path, node, "an import by name"))
    return found


def stray_drivers(root: Path) -> list[str]:
    """Imports of a driver outside its room, anywhere in the package."""
    found = []
    for path in sorted((root / "minagent").rglob("*.py")):
        for node, target in imports(path, root):
            driver = target.partition(".")[0]
            places = DRIVERS.get(driver)
            if places and not path.relative_to(root).as_posix().startswith(places):
                allowed = " and ".join(places)
                found.append(problem(root, path, node, f"{driver} is for {allowed}"))
    return found


def statements(path: Path) -> int:
    """Count the statements, but for imports, docstrings and the body `...`.

    A statement counts once, however a formatter breaks it: packing lines gains nothing.
    """
    return sum(
        isinstance(node, ast.stmt | ast.ExceptHandler)
        and not is_import(node)
        and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for node in ast.walk(parse(path))
    )


def too_large(root: Path) -> list[str]:
    counts = {path.name: statements(path) for path in core_files(root)}
    total = sum(counts.values())
    if total <= MAX_STATEMENTS:
        return []
    return [
        *(f"{count:6}  minagent/{name}" for name, count in counts.items()),
        f"{total:6}  in all, {total - MAX_STATEMENTS} over {MAX_STATEMENTS}",
    ]


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
IMPORTERS = {"import_module", "__import__"}


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imports(path: Path, root: Path) -> Iterator[tuple[ast.stmt, str]]:
    """Every import of a file, at any depth, with the dotted name that it reaches."""
    package = path.relative_to(root).parent.parts
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                # `from minagent import events` reaches a module, not a name.
                module = root.joinpath(*base.split("."), alias.name)
                is_module = module.is_dir() or module.with_suffix(".py").exists()
                yield node, f"{base}.{alias.name}" if is_module else base


def problem(root: Path, path: Path, node: ast.AST, reason: str) -> str:
    number = getattr(node, "lineno", 1)
    line = path.read_text(encoding="utf-8").splitlines()[number - 1].strip()
    return f"{path.relative_to(root).as_posix()}:{number}: {reason}: {line}"


def names(node: ast.AST) -> set[str]:
    found = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return found | {p.attr for p in ast.walk(node) if isinstance(p, ast.Attribute)}


def is_import(node: ast.AST) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def test_every_core_file_has_a_floor() -> None:
    expect_nothing(unknown_files(ROOT))


def test_core_imports_go_down_only() -> None:
    expect_nothing(broken_floors(ROOT))


def test_core_hides_no_import() -> None:
    expect_nothing(hidden_imports(ROOT))


def test_drivers_stay_in_their_rooms() -> None:
    expect_nothing(stray_drivers(ROOT))


def test_core_fits_its_budget() -> None:
    expect_nothing(too_large(ROOT))


def expect_nothing(problems: list[str]) -> None:
    if problems:
        pytest.fail("\n".join(dict.fromkeys(problems)), pytrace=False)


def write(root: Path, name: str, source: str) -> None:
    path = root / "minagent" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source, encoding="utf-8")


def all_problems(root: Path) -> list[str]:
    checks = (unknown_files, broken_floors, hidden_imports, stray_drivers, too_large)
    return [line for check in checks for line in check(root)]


def test_a_tree_in_order_has_no_problem(tmp_path: Path) -> None:
    write(tmp_path, "__init__.py", "from minagent.agent import Agent\n")
    write(tmp_path, "errors.py", "import json\nfrom pydantic import BaseModel\n")
    write(tmp_path, "events.py", "from .errors import AgentError\n")
    write(tmp_path, "agent.py", "from minagent import events\nimport minagent.errors\n")
    write(tmp_path, "cards.py", "from minagent.agent import Agent\n")
    write(tmp_path, "models/anthropic.py", "def client():\n    import anthropic\n")
    write(tmp_path, "stores/sqlite.py", "import aiosqlite\n")

    assert all_problems(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "source", "expected"),
    [
        (
            "events.py",
            "import json\nfrom minagent.agent import Agent\n",
            "minagent/events.py:2: agent is not below: "
            "from minagent.agent import Agent",
        ),
        (
            "model.py",
            "from .session import Session\n",
            "minagent/model.py:1: session is not below: from .session import Session",
        ),
        (
            "agent.py",
            "from . import cards\n",
            "minagent/agent.py:1: cards is not in the core: from . import cards",
        ),
        (
            "agent.py",
            "import minagent.models.offline\n",
            "minagent/agent.py:1: models is not in the core: "
            "import minagent.models.offline",
        ),
        (
            "agent.py",
            "from minagent import Event\n",
            "minagent/agent.py:1: import from the module itself: "
            "from minagent import Event",
        ),
        (
            "session.py",
            "import yaml\n",
            "minagent/session.py:1: a core file needs yaml: import yaml",
        ),
        (
            "events.py",
            "import typing\nif typing.TYPE_CHECKING:\n    from .errors import E\n",
            "minagent/events.py:2: an import for types only: if typing.TYPE_CHECKING:",
        ),
        (
            "agent.py",
            "class A:\n    async def run(self):\n        from .events import Event\n",
            "minagent/agent.py:3: an import inside a function: "
            "from .events import Event",
        ),
        (
            "tools.py",
            "import importlib\nx = importlib.import_module('minagent.agent')\n",
            "minagent/tools.py:2: an import by name: "
            "x = importlib.import_module('minagent.agent')",
        ),
        (
            "windows.py",
            "def f():\n    import anthropic.types\n",
            "minagent/windows.py:2: anthropic is for minagent/models/anthropic.py: "
            "import anthropic.types",
        ),
        (
            "models/local.py",
            "from aiosqlite import connect\n",
            "minagent/models/local.py:1: aiosqlite is for minagent/stores/ and "
            "minagent/memory/: from aiosqlite import connect",
        ),
    ],
)
def test_a_broken_rule_is_reported(
    tmp_path: Path, name: str, source: str, expected: str
) -> None:
    write(tmp_path, "cards.py", "")
    write(tmp_path, name, source)

    assert all_problems(tmp_path) == [expected]


def test_a_vendor_in_the_core_is_reported(tmp_path: Path) -> None:
    write(tmp_path, "agent.py", "import anthropic\n")

    line = "minagent/agent.py:1: a core file needs anthropic: import anthropic"
    assert line in broken_floors(tmp_path)


def test_an_unknown_core_file_is_reported(tmp_path: Path) -> None:
    write(tmp_path, "helpers.py", "")

    [line] = all_problems(tmp_path)
    assert line.startswith("minagent/helpers.py: not known here; put it on a floor")


def test_only_code_is_counted(tmp_path: Path) -> None:
    source = '''"""A module.

With two paragraphs.
"""

import json  # code

# A comment.
LIMIT = 3
"""What the limit is for."""


def f(text: str) -> str:
    """One line."""
    return json.dumps(
        f"""
        {text}
        """
    )
'''
    write(tmp_path, "events.py", source)

    assert statements(tmp_path / "minagent" / "events.py") == 3


def test_a_large_core_is_reported_file_by_file(tmp_path: Path) -> None:
    write(tmp_path, "errors.py", "x = 1\n" * 1_000)
    write(tmp_path, "events.py", "x = 1\n" * (MAX_STATEMENTS - 999))
    write(tmp_path, "cards.py", "x = 1\n" * 501)

    assert too_large(tmp_path) == [
        "  1000  minagent/errors.py",
        f"   {MAX_STATEMENTS - 999}  minagent/events.py",
        f"  {MAX_STATEMENTS + 1}  in all, 1 over {MAX_STATEMENTS}",
    ]
