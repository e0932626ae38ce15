"""The shipped memory managers keep the contract."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest_asyncio

from minagent.memory import InMemoryMemoryManager, MemoryManager, SQLiteMemoryManager
from minagent.testing import MemoryManagerContract


class TestInMemoryMemoryManager(MemoryManagerContract):
    durable = False

    def open_manager(self, tmp_path: Path) -> MemoryManager:
        return InMemoryMemoryManager()


class TestSQLiteMemoryManager(MemoryManagerContract):
    """Without a block: each call opens and closes a connection of its own."""

    def open_manager(self, tmp_path: Path) -> MemoryManager:
        return SQLiteMemoryManager(tmp_path / "memory.db")


class TestSQLiteMemoryManagerInABlock(TestSQLiteMemoryManager):
    @pytest_asyncio.fixture(loop_scope="function")
    async def memory(
        self, reopen: Callable[[], MemoryManager]
    ) -> AsyncIterator[MemoryManager]:
        async with reopen() as memory:
            yield memory
