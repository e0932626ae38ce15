"""The transcript: from the log to the turns that a model may be shown.

Providers refuse a request in which roles do not alternate, a tool call has no result
or two, a result has no call, a text is empty, or an id occurs twice. A log may hold
all of that: a program was killed between a call and its result, an answer was empty,
two processes asked at once. `turns(events)` gives a valid transcript for any log. It
only reads; nothing that is stored is changed, and healing what is whole changes
nothing.

How it works: the log falls into segments, each a reply of the model and what came
before the next one. A segment becomes an assistant turn, and a user turn with one
result for each call, in the order of the calls, and then everything else. `Transcript`
is a fold over the log (see `log.py`), so a long log is not read again for each request.

This file knows nothing of vendors: which blocks an API takes is its adapter's matter.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from minagent.events import (
    ContentItem,
    Event,
    Media,
    Message,
    Note,
    Reasoning,
    Role,
    ToolCall,
    ToolResult,
    from_model,
)
from minagent.marks import current

UNKNOWN_OUTCOME = (
    "Outcome unknown: the program stopped before a result was stored. "
    "The tool may or may not have taken effect; it was not run again."
)
NO_OUTPUT = "(no output)"
CONVERSATION_START = "(The conversation starts with the assistant.)"


@dataclass(frozen=True, slots=True)
class Turn:
    """What one side says before the other side speaks.

    Attributes:
        role: Whose turn it is.
        content: The items, never none. A user turn has the results first, in the
            order of the calls; a Note stands there as the Message that it shows.
        events: The events that it was made from. A turn that no new event belongs to
            is the same object in the next transcript, so conversions can be kept.
    """

    role: Role
    content: tuple[ContentItem, ...]
    events: tuple[Event, ...]


def turns(events: Sequence[Event]) -> tuple[Turn, ...]:
    """Return the valid transcript of a log.

    It ends in a user turn, except where the last reply waits for nothing: an answer, or
    a `pause_turn` that is to be sent back.

    Args:
        events: A log, or any sequence of events.
    """
    return current(events).folded(Transcript, Transcript.turns)


@dataclass(frozen=True)
class _Segment:
    """A reply, and what came after it. The first segment of a log has no reply."""

    said: Turn | None = None
    calls: tuple[tuple[str, ToolCall], ...] = ()  # the stored id, and the call as sent
    results: tuple[ToolResult, ...] = ()
    after: tuple[ContentItem, ...] = ()
    after_events: tuple[Event, ...] = ()

    def answered(self, result: ToolResult, event: Event) -> "_Segment":
        """Take a result, if a call waits for it; others are left out."""
        taken = {each.tool_call_id for each in self.results}
        for stored_id, call in self.calls:
            if stored_id == result.tool_call_id and call.tool_call_id not in taken:
                empty = not result.content.strip() and not result.media
                text = NO_OUTPUT if empty else result.content
                sent = replace(result, tool_call_id=call.tool_call_id, content=text)
                events = (*self.after_events, event)
                return replace(self, results=(*self.results, sent), after_events=events)
        return self

    @cached_property
    def turns(self) -> tuple[Turn, ...]:
        found = {each.tool_call_id: each for each in self.results}
        results = [
            found.get(call.tool_call_id)
            or ToolResult(
                tool_call_id=call.tool_call_id,
                name=call.name,
                content=UNKNOWN_OUTCOME,
                status="unknown",
            )
            for _, call in self.calls
        ]
        heard = Turn("user", (*results, *self.after), self.after_events)
        return tuple(turn for turn in (self.said, heard) if turn and turn.content)


class Transcript:
    """The transcript of a log so far; see `turns`."""

    def __init__(self) -> None:
        self._turns: list[Turn] = []
        self._segment = _Segment()
        self._call_ids: set[str] = set()
        # A reply that broke off, and its results. It is shown only if a person speaks
        # next: a request that ends in half a reply is refused.
        self._broken_off: Event | None = None
        self._broken_off_results: list[tuple[ToolResult, Event]] = []
        # How it stood before a person last spoke, to leave the turn out if refused.
        self._asked = False
        self._before_turn = (0, self._segment)

    def add(self, event: Event) -> None:
        """Take the next event of the log."""
        if event.interrupted:
            self._broken_off, self._broken_off_results = event, []
        elif event.stop_reason == "refusal":
            # It would be refused again with each request that holds it.
            length, self._segment = self._before_turn
            del self._turns[length:]
            self._asked, self._broken_off = False, None
        else:
            if event.is_reply:
                self._broken_off = None
            self._add(event)

    def turns(self) -> tuple[Turn, ...]:
        """Return the transcript of what was added."""
        found = [*self._turns, *self._segment.turns]
        if found and found[0].role == "assistant":
            text = Message(role="user", content=CONVERSATION_START)
            found.insert(0, Turn("user", (text,), ()))
        return tuple(found)

    def _add(self, event: Event) -> None:
        if event.is_reply:
            self._asked = False
            said = [
                each for each in event.content if _says(each) and not _is_blank(each)
            ]
            while event.interrupted and said and isinstance(said[-1], Reasoning):
                said.pop()  # a reply may not end in a thought
            if said:
                self._add_reply(said, event)
        for item in event.content:
            if isinstance(item, ToolResult):
                self._broken_off_results.append((item, event))
                self._segment = self._segment.answered(item, event)
            elif not (event.is_reply and _says(item)):
                self._add_heard(item, event)

    def _add_reply(self, said: Sequence[ContentItem], event: Event) -> None:
        calls = [
            (i.tool_call_id, self._sent(i)) for i in said if isinstance(i, ToolCall)
        ]
        sent = iter(call for _, call in calls)
        shown = [next(sent) if isinstance(i, ToolCall) else i for i in said]
        segment = self._segment
        turn = Turn("assistant", tuple(shown), (event,))
        before = segment.said
        if before and not segment.calls and not segment.after:
            content = before.content + turn.content
            turn = Turn("assistant", content, before.events + turn.events)
        else:
            self._turns += segment.turns
        self._segment = _Segment(turn, tuple(calls))

    def _add_heard(self, item: ContentItem, event: Event) -> None:
        if isinstance(item, Note):
            item = Message(role="user", content=item.text or "")
        elif isinstance(item, Message | Media):
            self._show_broken_off()
            if not self._asked:
                self._before_turn = len(self._turns), self._segment
                self._asked = True
        else:
            return
        if not _is_blank(item):
            after = (*self._segment.after, item)
            events = (*self._segment.after_events, event)
            self._segment = replace(self._segment, after=after, after_events=events)

    def _show_broken_off(self) -> None:
        event, self._broken_off = self._broken_off, None
        if event is not None:
            self._add(event)
            for result, behind in self._broken_off_results:
                self._segment = self._segment.answered(result, behind)
        self._broken_off_results = []

    def _sent(self, call: ToolCall) -> ToolCall:
        wanted = re.sub(r"[^a-zA-Z0-9_-]", "_", call.tool_call_id) or "call"
        unique, count = wanted, 1
        while unique in self._call_ids:
            count += 1
            unique = f"{wanted}-{count}"
        self._call_ids.add(unique)
        return replace(call, tool_call_id=unique)


def _says(item: ContentItem) -> bool:
    return from_model(item) or isinstance(item, Media)


def _is_blank(item: ContentItem) -> bool:
    return isinstance(item, Message) and not item.content.strip()
