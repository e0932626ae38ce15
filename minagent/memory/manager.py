"""Memory: what was said in earlier conversations, found again by its words.

A session is one conversation; a `Memory` is a text of one user, kept for the next.
Nothing is remembered by itself: after a run, `await memory.add_session(session)` takes
what the user and the assistant said, word by word. `search` finds what helps with a
question. How it gets to a model is written in `recall.py`.

Read the promises of `MemoryManager` first: five methods make a manager, the others are
written on these. `InMemoryMemoryManager` is the shortest whole one, and
`SQLiteMemoryManager` the one to use. The end is for writers of managers.

This file knows nothing of models, and no session manager knows of it.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Self

from pydantic import BaseModel, Field, JsonValue

from minagent.errors import ErasurePendingError
from minagent.events import (
    FrozenDict,
    FrozenObject,
    UtcTime,
    freeze,
    new_id,
    utc_now,
    well_formed,
)
from minagent.memory.excerpts import Select, selected, spoken_text
from minagent.session import Session, check_session_id, check_user_id


class Memory(BaseModel, frozen=True, extra="forbid"):
    """A text of one user, kept for later conversations.

    Attributes:
        memory_id: Its id, made by the manager.
        user_id: Whose it is.
        text: The words, as they were said.
        session_id: The conversation that it is from, or None.
        event_id: The event in that conversation, or None.
        author: Who said it: `user`, an agent's name, or None for nobody in particular.
        created_at: When it was said, which may be long before it was stored; in UTC.
        updated_at: When its text was last replaced, or None.
        metadata: Whatever else there is to keep.
    """

    memory_id: str
    user_id: str
    text: str
    session_id: str | None = None
    event_id: str | None = None
    author: str | None = None
    created_at: UtcTime
    updated_at: UtcTime | None = None
    metadata: FrozenObject = Field(default_factory=FrozenDict)


class MemoryHit(BaseModel, frozen=True, extra="forbid"):
    """What a search found.

    Attributes:
        memory: The memory.
        score: How well it fits, the higher the better. It can be compared with the
            others of the same result only.
    """

    memory: Memory
    score: float


class MemoryManager(ABC):
    """Keeps the memories of many users, and finds them.

    Every method asks whose memories are meant and touches no others; user ids are
    compared byte for byte. Use it as `async with memory:`, or call `aclose` at the end.
    """

    @abstractmethod
    async def add(
        self,
        text: str,
        *,
        user_id: str,
        session_id: str | None = None,
        event_id: str | None = None,
        author: str | None = None,
        created_at: datetime | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
    ) -> Memory | None:
        """Store a text; an event that is remembered already is not stored again.

        Args:
            text: The words, kept as they are; half an emoji is mended.
            user_id: Whose it is.
            session_id: The conversation that it is from.
            event_id: The event there; with user and session, it says what is the same.
            author: Who said it.
            created_at: When it was said, aware; None means now.
            metadata: Whatever else there is to keep.

        Returns:
            The stored memory; None if the memory of this event was deleted before.

        Raises:
            ValueError: The text is blank, the user is none, or a time is naive.
            InvalidSessionIdError: The session id is none.
            NotSerializableError: JSON has no word for something in `metadata`.
        """

    @abstractmethod
    async def search(
        self,
        query: str,
        *,
        user_id: str,
        top_k: int = 5,
        exclude_session: str | None = None,
    ) -> list[MemoryHit]:
        """Return the memories of a user that fit a query best, the best first.

        Of those that fit equally well, the newer ones come first.

        Args:
            query: Any text, such as a question; nothing in it is an operator.
            user_id: Whose memories.
            top_k: How many at most, at least 1.
            exclude_session: A conversation to leave out: the one that is going on.

        Raises:
            ValueError: The user is none, or `top_k` is below 1.
        """

    @abstractmethod
    async def list_memories(
        self,
        *,
        user_id: str,
        session_id: str | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[Memory]:
        """Return the memories of a user in the order in which they were added.

        Args:
            user_id: Whose memories.
            session_id: Of which conversation; None means of all, and of none.
            limit: How many at most, at least 1.
            offset: How many to pass over.

        Raises:
            ValueError: The user is none, `limit` is below 1 or `offset` below 0.
        """

    @abstractmethod
    async def update(self, memory_id: str, text: str, *, user_id: str) -> bool:
        """Put another text in the place of a memory's; id and provenance stay.

        Returns:
            Whether the user has such a memory.

        Raises:
            ValueError: The text is blank, or the user is none.
            ErasurePendingError: As for `delete`.
        """

    @abstractmethod
    async def delete(self, memory_id: str, *, user_id: str) -> bool:
        """Remove a memory. Its event will not be remembered again.

        Returns:
            Whether the user had such a memory. Deleting it twice is harmless.

        Raises:
            ValueError: The user is none.
            ErasurePendingError: It is deleted, but its text is still in the files.
        """

    async def add_session(
        self, session: Session, *, select: Select = spoken_text
    ) -> list[Memory]:
        """Store what was said in a session. Call it after each run; it is safe to.

        While a call in the session waits for a person, or for its result, nothing is
        stored: the run has not ended.

        Args:
            session: The session, which has an owner.
            select: Returns what is to be remembered of it; sync or async.

        Returns:
            The memories of all that was selected, but for those that were deleted.

        Raises:
            ValueError: The session has no owner.
        """
        owner, excerpts = await selected(session, select)
        where = session.session_id
        added = [
            await self.add(**asdict(each), user_id=owner, session_id=where)
            for each in excerpts
        ]
        return [memory for memory in added if memory is not None]

    async def forget(self, *, user_id: str, session_id: str | None = None) -> int:
        """Remove all memories of a user, or those of one conversation; say how many.

        Raises:
            ValueError: The user is none.
            ErasurePendingError: As for `delete`.
        """
        count, pending = 0, None
        while page := await self.list_memories(user_id=user_id, session_id=session_id):
            before = count
            for each in page:
                try:
                    count += await self.delete(each.memory_id, user_id=user_id)
                except ErasurePendingError as error:  # it is deleted; so go on
                    count, pending = count + 1, error
            if count == before:  # somebody else removes them, too
                break
        if pending is not None:
            raise pending
        return count

    async def aclose(self) -> None:  # noqa: B027 - many managers hold nothing
        """Let go of all resources. Closing twice is harmless."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


# --- For writers of managers --------------------------------------------------


def new_memory(
    text: str,
    user_id: str,
    session_id: str | None = None,
    event_id: str | None = None,
    author: str | None = None,
    created_at: datetime | None = None,
    metadata: Mapping[str, JsonValue] | None = None,
) -> Memory:
    """Return a memory with a fresh id, of what `MemoryManager.add` was given.

    Raises:
        ValueError: The text is blank, the user is none, or the time is naive.
        InvalidSessionIdError: The session id is none.
        NotSerializableError: JSON has no word for something in `metadata`.
    """
    check_user(user_id)
    if session_id is not None:
        check_session_id(session_id)
    return Memory(
        memory_id=new_id(),
        user_id=user_id,
        text=new_text(text),
        session_id=session_id,
        event_id=well_formed(event_id),
        author=well_formed(author),
        created_at=created_at or utc_now(),
        metadata=freeze(dict(metadata or {}), "metadata"),
    )


def new_text(text: str) -> str:
    """Return a text as it is stored: well-formed.

    Raises:
        ValueError: It is blank.
    """
    if not text.strip():
        raise ValueError("the text is blank; there is nothing to remember")
    return well_formed(text)


def check_user(user_id: str) -> None:
    """Check that a user is named.

    Raises:
        ValueError: It is None, or no id that `check_session_id` would take.
    """
    if user_id is None:
        raise ValueError("user_id is None; memories are a user's")
    check_user_id(user_id)


def check_count(name: str, count: int, least: int = 1) -> None:
    """Check how many were asked for.

    Raises:
        ValueError: It is below the least that makes sense.
    """
    if count < least:
        raise ValueError(f"{name} is {count}; it is at least {least}")


def check_page(session_id: str | None, limit: int, offset: int) -> None:
    """Check what `MemoryManager.list_memories` was asked.

    Raises:
        ValueError: `limit` is below 1 or `offset` below 0.
        InvalidSessionIdError: The session id is none.
    """
    if session_id is not None:
        check_session_id(session_id)
    check_count("limit", limit)
    check_count("offset", offset, 0)
