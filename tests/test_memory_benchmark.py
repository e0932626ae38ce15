"""The memory benchmark works, and the ranking is worth what it costs.

How fast things are, it says when it is run by hand.
"""

from pathlib import Path

import pytest
from benchmarks import memory as benchmark


def test_the_set_is_what_it_says() -> None:
    quality = benchmark.read_set()

    facts = {label for each in quality.questions for label in each.labels}
    kinds = [each.kind for each in quality.questions]
    assert len(quality.sessions) == 15
    assert len(facts) >= 60
    assert len(kinds) >= 80
    assert {kind for kind in benchmark.KINDS if kinds.count(kind) < 8} == set()
    assert len({each.words for each in quality.questions}) == len(kinds)


@pytest.mark.heavy
async def test_each_part_of_the_ranking_is_worth_having(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    met = await benchmark.measured_quality(tmp_path)

    shown = capsys.readouterr().out
    assert met, shown
    assert "MISSED" not in shown


@pytest.mark.heavy
async def test_the_speed_of_a_few_rows_can_be_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await benchmark.measured_speed(tmp_path, benchmark.QUICK)

    shown = capsys.readouterr().out
    assert "2,360 rows of 4 users" in shown
    assert "a search, ms (p50)" in shown
    assert "adds a second, full" in shown
