"""The ledger: what became of each tool call in a log.

Three questions are asked about a call: was it asked for, what was decided, what is its
result? The answers stand in the log, far apart. `Ledger` is a fold (see `log.py`) that
keeps them side by side, so that nobody searches the log for them.

This file knows nothing of how calls are carried out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from minagent.events import Event, ToolCall, ToolConfirmation, ToolResult
from minagent.log import EventLog
from minagent.marks import current


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call, the decisions about it, and its result.

    Attributes:
        call: The call.
        decisions: What people decided, about it or about questions inside it.
        result: What became of it, or None while it is open.
    """

    call: ToolCall
    decisions: tuple[ToolConfirmation, ...] = ()
    result: ToolResult | None = None


@dataclass(slots=True)
class Ledger:
    """The record of every call so far.

    Attributes:
        records: By call id.
        last_reply: The ids of the calls of the last reply, in order.
    """

    records: dict[str, CallRecord] = field(default_factory=dict)
    last_reply: tuple[str, ...] = ()

    def add(self, event: Event) -> None:
        """Take the next event of the log."""
        if event.is_reply:
            self.last_reply = tuple(call.tool_call_id for call in event.tool_calls)
        for item in event.content:
            if isinstance(item, ToolCall):
                self.records[item.tool_call_id] = CallRecord(item)
            elif isinstance(item, ToolConfirmation):
                asked = item.path[0] if item.path else item.tool_call_id
                if record := self.records.get(asked):
                    taken = (*record.decisions, item)
                    self.records[asked] = replace(record, decisions=taken)
            elif isinstance(item, ToolResult):
                found = self.records.get(item.tool_call_id)
                if found and found.result is None:
                    self.records[item.tool_call_id] = replace(found, result=item)


def open_calls(events: Sequence[Event]) -> tuple[CallRecord, ...]:
    """Return the calls of the last reply that have no result, in order.

    Which reply is the last, marks may say (see `marks.py`). What became of a call they
    do not change.
    """
    last_reply = current(events).folded(Ledger, lambda each: each.last_reply)
    records = (record_of(events, call_id) for call_id in last_reply)
    return tuple(each for each in records if each and each.result is None)


def record_of(events: Sequence[Event], tool_call_id: str) -> CallRecord | None:
    """Return the record of one call, or None if no such call was asked for."""
    return EventLog(events).folded(Ledger, lambda each: each.records.get(tool_call_id))
