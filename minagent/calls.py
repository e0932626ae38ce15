"""Carrying out the calls of one reply: side by side, each to exactly one result.

`CallRunner.carry_out` starts all calls at once and stores each result as soon as it is
there. Whatever happens, a call is answered: bad arguments, an unknown tool and a tool
that raises give an error result for the model to read; a cancel answers what is open
and then goes on its way.

This file does not decide which calls are to be run; `opening.py` and the agent do.
"""

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from minagent.approval import (
    Paused,
    PendingToolCall,
    ask,
    changed,
    pending_tool_calls,
    waiting_call,
)
from minagent.context import ExecutionContext, resolved
from minagent.errors import NotSerializableError, SessionConflictError
from minagent.events import Status, ToolCall, ToolResult, dump_json, well_formed
from minagent.ledger import CallRecord, open_calls, record_of
from minagent.session import finished
from minagent.tools import Tool, as_result

CANCEL_GRACE_SECONDS = 2.0
"""How long a cancelled tool may take to clean up before it is left behind."""

MAX_ERROR_LETTERS = 500
"""How much of an exception's text the model is shown."""

CANCELLED = "Cancelled before there was a result; it may still have taken effect."

Verdict: TypeAlias = ToolResult | None
BeforeTool: TypeAlias = Callable[
    [ExecutionContext, ToolCall], Awaitable[Verdict] | Verdict
]
AfterTool: TypeAlias = Callable[
    [ExecutionContext, ToolResult], Awaitable[Verdict] | Verdict
]

logger = logging.getLogger("minagent")


class _Unfit(Exception):
    """A call that no tool can carry out; the text tells the model why."""


class _StoppedByTool(Exception):
    """Carries a KeyboardInterrupt and its like out of a task.

    asyncio would stop the event loop at once, with the other calls unanswered.
    """


@dataclass(frozen=True, slots=True)
class CallRunner:
    """Carries out tool calls.

    Attributes:
        tools: The tools by name.
        before: Called with the run and each call, before it; the first `ToolResult`
            that one returns stands in the tool's place.
        after: Called with the run and each result; what one returns replaces it.
    """

    tools: Mapping[str, Tool[..., Any]]
    before: Sequence[BeforeTool]
    after: Sequence[AfterTool]

    def questions(
        self, context: ExecutionContext, calls: Sequence[ToolCall]
    ) -> list[PendingToolCall]:
        """Return the questions to ask about those calls that a person must decide on.

        A call that could not run anyway is no question; its result will say why.
        """
        asked = []
        for call in calls:
            with suppress(_Unfit):
                tool, _ = self._checked(call)
                gated = True  # a gate that fails stays shut
                with suppress(_Unfit), _users_code(call):
                    gated = tool.is_gated(call.arguments)
                if gated:
                    asked.append(ask(context, call, tool))
        return asked

    async def carry_out(
        self, context: ExecutionContext, tool_call_ids: Sequence[str]
    ) -> None:
        """Run calls of the log side by side, and store each result as it comes.

        Args:
            context: The run.
            tool_call_ids: Calls that are open, and that nobody else carries out.
        """
        records = [record_of(context.session.events, each) for each in tool_call_ids]
        tasks = [asyncio.ensure_future(self._one(context, r)) for r in records if r]
        if not tasks:
            return
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        except BaseException as error:
            await finished(self._stop(context, tasks, tool_call_ids))
            if isinstance(error, _StoppedByTool) and error.__cause__ is not None:
                raise error.__cause__ from None
            raise

    async def _one(self, context: ExecutionContext, record: CallRecord) -> None:
        call, decisions = record.call, record.decisions
        edits = [d.modified_arguments for d in decisions if not d.path]
        if edits and edits[0] is not None:
            call = replace(call, arguments=edits[0])
        listed, path = pending_tool_calls(context.session), (call.tool_call_id,)
        waiting = [each for each in listed if each.path[:1] == path]
        result, inside = None, []
        try:
            context.enter_call(call.tool_call_id, decisions)
            result = await self._result(context, call)
        except Paused as pause:
            inside = [replace(each, path=path + each.path) for each in pause.pending]
        if error := context.mend_state():  # now, while nobody else can be to blame
            result = _spoilt(result or failed(call, "(it paused)"), error)
        if result is None:
            await context.commit(change=changed(gone=waiting, new=inside))
            return
        if call is not record.call:
            ran = dump_json(call.arguments, "arguments")
            text = f"(A person changed the arguments to {ran}.)\n{result.content}"
            result = replace(result, content=text)
        event = context.event(result)
        commit = context.commit(
            event,
            change=changed(gone=waiting) if waiting else None,
            mend=lambda error: replace(event, content=(_spoilt(result, error),)),
        )
        # To its end: of a tool that has returned nobody may say that it was cancelled.
        await finished(commit)

    async def _result(self, context: ExecutionContext, call: ToolCall) -> ToolResult:
        try:
            tool, arguments = self._checked(call)
            with _users_code(call):
                verdict: Verdict = None
                for before in self.before:
                    if verdict is None:
                        verdict = await resolved(before(context, call))
                found = verdict or await tool.invoke(arguments, context)
                result = as_result(call, found)
                for after in self.after:
                    verdict = await resolved(after(context, result))
                    result = as_result(call, verdict or result)
                return result
        except (Paused, asyncio.CancelledError):
            raise
        except _Unfit as problem:
            return failed(call, str(problem))
        except BaseException as error:
            raise _StoppedByTool from error

    def _checked(self, call: ToolCall) -> tuple[Tool[..., Any], dict[str, Any]]:
        """Return the tool and the arguments of a call, if they fit together."""
        tool = self.tools.get(call.name)
        if tool is None:
            known = ", ".join(self.tools) or "none"
            raise _Unfit(f"There is no tool {call.name!r}. Tools: {known}.")
        if call.unreadable is not None:
            raise _Unfit(f"The input is no JSON object: {call.unreadable}")
        try:
            with _users_code(call, passing=ValueError):
                return tool, tool.checked(call.arguments)
        except ValueError as error:
            raise _Unfit(f"The arguments do not fit: {error}") from None

    async def _stop(
        self,
        context: ExecutionContext,
        tasks: Sequence[asyncio.Future[None]],
        ids: Sequence[str],
    ) -> None:
        """Stop the calls that still run, and answer those that have no result."""
        for task in tasks:
            task.cancel()
        done, _ = await asyncio.wait(tasks, timeout=CANCEL_GRACE_SECONDS)
        await asyncio.gather(*done, return_exceptions=True)  # they are of no more use
        waiting = {waiting_call(p) for p in pending_tool_calls(context.session)}
        calls = [each.call for each in open_calls(context.session.events)]
        ours = [call for call in calls if call.tool_call_id in {*ids} - waiting]
        event = context.event(*(failed(call, CANCELLED, "cancelled") for call in ours))
        if ours:
            try:
                await context.commit(event, mend=lambda error: event)
            except SessionConflictError:
                logger.warning("session=%s | taken over by another", context.session_id)


@contextmanager
def _users_code(call: ToolCall, *, passing: type[Exception] = Paused) -> Iterator[None]:
    """Run a tool, its gate, its checks or a callback: code that is not ours.

    Whatever it raises is news for the model, and no reason to lose what ran beside it.
    """
    try:
        yield
    except (Paused, _Unfit, passing):
        raise
    except Exception as error:
        told = well_formed(traceback.format_exception_only(error)[-1].strip())
        logger.warning("tool=%s call=%s | %s", call.name, call.tool_call_id, told)
        raise _Unfit(told) from error


def failed(call: ToolCall, text: str, status: Status = "error") -> ToolResult:
    """Return the result of a call that did not do what was asked."""
    shown = text if len(text) <= MAX_ERROR_LETTERS else f"{text[:MAX_ERROR_LETTERS]}…"
    return ToolResult(
        tool_call_id=call.tool_call_id,
        name=call.name,
        status=status,
        content=well_formed(shown),
    )


def _spoilt(result: ToolResult, error: NotSerializableError) -> ToolResult:
    text = f"{error}. The state was put back. The tool returned: {result.content}"
    return replace(result, status="error", content=text)
