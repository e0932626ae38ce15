"""Grades chapter 11: a newsroom, where a person has read what is published."""

from pathlib import Path
from types import ModuleType

import pytest

from minagent import (
    Agent,
    AgentResult,
    InMemorySessionManager,
    ModelRequest,
    SessionManager,
    ToolConfirmation,
    pending_tool_calls,
)
from minagent.errors import NodeFailedError
from minagent.models import ScriptedModel
from minagent.stores import SQLiteSessionManager

TASK = "Write about ants."


class Room:
    """A newsroom of a program that was started anew, and what its models were sent."""

    def __init__(
        self,
        work: ModuleType,
        sessions: SessionManager,
        writes: list[str] | None = None,
        reviews: list[str] | None = None,
        rounds: int = 2,
    ) -> None:
        self.published: list[str] = []
        self.writer = ScriptedModel(writes or [])
        self.reviewer = ScriptedModel(reviews or [])
        self._sessions = sessions
        self._graph = work.newsroom(
            Agent(self.writer),
            Agent(self.reviewer),
            self.publish,
            sessions=sessions,
            rounds=rounds,
        )

    def publish(self, text: str) -> str:
        """Publish a text."""
        self.published.append(text)
        return f"published as number {len(self.published)}"

    async def run(self) -> AgentResult:
        """Begin."""
        result: AgentResult = await self._graph.run(TASK, session_id="ants")
        return result

    async def decide(self, yes: bool) -> AgentResult:
        """Answer the question that waits."""
        asked = pending_tool_calls(await self._sessions.get_or_create("ants"))
        assert len(asked) == 1, "one question must wait for a person"
        said = ToolConfirmation(
            tool_call_id=asked[0].tool_call_id,
            approved=yes,
            reason=None if yes else "ants have six legs",
            by="ada",
        )
        result: AgentResult = await self._graph.run(
            session_id="ants", tool_confirmations=[said]
        )
        return result


def questions(result: AgentResult) -> list[str]:
    return [each.confirmation_message for each in result.pending_tool_calls]


def told(request: ModelRequest) -> str:
    """Return what a model was told last."""
    return "\n".join(getattr(x, "content", "") for x in request.turns[-1].content)


async def test_a_text_that_is_ok_waits_for_a_person(work: ModuleType) -> None:
    room = Room(work, InMemorySessionManager(), ["Ants!"], ["OK"])

    result = await room.run()

    assert "Ants!" in told(room.reviewer.requests[0]), "the reviewer must see the text"
    assert result.status == "pending_confirmation", "a person must be asked"
    assert room.published == [], "nothing may be published before a person said yes"
    assert questions(result) == ["Publish this?\n\nAnts!"], (
        "the person must see the text, and nothing else of what was said"
    )


async def test_a_yes_publishes_it_once(work: ModuleType) -> None:
    room = Room(work, InMemorySessionManager(), ["Ants!"], ["OK"])
    await room.run()

    result = await room.decide(True)

    assert room.published == ["Ants!"], "a yes must publish what the writer wrote"
    assert result.output == "published as number 1", (
        "the answer must be what publish() returned"
    )


async def test_what_is_wrong_goes_back_to_the_writer(work: ModuleType) -> None:
    texts, reviews = ["Ants.", "Ants, longer."], ["Not OK: too short.", "OK"]
    room = Room(work, InMemorySessionManager(), texts, reviews)

    result = await room.run()

    assert len(room.writer.requests) == 2, "a text that is not OK must go back, once"
    assert "too short" in told(room.writer.requests[1]), (
        "the writer must be told what is wrong"
    )
    assert questions(result) == ["Publish this?\n\nAnts, longer."], (
        "a person must be asked about the newest text"
    )


@pytest.mark.parametrize("rounds", [0, 1, 3, 12])
async def test_it_does_not_go_back_for_ever(work: ModuleType, rounds: int) -> None:
    texts = [f"Text {number}." for number in range(rounds + 1)]
    reviews = [f"No {number}." for number in range(rounds + 1)]
    room = Room(work, InMemorySessionManager(), texts, reviews, rounds)

    result = await room.run()

    assert len(room.writer.requests) == rounds + 1, (
        f"with rounds={rounds} the writer must write {rounds + 1} times"
    )
    assert result.status == "complete", "then the run must end, and nobody be asked"
    assert result.output == reviews[-1], "it must end with what the reviewer said last"
    assert room.published == [], "a text that is not OK may not be published"


async def test_a_no_goes_back_to_the_writer(work: ModuleType) -> None:
    texts = ["Ants have four legs.", "Ants have six legs."]
    room = Room(work, InMemorySessionManager(), texts, ["OK", "OK"])
    await room.run()

    result = await room.decide(False)

    assert room.published == [], "a no may not publish anything"
    assert len(room.writer.requests) == 2, "a no must send the text back to the writer"
    assert "ants have six legs" in told(room.writer.requests[1]), (
        "the writer must be told the person's reason"
    )
    assert questions(result) == ["Publish this?\n\nAnts have six legs."], (
        "the new text must be reviewed, and the person asked again"
    )
    await room.decide(True)
    assert room.published == ["Ants have six legs."], "and a yes must publish that"


async def test_a_no_counts_as_a_round(work: ModuleType) -> None:
    texts, reviews = ["One.", "Two."], ["Too short.", "OK"]
    room = Room(work, InMemorySessionManager(), texts, reviews, rounds=1)
    await room.run()

    with pytest.raises(NodeFailedError) as failed:
        await room.decide(False)
    assert "'publish' failed" in str(failed.value), (
        "without a round left, the run must end with the no, and not with another text"
    )
    assert len(room.writer.requests) == 2, (
        "the text has gone back once, so with rounds=1 a no may not send it back again"
    )
    assert room.published == [], "a no may not publish anything"


async def test_if_publishing_fails_it_is_not_for_the_writer(work: ModuleType) -> None:
    class Broken(Room):
        def publish(self, text: str) -> str:
            raise ConnectionError("the line is dead")

    room = Broken(work, InMemorySessionManager(), ["Ants!"], ["OK"])
    await room.run()

    with pytest.raises(NodeFailedError, match="the line is dead"):
        await room.decide(True)
    assert len(room.writer.requests) == 1, (
        "only a no goes back to the writer, and not an error of publish()"
    )


async def test_another_program_takes_the_answer(
    work: ModuleType, tmp_path: Path
) -> None:
    async with SQLiteSessionManager(tmp_path / "news.db") as sessions:
        await Room(work, sessions, ["Ants!"], ["OK"]).run()
    async with SQLiteSessionManager(tmp_path / "news.db") as sessions:
        later = Room(work, sessions)

        result = await later.decide(True)

    assert later.writer.requests == [], "what was written may not be written again"
    assert later.published == ["Ants!"], "a yes must also count in another program"
    assert result.status == "complete", "and then the run must be at its end"
