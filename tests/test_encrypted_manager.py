"""`BlobSessionManager` on encrypted objects: the contract."""

from pathlib import Path

import pytest

from minagent import SessionManager
from minagent.stores import BlobSessionManager, FolderStorage
from minagent.stores.encrypted import EncryptedStorage
from minagent.testing import SessionManagerContract

pytestmark = pytest.mark.heavy


class TestBlobSessionManagerOnEncryptedObjects(SessionManagerContract):
    def open_manager(self, tmp_path: Path) -> SessionManager:
        folder = FolderStorage(tmp_path / "objects", durability="normal")
        return BlobSessionManager(EncryptedStorage(folder, {"2026": bytes(range(32))}))
