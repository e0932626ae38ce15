"""What is known of a run of a graph, read from the log of its session.

A graph keeps nothing but its log. Each step is one reply: a Note says which edges led
to it, and a call stands for each node that it enters. The results follow, in whatever
order the nodes end, and with the result of a function what it changed in the state.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast

from minagent.events import Event, Note, ToolCall, ToolResult, said_by_user, thaw
from minagent.marks import current, marks
from minagent.multiagent.visits import Visit, task_of, visits
from minagent.session import State

STEP = "step"
"""The kind of the Note in a graph's reply: `{"followed": [[from, to], …]}`, the edges
that led to it. For those with which a graph begins, `from` is null."""

Transition: TypeAlias = tuple[str | None, str]


@dataclass(slots=True)
class GraphRun:
    """What a graph has done for its last task.

    Attributes:
        task: What the graph was asked.
        visits: Each time that a node was entered, in order.
        transitions: The edges that were followed, in order; the first come from None.
        frontier: The nodes that come next or are at work, each with those that led to
            it.
        state: What functions have put there, by key, also for earlier tasks; that of
            the steps that have ended. A function may change it, and the change is
            stored with its result. Of two in one step that change a key, the node that
            was added later has the last word.
        step: The visits that began last, side by side.
        asked: Inside a function: what its node was asked.
    """

    task: str
    visits: tuple[Visit, ...] = ()
    transitions: tuple[Transition, ...] = ()
    frontier: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    state: State = field(default_factory=dict)
    step: tuple[Visit, ...] = ()
    asked: str = ""
    _ends: tuple[str, ...] = ()

    @staticmethod
    def of(events: Sequence[Event], at: ToolCall | None = None) -> "GraphRun":
        """Return what a log tells.

        Args:
            events: The log of a graph's session.
            at: A call of the step that goes on: what was known when it began, without
                what has come of those beside it.
        """
        run, step = current(events).folded(_Told, lambda told: (told.run, [*told.step]))
        found = visits(events, until=at)
        return replace(
            run,
            task=task_of(events),
            visits=found,
            state=deepcopy(run.state),  # a function may change it
            step=tuple(each for each in found if each.tool_call_ids[-1] in step),
        )

    @property
    def results(self) -> dict[str, Any]:
        """What each node's last visit has returned: text, or what a function gave."""
        done = [(each.node, each.result) for each in self.visits if each.is_done]
        return {node: _value_of(result) for node, result in done if result}

    @property
    def answer(self) -> str:
        """What the nodes said that led to no other, each under its name if several."""
        if len(self._ends) == 1:
            return self.text_of(self._ends[0])
        return "\n\n".join(f"{name}:\n{self.text_of(name)}" for name in self._ends)

    def text_of(self, node: str) -> str:
        """Return what the last visit of a node returned or failed with, as text."""
        said = [each.result for each in self.visits if each.node == node]
        return said[-1].content if said and said[-1] else ""

    def times(self, node: str) -> int:
        """Return how often a node was entered."""
        return sum(visit.node == node for visit in self.visits)

    def after(self, followed: Iterable[Transition]) -> "GraphRun":
        """Return the run once these edges are followed."""
        new = tuple(followed)
        left = {source for source, _ in new}
        frontier = {k: v for k, v in self.frontier.items() if k not in left}
        for source, target in new:
            before = frontier.get(target, ())
            frontier[target] = before if source is None else (*before, source)
        ends = tuple(each for each in self._ends if each not in left)
        transitions = self.transitions + new
        return replace(self, frontier=frontier, transitions=transitions, _ends=ends)

    def _with(self, results: Sequence[ToolResult]) -> "GraphRun":
        """Return the run once a step has ended with these results."""
        state = dict(self.state)
        for result in results:
            details = _details_of(result)
            state |= details.get("set", {})
            for key in details.get("gone", ()):
                state.pop(key, None)
        done = dict.fromkeys(each.name for each in results if each.status == "success")
        frontier = {k: v for k, v in self.frontier.items() if k not in done}
        ends = (*dict.fromkeys((*self._ends, *done)),)
        return replace(self, state=state, frontier=frontier, _ends=ends)


class _Told:
    """What a log tells, but for the visits: a fold (see `log.py`)."""

    def __init__(self) -> None:
        self.run = GraphRun("")
        self.step: dict[str, ToolResult | None] = {}  # by the id of the call

    def add(self, event: Event) -> None:
        if said_by_user(event):
            self.run, self.step = GraphRun("", state=self.run.state), {}
        for note in marks(event, STEP):
            self.run = self.run.after(_followed(note))
        if event.tool_calls:
            self.step = dict.fromkeys(call.tool_call_id for call in event.tool_calls)
        for item in event.content:
            if isinstance(item, ToolResult) and item.tool_call_id in self.step:
                self.step[item.tool_call_id] = item
                results = [each for each in self.step.values() if each]
                if len(results) == len(self.step):
                    self.run = self.run._with(results)


def _followed(note: Note) -> list[Transition]:
    edges = cast(Sequence[Any], note.data.get("followed", ()))
    return [(source, target) for source, target in edges]


def _details_of(result: ToolResult) -> dict[str, Any]:
    """Return `value`, `set` and `gone`, as far as a function had a word for them."""
    details = thaw(result.details)
    return details if isinstance(details, dict) else {}


def _value_of(result: ToolResult) -> Any:
    return _details_of(result).get("value", result.content)
