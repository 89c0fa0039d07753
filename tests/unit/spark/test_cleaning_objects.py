"""Cleaning into new objects, without Spark: either the files of `seglog clean` are committed, or nothing is."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from seglog.cleaner.round import CleanerOptions, Strategy
from seglog.errors import CorruptRecordError, IncompleteError, RefusedError, SeglogError, UnsupportedError
from seglog.format.filenames import FileKind, parse_file_name
from seglog.locations import parse_location
from seglog.operations.clean import Cleaned, Outcome, Skipped
from seglog.operations.workspace import Workspace
from seglog_ask.spark.cleaning import Placement, SparkTasks
from seglog_ask.spark.cleaning_objects import Destination, Tasks, clean_into
from seglog_ask.spark.cleaning_round import RoundSpec, SegmentCopy, TaskOutcome
from seglog_ask.spark.cleaning_stages import index_group, merge_keys, rewrite_group, rewrite_round
from seglog_ask.spark.key_merge import MergeSpace
from seglog_ask.spark.keys import object_blob
from seglog_ask.table.plan.files import files_of
from seglog_stores.remote.settings import StoreSettings
from seglog_stores.tiers.manifests import read_committed
from seglog_stores.tiers.view import see_tiers
from tests.support.compacted_directories import Topics, broker_directory, clean, cleanings
from tests.support.fixtures import CLEAN
from tests.support.log_files import FS
from tests.support.manual_clock import ManualClock
from tests.support.object_server import object_server
from tests.support.open_logs import START_MS
from tests.support.tiers import tier_segments, write_local_tiered
from tests.unit.spark.test_cleaning_stages import transactional

CLOCK = ManualClock(START_MS + 100_000)
TOPICS = Topics(cleanup_policy="compact", segment_bytes=2000)


@dataclass
class Inline:
    """Runs tasks in this process, with pickled inputs and outputs. Each is tried `attempts` times; the last one counts.

    With `reducers` a round is split like a giant one. `meddle` is called before the copies begin.
    """

    disk: Path
    reducers: int = 0
    attempts: int = 1
    meddle: Callable[[], None] = lambda: None

    def rewrite(self, specs: Sequence[RoundSpec]) -> list[list[TaskOutcome | SeglogError]]:
        return [self._split(spec) if self.reducers else self._whole(spec) for spec in map(_sent, specs)]

    def run(self, items: Sequence[SegmentCopy], body: Callable[[SegmentCopy], Any]) -> list[Any]:
        self.meddle()
        return [[_sent(body(_sent(item))) for _ in range(self.attempts)][-1] for item in items]

    def _whole(self, spec: RoundSpec) -> list[TaskOutcome | SeglogError]:
        return [_sent(rewrite_round(FS, spec, attempt, self.disk)) for attempt in range(self.attempts)][-1:]

    def _split(self, spec: RoundSpec) -> list[TaskOutcome | SeglogError]:
        groups = [_sent(spec.of_group(number)) for number in range(spec.group_count)]
        to_reducers: list[list[bytes]] = [[] for _ in range(self.reducers)]
        for number, group in enumerate(groups):
            for target, blob in index_group(FS, group, number, self.reducers):
                to_reducers[target].append(blob)
        to_groups = [[object_blob(group)] for group in groups]
        for reducer, blobs in enumerate(to_reducers):
            for target, blob in merge_keys(spec.without_groups(), reducer, blobs, MergeSpace(FS, self.disk)):
                to_groups[target].append(blob)
        found = [[rewrite_group(FS, b, n, self.disk) for n in range(self.attempts)][-1] for b in to_groups]
        return [_sent(outcome) for outcome in found if outcome is not None]


def _sent(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def cleaned_into(
    tasks: Tasks, sources: Sequence[Path], output: Path, topics: Topics = TOPICS, **options: object
) -> list[Outcome]:
    return cleaned_to(tasks, Destination(sources, output, StoreSettings()), topics, **options)


def cleaned_to(tasks: Tasks, to: Destination, topics: Topics = TOPICS, **options: object) -> list[Outcome]:
    fs, shown = see_tiers(files_of(to.store), to.sources)
    work = cleanings(fs, shown, topics, CleanerOptions(**options))  # type: ignore[arg-type]
    return clean_into(tasks, to, Workspace(fs, CLOCK), shown, work)


def cleaned_here(source: Path, work: Path, names: Sequence[str], **options: object) -> dict[str, dict[str, bytes]]:
    """Returns the files of partitions after `seglog clean` of a copy of their log directory."""
    shutil.copytree(source, work)
    paths = [work / name for name in names]
    found = clean(FS, paths, TOPICS, CLOCK, CleanerOptions(**options))  # type: ignore[arg-type]
    assert all(isinstance(one, Cleaned) for one in found)
    return {name: {path.name: path.read_bytes() for path in kept(work / name)} for name in names}


def kept(partition: Path) -> list[Path]:
    """Returns the files of a partition that a manifest names; of snapshots, only those at the end of a segment."""
    found = {path: parse_file_name(path.name) for path in partition.iterdir()}
    logs = sorted(one.offset for one in found.values() if one is not None and one.kind is FileKind.LOG)
    snapshots = {one.offset: path for path, one in found.items() if one and one.kind is FileKind.PRODUCER_SNAPSHOT}
    stray = {path for offset, path in snapshots.items() if offset not in logs[1:] and offset != max(snapshots)}
    return sorted(path for path in found if path not in stray and path.name != "partition.metadata")


def committed(output: Path, names: Sequence[str]) -> dict[str, dict[str, bytes]]:
    fs, (seen,) = see_tiers(FS, [output])
    return {name: {each: fs.read_bytes(seen / name / each) for each in fs.list(seen / name)} for name in names}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    return broker_directory(path, {"a-0": (6, 30), "a-1": (3, 400), "b-0": (2, 5)}, segment_bytes=2000)


@pytest.mark.parametrize("roll", [False, True], ids=["", "rolled"])
@pytest.mark.parametrize("reducers", [0, 3], ids=["whole", "split"])
def test_what_is_committed_are_the_files_of_seglog_clean(
    roll: bool, reducers: int, source: Path, tmp_path: Path
) -> None:
    names = ["a-0", "a-1", "b-0"]
    expected = cleaned_here(source, tmp_path / "here", names, roll=roll)
    outcomes = cleaned_into(Inline(tmp_path, reducers), [source / n for n in names], tmp_path / "out", roll=roll)
    assert committed(tmp_path / "out", names) == expected
    assert [type(one) for one in outcomes] == [Cleaned] * 3


def test_committed_logs_are_cleaned_into_another_prefix(source: Path, tmp_path: Path) -> None:
    cleaned_into(Inline(tmp_path), [source], tmp_path / "first")
    outcomes = cleaned_into(Inline(tmp_path), [tmp_path / "first"], tmp_path / "second", roll=True)
    assert [type(one) for one in outcomes] == [Cleaned] * 3
    assert committed(tmp_path / "second", ["a-0", "a-1", "b-0"])


@pytest.mark.parametrize("reducers", [0, 2], ids=["whole", "split"])
def test_transactions_are_cleaned_into_objects_as_on_one_machine(reducers: int, tmp_path: Path) -> None:
    log = transactional(tmp_path / "source")
    log.close()
    expected = cleaned_here(tmp_path / "source", tmp_path / "here", ["t-0"], roll=True)
    cleaned_into(Inline(tmp_path, reducers), [tmp_path / "source" / "t-0"], tmp_path / "out", roll=True)
    assert committed(tmp_path / "out", ["t-0"]) == expected


def test_a_tier_is_cleaned_without_fetching_it_first(tmp_path: Path) -> None:
    genuine = CLEAN / "customers-uncleaned-0"
    tier = write_local_tiered(tmp_path / "tier", "customers-uncleaned", 0, tier_segments(genuine, active=True))
    fs, (seen,) = see_tiers(FS, [tier])
    local = tmp_path / "source" / "customers-uncleaned-0"
    local.mkdir(parents=True)
    for name in fs.list(seen):
        (local / name).write_bytes(fs.read_bytes(seen / name))
    expected = cleaned_here(tmp_path / "source", tmp_path / "here", [local.name], roll=True)
    cleaned_into(Inline(tmp_path), [tier], tmp_path / "out", roll=True)
    logs = {
        name: data for name, data in committed(tmp_path / "out", [local.name])[local.name].items() if ".log" in name
    }
    assert logs == {name: data for name, data in expected[local.name].items() if ".log" in name}


def test_what_was_committed_is_cleaned_again_from_where_the_cleaner_came(source: Path, tmp_path: Path) -> None:
    cleaned_into(Inline(tmp_path), [source / "a-0"], tmp_path / "one")
    logs = read_committed(FS, tmp_path / "one")
    assert logs is not None
    (partition,) = logs.manifest.partitions
    outcomes = cleaned_into(Inline(tmp_path), [tmp_path / "one"], tmp_path / "two", roll=True)
    assert [one.result.first_dirty_offset for one in outcomes if isinstance(one, Cleaned)] == [partition.cleaned_offset]
    shutil.copytree(source, tmp_path / "local")
    for roll in (False, True):
        clean(FS, [tmp_path / "local" / "a-0"], TOPICS, CLOCK, CleanerOptions(roll=roll))
    logs_of = {path.name: path.read_bytes() for path in (tmp_path / "local" / "a-0").glob("*.log")}
    shown = committed(tmp_path / "two", ["a-0"])["a-0"]
    assert {name: data for name, data in shown.items() if name.endswith(".log")} == logs_of


def test_of_a_log_directory_what_is_compacted_is_committed(source: Path, tmp_path: Path) -> None:
    class Mixed(Topics):
        def resolve(self, topic: str | None) -> Any:
            return Topics(cleanup_policy="delete" if topic == "b" else "compact", segment_bytes=2000).resolve(topic)

    outcomes = cleaned_into(Inline(tmp_path), [source], tmp_path / "out", Mixed())
    assert [one.directory.name for one in outcomes if isinstance(one, Skipped)] == ["b-0"]
    fs, (seen,) = see_tiers(FS, [tmp_path / "out"])
    assert [name for name in fs.list(seen) if name[-2:-1] == "-"] == ["a-0", "a-1"]


@pytest.mark.parametrize("reducers", [0, 2], ids=["whole", "split"])
def test_a_task_that_runs_twice_leaves_garbage_and_the_right_log(reducers: int, source: Path, tmp_path: Path) -> None:
    expected = cleaned_here(source, tmp_path / "here", ["a-0"])
    cleaned_into(Inline(tmp_path, reducers, attempts=3), [source / "a-0"], tmp_path / "out")
    assert committed(tmp_path / "out", ["a-0"]) == expected
    places = list((tmp_path / "out" / "a-0").iterdir())
    named = {one.place for one in _partition(tmp_path / "out").segments}
    assert len(places) >= 3 * len(named)
    assert not list(tmp_path.glob("seglog-clean-*"))


def _partition(output: Path) -> Any:
    logs = read_committed(FS, output)
    assert logs is not None
    return logs.manifest.partitions[0]


def test_the_source_stays_as_it_was(source: Path, tmp_path: Path) -> None:
    def tree() -> dict[Path, tuple[bytes, int]]:
        return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in source.rglob("*") if path.is_file()}

    before = tree()
    cleaned_into(Inline(tmp_path), [source / "a-0"], tmp_path / "out", roll=True)
    assert tree() == before


def nothing_was_committed(output: Path) -> bool:
    return read_committed(FS, output) is None


def test_damage_in_one_partition_commits_none(source: Path, tmp_path: Path) -> None:
    path = source / "a-1" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptRecordError, match="a-1"):
        cleaned_into(Inline(tmp_path), [source / "a-0", source / "a-1"], tmp_path / "out")
    assert nothing_was_committed(tmp_path / "out")


def test_a_source_that_changes_meanwhile_commits_nothing(source: Path, tmp_path: Path) -> None:
    def grow() -> None:
        last = max((source / "a-0").glob("*.log"))
        last.write_bytes(last.read_bytes() + b"x")

    with pytest.raises(RefusedError, match="changed while it was cleaned"):
        cleaned_into(Inline(tmp_path, meddle=grow), [source / "a-0"], tmp_path / "out")
    assert nothing_was_committed(tmp_path / "out")


def test_a_driver_that_dies_before_the_end_commits_nothing_and_the_next_one_goes_on(
    source: Path, tmp_path: Path
) -> None:
    def die() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cleaned_into(Inline(tmp_path, meddle=die), [source / "a-0"], tmp_path / "out")
    assert nothing_was_committed(tmp_path / "out")
    assert list((tmp_path / "out" / "a-0").iterdir())
    expected = cleaned_here(source, tmp_path / "here", ["a-0"])
    cleaned_into(Inline(tmp_path), [source / "a-0"], tmp_path / "out")
    assert committed(tmp_path / "out", ["a-0"]) == expected


def test_a_group_that_no_task_has_brought_commits_nothing(source: Path, tmp_path: Path) -> None:
    class Forgetful(Inline):
        def rewrite(self, specs: Sequence[RoundSpec]) -> list[list[TaskOutcome | SeglogError]]:
            return [outcomes[:-1] for outcomes in super().rewrite(specs)]

    with pytest.raises(IncompleteError, match="groups of segments were not cleaned; nothing was committed"):
        cleaned_into(Forgetful(tmp_path, 2), [source / "a-0"], tmp_path / "out")
    assert nothing_was_committed(tmp_path / "out")


@pytest.mark.parametrize("options", [{"strategy": Strategy.parse("timestamp")}, {"expire": True}], ids=str)
def test_a_round_that_one_task_must_do_is_not_split(source: Path, tmp_path: Path, options: dict[str, object]) -> None:
    no_spark: Any = None
    with pytest.raises(UnsupportedError, match="run in one task each"):
        cleaned_into(SparkTasks(no_spark, Placement("shuffle")), [source / "a-0"], tmp_path / "out", **options)
    assert nothing_was_committed(tmp_path / "out")


def unclean(path: Path) -> Path:
    """Makes a log with transactions that its broker did not close. Returns a transaction index with entries."""
    log = transactional(path)
    log.close()
    (path / "meta.properties").write_text("version=1\ncluster.id=test\nnode.id=1\n")
    return next(path for path in sorted((path / "t-0").glob("*.txnindex")) if path.stat().st_size)


def test_a_log_that_opening_would_mend_is_refused(tmp_path: Path) -> None:
    index = unclean(tmp_path / "source")
    index.write_bytes(b"")
    with pytest.raises(RefusedError, match=r"txnindex is not as a broker leaves it"):
        cleaned_into(Inline(tmp_path), [tmp_path / "source" / "t-0"], tmp_path / "out", roll=True)
    assert nothing_was_committed(tmp_path / "out")


def test_an_intact_log_that_its_broker_did_not_close_is_cleaned(tmp_path: Path) -> None:
    unclean(tmp_path / "source")
    expected = cleaned_here(tmp_path / "source", tmp_path / "here", ["t-0"], roll=True)
    cleaned_into(Inline(tmp_path), [tmp_path / "source" / "t-0"], tmp_path / "out", roll=True)
    assert committed(tmp_path / "out", ["t-0"]) == expected


@pytest.mark.parametrize("output", ["source", "source/out", "."])
def test_the_output_does_not_lie_among_the_logs(output: str, source: Path, tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"name a (new|separate) prefix"):
        cleaned_into(Inline(tmp_path), [source / "a-0"], Path(os.path.normpath(tmp_path / output)))


def test_two_logs_of_one_name_are_refused(source: Path, tmp_path: Path) -> None:
    shutil.copytree(source, tmp_path / "other")
    with pytest.raises(RefusedError, match="are both a-0"):
        cleaned_into(Inline(tmp_path), [source / "a-0", tmp_path / "other" / "a-0"], tmp_path / "out")


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
@pytest.mark.parametrize("reducers", [0, 2], ids=["whole", "split"])
def test_a_bucket_is_cleaned_into_a_bucket_with_the_credentials_that_were_given(
    reducers: int, scheme: str, source: Path, tmp_path: Path
) -> None:
    expected = cleaned_here(source, tmp_path / "here", ["a-0", "a-1"], roll=True)
    with object_server() as server:
        for path in source.rglob("*"):
            if path.is_file():
                server.objects[f"bkt/kafka/{path.relative_to(source)}"] = path.read_bytes()
        before, store = dict(server.objects), StoreSettings.of(server.environments[scheme])
        sources = [parse_location(f"{scheme}://bkt/kafka/{name}") for name in ("a-0", "a-1")]
        to = Destination(sources, parse_location(f"{scheme}://bkt/out"), store)
        cleaned_to(Inline(tmp_path, reducers), to, roll=True)
        fs, (seen,) = see_tiers(files_of(store), [to.output])
        found = {name: {each: fs.read_bytes(seen / name / each) for each in fs.list(seen / name)} for name in expected}
        assert {key: data for key, data in server.objects.items() if not key.startswith("bkt/out/")} == before
        assert not [key for key in server.objects if "probe" in key]
    assert found == expected
