"""Excerpts: what of a session is to be remembered.

`spoken_text` takes all that was said, word by word, and is what `add_session` does
unless you choose something else: any function from a session to excerpts does, also one
that asks a model for the facts.

This file knows nothing of managers.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from pydantic import JsonValue

from minagent.context import resolved
from minagent.events import Event, Message
from minagent.ledger import open_calls
from minagent.marks import REDACTION, current, marks
from minagent.session import Session
from minagent.timetravel import FORK


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """A part of a session that is to be remembered; the attributes are a memory's.

    Of one event id only the first excerpt is kept. Whoever makes several of one event
    gives each an id of its own, such as `f"{event.event_id}#2"`.
    """

    text: str
    event_id: str | None = None
    author: str | None = None
    created_at: datetime | None = None
    metadata: Mapping[str, JsonValue] | None = None


Select: TypeAlias = Callable[
    [Session], Awaitable[Sequence[Excerpt]] | Sequence[Excerpt]
]


def spoken_text(session: Session) -> list[Excerpt]:
    """Return what the user and the assistant said, one excerpt for each event.

    No tool calls and results, no reasoning, nothing that was redacted or taken back;
    and no recalled memories, which would be remembered again with every recall. Of a
    fork, what was said since: the rest is the other session's to remember and forget.
    """
    log = session.events
    redactions = (mark for event in log for mark in marks(event, REDACTION))
    gone = {mark.data.get("event_id") for mark in redactions}
    for at, event in enumerate(log):
        if any(marks(event, FORK)):
            gone |= {copied.event_id for copied in log[:at]}
    return [
        Excerpt(
            text=text,
            event_id=event.event_id,
            author=event.author,
            created_at=event.timestamp,
        )
        for event in current(log)
        if event.event_id not in gone and (text := _said(event)).strip()
    ]


async def selected(session: Session, select: Select) -> tuple[str, Sequence[Excerpt]]:
    """Return whose memories a session makes, and which: none while a call is open.

    Raises:
        ValueError: The session has no owner.
    """
    if session.user_id is None:
        raise ValueError(
            f"session {session.session_id!r} has no owner; memories are a user's"
        )
    waits = open_calls(session.events)
    return session.user_id, () if waits else await resolved(select(session))


def _said(event: Event) -> str:
    texts = [item.content for item in event.content if isinstance(item, Message)]
    # The texts of a reply that follow each other are one, as in `ModelResponse.text`.
    return ("" if event.is_reply else "\n").join(texts)
