"""The leader-epoch cache and its checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from seglog.errors import CorruptCheckpointError
from seglog.log.checkpoints import LeaderEpochCache
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
    assert pairs(cache(tmp_path, (10, 5))) == [(0, 0), (10, 5)]


def test_an_earlier_start_of_the_same_epoch_takes_its_place(tmp_path: Path) -> None:
    assert pairs(cache(tmp_path, (0, 0), (1, 10), (1, 5))) == [(0, 0), (1, 5)]


def test_a_file_out_of_order_mends_itself(tmp_path: Path) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n3\n5 0\n3 10\n4 20\n")
    assert pairs(LeaderEpochCache(FS, tmp_path)) == [(3, 10), (4, 20)]


@pytest.mark.parametrize(
    ("end_offset", "expected"),
    [
        (0, []),
        (1, [(0, 0)]),
        (10, [(0, 0)]),
        (11, [(0, 0), (2, 10)]),
        (20, [(0, 0), (2, 10)]),
        (21, None),
        (-1, None),
    ],
)
def test_truncation_from_the_end_drops_epochs_that_begin_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end_offset: int, expected: list[tuple[int, int]] | None
) -> None:
    epochs = cache(tmp_path, (0, 0), (2, 10), (4, 20))
    left_alone = leaves_the_file_alone(epochs, monkeypatch, lambda: epochs.truncate_from_end(end_offset))
    check_after(epochs, left_alone, expected)


@pytest.mark.parametrize(
    ("start_offset", "expected"),
    [
        (4, None),
        (5, None),
        (6, [(0, 6), (2, 10), (4, 20)]),
        (10, [(2, 10), (4, 20)]),
        (15, [(2, 15), (4, 20)]),
        (20, [(4, 20)]),
        (99, [(4, 99)]),
    ],
)
def test_truncation_from_the_start_keeps_the_epoch_that_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start_offset: int, expected: list[tuple[int, int]] | None
) -> None:
    epochs = cache(tmp_path, (0, 5), (2, 10), (4, 20))
    left_alone = leaves_the_file_alone(epochs, monkeypatch, lambda: epochs.truncate_from_start(start_offset))
    check_after(epochs, left_alone, expected)


def leaves_the_file_alone(
    epochs: LeaderEpochCache, monkeypatch: pytest.MonkeyPatch, truncate: Callable[[], None]
) -> bool:
    """Whether `truncate` does not write the file: each write of it waits for the disk."""
    written: list[None] = []
    flush = epochs.flush
    monkeypatch.setattr(epochs, "flush", lambda: written.append(flush()))
    truncate()
    return not written


def check_after(epochs: LeaderEpochCache, left_alone: bool, expected: list[tuple[int, int]] | None) -> None:
    """The file holds what `epochs` holds; `expected` is None where it is not even written."""
    on_disk = pairs(LeaderEpochCache(FS, epochs.path.parent))
    assert left_alone == (expected is None)
    assert pairs(epochs) == on_disk
    if expected is not None:
        assert on_disk == expected


def test_an_empty_cache_has_nothing_to_truncate(tmp_path: Path) -> None:
    epochs = cache(tmp_path)
    epochs.truncate_from_end(0)
    epochs.truncate_from_start(7)
    assert not epochs.path.exists()


def test_recovery_assigns_each_epoch_that_rises(tmp_path: Path) -> None:
    epochs = cache(tmp_path, (1, 0))
    _, rows = rows_of(b"".join(batch(i, epoch=e) for i, e in enumerate((1, 1, 3, 2, -1, 4))))
    epochs.assign_recovered(rows)
    assert pairs(epochs) == [(1, 0), (3, 2), (4, 5)] == pairs(LeaderEpochCache(FS, tmp_path))


def test_the_first_epoch_of_all_is_recovered(tmp_path: Path) -> None:
    epochs = cache(tmp_path)
    epochs.assign_recovered(rows_of(batch(0, epoch=-1) + batch(1, epoch=0) + batch(2, epoch=0))[1])
    assert pairs(epochs) == [(0, 1)] == pairs(LeaderEpochCache(FS, tmp_path))


def test_the_first_epoch_of_all_is_appended(tmp_path: Path) -> None:
    epochs = cache(tmp_path)
    epochs.assign_appended(rows_of(batch(0, epoch=-1) + batch(1, epoch=0))[1])
    assert pairs(epochs) == [(0, 1)] == pairs(LeaderEpochCache(FS, tmp_path))


@pytest.mark.parametrize("assign", ["assign_recovered", "assign_appended"])
def test_batches_of_a_known_epoch_or_of_none_write_nothing(tmp_path: Path, assign: str) -> None:
    epochs = cache(tmp_path, (1, 0))
    epochs.path.unlink()
    getattr(epochs, assign)(rows_of(batch(5, epoch=1) + batch(6, epoch=-1) + batch(7, epoch=1))[1])
    assert pairs(epochs) == [(1, 0)]
    assert not epochs.path.exists()


def test_messages_in_a_log_without_epochs_write_nothing(tmp_path: Path) -> None:
    epochs = cache(tmp_path)
    epochs.assign_appended(rows_of(message(10, 1, None, b"v"))[1])
    assert not epochs.path.exists()


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


def test_without_epochs_every_end_offset_is_unknown(tmp_path: Path) -> None:
    assert cache(tmp_path).end_offset_for(0, 99) == (-1, -1)


def test_an_offset_is_of_the_last_epoch_that_begins_at_it_or_before(tmp_path: Path) -> None:
    epochs = cache(tmp_path, (2, 10), (4, 20))
    assert [epochs.epoch_for_offset(offset) for offset in (9, 10, 19, 20, 99)] == [None, 2, 2, 4, 4]


@pytest.mark.parametrize(("epoch", "start"), [(-1, 0), (0, -1)])
def test_an_entry_that_cannot_be_is_refused(tmp_path: Path, epoch: int, start: int) -> None:
    with pytest.raises(CorruptCheckpointError, match="is impossible"):
        cache(tmp_path, (epoch, start))


def test_a_damaged_file_is_an_error_unless_only_read(tmp_path: Path) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text("7\n0\n")
    with pytest.raises(CorruptCheckpointError, match="version 7 is not 0; `seglog repair` rebuilds it"):
        LeaderEpochCache(FS, tmp_path)
    assert LeaderEpochCache(FS, tmp_path, tolerant=True).damage is not None
