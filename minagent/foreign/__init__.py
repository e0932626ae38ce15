"""Sessions of other frameworks, read so that an agent here goes on with them.

Start with `reading.py`, the one door.
"""

from minagent.foreign.intake import Foreign
from minagent.foreign.reading import is_foreign, read_sessions

__all__ = ["Foreign", "is_foreign", "read_sessions"]
