"""Broken leader epochs are set right where the neighbours tell, and only there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from seglog.clock import FixedClock
from seglog.format.checkpoint import EpochEntry
from seglog.repairs.epoch_mending import EpochPatch, epoch_patches, mended_epochs
from seglog.repairs.plan import RepairOptions
from seglog.repairs.repair import examination, repair
from tests.support.log_files import FS, batch, files_of, write_segment


def mended(epochs: list[int], *noted: tuple[int, int]) -> list[int]:
    """Batch i has base offset 10 * i."""
    entries = [EpochEntry(epoch, start) for epoch, start in noted]
    bases = np.arange(len(epochs), dtype=np.int64) * 10
    return mended_epochs(np.array(epochs, dtype=np.int32), bases, entries).tolist()


@pytest.mark.parametrize(
    ("broken", "mended_to"),
    [
        ([3, 3, 3 + (1 << 20), 3, 3], [3, 3, 3, 3, 3]),
        ([3, 3, 2, 3, 3], [3, 3, 3, 3, 3]),
        ([3, 3, -2147483645, 5, 5], [3, 3, 3, 5, 5]),
        ([3, 3, 5 + (1 << 24), 5, 5], [3, 3, 5, 5, 5]),
        ([3 + (1 << 17), 3, 3, 4], [3, 3, 3, 4]),
        ([0, 0, 1 << 30, 0, 1 << 20, 0], [0, 0, 0, 0, 0, 0]),
        ([2, 2, 0], [2, 2, 2]),
        ([2, 2, 2, 0, 0, 2, 3, 1], [2, 2, 2, 2, 2, 2, 3, 3]),
    ],
)
def test_a_broken_epoch_gets_its_neighbours(broken: list[int], mended_to: list[int]) -> None:
    assert mended(broken) == mended_to


@pytest.mark.parametrize(
    "epochs",
    [[], [7], [0, 1, 2, 2, 9], [0, 0, 8], [6, 1], [3, 3, 8, 4, 4], [-1, -1, 0, 2], [3, 3, -1, 3, 3], [0, 2, 0, 2, 2]],
)
def test_what_may_be_right_or_cannot_be_known_stays(epochs: list[int]) -> None:
    assert mended(epochs) == epochs


@pytest.mark.parametrize(
    ("epochs", "noted"),
    [
        ([0, 0, 2, 0], ()),  # an append of 0 after a broker's batch, and no checkpoint
        ([0, 0, 2, 0], ((0, 0),)),  # a checkpoint from before the election
        ([0, 0, 2, 0, 0, 0, 0, 0], ((0, 0),)),
        ([2, 0, 0, 0, 0], ()),
        ([0, 2, 0, 2, 0, 2, 0], ()),
        ([0, 0, 2, 0], ((0, 30),)),  # Kafka's checkpoint after an append of 0: the older epochs are gone
        ([0, 0, 5, 3], ((0, 0), (3, 30))),
        ([1, 1, 2, 2, 1, 1, 1], ()),
        ([1, 1, 5, 1, 1], ((1, 0),)),
        ([0, 0, 1 << 20, 1 << 20, 0, 0, 0], ()),  # several batches of one epoch are no accident
    ],
)
def test_a_brokers_epoch_is_never_lowered_on_the_word_of_its_neighbours(
    epochs: list[int], noted: tuple[tuple[int, int], ...]
) -> None:
    after = mended(epochs, *noted)
    assert all(one >= two for one, two in zip(after, epochs, strict=True)), after


@pytest.mark.parametrize(
    ("epochs", "noted", "mended_to"),
    [
        ([0, 0, 2, 0], ((0, 0), (2, 20)), [0, 0, 2, 2]),  # appends of 0 after, between and before a broker's
        ([0, 0, 2, 0, 0, 0, 0], ((0, 0), (2, 20)), [0, 0, 2, 2, 2, 2, 2]),
        ([0, 0, 2, 0, 0, 3, 0], ((0, 0), (2, 20), (3, 50)), [0, 0, 2, 2, 2, 3, 3]),
        ([0, 0, 64, 0, 1, 1], ((0, 0), (1, 40)), [0, 0, 0, 0, 1, 1]),  # the broker went on, and never noted 64
        ([3, 3, 2, 3], ((3, 0),), [3, 3, 3, 3]),
        ([5, 6, 70, 6, 6], ((5, 0), (6, 10)), [5, 6, 6, 6, 6]),  # one bit, and 64 elections of which nobody knows
        ([5, 6, 22, 6, 6], ((5, 0), (6, 10)), [5, 6, 6, 6, 6]),
        ([5, 6, 14, 6, 6], ((5, 0), (6, 10)), [5, 6, 14, 6, 6]),  # eight may have been
        ([5, 6, 71, 6, 6], ((5, 0), (6, 10)), [5, 6, 71, 6, 6]),
        ([5, 7], ((7, 0),), [5, 7]),  # older than the checkpoint's word, but nothing falls
    ],
)
def test_the_batch_that_fits_the_checkpoint_stays_and_the_others_follow_it(
    epochs: list[int], noted: tuple[tuple[int, int], ...], mended_to: list[int]
) -> None:
    assert mended(epochs, *noted) == mended_to


def test_epochs_that_nobody_can_read_or_believe_are_no_witness(tmp_path: Path) -> None:
    write_segment(tmp_path, 0, *(batch(i, epoch=e) for i, e in enumerate((3, 3, 3 + (1 << 20), 3, 3))))
    log = tmp_path / "00000000000000000000.log"
    for text in ("rubbish", "0\n2\n67 2\n3 3\n", "0\n1\n3 0\n"):
        (tmp_path / "leader-epoch-checkpoint").write_text(text)
        (patch,) = epoch_patches(FS, tmp_path, [(log, None)]).by_log[log.name]
        assert (patch.position, patch.before, patch.after) == (2 * len(batch(0)), 3 + (1 << 20), 3)


def test_a_checkpoint_that_cannot_be_read_is_rebuilt_with_the_epochs_of_its_log(tmp_path: Path) -> None:
    directory = tmp_path / "logs" / "t-0"
    write_segment(directory, 0, *(batch(3 * i, 3, epoch=e) for i, e in enumerate((3, 3, 3 + (1 << 20), 3, 3))))
    (directory / "leader-epoch-checkpoint").write_text("rubbish")
    clock = FixedClock(1_700_000_000_000)
    findings = examination(FS, clock, directory.parent, [directory]).findings
    assert repair(FS, clock, directory.parent, [directory], findings, RepairOptions()).complete
    assert (directory / "leader-epoch-checkpoint").read_bytes() == b"0\n1\n3 0\n"
    assert directory not in examination(FS, clock, directory.parent, [directory]).findings


def test_a_patch_reaches_into_pieces_of_a_file() -> None:
    patch = EpochPatch(position=100, before=0, after=0x01020304)
    whole = bytearray(200)
    patch.apply(whole, 0)
    for cut in range(105, 120):
        front, back = bytearray(cut), bytearray(200 - cut)
        patch.apply(front, 0)
        patch.apply(back, cut)
        assert front + back == whole
    assert whole[112:116] == b"\x01\x02\x03\x04"


def test_where_epochs_stay_the_checkpoint_does_and_a_second_repair_changes_nothing(tmp_path: Path) -> None:
    """A checkpoint made of the doubtful batches would be the witness that the next repair believes."""
    directory = tmp_path / "logs" / "t-0"
    epochs = [0, 0, 0, 99, 0, 0, 0, 0, 0]
    write_segment(directory, 0, *(batch(3 * i, 3, epoch=epoch) for i, epoch in enumerate(epochs)))
    (directory / "leader-epoch-checkpoint").write_bytes(b"0\n1\n0 0\n")
    before = files_of(directory)
    for _ in range(2):
        clock = FixedClock(1_700_000_000_000)
        findings = examination(FS, clock, directory.parent, [directory]).findings
        assert {"LEADER_EPOCH_DECREASING", "LEADER_EPOCHS_DIFFER"} <= {each.code for each in findings[directory]}
        outcome = repair(FS, clock, directory.parent, [directory], findings, RepairOptions())
        assert (outcome.run, files_of(directory)) == (None, before)
        (note,) = outcome.plan.partitions[0].notes
        assert "nothing shows which are right: they stay, and so does leader-epoch-checkpoint" in note
