"""One save for a whole run: `save_on="run"`.

`in_one_save` stands between a run and its store. The first save goes through, since
what the run begins with must not be lost; what comes after is kept, and stored in one
save when the run stops, however it stops. Sessions inside that of the run are stored
as ever.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from minagent.opening import Start
from minagent.session import Session, SessionManager, finished, running


@asynccontextmanager
async def in_one_save(start: Start) -> AsyncIterator[None]:
    """Keep what a run saves until it stops.

    Args:
        start: What the run was started with; its manager is exchanged.

    Raises:
        SessionConflictError: Somebody else has saved the session meanwhile; nothing of
            the run is stored but what it began with.
        SessionBusyError: A run of this manager is at work on the session.
    """
    if start.manager is None:
        yield
        return
    with running(start.manager, start.session_id):
        batch = start.manager = _Batch(start.manager, start.session_id)
        try:
            yield
        finally:
            await finished(batch.flush())


class _Batch(SessionManager):
    """A manager that keeps the saves of one session, but for the first.

    Args:
        inner: Where sessions are stored.
        session_id: The session.
    """

    def __init__(self, inner: SessionManager, session_id: str) -> None:
        self._inner, self._session_id = inner, session_id
        self._stored: Session | None = None
        self._latest: Session | None = None
        self._is_over = False

    async def create(self, session_id: str, user_id: str | None = None) -> Session:
        return await self._inner.create(session_id, user_id)

    async def get(self, session_id: str) -> Session | None:
        return await self._inner.get(session_id)

    async def save(self, session: Session) -> None:
        if session.session_id != self._session_id or self._is_over:
            await self._inner.save(session)
        elif self._stored is None:
            await self._inner.save(session)
            self._stored = session.copy()
        else:
            session.dump_state()
            session.mark_saved()
            self._latest = session

    async def flush(self) -> None:
        self._is_over = True  # the context of the run may be gone on from
        stored, latest = self._stored, self._latest
        if stored is None or latest is None:
            return
        stored.append(*latest.events[len(stored.events) :])
        stored.state = latest.state
        await self._inner.save(stored)
        latest._version = stored.version  # one save more, and not many
