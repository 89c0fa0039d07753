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


@pytest.mark.parametrize("is_closed", [True, False])
def test_an_epoch_of_the_last_batch_that_the_checkpoint_lacks_makes_no_copy_the_newest(
    tmp_path: Path, is_closed: bool
) -> None:
    """A broker writes a leader epoch to its checkpoint before the batch; nothing follows that the epoch falls below."""
    one, two = brokers(tmp_path, [0] * 10, [0] * 15)
    data = bytearray(log_of(one).read_bytes())
    data[9 * 75 + 15] ^= 4
    log_of(one).write_bytes(data)
    if is_closed:
        (one / ".kafka_cleanshutdown").touch()
    verdict = verdict_of(one, two)
    assert verdict.choice == 2
    assert losses(verdict, 2) == []
    (other,) = [each for each in verdict.copies if each.copy.node == 1]
    (fall,) = other.holes
    assert (fall.first, fall.end, fall.position, fall.file) == (9, 10, 9 * 75, f"{0:020}.log")
    assert fall.reason.startswith("leader epoch 4, and leader-epoch-checkpoint ends with 0")


def test_an_epoch_of_several_last_batches_is_believed_before_an_old_checkpoint(tmp_path: Path) -> None:
    one, two = brokers(tmp_path, [0] * 8 + [4] * 2, [0] * 15)
    checkpoint = one / "orders-0" / "leader-epoch-checkpoint"
    checkpoint.write_bytes((two / "orders-0" / checkpoint.name).read_bytes())
    verdict = verdict_of(one, two)
    assert (verdict.choice, [each.holes for each in verdict.copies]) == (1, [(), ()])


def test_an_epoch_above_the_metadatas_newest_is_said(tmp_path: Path) -> None:
    """The checkpoint has it, too, as a broker has recovered the log since."""
    one, two = brokers(tmp_path, [0] * 9 + [4], [0] * 15)
    assigned(two, [1, 2], epoch=3)
    verdict = verdict_of(one, two)
    assert verdict.choice == 1
    (remark,) = verdict.remarks
    assert remark.startswith("broker 1's copy has leader epoch 4, and the metadata knows of none above 3: ")
