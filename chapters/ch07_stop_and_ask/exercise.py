"""Chapter 07, your turn: two questions wait, and a page lets people decide one.

Check it with `pytest chapters/ch07_stop_and_ask --mine`.
"""

from minagent import Agent, Session


def inbox(session: Session) -> dict[str, str]:
    """Return what a person is asked: the question of each waiting call, by its id.

    The oldest question comes first. A session in which nothing waits gives `{}`.

    Args:
        session: The session as it was loaded; no agent is needed to read it.
    """
    raise NotImplementedError("inbox() does not say yet which questions wait")


async def click(
    agent: Agent, session_id: str, tool_call_id: str, *, yes: bool, by: str
) -> str:
    """Take one person's decision about one call, and return what the page says next.

    The other calls stay as they are. The page says

    - `"Somebody was faster."` if the call was decided before: a click is never an
      error page, and never runs a tool again;
    - `"Still waiting: Delete b.txt?"` while other calls wait, with their questions in
      order and `" and "` between them;
    - the agent's answer, once nothing waits any more.

    A decision about a call that nobody was asked about stays an error.

    Args:
        agent: Has the tools, and the manager that holds the session.
        session_id: The session.
        tool_call_id: Which call is decided.
        yes: Whether the tool may run.
        by: Who clicked. The log says so later.
    """
    raise NotImplementedError("click() does not take a decision yet")
