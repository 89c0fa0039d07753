"""Segments that are lost at a log's start are damage; what retention or an operator has deleted is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.lost_clusters import registration, topic_records
from tests.support.metadata_records import metadata_record, write_metadata_log
from tests.unit.rescue.replicas.test_comparison import brokers, log_of, losses, verdict_of, watermark


def without_its_first_segment(directory: Path, base: int) -> Path:
    """Ends a copy's first segment before offset `base` (a batch has one record and 75 bytes), and takes it away."""
    log = log_of(directory)
    (log.parent / f"{base:020}.log").write_bytes(log.read_bytes()[base * 75 :])
    log.unlink()
    return log


@pytest.mark.parametrize("trace", ["index", "epoch", "none"])
def test_a_first_segment_that_is_lost_is_damage_and_not_what_retention_deleted(tmp_path: Path, trace: str) -> None:
    """Kafka deletes a segment's index with it, and moves the first epoch up to the new log start."""
    one, two = brokers(tmp_path, [0] * 10, [0] * 10)
    log = without_its_first_segment(one, 4)
    log.with_suffix(".index").unlink(missing_ok=True)
    policy = {} if trace != "epoch" else {"cleanup.policy": "compact"}
    write_metadata_log(one, [*map(registration, (1, 2)), *topic_records("orders", [[1, 2]]), *configured(policy)])
    watermark(one, 10)
    if trace == "index":
        log.with_suffix(".index").write_bytes(bytes([0, 0, 0, 3, 0, 0, 0, 225]))
    verdict = verdict_of(one, two)
    if trace == "none":
        assert (verdict.choice, verdict.agrees) == (1, True)
        assert losses(verdict, 1) == [(2, 0, 4, "below the log start", "yes")]
    else:
        assert verdict.choice == 2
        assert losses(verdict, 1) == [(2, 0, 4, "damaged", "yes")]
        (hole,) = next(copy.holes for copy in verdict.copies if copy.copy.node == 1)
        assert (hole.first, hole.end) == (0, 4) and hole.reason.startswith("no segment holds these offsets")


def configured(values: dict[str, str]) -> list[bytes]:
    return [
        metadata_record("CONFIG_RECORD", resourceType=2, resourceName="orders", name=name, value=value)
        for name, value in values.items()
    ]
