"""A session as one page of HTML, which needs nothing but itself.

No script, no font, no picture from elsewhere: what is on the page is in the file, and
its own policy tells a browser to load nothing. Whatever somebody wrote is escaped.

This file knows cards only as `exports.py` tells of them.
"""

import base64
import binascii
import re
from collections.abc import Iterator
from html import escape

from minagent import Media, Session
from minagent.cards import Card, MessageCard
from minagent.cli.exports import (
    Section,
    harmless,
    heading,
    media_label,
    media_of,
    sections,
    session_cards,
)

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
LONG_LINES = 12
"""From how many lines on a result is folded."""

_PICTURES = ("image/gif", "image/jpeg", "image/png", "image/webp")
_MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+")
_STYLE = """\
:root { color-scheme: light dark; --paper: #fff; --ink: #1c1c1e; --faint: #6b6b70;
  --card: #f3f3f5; --line: #dcdce0; --user: #e4eefc; --accent: #0a5bc4; }
@media (prefers-color-scheme: dark) { :root { --paper: #161618; --ink: #ececee;
  --faint: #9a9aa0; --card: #222226; --line: #38383d; --user: #1d2c42;
  --accent: #7db4ff; } }
body { margin: 0 auto; max-width: 46rem; padding: 1.5rem 1rem 4rem;
  background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.3rem; margin: 0; }
h2 { font-size: .8rem; margin: 0; color: var(--faint); font-weight: 600; }
header { margin-bottom: 1.5rem; }
header p, .label, .fact { color: var(--faint); font-size: .85rem; margin: .3rem 0 0; }
article { background: var(--card); border: 1px solid var(--line); border-radius: .6rem;
  padding: .7rem .9rem; margin: .7rem 0; }
article.user { background: var(--user); }
article.tool { border-left: 3px solid var(--accent); }
article.reasoning .words { font-style: italic; }
.words { white-space: pre-wrap; margin: .3rem 0 0; }
pre { white-space: pre-wrap; margin: .3rem 0 0; padding: .5rem .6rem;
  background: var(--paper); border: 1px solid var(--line); border-radius: .4rem;
  font: .85rem/1.45 ui-monospace, monospace; }
summary { cursor: pointer; color: var(--faint); font-size: .85rem; }
img { display: block; max-width: 100%; margin-top: .5rem; border-radius: .4rem; }
a { color: var(--accent); }
"""


def html(session: Session) -> Iterator[str]:
    """Yield the parts of the page of a session, in order."""
    name = _safe(session.session_id)
    owner = f" of {_safe(session.user_id)}" if session.user_id is not None else ""
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{name}</title>\n<style>\n{_STYLE}</style>\n</head>\n<body>\n"
        f"<header>\n<h1>{name}</h1>\n"
        f"<p>A session{owner}, from {session.created_at:%Y-%m-%d %H:%M} UTC.</p>\n"
        "</header>\n<main>"
    )
    for card in session_cards(session):
        yield _article(card)
    yield "</main>\n</body>\n</html>"


def _article(card: Card) -> str:
    role = f" {card.role}" if isinstance(card, MessageCard) else ""
    parts = [f'<article class="{card.type}{role}">', f"<h2>{_safe(heading(card))}</h2>"]
    parts += [_section(section) for section in sections(card)]
    parts += [_media(each) for each in media_of(card)]
    return "\n".join([*parts, "</article>"])


def _section(section: Section) -> str:
    text = _safe(section.text)
    match section.kind:
        case "words":
            return f'<p class="words" dir="auto">{text}</p>'
        case "fact":
            return f'<p class="fact">{text}</p>'
        case "code":
            label, pre = _safe(section.label), f"<pre>{text}</pre>"
            count = len(section.text.splitlines())
            if count > LONG_LINES:
                summary = f"{label or 'data'}, {count:,} lines"
                return f"<details>\n<summary>{summary}</summary>\n{pre}\n</details>"
            return f'<p class="label">{label}</p>\n{pre}' if label else pre


def _media(media: Media) -> str:
    label = _safe(media_label(media))
    if media.data is None:
        # Only named, since a picture from elsewhere would tell who looks at the page.
        return f'<p class="fact">{label}</p>'
    try:
        seen = base64.b64decode("".join(media.data.split()), validate=True)
    except binascii.Error:
        return f'<p class="fact">{label}, which is no base64</p>'
    data = base64.b64encode(seen).decode()
    if media.media_type in _PICTURES:
        return f'<img alt="{label}" src="data:{media.media_type};base64,{data}">'
    known = _MEDIA_TYPE.fullmatch(media.media_type)
    kind = media.media_type if known else "application/octet-stream"
    return f'<p><a download href="data:{kind};base64,{data}">{label}</a></p>'


def _safe(text: str) -> str:
    return escape(harmless(text))
