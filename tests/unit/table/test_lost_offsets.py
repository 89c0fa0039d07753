"""Offsets that a log should hold and does not, and bytes after its last batch: which are an error, which lawful."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from seglog.errors import CorruptRecordError, IncompleteError, SeglogError
from seglog.storage.local import LocalFileSystem
from seglog_ask.spark.read_options import parse_read_options
from seglog_ask.table.engines.arrow import split_batches
from seglog_ask.table.plan.schema import default_projection
from seglog_ask.table.plan.splits import plan_splits
from seglog_ask.table.read import continuity, reading
from tests.support import fixtures, log_files

FS = LocalFileSystem()
DELETED, COMPACTED = "orders-none-0", "customers-0"  # by the policy in the fixture's metadata
LAST = f"{750:020}.log"  # of orders-none-0, whose high watermark is 790
HINTS = r"(onCorrupt=skip reads the rest|failOnDataLoss=false goes on)"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A broker's log directory after an orderly stop."""
    return fixtures.fixture_copy("4.3.0/clean", tmp_path)


@pytest.fixture
def killed(logs: Path) -> Path:
    """The same as a killed broker would have left it."""
    (logs / ".kafka_cleanshutdown").unlink()
    return logs


def offsets(path: Path, **given: str) -> list[int]:
    options = parse_read_options({"path": str(path), **given})
    projection = default_projection("records", ("offset",), False)
    found: list[int] = []
    for split in plan_splits(FS, options):
        for batch in split_batches(FS, split, projection, options):
            found += batch.column(0).to_pylist()
    return found


def findings(path: Path, **given: str) -> list[dict[str, object]]:
    options = parse_read_options({"path": str(path), "view": "findings", **given})
    projection = default_projection("findings", None, False)
    batches = (b for split in plan_splits(FS, options) for b in split_batches(FS, split, projection, options))
    return [row for batch in batches for row in batch.to_pylist()]


def alone(partition: Path) -> Path:
    """Moves a partition to where nothing is known of it."""
    place = partition.parent.parent / "alone" / partition.name
    place.parent.mkdir()
    return Path(shutil.move(partition, place))


def cut(path: Path, size: int) -> None:
    os.truncate(path, size if size >= 0 else path.stat().st_size + size)


def end_with(path: Path, data: bytes) -> None:
    path.write_bytes(path.read_bytes() + data)


def at_a_batch(path: Path) -> None:
    """Cuts off the last batch."""
    cut(path, int(log_files.rows_of(path.read_bytes())[1]["position"][-1]))


UNFINISHED = log_files.batch(790, 5, value=b"v" * 100)[:-40]
AFTER_THE_END: dict[str, tuple[Callable[[Path], None], str]] = {
    "torn": (
        lambda path: cut(path, -9),
        rf"{LAST}: position \d+: the last batch is not complete.*offsets 7\d\d to 789",
    ),
    "cut at a batch": (at_a_batch, rf"{LAST}: position \d+: offsets 7\d\d to 789 are missing.*high watermark 790"),
    "garbage": (lambda path: end_with(path, b"garbage" * 30), rf"{LAST}: position 4688: after the last batch.*790"),
    "a few bytes": (lambda path: end_with(path, b"\1\2\3"), rf"{LAST}: position 4688: after the last batch.*790"),
    "zeros": (lambda path: end_with(path, bytes(300)), rf"{LAST}: position 4688: zeros.* stopped in order.*790"),
    "unfinished": (lambda path: end_with(path, UNFINISHED), rf"{LAST}: position 4688: .*stopped in order.*790 to 794"),
    "emptied": (lambda path: cut(path, 0), rf"{LAST}: position 0: offsets 750 to 789 are missing"),
    "removed": (lambda path: path.unlink(), rf"{500:020}.log: position 29978: offsets 750 to 789 are missing"),
}


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("damage", AFTER_THE_END)
def test_what_is_wrong_at_the_end_of_a_log_is_an_error_that_names_file_position_and_offsets(
    logs: Path, damage: str, isolation: str
) -> None:
    change, said = AFTER_THE_END[damage]
    change(logs / DELETED / LAST)
    with pytest.raises((CorruptRecordError, IncompleteError), match=f"(?s){said}") as caught:
        offsets(logs, subscribe="orders-none", isolationLevel=isolation)
    assert re.search(HINTS, str(caught.value))
    found = offsets(logs, subscribe="orders-none", isolationLevel=isolation, onCorrupt="skip", failOnDataLoss="false")
    assert found == list(range(len(found))) and len(found) >= 750
    assert findings(logs / DELETED, failOnDataLoss="false")


@pytest.mark.parametrize("data", [b"", UNFINISHED, UNFINISHED[:12], UNFINISHED[:3], bytes(300)])
def test_what_a_killed_broker_left_unfinished_is_no_error(killed: Path, data: bytes) -> None:
    end_with(killed / DELETED / LAST, data)
    assert offsets(killed, subscribe="orders-none") == list(range(790))
    assert [row["kind"] for row in findings(killed / DELETED)] == ["torn tail"] * bool(data)


@pytest.mark.parametrize("damage", ["torn", "cut at a batch", "garbage", "a few bytes", "emptied", "removed"])
def test_a_killed_brokers_acknowledged_records_are_not_given_up_in_silence(killed: Path, damage: str) -> None:
    change, said = AFTER_THE_END[damage]
    change(killed / DELETED / LAST)
    with pytest.raises((CorruptRecordError, IncompleteError), match=f"(?s){said}"):
        offsets(killed)


def test_a_torn_tail_that_no_checkpoint_explains_is_an_error(logs: Path) -> None:
    partition = alone(logs / DELETED)
    cut(partition / LAST, -9)
    with pytest.raises(CorruptRecordError, match="no checkpoint of a high watermark shows whether it was acknowledged"):
        offsets(partition)
    assert len(offsets(partition, onCorrupt="skip")) >= 750


def test_what_a_running_broker_is_writing_is_no_error(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end_with(logs / DELETED / LAST, UNFINISHED)
    monkeypatch.setattr(continuity, "is_held", lambda path: path == logs)  # by another process
    assert offsets(logs, subscribe="orders-none") == list(range(790))


def test_a_batch_that_is_completed_while_it_is_looked_at_is_read(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = alone(logs / DELETED)
    whole = log_files.batch(790, 5)
    end_with(partition / LAST, whole[:-20])
    slept = []

    def complete(seconds: float) -> None:
        """The writer goes on while the reader waits."""
        slept.append(seconds)
        if len(slept) == 2:
            with (partition / LAST).open("ab") as file:
                file.write(whole[-20:])

    monkeypatch.setattr(reading.time, "sleep", complete)
    assert offsets(partition) == list(range(795))
    assert len(slept) == 2


HOLES: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "a middle segment's log is gone": (DELETED, lambda p: (p / f"{350:020}.log").unlink(), "350 to 499"),
    "a middle segment is gone": (
        DELETED,
        lambda p: [f.unlink() for f in p.glob(f"{350:020}.*")] and None,
        "350 to 499",
    ),
    "the first segment is empty": (DELETED, lambda p: cut(p / f"{0:020}.log", 0), "0 to 349"),
    "a middle segment is empty": (DELETED, lambda p: cut(p / f"{500:020}.log", 0), "500 to 749"),
    "the end of a segment is gone": (DELETED, lambda p: at_a_batch(p / f"{0:020}.log"), r"3\d\d to 349"),
}


@pytest.mark.parametrize("place", ["with its metadata", "alone"])
@pytest.mark.parametrize("hole", HOLES)
def test_a_hole_in_a_log_that_was_never_compacted_is_data_loss(logs: Path, hole: str, place: str) -> None:
    name, change, lost = HOLES[hole]
    partition = logs / name if place == "with its metadata" else alone(logs / name)
    change(partition)
    with pytest.raises(
        IncompleteError, match=rf"\.log: position \d+: offsets {lost} are missing: .*failOnDataLoss=false"
    ):
        offsets(partition)
    assert 0 < len(offsets(partition, failOnDataLoss="false")) < 790
    rows = [(row["kind"], f"{row['firstOffset']} to {row['lastOffset']}") for row in findings(partition)]
    assert len(rows) == 1 and rows[0][0] == "missing"


def test_a_hole_inside_a_segment_is_data_loss_where_the_policy_deletes(logs: Path) -> None:
    path = logs / DELETED / f"{350:020}.log"
    data = path.read_bytes()
    rows = log_files.rows_of(data)[1]
    second, third = int(rows["position"][1]), int(rows["position"][2])
    path.write_bytes(data[:second] + data[third:])
    lost = f"{rows['base_offset'][1]} to {rows['last_offset'][1]}"
    with pytest.raises(IncompleteError, match=f"{path.name}: position {second}: offsets {lost} are missing"):
        offsets(logs, subscribe="orders-none")


def test_a_read_that_does_not_want_the_missing_offsets_goes_on(logs: Path) -> None:
    (logs / DELETED / f"{350:020}.log").unlink()
    cut(logs / DELETED / LAST, -9)
    given = {"startingOffsets": '{"orders-none":{"0":500}}', "endingOffsets": '{"orders-none":{"0":740}}'}
    assert offsets(logs / DELETED, **given)[0] == 500
    assert offsets(logs / DELETED, where="offset >= 10 AND offset < 350") == list(range(10, 350))
    with pytest.raises(IncompleteError, match="offsets 350 to 399 are missing"):
        offsets(logs / DELETED, where="offset >= 340 AND offset < 400")


@pytest.mark.parametrize("place", ["with its metadata", "alone"])
def test_the_holes_of_a_compacted_log_are_lawful(logs: Path, place: str) -> None:
    for name in ("customers-0", "customers-1", "payments-compact-0", "both-0"):
        partition = logs / name if place == "with its metadata" else alone(logs / name)
        found = offsets(partition)
        assert found == sorted(set(found))
        if place == "alone":
            shutil.rmtree(partition.parent)


def test_the_holes_that_a_cleaner_left_before_the_policy_changed_are_lawful(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    for first in (0, 10, 40):
        log_files.write_segment(directory, first, log_files.batch(first, 5))
    with pytest.raises(IncompleteError, match="offsets 5 to 9 are missing"):
        offsets(directory)
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 40\n")
    assert len(offsets(directory)) == 15


@pytest.mark.parametrize("given", [{}, {"subscribe": "orders-none"}, {"assign": '{"orders-none": [0]}'}], ids=str)
def test_a_partition_whose_directory_is_gone_is_data_loss(logs: Path, given: dict[str, str]) -> None:
    if not given:
        expected = offsets(logs)
    shutil.rmtree(logs / DELETED)
    with pytest.raises(IncompleteError, match=rf"{DELETED}: offsets \d+ to 789 are missing: there is no directory"):
        offsets(logs, **given)
    if not given:
        assert 0 < len(offsets(logs, failOnDataLoss="false")) < len(expected)
    assert offsets(logs, subscribe="customers") and offsets(logs, where="topic = 'customers'")  # nobody asks for it
    assert offsets(logs / COMPACTED)


def test_a_partition_that_is_being_deleted_or_lies_in_another_directory_is_no_loss(logs: Path, tmp_path: Path) -> None:
    moved = tmp_path / "second"
    moved.mkdir()
    shutil.copy(logs / "meta.properties", moved)
    (logs / DELETED).rename(moved / DELETED)
    both = f'["{logs}", "{moved}"]'
    options = parse_read_options({"paths": both, "subscribe": "orders-none"})
    assert len(plan_splits(FS, options)) > 0
    (moved / DELETED).rename(logs / f"{DELETED}.{32 * '0'}-delete")
    assert offsets(logs)


def test_a_partition_without_any_segment_that_had_acknowledged_records_is_data_loss(logs: Path) -> None:
    for path in (logs / DELETED).glob("*.log"):
        path.unlink()
    with pytest.raises(IncompleteError, match=f"{DELETED}: offsets 0 to 789 are missing"):
        offsets(logs)
    assert offsets(logs, subscribe="orders-none", failOnDataLoss="false") == []


@pytest.mark.parametrize("fixture", ["4.3.0/clean", "4.3.0/killed", "4.3.0/generated", "0.10.2", "0.8.2"])
def test_what_brokers_wrote_has_nothing_missing(fixture: str, tmp_path: Path) -> None:
    home = fixtures.fixture_copy(fixture, tmp_path)
    for directory in {path.parent.parent for path in home.rglob(f"{0:020}.log")} or {home}:
        try:
            assert offsets(directory)
        except SeglogError as error:
            raise AssertionError(str(error)) from error
