"""Chapter 11, a solution: a newsroom, where a person has read what is published."""

from collections.abc import Callable, Sequence

from minagent import Agent, SessionManager
from minagent.multiagent import Graph, GraphBuilder, GraphRun


def newsroom(
    writer: Agent,
    reviewer: Agent,
    publish: Callable[[str], str],
    *,
    sessions: SessionManager,
    rounds: int = 2,
) -> Graph:
    """Return a graph of three nodes: `write`, then `review`, then `publish`."""

    def text(run: GraphRun, sources: Sequence[str] = ()) -> str:
        return run.text_of("write")

    def is_ok(run: GraphRun) -> bool:
        return run.text_of("review") == "OK"

    def is_wrong(run: GraphRun) -> bool:
        return not is_ok(run) and run.times("write") <= rounds

    def is_denied(run: GraphRun) -> bool:
        result = run.visits[-1].result
        denied = result is not None and result.status == "denied"
        return denied and run.times("write") <= rounds

    builder = GraphBuilder()
    builder.add_node("write", writer)
    builder.add_node("review", reviewer)
    builder.add_node(
        "publish",
        lambda run: publish(text(run)),
        asks=text,
        requires_confirmation=True,
        confirmation_message="Publish this?\n\n{task}",
    )
    builder.add_edge("write", "review")
    builder.add_edge("review", "write", when=is_wrong)
    builder.add_edge("review", "publish", when=is_ok)
    builder.add_edge("publish", "write", when=is_denied, on_error=True)
    return builder.build(session_manager=sessions, max_visits=rounds + 1)
