"""The shortest whole memory manager, and the ranking that it uses.

`bm25` says how well texts fit a query, with nothing but a count of words. The manager
keeps memories in a dictionary, lets a score rank them, and is otherwise the promises of
`MemoryManager` written down. Pass another `score` to try a ranking of your own.

This file knows nothing of files, neighbours and authors' weights; for those see
`sqlite.py`.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from threading import Lock
from typing import TypeAlias

from pydantic import JsonValue

from minagent.errors import StoreClosedError
from minagent.events import utc_now, well_formed
from minagent.memory.manager import (
    Memory,
    MemoryHit,
    MemoryManager,
    check_count,
    check_page,
    check_user,
    new_memory,
    new_text,
)
from minagent.memory.words import index_words, query_words, stem

Score: TypeAlias = Callable[[str, Sequence[str]], Sequence[float]]


def bm25(query: str, texts: Sequence[str]) -> list[float]:
    """Return how well each text fits a query: BM25, of Robertson and Zaragoza (2009).

    A word tells more the fewer texts have it. Saying it again adds less each time, and
    a word in a long text tells less than one in a short text.
    """
    documents = [Counter(map(stem, index_words(text))) for text in texts]
    average = sum(each.total() for each in documents) / max(len(documents), 1)
    scores = [0.0] * len(documents)
    for word in set(map(stem, query_words(query))):
        having = sum(word in each for each in documents)
        rarity = math.log(1 + (len(documents) - having + 0.5) / (having + 0.5))
        for at, each in enumerate(documents):
            length = each.total() / (average or 1)
            count = each[word]
            scores[at] += rarity * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * length))
    return scores


class InMemoryMemoryManager(MemoryManager):
    """Keeps memories in a dictionary: for tests, demos and programs of one process.

    Args:
        score: Given a query and texts, it returns a number for each; those above 0 are
            found, the highest first.
    """

    def __init__(self, score: Score = bm25) -> None:
        self._score = score
        self._memories: dict[str, Memory] = {}
        # The id of the memory of each event; None where it was deleted.
        self._of_event: dict[tuple[str | None, ...], str | None] = {}
        self._closed = False
        # Several event loops, in threads of their own, may share one manager.
        self._lock = Lock()

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
        given = (session_id, event_id, author, created_at, metadata)
        new = new_memory(text, user_id, *given)
        event = (user_id, session_id, new.event_id)
        self._check_open()
        with self._lock:
            if event_id is not None and event in self._of_event:
                known = self._of_event[event]
                return None if known is None else self._memories[known]
            self._memories[new.memory_id] = new
            self._of_event[event] = new.memory_id
        return new

    async def search(
        self,
        query: str,
        *,
        user_id: str,
        top_k: int = 5,
        exclude_session: str | None = None,
    ) -> list[MemoryHit]:
        check_count("top_k", top_k)
        found = [
            each
            for each in self._of_user(user_id)
            if exclude_session is None or each.session_id != exclude_session
        ]
        found.reverse()  # the last added first, where all else is equal
        texts = [f"{each.author or ''} {each.text}" for each in found]
        scores = zip(found, self._score(well_formed(query), texts), strict=True)
        hits = [MemoryHit(memory=each, score=x) for each, x in scores if x > 0]
        hits.sort(key=lambda hit: (hit.score, hit.memory.created_at), reverse=True)
        return hits[:top_k]

    async def list_memories(
        self,
        *,
        user_id: str,
        session_id: str | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[Memory]:
        check_page(session_id, limit, offset)
        mine = self._of_user(user_id)
        found = [each for each in mine if session_id in (None, each.session_id)]
        return found[offset : offset + limit]

    async def update(self, memory_id: str, text: str, *, user_id: str) -> bool:
        change = {"text": new_text(text), "updated_at": utc_now()}
        if (known := self._get(memory_id, user_id)) is None:
            return False
        self._memories[memory_id] = known.model_copy(update=change)
        return True

    async def delete(self, memory_id: str, *, user_id: str) -> bool:
        if (known := self._get(memory_id, user_id)) is None:
            return False
        del self._memories[memory_id]
        self._of_event[user_id, known.session_id, known.event_id] = None
        return True

    async def aclose(self) -> None:
        self._closed = True

    def _of_user(self, user_id: str) -> list[Memory]:
        check_user(user_id)
        self._check_open()
        memories = [*self._memories.values()]
        return [each for each in memories if each.user_id == user_id]

    def _get(self, memory_id: str, user_id: str) -> Memory | None:
        check_user(user_id)
        self._check_open()
        known = self._memories.get(memory_id)
        return known if known and known.user_id == user_id else None

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosedError(store=type(self).__name__)
