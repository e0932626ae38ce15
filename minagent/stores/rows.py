"""Sessions in rows: what the SQL stores make of what they have read.

A get is one statement. Its first row is the session's own, and behind it are those of
its events, from the last one that was seen before:

    -1, user_id, incarnation, version, event_count, created_at, state
    seq, data, and nothing more that counts

This file knows nothing of SQL.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeAlias

from minagent.errors import CorruptSessionError
from minagent.events import Event, load_json
from minagent.marks import extended
from minagent.session import Session, reading, state_of
from minagent.store import SessionInfo
from minagent.stores.cache import Seen

Rows: TypeAlias = Sequence[Any]


def leads_to(seen: Seen, rows: Rows) -> bool:
    """Whether the rows that were read go on from what was seen.

    They do not if the session was made again, or if somebody restored an older copy of
    the database; others may have gone on from that, so the last event is looked at.
    """
    if not seen.events:
        return True
    found = rows[1][1] if len(rows) > 1 else ""
    return rows[0][2] == seen.incarnation and seen.events[-1].event_id in found


def session_of(session_id: str, seen: Seen, rows: Rows) -> Session:
    """Return the session that rows tell of, which go on from what was seen.

    Raises:
        CorruptSessionError: Something in them is not as it was written.
    """
    (_, user_id, incarnation, version, count, created_at, state), *new = rows
    known = len(seen.events)
    added = new[known > 0 :]
    if [row[0] for row in added] != list(range(known, count)):
        problem = f"of its {count} events some are missing, or some are too many"
        raise CorruptSessionError(session_id, problem=problem)
    with reading(session_id):
        return Session(
            session_id,
            user_id,
            events=extended(seen.events, [Event.from_json(row[1]) for row in added]),
            state=state_of(load_json(state)),
            incarnation=incarnation,
            version=version,
            created_at=datetime.fromisoformat(created_at),
        )


def info_of(
    session_id: str,
    user_id: str | None,
    version: int,
    event_count: int,
    created_at: str,
    updated_at: str,
) -> SessionInfo:
    """Return what a list shows of a session, of its row.

    Raises:
        CorruptSessionError: A time in it is none.
    """
    with reading(session_id):
        return SessionInfo(
            session_id=session_id,
            user_id=user_id,
            version=version,
            event_count=event_count,
            created_at=datetime.fromisoformat(created_at),
            updated_at=datetime.fromisoformat(updated_at),
        )
