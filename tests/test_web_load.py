"""Many clients at once, and a server that is told to end in the middle of it."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import Client, Frame, events_in, names, parsed, text_in
from web_worker import PIECES

pytestmark = pytest.mark.heavy

CLIENTS = 200
TURNS = 10
FIRST = 2
"""After so many turns of each, all that is made once has been made."""


class Worker:
    """A server in another process."""

    def __init__(self, path: Path) -> None:
        program = Path(__file__).with_name("web_worker.py")
        command = [sys.executable, "-W", "error", str(program), str(path)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()

    def megabytes(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        [line] = [each for each in status.splitlines() if each.startswith("VmRSS")]
        return int(line.split()[1]) / 1024

    def stop(self) -> str:
        """Tell it to end, and return what it complained of."""
        self.process.send_signal(signal.SIGTERM)
        _, complaints = self.process.communicate(timeout=30)
        # Once it has ended in good order, uvicorn lets the signal do what it does.
        assert self.process.returncode == -signal.SIGTERM
        return complaints


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    worker = Worker(tmp_path / "chat.db")
    yield worker
    worker.process.kill()
    worker.process.communicate()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_200_clients_at_once_lose_nothing_and_cost_no_memory(
    worker: Worker,
) -> None:
    async with Client(worker.url) as client:
        sessions = [await client.new() for _ in range(CLIENTS)]
        seen: dict[str, list[object]] = {session: [] for session in sessions}

        async def take_turns(session: str, first: int, last: int) -> None:
            for turn in range(first, last):
                frames = await say(worker.url, session, f"say {turn}")
                said = [f"say {turn} {number}. " for number in range(PIECES)]
                assert text_in(frames) == "".join(said)
                assert frames[-1].data["status"] == "complete"
                seen[session] += events_in(frames)

        async def all_take_turns(first: int, last: int) -> None:
            async with asyncio.TaskGroup() as group:
                for session in sessions:
                    group.create_task(take_turns(session, first, last))

        await all_take_turns(0, FIRST)
        before = worker.megabytes()
        await all_take_turns(FIRST, TURNS)
        after = worker.megabytes()

        for session in sessions:
            assert seen[session] == (await client.whole(session))["events"]
    assert after - before < 25, f"from {before} MB to {after} MB"
    assert worker.stop() == ""


async def say(url: str, session: str, text: str) -> list[Frame]:
    """Say something with as little of a client as there can be."""
    host, _, port = url.removeprefix("http://").partition(":")
    body = json.dumps({"text": text})
    head = f"POST {session}/messages HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"{head}{body}".encode())
    answer = (await reader.read(-1)).decode()
    writer.close()
    assert answer.startswith("HTTP/1.1 200")
    _, _, chunks = answer.partition("\r\n\r\n")
    # Each chunk is a frame; around it stand its size and an empty line.
    return parsed("".join(chunks.split("\r\n")[1::2]))


async def test_sigterm_ends_a_server_that_is_followed_and_at_work(
    worker: Worker,
) -> None:
    async with Client(worker.url) as client:
        session = await client.new()
        async with (
            client.following(session) as followed,
            client.shown(f"{session}/messages", {"text": "Hi."}) as frames,
        ):
            await frames.until("delta")

            ended = await asyncio.to_thread(worker.stop)

            shown = [each async for each in frames]
            seen = [each async for each in followed]

    assert ended == ""
    assert names(shown)[-1] == names(seen)[-1] == "ended"
