"""`S3Storage` keeps the promises of `Storage`, over real HTTP."""

from pathlib import Path

import pytest
import s3

from minagent.stores import S3Storage, Storage
from minagent.testing import StorageContract

pytestmark = pytest.mark.heavy


class TestS3Storage(StorageContract):
    def open_storage(self, tmp_path: Path) -> Storage:
        return S3Storage(s3.bucket_of(tmp_path), endpoint=s3.endpoint())
