"""Memory: what was said in earlier conversations, and how it reaches a model.

Start with `manager.py`. A driver is imported when what needs it is first named, and not
before.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from minagent.memory.excerpts import Excerpt, spoken_text
from minagent.memory.in_memory import InMemoryMemoryManager, bm25
from minagent.memory.manager import Memory, MemoryHit, MemoryManager

# Not lazily: the name of the module must give way to that of the function.
from minagent.memory.recall import (
    forget_tool,
    format_memories,
    recall,
    recall_tool,
    remember_tool,
)

if TYPE_CHECKING:
    from minagent.memory.embeddings import embed
    from minagent.memory.sqlite import SQLiteMemoryManager

__all__ = [
    "Excerpt",
    "InMemoryMemoryManager",
    "Memory",
    "MemoryHit",
    "MemoryManager",
    "SQLiteMemoryManager",
    "bm25",
    "embed",
    "forget_tool",
    "format_memories",
    "recall",
    "recall_tool",
    "remember_tool",
    "spoken_text",
]

_HOMES = {
    "SQLiteMemoryManager": "minagent.memory.sqlite",
    "embed": "minagent.memory.embeddings",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
