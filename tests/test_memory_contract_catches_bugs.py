"""The memory contract has teeth: each manager below has one bug, and one test finds it.

`Healthy` is right. Every `Seeded…` class is the contract for a manager that differs
from it in one respect, and names the test that must turn red. All of them run in one
pytest of their own, since their failures are what is wanted.
"""

import asyncio
import json
import random
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC
from pathlib import Path
from typing import Any, ClassVar

import pytest
from seeded import Outcomes, check_caught, outcomes_of

from minagent import Message, Note, Session, ToolResult
from minagent.memory import (
    Excerpt,
    InMemoryMemoryManager,
    Memory,
    MemoryHit,
    MemoryManager,
    SQLiteMemoryManager,
    bm25,
    spoken_text,
)
from minagent.memory.excerpts import Select
from minagent.memory.words import STOP_TEXT, words
from minagent.testing import MemoryManagerContract


class Healthy(InMemoryMemoryManager):
    """The shipped one, with a folder that it does not use."""

    def __init__(self, folder: Path) -> None:
        super().__init__(self.score)

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        return bm25(query, texts)


class Contract(MemoryManagerContract):
    durable = False
    caught_by: ClassVar[str]
    Manager: ClassVar[type[Any]]

    def open_manager(self, tmp_path: Path) -> MemoryManager:
        manager: MemoryManager = self.Manager(tmp_path)
        return manager


class SeededNothing(Contract):
    Manager = Healthy


# --- add and list -------------------------------------------------------------


class SeededFindsNothing(Contract):
    caught_by = "test_what_is_added_is_found"

    class Manager(Healthy):
        def score(self, query: str, texts: Sequence[str]) -> list[float]:
            return [0.0 for _ in texts]


class SeededOneIdForAll(Contract):
    caught_by = "test_every_memory_has_an_id_of_its_own"

    class Manager(Healthy):
        async def add(self, text: str, **about: Any) -> Memory | None:
            added = await super().add(text, **about)
            return added and added.model_copy(update={"memory_id": "1"})


class SeededLostMetadata(Contract):
    caught_by = "test_where_it_is_from_comes_back"

    class Manager(Healthy):
        async def add(self, text: str, **about: Any) -> Memory | None:
            return await super().add(text, **about | {"metadata": None})


class SeededGuessedZone(Contract):
    caught_by = "test_times_are_kept_in_utc"

    class Manager(Healthy):
        async def add(self, text: str, **about: Any) -> Memory | None:
            if about.get("created_at") and about["created_at"].tzinfo is None:
                about["created_at"] = about["created_at"].replace(tzinfo=UTC)
            return await super().add(text, **about)


class SeededTimeOfStoring(Contract):
    caught_by = "test_times_are_kept_in_utc"

    class Manager(Healthy):
        async def add(self, text: str, **about: Any) -> Memory | None:
            return await super().add(text, **about | {"created_at": None})


class SeededStrippedText(Contract):
    caught_by = "test_text_comes_back_letter_by_letter"

    class Manager(Healthy):
        async def add(self, text: str, **about: Any) -> Memory | None:
            return await super().add(text.strip(), **about)


class SeededQuestionMarks(Contract):
    caught_by = "test_half_an_emoji_is_mended"

    class Manager(Healthy):
        async def add(self, text: str, **about: Any) -> Memory | None:
            text = text.encode(errors="replace").decode()
            return await super().add(text, **about)


class SeededChangedMetadata(Contract):
    caught_by = "test_what_cannot_be_kept_is_refused"

    class Manager(Healthy):
        async def add(self, text: str, **about: Any) -> Memory | None:
            metadata = json.loads(json.dumps(about.get("metadata"), default=str))
            return await super().add(text, **about | {"metadata": metadata})


class SeededOrderOfTime(Contract):
    caught_by = "test_the_list_is_in_the_order_of_adding_and_comes_in_pages"

    class Manager(Healthy):
        def _of_user(self, user_id: str) -> list[Memory]:
            return sorted(super()._of_user(user_id), key=lambda each: each.created_at)


class SeededNegativeOffset(Contract):
    caught_by = "test_a_count_that_makes_no_sense_is_refused"

    class Manager(Healthy):
        async def list_memories(self, *, offset: int = 0, **asked: Any) -> list[Memory]:
            return await super().list_memories(offset=max(offset, 0), **asked)


class SeededSessionsByPrefix(Contract):
    caught_by = "test_the_memories_of_one_session_can_be_listed"

    class Manager(Healthy):
        async def list_memories(
            self, *, session_id: str | None = None, **asked: Any
        ) -> list[Memory]:
            mine = await super().list_memories(**asked)
            start = session_id or ""
            return [each for each in mine if (each.session_id or "").startswith(start)]


# --- users --------------------------------------------------------------------


class SeededUsersInSmallLetters(Contract):
    caught_by = "test_users_who_look_alike_do_not_meet"

    class Manager(Healthy):
        def _of_user(self, user_id: str) -> list[Memory]:
            super()._of_user(user_id)
            mine = [*self._memories.values()]
            return [x for x in mine if x.user_id.lower() == user_id.lower()]


class SeededFilterBehindTheLimit(Contract):
    caught_by = "test_the_limit_counts_the_users_own_memories"

    class Manager(Healthy):
        async def search(
            self, query: str, *, user_id: str, top_k: int = 5, **more: Any
        ) -> list[MemoryHit]:
            users = {each.user_id for each in self._memories.values()}
            hits = [
                hit
                for each in users | {user_id}
                for hit in await Healthy.search(
                    self, query, user_id=each, top_k=99, **more
                )
            ]
            hits.sort(key=lambda hit: (hit.score, hit.memory.created_at), reverse=True)
            return [hit for hit in hits[:top_k] if hit.memory.user_id == user_id]


class SeededWhoKnowsTheIdOwnsIt(Contract):
    caught_by = "test_nobody_changes_the_memory_of_another"

    class Manager(Healthy):
        def _get(self, memory_id: str, user_id: str) -> Memory | None:
            super()._get(memory_id, user_id)
            return self._memories.get(memory_id)


class SeededNoUserIsEverybody(Contract):
    caught_by = "test_without_a_user_nothing_is_done"

    class Manager(Healthy):
        def _of_user(self, user_id: str) -> list[Memory]:
            return super()._of_user(user_id) if user_id else [*self._memories.values()]


# --- search -------------------------------------------------------------------


class SeededMinusMeansNot(Contract):
    caught_by = "test_a_query_is_no_query_language"

    class Manager(Healthy):
        def score(self, query: str, texts: Sequence[str]) -> list[float]:
            scores = super().score(query, texts)
            unwanted = [x[1:] for x in query.split() if x.startswith("-") and x != "--"]
            return [
                0.0 if any(word in text for word in unwanted) else score
                for text, score in zip(texts, scores, strict=True)
            ]


class SeededStarMeansAll(Contract):
    caught_by = "test_an_odd_query_finds_nothing_and_raises_nothing"

    class Manager(Healthy):
        def score(self, query: str, texts: Sequence[str]) -> list[float]:
            return super().score(query, texts) if query != "*" else [1.0 for _ in texts]


class SeededCutQuery(Contract):
    caught_by = "test_a_long_query_finds_what_is_there"

    class Manager(Healthy):
        def score(self, query: str, texts: Sequence[str]) -> list[float]:
            return super().score(query[:4_000], texts)


def counted(query: list[str], texts: list[list[str]]) -> list[float]:
    """A plain ranking: how many of the query's words a text has."""
    return [float(sum(word in text for word in query)) for text in texts]


class SeededExactFormsOnly(Contract):
    caught_by = "test_another_form_of_a_word_finds_it"

    class Manager(Healthy):
        def score(self, query: str, texts: Sequence[str]) -> list[float]:
            return counted(words(query), [words(text) for text in texts])


class SeededAccentsMatter(Contract):
    caught_by = "test_accents_and_case_do_not_matter"

    class Manager(Healthy):
        def score(self, query: str, texts: Sequence[str]) -> list[float]:
            return counted(query.split(), [text.split() for text in texts])


class SeededStopWordsCount(Contract):
    caught_by = "test_stop_words_do_not_decide"

    class Manager(Healthy):
        def score(self, query: str, texts: Sequence[str]) -> list[float]:
            return counted(words(query), [words(text) for text in texts])


class SeededStopWordsNeverCount(Contract):
    caught_by = "test_a_query_of_stop_words_only_keeps_them"

    class Manager(Healthy):
        def score(self, query: str, texts: Sequence[str]) -> list[float]:
            told = [word for word in words(query) if word not in STOP_TEXT.split()]
            return super().score(" ".join(told), texts)


class SeededEverythingFitsAlike(Contract):
    caught_by = "test_what_fits_better_comes_first"

    class Manager(Healthy):
        def score(self, query: str, texts: Sequence[str]) -> list[float]:
            return [float(score > 0) for score in super().score(query, texts)]


class SeededOlderFirst(Contract):
    caught_by = "test_of_equal_hits_the_newer_comes_first"

    class Manager(Healthy):
        async def search(self, query: str, **asked: Any) -> list[MemoryHit]:
            hits = await super().search(query, **asked)
            return sorted(hits, key=lambda hit: (-hit.score, hit.memory.created_at))


class SeededRandomTies(Contract):
    caught_by = "test_the_same_search_gives_the_same_order"

    class Manager(Healthy):
        async def search(self, query: str, **asked: Any) -> list[MemoryHit]:
            hits = await super().search(query, **asked)
            return sorted(hits, key=lambda hit: (-hit.score, random.random()))


class SeededWordsBetweenSpaces(Contract):
    caught_by = "test_chinese_japanese_and_korean_are_found"

    class Manager(Healthy):
        def score(self, query: str, texts: Sequence[str]) -> list[float]:
            return counted(query.split(), [text.split() for text in texts])


class SeededLeftOutBehindTheLimit(Contract):
    caught_by = "test_a_session_can_be_left_out"

    class Manager(Healthy):
        async def search(
            self, query: str, *, exclude_session: str | None = None, **asked: Any
        ) -> list[MemoryHit]:
            hits = await super().search(query, **asked)
            return [hit for hit in hits if hit.memory.session_id != exclude_session][:1]


# --- the same event again -----------------------------------------------------


class SeededStoredAgain(Contract):
    caught_by = "test_an_event_is_remembered_once"

    class Manager(Healthy):
        async def add(self, text: str, **about: Any) -> Memory | None:
            event = about.pop("event_id", None)
            added = await super().add(text, **about)
            return added and added.model_copy(update={"event_id": event})


class SeededEventsAcrossSessions(Contract):
    caught_by = "test_events_of_different_sessions_and_users_are_different"

    class Manager(Healthy):
        async def add(self, text: str, **about: Any) -> Memory | None:
            for each in self._memories.values():
                if each.event_id and each.event_id == about.get("event_id"):
                    return each
            return await super().add(text, **about)


# --- update, delete, forget ---------------------------------------------------


class SeededUpdateMakesAnother(Contract):
    caught_by = "test_update_changes_the_text_and_nothing_else"

    class Manager(Healthy):
        async def update(self, memory_id: str, text: str, *, user_id: str) -> bool:
            if await super().update(memory_id, text, user_id=user_id):
                new = self._memories[memory_id].model_copy(update={"session_id": None})
                self._memories[memory_id] = new
                return True
            return False


class SeededDeleteSaysYes(Contract):
    caught_by = "test_update_and_delete_of_what_is_not_there_are_harmless"

    class Manager(Healthy):
        async def delete(self, memory_id: str, *, user_id: str) -> bool:
            await super().delete(memory_id, user_id=user_id)
            return True


class SeededDeletedFromTheListOnly(Contract):
    caught_by = "test_what_was_deleted_is_not_found"

    class Manager(Healthy):
        def __init__(self, folder: Path) -> None:
            super().__init__(folder)
            self.hidden: set[str] = set()

        async def delete(self, memory_id: str, *, user_id: str) -> bool:
            self.hidden.add(memory_id)
            return self._get(memory_id, user_id) is not None

        async def list_memories(self, **asked: Any) -> list[Memory]:
            found = await super().list_memories(**asked)
            return [each for each in found if each.memory_id not in self.hidden]


class SeededComesBack(Contract):
    caught_by = "test_what_was_deleted_is_not_remembered_again"

    class Manager(Healthy):
        async def delete(self, memory_id: str, *, user_id: str) -> bool:
            known = self._get(memory_id, user_id)
            gone = await super().delete(memory_id, user_id=user_id)
            if known is not None:
                del self._of_event[user_id, known.session_id, known.event_id]
            return gone


class SeededForgetsTooMuch(Contract):
    caught_by = "test_forget_takes_a_session_or_all_of_a_user"

    class Manager(Healthy):
        async def forget(self, *, user_id: str, session_id: str | None = None) -> int:
            return await super().forget(user_id=user_id)


# --- sessions -----------------------------------------------------------------


def everything(session: Session) -> list[Excerpt]:
    kinds = (Message, Note, ToolResult)
    return [
        Excerpt(
            text=getattr(item, "text", None) or getattr(item, "content", ""),
            event_id=event.event_id,
            author=event.author,
            created_at=event.timestamp,
        )
        for event in session.events
        for item in event.content
        if isinstance(item, kinds) and getattr(item, "content", "x").strip()
    ]


class SeededEverythingIsSaid(Contract):
    caught_by = "test_a_session_gives_what_was_said"

    class Manager(Healthy):
        async def add_session(
            self, session: Session, *, select: Select = everything
        ) -> list[Memory]:
            return await super().add_session(session, select=select)


class SeededSessionsDoubled(Contract):
    caught_by = "test_adding_a_session_again_adds_what_is_new"

    class Manager(Healthy):
        async def add_session(
            self, session: Session, *, select: Select = spoken_text
        ) -> list[Memory]:
            async def run_by_run(session: Session) -> list[Excerpt]:
                start = f"{len(session.events)}#"
                return [
                    Excerpt(**asdict(each) | {"event_id": f"{start}{each.event_id}"})
                    for each in spoken_text(session)
                ]

            return await super().add_session(session, select=run_by_run)


class SeededMemoriesOfNobody(Contract):
    caught_by = "test_a_session_without_an_owner_is_refused"

    class Manager(Healthy):
        async def add_session(
            self, session: Session, *, select: Select = spoken_text
        ) -> list[Memory]:
            owner = session.user_id or "nobody"
            session = Session(session.session_id, owner, events=session.events)
            return await super().add_session(session, select=select)


class SeededHalfATurn(Contract):
    caught_by = "test_a_run_that_waits_for_a_person_is_not_remembered_yet"

    class Manager(Healthy):
        async def add_session(
            self, session: Session, *, select: Select = spoken_text
        ) -> list[Memory]:
            added = [
                await self.add(
                    **asdict(each),
                    user_id=session.user_id or "",
                    session_id=session.session_id,
                )
                for each in spoken_text(session)
            ]
            return [each for each in added if each]


class SeededOwnChoice(Contract):
    caught_by = "test_what_is_taken_of_a_session_can_be_chosen"

    class Manager(Healthy):
        async def add_session(
            self, session: Session, *, select: Select = spoken_text
        ) -> list[Memory]:
            added = await super().add_session(session)
            return added[:1]


# --- many callers, a restart, two managers ------------------------------------


class SeededLostAdds(Contract):
    caught_by = "test_60_adds_at_once_are_all_there"

    class Manager(Healthy):
        async def add(self, text: str, **about: Any) -> Memory | None:
            before = dict(self._memories)
            await asyncio.sleep(0)
            added = await super().add(text, **about)
            if added:
                self._memories = before | {added.memory_id: added}
            return added


class SeededLookThenStore(Contract):
    caught_by = "test_60_adds_of_one_event_are_one"

    class Manager(Healthy):
        async def add(self, text: str, **about: Any) -> Memory | None:
            event = (about["user_id"], about.get("session_id"), about.get("event_id"))
            if event not in self._of_event:
                await asyncio.sleep(0)
                self._of_event.pop(event, None)
            return await super().add(text, **about)


class SeededWorkInTheLoop(Contract):
    caught_by = "test_the_event_loop_stays_free"

    class Manager(Healthy):
        def score(self, query: str, texts: Sequence[str]) -> list[float]:
            time.sleep(0.3)
            return super().score(query, texts)


class SeededForgottenByARestart(Contract):
    durable = True
    caught_by = "test_memories_survive_a_restart"
    Manager = Healthy


class SeededKeptAnswers(Contract):
    durable = True
    caught_by = "test_two_managers_on_one_place_see_each_other"

    class Manager(SQLiteMemoryManager):
        def __init__(self, folder: Path) -> None:
            super().__init__(folder / "memory.db")
            self.answers: dict[str, list[MemoryHit]] = {}

        async def search(self, query: str, **asked: Any) -> list[MemoryHit]:
            if query not in self.answers:
                self.answers[query] = await super().search(query, **asked)
            return self.answers[query]

        async def add(self, text: str, **about: Any) -> Memory | None:
            added = await super().add(text, **about)
            await self.search("kayak", user_id="ann")
            return added


class SeededClosesOnce(Contract):
    caught_by = "test_closing_twice_is_harmless"

    class Manager(Healthy):
        closed = 0

        async def aclose(self) -> None:
            self.closed += 1
            if self.closed == 2:
                raise RuntimeError("nothing is open")


# --- the tests ----------------------------------------------------------------

pytestmark = pytest.mark.heavy

SEEDED = {name: value for name, value in globals().items() if name.startswith("Seeded")}
BUGS = [name for name in SEEDED if name != "SeededNothing"]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    chosen = ["SeededNothing", *(f"{bug}::{SEEDED[bug].caught_by}" for bug in BUGS)]
    return outcomes_of(__file__, chosen, tmp_path_factory.mktemp("seeded"))


@pytest.mark.parametrize("bug", BUGS)
def test_a_seeded_bug_is_caught_by_the_test_that_is_meant_to(
    bug: str, outcomes: Outcomes
) -> None:
    check_caught(outcomes[bug, SEEDED[bug].caught_by])


def test_the_healthy_manager_passes(outcomes: Outcomes) -> None:
    healthy = {
        test: message
        for (name, test), message in outcomes.items()
        if name == "SeededNothing"
    }

    problems = {test: message for test, message in healthy.items() if message}
    assert all("durable = False" in message for message in problems.values())
    assert len(healthy) >= 40


def test_every_test_of_the_contract_catches_a_bug() -> None:
    tests = {name for name in vars(MemoryManagerContract) if name.startswith("test_")}

    assert tests - {SEEDED[bug].caught_by for bug in BUGS} == set()
