"""Statistics of stretches that were measured apart, against those of a whole log."""

from __future__ import annotations

import pickle
import random
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from seglog.errors import NotALogError
from seglog.look.inspect import statistics
from seglog.look.inspect.statistics import log_statistics, stretches_of
from seglog.scan.listing import list_log_directory, list_partition
from seglog.scan.log_walk import LogWalk
from seglog.storage.filesystem import FileSystem
from seglog.storage.local import LocalFileSystem
from seglog_ask.spark import stretches as of_tasks
from seglog_ask.spark.stretches import Leaders, known_stretch, measure_stretch
from tests.support import log_files as logs
from tests.support.broken.mutated_directories import mutate
from tests.support.broken.varied_directory import base_directory, copy_tree
from tests.support.fixtures import fixture_copy, manifest

FS = LocalFileSystem()


@pytest.fixture(params=["mutated", *(name for name in manifest() if name != "0.7")])
def directories(request: pytest.FixtureRequest, tmp_path: Path) -> list[Path]:
    """Log directories: of each fixture, and such as nobody wishes for."""
    if request.param != "mutated":
        return [fixture_copy(request.param, tmp_path)]
    base_directory(tmp_path / "base")
    made = [tmp_path / str(seed) for seed in range(10)]
    for seed, directory in enumerate(made):
        copy_tree(tmp_path / "base", directory)
        mutate(directory, random.Random(seed))
    return [tmp_path / "base", *made]


@pytest.mark.parametrize(("most_leaders", "stretch_bytes"), [(1, 1), (3, 30_000), (1 << 16, 1), (1 << 16, 30_000)])
def test_stretches_that_were_measured_elsewhere_lead_to_the_same_statistics(
    directories: list[Path], most_leaders: int, stretch_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    walked: list[Path] = []
    walk = statistics.LogWalk

    def counted(fs: FileSystem, path: Path) -> LogWalk:
        walked.append(path)
        return walk(fs, path)

    monkeypatch.setattr(statistics, "LogWalk", counted)
    monkeypatch.setattr(of_tasks, "_MOST_LEADERS", most_leaders)
    monkeypatch.setattr(statistics, "_STRETCH_BYTES", stretch_bytes)
    chance, compared = random.Random(most_leaders), 0
    for one in (one for directory in directories for one in list_log_directory(FS, directory).live):
        try:
            listing = list_partition(FS, one.path)
            expected = log_statistics(FS, listing)
        except (OSError, NotALogError):
            continue
        stretches = stretches_of(listing.segments)
        assert [log for logs in stretches for log in logs] == [segment.log for segment in listing.segments]
        for share in (0.5, 1.0):
            chosen = {logs for logs in stretches if chance.random() < share}
            found = [pickle.loads(pickle.dumps(measure_stretch(FS, logs))) for logs in chosen]
            walked.clear()
            known = partial(known_stretch, {each.logs: each for each in found if each is not None})
            assert log_statistics(FS, listing, known) == expected
            assert {log for logs in stretches if logs not in chosen for log in logs} <= set(walked)
            if most_leaders > 3:
                assert not {log for logs in chosen for log in logs} & set(walked)  # what is known is not read again
            compared += len(chosen)
    assert compared > 2


def test_a_stretch_that_has_changed_since_it_was_measured_is_read_again(tmp_path: Path) -> None:
    path = logs.write_log(tmp_path, logs.plain_batches(8, 4))
    listing, measured = list_partition(FS, path.parent), measure_stretch(FS, (path,))
    assert measured is not None
    path.write_bytes(path.read_bytes()[: -len(logs.plain_batches(8, 4)[-1])])
    known = partial(known_stretch, {(path,): measured})
    assert log_statistics(FS, listing, known).records == 28
    path.unlink()
    assert measure_stretch(FS, (path,)) is None


def test_leaders_of_a_stretch_tell_how_many_records_are_older_than_one_before_it() -> None:
    chance = random.Random(7)
    for _ in range(200):
        times = [chance.randrange(-1, 30) for _ in range(chance.randrange(1, 60))]
        leaders, counters = Leaders(), 0
        for cut in range(0, len(times), 7):
            leaders.take(np.array(times[cut : cut + 7], dtype=np.int64))
        newest = -1
        for time in times:
            counters += 0 <= time < newest
            newest = max(newest, time)
        for before in range(-1, 31):
            newest, expected = before, 0
            for time in times:
                expected += 0 <= time < newest
                newest = max(newest, time)
            assert leaders.older_than(before) == expected - counters
            assert pickle.loads(pickle.dumps(leaders)).older_than(before) == expected - counters
