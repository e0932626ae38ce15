"""Checks for what you write yourself: subclass `SessionManagerContract`.

`contracts` is the promises of `SessionManager` as tests that you inherit. Nothing in
minagent imports this package, since it needs pytest.
"""

try:
    import pytest

    # Only then does pytest show, for an assert in that file, what was compared.
    pytest.register_assert_rewrite("minagent.testing.contracts")
    from minagent.testing.contracts import SessionManagerContract
except ModuleNotFoundError as error:
    if error.name not in {"pytest", "pytest_asyncio"}:
        raise
    raise ModuleNotFoundError(
        f"minagent.testing needs {error.name}: pip install 'minagent[book]'",
        name=error.name,
    ) from error

__all__ = ["SessionManagerContract"]
