"""Cards: what a person sees of a session.

`cards(events, pending)` is the one way in which a notebook, the command line and a page
draw a session. The cards, in the order to read them:

    MessageCard       what somebody said, with pictures and documents
    ReasoningCard     what a model thought, or that it keeps this to itself
    ToolCard          a call: its arguments, the question, the decision, the result
    NoteCard          a note
    OpaqueCard        a vendor's block of a kind that this version does not know
    InterruptedCard   the mark behind a reply that broke off

A tool card stands where the call was made. What the log tells about the call later is
folded into that card, so while a log grows, cards are added at the end and tool cards
change where they stand: a page finds them again by `key`. After a rewind, the cards of
what does not count any more are gone. The cards are made of nothing but what is stored,
so a session looks the same live and after a reload.

`render_text`, at the end, draws cards for a terminal.

This file knows nothing of agents, models and stores.
"""

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from pydantic import JsonValue

from minagent.approval import PendingToolCall
from minagent.events import (
    Event,
    Media,
    Message,
    Note,
    Opaque,
    Reasoning,
    Role,
    Status,
    ToolCall,
    ToolConfirmation,
    ToolResult,
)
from minagent.log import EventLog
from minagent.marks import current

__all__ = [
    "STATUS_WORDS",
    "Card",
    "Decision",
    "InterruptedCard",
    "MessageCard",
    "NoteCard",
    "OpaqueCard",
    "ReasoningCard",
    "ToolCard",
    "cards",
    "render_text",
]

Visibility: TypeAlias = Literal["shown", "hidden", "redacted"]
Verdict: TypeAlias = Literal["approved", "denied", "answered"]

# --- The cards ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _FromLog:
    """What every card has; `cards` says what it means."""

    key: str
    event_ids: tuple[str, ...]
    author: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageCard(_FromLog):
    """What somebody said.

    Attributes:
        role: Whose side said it.
        text: The words; the texts of a reply that follow each other are one.
        media: The pictures and documents behind them.
    """

    role: Role
    text: str = ""
    media: tuple[Media, ...] = ()
    type: Literal["message"] = "message"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningCard(_FromLog):
    """What a model thought.

    Attributes:
        text: The thought in words, empty where there are none.
        visibility: `shown`; `hidden`: the vendor gives no words for it; `redacted`: it
            is sealed.
    """

    text: str
    visibility: Visibility = "shown"
    type: Literal["reasoning"] = "reasoning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a person decided.

    Attributes:
        verdict: `approved`, `denied`, or `answered` in the tool's place.
        by: Who decided, or None if nobody said.
        arguments: The arguments to run it with instead; None means as asked for.
        reason: Why not, if it was said.
        answer: The answer in the tool's place.
        inside: For a question that the tool asked: the ids of the calls that lead to
            it. Empty for the question whether the tool may run.
    """

    verdict: Verdict
    by: str | None = None
    arguments: Mapping[str, JsonValue] | None = None
    reason: str | None = None
    answer: str | None = None
    inside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCard(_FromLog):
    """A tool call, and all that became of it.

    Attributes:
        tool_call_id: The id of the call.
        name: The tool.
        arguments: What the model asked to call it with; None if the log tells of the
            call, but does not hold it.
        unreadable: What stood in the place of arguments that are no JSON object.
        status: `open`: there is no result yet, so it runs, or a crash cut it off.
            `pending`: it waits for a person. `unknown` also means that the conversation
            went on without a result. The others are those of `ToolResult`.
        pending: The questions that it waits for.
        decisions: What was decided, in order.
        text: The result for the model, empty if there is none.
        media: Pictures and documents in the result.
        details: More of the result, for people only.
    """

    tool_call_id: str
    name: str
    arguments: Mapping[str, JsonValue] | None = None
    unreadable: str | None = None
    status: Literal["open", "pending"] | Status = "open"
    pending: tuple[PendingToolCall, ...] = ()
    decisions: tuple[Decision, ...] = ()
    text: str = ""
    media: tuple[Media, ...] = ()
    details: JsonValue = None
    type: Literal["tool"] = "tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteCard(_FromLog):
    """A note.

    Attributes:
        kind: What it is.
        title: What to write behind the kind, such as the label of a checkpoint.
        text: What the model is shown of it, or None for nothing.
        entries: What it lists, such as memories, each in words for people. Where there
            are some, they say what the text says.
        data: What else it keeps for people. The state in a checkpoint is not.
    """

    kind: str
    title: str = ""
    text: str | None
    entries: tuple[str, ...] = ()
    data: Mapping[str, JsonValue]
    type: Literal["note"] = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpaqueCard(_FromLog):
    """A vendor's block of a kind that this version does not know.

    Attributes:
        block: The block.
    """

    block: Mapping[str, JsonValue]
    type: Literal["opaque"] = "opaque"


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptedCard(_FromLog):
    """The mark behind a reply that broke off; what was whole of it stands before."""

    type: Literal["interrupted"] = "interrupted"


Card: TypeAlias = (
    MessageCard | ReasoningCard | ToolCard | NoteCard | OpaqueCard | InterruptedCard
)

# --- From the log to the cards ------------------------------------------------

_Origin: TypeAlias = tuple[str, tuple[str, ...], str]
"""What `_FromLog` holds: a key, the ids of events, an author."""


def cards(
    events: Iterable[Event], pending: Sequence[PendingToolCall] = ()
) -> list[Card]:
    """Return the cards of a log, in the order in which to draw them.

    Each has a `key` (an event id and a place in the event), which stays the same while
    the log grows; the `event_ids` that it was made from; and the `author` of the first.

    Args:
        events: A log, or a part of one.
        pending: The calls that wait for a person: `pending_tool_calls(session)`. One
            that is not in `events` gets a card at the end, so that it can be decided.
    """
    log = current(EventLog(events))
    return log.folded(_Table, lambda table: table.finished(pending))


class _Table:
    """The cards of a log so far, where they lie: a fold (see `log.py`)."""

    def __init__(self) -> None:
        self._cards: list[Card] = []
        # By call id, the places of its cards. Where a later event uses an id again, as
        # logs from elsewhere may, it means the later call from then on.
        self._places: dict[str, list[int]] = {}
        self._last_reply = 0

    def add(self, event: Event) -> None:
        """Put down what an event says."""
        start = len(self._cards)
        if event.is_reply:
            self._last_reply = start
        for index, item in enumerate(event.content):
            origin = _origin(event, index)
            match item:
                case Message():
                    self._say(origin, start, item.role, text=item.content)
                case Media():
                    role: Role = "assistant" if event.is_reply else "user"
                    self._say(origin, start, role, media=(item,))
                case ToolCall():
                    self._call(origin, start, item)
                case ToolConfirmation():
                    self._decide(origin, item)
                case ToolResult():
                    self._answer(origin, item)
                case _:
                    self._cards.append(_alone(origin, item))
        if event.interrupted:
            self._cards.append(InterruptedCard(*_origin(event, len(event.content))))

    def finished(self, pending: Sequence[PendingToolCall]) -> list[Card]:
        """Return the cards, with what waits for a person marked on them."""
        table = _Table()  # this one goes on without the marks
        table._cards, table._places = [*self._cards], {**self._places}
        waiting: dict[str, list[PendingToolCall]] = {}
        for asked in pending:
            waiting.setdefault(_outermost(asked), []).append(asked)
        for call_id, questions in waiting.items():
            table._ask(call_id, questions)
        for place, card in enumerate(table._cards[: self._last_reply]):
            if isinstance(card, ToolCard) and card.status == "open":
                table._cards[place] = replace(card, status="unknown")
        return [card for card in table._cards if not _is_blank(card)]

    def _say(
        self,
        origin: _Origin,
        start: int,
        role: Role,
        *,
        text: str = "",
        media: tuple[Media, ...] = (),
    ) -> None:
        before = self._cards[-1] if len(self._cards) > start else None
        if not isinstance(before, MessageCard) or before.role != role:
            before = None
        # Vendors cut the text of a reply where they like; a user's texts are texts.
        if before and (media or (role == "assistant" and not before.media)):
            text, media = before.text + text, before.media + media
            self._cards[-1] = replace(before, text=text, media=media)
        else:
            self._cards.append(MessageCard(*origin, role=role, text=text, media=media))

    def _call(self, origin: _Origin, start: int, call: ToolCall) -> None:
        known = self._places.get(call.tool_call_id, [])
        of_this_event = [place for place in known if place >= start]
        self._places[call.tool_call_id] = [*of_this_event, len(self._cards)]
        card = ToolCard(
            *origin,
            tool_call_id=call.tool_call_id,
            name=call.name,
            arguments=call.arguments,
            unreadable=call.unreadable,
        )
        self._cards.append(card)

    def _decide(self, origin: _Origin, taken: ToolConfirmation) -> None:
        call_id = _outermost(taken)
        places = self._open(call_id) or self._places.get(call_id)
        place = places[0] if places else self._put(origin, call_id)
        card = self._tool(place)
        decision = Decision(
            verdict=_verdict(taken),
            by=taken.by,
            arguments=taken.modified_arguments,
            reason=taken.reason,
            answer=taken.answer,
            inside=(*taken.path[1:], taken.tool_call_id) if taken.path else (),
        )
        self._cards[place] = replace(
            card,
            event_ids=_with(card.event_ids, origin),
            decisions=(*card.decisions, decision),
        )

    def _answer(self, origin: _Origin, result: ToolResult) -> None:
        places = self._open(result.tool_call_id)
        place = places[0] if places else self._put(origin, result.tool_call_id)
        card = self._tool(place)
        self._cards[place] = replace(
            card,
            event_ids=_with(card.event_ids, origin),
            name=card.name or result.name,
            status=result.status,
            text=result.content,
            media=result.media,
            details=result.details,
        )

    def _ask(self, call_id: str, questions: Sequence[PendingToolCall]) -> None:
        places = self._open(call_id)
        if call_id not in self._places:
            places = [self._put((f"pending:{call_id}", (), ""), call_id)]
            first = questions[0]
            if not first.path:
                card = self._tool(places[0])
                named = replace(card, name=first.name, arguments=first.arguments)
                self._cards[places[0]] = named
        for place in places[:1]:
            card = replace(self._tool(place), pending=tuple(questions))
            self._cards[place] = replace(card, status="pending")

    def _open(self, call_id: str) -> list[int]:
        """Return the places of the cards of a call that have no result yet."""
        places = self._places.get(call_id, [])
        return [place for place in places if self._tool(place).status == "open"]

    def _put(self, origin: _Origin, call_id: str) -> int:
        """Put down a card for a call that the log does not hold."""
        place = len(self._cards)
        self._places.setdefault(call_id, []).append(place)
        self._cards.append(ToolCard(*origin, tool_call_id=call_id, name=""))
        return place

    def _tool(self, place: int) -> ToolCard:
        card = self._cards[place]
        assert isinstance(card, ToolCard)
        return card


def _origin(event: Event, index: int) -> _Origin:
    return f"{event.event_id}:{index}", (event.event_id,), event.author


def _with(event_ids: tuple[str, ...], origin: _Origin) -> tuple[str, ...]:
    return tuple(dict.fromkeys(event_ids + origin[1]))


def _alone(origin: _Origin, item: Reasoning | Note | Opaque) -> Card:
    """Return the card of an item that has nothing to do with others."""
    match item:
        case Reasoning(redacted=None):
            hidden = not item.content.strip()
            visibility: Visibility = "hidden" if hidden else "shown"
            return ReasoningCard(*origin, text=item.content, visibility=visibility)
        case Reasoning():
            return ReasoningCard(*origin, text=item.content, visibility="redacted")
        case Note():
            return _note(origin, item)
        case Opaque():
            return OpaqueCard(*origin, block=item.block)


def _note(origin: _Origin, note: Note) -> NoteCard:
    """Return the card of a note: for people, if its form is known, or as it is stored.

    The forms are those that minagent stores. They are recognised in the log and not
    imported: the rooms that write them are no part of this one.
    """
    card = NoteCard(*origin, kind=note.kind, text=note.text, data=note.data)
    match note.kind, note.data:
        case "checkpoint", {"label": str(label), "state": _, **more}:
            return replace(card, title=_json(label) if label else "", data=more)
        case "fork", {"from": str(session_id), "at": _, **more}:
            return replace(card, title=f"of {_json(session_id)}", data=more)
        case "recalled", {"memories": [_, *_] as memories, **more}:
            entries = tuple(_memory(each) for each in memories)
            return replace(card, entries=entries, data=more)
        case "summary", {"up_to": _, "text": str(text), **more}:
            return replace(card, entries=(text,), data=more)
        case "delegated", {"session_id": str(session_id), "events": _, **more}:
            return replace(card, title=f"to {_json(session_id)}", data=more)
        case "entered", {"tool_call_id": str(call_id), "task": _, **more}:
            return replace(card, title=f"by call {_json(call_id)}", data=more)
        case "again", {"nodes": [*nodes], **more}:
            return replace(card, entries=tuple(map(str, nodes)), data=more)
        case "step", {"followed": [*edges], **more}:
            ways = tuple(_way(each) for each in edges)
            return replace(card, entries=ways, data=more)
    return card


def _way(edge: JsonValue) -> str:
    """Return which edge of a graph was followed; one from nowhere begins it."""
    match edge:
        case [str(source), str(target)]:
            return f"{source} -> {target}"
        case [None, str(target)]:
            return f"-> {target}"
    return _json(edge)


def _memory(memory: JsonValue) -> str:
    """Return who said what, and when: what the model was told of a memory."""
    match memory:
        case {"text": str(text), **about}:
            named = {"date": "", "author": "", "session": "session "}
            said = [
                f"{x}{_name(str(about[k]))}" for k, x in named.items() if k in about
            ]
            return f"{', '.join(said)}: {text}" if said else text
    return _json(memory)


def _outermost(about: PendingToolCall | ToolConfirmation) -> str:
    """Return the id of the call in this log that a question or decision belongs to."""
    return about.path[0] if about.path else about.tool_call_id


def _verdict(taken: ToolConfirmation) -> Verdict:
    if taken.approved:
        return "approved"
    return "denied" if taken.answer is None else "answered"


def _is_blank(card: Card) -> bool:
    return isinstance(card, MessageCard) and not (card.text.strip() or card.media)


# --- Drawing them as plain text -----------------------------------------------

STATUS_WORDS = {
    "open": "no result yet",
    "pending": "waits for a decision",
    "success": "done",
    "error": "failed",
    "denied": "denied",
    "expired": "expired",
    "replaced": "replaced",
    "cancelled": "cancelled",
    "unknown": "outcome unknown",
}
"""What the status of a tool card is called, wherever it is drawn."""

MIN_WIDTH = 20
"""The narrowest text that `render_text` draws, in columns."""

MOST_LINES = 12
"""How much of a result, and of whatever else is only looked at, is drawn."""

_INDENT = 4
_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
_JOINERS = "\u200c\u200d"  # parts of many words, and of many emoji
_BLANKS = "\u034f\u115f\u1160\u3164\uffa0"  # letters that look like nothing
_PLAIN_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def render_text(cards: Iterable[Card], *, width: int = 80) -> str:
    """Return the cards as plain text, for a terminal.

    A card is a heading and indented lines, and no line is wider than `width`. Whatever
    a model, a tool or a user wrote stands in indented lines only, or in quotes; what a
    terminal would obey (escape sequences, control characters, changes of the writing
    direction) is spelled out.

    Args:
        cards: What to draw.
        width: The columns of the terminal, at least 20.

    Raises:
        ValueError: `width` is below 20.
    """
    if width < MIN_WIDTH:
        raise ValueError(f"width is {width}; a line has at least {MIN_WIDTH} columns")
    drawn = []
    for card in cards:
        lines = [_cut(_heading(card), width)]
        for part in _body(card):
            lines += _lines(part, width)
        drawn.append("\n".join(lines))
    return "\n\n".join(drawn)


@dataclass(frozen=True, slots=True)
class _Part:
    """Text to draw under a heading.

    Attributes:
        text: The text.
        hang: How much further in all lines but the first stand. Where a part begins
            with words of ours, it keeps the text from beginning a line as they do.
        most: How many lines to draw, or None for all.
    """

    text: str
    hang: int = 2
    most: int | None = None


def _heading(card: Card) -> str:
    author = card.author.strip() or "somebody"
    match card:
        case MessageCard():
            as_user = card.role == "user" and author != "user"
            return f"{author} (as the user)" if as_user else author
        case ReasoningCard():
            shown = card.visibility == "shown"
            return f"{author} thinks" + ("" if shown else f" ({card.visibility})")
        case ToolCard():
            return f"{author} calls {_name(card.name)}"
        case NoteCard():
            # What writes notes of one kind only is called by that kind.
            notes = "note:" if author == card.kind else f"{author} notes"
            return f"{notes} {_name(card.kind)} {card.title}".rstrip()
        case OpaqueCard():
            return f"{author} sent {_name(str(card.block.get('type')))}, not known here"
        case InterruptedCard():
            return f"{author} broke off here"


def _body(card: Card) -> Iterator[_Part]:
    match card:
        case MessageCard():
            yield from _words(card.text)
            yield from _media(card.media)
        case ReasoningCard():
            yield from _words(card.text)
        case ToolCard():
            yield from _call(card)
            yield from _outcome(card)
        case NoteCard():
            yield from map(_Part, card.entries) if card.entries else _words(card.text)
            if card.data:
                yield _Part(f"data: {_json(card.data)}", most=MOST_LINES)
        case OpaqueCard():
            yield _Part(_json(card.block), most=MOST_LINES)
        case InterruptedCard():
            pass


def _words(text: str | None) -> Iterator[_Part]:
    if text and text.strip():
        yield _Part(text.strip("\n"), hang=0)


def _call(card: ToolCard) -> Iterator[_Part]:
    # Whoever decides must see all of what is decided.
    most = None if card.pending else MOST_LINES
    yield from _arguments(card.arguments, most)
    if card.unreadable is not None:
        yield _Part(f"unreadable input: {card.unreadable}", most=most)
    for asked in card.pending:
        inside = f"inside, {_name(asked.name)} " if asked.path else ""
        ends = asked.expires_at
        until = f" until {ends:%Y-%m-%d %H:%M} UTC" if ends else ""
        waits = f"{inside}{STATUS_WORDS['pending']}{until}"
        yield _Part(f"{waits}: {asked.confirmation_message}")
        if asked.path:
            yield from _arguments(asked.arguments, None)


def _outcome(card: ToolCard) -> Iterator[_Part]:
    words = STATUS_WORDS[card.status]
    for decision in card.decisions:
        inside = "inside, " if decision.inside else ""
        by = f" by {decision.by}" if decision.by else ""
        edited = decision.arguments
        edits = "" if edited is None else f", with {_json(edited)} instead"
        said = decision.reason or decision.answer or ""
        said = f": {said}" if said and said not in card.text else ""
        yield _Part(f"{inside}{decision.verdict}{by}{edits}{said}")
        if decision.verdict == "answered" and card.status == "success" and not inside:
            words = "answer"  # the tool was not run
    if card.status != "pending":
        text = card.text.strip("\n")
        between = "\n" if "\n" in text else " "
        result = f"{words}:{between}{text}" if text.strip() else words
        yield _Part(result, most=MOST_LINES)
    yield from _media(card.media)
    if card.details is not None:
        yield _Part(f"details: {_json(card.details)}", most=MOST_LINES)


def _arguments(
    arguments: Mapping[str, JsonValue] | None, most: int | None
) -> Iterator[_Part]:
    for name, value in (arguments or {}).items():
        yield _Part(f"{_name(name)} = {_json(value)}", most=most)


def _media(media: Sequence[Media]) -> Iterator[_Part]:
    for each in media:
        size = f"{len(each.data or '') * 3 // 4:,} bytes"
        yield _Part(f"[{each.media_type}, {each.url or size}]", most=MOST_LINES)


def _name(name: str) -> str:
    """Return a name that a model may have made up, in quotes if it is no plain one."""
    return name if _PLAIN_NAME.fullmatch(name) else _json(name)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


# --- Letters, columns and lines -----------------------------------------------


def _lines(part: _Part, width: int) -> list[str]:
    """Return the lines of a part, indented."""
    lines = _wrapped(_harmless(part.text), width - _INDENT - part.hang)
    left = 0 if part.most is None else len(lines) - part.most
    if left > 1:
        lines = [*lines[: part.most], f"… {left:,} more lines"]
    first, further = " " * _INDENT, " " * (_INDENT + part.hang)
    return [
        ((further if number else first) + line).rstrip()
        for number, line in enumerate(lines)
    ]


def _wrapped(text: str, width: int) -> list[str]:
    """Return the lines of a text, each at most `width` columns wide.

    Lines are broken at spaces, and words only where they are longer than a line.
    """
    lines = []
    pieces = re.compile(f" +|[^ ]{{1,{width}}}")
    for line in text.split("\n"):
        row = ""
        for piece in pieces.findall(line):
            if row.strip() and _columns(row + piece) > width:
                lines.append(row)
                row = ""
                if piece.isspace():
                    continue
            row += piece
            while _columns(row) > width:
                fitting = _fitting(row, width)
                lines.append(fitting)
                row = row[len(fitting) :]
        lines.append(row)
    return lines


def _cut(heading: str, width: int) -> str:
    """Return a heading as one line."""
    line = _harmless(heading).replace("\n", "\\n")
    fits = _columns(line) <= width
    return line if fits else _fitting(line, width - 1).rstrip() + "…"


def _fitting(text: str, width: int) -> str:
    """Return as much of a text as fits into so many columns."""
    used = 0
    for length, letter in enumerate(text):
        used += _columns(letter)
        if used > width:
            return text[:length]
    return text


def _columns(text: str) -> int:
    """Return how many columns a terminal may need, rather one too many."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide


def _harmless(text: str) -> str:
    """Return a text with nothing in it that a terminal would obey, but line ends."""
    text = text.replace("\r\n", "\n").replace("\t", "    ")
    return "".join(letter if _is_shown(letter) else _spelled(letter) for letter in text)


def _is_shown(letter: str) -> bool:
    if letter in _BLANKS:
        return False
    if letter == "\n" or letter.isprintable() or letter in _JOINERS:
        return True
    return unicodedata.category(letter) not in _UNSEEN


def _spelled(letter: str) -> str:
    return letter.encode("unicode_escape").decode()
