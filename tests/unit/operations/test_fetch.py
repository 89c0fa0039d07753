"""Fetching a partition: what comes is whole, checked, and from one source; what cannot be is an error with a name."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from seglog.errors import CorruptRecordError, LockedError, NotALogError, RefusedError
from seglog.log.indexes import AbortedTransaction, TransactionIndex
from seglog.storage.filesystem import File, FileSystem, OpenMode, PassingFileSystem
from seglog_stores.operations.fetch import FetchOptions, fetch
from tests.support.log_files import FS, batch, files_of, marker, transactional, write_segment


@pytest.fixture
def source(tmp_path: Path) -> Path:
    directory = tmp_path / "source" / "t-0"
    write_segment(directory, 0, batch(0, 3), batch(3, 3))
    write_segment(directory, 6, batch(6, 3))
    write_segment(directory, 9, batch(9, 3))
    (directory / "leader-epoch-checkpoint").write_bytes(b"0\n1\n0 0\n")
    return directory


class Meddling(PassingFileSystem):
    """Does something when a file of a name is opened for the n-th time."""

    def __init__(self, name: str, meddle: object, below: FileSystem = FS) -> None:
        super().__init__(below)
        self.name, self.meddle = name, meddle

    def open(self, path: Path, mode: OpenMode) -> File:
        if path.name == self.name and callable(self.meddle):
            self.meddle()
        return super().open(path, mode)


LOG = f"{6:020d}.log"


def test_a_partition_comes_with_all_that_a_broker_keeps(source: Path, tmp_path: Path) -> None:
    (source / "partition.metadata").write_text("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw")
    wanted = {name: data for name, data in files_of(source).items() if name != "partition.metadata"}
    (tmp_path / "new" / "t-0").mkdir(parents=True)
    seen: list[tuple[int, int]] = []
    done = fetch(FS, source, FS, tmp_path / "new" / "t-0", progress=lambda *now: seen.append(now))
    assert files_of(tmp_path / "new" / "t-0") == wanted
    assert (done.files, done.kept, done.segments, done.first_offset) == (len(wanted), 0, 3, 0)
    assert seen[-1] == (sum(map(len, wanted.values())),) * 2
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [".lock", "t-0"]


def test_what_is_there_already_is_never_touched(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "new" / "t-0"
    write_segment(target, 0, batch(0, 1))
    before = files_of(target)
    with pytest.raises(RefusedError, match="is there already and not empty"):
        fetch(FS, source, FS, target)
    assert files_of(target) == before
    with pytest.raises(RefusedError, match="only a directory named TOPIC-NUMBER"):
        fetch(FS, source, FS, tmp_path / "orders")
    with pytest.raises(NotALogError):
        fetch(FS, tmp_path, FS, tmp_path / "new" / "t-1")


@pytest.mark.parametrize("below", ["t-1", "new/t-0"])
def test_a_partition_is_not_fetched_into_itself(source: Path, below: str) -> None:
    before = files_of(source)
    with pytest.raises(RefusedError, match="lies in the partition"):
        fetch(FS, source, FS, source / below)
    assert files_of(source) == before and not (source / below.split("/")[0]).exists()


def test_a_partition_that_has_come_is_not_brought_again(source: Path, tmp_path: Path) -> None:
    """Of several the first ones have their names when a fetch is killed: the next one goes on with the others."""
    target = tmp_path / "new" / "t-0"
    count = fetch(FS, source, FS, target).files
    (target / "partition.metadata").write_text("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw")
    before = files_of(target)
    again = fetch(FS, source, FS, target)
    assert (again.files, again.bytes, again.kept, again.segments, again.first_offset) == (0, 0, count, 3, 0)
    assert files_of(target) == before


@pytest.mark.parametrize("other", [f"{0:020d}.log", f"{9:020d}.log"])
def test_a_log_of_the_same_sizes_is_not_taken_for_the_source_s(source: Path, tmp_path: Path, other: str) -> None:
    target = tmp_path / "new" / "t-0"
    fetch(FS, source, FS, target)
    first = int(other[:20])
    changed = (batch(first, 3, timestamp=7), batch(3, 3)) if first == 0 else (batch(first, 3, timestamp=7),)
    before = (source / other).stat().st_size
    (source / other).write_bytes(b"".join(changed))
    assert (source / other).stat().st_size == before
    with pytest.raises(RefusedError, match="is there already and not empty"):
        fetch(FS, source, FS, target)


@pytest.mark.parametrize("change", ["a byte", "a file more", "a file less", "a record more"])
def test_a_partition_that_is_not_the_source_s_any_more_is_refused(source: Path, tmp_path: Path, change: str) -> None:
    target = tmp_path / "new" / "t-0"
    fetch(FS, source, FS, target)
    if change == "a byte":
        data = bytearray((target / LOG).read_bytes())
        data[-1] ^= 1
        (target / LOG).write_bytes(data)
    elif change == "a file more":
        (target / f"{12:020d}.snapshot").write_bytes(b"")
    elif change == "a file less":
        (target / "leader-epoch-checkpoint").unlink()
    else:
        (target / f"{9:020d}.log").write_bytes(batch(9, 3) + batch(12, 1))
    before = files_of(target)
    with pytest.raises(RefusedError, match="is there already and not empty"):
        fetch(FS, source, FS, target)
    assert files_of(target) == before


def test_damage_and_missing_offsets_are_errors_that_name_the_source(source: Path, tmp_path: Path) -> None:
    target, log = tmp_path / "new" / "t-0", source / LOG
    good = log.read_bytes()
    log.write_bytes(good[:-1] + b"\xff")
    with pytest.raises(
        CorruptRecordError,
        match=rf"source/t-0/{LOG}: position 0: the checksum of the batch is wrong \(offsets 6 to 8\)",
    ):
        fetch(FS, source, FS, target)
    log.write_bytes(good + b"torn")
    with pytest.raises(CorruptRecordError, match="4 bytes are not a batch"):
        fetch(FS, source, FS, target)
    log.write_bytes(batch(7, 2))
    with pytest.raises(RefusedError, match=rf"{LOG}: offsets 6 to 6 are missing; with --allow-gaps"):
        fetch(FS, source, FS, target)
    log.write_bytes(batch(6, 2))
    with pytest.raises(RefusedError, match="offsets 8 to 8 are missing"):
        fetch(FS, source, FS, target)
    assert not target.exists()
    done = fetch(FS, source, FS, target, FetchOptions(allow_gaps=True))
    assert [sentence.partition(": ")[2] for sentence in done.gaps] == ["offsets 8 to 8 are missing"]
    assert files_of(target) == files_of(source)


def test_a_source_that_changes_or_vanishes_is_an_error_and_the_next_run_goes_on(source: Path, tmp_path: Path) -> None:
    target, log = tmp_path / "new" / "t-0", source / LOG
    good = log.read_bytes()
    with pytest.raises(RefusedError, match=rf"{LOG} has vanished meanwhile"):
        fetch(Meddling(LOG, log.unlink), source, FS, target)
    log.write_bytes(good)
    with pytest.raises(RefusedError, match="changed"):
        fetch(Meddling(LOG, lambda: log.write_bytes(batch(6, 1))), source, FS, target)
    log.write_bytes(good)
    other = source / f"{0:020d}.log"
    with pytest.raises(RefusedError, match=rf"{other.name} was changed or removed meanwhile"):
        fetch(Meddling(LOG, lambda: other.write_bytes(other.read_bytes() + batch(6, 1))), source, FS, target)
    other.write_bytes(batch(0, 3) + batch(3, 3))
    assert not target.exists()
    done = fetch(FS, source, FS, target)
    assert done.kept > 0 and files_of(target) == files_of(source)


def test_two_fetches_to_one_place_do_not_meet(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "new" / "t-0"

    def second() -> None:
        with pytest.raises(LockedError, match="another fetch to the same place"):
            fetch(FS, source, FS, target)

    fetch(Meddling(LOG, second), source, FS, target)
    assert files_of(target) == files_of(source)


def test_a_staging_directory_that_others_may_write_is_not_gone_on_with(source: Path, tmp_path: Path) -> None:
    target, log = tmp_path / "new" / "t-0", source / LOG
    good = log.read_bytes()
    with pytest.raises(RefusedError, match="vanished"):
        fetch(Meddling(LOG, log.unlink), source, FS, target)
    log.write_bytes(good)
    (staging,) = tmp_path.glob("new/*-future")
    staging.chmod(0o777)
    with pytest.raises(RefusedError, match="may be written by other users"):
        fetch(FS, source, FS, target)
    assert not target.exists()


# --- transaction indexes


@pytest.fixture
def aborted(tmp_path: Path) -> Path:
    """Three segments: each ends a transaction that began before it, and the second also begins and ends its own."""
    directory = tmp_path / "source" / "t-0"
    write_segment(directory, 0, batch(0, 3), transactional(3, 7, 0))
    own = (transactional(6, 8, 0), marker(7, 8, commit=False))
    write_segment(directory, 4, marker(4, 7, commit=False), transactional(5, 7, 1), *own)
    write_segment(directory, 8, marker(8, 7, commit=True), batch(9, 1))
    (directory / "leader-epoch-checkpoint").write_bytes(b"0\n1\n0 0\n")
    index = TransactionIndex(FS, directory / f"{4:020d}.txnindex", 4)
    for entry in (AbortedTransaction(7, 3, 4, 5), AbortedTransaction(8, 6, 7, 5)):
        index.append(entry)
    index.close_file()
    return directory


def entries(directory: Path) -> dict[int, list[tuple[int, int, int]]]:
    """By base offset the producers, first and last offsets in the transaction indexes."""
    found = {int(path.stem): TransactionIndex(FS, path, int(path.stem)) for path in directory.glob("*.txnindex")}
    each = {
        base: [(e.producer_id, e.first_offset, e.last_offset) for e in index.entries] for base, index in found.items()
    }
    return {base: listed for base, listed in sorted(each.items()) if listed}


ABORTED = {4: [(7, 3, 4), (8, 6, 7)]}
WRONG = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-5]),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "of an unknown version": lambda path: path.write_bytes(b"\1" + path.read_bytes()[1:]),
    "twice": lambda path: path.write_bytes(path.read_bytes() * 2),
    "in another order": lambda path: path.write_bytes(path.read_bytes()[34:] + path.read_bytes()[:34]),
    "with one more": lambda path: path.write_bytes(path.read_bytes() + struct.pack(">hqqqq", 0, 9, 5, 9, 10)),
    "of another segment": lambda path: path.rename(path.with_name(f"{8:020d}.txnindex")),
}


@pytest.mark.parametrize("state", WRONG)
def test_a_transaction_index_that_the_source_lacks_or_has_wrong_is_made_anew(
    aborted: Path, tmp_path: Path, state: str
) -> None:
    assert entries(aborted) == ABORTED
    WRONG[state](aborted / f"{4:020d}.txnindex")
    target = tmp_path / "new" / "t-0"
    done = fetch(FS, aborted, FS, target)
    assert entries(target) == ABORTED
    assert f"{4:020d}.txnindex was made anew from the records: " in done.made_anew[0]
    logs = {name: data for name, data in files_of(aborted).items() if not name.endswith(".txnindex")}
    assert {name: data for name, data in files_of(target).items() if not name.endswith(".txnindex")} == logs
    (made,) = target.glob("*.txnindex")
    assert made.stat().st_mode == (target / f"{4:020d}.log").stat().st_mode
    again = fetch(FS, aborted, FS, target)
    assert (again.files, again.made_anew, entries(target)) == (0, (), ABORTED), "what has come stays"
    WRONG["empty"](made)
    with pytest.raises(RefusedError, match="is there already and not empty"):
        fetch(FS, aborted, FS, target)


def test_right_transaction_indexes_come_as_they_are(aborted: Path, tmp_path: Path) -> None:
    done = fetch(FS, aborted, FS, tmp_path / "new" / "t-0")
    assert files_of(tmp_path / "new" / "t-0") == files_of(aborted) and done.made_anew == ()


def test_a_transaction_that_began_before_the_source_stays_in_its_index(aborted: Path, tmp_path: Path) -> None:
    """As in a tier whose first segments have expired: only the index knows where that transaction began."""
    for path in aborted.glob(f"{0:020d}.*"):
        path.unlink()
    index = aborted / f"{4:020d}.txnindex"
    index.write_bytes(index.read_bytes()[:34])  # that of producer 8 is lost
    done = fetch(FS, aborted, FS, tmp_path / "new" / "t-0")
    assert entries(tmp_path / "new" / "t-0") == ABORTED
    assert "producer 8 that aborted at 7 is not in the index" in done.made_anew[0]


def test_a_fetch_that_was_cut_short_still_makes_them_anew(aborted: Path, tmp_path: Path) -> None:
    WRONG["missing"](aborted / f"{4:020d}.txnindex")
    target = tmp_path / "new" / "t-0"

    def ended() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(Meddling("leader-epoch-checkpoint", ended), aborted, FS, target)
    done = fetch(FS, aborted, FS, target)
    assert done.kept > 3 and entries(target) == ABORTED and done.made_anew
