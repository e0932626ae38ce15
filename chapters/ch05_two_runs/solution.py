"""Solution 05: page through the store, then look into each session for its title."""

from dataclasses import dataclass

from minagent import Message, Session, SessionStore

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

    Args:
        store: Where the sessions are kept.
        user_id: Whose sessions.
        page_size: How many to ask the store for at a time.
    """
    infos = page = await store.list(user_id=user_id, limit=page_size)
    while page:
        after = page[-1].session_id
        page = await store.list(user_id=user_id, limit=page_size, after=after)
        infos = infos + page
    newest_first = sorted(infos, key=lambda info: info.updated_at, reverse=True)
    sessions = [await store.get(info.session_id) for info in newest_first]
    return [Chat(each.session_id, _title(each)) for each in sessions if each]


def _title(session: Session) -> str:
    for event in session.events:
        for item in event.content:
            if isinstance(item, Message) and item.role == "user":
                return item.content[:MAX_LETTERS]
    return NEW_CHAT
