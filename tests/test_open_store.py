"""From an address to a store."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from minagent import InMemorySessionManager
from minagent.stores import BlobSessionManager, SQLiteSessionManager, open_store


async def test_memory_is_a_store_of_its_own_each_time() -> None:
    one, other = open_store("memory:"), open_store("memory:")
    await one.create("ada")

    assert isinstance(one, InMemorySessionManager)
    assert await other.get("ada") is None


@pytest.mark.parametrize(
    ("url", "file"),
    [
        ("sqlite:///chat.db", "chat.db"),
        ("sqlite:///a%20chat.db", "a chat.db"),
        ("sqlite:///{here}/chat.db", "chat.db"),
        ("sqlite:///chat.db?durability=normal", "chat.db"),
    ],
)
async def test_a_file_is_where_its_address_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, file: str
) -> None:
    monkeypatch.chdir(tmp_path)

    async with open_store(url.format(here=tmp_path)) as sessions:
        await sessions.create("ada")

    assert isinstance(sessions, SQLiteSessionManager)
    assert (tmp_path / file).is_file()


@pytest.mark.parametrize("url", ["file://{here}/kept", "file:kept", "file:k%65pt"])
async def test_a_folder_is_where_its_address_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.chdir(tmp_path)

    async with open_store(url.format(here=tmp_path)) as sessions:
        await sessions.create("ada")

    assert isinstance(sessions, BlobSessionManager)
    assert (tmp_path / "kept" / "sessions").is_dir()


def test_opening_touches_nothing(tmp_path: Path) -> None:
    open_store(f"sqlite:///{tmp_path}/chat.db")
    open_store(f"file://{tmp_path}/kept")
    open_store("s3://bucket/prefix?endpoint=http://127.0.0.1:9&region=eu-west-1")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("redis://localhost", "no store has the scheme 'redis'; there are memory:, sq"),
        ("chat.db", "no store has the scheme ''; there are memory:"),
        ("", "no store has the scheme ''"),
        ("mysql://ada:secret@host/x", "no store has the scheme 'mysql'"),
        ("sqlite:", "sqlite:///chat.db"),
        ("sqlite://", "sqlite:///chat.db"),
        ("sqlite:///", "sqlite:///chat.db"),
        ("sqlite://chat.db", "sqlite:///chat.db"),
        ("file://host/folder", "file:///var/lib/sessions"),
        ("file://", "file:///var/lib/sessions"),
        ("s3://", "s3://bucket/prefix"),
        ("s3:///prefix", "s3://bucket/prefix"),
        ("sqlite:///a.db?sync=no", "sqlite: has no option 'sync'; there are: durab"),
        ("memory:?size=3", "memory: has no option 'size'; there is none"),
        ("sqlite:///a.db?durability=off", "durability is 'off'"),
        ("sqlite:///a#b.db", "sqlite: a # in a name is written %23"),
        ("file:///a#b", "file: a # in a name is written %23"),
        ("s3://bucket/a#b", "s3: a # in a name is written %23"),
        ("sqlite:///a%00.db", "sqlite: no name has a null byte in it"),
        ("file:///a%00", "file: no name has a null byte in it"),
        ("s3://bucket?region=", "s3: the option 'region' is empty"),
        ("postgresql://ada:secret\u2100x@host/d", "this address cannot be read"),
    ],
)
def test_what_is_no_address_is_refused_with_an_example(url: str, message: str) -> None:
    with pytest.raises(ValueError, match=r"^(?!.*secret)") as refused:
        open_store(url)

    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("url", "module", "extra"),
    [
        ("s3://bucket", "aiobotocore", "s3"),
        ("postgresql://localhost/x", "psycopg", "postgres"),
    ],
)
def test_a_missing_extra_is_named_with_the_line_that_adds_it(
    url: str, module: str, extra: str
) -> None:
    program = (
        "import sys\n"
        f"sys.modules[{module!r}] = None\n"
        "from minagent.stores import open_store\n"
        f"open_store({url!r})\n"
    )

    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    last: Any = ended.stderr.strip().splitlines()[-1]
    assert last.startswith("ModuleNotFoundError")
    assert f"pip install 'minagent[{extra}]'" in last
