"""What `InMemorySessionManager` promises, and what every store inherits with it.

The contract holds for all stores. What `SessionStore` builds on a store's own methods
(`prune`, `redact`) is looked at here, where a store is shortest.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from minagent import (
    Event,
    InMemorySessionManager,
    Message,
    Note,
    Session,
    SessionInfo,
    SessionStore,
    ToolCall,
    ToolResult,
)
from minagent.errors import ErasurePendingError
from minagent.marks import REWIND
from minagent.testing import SessionStoreContract


class TestInMemorySessionManager(SessionStoreContract):
    durable = False

    def open_store(self, tmp_path: Path) -> SessionStore:
        return InMemorySessionManager()


def said(text: str) -> Event:
    return Event(author="user", content=(Message(role="user", content=text),))


class Held(InMemorySessionManager):
    """A store whose files somebody reads: what is deleted is not out of them yet."""

    async def erase(self) -> None:
        raise ErasurePendingError(place="there")


async def test_prune_deletes_all_before_it_tells_that_a_file_is_being_read() -> None:
    store = Held()
    for session_id in ("a", "b", "c"):
        await store.create(session_id)

    with pytest.raises(ErasurePendingError):
        await store.prune(older_than=datetime.now(UTC) + timedelta(days=1))

    assert await store.list() == []


async def test_prune_reads_the_list_page_by_page() -> None:
    class InSmallPages(InMemorySessionManager):
        async def page(
            self,
            *,
            user_id: str | None = None,
            limit: int = 100,
            after: str | None = None,
        ) -> Sequence[SessionInfo]:
            return await super().page(user_id=user_id, limit=2, after=after)

    store = InSmallPages()
    for session_id in ("a", "a-2", "a/x", "a/y", "b"):
        await store.create(session_id)

    gone = await store.prune(older_than=datetime.now(UTC) + timedelta(days=1))

    assert gone == ("a", "a-2", "b")


class Kept(InMemorySessionManager):
    """A store that writes down what it was asked to rewrite."""

    def __init__(self) -> None:
        super().__init__()
        self.rewritten: list[tuple[int, ...]] = []

    async def rewrite(self, session: Session, places: Sequence[int]) -> None:
        self.rewritten.append(tuple(places))
        await super().rewrite(session, places)


async def test_redact_rewrites_the_event_and_nothing_else() -> None:
    store = Kept()
    session = await store.create("ada")
    session.append(said("one"), said("two"), said("three"))
    await store.save(session)

    await store.redact("ada", session.events[1].event_id, "[gone]")

    assert store.rewritten == [(1,)]


async def test_redact_finds_a_result_that_was_stored_twice() -> None:
    store = Kept()
    session = await store.create("ada")
    call = ToolCall(name="find", tool_call_id="call_1")
    result = ToolResult(tool_call_id="call_1", name="find", content="secret")
    session.append(*(Event(author="a", content=(each,)) for each in (call, result)))
    session.append(said("Hm."), Event(author="b", content=(result,)))
    await store.save(session)

    await store.redact("ada", session.events[1].event_id, "[gone]")

    stored = await store.get("ada")
    assert stored is not None
    assert "secret" not in stored.to_json()
    assert [str(event.content).count("[gone]") for event in stored.events[:4]] == [
        *(0, 1, 0, 1)
    ]
    assert store.rewritten == [(1, 3)]


async def test_redact_does_its_second_step_again_where_the_first_was_all() -> None:
    store = Kept()
    session = await store.create("ada")
    session.append(said("secret"))
    await store.save(session)
    event_id = session.events[0].event_id
    await store.redact("ada", event_id, "[gone]")

    await store.redact("ada", event_id, "[gone]")

    assert store.rewritten == [(0,), (0,)]


async def test_a_call_that_nobody_will_answer_any_more_can_be_redacted() -> None:
    """The program was killed at it, and then somebody went back to before it."""
    store = InMemorySessionManager()
    session = await store.create("ada")
    call = ToolCall(name="pay", tool_call_id="call_1", arguments={"card": "secret"})
    session.append(said("Pay."), Event(author="assistant", content=(call,)))
    back = Note(kind=REWIND, data={"to": session.events[0].event_id})
    session.append(Event(author="rewind", content=(back,)), said("Do not pay."))
    await store.save(session)

    await store.redact("ada", session.events[1].event_id, "[gone]")

    stored = await store.get("ada")
    assert stored is not None
    assert "secret" not in stored.to_json()
