"""The store contract has teeth: each store below has one bug, and one test finds it.

`Healthy` is right. Every `Seeded…` class is the contract for a store that differs from
it in one respect, and names the test that must turn red. All of them run in one pytest
of their own, since their failures are what is wanted.
"""

import asyncio
import fcntl
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from seeded import Outcomes, check_caught, outcomes_of

from minagent import Event, EventLog, Note, Session, SessionInfo, SessionStore
from minagent.errors import (
    OpenCallError,
    SessionConflictError,
    SessionExistsError,
    SessionNotFoundError,
    StoreClosedError,
)
from minagent.ledger import open_calls
from minagent.marks import REDACTION
from minagent.session import check_session_id
from minagent.store import check_page
from minagent.testing import SessionStoreContract


class Healthy(SessionStore):
    """Keeps a session in two files, a head and a line an event; a step is a method."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.closed = False

    # --- a manager ---

    async def create(self, session_id: str, user_id: str | None = None) -> Session:
        session = Session(session_id, user_id)
        with self.locked():
            if self.head(session_id).exists():
                raise SessionExistsError(session_id)
            self.write_head(session, session.to_json())
            self.log(session_id).write_bytes(b"")
        return session

    async def get(self, session_id: str) -> Session | None:
        check_session_id(session_id)
        await asyncio.sleep(0)  # others may come in between
        with self.locked():
            return self.load(session_id)

    async def save(self, session: Session) -> None:
        await asyncio.sleep(0)
        text = session.to_json(version=session.version + 1)
        with self.locked():
            self.check(session)
            self.append(session)
            self.write_head(session, text)
            session.mark_saved()

    def check(self, session: Session) -> None:
        stored = self.load(session.session_id)
        if stored is None or stored.incarnation != session.incarnation:
            raise SessionNotFoundError(session.session_id)
        if stored.version != session.version:
            raise SessionConflictError(session.session_id)

    def append(self, session: Session) -> None:
        with self.log(session.session_id).open("ab") as file:
            for event in session.unsaved:
                file.write(event.to_json().encode() + b"\n")

    def write_head(self, session: Session, text: str) -> None:
        head = json.loads(text) | {"events": []}
        self.head(session.session_id).write_text(json.dumps(head))

    def load(self, session_id: str) -> Session | None:
        if not self.head(session_id).exists():
            return None
        head = json.loads(self.head(session_id).read_text())
        empty = Session.from_json(json.dumps(head))
        return self.filled(empty, self.events(session_id))

    def filled(self, empty: Session, events: Sequence[Event]) -> Session:
        return Session(
            empty.session_id,
            empty.user_id,
            events=events,
            state=empty.state,
            incarnation=empty.incarnation,
            version=empty.version,
            created_at=empty.created_at,
        )

    def events(self, session_id: str) -> Sequence[Event]:
        lines = self.log(session_id).read_bytes().split(b"\n")
        return [Event.from_json(line.decode()) for line in lines if line]

    # --- a store ---

    async def page(
        self, *, user_id: str | None = None, limit: int = 100, after: str | None = None
    ) -> Sequence[SessionInfo]:
        check_page(user_id, limit, after)
        with self.locked():
            infos = [self.info(each) for each in self.all_sessions()]
        behind = [each for each in infos if self.is_behind(each.session_id, after)]
        mine = [each for each in behind if user_id in (None, each.user_id)]
        return sorted(mine, key=lambda each: self.order(each.session_id))[:limit]

    def info(self, session: Session) -> SessionInfo:
        return SessionInfo(
            session_id=session.session_id,
            user_id=session.user_id,
            version=session.version,
            event_count=len(session.events),
            created_at=session.created_at,
            updated_at=session.updated_at,
        )

    def order(self, session_id: str) -> bytes:
        return session_id.encode()

    def is_behind(self, session_id: str, after: str | None) -> bool:
        return after is None or self.order(session_id) > self.order(after)

    async def remove(self, session_id: str, *, seen: Session | None = None) -> bool:
        check_session_id(session_id)
        await asyncio.sleep(0)
        with self.locked():
            stored = self.load(session_id)
            if seen is not None and not (stored and self.is_unchanged(stored, seen)):
                return False
            for each in self.all_sessions():
                if self.is_part(each.session_id, session_id):
                    self.drop(each.session_id)
            return stored is not None

    def is_unchanged(self, stored: Session, seen: Session) -> bool:
        return stored.is_as_in(seen)

    def is_part(self, session_id: str, of: str) -> bool:
        return session_id == of or session_id.startswith(f"{of}/")

    def drop(self, session_id: str) -> None:
        self.head(session_id).unlink()
        self.log(session_id).unlink()

    async def rewrite(self, session: Session, places: Sequence[int]) -> None:
        with self.locked():
            events = [*self.events(session.session_id)]
            for at in places:
                events[at] = session.events[at]
            self.write_log(session.session_id, events)

    def write_log(self, session_id: str, events: Sequence[Event]) -> None:
        lines = [event.to_json().encode() + b"\n" for event in events]
        self.log(session_id).write_bytes(b"".join(lines))

    async def erase(self) -> None:
        self.check_open()

    async def aclose(self) -> None:
        self.closed = True

    async def __aenter__(self) -> "Healthy":
        self.check_open()
        return self

    # --- files ---

    def check_open(self) -> None:
        if self.closed:
            raise StoreClosedError(store="store")

    @contextmanager
    def locked(self) -> Iterator[None]:
        self.check_open()
        with (self.folder / ".lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def name(self, session_id: str) -> str:
        return sha256(session_id.encode()).hexdigest()

    def head(self, session_id: str) -> Path:
        return self.folder / f"{self.name(session_id)}.json"

    def log(self, session_id: str) -> Path:
        return self.folder / f"{self.name(session_id)}.jsonl"

    def all_sessions(self) -> Sequence[Session]:
        heads = [json.loads(each.read_text()) for each in self.folder.glob("*.json")]
        found = (self.load(head["session_id"]) for head in heads)
        return [each for each in found if each is not None]


class Contract(SessionStoreContract):
    caught_by: ClassVar[str]
    Store: ClassVar[type[Healthy]]

    def open_store(self, tmp_path: Path) -> SessionStore:
        return self.Store(tmp_path)


class SeededNothing(Contract):
    Store = Healthy


# --- list ---------------------------------------------------------------------


class SeededNothingIsNone(Contract):
    caught_by = "test_list_of_an_empty_store_is_empty"

    class Store(Healthy):
        async def list(self, **asked: Any) -> "list[SessionInfo]":
            return await super().list(**asked) or None  # type: ignore[return-value]


class SeededTimeOfTheLook(Contract):
    caught_by = "test_list_shows_what_is_known_of_a_session"

    class Store(Healthy):
        def info(self, session: Session) -> SessionInfo:
            now = datetime.now(session.created_at.tzinfo)
            return replace(super().info(session), updated_at=now)


class SeededStateIsNoVersion(Contract):
    caught_by = "test_list_shows_what_is_known_of_a_session"

    class Store(Healthy):
        def info(self, session: Session) -> SessionInfo:
            return replace(super().info(session), version=len(session.events))


class SeededOrderOfUtf16(Contract):
    caught_by = "test_list_gives_pages_in_the_order_of_the_ids"

    class Store(Healthy):
        def order(self, session_id: str) -> bytes:
            return session_id.encode("utf-16-be")


class SeededOrderOfCreation(Contract):
    caught_by = "test_list_gives_pages_in_the_order_of_the_ids"

    class Store(Healthy):
        def all_sessions(self) -> Sequence[Session]:
            return sorted(super().all_sessions(), key=lambda each: each.created_at)

        def order(self, session_id: str) -> bytes:
            return b""

        def is_behind(self, session_id: str, after: str | None) -> bool:
            return after is None or session_id > after


class SeededPageBeginsWithAfter(Contract):
    caught_by = "test_list_gives_pages_in_the_order_of_the_ids"

    class Store(Healthy):
        def is_behind(self, session_id: str, after: str | None) -> bool:
            return after is None or session_id.encode() >= after.encode()


class SeededAfterMustBeThere(Contract):
    caught_by = "test_list_goes_on_after_an_id_that_is_gone"

    class Store(Healthy):
        async def page(self, *, after: str | None = None, **asked: Any) -> Any:
            if after is not None and not self.head(after).exists():
                return []
            return await super().page(after=after, **asked)


class SeededFilteredPage(Contract):
    caught_by = "test_list_of_one_user_shows_no_other"

    class Store(Healthy):
        async def page(self, *, user_id: str | None = None, **asked: Any) -> Any:
            page = await super().page(**asked)
            return [each for each in page if user_id in (None, each.user_id)]


class SeededUsersAreFoldedToOne(Contract):
    caught_by = "test_list_of_one_user_shows_no_other"

    class Store(Healthy):
        async def page(self, *, user_id: str | None = None, **asked: Any) -> Any:
            page = await super().page(**asked)
            return [each for each in page if self.is_of(each.user_id, user_id)]

        def is_of(self, owner: str | None, user_id: str | None) -> bool:
            return not user_id or (owner or "").lower() == user_id.lower()


class SeededNobodyIsAUser(Contract):
    caught_by = "test_list_of_one_user_shows_no_other"

    class Store(Healthy):
        async def page(self, *, user_id: str | None = None, **asked: Any) -> Any:
            page = await super().page(**asked)
            return [each for each in page if each.user_id == user_id]


class SeededAllAreListed(Contract):
    caught_by = "test_list_leaves_out_sessions_inside_others"

    class Store(Healthy):
        async def list(self, **asked: Any) -> "list[SessionInfo]":
            return await super().list(**{**asked, "children": True})


class SeededEverySlashIsInside(Contract):
    caught_by = "test_list_leaves_out_sessions_inside_others"

    class Store(Healthy):
        async def _is_child(self, info: SessionInfo, known: Any) -> bool:
            return "/" in info.session_id


class SeededInsideOfAnybody(Contract):
    caught_by = "test_list_leaves_out_sessions_inside_others"

    class Store(Healthy):
        async def _is_child(self, info: SessionInfo, known: Any) -> bool:
            outer = info.session_id.rpartition("/")[0]
            return bool(outer) and await self.get(outer) is not None


class SeededInsideOfThePage(Contract):
    caught_by = "test_list_leaves_out_sessions_inside_others"

    class Store(Healthy):
        async def _is_child(self, info: SessionInfo, known: Any) -> bool:
            outer = info.session_id.partition("/")[0]
            return "/" in info.session_id and outer in known


class SeededAnyPage(Contract):
    caught_by = "test_list_refuses_what_makes_no_page"

    class Store(Healthy):
        async def list(self, *, limit: int = 100, **asked: Any) -> Any:
            return await super().list(limit=max(limit, 1), **asked)


# --- delete -------------------------------------------------------------------


class SeededInsideIsLeft(Contract):
    caught_by = "test_delete_removes_the_session_and_those_inside_and_no_other"

    class Store(Healthy):
        def is_part(self, session_id: str, of: str) -> bool:
            return session_id == of


class SeededWhateverBeginsSo(Contract):
    caught_by = "test_delete_removes_the_session_and_those_inside_and_no_other"

    class Store(Healthy):
        def is_part(self, session_id: str, of: str) -> bool:
            return session_id.startswith(of)


class SeededRememberedThoughGone(Contract):
    caught_by = "test_delete_removes_the_session_and_those_inside_and_no_other"

    class Store(Healthy):
        def __init__(self, folder: Path) -> None:
            super().__init__(folder)
            self.known: dict[str, Session] = {}

        async def get(self, session_id: str) -> Session | None:
            found = await super().get(session_id)
            if found is not None:
                self.known[session_id] = found
            known = self.known.get(session_id)
            return found or (known and known.copy())


class SeededPattern(Contract):
    caught_by = "test_delete_takes_no_letter_of_an_id_for_a_pattern"

    class Store(Healthy):
        def is_part(self, session_id: str, of: str) -> bool:
            return session_id == of or fnmatchcase(session_id, f"{of}/*")


class SeededInsideCounts(Contract):
    caught_by = "test_delete_of_what_is_not_there_is_false_and_harmless"

    class Store(Healthy):
        async def remove(self, session_id: str, *, seen: Session | None = None) -> bool:
            before = len(self.all_sessions())
            await super().remove(session_id, seen=seen)
            return len(self.all_sessions()) < before


class SeededTrash(Contract):
    caught_by = "test_nothing_of_a_deleted_session_is_in_any_file"

    class Store(Healthy):
        def drop(self, session_id: str) -> None:
            for path in (self.head(session_id), self.log(session_id)):
                path.rename(path.with_suffix(".trash"))


class SeededLogIsLeft(Contract):
    caught_by = "test_nothing_of_a_deleted_session_is_in_any_file"

    class Store(Healthy):
        def drop(self, session_id: str) -> None:
            self.head(session_id).unlink()


class SeededNameIsKept(Contract):
    caught_by = "test_nothing_of_a_deleted_session_is_in_any_file"

    class Store(Healthy):
        def drop(self, session_id: str) -> None:
            super().drop(session_id)
            with (self.folder / "deleted").open("a") as file:
                file.write(f"{session_id}\n")


class SeededOldOneMaySave(Contract):
    caught_by = "test_a_deleted_session_that_is_made_again_is_empty_and_another"

    class Store(Healthy):
        def check(self, session: Session) -> None:
            stored = self.load(session.session_id)
            if stored is None:
                raise SessionNotFoundError(session.session_id)
            if stored.incarnation == session.incarnation:
                super().check(session)


class SeededComesBackWithASave(Contract):
    caught_by = "test_a_deleted_session_that_is_made_again_is_empty_and_another"

    class Store(Healthy):
        def check(self, session: Session) -> None:
            if self.head(session.session_id).exists():
                super().check(session)


class SeededUnsavedIsAChange(Contract):
    caught_by = "test_delete_of_what_was_seen_removes_what_is_unchanged"

    class Store(Healthy):
        def is_unchanged(self, stored: Session, seen: Session) -> bool:
            return stored.to_json() == seen.to_json()


class SeededSeenIsNotAsked(Contract):
    caught_by = "test_delete_of_what_was_seen_refuses_what_has_changed"

    class Store(Healthy):
        def is_unchanged(self, stored: Session, seen: Session) -> bool:
            return True


class SeededStateIsNoChange(Contract):
    caught_by = "test_delete_of_what_was_seen_refuses_what_has_changed"

    class Store(Healthy):
        def is_unchanged(self, stored: Session, seen: Session) -> bool:
            same = stored.incarnation == seen.incarnation
            return same and stored.events == seen.events


class SeededOnlyTheVersionCounts(Contract):
    caught_by = "test_delete_of_what_was_seen_refuses_what_has_changed"

    class Store(Healthy):
        def is_unchanged(self, stored: Session, seen: Session) -> bool:
            return stored.version == seen.version


class SeededLooksThenDeletes(Contract):
    caught_by = "test_of_a_save_and_a_delete_of_what_was_seen_one_wins"

    class Store(Healthy):
        async def remove(self, session_id: str, *, seen: Session | None = None) -> bool:
            if seen is not None:
                stored = await self.get(session_id)
                if stored is None or not stored.is_as_in(seen):
                    return False
                await asyncio.sleep(0)
            return await super().remove(session_id)


# --- prune --------------------------------------------------------------------


class Pruning(Healthy):
    """Prunes in steps that can be broken one by one."""

    async def prune(
        self, *, older_than: datetime, pending: Literal["keep", "delete"] = "keep"
    ) -> tuple[str, ...]:
        if older_than.tzinfo is None:
            older_than = self.aware(older_than)
        if pending not in ("keep", "delete"):
            raise ValueError(pending)
        infos = await self.page(limit=1_000)
        gone: list[str] = []
        for info in infos:
            outer = [each for each in infos if self.is_inside(info, each)]
            inside = [each for each in infos if self.is_inside(each, info)]
            family = [info, *inside]
            if outer or not all(self.is_old(each, older_than) for each in family):
                continue
            sessions = [await self.get(each.session_id) for each in family]
            if any(each and self.is_young(each, older_than) for each in sessions):
                continue
            if pending == "keep" and self.waits(sessions):
                continue
            if await self.went(info, sessions[0]):
                gone.append(info.session_id)
        return tuple(gone)

    def aware(self, time: datetime) -> datetime:
        raise ValueError(time)

    def is_inside(self, info: SessionInfo, other: SessionInfo) -> bool:
        return info.session_id.startswith(f"{other.session_id}/")

    def is_old(self, info: SessionInfo, older_than: datetime) -> bool:
        return info.updated_at < older_than

    def is_young(self, session: Session, older_than: datetime) -> bool:
        return session.updated_at >= older_than

    def waits(self, sessions: Sequence[Session | None]) -> bool:
        return any(each and open_calls(each.events) for each in sessions)

    async def went(self, info: SessionInfo, session: Session | None) -> bool:
        return await self.remove(info.session_id, seen=session)


class SeededNothingButSteps(Contract):
    Store = Pruning


class SeededPrunesByCreation(Contract):
    caught_by = "test_prune_removes_what_is_old_and_nothing_else"

    class Store(Pruning):
        def is_old(self, info: SessionInfo, older_than: datetime) -> bool:
            return info.created_at < older_than


class SeededPrunesOnTheDay(Contract):
    caught_by = "test_prune_removes_what_is_old_and_nothing_else"

    class Store(Pruning):
        def is_old(self, info: SessionInfo, older_than: datetime) -> bool:
            return info.updated_at <= older_than

        def is_young(self, session: Session, older_than: datetime) -> bool:
            return session.updated_at > older_than


class SeededPrunesOneByOne(Contract):
    caught_by = "test_prune_takes_a_family_together_or_not_at_all"

    class Store(Pruning):
        def is_inside(self, info: SessionInfo, other: SessionInfo) -> bool:
            return False


class SeededPrunesWhatWaits(Contract):
    caught_by = "test_prune_keeps_what_waits_for_a_person_unless_told_otherwise"

    class Store(Pruning):
        def waits(self, sessions: Sequence[Session | None]) -> bool:
            return False


class SeededPrunesWhatWaitsInside(Contract):
    caught_by = "test_prune_keeps_what_waits_for_a_person_unless_told_otherwise"

    class Store(Pruning):
        def waits(self, sessions: Sequence[Session | None]) -> bool:
            return super().waits(sessions[:1])


class SeededGuessesTheTimeZone(Contract):
    caught_by = "test_prune_refuses_what_cannot_be_meant"

    class Store(Pruning):
        def aware(self, time: datetime) -> datetime:
            return time.astimezone()


class SeededTrustsItsList(Contract):
    caught_by = "test_prune_leaves_a_session_that_is_saved_before_it_looks"

    class Store(Pruning):
        def is_young(self, session: Session, older_than: datetime) -> bool:
            return False


class SeededTrustsItsLook(Contract):
    caught_by = "test_prune_leaves_a_session_that_is_saved_before_it_deletes"

    class Store(Pruning):
        async def went(self, info: SessionInfo, session: Session | None) -> bool:
            return await self.remove(info.session_id)


class SeededLooksAtTheOutermost(Contract):
    caught_by = "test_prune_leaves_a_family_if_one_inside_is_saved_before_it_looks"

    class Store(Pruning):
        def is_young(self, session: Session, older_than: datetime) -> bool:
            return "/" not in session.session_id and super().is_young(
                session, older_than
            )


# --- redact -------------------------------------------------------------------


class SeededDropsTheItems(Contract):
    caught_by = "test_redact_puts_the_text_in_the_place_of_every_kind_of_word"

    class Store(Healthy):
        async def rewrite(self, session: Session, places: Sequence[int]) -> None:
            with self.locked():
                events = [*session.events]
                for at in places:
                    events[at] = replace(events[at], content=())
                self.write_log(session.session_id, events)


class SeededDropsTheEvent(Contract):
    caught_by = "test_redact_changes_nothing_but_the_event"

    class Store(Healthy):
        async def rewrite(self, session: Session, places: Sequence[int]) -> None:
            with self.locked():
                left = [x for at, x in enumerate(session.events) if at not in places]
                self.write_log(session.session_id, left)


class SeededRewriteIsAVersion(Contract):
    caught_by = "test_redact_changes_nothing_but_the_event"

    class Store(Healthy):
        async def rewrite(self, session: Session, places: Sequence[int]) -> None:
            await super().rewrite(session, places)
            await self.save(session)


class SeededRemembersTheWords(Contract):
    caught_by = "test_no_reader_gets_a_redacted_word"

    class Store(Healthy):
        def __init__(self, folder: Path) -> None:
            super().__init__(folder)
            self.known: dict[str, EventLog] = {}

        def filled(self, empty: Session, events: Sequence[Event]) -> Session:
            known = self.known.get(empty.incarnation, EventLog())
            log = known.extended(events[len(known) :])  # and not `extended(known, …)`
            self.known[empty.incarnation] = log
            return super().filled(empty, log)


class SeededRewritesNothing(Contract):
    caught_by = "test_no_redacted_word_is_in_any_file"

    class Store(Healthy):
        async def rewrite(self, session: Session, places: Sequence[int]) -> None:
            self.check_open()


class SeededRewritesOne(Contract):
    caught_by = "test_no_word_of_a_redaction_is_left_once_it_is_redacted_itself"

    class Store(Healthy):
        async def rewrite(self, session: Session, places: Sequence[int]) -> None:
            await super().rewrite(session, places[-1:])


class SeededRewritesBeside(Contract):
    caught_by = "test_no_redacted_word_is_in_any_file"

    class Store(Healthy):
        def write_log(self, session_id: str, events: Sequence[Event]) -> None:
            log = self.log(session_id)
            log.rename(log.with_suffix(".bak"))
            super().write_log(session_id, events)


class SeededOverwritesInPlace(Contract):
    caught_by = "test_no_redacted_word_is_in_any_file"

    class Store(Healthy):
        def write_log(self, session_id: str, events: Sequence[Event]) -> None:
            log, before = self.log(session_id), self.log(session_id).read_bytes()
            super().write_log(session_id, events)
            new = log.read_bytes()
            log.with_suffix(".rest").write_bytes(before[len(new) :])


class SeededCopyOfALongLog(Contract):
    caught_by = "test_no_copy_in_a_long_session_keeps_a_redacted_word"

    class Store(Healthy):
        def append(self, session: Session) -> None:
            super().append(session)
            if (session.version + 1) % 64 == 0:
                log = self.log(session.session_id)
                log.with_suffix(".segment").write_bytes(log.read_bytes())


class SeededMarksEachTime(Contract):
    caught_by = "test_the_same_redaction_twice_adds_nothing"

    class Store(Healthy):
        async def redact(self, session_id: str, event_id: str, text: str) -> None:
            session = await self.get(session_id)
            assert session is not None
            data = {"event_id": event_id, "text": text}
            note = Note(kind=REDACTION, data=data)
            session.append(Event(author="redact", content=(note,)))
            await self.save(session)
            ids = [event.event_id for event in session.events]
            await self.rewrite(session, [ids.index(event_id)])


class SeededObeysNoMark(Contract):
    caught_by = "test_a_mark_alone_hides_the_words_and_redact_finishes"

    class Store(Healthy):
        def filled(self, empty: Session, events: Sequence[Event]) -> Session:
            return super().filled(empty, EventLog(events))


class SeededLastWriterWins(Contract):
    caught_by = "test_a_stale_holder_cannot_bring_redacted_words_back"

    class Store(Healthy):
        def check(self, session: Session) -> None:
            if not self.head(session.session_id).exists():
                raise SessionNotFoundError(session.session_id)
            saved = len(session.events) - len(session.unsaved)
            self.write_log(session.session_id, session.events[:saved])


class SeededUnknownIsRedacted(Contract):
    caught_by = "test_redact_refuses_what_is_not_there"

    class Store(Healthy):
        async def redact(self, session_id: str, event_id: str, text: str) -> None:
            session = await self.get(session_id)
            if session and event_id in [each.event_id for each in session.events]:
                await super().redact(session_id, event_id, text)


class SeededOpenCallIsRedacted(Contract):
    caught_by = "test_redact_refuses_a_call_that_has_no_result"

    class Store(Healthy):
        async def redact(self, session_id: str, event_id: str, text: str) -> None:
            try:
                await super().redact(session_id, event_id, text)
            except OpenCallError:
                await SeededMarksEachTime.Store.redact(
                    self,  # type: ignore[arg-type]
                    session_id,
                    event_id,
                    text,
                )


class SeededMarksBeforeItLooks(Contract):
    caught_by = "test_redact_refuses_a_call_that_has_no_result"

    class Store(Healthy):
        async def redact(self, session_id: str, event_id: str, text: str) -> None:
            session = await self.get(session_id)
            if session is not None:
                await self.save(session)
            await super().redact(session_id, event_id, text)


class SeededGivesUp(Contract):
    caught_by = "test_redact_gets_its_mark_in_while_others_save"
    Store = SeededMarksEachTime.Store


class SeededWordsAreSent(Contract):
    caught_by = "test_a_run_goes_on_after_a_redaction"

    class Store(Healthy):
        def filled(self, empty: Session, events: Sequence[Event]) -> Session:
            return super().filled(empty, EventLog(events))

        async def rewrite(self, session: Session, places: Sequence[int]) -> None:
            self.check_open()


class SeededErasesAll(Contract):
    caught_by = "test_erase_where_nothing_is_left_is_harmless"

    class Store(Healthy):
        async def erase(self) -> None:
            self.check_open()
            for path in self.folder.glob("*.json*"):
                path.unlink()


# --- event loops, closing -----------------------------------------------------


class SeededALoopOfItsOwn(Contract):
    caught_by = "test_threads_with_their_own_event_loops_share_one_store"

    class Store(Healthy):
        def name(self, session_id: str) -> str:
            return f"{super().name(session_id)}-{id(asyncio.get_running_loop())}"


class SeededListOfAClosedStore(Contract):
    caught_by = "test_a_closed_store_refuses_every_use"

    class Store(Healthy):
        async def list(self, **asked: Any) -> "list[SessionInfo]":
            closed, self.closed = self.closed, False
            try:
                return await super().list(**asked)
            finally:
                self.closed = closed


class SeededRewriteOfAClosedStore(Contract):
    caught_by = "test_a_closed_store_refuses_every_use"

    class Store(Healthy):
        async def rewrite(self, session: Session, places: Sequence[int]) -> None:
            if places:
                await super().rewrite(session, places)


class SeededBlockLeftOpen(Contract):
    caught_by = "test_the_end_of_its_block_closes_a_store"

    class Store(Healthy):
        async def __aexit__(self, *_: object) -> None:
            pass


class SeededErrorsAreSwallowed(Contract):
    caught_by = "test_the_end_of_its_block_closes_a_store"

    class Store(Healthy):
        async def __aexit__(self, *_: object) -> bool:  # type: ignore[override]
            await self.aclose()
            return True


class SeededClosedOnce(Contract):
    caught_by = "test_closing_twice_is_harmless"

    class Store(Healthy):
        async def aclose(self) -> None:
            self.check_open()
            await super().aclose()


# --- the tests ----------------------------------------------------------------

pytestmark = pytest.mark.heavy

SEEDED = {name: value for name, value in globals().items() if name.startswith("Seeded")}
HEALTHY = ("SeededNothing", "SeededNothingButSteps")
BUGS = [name for name in SEEDED if name not in HEALTHY]
TESTS = [name for name in vars(SessionStoreContract) if name.startswith("test_")]
ALL_TESTS = [name for name in dir(SessionStoreContract) if name.startswith("test_")]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    chosen = [f"{bug}::{SEEDED[bug].caught_by}" for bug in BUGS]
    chosen += [f"SeededNothing::{test}" for test in ALL_TESTS if "process" not in test]
    chosen += [f"SeededNothingButSteps::{test}" for test in TESTS if "_prune_" in test]
    return outcomes_of(__file__, chosen, tmp_path_factory.mktemp("seeded"))


@pytest.mark.parametrize("bug", BUGS)
def test_a_seeded_bug_is_caught_by_the_test_that_is_meant_to(
    bug: str, outcomes: Outcomes
) -> None:
    check_caught(outcomes[bug, SEEDED[bug].caught_by])


@pytest.mark.parametrize("healthy", HEALTHY)
def test_a_healthy_store_passes(healthy: str, outcomes: Outcomes) -> None:
    ran = {test: said for (name, test), said in outcomes.items() if name == healthy}

    assert {test: said for test, said in ran.items() if said} == {}
    assert len(ran) > (80 if healthy == "SeededNothing" else 5)


def test_every_test_of_the_contract_catches_a_bug() -> None:
    assert {*TESTS} - {SEEDED[bug].caught_by for bug in BUGS} == set()
