"""Grades chapter 09: a ranking that forgives a slip, behind the same interface."""

from types import ModuleType

import pytest

from minagent import Agent, AgentResult, InMemorySessionManager, Note
from minagent.memory import InMemoryMemoryManager, bm25, recall
from minagent.models import ScriptedModel

KAYAK = "My kayak is red."
CLUB = "The kayak club meets on Tuesdays."
HEN = "Our hen is called Berta."
TEXTS = [HEN, KAYAK, CLUB]


@pytest.mark.parametrize("slip", ["kayack", "kajak", "kaayk", "KAYACK"])
def test_a_slip_is_forgiven(work: ModuleType, slip: str) -> None:
    scores = work.forgiving_bm25(f"Is my {slip} red?", TEXTS)

    assert [*scores] == [*bm25("Is my kayak red?", TEXTS)], (
        f"{slip!r} must count as the word of the texts that it is most like, 'kayak'"
    )


def test_the_best_comes_first_also_after_a_slip(work: ModuleType) -> None:
    hen, kayak, club = work.forgiving_bm25("When meets the kayack club?", TEXTS)

    assert club > kayak > hen == 0, "what fits more words must have the higher number"


def test_a_query_without_a_slip_is_ranked_as_before(work: ModuleType) -> None:
    for query in ("my kayak", "kayak club on Tuesdays", "Berta", "kayaks"):
        scores = [*work.forgiving_bm25(query, TEXTS)]

        assert scores == [*bm25(query, TEXTS)], f"{query!r} has no slip to forgive"


def test_of_two_words_alike_the_nearer_one_is_taken(work: ModuleType) -> None:
    texts = ["The planet is far.", "The plane is late."]

    far, late = work.forgiving_bm25("planee", texts)

    assert late > far == 0, "'planee' is nearer to 'plane' than to 'planet'"


def test_short_words_are_left_alone(work: ModuleType) -> None:
    scores = work.forgiving_bm25("When was it? Ever?", [HEN, "My pen is new."])

    assert [*scores] == [0, 0], "'when' is no slip for 'hen': mend from five letters on"


def test_what_is_like_nothing_finds_nothing(work: ModuleType) -> None:
    assert [*work.forgiving_bm25("helicopter", TEXTS)] == [0, 0, 0], (
        "a word that is like no word of the texts must find nothing"
    )


def test_there_is_one_number_for_each_text(work: ModuleType) -> None:
    assert [*work.forgiving_bm25("kayak", [])] == [], "no texts, no numbers"
    assert [*work.forgiving_bm25("", TEXTS)] == [0, 0, 0], "an empty query fits nothing"
    assert [*work.forgiving_bm25("kayack", [""])] == [0], "nothing fits an empty text"


async def test_a_model_is_told_what_the_slip_meant(work: ModuleType) -> None:
    memory = InMemoryMemoryManager(score=work.forgiving_bm25)
    for text in TEXTS:
        await memory.add(text, user_id="ann")

    recalled = [await _recalled(memory, user_id) for user_id in ("ann", "bob")]

    assert KAYAK in recalled[0], "recall() must find the kayak with your ranking"
    assert recalled[1] == "", "and nothing of it for another user"


async def _recalled(memory: InMemoryMemoryManager, user_id: str) -> str:
    """Return what a model is told when this user asks, with a slip."""
    agent = Agent(
        ScriptedModel(["I see."]),
        session_manager=InMemorySessionManager(),
        before_llm_callbacks=[recall(memory)],
    )
    result: AgentResult = await agent.run(
        "Is my kayack red?", session_id="friday", user_id=user_id
    )
    notes = [
        item.text or ""
        for event in result.context.events
        for item in event.content
        if isinstance(item, Note)
    ]
    return "\n".join(notes)
