"""The promises of `SessionManager`, as tests that every manager inherits.

Write this beside your manager, and run pytest on the file:

    class TestMine(SessionManagerContract):
        def open_manager(self, tmp_path: Path) -> SessionManager:
            return Mine(tmp_path)

The tests go from easy to hard; make them green from the top. They speak of: `create`,
`get`, `save`; what comes back, letter by letter; copies; values that JSON has no word
for; versions; owners; ids; many sessions and long ones; a restart; races; and last
other processes. Each test's docstring is one promise and what is lost without it.

What the class needs of you is at its top, the helpers are at the end of the file.
This file uses the public names of minagent only, and knows no particular manager.
"""

import asyncio
import importlib.util
import json
import os
import re
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, StrEnum
from faulthandler import dump_traceback_later
from functools import reduce
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Generic, NoReturn, Self, TypeVar
from uuid import UUID

import pytest
import pytest_asyncio
from pydantic import BaseModel

from minagent import (
    Event,
    Media,
    Message,
    Note,
    Opaque,
    Reasoning,
    Session,
    SessionManager,
    ToolCall,
    ToolConfirmation,
    ToolResult,
    Usage,
)
from minagent.errors import (
    InvalidSessionIdError,
    NotSerializableError,
    SessionConflictError,
    SessionExistsError,
    SessionNotFoundError,
    SessionOwnerError,
)

Reopen = Callable[[], SessionManager]
T = TypeVar("T")
E = TypeVar("E", bound=Exception)

PROCESS_SECONDS = 60
"""How long another process may take before it counts as hung."""


class SessionManagerContract:
    """Inherit this, write `open_manager`, and pytest grades your manager.

    An ordinary class and no ABC: of an abstract test class pytest collects nothing,
    and stays green.

    Attributes:
        durable: Whether a second manager on the same folder finds what a first one
            saved. Set it to False if the sessions live in the manager object.
    """

    pytestmark = pytest.mark.asyncio(loop_scope="function")
    durable: ClassVar[bool] = True

    def open_manager(self, tmp_path: Path) -> SessionManager:
        """Return your manager; called more than once with one folder.

        Args:
            tmp_path: An empty folder, the only place where it may keep anything.
        """
        raise NotImplementedError(
            f"write open_manager(self, tmp_path) in {type(self).__name__}: it returns "
            "your manager, which keeps its sessions in the folder tmp_path"
        )

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        """Return the manager's folder, two levels down so that `../..` is seen."""
        folder = tmp_path / "one" / "two"
        folder.mkdir(parents=True)
        return folder

    @pytest_asyncio.fixture(loop_scope="function")
    async def reopen(self, folder: Path) -> AsyncIterator[Reopen]:
        """Give a function that opens one more manager on the same folder.

        None is closed before the test ends, as in a program that was killed. A
        manager that is not durable is opened once, and stands in for the second.
        """
        opened: list[SessionManager] = []

        def reopen() -> SessionManager:
            if self.durable or not opened:
                opened.append(self.open_manager(folder))
            return _Outspoken(opened[-1])

        yield reopen
        for manager in opened:
            close = getattr(manager, "aclose", None)
            if close is not None:
                await close()

    @pytest.fixture
    def sessions(self, reopen: Reopen) -> SessionManager:
        """Return the manager under test."""
        return reopen()

    # --- create ---------------------------------------------------------------

    async def test_create_gives_an_empty_session(
        self, sessions: SessionManager
    ) -> None:
        """A new session is empty and of version 0: the number of saves so far."""
        session = await sessions.create("ada")

        assert session.session_id == "ada", "create() must give the id that was asked"
        assert session.user_id is None, "no user_id was given: the owner must be None"
        assert session.version == 0, "create() must give version 0: no save was done"
        assert list(session.events) == [], "create() must give a session without events"
        assert session.state == {}, "create() must give an empty state"

    async def test_create_keeps_the_owner(self, sessions: SessionManager) -> None:
        """The owner is part of what is stored, or nobody can be refused later."""
        session = await sessions.create("diary", user_id="ann")

        assert session.user_id == "ann", "create() lost the owner"
        assert (await _stored(sessions, "diary")).user_id == "ann", (
            "create() stored the session without its owner"
        )

    async def test_create_gives_each_session_an_incarnation_of_its_own(
        self, sessions: SessionManager
    ) -> None:
        """By it a session that was made again is told from the one before."""
        first = await sessions.create("first")
        second = await sessions.create("second")

        assert first.incarnation, "create() must give an incarnation"
        assert first.incarnation != second.incarnation, (
            "create() gave two sessions the same incarnation; it must be random"
        )

    async def test_a_taken_id_is_refused_and_what_is_stored_stays(
        self, sessions: SessionManager
    ) -> None:
        """Whoever picks a taken id must not wipe out somebody's conversation."""
        session = await sessions.create("ada", user_id="ann")
        await _say(sessions, session, "precious")

        promise = "create() with a taken id must raise SessionExistsError"
        for user_id in (None, "ann", "bob"):
            with _Refused(SessionExistsError, promise) as refused:
                await sessions.create("ada", user_id)
            assert refused.error.session_id == "ada", "the error names the wrong id"

        stored = await _stored(sessions, "ada")
        assert _texts(stored) == ["precious"], "create() overwrote the stored session"
        assert stored.user_id == "ann", "create() changed the owner of a stored session"
        assert stored.incarnation == session.incarnation, (
            "create() put a new session in the place of the stored one"
        )

    # --- get ------------------------------------------------------------------

    async def test_an_unknown_id_is_none_and_get_creates_nothing(
        self, sessions: SessionManager
    ) -> None:
        """To look is not to make: else every mistyped id would leave a session."""
        found, errors = await _together([sessions.get("nobody")], Exception)

        assert [*found, *errors] == [None], (
            "get() of an unknown id must return None: no session, and no error"
        )
        assert await sessions.get("nobody") is None, "get() created a session"
        await sessions.create("nobody")  # the id is still free

    async def test_get_finds_what_create_stored(self, sessions: SessionManager) -> None:
        """A session is there from `create` on, also before its first save."""
        session = await sessions.create("ada", user_id="ann")

        stored = await _stored(sessions, "ada")
        for name in ("session_id", "user_id", "incarnation", "version", "created_at"):
            assert getattr(stored, name) == getattr(session, name), (
                f"get() gives another {name} than create() did"
            )
        assert list(stored.events) == [], "get() gives events that nobody saved"
        assert stored.state == {}, "get() gives a state that nobody saved"

    # --- save -----------------------------------------------------------------

    async def test_save_stores_the_events(self, sessions: SessionManager) -> None:
        """What `save` has acknowledged is what `get` returns; it is why we are here."""
        session = await sessions.create("ada")
        session.append(_said("Hello."), _said("My name is Ada."))

        await sessions.save(session)

        assert _texts(await _stored(sessions, "ada")) == [
            "Hello.",
            "My name is Ada.",
        ], "save() returned, but get() does not have the events"

    async def test_save_counts_the_version_and_leaves_nothing_unsaved(
        self, sessions: SessionManager
    ) -> None:
        """By the version the next save is recognised as one that knows of this one."""
        session = await sessions.create("ada")

        for version in (1, 2, 3):
            session.append(_said("Hello."))
            await sessions.save(session)

            assert session.version == version, (
                "save() must raise the session's version by one: call mark_saved()"
            )
            assert session.unsaved == (), (
                "save() must leave nothing unsaved: call mark_saved()"
            )
            assert (await _stored(sessions, "ada")).version == version, (
                "get() gives another version than the session that was saved"
            )

    async def test_get_gives_a_session_without_unsaved_events(
        self, sessions: SessionManager
    ) -> None:
        """Otherwise the next save would store every old event a second time."""
        await _say(sessions, await sessions.create("ada"), "Hello.")

        assert (await _stored(sessions, "ada")).unsaved == (), (
            "get() gives stored events as unsaved ones; pass them as Session(events=)"
        )

    async def test_later_saves_add_to_the_earlier_ones(
        self, sessions: SessionManager
    ) -> None:
        """A conversation is many saves, by one object and by those got later."""
        session = await sessions.create("ada")
        await _say(sessions, session, "one")
        await _say(sessions, session, "two")
        await _say(sessions, await _stored(sessions, "ada"), "three")

        assert _texts(await _stored(sessions, "ada")) == ["one", "two", "three"], (
            "each save() must add its events to those that are stored, once"
        )

    async def test_the_state_is_saved_without_any_event(
        self, sessions: SessionManager
    ) -> None:
        """A tool may only note something: its note must not wait for an event."""
        session = await sessions.create("ada")
        await _say(sessions, session, "Hello.")
        session.state["city"] = "Paris"

        await sessions.save(session)

        stored = await _stored(sessions, "ada")
        assert stored.state == {"city": "Paris"}, (
            "save() without new events must store the state"
        )
        assert _texts(stored) == ["Hello."], "save() of the state changed the events"
        assert stored.version == 2, "save() of the state alone is a version as well"

    async def test_a_change_deep_in_the_state_is_saved(
        self, sessions: SessionManager
    ) -> None:
        """Nobody marks anything as changed: the state is saved whole, as it is."""
        session = await sessions.create("ada")
        session.state["project"] = {"name": "a", "tags": [], "old": 1}
        await sessions.save(session)

        session.state["project"]["name"] = "b"
        session.state["project"]["tags"].append("new")
        await sessions.save(session)
        loaded = await _stored(sessions, "ada")
        del loaded.state["project"]["old"]
        await sessions.save(loaded)

        expected = {"project": {"name": "b", "tags": ["new"]}}
        assert (await _stored(sessions, "ada")).state == expected, (
            "save() missed a change inside a nested value of the state"
        )

    async def test_what_is_gone_from_the_state_is_gone(
        self, sessions: SessionManager
    ) -> None:
        """The state is replaced and not merged: a forgotten key must not return."""
        session = await sessions.create("ada")
        session.state.update(secret="x", city="Paris")
        await sessions.save(session)

        del session.state["secret"]
        await sessions.save(session)
        assert (await _stored(sessions, "ada")).state == {"city": "Paris"}, (
            "save() kept a key that was removed from the state"
        )
        session.state = {}
        await sessions.save(session)
        assert (await _stored(sessions, "ada")).state == {}, (
            "save() kept the old state although the new one is empty"
        )

    # --- what comes back is what was saved ------------------------------------

    async def test_every_kind_of_item_comes_back(
        self, sessions: SessionManager
    ) -> None:
        """A tool's card or a thought that is dropped on reload can't be shown again."""
        events = _one_of_each()
        session = await sessions.create("ada")
        session.append(*events)

        await sessions.save(session)

        stored = await _stored(sessions, "ada")
        assert len(stored.events) == len(events), "save() lost or doubled an event"
        for kept, event in zip(stored.events, events, strict=True):
            assert kept == event, f"this event came back changed: {event!r}"

    async def test_events_come_back_as_the_same_json(
        self, sessions: SessionManager
    ) -> None:
        """Vendors sign what their models wrote: key order and number types count."""
        events = _one_of_each()
        session = await sessions.create("ada")
        session.append(*events)

        await sessions.save(session)

        stored = await _stored(sessions, "ada")
        for kept, event in zip(stored.events, events, strict=True):
            assert kept.to_json() == event.to_json(), (
                "an event came back with other keys, another order or other types; "
                "store Event.to_json() as it is"
            )

    async def test_the_state_comes_back_with_the_same_types(
        self, sessions: SessionManager
    ) -> None:
        """`1`, `1.0` and `True` are equal in Python, and not the same thing."""
        session = await sessions.create("ada")
        session.state = _plain_values()

        await sessions.save(session)

        # repr, since it tells 1 from 1.0 and True, and one order of keys from another.
        assert repr((await _stored(sessions, "ada")).state) == repr(_plain_values()), (
            "the state came back with another value, type or order of keys"
        )

    async def test_text_comes_back_letter_by_letter(
        self, sessions: SessionManager
    ) -> None:
        """People write in all scripts, and tools return line ends of every kind."""
        session = await sessions.create("ada")
        session.append(*(_said(text) for text in _TEXTS))
        session.state = {"texts": [*_TEXTS], "keys": dict.fromkeys(_TEXTS, 1)}

        await sessions.save(session)

        stored = await _stored(sessions, "ada")
        for kept, text in zip(_texts(stored), _TEXTS, strict=True):
            assert kept == text, f"the text {text!a} of an event came back changed"
        assert stored.state == session.state, "a text in the state came back changed"
        assert [*stored.state["keys"]] == [*_TEXTS], "a key of the state was changed"

    async def test_order_is_the_order_of_writing(
        self, sessions: SessionManager
    ) -> None:
        """Clocks stand still and go backwards; a conversation does not."""
        now = datetime.now(UTC)
        clock = [*[now] * 10, *(now - timedelta(hours=hour) for hour in range(10))]
        words = [f"event {at}" for at in range(len(clock))]
        # The ids sort the other way round, so that they can't stand in for the order.
        events = [
            Event(
                author="user",
                content=(Message(role="user", content=word),),
                event_id=f"{1000 - at:08}-0000-7000-8000-000000000000",
                timestamp=time,
            )
            for at, (time, word) in enumerate(zip(clock, words, strict=True))
        ]
        session = await sessions.create("ada")
        for start in range(0, len(events), 5):
            session.append(*events[start : start + 5])
            await sessions.save(session)

        assert _texts(await _stored(sessions, "ada")) == words, (
            "get() gives the events in another order than that of writing; "
            "timestamps and event ids say nothing about it"
        )

    # --- copies ---------------------------------------------------------------

    async def test_changing_what_get_returned_changes_nothing_stored(
        self, sessions: SessionManager
    ) -> None:
        """Only `save` may change what `get` returns: a run that failed leaves no trace.

        A manager that hands out its own objects works until it is replaced by one on
        a disk.
        """
        session = await sessions.create("ada")
        session.append(_said("Hello."))
        session.state = {"project": {"name": "a"}}
        await sessions.save(session)

        copy = await _stored(sessions, "ada")
        copy.append(_said("never saved"))
        copy.state["project"]["name"] = "changed"
        copy.state["more"] = 1

        stored = await _stored(sessions, "ada")
        assert _texts(stored) == ["Hello."], "get() has an event that was never saved"
        assert stored.state == {"project": {"name": "a"}}, (
            "get() has a state that was never saved: give out copies, nested values too"
        )

    async def test_changing_what_was_saved_changes_nothing_stored(
        self, sessions: SessionManager
    ) -> None:
        """The saved object lives on, and the run changes it further before it saves."""
        project = {"name": "a"}
        session = await sessions.create("ada")
        session.state["project"] = project
        await _say(sessions, session, "Hello.")

        project["name"] = "changed"
        session.state["more"] = 1
        session.append(_said("never saved"))

        stored = await _stored(sessions, "ada")
        assert stored.state == {"project": {"name": "a"}}, (
            "the stored state changed after save(): keep a copy, nested values too"
        )
        assert _texts(stored) == ["Hello."], "get() has an event that was never saved"

    async def test_changing_what_create_returned_changes_nothing_stored(
        self, sessions: SessionManager
    ) -> None:
        """A created session is stored empty, whatever is done to the object."""
        session = await sessions.create("ada")
        session.append(_said("never saved"))
        session.state["more"] = 1

        stored = await _stored(sessions, "ada")
        assert _texts(stored) == [], "get() has an event that was never saved"
        assert stored.state == {}, "get() has a state that was never saved"

    async def test_a_stored_call_cannot_be_changed_through_a_copy(
        self, sessions: SessionManager
    ) -> None:
        """What a person approves must be what the model asked for."""
        session = await sessions.create("ada")
        call = ToolCall(name="delete", arguments={"paths": ["old.txt"]})
        session.append(Event(author="assistant", content=(call,)))
        await sessions.save(session)

        copy = await _stored(sessions, "ada")
        arguments: Any = copy.events[0].tool_calls[0].arguments
        with suppress(TypeError):
            arguments["paths"].append("new.txt")
        with suppress(TypeError):
            arguments["force"] = True

        stored = await _stored(sessions, "ada")
        assert stored.events[0].tool_calls == (call,), (
            "a stored tool call changed without a save()"
        )
        assert call.arguments == {"paths": ["old.txt"]}, (
            "a saved tool call changed through a copy"
        )

    async def test_two_new_sessions_share_nothing(
        self, sessions: SessionManager
    ) -> None:
        """One default state for all sessions shows one user's notes to the next."""
        first = await sessions.create("first")
        second = await sessions.create("second")

        first.state["name"] = "Ada"
        first.append(_said("I am Ada."))
        await sessions.save(first)
        third = await sessions.create("third")

        for session in (second, third, await _stored(sessions, "second")):
            assert session.state == {}, "a new session has the state of another one"
            assert _texts(session) == [], "a new session has events of another one"

    # --- values that JSON has no word for -------------------------------------

    async def test_a_value_that_json_has_no_word_for_is_refused(
        self, sessions: SessionManager
    ) -> None:
        """A date that comes back as text breaks the program weeks later, elsewhere.

        So `save` refuses, says where the value stands, and leaves what is stored.
        """
        session = await sessions.create("ada")
        session.state = {"good": 1}
        await _say(sessions, session, "Hello.")

        for name, value in _unspeakable_values().items():
            for path, state in (
                ("state.due", {"due": value}),
                ("state.orders[1].due", {"orders": [1, {"due": value}]}),
            ):
                session.state = {"good": 2, **state}
                promise = f"save() must refuse {name} in the state (NotSerializable…)"
                with _Refused(NotSerializableError, promise) as refused:
                    await sessions.save(session)
                assert path in str(refused.error), (
                    f"the error must say where {name} stands: {path}"
                )

        stored = await _stored(sessions, "ada")
        assert stored.state == {"good": 1}, "a refused save() changed the stored state"
        assert stored.version == 1, "a refused save() changed the stored version"

    async def test_a_refused_save_stores_nothing_of_it(
        self, sessions: SessionManager
    ) -> None:
        """All or nothing: half a save leaves events that the caller will save again."""
        session = await sessions.create("ada")
        session.state = {"total": 1}
        await _say(sessions, session, "one")

        session.append(_said("two"), _said("three"))
        session.state["total"] = Decimal("1.10")
        promise = "save() must refuse a Decimal in the state"
        with _Refused(NotSerializableError, promise):
            await sessions.save(session)

        stored = await _stored(sessions, "ada")
        assert _texts(stored) == ["one"], (
            "save() refused the state but stored the events: it must be all or nothing"
        )
        assert stored.version == 1, "save() refused the state but counted a version"
        assert len(session.unsaved) == 2, (
            "after a refused save() the events must still be unsaved, or they are lost"
        )
        assert session.version == 1, "a refused save() must not raise the version"

        session.state["total"] = "1.10"
        await sessions.save(session)
        stored = await _stored(sessions, "ada")
        assert _texts(stored) == ["one", "two", "three"], (
            "a good save() after a refused one must store each event once"
        )
        assert stored.state == {"total": "1.10"}, "the good save() lost the state"
        assert stored.version == 2, "the good save() must be the next version"

    async def test_half_an_emoji_is_refused(self, sessions: SessionManager) -> None:
        """A lone surrogate can be stored by some stores, and sent to no model."""
        session = await sessions.create("ada")
        for state in ({"x": "a\ud83d b"}, {"a\ud83d": 1}, {"x": [{"y": "\udc00"}]}):
            session.state = state
            promise = "save() must refuse half an emoji (a lone surrogate)"
            with _Refused(NotSerializableError, promise):
                await sessions.save(session)

        session.state = {"x": "a\U0001f600 b"}
        await sessions.save(session)
        assert (await _stored(sessions, "ada")).state == {"x": "a\U0001f600 b"}, (
            "a whole emoji must come back as it was"
        )

    # --- versions -------------------------------------------------------------

    async def test_a_stale_save_is_refused_and_nothing_is_written(
        self, sessions: SessionManager
    ) -> None:
        """Without it the last writer wins, and the other's turn is lost unnoticed."""
        await sessions.create("ada")
        winner = await _stored(sessions, "ada")
        loser = await _stored(sessions, "ada")
        winner.state["by"] = "winner"
        await _say(sessions, winner, "from the winner")

        loser.state["by"] = "loser"
        loser.append(_said("from the loser"))
        promise = "save() must refuse a session that was saved since it was read"
        with _Refused(SessionConflictError, promise) as refused:
            await sessions.save(loser)

        assert refused.error.session_id == "ada", "the error names the wrong session"
        stored = await _stored(sessions, "ada")
        assert _texts(stored) == ["from the winner"], (
            "a stale save() wrote its events or removed those of the other"
        )
        assert stored.state == {"by": "winner"}, "a stale save() wrote its state"
        assert stored.version == 1, "a stale save() changed the stored version"

    async def test_the_loser_of_a_conflict_keeps_what_it_wanted_to_save(
        self, sessions: SessionManager
    ) -> None:
        """Its events exist nowhere else; with them it can get again and repeat."""
        loser = await sessions.create("ada")
        await _say(sessions, await _stored(sessions, "ada"), "from the winner")
        lost = _said("from the loser")
        loser.append(lost)

        for _ in range(2):  # a second try with the same object is as stale
            promise = "save() must refuse a stale session, each time it is tried"
            with _Refused(SessionConflictError, promise):
                await sessions.save(loser)
            assert loser.unsaved == (lost,), (
                "a refused save() must leave the events unsaved, or they are lost"
            )
            assert loser.version == 0, "a refused save() must not raise the version"

        again = await _stored(sessions, "ada")
        again.append(*loser.unsaved)
        await sessions.save(again)
        expected = ["from the winner", "from the loser"]
        assert _texts(await _stored(sessions, "ada")) == expected, (
            "after getting the session again the loser must be able to save"
        )

    async def test_a_stale_save_of_the_state_alone_is_refused(
        self, sessions: SessionManager
    ) -> None:
        """A state is overwritten as easily as a log, and as unnoticed."""
        stale = await sessions.create("ada")
        fresh = await _stored(sessions, "ada")
        fresh.state["n"] = 1
        await sessions.save(fresh)

        stale.state["n"] = 2
        promise = "save() must refuse a stale session also if only its state changed"
        with _Refused(SessionConflictError, promise):
            await sessions.save(stale)
        assert (await _stored(sessions, "ada")).state == {"n": 1}, (
            "a stale save() wrote its state"
        )

    async def test_a_session_that_was_never_created_cannot_be_saved(
        self, sessions: SessionManager
    ) -> None:
        """`save` must not bring back a conversation that somebody has deleted."""
        session = Session("nobody")
        session.append(_said("Hello."))

        promise = "save() of what was never created must raise SessionNotFoundError"
        with _Refused(SessionNotFoundError, promise) as refused:
            await sessions.save(session)

        assert refused.error.session_id == "nobody", "the error names the wrong id"
        assert await sessions.get("nobody") is None, "save() created a session"
        assert len(session.unsaved) == 1, "a refused save() must leave events unsaved"

    async def test_a_session_that_was_made_again_is_another_one(
        self, sessions: SessionManager
    ) -> None:
        """Deleted and created anew, it has a fresh log: the old run must not go on."""
        made_again = await sessions.create("ada")
        before = Session("ada")  # same id and version; only the incarnation differs
        before.append(_said("from before"))

        promise = (
            "save() must compare the incarnation: this session was deleted and made "
            "again, so it must raise SessionNotFoundError"
        )
        with _Refused(SessionNotFoundError, promise):
            await sessions.save(before)

        stored = await _stored(sessions, "ada")
        assert _texts(stored) == [], "save() wrote into a session that was made again"
        assert stored.incarnation == made_again.incarnation, (
            "save() changed the incarnation of a stored session"
        )
        assert stored.version == 0, "a refused save() changed the stored version"

    # --- get_or_create and owners ---------------------------------------------

    async def test_get_or_create_makes_a_session_once(
        self, sessions: SessionManager
    ) -> None:
        """The way in for a program that does not care whether it is the first."""
        made = await sessions.get_or_create("ada", user_id="ann")
        assert made.version == 0, "get_or_create() must create what is not there"
        assert made.user_id == "ann", "get_or_create() lost the owner"
        await _say(sessions, made, "Hello.")
        await _stored(sessions, "ada")

        found = await sessions.get_or_create("ada", user_id="ann")

        assert found.incarnation == made.incarnation, (
            "get_or_create() put a new session in the place of the stored one"
        )
        assert _texts(found) == ["Hello."], "get_or_create() must return what is stored"

    async def test_get_or_create_refuses_another_user(
        self, sessions: SessionManager
    ) -> None:
        """To know an id is not to own the conversation."""
        await _say(sessions, await sessions.create("diary", user_id="ann"), "secret")
        await sessions.create("nobody's")
        await _stored(sessions, "nobody's")

        promise = "get_or_create() must raise SessionOwnerError for another user"
        for session_id, user_id in (
            ("diary", "bob"),
            ("diary", "Ann"),
            ("diary", "ann "),
            ("nobody's", "bob"),
        ):
            with _Refused(SessionOwnerError, promise) as refused:
                await sessions.get_or_create(session_id, user_id=user_id)
            assert refused.error.session_id == session_id, "the error names another id"
        assert _texts(await _stored(sessions, "diary")) == ["secret"], (
            "a refused get_or_create() changed what is stored"
        )

    async def test_get_or_create_without_a_user_asks_no_question(
        self, sessions: SessionManager
    ) -> None:
        """No `user_id` means that the caller has checked, or has only one user."""
        await _say(sessions, await sessions.create("diary", user_id="ann"), "mine")
        await _stored(sessions, "diary")

        found, errors = await _together(
            [sessions.get_or_create("diary")], SessionOwnerError
        )

        assert errors == [], "get_or_create() without a user_id must ask no question"
        assert _texts(found[0]) == ["mine"], "get_or_create() must give what is stored"
        assert found[0].user_id == "ann", "get_or_create() lost the owner"

    async def test_the_owner_stays_for_good(self, sessions: SessionManager) -> None:
        """A save that changed the owner would give the conversation away."""
        session = await sessions.create("diary", user_id="ann")
        with suppress(AttributeError):
            session.user_id = "bob"  # type: ignore[misc]
        await _say(sessions, session, "mine")
        await _stored(sessions, "diary")
        await sessions.get_or_create("diary")

        assert (await _stored(sessions, "diary")).user_id == "ann", (
            "the owner of a stored session changed"
        )

    # --- ids ------------------------------------------------------------------

    async def test_an_id_that_no_store_can_keep_is_refused(
        self, sessions: SessionManager
    ) -> None:
        """The same ids everywhere, or a program can't move to another store."""
        for session_id, problem in _BAD_IDS.items():
            promise = f"an id that {problem} must raise InvalidSessionIdError"
            with _Refused(InvalidSessionIdError, f"create(): {promise}"):
                await sessions.create(session_id)
            with _Refused(InvalidSessionIdError, f"get(): {promise}"):
                await sessions.get(session_id)
            with _Refused(InvalidSessionIdError, f"get_or_create(): {promise}"):
                await sessions.get_or_create(session_id)

    async def test_an_id_may_have_255_bytes(self, sessions: SessionManager) -> None:
        """Ids of sessions inside sessions grow; file names must not be their limit."""
        longest = ["a" * 255, "a" * 254, "é" * 127, "\U0001f600" * 63, "/" * 255]
        for session_id in longest:
            await _say(sessions, await _created(sessions, session_id), session_id)
        for session_id in longest:
            assert _texts(await _stored(sessions, session_id)) == [session_id], (
                "a long id led to another session"
            )

    async def test_ids_are_told_apart_byte_for_byte(
        self, sessions: SessionManager
    ) -> None:
        """Many file systems fold case or accents; then two users share one session."""
        for one, other in (("A", "a"), ("É", "é"), ("caf\u00e9", "cafe\u0301")):
            await _say(sessions, await _created(sessions, one), "one")
            await _say(sessions, await _created(sessions, other), "other")

            assert _texts(await _stored(sessions, one)) == ["one"], (
                f"{one!a} and {other!a} share a session"
            )

    async def test_odd_ids_share_nothing(self, sessions: SessionManager) -> None:
        """If `a:b` and `a_b` were one file, two people would share a conversation."""
        kept = []
        for session_id in _ODD_IDS:
            with suppress(InvalidSessionIdError):
                session = await _created(sessions, session_id)
                session.state["marker"] = session_id
                await _say(sessions, session, session_id)
                kept.append(session_id)

        for session_id in kept:
            stored = await _stored(sessions, session_id)
            assert stored.session_id == session_id, "get() gives another session's id"
            assert _texts(stored) == [session_id], f"{session_id!a} shares its events"
            assert stored.state == {"marker": session_id}, (
                f"{session_id!a} shares its state with another id"
            )

    async def test_nothing_is_written_outside_the_folder(
        self,
        sessions: SessionManager,
        folder: Path,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """An id comes from outside: `../../x` must not choose where files are put."""
        self._skip_unless_durable()
        elsewhere = tmp_path / "where" / "it" / "runs"
        elsewhere.mkdir(parents=True)
        monkeypatch.chdir(elsewhere)
        before = _paths_outside(folder, tmp_path)

        for session_id in (*_ODD_IDS, f"{tmp_path}/absolute"[:255]):
            with suppress(InvalidSessionIdError, SessionExistsError):
                await _say(sessions, await sessions.create(session_id), "x")

        assert _paths_outside(folder, tmp_path) - before == set(), (
            "something was written outside the folder: encode ids in file names"
        )

    # --- many sessions, long sessions -----------------------------------------

    async def test_many_sessions_do_not_leak_into_each_other(
        self, sessions: SessionManager
    ) -> None:
        """A hundred people talk at once, each about something else."""
        ids = [f"user-{number}" for number in range(20)]
        talks = [await sessions.create(each, user_id=each) for each in ids]
        for word in ("one", "two", "three"):
            for session in talks:
                session.state[f"{word} of {session.session_id}"] = word
                await _say(sessions, session, f"{word} of {session.session_id}")

        for each in ids:
            stored = await _stored(sessions, each)
            expected = {f"{word} of {each}": word for word in ("one", "two", "three")}
            assert _texts(stored) == [*expected], (
                "a session has events of another one, or lost its own"
            )
            assert stored.state == expected, "a session has the state of another one"
            assert stored.user_id == each, "a session has the owner of another one"

    async def test_500_events_in_one_save_keep_their_order(
        self, sessions: SessionManager
    ) -> None:
        """One long run with many tools is a single conversation, in one order."""
        words = [f"event {number}" for number in range(500)]
        session = await sessions.create("ada")
        session.append(*map(_said, words))

        await sessions.save(session)

        assert _texts(await _stored(sessions, "ada")) == words, (
            "one save() of 500 events lost some, or changed their order"
        )

    async def test_50_saves_keep_their_order(self, sessions: SessionManager) -> None:
        """Versions 9 and 10, or 99 and 100, must not be sorted as texts."""
        words = [f"event {number}" for number in range(50)]
        session = await sessions.create("ada")
        for word in words:
            await _say(sessions, session, word)

        stored = await _stored(sessions, "ada")
        assert _texts(stored) == words, (
            "50 saves lost an event, or changed the order; does 10 come after 9?"
        )
        assert stored.version == 50, "50 saves must give version 50"

    # --- a restart, a second manager ------------------------------------------

    async def test_what_is_saved_survives_a_restart(self, reopen: Reopen) -> None:
        """The program ends, the conversation does not.

        The first manager is not closed: a program that was killed closes nothing.
        """
        self._skip_unless_durable()
        first = reopen()
        session = await first.create("ada", user_id="ann")
        session.state = _plain_values()
        session.append(*_one_of_each())
        await first.save(session)
        await _say(first, session, "goodbye")

        stored = await reopen().get("ada")

        assert stored is not None, (
            "save() returned, but a new manager on the same folder does not have the "
            "session: what is acknowledged must survive a restart"
        )
        assert _texts(stored)[-1:] == ["goodbye"], (
            "save() returned, but a new manager on the same folder does not have the "
            "event: what is acknowledged must survive a restart"
        )
        assert stored.to_json() == session.to_json(), (
            "a new manager on the same folder gives a session that is not the same"
        )
        await _say(reopen(), stored, "hello again")  # and it goes on

    async def test_two_managers_see_each_others_saves(self, reopen: Reopen) -> None:
        """What a manager remembers of a session may be out of date at any time."""
        self._skip_unless_durable()
        one, other = reopen(), reopen()
        await one.create("ada")
        words = [f"turn {number}" for number in range(6)]

        for turn, manager in enumerate([one, other] * 3):
            session = await _stored(manager, "ada")
            assert _texts(session) == words[:turn], (
                "get() does not see what another manager on the same folder saved"
            )
            assert session.state == ({"turn": turn - 1} if turn else {}), (
                "get() gives a state older than the one that another manager saved"
            )
            session.state["turn"] = turn
            await _say(manager, session, words[turn])

    # --- races ----------------------------------------------------------------

    async def test_of_8_creates_at_once_one_wins(self, reopen: Reopen) -> None:
        """To look and then to create lets two callers through; it must be one step."""
        managers = [reopen(), reopen()] * 4
        for session_id in ("a", "b", "c", "d", "e"):
            created, refused = await _together(
                [manager.create(session_id) for manager in managers], SessionExistsError
            )

            assert len(created) == 1, (
                f"of 8 create() calls at once {len(created)} won; it must be one"
            )
            assert len(refused) == 7, "the other 7 must raise SessionExistsError"
            stored = await _stored(managers[0], session_id)
            assert stored.incarnation == created[0].incarnation, (
                "create() returned a session that is not the stored one"
            )

    async def test_8_get_or_creates_at_once_give_one_session(
        self, reopen: Reopen
    ) -> None:
        """Two tabs that open together: both get the session, and nobody an error."""
        managers = [reopen(), reopen()] * 4
        await managers[0].create("one before")
        await _stored(managers[1], "one before")
        for session_id in ("a", "b", "c", "d", "e"):
            found, errors = await _together(
                [manager.get_or_create(session_id) for manager in managers],
                SessionExistsError,
            )

            assert errors == [], (
                "get_or_create() must not raise because another caller was faster"
            )
            assert len({session.incarnation for session in found}) == 1, (
                "get_or_create() at the same time gave different sessions"
            )

    async def test_of_16_saves_at_once_one_wins_and_no_event_is_lost(
        self, reopen: Reopen
    ) -> None:
        """The check of the version and the write must be one step.

        If there is any `await` between them, another save slips in, and its events
        are overwritten after they were acknowledged.
        """
        managers = [reopen(), reopen()] * 8
        await _say(managers[0], await managers[0].create("ada"), "start")
        words = [f"racer {number}" for number in range(len(managers))]
        racers = [await _stored(manager, "ada") for manager in managers]
        for racer, word in zip(racers, words, strict=True):
            racer.append(_said(word))

        async def save(manager: SessionManager, racer: Session) -> Session:
            await manager.save(racer)
            return racer

        won, refused = await _together(
            [save(*each) for each in zip(managers, racers, strict=True)],
            SessionConflictError,
        )

        assert len(won) == 1, (
            f"of 16 save() calls of one version {len(won)} were acknowledged; it must "
            "be one, or acknowledged events are lost"
        )
        assert len(refused) == 15, "the other 15 must raise SessionConflictError"
        stored = await _stored(managers[0], "ada")
        assert _texts(stored) == ["start", *_texts(won[0])[1:]], (
            "after the race only the event of the winner may be stored"
        )
        assert stored.version == 2, "16 saves of which one won are one version"

    async def test_16_writers_that_try_again_all_get_their_event_in(
        self, reopen: Reopen
    ) -> None:
        """Get, append, save, and again on a conflict: no event is lost or doubled."""
        managers = [reopen(), reopen()] * 8
        await managers[0].create("ada")

        async def write(manager: SessionManager, word: str) -> None:
            for _ in managers:  # each conflict is another's success, so 15 at most
                session = await _stored(manager, "ada")
                with suppress(SessionConflictError):
                    return await _say(manager, session, word)
            _fail("save() refused a session 16 times that had just been got again")

        words = [f"writer {number:02}" for number in range(len(managers))]
        await asyncio.gather(*map(write, managers, words))

        stored = await _stored(managers[0], "ada")
        assert sorted(_texts(stored)) == words, (
            "an acknowledged event is lost or doubled after 16 writers took turns"
        )
        assert stored.version == 16, "each acknowledged save() must be one version"

    # --- other processes ------------------------------------------------------

    async def test_a_second_process_goes_on_with_the_session(
        self, sessions: SessionManager, folder: Path
    ) -> None:
        """A web server has several workers: whichever is asked must know everything.

        The second process ends without closing anything, as one that was killed.
        """
        self._skip_unless_durable()
        await _say(sessions, await sessions.create("ada", user_id="ann"), "here")

        [seen] = await self._elsewhere(folder, "turn", ["ada"])

        assert seen == ["here"], "a second process does not see what was saved here"
        stored = await _stored(sessions, "ada")
        assert _texts(stored) == ["here", "there"], (
            "what a second process saved is not seen here: what is acknowledged must "
            "survive the end of the process"
        )
        assert stored.state == {"by": "a second process"}, "its state is not seen here"
        assert stored.user_id == "ann", "the owner got lost in the second process"

    async def test_of_4_processes_that_create_one_session_one_wins(
        self, sessions: SessionManager, folder: Path
    ) -> None:
        """A lock inside one program does not help against the program beside it."""
        self._skip_unless_durable()
        ids = [f"session {number}" for number in range(10)]
        await sessions.create("of the first process")

        wins = await self._elsewhere(folder, "create", ids, processes=4)

        for session_id in ids:
            winners = [number for number, won in enumerate(wins) if session_id in won]
            assert len(winners) == 1, (
                f"{len(winners)} of 4 processes created {session_id!r}; it must be one"
            )
            stored = await _stored(sessions, session_id)
            assert stored.incarnation == wins[winners[0]][session_id], (
                "the session of the process that won was overwritten by another one"
            )

    def _skip_unless_durable(self) -> None:
        if not self.durable:
            pytest.skip("durable = False: these sessions end with their manager")

    async def _elsewhere(
        self, folder: Path, task: str, ids: list[str], *, processes: int = 1
    ) -> list[Any]:
        """Do a task in processes of their own, at the same time; return the answers."""
        __tracebackhide__ = True
        if "<locals>" in type(self).__qualname__:
            pytest.skip("a second process finds only a class at the top of its file")
        module = sys.modules[type(self).__module__]
        job = {
            "path": sys.path,
            "module": module.__name__,
            "file": module.__file__,
            "test": type(self).__qualname__,
            "folder": str(folder),
            "task": task,
            "ids": ids,
        }
        heard = await asyncio.to_thread(_run_processes, json.dumps(job), processes)
        return [*map(_answer, heard)]


# --- Values -------------------------------------------------------------------

_TEXTS = (
    "",
    "  spaces at both ends  ",
    "line\nline\r\nline\rline\ttab",
    "line\u2028line\u2029line\x85line\x0bline\x0cline",
    "NUL \x00, BEL \x07, DEL \x7f",
    "na\u00efve cafe\u0301 \u4f60\u597d \u05e9\u05dc\u05d5\u05dd \u0e44\u0e17\u0e22",
    "\U0001f600 \U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f1eb\U0001f1f7",
    "\ufeff\ufffe\uffff\U0010ffff",
    "\\ \" ' ` %s {} \\u0000 \\ud83d \\n <!-- ]]> --; drop table",
    "long " * 10_000,
)

_BAD_IDS = {
    "": "is empty",
    "x\0y": "holds a NUL",
    "x\ny": "holds a line end",
    "x\x7f": "holds a control character",
    "x\x85": "holds a control character",
    "a" * 256: "has 256 bytes",
    "\u00e9" * 128: "has 256 bytes in 128 letters",
    "a\ud83d": "holds half an emoji",
}

_ODD_IDS = (
    *("../../x", "../x", "x", "..", ".", "/abs/x", "abs/x", "abs//x", "abs/x/", "~"),
    *("a/b", "a\\b", "a:b", "a_b", "a-b", "a b", "a.b", "a%2fb", "a%2Fb", "a+b", "ab"),
    *("A", "a", "\u00c9", "\u00e9", "e\u0301", "\ufb01", "fi", "\u0131", "i", "I"),
    *("CON", "con", "nul.txt", "COM1", "%2e%2e", "%", "%%", "%00", "$HOME", "-rf", "*"),
    *("x;drop table", "x' --", 'x"', "x`", " x ", "x ", " x", "x.", ".x", "x.json"),
    *("\u4f60\u597d", "\U0001f600", "\u202e", "\u2028", "\ufeff", "\u00ad"),
    *("61", "0x61", "a/../a", "v1", "0", "00", "head.json", "__init__", "None", "null"),
)


def _plain_values() -> dict[str, Any]:
    """Return every kind of value that JSON has a word for."""
    return {
        "zuletzt": "the keys are not in the order of the alphabet",
        "ints": [0, -1, 2**31, 2**53 + 1, 2**64, -(10**40)],
        "floats": [1.0, -0.0, 0.1, 1e-300, 5e-324, 1.7976931348623157e308, 1e22],
        "others": [None, True, False, "", [], {}],
        "1": {"1.0": {"true": {"": [[[{"deep": [None]}]]]}}},
        "a": {"z": 1, "y": 2, "x": 3},
    }


def _one_of_each() -> list[Event]:
    """Return an event of each kind of item, each field of it set at least once."""
    extra: dict[str, Any] = {"z": 1, "a": [1.0, -0.0, True, {"y": {}, "b": []}]}
    picture = Media(media_type="image/png", data="aGVsbG8=", extra=extra)
    return [
        _said("Hello \U0001f600\u2028"),
        Event(
            author="assistant",
            content=(
                Reasoning(content="", signature="s" * 4_000),
                Reasoning(content="Hm.", signature="c2ln", extra=extra),
                Reasoning(content="", redacted="c2VhbGVk"),
                Message(role="assistant", content="", extra=extra),
                ToolCall(name="find", arguments=_plain_values(), extra=extra),
                ToolCall(name="find", tool_call_id="toolu_1", arguments={}),
                ToolCall(name="find", tool_call_id="toolu_2", unreadable='{"a": '),
                Opaque(block={"type": "brand_new", "payload": extra, "a": 2**70}),
            ),
            execution_id="run-1",
            timestamp=datetime(2026, 3, 29, 1, 30, 0, 123_456, tzinfo=UTC),
            usage=Usage(
                input_tokens=1,
                output_tokens=2,
                cache_read_tokens=3,
                cache_write_tokens=4,
            ),
            model="a-model",
            stop_reason="tool_use",
            request_id="req_1",
            prefix_digest="d1",
        ),
        Event(author="assistant", content=(), interrupted=True),
        Event(
            author="user",
            content=(
                ToolConfirmation(
                    tool_call_id="toolu_1",
                    approved=True,
                    modified_arguments={},
                    by="ann",
                    fingerprint="f1",
                    path=("call_1", "call_2"),
                ),
                ToolConfirmation(tool_call_id="toolu_2", approved=False, reason="no"),
                ToolConfirmation(tool_call_id="toolu_3", approved=True, answer="42"),
            ),
        ),
        Event(
            author="tool",
            content=(
                ToolResult(tool_call_id="toolu_1", name="find", content=""),
                ToolResult(
                    tool_call_id="toolu_2",
                    name="find",
                    content="found",
                    media=(picture, Media(media_type="image/png", url="https://x/y")),
                    details=[_plain_values()],
                ),
                ToolResult(tool_call_id="toolu_3", name="find", status="denied"),
            ),
        ),
        Event(
            author="notes",
            content=(
                Note(kind="mine", text="shown", data=_plain_values()),
                Note(kind="of a kind that nobody knows"),
                picture,
            ),
        ),
    ]


class _Colour(Enum):
    RED = "red"


class _Word(StrEnum):
    RED = "red"


class _Form(BaseModel):
    name: str = "Ada"


def _unspeakable_values() -> dict[str, object]:
    """Return what would be lost or change its type on the way through JSON."""
    endless: list[object] = []
    endless.append(endless)
    deep: list[object] = []
    for _ in range(200):
        deep = [deep]
    return {
        "a Decimal": Decimal("1.10"),
        "a datetime": datetime.now(UTC),
        "a date": date(2026, 1, 1),
        "a timedelta": timedelta(1),
        "a UUID": UUID(int=7),
        "an Enum": _Colour.RED,
        "an Enum that is a str": _Word.RED,
        "a set": {1, 2},
        "a tuple": (1, 2),
        "a pydantic model": _Form(),
        "an object": object(),
        "bytes": b"x",
        "a complex number": 1j,
        "NaN": float("nan"),
        "Infinity": float("inf"),
        "a key that is an int": {1: "x"},
        "a key that is None": {None: "x"},
        "a list that holds itself": endless,
        "a value nested over 200 levels": deep,
        "half an emoji": "\ud83d",
    }


def _said(text: str) -> Event:
    return Event(author="user", content=(Message(role="user", content=text),))


# --- Helpers ------------------------------------------------------------------


async def _say(sessions: SessionManager, session: Session, text: str) -> None:
    session.append(_said(text))
    await sessions.save(session)


async def _created(sessions: SessionManager, session_id: str) -> Session:
    """Create a session under an id that must be free."""
    assert await sessions.get(session_id) is None, (
        f"{session_id!a:.80} finds the session of another id"
    )
    return await sessions.create(session_id)


async def _stored(sessions: SessionManager, session_id: str) -> Session:
    """Return what is stored under an id that must be there."""
    __tracebackhide__ = True
    session = await sessions.get(session_id)
    if session is None:
        _fail(f"get({session_id!a:.80}) is None, but the session was stored before")
    return session


def _texts(session: Session) -> list[str]:
    """Return the text of each message, in order."""
    return [
        item.content
        for event in session.events
        for item in event.content
        if isinstance(item, Message)
    ]


def _paths_outside(folder: Path, tmp_path: Path) -> set[Path]:
    """Return the paths around a folder, up to the folder beside `tmp_path`."""
    around = {*tmp_path.rglob("*"), *tmp_path.parent.iterdir(), *Path("/abs").glob("*")}
    return {path for path in around if not path.is_relative_to(folder)}


async def _together(
    calls: Sequence[Awaitable[T]], refusal: type[Exception]
) -> tuple[list[T], list[Exception]]:
    """Make all calls at once; return the results, and the errors of this kind."""
    __tracebackhide__ = True
    results: list[T] = []
    refused: list[Exception] = []
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(outcome, refusal):
            refused.append(outcome)
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            results.append(outcome)
    return results, refused


class _Refused(Generic[E]):
    """A block that must raise one error; otherwise the test fails with the promise."""

    error: E

    def __init__(self, kind: type[E], promise: str) -> None:
        self._kind = kind
        self._promise = promise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        __tracebackhide__ = True
        if error is None:
            _fail(f"{self._promise}, but it raised nothing")
        if isinstance(error, self._kind):
            self.error = error
            return True
        if isinstance(error, Exception):
            error.add_note(f"{self._promise}, but it raised another error")
        return False


class _Outspoken(SessionManager):
    """Passes each call on, and says in plain words if it is not written yet."""

    def __init__(self, manager: SessionManager) -> None:
        self._manager = manager

    async def create(self, session_id: str, user_id: str | None = None) -> Session:
        __tracebackhide__ = True
        with _plain_words():
            session = await self._manager.create(session_id, user_id)
        return _checked(session, "create")

    async def get(self, session_id: str) -> Session | None:
        __tracebackhide__ = True
        with _plain_words():
            session = await self._manager.get(session_id)
        return session if session is None else _checked(session, "get")

    async def save(self, session: Session) -> None:
        __tracebackhide__ = True
        with _plain_words():
            await self._manager.save(session)

    async def get_or_create(
        self, session_id: str, user_id: str | None = None
    ) -> Session:
        __tracebackhide__ = True
        with _plain_words():
            session = await self._manager.get_or_create(session_id, user_id)
        return _checked(session, "get_or_create")


@contextmanager
def _plain_words() -> Iterator[None]:
    __tracebackhide__ = True
    try:
        yield
    except NotImplementedError as error:
        name = traceback.extract_tb(error.__traceback__)[-1].name
        # Without a traceback: the sentence says it all.
        raise pytest.fail.Exception(f"{name} is not written yet", False) from None


def _checked(session: object, verb: str) -> Session:
    __tracebackhide__ = True
    if not isinstance(session, Session):
        _fail(f"{verb}() must return a Session, and returned {session!r:.80}")
    return session


def _fail(sentence: str) -> NoReturn:
    __tracebackhide__ = True
    raise pytest.fail.Exception(sentence) from None


# --- Other processes ----------------------------------------------------------

_CHILD = """
import json, sys
job = json.loads(sys.argv[1])
sys.path[:] = job["path"]
from minagent.testing import contracts
contracts._take_part(job)
"""


def _run_processes(job: str, count: int) -> list[bytes]:
    """Start processes, let them go at the same moment, and return what they say."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _CHILD, job],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for _ in range(count)
    ]
    try:
        heard = [_read_until_ready(process) for process in processes]
        for process in processes:
            with suppress(BrokenPipeError):  # it has failed, and says why
                process.stdin.write(b"go\n")  # type: ignore[union-attr]
        return [
            before + process.communicate()[0]
            for before, process in zip(heard, processes, strict=True)
        ]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _read_until_ready(process: subprocess.Popen[bytes]) -> bytes:
    heard = b""
    for line in process.stdout or ():
        heard += line
        if line.strip() == b"ready":
            break
    return heard


def _answer(heard: bytes) -> Any:
    __tracebackhide__ = True
    answer = re.search(rb"^answer (.*)$", heard, re.MULTILINE)
    if answer is None:
        said = heard.decode(errors="replace")
        _fail(f"a second process on the same folder failed, and said:\n{said}")
    return json.loads(answer[1])


def _take_part(job: dict[str, Any]) -> None:
    """Do the work of a process of its own, and end it as if it were killed."""
    dump_traceback_later(PROCESS_SECONDS, exit=True)
    spec = importlib.util.spec_from_file_location(job["module"], job["file"])
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[job["module"]] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    test = reduce(getattr, job["test"].split("."), module)
    manager = test().open_manager(Path(job["folder"]))  # type: ignore[operator]
    print("ready", flush=True)
    sys.stdin.readline()
    asyncio.run(_work(_TASKS[job["task"]](manager, job["ids"])))


async def _work(task: Awaitable[object]) -> None:
    print("answer", json.dumps(await task), flush=True)
    os._exit(0)


async def _take_a_turn(sessions: SessionManager, ids: list[str]) -> list[str] | None:
    """Return the texts of a session, after adding one and changing the state."""
    session = await sessions.get(ids[0])
    if session is None:
        return None
    before = _texts(session)
    session.state["by"] = "a second process"
    await _say(sessions, session, "there")
    return before


async def _create_each(sessions: SessionManager, ids: list[str]) -> dict[str, str]:
    """Return the incarnations of the sessions that this process won, by their ids."""
    won = {}
    for session_id in ids:
        with suppress(SessionExistsError):
            won[session_id] = (await sessions.create(session_id)).incarnation
    return won


_TASKS = {"turn": _take_a_turn, "create": _create_each}
