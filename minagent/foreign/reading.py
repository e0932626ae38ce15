"""The one door: from a path to the sessions of other frameworks that are there.

    a folder       Strands: of `FileSessionManager`, or of `SnapshotSessionManager`
                   with `LocalFileStorage`; any folder of theirs, or one around them
    a JSON file    Strands: a snapshot, or a bare list of messages
    a SQLite file  OpenAI Agents: of `SQLiteSession`

Nothing is written, there or here. What is read becomes items of `events.py`; what has
no item is named in `Foreign.unread`, and so is each field that was left behind. See
`intake.py` for what the readers share, and then the reader of your framework.

This file knows nothing of what is in the files, but for their first bytes.
"""

import os.path
from collections import Counter
from pathlib import Path

from minagent.errors import MinagentError
from minagent.foreign import openai_agents, strands
from minagent.foreign.intake import Foreign

_SQLITE = b"SQLite format 3\x00"  # https://www.sqlite.org/fileformat.html, section 1.3


def is_foreign(path: Path) -> bool:
    """Whether there is something at a path that `read_sessions` may be able to read.

    A pipe is none: it can be read only once.

    Raises:
        OSError: It must not be read.
    """
    is_file = path.is_file() and (_is_sqlite(path) or strands.is_json(path))
    return is_file or path.is_dir()


def read_sessions(path: Path | str) -> list[Foreign]:
    """Return the sessions of another framework, in the order of their names.

    Args:
        path: The folder or file; see the top of this file.

    Raises:
        MinagentError: There is none in it, one of them is damaged, or two have one id.
        OSError: There is nothing, or it must not be read.
    """
    place = Path(os.path.abspath(path))  # the names of the folders say whose it is
    if place.is_dir():
        found = strands.sessions_in(place)
    elif _is_sqlite(place):
        found = openai_agents.sessions_in(place)
    else:
        found = strands.sessions_of(place)
    if not found:
        problem = f"{place.name} holds no session of Strands or OpenAI Agents"
        raise MinagentError(problem=problem)
    for session_id, count in Counter(each.session_id for each in found).items():
        if count > 1:
            problem = f"{place.name} holds {count} sessions with the id {session_id!r}"
            raise MinagentError(problem=f"{problem}; name a folder inside it")
    return found


def _is_sqlite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE
