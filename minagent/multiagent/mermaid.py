"""Flowcharts of graphs and swarms, in the words of Mermaid.

Notebooks and many other places draw what is written like this:

    flowchart TD
        start([start]) --> n0
        n0["research"]:::done --> n1["write"]:::running

https://mermaid.js.org/syntax/flowchart.html describes the words.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

from minagent.approval import pending_tool_calls, waiting_call
from minagent.multiagent.visits import visits
from minagent.session import Session

Standing: TypeAlias = Literal["done", "running", "waiting", "failed"]

STYLES: Mapping[Standing, str] = {
    "done": "fill:#d3f2dd,stroke:#2b8a4b,color:#10381f",
    "running": "fill:#d6e8fb,stroke:#2a6cb0,color:#102a45",
    "waiting": "fill:#fdedc8,stroke:#b07d12,color:#402c04",
    "failed": "fill:#fbdcd9,stroke:#b3352a,color:#43110c",
}


def standings(session: Session) -> dict[str, Standing]:
    """Return how each node stands that was entered for the last task of a session."""
    waiting = {waiting_call(each) for each in pending_tool_calls(session)}
    found: dict[str, Standing] = {}
    for visit in visits(session.events):
        if visit.result is None:
            asks = visit.tool_call_ids[-1] in waiting
            found[visit.node] = "waiting" if asks else "running"
        else:
            found[visit.node] = "done" if visit.is_done else "failed"
    return found


def flowchart(
    nodes: Iterable[str],
    edges: Iterable[tuple[str | None, str, str]],
    standing: Mapping[str, Standing],
) -> str:
    """Return a flowchart.

    Args:
        nodes: The names of the nodes; they hold no character that Mermaid reads.
        edges: From where, to where, and what is written on it; None is the start.
        standing: How nodes stand; one that is not in it is drawn plain.
    """
    ids = {name: f"n{number}" for number, name in enumerate(nodes)}
    lines = ["flowchart TD"]
    for name, known in ids.items():
        style = f":::{standing[name]}" if name in standing else ""
        lines.append(f'    {known}["{name}"]{style}')
    arrows = [*edges]
    if any(source is None for source, _, _ in arrows):
        lines.append("    start([start])")
    for source, target, label in arrows:
        begin = "start" if source is None else ids[source]
        arrow = f"-->|{label}|" if label else "-->"
        lines.append(f"    {begin} {arrow} {ids[target]}")
    used = dict.fromkeys(standing.values())
    lines += [f"    classDef {each} {STYLES[each]}" for each in STYLES if each in used]
    return "\n".join(lines)
