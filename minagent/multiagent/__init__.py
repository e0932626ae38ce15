"""Several agents: each with conversations of its own, in the same store.

    delegate.py     an agent as a tool of another agent
    graph.py        agents and functions, and edges that say what comes after what
    swarm.py        agents that hand over to each other

All three send an agent to work inside a session, and `inside.py` is how. A graph and a
swarm keep nothing but their logs: `visits.py` and `graph_run.py` read them.
"""

# Not lazily: the name of the module must give way to that of the function.
from minagent.multiagent.delegate import delegate
from minagent.multiagent.graph import Graph, GraphBuilder
from minagent.multiagent.graph_run import GraphRun
from minagent.multiagent.inside import inner_session_id
from minagent.multiagent.swarm import Peer, Swarm, SwarmRun
from minagent.multiagent.visits import Visit

__all__ = [
    "Graph",
    "GraphBuilder",
    "GraphRun",
    "Peer",
    "Swarm",
    "SwarmRun",
    "Visit",
    "delegate",
    "inner_session_id",
]
