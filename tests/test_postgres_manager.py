"""`PostgresSessionManager` keeps the promises of every store.

What it promises besides stands in `test_postgres_store.py`.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from postgres import opened, schema_of, server

from minagent import SessionManager, SessionStore
from minagent.stores import PostgresSessionManager
from minagent.testing import SessionManagerContract, SessionStoreContract

pytestmark = pytest.mark.heavy


class HoldsItsConnections(PostgresSessionManager):
    """Enters its block at the first call, since `open_store` cannot await."""

    def __init__(self, conninfo: str, **options: Any) -> None:
        super().__init__(conninfo, **options)
        self.one_at_a_time = asyncio.Lock()
        self.entered = False

    async def _attempt(self, text: Any, values: Any) -> Any:
        if not self.entered:
            async with self.one_at_a_time:
                await self.__aenter__()
                self.entered = True
        return await super()._attempt(text, values)


class TestPostgresSessionManagerInItsBlock(SessionStoreContract):
    def open_store(self, tmp_path: Path) -> SessionStore:
        return HoldsItsConnections(server(), schema=schema_of(tmp_path))


class TestPostgresSessionManager(SessionManagerContract):
    """Without its block, where each call has a connection of its own."""

    def open_manager(self, tmp_path: Path) -> SessionManager:
        return opened(tmp_path)
