"""`BlobSessionManager` in a bucket: the contract, over a real server's HTTP."""

from pathlib import Path

import pytest
import s3

from minagent import SessionManager
from minagent.stores import BlobSessionManager
from minagent.stores.s3 import S3Storage
from minagent.testing import SessionManagerContract

pytestmark = pytest.mark.heavy  # some four thousand requests


class TestBlobSessionManagerInABucket(SessionManagerContract):
    def open_manager(self, tmp_path: Path) -> SessionManager:
        bucket = s3.bucket_of(tmp_path)
        return BlobSessionManager(S3Storage(bucket, endpoint=s3.endpoint()))
