"""The promises of `MemoryManager`, as tests that every manager inherits.

Write this beside your manager, and run pytest on the file:

    class TestMine(MemoryManagerContract):
        def open_manager(self, tmp_path: Path) -> MemoryManager:
            return Mine(tmp_path)

The tests go from easy to hard; make them green from the top. They speak of: `add` and
what comes back; users, who must never meet; queries, which are ordinary text; what is
found, and in which order; the same event again; `update`, `delete`, `forget`; whole
sessions; and last many callers, a restart, and two managers on one file. Each test's
docstring is one promise and what is lost without it.

What the class needs of you is at its top, the helpers are at the end of the file. This
file knows no particular manager, and asks for no particular ranking.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import pytest
import pytest_asyncio

from minagent import (
    Agent,
    ContentItem,
    Event,
    InMemorySessionManager,
    Message,
    Note,
    NotSerializableError,
    Reasoning,
    Session,
    ToolCall,
    ToolResult,
    pending_tool_calls,
    tool,
)
from minagent.memory import Excerpt, Memory, MemoryManager
from minagent.models import ScriptedModel

Reopen = Callable[[], MemoryManager]

LOOK_ALIKES = ("ann", "Ann", "ann%", "an_", "ann ", "änn", "*")
"""Seven users, whom a careless comparison takes for one."""

BLOCKED_SECONDS = 0.2
"""How long the event loop may stand still before it counts as blocked."""


class MemoryManagerContract:
    """Inherit this, write `open_manager`, and pytest grades your manager.

    An ordinary class and no ABC: of an abstract test class pytest collects nothing,
    and stays green.

    Attributes:
        durable: Whether a second manager on the same folder finds what a first one
            stored. Set it to False if the memories live in the manager object.
    """

    pytestmark = pytest.mark.asyncio(loop_scope="function")
    durable: ClassVar[bool] = True

    def open_manager(self, tmp_path: Path) -> MemoryManager:
        """Return your manager; called more than once with one folder.

        Args:
            tmp_path: An empty folder, the only place where it may keep anything.
        """
        raise NotImplementedError(
            f"write open_manager(self, tmp_path) in {type(self).__name__}: it returns "
            "your manager, which keeps its memories in the folder tmp_path"
        )

    @pytest_asyncio.fixture(loop_scope="function")
    async def reopen(self, tmp_path: Path) -> AsyncIterator[Reopen]:
        """Give a function that opens one more manager on the same folder."""
        opened: list[MemoryManager] = []

        def reopen() -> MemoryManager:
            if self.durable or not opened:
                opened.append(self.open_manager(tmp_path))
            return opened[-1]

        yield reopen
        for manager in opened:
            await manager.aclose()

    @pytest.fixture
    def memory(self, reopen: Reopen) -> MemoryManager:
        """Return the manager under test."""
        return reopen()

    # --- add, and what comes back ---------------------------------------------

    async def test_what_is_added_is_found(self, memory: MemoryManager) -> None:
        """It is why we are here."""
        added = await _add(memory, "The kayak is red.")
        await _add(memory, "Dinner is at eight.")

        assert added.text == "The kayak is red.", "add() must return the stored memory"
        assert await _found(memory, "kayak") == ["The kayak is red."], (
            "search() must find a memory by one of its words, and no other memory"
        )

    async def test_every_memory_has_an_id_of_its_own(
        self, memory: MemoryManager
    ) -> None:
        """By it a person can correct or delete just this one."""
        first, second = await _add(memory, "tea"), await _add(memory, "tea")

        assert first.memory_id, "add() must give the memory an id"
        assert first.memory_id != second.memory_id, (
            "two memories that are of no event are two, also if they say the same"
        )

    async def test_where_it_is_from_comes_back(self, memory: MemoryManager) -> None:
        """Who said it, when and where, is what makes a memory worth something."""
        about: dict[str, Any] = {
            "session_id": "trip/écriture",
            "event_id": "event-1",
            "author": "Reise-Agent",
            "created_at": datetime(2020, 2, 29, 23, 59, 59, 123456, UTC),
            "metadata": {"tags": ["a", {"b": 1.0}], "n": 1, "yes": True, "no": None},
        }

        added = await _add(memory, "The ferry leaves at nine.", **about)

        for kept in (added, *await _searched(memory, "ferry"), *await _all(memory)):
            for name, value in about.items():
                assert repr(_plain(getattr(kept, name))) == repr(value), (
                    f"{name} came back changed"
                )
            assert kept.user_id == "ann", "the user came back changed"
            assert kept.memory_id == added.memory_id, "search() gives another id"
            assert kept.updated_at is None, "nobody has updated this memory"

    async def test_times_are_kept_in_utc(self, memory: MemoryManager) -> None:
        """A time is a moment, wherever it was written; without a zone it is none."""
        there = timezone(timedelta(hours=9))
        moment = datetime(2026, 1, 1, 3, 0, tzinfo=there)

        added = await _add(memory, "tea", created_at=moment)
        now = await _add(memory, "coffee")

        [first, _] = await _all(memory)
        for kept in (added, first):
            assert kept.created_at == moment, "created_at became another moment"
            assert kept.created_at.utcoffset() == timedelta(), "keep times in UTC"
        age = datetime.now(UTC) - now.created_at
        assert timedelta() <= age < timedelta(minutes=1), "created_at=None means now"
        with _refused(ValueError, "add() must refuse a time without a zone"):
            await _add(memory, "tea", created_at=datetime(2026, 1, 1))  # noqa: DTZ001

    async def test_text_comes_back_letter_by_letter(
        self, memory: MemoryManager
    ) -> None:
        """What is remembered is what was said, and not what somebody made of it."""
        for text in _TEXTS:
            await _add(memory, text)

        kept = [each.text for each in await _all(memory)]
        assert len(kept) == len(_TEXTS), "list_memories() lost or doubled a memory"
        for found, text in zip(kept, _TEXTS, strict=True):
            assert found == text, f"the text {text[:40]!a} came back changed"

    async def test_half_an_emoji_is_mended(self, memory: MemoryManager) -> None:
        """Models and tools return such text; no later request could be sent with it."""
        added = await _add(memory, "a \ud83d kite", author="\ud83d", event_id="\ud83d")

        [kept] = await _all(memory)
        found = await _searched(memory, "kite \ud83d")
        for each in (added, kept, *found):
            assert each.text == "a \ufffd kite", "add() must mend text: well_formed()"
            assert each.author == each.event_id == "\ufffd", "mend author and event_id"
        assert len(found) == 1, "search() must bear half an emoji in a query"
        assert await memory.update(added.memory_id, "a kite \udc00", user_id="ann")
        [kept] = await _all(memory)
        assert kept.text == "a kite \ufffd", "update() must mend text, as add() does"

    async def test_what_cannot_be_kept_is_refused(self, memory: MemoryManager) -> None:
        """Silent change is worse than refusal, and nothing is no memory."""
        for blank in ("", " \n\t"):
            with _refused(ValueError, "add() must refuse a blank text"):
                await _add(memory, blank)
        with _refused(NotSerializableError, "metadata is JSON, of exact types"):
            await _add(memory, "tea", metadata={"price": Decimal("1.10")})

        assert await _all(memory) == [], "what was refused must not be stored"

    async def test_the_list_is_in_the_order_of_adding_and_comes_in_pages(
        self, memory: MemoryManager
    ) -> None:
        """Pages of one list must fit together, whatever the clocks say."""
        now = datetime.now(UTC)
        for number in range(7):
            moment = now - timedelta(days=number * 5 % 7)
            await _add(memory, f"fact {number}", created_at=moment)

        pages = [
            [each.text for each in await _all(memory, limit=3, offset=offset)]
            for offset in (0, 3, 6, 9)
        ]

        facts = [f"fact {number}" for number in range(7)]
        assert pages == [facts[:3], facts[3:6], facts[6:], []], (
            "list_memories() must give the order of adding, in pages"
        )

    async def test_a_count_that_makes_no_sense_is_refused(
        self, memory: MemoryManager
    ) -> None:
        """SQL takes -1 for "all", a slice takes it for "all but the last"."""
        for wrong in (0, -1):
            with _refused(ValueError, "search() must refuse a top_k below 1"):
                await memory.search("tea", user_id="ann", top_k=wrong)
            with _refused(ValueError, "list_memories() must refuse a limit below 1"):
                await memory.list_memories(user_id="ann", limit=wrong)
        with _refused(ValueError, "list_memories() must refuse an offset below 0"):
            await memory.list_memories(user_id="ann", offset=-1)

    # --- users ----------------------------------------------------------------

    async def test_users_who_look_alike_do_not_meet(
        self, memory: MemoryManager
    ) -> None:
        """One user's memory in another's answer cannot be taken back."""
        for user_id in LOOK_ALIKES:
            await _add(memory, f"The password of <{user_id}>", user_id=user_id)

        for user_id in LOOK_ALIKES:
            mine = [f"The password of <{user_id}>"]
            found = await _found(memory, "password", user_id=user_id)
            assert found == mine, f"search() for {user_id!r} found {found}"
            listed = [each.text for each in await _all(memory, user_id=user_id)]
            assert listed == mine, f"list_memories() for {user_id!r} gave {listed}"

    async def test_the_limit_counts_the_users_own_memories(
        self, memory: MemoryManager
    ) -> None:
        """A filter behind the limit leaves nothing where others fit better."""
        for number in range(5):
            await _add(memory, f"A note on tea and other things, number {number}")
            await _add(memory, "tea tea tea", user_id="bob")

        for top_k, expected in ((1, 1), (3, 3), (50, 5)):
            found = await _searched(memory, "tea", top_k=top_k)
            assert {each.user_id for each in found} == {"ann"}, "search() crossed users"
            assert len(found) == expected, (
                f"with top_k={top_k} ann has {expected} memories to find, and search() "
                f"gave {len(found)}: filter by user before the limit"
            )

    async def test_nobody_changes_the_memory_of_another(
        self, memory: MemoryManager
    ) -> None:
        """To know an id is not to own it."""
        mine = await _add(memory, "tea", session_id="s", event_id="e")

        for user_id in LOOK_ALIKES[1:]:
            updated = await memory.update(mine.memory_id, "gin", user_id=user_id)
            assert updated is False, "update() changed another user's memory"
            deleted = await memory.delete(mine.memory_id, user_id=user_id)
            assert deleted is False, "delete() removed another user's memory"
            forgotten = await memory.forget(user_id=user_id)
            assert forgotten == 0, "forget() removed another user's memories"
            await _add(memory, "gin", user_id=user_id, session_id="s", event_id="e")

        assert await _all(memory) == [mine], "another user changed ann's memories"

    async def test_without_a_user_nothing_is_done(self, memory: MemoryManager) -> None:
        """A forgotten argument must not mean everybody."""
        added = await _add(memory, "tea")

        for nobody in ("", None):
            who: Any = {"user_id": nobody}
            for call in (
                lambda who=who: memory.add("tea", **who),
                lambda who=who: memory.search("tea", **who),
                lambda who=who: memory.list_memories(**who),
                lambda who=who: memory.update(added.memory_id, "gin", **who),
                lambda who=who: memory.delete(added.memory_id, **who),
                lambda who=who: memory.forget(**who),
            ):
                with _refused(ValueError, f"user_id={nobody!r} must be a ValueError"):
                    await call()

        assert await _all(memory) == [added], "a call without a user changed something"

    # --- the query is ordinary text -------------------------------------------

    async def test_a_query_is_no_query_language(self, memory: MemoryManager) -> None:
        """People write quotes, hyphens and capitals, and mean nothing by them."""
        pairs = {
            "POL-358": "order POL-358 shipped",
            "it's": "it's a café",
            "C++": "C++ and node.js",
            "a@b.co": "mail a@b.co",
            "user:likes": "user likes tea",
            "tea OR": "user likes tea",
            "NOT (tea": "user likes tea",
            '"tea"* AND ^': "user likes tea",
            "text: node.js": "C++ and node.js",
            "-shipped": "order POL-358 shipped",
            "{user} likes : \\ ; ' -- DROP": "user likes tea",
        }
        for text in dict.fromkeys(pairs.values()):
            await _add(memory, text)

        for query, text in pairs.items():
            found = await _found(memory, query)
            assert found[:1] == [text], f"search({query!r}) must find {text!r} first"

    async def test_an_odd_query_finds_nothing_and_raises_nothing(
        self, memory: MemoryManager
    ) -> None:
        """What has no words cannot be asked for; it is no reason to fail, either."""
        await _add(memory, "order POL-358 shipped")

        for query in _ODD_QUERIES:
            found = await _found(memory, query)
            assert found == [], f"search({query[:40]!a}) found something"

    async def test_a_long_query_finds_what_is_there(
        self, memory: MemoryManager
    ) -> None:
        """A whole page may be pasted, and its last word may be the one that counts."""
        await _add(memory, "The kayak is red.")
        page = " ".join(f"word{number}" for number in range(1_500))
        han = "".join(chr(0x4E00 + number) for number in range(10_000))

        for query in (f"{page} kayak", "x" * 10_000 + " kayak", "\x00kayak\x00", han):
            found = await _found(memory, query)
            expected = [] if query is han else ["The kayak is red."]
            assert found == expected, f"search() of {len(query)} letters found {found}"

    # --- what is found, and in which order ------------------------------------

    async def test_another_form_of_a_word_finds_it(self, memory: MemoryManager) -> None:
        """Nobody asks in the very form in which something was said."""
        pairs = {
            "kayak": "We bought two kayaks.",
            "Walked": "I like walking.",
            "GARDENS": "Our garden is small.",
            "hiking": "Tom hiked there in May.",
        }
        for text in pairs.values():
            await _add(memory, text)

        for query, text in pairs.items():
            assert await _found(memory, query) == [text], (
                f"{query!r} must find {text!r}"
            )

    async def test_accents_and_case_do_not_matter(self, memory: MemoryManager) -> None:
        """Keyboards differ, and a name has more than one spelling in Unicode."""
        await _add(memory, "The café of Zoe\u0308 is called Ångström")

        for query in ("CAFE", "Zoë", "zoe", "angstrom", "\uff43\uff41\uff46\uff45"):
            assert len(await _found(memory, query)) == 1, f"{query!a} must find it"

    async def test_stop_words_do_not_decide(self, memory: MemoryManager) -> None:
        """Every text has "the" and "is"; what counts in a question is the rest."""
        await _add(memory, "What is it that they are doing there, and who are they?")
        await _add(memory, "The kayak was red.")

        assert await _found(memory, "What is the colour of the kayak?") == [
            "The kayak was red."
        ], "a memory was found by stop words only"

    async def test_a_query_of_stop_words_only_keeps_them(
        self, memory: MemoryManager
    ) -> None:
        """Sometimes they are all that was said, or all that is asked."""
        await _add(memory, "To be or not to be")
        await _add(memory, "The kayak was red.")

        assert await _found(memory, "not to be") == ["To be or not to be"], (
            "a query of stop words must be searched as it is"
        )

    async def test_what_fits_better_comes_first(self, memory: MemoryManager) -> None:
        """Only the first few reach the model."""
        for number in range(8):
            await _add(memory, f"Tea with milk, cup number {number}")
        await _add(memory, "Green tea from Uji")
        for number in range(8):
            await _add(memory, f"Tea with lemon, cup number {number}")

        hits = await memory.search("green tea from Uji", user_id="ann", top_k=3)

        assert hits[0].memory.text == "Green tea from Uji", (
            "a memory with all of the query's words must come before one with a single "
            "word that many have"
        )
        scores = [hit.score for hit in hits]
        assert scores == sorted(scores, reverse=True), "the best score comes first"
        assert len(hits) == 3, "search() must return top_k hits where there are more"

    async def test_of_equal_hits_the_newer_comes_first(
        self, memory: MemoryManager
    ) -> None:
        """What was said last is more likely to hold; stored last is not said last."""
        now = datetime.now(UTC)
        for days in (3, 1, 2):
            moment = now - timedelta(days=days)
            await _add(memory, "I live in Oslo", created_at=moment)
        for number in (1, 2):
            metadata = {"number": number}
            await _add(memory, "I live in Oslo", created_at=now, metadata=metadata)

        found = await _searched(memory, "live Oslo", top_k=5)

        times = [each.created_at for each in found]
        assert times == sorted(times, reverse=True), "the newer comes first on a tie"
        assert [each.metadata.get("number") for each in found[:2]] == [2, 1], (
            "said at the same time, what was added last comes first"
        )

    async def test_the_same_search_gives_the_same_order(
        self, memory: MemoryManager
    ) -> None:
        """Else caches are lost, and nobody can tell why an answer changed."""
        now = datetime.now(UTC)
        for number in range(30):
            await _add(memory, f"tea cup {'big ' * (number % 3)}", created_at=now)

        first = await _searched(memory, "big tea cup", top_k=30)

        for _ in range(3):
            again = await _searched(memory, "big tea cup", top_k=30)
            assert again == first, "search() gave another order for the same question"
        shorter = await _searched(memory, "big tea cup", top_k=7)
        assert shorter == first[:7], "a smaller top_k must give the start of the same"

    async def test_chinese_japanese_and_korean_are_found(
        self, memory: MemoryManager
    ) -> None:
        """They are written without spaces, so splitting at spaces finds nothing."""
        pairs = {
            "豆豆喜欢吃什么?": "我的猫叫豆豆、只吃鸡肉罐头。",
            "猫": "我的猫叫豆豆、只吃鸡肉罐头。",
            "罐头": "我的猫叫豆豆、只吃鸡肉罐头。",
            "旅館はどこですか": "母は京都の旅館に泊まりたい。",
            "ラーメン": "昨日ﾗｰﾒﾝを食べた。",
            "도자기": "민지는 도자기를 좋아해요.",
        }
        for text in dict.fromkeys(pairs.values()):
            await _add(memory, text)

        for query, text in pairs.items():
            found = await _found(memory, query)
            assert found[:1] == [text], f"{query} must find {text}, and found {found}"

    async def test_a_session_can_be_left_out(self, memory: MemoryManager) -> None:
        """What is said in this conversation stands before the model already."""
        for session_id in ("now", "now/child", None, "before"):
            await _add(memory, f"tea in {session_id}", session_id=session_id)

        found = await _searched(memory, "tea", exclude_session="now", top_k=2)
        more = await _searched(memory, "tea", exclude_session="now")

        assert "now" not in {each.session_id for each in [*found, *more]}, (
            "search() found what it was told to leave out"
        )
        assert len(found) == 2, "leave the session out before the limit"
        assert {each.session_id for each in more} == {None, "before", "now/child"}, (
            "exclude_session leaves out one session, and nothing else"
        )

    # --- the same event again -------------------------------------------------

    async def test_an_event_is_remembered_once(self, memory: MemoryManager) -> None:
        """Adding a session again after each run must be safe."""
        first = await _add(memory, "tea", session_id="s", event_id="e")

        again = await _add(memory, "tea", session_id="s", event_id="e")

        assert again == first, "add() of a known event must return what is stored"
        assert await _all(memory) == [first], "add() stored one event twice"

    async def test_events_of_different_sessions_and_users_are_different(
        self, memory: MemoryManager
    ) -> None:
        """A copy of a session has the same event ids."""
        for user_id in ("ann", "bob"):
            for session_id in ("s", "t", None):
                where: Any = {"user_id": user_id, "session_id": session_id}
                added = await _add(memory, "tea", event_id="e", **where)
                assert added.user_id == user_id, "add() returned another's memory"
                assert added.session_id == session_id, "add() mixed up two sessions"

        for user_id in ("ann", "bob"):
            count = len(await _all(memory, user_id=user_id))
            assert count == 3, f"an event id in three places is three, not {count}"

    # --- update, delete, forget -----------------------------------------------

    async def test_update_changes_the_text_and_nothing_else(
        self, memory: MemoryManager
    ) -> None:
        """A correction must not lose where it came from."""
        about = {"session_id": "s", "event_id": "e", "author": "user"}
        before = await _add(memory, "I live in Oslo", **about, metadata={"n": 1})

        assert await memory.update(before.memory_id, "I live in Rome", user_id="ann"), (
            "update() must return True for a memory of the user's"
        )

        [after] = await _all(memory)
        assert after.text == "I live in Rome", "update() did not store the new text"
        assert after.updated_at is not None, "update() must say when, in updated_at"
        same = after.model_copy(update={"text": before.text, "updated_at": None})
        assert same == before, "update() changed more than text and updated_at"
        assert await _found(memory, "Rome") == ["I live in Rome"], "not found anew"
        assert await _found(memory, "Oslo") == [], "the old words still find it"
        with _refused(ValueError, "update() must refuse a blank text"):
            await memory.update(before.memory_id, " ", user_id="ann")

    async def test_update_and_delete_of_what_is_not_there_are_harmless(
        self, memory: MemoryManager
    ) -> None:
        """Two people may delete one memory at the same time."""
        added = await _add(memory, "tea")

        assert await memory.update("nothing", "gin", user_id="ann") is False, (
            "update() of an unknown id must return False"
        )
        assert await memory.delete("nothing", user_id="ann") is False, (
            "delete() of an unknown id must return False"
        )
        assert await memory.delete(added.memory_id, user_id="ann") is True
        assert await memory.delete(added.memory_id, user_id="ann") is False, (
            "a second delete() must return False"
        )
        assert await memory.update(added.memory_id, "gin", user_id="ann") is False, (
            "update() brought a deleted memory back"
        )
        assert await _all(memory) == [], "something is left"

    async def test_what_was_deleted_is_not_found(self, memory: MemoryManager) -> None:
        """Whoever asks that something be forgotten must be able to rely on it."""
        for at, text in enumerate(("red tea", "green tea", "white tea")):
            await _add(memory, text, session_id="s", event_id=f"e{at}")
        [_, green, _] = await _all(memory)

        assert await memory.delete(green.memory_id, user_id="ann")

        assert sorted(await _found(memory, "tea")) == ["red tea", "white tea"], (
            "delete() removed too little or too much"
        )
        assert await _found(memory, "green") == [], (
            "the words of a deleted memory still find something"
        )
        assert len(await _all(memory)) == 2, "list_memories() shows a deleted memory"

    async def test_what_was_deleted_is_not_remembered_again(
        self, memory: MemoryManager
    ) -> None:
        """Sessions are added again after each run; that must not undo a deletion."""
        session = _session("My password is swordfish.", "Noted.")
        [first, _] = await memory.add_session(session)
        await memory.delete(first.memory_id, user_id="ann")

        again = await memory.add_session(session)

        assert [each.text for each in again] == ["Noted."], (
            "add_session() must leave out what was deleted"
        )
        assert await _found(memory, "swordfish") == [], "a deleted memory came back"
        alone = await memory.add(
            first.text, user_id="ann", session_id="s", event_id=first.event_id
        )
        assert alone is None, "add() of an event whose memory was deleted gives None"
        other = await _add(memory, "Hello.", session_id="t", event_id=first.event_id)
        assert other.session_id == "t", "the deletion reached another session"

    async def test_forget_takes_a_session_or_all_of_a_user(
        self, memory: MemoryManager
    ) -> None:
        """The right to be forgotten, in one call."""
        for number in range(3):
            about = {"session_id": "s", "event_id": f"e{number}"}
            await _add(memory, f"tea {number}", **about)
        await _add(memory, "tea elsewhere", session_id="s/child")
        await _add(memory, "tea of bob", user_id="bob", session_id="s")

        counts = [
            await memory.forget(user_id="ann", session_id="s"),
            await memory.forget(user_id="ann", session_id="s"),
        ]
        left = await _found(memory, "tea")
        counts += [await memory.forget(user_id="ann")]

        assert counts == [3, 0, 1], "forget() must return how many it removed"
        assert left == ["tea elsewhere"], "forget(session_id=) took too much or little"
        assert await _all(memory) == [], "forget() of a user left something"
        assert await _found(memory, "tea", user_id="bob") == ["tea of bob"], (
            "forget() removed another user's memory"
        )
        again: Any = {"user_id": "ann", "session_id": "s", "event_id": "e0"}
        assert await memory.add("tea 0", **again) is None, "what is forgotten came back"

    async def test_the_memories_of_one_session_can_be_listed(
        self, memory: MemoryManager
    ) -> None:
        """So that a person can see what a conversation has left behind."""
        for session_id in ("s", "S", "s/child", None):
            await _add(memory, f"tea in {session_id}", session_id=session_id)

        listed = await _all(memory, session_id="s")

        assert [each.session_id for each in listed] == ["s"], (
            "list_memories(session_id=) must give one session's memories only"
        )

    # --- sessions -------------------------------------------------------------

    async def test_a_session_gives_what_was_said(self, memory: MemoryManager) -> None:
        """Not what tools returned, what a model thought, or what was recalled."""
        call = ToolCall(name="look", arguments={"path": "arguments-of-a-tool"})
        result = ToolResult(
            tool_call_id=call.tool_call_id, name="look", content="a-result"
        )
        session = _session("Where is the kayak?")
        session.append(
            _event("memory", Note(kind="recalled", text="a-recalled-memory")),
            _event("bot", Reasoning(content="a-thought"), _told("Let me look."), call),
            _event("bot", result),
            _event("bot", _told("In the shed.")),
            _event("bot", _told(" ")),
        )

        added = await memory.add_session(session)

        assert [(each.author, each.text) for each in added] == [
            ("user", "Where is the kayak?"),
            ("bot", "Let me look."),
            ("bot", "In the shed."),
        ], "add_session() must take what user and assistant said, and nothing else"
        assert await _all(memory) == added, "add_session() returned, but did not store"
        for each, event in zip(
            added, [session.events[i] for i in (0, 2, 4)], strict=True
        ):
            assert each.event_id == event.event_id, "a memory names its event"
            assert each.created_at == event.timestamp, "it was said when it was said"
            assert each.session_id == "s", "a memory names its session"
            assert each.user_id == "ann", "a session's memories are its owner's"

    async def test_adding_a_session_again_adds_what_is_new(
        self, memory: MemoryManager
    ) -> None:
        """It is done after each run, on a session that has grown."""
        session = _session("one", "two")
        before = await memory.add_session(session)
        session.append(_event("user", Message(role="user", content="three")))

        after = await memory.add_session(session)

        assert [each.text for each in after] == ["one", "two", "three"]
        assert after[:2] == before, "add_session() stored known events anew"
        assert await _all(memory) == after, "add_session() doubled something"

    async def test_a_session_without_an_owner_is_refused(
        self, memory: MemoryManager
    ) -> None:
        """Memories of nobody would be everybody's."""
        with _refused(ValueError, "add_session() must refuse a session without owner"):
            await memory.add_session(Session("s"))

    async def test_a_run_that_waits_for_a_person_is_not_remembered_yet(
        self, memory: MemoryManager
    ) -> None:
        """Half a turn says what was wanted, and not what was decided."""

        @tool(requires_confirmation=True)
        def launch() -> str:
            """Launch."""
            return "launched"

        sessions = InMemorySessionManager()
        model = ScriptedModel([ToolCall(name="launch"), "It flies."])
        agent = Agent(model, tools=[launch], session_manager=sessions)
        await agent.run("Launch the kite.", session_id="s", user_id="ann")
        waiting = await _stored(sessions)

        added = await memory.add_session(waiting)

        assert added == [], "add_session() stored a run that waits for a person"
        assert await _all(memory) == [], "add_session() stored a run that waits"
        yes = [each.approve() for each in pending_tool_calls(waiting)]
        await agent.run(session_id="s", tool_confirmations=yes)
        added = await memory.add_session(await _stored(sessions))
        assert [each.text for each in added] == ["Launch the kite.", "It flies."], (
            "once the run has ended, all that was said in it is remembered"
        )

    async def test_what_is_taken_of_a_session_can_be_chosen(
        self, memory: MemoryManager
    ) -> None:
        """So that a model can extract facts, or only the user's words are kept."""
        session = _session("I moved to Rome last week.", "How nice.")

        def select(session: Session) -> list[Excerpt]:
            about = {"event_id": "fact-1", "metadata": {"kind": "fact"}}
            return [Excerpt(text=f"{session.user_id} lives in Rome.", **about)]  # type: ignore[arg-type]

        async def select_async(session: Session) -> list[Excerpt]:
            return select(session)

        for each in (select, select_async):
            [added] = await memory.add_session(session, select=each)
            assert added.text == "ann lives in Rome.", "select= decides what is taken"
            assert added.metadata == {"kind": "fact"}, "an excerpt's metadata is kept"
            assert added.session_id == "s", "what is selected is of the session"
        assert len(await _all(memory)) == 1, "the excerpt's event id was not kept"

    # --- many callers, a restart, two managers --------------------------------

    async def test_60_adds_at_once_are_all_there(self, memory: MemoryManager) -> None:
        """A server adds for many people at the same time."""
        await _together(
            _add(memory, f"fact{n} tea", user_id=f"u{n % 3}", session_id="s")
            for n in range(60)
        )

        for number in range(3):
            found = await _all(memory, user_id=f"u{number}")
            expected = {f"fact{n} tea" for n in range(number, 60, 3)}
            assert {each.text for each in found} == expected, "an add() was lost"
            assert len(found) == 20, "an add() was stored twice"
        for n in range(60):
            found = await _searched(memory, f"fact{n}", user_id=f"u{n % 3}")
            assert found[0].text == f"fact{n} tea", "stored, but not found"

    async def test_60_adds_of_one_event_are_one(self, memory: MemoryManager) -> None:
        """Two workers may add one session; to look and then to store is no lock."""
        added = await _together(
            _add(memory, "tea", session_id="s", event_id="e") for _ in range(60)
        )

        assert len({each.memory_id for each in added}) == 1, (
            "add() of one event gave different memories to racers"
        )
        assert len(await _all(memory)) == 1, "add() stored one event more than once"

    async def test_the_event_loop_stays_free(self, memory: MemoryManager) -> None:
        """While one user's search takes its time, all others would wait."""
        for number in range(50):
            await _add(memory, f"tea, cup number {number}")
        gaps: list[float] = []

        async def watch() -> None:
            last = time.perf_counter()
            while True:
                await asyncio.sleep(0.001)
                gaps.append(time.perf_counter() - last)
                last += gaps[-1]

        watcher = asyncio.ensure_future(watch())
        for number in range(5):
            await _add(memory, f"more tea {number}")
            await _searched(memory, "tea cup number")
            await asyncio.sleep(0.01)
        watcher.cancel()

        # One or two may be the machine's: it is busy with other things.
        blocked = [gap for gap in gaps if gap > BLOCKED_SECONDS]
        assert len(blocked) < 3, (
            f"the event loop stood still for {max(gaps):.1f} s: work in a thread"
        )

    async def test_memories_survive_a_restart(self, reopen: Reopen) -> None:
        """Else they are of no help in the next conversation."""
        self._needs_durable()
        first = reopen()
        kept = await _add(first, "The kayak is red.", metadata={"n": [1]})
        gone = await _add(first, "The tent is old.", session_id="s", event_id="e")
        await first.delete(gone.memory_id, user_id="ann")
        await first.aclose()

        second = reopen()

        assert await _all(second) == [kept], "another manager does not have the memory"
        assert await _found(second, "kayak") == ["The kayak is red."], (
            "or can't find it"
        )
        about: Any = {"user_id": "ann", "session_id": "s", "event_id": "e"}
        assert await second.add("The tent is old.", **about) is None, (
            "after a restart a deleted memory came back"
        )

    async def test_two_managers_on_one_place_see_each_other(
        self, reopen: Reopen
    ) -> None:
        """Two workers serve one user in turn, and at once."""
        self._needs_durable()
        one, two = reopen(), reopen()
        added = await _add(one, "The kayak is red.", session_id="s", event_id="e")

        assert await _found(two, "kayak") == ["The kayak is red."], "not seen"
        assert await _add(two, "x", session_id="s", event_id="e") == added, (
            "a second manager stored the same event again"
        )
        assert await two.delete(added.memory_id, user_id="ann")
        assert await _found(one, "kayak") == [], (
            "deleted by one, and found by the other"
        )
        await _together(
            _add((one, two)[n % 2], f"fact{n} tea", session_id="s") for n in range(60)
        )
        for each in (one, two):
            texts = {memory.text for memory in await _all(each)}
            assert len(texts) == 60, "two managers lost each other's memories"

    async def test_closing_twice_is_harmless(self, memory: MemoryManager) -> None:
        """A block and a `finally` may both close."""
        async with memory as opened:
            await _add(opened, "tea")

        try:
            await memory.aclose()
            await memory.aclose()
        except Exception as error:
            pytest.fail(f"aclose() of a closed manager raised {error!r}")

    def _needs_durable(self) -> None:
        if not self.durable:
            pytest.skip("durable = False: a second manager has other memories")


# --- Helpers ------------------------------------------------------------------

_TEXTS = (
    "plain",
    " \t leading and trailing \r\n",
    "line\nline\r\nline\rline\u2028line\x85line",
    "a\x00b: all after a NUL",
    "quotes ' '' \" \\ % _ ? :name $1 {x} <b> &amp; --",
    "Zoe\u0308 and Zoë are not the same letters",
    "🙂 👩\u200d👩\u200d👧 🇳🇴 é \ufeff\u200b\u202e",
    "日本語 中文 한국어 हिन्दी العربية עברית",
    "\U0010ffff\ufffe",
    "long " * 20_000,
)
_ODD_QUERIES = (
    *("", " ", "\n\t", '"', '""', "*", "(", ")", "(tea", "AND", "NOT", "OR", "NEAR("),
    *("-", "^", "+", ":", "tea:", "'", "''", "\\", "%", "_", "?", "{x}", "\x00", "🙂"),
    *("NEAR(a b, 5)", "a AND", "\ud83d", "x" * 10_000, "-" * 10_000, "\u200b", "؟"),
)


class _refused:
    """Expect an error, and say in the contract's words if it does not come."""

    def __init__(self, error: type[Exception], promise: str) -> None:
        self._error, self._promise = error, promise

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        assert kind is not None, self._promise
        assert not issubclass(kind, Exception) or issubclass(kind, self._error), (
            f"{self._promise}; it was a {kind.__name__}"
        )
        return issubclass(kind, Exception)


async def _add(
    memory: MemoryManager, text: str, *, user_id: str = "ann", **about: Any
) -> Memory:
    added = await memory.add(text, user_id=user_id, **about)
    assert isinstance(added, Memory), "add() must return the stored Memory"
    return added


async def _searched(
    memory: MemoryManager, query: str, *, user_id: str = "ann", **options: Any
) -> list[Memory]:
    hits = await memory.search(query, user_id=user_id, **options)
    return [hit.memory for hit in hits]


async def _found(
    memory: MemoryManager, query: str, *, user_id: str = "ann"
) -> list[str]:
    return [each.text for each in await _searched(memory, query, user_id=user_id)]


async def _all(
    memory: MemoryManager, *, user_id: str = "ann", **options: Any
) -> list[Memory]:
    return await memory.list_memories(user_id=user_id, **options)


async def _together(calls: "Any") -> list[Memory]:
    awaitables: list[Awaitable[Memory]] = [*calls]
    return [*await asyncio.gather(*awaitables)]


async def _stored(sessions: InMemorySessionManager) -> Session:
    session = await sessions.get("s")
    assert session is not None
    return session


def _session(*texts: str) -> Session:
    """Return ann's session, in which user and assistant speak by turns."""
    session = Session("s", "ann")
    for at, text in enumerate(texts):
        said = _told(text) if at % 2 else Message(role="user", content=text)
        session.append(_event("bot" if at % 2 else "user", said))
    return session


def _event(author: str, *items: ContentItem) -> Event:
    return Event(author=author, content=items)


def _told(text: str) -> Message:
    return Message(role="assistant", content=text)


def _plain(value: Any) -> Any:
    """Return JSON data of plain dicts and lists, so that reprs can be compared."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value
