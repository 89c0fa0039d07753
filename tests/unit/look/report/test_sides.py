"""Brokers side by side."""

from __future__ import annotations

from seglog.look.report.figures import PartitionFigures, compared


def copy(name: str, broker: str, end: int | None, state: str = "live") -> PartitionFigures:
    return PartitionFigures(name, name.rpartition("-")[0], broker, f"/{broker}", state, "kafka", 10, 0, end)


def test_the_furthest_copy_is_the_measure_and_the_largest_distance_comes_first() -> None:
    rows = [copy("a-0", "1", 100), copy("a-0", "2", 90), copy("b-0", "1", 7), copy("b-0", "2", 70), copy("c-0", "1", 9)]
    found = compared(rows, {"a-0": 2})
    assert [(one.partition, one.leader, one.most_behind) for one in found] == [("b-0", None, 63), ("a-0", 2, 10)]
    assert [(side.broker, side.end_offset, side.behind) for side in found[1].sides] == [("1", 100, 0), ("2", 90, 10)]


def test_two_directories_of_one_broker_and_what_is_not_served_are_no_copies() -> None:
    assert compared([copy("a-0", "1", 100), copy("a-0", "1", 90)], {}) == []
    assert compared([copy("a-0", "1", 100), copy("a-0", "2", 90, "stray"), copy("a-0", "3", None)], {}) == []
