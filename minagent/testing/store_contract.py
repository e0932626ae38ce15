"""The promises of `SessionStore`, as tests that every store inherits.

Write this beside your store, and run pytest on the file:

    class TestMine(SessionStoreContract):
        def open_store(self, tmp_path: Path) -> SessionStore:
            return Mine(tmp_path)

A store is a manager, so all of `SessionManagerContract` is tested as well; make that
green first. Here the tests speak of: `list`; `delete`, also of what was seen only;
`prune`; `redact`, in every copy and for whoever held one; event loops; and closing.
Each test's docstring is one promise and what is lost without it.

This file uses the public names of minagent only, and knows no particular store.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pytest
import pytest_asyncio

from minagent import (
    Agent,
    ContentItem,
    Event,
    Media,
    Message,
    Note,
    Opaque,
    Reasoning,
    Session,
    SessionInfo,
    SessionManager,
    SessionStore,
    ToolCall,
    ToolConfirmation,
    ToolResult,
)
from minagent.errors import (
    ErasurePendingError,
    InvalidSessionIdError,
    OpenCallError,
    SessionConflictError,
    SessionNotFoundError,
    StoreClosedError,
    UnknownEventError,
)
from minagent.marks import REDACTION
from minagent.models import ScriptedModel
from minagent.testing.contracts import (
    SessionManagerContract,
    _fail,
    _one_of_each,
    _Refused,
    _said,
    _say,
    _stored,
    _texts,
    _together,
)

Another: TypeAlias = Callable[[], SessionStore]


class SessionStoreContract(SessionManagerContract):
    """Inherit this, write `open_store`, and pytest grades your store.

    Attributes:
        durable: Whether a second store on the same folder finds what a first one
            saved. Set it to False if the sessions live in the store object.
    """

    def open_store(self, tmp_path: Path) -> SessionStore:
        """Return your store; called more than once with one folder.

        Args:
            tmp_path: An empty folder, the only place where it may keep anything.
        """
        raise NotImplementedError(
            f"write open_store(self, tmp_path) in {type(self).__name__}: it returns "
            "your store, which keeps its sessions in the folder tmp_path"
        )

    def open_manager(self, tmp_path: Path) -> SessionManager:
        """Return the store, which is a manager."""
        return self.open_store(tmp_path)

    @pytest_asyncio.fixture(loop_scope="function")
    async def another(self, folder: Path) -> AsyncIterator[Another]:
        """Give a function that opens one more store on the same folder.

        One that is not durable is opened once, and stands in for the others.
        """
        opened: list[SessionStore] = []

        def another() -> SessionStore:
            if self.durable or not opened:
                opened.append(self.open_store(folder))
            return opened[-1]

        yield another
        for store in opened:
            await store.aclose()

    @pytest.fixture
    def store(self, another: Another) -> SessionStore:
        """Return the store under test."""
        return another()

    # --- list -----------------------------------------------------------------

    async def test_list_of_an_empty_store_is_empty(self, store: SessionStore) -> None:
        """And that is no error: the first page of a new program is this one."""
        assert await store.list() == [], "list() of an empty store must be empty"
        assert await store.list(user_id="ann", after="a", limit=1) == [], (
            "list() of an empty store must be empty, whatever is asked"
        )

    async def test_list_shows_what_is_known_of_a_session(
        self, another: Another
    ) -> None:
        """From this a person picks the conversation to go on with."""
        store, other = another(), another()
        session = await store.create("ada", user_id="ann")
        await _check_info(other, session, "after create()")

        session.append(_said("Hello."), _said("Goodbye."))
        await store.save(session)
        session.append(_said("never saved"))
        await _check_info(other, await _stored(store, "ada"), "after save()")

        loaded = await _stored(other, "ada")
        loaded.state["city"] = "Paris"
        await other.save(loaded)
        await _check_info(store, loaded, "after save() of the state alone")

    async def test_list_gives_pages_in_the_order_of_the_ids(
        self, store: SessionStore
    ) -> None:
        """The order of their bytes: in any other, pages would skip or repeat ids."""
        # \uffff comes before \U00010000; not so in UTF-16.
        ids = [
            "A",
            "B",
            "a",
            "a b",
            "a/b",
            "a0",
            "ab",
            "b",
            "é",
            "\uffff",
            "\U00010000",
        ]
        for session_id in reversed(ids):
            await store.create(session_id)

        pages: list[list[str]] = []
        after: str | None = None
        while page := await store.list(limit=3, after=after, children=True):
            pages.append([info.session_id for info in page])
            after = pages[-1][-1]
            if len(pages) > len(ids):
                _fail("list(after=) never ends: a page must begin behind that id")

        assert [each for page in pages for each in page] == ids, (
            "list() must give every session once, in the order of the ids' UTF-8 bytes"
        )
        assert [len(page) for page in pages] == [3, 3, 3, 2], (
            "each page but the last must be as long as the limit"
        )

    async def test_list_goes_on_after_an_id_that_is_gone(
        self, store: SessionStore
    ) -> None:
        """Sessions come and go between two pages; `after` is a place and no session."""
        for session_id in ("a", "b", "c"):
            await store.create(session_id)
        await store.delete("b")

        for after in ("b", "aa", "b/x"):
            found = await _ids(store, after=after)
            assert found == ["c"], f"list(after={after!r}) must go on with 'c'"

    async def test_list_of_one_user_shows_no_other(self, store: SessionStore) -> None:
        """Whoever looks alike is somebody else, and so is nobody."""
        alike = ["Bob", "bob ", "bo", "bobb", "b%b", "b_b", "bob/x", "*", "%", "é"]
        alike += ["e\u0301"]
        for number, user_id in enumerate(alike):
            await store.create(f"alike-{number:02}", user_id)
        for number in range(4):
            await store.create(f"ann-{number}", user_id="ann")
            await store.create(f"bob-{number}", user_id="bob")
        await store.create("nobody's")

        assert await _ids(store, user_id="bob", limit=3) == [
            *("bob-0", "bob-1", "bob-2")
        ], "list(user_id=) must fill its page with this user's sessions only"
        assert await _ids(store, user_id="bob", limit=3, after="bob-2") == ["bob-3"], (
            "list(user_id=, after=) must go on with this user's sessions"
        )
        for number, user_id in enumerate(alike):
            assert await _ids(store, user_id=user_id) == [f"alike-{number:02}"], (
                f"list(user_id={user_id!a}) must show the sessions of that very user"
            )
        assert len(await store.list()) == len(alike) + 9, (
            "list() without a user must show everybody's sessions, and nobody's"
        )

    async def test_list_leaves_out_sessions_inside_others(
        self, store: SessionStore
    ) -> None:
        """Agents that work for others have sessions; a person looks for her own."""
        outer = ["a", "a-b", "b", "c/d", "e"]
        inner = ["a-b/x", "a/x", "a/x/y", "a/z", "c/d/x", "e/x"]
        for session_id in [*inner, *outer]:
            await store.create(session_id, user_id="ann")
        await store.create("b/x", user_id="bob")

        found: list[str] = []
        while ids := await _ids(
            store, limit=2, after=found[-1] if found else None, children=False
        ):
            found += ids
        assert found == sorted([*outer, "b/x"]), (
            "list() must give what is inside no session of the same owner, and no more"
        )
        assert await _ids(store, user_id="ann", children=False) == sorted(outer), (
            "list(user_id=) must leave out what is inside another session"
        )
        assert await _ids(store, after="a-b", children=False) == [
            "b",
            "b/x",
            "c/d",
            "e",
        ]
        assert await _ids(store, children=True) == sorted([*outer, *inner, "b/x"]), (
            "list(children=True) must give every session"
        )

    async def test_list_refuses_what_makes_no_page(self, store: SessionStore) -> None:
        """A page of none would end a loop over pages before its begin."""
        for limit in (0, -1):
            with _Refused(ValueError, f"list(limit={limit}) must raise ValueError"):
                await store.list(limit=limit)
        for bad in ("", "x\0y", "a" * 256):
            with _Refused(ValueError, f"list(user_id={bad!a:.9}): no id, ValueError"):
                await store.list(user_id=bad)
            with _Refused(ValueError, f"list(after={bad!a:.9}): no id, ValueError"):
                await store.list(after=bad)

    # --- delete ---------------------------------------------------------------

    async def test_delete_removes_the_session_and_those_inside_and_no_other(
        self, another: Another
    ) -> None:
        """A forgotten part is a leak; the neighbour's session is somebody's work."""
        store, other = another(), another()
        gone = ["trip", "trip/", "trip/w", "trip/w/call_1", "trip/\U0010ffff"]
        kept = ["Trip", "Trip/w", "tri", "trip ", "trip-2", "trip-2/w", "trip."]
        kept += [
            "trip0",
            "trip0/w",
            "trip\\w",
            "tripx",
            "tripx/w",
            "x/trip",
            "x/trip/w",
        ]
        for session_id in [*gone, *kept]:
            await _say(store, await store.create(session_id, "ann"), session_id)
        for session_id in gone:
            await other.get(session_id)  # what it remembers of them must go as well

        assert await store.delete("trip") is True, (
            "delete() must return True if the session was there"
        )

        for each in (store, other):
            for session_id in gone:
                assert await each.get(session_id) is None, (
                    f"get({session_id!a}) finds it after delete('trip')"
                )
            assert await _ids(each) == sorted(kept), (
                "after delete('trip'), list() must show all but it and 'trip/…'"
            )
            assert await _ids(each, user_id="ann") == sorted(kept), (
                "after delete('trip'), list(user_id=) must show what list() shows"
            )
        for session_id in kept:
            assert _texts(await _stored(store, session_id)) == [session_id], (
                f"delete('trip') damaged {session_id!r}"
            )

    async def test_delete_takes_no_letter_of_an_id_for_a_pattern(
        self, store: SessionStore
    ) -> None:
        """In SQL and in the names of files, some letters stand for any."""
        for session_id in ("a_c/x", "abc/x", "a%/x", "*/x", "[a]/x", "?/x", "a/x"):
            await store.create(session_id)

        for session_id in ("a_c", "a%", "*", "[a]", "?"):
            await store.delete(session_id)

        assert await _ids(store) == ["a/x", "abc/x"], (
            "delete() took a letter of the id for a pattern, or left a session inside"
        )

    async def test_delete_of_what_is_not_there_is_false_and_harmless(
        self, store: SessionStore
    ) -> None:
        """Whoever was cut off calls it again."""
        await store.create("ada")
        await store.create("trip/writer")

        for session_id, expected in (
            ("nobody", False),
            ("ada", True),
            ("ada", False),
            ("trip", False),  # though what is inside goes
        ):
            assert await store.delete(session_id) is expected, (
                f"delete({session_id!r}) must tell whether that session was removed"
            )
        assert await _ids(store) == [], "delete() must remove what is inside a lost one"
        with _Refused(InvalidSessionIdError, "delete('') must be refused: it is no id"):
            await store.delete("")

    async def test_nothing_of_a_deleted_session_is_in_any_file(
        self, store: SessionStore, folder: Path
    ) -> None:
        """Deleted means gone, not hidden: whoever reads the disk must find no word."""
        other = await store.create("other", "ann")
        await _say(store, other, "Hello.")
        for session_id in (_WORD, f"{_WORD}/writer"):
            session = await store.create(session_id, user_id=_WORD)
            session.state[_WORD] = _SECRET
            for _ in range(3):
                session.append(_said("between"), _said(_SECRET))
                await store.save(session)

        await store.delete(_WORD)

        _check_no_trace(folder, "delete()")
        await _say(store, other, "Goodbye.")  # and the others go on
        _check_no_trace(folder, "delete()")
        assert _texts(await _stored(store, "other")) == ["Hello.", "Goodbye."], (
            "delete() damaged another session"
        )

    async def test_a_deleted_session_that_is_made_again_is_empty_and_another(
        self, another: Another
    ) -> None:
        """A worker that still holds the old one must not write into the new one."""
        store, other = another(), another()
        stale = await store.create("ada", user_id="ann")
        stale.state["city"] = "Paris"
        await _say(store, stale, "old")
        await other.delete("ada")

        promise = "save() of a session that was deleted since must be refused"
        with _Refused(SessionNotFoundError, promise):
            await _say(store, stale, "too late")
        again = await other.create("ada", user_id="bob")
        promise = "save() of a session that was made again since must be refused"
        for _ in range(3):  # also when the versions happen to agree
            with _Refused(SessionNotFoundError, promise):
                await store.save(stale)
            await _say(other, again, "new")

        stored = await _stored(store, "ada")
        assert _texts(stored) == ["new"] * 3, (
            "the new session has events of the old one"
        )
        assert stored.state == {}, "the new session has the state of the old one"
        assert stored.user_id == "bob", "the new session has the old one's owner"
        assert stored.incarnation == again.incarnation != stale.incarnation, (
            "a session that is made again must have an incarnation of its own"
        )
        await _check_info(store, stored, "of the session that was made again")

    async def test_delete_of_what_was_seen_removes_what_is_unchanged(
        self, another: Another
    ) -> None:
        """`delete(seen=)` means: remove it if it still is what I looked at."""
        store, other = another(), another()
        fresh, saved = await store.create("fresh"), await store.create("saved")
        await _say(store, saved, "Hello.")
        await _say(store, await store.create("got"), "Hello.")
        await store.create("got/inside")
        got = await _stored(other, "got")
        got.append(_said("never saved"))

        for seen in (fresh, saved, got):
            assert await store.delete(seen.session_id, seen=seen) is True, (
                f"delete(seen=) must remove {seen.session_id!r}: nobody has saved since"
            )

        assert await _ids(other) == [], "delete(seen=) left a session, or one inside it"

    async def test_delete_of_what_was_seen_refuses_what_has_changed(
        self, another: Another
    ) -> None:
        """What was said after the look was not what somebody decided to remove."""
        store, other = another(), another()
        await _say(store, await store.create("ada", "ann"), "Hello.")
        await store.create("ada/inside")
        seen = await _stored(store, "ada")
        newer = await _stored(other, "ada")
        newer.state["city"] = "Paris"
        await other.save(newer)

        assert await store.delete("ada", seen=seen) is False, (
            "delete(seen=) must return False if somebody has saved since"
        )
        assert await _ids(store) == ["ada", "ada/inside"], (
            "delete(seen=) removed what somebody has saved since, or what is inside it"
        )

        await store.delete("ada")
        again = await other.create("ada", "ann")
        for version in range(3):
            for old in (seen, newer):
                assert await store.delete("ada", seen=old) is False, (
                    "delete(seen=) must return False if the session was made again "
                    f"since, also at version {version}"
                )
            await _say(other, again, "new")
        stored = await _stored(store, "ada")
        assert stored.to_json() == again.to_json(), (
            "delete(seen=) of an old session damaged the one that was made again"
        )
        await store.delete("ada")
        assert await store.delete("ada", seen=again) is False, (
            "delete(seen=) must return False if the session is gone"
        )

    async def test_of_a_save_and_a_delete_of_what_was_seen_one_wins(
        self, another: Another
    ) -> None:
        """Else a save is acknowledged, and gone: the check must be in the write."""
        store, other = another(), another()
        for number in range(12):
            session_id = f"race {number}"
            seen = await store.create(session_id)
            await _say(store, seen, "Hello.")
            newer = await _stored(other, session_id)
            newer.append(_said("acknowledged"))

            async def save(newer: Session = newer, late: int = number) -> bool:
                for _ in range(late):
                    await asyncio.sleep(0)
                with suppress(SessionConflictError, SessionNotFoundError):
                    await other.save(newer)
                    return True
                return False

            async def delete(seen: Session = seen) -> bool:
                with suppress(ErasurePendingError):  # `other` is at work
                    return await store.delete(seen.session_id, seen=seen)
                return True

            deleted, saved = await asyncio.gather(delete(), save())

            there = await store.get(session_id) is not None
            assert (deleted, saved, there) in {
                (True, False, False),
                (False, True, True),
            }, (
                "of a save() and a delete(seen=) at once exactly one must win: "
                f"deleted: {deleted}, saved: {saved}, still there: {there}"
            )

    # --- prune ----------------------------------------------------------------

    async def test_prune_removes_what_is_old_and_nothing_else(
        self, store: SessionStore, folder: Path
    ) -> None:
        """The newest event counts, whenever the session was created or saved."""
        for session_id, ages in {
            "old": (30, 20),
            "old too": (40,),
            "used again": (30, 1),
            "on the day": (10,),
        }.items():
            await _say_then(store, session_id, *ages, word=_WORD)
        await store.create("empty")

        assert await store.prune(older_than=_days_ago(50)) == (), (
            "prune() must return no ids where nothing is old enough"
        )
        gone = await store.prune(older_than=_days_ago(10))

        assert sorted(gone) == ["old", "old too"], (
            "prune() must return the ids of the sessions that went"
        )
        assert await _ids(store) == ["empty", "on the day", "used again"], (
            "prune() must remove each session whose newest event is older, and no other"
        )
        later = datetime.now(UTC) + timedelta(days=1)
        await store.prune(older_than=later)
        assert await _ids(store) == [], "an empty session is as old as its creation"
        _check_no_trace(folder, "prune()")

    async def test_prune_takes_a_family_together_or_not_at_all(
        self, store: SessionStore
    ) -> None:
        """The sessions inside one are its workers' memory: half of it is of no use."""
        for session_id, age in {
            "a": 20,
            "a-2": 1,  # no family of `a`, though it stands between `a` and `a/x`
            "a/x": 20,
            "a/x/y": 20,
            "b": 20,
            "b/x": 20,
            "b/x/y": 1,  # keeps them all
            "c": 1,  # keeps what is inside
            "c/x": 20,
            "d/x": 20,  # its parent is gone: it is a family of its own
            "d/x/y": 20,
            "d/z": 1,
        }.items():
            await _say_then(store, session_id, age)

        gone = await store.prune(older_than=_days_ago(10))

        assert sorted(gone) == ["a", "d/x"], (
            "prune() must return the outermost sessions that went, not those inside"
        )
        left = ["a-2", "b", "b/x", "b/x/y", "c", "c/x", "d/z"]
        assert await _ids(store) == left, (
            "prune() must keep a session while one inside it is young, and the reverse"
        )

    async def test_prune_keeps_what_waits_for_a_person_unless_told_otherwise(
        self, store: SessionStore
    ) -> None:
        """An approval may come after weeks; it must still find its question."""
        call = ToolCall(name="pay", tool_call_id="call_1")
        answer = ToolResult(tool_call_id="call_1", name="pay", content="Paid.")
        for session_id, items in {
            "answered": (call, answer),
            "plain": (Message(role="user", content="Hello."),),
            "trip": (Message(role="user", content="Hello."),),
            "trip/waits inside": (call,),
            "waits": (call,),
        }.items():
            session = await store.create(session_id)
            session.append(*(_event(item, days_ago=20) for item in items))
            await store.save(session)

        gone = await store.prune(older_than=_days_ago(10))

        assert sorted(gone) == ["answered", "plain"], (
            "prune() must keep a session in which, or inside which, a call has no "
            "result, and remove one whose calls are answered"
        )
        assert await _ids(store) == ["trip", "trip/waits inside", "waits"], (
            "prune() removed what waits for a person"
        )
        gone = await store.prune(older_than=_days_ago(10), pending="delete")
        assert sorted(gone) == ["trip", "waits"], (
            "prune(pending='delete') must remove also what waits for a person"
        )
        assert await _ids(store) == [], "prune(pending='delete') left something"

    async def test_prune_refuses_what_cannot_be_meant(
        self, store: SessionStore
    ) -> None:
        """A time of no zone may be hours off, and what is gone does not come back."""
        await _say_then(store, "old", 20)
        naive = datetime(2100, 1, 1)  # noqa: DTZ001 (that is the point)
        mistyped: Any = "keep!"

        with _Refused(ValueError, "prune() with a naive time must raise ValueError"):
            await store.prune(older_than=naive)
        with _Refused(ValueError, "prune(pending='keep!') must raise ValueError"):
            await store.prune(older_than=_days_ago(10), pending=mistyped)

        assert await _ids(store) == ["old"], "a refused prune() must remove nothing"

    async def test_prune_leaves_a_session_that_is_saved_before_it_looks(
        self, another: Another, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It lists, then looks closer: somebody may come back in between."""
        await self._prune_while_saving(another, monkeypatch, "get", "old")

    async def test_prune_leaves_a_session_that_is_saved_before_it_deletes(
        self, another: Another, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It looks, then deletes: somebody may come back in between."""
        await self._prune_while_saving(another, monkeypatch, "remove", "old")

    async def test_prune_leaves_a_family_if_one_inside_is_saved_before_it_looks(
        self, another: Another, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A worker that was given something to do again keeps the whole family."""
        await self._prune_while_saving(another, monkeypatch, "get", "old/inside")

    async def _prune_while_saving(
        self,
        another: Another,
        monkeypatch: pytest.MonkeyPatch,
        verb: Literal["get", "remove"],
        session_id: str,
    ) -> None:
        """Prune, and save a session when `prune` first uses this verb."""
        store, other = another(), another()
        for each in ("old", "old/inside", "old too"):
            await _say_then(other, each, 20)
        newer = await _stored(other, session_id)
        inner, saved = getattr(store, verb), False

        async def interrupted(*args: Any, **options: Any) -> Any:
            nonlocal saved
            if not saved:
                saved = True
                await _say(other, newer, "I am back.")
            return await inner(*args, **options)

        monkeypatch.setattr(store, verb, interrupted)
        gone = await store.prune(older_than=_days_ago(10))
        monkeypatch.undo()

        if not saved:
            pytest.skip(f"this store prunes without {verb}()")
        assert gone == ("old too",), (
            f"prune() must not tell that 'old' went: {session_id!r} was saved meanwhile"
        )
        assert await _ids(store) == ["old", "old/inside"], (
            f"prune() removed 'old' or what is inside, though {session_id!r} was saved "
            "meanwhile"
        )
        assert _texts(await _stored(store, session_id))[-1] == "I am back.", (
            "prune() lost what was saved meanwhile"
        )

    # --- redact ---------------------------------------------------------------

    async def test_redact_puts_the_text_in_the_place_of_every_kind_of_word(
        self, store: SessionStore
    ) -> None:
        """Ids, roles and outcomes stay, so that every call still has its result."""
        session, expected = await _stored_secrets(store)

        for event_id in expected:
            await store.redact("ada", event_id, "[gone]")

        stored = await _stored(store, "ada")
        for event in stored.events:
            if event.event_id in expected:
                assert event.content == expected[event.event_id], (
                    f"after redact(), the event by {event.author!r} is another"
                )
        assert stored.user_id == session.user_id, "redact() changed the owner"
        assert stored.state == session.state, "redact() changed the state"
        assert stored.incarnation == session.incarnation, (
            "redact() put another session in the place of the stored one"
        )

    async def test_redact_changes_nothing_but_the_event(
        self, store: SessionStore
    ) -> None:
        """The log keeps its form: the same events, in the same order, and one mark."""
        session = await store.create("ada", user_id="ann")
        session.append(*_one_of_each(), _said("the card number"), *_one_of_each())
        await store.save(session)
        target = session.events[len(_one_of_each())]

        await store.redact("ada", target.event_id, "[gone]")

        stored = await _stored(store, "ada")
        assert [event.event_id for event in stored.events[:-1]] == [
            event.event_id for event in session.events
        ], "redact() must leave every event where it stands, and add one mark"
        for before, after in zip(session.events, stored.events, strict=False):
            if before is not target:
                assert after.to_json() == before.to_json(), (
                    f"redact() of another event changed the one by {before.author!r}"
                )
        assert _texts(stored).count("[gone]") == 1, "redact() must put the text there"
        assert stored.version == session.version + 1, "redact() is one version"
        assert stored.unsaved == (), "get() gives the mark as unsaved"
        await _check_info(store, stored, "after redact()")
        await _say(store, stored, "And on we go.")
        assert _texts(await _stored(store, "ada"))[-1] == "And on we go.", (
            "a session could not be saved after redact()"
        )

    async def test_no_reader_gets_a_redacted_word(self, another: Another) -> None:
        """Whoever had read the session remembers it, and must forget the words."""
        store, warm, cold = another(), another(), another()
        _, expected = await _stored_secrets(store)
        await warm.get("ada")

        for event_id in expected:
            await store.redact("ada", event_id, "[gone]")

        for name, each in {
            "the store that redacted it": store,
            "a store that had read it before": warm,
            "a store that had not": cold,
        }.items():
            found = await _stored(each, "ada")
            assert _WORD not in found.to_json(), f"{name} still gives a redacted word"
            await _say(each, found, "Goodbye.")
            assert _WORD not in (await _stored(each, "ada")).to_json(), (
                f"{name} gives a redacted word again after a save"
            )

    async def test_no_redacted_word_is_in_any_file(
        self, another: Another, folder: Path
    ) -> None:
        """What is in the file today is in the backup of tomorrow."""
        store, other = another(), another()
        _, expected = await _stored_secrets(store)
        await other.get("ada")

        for event_id in expected:
            await store.redact("ada", event_id, "[gone]")

        _check_no_trace(folder, "redact()")
        await _say(other, await _stored(other, "ada"), "Goodbye.")
        _check_no_trace(folder, "redact(), and a save behind it,")

    async def test_no_word_of_a_redaction_is_left_once_it_is_redacted_itself(
        self, store: SessionStore, folder: Path
    ) -> None:
        """It stands in two places: in the mark, and in the event that it is about."""
        session = await store.create("ada")
        await _say(store, session, "the card number")
        await store.redact("ada", session.events[0].event_id, _SECRET)  # a mistake
        mark = (await _stored(store, "ada")).events[-1]

        await store.redact("ada", mark.event_id, "[gone]")

        assert _texts(await _stored(store, "ada")) == ["[gone]"], (
            "redact() of a redaction must change what the redacted event says"
        )
        _check_no_trace(folder, "redact() of a redaction")

    async def test_no_copy_in_a_long_session_keeps_a_redacted_word(
        self, another: Another, folder: Path
    ) -> None:
        """A store may keep copies, to read a long session faster: they count too."""
        store, other = another(), another()
        session = await store.create("ada")
        await _say(store, session, _SECRET)
        for number in range(70):
            await _say(store, session, f"{number}")
        await other.get("ada")
        await _say(store, session, _SECRET)
        secrets = [session.events[0].event_id, session.events[-1].event_id]

        for event_id in secrets:
            await other.redact("ada", event_id, "[gone]")

        _check_no_trace(folder, "redact()")
        expected = ["[gone]", *(f"{number}" for number in range(70)), "[gone]"]
        for each in (store, other, another()):
            assert _texts(await _stored(each, "ada")) == expected, (
                "redact() in a long session lost or changed another event, or left this"
            )

    async def test_the_same_redaction_twice_adds_nothing(
        self, store: SessionStore
    ) -> None:
        """Whoever was cut off calls it again; another text is another redaction."""
        session = await store.create("ada")
        await _say(store, session, "secret")
        event_id = session.events[0].event_id
        await store.redact("ada", event_id, "[gone]")
        before = await _stored(store, "ada")

        await store.redact("ada", event_id, "[gone]")

        assert (await _stored(store, "ada")).to_json() == before.to_json(), (
            "redact() a second time with the same text must change nothing"
        )
        await store.redact("ada", event_id, "[a name]")
        assert _texts(await _stored(store, "ada")) == ["[a name]"], (
            "redact() with another text must put that one there"
        )

    async def test_a_mark_alone_hides_the_words_and_redact_finishes(
        self, another: Another, folder: Path
    ) -> None:
        """A program may be killed between the two steps of `redact`."""
        store, warm, cold = another(), another(), another()
        session = await store.create("ada")
        await _say(store, session, _SECRET)
        live = await _stored(warm, "ada")
        event_id = session.events[0].event_id
        mark = Note(kind=REDACTION, data={"event_id": event_id, "text": "[gone]"})
        session.append(Event(author="redact", content=(mark,)))
        assert _texts(session) == ["[gone]"], (
            "a session that is given the mark must obey it at once"
        )

        await store.save(session)

        for each in (store, warm, cold):
            assert _texts(await _stored(each, "ada")) == ["[gone]"], (
                "get() must obey a stored mark, though the words may still be stored"
            )
        live.append(_said("too late"))
        with _Refused(SessionConflictError, "save() by a stale holder must be refused"):
            await warm.save(live)
        before = await _stored(cold, "ada")
        await cold.redact("ada", event_id, "[gone]")
        assert (await _stored(store, "ada")).to_json() == before.to_json(), (
            "redact() of what is marked already must add nothing"
        )
        _check_no_trace(folder, "redact() of what is marked already")

    async def test_a_stale_holder_cannot_bring_redacted_words_back(
        self, another: Another, folder: Path
    ) -> None:
        """It read the session before; its save is refused like any stale one."""
        store, other = another(), another()
        session = await store.create("ada")
        await _say(store, session, _SECRET)
        stale = await _stored(other, "ada")
        await store.redact("ada", session.events[0].event_id, "[gone]")

        stale.append(_said("too late"))
        promise = "save() of a session that was redacted since must be refused"
        with _Refused(SessionConflictError, promise):
            await other.save(stale)

        for each in (store, other):
            assert _texts(await _stored(each, "ada")) == ["[gone]"], (
                "a refused save() brought the redacted words back"
            )
        _check_no_trace(folder, "redact(), and a stale save behind it,")

    async def test_redact_refuses_what_is_not_there(self, store: SessionStore) -> None:
        """A mistyped id must not look like words that are gone."""
        session = await store.create("ada")
        await _say(store, session, "Hello.")
        before = session.to_json()

        promise = "redact() of an unknown session must raise SessionNotFoundError"
        with _Refused(SessionNotFoundError, promise) as lost:
            await store.redact("nobody", session.events[0].event_id, "[gone]")
        assert lost.error.session_id == "nobody", "the error names another session"
        promise = "redact() of an unknown event must raise UnknownEventError"
        with _Refused(UnknownEventError, promise) as unknown:
            await store.redact("ada", "no-such-event", "[gone]")
        assert unknown.error.event_id == "no-such-event", "it names another event"

        assert await _ids(store) == ["ada"], "a refused redact() created a session"
        assert (await _stored(store, "ada")).to_json() == before, (
            "a refused redact() changed the session"
        )

    async def test_redact_refuses_a_call_that_has_no_result(
        self, store: SessionStore
    ) -> None:
        """Somebody is asked about it, or it is at work: its arguments are needed."""
        session = await store.create("ada")
        calls = [ToolCall(name="pay", tool_call_id=f"call_{n}") for n in (1, 2)]
        session.append(_said("Pay."), _event(*calls))
        session.append(_event(_result("call_1")))
        await store.save(session)
        before = session.to_json()
        event_id = session.events[1].event_id

        promise = "redact() of a call without a result must raise OpenCallError"
        with _Refused(OpenCallError, promise) as refused:
            await store.redact("ada", event_id, "[gone]")

        assert refused.error.tool_call_id == "call_2", "the error names another call"
        assert (await _stored(store, "ada")).to_json() == before, (
            "a refused redact() changed the session"
        )
        session.append(_event(_result("call_2")))
        await store.save(session)
        await store.redact("ada", event_id, "[gone]")  # now it can

    async def test_redact_gets_its_mark_in_while_others_save(
        self, another: Another
    ) -> None:
        """Nobody who redacts can be asked to try again until it happens to work."""
        store, other = another(), another()
        session = await store.create("ada")
        await _say(store, session, "secret")

        async def talk() -> None:
            for number in range(10):
                while True:
                    found = await _stored(other, "ada")
                    with suppress(SessionConflictError):
                        await _say(other, found, f"{number}")
                        break

        async def redact() -> None:
            try:
                await store.redact("ada", session.events[0].event_id, "[gone]")
            except ErasurePendingError:
                pass  # since `other` is at work
            except SessionConflictError:
                _fail("redact() must try again if somebody saves meanwhile")

        await asyncio.gather(talk(), redact())

        for each in (store, other):
            assert _texts(await _stored(each, "ada")) == [
                "[gone]",
                *(f"{number}" for number in range(10)),
            ], "redact() while others save lost an event, or left the words"

    async def test_a_run_goes_on_after_a_redaction(self, store: SessionStore) -> None:
        """The next request is one that a strict provider takes, without the words."""
        await _stored_secrets(store)
        log = (await _stored(store, "ada")).events
        for event in log:
            if _WORD in event.to_json():
                await store.redact("ada", event.event_id, "[gone]")
        model = ScriptedModel(["Fine, thanks."])

        result = await Agent(model, session_manager=store).run(
            "How are you?", session_id="ada"
        )

        assert result.output == "Fine, thanks.", "a run after redact() got no answer"
        [request] = model.requests
        assert _WORD not in repr(request.turns), (
            "a request after redact() has the words"
        )
        assert "[gone]" in repr(request.turns), "a request after redact() lost an event"
        stored = await _stored(store, "ada")
        assert _texts(stored)[-2:] == ["How are you?", "Fine, thanks."], (
            "a run after redact() was not stored"
        )
        assert _WORD not in stored.to_json(), "a run after redact() brought words back"

    async def test_erase_where_nothing_is_left_is_harmless(
        self, store: SessionStore
    ) -> None:
        """A program may call it each night."""
        session = await store.create("ada")
        await _say(store, session, "Hello.")

        await store.erase()
        await store.erase()

        assert (await _stored(store, "ada")).to_json() == session.to_json(), (
            "erase() changed a session that nobody deleted"
        )

    # --- event loops ----------------------------------------------------------

    async def test_threads_with_their_own_event_loops_share_one_store(
        self, store: SessionStore
    ) -> None:
        """A notebook, a web server and a second `asyncio.run` each have a loop."""

        async def work(word: str) -> None:
            await store.create(word)
            while True:
                session = await _stored(store, "ada")
                with suppress(SessionConflictError):
                    await _say(store, session, word)
                    break
                await asyncio.sleep(0)
            event_id = session.events[-1].event_id
            with suppress(ErasurePendingError):  # the other threads are at work
                await store.redact("ada", event_id, f"[{word}]")
            await store.list(limit=1)
            with suppress(ErasurePendingError):
                await store.delete(word)

        await store.create("ada")
        words = [f"thread {number}" for number in range(8)]
        await asyncio.gather(
            *(asyncio.to_thread(asyncio.run, work(word)) for word in words)
        )

        assert sorted(_texts(await _stored(store, "ada"))) == [
            f"[{word}]" for word in words
        ], "of eight threads with event loops of their own, what one did got lost"
        assert await _ids(store) == ["ada"], "what another loop deleted is still there"

    # --- closing --------------------------------------------------------------

    async def test_a_closed_store_refuses_every_use(self, folder: Path) -> None:
        """Later use is a mistake of the program, and must not open things again."""
        for name, use in _USES.items():
            store = self.open_store(folder)
            session = await store.get_or_create("ada")
            await store.aclose()

            promise = f"{name} of a closed store must raise StoreClosedError"
            with _Refused(StoreClosedError, promise):
                await use(store, session)

    async def test_the_end_of_its_block_closes_a_store(self, folder: Path) -> None:
        """Also where the block ends in an error, which goes on."""
        store = self.open_store(folder)
        with suppress(LookupError):
            async with store as entered:
                assert entered is store, "`async with store as x` must give the store"
                await store.get_or_create("ada")
                raise LookupError
            _fail("an error inside `async with store` must go on")

        with _Refused(StoreClosedError, "after its block, a store must be closed"):
            await store.get("ada")

    async def test_closing_twice_is_harmless(self, folder: Path) -> None:
        """Whoever cleans up need not know who did before; also what was never used."""
        unused, used = self.open_store(folder), self.open_store(folder)
        async with used:
            pass

        for store in (unused, used, unused):
            _, errors = await _together([store.aclose()], Exception)
            assert errors == [], "aclose() must be harmless, also unused, also twice"


# --- Values -------------------------------------------------------------------

_WORD = "xyzzy"
"""What must be found nowhere: letters that each way to write JSON leaves alone."""

_SECRET = f"the word is {_WORD} " * 400  # more than a page of a database holds

_Use: TypeAlias = Callable[[SessionStore, Session], Awaitable[object]]
_USES: dict[str, _Use] = {
    "create()": lambda store, _: store.create("new"),
    "get()": lambda store, _: store.get("ada"),
    "get_or_create()": lambda store, _: store.get_or_create("ada"),
    "save()": lambda store, session: store.save(session),
    "list()": lambda store, _: store.list(),
    "delete()": lambda store, _: store.delete("ada"),
    "delete(seen=)": lambda store, session: store.delete("ada", seen=session),
    "prune()": lambda store, _: store.prune(older_than=_days_ago(1)),
    "redact()": lambda store, _: store.redact("ada", "event", "[gone]"),
    "rewrite()": lambda store, session: store.rewrite(session, []),
    "erase()": lambda store, _: store.erase(),
    "a block": lambda store, _: store.__aenter__(),
}


def _secrets() -> Iterator[tuple[str, ContentItem, ContentItem | None]]:
    """Yield an author, an item with the word, and what stands there after `redact`."""
    seen: Any = {"a": [_SECRET, {_WORD: 1}]}
    picture = Media(media_type="image/png", data=_WORD, extra=seen)
    user, gone = "user", "[gone]"
    asked = Message(role="user", content=gone)
    said = Message(role="assistant", content=gone)
    yield user, Message(role="user", content=_SECRET, extra=seen), asked
    yield user, picture, asked
    yield user, Media(media_type="image/png", url=f"https://x/{_WORD}"), asked
    model = "assistant"
    yield model, Reasoning(content=_SECRET, signature=_WORD, extra=seen), None
    yield model, Reasoning(content="", redacted=_WORD), None
    yield model, Message(role="assistant", content=_SECRET, extra=seen), said
    yield model, Opaque(block={"type": "new"} | seen), said
    for call_id in ("call_1", "call_2"):
        unreadable = _SECRET if call_id == "call_2" else None
        arguments = {} if unreadable else seen
        call = ToolCall(
            name="pay",
            tool_call_id=call_id,
            arguments=arguments,
            unreadable=unreadable,
            extra=seen,
        )
        yield model, call, ToolCall(name="pay", tool_call_id=call_id, unreadable=gone)
    decided = ToolConfirmation(
        tool_call_id="call_1",
        approved=True,
        modified_arguments=seen,
        reason=_SECRET,
        answer=_SECRET,
        by="ann",
        fingerprint="f1",
        path=("call_1",),
    )
    yield (
        "person",
        decided,
        replace(decided, modified_arguments={}, reason=gone, answer=gone),
    )
    plain = ToolConfirmation(tool_call_id="call_2", approved=False, reason=_SECRET)
    yield "person", plain, replace(plain, reason=gone)
    for call_id in ("call_1", "call_2"):
        result = ToolResult(
            tool_call_id=call_id,
            name="pay",
            status="success" if call_id == "call_1" else "denied",
            content=_SECRET,
            media=(picture,),
            details=seen,
        )
        yield call_id, result, replace(result, content=gone, media=(), details=None)
    shown = Note(kind="mine", text=_SECRET, data=seen)
    yield "notes", shown, Note(kind="mine", text=gone)
    yield "notes", Note(kind="mine", data=seen), Note(kind="mine")


async def _stored_secrets(
    store: SessionStore,
) -> tuple[Session, dict[str, tuple[ContentItem, ...]]]:
    """Store "ada", whose every kind of item has the word.

    Returns:
        It, and by event id what the redacted events must hold.
    """
    session = await store.create("ada", user_id="ann")
    session.state["city"] = "Paris"
    expected: dict[str, tuple[ContentItem, ...]] = {}
    await _say(store, session, "Hello.")
    for author, group in groupby(_secrets(), key=lambda each: each[0]):
        _, before, after = zip(*group, strict=True)
        event = Event(author=author, content=before)
        session.append(event)
        await store.save(session)
        expected[event.event_id] = tuple(item for item in after if item is not None)
    await _say(store, session, "Thank you.")
    return session, expected


def _event(*items: ContentItem, days_ago: float = 0) -> Event:
    return Event(author="somebody", content=items, timestamp=_days_ago(days_ago))


def _result(call_id: str) -> ToolResult:
    return ToolResult(tool_call_id=call_id, name="pay", content="Paid.")


_TODAY = datetime.now(UTC)


def _days_ago(days: float) -> datetime:
    return _TODAY - timedelta(days=days)


# --- Helpers ------------------------------------------------------------------


async def _say_then(
    store: SessionStore, session_id: str, *days_ago: float, word: str = "Hello."
) -> None:
    """Store a session in which something was said on these days."""
    session = await store.create(session_id)
    message = Message(role="user", content=word)
    session.append(*(_event(message, days_ago=days) for days in days_ago))
    await store.save(session)


async def _ids(store: SessionStore, **asked: Any) -> list[str]:
    infos = await store.list(**{"children": True, **asked})
    return [info.session_id for info in infos]


async def _check_info(store: SessionStore, session: Session, when: str) -> None:
    """Check that a list shows this of a session that is stored, and is alone."""
    __tracebackhide__ = True
    [*found] = await store.list(user_id=session.user_id)
    expected = SessionInfo(
        session_id=session.session_id,
        user_id=session.user_id,
        version=session.version,
        event_count=len(session.events),
        created_at=session.created_at,
        updated_at=session.updated_at,
    )
    assert found == [expected], f"list() does not show the session as it is {when}"


def _check_no_trace(folder: Path, after: str) -> None:
    """Check that no file in a folder has the word, in its name or inside."""
    __tracebackhide__ = True
    forms = _WORD.encode(), _WORD.encode("utf-16-le")[:-1]
    found = [
        str(path.relative_to(folder))
        for path in sorted(folder.rglob("*"))
        if _WORD in path.name
        or (path.is_file() and any(form in path.read_bytes() for form in forms))
    ]
    assert found == [], f"after {after} a word that must be gone is still in {found}"
