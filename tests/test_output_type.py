"""An answer that must be of a type: checked, and asked for again if it is not."""

import pytest
from pydantic import BaseModel

from minagent import (
    Agent,
    InMemorySessionManager,
    MaxStepsExceededError,
    ModelResponse,
    Note,
)
from minagent.models import ScriptedModel


class City(BaseModel):
    name: str
    people: int


GOOD = '{"name": "Rome", "people": 2800000}'


async def test_the_answer_is_what_the_type_makes_of_it() -> None:
    result = await Agent(ScriptedModel([GOOD]), output_type=City).run("Rome?")

    assert result.output == City(name="Rome", people=2_800_000)
    assert result.context.final_result == result.output


async def test_any_type_that_json_can_hold_will_do() -> None:
    agent = Agent(ScriptedModel(["[1, 2, 3]"]), output_type=list[int])

    assert (await agent.run("Count.")).output == [1, 2, 3]


async def test_the_model_is_told_the_schema() -> None:
    model = ScriptedModel([GOOD])

    await Agent(model, output_type=City).run("Rome?")

    schema = model.requests[0].output_schema
    assert schema is not None
    assert schema["required"] == ["name", "people"]


@pytest.mark.parametrize("bad", ["Rome is large.", '{"name": "Rome"}', ""])
async def test_an_answer_that_does_not_fit_is_asked_for_again(bad: str) -> None:
    model = ScriptedModel([bad, GOOD])
    sessions = InMemorySessionManager()
    agent = Agent(model, output_type=City, session_manager=sessions)

    result = await agent.run("Rome?", session_id="s")

    assert result.output == City(name="Rome", people=2_800_000)
    told = model.requests[1].turns[-1].content[-1]
    assert "does not fit" in getattr(told, "content", "")
    session = await sessions.get("s")
    assert session is not None
    items = [item for event in session.events for item in event.content]
    assert [i.kind for i in items if isinstance(i, Note)] == ["invalid_output"]


async def test_a_model_that_never_fits_runs_out_of_steps_and_can_go_on() -> None:
    model = ScriptedModel(["no", "no", GOOD])
    agent = Agent(model, output_type=City, max_steps=2)

    with pytest.raises(MaxStepsExceededError):
        await agent.run("Rome?", session_id="s")
    result = await agent.run(session_id="s")

    assert result.output == City(name="Rome", people=2_800_000)


async def test_a_refusal_is_no_answer_and_is_not_asked_for_again() -> None:
    refusal = ModelResponse((), stop_reason="refusal")
    agent = Agent(ScriptedModel([refusal]), output_type=City)

    result = await agent.run("Rome?")

    assert (result.output, result.stop_reason) == (None, "refusal")
