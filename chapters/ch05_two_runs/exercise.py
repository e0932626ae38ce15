"""Exercise 05: the list of conversations at the side of a chat window.

A session is found by its id. A person who opens the app has no id in mind: they want
to see what they talked about, and go on with it.
"""

from dataclasses import dataclass

from minagent import SessionStore

NEW_CHAT = "New chat"
"""The title of a session in which the user has not said anything yet."""

MAX_LETTERS = 40
"""How long a title may be."""


@dataclass(frozen=True)
class Chat:
    """One line of the list.

    Attributes:
        session_id: What to pass to `Agent.run` to go on with it.
        title: What to show.
    """

    session_id: str
    title: str


async def chats_of(
    store: SessionStore, user_id: str, *, page_size: int = 100
) -> list[Chat]:
    """Return all of a user's sessions, the one that was used last first.

    `await store.list(user_id=..., limit=..., after=...)` returns one page: at most
    `limit` of the user's sessions, in the order of their ids, as `SessionInfo` objects
    with `session_id` and `updated_at` (the time of the newest event) among others.
    `after` is the last id of the page before; without it you get the first page. Ask
    until a page is empty.

    `await store.get(session_id)` returns the session. Its title is the `content` of the
    first `Message` in its events whose `role` is "user", or `NEW_CHAT` if there is
    none. Of a longer text than `MAX_LETTERS`, the title is the first `MAX_LETTERS`
    letters. A session that is gone by now (`get` returns None) is left out.

    Nothing that is stored changes.

    Args:
        store: Where the sessions are kept.
        user_id: Whose sessions.
        page_size: How many to ask the store for at a time.
    """
    raise NotImplementedError("chats_of returns no list yet")
