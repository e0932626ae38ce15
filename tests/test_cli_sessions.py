"""`minagent sessions`: list, show, fork, rewind, delete, prune."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shutil import copy

import pytest
from terminal import minagent

from minagent import Agent, Event, Message, Session
from minagent.cards import cards, render_text
from minagent.cli.outcome import UsageError
from minagent.cli.sessions import age_of
from minagent.models import OfflineModel
from minagent.stores import open_store


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the sessions `ada` and `bob`, to be copied."""
    file = tmp_path_factory.mktemp("talked") / "chat.db"
    asyncio.run(talk(f"sqlite:///{file}"))
    return file


@pytest.fixture
def url(file: Path, tmp_path: Path) -> str:
    """A store with the sessions `ada` and `bob`."""
    copy(file, tmp_path)
    return f"sqlite:///{tmp_path}/chat.db?durability=normal"


async def talk(url: str) -> None:
    async with open_store(url) as sessions:
        agent = Agent(OfflineModel(), session_manager=sessions)
        await agent.run("My name is Ada.", session_id="ada", user_id="ada")
        await agent.run("What is my name?", session_id="ada")
        await agent.run("Hello.", session_id="bob")


def read(url: str, session_id: str) -> Session | None:
    async def work() -> Session | None:
        async with open_store(url) as sessions:
            return await sessions.get(session_id)

    return asyncio.run(work())


def ids(url: str) -> list[str]:
    done = minagent("sessions", "list", "--store", url, "--json")
    return [each["session_id"] for each in json.loads(done.stdout)]


# --- List and show ------------------------------------------------------------


def test_the_list_has_a_row_for_each_session(url: str) -> None:
    done = minagent("sessions", "list", "--store", url)

    head, ada, bob = done.stdout.splitlines()
    assert head.split()[:3] == ["SESSION", "USER", "EVENTS"]
    assert ada.split()[:3] == ["ada", "ada", "4"]
    assert bob.split()[:2] == ["bob", "2"]


def test_the_list_of_a_user_has_no_others(url: str) -> None:
    done = minagent("sessions", "list", "--user", "ada", "--json", "--store", url)

    [info] = json.loads(done.stdout)
    assert (info["session_id"], info["user_id"], info["event_count"]) == (
        "ada",
        "ada",
        4,
    )
    assert datetime.fromisoformat(info["updated_at"]).tzinfo is not None


def test_the_list_goes_over_the_pages_of_a_store(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minagent.cli.sessions.PAGE", 1)

    assert ids(url) == ["ada", "bob"]


def test_an_id_cannot_speak_to_the_terminal(tmp_path: Path) -> None:
    url, name = f"sqlite:///{tmp_path}/chat.db", "\u202ereverse"

    async def work() -> None:
        async with open_store(url) as sessions:
            await sessions.create(name)

    asyncio.run(work())

    done = minagent("sessions", "list", "--store", url)
    assert "\\u202ereverse" in done.stdout
    assert name not in done.stdout


def test_the_environment_names_the_store(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINAGENT_STORE", url)

    done = minagent("sessions", "list")

    assert "ada" in done.stdout


@pytest.mark.usefixtures("url")
def test_without_a_name_the_store_is_in_the_users_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "my data?"))
    monkeypatch.delenv("MINAGENT_STORE", raising=False)

    done = minagent("chat", "--session", "new", typed="Hello.\n")

    assert done.exit_code == 0
    [folder] = tmp_path.rglob("minagent")
    assert (folder / "sessions.db").exists()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert "new" in minagent("sessions", "list").stdout


def test_a_session_is_drawn_with_the_cards_that_everything_draws(url: str) -> None:
    session = read(url, "ada")
    assert session is not None

    done = minagent("sessions", "show", "ada", "--store", url)

    assert done.stdout == render_text(cards(session.events), width=100) + "\n"


def test_show_names_the_events_that_one_can_go_back_to(url: str) -> None:
    session = read(url, "ada")
    assert session is not None

    done = minagent("sessions", "show", "ada", "--ids", "--store", url)

    shown = [line for line in done.stdout.splitlines() if line[:1].strip()]
    assert shown == [f"{each.author}  {each.event_id}" for each in session.events]


def test_show_as_json_is_the_stored_form(url: str) -> None:
    session = read(url, "ada")
    assert session is not None

    done = minagent("sessions", "show", "ada", "--json", "--store", url)

    assert Session.from_json(done.stdout).events == session.events


# --- Fork and rewind ----------------------------------------------------------


def test_a_fork_begins_as_the_other_session_stood(url: str) -> None:
    done = minagent("sessions", "fork", "ada", "ada-2", "--store", url)

    assert done.exit_code == 0
    said = minagent("sessions", "show", "ada", "--store", url).stdout
    assert minagent("sessions", "show", "ada-2", "--store", url).stdout.startswith(said)


def test_a_fork_can_begin_at_any_event_and_be_anybodys(url: str) -> None:
    session = read(url, "ada")
    assert session is not None
    at, ada_2 = session.events[1].event_id, ("ada", "ada-2")

    minagent("sessions", "fork", *ada_2, "--at", at, "--user", "eve", "--store", url)

    made = read(url, "ada-2")
    assert made is not None
    assert made.user_id == "eve"
    assert made.events[:2] == session.events[:2]
    assert session.events[2] not in made.events


@pytest.mark.parametrize("command", [("fork", "ada", "ada-2"), ("rewind", "ada")])
def test_a_script_is_told_what_a_fork_and_a_rewind_have_made(
    url: str, command: tuple[str, ...]
) -> None:
    done = minagent("sessions", *command, "--json", "--store", url)

    made = read(url, command[-1])
    assert made is not None
    assert json.loads(done.stdout) == {
        "session_id": command[-1],
        "user_id": made.user_id,
        "version": made.version,
        "event_count": len(made.events),
    }


@pytest.mark.parametrize("new", ["ada", "bob"])
def test_a_fork_takes_no_id_that_is_taken(url: str, new: str) -> None:
    done = minagent("sessions", "fork", "ada", new, "--store", url)

    assert done.exit_code == 1
    assert f"session '{new}' exists already" in done.stderr


def test_a_rewind_takes_the_last_turn_back(url: str) -> None:
    done = minagent("sessions", "rewind", "ada", "--store", url)

    assert done.exit_code == 0
    shown = minagent("sessions", "show", "ada", "--store", url).stdout
    assert "My name is Ada." in shown
    assert "What is my name?" not in shown


def test_a_rewind_goes_to_any_event_also_forward_and_to_the_start(url: str) -> None:
    session = read(url, "ada")
    assert session is not None
    last = session.events[-1].event_id

    minagent("sessions", "rewind", "ada", "--to", "start", "--store", url)
    empty = minagent("sessions", "show", "ada", "--store", url)
    minagent("sessions", "rewind", "ada", "--to", last, "--store", url)

    assert (empty.stdout, empty.stderr) == ("", "Nothing is said in it.\n")
    assert (
        "What is my name?" in minagent("sessions", "show", "ada", "--store", url).stdout
    )


@pytest.mark.parametrize(
    "command", [("rewind", "ada", "--to"), ("fork", "ada", "new", "--at")]
)
def test_an_event_that_is_not_there_is_named(
    url: str, command: tuple[str, ...]
) -> None:
    done = minagent("sessions", *command, "nowhere", "--store", url)

    assert done.exit_code == 1
    assert done.stderr == (
        "minagent: session 'ada' has no event 'nowhere'; see session.events\n"
    )
    assert ids(url) == ["ada", "bob"]


def test_with_nothing_left_to_undo_it_says_so(url: str) -> None:
    minagent("sessions", "rewind", "bob", "--store", url)

    done = minagent("sessions", "rewind", "bob", "--store", url)

    assert done.exit_code == 1
    assert "nothing is left to undo" in done.stderr


# --- Delete and prune ---------------------------------------------------------


def test_what_is_deleted_is_gone(url: str) -> None:
    done = minagent("sessions", "delete", "ada", "--yes", "--store", url)

    assert done.exit_code == 0
    assert ids(url) == ["bob"]


def test_a_session_that_is_not_there_does_not_keep_the_others(url: str) -> None:
    done = minagent("sessions", "delete", "eve", "bob", "--yes", "--store", url)

    assert done.exit_code == 1
    assert done.stderr == "minagent: there is no session 'eve' in this store\n"
    assert ids(url) == ["ada"]


def test_a_script_is_told_what_is_gone_and_what_was_not_there(url: str) -> None:
    done = minagent(
        "sessions", "delete", "eve", "bob", "--yes", "--json", "--store", url
    )

    assert done.exit_code == 1
    assert json.loads(done.stdout) == {"deleted": ["bob"], "missing": ["eve"]}


@pytest.mark.parametrize(
    "command", [("delete", "ada"), ("prune", "--older-than", "1m")]
)
def test_without_a_terminal_nothing_is_deleted_unless_yes_is_said(
    url: str, command: tuple[str, ...]
) -> None:
    done = minagent("sessions", *command, "--store", url, typed="y\n")

    assert done.exit_code == 2
    assert "Say --yes" in done.stderr
    assert ids(url) == ["ada", "bob"]


def test_pruning_deletes_what_is_old_and_names_it(url: str) -> None:
    asyncio.run(grow_old(url, "old", timedelta(days=31)))
    asyncio.run(grow_old(url, "young", timedelta(days=29)))
    prune = ("sessions", "prune", "--older-than", "30d", "--yes", "--store", url)

    done, again = minagent(*prune), minagent(*prune, "--json")

    assert (done.stdout, done.stderr) == ("old\n", "1 sessions deleted.\n")
    assert json.loads(again.stdout) == []
    assert ids(url) == ["ada", "bob", "young"]


async def grow_old(url: str, session_id: str, age: timedelta) -> None:
    async with open_store(url) as sessions:
        session = await sessions.create(session_id)
        said = (Message(role="user", content="Long ago."),)
        then = datetime.now(UTC) - age
        session.append(Event(author="user", content=said, timestamp=then))
        await sessions.save(session)


@pytest.mark.parametrize(
    ("text", "age"),
    [
        ("30d", timedelta(days=30)),
        ("12h", timedelta(hours=12)),
        ("2w", timedelta(weeks=2)),
        ("90m", timedelta(minutes=90)),
    ],
)
def test_an_age_is_a_number_and_a_unit(text: str, age: timedelta) -> None:
    assert age_of(text) == age


@pytest.mark.parametrize(
    "text",
    ["", "30", "d", "-3d", "1.5d", "30 days", "30D", "9" * 9, "200000w", "999999d"],
)
def test_what_is_no_age_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no age"):
        age_of(text)


@pytest.mark.parametrize("age", ["soon", "200000w"])
def test_an_age_that_is_none_deletes_nothing(url: str, age: str) -> None:
    prune = ("sessions", "prune", "--older-than", age, "--yes")

    done = minagent(*prune, "--store", url)

    assert done.exit_code == 2
    assert f"{age!r} is no age" in done.stderr
    assert ids(url) == ["ada", "bob"]
