"""The log: a sequence that grows by making longer ones, and what is folded over it."""

import inspect
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from types import FrameType
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minagent import Event, EventLog, Message

TraceFunction = Callable[[FrameType, str, object], Any]


def said(text: str) -> Event:
    return Event(author="ada", content=(Message(role="user", content=text),))


EVENTS = tuple(said(f"event {number}") for number in range(12))
drawn = st.lists(st.sampled_from(EVENTS), max_size=8)


class Seen:
    """A fold that remembers what it was given, and counts it over all of its kind."""

    given: ClassVar[int]

    def __init__(self) -> None:
        self.events: list[Event] = []

    def add(self, event: Event) -> None:
        self.events.append(event)
        type(self).given += 1


@pytest.fixture(autouse=True)
def nothing_given_yet() -> None:
    Seen.given = 0


def in_fold(events: Sequence[Event]) -> tuple[Event, ...]:
    return EventLog(events).folded(Seen, lambda seen: tuple(seen.events))


# --- A sequence like a tuple --------------------------------------------------


@given(events=drawn, index=st.integers(-10, 10))
def test_an_index_finds_what_a_tuple_finds(events: list[Event], index: int) -> None:
    log = EventLog(events)

    if -len(events) <= index < len(events):
        assert log[index] is events[index]
    else:
        with pytest.raises(IndexError):
            log[index]


bounds = st.none() | st.integers(-10, 10)
steps = st.none() | st.integers(-3, 3).filter(bool)


@given(events=drawn, chosen=st.builds(slice, bounds, bounds, steps))
def test_a_slice_is_the_tuple_that_a_tuple_gives(
    events: list[Event], chosen: slice
) -> None:
    found = EventLog(events)[chosen]

    assert type(found) is tuple
    assert found == tuple(events)[chosen]


@given(events=drawn, start=st.integers(0, 8), more=drawn)
def test_an_index_and_a_slice_see_nothing_of_a_longer_log(
    events: list[Event], start: int, more: list[Event]
) -> None:
    log = EventLog(events)
    log.extended(more)

    assert log[start:] == tuple(events[start:])
    assert log[-3:] == tuple(events[-3:])
    assert not events or log[-1] is events[-1]
    with pytest.raises(IndexError):
        log[len(events)]
    with pytest.raises(IndexError):
        log[-len(events) - 1]


@given(events=drawn, sought=st.sampled_from(EVENTS))
def test_it_is_searched_and_walked_like_a_tuple(
    events: list[Event], sought: Event
) -> None:
    log, model = EventLog(events), tuple(events)

    assert tuple(log) == model
    assert tuple(reversed(log)) == model[::-1]
    assert len(log) == len(model)
    assert bool(log) == bool(model)
    assert (sought in log) == (sought in model)
    assert log.count(sought) == model.count(sought)
    if sought in model:
        assert log.index(sought) == model.index(sought)


@given(events=drawn, others=drawn)
def test_it_equals_any_sequence_of_the_same_events(
    events: list[Event], others: list[Event]
) -> None:
    log = EventLog(events)

    for other in (others, tuple(others), EventLog(others)):
        assert (log == other) == (events == others)
        assert (other == log) == (events == others)
        assert (log != other) == (events != others)


@pytest.mark.parametrize("other", [None, 0, set(), {}, iter(()), object()])
def test_it_equals_nothing_that_is_no_sequence(other: object) -> None:
    assert EventLog() != other


def test_it_has_no_hash() -> None:
    """It equals lists, which have none."""
    with pytest.raises(TypeError, match="unhashable"):
        hash(EventLog())


def test_it_cannot_be_changed() -> None:
    log: Any = EventLog(EVENTS)

    for name in ("append", "extend", "insert", "pop", "remove", "clear", "sort"):
        assert not hasattr(log, name)
    with pytest.raises(TypeError):
        log[0] = EVENTS[1]
    with pytest.raises(TypeError):
        del log[0]


def test_it_does_not_follow_the_list_that_it_was_made_from() -> None:
    events = [*EVENTS]
    log = EventLog(events)

    events.clear()

    assert log == EVENTS


def test_its_repr_is_short() -> None:
    assert repr(EventLog(EVENTS)) == "<EventLog of 12 events>"


# --- Growing ------------------------------------------------------------------


def test_extended_leaves_the_shorter_log_as_it_is() -> None:
    short = EventLog(EVENTS[:2])

    long = short.extended(EVENTS[2:4])

    assert short == EVENTS[:2]
    assert long == EVENTS[:4]


def test_extended_by_nothing_is_an_equal_log() -> None:
    log = EventLog(EVENTS[:2])

    assert log.extended([]) == log


def test_extended_takes_any_iterable_once() -> None:
    log = EventLog().extended(event for event in EVENTS)

    assert log == EVENTS


def test_extended_by_itself_is_twice_as_long() -> None:
    log = EventLog(EVENTS)

    assert log.extended(log) == EVENTS * 2


def test_a_log_of_a_log_is_equal_and_grows_by_itself() -> None:
    first = EventLog(EVENTS[:2])
    second = EventLog(first)

    first_on = first.extended([EVENTS[2]])
    second_on = second.extended([EVENTS[3]])

    assert first == second == EVENTS[:2]
    assert first_on == [*EVENTS[:2], EVENTS[2]]
    assert second_on == [*EVENTS[:2], EVENTS[3]]


def test_two_branches_of_one_log_never_see_each_others_events() -> None:
    base = EventLog(EVENTS[:2])
    left = base.extended([EVENTS[2]])
    right = base.extended([EVENTS[3]])

    left_on = left.extended([EVENTS[4]])
    right_on = right.extended([EVENTS[5]])

    assert base == EVENTS[:2]
    assert left == [*EVENTS[:2], EVENTS[2]]
    assert right == [*EVENTS[:2], EVENTS[3]]
    assert left_on == [*EVENTS[:2], EVENTS[2], EVENTS[4]]
    assert right_on == [*EVENTS[:2], EVENTS[3], EVENTS[5]]


growth = st.lists(st.tuples(st.integers(0, 30), drawn, st.booleans()), max_size=12)


@given(growth=growth)
def test_every_log_of_a_tree_of_logs_keeps_its_own_events(
    growth: list[tuple[int, list[Event], bool]],
) -> None:
    logs: list[tuple[EventLog, tuple[Event, ...]]] = [(EventLog(), ())]

    for chosen, events, fold in growth:
        log, model = logs[chosen % len(logs)]
        logs.append((log.extended(events), (*model, *events)))
        if fold:
            assert in_fold(log) == model

    for log, model in logs:
        assert tuple(log) == model
        assert log[:] == model
        assert in_fold(log) == model


def test_iteration_ends_where_the_log_ends_though_a_longer_one_is_made() -> None:
    log = EventLog(EVENTS[:2])
    walk: Iterator[Event] = iter(log)
    next(walk)

    log.extended(EVENTS[2:])

    assert list(walk) == [EVENTS[1]]


def test_a_longer_log_costs_only_its_new_events() -> None:
    log = EventLog(EVENTS * 10_000).extended(EVENTS)  # the array has room from here on

    tracemalloc.start()
    kept = [log := log.extended([event]) for event in EVENTS * 10]
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(kept) == 120
    assert most < 120_000  # one copy of the array would be 960,000


def test_threads_that_extend_one_log_never_see_each_others_events(
    racing_threads: Callable[[Callable[[int], None]], None],
) -> None:
    bases = [EventLog(EVENTS[:3]) for _ in range(20)]
    mine = [[said(f"{name} 1"), said(f"{name} 2")] for name in "abcdefgh"]
    grown: dict[int, list[EventLog]] = {}

    def extend(number: int) -> None:
        first, second = mine[number]
        grown[number] = [base.extended([first]).extended([second]) for base in bases]

    racing_threads(extend)

    for number in range(8):
        assert all(log == [*EVENTS[:3], *mine[number]] for log in grown[number])
    assert all(base == EVENTS[:3] for base in bases)


def test_threads_that_fold_one_log_all_find_the_same(
    racing_threads: Callable[[Callable[[int], None]], None],
) -> None:
    short = EventLog(EVENTS * 5)
    long = short.extended(EVENTS * 5)
    found: dict[int, list[tuple[Event, ...]]] = {}

    def fold(number: int) -> None:
        logs = [short, long] if number % 2 else [long, short]
        found[number] = [in_fold(log) for log in logs * 3]

    racing_threads(fold)

    for number in range(8):
        counts = [5, 10] if number % 2 else [10, 5]
        assert found[number] == [EVENTS * count for count in counts * 3]


@pytest.fixture
def racing_threads() -> Iterator[Callable[[Callable[[int], None]], None]]:
    """Run a function in 8 threads that take turns at every line of the log's code."""

    def give_way(
        frame: FrameType, event: str, argument: object
    ) -> TraceFunction | None:
        if frame.f_code.co_filename != inspect.getfile(EventLog):
            return None
        time.sleep(0)  # lets another thread run
        return give_way

    def race(work: Callable[[int], None]) -> None:
        with ThreadPoolExecutor(8) as pool:
            gate = Barrier(8)
            runs = [pool.submit(at_once, gate, work, number) for number in range(8)]
        for run in runs:
            run.result()

    def at_once(gate: Barrier, work: Callable[[int], None], number: int) -> None:
        gate.wait()
        work(number)

    threading.settrace(give_way)
    yield race
    threading.settrace(None)


# --- Folds --------------------------------------------------------------------


def test_a_fold_is_given_each_event_once_and_in_order() -> None:
    log = EventLog(EVENTS)

    first, second = in_fold(log), in_fold(log)

    assert first == second == EVENTS
    assert Seen.given == len(EVENTS)


def test_the_fold_of_a_longer_log_goes_on_where_the_shorter_left_it() -> None:
    short = EventLog(EVENTS[:10])
    in_fold(short)

    long = in_fold(short.extended(EVENTS[10:]))

    assert long == EVENTS
    assert Seen.given == len(EVENTS)


def test_the_fold_of_a_shorter_log_is_computed_anew() -> None:
    short = EventLog(EVENTS[:3])
    long = short.extended(EVENTS[3:])
    in_fold(long)

    assert in_fold(short) == EVENTS[:3]
    assert in_fold(long) == EVENTS


def test_the_fold_of_a_branch_sees_nothing_of_the_other() -> None:
    base = EventLog(EVENTS[:2])
    left, right = base.extended(EVENTS[2:4]), base.extended(EVENTS[4:6])

    assert in_fold(left) == EVENTS[:4]
    assert in_fold(right) == EVENTS[:2] + EVENTS[4:6]
    assert in_fold(base) == EVENTS[:2]


def test_folds_of_two_kinds_do_not_meet() -> None:
    class Count:
        def __init__(self) -> None:
            self.events = 0

        def add(self, event: Event) -> None:
            self.events += 1

    log = EventLog(EVENTS[:4])

    assert in_fold(log) == EVENTS[:4]
    assert log.folded(Count, lambda count: count.events) == 4
    longer = log.extended(EVENTS[4:5])
    assert longer.folded(Count, lambda count: count.events) == 5
    assert in_fold(longer) == EVENTS[:5]


def test_a_reader_that_raises_does_the_fold_no_harm() -> None:
    log = EventLog(EVENTS[:3])

    with pytest.raises(ZeroDivisionError):
        log.folded(Seen, lambda seen: 1 // 0)

    assert in_fold(log.extended(EVENTS[3:])) == EVENTS
    assert Seen.given == len(EVENTS)


def test_any_sequence_can_be_folded() -> None:
    assert in_fold([*EVENTS]) == in_fold(EVENTS) == in_fold(EventLog(EVENTS)) == EVENTS


@given(events=drawn, lengths=st.lists(st.integers(0, 8), max_size=8))
def test_folded_in_any_order_the_parts_of_a_log_are_as_if_folded_fresh(
    events: list[Event], lengths: list[int]
) -> None:
    parts = [EventLog()]
    for event in events:
        parts.append(parts[-1].extended([event]))

    for length in lengths:
        part = parts[min(length, len(events))]

        assert in_fold(part) == in_fold(tuple(part))
