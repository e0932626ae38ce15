"""Every error that minagent raises on purpose, and nothing else.

The tree, so that you can catch as much or as little as you can act on:

    MinagentError
    ├── NotSerializableError        a value that JSON has no word for
    ├── NewerDataError              stored by a later version of minagent
    ├── StoreUnavailableError       locked, full, unreadable: the store could not
    ├── StoreClosedError            used after `aclose`
    ├── KeyTakenError               a storage has an object under this key
    ├── ErasurePendingError         deleted, but still in the files
    ├── TamperedDataError           an encrypted object was changed by somebody
    ├── MissingKeyError             encrypted with a key that was not given
    ├── SessionError                about one session (`error.session_id`)
    │   ├── InvalidSessionIdError   an id that no store may accept
    │   ├── SessionExistsError      `create` with a taken id
    │   ├── SessionNotFoundError    never created, deleted, or made again since
    │   ├── SessionConflictError    somebody else saved first
    │   ├── SessionOwnerError       it belongs to another user
    │   ├── SessionBusyError        a run is at work on it
    │   ├── UnknownEventError       it has no such event
    │   ├── NothingToUndoError      nothing that the user said is left
    │   └── CorruptSessionError     stored data that cannot be read
    ├── RunError                    one run could not go on (`error.session_id`)
    │   ├── NothingToContinueError  no input, and nothing is open
    │   ├── MaxStepsExceededError   no answer within `max_steps` model calls
    │   └── NodeFailedError         a node of a graph, or a peer, came to no result
    └── ApprovalError               about one decision (`error.tool_call_id`)
        ├── UnknownCallError        nobody asked about this call
        ├── AlreadyDecidedError     somebody decided, or the question was closed
        ├── ApprovalExpiredError    the deadline has passed
        ├── FingerprintError        the question was another one
        ├── InvalidArgumentsError   edited arguments that the tool does not take
        └── OpenCallError           it has no result yet

Misuse that needs no name of its own (a blank input, two tools of one name) is a
plain `ValueError` or `TypeError`. What a model's client raises passes through as
it is. Each message names its subject and says what to do next: a class says it once,
as a `template` that is filled with the subject and the details.
"""

from typing import Any, ClassVar


class MinagentError(Exception):
    """The root of every error that minagent raises on purpose.

    Args:
        subjects: What it is about, in the order of the class's `subjects`.
        details: What else its message says; all of it becomes attributes.
    """

    template: ClassVar[str] = "{problem}"
    subjects: ClassVar[tuple[str, ...]] = ()

    def __init__(self, *subjects: Any, **details: Any) -> None:
        details |= zip(self.subjects, subjects, strict=False)
        self.__dict__.update(details)
        super().__init__(self.template.format(**details))


class NotSerializableError(MinagentError):
    """A value would be lost or change its type on the way through JSON.

    Nothing was stored; the version that was stored before is as it was.

    Attributes:
        path: Where the value stands, such as `state.project.due`.
    """

    template = "{path} {problem}. Store what JSON has a word for"
    subjects = ("path", "problem")
    path: str


class NewerDataError(MinagentError):
    """The data was stored by a later version of minagent; it is left untouched.

    Attributes:
        subject: The file or the session that holds the data.
    """

    template = "{subject!r} has format {found}, newer than {known}: upgrade minagent"
    subject: str


class StoreUnavailableError(MinagentError):
    """The store could not do what was asked: locked, full, or not readable.

    The driver's own error is the `__cause__`.

    Attributes:
        place: The file or address of the store.
    """

    template = "the store at {place!r} could not be used: {problem}"
    place: str


class StoreClosedError(MinagentError):
    """A store was used after `aclose`, or after its `async with` block."""

    template = "this {store} is closed; open a new one"


class KeyTakenError(MinagentError):
    """`create` met an object under this key, and has not touched it.

    Attributes:
        key: The key.
    """

    template = "there is an object {key!r} already"
    subjects = ("key",)
    key: str


class ErasurePendingError(MinagentError):
    """What was deleted is gone, but its text is not out of the files yet.

    Somebody reads what was there before. `erase`, or the next deletion, finishes it.

    Attributes:
        place: The file or address of the store.
    """

    template = (
        "deleted, but a reader holds on to text in {place!r}; call erase() when it ends"
    )
    place: str


class TamperedDataError(MinagentError):
    """An encrypted object is not what was stored under its key; it is left untouched.

    Attributes:
        key: Where the object stands in its storage.
    """

    template = "the object {key!r} was changed since it was encrypted; restore a copy"
    subjects = ("key",)
    key: str


class MissingKeyError(MinagentError):
    """An object was encrypted with a key that was not given; it is left untouched.

    Attributes:
        key_id: The name of the encryption key.
    """

    template = "{place!r} is encrypted with the key {key_id!r}; add that to the keys"
    subjects = ("key_id",)
    key_id: str


class SessionError(MinagentError):
    """Something about one session.

    Attributes:
        session_id: The session that it is about.
    """

    template = "session {session_id!r}: {problem}"
    subjects = ("session_id",)
    session_id: str


class InvalidSessionIdError(SessionError, ValueError):
    """The id is none that every store can keep apart from all others."""

    template = (
        "the session id {session_id!r:.80} {problem}; an id is 1 to 255 bytes of UTF-8 "
        "without control characters"
    )


class SessionExistsError(SessionError):
    """`create` met a session of this id, and has not touched it."""

    template = "session {session_id!r} exists already; use get or get_or_create"


class SessionNotFoundError(SessionError):
    """The session was never created, was deleted, or was made again since."""

    template = "session {session_id!r} is not there, or another by now; get it again"


class SessionConflictError(SessionError):
    """Somebody else saved this session since it was read; nothing was written.

    Raised by `Agent.run` it means that the input *is* stored: run again without
    input to go on from there.

    Attributes:
        unsaved: The events that could not be stored.
    """

    template = "session {session_id!r} was saved by somebody else; get it again"
    unsaved: tuple[Any, ...] = ()


class SessionOwnerError(SessionError):
    """The session belongs to another user; who that is, the error does not tell."""

    template = "session {session_id!r} does not belong to user {user_id!r}"


class SessionBusyError(SessionError):
    """A run of the same manager is at work on this session."""

    template = "a run is at work on session {session_id!r}; wait until it ends"


class UnknownEventError(SessionError):
    """The session has no such event.

    Attributes:
        event_id: The event.
    """

    template = "session {session_id!r} has no event {event_id!r}; see session.events"
    event_id: str


class NothingToUndoError(SessionError):
    """Nothing that the user said is left in the session."""

    template = "nothing is left to undo in session {session_id!r}; rewind goes forward"


class CorruptSessionError(SessionError):
    """What is stored cannot be read. It is left untouched, and nothing is skipped."""

    template = "session {session_id!r} cannot be read: {problem}; restore a copy"


class RunError(MinagentError):
    """A run could not go on. All that happened before is stored.

    Attributes:
        session_id: The session of the run, or None where nothing is stored.
    """

    subjects = ("session_id",)
    session_id: str | None


class NothingToContinueError(RunError):
    """A run without input met a conversation in which nothing is open."""

    template = "nothing to go on from in session {session_id!r}; pass a user_input"


class MaxStepsExceededError(RunError):
    """The model gave no answer within `max_steps` calls.

    Attributes:
        max_steps: The limit, in model calls.
    """

    template = "no answer in {max_steps} model calls; run without input to go on"
    max_steps: int


class NodeFailedError(RunError):
    """A node of a graph, or a peer of a swarm, came to no result.

    Attributes:
        node: Its name.
    """

    template = "{node!r} failed: {problem}. Run without input to try it again"
    node: str


class ApprovalError(MinagentError):
    """A decision could not be taken, and none of those beside it was.

    Attributes:
        tool_call_id: The call that the decision was about.
    """

    subjects = ("tool_call_id",)
    tool_call_id: str


class UnknownCallError(ApprovalError):
    """Nobody was asked about this call."""

    template = "no pending call {tool_call_id!r}; see pending_tool_calls(session)"


class AlreadyDecidedError(ApprovalError):
    """The call was decided before, or its question was closed. That stands."""

    template = "call {tool_call_id!r} was decided or closed before; that stands"


class ApprovalExpiredError(ApprovalError):
    """The deadline of the question has passed; the tool was not run."""

    template = "the question about {tool_call_id!r} has expired; ask the agent again"


class FingerprintError(ApprovalError):
    """The decision was made for a question that reads differently."""

    template = "the decision on {tool_call_id!r} was about another question"


class InvalidArgumentsError(ApprovalError):
    """The edited arguments are none that the tool takes; the call still waits."""

    template = "the edited arguments of call {tool_call_id!r} do not fit: {problem}"


class OpenCallError(ApprovalError):
    """The call has no result yet, so its event cannot be redacted."""

    template = "call {tool_call_id!r} has no result yet; decide it, or run to go on"
