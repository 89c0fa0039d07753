"""A turned bit in the leader epoch of a batch, which no checksum covers."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog_rescue.operations.replicas import step_lines
from tests.unit.rescue.replicas.test_comparison import (
    assigned,
    brokers,
    log_of,
    losses,
    report_of,
    verdict_of,
    watermark,
)


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_turned_bit_in_a_batchs_epoch_makes_no_copy_the_newest(tmp_path: Path, is_closed: bool) -> None:
    """No checksum covers the epoch: seed 57 of `dead_replicas` took such a copy for one of a newer leader."""
    one, two = brokers(tmp_path, [0] * 10, [0] * 15)
    data = bytearray(log_of(one).read_bytes())
    data[8 * 75 + 15] ^= 1
    log_of(one).write_bytes(data)
    if is_closed:
        (one / ".kafka_cleanshutdown").touch()
    assigned(two, [1, 2], isr=[2])
    watermark(two, 10)
    verdict = verdict_of(one, two)
    assert verdict.choice == 2
    assert losses(verdict, 1) == [(2, 10, 15, "beyond the end", "perhaps")]
    assert losses(verdict, 2) == []
    (other,) = [each for each in verdict.copies if each.copy.node == 1]
    (fall,) = other.holes
    assert (other.parts_at, fall.first, fall.end, fall.position) == (10, 9, 10, 9 * 75)
    assert fall.reason.startswith("leader epoch 0 after 1, so one of them is wrong")
    assert f"mv {one / 'orders-0'} {tmp_path / 'replicas-aside-1'}" in step_lines(report_of(one, two))


def test_of_equal_copies_one_without_a_wrong_epoch_is_chosen(tmp_path: Path) -> None:
    one, two = brokers(tmp_path, [0] * 10, [0] * 10)
    data = bytearray(log_of(one).read_bytes())
    data[8 * 75 + 12] ^= 1
    log_of(one).write_bytes(data)
    assigned(two, [1, 2])
    verdict = verdict_of(one, two)
    assert (verdict.choice, verdict.why, verdict.agrees) == (2, "in sync, undamaged", False)
