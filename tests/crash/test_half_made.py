"""New directories and files while call after call fails: whole under their name, or not there; then they are made."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from seglog.clock import FixedClock
from seglog.configuration.keys import LogConfig
from seglog.errors import RefusedError, SeglogError
from seglog.model import Compression, TopicPartition
from seglog.operations.convert import ConvertOptions, convert_to
from seglog.repairs.repair import examination, repair
from seglog.repairs.undo.restore import restore_run
from seglog.scan.listing import Target, TargetKind, list_partition
from seglog.storage.filesystem import FileSystem
from seglog.storage.local import LocalFileSystem
from seglog.verification.readable_files import Source, sources
from seglog_ask.table.engines.export import ExportFormat, ExportOptions, FileSink, export
from seglog_rescue.operations.restore import plan_restore, restore
from seglog_rescue.salvage.salvage import SalvageOptions, salvage
from tests.support.broken.damage import batches_of
from tests.support.faulty_filesystem import FAULTS, Faults, FaultyFileSystem, Killed, calls_of, moments
from tests.support.log_files import batch, write_segment

pytestmark = pytest.mark.slow  # the power is cut at every change

FS = LocalFileSystem()
CLOCK = FixedClock(1_800_000_000_000)


Work = Callable[[FileSystem, Path], object]


@dataclass(frozen=True)
class Case:
    """What `work` makes at a path out of a source; `replaces`: the path is a file that may be there."""

    work: Callable[[Path], Work]
    replaces: bool = False


def source_of(tmp_path: Path) -> Path:
    directory = tmp_path / "source" / "t-0"
    if not directory.exists():
        write_segment(directory, 0, batch(0, 3), batch(3, 3), batch(6, 6))
        write_segment(directory, 12, batch(12, 3), batch(15, 3))
    return directory


def converting(tmp_path: Path) -> Work:
    source = source_of(tmp_path)
    config, options = LogConfig(segment_bytes=400), ConvertOptions(codec=Compression.LZ4)

    def work(fs: FileSystem, target: Path) -> object:
        return convert_to(fs, CLOCK, list_partition(FS, source), target, options, lambda _: config)

    return work


def salvaging(tmp_path: Path) -> Work:
    source = source_of(tmp_path)
    return lambda fs, target: salvage(fs, CLOCK, [source], target, SalvageOptions(segment_bytes=400))


def restoring(tmp_path: Path) -> Work:
    source = source_of(tmp_path)
    path = source / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[len(batches_of(bytes(data))[0]) + 30] ^= 1
    path.write_bytes(data)
    last = source / "00000000000000000012.log"
    last.write_bytes(last.read_bytes() + b"torn")
    run = repair(FS, CLOCK, source.parent, [source], examination(FS, CLOCK, source.parent, [source]).findings).run
    assert run is not None
    return lambda fs, target: restore_run(fs, run, target)


def joining(tmp_path: Path) -> Work:
    source = source_of(tmp_path)
    aside = source.with_name(f"{source.name}.0123456789abcdef-stray")
    source.rename(aside)

    def work(fs: FileSystem, target: Path) -> object:
        plan = plan_restore(fs, [aside], target.parent)
        return restore(fs, CLOCK, replace(plan, partitions=(replace(plan.partitions[0], target=target),)))

    return work


def exporting(tmp_path: Path) -> Work:
    source, options = Target(source_of(tmp_path), TargetKind.PARTITION), ExportOptions(ExportFormat.CSV)

    def work(fs: FileSystem, target: Path) -> object:
        logs = (each for each in sources(FS, source) if isinstance(each, Source))
        with FileSink(fs, target, replace=True) as sink:
            return export([(TopicPartition("t", 0), logs)], sink, options, lambda _: None)

    return work


CASES = {
    "convert": Case(converting),
    "salvage": Case(salvaging),
    "quarantine restore": Case(restoring),
    "restore": Case(joining),
    "export": Case(exporting, replaces=True),
}


def contents(path: Path) -> dict[str, bytes]:
    if path.is_file():
        return {"": path.read_bytes()}
    return {str(each.relative_to(path)): each.read_bytes() for each in sorted(path.rglob("*")) if each.is_file()}


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("name", CASES)
def test_what_fails_leaves_nothing_under_the_final_name_and_works_the_next_time(
    tmp_path: Path, name: str, kind: str
) -> None:
    case = CASES[name]
    work = case.work(tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    target = home / "t-1"
    calls = calls_of(lambda fs: work(fs, target))
    whole = contents(target)
    old = {"": b"old"} if case.replaces else {}
    for at in moments(calls, kind):
        shutil.rmtree(home)
        home.mkdir()
        if case.replaces:
            target.write_bytes(b"old")
        faults = Faults(at, kind)
        with suppress(OSError, Killed, SeglogError):
            work(FaultyFileSystem(faults), target)
        where = f"{kind} at call {at} of {calls}: {faults.call}"
        after = contents(target) if target.exists() else {}
        assert after in (old, whole), where
        assert target.exists() == bool(after), where
        if after == whole and not case.replaces:
            with pytest.raises(RefusedError):
                work(FS, target)
            assert {path.name for path in home.iterdir()} <= {"t-1", ".lock"}, where
            shutil.rmtree(target)
        work(FS, target)
        assert contents(target) == whole, where
        assert {path.name for path in home.iterdir()} <= {"t-1", ".lock"}, where


def failed_at(work: Work, target: Path, call: str) -> None:
    """Does the work with an error of the disk at the last call of this name."""
    for at in reversed(range(calls_of(lambda fs: work(fs, target)))):
        shutil.rmtree(target.parent)
        target.parent.mkdir()
        faults = Faults(at)
        with suppress(OSError):
            work(FaultyFileSystem(faults), target)
        if faults.call.startswith(call):
            return
    pytest.fail(f"no call begins with {call}")


@pytest.mark.parametrize("name", CASES)
def test_a_name_that_is_not_durable_goes_again(tmp_path: Path, name: str) -> None:
    """The command failed: run again, it must not refuse because its own result is there."""
    work, target = CASES[name].work(tmp_path), tmp_path / "home" / "t-1"
    target.parent.mkdir()
    failed_at(work, target, "sync directory home")
    assert {path.name for path in target.parent.iterdir()} <= {".lock"}
    work(FS, target)
    assert contents(target)


@pytest.mark.parametrize("name", ["convert", "salvage", "restore"])
def test_unremovable_leftovers_are_reported(tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    work, target = CASES[name].work(tmp_path), tmp_path / "home" / "t-1"
    target.parent.mkdir()
    failed_at(work, target, "remove .in-use")
    (left,) = target.parent.glob("*-future")
    assert str(left) in caplog.records[-1].getMessage()
    assert contents(target)


def test_a_lock_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    work, target = converting(tmp_path), tmp_path / "home" / "t-1"
    target.parent.mkdir()
    failed_at(work, target, "create .in-use")
    assert {path.name for path in target.parent.iterdir()} <= {".lock"}
