"""The leader-epoch cache and its checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.errors import CorruptCheckpointError
from seglog.log.leader_epochs import LeaderEpochCache
from tests.support.log_files import FS, batch, rows_of
from tests.support.naive import message


def cache(path: Path, *entries: tuple[int, int]) -> LeaderEpochCache:
    made = LeaderEpochCache(FS, path)
    for epoch, start in entries:
        made.assign(epoch, start)
    return made


def pairs(found: LeaderEpochCache) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.start_offset) for entry in found.entries]


def test_assigning_writes_the_file(tmp_path: Path) -> None:
    cache(tmp_path, (0, 0), (5, 120))
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n5 120\n"
    assert pairs(LeaderEpochCache(FS, tmp_path)) == [(0, 0), (5, 120)]


def test_a_later_start_in_the_same_epoch_changes_nothing(tmp_path: Path) -> None:
    assert pairs(cache(tmp_path, (0, 0), (0, 50))) == [(0, 0)]


def test_contradicting_entries_make_room(tmp_path: Path) -> None:
    assert pairs(cache(tmp_path, (0, 0), (2, 10), (4, 20), (3, 15))) == [(0, 0), (2, 10), (3, 15)]
    assert pairs(cache(tmp_path, (9, 5))) == [(0, 0), (9, 5)]


def test_a_file_out_of_order_mends_itself(tmp_path: Path) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n3\n5 0\n3 10\n4 20\n")
    assert pairs(LeaderEpochCache(FS, tmp_path)) == [(3, 10), (4, 20)]


def test_truncation_from_both_ends(tmp_path: Path) -> None:
    epochs = cache(tmp_path, (0, 0), (2, 10), (4, 20))
    epochs.truncate_from_end(20)
    assert pairs(epochs) == [(0, 0), (2, 10)]
    epochs.truncate_from_start(15)
    assert pairs(epochs) == [(2, 15)] == pairs(LeaderEpochCache(FS, tmp_path))


def test_recovery_assigns_each_epoch_that_rises(tmp_path: Path) -> None:
    epochs = cache(tmp_path, (1, 0))
    _, rows = rows_of(b"".join(batch(i, epoch=e) for i, e in enumerate((1, 1, 3, 2, -1, 4))))
    epochs.assign_recovered(rows)
    assert pairs(epochs) == [(1, 0), (3, 2), (4, 5)]


def test_appending_assigns_the_epoch_of_every_batch_also_of_a_lower_one(tmp_path: Path) -> None:
    epochs = cache(tmp_path, (1, 0), (4, 50))
    _, rows = rows_of(b"".join(batch(100 + i, epoch=e) for i, e in enumerate((4, 6, 6, 2, -1, 2, 3))))
    epochs.assign_appended(rows)
    assert pairs(epochs) == [(1, 0), (2, 103), (3, 106)] == pairs(LeaderEpochCache(FS, tmp_path))
    assert epochs.highest_epoch == 6


def test_appending_a_message_forgets_the_epochs_before_it(tmp_path: Path) -> None:
    old = message(10, 1, None, b"v")
    for data, expected in ((batch(9, epoch=3) + old, []), (old + batch(11, epoch=3), [(3, 11)])):
        epochs = cache(tmp_path, (1, 0))
        epochs.assign_appended(rows_of(data)[1])
        assert pairs(epochs) == expected == pairs(LeaderEpochCache(FS, tmp_path))


@pytest.mark.parametrize(
    ("epoch", "expected"), [(4, (4, 99)), (5, (-1, -1)), (3, (2, 20)), (2, (2, 20)), (1, (1, 10)), (-1, (-1, -1))]
)
def test_end_offsets_are_where_the_next_epoch_begins(tmp_path: Path, epoch: int, expected: tuple[int, int]) -> None:
    assert cache(tmp_path, (2, 10), (4, 20)).end_offset_for(epoch, 99) == expected


def test_a_damaged_file_is_an_error_unless_only_read(tmp_path: Path) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text("7\n0\n")
    with pytest.raises(CorruptCheckpointError):
        LeaderEpochCache(FS, tmp_path)
    assert LeaderEpochCache(FS, tmp_path, tolerant=True).damage is not None
