"""`minagent demo --model ...`: the same story, told with another model."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from minagent.testing import FakeAnthropic

pytestmark = pytest.mark.heavy

CALL: dict[str, Any] = {
    "type": "tool_use",
    "id": "toolu_1",
    "name": "delete_file",
    "input": {"path": "old.txt"},
}


async def demo(model: str, folder: Path, **more: str) -> tuple[int | None, str]:
    dropped = ("ANTHROPIC", "PYTEST")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "minagent", "demo", "--model", model),
        cwd=folder,
        env={**kept, **more},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode, output.decode()


async def test_a_model_of_the_api_tells_the_story(tmp_path: Path) -> None:
    act_1 = ["Hello, Ada.", "Your name is Ada.", "I do not know."]
    act_2 = [[CALL], "Gone."]
    act_3 = ["Noted.", "Red, as you said.", "You have not shared that."]
    async with FakeAnthropic([*act_1, *act_2, *act_3]) as api:
        place = {"ANTHROPIC_BASE_URL": api.url, "ANTHROPIC_API_KEY": "a-key"}
        code, output = await demo("claude-opus-5-5", tmp_path, **place)
        api.assert_done()

    assert code == 0, output
    assert "-> Your name is Ada." in output
    assert "delete_file ran once" in output
    assert "-> Red, as you said." in output
    monday, friday, sunday = (json.dumps(each["messages"]) for each in api.requests[5:])
    assert "My kayak is red." in monday
    assert "My kayak is red." in friday
    assert "red" not in sunday


async def test_without_a_key_it_says_what_to_do(tmp_path: Path) -> None:
    code, output = await demo("claude-opus-5-5", tmp_path)

    assert code == 1
    assert "could not be asked" in output
    assert "ANTHROPIC_API_KEY" in output
    assert "Traceback" not in output


async def test_a_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    async with FakeAnthropic([]) as api:
        place = {"ANTHROPIC_BASE_URL": f"{api.url}/nowhere", "ANTHROPIC_API_KEY": "a"}
        code, output = await demo("claude-none", tmp_path, **place)

    assert code == 1
    assert "claude-none could not be asked" in output
    assert "Traceback" not in output
