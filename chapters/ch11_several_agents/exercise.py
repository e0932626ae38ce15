"""Chapter 11, your turn: a newsroom, where a person has read what is published.

Check it with `pytest chapters/ch11_several_agents --mine`.
"""

from collections.abc import Callable

from minagent import Agent, SessionManager
from minagent.multiagent import Graph


def newsroom(
    writer: Agent,
    reviewer: Agent,
    publish: Callable[[str], str],
    *,
    sessions: SessionManager,
    rounds: int = 2,
) -> Graph:
    """Return a graph of three nodes: `write`, then `review`, then `publish`.

    The reviewer answers "OK", or says what is wrong. Then the text goes back to the
    writer, who is told so (a node is told what led to it; you need not do anything for
    that). When it has gone back `rounds` times and is not right yet, the run ends with
    what the reviewer said last, and nobody is asked.

    A text that is "OK" is published once a person has said yes. The question is
    "Publish this?", an empty line, and the text: what the writer wrote last, and no
    more. (`asks` says what a node is asked, and `{task}` in its `confirmation_message`
    stands for that.) What `publish` returns is the answer of the run.

    A no sends the text back to the writer, too, and counts as one of the `rounds`. If
    none is left, the run ends with a `NodeFailedError`, as with every node that comes
    to no result. So it does if `publish` raises: that is no fault of the writer's.

    The edges that lead on from a node that failed are those with `on_error=True`. All
    that their conditions need is in the `GraphRun`: `results`, `times(node)`, and
    `visits`, of which the last one has a `result` with a `status`. Mind `max_visits`.

    Args:
        writer: Writes the text.
        reviewer: Reads it.
        publish: Publishes a text, and says where.
        sessions: Where the session of the graph is kept.
        rounds: How often a text may go back to the writer; 0 means never.
    """
    raise NotImplementedError("newsroom() does not return a graph yet")
