"""What `PostgresSessionManager` promises besides the contract of every store.

Connections that are lost, and answers with them, come first; then who may open what,
the tables, event loops, and damage.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from postgres import Proxy, cluster, execute, new_database, opened, schema_of, server
from test_cancelled_save import MOMENTS, Moment, Waits, both_moments, cancelled

import minagent
from minagent import Agent, Event, Message, Session, SessionStore
from minagent.errors import (
    CorruptSessionError,
    NewerDataError,
    SessionConflictError,
    SessionExistsError,
    SessionNotFoundError,
    StoreClosedError,
    StoreUnavailableError,
)
from minagent.events import utc_now
from minagent.models import ScriptedModel
from minagent.stores import PostgresSessionManager

pytestmark = pytest.mark.heavy

SAVE, CREATE, LOOK = b"WITH saved AS", b"INSERT INTO", b"SELECT incarnation"


@pytest.fixture
def schema(tmp_path: Path) -> str:
    return schema_of(tmp_path)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[PostgresSessionManager]:
    """A store in its block."""
    async with opened(tmp_path) as sessions:
        yield sessions


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    async with Proxy().running() as running:
        yield running


@pytest.fixture
async def far(proxy: Proxy, schema: str) -> AsyncIterator[PostgresSessionManager]:
    """A store in its block, behind the proxy."""
    async with PostgresSessionManager(proxy.conninfo, schema=schema) as sessions:
        yield sessions


def said(text: str) -> Event:
    return Event(author="user", content=(Message(role="user", content=text),))


def texts(session: Session | None) -> list[str]:
    assert session is not None
    items = [item for event in session.events for item in event.content]
    return [item.content for item in items if isinstance(item, Message)]


async def got(store: SessionStore, session_id: str = "ada") -> Session:
    session = await store.get(session_id)
    assert session is not None
    return session


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so that another process does."""
    while not is_so():  # noqa: ASYNC110 - no event tells of it
        await asyncio.sleep(0)


@asynccontextmanager
async def row_locked(conninfo: str, schema: str) -> AsyncIterator[None]:
    """Let everybody wait who wants to save the session "ada"."""
    async with await psycopg.AsyncConnection.connect(conninfo) as other:
        row = f"SELECT FROM {schema}.sessions WHERE session_id = 'ada' FOR UPDATE"
        await other.execute(row.encode())
        yield


def waiting(conninfo: str) -> int:
    """Return how many wait for a lock."""
    [(count,)] = execute(conninfo, "SELECT count(*) FROM pg_locks WHERE NOT granted")
    return int(count)


async def say(store: SessionStore, session: Session, *words: str) -> None:
    session.append(*map(said, words))
    await store.save(session)


# --- An answer that is lost on the way ----------------------------------------


async def test_a_save_whose_answer_is_lost_finds_itself_stored(
    far: PostgresSessionManager, proxy: Proxy, store: SessionStore
) -> None:
    # Promise 15
    session = await far.create("ada")
    session.state["city"] = "Paris"
    proxy.lose_answer(SAVE)

    await say(far, session, "one", "two")

    assert proxy.lost.is_set()
    assert (session.version, session.unsaved) == (1, ())
    stored = await got(store)
    assert (texts(stored), stored.version) == (["one", "two"], 1)
    assert stored.state == {"city": "Paris"}
    await say(far, session, "three")
    assert texts(await got(far)) == texts(await got(store)) == ["one", "two", "three"]


async def test_a_save_of_the_state_alone_whose_answer_is_lost_finds_itself_stored(
    far: PostgresSessionManager, proxy: Proxy, store: SessionStore
) -> None:
    session = await far.create("ada")
    session.state["n"] = 1
    proxy.lose_answer(SAVE)

    await far.save(session)

    assert proxy.lost.is_set()
    assert session.version == (await got(store)).version == 1


async def test_a_save_that_never_arrives_is_an_error_and_can_be_made_again(
    far: PostgresSessionManager, proxy: Proxy, store: SessionStore
) -> None:
    session = await far.create("ada")
    session.append(said("one"))
    proxy.lose_question(SAVE)

    with pytest.raises(StoreUnavailableError, match="nothing was saved: save again"):
        await far.save(session)

    assert (session.version, len(session.unsaved)) == (0, 1)
    assert texts(await got(store)) == []
    await far.save(session)
    assert (session.version, session.unsaved) == (1, ())
    assert texts(await got(store)) == ["one"]


async def in_doubt(store: SessionStore, session: Session, proxy: Proxy) -> None:
    """Save, so that it is stored, and nobody can find out."""
    await store.list()  # so that there is a connection
    proxy.lose_answer(SAVE)
    proxy.refuses = True
    with pytest.raises(StoreUnavailableError, match="the next save will find out"):
        await store.save(session)
    proxy.refuses = False


@pytest.mark.parametrize("words", [["one"], ["one", "two"], []])
@pytest.mark.parametrize("more", [[], ["more"]])
async def test_the_next_save_finds_out_about_one_in_doubt(
    far: PostgresSessionManager,
    proxy: Proxy,
    store: SessionStore,
    words: list[str],
    more: list[str],
) -> None:
    """No false conflict, and nothing twice."""
    session = await far.create("ada")
    session.state["n"] = 1
    session.append(*map(said, words))
    await in_doubt(far, session, proxy)
    assert (session.version, len(session.unsaved)) == (0, len(words))

    session.append(*map(said, more))
    await far.save(session)

    stored = await got(store)
    assert texts(stored) == [*words, *more]
    assert stored.version == session.version == (2 if more else 1)
    assert session.unsaved == ()
    await say(far, session, "last")
    assert texts(await got(store)) == texts(await got(far)) == [*words, *more, "last"]


async def test_a_state_that_changed_since_a_save_in_doubt_is_stored(
    far: PostgresSessionManager, proxy: Proxy, store: SessionStore
) -> None:
    session = await far.create("ada")
    session.append(said("one"))
    session.state["n"] = 1
    await in_doubt(far, session, proxy)

    session.state["n"] = 2
    await far.save(session)

    stored = await got(store)
    assert (texts(stored), stored.state) == (["one"], {"n": 2})
    assert stored.version == session.version == 2


async def test_of_two_saves_in_doubt_the_one_that_is_stored_counts(
    far: PostgresSessionManager, proxy: Proxy, store: SessionStore
) -> None:
    session = await far.create("ada")
    session.append(said("one"))
    await in_doubt(far, session, proxy)
    session.append(said("two"))
    session.state["n"] = 2
    await in_doubt(far, session, proxy)  # the server refuses it, and nobody hears

    session.append(said("three"))
    await far.save(session)

    stored = await got(store)
    assert (texts(stored), stored.state) == (["one", "two", "three"], {"n": 2})
    assert (session.version, session.unsaved) == (2, ())


async def test_behind_a_save_in_doubt_somebody_else_s_is_a_conflict_over_the_rest(
    far: PostgresSessionManager, proxy: Proxy, store: SessionStore
) -> None:
    session = await far.create("ada")
    session.append(said("one"))
    await in_doubt(far, session, proxy)
    await say(store, await got(store), "theirs")

    session.append(said("two"))
    with pytest.raises(SessionConflictError):
        await far.save(session)

    assert texts(await got(store)) == ["one", "theirs"]
    assert [event.content for event in session.unsaved] == [said("two").content]
    again = await got(far)
    await say(far, again, "two")
    assert texts(await got(store)) == ["one", "theirs", "two"]


async def test_a_save_in_doubt_behind_which_somebody_else_saves_at_once_is_found(
    far: PostgresSessionManager, proxy: Proxy, store: SessionStore
) -> None:
    """The look sees another write id, and knows its own events."""
    session = await far.create("ada")
    session.append(said("one"))
    proxy.lose_answer(SAVE)
    proxy.gate.clear()
    saving = asyncio.ensure_future(far.save(session))
    await proxy.lost.wait()
    await say(store, await got(store), "theirs")
    proxy.gate.set()

    await saving

    assert (session.version, session.unsaved) == (1, ())
    assert texts(await got(far)) == ["one", "theirs"]


async def test_a_save_that_arrives_after_all_is_found_by_the_next_one(
    far: PostgresSessionManager, proxy: Proxy, store: SessionStore, schema: str
) -> None:
    """A server goes on with a statement though its client is gone."""
    session = await far.create("ada")
    session.append(said("one"))
    async with row_locked(server(), schema):
        saving = asyncio.ensure_future(far.save(session))
        await until(lambda: waiting(server()) == 1)
        proxy.cut()
        with pytest.raises(StoreUnavailableError, match="nothing was saved"):
            await saving
    version = f"SELECT version FROM {schema}.sessions"
    await until(lambda: execute(server(), version) == [(1,)])

    session.append(said("two"))
    await far.save(session)

    assert texts(await got(store)) == ["one", "two"]
    assert session.version == (await got(store)).version == 2


async def test_a_session_that_was_deleted_since_a_save_in_doubt_is_not_found(
    far: PostgresSessionManager, proxy: Proxy, store: SessionStore
) -> None:
    session = await far.create("ada")
    session.append(said("one"))
    await in_doubt(far, session, proxy)
    await store.delete("ada")
    await store.create("ada")

    with pytest.raises(SessionNotFoundError):
        await far.save(session)

    assert texts(await got(store)) == []


async def test_a_create_whose_answer_is_lost_finds_its_own_session(
    far: PostgresSessionManager, proxy: Proxy, store: SessionStore
) -> None:
    proxy.lose_answer(CREATE)

    session = await far.create("ada", user_id="ann")

    assert proxy.lost.is_set()
    assert session.incarnation == (await got(store)).incarnation
    await say(far, session, "one")
    assert texts(await got(store)) == ["one"]


async def test_a_create_of_a_taken_id_whose_answer_is_lost_is_refused(
    far: PostgresSessionManager, proxy: Proxy, store: SessionStore
) -> None:
    await say(store, await store.create("ada"), "precious")
    proxy.lose_answer(CREATE)

    with pytest.raises(SessionExistsError):
        await far.create("ada")

    assert texts(await got(store)) == ["precious"]


async def test_a_create_that_never_arrives_is_an_error_and_can_be_made_again(
    far: PostgresSessionManager, proxy: Proxy
) -> None:
    proxy.lose_question(CREATE)

    with pytest.raises(StoreUnavailableError):
        await far.create("ada")

    await say(far, await far.create("ada"), "one")
    assert texts(await got(far)) == ["one"]


@pytest.mark.parametrize("lose", ["lose_answer", "lose_question"])
async def test_a_delete_that_is_cut_off_is_an_error_and_can_be_made_again(
    far: PostgresSessionManager, proxy: Proxy, lose: str
) -> None:
    await say(far, await far.create("ada"), "one")
    getattr(proxy, lose)(b"DELETE FROM")

    with pytest.raises(StoreUnavailableError):
        await far.delete("ada")

    assert await far.delete("ada") is (lose == "lose_question")
    assert await far.get("ada") is None


@pytest.mark.parametrize("lose", ["lose_answer", "lose_question"])
async def test_reading_and_rewriting_try_again(
    far: PostgresSessionManager, proxy: Proxy, lose: str
) -> None:
    session = await far.create("ada")
    await say(far, session, "one", "two")

    getattr(proxy, lose)(b"WITH found AS")
    assert texts(await got(far)) == ["one", "two"]
    getattr(proxy, lose)(b"ORDER BY session_id")
    assert [info.session_id for info in await far.list()] == ["ada"]
    getattr(proxy, lose)(b"AS event SET")
    await far.redact("ada", session.events[0].event_id, "gone")
    assert texts(await got(far)) == ["gone", "two"]


@pytest.mark.parametrize("lose", ["lose_answer", "lose_question"])
async def test_a_conversation_in_which_each_save_is_cut_off_once_is_stored_once(
    far: PostgresSessionManager, proxy: Proxy, store: SessionStore, lose: str
) -> None:
    model = ScriptedModel([f"Answer {number}." for number in range(6)])
    agent = Agent(model, session_manager=far)

    for number in range(3):
        for save in (1, 2):  # that of the question, that of the answer
            getattr(proxy, lose)(SAVE)
            proxy.skip = save - 1
            with suppress(StoreUnavailableError):
                await agent.run(f"Question {number}{save}?", session_id="ada")

    heard = texts(await got(store))
    ids = [event.event_id for event in (await got(store)).events]
    assert len(set(ids)) == len(ids)
    asked = [each for each in heard if each.startswith("Question")]
    if lose == "lose_answer":
        assert asked == [f"Question {n}{save}?" for n in range(3) for save in (1, 2)]
        assert len(heard) == 12
    else:
        assert asked == [f"Question {n}2?" for n in range(3)]


# --- Connections that are lost ------------------------------------------------


def end_all_others() -> None:
    """End the connections of everybody else, as a server does that is stopped."""
    execute(
        server(),
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
        "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'",
    )


async def test_connections_that_ended_while_idle_are_noticed_before_they_are_used(
    store: PostgresSessionManager,
) -> None:
    session = await store.create("ada")
    await asyncio.gather(*(store.list() for _ in range(8)))
    end_all_others()

    await say(store, session, "one")

    assert texts(await got(store)) == ["one"]
    end_all_others()
    assert await store.delete("ada") is True


async def test_a_server_that_is_gone_is_named_and_when_it_is_back_all_goes_on(
    store: PostgresSessionManager, schema: str
) -> None:
    session = await store.create("ada")
    await say(store, session, "one")
    session.append(said("two"))
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: store.get("ada"),
        lambda: store.save(session),
        lambda: store.create("bob"),
        lambda: store.delete("ada"),
        lambda: store.list(),
        PostgresSessionManager(server(), schema=schema).__aenter__,
    ]

    cluster().stop()
    try:
        for call in calls:
            with pytest.raises(StoreUnavailableError) as caught:
                await call()
            assert schema in caught.value.place
            assert isinstance(caught.value.__cause__, psycopg.Error)
    finally:
        cluster().start()

    assert (session.version, len(session.unsaved)) == (1, 1)
    await store.save(session)
    assert texts(await got(store)) == ["one", "two"]


async def test_no_message_tells_a_password(proxy: Proxy, schema: str) -> None:
    proxy.refuses = True
    conninfo = f"{proxy.conninfo}?sslpassword=hidden"
    store = PostgresSessionManager(conninfo, schema=schema)

    with pytest.raises(StoreUnavailableError) as caught:
        await store.get("ada")

    shown = f"{caught.value!r} {caught.value} {caught.value.__cause__} {store!r}"
    assert "127.0.0.1" in shown
    assert "secret" not in shown
    assert "hidden" not in shown


@pytest.mark.parametrize(
    "conninfo",
    ["postgresql://ada:secret@[host/x", "secret", "password=secret nonsense"],
)
def test_what_is_no_connection_string_is_refused_and_not_repeated(
    conninfo: str,
) -> None:
    with pytest.raises(ValueError, match="no connection string") as caught:
        PostgresSessionManager(conninfo)

    assert "secret" not in str(caught.value)
    assert caught.value.__suppress_context__


# --- One round trip -----------------------------------------------------------


async def test_a_save_is_one_round_trip_and_so_is_a_get(
    far: PostgresSessionManager, proxy: Proxy
) -> None:
    # Promise 16
    session = await far.create("ada")
    session.append(*[said("x") for _ in range(10)])

    before = proxy.questions
    await far.save(session)
    assert proxy.questions == before + 1

    await far.get("ada")
    assert proxy.questions == before + 2


async def test_a_get_reads_only_what_is_new(
    far: PostgresSessionManager, proxy: Proxy, store: SessionStore
) -> None:
    # Promise 16
    session = await store.create("ada")
    await say(store, session, *["x" * 1_000] * 200)
    await far.get("ada")
    before = proxy.answered_bytes
    await say(store, session, "new")

    assert len((await got(far)).events) == 201

    assert proxy.answered_bytes - before < 5_000


# --- Others at work -----------------------------------------------------------


async def test_a_database_that_is_stricter_by_default_changes_nothing() -> None:
    """There a conflict would be an error of the server's."""
    database = new_database()
    [(name,)] = execute(database, "SELECT current_database()")
    strict = f"ALTER DATABASE {name} SET default_transaction_isolation = serializable"
    execute(database, strict)
    async with PostgresSessionManager(database) as store:
        await store.create("ada")
        racers = [await got(store) for _ in range(2)]
        async with row_locked(database, "minagent"):
            saves = [asyncio.ensure_future(store.save(each)) for each in racers]
            await until(lambda: waiting(database) == len(saves))
        outcomes = await asyncio.gather(*saves, return_exceptions=True)

    assert {type(each) for each in outcomes} == {type(None), SessionConflictError}


async def test_of_a_save_and_a_delete_at_once_no_event_is_left_behind(
    store: PostgresSessionManager, tmp_path: Path, schema: str
) -> None:
    async with opened(tmp_path) as other:
        for number in range(50):
            session = await store.create("ada")
            session.append(said(f"{number}"))

            saved, deleted = await asyncio.gather(
                store.save(session), other.delete("ada"), return_exceptions=True
            )

            assert deleted is True
            assert saved is None or isinstance(saved, SessionNotFoundError)
            assert execute(server(), f"SELECT count(*) FROM {schema}.events") == [(0,)]


async def test_a_delete_of_what_was_seen_waits_for_a_save_in_flight(
    store: PostgresSessionManager, schema: str
) -> None:
    await say(store, await store.create("ada"), "one")
    await store.create("ada/inside")
    seen = await got(store)
    async with await psycopg.AsyncConnection.connect(server()) as other:
        save = f"UPDATE {schema}.sessions SET version = 2 WHERE session_id = 'ada'"
        await other.execute(save.encode())
        deleting = asyncio.ensure_future(store.delete("ada", seen=seen))
        await until(lambda: waiting(server()) == 1)

    assert await deleting is False
    found = await store.list(children=True)
    assert [info.session_id for info in found] == ["ada", "ada/inside"]


async def test_two_that_prune_at_once_do_not_wait_for_each_other_for_ever(
    store: PostgresSessionManager, tmp_path: Path
) -> None:
    names = [f"f{number}" for number in range(20)]
    # In the table, some of those inside stand before their parent.
    for name in names:
        for session_id in (f"{name}/b", f"{name}/a", name, f"{name}/c"):
            await store.create(session_id)
    async with opened(tmp_path) as other:
        later = utc_now() + timedelta(days=1)

        one, two, *_ = await asyncio.gather(
            store.prune(older_than=later),
            other.prune(older_than=later),
            *(each.delete(name) for name in names for each in (store, other)),
        )

    assert set(one) | set(two) <= {*names}
    assert not set(one) & set(two)
    assert await store.list() == []


# --- Who may open what --------------------------------------------------------


def all_of(database: str) -> list[Any]:
    """Return what there is in a database, and when each table was written last."""
    tables = execute(
        database,
        "SELECT nspname, relname FROM pg_class JOIN pg_namespace AS n "
        "ON n.oid = relnamespace WHERE relkind = 'r' "
        "AND nspname !~ '^(pg_|information_schema)' ORDER BY 1, 2",
    )
    return [
        (*each, execute(database, f"SELECT xmin, * FROM {each[0]}.{each[1]}"))
        for each in tables
    ]


async def test_making_a_manager_touches_nothing() -> None:
    database = new_database()

    await PostgresSessionManager(database).aclose()

    assert all_of(database) == []


@pytest.mark.parametrize("held", [True, False], ids=["in blocks", "without blocks"])
async def test_o15_of_8_managers_that_start_first_one_makes_the_schema(
    held: bool,
) -> None:
    for _ in range(5):
        database = new_database()

        async def work(name: str, database: str = database) -> None:
            store = PostgresSessionManager(database)
            if held:
                await store.__aenter__()
            await say(store, await store.create(name), "one")
            await store.aclose()

        names = [f"s{number}" for number in range(8)]
        await asyncio.gather(*map(work, names))

        infos = await PostgresSessionManager(database).list()
        assert [(i.session_id, i.version) for i in infos] == [(n, 1) for n in names]


OPENER = """
import asyncio, sys
from minagent.stores import PostgresSessionManager

async def main(database, name):
    async with PostgresSessionManager(database) as sessions:
        session = await sessions.get_or_create("same")
        await sessions.create(name)
        return session.incarnation

print("ready", flush=True)
for line in sys.stdin:
    print(asyncio.run(main(line.strip(), sys.argv[1])), flush=True)
"""


@pytest.mark.heavy
def test_o15_of_8_processes_that_start_first_one_makes_the_schema() -> None:
    names = [f"p{number}" for number in range(8)]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", OPENER, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        for name in names
    ]
    try:
        heard = [each.stdout and each.stdout.readline() for each in processes]
        assert heard == ["ready\n"] * 8
        for _ in range(10):
            database = new_database()
            for each in processes:
                assert each.stdin
                each.stdin.write(f"{database}\n")

            told = {each.stdout and each.stdout.readline() for each in processes}

            found = execute(
                database,
                "SELECT session_id, incarnation FROM minagent.sessions ORDER BY 1",
            )
            assert [session_id for session_id, _ in found] == [*names, "same"]
            assert told == {f"{found[-1][1]}\n"}
    finally:
        for each in processes:
            each.kill()
            each.communicate()


async def test_the_schema_of_another_program_is_left_as_it_is() -> None:
    database = new_database()
    execute(database, "CREATE TABLE public.songs (title text)")
    execute(database, "INSERT INTO public.songs VALUES ('Yesterday')")
    before = all_of(database)

    with pytest.raises(StoreUnavailableError, match="another program's"):
        await PostgresSessionManager(database, schema="public").create("ada")

    assert all_of(database) == before
    await PostgresSessionManager(database).create("ada")  # beside it there is room


async def test_a_newer_schema_is_left_as_it_is() -> None:
    # Promise 5
    database = new_database()
    await PostgresSessionManager(database).create("ada")
    execute(database, "UPDATE minagent.minagent_format SET version = 99")
    before = all_of(database)

    for use in ("get", "create", "delete"):
        with pytest.raises(NewerDataError, match="99"):
            await getattr(PostgresSessionManager(database), use)("ada")
    with pytest.raises(NewerDataError):
        await PostgresSessionManager(database).__aenter__()

    assert all_of(database) == before


async def test_a_schema_that_is_made_halfway_is_not_seen() -> None:
    """All of it is one transaction; here the last table cannot be made."""
    database = new_database()
    execute(
        database,
        "CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS "
        "$$ BEGIN IF EXISTS (SELECT FROM pg_event_trigger_ddl_commands() WHERE "
        "object_identity = 'minagent.events') THEN RAISE 'no'; END IF; END $$",
        "CREATE EVENT TRIGGER refuse ON ddl_command_end EXECUTE FUNCTION refuse()",
    )

    with pytest.raises(StoreUnavailableError, match="no"):
        await PostgresSessionManager(database).create("ada")

    assert all_of(database) == []
    execute(database, "DROP EVENT TRIGGER refuse")
    await PostgresSessionManager(database).create("ada")


async def test_an_empty_schema_is_enough_for_a_user_who_may_make_none() -> None:
    database = new_database()
    user = f"u{os.urandom(4).hex()}"
    execute(database, f"CREATE ROLE {user} LOGIN")
    limited = database.replace("postgres@", f"{user}@")

    with pytest.raises(StoreUnavailableError, match="permission denied"):
        await PostgresSessionManager(limited).create("ada")

    execute(database, f"CREATE SCHEMA minagent AUTHORIZATION {user}")
    await PostgresSessionManager(limited).create("ada")
    assert await PostgresSessionManager(limited).get("ada") is not None


async def test_two_schemas_share_nothing() -> None:
    database = new_database()
    one = PostgresSessionManager(database, schema="one")
    two = PostgresSessionManager(database, schema="two")
    await one.create("ada")

    assert await two.get("ada") is None
    assert await two.delete("ada") is False
    assert await one.get("ada") is not None


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
async def test_a_database_that_cannot_hold_every_text_is_refused(encoding: str) -> None:
    database = new_database(f"ENCODING '{encoding}' LOCALE 'C'")

    with pytest.raises(StoreUnavailableError, match=encoding):
        await PostgresSessionManager(database).create("ada")

    assert all_of(database) == []


async def test_ids_are_sorted_byte_for_byte_in_any_locale() -> None:
    # Promise 18
    icu = "ENCODING 'UTF8' LOCALE_PROVIDER icu ICU_LOCALE 'en-US' LOCALE 'C.UTF-8'"
    ids = ["A", "B", "a", "a/b", "a0", "ab", "b", "é", "\uffff", "\U00010000"]
    async with PostgresSessionManager(new_database(icu)) as store:
        for session_id in reversed(ids):
            await store.create(session_id)

        first = [info.session_id for info in await store.list(limit=4, children=True)]
        rest = [
            info.session_id for info in await store.list(after=first[-1], children=True)
        ]

        assert [*first, *rest] == ids
        await store.delete("a")
        left = [info.session_id for info in await store.list(children=True)]
        assert left == [each for each in ids if each not in ("a", "a/b")]


@pytest.mark.parametrize("schema", ["", "Mine", "pg_mine", "a-b", "a" * 64, 'a"b', "é"])
def test_a_schema_is_a_plain_name(schema: str) -> None:
    with pytest.raises(ValueError, match="schema"):
        PostgresSessionManager("", schema=schema)


def test_a_block_has_room_for_one_connection() -> None:
    with pytest.raises(ValueError, match="max_connections is 0"):
        PostgresSessionManager("", max_connections=0)


def test_without_its_extra_the_store_says_what_to_install() -> None:
    program = "import sys; sys.modules['psycopg'] = None; import {}"

    done = run("-c", program.format("minagent.stores.postgres"))

    assert "ModuleNotFoundError" in done.stderr
    assert "pip install 'minagent[postgres]'" in done.stderr


# --- The tables ---------------------------------------------------------------


async def test_an_event_is_stored_as_it_writes_itself(
    store: PostgresSessionManager, schema: str
) -> None:
    session = await store.create("ada")
    session.state = {"z": [1.0, 1e400 > 1, 2**70], "a": "NUL \0"}
    await say(store, session, "NUL \0, \u2028, \U0001f600", "two")

    rows = execute(server(), f"SELECT seq, data FROM {schema}.events ORDER BY seq")
    state = execute(server(), f"SELECT state FROM {schema}.sessions")

    assert rows == [(at, event.to_json()) for at, event in enumerate(session.events)]
    assert state == [(session.dump_state(),)]


async def test_deleted_and_redacted_words_are_in_no_row(
    store: PostgresSessionManager, tmp_path: Path, schema: str
) -> None:
    async with opened(tmp_path) as reader:
        session = await store.create("ada")
        await say(store, session, "the marker", "hello")
        for session_id in ("trip", "trip/writer"):
            other = await store.create(session_id)
            other.state["word"] = "marker"
            await say(store, other, "marker")
        assert texts(await got(reader)) == ["the marker", "hello"]

        await store.redact("ada", session.events[0].event_id, "gone")
        await store.delete("trip")

        for table in ("sessions", "events"):
            rows = execute(server(), f"SELECT t::text FROM {schema}.{table} AS t")
            assert not [row for row in rows if "marker" in row[0]]
        assert texts(await got(reader)) == texts(await got(store)) == ["gone", "hello"]


async def test_400_turns_take_at_most_2_2_times_the_bytes_of_200(
    store: PostgresSessionManager, schema: str
) -> None:
    turn = ["question " * 20, "answer " * 40]

    async def size_after(turns: int) -> int:
        session = await store.create(f"s{turns}")
        for _ in range(turns):
            session.state["turn"] = turns
            session.append(*map(said, turn))
            await store.save(session)
        [(events,), (rest,)] = execute(
            server(),
            f"SELECT sum(pg_column_size(e.*)) FROM {schema}.events AS e "
            f"JOIN {schema}.sessions ON key = session WHERE session_id = 's{turns}' "
            f"UNION ALL SELECT pg_column_size(s.*) FROM {schema}.sessions AS s "
            f"WHERE session_id = 's{turns}'",
        )
        on_disk = execute(
            server(), f"SELECT pg_total_relation_size('{schema}.sessions')"
        )
        assert on_disk < [(400_000,)]  # old versions of the row are cleared away
        return int(events) + int(rest)

    assert await size_after(400) < 2.2 * await size_after(200)


# --- Event loops --------------------------------------------------------------


async def test_a_block_keeps_no_more_connections_than_it_may(
    tmp_path: Path, schema: str
) -> None:
    conninfo = f"{server()}&application_name={schema}"
    count = f"SELECT count(*) FROM pg_stat_activity WHERE application_name = '{schema}'"
    most = 0
    async with PostgresSessionManager(
        conninfo, schema=schema, max_connections=3
    ) as store:
        sessions = [await store.create(f"s{number}") for number in range(64)]
        saves = [asyncio.ensure_future(say(store, s, "one")) for s in sessions]
        while not all(save.done() for save in saves):
            await asyncio.sleep(0)
            most = max(most, execute(server(), count)[0][0])
        await asyncio.gather(*saves)

        assert most == 3
        assert {info.version for info in await store.list()} == {1}
    await until(lambda: execute(server(), count) == [(0,)])


@pytest.mark.parametrize("held", [True, False], ids=["in its block", "without one"])
def test_o17_a_manager_goes_on_in_other_loops(tmp_path: Path, held: bool) -> None:
    store = opened(tmp_path)

    async def first() -> None:
        if held:
            await store.__aenter__()
        await say(store, await store.create("ada"), "one")
        await asyncio.to_thread(asyncio.run, again("two"))
        await say(store, await got(store), "three")

    async def again(word: str) -> None:
        await say(store, await got(store), word)

    async def last() -> list[str]:
        async with store:
            return texts(await got(store))

    asyncio.run(first())
    asyncio.run(again("four"))
    assert asyncio.run(last()) == ["one", "two", "three", "four"]
    with pytest.raises(StoreClosedError):
        asyncio.run(store.get("ada"))


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own, and fail rather than hang."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    package = str(Path(minagent.__file__).parents[1])
    return subprocess.run(
        [sys.executable, "-W", "default", *arguments],
        env=kept | {"PYTHONPATH": package},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


HEAD = """
import asyncio, sys, threading
from minagent import Event, Message
from minagent.stores import PostgresSessionManager

sessions = PostgresSessionManager(sys.argv[1], schema=sys.argv[2])

async def say_hello():
    session = await sessions.create("ada")
    session.append(Event(author="user", content=(Message(role="user", content="Hi"),)))
    await sessions.save(session)
    return session
"""

PROGRAMS = {
    "never closed": """
asyncio.run(say_hello())
""",
    "entered by hand and never left": """
async def main():
    await sessions.__aenter__()
    await say_hello()

asyncio.run(main())
""",
    "entered by hand in a loop that is still open": """
loop = asyncio.new_event_loop()
loop.run_until_complete(sessions.__aenter__())
loop.run_until_complete(say_hello())
loop.close()
""",
    "entered by hand in another thread": """
async def main():
    await sessions.__aenter__()
    await say_hello()

thread = threading.Thread(target=asyncio.run, args=[main()])
thread.start()
thread.join()
""",
    "the program ends while a save is in flight": """
async def main():
    await sessions.__aenter__()
    session = await say_hello()
    saving = asyncio.ensure_future(sessions.save(session))
    await asyncio.sleep(0)

asyncio.run(main())
""",
    "the program ends while a block is entered": """
async def main():
    await say_hello()
    entering = asyncio.ensure_future(sessions.__aenter__())
    await asyncio.sleep(0)

asyncio.run(main())
""",
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_o16_a_program_ends_by_itself_and_without_a_word(
    tmp_path: Path, schema: str, program: str
) -> None:
    done = run("-c", HEAD + program, server(), schema)

    assert (done.returncode, done.stderr) == (0, "")
    assert texts(asyncio.run(opened(tmp_path).get("ada"))) == ["Hi"]


# --- Cancelled ----------------------------------------------------------------


async def check_saved(store: SessionStore, session: Session) -> None:
    """Check that object and table agree, and that the next save is no conflict."""
    stored = await got(store, session.session_id)
    assert session.version == stored.version
    assert len(session.events) - len(session.unsaved) == len(stored.events)
    await say(store, session, "last")
    assert texts(await got(store, session.session_id)) == ["one", "two", "last"]


async def with_something_to_save(store: SessionStore, session_id: str) -> Session:
    session = await store.create(session_id)
    session.append(said("one"), said("two"))
    return session


@pytest.mark.parametrize("held", [True, False], ids=["in its block", "without one"])
@both_moments
async def test_a_save_that_is_cancelled_at_any_await_was_done_or_was_not(
    tmp_path: Path, held: bool, moment: Moment
) -> None:
    store = opened(tmp_path)
    if held:
        await store.__aenter__()
    session = await with_something_to_save(store, "whole")
    count = await cancelled(store.save(session), set(), moment)
    assert count > 0

    for at in range(count + 1):
        session = await with_something_to_save(store, f"s{at}")

        async with asyncio.timeout(5):
            await cancelled(store.save(session), {at}, moment)

            await check_saved(store, session)
    await store.aclose()


async def test_a_save_that_has_begun_is_finished_before_the_cancel_goes_on(
    store: PostgresSessionManager, schema: str
) -> None:
    session = await with_something_to_save(store, "ada")
    async with row_locked(server(), schema):
        saving = asyncio.ensure_future(store.save(session))
        await until(lambda: waiting(server()) == 1)
        saving.cancel()
        done, _ = await asyncio.wait([saving], timeout=0.2)
        assert not done

    with pytest.raises(asyncio.CancelledError):
        await saving
    assert session.version == 1
    await check_saved(store, session)


@pytest.mark.parametrize("held", [True, False], ids=["in its block", "without one"])
def test_the_end_of_the_event_loop_leaves_a_save_done_or_not(
    tmp_path: Path, held: bool
) -> None:
    """`asyncio.run` cancels every task, also those that were shielded from it."""

    async def ends(at: int) -> tuple[PostgresSessionManager, Session]:
        store = opened(tmp_path)
        if held:
            await store.__aenter__()
        session = await with_something_to_save(store, f"s{at}")
        reached = asyncio.get_running_loop().create_future()
        waits = Waits(lambda: reached.set_result(None), {at}, MOMENTS[0])
        waits.watch()
        saving = asyncio.ensure_future(store.save(session))
        await asyncio.wait([saving, reached], return_when=asyncio.FIRST_COMPLETED)
        return store, session

    for at in range(1, 12):
        store, session = asyncio.run(ends(at))

        asyncio.run(check_saved(store, session))
        asyncio.run(store.aclose())


async def test_a_read_that_is_cancelled_lets_go_at_once(
    store: PostgresSessionManager, schema: str
) -> None:
    """It need not be finished; and its connection is none for the next call."""
    await say(store, await store.create("ada"), "one")
    async with await psycopg.AsyncConnection.connect(server()) as other:
        await other.execute(f"LOCK TABLE {schema}.sessions".encode())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await store.get("ada")

    assert texts(await got(store)) == ["one"]


# --- Closing ------------------------------------------------------------------


async def test_saves_that_a_close_meets_are_stored_or_refused(tmp_path: Path) -> None:
    """Each caller is told the truth: acknowledged and stored, or closed and not."""
    store = await opened(tmp_path, max_connections=2).__aenter__()
    sessions = [await store.create(f"s{number:02}") for number in range(20)]
    for session in sessions:
        session.append(said("Hello."))

    saves = [asyncio.ensure_future(store.save(session)) for session in sessions]
    await asyncio.wait(saves, return_when=asyncio.FIRST_COMPLETED)
    await store.aclose()
    outcomes = await asyncio.gather(*saves, return_exceptions=True)

    again = opened(tmp_path)
    for session, outcome in zip(sessions, outcomes, strict=True):
        assert outcome is None or isinstance(outcome, StoreClosedError)
        stored = await again.get(session.session_id)
        assert texts(stored) == (["Hello."] if outcome is None else [])
        assert session.version == (1 if outcome is None else 0)


# --- What is read again -------------------------------------------------------


async def test_an_older_copy_that_somebody_has_put_back_is_read_as_it_is(
    store: PostgresSessionManager, tmp_path: Path, schema: str
) -> None:
    """Others have gone on from it, so that the counts tell nothing."""
    session = await store.create("ada")
    for word in ("one", "two", "three"):
        await say(store, session, word)
    await got(store)
    execute(
        server(),
        f"DELETE FROM {schema}.events WHERE seq > 0",
        f"UPDATE {schema}.sessions SET version = 1, event_count = 1",
    )
    async with opened(tmp_path) as other:
        again = await got(other)
        for word in ("2", "3", "4"):
            await say(other, again, word)

    assert texts(await got(store)) == ["one", "2", "3", "4"]
    with pytest.raises(SessionConflictError):
        await say(store, session, "four")


# --- Damage -------------------------------------------------------------------

OF_BOB = "session = (SELECT key FROM {0}.sessions WHERE session_id = 'bob')"
DAMAGED = {
    "an event is no JSON": "UPDATE {0}.events SET data = '{{' WHERE seq = 1 AND ",
    "an event is empty": "UPDATE {0}.events SET data = '' WHERE seq = 1 AND ",
    "an event is another thing": "UPDATE {0}.events SET data = '[]' WHERE ",
    "an event lacks a key": (
        "UPDATE {0}.events SET data = (data::jsonb - 'author')::text WHERE "
    ),
    "an item is of an unknown type": (
        "UPDATE {0}.events SET data = "
        "jsonb_set(data::jsonb, '{{content,0,type}}', '\"new\"')::text WHERE "
    ),
    "the first event is missing": "DELETE FROM {0}.events WHERE seq = 0 AND ",
    "an event is missing": "DELETE FROM {0}.events WHERE seq = 1 AND ",
    "the last event is missing": "DELETE FROM {0}.events WHERE seq = 2 AND ",
    "all events are missing": "DELETE FROM {0}.events WHERE ",
    "an event has moved": "UPDATE {0}.events SET seq = 7 WHERE seq = 1 AND ",
    "there is an event too many": (
        "INSERT INTO {0}.events SELECT session, 3, data FROM {0}.events "
        "WHERE seq = 2 AND "
    ),
    "the state is no JSON": "UPDATE {0}.sessions SET state = '{{' WHERE ",
    "the state says NaN": "UPDATE {0}.sessions SET state = '{{\"a\": NaN}}' WHERE ",
    "the state is a list": "UPDATE {0}.sessions SET state = '[]' WHERE ",
    "the time of creation is none": (
        "UPDATE {0}.sessions SET created_at = 'noon' WHERE "
    ),
}


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED.keys())
async def test_a_damaged_session_is_named_and_left_and_the_others_are_read(
    store: PostgresSessionManager, schema: str, damage: str
) -> None:
    # Promise 5
    for session_id in ("ada", "bob", "cyd"):
        await say(store, await store.create(session_id), "one", "two", "3")
    whom = OF_BOB if ".events" in damage else "session_id = 'bob'"
    execute(server(), (damage + whom).format(schema))
    tables = [f"SELECT * FROM {schema}.{each}" for each in ("sessions", "events")]
    before = [sorted(execute(server(), each)) for each in tables]
    fresh = PostgresSessionManager(server(), schema=schema)

    for call in (fresh.get, fresh.get, fresh.get_or_create):
        with pytest.raises(CorruptSessionError, match="'bob'"):
            await call("bob")

    for session_id in ("ada", "cyd"):
        assert texts(await fresh.get(session_id)) == ["one", "two", "3"]
    if "created_at" in damage:
        with pytest.raises(CorruptSessionError, match="'bob'"):
            await fresh.list()
    assert [sorted(execute(server(), each)) for each in tables] == before
    assert await fresh.delete("bob") is True
    assert texts(await fresh.get_or_create("bob")) == []
