"""Approval, driven at random against a small model of what may happen.

`Model` knows nothing of logs and saves. It has one word for each call: `waiting` (for
a person), `claimed` (approved, and no result yet), `open` (free, and no result yet), or
the status of its result. `Approving` plays a conversation with everything that can go
wrong in it, and holds what is stored against the model after each step.
"""

import asyncio
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from approving import (
    Clock,
    Dying,
    Killed,
    call,
    decisions_of,
    items_of,
    results_of,
    statuses,
)
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from minagent import (
    Agent,
    AgentResult,
    Event,
    ExecutionContext,
    InMemorySessionManager,
    Message,
    PendingToolCall,
    Session,
    SessionStore,
    ToolCall,
    ToolConfirmation,
    pending_tool_calls,
    tool,
)
from minagent.errors import (
    AlreadyDecidedError,
    ApprovalExpiredError,
    FingerprintError,
    InvalidArgumentsError,
    MinagentError,
    NothingToContinueError,
    UnknownCallError,
)
from minagent.models import ScriptedModel
from minagent.models.strict import violations
from minagent.stores import SQLiteSessionManager
from minagent.transcript import turns

pytestmark = pytest.mark.heavy

FREE, GATED = "look", ("pay", "rent")
UNLUCKY = 13
"""A tool that is given this number takes the whole run down with it."""

DEADLINE = timedelta(minutes=10)
"""How long a question about `rent` stands; `pay` has no deadline."""

NOT_RUN = {"waiting", "denied", "expired", "replaced"}


@dataclass
class Known:
    """What the model knows of one call."""

    status: str
    deadline: datetime | None = None
    fingerprint: str | None = None
    approved: bool = False
    answered: bool = False


@dataclass
class Model:
    """What may become of the calls of one conversation."""

    calls: dict[str, Known] = field(default_factory=dict)
    awaits_reply: bool = False

    def of(self, *wanted: str) -> list[str]:
        return [each for each, known in self.calls.items() if known.status in wanted]

    def late(self, now: datetime) -> list[str]:
        deadlines = {each: self.calls[each].deadline for each in self.of("waiting")}
        return [
            each for each, deadline in deadlines.items() if deadline and deadline <= now
        ]

    def judge(
        self, decisions: Sequence[ToolConfirmation], now: datetime
    ) -> type[MinagentError] | None:
        """Return why the decisions of a run cannot be taken, if they cannot."""
        seen: set[str] = set()
        for decision in decisions:
            call_id = decision.tool_call_id
            known = self.calls.get(call_id, Known("open"))
            if known.status == "expired" or call_id in self.late(now):
                return ApprovalExpiredError
            if known.status == "open":
                return UnknownCallError
            if known.status != "waiting" or call_id in seen:
                return AlreadyDecidedError
            if decision.fingerprint not in (None, known.fingerprint):
                return FingerprintError
            if not isinstance((decision.modified_arguments or {"n": 0})["n"], int):
                return InvalidArgumentsError
            seen.add(call_id)
        return None

    def opens(
        self, decisions: Sequence[ToolConfirmation], words: str | None, now: datetime
    ) -> type[MinagentError] | None:
        """Do what the first save of a run does; return the error that it ends in."""
        error = self.judge(decisions, now)
        idle = not (words or decisions or self.awaits_reply)
        if idle and not self.of("waiting", "claimed", "open"):
            return NothingToContinueError
        left_behind = self.of("claimed", "open")
        self._close(self.late(now), "expired")
        if error:
            return error
        for decision in decisions:
            known = self.calls[decision.tool_call_id]
            known.approved = decision.approved
            known.answered = decision.answer is not None
            refused = "success" if known.answered else "denied"
            known.status = "claimed" if decision.approved else refused
        if words:
            self._close(self.of("waiting"), "replaced")
            self.awaits_reply = True
        if words or not decisions:
            self._close(left_behind, "unknown")
        return None

    def runs(self, ids: Sequence[str]) -> None:
        """Carry out calls to their good end."""
        self._close(ids, "success")

    def hears(self, reply: Sequence[ToolCall], now: datetime) -> None:
        """Take a reply of the language model."""
        self.awaits_reply = bool(reply)
        for each in reply:
            deadline = now + DEADLINE if each.name == "rent" else None
            status = "waiting" if each.name in GATED else "open"
            self.calls[each.tool_call_id] = Known(status, deadline)

    def _close(self, ids: Sequence[str], status: str) -> None:
        for each in ids:
            self.calls[each].status = status


def seen_in(session: Session) -> dict[str, str]:
    """Return the model's word for each call, as the stored session tells it."""
    results = statuses(session.events)
    pending = {each.tool_call_id for each in pending_tool_calls(session)}
    decided = {each.tool_call_id for each in decisions_of(session.events)}
    found = {}
    for item in items_of(session.events):
        if isinstance(item, ToolCall):
            call_id = item.tool_call_id
            open_ = "claimed" if call_id in decided else "open"
            unanswered = "waiting" if call_id in pending else open_
            found[call_id] = results.get(call_id, unanswered)
    return found


numbers = st.sampled_from([*range(8), UNLUCKY])
replies = st.lists(st.tuples(st.sampled_from([FREE, *GATED]), numbers), max_size=3)
deaths = st.none() | st.none() | st.tuples(st.integers(1, 5), st.booleans())
"""At which save the process dies, and whether that save is still stored."""

GOOD = ["approve", "by hand", "edit", "deny", "answer"]
BAD = ["bad edit", "other question"]


def decision_on(asked: PendingToolCall, verdict: str, n: int) -> ToolConfirmation:
    return {
        "approve": asked.approve(by="ada"),
        "edit": asked.approve(arguments={"n": n}),
        "deny": asked.deny("no", by="ada"),
        "answer": asked.answer("done by hand"),
        "by hand": replace(asked.approve(), fingerprint=None),
        "bad edit": asked.approve(arguments={"n": "many"}),
        "other question": replace(asked.approve(), fingerprint="another"),
    }[verdict]


class Approving(RuleBasedStateMachine):
    """A conversation in which a person is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.runner, self.clock = asyncio.Runner(), Clock()
        self.sessions: SessionStore
        self.model, self.ran = Model(), Counter[str]()
        self.ids = (f"c{number}" for number in count(1))
        self.questions: dict[str, PendingToolCall] = {}
        self.said: list[str] = []
        self.stored: list[Event] = []
        self.crashed = False
        self.broken: list[str] = []
        self.tools = self.make_tools()

    def open_store(self) -> SessionStore:
        raise NotImplementedError

    @initialize()
    def starts(self) -> None:
        self.sessions = self.open_store()
        self.session: Session | None = None

    def teardown(self) -> None:
        self.runner.run(self.sessions.aclose())
        self.runner.close()

    def make_tools(self) -> list[Any]:
        async def work(n: int, context: ExecutionContext) -> str:
            await self.note_that_it_runs(context)
            if n == UNLUCKY:
                self.crashed = True
                raise Killed
            return f"done {n}"

        @tool
        async def look(n: int, context: ExecutionContext) -> str:
            """Look."""
            return await work(n, context)

        @tool(requires_confirmation=True)
        async def pay(n: int, context: ExecutionContext) -> str:
            """Pay."""
            return await work(n, context)

        @tool(requires_confirmation=True, expires_in=DEADLINE)
        async def rent(n: int, context: ExecutionContext) -> str:
            """Rent."""
            return await work(n, context)

        return [look, pay, rent]

    async def note_that_it_runs(self, context: ExecutionContext) -> None:
        """Count it; and if it is gated, the approval must be in the store by now."""
        call_id = str(context.tool_call_id)
        self.ran[call_id] += 1
        stored = await self.sessions.get("s")
        assert stored is not None
        decisions = decisions_of(stored.events)
        approved = any(d.approved for d in decisions if d.tool_call_id == call_id)
        if call_id in self.questions and not approved:
            self.broken.append(f"{call_id} ran without a stored approval")
        if call_id in {each.tool_call_id for each in results_of(stored.events)}:
            self.broken.append(f"{call_id} ran after it was answered")

    # --- What may happen ------------------------------------------------------

    @rule(reply=replies, death=deaths)
    def a_person_says_something(self, reply: Any, death: Any) -> None:
        self.run(f"message {len(self.said)}", [], reply, death)

    @precondition(lambda self: self.model.calls)
    @rule(reply=replies, death=deaths)
    def the_run_goes_on(self, reply: Any, death: Any) -> None:
        self.run(None, [], reply, death)

    @precondition(lambda self: self.model.of("waiting"))
    @rule(data=st.data(), reply=replies, death=deaths)
    def a_person_decides_on_what_waits(self, data: Any, reply: Any, death: Any) -> None:
        waiting = data.draw(st.permutations(self.model.of("waiting")))
        chosen = waiting[: data.draw(st.integers(1, len(waiting)))]
        verdicts = data.draw(st.lists(st.sampled_from(GOOD), min_size=len(chosen)))
        n = data.draw(numbers)
        pairs = zip(chosen, verdicts, strict=False)
        decisions = [decision_on(self.questions[each], v, n) for each, v in pairs]
        self.run(None, decisions, reply, death)

    @precondition(lambda self: self.questions)
    @rule(data=st.data(), reply=replies, death=deaths, moves_on=st.booleans())
    def a_person_decides_on_anything(
        self, data: Any, reply: Any, death: Any, moves_on: bool
    ) -> None:
        anyone = st.sampled_from([*self.questions, "nobody"])
        if waiting := self.model.of("waiting"):
            anyone |= st.sampled_from(waiting)
        each = st.tuples(anyone, st.sampled_from(GOOD + BAD), numbers)
        decisions = [
            decision_on(self.questions[chosen], verdict, n)
            if chosen in self.questions
            else ToolConfirmation(tool_call_id=chosen, approved=True)
            for chosen, verdict, n in data.draw(st.lists(each, min_size=1, max_size=3))
        ]
        self.run("I move on." if moves_on else None, decisions, reply, death)

    @rule(minutes=st.sampled_from([1, 9, 10, 11]))
    def time_passes(self, minutes: int) -> None:
        self.clock.forward(minutes=minutes)

    @rule()
    def the_program_starts_again(self) -> None:
        old, self.sessions = self.sessions, self.open_store()
        if old is not self.sessions:
            self.runner.run(old.aclose())
        self.look()

    # --- One run, and what the model says of it --------------------------------

    def run(
        self,
        words: str | None,
        decisions: Sequence[ToolConfirmation],
        drawn: Sequence[tuple[str, int]],
        death: tuple[int, bool] | None,
    ) -> None:
        reply = [call(name, next(self.ids), n=n) for name, n in drawn]
        steps = [[*reply, "Working."], "Done."] if reply else ["Done."]
        at, stored = death or (-1, False)
        dying = Dying(self.sessions, at, stored=stored)
        agent = Agent(
            ScriptedModel(steps),
            tools=self.tools,
            session_manager=dying,
            clock=self.clock,
        )
        self.crashed = False
        before = deepcopy(self.model)
        if words:
            self.said.append(words)
        run = agent.run(words, session_id="s", tool_confirmations=decisions)
        try:
            result: Any = self.runner.run(run)
        except MinagentError as error:
            result = type(error)
        except Killed:
            self.look()
            self.check_the_remains(before, words, decisions, reply, dying.dead)
            return
        assert not self.crashed, "the tool's crash was swallowed"
        assert not dying.dead, "the end of the process was swallowed"
        self.look()
        self.check_the_end(result, words, decisions, reply)

    def check_the_end(
        self,
        result: Any,
        words: str | None,
        decisions: Sequence[ToolConfirmation],
        reply: Sequence[ToolCall],
    ) -> None:
        """The run ended by itself: it must have ended as the model says."""
        model, now = self.model, self.clock.now
        error = model.opens(decisions, words, now)
        assert result == error or (error is None and isinstance(result, AgentResult))
        if error:
            if words:
                self.said.pop()
            return
        approved = [each.tool_call_id for each in decisions if each.approved]
        model.runs(approved)
        if not model.of("waiting", "claimed", "open"):
            model.hears(reply, now)
            model.runs(model.of("open"))
            if not model.of("waiting"):
                model.hears((), now)
        waits = bool(model.of("waiting", "claimed", "open"))
        assert result.status == ("pending_confirmation" if waits else "complete")
        assert result.output == (None if waits else "Done.")
        pending = [each.tool_call_id for each in result.pending_tool_calls]
        assert pending == model.of("waiting")

    def check_the_remains(
        self,
        before: Model,
        words: str | None,
        decisions: Sequence[ToolConfirmation],
        reply: Sequence[ToolCall],
        was_killed: bool,
    ) -> None:
        """The run died: what it stored must be a way that the model knows, cut off."""
        session = self.session
        events = session.events if session else ()
        if len(events) == len(self.stored):  # not even the first save was stored
            if words:
                self.said.pop()
            return
        model = self.model
        error = model.opens(decisions, words, self.clock.now)
        if error and words:
            self.said.pop()
        assert session is not None
        found = seen_in(session)
        if any(each.tool_call_id in found for each in reply):
            model.hears(reply, self.clock.now)
        for call_id, known in model.calls.items():
            cut_off = known.status in ("claimed", "open")
            fresh = before.calls.get(call_id, Known("waiting")).status == "waiting"
            if not (cut_off and fresh):
                continue
            possible = {known.status} if was_killed else set()
            possible |= {"success"} if self.ran[call_id] else set()
            possible |= {"cancelled"}
            assert found[call_id] in possible
            known.status = found[call_id]
        last = [event for event in events if event.is_reply][-1:]
        answered = bool(last) and last[0] is events[-1] and not last[0].tool_calls
        model.awaits_reply = not answered

    def look(self) -> None:
        """Read what is stored by now."""
        self.session = self.runner.run(self.sessions.get("s"))

    # --- What must hold after each step ----------------------------------------

    @invariant()
    def what_is_stored_is_what_the_model_says(self) -> None:
        session = self.session
        if session is None:
            assert not self.stored
            return
        pending = pending_tool_calls(session)
        for each in pending:
            known = self.model.calls[each.tool_call_id]
            known.fingerprint = known.fingerprint or each.fingerprint
            assert self.questions.setdefault(each.tool_call_id, each) == each
        assert seen_in(session) == {
            call_id: known.status for call_id, known in self.model.calls.items()
        }
        assert [each.tool_call_id for each in pending] == self.model.of("waiting")

    @invariant()
    def nothing_that_was_acknowledged_is_lost(self) -> None:
        events = [*self.session.events] if self.session else []
        assert events[: len(self.stored)] == self.stored
        self.stored = events
        messages = [item for item in items_of(events) if isinstance(item, Message)]
        assert [each.content for each in messages if each.role == "user"] == self.said

    @invariant()
    def no_call_ran_twice_and_none_unasked(self) -> None:
        assert not self.broken
        assert all(times == 1 for times in self.ran.values())
        for call_id, known in self.model.calls.items():
            if known.status in NOT_RUN or known.answered:
                assert self.ran[call_id] == 0
            elif known.status == "success":
                assert self.ran[call_id] == 1
            if self.ran[call_id] and call_id in self.questions:
                assert known.approved

    @invariant()
    def the_next_request_is_valid(self) -> None:
        transcript = turns(self.stored)
        answer = bool(transcript) and transcript[-1].role == "assistant"
        assert not transcript or not list(
            violations(transcript[: -1 if answer else None])
        )


class ApprovingInMemory(Approving):
    def open_store(self) -> SessionStore:
        return getattr(self, "sessions", None) or InMemorySessionManager()


class ApprovingInSQLite(Approving):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="approving-"))

    def open_store(self) -> SessionStore:
        store = SQLiteSessionManager(self.folder / "s.db", durability="normal")
        return self.runner.run(store.__aenter__())

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.folder)


EXAMPLES = settings(
    max_examples=150,
    stateful_step_count=20,
    deadline=None,
    derandomize="CI" in os.environ,
)
TestApprovalInMemory = ApprovingInMemory.TestCase
TestApprovalInMemory.settings = EXAMPLES
TestApprovalInSQLite = ApprovingInSQLite.TestCase
TestApprovalInSQLite.settings = settings(EXAMPLES, max_examples=50)
