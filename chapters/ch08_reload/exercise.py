"""Chapter 08, your turn: a rating under an answer, and a card for it.

Check it with `pytest chapters/ch08_reload --mine`.
"""

from minagent import SessionManager
from minagent.cards import Card

RATING = "rating"
"""The kind of the Note that holds a rating: `{"stars": 1 to 5, "comment": text}`."""


async def rate(
    sessions: SessionManager, session_id: str, stars: int, comment: str, *, by: str
) -> None:
    """Store what a person thinks of the last answer.

    It is one event with one `Note(kind=RATING)`, at the end of the log. It is for
    people: the model is shown nothing of it.

    Args:
        sessions: Where the session is stored.
        session_id: A session that is there.
        stars: 1 to 5.
        comment: Some words; they may be empty.
        by: Who rates: the event's author.

    Raises:
        ValueError: There are less than 1 or more than 5 stars. Nothing is stored.
    """
    raise NotImplementedError("rate() does not store a rating yet")


def drawn(card: Card) -> Card:
    """Return a card as the page draws it.

    The `NoteCard` of a rating becomes a `NoteCard` with five stars as its `title`, such
    as `"★★★★☆"` for 4, and the comment as the only one of its `entries`; without a
    comment there are none. Its `data` is `{}`, since title and entries say it. Key,
    events, author and kind stay, so that the page finds the card again.

    Every other card is returned as it is. So is a rating of another form, such as an
    older version of your program may have stored: raw data is better than an error in
    the middle of a chat, and better than nothing.
    """
    raise NotImplementedError("drawn() does not draw anything yet")
