"""Sessions: a conversation under an id, and the managers that keep them.

A `Session` is a log of events and a JSON `state`. It holds no instructions, tools or
model settings: those come from the code that runs today. A `SessionManager` keeps
sessions under their ids with four methods. What `save` promises is written once, on
the abstract methods, and `minagent.testing.SessionManagerContract` holds every manager
to it. The shortest whole manager is `InMemorySessionManager`, in `store.py`.

Read `Session` first, then the promises of `SessionManager`. `finished` and `running`
are for writers of managers and for the agent.

This file knows nothing of runs, models or tools.
"""

import asyncio
import secrets
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from threading import Lock
from typing import Any, TypeAlias, TypeVar

from minagent import errors
from minagent.events import Event, dump_json, load_json, utc_now
from minagent.log import EventLog
from minagent.marks import extended

FORMAT = 1
"""The version of the stored form; it grows when an older reader could not follow."""

State: TypeAlias = dict[str, Any]
"""A session's state: string keys and whatever JSON has a word for.

`Any`, since a program knows what it keeps under its own keys and a type checker does
not; `dump_json` refuses what does not belong when the session is saved.
"""

T = TypeVar("T")


class Session:
    """A conversation: a log of events that only grows, and a state.

    Changes reach the store by `SessionManager.save` and by nothing else.

    Args:
        session_id: 1 to 255 bytes of UTF-8 without control characters.
        user_id: The owner, of the same form, or None for a session without one.
        events: What is stored already, in order.
        state: What is stored already.
        incarnation: The token that a manager gave this session when it was created;
            None makes a fresh one.
        version: The number of saves so far.
        created_at: When it was created, aware; None means now.

    Raises:
        InvalidSessionIdError: The id is none that every store can keep.
        ValueError: The user id is none, likewise.

    Attributes:
        state: The session's own memory, saved whole with each save.
    """

    def __init__(
        self,
        session_id: str,
        user_id: str | None = None,
        *,
        events: Sequence[Event] = (),
        state: State | None = None,
        incarnation: str | None = None,
        version: int = 0,
        created_at: datetime | None = None,
    ) -> None:
        check_session_id(session_id)
        check_user_id(user_id)
        self._session_id, self._user_id = session_id, user_id
        self._incarnation = incarnation or secrets.token_hex(16)
        is_log = isinstance(events, EventLog)  # then there is nothing to redact
        self._events = EventLog(events) if is_log else extended(EventLog(), events)
        self._saved = len(self._events)
        self._version = version
        self._created_at = created_at or utc_now()
        self.state: State = {} if state is None else state

    @property
    def session_id(self) -> str:
        """The id under which it is kept."""
        return self._session_id

    @property
    def user_id(self) -> str | None:
        """The owner, fixed when the session was created."""
        return self._user_id

    @property
    def incarnation(self) -> str:
        """A random token: a session that is deleted and made again has another."""
        return self._incarnation

    @property
    def events(self) -> EventLog:
        """The log, read-only; it stays as it is when the session grows."""
        return self._events

    @property
    def version(self) -> int:
        """The number of saves that this object knows of."""
        return self._version

    @property
    def created_at(self) -> datetime:
        """When it was created, in UTC."""
        return self._created_at

    @property
    def updated_at(self) -> datetime:
        """When its newest event was recorded, in UTC; at first, when it was created."""
        return self._events[-1].timestamp if self._events else self._created_at

    def append(self, *events: Event) -> None:
        """Add events to the end of the log; `save` stores them."""
        self._events = extended(self._events, events)

    @property
    def unsaved(self) -> tuple[Event, ...]:
        """The events that no save has stored yet, in order."""
        return self._events[self._saved :]

    def mark_saved(self, count: int | None = None) -> None:
        """Note that a save has stored the state and the unsaved events.

        A manager calls this when the write is safe, and at no other time.

        Args:
            count: How many of the unsaved events were stored; None means all.
        """
        self._version += 1
        self._saved = len(self._events) if count is None else self._saved + count

    def dump_state(self) -> str:
        """Return the state as JSON text.

        Raises:
            NotSerializableError: It holds what JSON has no word for.
        """
        if not isinstance(self.state, dict):
            raise errors.NotSerializableError("state", "is no dict")
        return dump_json(self.state, "state") if self.state else "{}"

    def is_as_in(self, seen: "Session") -> bool:
        """Whether nobody has saved it since the other object was read."""
        return self._incarnation == seen._incarnation and self._version == seen._version

    def copy(self) -> "Session":
        """Return another object for the same session; everything in it counts as saved.

        Raises:
            NotSerializableError: The state holds what JSON has no word for.
        """
        return Session(
            self._session_id,
            self._user_id,
            events=self._events,
            state=load_json(self.dump_state()),
            incarnation=self._incarnation,
            version=self._version,
            created_at=self._created_at,
        )

    def to_json(self, *, version: int | None = None) -> str:
        """Return the whole session as JSON text.

        Args:
            version: The version to write; None means the session's own. A `save`
                writes `session.version + 1`.

        Raises:
            NotSerializableError: The state holds what JSON has no word for.
        """
        head = {
            "format": FORMAT,
            "session_id": self._session_id,
            "user_id": self._user_id,
            "incarnation": self._incarnation,
            "version": self._version if version is None else version,
            "created_at": self._created_at.isoformat(),
        }
        start, state = dump_json(head, "session")[:-1], self.dump_state()
        events = ",".join(event.to_json() for event in self._events)
        return f'{start},"state":{state},"events":[{events}]}}'

    @staticmethod
    def from_json(text: str) -> "Session":
        """Return the session that `to_json` wrote.

        Raises:
            CorruptSessionError: The text is none that `to_json` writes.
            NewerDataError: A later version of minagent wrote it.
        """
        with reading("?"):
            data = load_json(text)
            session_id, found = str(data["session_id"]), int(data["format"])
        if found > FORMAT:
            raise errors.NewerDataError(subject=session_id, found=found, known=FORMAT)
        with reading(session_id):
            return Session(
                data["session_id"],
                data["user_id"],
                events=[Event.from_plain(event) for event in data["events"]],
                state=state_of(data["state"]),
                incarnation=data["incarnation"],
                version=int(data["version"]),
                created_at=datetime.fromisoformat(data["created_at"]),
            )

    def __repr__(self) -> str:
        return (
            f"<Session {self._session_id!r}, version {self._version}, "
            f"{len(self._events)} events>"
        )


class SessionManager(ABC):
    """Keeps sessions under their ids.

    Three methods make a manager; `get_or_create` comes with them. No call to
    `super().__init__()` is needed.
    """

    @abstractmethod
    async def create(self, session_id: str, user_id: str | None = None) -> Session:
        """Make and store an empty session; of several racers exactly one wins.

        Args:
            session_id: The id, compared byte for byte.
            user_id: The owner, fixed for good, or None.

        Raises:
            InvalidSessionIdError: The id is none that every store can keep.
            SessionExistsError: The id is taken; what is stored stays as it is.
        """

    @abstractmethod
    async def get(self, session_id: str) -> Session | None:
        """Return a copy of what was last saved, or None if there is none.

        Changing the copy changes nothing but the copy. No owner is asked for: who
        calls this has decided that the caller may see the session.

        Raises:
            InvalidSessionIdError: The id is none that every store can keep.
            CorruptSessionError: What is stored cannot be read.
            NewerDataError: A later version of minagent stored it.
        """

    @abstractmethod
    async def save(self, session: Session) -> None:
        """Store the unsaved events and the state: all of it, or nothing.

        What is acknowledged (the call has returned) survives a crash, as far as the
        manager is durable. On success the session's `version` has grown by one and
        `unsaved` is empty. On an error nothing was written.

        Raises:
            SessionConflictError: The stored version is another than the session's:
                somebody else saved since it was read.
            SessionNotFoundError: The session was never created, was deleted, or was
                made again since (its `incarnation` is another).
            NotSerializableError: The state holds what JSON has no word for.
        """

    async def get_or_create(
        self, session_id: str, user_id: str | None = None
    ) -> Session:
        """Return the stored session, or make it; a lost race is no error.

        Args:
            session_id: The id, compared byte for byte.
            user_id: Who asks. None asks no question of an existing session.

        Raises:
            InvalidSessionIdError: The id is none that every store can keep.
            SessionOwnerError: The session is there, and not this user's.
        """
        while (session := await self.get(session_id)) is None:
            try:
                return await self.create(session_id, user_id)
            except errors.SessionExistsError:
                await asyncio.sleep(0)  # somebody was faster; theirs is there now
        check_owner(session, user_id)
        return session


BaseSessionManager = SessionManager
"""The book's name for `SessionManager`."""


# --- For writers of managers --------------------------------------------------


def check_session_id(session_id: str) -> None:
    """Check an id before anything is done with it.

    Raises:
        InvalidSessionIdError: It is not 1 to 255 bytes of well-formed UTF-8 without
            control characters (the Unicode category Cc).
    """
    if problem := _problem_of_id(session_id):
        raise errors.InvalidSessionIdError(session_id, problem=problem)


def check_user_id(user_id: str | None) -> None:
    """Check an owner's id; None passes.

    Raises:
        ValueError: It is not of the form that `check_session_id` asks for.
    """
    if user_id is not None and (problem := _problem_of_id(user_id)):
        raise ValueError(f"the user id {user_id!r:.80} {problem}")


def check_owner(session: Session, user_id: str | None) -> None:
    """Check that a session is this user's; None asks no question.

    Raises:
        SessionOwnerError: It is another's, or nobody's.
    """
    if user_id is not None and user_id != session.user_id:
        raise errors.SessionOwnerError(session.session_id, user_id=user_id)


def state_of(data: object) -> State:
    """Return a state that was read from JSON.

    Raises:
        TypeError: It is no JSON object.
    """
    if not isinstance(data, dict):
        raise TypeError("its state is no JSON object")
    return data


@contextmanager
def reading(session_id: str) -> Iterator[None]:
    """Turn what goes wrong while stored data is read into the named error.

    Raises:
        CorruptSessionError: Something in it is not as it was written.
    """
    try:
        yield
    except (KeyError, TypeError, ValueError, errors.NotSerializableError) as error:
        raise errors.CorruptSessionError(session_id, problem=repr(error)) from error


async def finished(work: Awaitable[T]) -> T:
    """Do the work to its end, even if the caller is cancelled meanwhile.

    A write that has begun must not be left in doubt: the cancel goes on only after the
    outcome is known. It goes on in any case; an error of the work is its cause then.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled from task.exception()
    return task.result()


# --- For the agent ------------------------------------------------------------

# By identity, since a manager need be neither hashable nor initialised by us. The
# owner object is kept beside its id, so that the id is not given to another object.
_running: dict[tuple[int, str], object] = {}
_running_lock = Lock()


@contextmanager
def running(owner: object, session_id: str) -> Iterator[None]:
    """Mark a session as being at work, within this process and one owner.

    Args:
        owner: The session's manager; or the session itself, where nothing is stored.
        session_id: The session.

    Raises:
        SessionBusyError: It is at work already.
    """
    key = id(owner), session_id
    with _running_lock:
        if key in _running:
            raise errors.SessionBusyError(session_id)
        _running[key] = owner
    try:
        yield
    finally:
        with _running_lock:
            del _running[key]


def _problem_of_id(value: str) -> str | None:
    if not isinstance(value, str):
        return f"is a {type(value).__name__}"
    size = len(value.encode(errors="replace"))
    if not 1 <= size <= 255:
        return f"has {size} bytes"
    if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in value):
        return "holds a control character, or half an emoji"
    return None
