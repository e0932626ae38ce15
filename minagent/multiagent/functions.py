"""Functions as nodes of a graph.

A function gets the `GraphRun`, and what it returns is the result of its node. What it
changes in `run.state` is stored with the result, in one save.

A function keeps no log, so nobody knows what became of one that was cut off, or how far
one came that failed. It is not run again by itself, unless it is `repeatable`: a person
is asked. Approved, it runs again; an answer stands in the place of its result; denied,
it has failed.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from minagent.approval import Paused, ask
from minagent.context import ExecutionContext
from minagent.events import ToolResult, dump_json, load_json
from minagent.ledger import CallRecord, record_of
from minagent.multiagent.graph_run import GraphRun
from minagent.multiagent.visits import visit_of
from minagent.tools import Tool, as_result, tool

NodeFunction: TypeAlias = Callable[[GraphRun], Any]


def entering_function(
    name: str, function: NodeFunction, *, repeatable: bool, **options: Any
) -> Tool[..., Any]:
    """Return the tool that runs a function as a node.

    Args:
        name: Of the node.
        function: The function, async, or sync: then it runs in a thread.
        repeatable: Whether one that was cut off is run again, and nobody asked.
        options: Those of `tool`.
    """

    def begun(task: str, context: ExecutionContext) -> GraphRun | ToolResult:
        if not repeatable and (said := _said_of_it(context, entered)):
            return said
        call = _record_of(context).call
        return replace(GraphRun.of(context.session.events, at=call), asked=task)

    async def enter(task: str, context: ExecutionContext) -> ToolResult:
        if isinstance(run := begun(task, context), ToolResult):
            return run
        before = _dumped(run.state)
        return _with_changes(context, await function(run), before, run.state)

    def enter_in_thread(task: str, context: ExecutionContext) -> ToolResult:
        if isinstance(run := begun(task, context), ToolResult):
            return run
        before, value = _dumped(run.state), function(run)
        if inspect.iscoroutine(value):
            value.close()
            raise TypeError(f"node {name!r} returned a coroutine; say `async def`")
        return _with_changes(context, value, before, run.state)

    asynchronous = any(
        map(inspect.iscoroutinefunction, (function, type(function).__call__))
    )
    entering: Callable[..., Any] = enter if asynchronous else enter_in_thread
    entering.__doc__ = f"Run {name}."
    entered: Tool[..., Any] = tool(name=name, resumable=True, **options)(entering)
    return entered


def _record_of(context: ExecutionContext) -> CallRecord:
    record = record_of(context.session.events, context.tool_call_id or "")
    if record is None:
        raise ValueError("a node is carried out by a run of its graph, not by hand")
    return record


def _said_of_it(
    context: ExecutionContext, entered: Tool[..., Any]
) -> ToolResult | None:
    """Return what a person said in the place of the result; None if it is to be run.

    Raises:
        Paused: It may have been run before, and nobody has said yet.
    """
    record = _record_of(context)
    call, decided = record.call, record.decisions
    if decided and decided[-1].path and not decided[-1].approved:
        last, by = decided[-1], f" by {decided[-1].by}" if decided[-1].by else ""
        if last.answer is not None:
            return as_result(call, last.answer)
        text = f"Not run again: denied{by}: {last.reason or 'no reason was given'}"
        return replace(as_result(call, text), status="denied")
    if decided:
        told = any(decided[-1] in event.content for event in context.events)
    else:
        told = len(visit_of(context).tool_call_ids) == 1 and any(
            call in event.content for event in context.events
        )
    if told:
        return None
    # Each question needs an id of its own: what was decided once is decided.
    asked = replace(
        ask(context, call, entered),
        tool_call_id=f"{call.tool_call_id}-again{len(decided) + 1}",
        confirmation_message=(
            f"{call.name} was cut off or failed, and what it has done is not known. "
            "Run it again?"
        ),
    )
    raise Paused([asked])


def _dumped(state: Mapping[str, Any]) -> dict[str, str]:
    return {key: dump_json(value, f"state[{key!r}]") for key, value in state.items()}


def _with_changes(
    context: ExecutionContext,
    value: Any,
    before: Mapping[str, str],
    state: Mapping[str, Any],
) -> ToolResult:
    """Return what a function returned as a result, with what it changed in the state.

    Raises:
        NotSerializableError: The state holds what JSON has no word for.
    """
    after, details = _dumped(state), dict[str, Any]()
    new = {k: load_json(text) for k, text in after.items() if before.get(k) != text}
    if gone := [key for key in before if key not in after]:
        details["gone"] = gone
    if new:
        details["set"] = new
    result = as_result(_record_of(context).call, value)
    if isinstance(value, ToolResult):
        details["value"] = result.content if value.details is None else value.details
    elif not isinstance(value, str | None) and not result.media:
        details["value"] = load_json(result.content)
    return replace(result, details=details or None)
