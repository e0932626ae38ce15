"""Several agents: each with conversations of its own, in the same store.

Start with `delegate.py`, an agent as a tool of another agent.
"""

# Not lazily: the name of the module must give way to that of the function.
from minagent.multiagent.delegate import delegate, inner_session_id

__all__ = ["delegate", "inner_session_id"]
