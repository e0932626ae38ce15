"""A right solution of the exercise: each saved version is one file, never changed."""

import os
import re
from pathlib import Path
from tempfile import NamedTemporaryFile

from minagent import Session, SessionManager
from minagent.errors import (
    SessionConflictError,
    SessionExistsError,
    SessionNotFoundError,
)
from minagent.session import check_session_id
from minagent.testing import SessionManagerContract


class JsonFileSessionManager(SessionManager):
    """Keeps every saved version of a session as one JSON file of its own in `folder`.

    A version's name can be taken only once, whoever asks: the file system is the judge
    of all races, and what is acknowledged is a whole file.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def create(self, session_id: str, user_id: str | None = None) -> Session:
        session = Session(session_id, user_id)
        if not self._write(session, 0):
            raise SessionExistsError(session_id)
        return session

    async def get(self, session_id: str) -> Session | None:
        check_session_id(session_id)
        versions = sorted(self._folder_of(session_id).glob("v*.json"))
        return Session.from_json(versions[-1].read_text("utf-8")) if versions else None

    async def save(self, session: Session) -> None:
        stored = await self.get(session.session_id)
        if stored is None or stored.incarnation != session.incarnation:
            raise SessionNotFoundError(session.session_id)
        # Old versions stay, so the next name of a stale session is always taken.
        if not self._write(session, session.version + 1):
            raise SessionConflictError(session.session_id)
        session.mark_saved()

    def _write(self, session: Session, version: int) -> bool:
        """Write a version, if no such version is there; return whether it was."""
        text = session.to_json(version=version)
        folder = self._folder_of(session.session_id)
        folder.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile("w", dir=folder, encoding="utf-8") as beside:
            beside.write(text)
            beside.flush()
            try:
                os.link(beside.name, folder / f"v{version:020}.json")
            except FileExistsError:
                return False
            return True

    def _folder_of(self, session_id: str) -> Path:
        # Hexadecimal: one-to-one, without `/`, `..` or capital letters. In pieces,
        # since a file name has at most 255 letters. No piece begins with a `v`.
        pieces = re.findall(".{1,200}", session_id.encode().hex())
        return self._folder.joinpath(*pieces)


class TestJsonFileSessionManager(SessionManagerContract):
    def open_manager(self, tmp_path: Path) -> SessionManager:
        return JsonFileSessionManager(tmp_path)
