"""Grades exercise 06: `pytest chapters/ch06_restart --mine`."""

import os
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from minagent import SessionManager
from minagent.testing import SessionManagerContract

GRADED = "MINAGENT_CHAPTER_06"


class TestJsonFileSessionManager(SessionManagerContract):
    """The promises of `SessionManager`, on the manager that is graded."""

    @pytest.fixture(autouse=True)
    def graded(self, work: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        """Say which module is graded where a second process can read it, too."""
        monkeypatch.setenv(GRADED, work.__name__)

    def open_manager(self, tmp_path: Path) -> SessionManager:
        """Return a manager on this folder; a second process calls this as well."""
        work = import_module(os.environ[GRADED])
        manager: SessionManager = work.JsonFileSessionManager(tmp_path)
        return manager
