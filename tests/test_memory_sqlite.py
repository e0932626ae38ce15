"""What `SQLiteMemoryManager` adds to the contract: ranking, erasing, the file."""

import asyncio
import hashlib
import os
import random
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from minagent import Event, Message, NewerDataError, Session
from minagent.errors import ErasurePendingError, StoreClosedError, StoreUnavailableError
from minagent.memory import InMemoryMemoryManager, MemoryManager, SQLiteMemoryManager

pytestmark = pytest.mark.heavy


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


@pytest.fixture
async def memory(path: Path) -> AsyncIterator[SQLiteMemoryManager]:
    async with SQLiteMemoryManager(path) as memory:
        yield memory


needs_numpy = pytest.mark.skipif(
    find_spec("numpy") is None, reason="numpy is not installed: minagent[embeddings]"
)


def marker(number: int) -> str:
    """A word that is like no other, from its first letter on."""
    return hashlib.sha256(str(number).encode()).hexdigest()[:20]


def in_files(path: Path, *words: str) -> list[str]:
    """Those of the words that stand anywhere in the database, its log or its index."""
    data = b"".join(each.read_bytes() for each in path.parent.glob(f"{path.name}*"))
    return [word for word in words if word.encode() in data.lower()]


def hashed(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


async def added(memory: MemoryManager, *texts: str, user_id: str = "ann") -> list[str]:
    """Add texts as the messages of one session; return the ids."""
    ids = []
    for text in texts:
        one = await memory.add(text, user_id=user_id, session_id="s", author="user")
        assert one is not None
        ids.append(one.memory_id)
    return ids


async def found(memory: MemoryManager, query: str, user_id: str = "ann") -> list[str]:
    return [hit.memory.text for hit in await memory.search(query, user_id=user_id)]


# --- ranking ------------------------------------------------------------------


async def test_an_answer_is_found_by_the_words_of_its_question(
    memory: SQLiteMemoryManager,
) -> None:
    await added(memory, "Which kayak will it be?", "The red one.", "Good.", "Bye.")

    assert "The red one." in (await found(memory, "kayak"))[:2]


async def test_a_word_of_the_text_counts_more_than_one_of_a_neighbour(
    memory: SQLiteMemoryManager,
) -> None:
    await added(memory, "Yes, please.", "A kayak it is.", "No, thanks.")

    assert (await found(memory, "kayak"))[0] == "A kayak it is."


async def test_neighbours_are_of_the_same_session_and_user(
    memory: SQLiteMemoryManager,
) -> None:
    await added(memory, "My kayak is red.", "one")
    await added(memory, "two", user_id="bob")
    await memory.add("three", user_id="ann", session_id="other")
    await memory.add("four", user_id="ann")

    assert set(await found(memory, "kayak")) == {"My kayak is red.", "one"}
    assert await found(memory, "kayak", "bob") == []


async def test_only_the_nearest_words_of_a_neighbour_count(
    memory: SQLiteMemoryManager,
) -> None:
    far = "kayak " + "so it goes on and on " * 20
    await added(memory, far, "A short answer.")

    assert await found(memory, "kayak") == [far]


async def test_what_the_user_said_counts_more(path: Path) -> None:
    texts = {"user": "tea is nice, and so is this", "bot": "tea is nice"}
    orders = []
    for weight in (3.0, 1.0):
        async with SQLiteMemoryManager(path, author_weight=weight) as memory:
            for author, text in texts.items():
                about = {"user_id": "ann", "author": author}
                await memory.add(text, **about, session_id=author, event_id="e")
            hits = await memory.search("tea", user_id="ann")
        orders.append([hit.memory.author for hit in hits])

    assert orders == [["user", "bot"], ["bot", "user"]]


async def test_a_text_is_found_by_its_authors_name(memory: SQLiteMemoryManager) -> None:
    await memory.add("Tea, please.", user_id="ann", author="Müller")

    assert await found(memory, "What did Muller want?") == ["Tea, please."]


async def test_words_that_look_like_an_owner_reach_nobody(
    memory: SQLiteMemoryManager,
) -> None:
    token = f"u{hashlib.blake2b(b'bob', digest_size=8).hexdigest()}"
    await added(memory, "My password is swordfish.", user_id="bob")
    await added(memory, f"{token} tea")

    for query in (f"owner:{token}", f'"{token}" password', f"{token} OR swordfish"):
        assert await found(memory, query) in ([], [f"{token} tea"])


# --- meaning ------------------------------------------------------------------


def animals(texts: list[str]) -> list[list[float]]:
    """Vectors by what a text speaks of: animals, or the weather."""
    topics = (("dog", "hound", "cat"), ("rain", "sun", "weather"))
    return [[float(any(w in t for w in each)) for each in topics] for t in texts]


@needs_numpy
async def test_what_means_the_same_is_found_with_embed(path: Path) -> None:
    async with SQLiteMemoryManager(path) as memory:
        await added(memory, "A greyhound lives with us.")
        await memory.add("It rains a lot.", user_id="ann")
        await memory.add("The hound of bob.", user_id="bob")

    async with SQLiteMemoryManager(path, embed=animals) as memory:
        assert await found(memory, "dog") == ["A greyhound lives with us."]
        assert await found(memory, "Any cats?", "bob") == ["The hound of bob."]


@needs_numpy
async def test_words_count_twice_as_much_as_meaning(path: Path) -> None:
    async with SQLiteMemoryManager(path, embed=animals) as memory:
        for text in ("A hound called Juno", "Any old cat", "dog licence"):
            await memory.add(text, user_id="ann")

        assert (await found(memory, "dog licence"))[0] == "dog licence"
        assert set(await found(memory, "dog licence")) == {
            *("dog licence", "A hound called Juno", "Any old cat")
        }


@needs_numpy
async def test_an_update_and_a_deletion_reach_the_vectors(path: Path) -> None:
    async with SQLiteMemoryManager(path, embed=animals) as memory:
        [first, second] = await added(memory, "my hound", "my cat")
        await found(memory, "dog")
        await memory.update(first, "sunshine", user_id="ann")
        await memory.delete(second, user_id="ann")

        assert await found(memory, "dog") == []
        assert await found(memory, "weather") == ["sunshine"]


@needs_numpy
async def test_the_session_left_out_is_left_out_by_meaning_too(path: Path) -> None:
    async with SQLiteMemoryManager(path, embed=animals) as memory:
        await added(memory, "my hound")

        assert await memory.search("dog", user_id="ann", exclude_session="s") == []


async def test_the_shipped_embed_finds_a_paraphrase(path: Path) -> None:
    pytest.importorskip("wordllama")
    from minagent.memory import embed

    texts = ["I own a small automobile.", "Dinner is at eight.", "The lake is cold."]
    async with SQLiteMemoryManager(path, embed=embed) as memory:
        await added(memory, *texts)

        assert (await found(memory, "Which car does she drive?"))[0] == texts[0]


@needs_numpy
async def test_vectors_of_another_length_are_made_anew(path: Path) -> None:
    def longer(texts: list[str]) -> list[list[float]]:
        return [[*each, 0.0] for each in animals(texts)]

    for embed in (animals, longer):
        async with SQLiteMemoryManager(path, embed=embed) as memory:
            await memory.add("my hound", user_id="ann", event_id="e")
            assert await found(memory, "dog") == ["my hound"]


@pytest.mark.parametrize("missing", ["numpy", "wordllama"])
def test_without_the_extra_one_sentence_says_what_to_install(missing: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from minagent.memory import SQLiteMemoryManager, embed\n"
        "SQLiteMemoryManager('memory.db', embed=embed)\n"
        "embed(['tea'])"
    )

    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert "pip install 'minagent[embeddings]'" in done.stderr.splitlines()[-1]


# --- delete deletes -----------------------------------------------------------


async def test_no_word_of_a_deleted_memory_is_left_in_the_files(
    memory: SQLiteMemoryManager, path: Path
) -> None:
    words = [marker(number) for number in range(200)]
    ids = await added(memory, *(f"note {word} {'long ' * 30}" for word in words))
    assert in_files(path, *words) == words

    gone = [at for at in range(200) if at % 3]
    for at in gone[:20]:
        await memory.delete(ids[at], user_id="ann")

    assert in_files(path, *(words[at] for at in gone[:20])) == []
    kept = [word for at, word in enumerate(words) if at not in gone[:20]]
    assert in_files(path, *kept) == kept


async def test_a_neighbour_does_not_keep_a_deleted_word(
    memory: SQLiteMemoryManager, path: Path
) -> None:
    ids = await added(memory, "one", "two", f"a {marker(1)}", "three", "four", "five")

    await memory.delete(ids[2], user_id="ann")

    assert in_files(path, marker(1)) == []
    assert await found(memory, marker(1)) == []
    # They are each other's neighbours now.
    assert set(await found(memory, "three")) == {"two", "three", "four", "five"}


async def test_an_update_and_forget_leave_no_word_either(
    memory: SQLiteMemoryManager, path: Path
) -> None:
    [first, *_] = await added(memory, f"a {marker(1)}", f"a {marker(2)}", "three")
    await added(memory, f"a {marker(3)}", user_id="bob")

    await memory.update(first, "something else", user_id="ann")
    assert in_files(path, marker(1), marker(2), marker(3)) == [marker(2), marker(3)]

    await memory.forget(user_id="ann", session_id="s")
    assert in_files(path, marker(2), marker(3)) == [marker(3)]


@needs_numpy
async def test_a_vector_of_deleted_words_does_not_stay(path: Path) -> None:
    def embed(texts: list[str]) -> list[list[float]]:
        return [[1.5, 2.5, 3.25] for _ in texts]

    async with SQLiteMemoryManager(path, embed=embed) as memory:
        [only] = await added(memory, "tea")
        await found(memory, "tea")
        await memory.delete(only, user_id="ann")

    db = sqlite3.connect(path)
    assert db.execute("SELECT count(*) FROM vectors").fetchone() == (0,)
    db.close()


async def test_a_text_deleted_without_a_block_is_gone_as_well(path: Path) -> None:
    memory = SQLiteMemoryManager(path)
    [only] = await added(memory, f"a {marker(1)}")

    await memory.delete(only, user_id="ann")

    assert in_files(path, marker(1)) == []
    await memory.aclose()


async def test_no_row_that_was_moved_leaves_a_copy(
    memory: SQLiteMemoryManager, path: Path
) -> None:
    """`secure_delete` misses what SQLite leaves behind where it moves rows.

    With this order of calls SQLite 3.40 does leave a copy, if nothing is done about it.
    """
    chance, number = random.Random(30), 0
    live: dict[str, list[str]] = {}
    gone: list[str] = []
    for _ in range(46):
        key = chance.choice([*live]) if live else ""
        draw, count = chance.random(), chance.choice([1, 5, 300])
        words = [marker(number + n) for n in range(count)]
        number += count
        if draw < 0.7 or not key:
            one = await memory.add(" ".join(words), user_id="ann", session_id="s")
            assert one is not None
            live[one.memory_id] = words
            continue
        gone += live.pop(key)
        if draw < 0.85:
            await memory.delete(key, user_id="ann")
        else:
            live[key] = words
            await memory.update(key, " ".join(words), user_id="ann")

    assert in_files(path, *gone) == []


@pytest.fixture
def reader(path: Path, memory: SQLiteMemoryManager) -> sqlite3.Connection:
    """A connection of somebody else's; the test begins and ends its reading."""
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False)


def begin_reading(reader: sqlite3.Connection) -> None:
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM memories").fetchall()


async def test_with_a_reader_the_deletion_stands_and_erase_finishes_it(
    memory: SQLiteMemoryManager, path: Path, reader: sqlite3.Connection
) -> None:
    [only] = await added(memory, f"a {marker(1)}")
    begin_reading(reader)

    with pytest.raises(ErasurePendingError) as raised:
        await memory.delete(only, user_id="ann")

    assert raised.value.place == str(path)
    assert await memory.list_memories(user_id="ann") == []
    assert await found(memory, marker(1)) == []
    assert in_files(path, marker(1)) == [marker(1)]
    with pytest.raises(ErasurePendingError):
        await memory.erase()
    reader.close()
    await memory.erase()
    assert in_files(path, marker(1)) == []


async def test_the_next_write_finishes_it_too(
    memory: SQLiteMemoryManager, path: Path, reader: sqlite3.Connection
) -> None:
    [only] = await added(memory, f"a {marker(1)}")
    begin_reading(reader)
    with pytest.raises(ErasurePendingError):
        await memory.delete(only, user_id="ann")

    await added(memory, "an addition that does not fail")
    assert in_files(path, marker(1)) == [marker(1)]
    reader.close()
    await added(memory, "another one")

    assert in_files(path, marker(1)) == []


async def test_a_write_of_another_process_finishes_it(
    memory: SQLiteMemoryManager, path: Path, reader: sqlite3.Connection
) -> None:
    """That words are still to be erased is in the file, and not in the manager."""
    [only] = await added(memory, f"a {marker(1)}")
    begin_reading(reader)
    with pytest.raises(ErasurePendingError):
        await memory.delete(only, user_id="ann")
    reader.execute("COMMIT")  # it stays connected, so that the log is not removed
    code = (
        "import asyncio, sys; from minagent.memory import SQLiteMemoryManager as M\n"
        "asyncio.run(M(sys.argv[1]).add('tea', user_id='bob'))"
    )

    command = (sys.executable, "-c", code, str(path))
    child = await asyncio.create_subprocess_exec(*command)
    assert await child.wait() == 0

    assert in_files(path, marker(1)) == []
    reader.close()


async def test_deleting_what_is_not_there_costs_nothing(
    memory: SQLiteMemoryManager, path: Path, reader: sqlite3.Connection
) -> None:
    await added(memory, "tea")
    begin_reading(reader)

    assert await memory.delete("nothing", user_id="ann") is False
    assert await memory.update("nothing", "tea", user_id="ann") is False
    assert await memory.forget(user_id="bob") == 0
    reader.close()


# --- the file -----------------------------------------------------------------


async def test_the_file_is_its_owners_only(
    memory: SQLiteMemoryManager, path: Path
) -> None:
    await added(memory, "tea")

    for each in path.parent.glob("*"):
        assert stat.S_IMODE(each.stat().st_mode) == 0o600, each.name
    assert {each.name for each in path.parent.glob("*")} == {
        *("memory.db", "memory.db-shm", "memory.db-wal")
    }


@pytest.mark.parametrize("place", ["", ":memory:"])
def test_a_place_that_is_no_file_is_refused(place: str) -> None:
    with pytest.raises(ValueError, match="InMemoryMemoryManager"):
        SQLiteMemoryManager(place)


def test_an_unknown_durability_is_refused(path: Path) -> None:
    with pytest.raises(ValueError, match="durability"):
        SQLiteMemoryManager(path, durability="none")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("durability", "synchronous"), [("full", 2), ("normal", 1), (None, 1)]
)
async def test_durability_is_sqlites_synchronous_with_a_log(
    path: Path, durability: str | None, synchronous: int
) -> None:
    options = {"durability": durability} if durability else {}
    async with SQLiteMemoryManager(path, **options) as memory:  # type: ignore[arg-type]
        found = await memory._run(
            lambda c: [
                c.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("synchronous", "journal_mode", "secure_delete")
            ]
        )

    assert found == [synchronous, "wal", 1]


async def test_the_database_of_another_program_is_left_alone(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE theirs (x)")
    db.commit()
    db.close()
    before = hashed(path)

    with pytest.raises(StoreUnavailableError, match="another program"):
        await SQLiteMemoryManager(path).add("tea", user_id="ann")

    assert hashed(path) == before


async def test_a_file_of_sessions_is_another_programs(path: Path) -> None:
    from minagent.stores import SQLiteSessionManager

    await SQLiteSessionManager(path).create("s")

    with pytest.raises(StoreUnavailableError, match="another program"):
        await SQLiteMemoryManager(path).search("tea", user_id="ann")


async def test_a_newer_file_is_left_alone(
    memory: SQLiteMemoryManager, path: Path
) -> None:
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()

    with pytest.raises(NewerDataError):
        await SQLiteMemoryManager(path).list_memories(user_id="ann")


async def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "target.db")

    with pytest.raises(StoreUnavailableError, match="symbolic link"):
        await SQLiteMemoryManager(link).add("tea", user_id="ann")

    assert not (tmp_path / "target.db").exists()


async def test_a_missing_folder_is_a_named_error(tmp_path: Path) -> None:
    memory = SQLiteMemoryManager(tmp_path / "nowhere" / "memory.db")

    with pytest.raises(StoreUnavailableError, match="nowhere"):
        await memory.add("tea", user_id="ann")
    with pytest.raises(StoreUnavailableError):
        async with memory:
            pass


@pytest.fixture
def damaged(path: Path) -> Path:
    path.write_bytes(b"no database" * 1_000)
    return path


async def test_a_damaged_file_is_a_named_error(damaged: Path) -> None:
    with pytest.raises(StoreUnavailableError, match="not a database"):
        await SQLiteMemoryManager(damaged).search("tea", user_id="ann")


@pytest.mark.parametrize("kind", [InMemoryMemoryManager, SQLiteMemoryManager])
async def test_after_closing_every_call_is_refused(
    kind: type[MemoryManager], path: Path
) -> None:
    is_sqlite = kind is SQLiteMemoryManager
    memory = SQLiteMemoryManager(path) if is_sqlite else InMemoryMemoryManager()
    async with memory:
        await memory.add("tea", user_id="ann")

    calls = [
        memory.add("tea", user_id="ann"),
        memory.search("tea", user_id="ann"),
        memory.search("", user_id="ann"),
        memory.list_memories(user_id="ann"),
        memory.update("x", "tea", user_id="ann"),
        memory.delete("x", user_id="ann"),
        memory.forget(user_id="ann"),
    ]
    for call in calls:
        with pytest.raises(StoreClosedError):
            await call


# --- threads, loops, cancels --------------------------------------------------


async def test_the_loop_goes_on_while_a_write_waits_for_another(
    memory: SQLiteMemoryManager, path: Path
) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    adding = asyncio.ensure_future(memory.add("tea", user_id="ann"))
    for _ in range(100):
        await asyncio.sleep(0.001)
    assert not adding.done()
    other.execute("ROLLBACK")

    assert (await adding) is not None
    other.close()


async def test_a_write_that_waits_too_long_is_a_named_error(path: Path) -> None:
    async with SQLiteMemoryManager(path, busy_timeout_seconds=0.05) as memory:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailableError, match="locked"):
            await memory.add("tea", user_id="ann")
        other.close()

        assert await memory.add("tea", user_id="ann") is not None


async def test_a_cancelled_add_is_whole_or_not_there(
    memory: SQLiteMemoryManager,
) -> None:
    for number in range(30):
        adding = asyncio.ensure_future(
            memory.add(f"fact{number} tea", user_id="ann", session_id="s")
        )
        for _ in range(number % 4):
            await asyncio.sleep(0)
        adding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await adding

    for each in await memory.list_memories(user_id="ann"):
        assert (await found(memory, each.text.split()[0]))[0] == each.text


async def test_a_session_is_added_whole_or_not_at_all(
    memory: SQLiteMemoryManager,
) -> None:
    session = Session("s", "ann")
    said = [Message(role="user", content=f"word {n}") for n in range(3)]
    session.append(*(Event(author="user", content=(each,)) for each in said))

    def select(session: Session) -> list[object]:
        from minagent.memory import spoken_text

        return [*spoken_text(session), object()]

    with pytest.raises(TypeError):
        await memory.add_session(session, select=select)  # type: ignore[arg-type]

    assert await memory.list_memories(user_id="ann") == []


async def test_one_manager_serves_several_event_loops(
    memory: SQLiteMemoryManager,
) -> None:
    def other_loop(number: int) -> None:
        asyncio.run(memory.add(f"tea {number}", user_id="ann"))

    threads = [threading.Thread(target=other_loop, args=(n,)) for n in range(8)]
    for each in threads:
        each.start()
    await memory.add("tea here", user_id="ann")
    for each in threads:
        await asyncio.to_thread(each.join)

    assert len(await memory.list_memories(user_id="ann")) == 9


def test_a_forgotten_close_does_not_hang_the_program(path: Path) -> None:
    code = (
        "import asyncio, sys; from minagent.memory import SQLiteMemoryManager as M\n"
        "async def main():\n"
        "    memory = await M(sys.argv[1]).__aenter__()\n"
        "    await memory.add('tea', user_id='ann')\n"
        "asyncio.run(main())"
    )

    command = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(command, timeout=30, check=False)

    assert done.returncode == 0


@pytest.mark.skipif(not hasattr(os, "kill"), reason="needs signals")
def test_what_was_added_survives_a_kill(path: Path) -> None:
    code = (
        "import asyncio, os, signal, sys\n"
        "from minagent.memory import SQLiteMemoryManager as M\n"
        "async def main():\n"
        "    async with M(sys.argv[1]) as memory:\n"
        "        for n in range(20):\n"
        "            await memory.add(f'fact{n} tea', user_id='ann', session_id='s')\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())"
    )

    subprocess.run([sys.executable, "-c", code, str(path)], check=False)

    async def look() -> list[str]:
        async with SQLiteMemoryManager(path) as memory:
            assert (await found(memory, "fact7"))[0] == "fact7 tea"
            kept = await memory.list_memories(user_id="ann")
            return [each.text for each in kept]

    assert asyncio.run(look()) == [f"fact{n} tea" for n in range(20)]
