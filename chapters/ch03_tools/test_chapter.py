"""What grades exercise 03."""

from types import ModuleType

import pytest
from pydantic import JsonValue

from minagent import Agent, ToolCall, ToolResult
from minagent.models import ScriptedModel

HOME: dict[str, JsonValue] = {"street": "Main Street 1", "city": "Oslo"}
LAMP: dict[str, JsonValue] = {"item": "lamp", "speed": "fast", "to": HOME}


def refusal(work: ModuleType, arguments: dict[str, JsonValue]) -> str:
    """Return why the tool refuses some arguments."""
    ship = work.shipping_tool()
    try:
        ship.checked(arguments)
    except ValueError as error:
        return str(error)
    return pytest.fail(f"ship must refuse the arguments {arguments}")


def test_the_model_calls_it_ship(work: ModuleType) -> None:
    ship = work.shipping_tool()

    assert ship.name == "ship", "the tool must be called ship"
    assert set(ship.spec.parameters["properties"]) == {"item", "speed", "to", "note"}, (
        "the parameters must be item, speed, to and note"
    )


def test_only_the_note_may_be_left_out(work: ModuleType) -> None:
    ship = work.shipping_tool()

    assert set(ship.spec.parameters["required"]) == {"item", "speed", "to"}, (
        "item, speed and to must be required; note must have a default"
    )


def test_the_model_is_told_the_two_speeds(work: ModuleType) -> None:
    ship = work.shipping_tool()

    assert ship.spec.parameters["properties"]["speed"].get("enum") == [
        "slow",
        "fast",
    ], 'the schema must offer "slow" and "fast": annotate speed with a Literal'


def test_another_speed_is_refused(work: ModuleType) -> None:
    told = refusal(work, {**LAMP, "speed": "at once"})

    assert told.startswith("speed: "), 'speed must be "slow" or "fast" and nothing else'


def test_half_an_address_is_refused(work: ModuleType) -> None:
    told = refusal(work, {**LAMP, "to": {"street": "Main Street 1"}})

    assert told == "to.city: Field required", (
        "to must be an Address, with all its fields"
    )


def test_the_body_is_given_an_address(work: ModuleType) -> None:
    checked = work.shipping_tool().checked(LAMP)

    assert checked["to"] == work.Address(street="Main Street 1", city="Oslo"), (
        "to must be annotated with Address, so that the function is given one"
    )


def test_it_ships_without_a_note_and_with_one(work: ModuleType) -> None:
    ship = work.shipping_tool()

    plain = ship(**ship.checked(LAMP))
    noted = ship(**ship.checked({**LAMP, "note": "fragile"}))

    sentence = "lamp goes fast to Main Street 1, Oslo."
    assert plain == sentence, f"without a note, ship must return {sentence!r}"
    assert noted == f"{sentence} Note: fragile", (
        "with a note, ship must put it behind the sentence, as in ' Note: fragile'"
    )


async def test_a_model_that_errs_is_told_and_can_mend_it(work: ModuleType) -> None:
    wrong = ToolCall(name="ship", arguments={**LAMP, "speed": "at once"})
    right = ToolCall(name="ship", arguments=LAMP)
    model = ScriptedModel([wrong, right, "It is on its way."])

    result = await Agent(model, tools=[work.shipping_tool()]).run("Ship the lamp.")

    events = result.context.session.events
    items = [item for event in events for item in event.content]
    statuses = [item.status for item in items if isinstance(item, ToolResult)]
    assert statuses == ["error", "success"], (
        "a wrong speed must give an error result, and the call after it a good one"
    )
