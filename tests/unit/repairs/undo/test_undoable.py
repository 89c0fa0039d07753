"""Any work on a partition becomes a run: what it changes is done, kept and given back; what fails changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from seglog import recover, repair
from seglog.clock import FixedClock
from seglog.errors import RefusedError
from seglog.format.filenames import QUARANTINE
from seglog.repairs.undo.apply import undo_run
from seglog.repairs.undo.journal import RunRecord, RunState
from seglog.repairs.undo.undoable import undoable
from seglog.storage.filesystem import FileSystem, PassingFileSystem
from tests.support.faulty_filesystem import Faults, FaultyFileSystem
from tests.support.log_files import FS, batch, files_of, write_segment
from tests.support.small_disk import SmallDisk

CLOCK = FixedClock(1_700_000_000_000)
MARKER, POINTS = ".kafka_cleanshutdown", "recovery-point-offset-checkpoint"
BASES = (0, 9, 18)
LOGS = [f"{base:020d}.log" for base in BASES]

Work = Callable[[FileSystem], None]


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Three segments of three batches of three records, in a log directory that was closed in order."""
    directory = tmp_path / "logs" / "t-0"
    for base in BASES:
        write_segment(directory, base, *(batch(base + n, 3) for n in (0, 3, 6)), index_interval_bytes=0)
    (directory.parent / MARKER).write_text("")
    (directory.parent / POINTS).write_text("0\n1\nt 0 27\n")
    return directory


def done(partition: Path, work: Work, fs: FileSystem = FS) -> RunRecord:
    _, run = undoable(fs, CLOCK, partition, "truncate", work)
    assert run is not None
    return run


def changes_of(run: RunRecord) -> list[tuple[str, str]]:
    return [(change.kind, Path(change.path).name) for change in run.changed]


def write(fs: FileSystem, path: Path, data: bytes) -> None:
    with fs.open(path, "create") as file:
        file.write_at(0, data)


def cut(fs: FileSystem, path: Path, size: int, then: bytes = b"") -> None:
    with fs.open(path, "r+") as file:
        file.truncate(size)
        if then:
            file.write_at(size, then)


# --- what becomes a change


def test_work_that_changes_nothing_is_no_run(partition: Path) -> None:
    before = files_of(partition)

    def work(fs: FileSystem) -> str:
        write(fs, partition / LOGS[0], before[LOGS[0]])  # the bytes that are there
        cut(fs, partition / LOGS[1], len(before[LOGS[1]]))
        return "looked"

    assert undoable(FS, CLOCK, partition, "truncate", work) == ("looked", None)
    assert files_of(partition) == before and not (partition.parent / QUARANTINE).exists()
    assert (partition.parent / MARKER).exists()


def test_checkpoints_follow_where_no_file_of_the_log_changed(partition: Path) -> None:
    points = b"0\n1\nt 0 9\n"
    assert undoable(FS, CLOCK, partition, "x", lambda fs: write(fs, partition.parent / POINTS, points))[1] is None
    assert (partition.parent / POINTS).read_bytes() == points


@pytest.mark.parametrize(
    ("kind", "work"),
    [
        ("cut", lambda fs, path: cut(fs, path, 100)),
        ("remove", lambda fs, path: fs.remove(path)),
        ("replace", lambda fs, path: write(fs, path, b"other")),
        ("replace", lambda fs, path: write(fs, path, path.read_bytes()[:-1] + b"\xff")),  # as long as it was
        ("move", lambda fs, path: fs.rename(path.with_name(LOGS[2]), path)),
        ("replace", lambda fs, path: (fs.rename(path.with_name(LOGS[0]), path), cut(fs, path, 100))),
        ("replace", lambda fs, path: cut(fs, path, 100, b"other")),
    ],
    ids=["cut", "remove", "shorter", "as long", "move", "moved and cut", "cut and written on"],
)
def test_each_change_is_made_kept_and_given_back(
    partition: Path, kind: str, work: Callable[[FileSystem, Path], object]
) -> None:
    """What a run makes is what the work made of an overlay, and what undo gives back is what there was."""
    before, changed = files_of(partition), partition / LOGS[1]
    mirror = partition.parent.parent / "mirror" / "t-0"
    mirror.mkdir(parents=True)
    for name, data in before.items():
        (mirror / name).write_bytes(data)
    work(FS, mirror / LOGS[1])
    run = done(partition, lambda fs: work(fs, changed))
    assert files_of(partition) == files_of(mirror) and run.state is RunState.FINISHED
    assert (kind, LOGS[1]) in changes_of(run)
    assert (partition.parent / MARKER).exists()
    undo_run(FS, run)
    assert files_of(partition) == before


def test_a_file_that_is_new_goes_with_undo(partition: Path) -> None:
    before = files_of(partition)
    run = done(partition, lambda fs: write(fs, partition / "00000000000000000027.snapshot", b"new"))
    (change,) = run.changed
    assert (change.kind, change.before, change.group) == ("replace", None, -1)
    undo_run(FS, run)
    assert files_of(partition) == before


def test_files_elsewhere_are_no_part_of_the_run(partition: Path) -> None:
    other = partition.parent / "u-0" / LOGS[0]
    other.parent.mkdir()
    other.write_bytes(b"of another partition")

    def work(fs: FileSystem) -> None:
        fs.remove(other)
        fs.remove(partition / LOGS[2])

    assert changes_of(done(partition, work)) == [("remove", LOGS[2])]
    assert other.exists()


# --- the order: a crash leaves a shorter log, never a hole


def test_what_comes_after_a_cut_goes_before_it_the_newest_segment_first(partition: Path) -> None:
    swap = partition / f"{LOGS[0]}.swap"
    swap.write_bytes(b"swap")

    def work(fs: FileSystem) -> None:
        cut(fs, partition / LOGS[0], 100)
        for base in BASES[1:]:
            for kind in ("log", "index", "timeindex"):
                fs.remove(partition / f"{base:020d}.{kind}")
        fs.remove(swap)
        write(fs, partition / "leader-epoch-checkpoint", b"0\n0\n")

    assert changes_of(done(partition, work)) == [
        ("remove", swap.name),
        *(("remove", f"{base:020d}.{kind}") for base in (18, 9) for kind in ("log", "index", "timeindex")),
        ("cut", LOGS[0]),
        ("replace", "leader-epoch-checkpoint"),
    ]


# --- what fails


def test_work_that_fails_leaves_the_log_as_it_was(partition: Path) -> None:
    before = files_of(partition)

    def work(fs: FileSystem) -> None:
        fs.remove(partition / LOGS[2])
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        undoable(FS, CLOCK, partition, "truncate", work)
    assert files_of(partition) == before and (partition.parent / MARKER).exists()


def test_an_error_at_any_change_takes_everything_back(partition: Path) -> None:
    def work(fs: FileSystem) -> None:
        cut(fs, partition / LOGS[0], 100)
        fs.remove(partition / LOGS[1])
        fs.remove(partition / LOGS[2])
        write(fs, partition.parent / POINTS, b"0\n1\nt 0 3\n")

    before, at, failed = files_of(partition), 0, 0
    while True:
        faults = Faults(at)
        try:
            run = done(partition, work, FaultyFileSystem(faults))
        except OSError:
            failed += 1
            assert files_of(partition) == before, faults.call
        else:
            if faults.calls <= at:
                break
            undo_run(FS, run)  # of what failed nobody has to know
        assert (partition.parent / MARKER).exists(), faults.call
        at += 1
    assert failed > 20
    assert files_of(partition)[LOGS[0]] == before[LOGS[0]][:100]


@pytest.mark.parametrize(
    ("command", "way_out"),
    [("truncate", "--no-keep needs no room for what it cuts: {lost} bytes"), ("recover", "up to {lost} bytes of the")],
)
def test_without_room_nothing_is_cut_and_what_would_be_lost_is_said(
    partition: Path, command: str, way_out: str
) -> None:
    before = files_of(partition)
    lost = len(before[LOGS[0]]) - 100 + len(before[LOGS[2]])

    def work(fs: FileSystem) -> None:
        cut(fs, partition / LOGS[0], 100)
        fs.remove(partition / LOGS[2])
        fs.remove(partition / LOGS[2].replace(".log", ".index"))  # an index is no part of what is lost

    with pytest.raises(RefusedError) as refused:
        undoable(SmallDisk(partition.parent, 0), CLOCK, partition, command, work)
    assert way_out.format(lost=lost) in str(refused.value)
    assert files_of(partition) == before and (partition.parent / MARKER).exists()


def test_without_room_for_new_contents_nothing_changes(partition: Path) -> None:
    before = files_of(partition)
    with pytest.raises(RefusedError, match="nothing was changed"):
        done(partition, lambda fs: write(fs, partition / LOGS[0], b"x" * 10_000), SmallDisk(partition.parent, 4096))
    assert files_of(partition) == before


class Watched(PassingFileSystem):
    """Counts changes to a partition; the log directory's marker must be gone at each."""

    def __init__(self, partition: Path) -> None:
        super().__init__(FS)
        self.partition, self.changes = partition, 0

    def remove(self, path: Path) -> None:
        self._note(path)
        super().remove(path)

    def rename(self, source: Path, target: Path) -> None:
        self._note(source)
        self._note(target)
        super().rename(source, target)

    def _note(self, path: Path) -> None:
        if path.parent == self.partition:
            self.changes += 1
            assert not (self.partition.parent / MARKER).exists()


def test_while_a_run_changes_a_log_no_marker_says_that_it_was_closed(partition: Path) -> None:
    watched, points = Watched(partition), b"0\n1\nt 0 9\n"

    def work(fs: FileSystem) -> None:
        fs.remove(partition / LOGS[2])
        write(fs, partition / LOGS[1], b"other")
        write(fs, partition.parent / POINTS, points)

    done(partition, work, watched)
    assert watched.changes >= 2 and (partition.parent / MARKER).exists()
    assert (partition.parent / POINTS).read_bytes() == points


def test_a_log_directory_that_was_not_closed_stays_so(partition: Path) -> None:
    (partition.parent / MARKER).unlink()
    run = done(partition, lambda fs: fs.remove(partition / LOGS[2]))
    assert run.start["unclean"] and not (partition.parent / MARKER).exists()
    (partition.parent / MARKER).write_text("")
    run = done(partition, lambda fs: fs.remove(partition / LOGS[1]))
    assert not run.start["unclean"] and (partition.parent / MARKER).exists()


@pytest.mark.parametrize("work", [recover, lambda path: repair(path, policy="truncate")])
def test_a_file_with_other_names_is_not_cut_and_no_run_is_left(partition: Path, work: Callable[[Path], object]) -> None:
    """As in a copy made of hard links (`cp -al`): the run could neither be applied nor taken back."""
    for name in (MARKER, POINTS):
        (partition.parent / name).unlink()
    log = partition / LOGS[1]
    log.write_bytes(log.read_bytes()[:-1])
    (partition.parent.parent / "backup").hardlink_to(log)
    before = files_of(partition)
    with pytest.raises(RefusedError, match=rf"^{log} has 2 names[^;]*$"):
        work(partition)
    assert files_of(partition) == before
    assert sorted(path.name for path in partition.parent.iterdir()) in (["t-0"], [".lock", "t-0"])
    assert not any((partition.parent.parent / QUARANTINE).iterdir())
