"""Each rule of verification notices what it is there for, and where."""

from __future__ import annotations

import errno
import re
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog.format.control import encode_control_key, encode_control_value
from seglog.model import ControlType, Record
from seglog.scan.listing import Target, TargetKind, resolve_paths
from seglog.storage.filesystem import OpenMode
from seglog.storage.local import LocalFile, LocalFileSystem
from seglog.verification.codes import Notice, Severity
from seglog.verification.findings import Finding
from seglog.verification.verify import Level, Verification, VerifyOptions, VerifySummary
from tests.support import log_files as logs
from tests.support.log_files import encode_message_set
from tests.support.manual_clock import ManualClock
from tests.support.naive import NaiveRecord, batch_v2
from tests.support.watched_files import CountingFileSystem

FS = LocalFileSystem()


def verified(path: Path, level: Level = Level.SEMANTIC, **options: Any) -> tuple[list[Finding], VerifySummary]:
    verification = Verification(FS, resolve_paths(FS, [path]), VerifyOptions(level=level, **options), ManualClock(0))
    return list(verification), verification.summary


def codes(path: Path, level: Level = Level.RECORD, **options: Any) -> list[str]:
    return [found.code for found in verified(path, level, **options)[0]]


def rebatched(number: int, **changes: Any) -> list[bytes]:
    """Plain batches, one of them built with other fields (its checksum is right)."""
    batches = logs.plain_batches()
    arguments: dict[str, Any] = {"base_offset": 3 * number, "records": logs.records(3, number), **changes}
    batches[number] = batch_v2(base_timestamp=1000 + 10 * number, **arguments)
    return batches


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"base_offset": 5}, "OFFSETS_NOT_ASCENDING"),
        ({"base_offset": 2**33}, "OFFSET_OUT_OF_SEGMENT"),
        ({"attributes": 7}, "CODEC_UNKNOWN"),
        ({"last_offset_delta": -1}, "OFFSET_DELTA_INVALID"),
        ({"last_offset_delta": 1}, "COUNT_INVALID"),
        ({"attributes": 0x10}, "PRODUCER_INVALID"),
        ({"attributes": 0x20, "producer": (7, 0, -1)}, "CONTROL_INVALID"),
        ({"max_timestamp": -2}, "TIMESTAMP_NEGATIVE"),
    ],
)
def test_an_impossible_header_is_reported_at_the_lowest_level(
    changes: dict[str, Any], code: str, tmp_path: Path
) -> None:
    batches = rebatched(3, **changes)
    found, summary = verified(logs.write_log(tmp_path, batches), Level.HEADER)
    told = [item for item in found if item.code == code]
    assert [item.position for item in told] == [sum(map(len, batches[:3]))]
    assert summary.damaged


@pytest.mark.parametrize("level", Level)
def test_krafts_control_batches_have_several_records_and_no_producer(level: Level, tmp_path: Path) -> None:
    """What the first leader of a dynamic quorum writes: leader change, kraft.version and voters in one batch."""
    version = encode_control_value(ControlType.KRAFT_VERSION, {"version": 0, "kRaftVersion": 1})
    record = NaiveRecord(0, 0, encode_control_key(ControlType.KRAFT_VERSION), version)
    batches = rebatched(3, records=[replace(record, offset_delta=i) for i in range(3)], attributes=0x20)
    assert "CONTROL_INVALID" not in codes(logs.write_log(tmp_path, batches), level)


def test_an_unknown_magic_is_reported_though_no_checksum_covers_it(tmp_path: Path) -> None:
    batches = logs.plain_batches()
    batches[1] = batches[1][:16] + b"\x05" + batches[1][17:]
    assert codes(logs.write_log(tmp_path, batches), Level.CRC) == ["MAGIC_UNKNOWN"]


def test_a_falling_leader_epoch_is_reported(tmp_path: Path) -> None:
    batches = rebatched(3, leader_epoch=4)
    assert codes(logs.write_log(tmp_path, batches), Level.CRC) == ["LEADER_EPOCH_DECREASING"] * 4


def test_a_batch_without_a_leader_epoch_is_below_none(tmp_path: Path) -> None:
    assert codes(logs.write_log(tmp_path, rebatched(3, leader_epoch=-1)), Level.CRC) == []
    assert codes(logs.write_log(tmp_path, rebatched(3, leader_epoch=-2)), Level.CRC) == ["LEADER_EPOCH_DECREASING"]


def test_a_flipped_bit_costs_one_batch(tmp_path: Path) -> None:
    batches = logs.plain_batches()
    batches[2] = batches[2][:70] + bytes([batches[2][70] ^ 4]) + batches[2][71:]
    path = logs.write_log(tmp_path, batches)
    found, summary = verified(path, Level.CRC)
    assert [(f.code, f.first_offset, f.last_offset, f.offsets_lost) for f in found] == [("CRC_MISMATCH", 6, 8, 3)]
    assert (summary.batches, summary.damaged_bytes, summary.lost_offsets) == (7, len(batches[2]), 3)
    assert summary.bytes + summary.damaged_bytes == path.stat().st_size
    assert codes(path, Level.HEADER) == []


def test_a_damaged_size_field_hides_no_batch_after_it(tmp_path: Path) -> None:
    batches = logs.plain_batches()
    swallowed = struct.pack(">i", len(batches[2]) + len(batches[3]) - 12)
    batches[2] = batches[2][:8] + swallowed + batches[2][12:]
    found, summary = verified(logs.write_log(tmp_path, batches), Level.CRC)
    assert [(f.code, f.length, f.first_offset, f.last_offset) for f in found] == [
        ("UNREADABLE_BYTES", len(batches[2]), 6, 8)
    ]
    assert summary.batches == 7


def test_a_torn_tail_is_expected_of_a_live_log_only(tmp_path: Path) -> None:
    batches = logs.plain_batches()
    path = logs.write_log(tmp_path, [*batches[:-1], batches[-1][:-9]])
    assert codes(path, Level.CRC) == ["TORN_TAIL"]
    assert codes(path, Level.CRC, live=True) == []


@pytest.mark.parametrize(
    ("record", "code"),
    [
        (NaiveRecord(1, 0, b"k", b"v"), "RECORD_OFFSETS_INVALID"),
        (NaiveRecord(2, 10**6, b"k", b"v"), "RECORD_TIMESTAMP_ABOVE_MAX"),
    ],
)
def test_records_are_judged_under_a_right_checksum(record: NaiveRecord, code: str, tmp_path: Path) -> None:
    inner = [*logs.records(2), record]
    path = logs.write_log(tmp_path, rebatched(4, records=inner, max_timestamp=1050, last_offset_delta=2))
    assert codes(path, Level.CRC) == []
    assert codes(path, Level.RECORD) == [code]


def test_a_body_that_cannot_be_decoded_is_reported(tmp_path: Path) -> None:
    path = logs.write_log(tmp_path, rebatched(4, payload=b"\x7f" * 40))
    found, summary = verified(path, Level.RECORD)
    assert [(f.code, f.offsets_lost) for f in found] == [("RECORDS_INVALID", 3)]
    assert found[0].message.endswith("; 0 records of the batch can be read")
    assert (summary.batches, summary.records) == (8, 21)


def with_indexes(tmp_path: Path, offset_index: bytes, time_index: bytes) -> Path:
    path = logs.write_log(tmp_path, logs.plain_batches())
    path.with_suffix(".index").write_bytes(offset_index)
    path.with_suffix(".timeindex").write_bytes(time_index)
    return path


def entry(number: int) -> tuple[int, int]:
    batches = logs.plain_batches()
    return 3 * number + 2, sum(map(len, batches[:number]))


GOOD_INDEX = struct.pack(">iiii", *entry(2), *entry(5))
GOOD_TIMES = struct.pack(">qiqi", 1022, 8, 1072, 23)


def test_good_indexes_are_good(tmp_path: Path) -> None:
    assert codes(with_indexes(tmp_path, GOOD_INDEX, GOOD_TIMES), Level.INDEX) == []


@pytest.mark.parametrize(
    ("index", "times", "code"),
    [
        (struct.pack(">ii", 8, entry(2)[1] + 1), GOOD_TIMES, "OFFSET_INDEX_INVALID"),
        (struct.pack(">ii", 5, entry(2)[1]), GOOD_TIMES, "OFFSET_INDEX_INVALID"),
        (struct.pack(">ii", 8, 10**6), GOOD_TIMES, "OFFSET_INDEX_INVALID"),
        (GOOD_INDEX + GOOD_INDEX[:8], GOOD_TIMES, "OFFSET_INDEX_INVALID"),
        (GOOD_INDEX[:-3], GOOD_TIMES, "INDEX_SIZE_INVALID"),
        (GOOD_INDEX + bytes(80), GOOD_TIMES, "INDEX_PREALLOCATED"),
        (GOOD_INDEX, struct.pack(">qi", 1010, 8), "TIME_INDEX_INVALID"),
        (GOOD_INDEX, struct.pack(">qi", 9999, 8), "TIME_INDEX_INVALID"),
        (GOOD_INDEX, struct.pack(">qi", 1072, 99), "TIME_INDEX_INVALID"),
        (GOOD_INDEX, GOOD_TIMES[12:] + GOOD_TIMES[:12], "TIME_INDEX_INVALID"),
    ],
)
def test_a_wrong_index_is_reported(index: bytes, times: bytes, code: str, tmp_path: Path) -> None:
    assert set(codes(with_indexes(tmp_path, index, times), Level.INDEX)) == {code}


@pytest.mark.parametrize(
    ("kept", "entries"), [(0, "it has no entry"), (16, "its last entry leads to position 2000144")]
)
def test_an_offset_index_that_ends_long_before_its_log_is_reported_and_made_anew(
    kept: int, entries: str, tmp_path: Path
) -> None:
    """Such as kafka-dump-log 4.3 and 4.4 leave where there is none (findings/kafka-dump-log-leaves-an-empty-index)."""
    with seglog.open_log(tmp_path / "t-0", create=True) as log:
        for number in range(20):
            log.append([Record(bytes(1_000_000), timestamp=number)])
    index = tmp_path / "t-0" / f"{0:020d}.index"
    whole = index.read_bytes()
    index.write_bytes(whole[:kept])
    (short,) = seglog.verify(tmp_path / "t-0")
    assert (short.code, short.file) == ("OFFSET_INDEX_SHORT", index.name)
    assert re.fullmatch(entries + ", and the last batch lies 1[79][0-9]{6} bytes after that", short.message)
    seglog.repair(tmp_path / "t-0")
    assert index.read_bytes() == whole and list(seglog.verify(tmp_path / "t-0")) == []


def aborted(*entries: tuple[int, int, int, int]) -> bytes:
    return b"".join(struct.pack(">hqqqq", 0, *found) for found in entries)


RIGHT_ABORTED = (7, 0, 2, 3), (7, 6, 8, 9)


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        (aborted(*RIGHT_ABORTED), 0),
        (b"", 2),
        (aborted(RIGHT_ABORTED[0]), 1),
        (aborted(RIGHT_ABORTED[0], (7, 7, 8, 9)), 1),
        (aborted(RIGHT_ABORTED[0], (7, 6, 8, 6)), 1),
        (aborted(*RIGHT_ABORTED, (8, 9, 11, 12)), 1),
        (aborted((7, 0, 2, 6), RIGHT_ABORTED[1]), 0),  # one append brought the transaction at 6 as well
        (aborted((7, 0, 2, 7), RIGHT_ABORTED[1]), 1),  # who reads 6 alone would not get to know that it aborted
        (aborted(RIGHT_ABORTED[0], (7, 6, 8, 10)), 0),
        (aborted(RIGHT_ABORTED[0], (7, 6, 8, 1000)), 1),
    ],
)
def test_the_transaction_index_must_be_the_one_the_log_gives(content: bytes, wrong: int, tmp_path: Path) -> None:
    path = logs.write_log(tmp_path, logs.transactional_batches())
    path.with_suffix(".txnindex").write_bytes(content)
    assert codes(path.parent, Level.SEMANTIC).count("TRANSACTION_INDEX_DIFFERS") == wrong


def test_leader_epochs_must_fit_the_log(tmp_path: Path) -> None:
    path = logs.write_log(tmp_path, logs.plain_batches())
    checkpoint = path.parent / "leader-epoch-checkpoint"
    for content, wrong in (
        (b"0\n1\n0 0\n", 0),
        (b"0\n2\n0 0\n1 24\n", 0),
        (b"0\n1\n3 0\n", 1),
        (b"0\n2\n0 0\n1 99\n", 1),
        (b"0\n2\n0 0\n4 15\n", 1),  # what the log has from there on is of an earlier epoch
        (b"0\n1\n0 10\n", 0),  # it begins late
    ):
        checkpoint.write_bytes(content)
        assert codes(path.parent, Level.SEMANTIC).count("LEADER_EPOCHS_DIFFER") == wrong, content


def test_an_epoch_may_not_begin_before_the_last_batch_of_the_one_before(tmp_path: Path) -> None:
    """Kafka finds the earlier epoch's end where the next one is said to begin, and a follower cuts its log there."""
    logs.write_segment(tmp_path / "t-0", 0, logs.batch(0, 25), logs.batch(25, 25), logs.batch(50, 10, epoch=4))
    checkpoint = tmp_path / "t-0" / "leader-epoch-checkpoint"
    for start, wrong in ((30, 1), (49, 1), (50, 0)):
        checkpoint.write_text(f"0\n2\n0 0\n4 {start}\n")
        assert codes(tmp_path / "t-0", Level.SEMANTIC).count("LEADER_EPOCHS_DIFFER") == wrong, start


def test_messages_of_an_old_magic_have_a_broker_forget_the_epochs_before_them(tmp_path: Path) -> None:
    batches = logs.plain_batches()
    batches[3] = encode_message_set([Record(b"v", timestamp=1000)] * 3, 9, 1)
    path = logs.write_log(tmp_path, batches)
    checkpoint = path.parent / "leader-epoch-checkpoint"
    for content, wrong in (
        (b"0\n0\n", 0),  # as appending them leaves it
        (b"0\n1\n0 12\n", 0),  # and the next batch
        (b"0\n1\n0 0\n", 0),  # as recovery does
        (b"0\n1\n3 0\n", 1),
    ):
        checkpoint.write_bytes(content)
        assert codes(path.parent, Level.SEMANTIC).count("LEADER_EPOCHS_DIFFER") == wrong, content


def test_checkpoints_must_lie_within_the_log(tmp_path: Path) -> None:
    logs.write_log(tmp_path, logs.plain_batches())
    checkpoint = tmp_path / "recovery-point-offset-checkpoint"
    for offset, wrong in ((24, 0), (25, 1)):
        checkpoint.write_text(f"0\n1\nt 0 {offset}\n")
        assert codes(tmp_path, Level.INDEX).count("CHECKPOINT_BEYOND_LOG") == wrong
    checkpoint.write_text("0\n7\nt 0 24\n")
    assert "CHECKPOINT_CORRUPT" in codes(tmp_path, Level.INDEX)


def many_batches(count: int) -> list[bytes]:
    """Batches of 3 records and 3 KB, made quickly: the base offset is not under the checksum."""
    first = bytes(logs.batch(0, 3, value=b"v" * 1000))
    return [struct.pack(">q", 3 * i) + first[8:] for i in range(count)]


def test_ranges_under_threads_find_what_one_pass_finds(tmp_path: Path) -> None:
    batches = many_batches(4000)  # more than a range of 8 MiB
    broken = 3000
    good = logs.write_log(tmp_path, batches)
    assert good.stat().st_size > 8 << 20
    assert codes(good, Level.CRC, jobs=4) == []
    batches[broken] = batches[broken][:-1] + b"\xff"
    path = logs.write_log(tmp_path, batches, name="u-0")
    for level in (Level.CRC, Level.RECORD):
        found, summary = verified(path, level, jobs=4)
        assert [(f.code, f.first_offset) for f in found] == [("CRC_MISMATCH", 3 * broken)]
        assert summary.batches == len(batches) - 1


def test_a_sample_looks_at_a_part_and_says_so(tmp_path: Path) -> None:
    path = logs.write_log(tmp_path, many_batches(3000))
    found, summary = verified(path, Level.CRC, sample=0.5, seed=3)
    assert found == [] and not summary.complete
    assert 0 < summary.bytes < path.stat().st_size


def test_time_can_run_out(tmp_path: Path) -> None:
    for base in range(0, 72, 24):
        logs.write_log(tmp_path, logs.plain_batches(first_offset=base), base_offset=base)
    found, summary = verified(tmp_path / "t-0", Level.INDEX, max_duration_s=0)
    assert not summary.complete and summary.batches == 0 and found == []


class HurryingClock(ManualClock):
    """Each look at it is a second later."""

    def monotonic(self) -> float:
        self.sleep(1)
        return super().monotonic()


@pytest.mark.parametrize(("sample", "seconds", "files"), [(0.99, None, 3), (None, 3, 2)], ids=["sample", "late"])
def test_no_end_is_known_of_a_log_that_was_not_read_to_its_end(
    sample: float | None, seconds: int | None, files: int, tmp_path: Path
) -> None:
    """Checkpoints beyond the last segment that was looked at are no warning."""
    for base in range(0, 72, 24):
        batches = logs.plain_batches(first_offset=base)
        if base == 24:
            batches[2] = batches[2][:-1] + b"\xff"
        logs.write_log(tmp_path, batches, base_offset=base)
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 72\n")
    done: list[tuple[int, int]] = []
    options = VerifyOptions(sample=sample, max_duration_s=seconds)
    targets = [Target(tmp_path, TargetKind.LOG_DIRECTORY)]
    verification = Verification(FS, targets, options, HurryingClock(0), lambda *each: done.append(each))
    assert {found.code for found in verification} - {"INDEX_MISSING"} == {"CRC_MISMATCH"}
    assert (verification.summary.complete, verification.summary.files) == (False, files)
    assert [done[-1][0] == done[-1][1], done == sorted(done)] == [sample is not None, True]


def test_sizes_are_not_asked_for_where_nobody_watches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs.write_log(tmp_path, logs.plain_batches(), name="t-0")
    asked: list[Path] = []
    monkeypatch.setattr("seglog.verification.verify.list_partition", lambda _, path: asked.append(path))
    targets = [Target(tmp_path, TargetKind.LOG_DIRECTORY)]
    list(Verification(LocalFileSystem(), targets, VerifyOptions(level=Level.CRC), ManualClock(0)))
    assert asked == []


def test_progress_ends_at_the_total_size(tmp_path: Path) -> None:
    path = logs.write_log(tmp_path, logs.plain_batches())
    seen: list[tuple[int, int]] = []
    list(
        Verification(
            FS,
            resolve_paths(FS, [path]),
            VerifyOptions(),
            ManualClock(0),
            lambda done, total: seen.append((done, total)),
        )
    )
    assert seen[-1] == (path.stat().st_size, path.stat().st_size)


def test_looking_changes_nothing(tmp_path: Path) -> None:
    path = with_indexes(tmp_path, GOOD_INDEX, GOOD_TIMES)
    before = {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in path.parent.iterdir()}
    verified(path.parent)
    assert {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in path.parent.iterdir()} == before


@pytest.mark.parametrize(
    ("name", "severity"),
    [
        (".DS_Store", Severity.INFO),
        ("t.wm", Severity.INFO),
        ("notes.log.txt", Severity.INFO),
        ("sub/", Severity.INFO),
        ("sub.log/", Severity.INFO),
        ("x.log", Severity.ERROR),
        ("x.snapshot", Severity.ERROR),
        ("5.log", Severity.ERROR),
        ("5.index", Severity.WARNING),
    ],
)
def test_only_names_that_a_broker_looks_at_are_wrong(tmp_path: Path, name: str, severity: Severity) -> None:
    partition = logs.write_log(tmp_path, logs.plain_batches()).parent
    path = partition / name.rstrip("/")
    if name.endswith("/"):
        path.mkdir()
    else:
        path.touch()
    (found,) = [each for each in verified(partition)[0] if each.code == "STRANGE_FILE"]
    assert (found.severity, found.file) == (severity, path.name)
    assert (found.broker_notices is Notice.NEVER) == (severity is Severity.INFO)


@pytest.mark.parametrize(("name", "stops"), [("foo", True), ("lost+found", True), ("a b-0", False), ("ü-1", False)])
def test_only_directories_that_a_broker_cannot_take_for_partitions_stop_it(
    tmp_path: Path, name: str, stops: bool
) -> None:
    logs.write_log(tmp_path, logs.plain_batches())
    (tmp_path / name).mkdir()
    (found,) = [each for each in verified(tmp_path)[0] if each.code == "STRANGE_FILE"]
    assert (found.severity is Severity.ERROR) == stops


def test_files_around_named_partitions_are_read_once(tmp_path: Path) -> None:
    for name in ("t-0", "u-0", "v-0"):
        logs.write_log(tmp_path, logs.plain_batches(), name=name)
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 0\n")
    fs = CountingFileSystem()
    targets = [Target(tmp_path / name, TargetKind.PARTITION) for name in ("t-0", "u-0", "v-0")]
    list(Verification(fs, targets, VerifyOptions(level=Level.SEMANTIC), ManualClock(0)))
    assert fs.opened["recovery-point-offset-checkpoint"] == 1
    assert fs.opened[f"{0:020d}.log"] >= 3


class Unreadable(LocalFileSystem):
    """Where nothing in the directory u-0 may be read."""

    def list(self, directory: Path) -> list[str]:
        if directory.name == "u-0":
            raise PermissionError(errno.EACCES, "Permission denied", str(directory))
        return super().list(directory)


def test_a_partition_that_cannot_be_read_is_reported_and_the_others_verified(tmp_path: Path) -> None:
    for name in ("t-0", "u-0", "v-0"):
        logs.write_log(tmp_path, logs.plain_batches(), name=name)
    targets = [Target(tmp_path, TargetKind.LOG_DIRECTORY)]
    verification = Verification(Unreadable(), targets, VerifyOptions(level=Level.SEMANTIC), ManualClock(0))
    found = [(each.code, each.partition, each.message) for each in verification if each.severity is not Severity.INFO]
    found = [each for each in found if each[0] != "INDEX_MISSING"]
    assert found == [("UNREADABLE_FILE", "u-0", "Permission denied")]
    summary = verification.summary
    assert summary.batches == 16 and not summary.complete and summary.unreadable == 1 and not summary.damaged


class Meddling(LocalFileSystem):
    """Beside which somebody does something whenever a certain file is opened."""

    def __init__(self, name: str, change: Callable[[], object]) -> None:
        self.name, self.change = name, change

    def open(self, path: Path, mode: OpenMode) -> LocalFile:
        found = super().open(path, mode)
        if path.name == self.name:
            self.change()
        return found


def test_unfinished_work_of_a_running_broker_is_not_reported(tmp_path: Path) -> None:
    path = logs.write_log(tmp_path, logs.plain_batches())
    orphan = path.with_name(f"{99:020d}.index")
    orphan.write_bytes(b"")
    fs = Meddling("leader-epoch-checkpoint", lambda: orphan.unlink(missing_ok=True))
    (path.parent / "leader-epoch-checkpoint").write_bytes(b"0\n1\n0 0\n")

    def found(live: bool, file_system: LocalFileSystem) -> set[str]:
        options = VerifyOptions(level=Level.SEMANTIC, live=live)
        return {
            each.code for each in Verification(file_system, [Target(path.parent, TargetKind.PARTITION)], options, clock)
        }

    clock = ManualClock(0)
    assert "ORPHAN_INDEX" in found(True, FS), "it stays"
    assert "ORPHAN_INDEX" not in found(True, fs), "its deletion was under way"


def test_real_damage_beside_a_broker_is_reported(tmp_path: Path) -> None:
    batches = logs.plain_batches()
    batches[3] = batches[3][:-1] + b"\xff"
    path = logs.write_log(tmp_path, batches)
    grown = Meddling(path.name, lambda: path.open("ab").write(batches[0][:40]))
    options = VerifyOptions(level=Level.SEMANTIC, live=True)
    targets = [Target(path.parent, TargetKind.PARTITION)]
    found = [each for each in Verification(grown, targets, options, ManualClock(0)) if each.severity is Severity.ERROR]
    assert [(each.code, each.first_offset) for each in found] == [("CRC_MISMATCH", 9)]
