"""`minagent chat` at a terminal, with each kind of store."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest
from stores import SERVED, params
from terminal import chatting

from minagent import Session, ToolResult
from minagent.stores import open_store
from minagent.testing import FakeAnthropic
from minagent.testing.fake_anthropic import Reply, Slow

pytestmark = pytest.mark.heavy

CALL = {"type": "tool_use", "id": "toolu_1", "name": "refund", "input": {"amount": 3}}
ASKED = "Refund 3 euros? approve, edit or deny? "


@pytest.mark.parametrize("store", params("memory", "sqlite", "folder", *SERVED))
def test_a_conversation_goes_through_an_approval_and_an_interrupted_answer(
    store: str, tmp_path: Path
) -> None:
    url = address(store, tmp_path)
    long = Slow("Once upon a time there was a session. " * 9, 60, at_byte=2_000)
    replies = ["Hello, Ada.", [CALL], "Done.", long, "As I said: Ada."]
    options = ("--model", "claude-x", "--tools", "shop:tools", "--session", "ada")

    with (
        api(replies) as place,
        chatting(tmp_path, *options, "--store", url, **place) as t,
    ):
        t.type("My name is Ada.\n")
        t.wait_for("assistant\n    Hello, Ada.\n\n> ")
        t.type("Please refund it.\n")
        t.wait_for(ASKED)
        t.type("approve\n")
        t.wait_for(
            "approved by eve\n    done: refunded 3\n\nassistant\n    Done.\n\n> "
        )
        t.type("Tell me a story.\n")
        t.wait_for("Once upon")
        t.type("\x03")
        t.wait_for("(Cancelled. What was said is kept: /continue answers.)\n\n> ")
        t.type("What is my name?\n")
        t.wait_for("    As I said: Ada.\n\n> ")
        t.type("/quit\n")
        code = t.exit_code()

    assert code == 0
    assert "Traceback" not in t.shown
    assert t.shown.endswith("This is kept: --session ada goes on with it.\n")
    if store != "memory":
        session = read(url)
        assert results(session) == [("success", "refunded 3")]
        said = [event.author for event in session.events if event.author == "user"]
        assert len(said) == 4


@contextmanager
def api(replies: Sequence[Reply]) -> Iterator[dict[str, str]]:
    """The double of the API, in a thread; what leads a program to it."""
    loop, fake = asyncio.new_event_loop(), FakeAnthropic(replies)
    thread = Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(fake.__aenter__(), loop).result()
    try:
        yield {"ANTHROPIC_BASE_URL": fake.url, "ANTHROPIC_API_KEY": "a-key"}
    finally:
        ended = fake.__aexit__(None, None, None)
        asyncio.run_coroutine_threadsafe(ended, loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def address(store: str, folder: Path) -> str:
    match store:
        case "s3":
            from s3 import bucket_of, endpoint

            return f"s3://{bucket_of(folder)}/chat?endpoint={endpoint()}"
        case "postgres":
            from postgres import new_database

            return new_database()
        case "folder":
            return f"file:///{folder}/chat"
        case "sqlite":
            return f"sqlite:///{folder}/chat.db"
    return "memory:"


def read(url: str) -> Session:
    async def work() -> Session | None:
        async with open_store(url) as sessions:
            return await sessions.get("ada")

    session = asyncio.run(work())
    assert session is not None
    return session


def results(session: Session) -> list[tuple[str, str]]:
    items = [item for event in session.events for item in event.content]
    return [(x.status, x.content) for x in items if isinstance(x, ToolResult)]
