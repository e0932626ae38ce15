"""Exercise 06: a session manager on disk, held to the promises of `SessionManager`.

Each version of a session is one file. Version 0 is written by `create`, version 1 by
the first `save`, and so on. A file that has its name is never changed or removed. So
the newest version of a session is the file with the highest number, and a version can
be written only once: whoever comes second finds the name taken.

What you need, besides `os`, `hashlib` and `tempfile`:

    Session(session_id, user_id)         a new session, of version 0; checks both ids
    session.to_json(version=n)           its text, as of version n; refuses values that
                                         JSON has no word for
    Session.from_json(text)              a session from that text, of the version in it
    session.version, .incarnation        what `save` has to compare
    session.mark_saved()                 counts the version, and empties `unsaved`
    check_session_id(session_id)         refuses a bad id; from `minagent`
    SessionExistsError, SessionNotFoundError, SessionConflictError
                                         from `minagent`; each takes the session id

The tests go from easy to hard: `pytest chapters/ch06_restart --mine -x` stops at the
first promise that is not kept yet.
"""

from pathlib import Path

from minagent import Session, SessionManager


class JsonFileSessionManager(SessionManager):
    """Keeps every version of a session as a JSON file of its own.

    Where a session's files are: an id may have up to 255 bytes and any letters, `/` and
    `..` among them, and `A` is another id than `a`. So give each session a folder
    inside `folder`, named `hashlib.sha256(session_id.encode()).hexdigest()`, and put
    its versions there. Write their numbers with leading zeros, or compare them as
    numbers: as text, 10 stands before 9.

    How a version is written: first the whole text, into a file beside the others whose
    name nobody takes for a version (`tempfile.NamedTemporaryFile(dir=...)` makes one,
    and removes it; flush it). Then `os.link(beside, name)` gives it its name in one
    step, or raises `FileExistsError` if another process was faster. Do not ask first
    whether the name is free: between the question and the write, somebody else writes.
    Write in UTF-8, whatever the system prefers.

    Args:
        folder: Where the sessions are kept; it exists. Nothing is kept elsewhere, and
            nothing in the object: another object on this folder, in this process or
            another, sees the same sessions at any time.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def create(self, session_id: str, user_id: str | None = None) -> Session:
        """Make a session, write it as version 0, and return it.

        Raises:
            InvalidSessionIdError: The id is bad; `Session` raises it for you.
            SessionExistsError: Version 0 is there already. It stays as it is.
        """
        raise NotImplementedError("create does not write version 0 yet")

    async def get(self, session_id: str) -> Session | None:
        """Return the session from its newest version, or None if there is none.

        Nothing is written, and no folder is made.

        Raises:
            InvalidSessionIdError: The id is bad; `check_session_id` raises it.
        """
        raise NotImplementedError("get does not read the newest version yet")

    async def save(self, session: Session) -> None:
        """Write the session as its next version, and mark it as saved.

        Look at what is stored first: the session must be there, and be the same one.
        Then write `session.version + 1`, which only one can do. Since old versions
        stay, the next version of a stale session is always taken. Call `mark_saved`
        after the file has its name, and at no other time.

        Raises:
            SessionNotFoundError: Nothing is stored, or its `incarnation` is another.
            SessionConflictError: The next version is there already.
            NotSerializableError: The state cannot be kept; `to_json` raises it, and
                nothing is written.
        """
        raise NotImplementedError("save does not write the next version yet")
