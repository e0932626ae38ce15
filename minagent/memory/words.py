"""Words: what of a text is searched for.

`words(text)` gives the words of a text, in order, without case and accents. Chinese,
Japanese and Korean are written without spaces, or with endings that stick to the word;
there each two neighbouring letters count as one word, which needs no dictionary.
`query_words` and `index_words` are the two sides of a search.

This file knows nothing of users, ranking or files.
"""

import re
import unicodedata

STOP_TEXT = """
    a about after again all also am an and any are as at be because been before being
    both but by can could did do does doing don each few for from had has have having
    he her here hers him his how i if in into is it its itself just me more most my
    myself no nor not now of off on once only or other our ours out over own s same she
    should so some such t than that the their theirs them then there these they this
    those through to too under until up very was we were what when where which while
    who whom why will with would you your yours
"""
"""English words that stand in every text, and so tell nothing of what it is about."""

MOST_WORDS = 4_096
"""How many words of a query are searched for."""

# Kana, Han, Hangul, and Han of the rarer planes.
_CJK = "\u3041-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_CJK += "\U00020000-\U0003ffff"
# Vowel signs and the like of other scripts. Python's \w has only the letters.
_SIGNS = (
    "\u0483-\u0487\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0900-\u0963\u0971-\u0dff"
)
_SIGNS += "\u0e31-\u0e4e\u0eb1-\u0ece\u0f18-\u0f84\u102b-\u109d\u17b4-\u17d3"
_RUN = re.compile(rf"([{_CJK}]+)|(?:(?![{_CJK}])(?:[^\W_]|[{_SIGNS}]))+")
_ACCENTS = re.compile("[\u0300-\u036f]")


def words(text: str) -> list[str]:
    """Return the words of a text, in order."""
    found: list[str] = []
    for run in _RUN.finditer(_plain(text)):
        found += _pairs(run[0]) if run[1] else [run[0]]
    return found


def query_words(query: str) -> list[str]:
    """Return the words to search for, each once; without stop words, if others stay.

    They are the first `MOST_WORDS`: a whole document is no question, and to search for
    all of it would keep others waiting.
    """
    found = list(dict.fromkeys(words(query)))
    asked = [word for word in found if word not in _STOP_WORDS] or found
    return asked[:MOST_WORDS]


def index_words(text: str) -> list[str]:
    """Return the words by which a text is found.

    A query may be a single Chinese letter, so these are words of their own here.
    """
    letters = [letter for run in _RUN.finditer(_plain(text)) for letter in run[1] or ""]
    return words(text) + letters


def stem(word: str) -> str:
    """Return a word without its English ending: crude, but alike for all its forms."""
    rest = re.sub(r"(?<=[^\W\d_]{3})(?:ing|ies|ed|es|s|e|y)$", "", word)
    return re.sub(r"([b-df-hj-np-tv-z])\1$", r"\1", rest)


def _plain(text: str) -> str:
    apart = unicodedata.normalize("NFKD", text.casefold())
    return unicodedata.normalize("NFC", _ACCENTS.sub("", apart))


def _pairs(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(len(run) - 1)] or [run]


_STOP_WORDS = frozenset(words(STOP_TEXT))
