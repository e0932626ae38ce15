"""Chapter 09, your turn: a ranking of your own, behind the same interface.

Check it with `pytest chapters/ch09_memory --mine`.
"""

from collections.abc import Sequence


def forgiving_bm25(query: str, texts: Sequence[str]) -> Sequence[float]:
    """Return how well each text fits a query in which somebody may have slipped.

    Each word of the query with five letters or more is replaced by the word of the
    texts that it is most like, if there is one. `minagent.memory.bm25` ranks the texts
    by the mended query. `difflib.get_close_matches`, with a `cutoff` of 0.75, says what
    is like what. Upper and lower case are alike.

    Shorter words are left alone: "when" is too near to "hen". So is a word that the
    texts have, or that is like none of theirs; without a slip this is `bm25`.

    Args:
        query: Any text; it may be empty.
        texts: Any texts; there may be none.

    Returns:
        One number for each text, in their order; above 0 for those that fit.
    """
    raise NotImplementedError("forgiving_bm25() does not rank anything yet")
