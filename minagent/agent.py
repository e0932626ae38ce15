"""The agent: think, act, record, and stop with an answer or a question.

Read `Agent._loop` first; it is the whole story, and `_think`, `_save`, `_act` and
`_finish` are its words. Before it, `_open` loads the session and stores the input.
`run` and `stream` are two ways to start the same coroutine.

An agent is code: a model, instructions, tools. Nothing of it is stored.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, TypeAlias

import pydantic

from minagent import errors
from minagent.approval import changed, decide, pending_tool_calls
from minagent.calls import AfterTool, BeforeTool, CallRunner, failed
from minagent.context import Clock, ExecutionContext, OnEvent, resolved
from minagent.events import (
    VALID_CALL_ID,
    ContentItem,
    Note,
    ToolCall,
    ToolConfirmation,
    new_call_id,
    utc_now,
)
from minagent.ledger import open_calls, record_of
from minagent.log import EventLog
from minagent.marks import current
from minagent.model import Delta, Model, ModelRequest, ModelResponse
from minagent.opening import (
    INVALID_OUTPUT,
    REPLACED,
    Start,
    UserInput,
    awaits_model,
    plan,
)
from minagent.session import SessionManager, finished, running
from minagent.store import InMemorySessionManager
from minagent.stream import AgentResult, AgentStream
from minagent.tools import Tool, toolbox

CUT_OFF = "Not run: the reply was cut off by the token limit. Ask again, in less."
NOT_RUN = "Not run: the reply ended the run."
BROKE_OFF = "Not run: the reply broke off."

Thought: TypeAlias = ModelRequest | ModelResponse | None
BeforeLlm: TypeAlias = Callable[
    [ExecutionContext, ModelRequest], Awaitable[Thought] | Thought
]


@dataclass(eq=False)
class Agent:
    """A model with instructions and tools, and a place to keep conversations.

    Attributes:
        model: Replies to requests.
        name: The author of its events.
        instructions: The system prompt. It is sent, never stored.
        tools: What it may call.
        session_manager: Where sessions are kept; None means in memory.
        max_steps: How many model calls one run may make.
        before_llm_callbacks: Called with the run and the request, before each model
            call. One returns another request, or a response in the model's place, or
            None. What one records is in the request that the next one gets.
        before_tool_callbacks: Called with the run and each call, before it; the first
            `ToolResult` that one returns stands in the tool's place.
        after_tool_callbacks: Called with the run and each result; what one returns
            replaces it.
        on_event: Called with the run and each event, after it is stored.
        output_type: What the answer must be, as a pydantic model or another type, in
            JSON; None means text. A model whose answer does not fit is told why, by a
            stored Note, and tries again.
        clock: Tells the time, aware.

    Raises:
        TypeError: A tool is no `Tool`.
        ValueError: Two tools have one name, or `max_steps` is below 1.
    """

    model: Model
    _: KW_ONLY
    name: str = "assistant"
    instructions: str | None = None
    tools: Sequence[Tool[..., Any]] = ()
    session_manager: SessionManager | None = None
    max_steps: int = 10
    before_llm_callbacks: Sequence[BeforeLlm] = ()
    before_tool_callbacks: Sequence[BeforeTool] = ()
    after_tool_callbacks: Sequence[AfterTool] = ()
    on_event: OnEvent | None = None
    output_type: type[Any] | None = None
    clock: Clock = utc_now

    def __post_init__(self) -> None:
        if self.max_steps < 1:
            raise ValueError(f"max_steps is {self.max_steps}; a run has at least 1")
        if self.session_manager is None:
            self.session_manager = InMemorySessionManager()
        self._tools = toolbox(self.tools)
        kind = self.output_type
        self._output = None if kind is None else pydantic.TypeAdapter[Any](kind)
        self._schema = self._output.json_schema() if self._output else None
        self._calls = CallRunner(
            self._tools, self.before_tool_callbacks, self.after_tool_callbacks
        )

    async def run(
        self,
        user_input: UserInput | None = None,
        *,
        session_id: str | None = None,
        user_id: str | None = None,
        tool_confirmations: Sequence[ToolConfirmation] = (),
        context: ExecutionContext | None = None,
    ) -> AgentResult:
        """Run until there is an answer, or a question to a person.

        Without `session_id` nothing is stored: the conversation lives in
        `result.context`, and goes on with `context=result.context`.

        Args:
            user_input: What the user says. None goes on from where the log ends: after
                a crash, a failure, a pause, or too many steps.
            session_id: The conversation; it is made if it is new and there is input.
            user_id: Whose it is. None asks no question of an existing one.
            tool_confirmations: What people decided; all are taken, or none.
            context: A run to go on from, in the place of `session_id`.

        Raises:
            ValueError: The input is blank, or the options name two conversations.
            NothingToContinueError: There is no input, and nothing to go on from.
            MaxStepsExceededError: No answer came within `max_steps` model calls.
            SessionBusyError: A run of this manager is at work on the session.
            SessionConflictError: Another process saved the session during the run. The
                input is stored.
            SessionOwnerError: The session is not this user's.
            ApprovalError: A decision cannot be taken; its subclasses say why.
        """
        start = Start(
            self.session_manager,
            user_input,
            session_id,
            user_id,
            tool_confirmations,
            context,
        )
        return await self._execute(start, lambda item: None)

    def stream(
        self,
        user_input: UserInput | None = None,
        *,
        session_id: str | None = None,
        user_id: str | None = None,
        tool_confirmations: Sequence[ToolConfirmation] = (),
        context: ExecutionContext | None = None,
    ) -> AgentStream:
        """Return the same run, to be watched: `async with agent.stream(...) as stream`.

        Arguments and errors are those of `run`; a failed run raises from the iteration.
        """
        start = Start(
            self.session_manager,
            user_input,
            session_id,
            user_id,
            tool_confirmations,
            context,
        )
        return AgentStream(lambda emit: self._execute(start, emit))

    async def _loop(self, context: ExecutionContext) -> AgentResult:
        while context.step < self.max_steps:
            response = await self._think(context)
            await self._save(context, response)
            if response.stop_reason == "pause_turn" and not response.tool_calls:
                continue
            if not response.tool_calls or response.ends_run:
                if result := await self._finish(context, response):
                    return result
                continue
            if await self._act(context, response):
                return _paused(context)
        raise errors.MaxStepsExceededError(context.session_id, max_steps=self.max_steps)

    async def _think(self, context: ExecutionContext) -> ModelResponse:
        """Return the next reply: a callback's, or the model's."""
        context.step += 1
        specs = tuple(each.spec for each in self._tools.values())
        log = current(context.session.events)
        request = ModelRequest(self.instructions, log, specs, self._schema)
        for callback in self.before_llm_callbacks:
            known = len(context.session.events)
            thought = await resolved(callback(context, request))
            if isinstance(thought, ModelResponse):
                return replace(
                    thought, content=_with_fresh_ids(context, thought.content)
                )
            request, recorded = thought or request, context.session.events[known:]
            if recorded:
                seen = {each.event_id for each in request.events} if thought else ()
                new = [each for each in recorded if each.event_id not in seen]
                request = replace(
                    request, events=EventLog(request.events).extended(new)
                )
        whole: list[ContentItem] = []

        def emit(item: Delta | ContentItem) -> None:
            context.emit(item) if isinstance(item, Delta) else whole.append(item)

        try:
            response = await self.model.generate(request, emit)
        except BaseException:
            if whole:
                await finished(self._save_broken_off(context, tuple(whole)))
            raise
        return replace(response, content=_with_fresh_ids(context, response.content))

    async def _save(self, context: ExecutionContext, response: ModelResponse) -> None:
        """Store a reply, and in the same save the questions that it raises."""
        runs = response.stop_reason != "max_tokens" and not response.ends_run
        asked = self._calls.questions(context, response.tool_calls) if runs else ()
        await context.commit(
            context.event(
                *response.content,
                usage=response.usage,
                model=response.model,
                stop_reason=response.stop_reason,
                request_id=response.request_id,
                prefix_digest=response.prefix_digest,
            ),
            change=changed(new=asked) if asked else None,
        )

    async def _act(self, context: ExecutionContext, response: ModelResponse) -> bool:
        """Carry out the calls of a reply; return whether the run has to wait."""
        if response.stop_reason == "max_tokens":
            await context.record(*(failed(c, CUT_OFF) for c in response.tool_calls))
            return False
        waiting = {each.tool_call_id for each in pending_tool_calls(context.session)}
        left = [each.call.tool_call_id for each in open_calls(context.session.events)]
        await self._calls.carry_out(context, [x for x in left if x not in waiting])
        return bool(open_calls(context.session.events))

    async def _finish(
        self, context: ExecutionContext, response: ModelResponse
    ) -> AgentResult | None:
        """Return how the run ended; None if the answer is none of the output type."""
        output: Any = response.text
        if response.tool_calls:
            await context.record(*(failed(c, NOT_RUN) for c in response.tool_calls))
        if self._output is not None:
            try:
                output = (
                    None if response.ends_run else self._output.validate_json(output)
                )
            except pydantic.ValidationError as error:
                text = f"The answer does not fit. Answer again, in JSON only. {error}"
                await context.record(Note(kind=INVALID_OUTPUT, text=text))
                return None
        context.final_result = output
        return AgentResult(
            context=context, output=output, stop_reason=response.stop_reason
        )

    async def _save_broken_off(
        self, context: ExecutionContext, whole: tuple[ContentItem, ...]
    ) -> None:
        """Store what was whole of a reply that broke off; its calls are not run."""
        reply = context.event(*_with_fresh_ids(context, whole), interrupted=True)
        results = [failed(call, BROKE_OFF, "cancelled") for call in reply.tool_calls]
        events = [reply, context.event(*results)] if results else [reply]
        with suppress(errors.SessionConflictError):  # then another run goes on
            await context.commit(*events)

    async def _execute(self, start: Start, emit: Callable[[Any], None]) -> AgentResult:
        with ExitStack() as stack:
            try:
                owner = start.session if start.manager is None else start.manager
                stack.enter_context(running(owner, start.session_id))
            except errors.SessionBusyError:
                if start.decisions:  # who comes too late is told so in any case
                    decide(await start.load(), start.decisions, self._tools)
                raise
            context, calls = await self._open(start, emit)
            await self._calls.carry_out(context, calls)
            left = open_calls(context.session.events)
            if left and not start.words:
                return _paused(context)
            if left:  # silence on what was asked just now is no consent, either
                results = (failed(each.call, REPLACED, "replaced") for each in left)
                await context.commit(
                    context.event(*results),
                    change=changed(gone=pending_tool_calls(context.session)),
                )
            return await self._loop(context)

    async def _open(
        self, start: Start, emit: Callable[[Any], None]
    ) -> tuple[ExecutionContext, list[str]]:
        """Load the session, store what the run begins with, and say what to carry out.

        A conflict means that somebody else saved in between: then all of it again.
        """
        session = start.session
        while True:
            session = session or await start.load()
            context = ExecutionContext(
                session,
                start.manager,
                author=self.name,
                clock=self.clock,
                emit=emit,
                on_event=self.on_event,
            )
            begin = plan(context, self._tools, start.decisions, start.words)
            if begin.is_idle and not awaits_model(current(session.events)):
                raise errors.NothingToContinueError(context.session_id)
            try:
                change = changed(gone=begin.gone) if begin.gone else None
                await context.commit(*begin.events, change=change)
            except errors.SessionConflictError:
                if context.is_open:  # it is a watcher's; the input is stored
                    raise
                session = None
                continue
            if begin.error:
                raise begin.error
            context.open()
            return context, begin.calls


def _with_fresh_ids(
    context: ExecutionContext, content: Sequence[ContentItem]
) -> tuple[ContentItem, ...]:
    taken: set[str] = set()

    def fresh(item: ContentItem) -> ContentItem:
        if isinstance(item, ToolCall):
            # Some servers count from `call_0` again in each reply.
            fits = VALID_CALL_ID.fullmatch(item.tool_call_id) is not None
            known = record_of(context.session.events, item.tool_call_id)
            if not fits or known or item.tool_call_id in taken:
                item = replace(item, tool_call_id=new_call_id())
            taken.add(item.tool_call_id)
        return item

    return tuple(fresh(item) for item in content)


def _paused(context: ExecutionContext) -> AgentResult:
    return AgentResult(
        context=context,
        status="pending_confirmation",
        pending_tool_calls=pending_tool_calls(context.session),
    )
