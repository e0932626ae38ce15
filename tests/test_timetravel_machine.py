"""Going back, copying and approving, driven at random against a small model.

`Talk` is the model of one session. It knows nothing of marks, folds and saves: it
remembers what counted behind each event, and one word for each call, which is
`waiting` (for a person), `claimed` (approved, and no result yet), `open` (free, and no
result yet), or the status of its result. `Travelling` plays a family of sessions, the
first one and its forks, with everything that can go wrong in them, and holds what is
stored against the model after each step.
"""

import asyncio
import os
import re
import secrets
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import chain, count, repeat
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import postgres
import pytest
import s3
from approving import (
    Beside,
    Dying,
    Interrupted,
    Killed,
    call,
    decisions_of,
    items_of,
    results_of,
    thinking,
)
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from taste.solution import JsonFileSessionManager

from minagent import (
    Agent,
    AgentResult,
    Event,
    ExecutionContext,
    InMemorySessionManager,
    Message,
    Note,
    PendingToolCall,
    Reasoning,
    Session,
    SessionManager,
    SessionStore,
    ToolCall,
    ToolConfirmation,
    pending_tool_calls,
    tool,
)
from minagent.context import PENDING
from minagent.errors import (
    AlreadyDecidedError,
    FingerprintError,
    MinagentError,
    NothingToContinueError,
    NothingToUndoError,
    OpenCallError,
    SessionConflictError,
    SessionExistsError,
    UnknownCallError,
    UnknownEventError,
)
from minagent.marks import REDACTION, REWIND, current, marks
from minagent.models import ScriptedModel
from minagent.models.strict import violations
from minagent.stores import (
    BlobSessionManager,
    FolderStorage,
    PostgresSessionManager,
    SQLiteSessionManager,
)
from minagent.stores.encrypted import EncryptedStorage
from minagent.stores.s3 import S3Storage
from minagent.timetravel import CHECKPOINT, checkpoints, fork, rewind, undo
from minagent.transcript import Turn, turns

pytestmark = pytest.mark.heavy

FREE, GATED, REPEATABLE = "look", "pay", "peek"
OPEN = ("waiting", "claimed", "open")
NEVER_RUN = {"waiting", "denied", "replaced", "cancelled"}
MOST_SESSIONS = 4

Death = tuple[int, bool] | None
"""At which save the process dies, and whether that save is still stored."""

Failure = type[MinagentError] | None


@dataclass
class Talk:
    """What the model knows of one session.

    Attributes:
        log: The events, as they were when last looked at.
        way: The ids of the events that count.
        ways: For each event of the log, what counted right behind it.
        says: The text of each event that has one.
        kinds: What each event is: `said`, `asks`, `answers`, or `other`.
        asks: For each event, the calls in it.
        gives: For each event, the calls that have a result in it.
        calls: What became of each call.
        state: The state, without the questions.
        kept: The state that each checkpoint holds.
        thinks: The events whose thoughts count.
        thought: For each event of the log, whose thoughts counted right behind it.
        unreadable: The calls whose arguments were taken out.
        gone: The words that must be nowhere.
    """

    log: list[Event] = field(default_factory=list)
    way: tuple[str, ...] = ()
    ways: dict[str, tuple[str, ...]] = field(default_factory=dict)
    says: dict[str, str] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    asks: dict[str, tuple[str, ...]] = field(default_factory=dict)
    gives: dict[str, set[str]] = field(default_factory=dict)
    calls: dict[str, str] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)
    kept: dict[str, dict[str, Any]] = field(default_factory=dict)
    thinks: set[str] = field(default_factory=set)
    thought: dict[str, set[str]] = field(default_factory=dict)
    unreadable: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)

    # --- What it says ---------------------------------------------------------

    def counting(self, *wanted: str) -> list[str]:
        """Return the calls of the last reply that counts of which one word is true."""
        replies = [e for e in self.way if self.kinds[e] in ("asks", "answers")]
        calls = self.asks[replies[-1]] if replies else ()
        return [each for each in calls if self.calls[each] in wanted]

    def of(self, wanted: str) -> list[str]:
        return [each for each, status in self.calls.items() if status == wanted]

    def awaits_reply(self) -> bool:
        kinds = [self.kinds[e] for e in self.way if self.kinds[e] != "other"]
        return bool(kinds) and kinds[-1] != "answers"

    def called_on(self, way: Iterable[str]) -> list[str]:
        return [each for event_id in way for each in self.asks[event_id]]

    def given_on(self, way: Iterable[str]) -> list[str]:
        return [each for event_id in way for each in self.gives[event_id]]

    # --- What happens to it ---------------------------------------------------

    def takes(self, events: Iterable[Event]) -> None:
        """Learn the ids of what was appended. Marks do not count, all else does."""
        for event in events:
            key = event.event_id
            notes = [item for item in event.content if isinstance(item, Note)]
            if not any(note.kind in (REWIND, REDACTION) for note in notes):
                self.way = (*self.way, key)
            self.ways[key] = self.way
            texts = [i for i in event.content if isinstance(i, Message)]
            if texts:
                self.says[key] = texts[0].content
            self.asks[key] = tuple(each.tool_call_id for each in event.tool_calls)
            self.gives[key] = {each.tool_call_id for each in results_of([event])}
            reply = "asks" if event.tool_calls else "answers"
            other = "said" if texts else "other"
            self.kinds[key] = reply if event.is_reply else other
            if any(isinstance(item, Reasoning) for item in event.content):
                self.thinks.add(key)
            for note in notes:
                if note.kind == CHECKPOINT:
                    self.kept[key] = dict(note.data["state"])
                elif note.kind == REDACTION and note.data["event_id"] in self.ways:
                    self.thinks.clear()
            self.thought[key] = {*self.thinks}

    def judge(
        self,
        decisions: Sequence[ToolConfirmation],
        questions: dict[str, PendingToolCall],
    ) -> Failure:
        """Return why the decisions of a run cannot be taken, if they cannot."""
        seen: set[str] = set()
        for decision in decisions:
            call_id = decision.tool_call_id
            status = self.calls.get(call_id, "open")
            if status == "open":
                return UnknownCallError
            if status != "waiting" or call_id in seen:
                return AlreadyDecidedError
            if decision.fingerprint not in (None, questions[call_id].fingerprint):
                return FingerprintError
            seen.add(call_id)
        return None

    def opens(
        self,
        decisions: Sequence[ToolConfirmation],
        words: str | None,
        repeatable: set[str],
    ) -> tuple[Failure, list[str]]:
        """Do what a run does first; return its error, and the calls to carry out."""
        left = self.counting("claimed", "open")
        alone = not (words or decisions)
        again = [each for each in left if alone and each in repeatable]
        idle = not (words or decisions or self.awaits_reply() or self.counting(*OPEN))
        if idle:
            return NothingToContinueError, []
        for each in decisions:
            refused = "denied" if each.answer is None else "success"
            self.calls[each.tool_call_id] = "claimed" if each.approved else refused
        if words:
            self.close(self.counting("waiting"), "replaced")
        if words or not decisions:
            self.close([each for each in left if each not in again], "unknown")
        return None, [d.tool_call_id for d in decisions if d.approved] + again

    def close(self, calls: Iterable[str], status: str) -> None:
        self.calls |= dict.fromkeys(calls, status)

    def goes_back(self, to: str | None, new: Sequence[Event]) -> None:
        """Take a rewind: what closes questions, the mark, and what ran meanwhile."""
        way = () if to is None else self.ways[to]
        kept = self.called_on(way)
        left = [each for each in self.counting("waiting") if each not in kept]
        if left:
            self.takes(new[:1])
            assert self.gives[new[0].event_id] == {*left}
        self.close(left, "cancelled")
        mark, *known = new[bool(left) :]
        assert [i.kind for i in mark.content if isinstance(i, Note)] == [REWIND]
        closed = [each for each in kept if self.calls[each] not in OPEN]
        taken_along = [c for c in closed if c not in self.given_on(way)]
        assert [i.tool_call_id for i in results_of(known)] == taken_along
        self.way = way
        self.takes([mark, *known])
        self.state = deepcopy(self.kept.get(to or "", self.state))

    def forked(self, at: str | None) -> "Talk":
        """Return what a copy of it knows, but for the ids of what is new in it."""
        way = self.way if at is None else self.ways[at]
        copy = Talk(
            gone=set(self.gone), state=deepcopy(self.kept.get(at or "", self.state))
        )
        for number, event_id in enumerate(way):
            copy.ways[event_id] = way[: number + 1]
            for name in ("says", "kinds", "asks", "gives", "kept"):
                mine = getattr(self, name)
                if event_id in mine:
                    getattr(copy, name)[event_id] = mine[event_id]
        copy.way = way
        closing = {"waiting": "cancelled", "claimed": "unknown", "open": "unknown"}
        for each in self.called_on(way):
            copy.calls[each] = closing.get(self.calls[each], self.calls[each])
        copy.thinks = (self.thinks if at is None else self.thought[at]) & {*way}
        copy.thought = {key: copy.thinks & {*copy.ways[key]} for key in way}
        copy.unreadable = {*self.unreadable}
        return copy


def seen_in(session: Session) -> dict[str, str]:
    """Return the model's word for each call, as the stored session tells it."""
    results: dict[str, str] = {}
    for each in results_of(session.events):
        first = results.setdefault(each.tool_call_id, each.status)
        assert first == each.status, f"two ends of {each.tool_call_id}"
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


def said_in(events: Iterable[Event | Turn]) -> list[str]:
    items = [item for event in events for item in event.content]
    return [item.content for item in items if isinstance(item, Message)]


def form_of(event: Event) -> object:
    """Return what a redaction leaves as it is."""
    names = ("tool_call_id", "status", "approved", "kind", "role")
    kept = [item for item in event.content if not isinstance(item, Reasoning)]
    items = [
        (item.type, *(getattr(item, name, None) for name in names)) for item in kept
    ]
    return replace(event, content=()), items


def words_in(text: str) -> set[str]:
    return {*re.findall(r"word\d+\.", text)}


class DyingStore(Dying):
    """Dies as a whole: what else a store can do ends with the save as well."""

    def __getattr__(self, name: str) -> Any:
        self._check()
        return getattr(self.inner, name)

    async def redact(self, session_id: str, event_id: str, text: str) -> None:
        redacting: Any = SessionStore.redact  # it saves here, and rewrites inside
        await redacting(self, session_id, event_id, text)


def decision_on(asked: PendingToolCall, verdict: str, word: str) -> ToolConfirmation:
    return {
        "approve": asked.approve(by="ada"),
        "by hand": replace(asked.approve(), fingerprint=None),
        "edit": asked.approve(arguments={"n": 99, "word": "edited"}),
        "deny": asked.deny(word, by="ada"),
        "answer": asked.answer(word),
        "other question": replace(asked.approve(), fingerprint="another"),
    }[verdict]


GOOD = ["approve", "by hand", "edit", "deny", "answer"]
verdicts = st.sampled_from(GOOD)
replies = st.lists(st.sampled_from([GATED, GATED, FREE, REPEATABLE]), max_size=3)
deaths = st.none() | st.tuples(st.integers(1, 4), st.booleans())
cut_offs = st.sampled_from([(1, True), (2, False)])
"""Between a decision and the result."""


class Travelling(RuleBasedStateMachine):
    """A family of sessions in which people are asked, and go back."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.name, self.numbers = secrets.token_hex(8), count(1)
        self.sessions: SessionManager | None = None
        self.talks: dict[str, Talk] = {}
        self.home: dict[str, str] = {}
        self.kinds: dict[str, str] = {}
        self.questions: dict[str, PendingToolCall] = {}
        self.answered: set[str] = set()
        self.ran, self.ran_now = Counter[str](), Counter[str]()
        self.wrote: dict[str, int] = {}
        self.broken: list[str] = []
        self.tools = self.make_tools()

    def open_store(self) -> SessionManager:
        raise NotImplementedError

    def entered(self, store: SessionStore) -> SessionStore:
        return self.runner.run(store.__aenter__())

    @initialize(reply=replies, death=deaths, marked=st.booleans())
    def starts(self, reply: Any, death: Death, marked: bool) -> None:
        self.sessions, first = self.open_store(), self.new_id()
        self.runner.run(self.sessions.create(first))
        self.talks[first] = Talk()
        self.run(first, self.word(), [], reply, death, marked)

    def teardown(self) -> None:
        self.close()
        self.runner.close()

    def close(self) -> None:
        if isinstance(self.sessions, SessionStore):
            self.runner.run(self.sessions.aclose())

    def new_id(self) -> str:
        return f"{self.name}-{next(self.numbers)}"

    def word(self) -> str:
        return f"word{next(self.numbers)}."

    def make_tools(self) -> list[Any]:
        async def work(n: int, context: ExecutionContext) -> str:
            call_id, session = str(context.tool_call_id), context.session
            self.ran[call_id] += 1
            self.ran_now[call_id] += 1
            self.wrote[call_id] = context.state[call_id] = n
            if session.session_id != self.home[call_id]:
                self.broken.append(f"the copy of {call_id} ran")
            known = session.events[: len(session.events) - len(session.unsaved)]
            taken = [d for d in decisions_of(known) if d.tool_call_id == call_id]
            if call_id in self.questions and [d.approved for d in taken] != [True]:
                self.broken.append(f"{call_id} ran without a stored approval")
            if call_id in {each.tool_call_id for each in results_of(known)}:
                self.broken.append(f"{call_id} ran after it was answered")
            return f"done {self.word()}"

        @tool
        async def look(n: int, word: str, context: ExecutionContext) -> str:
            """Look."""
            return await work(n, context)

        @tool(repeatable=True)
        async def peek(n: int, word: str, context: ExecutionContext) -> str:
            """Peek."""
            return await work(n, context)

        @tool(requires_confirmation=True)
        async def pay(n: int, word: str, context: ExecutionContext) -> str:
            """Pay."""
            return await work(n, context)

        return [look, peek, pay]

    # --- Runs -----------------------------------------------------------------

    @rule(data=st.data(), reply=replies, death=deaths, marked=st.booleans())
    def a_person_says_something(
        self, data: Any, reply: Any, death: Death, marked: bool
    ) -> None:
        self.run(self.one(data), self.word(), [], reply, death, marked)

    @precondition(lambda self: self.unfinished())
    @rule(data=st.data(), reply=replies, death=deaths, marked=st.booleans())
    def a_run_goes_on(self, data: Any, reply: Any, death: Death, marked: bool) -> None:
        anyone = st.sampled_from(self.unfinished()) | st.sampled_from([*self.talks])
        self.run(data.draw(anyone), None, [], reply, death, marked)

    @precondition(lambda self: any(t.counting("waiting") for t in self.talks.values()))
    @rule(data=st.data(), reply=replies, death=deaths | cut_offs, marked=st.booleans())
    def a_person_decides_on_what_waits(
        self, data: Any, reply: Any, death: Death, marked: bool
    ) -> None:
        asking = [key for key, talk in self.talks.items() if talk.counting("waiting")]
        session_id = data.draw(st.sampled_from(asking))
        waiting = self.talks[session_id].counting("waiting")
        chosen = data.draw(st.lists(st.sampled_from(waiting), min_size=1, unique=True))
        decisions = [
            decision_on(self.questions[each], data.draw(verdicts), self.word())
            for each in chosen
        ]
        self.run(session_id, None, decisions, reply, death, marked)

    @precondition(lambda self: self.questions)
    @rule(data=st.data(), reply=replies, death=deaths, moves_on=st.booleans())
    def a_person_decides_on_anything_anywhere(
        self, data: Any, reply: Any, death: Death, moves_on: bool
    ) -> None:
        """Late, again, or in another session than the one that asked."""
        anyone = st.sampled_from([*self.questions])
        claimed = [key for talk in self.talks.values() for key in talk.of("claimed")]
        if claimed := [key for key in claimed if key in self.questions]:
            anyone |= st.sampled_from(claimed)
        each = st.tuples(anyone, verdicts | st.just("other question"))
        decisions = [
            decision_on(self.questions[chosen], verdict, self.word())
            for chosen, verdict in data.draw(st.lists(each, min_size=1, max_size=2))
        ]
        words = self.word() if moves_on else None
        self.run(self.one(data), words, decisions, reply, death, False)

    def run(
        self,
        session_id: str,
        words: str | None,
        decisions: Sequence[ToolConfirmation],
        drawn: Sequence[str],
        death: Death,
        marked: bool,
    ) -> None:
        reply = [
            call(name, f"c{number}", n=number, word=f"word{number}.")
            for name, number in zip(drawn, self.numbers, strict=False)
        ]
        for each in reply:
            self.home[each.tool_call_id] = session_id
            self.kinds[each.tool_call_id] = each.name
        texts = [self.word(), self.word()][0 if reply else 1 :]
        steps = [[thinking(self.word()), text] for text in texts]
        steps[0][1:1] = reply
        model, dying = ScriptedModel(steps), self.dying(death)
        agent = Agent(
            model,
            tools=self.tools,
            session_manager=dying,
            on_event=checkpoints(when=lambda _, e: e.is_reply) if marked else None,
        )
        self.ran_now, self.wrote = Counter(), {}
        result = self.outcome(
            agent.run(words, session_id=session_id, tool_confirmations=decisions)
        )
        session, new = self.read(session_id)
        talk = self.talks[session_id]
        if result is Killed:
            self.check_the_remains(talk, session, new, words, decisions, reply, texts)
        else:
            assert not dying.dead, "the end of the process was swallowed"
            self.check_the_end(talk, new, result, words, decisions, reply, texts)
        self.check(session_id, session)
        self.check_requests(talk, model, said_in(new)[bool(words) :])

    def check_the_end(
        self,
        talk: Talk,
        new: Sequence[Event],
        result: Any,
        words: str | None,
        decisions: Sequence[ToolConfirmation],
        reply: Sequence[ToolCall],
        texts: Sequence[str],
    ) -> None:
        """The run ended by itself: it must have ended as the model says."""
        error, carried = self.opens(talk, decisions, words)
        assert result is error or (error is None and isinstance(result, AgentResult))
        if error:
            assert not new
            return
        talk.close(carried, "success")
        unfit = talk.unreadable & {*carried}
        talk.close(unfit, "error")
        carried = [each for each in carried if each not in unfit]
        said = [words] if words else []
        waits = bool(talk.counting(*OPEN))
        if not waits:
            free = self.hears(talk, reply)
            talk.close(free, "success")
            carried += free
            waits = len(free) < len(reply)
            said += texts[:1] if waits else texts
        talk.takes(new)
        talk.state |= self.wrote
        assert self.ran_now == Counter(carried)
        assert said_in(new) == said
        assert result.status == ("pending_confirmation" if waits else "complete")
        assert result.output == (None if waits else texts[-1])
        pending = [each.tool_call_id for each in result.pending_tool_calls]
        assert pending == talk.counting("waiting")

    def check_the_remains(
        self,
        talk: Talk,
        session: Session,
        new: Sequence[Event],
        words: str | None,
        decisions: Sequence[ToolConfirmation],
        reply: Sequence[ToolCall],
        texts: Sequence[str],
    ) -> None:
        """The run died: what it stored must be a way that the model knows, cut off."""
        if not new:
            ran = {self.kinds[each] for each in self.ran_now}
            assert ran <= {REPEATABLE}, "a tool ran before anything was stored"
            return
        error, cut_off = self.opens(talk, decisions, words)
        assert error is None
        said = [words, *texts] if words else texts
        assert said_in(new) == said[: len(said_in(new))]
        if reply and texts[0] in said_in(new):
            cut_off += self.hears(talk, reply)
        found = seen_in(session)
        assert {*self.ran_now} <= {*cut_off}
        for call_id in cut_off:
            done = {"success"} if self.ran_now[call_id] else set()
            done |= {"error"} if call_id in talk.unreadable else set()
            assert found[call_id] in {talk.calls[call_id]} | done
            talk.calls[call_id] = found[call_id]
        talk.takes(new)
        state = {key: x for key, x in session.state.items() if key != PENDING}
        assert talk.state.items() <= state.items()
        assert state.items() <= (talk.state | self.wrote).items()
        talk.state = state

    def opens(
        self, talk: Talk, decisions: Sequence[ToolConfirmation], words: str | None
    ) -> tuple[Failure, list[str]]:
        if error := talk.judge(decisions, self.questions):
            return error, []
        self.answered |= {d.tool_call_id for d in decisions if d.answer is not None}
        repeatable = {c for c, name in self.kinds.items() if name == REPEATABLE}
        return talk.opens(decisions, words, repeatable)

    def hears(self, talk: Talk, reply: Sequence[ToolCall]) -> list[str]:
        """Take a reply; return the calls in it that are free."""
        for each in reply:
            waits = each.name == GATED
            talk.calls[each.tool_call_id] = "waiting" if waits else "open"
        return [each.tool_call_id for each in reply if each.name != GATED]

    def check_requests(
        self, talk: Talk, model: ScriptedModel, replies: Sequence[str]
    ) -> None:
        """What was sent is what counted, without what was redacted."""
        texts = [talk.says[each] for each in talk.way if each in talk.says]
        asked = len(model.requests)
        before = texts[: len(texts) - len(replies)]
        for number, request in enumerate(model.requests):
            items = [item for turn in request.turns for item in turn.content]
            said = [item.content for item in items if isinstance(item, Message)]
            assert said == [*before, *replies][: len(before) + number]
            assert not words_in(repr(items)) & talk.gone
        assert asked in (len(replies), len(replies) + 1)

    # --- Going back, copying, taking words out --------------------------------

    @rule(data=st.data(), death=deaths)
    def somebody_goes_back(self, data: Any, death: Death) -> None:
        session_id = self.one(data)
        to = self.moment(data, session_id)
        result = self.outcome(rewind(self.dying(death), session_id, to=to))
        self.went_back(session_id, to, result)

    @rule(data=st.data(), death=deaths)
    def somebody_undoes_the_last_turn(self, data: Any, death: Death) -> None:
        session_id = self.one(data)
        talk = self.talks[session_id]
        said = [at for at, e in enumerate(talk.way) if talk.kinds[e] == "said"]
        result = self.outcome(undo(self.dying(death), session_id))
        if said:
            to = talk.way[said[-1] - 1] if said[-1] else None
            self.went_back(session_id, to, result)
        else:
            assert result is NothingToUndoError

    def went_back(self, session_id: str, to: str | None, result: Any) -> None:
        session, new = self.read(session_id)
        assert result is Killed or isinstance(result, Session)
        if new:
            self.talks[session_id].goes_back(to, new)
        assert new or result is Killed
        self.check(session_id, session)
        if result is not Killed:
            self.check(session_id, result)

    @precondition(lambda self: len(self.talks) < MOST_SESSIONS)
    @rule(data=st.data(), death=deaths)
    def somebody_makes_a_copy(self, data: Any, death: Death) -> None:
        session_id, new_id = self.one(data), self.new_id()
        at = self.moment(data, session_id)
        result = self.outcome(fork(self.dying(death), session_id, new_id, at=at))
        assert result is Killed or isinstance(result, Session)
        source, copy = self.talks[session_id], Talk()
        self.talks[new_id] = copy
        session, new = self.read(new_id)
        assert new or result is Killed
        if new:
            copy = self.talks[new_id] = source.forked(at)
            ids = [event.event_id for event in new]
            assert (*ids[: len(copy.way)],) == copy.way
            copy.takes(new[len(copy.way) :])
        self.check(new_id, session)
        self.check(session_id, self.read(session_id)[0])

    @rule(data=st.data())
    def somebody_asks_for_what_is_not_there(self, data: Any) -> None:
        session_id, taken = self.one(data), self.one(data)
        assert self.sessions is not None
        for attempt, error in (
            (rewind(self.sessions, session_id, to="nowhere"), UnknownEventError),
            (fork(self.sessions, session_id, "x", at="nowhere"), UnknownEventError),
            (fork(self.sessions, session_id, taken), SessionExistsError),
        ):
            assert self.outcome(attempt) is error
        self.check(session_id, self.read(session_id)[0])

    @precondition(lambda self: isinstance(self.sessions, SessionStore))
    @precondition(lambda self: any(talk.log for talk in self.talks.values()))
    @rule(data=st.data(), death=deaths)
    def somebody_takes_words_out(self, data: Any, death: Death) -> None:
        full = [session_id for session_id, talk in self.talks.items() if talk.log]
        session_id = data.draw(st.sampled_from(full))
        talk, text = self.talks[session_id], f"(removed {next(self.numbers)})"
        # The text in a redaction stands in another event as well.
        texts = [e for e in talk.log if not any(marks(e, REDACTION))]
        given = [e for e in texts if results_of([e])]  # which may stand there twice
        event = data.draw(st.sampled_from(texts) | st.sampled_from(given or texts))
        words = session_id, event.event_id, text
        result = self.outcome(self.dying(death).redact(*words))
        about = {getattr(item, "tool_call_id", None) for item in event.content}
        if about & {*talk.counting(*OPEN)}:
            assert result is OpenCallError
            return
        session, new = self.read(session_id)
        if new and result is Killed:  # before the words were removed: once more
            result = self.outcome(self.dying(None).redact(*words))
            session, new = self.read(session_id)
        assert (result, len(new)) in ((None, 1), (Killed, 0))
        if new:
            self.redacted(talk, session, event, text)
            talk.takes(new)
        self.check(session_id, session)

    def redacted(self, talk: Talk, session: Session, event: Event, text: str) -> None:
        """Take a redaction: of an event, and of what a rewind copied from it.

        A copy may stand in one event with other results, which have copies, too.
        """
        given: set[str] = set()
        more = {each.tool_call_id for each in results_of([event])}
        while more - given:
            given |= more
            beside = [{x.tool_call_id for x in results_of([e])} for e in talk.log]
            more = set[str]().union(*(each for each in beside if each & given))
        for at, old in enumerate(talk.log):
            copied = given & {each.tool_call_id for each in results_of([old])}
            if old.event_id != event.event_id and not copied:
                continue
            assert form_of(session.events[at]) == form_of(old)
            talk.log[at] = session.events[at]
            if old.event_id in talk.says:
                talk.says[old.event_id] = text
            if old.event_id in talk.kept:
                del talk.kept[old.event_id]
            talk.gone |= words_in(old.to_json())
            talk.unreadable |= {*talk.asks[old.event_id]}

    @rule()
    def the_program_starts_again(self) -> None:
        self.close()
        self.sessions = self.open_store()
        for session_id in self.talks:
            self.check(session_id, self.read(session_id)[0])

    # --- The means ------------------------------------------------------------

    def unfinished(self) -> list[str]:
        talks = self.talks.items()
        return [key for key, t in talks if t.awaits_reply() or t.counting(*OPEN)]

    def one(self, data: Any) -> str:
        return data.draw(st.sampled_from([*self.talks]))

    def moment(self, data: Any, session_id: str) -> str | None:
        talk = self.talks[session_id]
        moments = st.sampled_from([None, *talk.ways])
        if talk.kept:
            moments |= st.sampled_from([*talk.kept])
        return data.draw(moments)

    def dying(self, death: Death) -> DyingStore:
        assert self.sessions is not None
        at, stored = death or (-1, False)
        return DyingStore(self.sessions, at, stored=stored)

    def outcome(self, work: Any) -> Any:
        """Return what came of it; an error as its type."""
        try:
            return self.runner.run(work)
        except (MinagentError, Killed) as error:
            return type(error)

    def read(self, session_id: str) -> tuple[Session, tuple[Event, ...]]:
        """Return what is stored, and what of it the model does not know yet."""
        assert self.sessions is not None
        session = self.runner.run(self.sessions.get(session_id))
        assert session is not None
        return session, session.events[len(self.talks[session_id].log) :]

    # --- What must hold -------------------------------------------------------

    def check(self, session_id: str, session: Session) -> None:
        """Hold a session against the model."""
        talk, events = self.talks[session_id], [*session.events]
        assert events[: len(talk.log)] == talk.log, "what was stored is not there"
        talk.log = events
        counting = current(session.events)
        assert (*(event.event_id for event in counting),) == talk.way
        assert said_in(counting) == [talk.says[e] for e in talk.way if e in talk.says]
        thinking = [
            e for e in counting if any(isinstance(i, Reasoning) for i in e.content)
        ]
        assert {e.event_id for e in thinking} == talk.thinks & {*talk.way}
        given = [each.tool_call_id for each in results_of(counting)]
        called = talk.called_on(talk.way)
        assert sorted(given) == sorted(c for c in called if talk.calls[c] not in OPEN)
        self.check_calls(talk, session)
        assert not words_in(session.to_json()) & talk.gone
        transcript = turns(session.events)
        assert said_in(transcript) == said_in(counting)
        self.check_next_request(transcript)

    def check_calls(self, talk: Talk, session: Session) -> None:
        assert seen_in(session) == talk.calls
        pending = pending_tool_calls(session)
        for each in pending:
            assert self.questions.setdefault(each.tool_call_id, each) == each
        waiting = talk.of("waiting")
        assert [each.tool_call_id for each in pending] == waiting
        assert waiting == talk.counting("waiting")
        state = {key: x for key, x in session.state.items() if key != PENDING}
        assert state == talk.state
        assert all(PENDING not in kept for kept in talk.kept.values())

    def check_next_request(self, transcript: Sequence[Turn]) -> None:
        answer = bool(transcript) and transcript[-1].role == "assistant"
        shown = transcript[: -1 if answer else None]
        assert not shown or not list(violations(shown))

    @invariant()
    def no_call_ran_twice_and_none_unasked(self) -> None:
        assert not self.broken
        for call_id, times in self.ran.items():
            assert times == 1 or self.kinds[call_id] == REPEATABLE
        for call_id, session_id in self.home.items():
            status = self.talks[session_id].calls.get(call_id)
            if status in NEVER_RUN or call_id in self.answered:
                assert not self.ran[call_id]
            elif status == "success":
                assert self.ran[call_id]

    @invariant()
    def a_question_waits_in_one_session_where_it_was_asked(self) -> None:
        for session_id, talk in self.talks.items():
            assert all(self.home[each] == session_id for each in talk.of("waiting"))


class InMemory(Travelling):
    def open_store(self) -> SessionManager:
        return self.sessions or InMemorySessionManager()

    def close(self) -> None:
        pass  # it would be gone


class InAFolder(Travelling):
    """On whatever keeps its files in a folder of the machine's own."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="travelling-"))

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            shutil.rmtree(self.folder)


class InSQLite(InAFolder):
    def open_store(self) -> SessionManager:
        path = self.folder / "s.db"
        return self.entered(SQLiteSessionManager(path, durability="normal"))


class InBlobs(InAFolder):
    def open_store(self) -> SessionManager:
        storage = FolderStorage(self.folder / "s", durability="normal")
        return self.entered(BlobSessionManager(storage))


class InEncryptedBlobs(InAFolder):
    def open_store(self) -> SessionManager:
        storage = FolderStorage(self.folder / "s", durability="normal")
        encrypted = EncryptedStorage(storage, {"one": bytes(range(32))})
        return self.entered(BlobSessionManager(encrypted))


class InJson(InAFolder):
    def open_store(self) -> SessionManager:
        return JsonFileSessionManager(self.folder)


class InABucket(Travelling):
    bucket = ""

    def open_store(self) -> SessionManager:
        InABucket.bucket = InABucket.bucket or s3.new_bucket()
        storage = S3Storage(InABucket.bucket, endpoint=s3.endpoint())
        return self.entered(BlobSessionManager(storage))


class InPostgres(Travelling):
    schema = f"test_{secrets.token_hex(8)}"

    def open_store(self) -> SessionManager:
        store = PostgresSessionManager(postgres.server(), schema=self.schema)
        return self.entered(store)


def case_of(
    machine: type[Travelling], examples: int, *marks: pytest.MarkDecorator
) -> Any:
    case: Any = machine.TestCase
    case.settings = settings(
        max_examples=examples,
        stateful_step_count=25,
        deadline=None,
        derandomize="CI" in os.environ,
    )
    for mark in marks:
        case = mark(case)
    return case


TestTravelInMemory = case_of(InMemory, 60)
TestTravelInSQLite = case_of(InSQLite, 12)
TestTravelInJson = case_of(InJson, 10)
TestTravelInBlobs = case_of(InBlobs, 8, pytest.mark.heavy)
TestTravelInEncryptedBlobs = case_of(InEncryptedBlobs, 5, pytest.mark.heavy)
TestTravelInABucket = case_of(InABucket, 2, pytest.mark.heavy)
TestTravelInPostgres = case_of(InPostgres, 8, pytest.mark.heavy)


# --- Somebody who comes between the saves of a run ----------------------------


async def meddle(store: SessionStore, what: str, moment: int) -> None:
    session = await store.get("s")
    assert session is not None
    event_id = session.events[moment].event_id
    if what == "go back":
        await rewind(Beside(store), "s", to=event_id)
    elif what == "copy":
        await fork(store, "s", "copy", at=event_id)
    else:
        with suppress(OpenCallError):
            await store.redact("s", event_id, "(removed)")


async def try_again(store: SessionStore, session_id: str, agent: Agent) -> None:
    """Take every decision again, and let every run go on that can."""
    for tool_call_id in ("c1", "c2"):
        yes = ToolConfirmation(tool_call_id=tool_call_id, approved=True)
        for decisions in ([yes], []):
            with suppress(
                AlreadyDecidedError, UnknownCallError, NothingToContinueError
            ):
                await agent.run(session_id=session_id, tool_confirmations=decisions)


@pytest.mark.parametrize("what", ["go back", "copy", "take words out"])
@pytest.mark.parametrize("at_save", range(1, 5))
@pytest.mark.parametrize("moment", range(4))
async def test_nobody_who_comes_between_lets_one_approval_run_twice(
    what: str, at_save: int, moment: int
) -> None:
    ran, store = Counter[str](), InMemorySessionManager()

    @tool(requires_confirmation=True)
    async def pay(context: ExecutionContext) -> str:
        """Pay."""
        ran[str(context.tool_call_id)] += 1
        return "paid"

    def agent(sessions: SessionManager, *steps: Any) -> Agent:
        model = ScriptedModel(chain(steps, repeat("Done.")))
        return Agent(model, tools=[pay], session_manager=sessions)

    await agent(store).run("Hello.", session_id="s")
    reply = [call("pay", "c1"), call("pay", "c2")]
    paused = await agent(store, reply).run("Pay.", session_id="s")
    between = Interrupted(store, at_save, lambda: meddle(store, what, moment))
    with suppress(AlreadyDecidedError, SessionConflictError):
        await agent(between).run(
            session_id="s",
            tool_confirmations=[each.approve() for each in paused.pending_tool_calls],
        )

    for session_id in [info.session_id for info in await store.list()]:
        session = await store.get(session_id)
        assert session is not None
        for event in session.events:
            await try_again(store, session_id, agent(store))
            await rewind(store, session_id, to=event.event_id)
        await try_again(store, session_id, agent(store))

    assert max(ran.values(), default=0) <= 1
