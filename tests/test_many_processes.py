"""Eight processes talk in one session: every question is kept, and is answered."""

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from minagent import Message
from minagent.models.strict import violations
from minagent.stores import open_store
from minagent.transcript import turns

PROGRAM = Path(__file__).parent / "programs" / "questions.py"
PROCESSES = 8
QUESTIONS = 50

pytestmark = pytest.mark.heavy


def ask_all(
    place: Path | str, questions: int = QUESTIONS, count: int = PROCESSES
) -> Counter[str]:
    """Let all processes ask at once, and return what they counted."""
    processes = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), str(place), f"p{number}", str(questions)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        for number in range(count)
    ]
    try:
        ready = [process.stdout and process.stdout.readline() for process in processes]
        assert ready == ["ready\n"] * count
        for process in processes:
            assert process.stdin
            process.stdin.write("go\n")
        total: Counter[str] = Counter()
        for process in processes:
            heard, complaints = process.communicate(timeout=100)
            assert (process.returncode, complaints) == (0, "")
            total.update(json.loads(heard))
        return total
    finally:
        for process in processes:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_8_processes_ask_50_questions_each_in_one_session(
    kind: str, tmp_path: Path
) -> None:
    # Promises 6, 14
    address = f"{kind}://{tmp_path}/sessions"
    if kind == "sqlite":
        address = f"sqlite:///{tmp_path}/sessions.db"

    start = time.monotonic()
    total = ask_all(address)
    print(dict(total), f"{time.monotonic() - start:.1f} s")

    session = asyncio.run(open_store(address).get("room"))
    assert session is not None
    said = [
        (item.role, item.content)
        for event in session.events
        for item in event.content
        if isinstance(item, Message)
    ]
    asked = [content for role, content in said if role == "user"]
    answered = [content for role, content in said if role == "assistant"]
    for name in (f"p{number}" for number in range(PROCESSES)):
        mine = [content for content in asked if content.startswith(f"{name}:")]
        assert mine == [f"{name}: question {number}" for number in range(QUESTIONS)]
    assert len(asked) == PROCESSES * QUESTIONS
    assert len(answered) == total["answers"]
    assert said[-1][0] == "assistant"
    # Both at once: there was a race, and no question is left without an answer.
    assert total["conflicts"] > 0
    assert list(violations(turns(session.events))) == [
        "V10: the last turn is the assistant's"
    ]
