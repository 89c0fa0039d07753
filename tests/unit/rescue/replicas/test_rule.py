"""The rule by which `replicas`, `rebuild` and `transplant` choose a copy."""

from __future__ import annotations

from seglog_rescue.replicas.lineage import Lineage
from seglog_rescue.replicas.rule import Candidate, Metadata, ranked

FIRST = ((0, 0),)
SECOND = ((0, 0), (1, 50))


def order(*candidates: Candidate, metadata: Metadata | None = None, number: int = 0) -> list[int]:
    return [candidate.node for candidate, _ in ranked(candidates, metadata, number)]


def candidate(node: int, end: int, epochs: tuple[tuple[int, int], ...] = FIRST, **more: object) -> Candidate:
    return Candidate(node, Lineage(0, end, epochs), **more)  # type: ignore[arg-type]


def test_the_newest_epoch_goes_before_the_longest_log() -> None:
    assert order(candidate(1, 90), candidate(2, 60, SECOND), candidate(3, 70, SECOND)) == [3, 2, 1]


def test_a_replica_in_sync_goes_before_the_newest_epoch_if_the_metadata_is_current() -> None:
    copies = candidate(1, 70), candidate(2, 60, SECOND)
    assert order(*copies, metadata=Metadata(1, 1, [1])) == [1, 2]
    assert order(*copies, metadata=Metadata(1, 0, [1])) == [2, 1]


def test_a_replica_in_sync_that_has_lost_acknowledged_records_since_is_not_in_sync() -> None:
    empty, behind = candidate(1, 0, ()), candidate(2, 60, SECOND, high_watermark=60)
    assert order(empty, behind, metadata=Metadata(1, 2, [1])) == [2, 1]
    never = candidate(2, 60, FIRST, high_watermark=50)
    assert order(candidate(1, 55), never, metadata=Metadata(1, 2, [1])) == [1, 2]


def test_a_replica_in_sync_whose_start_cuts_it_below_its_own_high_watermark_is_not_in_sync() -> None:
    cut, whole = candidate(1, 60, high_watermark=85), candidate(2, 80, high_watermark=50)
    assert order(cut, whole, metadata=Metadata(1, 2, [1])) == [2, 1]
    assert order(candidate(1, 85, high_watermark=85), whole, metadata=Metadata(1, 2, [1])) == [1, 2]


def test_a_replica_in_sync_that_is_empty_beside_one_with_records_is_not_in_sync() -> None:
    empty, other = candidate(1, 0, ()), candidate(2, 60)
    assert order(empty, other, metadata=Metadata(1, 2, [1])) == [2, 1]
    assert order(empty, candidate(2, 0, ()), metadata=Metadata(1, 2, [1])) == [1, 2]


def test_of_one_epoch_the_fewest_acknowledged_offsets_missing_then_the_longest_then_the_least_damaged() -> None:
    damaged = candidate(1, 90, holes=((10, 20),), high_watermark=80)
    assert order(damaged, candidate(2, 85)) == [2, 1]
    above = candidate(1, 90, holes=((85, 88),), high_watermark=80)
    assert order(above, candidate(2, 85)) == [1, 2]
    assert order(above, candidate(2, 90)) == [2, 1]


def test_equal_copies_leave_the_former_leader_or_take_turns() -> None:
    copies = candidate(1, 90), candidate(2, 90), candidate(3, 90)
    assert order(*copies, metadata=Metadata(2, 0, [1, 2, 3])) == [2, 1, 3]
    assert [order(*copies, number=number)[0] for number in range(4)] == [1, 2, 3, 1]
