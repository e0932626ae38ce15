"""A session as one page of HTML, which needs nothing but itself.

No script, no font, no picture from elsewhere: what is on the page is in the file, and
its own policy tells a browser to load nothing. Whatever somebody wrote is escaped, and
what nobody sees in it is spelled out.

A card says what it says in the browser (`minagent/web/page/cards.js`), in the same
words and in the same order, but for what can only be clicked. Read `_parts`.

This file knows nothing of stores.
"""

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping
from html import escape

from pydantic import JsonValue

from minagent import Media, PendingToolCall, Session
from minagent.cards import (
    STATUS_WORDS,
    Card,
    Decision,
    InterruptedCard,
    MessageCard,
    NoteCard,
    OpaqueCard,
    ReasoningCard,
    ToolCard,
)
from minagent.cli.exports import harmless, media_label, session_cards
from minagent.events import load_json

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
MOST_LINES, MOST_LETTERS = 12, 1200
"""How long a result may be that is not folded."""

_VERDICTS = {"approved": "Approved", "denied": "Denied", "answered": "Answered"}
_NOTES = {
    "recalled": "Recalled memories",
    "summary": "Summary",
    "checkpoint": "Checkpoint",
}
_FENCE = re.compile(r"`{3,}|~{3,}")
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
h2 { display: inline; font-size: .8rem; color: var(--faint); font-weight: 600; }
header { margin-bottom: 1.5rem; }
header p, .aside { color: var(--faint); font-size: .85rem; margin: .3rem 0 0; }
article { background: var(--card); border: 1px solid var(--line); border-radius: .6rem;
  padding: .7rem .9rem; margin: .7rem 0; }
article.user { background: var(--user); }
article.tool { border-left: 3px solid var(--accent); }
article.reasoning .words { font-style: italic; }
.words, .asked { white-space: pre-wrap; margin: .3rem 0 0; }
.asked { font-weight: 600; }
dl, ul { margin: .3rem 0 0; }
dl div { display: flex; gap: .6rem; }
dt { color: var(--faint); }
dd { margin: 0; white-space: pre-wrap; }
ul { padding-left: 1.2rem; }
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
        role = f" {card.role}" if isinstance(card, MessageCard) else ""
        yield f'<article class="{card.type}{role}">'
        yield from _parts(card)
        yield "</article>"
    yield "</main>\n</body>\n</html>"


# --- The cards ----------------------------------------------------------------


def _parts(card: Card) -> Iterator[str]:
    """Yield the elements of a card."""
    match card:
        case MessageCard():
            yield _heading(_speaker(card))
            yield from _words(card.text)
            yield from map(_medium, card.media)
        case ReasoningCard():
            yield _thought(card)
        case ToolCard():
            yield from _tool(card)
        case NoteCard():
            yield _note(card)
        case OpaqueCard():
            title = f"{card.author} sent something that is not known here"
            yield _folded(_heading(title), _code(_shown(card.block)))
        case InterruptedCard():
            yield _heading(f"{card.author} broke off here")


def _speaker(card: MessageCard) -> str:
    author = card.author.strip() or "somebody"
    if card.role != "user":
        return author
    return "You" if author == "user" else f"{author} (as the user)"


def _thought(card: ReasoningCard) -> str:
    heading = _heading(f"{card.author} thought")
    if card.text.strip():
        return _folded(heading, *_words(card.text))
    why = "sealed" if card.visibility == "redacted" else "hidden"
    return f"{heading}\n{_aside(f'The thought is {why}.')}"


def _tool(card: ToolCard) -> Iterator[str]:
    status = STATUS_WORDS[card.status]
    answers = [x for x in card.decisions if x.verdict == "answered" and not x.inside]
    if answers and card.status == "success":
        status = "answered for it"  # the tool was not run
    yield f"<h2><code>{_safe(card.name or 'a tool')}</code> {status}</h2>"
    yield from _values(card.arguments)
    if card.unreadable is not None:
        yield _folded("Unreadable input", _code(card.unreadable))
    for decision in card.decisions:
        yield from _decision(decision, card.text)
    for asked in card.pending:
        yield from _question(asked)
    if card.text.strip():
        yield _result(card.text)
    yield from map(_medium, card.media)
    if card.details is not None:
        yield _details(card.details)


def _decision(decision: Decision, result: str) -> Iterator[str]:
    where = "Inside: " if decision.inside else ""
    by = f" by {decision.by}" if decision.by else ""
    edits = "" if decision.arguments is None else ", with these arguments instead:"
    words = decision.answer if decision.reason is None else decision.reason
    # The result may say it already.
    said = f": {words}" if words and words not in result else ""
    yield _aside(f"{where}{_VERDICTS[decision.verdict]}{by}{edits}{said}")
    yield from _values(decision.arguments)


def _question(asked: PendingToolCall) -> Iterator[str]:
    yield f'<p class="asked" dir="auto">{_safe(asked.confirmation_message)}</p>'
    if asked.path:
        yield f'<p class="aside">Inside, <code>{_safe(asked.name)}</code></p>'
        yield from _values(asked.arguments)
    if asked.expires_at is not None:
        yield _aside(f"Open until {asked.expires_at:%Y-%m-%d %H:%M} UTC")


def _result(text: str) -> str:
    lines = text.rstrip().count("\n") + 1
    if lines <= MOST_LINES and len(text) <= MOST_LETTERS:
        return _code(text.strip())
    size = f"{lines} lines" if lines > 1 else f"{len(text)} letters"
    return _folded(f"Result, {size}", _code(text))


def _note(card: NoteCard) -> str:
    heading = _heading(
        f"{_NOTES.get(card.kind, f'Note: {card.kind}')} {card.title}".strip()
    )
    entries = "".join(f'<li dir="auto">{_safe(each)}</li>' for each in card.entries)
    body = [f"<ul>{entries}</ul>"] if entries else [*_words(card.text or "")]
    if card.data:
        body.append(_details(card.data))
    return _folded(heading, *body) if body else heading


def _medium(media: Media) -> str:
    label = _safe(f"[{media_label(media)}]")
    try:
        # Only named if it is elsewhere: whoever has it could see who looks at the page.
        seen = base64.b64decode("".join((media.data or "").split()), validate=True)
    except binascii.Error:
        seen = b""
    if not seen:
        return f'<p class="aside">{label}</p>'
    data = base64.b64encode(seen).decode()
    if media.media_type in _PICTURES:
        source = f"data:{media.media_type};base64,{data}"
        return f'<img alt="A picture ({media.media_type})" src="{source}">'
    known = _MEDIA_TYPE.fullmatch(media.media_type)
    kind = media.media_type if known else "application/octet-stream"
    return f'<p><a download href="data:{kind};base64,{data}">{label}</a></p>'


# --- Elements -----------------------------------------------------------------


def _heading(text: str) -> str:
    return f"<h2>{_safe(text)}</h2>"


def _aside(text: str) -> str:
    return f'<p class="aside">{_safe(text)}</p>'


def _code(text: str) -> str:
    return f"<pre>{_safe(text)}</pre>"


def _folded(title: str, *body: str) -> str:
    """Return what is shown once it is unfolded, below a title in HTML."""
    inside = "\n".join(body)
    return f"<details>\n<summary>{title}</summary>\n{inside}\n</details>"


def _details(value: JsonValue | Mapping[str, JsonValue]) -> str:
    return _folded("Details", _code(_shown(value)))


def _values(values: Mapping[str, JsonValue] | None) -> Iterator[str]:
    """Yield the names and values of arguments, if there are any."""
    rows = [
        f'<div><dt>{_safe(name)}</dt><dd dir="auto">{_safe(_shown(value))}</dd></div>'
        for name, value in (values or {}).items()
    ]
    if rows:
        yield "\n".join(["<dl>", *rows, "</dl>"])


def _words(text: str) -> Iterator[str]:
    """Yield what somebody said: paragraphs as they are, and fenced code in blocks."""
    lines: list[str] = []
    fence = ""
    # A fence at the end closes what is open there.
    for line in [*text.replace("\r\n", "\n").split("\n"), None]:
        mark = _FENCE.match(line or "")
        if line is not None and (line.rstrip() != fence if fence else not mark):
            lines.append(line)
            continue
        said = "\n".join(lines)
        if fence and said:
            yield _code(said)
        elif said.strip():
            said = said.lstrip("\n").rstrip()
            yield f'<p class="words" dir="auto">{_safe(said)}</p>'
        lines, fence = [], "" if fence or mark is None else mark[0]


def _shown(value: JsonValue | Mapping[str, JsonValue]) -> str:
    """Return a value as text: a text that could be taken for another one in quotes."""
    if isinstance(value, str) and value:
        try:
            load_json(value)
        except ValueError:
            return value
    return json.dumps(value, ensure_ascii=False, indent=2)


def _safe(text: str) -> str:
    return escape(harmless(text))
