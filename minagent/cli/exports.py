"""A session as a file: lines of JSON, Markdown, or one page of HTML.

    jsonl   all of it, to be taken back by `minagent sessions import`
    md      the cards, for people and for what else reads Markdown
    html    the cards, as one file that a person can mail (`pages.py`)

The form of `jsonl`, for other programs: each line is a JSON object. The first is
`{"format": "minagent session", "version": 1, "session_id", "user_id", "created_at"}`;
each further one is `{"event": …}`, in order, as `Event.to_json` writes it; the last is
`{"state": …}`. A file without its last line was cut off.

`sections` says what is to be drawn of a card, for both of the other forms. Its words
are those of `render_text`, but nothing is left out.

This file knows nothing of stores.
"""

import json
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import JsonValue

from minagent import Event, Media, Session, pending_tool_calls
from minagent.cards import (
    Card,
    InterruptedCard,
    MessageCard,
    NoteCard,
    OpaqueCard,
    ReasoningCard,
    ToolCard,
    cards,
    render_text,
)
from minagent.errors import CorruptSessionError, MinagentError, NewerDataError
from minagent.events import dump_json, load_json
from minagent.session import FORMAT, State, check_user_id, reading, state_of

NAME = "minagent session"
"""What the first line calls the format."""

_WIDE = 1_000_000  # columns: for lines that are not to be broken


# --- Lines of JSON ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Exported:
    """What a file of `jsonl` holds.

    Attributes:
        session_id: The id that the session had.
        user_id: Its owner, or None.
        events: Its log.
        state: Its state.
    """

    session_id: str
    user_id: str | None
    events: tuple[Event, ...]
    state: State


def jsonl(session: Session) -> Iterator[str]:
    """Yield the lines of a session, without line ends."""
    head = {
        "format": NAME,
        "version": FORMAT,
        "session_id": session.session_id,
        "user_id": session.user_id,
        "created_at": session.created_at.isoformat(),
    }
    yield dump_json(head, "session")
    for event in session.events:
        yield f'{{"event":{event.to_json()}}}'
    yield f'{{"state":{session.dump_state()}}}'


def from_jsonl(lines: Sequence[str], name: str) -> Exported:
    """Return what some lines hold.

    Args:
        lines: All lines of a file.
        name: What to call it in an error.

    Raises:
        MinagentError: It is no such file, or was cut off; the line is named.
        NewerDataError: A later version of minagent wrote it.
    """
    head = _object(lines, 0, name)
    if head.get("format") != NAME:
        raise MinagentError(problem=f"{name} is no session that minagent exported")
    version = head.get("version")
    if type(version) is not int or version < 1:  # true is an int, too
        raise MinagentError(problem=f"{name}: its first line has no version")
    if version > FORMAT:
        raise NewerDataError(subject=name, found=version, known=FORMAT)
    last = _object(lines, len(lines) - 1, name)
    if "state" not in last:
        raise MinagentError(problem=f"{name} was cut off: its last line has no state")
    session_id = head.get("session_id")
    if not isinstance(session_id, str):
        raise MinagentError(problem=f"{name}: its first line has no session_id")
    with reading(name):
        found = Exported(
            session_id=session_id,
            user_id=_text_or_none(head["user_id"]),
            events=_events(lines, name),
            state=state_of(last["state"]),
        )
        check_user_id(found.user_id)
    _check_pending(found, f"{name}: line {len(lines)}")
    return found


def _object(lines: Sequence[str], number: int, name: str) -> Mapping[str, JsonValue]:
    try:
        found = load_json(lines[number])
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise MinagentError(problem=f"{name}: line {number + 1} is no JSON object")
    return found


def _event(lines: Sequence[str], number: int, name: str) -> Event:
    found = _object(lines, number, name)
    try:
        return Event.from_plain(found.get("event"))
    except ValueError as error:
        problem = f"{name}: line {number + 1} is no event: {error}"
        raise MinagentError(problem=problem) from error


def _events(lines: Sequence[str], name: str) -> tuple[Event, ...]:
    found: dict[str, Event] = {}  # by their ids, as they are in order
    for number in range(1, len(lines) - 1):
        event = _event(lines, number, name)
        if event.event_id in found:
            first = [*found].index(event.event_id) + 2
            once_more = f"has the event of line {first} once more"
            raise MinagentError(problem=f"{name}: line {number + 1} {once_more}")
        found[event.event_id] = event
    return tuple(found.values())


def _check_pending(found: Exported, place: str) -> None:
    try:
        pending_tool_calls(Session("any", state=found.state))
    except CorruptSessionError as error:
        problem = f"{place} has pending_tool_calls that are none: {error.__cause__}"
        raise MinagentError(problem=problem) from error


def _text_or_none(value: JsonValue) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise TypeError("its user_id is no text")


# --- What is drawn of a card --------------------------------------------------


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a card.

    Attributes:
        kind: `words`: what somebody said; `code`: what a program reads; `fact`: a line
            of ours about the card.
        text: The text, as it is: whoever draws it makes it `harmless`.
        label: What it is, in a word, or empty.
    """

    kind: Literal["words", "code", "fact"]
    text: str
    label: str = ""


def heading(card: Card) -> str:
    """Return the heading of a card: in one line, harmless, as it is everywhere."""
    return render_text([card], width=_WIDE).partition("\n")[0]


def sections(card: Card) -> Iterator[Section]:
    """Yield the parts of a card in the order in which to draw them; media come last."""
    match card:
        case MessageCard() | ReasoningCard():
            yield from _words(card.text)
        case ToolCard():
            yield from _tool(card)
        case NoteCard():
            if card.entries:
                for entry in card.entries:
                    yield from _words(entry)
            else:
                yield from _words(card.text or "")
            if card.data:
                yield Section("code", _json(card.data), "data")
        case OpaqueCard():
            yield Section("code", _json(card.block))
        case InterruptedCard():
            pass


def media_of(card: Card) -> tuple[Media, ...]:
    """Return the pictures and documents of a card."""
    return card.media if isinstance(card, MessageCard | ToolCard) else ()


def session_cards(session: Session) -> list[Card]:
    """Return the cards of a session as it stands."""
    return cards(session.events, pending_tool_calls(session))


def _tool(card: ToolCard) -> Iterator[Section]:
    if card.arguments:
        yield Section("code", _json(card.arguments), "arguments")
    if card.unreadable is not None:
        yield Section("code", card.unreadable, "unreadable input")
    # Questions, decisions and the outcome, in the words of `render_text`: those of the
    # card without what has sections of its own.
    bare = replace(card, arguments=None, unreadable=None, text="", media=())
    told = render_text([replace(bare, details=None)], width=_WIDE).split("\n")[1:]
    for line in told:
        yield Section("fact", line.strip())
    if card.text.strip():
        yield Section("code", card.text.strip("\n"), "result")
    if card.details is not None:
        yield Section("code", _json(card.details), "details")


def _words(text: str) -> Iterator[Section]:
    if text.strip():
        yield Section("words", text.strip("\n"))


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def harmless(text: str) -> str:
    """Return a text with what nobody sees in it spelled out, but for spaces and lines.

    So nothing turns the direction of what is read, and nothing speaks to a terminal.
    """
    text = text.replace("\r\n", "\n")
    return "".join(x if _is_shown(x) else f"\\u{ord(x):04x}" for x in text)


def _is_shown(letter: str) -> bool:
    if letter.isprintable() or letter in "\n\t\u200c\u200d":
        return True
    return unicodedata.category(letter) == "Zs"


# --- Markdown -----------------------------------------------------------------


def markdown(session: Session) -> Iterator[str]:
    """Yield the parts of a session in Markdown, a blank line between them.

    What somebody said is a quotation, so that nothing in it ends it, and stays the
    Markdown that it may be; what a program reads is in a fence longer than any in it.
    """
    yield f"# {_plain(session.session_id)}"
    for card in session_cards(session):
        yield f"**{_plain(heading(card))}**"
        for section in sections(card):
            yield _markdown(section)
        for each in media_of(card):
            yield f"*{_plain(media_label(each))}*"


def media_label(media: Media) -> str:
    """Return what a picture or document is, in words."""
    size = f"{len(media.data or '') * 3 // 4:,} bytes"
    return f"{media.media_type}, {media.url or size}"


def _markdown(section: Section) -> str:
    label = f"{section.label}:\n\n" if section.label else ""
    match section.kind:
        case "words":
            lines = harmless(section.text).split("\n")
            return label + "\n".join(f"> {line}".rstrip() for line in lines)
        case "code":
            text, fence = harmless(section.text), "```"
            while fence in text:
                fence += "`"
            return f"{label}{fence}\n{text}\n{fence}"
        case "fact":
            return label + _plain(section.text)


def _plain(text: str) -> str:
    """Return a line of text in which Markdown sees no mark-up."""
    text = " ".join(harmless(text).split())
    return "".join(f"\\{x}" if x in "\\`*_{}[]<>#+-.!|~&" else x for x in text)
