"""Grades chapter 08: a note of one's own is stored, and drawn for people."""

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from minagent import Agent, Event, InMemorySessionManager, Note, SessionManager
from minagent.cards import Card, NoteCard, cards, render_text
from minagent.models import OfflineModel, ScriptedModel
from minagent.stores import SQLiteSessionManager


async def chat(sessions: SessionManager) -> None:
    """Have a conversation that can be rated."""
    agent = Agent(OfflineModel(), session_manager=sessions)
    await agent.run("My name is Ada.", session_id="chat")


async def log(sessions: SessionManager) -> list[Event]:
    session = await sessions.get("chat")
    assert session is not None
    return [*session.events]


def card_of(data: dict[str, Any], kind: str = "rating") -> Card:
    """Return the card that a stored note has before it is drawn for people."""
    note = Note(kind=kind, data=data)
    [card] = cards([Event(author="ada", content=(note,))])
    return card


async def test_a_rating_survives_a_restart(work: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    await chat(SQLiteSessionManager(path))
    before = await log(SQLiteSessionManager(path))

    await work.rate(SQLiteSessionManager(path), "chat", 4, "Quick.", by="ada")

    after = await log(SQLiteSessionManager(path))
    assert after[:-1] == before, "rate() must add one event, and change no other"
    [note] = after[-1].content
    assert note == Note(kind="rating", data={"stars": 4, "comment": "Quick."}), (
        "rate() must store one Note of the kind RATING, with stars and comment"
    )
    assert after[-1].author == "ada", "the event must say who rated"


async def test_only_1_to_5_stars_are_stored(work: ModuleType) -> None:
    sessions = InMemorySessionManager()
    await chat(sessions)
    before = await log(sessions)

    for stars in (-1, 0, 6):
        with pytest.raises(ValueError, match="star"):
            await work.rate(sessions, "chat", stars, "", by="ada")

    assert await log(sessions) == before, "a refused rating must not be stored"
    await work.rate(sessions, "chat", 1, "", by="ada")
    await work.rate(sessions, "chat", 5, "", by="ada")
    assert len(await log(sessions)) == len(before) + 2, "1 and 5 stars are ratings"


async def test_the_model_is_not_shown_a_rating(work: ModuleType) -> None:
    sessions = InMemorySessionManager()
    await chat(sessions)
    await work.rate(sessions, "chat", 2, "Too-long-for-me.", by="ada")

    model = ScriptedModel(["Yes."])
    agent = Agent(model, session_manager=sessions)
    await agent.run("Are you there?", session_id="chat")

    sent = repr([turn.content for turn in model.requests[0].turns])
    assert "Too-long-for-me." not in sent, "a rating's `text` must be None"


async def test_a_rating_is_drawn_as_stars(work: ModuleType) -> None:
    drawn = work.drawn(card_of({"stars": 4, "comment": "Quick."}))

    assert render_text([drawn]) == "ada notes rating ★★★★☆\n    Quick.", (
        "a rating of 4 must be drawn with the title ★★★★☆, its comment, and no data"
    )
    worst = work.drawn(card_of({"stars": 1, "comment": ""}))
    assert render_text([worst]) == "ada notes rating ★☆☆☆☆", (
        "a rating without comment must be one line: there are no entries"
    )


async def test_it_stays_the_same_card(work: ModuleType) -> None:
    card = card_of({"stars": 5, "comment": "Thank you."})

    drawn = work.drawn(card)

    assert isinstance(drawn, NoteCard), "the card of a rating must stay a NoteCard"
    assert (drawn.key, drawn.event_ids) == (card.key, card.event_ids), (
        "key and events must stay, or the page would not find the card again"
    )
    assert (drawn.author, drawn.kind) == ("ada", "rating"), (
        "who rated, and that it is a rating, must stay"
    )


async def test_other_cards_stay_as_they_are(work: ModuleType) -> None:
    sessions = InMemorySessionManager()
    await chat(sessions)
    others = [
        *cards(await log(sessions)),
        card_of({"stars": 4, "comment": "of another kind"}, kind="hotel"),
    ]

    assert [work.drawn(card) for card in others] == others, (
        "drawn() must leave every card alone that is no rating"
    )


@pytest.mark.parametrize(
    "data",
    [{}, {"stars": "four", "comment": ""}, {"stars": 9, "comment": ""}, {"stars": 4}],
    ids=["empty", "in words", "too many", "without comment"],
)
async def test_a_rating_of_another_form_is_drawn_as_it_is_stored(
    work: ModuleType, data: dict[str, Any]
) -> None:
    card = card_of(data)

    assert work.drawn(card) == card, (
        "a rating that drawn() does not understand must be returned as it is"
    )
