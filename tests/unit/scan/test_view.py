"""A view of a partition holds still beside a broker: files come, go and grow, and the log is read once, in order."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from seglog.errors import NotALogError
from seglog.scan.listing import list_partition
from seglog.scan.log_walk import WalkedEntries, walk_view
from seglog.scan.view import PartitionView, SingleFile, is_held
from seglog.storage.filesystem import FileStatus, OpenMode
from seglog.storage.frozen import DescriptorBudget, VanishedError
from seglog.storage.local import LocalFile, LocalFileSystem
from seglog.storage.lock import DirectoryLock
from tests.support.log_files import FS, batch, write_segment
from tests.support.manual_clock import ManualClock


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """t-0 with segments 0, 10, 20 of two batches each."""
    for base in (0, 10, 20):
        write_segment(tmp_path / "t-0", base, batch(base, 5), batch(base + 5, 5), index_interval_bytes=1)
    return tmp_path / "t-0"


def view_of(partition: Path, *, hold: bool = True, live: bool = False) -> PartitionView:
    budget = DescriptorBudget(None if hold else 0)
    return PartitionView(FS, partition, live=live, clock=ManualClock(), budget=budget)


def offsets(view: PartitionView, change: Callable[[int], None] = lambda base: None) -> list[int]:
    """The base offsets of the batches; `change` is called after the first piece of each segment."""
    found: list[int] = []
    seen: set[int] = set()
    for segment, step in walk_view(view):
        assert isinstance(step, WalkedEntries)
        found += step.batches["base_offset"].tolist()
        if segment.base_offset not in seen:
            seen.add(segment.base_offset)
            change(segment.base_offset)
    return found


EVERY = [0, 5, 10, 15, 20, 25]


@pytest.mark.parametrize("hold", [True, False], ids=["held", "not held"])
def test_a_log_that_is_left_alone_is_read_in_order(partition: Path, hold: bool) -> None:
    assert offsets(view_of(partition, hold=hold)) == EVERY


def test_held_segments_are_read_though_they_are_deleted(partition: Path) -> None:
    view = view_of(partition)
    shutil.rmtree(partition)
    assert offsets(view) == EVERY


def delete(partition: Path, *bases: int) -> None:
    for base in bases:
        for path in partition.glob(f"{base:020d}.*"):
            path.unlink()


def test_segments_that_were_deleted_before_their_turn_are_passed_over(partition: Path) -> None:
    view = view_of(partition, hold=False)
    found = offsets(view, lambda base: delete(partition, 0, 10) if base == 0 else None)
    assert found == [0, 5, 20, 25]


def test_a_segment_under_its_deleted_name_is_read(partition: Path) -> None:
    def rename(base: int) -> None:
        for path in partition.glob(f"{10:020d}.*") if base == 0 else ():
            path.rename(f"{path}.deleted")

    assert offsets(view_of(partition, hold=False), rename) == EVERY


def test_what_replaced_a_segment_is_read_from_the_offset_that_was_reached(partition: Path) -> None:
    def compact(base: int) -> None:
        if base == 0:
            delete(partition, 0, 10)
            write_segment(partition, 0, batch(0, 1), batch(7, 1), batch(12, 1), batch(19, 1))

    assert offsets(view_of(partition, hold=False), compact) == [0, 5, 12, 19, 20, 25]


def test_a_log_that_was_cut_ends_where_it_ends(partition: Path) -> None:
    def cut(base: int) -> None:
        if base == 0:
            delete(partition, 20)

    assert offsets(view_of(partition, hold=False), cut) == [0, 5, 10, 15]


def test_a_directory_that_never_holds_still_is_looked_at_as_it_is(partition: Path) -> None:
    class Restless(LocalFileSystem):
        def entries(self, directory: Path) -> Sequence[tuple[str, FileStatus]]:
            found = super().entries(directory)
            self.turn = not getattr(self, "turn", False)
            return [*found, (f"{99:020d}.log", found[0][1])] if self.turn else found

    view = PartitionView(Restless(), partition, live=True, clock=ManualClock())
    assert not view.settled and offsets(view) == EVERY


def test_a_directory_that_goes_between_two_looks_at_it_is_none(partition: Path) -> None:
    class Deleted(LocalFileSystem):
        def __init__(self, looks: int) -> None:
            self.looks = looks

        def entries(self, directory: Path) -> Sequence[tuple[str, FileStatus]]:
            if self.looks == 0:
                shutil.rmtree(partition)
            self.looks -= 1
            return super().entries(directory)

    backup = shutil.copytree(partition, partition.with_name("backup"))
    for looks in range(2):
        with pytest.raises(NotALogError, match="t-0: no such directory any more"):
            PartitionView(Deleted(looks), partition, clock=ManualClock())
        shutil.copytree(backup, partition)
    assert offsets(PartitionView(Deleted(2), partition, clock=ManualClock())) == EVERY, "there are no more looks"


def test_a_log_that_goes_faster_than_it_can_be_read_is_given_up(partition: Path) -> None:
    class Vanishing(LocalFileSystem):
        def open(self, path: Path, mode: OpenMode) -> LocalFile:
            raise FileNotFoundError(2, "gone", str(path))

    view = PartitionView(Vanishing(), partition, clock=ManualClock(), budget=DescriptorBudget(0))
    with pytest.raises(VanishedError):
        offsets(view)


def test_a_swap_under_way_is_waited_for(partition: Path) -> None:
    swap = partition / f"{0:020d}.log.swap"
    (partition / f"{0:020d}.log").rename(swap)

    class Finishing(ManualClock):
        def sleep(self, seconds: float) -> None:
            if swap.exists():
                swap.rename(partition / f"{0:020d}.log")

    view = PartitionView(FS, partition, live=True, clock=Finishing())
    assert view.settled and offsets(view) == EVERY
    (partition / f"{0:020d}.log").rename(swap)
    left = PartitionView(FS, partition, live=False, clock=ManualClock())
    assert left.settled and len(left.listing.segments) == 2, "without a broker nobody will finish it"


def test_the_index_of_the_active_segment_is_older_than_its_log(partition: Path) -> None:
    index = partition / f"{20:020d}.index"
    before = index.read_bytes()
    index.write_bytes(before + bytes(64))
    view = view_of(partition, live=True)
    with index.open("r+b") as file:  # as a broker writes through its mapping
        file.seek(len(before))
        file.write(struct.pack(">ii", 9, 99))
    assert view.fs.read_bytes(index) == before + bytes(64)


def test_the_last_segment_of_a_live_log_is_being_written(partition: Path) -> None:
    with view_of(partition, live=True) as view:
        assert [view.is_written(segment) for segment in view.listing.segments] == [False, False, True]
    with view_of(partition) as view:
        assert not any(view.is_written(segment) for segment in view.listing.segments)


HOLDING = "import fcntl,sys; f=open(sys.argv[1],'r+'); fcntl.lockf(f,fcntl.LOCK_EX); print('held',flush=True); input()"


def test_a_lock_that_another_process_holds_makes_a_log_live(partition: Path, tmp_path: Path) -> None:
    elsewhere, linked = tmp_path / "elsewhere" / "linked-0", partition.parent / "linked-0"
    shutil.copytree(partition, elsewhere)
    linked.symlink_to(elsewhere)
    with DirectoryLock(partition.parent):
        assert not is_held(partition.parent), "this process knows what it does"
    command = [sys.executable, "-c", HOLDING, str(partition.parent / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        assert is_held(partition.parent)
        assert PartitionView(FS, partition).live
        assert PartitionView(FS, linked).live, "its broker has no lock beside the link's target"
        assert SingleFile(FS, partition / f"{20:020d}.log").live
        holder.communicate("\n")
    assert not PartitionView(FS, partition).live


def test_a_single_file_knows_its_neighbours(partition: Path) -> None:
    one = SingleFile(FS, partition / f"{10:020d}.log", live=True)
    assert one.listing.segments == list_partition(FS, partition).segments
    lone = partition / f"{10:020d}.log.swap"
    shutil.copy(partition / f"{10:020d}.log", lone)
    (segment,) = SingleFile(FS, lone).listing.segments
    assert (segment.base_offset, segment.log) == (10, lone)


def test_a_view_of_the_working_directory_knows_that_it_is_there(
    partition: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(partition)
    with PartitionView(FS, Path()) as view:
        status = view.fs.status(Path())
        assert status is not None and status.is_directory
        assert offsets(view) == EVERY
