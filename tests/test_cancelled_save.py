"""Cancelled at any await, a save has happened, or it has not (promise 15).

`Waits` sees each time that a task has to wait. So a caller can be cancelled there: as
it begins to wait, or just before it goes on, with the work done and the news still on
its way. Then the session object, the file and the next save have to agree.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from operator import methodcaller
from pathlib import Path
from typing import Any, Literal

import pytest

from minagent import Event, Message, Session
from minagent.errors import SessionConflictError
from minagent.session import finished
from minagent.stores import SQLiteSessionManager

pytestmark = pytest.mark.heavy

Moment = Literal["as it begins to wait", "just before it goes on"]
MOMENTS: tuple[Moment, ...] = ("as it begins to wait", "just before it goes on")
LIMIT_SECONDS = 5
Work = Callable[[SQLiteSessionManager], Coroutine[Any, Any, object]]
Check = Callable[[SQLiteSessionManager, Path], Coroutine[Any, Any, None]]

both_moments = pytest.mark.parametrize("moment", MOMENTS)
held_or_not = pytest.mark.parametrize(
    "held", [True, False], ids=["in its block", "without one"]
)


class Waits:
    """Counts how often any task waits, and acts at chosen ones."""

    def __init__(self, act: Callable[[], object], at: set[int], moment: Moment) -> None:
        self.count = 0
        self._act, self._at, self._moment = act, at, moment

    def watch(self) -> None:
        """Watch the tasks that are made from now on in this event loop."""
        asyncio.get_running_loop().set_task_factory(
            lambda loop, work, **more: asyncio.Task(
                Watched(work, self.waits), loop=loop, **more
            )
        )

    def stop(self) -> None:
        asyncio.get_running_loop().set_task_factory(None)

    def waits(self, future: Any) -> Any:
        if future is not None:
            self.count += 1
            if self.count in self._at:
                if self._moment == MOMENTS[0]:
                    self._act()
                else:
                    future.add_done_callback(lambda _: self._act())
        return future


class Watched(Coroutine[Any, Any, Any]):
    """A coroutine that shows each future that it waits for."""

    def __init__(self, work: Any, waits: Callable[[Any], Any]) -> None:
        self._work, self._waits = work, waits

    def send(self, value: Any) -> Any:
        return self._waits(self._work.send(value))

    def throw(self, *error: Any) -> Any:
        return self._waits(self._work.throw(*error))

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._work.__await__()


def said(text: str) -> Event:
    return Event(author="user", content=(Message(role="user", content=text),))


def texts(session: Session | None) -> list[str]:
    assert session is not None
    items = [item for event in session.events for item in event.content]
    return [item.content for item in items if isinstance(item, Message)]


async def cancelled(
    work: Coroutine[Any, Any, object], at: set[int], moment: Any
) -> int:
    """Do the work, cancel it at the given waits, and return how many there were.

    At wait 0 it is cancelled before it has begun.
    """
    task: asyncio.Task[object] | None = None
    waits = Waits(lambda: task and task.cancel(), at, moment)
    waits.watch()
    task = asyncio.ensure_future(work)
    if 0 in at:
        task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    waits.stop()
    return waits.count


def loop_ends(
    sessions: SQLiteSessionManager, work: Work, at: int, *, held: bool
) -> None:
    """Let an event loop end, as `asyncio.run` does, at one of the waits of the work."""

    async def main() -> None:
        if held:
            await sessions.__aenter__()
        reached = asyncio.get_running_loop().create_future()
        waits = Waits(lambda: reached.set_result(None), {at}, MOMENTS[0])
        waits.watch()
        task = asyncio.ensure_future(work(sessions))
        await asyncio.wait([task, reached], return_when=asyncio.FIRST_COMPLETED)

    asyncio.run(main())


async def opened(path: Path, held: bool) -> SQLiteSessionManager:
    """Return a manager for a file with three sessions, one of them inside another."""
    # In a block, which is faster, whatever the test is about.
    async with SQLiteSessionManager(path, durability="normal") as maker:
        for session_id in ("other", "trip", "trip/writer"):
            session = await maker.create(session_id)
            session.append(said(session_id))
            await maker.save(session)
    sessions = SQLiteSessionManager(path, durability="normal")
    if held:
        await sessions.__aenter__()
    return sessions


# --- save ---------------------------------------------------------------------


async def check_saved(
    sessions: SQLiteSessionManager, session: Session, path: Path
) -> bool:
    """Check that all agree, that the work goes on, and tell whether it was stored."""
    stored = await SQLiteSessionManager(path).get("trip")
    assert stored is not None
    new = stored.version == 2
    assert texts(stored) == (["trip", "new", "newer"] if new else ["trip"])
    assert stored.state == ({"n": 1} if new else {})
    assert session.version == stored.version
    assert len(session.unsaved) == (0 if new else 2)
    assert texts(await sessions.get("trip")) == texts(stored)

    session.append(said("newest"))
    await sessions.save(session)  # it must not conflict with itself

    again = await sessions.get("trip")
    assert texts(again) == ["trip", "new", "newer", "newest"]
    assert texts(await SQLiteSessionManager(path).get("trip")) == texts(again)
    return new


async def with_something_to_save(sessions: SQLiteSessionManager) -> Session:
    session = await sessions.get("trip")
    assert session is not None
    session.append(said("new"), said("newer"))
    session.state["n"] = 1
    return session


async def waits_of_a_save(path: Path, held: bool) -> int:
    sessions = await opened(path, held)
    session = await with_something_to_save(sessions)
    count = await cancelled(sessions.save(session), set(), MOMENTS[0])
    assert session.version == 2
    await sessions.aclose()
    return count


@held_or_not
@both_moments
@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
async def test_a_save_that_is_cancelled_at_any_await_was_done_or_was_not(
    tmp_path: Path, held: bool, moment: Moment, times: int
) -> None:
    count = await waits_of_a_save(tmp_path / "sessions.db", held)
    assert count > 0

    for at in range(count + 1):
        path = tmp_path / f"{at}.db"
        sessions = await opened(path, held)
        session = await with_something_to_save(sessions)

        async with asyncio.timeout(LIMIT_SECONDS):
            save = sessions.save(session)
            await cancelled(save, {*range(at, at + times)}, moment)

            await check_saved(sessions, session, path)
        await sessions.aclose()


@held_or_not
async def test_a_save_that_has_begun_is_finished_before_the_cancel_goes_on(
    tmp_path: Path, held: bool
) -> None:
    path = tmp_path / "sessions.db"
    sessions = await opened(path, held)
    session = await with_something_to_save(sessions)

    saving = asyncio.ensure_future(sessions.save(session))
    await asyncio.sleep(0)
    saving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await saving

    assert await check_saved(sessions, session, path)
    await sessions.aclose()


@held_or_not
async def test_a_caller_that_insists_on_the_cancel_is_told_the_truth(
    tmp_path: Path, held: bool
) -> None:
    path = tmp_path / "sessions.db"
    sessions = await opened(path, held)
    session = await with_something_to_save(sessions)

    saving = asyncio.ensure_future(sessions.save(session))
    await asyncio.sleep(0)
    while not saving.done():
        saving.cancel()
        await asyncio.sleep(0)

    assert await check_saved(sessions, session, path)
    await sessions.aclose()


@held_or_not
async def test_a_cancelled_save_of_a_stale_session_changes_nothing(
    tmp_path: Path, held: bool
) -> None:
    path = tmp_path / "sessions.db"
    count = await waits_of_a_save(tmp_path / "other.db", held)
    sessions = await opened(path, held)
    stale = await with_something_to_save(sessions)
    fresh_copy = await sessions.get("trip")
    assert fresh_copy is not None
    await sessions.save(fresh_copy)

    for at in range(1, count + 3):
        with suppress(SessionConflictError):
            await cancelled(sessions.save(stale), {at}, MOMENTS[0])

        assert stale.version == 1
        assert len(stale.unsaved) == 2
        assert texts(await sessions.get("trip")) == ["trip"]
    await sessions.aclose()


@held_or_not
def test_the_end_of_the_event_loop_leaves_a_save_done_or_not(
    tmp_path: Path, held: bool
) -> None:
    """`asyncio.run` cancels every task, also those that were shielded from it."""
    count = asyncio.run(waits_of_a_save(tmp_path / "sessions.db", held))

    for at in range(1, count + 1):
        path = tmp_path / f"{at}.db"
        sessions = asyncio.run(opened(path, held=False))
        session = asyncio.run(with_something_to_save(sessions))

        loop_ends(sessions, methodcaller("save", session), at, held=held)

        asyncio.run(check_in_another_loop(check_saved(sessions, session, path)))
        asyncio.run(sessions.aclose())


async def check_in_another_loop(check: Coroutine[Any, Any, object]) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        await check


# --- create and delete --------------------------------------------------------


async def check_created(sessions: SQLiteSessionManager, path: Path) -> None:
    stored = await SQLiteSessionManager(path).get("ada")
    assert stored is None or (stored.user_id, stored.version) == ("ann", 0)

    session = await sessions.get_or_create("ada", user_id="ann")
    session.append(said("Hello."))
    await sessions.save(session)

    if stored is not None:
        assert session.incarnation == stored.incarnation
    assert texts(await SQLiteSessionManager(path).get("ada")) == ["Hello."]
    assert texts(await sessions.get("ada")) == ["Hello."]


async def check_deleted(sessions: SQLiteSessionManager, path: Path) -> None:
    """Check that the session and the one inside it are both there, or both gone."""
    infos = await SQLiteSessionManager(path).list(children=True)
    left = [info.session_id for info in infos]
    assert left in (["other"], ["other", "trip", "trip/writer"])
    for session_id in ("trip", "trip/writer"):
        session = await sessions.get(session_id)
        if session_id in left:
            assert texts(session) == [session_id]
        else:
            assert session is None

    assert await sessions.delete("trip") is ("trip" in left)
    again = await sessions.create("trip")
    assert texts(await sessions.get("trip")) == []
    again.append(said("again"))
    await sessions.save(again)
    assert texts(await SQLiteSessionManager(path).get("trip")) == ["again"]
    assert texts(await sessions.get("other")) == ["other"]


CASES: dict[str, tuple[Work, Check]] = {
    "create": (methodcaller("create", "ada", "ann"), check_created),
    "get_or_create": (methodcaller("get_or_create", "ada", "ann"), check_created),
    "delete": (methodcaller("delete", "trip"), check_deleted),
    "get": (methodcaller("get", "trip"), check_deleted),
    "list": (methodcaller("list"), check_deleted),
}
each_case = pytest.mark.parametrize(("work", "check"), CASES.values(), ids=CASES.keys())


async def waits_of(work: Work, path: Path, held: bool) -> int:
    sessions = await opened(path, held)
    count = await cancelled(work(sessions), set(), MOMENTS[0])
    await sessions.aclose()
    return count


@held_or_not
@both_moments
@each_case
async def test_any_call_that_is_cancelled_at_any_await_was_done_or_was_not(
    tmp_path: Path, held: bool, moment: Moment, work: Work, check: Check
) -> None:
    count = await waits_of(work, tmp_path / "sessions.db", held)
    assert count > 0

    for at in range(count + 1):
        path = tmp_path / f"{at}.db"
        sessions = await opened(path, held)

        async with asyncio.timeout(LIMIT_SECONDS):
            await cancelled(work(sessions), {at}, moment)

            await check(sessions, path)
        await sessions.aclose()


@held_or_not
@each_case
def test_the_end_of_the_event_loop_leaves_any_call_done_or_not(
    tmp_path: Path, held: bool, work: Work, check: Check
) -> None:
    count = asyncio.run(waits_of(work, tmp_path / "sessions.db", held))

    for at in range(1, count + 1):
        path = tmp_path / f"{at}.db"
        sessions = asyncio.run(opened(path, held=False))

        loop_ends(sessions, work, at, held=held)

        asyncio.run(check_in_another_loop(check(sessions, path)))
        asyncio.run(sessions.aclose())


@both_moments
async def test_a_block_whose_entering_was_cancelled_can_be_entered(
    tmp_path: Path, moment: Moment
) -> None:
    sessions = SQLiteSessionManager(tmp_path / "sessions.db")
    count = await cancelled(sessions.__aenter__(), set(), moment)
    await sessions.aclose()
    assert count > 0

    for at in range(count + 1):
        sessions = SQLiteSessionManager(tmp_path / f"{at}.db")

        async with asyncio.timeout(LIMIT_SECONDS):
            await cancelled(sessions.__aenter__(), {at}, moment)
            async with sessions:
                await sessions.create("ada")

                assert await sessions.get("ada") is not None


async def test_a_cancel_goes_on_though_the_work_that_it_waited_for_fails() -> None:
    """Or whoever answers a conflict by trying again would never be stopped."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def conflict() -> None:
        begun.set()
        await go_on.wait()
        raise SessionConflictError("ada")

    task = asyncio.create_task(finished(conflict()))
    await begun.wait()
    task.cancel()
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.wait([task])

    assert task.cancelled()
