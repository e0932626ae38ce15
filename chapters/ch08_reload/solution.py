"""Chapter 08, a solution: a rating under an answer, and a card for it."""

from dataclasses import replace

from minagent import Event, Note, SessionManager, SessionNotFoundError
from minagent.cards import Card, NoteCard

RATING = "rating"
"""The kind of the Note that holds a rating: `{"stars": 1 to 5, "comment": text}`."""

MOST = 5


async def rate(
    sessions: SessionManager, session_id: str, stars: int, comment: str, *, by: str
) -> None:
    """Store what a person thinks of the last answer."""
    if not 1 <= stars <= MOST:
        raise ValueError(f"there are 1 to {MOST} stars, not {stars}")
    session = await sessions.get(session_id)
    if session is None:
        raise SessionNotFoundError(session_id)
    note = Note(kind=RATING, data={"stars": stars, "comment": comment})
    session.append(Event(author=by, content=(note,)))
    await sessions.save(session)


def drawn(card: Card) -> Card:
    """Return a card as the page draws it."""
    match card:
        case NoteCard(kind="rating", data={"stars": int(stars), "comment": str(said)}):
            if 1 <= stars <= MOST:
                title = "★" * stars + "☆" * (MOST - stars)
                entries = (said,) if said else ()
                return replace(card, title=title, entries=entries, data={})
    return card
