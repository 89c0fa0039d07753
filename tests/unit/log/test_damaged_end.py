"""A log that was closed properly and ends because of damage: nothing is written there."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.errors import CorruptRecordError
from seglog.log.log import Log
from seglog.model import Record
from tests.support.log_files import files_of
from tests.support.naive import NaiveRecord, batch_v2
from tests.support.open_logs import START_MS, opened_log


def some(count: int) -> list[Record]:
    return [Record(b"v" * 10, b"k%d" % i, timestamp=START_MS + i) for i in range(count)]


def damaged(directory: Path, cut: slice) -> Log:
    """A log of 40 batches whose file lacks a few bytes; it was closed properly, so that nothing is recovered."""
    with opened_log(directory, index_interval_bytes=0) as log:
        log.append(some(40), batch_records=1)
    path = directory / f"{0:020d}.log"
    data = path.read_bytes()
    path.write_bytes(data[: cut.start] + data[cut.stop :])
    for name in ("index", "timeindex"):  # an index may lead past the damage, or before it as here
        path.with_suffix(f".{name}").write_bytes(b"")
    return opened_log(directory, clean=True)


@pytest.mark.parametrize("lacks", [slice(300, 320), slice(800, 801)])
@pytest.mark.parametrize("way", ["append", "append_batches", "append_as_follower", "roll"])
def test_nothing_is_written_in_the_place_of_good_batches_behind_damage(tmp_path: Path, lacks: slice, way: str) -> None:
    follows = batch_v2(39, [NaiveRecord(39, 0, b"k", b"v")])
    with damaged(tmp_path / "t-0", lacks) as log:
        assert log.log_end_offset < 39
        before = files_of(tmp_path / "t-0")
        ways = {
            "append": lambda: log.append(some(1)),
            "append_batches": lambda: log.append_batches(batch_v2(0, [NaiveRecord(0, 0, b"k", b"v")])),
            "append_as_follower": lambda: log.append_as_follower(follows, 0),
            "roll": log.roll,
        }
        with pytest.raises(
            CorruptRecordError, match=r"good batches follow from offset .* `seglog repair` mends"
        ) as error:
            ways[way]()
        assert error.value.position is not None and error.value.position < lacks.start + 100
        assert files_of(tmp_path / "t-0") == before


def test_what_a_crash_left_at_the_end_is_still_cut_by_an_append(tmp_path: Path) -> None:
    with opened_log(tmp_path / "t-0") as log:
        log.append(some(2), batch_records=1)
    path = tmp_path / "t-0" / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:-1])
    with opened_log(tmp_path / "t-0") as log:
        assert log.append(some(1)).first_offset == 1
        assert [record.offset for record in log.records()] == [0, 1]
