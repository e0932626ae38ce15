"""Following a session: what lasts comes from the store, what passes from the run.

A log only grows, so a place in it is a number, and a follower sends what stands behind
its place, in the order of the log: no gap, nothing twice, whoever wrote it. An event of
a run in progress is only the sign to look. Where a look has brought events that the
run's items have not come to yet, the deltas in between are of replies that were sent
whole already, and are left out. While no run is in progress here, the follower looks
now and then, since another process may be at work.

The frames, by name; those with an id are the events, and the id is the event's:

    opened    a run is in progress: session_id, execution_id
    event     an event, as `Event.to_json` has it
    delta     more of the open reply: kind (text, reasoning, tool_input), text,
              and for tool_input tool_call_id and name
    progress  how far a tool has come: text, tool_call_id; it replaces the last one
    cards     what changes on a page, right before the events that change it: gone
              (keys), and then changed (at: its place by then, card), in order;
              closes_reply: the open reply is in these cards now; anew: these are all
              the cards, since words were taken out while the client was away
    ended     how the run ended: execution_id, status, stop_reason, pending, usage, and
              its error
    deleted   the session is gone

A client that comes back has its place in `Last-Event-ID`. It gets `opened` if a run is
in progress, the events that it missed, and the open reply so far as one delta for each
part; then all goes on.
"""

from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import fields

from pydantic import JsonValue

from minagent.approval import pending_tool_calls
from minagent.cards import Card, cards
from minagent.context import Progress, SessionOpened
from minagent.events import Event
from minagent.marks import REDACTION, marks
from minagent.model import Delta, ReasoningDelta, TextDelta, ToolInputDelta
from minagent.session import Session, SessionManager
from minagent.web.runs import Closed, Ended, Item, Touched, Watcher
from minagent.web.sse import COMMENT, frame
from minagent.web.wire import as_json, dumped, told

QUIET_SECONDS = 15.0
"""After how long without anything to send a comment is sent."""

NAMES = ("opened", "event", "delta", "progress", "cards", "ended", "deleted")
"""The names of the frames."""

_KINDS = {TextDelta: "text", ReasoningDelta: "reasoning", ToolInputDelta: "tool_input"}


class Follower:
    """Turns a session, and the runs at work on it, into frames.

    Args:
        sessions: Where the session is stored.
        watcher: Tells what passes.
        session: The session, as it was last read.
        place: How many of its events the client has.
        with_cards: Whether to send what changes on a page.
        until: The run with whose end the frames end; None means never.
        poll_seconds: How often to look, while no run is in progress here; None means
            not at all.
    """

    def __init__(
        self,
        sessions: SessionManager,
        watcher: Watcher,
        session: Session,
        place: int,
        *,
        with_cards: bool = False,
        until: str | None = None,
        poll_seconds: float | None = 1.0,
    ) -> None:
        self._sessions, self._watcher = sessions, watcher
        self._session, self._place = session, place
        self._until, self._is_over = until, False
        self._poll = min(poll_seconds or QUIET_SECONDS, QUIET_SECONDS)
        self._polls = poll_seconds is not None
        self._cards = cards(_start(session, place)) if with_cards else None
        self._seen = -1  # the version that the cards are of
        # Of the run in progress: what its items are past, and what was sent before.
        self._running, self._passed = "", set(watcher.passed)
        self._ahead: set[str] = set()

    async def frames(self) -> AsyncGenerator[bytes]:
        """Yield the frames until the end."""
        if run := self._watcher.run:
            yield self._opened(SessionOpened(run.session_id, run.execution_id))
        if self._until is None:
            for each in await self._look():
                yield each
        quiet = 0.0
        while not self._is_over:
            items: Sequence[Item] = await self._watcher.items(self._poll)
            quiet = 0.0 if items else quiet + self._poll
            if not items and self._polls and not self._running:
                items = [Touched()]
            for item in items:
                for each in await self._told(item) if not self._is_over else ():
                    yield each
            if quiet >= QUIET_SECONDS:
                quiet = 0.0
                yield COMMENT

    async def _told(self, item: Item) -> list[bytes]:
        """Return the frames of what a watcher was told."""
        match item:
            case Event():
                self._passed.add(item.event_id)
                if item.event_id not in self._ahead:
                    return await self._look(item.event_id)
                self._ahead.discard(item.event_id)
            case Progress():
                return [] if self._ahead else [frame("progress", dumped(as_json(item)))]
            case SessionOpened():
                if self._running != item.execution_id:
                    self._passed = set()
                    return [self._opened(item)]
            case Ended():
                self._running = ""
                self._is_over = item.execution_id == self._until
                return [*await self._look(), _end_frame(item)]
            case Closed():
                self._is_over = True
            case TextDelta() | ReasoningDelta() | ToolInputDelta():
                return [] if self._ahead else [_delta_frame(item)]
            case _:
                return await self._look()
        return []

    def _opened(self, item: SessionOpened) -> bytes:
        self._running = item.execution_id
        self._ahead = self._not_passed(self._session.events[: self._place])
        return frame("opened", dumped(as_json(item)))

    def _not_passed(self, sent: Sequence[Event]) -> set[str]:
        mine = [each.event_id for each in sent if each.execution_id == self._running]
        return {*mine} - self._passed

    async def _look(self, event_id: str | None = None) -> list[bytes]:
        """Return the frames of what is new in the store.

        Args:
            event_id: Up to which event; None means all. With cards it is always all,
                since they belong to the state that was stored last.
        """
        session = await self._sessions.get(self._watcher.session_id)
        if session is None:
            self._is_over = True
            data: JsonValue = {"session_id": self._watcher.session_id}
            return [frame("deleted", dumped(data))]
        new = session.events[self._place :]
        if event_id is not None and self._cards is None:
            ids = [each.event_id for each in new]
            new = new[: ids.index(event_id) + 1] if event_id in ids else ()
        changed = [*self._changes(session, new)]
        self._session, self._place = session, self._place + len(new)
        self._ahead |= self._not_passed(new)
        return [*changed, *map(_event_frame, new)]

    def _changes(self, session: Session, new: tuple[Event, ...]) -> Iterator[bytes]:
        """Yield a frame of what changes on a page."""
        if self._cards is None or (not new and session.version == self._seen):
            return
        # What a client that comes back has of a redacted event, the log does not tell.
        anew = self._seen < 0 and any(any(marks(event, REDACTION)) for event in new)
        self._seen = session.version
        now = cards(session.events, pending_tool_calls(session))
        known = () if anew else self._cards
        before: dict[str, Card] = {card.key: card for card in known}
        keys = {card.key for card in now}
        gone = [key for key in before if key not in keys]
        changed = [
            {"at": at, "card": card}
            for at, card in enumerate(now)
            # Those that did not change are the same objects, which is quick to see.
            if (old := before.get(card.key)) is not card and old != card
        ]
        closes = any(event.is_reply for event in new)
        self._cards = now
        if gone or changed or closes or anew:
            data = {"gone": gone, "changed": changed, "closes_reply": closes}
            yield frame("cards", dumped(as_json({**data, "anew": anew})))


def _start(session: Session, length: int) -> Sequence[Event]:
    """Return the first events of a session: its own log, drawn before, if it is all."""
    return session.events if length == len(session.events) else session.events[:length]


def _delta_frame(item: Delta) -> bytes:
    kind = _KINDS[type(item)]
    data = {each.name: getattr(item, each.name) for each in fields(item)}
    return frame("delta", dumped({"kind": kind, **data}))


def _event_frame(event: Event) -> bytes:
    return frame("event", event.to_json().encode(), event.event_id)


def _end_frame(ended: Ended) -> bytes:
    data: JsonValue = {
        "execution_id": ended.execution_id,
        "status": ended.status,
        "stop_reason": ended.stop_reason,
        "pending": as_json(ended.pending),
        "usage": as_json(ended.usage),
        "error": {**told(ended.error)[1]} if ended.error is not None else None,
    }
    return frame("ended", dumped(data))
