"""`minagent memory`: what is remembered of users."""

import json
from pathlib import Path

import pytest
from terminal import minagent

pytestmark = pytest.mark.heavy

PAGE = "minagent.cli.memories.PAGE"


@pytest.fixture
def place(tmp_path: Path) -> tuple[str, str]:
    return "--memory", f"sqlite:///{tmp_path}/memory.db"


def add(place: tuple[str, str], text: str, user: str = "ann") -> str:
    done = minagent("memory", "add", text, "--user", user, "--json", *place)
    return str(json.loads(done.stdout)["memory_id"])


def texts(place: tuple[str, str], user: str = "ann") -> list[str]:
    done = minagent("memory", "list", "--user", user, "--json", *place)
    return [each["text"] for each in json.loads(done.stdout)]


def test_what_was_added_is_found_for_this_user_only(place: tuple[str, str]) -> None:
    add(place, "My kayak is red.")
    search = ("memory", "search", "What is my kayak?", "--json", *place)

    ann = json.loads(minagent(*search, "--user", "ann").stdout)
    bob = json.loads(minagent(*search, "--user", "bob").stdout)

    [hit] = ann
    assert hit["memory"]["text"] == "My kayak is red."
    assert hit["score"] > 0
    assert bob == []


def test_no_more_is_found_than_was_asked_for(place: tuple[str, str]) -> None:
    for number in range(3):
        add(place, f"Kayak number {number}.")
    search = ("memory", "search", "kayak", "--user", "ann", "--top", "2", *place)

    done = minagent(*search)

    assert len(done.stdout.splitlines()) == 1 + 2


def test_the_list_goes_over_the_pages_of_the_manager(
    place: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PAGE, 1)
    for text in ("One.", "Two.", "Three."):
        add(place, text)

    assert texts(place) == ["One.", "Two.", "Three."]


def test_a_text_is_one_row_of_the_list(place: tuple[str, str]) -> None:
    add(place, "One.\n\x1b[31mTwo.")

    done = minagent("memory", "list", "--user", "ann", *place)

    _, row = done.stdout.splitlines()
    assert row.endswith("One. \\x1b[31mTwo.")


def test_single_memories_are_forgotten(place: tuple[str, str]) -> None:
    first = add(place, "One.")
    add(place, "Two.")

    done = minagent("memory", "forget", first, "--user", "ann", *place)

    assert (done.exit_code, done.stdout) == (0, "1 forgotten.\n")
    assert texts(place) == ["Two."]


def test_another_users_memory_is_not_forgotten(place: tuple[str, str]) -> None:
    first = add(place, "One.")

    done = minagent("memory", "forget", first, "--user", "bob", *place)

    assert done.exit_code == 1
    assert f"'bob' has no memory '{first}'" in done.stderr
    assert texts(place) == ["One."]


def test_all_of_a_user_is_forgotten_if_it_is_said(place: tuple[str, str]) -> None:
    for user in ("ann", "ann", "bob"):
        add(place, "One.", user)

    done = minagent("memory", "forget", "--all", "--user", "ann", "--yes", *place)

    assert done.stdout == "2 forgotten.\n"
    assert (texts(place), texts(place, "bob")) == ([], ["One."])


@pytest.mark.parametrize("what", [("--all",), ("--session", "monday")])
def test_without_a_terminal_nothing_is_forgotten_unless_yes_is_said(
    place: tuple[str, str], what: tuple[str, ...]
) -> None:
    add(place, "One.")
    forget = ("memory", "forget", *what, "--user", "ann", *place)

    done = minagent(*forget, typed="y\n")

    assert done.exit_code == 2
    assert "of 'ann' for good? Say --yes" in done.stderr
    assert texts(place) == ["One."]


def test_a_script_is_told_what_is_forgotten_and_what_was_not_there(
    place: tuple[str, str],
) -> None:
    first = add(place, "One.")
    forget = ("memory", "forget", "--user", "ann", "--json", *place)

    some = minagent(*forget, first, "no-such-id")
    every = minagent(*forget, "--all", "--yes")

    assert (some.exit_code, every.exit_code) == (1, 0)
    assert json.loads(some.stdout) == {"forgotten": 1, "missing": ["no-such-id"]}
    assert json.loads(every.stdout) == {"forgotten": 0, "missing": []}


@pytest.mark.parametrize("what", [(), ("an-id", "--all"), ("--session", "x", "--all")])
def test_what_to_forget_is_said_in_exactly_one_way(
    place: tuple[str, str], what: tuple[str, ...]
) -> None:
    add(place, "One.")

    done = minagent("memory", "forget", *what, "--user", "ann", *place)

    assert done.exit_code == 2
    assert "say what to forget" in done.stderr
    assert texts(place) == ["One."]


def test_a_blank_text_is_refused(place: tuple[str, str]) -> None:
    done = minagent("memory", "add", " ", "--user", "ann", *place)

    assert (done.exit_code, done.stdout) == (2, "")
    assert "the text is blank" in done.stderr


def test_without_a_name_the_memories_are_in_the_users_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("MINAGENT_MEMORY", raising=False)

    add(("--user", "ann"), "One.")

    assert (tmp_path / "minagent" / "memory.db").exists()


def test_the_environment_names_the_place(
    place: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    add(place, "One.")
    monkeypatch.setenv("MINAGENT_MEMORY", place[1])

    assert texts(("--user", "ann")) == ["One."]
