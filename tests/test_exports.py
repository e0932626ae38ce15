"""The public names: sorted, there, documented, and free of drivers until asked."""

import importlib
import importlib.util
import inspect
import subprocess
import sys
from functools import cached_property
from types import ModuleType

import pytest

PACKAGES = [
    name
    for name in (
        *("minagent", "minagent.foreign", "minagent.memory", "minagent.models"),
        *("minagent.multiagent", "minagent.stores", "minagent.testing"),
        "minagent.web",
    )
    if importlib.util.find_spec(name)
]
DRIVERS = [
    *("aiobotocore", "aiosqlite", "anthropic", "cryptography", "httpx2", "psycopg"),
    *("pytest", "rich", "starlette", "typer", "uvicorn"),
]


@pytest.fixture(params=PACKAGES)
def package(request: pytest.FixtureRequest) -> ModuleType:
    return importlib.import_module(request.param)


def test_public_names_are_sorted_and_unique(package: ModuleType) -> None:
    assert list(package.__all__) == sorted(set(package.__all__), key=ruff_order)


def ruff_order(name: str) -> tuple[int, str]:
    """Constants, classes, the rest: the order that ruff's RUF022 asks for."""
    if name.isupper() and len(name) > 1:
        return 0, name
    return (1 if name[0].isupper() else 2), name


def test_every_public_name_resolves(package: ModuleType) -> None:
    assert [name for name in package.__all__ if not hasattr(package, name)] == []


def test_every_public_name_is_documented(package: ModuleType) -> None:
    missing = [
        line
        for name in package.__all__
        for line in undocumented(name, getattr(package, name))
    ]

    assert missing == []


def undocumented(name: str, thing: object) -> list[str]:
    """The public parts of a class or function that no docstring explains."""
    if inspect.isclass(thing):
        missing = [] if has_docstring(thing) else [name]
        return missing + [
            f"{name}.{member}"
            for member in sorted({m for base in ours(thing) for m in vars(base)})
            if not member.startswith("_") and not is_explained(thing, member)
        ]
    if inspect.isroutine(thing) and not thing.__doc__:
        return [name]
    return []


def has_docstring(cls: type) -> bool:
    """Tell a written docstring from the signature that a dataclass puts there."""
    return bool(cls.__doc__) and not cls.__doc__.startswith(f"{cls.__name__}(")


def ours(cls: type) -> list[type]:
    return [base for base in cls.__mro__ if base.__module__.startswith("minagent")]


def is_explained(cls: type, member: str) -> bool:
    """One documented definition is enough: an override need not repeat a promise."""
    definitions = [vars(base)[member] for base in cls.__mro__ if member in vars(base)]
    return not is_method(definitions[0]) or any(
        definition.__doc__ for definition in definitions
    )


def is_method(member: object) -> bool:
    kinds = (staticmethod, classmethod, property, cached_property)
    return inspect.isfunction(member) or isinstance(member, kinds)


def test_importing_the_package_loads_no_driver() -> None:
    assert loaded_drivers("import minagent") == ""


def test_dir_lists_every_name_and_loads_no_driver() -> None:
    code = "import minagent; assert set(minagent.__all__) <= set(dir(minagent))"

    assert loaded_drivers(code) == ""


def loaded_drivers(code: str) -> str:
    """Run `code` in a fresh interpreter and name the drivers that it imported."""
    script = f"{code}\nimport sys\nprint(*[d for d in {DRIVERS} if d in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


class Documented:
    """A class."""

    def explained(self) -> None:
        """Does a thing."""


class Bare(Documented):
    def explained(self) -> None: ...
    def silent(self) -> None: ...
    @property
    def quiet(self) -> int:
        return 1


def test_the_documentation_check_catches_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for cls in (Documented, Bare):
        monkeypatch.setattr(cls, "__module__", "minagent.example")

    assert undocumented("Documented", Documented) == []
    assert undocumented("Bare", Bare) == ["Bare", "Bare.quiet", "Bare.silent"]
