"""What `EncryptedStorage` adds to a storage: nobody reads or changes the objects."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from minagent import Event, Message
from minagent.errors import (
    KeyTakenError,
    MissingKeyError,
    NewerDataError,
    StoreClosedError,
    TamperedDataError,
)
from minagent.stores import BlobSessionManager, FolderStorage, MemoryStorage, Storage
from minagent.stores.encrypted import EncryptedStorage
from minagent.testing import StorageContract

OLD, NEW = bytes(range(32)), bytes(range(100, 132))
MARKER = b"the marker that nobody may read"


class TestEncryptedStorageInMemory(StorageContract):
    durable = False

    def open_storage(self, tmp_path: Path) -> Storage:
        return EncryptedStorage(MemoryStorage(), {"2026": OLD})


class TestEncryptedStorageInAFolder(StorageContract):
    def open_storage(self, tmp_path: Path) -> Storage:
        inner = FolderStorage(tmp_path / "objects", durability="normal")
        return EncryptedStorage(inner, {"2026": OLD})


@pytest.fixture
def inner() -> MemoryStorage:
    """What is below, as whoever may write to the storage sees it."""
    return MemoryStorage()


@pytest.fixture
def storage(inner: MemoryStorage) -> EncryptedStorage:
    return EncryptedStorage(inner, {"old": OLD})


async def stored(storage: Storage, key: str = "a") -> bytes:
    data = await storage.read(key)
    assert data is not None
    return data


def contents(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in folder.rglob("*") if path.is_file()]


# --- Nobody reads -------------------------------------------------------------


async def test_the_text_is_in_no_byte_of_the_folder(tmp_path: Path) -> None:
    folder = FolderStorage(tmp_path / "objects", durability="normal")
    store = BlobSessionManager(EncryptedStorage(folder, {"2026": OLD}))
    session = await store.create("ada", "ann")
    words = MARKER.decode()
    session.state["note"] = words
    said = Message(role="user", content=words)
    session.append(Event(author="user", content=(said,)))
    await store.save(session)

    files = contents(tmp_path)

    assert len(files) == 4
    for found in files:
        assert found.startswith(b"mina\x01\x042026")
        assert MARKER not in found
        assert b"ann" not in found
    again = BlobSessionManager(EncryptedStorage(folder, {"2026": OLD}))
    assert (await again.get_or_create("ada")).state == {"note": words}


async def test_the_same_bytes_are_never_encrypted_to_the_same(
    storage: EncryptedStorage, inner: MemoryStorage
) -> None:
    found = set()
    for _ in range(100):
        await storage.replace("a", MARKER)
        found.add(await stored(inner))

    assert len({each[-16:] for each in found}) == 100
    assert len(found) == 100


async def test_another_program_reads_what_the_layout_says(
    storage: EncryptedStorage, inner: MemoryStorage
) -> None:
    await storage.create("a/é.json", MARKER)

    found = await stored(inner, "a/é.json")

    magic, version, length = found[:4], found[4], found[5]
    header, rest = found[: 6 + length], found[6 + length :]
    assert (magic, version, header[6:]) == (b"mina", 1, b"old")
    about = header + "a/é.json".encode()
    assert AESGCM(OLD).decrypt(rest[:12], rest[12:], about) == MARKER


async def test_a_closed_storage_has_closed_the_one_below(
    storage: EncryptedStorage, inner: MemoryStorage
) -> None:
    await storage.aclose()

    with pytest.raises(StoreClosedError):
        await inner.read("a")


# --- Nobody changes -----------------------------------------------------------


async def test_an_object_with_one_bit_changed_is_refused_and_stays(
    storage: EncryptedStorage, inner: MemoryStorage
) -> None:
    await storage.create("a", b"some text")
    whole = await stored(inner)

    for bit in range(len(whole) * 8):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        await inner.replace("a", bytes(changed))
        with pytest.raises(TamperedDataError) as raised:
            await storage.read("a")
        assert raised.value.key == "a"
        assert await stored(inner) == changed

    await inner.replace("a", whole)
    assert await storage.read("a") == b"some text"


async def test_an_object_that_was_cut_off_anywhere_is_refused(
    storage: EncryptedStorage, inner: MemoryStorage
) -> None:
    await storage.create("a", b"some text")
    whole = await stored(inner)

    for length in range(len(whole)):
        await inner.replace("a", whole[:length])
        with pytest.raises(TamperedDataError):
            await storage.read("a")


@pytest.mark.parametrize(
    "change",
    [
        lambda whole: whole + b"\x00",
        lambda whole: b"\x00" + whole,
        lambda whole: whole + whole,
        lambda whole: b"some text",
        lambda whole: b"{}",
        lambda whole: b"mina",
        lambda whole: b"mina\x01\x03old",
        lambda whole: b"mina\x01\x00" + bytes(28),
        lambda whole: b"mina\x00\x03new" + bytes(28),
        lambda whole: b"mina\x01\x03\xff\xff\xff" + bytes(28),
        lambda whole: b"mina\x01\xffnew" + bytes(28),
    ],
)
async def test_what_nobody_here_has_encrypted_is_refused(
    storage: EncryptedStorage, inner: MemoryStorage, change: Callable[[bytes], bytes]
) -> None:
    await storage.create("a", b"some text")
    await inner.replace("a", change(await stored(inner)))

    with pytest.raises(TamperedDataError):
        await storage.read("a")


async def test_two_objects_that_were_swapped_are_refused(
    storage: EncryptedStorage, inner: MemoryStorage
) -> None:
    await storage.create("a", b"1")
    await storage.create("b", b"2")
    first, second = await stored(inner, "a"), await stored(inner, "b")
    await inner.replace("a", second)
    await inner.replace("b", first)

    for key in ("a", "b"):
        with pytest.raises(TamperedDataError, match=f"'{key}'"):
            await storage.read(key)


@pytest.mark.parametrize("to", ["b", "a/b", "A", "aa", "é"])
async def test_an_object_that_was_moved_is_refused(
    storage: EncryptedStorage, inner: MemoryStorage, to: str
) -> None:
    await storage.create("a", b"1")
    await inner.create(to, await stored(inner))

    with pytest.raises(TamperedDataError):
        await storage.read(to)
    assert await storage.read("a") == b"1"


async def test_an_id_of_a_key_that_runs_into_the_name_moves_nothing() -> None:
    """`k` + `ey/a` and `ke` + `y/a` are not the same."""
    inner = MemoryStorage()
    keys = {"k": OLD, "ke": OLD}
    await EncryptedStorage(inner, keys, use="k").create("ey/a", b"1")
    body = (await stored(inner, "ey/a"))[7:]
    await inner.create("y/a", b"mina\x01\x02ke" + body)

    with pytest.raises(TamperedDataError):
        await EncryptedStorage(inner, keys).read("y/a")


async def test_an_older_object_of_the_same_name_is_not_found_out(
    storage: EncryptedStorage, inner: MemoryStorage
) -> None:
    """As the docstring says: freshness cannot be told from inside one object."""
    await storage.create("a", b"older")
    older = await stored(inner)
    await storage.replace("a", b"newer")
    await inner.replace("a", older)

    assert await storage.read("a") == b"older"


async def test_a_session_that_was_changed_is_refused_and_left_as_it_is(
    storage: EncryptedStorage, inner: MemoryStorage
) -> None:
    store = BlobSessionManager(storage)
    session = await store.create("ada")
    for number in range(2):
        session.state["n"] = number
        await store.save(session)
    [key] = [key for key in await inner.list("sessions/") if key.endswith("02.json")]
    await inner.replace(key, (await stored(inner, key))[:-1])
    before = {key: await stored(inner, key) for key in await inner.list("")}

    for sessions in (store, BlobSessionManager(storage)):
        with pytest.raises(TamperedDataError, match=key):
            await sessions.get("ada")
    session.state["n"] = 2
    with pytest.raises(TamperedDataError, match=key):
        await store.save(session)

    assert session.version == 2
    assert {key: await stored(inner, key) for key in await inner.list("")} == before


async def test_a_session_without_its_true_head_is_refused(
    storage: EncryptedStorage, inner: MemoryStorage
) -> None:
    store = BlobSessionManager(storage)
    await store.create("ada")
    await store.create("bob")
    bob = await stored(inner, "sessions/bob/head.json")
    await inner.replace("sessions/ada/head.json", bob)

    for use in (store.get, store.create):
        with pytest.raises(TamperedDataError):
            await use("ada")
    with pytest.raises(TamperedDataError):
        await store.list()


# --- Keys ---------------------------------------------------------------------


async def test_the_first_key_writes_and_all_read(inner: MemoryStorage) -> None:
    await EncryptedStorage(inner, {"old": OLD}).create("a", b"1")
    both = EncryptedStorage(inner, {"new": NEW, "old": OLD})

    await both.create("b", b"2")

    assert [await both.read(key) for key in ("a", "b")] == [b"1", b"2"]
    assert await EncryptedStorage(inner, {"new": NEW}).read("b") == b"2"


async def test_another_key_than_the_first_can_be_named_to_write(
    inner: MemoryStorage,
) -> None:
    await EncryptedStorage(inner, {"new": NEW, "old": OLD}, use="old").create("a", b"1")

    assert await EncryptedStorage(inner, {"old": OLD}).read("a") == b"1"


async def test_an_object_whose_key_is_not_here_says_which_one_it_is(
    inner: MemoryStorage,
) -> None:
    await EncryptedStorage(inner, {"new": NEW}).create("a", b"1")
    storage = EncryptedStorage(inner, {"old": OLD})

    with pytest.raises(MissingKeyError, match="with the key 'new'; add that to"):
        await storage.read("a")
    with pytest.raises(KeyTakenError):
        await storage.create("a", b"2")


async def test_a_wrong_key_under_the_right_id_reads_nothing(
    inner: MemoryStorage,
) -> None:
    await EncryptedStorage(inner, {"2026": OLD}).create("a", b"1")

    with pytest.raises(TamperedDataError):
        await EncryptedStorage(inner, {"2026": NEW}).read("a")


async def test_an_object_of_a_later_version_is_not_taken_for_a_changed_one(
    storage: EncryptedStorage, inner: MemoryStorage
) -> None:
    await inner.create("a", b"mina\x02" + bytes(40))

    with pytest.raises(NewerDataError, match="'a' has format 2"):
        await storage.read("a")


async def test_after_reencrypt_the_old_key_is_not_needed(inner: MemoryStorage) -> None:
    old = EncryptedStorage(inner, {"old": OLD})
    for number in range(5):
        await old.create(f"a/{number}", f"{number}".encode())
    await old.create("b", b"elsewhere")
    both = EncryptedStorage(inner, {"new": NEW, "old": OLD})
    await both.replace("a/3", b"3")

    assert await both.reencrypt("a/") == 4

    new = EncryptedStorage(inner, {"new": NEW})
    found = [await new.read(key) for key in await new.list("a/")]
    assert found == [b"0", b"1", b"2", b"3", b"4"]
    with pytest.raises(MissingKeyError):
        await new.read("b")
    assert await both.reencrypt() == 1
    assert await new.read("b") == b"elsewhere"


async def test_reencrypt_goes_on_where_it_was_cut_off(inner: MemoryStorage) -> None:
    old = EncryptedStorage(inner, {"old": OLD})
    for number in range(3):
        await old.create(f"{number}", b"text")
    await inner.replace("1", (await stored(inner, "1"))[:-1])
    both = EncryptedStorage(inner, {"new": NEW, "old": OLD})

    with pytest.raises(TamperedDataError, match="'1'"):
        await both.reencrypt()
    await old.replace("1", b"text")

    assert await both.reencrypt() == 2
    assert await both.reencrypt() == 0


async def test_sessions_go_on_after_their_objects_got_another_key(
    inner: MemoryStorage,
) -> None:
    store = BlobSessionManager(EncryptedStorage(inner, {"old": OLD}))
    session = await store.create("ada")
    await store.save(session)
    both = EncryptedStorage(inner, {"new": NEW, "old": OLD})
    assert await both.reencrypt() == 3

    session.state["n"] = 1
    await BlobSessionManager(both).save(session)

    later = BlobSessionManager(EncryptedStorage(inner, {"new": NEW}))
    assert (await later.get_or_create("ada")).state == {"n": 1}


SECRET = "5ec2e7" * 5 + "5e"
BAD_KEYS: dict[str, tuple[Any, type[Exception]]] = {
    "no key": ({}, ValueError),
    "no mapping": ([("a", SECRET.encode())], TypeError),
    "a mapping of something else": ({1: SECRET.encode()}, TypeError),
    "a key that is text": ({"a": SECRET}, TypeError),
    "a key that is a bytearray": ({"a": bytearray(SECRET.encode())}, TypeError),
    "128 bits": ({"a": SECRET.encode()[:16]}, ValueError),
    "192 bits": ({"a": SECRET.encode()[:24]}, ValueError),
    "a key in hex": ({"a": SECRET.encode() * 2}, ValueError),
    "no bytes": ({"a": b""}, ValueError),
    "a bad second key": ({"a": OLD, "b": SECRET.encode()[1:]}, ValueError),
    "key and id mixed up": ({SECRET.encode(): "a"}, TypeError),
    "texts mixed up": ({SECRET: b"a"}, ValueError),
    "an id without a letter": ({"": SECRET.encode()}, ValueError),
    "an id of 256 bytes": ({"\u00e9" * 128: SECRET.encode()}, ValueError),
    "an id with half an emoji": ({"\ud800": SECRET.encode()}, ValueError),
}


@pytest.mark.parametrize(("keys", "error"), BAD_KEYS.values(), ids=BAD_KEYS.keys())
def test_bad_keys_are_refused_and_never_shown(
    keys: Any, error: type[Exception]
) -> None:
    with pytest.raises(error) as raised:
        EncryptedStorage(MemoryStorage(), keys)

    assert "5ec2e7" not in str(raised.value)


def test_a_name_of_no_key_is_refused_and_not_shown() -> None:
    with pytest.raises(ValueError, match="`use` is none of the ids") as raised:
        EncryptedStorage(MemoryStorage(), {"a": OLD}, use=SECRET)

    assert SECRET not in str(raised.value)


async def test_an_id_of_255_bytes_is_one() -> None:
    storage = EncryptedStorage(MemoryStorage(), {"x" * 255: OLD})
    await storage.create("a", b"1")

    assert await storage.read("a") == b"1"


def test_a_storage_shows_no_key() -> None:
    storage = EncryptedStorage(MemoryStorage(), {"a": SECRET.encode()})

    shown = f"{storage!r} {storage} {vars(storage)!r}"

    assert "5ec2e7" not in shown
    assert SECRET.encode().hex() not in shown


def test_without_its_extra_it_says_what_to_install() -> None:
    program = """
import sys
sys.modules["cryptography"] = None
try:
    import minagent.stores.encrypted
except ModuleNotFoundError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout == (
        "minagent.stores.encrypted needs cryptography: "
        "pip install 'minagent[encryption]'\n"
    )
