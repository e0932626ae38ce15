"""A session on the screen: what is stored, and what comes while a run goes on.

`Live.catch_up` draws the cards of a session that are not on the screen yet, or are not
as they were drawn. `Live.show` takes the items of a stream. Text appears as it comes,
word by word, and in the very lines in which the card of it is drawn after a reload.

This file knows nothing of stores, and does not start runs.
"""

from collections.abc import Sequence
from dataclasses import replace

from minagent import (
    Event,
    Progress,
    ReasoningDelta,
    Session,
    SessionOpened,
    TextDelta,
    ToolInputDelta,
    pending_tool_calls,
)
from minagent.cards import (
    Card,
    MessageCard,
    ReasoningCard,
    ToolCard,
    cards,
    render_text,
)
from minagent.cli.screen import Screen
from minagent.log import EventLog
from minagent.stream import StreamItem


class Live:
    """What of one session is on the screen.

    Args:
        screen: Where it is drawn.
        author: Who speaks in the streams.
        echoes: Whether the terminal has shown already what the user said.
    """

    def __init__(self, screen: Screen, author: str, *, echoes: bool = False) -> None:
        self._screen, self._author, self._echoes = screen, author, echoes
        self._events = EventLog()
        self._drawn: dict[str, Card] = {}
        self._flow: _Flow | None = None
        self._flowed: set[str] = set()

    @property
    def has_drawn(self) -> bool:
        """Whether there is anything of the session on the screen."""
        return bool(self._drawn)

    def catch_up(self, session: Session) -> None:
        """Draw what is new in a stored session."""
        self.end()
        self._events = EventLog(session.events)
        self._draw(cards(self._events, pending_tool_calls(session)))

    def skip(self, session: Session) -> None:
        """Take what is stored so far as drawn."""
        self._events = EventLog(session.events)
        pending = pending_tool_calls(session)
        self._drawn = {card.key: card for card in cards(self._events, pending)}

    def show(self, item: StreamItem) -> None:
        """Show an item of a stream."""
        match item:
            case TextDelta():
                card = MessageCard("", (), self._author, role="assistant", text="")
                self._add(card, item.text)
            case ReasoningDelta():
                self._add(ReasoningCard("", (), self._author, text=""), item.text)
            case ToolInputDelta():
                self.end()
                self._screen.passing(f"… {item.name} {item.text}")
            case Progress():
                self._screen.passing(f"… {item.text}")
            case Event():
                self._happened(item)
            case SessionOpened():
                pass

    def end(self) -> None:
        """End the line of text that streams, if there is one."""
        if self._flow is not None:
            self._flow.end()
            self._flow = None

    def _add(self, card: MessageCard | ReasoningCard, text: str) -> None:
        if self._flow is None or self._flow.type != card.type:
            self.end()
            self._flow = _Flow(self._screen, card)
            self._flowed.add(card.type)
        self._flow.add(text)

    def _happened(self, event: Event) -> None:
        self.end()
        self._events = self._events.extended([event])
        seen = set(self._flowed) if event.is_reply else set()
        if self._echoes and event.author == "user":
            seen.add("message")
        drawn = []
        for card in cards(self._events):
            if isinstance(card, ToolCard) and card.status == "open":
                if event.event_id in card.event_ids:
                    self._screen.passing(f"… {card.name}")
            elif event.event_id in card.event_ids and card.type in seen:
                self._drawn[card.key] = card
            else:
                drawn.append(card)
        self._draw(drawn)
        if event.is_reply:
            self._flowed.clear()

    def _draw(self, found: Sequence[Card]) -> None:
        for card in found:
            if self._drawn.get(card.key) != card:
                self._drawn[card.key] = card
                self._screen.card(card)


class _Flow:
    """Text that streams, in the lines of its card.

    A line of a text is wrapped whether or not the lines around it are there, and what
    stands before its last space is wrapped the same whatever follows. So that much of
    it can be written for good.
    """

    def __init__(self, screen: Screen, card: MessageCard | ReasoningCard) -> None:
        self.type = card.type
        self._screen, self._card = screen, card
        self._line, self._written, self._blank_lines = "", "", 0
        self._has_begun = False

    def add(self, text: str) -> None:
        *whole, rest = (self._line + text).split("\n")
        for line in whole:
            self._line = line.removesuffix("\r")
            self.end()
        self._line = rest
        self._write(rest[: rest.rfind(" ") + 1])

    def end(self) -> None:
        """Write the line to its end."""
        self._write(self._line)
        if self._line.strip():
            self._screen.write("\n")
        elif self._has_begun:
            self._blank_lines += 1  # written only if something follows
        self._line = self._written = ""

    def _write(self, line: str) -> None:
        if not line.strip():
            return
        card = replace(self._card, text=line)
        heading, _, drawn = render_text([card], width=self._screen.width).partition(
            "\n"
        )
        if not self._has_begun:
            self._screen.heading(heading)
            self._has_begun = True
        self._screen.write("\n" * self._blank_lines + drawn[len(self._written) :])
        self._written, self._blank_lines = drawn, 0
