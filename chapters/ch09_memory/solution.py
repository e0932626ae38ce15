"""Chapter 09, a solution: a ranking of your own, behind the same interface."""

import re
from collections.abc import Sequence
from difflib import get_close_matches

from minagent.memory import bm25


def forgiving_bm25(query: str, texts: Sequence[str]) -> Sequence[float]:
    """Return how well each text fits a query in which somebody may have slipped."""
    known = sorted(
        {word for text in texts for word in re.findall(r"\w+", text.lower())}
    )

    def mended(found: re.Match[str]) -> str:
        word = found[0].lower()
        return next(iter(get_close_matches(word, known, n=1, cutoff=0.75)), word)

    return bm25(re.sub(r"\w{5,}", mended, query), texts)
