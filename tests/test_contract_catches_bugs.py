"""The contract has teeth: each manager below has one bug, and one test that finds it.

`Healthy` is right. Every `Seeded…` class is the contract for a manager that differs
from it in one respect, and names the test that must turn red. All of them run in one
pytest of their own, since their failures are what is wanted.
"""

import asyncio
import json
import os
import time
import unicodedata
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from seeded import Outcomes, check_caught, outcomes_of

from minagent import Event, Session, SessionManager
from minagent.errors import (
    NotSerializableError,
    SessionConflictError,
    SessionExistsError,
    SessionNotFoundError,
)
from minagent.events import thaw, well_formed
from minagent.session import check_session_id
from minagent.testing import SessionManagerContract


class Healthy(SessionManager):
    """Keeps sessions as JSON texts in a dictionary; each step is one method."""

    def __init__(self, folder: Path) -> None:
        self.texts: MutableMapping[str, str] = {}

    async def create(self, session_id: str, user_id: str | None = None) -> Session:
        session = Session(session_id, user_id)
        if session_id in self.texts:
            raise SessionExistsError(session_id)
        self.texts[session_id] = session.to_json()
        return session

    async def get(self, session_id: str) -> Session | None:
        check_session_id(session_id)
        return self.load(session_id)

    async def save(self, session: Session) -> None:
        text = session.to_json(version=session.version + 1)
        await self.check(session)
        self.write(session, text)
        session.mark_saved()

    def load(self, session_id: str) -> Session | None:
        text = self.texts.get(session_id)
        return None if text is None else Session.from_json(text)

    async def check(self, session: Session) -> None:
        stored = self.load(session.session_id)
        if stored is None or stored.incarnation != session.incarnation:
            raise SessionNotFoundError(session.session_id)
        if stored.version != session.version:
            raise SessionConflictError(session.session_id)

    def write(self, session: Session, text: str) -> None:
        self.texts[session.session_id] = text

    def changed(self, text: str, **fields: Any) -> str:
        return json.dumps(json.loads(text) | fields)


class Contract(SessionManagerContract):
    durable = False
    caught_by: ClassVar[str]
    Manager: ClassVar[type[Healthy]]

    def open_manager(self, tmp_path: Path) -> SessionManager:
        return self.Manager(tmp_path)


class SeededNothing(Contract):
    Manager = Healthy


# --- create and get -----------------------------------------------------------


class SeededFirstVersionIsOne(Contract):
    caught_by = "test_create_gives_an_empty_session"

    class Manager(Healthy):
        async def create(self, session_id: str, user_id: str | None = None) -> Session:
            await super().create(session_id, user_id)
            self.texts[session_id] = self.changed(self.texts[session_id], version=1)
            return Session.from_json(self.texts[session_id])


class SeededAnotherOneStored(Contract):
    caught_by = "test_get_finds_what_create_stored"

    class Manager(Healthy):
        async def create(self, session_id: str, user_id: str | None = None) -> Session:
            await super().create(session_id, user_id)
            return Session(session_id, user_id)


class SeededOverwritingCreate(Contract):
    caught_by = "test_a_taken_id_is_refused_and_what_is_stored_stays"

    class Manager(Healthy):
        async def create(self, session_id: str, user_id: str | None = None) -> Session:
            self.texts.pop(session_id, None)
            return await super().create(session_id, user_id)


class SeededLostOwner(Contract):
    caught_by = "test_create_keeps_the_owner"

    class Manager(Healthy):
        async def create(self, session_id: str, user_id: str | None = None) -> Session:
            return await super().create(session_id)


class SeededConstantIncarnation(Contract):
    caught_by = "test_create_gives_each_session_an_incarnation_of_its_own"

    class Manager(Healthy):
        async def create(self, session_id: str, user_id: str | None = None) -> Session:
            await super().create(session_id, user_id)
            text = self.changed(self.texts[session_id], incarnation="1")
            self.texts[session_id] = text
            return Session.from_json(text)


class SeededSharedDefaultState(Contract):
    caught_by = "test_two_new_sessions_share_nothing"

    class Manager(Healthy):
        default: ClassVar[dict[str, Any]] = {}

        async def create(self, session_id: str, user_id: str | None = None) -> Session:
            session = await super().create(session_id, user_id)
            session.state = self.default
            return session


class SeededGetRaises(Contract):
    caught_by = "test_an_unknown_id_is_none_and_get_creates_nothing"

    class Manager(Healthy):
        async def get(self, session_id: str) -> Session | None:
            return Session.from_json(self.texts[session_id])


class SeededGetCreates(Contract):
    caught_by = "test_an_unknown_id_is_none_and_get_creates_nothing"

    class Manager(Healthy):
        async def get(self, session_id: str) -> Session | None:
            found = await super().get(session_id)
            if found is None:
                self.texts[session_id] = Session(session_id).to_json()
            return found


class SeededAliasingGet(Contract):
    caught_by = "test_changing_what_get_returned_changes_nothing_stored"

    class Manager(Healthy):
        def __init__(self, folder: Path) -> None:
            super().__init__(folder)
            self.handed_out: dict[str, Session] = {}

        async def get(self, session_id: str) -> Session | None:
            found = await super().get(session_id)
            return found and self.handed_out.setdefault(session_id, found)


class SeededAliasingCreate(Contract):
    caught_by = "test_changing_what_create_returned_changes_nothing_stored"

    class Manager(Healthy):
        def __init__(self, folder: Path) -> None:
            super().__init__(folder)
            self.fresh: dict[str, Session] = {}

        async def create(self, session_id: str, user_id: str | None = None) -> Session:
            session = await super().create(session_id, user_id)
            self.fresh[session_id] = session
            return session

        def load(self, session_id: str) -> Session | None:
            found = super().load(session_id)
            if found and found.version == 0:
                return Session.from_json(self.fresh[session_id].to_json())
            return found


class SeededAliasingSave(Contract):
    caught_by = "test_changing_what_was_saved_changes_nothing_stored"

    class Manager(Healthy):
        def __init__(self, folder: Path) -> None:
            super().__init__(folder)
            self.states: dict[str, dict[str, Any]] = {}

        async def get(self, session_id: str) -> Session | None:
            found = await super().get(session_id)
            if found and session_id in self.states:
                found.state = {**self.states[session_id]}
            return found

        def write(self, session: Session, text: str) -> None:
            super().write(session, text)
            self.states[session.session_id] = session.state


class SeededCallsThatCanBeChanged(Contract):
    caught_by = "test_a_stored_call_cannot_be_changed_through_a_copy"

    class Manager(Healthy):
        def __init__(self, folder: Path) -> None:
            super().__init__(folder)
            self.events: dict[str, list[Event]] = {}

        def load(self, session_id: str) -> Session | None:
            found = super().load(session_id)
            if found is None or not found.events:
                return found
            return Session(session_id, events=self.events[session_id])

        def write(self, session: Session, text: str) -> None:
            super().write(session, text)
            self.events[session.session_id] = [*session.events]
            for event in session.events:
                for call in event.tool_calls:
                    object.__setattr__(call, "arguments", thaw(call.arguments))


class SeededLoadedAsUnsaved(Contract):
    caught_by = "test_get_gives_a_session_without_unsaved_events"

    class Manager(Healthy):
        async def get(self, session_id: str) -> Session | None:
            found = await super().get(session_id)
            if found is None:
                return None
            session = Session(
                session_id,
                found.user_id,
                incarnation=found.incarnation,
                version=found.version,
            )
            session.append(*found.events)
            return session


# --- save ---------------------------------------------------------------------


class SeededNeverWrites(Contract):
    caught_by = "test_save_stores_the_events"

    class Manager(Healthy):
        def write(self, session: Session, text: str) -> None:
            pass


class SeededForgottenMark(Contract):
    caught_by = "test_save_counts_the_version_and_leaves_nothing_unsaved"

    class Manager(Healthy):
        async def save(self, session: Session) -> None:
            text = session.to_json(version=session.version + 1)
            await self.check(session)
            self.write(session, text)


class SeededOnlyNewEventsKept(Contract):
    caught_by = "test_later_saves_add_to_the_earlier_ones"

    class Manager(Healthy):
        def write(self, session: Session, text: str) -> None:
            new = [json.loads(event.to_json()) for event in session.unsaved]
            super().write(session, self.changed(text, events=new))


class SeededDoubledEvents(Contract):
    caught_by = "test_later_saves_add_to_the_earlier_ones"

    class Manager(Healthy):
        def write(self, session: Session, text: str) -> None:
            before = json.loads(self.texts[session.session_id])["events"]
            events = before + json.loads(text)["events"]
            super().write(session, self.changed(text, events=events))


class SeededLostState(Contract):
    caught_by = "test_the_state_is_saved_without_any_event"

    class Manager(Healthy):
        def write(self, session: Session, text: str) -> None:
            super().write(session, self.changed(text, state={}))


class SeededStateSavedWithEventsOnly(Contract):
    caught_by = "test_the_state_is_saved_without_any_event"

    class Manager(Healthy):
        def write(self, session: Session, text: str) -> None:
            if session.unsaved:
                super().write(session, text)


class SeededMergedState(Contract):
    caught_by = "test_what_is_gone_from_the_state_is_gone"

    class Manager(Healthy):
        def write(self, session: Session, text: str) -> None:
            before = json.loads(self.texts[session.session_id])["state"]
            state = before | json.loads(text)["state"]
            super().write(session, self.changed(text, state=state))


class SeededShallowChangeTracking(Contract):
    caught_by = "test_a_change_deep_in_the_state_is_saved"

    class Manager(Healthy):
        def __init__(self, folder: Path) -> None:
            super().__init__(folder)
            self.seen: dict[str, dict[str, int]] = {}

        def write(self, session: Session, text: str) -> None:
            marks = {key: id(value) for key, value in session.state.items()}
            if self.seen.get(session.session_id) == marks:
                before = json.loads(self.texts[session.session_id])["state"]
                text = self.changed(text, state=before)
            self.seen[session.session_id] = marks
            super().write(session, text)


class SeededLostThoughts(Contract):
    caught_by = "test_every_kind_of_item_comes_back"

    class Manager(Healthy):
        def write(self, session: Session, text: str) -> None:
            events = json.loads(text)["events"]
            for event in events:
                event["content"] = [
                    item for item in event["content"] if item["type"] != "reasoning"
                ]
            super().write(session, self.changed(text, events=events))


class SeededOrderOfTime(Contract):
    caught_by = "test_order_is_the_order_of_writing"

    class Manager(Healthy):
        def write(self, session: Session, text: str) -> None:
            events = json.loads(text)["events"]
            events.sort(key=lambda event: event["timestamp"])
            super().write(session, self.changed(text, events=events))


class SeededSortedKeys(Contract):
    caught_by = "test_events_come_back_as_the_same_json"

    class Manager(Healthy):
        def write(self, session: Session, text: str) -> None:
            super().write(session, json.dumps(json.loads(text), sort_keys=True))


class SeededNumbersAsFloats(Contract):
    caught_by = "test_the_state_comes_back_with_the_same_types"

    class Manager(Healthy):
        def write(self, session: Session, text: str) -> None:
            state = json.loads(session.dump_state(), parse_int=float)
            super().write(session, self.changed(text, state=state))


class SeededLineEnds(Contract):
    caught_by = "test_text_comes_back_letter_by_letter"

    class Manager(Healthy):
        def write(self, session: Session, text: str) -> None:
            super().write(session, text.replace("\\r\\n", "\\n"))


class SeededChangedTypes(Contract):
    caught_by = "test_a_value_that_json_has_no_word_for_is_refused"

    class Manager(Healthy):
        async def save(self, session: Session) -> None:
            state = session.state
            try:
                session.state = json.loads(json.dumps(state, default=str))
                await super().save(session)
            finally:
                session.state = state


class SeededMendedEmoji(Contract):
    caught_by = "test_half_an_emoji_is_refused"

    class Manager(Healthy):
        async def save(self, session: Session) -> None:
            session.state = well_formed(session.state)
            await super().save(session)


class SeededHalfSaveOfEvents(Contract):
    caught_by = "test_a_refused_save_stores_nothing_of_it"

    class Manager(Healthy):
        async def save(self, session: Session) -> None:
            try:
                await super().save(session)
            except NotSerializableError:
                stored = json.loads(self.texts[session.session_id])
                stored["events"] += [json.loads(e.to_json()) for e in session.unsaved]
                self.texts[session.session_id] = json.dumps(stored)
                raise


class SeededHalfSaveOfVersion(Contract):
    caught_by = "test_a_refused_save_stores_nothing_of_it"

    class Manager(Healthy):
        async def save(self, session: Session) -> None:
            try:
                await super().save(session)
            except NotSerializableError:
                text = self.texts[session.session_id]
                self.texts[session.session_id] = self.changed(
                    text, version=session.version + 1
                )
                raise


class SeededMarkedBeforeWritten(Contract):
    caught_by = "test_a_refused_save_stores_nothing_of_it"

    class Manager(Healthy):
        async def save(self, session: Session) -> None:
            await self.check(session)
            session.mark_saved()
            self.write(session, session.to_json())


# --- versions -----------------------------------------------------------------


class SeededNoVersionCheck(Contract):
    caught_by = "test_a_stale_save_is_refused_and_nothing_is_written"

    class Manager(Healthy):
        async def check(self, session: Session) -> None:
            if session.session_id not in self.texts:
                raise SessionNotFoundError(session.session_id)


class SeededSwallowedConflict(Contract):
    caught_by = "test_a_stale_save_is_refused_and_nothing_is_written"

    class Manager(Healthy):
        async def save(self, session: Session) -> None:
            try:
                await super().save(session)
            except SessionConflictError:
                session.mark_saved()


class SeededConflictAfterTheWrite(Contract):
    caught_by = "test_a_stale_save_is_refused_and_nothing_is_written"

    class Manager(Healthy):
        async def check(self, session: Session) -> None:
            try:
                await super().check(session)
            except SessionConflictError:
                self.write(session, session.to_json())
                raise


class SeededEventsDroppedByAConflict(Contract):
    caught_by = "test_the_loser_of_a_conflict_keeps_what_it_wanted_to_save"

    class Manager(Healthy):
        async def check(self, session: Session) -> None:
            try:
                await super().check(session)
            except SessionConflictError:
                session.mark_saved()
                raise


class SeededVersionOfEventsOnly(Contract):
    caught_by = "test_a_stale_save_of_the_state_alone_is_refused"

    class Manager(Healthy):
        async def check(self, session: Session) -> None:
            if session.unsaved:
                await super().check(session)


class SeededSaveCreates(Contract):
    caught_by = "test_a_session_that_was_never_created_cannot_be_saved"

    class Manager(Healthy):
        async def check(self, session: Session) -> None:
            if session.session_id in self.texts:
                await super().check(session)


class SeededIgnoredIncarnation(Contract):
    caught_by = "test_a_session_that_was_made_again_is_another_one"

    class Manager(Healthy):
        async def check(self, session: Session) -> None:
            stored = self.load(session.session_id)
            if stored is None:
                raise SessionNotFoundError(session.session_id)
            if stored.version != session.version:
                raise SessionConflictError(session.session_id)


# --- many sessions, long sessions ---------------------------------------------


class SeededOneStateForAll(Contract):
    caught_by = "test_many_sessions_do_not_leak_into_each_other"

    class Manager(Healthy):
        def __init__(self, folder: Path) -> None:
            super().__init__(folder)
            self.state: dict[str, Any] = {}

        def write(self, session: Session, text: str) -> None:
            self.state |= json.loads(text)["state"]
            super().write(session, self.changed(text, state=self.state))


class SeededFirstPageOnly(Contract):
    caught_by = "test_500_events_in_one_save_keep_their_order"

    class Manager(Healthy):
        def write(self, session: Session, text: str) -> None:
            events = json.loads(text)["events"]
            super().write(session, self.changed(text, events=events[:100]))


class SeededVersionsSortedAsText(Contract):
    caught_by = "test_50_saves_keep_their_order"

    class Manager(Healthy):
        def __init__(self, folder: Path) -> None:
            super().__init__(folder)
            self.saves: dict[str, list[Any]] = {}

        def write(self, session: Session, text: str) -> None:
            new = [json.loads(event.to_json()) for event in session.unsaved]
            self.saves[str(session.version)] = new
            events = [event for key in sorted(self.saves) for event in self.saves[key]]
            super().write(session, self.changed(text, events=events))


# --- owners and ids -----------------------------------------------------------


class SeededIgnoredOwner(Contract):
    caught_by = "test_get_or_create_refuses_another_user"

    class Manager(Healthy):
        async def get_or_create(
            self, session_id: str, user_id: str | None = None
        ) -> Session:
            return await super().get_or_create(session_id)


class SeededNamelessIsRefused(Contract):
    caught_by = "test_get_or_create_without_a_user_asks_no_question"

    class Manager(Healthy):
        async def get_or_create(
            self, session_id: str, user_id: str | None = None
        ) -> Session:
            return await super().get_or_create(session_id, user_id or "anonymous")


class SeededAlwaysCreates(Contract):
    caught_by = "test_get_or_create_makes_a_session_once"

    class Manager(Healthy):
        async def get_or_create(
            self, session_id: str, user_id: str | None = None
        ) -> Session:
            self.texts.pop(session_id, None)
            return await self.create(session_id, user_id)


class SeededOwnerLostBySave(Contract):
    caught_by = "test_the_owner_stays_for_good"

    class Manager(Healthy):
        def write(self, session: Session, text: str) -> None:
            super().write(session, self.changed(text, user_id=None))


class SeededAnyId(Contract):
    caught_by = "test_an_id_that_no_store_can_keep_is_refused"

    class Manager(Healthy):
        async def get(self, session_id: str) -> Session | None:
            return self.load(session_id)


class Renaming(Healthy):
    """Keeps each session under another name than its id."""

    async def create(self, session_id: str, user_id: str | None = None) -> Session:
        session = await super().create(self.name(session_id), user_id)
        self.texts[self.name(session_id)] = self.changed(
            session.to_json(), session_id=session_id
        )
        return Session.from_json(self.texts[self.name(session_id)])

    def load(self, session_id: str) -> Session | None:
        return super().load(self.name(session_id))

    def write(self, session: Session, text: str) -> None:
        self.texts[self.name(session.session_id)] = text

    def name(self, session_id: str) -> str:
        raise NotImplementedError


class SeededShortNames(Contract):
    caught_by = "test_an_id_may_have_255_bytes"

    class Manager(Renaming):
        def name(self, session_id: str) -> str:
            return session_id[:100]


class SeededFoldedCase(Contract):
    caught_by = "test_ids_are_told_apart_byte_for_byte"

    class Manager(Renaming):
        def name(self, session_id: str) -> str:
            return session_id.casefold()


class SeededFoldedAccents(Contract):
    caught_by = "test_ids_are_told_apart_byte_for_byte"

    class Manager(Renaming):
        def name(self, session_id: str) -> str:
            return unicodedata.normalize("NFC", session_id)


class SeededStrippedIds(Contract):
    caught_by = "test_odd_ids_share_nothing"

    class Manager(Renaming):
        def name(self, session_id: str) -> str:
            return session_id.strip() or "-"


class SeededReplacedLetters(Contract):
    caught_by = "test_odd_ids_share_nothing"

    class Manager(Renaming):
        def name(self, session_id: str) -> str:
            return session_id.replace(":", "_").replace("/", "_")


# --- races --------------------------------------------------------------------


class SeededLookThenCreate(Contract):
    caught_by = "test_of_8_creates_at_once_one_wins"

    class Manager(Healthy):
        async def create(self, session_id: str, user_id: str | None = None) -> Session:
            if session_id in self.texts:
                raise SessionExistsError(session_id)
            await asyncio.sleep(0)
            self.texts.pop(session_id, None)
            return await super().create(session_id, user_id)


class SeededLostRaceIsAnError(Contract):
    caught_by = "test_8_get_or_creates_at_once_give_one_session"

    class Manager(Healthy):
        async def get_or_create(
            self, session_id: str, user_id: str | None = None
        ) -> Session:
            found = await self.get(session_id)
            await asyncio.sleep(0)
            return found or await self.create(session_id, user_id)


class SeededCompareThenReplace(Contract):
    caught_by = "test_of_16_saves_at_once_one_wins_and_no_event_is_lost"

    class Manager(Healthy):
        async def check(self, session: Session) -> None:
            await super().check(session)
            await asyncio.sleep(0)


class SeededCompareThenReplaceWhileOthersTryAgain(Contract):
    caught_by = "test_16_writers_that_try_again_all_get_their_event_in"
    Manager = SeededCompareThenReplace.Manager


# --- a second manager, a restart, other processes -----------------------------


class Texts(MutableMapping[str, str]):
    """A dictionary whose texts are files in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, key: str) -> Path:
        return self.folder / f"{key.encode().hex()[:200]}.json"

    def __getitem__(self, key: str) -> str:
        if not self.path(key).exists():
            raise KeyError(key)
        return self.path(key).read_text(encoding="utf-8")

    def __setitem__(self, key: str, text: str) -> None:
        self.path(key).parent.mkdir(parents=True, exist_ok=True)
        beside = self.path(key).with_suffix(f".{os.getpid()}")
        beside.write_text(text, encoding="utf-8")
        beside.replace(self.path(key))

    def __delitem__(self, key: str) -> None:
        self.path(key).unlink()

    def __iter__(self) -> Iterator[str]:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError


class OnDisk(Healthy):
    def __init__(self, folder: Path) -> None:
        self.texts = Texts(folder)


class SeededForgottenByARestart(Contract):
    durable = True
    caught_by = "test_what_is_saved_survives_a_restart"
    Manager = Healthy


class SeededWrittenWhenClosed(Contract):
    durable = True
    caught_by = "test_a_second_process_goes_on_with_the_session"

    class Manager(OnDisk):
        def __init__(self, folder: Path) -> None:
            super().__init__(folder)
            self.waiting: dict[str, str] = {}

        def write(self, session: Session, text: str) -> None:
            self.waiting[session.session_id] = text

        async def aclose(self) -> None:
            self.texts.update(self.waiting)


class SeededStaleCache(Contract):
    durable = True
    caught_by = "test_two_managers_see_each_others_saves"

    class Manager(OnDisk):
        def __init__(self, folder: Path) -> None:
            super().__init__(folder)
            self.cache: dict[str, str] = {}

        async def get(self, session_id: str) -> Session | None:
            if found := await super().get(session_id):
                text = self.cache.setdefault(session_id, found.to_json())
                return Session.from_json(text)
            return None

        def write(self, session: Session, text: str) -> None:
            super().write(session, text)
            self.cache[session.session_id] = text


class SeededLookThenCreateInProcesses(Contract):
    durable = True
    caught_by = "test_of_4_processes_that_create_one_session_one_wins"

    class Manager(OnDisk):
        # No await between look and create: only another process can slip in.
        async def create(self, session_id: str, user_id: str | None = None) -> Session:
            if session_id in self.texts:
                raise SessionExistsError(session_id)
            time.sleep(0.02)  # noqa: ASYNC251
            self.texts[session_id] = Session(session_id, user_id).to_json()
            return Session.from_json(self.texts[session_id])


class SeededIdsAsPaths(Contract):
    durable = True
    caught_by = "test_nothing_is_written_outside_the_folder"

    class Manager(OnDisk):
        class Paths(Texts):
            def path(self, key: str) -> Path:
                return self.folder / f"{key.lstrip('/')}.json"

        def __init__(self, folder: Path) -> None:
            self.texts = self.Paths(folder)


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
    skipped = [test for test in problems if "durable = False" in problems[test]]
    assert set(problems) == set(skipped)
    assert len(healthy) > 45


def test_every_test_of_the_contract_catches_a_bug() -> None:
    tests = {name for name in vars(SessionManagerContract) if name.startswith("test_")}

    assert tests - {SEEDED[bug].caught_by for bug in BUGS} == set()
