"""Checks and doubles for tests of your own.

`SessionManagerContract` is the promises of `SessionManager` as tests that you inherit,
`SessionStoreContract` those of `SessionStore`, `StorageContract` those of `Storage` and
`MemoryManagerContract` those of `MemoryManager`; they need pytest. `FakeAnthropic` is a
double of the Messages API; it needs nothing. What you name is imported then, not
before. Nothing in minagent imports this package.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minagent.testing.contracts import SessionManagerContract
    from minagent.testing.fake_anthropic import (
        ApiError,
        Cut,
        Edited,
        FakeAnthropic,
        Slow,
    )
    from minagent.testing.memory_contract import MemoryManagerContract
    from minagent.testing.storage_contract import StorageContract
    from minagent.testing.store_contract import SessionStoreContract

__all__ = [
    "ApiError",
    "Cut",
    "Edited",
    "FakeAnthropic",
    "MemoryManagerContract",
    "SessionManagerContract",
    "SessionStoreContract",
    "Slow",
    "StorageContract",
]

_CONTRACTS = {
    "MemoryManagerContract": "minagent.testing.memory_contract",
    "SessionManagerContract": "minagent.testing.contracts",
    "SessionStoreContract": "minagent.testing.store_contract",
    "StorageContract": "minagent.testing.storage_contract",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name not in _CONTRACTS:
        return getattr(import_module("minagent.testing.fake_anthropic"), name)
    home = _CONTRACTS[name]
    try:
        if home not in sys.modules:
            # Only then does pytest show, for an assert in that file, what was compared.
            new = {*_CONTRACTS.values()} - {*sys.modules}
            import_module("pytest").register_assert_rewrite(*new)
        return getattr(import_module(home), name)
    except ModuleNotFoundError as error:
        if error.name not in {"pytest", "pytest_asyncio"}:
            raise
        raise ModuleNotFoundError(
            f"minagent.testing needs {error.name}: pip install 'minagent[book]'",
            name=error.name,
        ) from error
