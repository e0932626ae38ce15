"""`minagent serve`: a process that answers a browser, until Ctrl-C."""

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

import pytest
from terminal import MINAGENT, TIMEOUT_SECONDS, environment, minagent, run

AGENT = """
from minagent import Agent
from minagent.models import OfflineModel

clerk = Agent(OfflineModel(), name="clerk")
no_agent = print
"""
STORE = ("--store", "sqlite:///chat.db")


class Served:
    """A server in a process of its own, and where it is."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.process, line = process, process.stdout.readline()
        found = re.search(r"http://\S+/", line)
        assert found, line
        self.name, self.url = line.split()[0], found[0]

    def get(self, path: str, body: object = None) -> Any:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.url + path, data, headers)
        opener = build_opener(ProxyHandler({}))
        with opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
            text = answer.read().decode()
        return json.loads(text) if path.startswith("api") else text

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(TIMEOUT_SECONDS)


@contextmanager
def served(folder: Path, *words: str) -> Iterator[Served]:
    command = [*MINAGENT, "serve", *words, "--port", "0"]
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment(XDG_DATA_HOME=str(folder / "data")),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield Served(process)
        finally:
            process.kill()


@pytest.mark.heavy
def test_it_serves_the_page_and_an_agent_until_ctrl_c(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(AGENT)
    with served(tmp_path, "shop:clerk", *STORE) as server:
        page = server.get("")
        session = server.get("api/sessions", {})["session_id"]
        server.get(f"api/sessions/{session}/messages", {"text": "Hello."})

        assert '<script type="module" src="app.js">' in page
        assert server.name == server.get("api/me")["agent"] == "clerk"
        assert server.interrupt() == 0

    kept = run(*MINAGENT, "sessions", "show", session, *STORE, cwd=tmp_path).stdout
    assert kept.startswith("user\n    Hello.\n")


@pytest.mark.heavy
def test_without_an_agent_there_is_one_that_remembers(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        first = server.get("api/sessions", {})["session_id"]
        server.get(f"api/sessions/{first}/messages", {"text": "My kayak is red."})

        assert server.get(f"api/sessions/{first}")["cards"][0]["author"] == "user"
        assert server.interrupt() == 0

    assert {path.name for path in (tmp_path / "data" / "minagent").glob("*.db")} == {
        "memory.db",
        "sessions.db",
    }


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        ("shop", "'shop' is no module:agent"),
        ("no_such_module:agent", "No module named 'no_such_module'"),
        ("shop:no_such_agent", "shop has no 'no_such_agent'"),
        ("shop:no_tool", "builtin_function_or_method is no Agent"),
    ],
)
def test_what_is_no_agent_is_refused(place: str, problem: str) -> None:
    done = minagent("serve", place, *STORE)

    assert done.exit_code == 2
    assert problem in done.stderr


@pytest.mark.parametrize("host", ["", " ", "a\udcff", "a..b"])
def test_a_host_that_is_no_name_is_refused(host: str) -> None:
    """A blank one would be every address of this machine."""
    done = minagent("serve", "--host", host, "--port", "0", "--store", "memory:")

    assert done.exit_code == 2
    assert done.stderr == (
        f"minagent: --host: {host!r} is no address, such as 127.0.0.1\n"
    )
