"""Models: what answers an agent's requests.

A vendor's client is imported when its model is first named, and not before.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minagent.models.anthropic import AnthropicModel
    from minagent.models.local import LocalModel
    from minagent.models.offline import OfflineModel
    from minagent.models.scripted import ScriptedModel

__all__ = ["AnthropicModel", "LocalModel", "OfflineModel", "ScriptedModel"]

_HOMES = {
    "AnthropicModel": "minagent.models.anthropic",
    "LocalModel": "minagent.models.local",
    "OfflineModel": "minagent.models.offline",
    "ScriptedModel": "minagent.models.scripted",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
