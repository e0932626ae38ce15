"""Grades chapter 07: of some calls that wait, one is decided."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

import pytest

from minagent import (
    Agent,
    AlreadyDecidedError,
    InMemorySessionManager,
    Session,
    SessionManager,
    ToolCall,
    ToolConfirmation,
    UnknownCallError,
    pending_tool_calls,
    tool,
)
from minagent.models import ScriptedModel
from minagent.stores import SQLiteSessionManager

DELETED: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_is_deleted() -> None:
    DELETED.clear()


@tool(requires_confirmation=True, confirmation_message="Delete {path}?")
def delete_file(path: str) -> str:
    """Delete one file."""
    DELETED.append(path)
    return f"Deleted {path}."


async def ask(sessions: SessionManager, *paths: str) -> Session:
    """Let a model ask for files to be deleted; the run ends with the questions."""
    calls = [ToolCall(name="delete_file", arguments={"path": path}) for path in paths]
    agent = Agent(ScriptedModel([calls]), tools=[delete_file], session_manager=sessions)
    return (await agent.run("Tidy up.", session_id="files")).context.session


@contextmanager
def no_error_page() -> Iterator[None]:
    """Let a late click be told in plain words that it must not raise."""
    try:
        yield
    except AlreadyDecidedError:
        pytest.fail(
            "a late click must not end in AlreadyDecidedError: catch it in click()",
            pytrace=False,
        )


def later(sessions: SessionManager) -> tuple[Agent, ScriptedModel]:
    """Return the agent of a program that was started anew."""
    model = ScriptedModel(["Tidy."])
    return Agent(model, tools=[delete_file], session_manager=sessions), model


async def test_the_inbox_shows_each_question_by_its_call(work: ModuleType) -> None:
    session = await ask(InMemorySessionManager(), "a.txt", "b.txt")

    shown = work.inbox(session)

    first, second = pending_tool_calls(session)
    assert shown == {
        first.tool_call_id: "Delete a.txt?",
        second.tool_call_id: "Delete b.txt?",
    }, "inbox() must give the question of each waiting call by the call's id"
    assert [*shown] == [first.tool_call_id, second.tool_call_id], (
        "inbox() must keep the order in which was asked"
    )
    assert work.inbox(Session("new")) == {}, "in a new session nothing waits"


async def test_a_yes_runs_one_call_and_leaves_the_other(work: ModuleType) -> None:
    sessions = InMemorySessionManager()
    first, second = pending_tool_calls(await ask(sessions, "a.txt", "b.txt"))
    agent, model = later(sessions)

    said = await work.click(agent, "files", second.tool_call_id, yes=True, by="ada")

    assert DELETED == ["b.txt"], (
        "a yes must run the call that it is about, and no other"
    )
    assert said == "Still waiting: Delete a.txt?", "the page must name what still waits"
    assert model.requests == [], "the model is not asked while a call has no result"
    stored = await sessions.get("files")
    assert stored is not None
    assert pending_tool_calls(stored) == (first,), "the other question must stay"


async def test_all_that_still_wait_are_named_in_order(work: ModuleType) -> None:
    sessions = InMemorySessionManager()
    session = await ask(sessions, "a.txt", "b.txt", "c.txt")
    first, second, third = pending_tool_calls(session)
    agent, _ = later(sessions)

    said = await work.click(agent, "files", second.tool_call_id, yes=True, by="ada")

    assert said == "Still waiting: Delete a.txt? and Delete c.txt?", (
        'the page must name all that still wait, in order, with " and " between them'
    )
    assert DELETED == ["b.txt"], "the others must wait, and not run"
    stored = await sessions.get("files")
    assert stored is not None
    assert pending_tool_calls(stored) == (first, third), "both others must stay"


async def test_the_last_decision_brings_the_answer(work: ModuleType) -> None:
    sessions = InMemorySessionManager()
    first, second = pending_tool_calls(await ask(sessions, "a.txt", "b.txt"))
    agent, model = later(sessions)

    await work.click(agent, "files", second.tool_call_id, yes=True, by="ada")
    said = await work.click(agent, "files", first.tool_call_id, yes=True, by="ada")

    assert DELETED == ["b.txt", "a.txt"], "both calls were approved, so both must run"
    assert said == "Tidy.", "when nothing waits, the page must show the agent's answer"
    assert len(model.requests) == 1, "the model must be asked once, at the end"


async def test_a_no_runs_nothing_and_says_who_said_it(work: ModuleType) -> None:
    sessions = InMemorySessionManager()
    first, second = pending_tool_calls(await ask(sessions, "a.txt", "b.txt"))
    agent, _ = later(sessions)

    await work.click(agent, "files", first.tool_call_id, yes=False, by="ada")
    await work.click(agent, "files", second.tool_call_id, yes=False, by="bob")

    assert DELETED == [], "a no must not run the tool"
    stored = await sessions.get("files")
    assert stored is not None
    decisions = [
        (item.by, item.approved)
        for event in stored.events
        for item in event.content
        if isinstance(item, ToolConfirmation)
    ]
    assert decisions == [("ada", False), ("bob", False)], "the log must say who said no"


async def test_a_second_click_is_told_that_it_is_late(work: ModuleType) -> None:
    sessions = InMemorySessionManager()
    [only] = pending_tool_calls(await ask(sessions, "a.txt"))
    agent, _ = later(sessions)

    await work.click(agent, "files", only.tool_call_id, yes=True, by="ada")
    with no_error_page():
        said = await work.click(agent, "files", only.tool_call_id, yes=False, by="bob")

    assert said == "Somebody was faster.", "a late click must be told so, kindly"
    assert DELETED == ["a.txt"], "the file must be deleted once"


async def test_of_two_clicks_at_once_one_runs_the_tool(
    work: ModuleType, tmp_path: Path
) -> None:
    path = tmp_path / "sessions.db"
    [only] = pending_tool_calls(await ask(SQLiteSessionManager(path), "a.txt"))
    agents = [later(SQLiteSessionManager(path))[0] for _ in range(2)]

    with no_error_page():
        said = await asyncio.gather(
            *(
                work.click(agent, "files", only.tool_call_id, yes=True, by="ada")
                for agent in agents
            )
        )

    assert DELETED == ["a.txt"], "two clicks at once must run the tool once"
    assert sorted(said) == ["Somebody was faster.", "Tidy."], (
        "one of two clicks at once gets the answer, the other is told that it is late"
    )


async def test_a_call_that_nobody_asked_about_stays_an_error(work: ModuleType) -> None:
    sessions = InMemorySessionManager()
    await ask(sessions, "a.txt")
    agent, _ = later(sessions)

    with suppress(UnknownCallError):
        await work.click(agent, "files", "call_of_mine", yes=True, by="eve")
        pytest.fail(
            "click() about a call that nobody was asked about must raise what the run "
            "raises: UnknownCallError",
            pytrace=False,
        )
    assert DELETED == [], "an unknown call must run nothing"
