"""`minagent sessions import` with sessions of other frameworks."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from terminal import minagent

pytestmark = pytest.mark.heavy

USER = {"role": "user", "content": [{"text": "Weather?"}]}
CALL = {"toolUse": {"toolUseId": "t1", "name": "weather", "input": {"city": "Rome"}}}
MESSAGES = [USER, {"role": "assistant", "content": [CALL, {"hologram": {}}]}]
SNAPSHOT = {
    **{"scope": "agent", "schema_version": "1.0", "created_at": "2026-01-02T03:04:05Z"},
    **{"data": {"messages": MESSAGES, "state": {"k": 1}}, "app_data": {}},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of Strands with two agents in one session."""
    for agent in ("a", "b"):
        place = tmp_path / "strands" / "chat" / "scopes" / "agent" / agent / "snapshots"
        place.mkdir(parents=True)
        (place / "snapshot_latest.json").write_text(json.dumps(SNAPSHOT))
    return tmp_path / "strands"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "ada.json"
    path.write_text(json.dumps(SNAPSHOT))
    return path


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/s.db"


def ids(store: str) -> list[str]:
    listed = minagent("sessions", "list", "--json", "--store", store)
    return [each["session_id"] for each in json.loads(listed.stdout)]


def test_what_was_not_read_is_told_beside_what_was_imported(
    file: Path, store: str
) -> None:
    done = minagent("sessions", "import", file, "--store", store)

    assert (done.exit_code, done.stdout) == (0, "Imported ada: 3 events.\n")
    assert done.stderr.splitlines() == [
        "minagent: ada: not read: message 1: hologram",
        "minagent: ada: not read: the call 't1' of 'weather' has no result: "
        "what became of it is unknown, and it is not run",
    ]


def test_a_script_is_told_what_was_imported(file: Path, store: str) -> None:
    done = minagent("sessions", "import", file, "--json", "--store", store)

    assert (done.exit_code, done.stderr) == (0, "")
    [made] = json.loads(done.stdout)
    assert (made["session_id"], made["event_count"]) == ("ada", 3)
    assert made["unread"][0] == "message 1: hologram"
    assert len(made["unread"]) == 2


def test_what_was_imported_is_shown_and_exported_and_taken_back(
    file: Path, store: str, tmp_path: Path
) -> None:
    minagent("sessions", "import", file, "--as", "bob", "--store", store)

    shown = minagent("sessions", "show", "bob", "--store", store)
    whole = minagent("sessions", "show", "bob", "--json", "--store", store)
    out = minagent("sessions", "export", "bob", "--store", store)
    other = f"sqlite:///{tmp_path}/other.db"
    minagent("sessions", "import", "-", "--store", other, typed=out.stdout)
    again = minagent("sessions", "show", "bob", "--json", "--store", other)

    assert "Weather?" in shown.stdout
    assert "weather" in shown.stdout
    first, second = json.loads(whole.stdout), json.loads(again.stdout)
    assert first["events"] == second["events"]
    assert first["state"] == second["state"] == {"k": 1}


def test_each_agent_of_a_folder_is_imported(folder: Path, store: str) -> None:
    done = minagent("sessions", "import", folder, "--store", store)

    assert done.exit_code == 0
    assert ids(store) == ["chat:a", "chat:b"]


def test_one_id_for_several_sessions_is_a_mistake(folder: Path, store: str) -> None:
    done = minagent("sessions", "import", folder, "--as", "x", "--store", store)

    assert done.exit_code == 2
    assert done.stderr == "minagent: --as: there are 2 sessions in strands\n"


def test_where_one_is_there_already_none_is_imported(
    folder: Path, file: Path, store: str
) -> None:
    minagent("sessions", "import", file, "--as", "chat:b", "--store", store)

    done = minagent("sessions", "import", folder, "--store", store)

    assert (done.exit_code, ids(store)) == (1, ["chat:b"])
    assert "there is a session 'chat:b' already" in done.stderr


def test_a_place_without_sessions_is_told_in_one_line(
    tmp_path: Path, store: str
) -> None:
    with closing(sqlite3.connect(tmp_path / "other.db")) as database:
        database.execute("CREATE TABLE things (id, name)")
    (tmp_path / "empty").mkdir()

    for name in ("other.db", "empty"):
        done = minagent("sessions", "import", tmp_path / name, "--store", store)

        assert (done.exit_code, done.stdout) == (1, "")
        assert done.stderr == (
            f"minagent: {name} holds no session of Strands or OpenAI Agents\n"
        )
