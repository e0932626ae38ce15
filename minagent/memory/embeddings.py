"""Embeddings: texts as vectors, so that what means the same lies close together.

    memory = SQLiteMemoryManager("memory.db", embed=embed)

`embed` uses WordLlama, which looks up a vector for each part of a word and takes their
mean: fast, and good enough to find a paraphrase. Its weights come with the package, and
nothing is downloaded. Any other function of this form does as well.

`by_meaning` is the second ranking of `SQLiteMemoryManager`: numpy over all vectors of a
user, which for 10,000 of them takes less time than a model's first word.
"""

import sqlite3
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from minagent.memory.sqlite import Embed
from minagent.stores.sqlite_file import transaction

try:
    import numpy as np
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "embeddings need numpy: pip install 'minagent[embeddings]'", name="numpy"
    ) from error


NO_VECTOR = """
    SELECT m.key, m.text FROM memories AS m LEFT JOIN vectors AS v ON v.key = m.key
     WHERE m.user_id = :user_id AND (v.key IS NULL OR length(v.data) <> :size)
"""
# Nothing, if it was deleted or updated meanwhile.
ADD_VECTOR = """
    INSERT OR REPLACE INTO vectors
    SELECT key, ? FROM memories WHERE key = ? AND text = ?
"""
VECTORS = """
    SELECT m.key, v.data FROM memories AS m JOIN vectors AS v ON v.key = m.key
     WHERE m.user_id = :user_id AND (:without IS NULL OR m.session_id IS NOT :without)
"""


def embed(texts: list[str]) -> list[list[float]]:
    """Return a vector of 256 numbers for each text.

    Raises:
        ModuleNotFoundError: WordLlama is not installed.
    """
    vectors: list[list[float]] = _model().embed(texts).tolist()
    return vectors


def vector_bytes(vector: Sequence[float]) -> bytes:
    """Return a vector as it is stored: 4 bytes for each number."""
    return np.asarray(vector, dtype="<f4").tobytes()


def nearest(wanted: Sequence[float], vectors: Sequence[bytes]) -> list[int]:
    """Return the places of those vectors that point a similar way, the nearest first.

    Args:
        wanted: A vector.
        vectors: Others of its length, as `vector_bytes` made them.
    """
    if not vectors:
        return []
    rows = np.frombuffer(b"".join(vectors), dtype="<f4").reshape(len(vectors), -1)
    lengths = np.linalg.norm(rows, axis=1)
    likeness = rows @ np.asarray(wanted, dtype="<f4") / np.where(lengths, lengths, 1)
    order = np.argsort(-likeness, kind="stable")
    return [int(at) for at in order if likeness[at] > 0]


def by_meaning(
    connection: sqlite3.Connection,
    embed: Embed,
    query: str,
    asked: dict[str, Any],
    count: int,
) -> list[int]:
    """Return the keys of the memories that mean most nearly the same, best first.

    Rows that have no vector yet get theirs now.

    Args:
        connection: To a file of memories.
        embed: Makes the vectors.
        query: What is looked for.
        asked: `user_id`, and `without`, a session to leave out or None.
        count: How many at most.
    """
    [wanted] = embed([query])
    asked = asked | {"size": len(vector_bytes(wanted))}
    missing = connection.execute(NO_VECTOR, asked).fetchall()
    vectors = embed([text for _, text in missing]) if missing else []
    if missing:
        with transaction(connection):
            for (key, text), vector in zip(missing, vectors, strict=True):
                connection.execute(ADD_VECTOR, (vector_bytes(vector), key, text))
    rows = connection.execute(VECTORS, asked).fetchall()
    order = nearest(wanted, [data for _, data in rows])
    return [rows[at][0] for at in order[:count]]


@cache
def _model() -> Any:
    try:
        wordllama = import_module("wordllama")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "embed needs wordllama: pip install 'minagent[embeddings]'",
            name="wordllama",
        ) from error
    # It looks for its files in a cache first; its own folder is one.
    folder = Path(str(wordllama.__file__)).parent
    return wordllama.WordLlama.load(cache_dir=folder, disable_download=True)
