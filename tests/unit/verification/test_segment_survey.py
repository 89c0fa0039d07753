"""The good ranges of a damaged segment."""

from __future__ import annotations

from pathlib import Path

from seglog.format.control import encode_control_key, encode_control_value
from seglog.model import ControlType
from seglog.scan.resync import PlausibleOffsets
from seglog.verification.segment_survey import ByteRange, SegmentSurveyor, Survey, judged_batches, survey_07
from tests.support.log_files import CONTROL, FS, batch, marker
from tests.support.messages_07 import encode_message
from tests.support.naive import NaiveRecord, batch_v2, message


def surveyed(tmp_path: Path, data: bytes, *, most: int = 1 << 20, **options: bool) -> Survey:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(data)
    return SegmentSurveyor(FS, **options).survey(path, PlausibleOffsets(0, most))


def test_a_healthy_segment_is_one_range(tmp_path: Path) -> None:
    data = batch(0, 5) + batch(5, 5) + message(10, 1, b"k", b"v", timestamp=5)
    found = surveyed(tmp_path, data)
    assert (found.is_whole, found.kept, found.batches, found.last_offset) == (True, [ByteRange(0, len(data))], 3, 10)


def test_damage_is_left_out_and_its_reason_reported(tmp_path: Path) -> None:
    parts = [batch(0, 5), batch(5, 5), batch(10, 5)]
    torn = bytearray(parts[1])
    torn[70] ^= 1
    found = surveyed(tmp_path, parts[0] + bytes(torn) + parts[2] + parts[0][:30])
    size = len(parts[0])
    assert found.kept == [ByteRange(0, size), ByteRange(2 * size, len(parts[2]))]
    assert [(each.code, each.position) for each in found.removed] == [
        ("CRC_MISMATCH", size),
        ("TORN_TAIL", 2 * size + len(parts[2])),
    ]


def test_batches_that_belong_elsewhere_go(tmp_path: Path) -> None:
    found = surveyed(tmp_path, batch(0, 5) + batch(500, 5) + batch(5, 5), most=100)
    assert [each.code for each in found.removed] == ["OFFSET_OUT_OF_SEGMENT"]
    assert found.last_offset == 9


def test_a_control_batch_that_cannot_be_read_goes_because_recovery_would_cut_there(tmp_path: Path) -> None:
    found = surveyed(tmp_path, batch(0) + marker(1, 7, commit=True, key=b"\0") + batch(2))
    assert [(each.code, each.first_offset) for each in found.removed] == [("CONTROL_INVALID", 1)]


def test_a_control_batch_of_kraft_stays_with_all_its_records(tmp_path: Path) -> None:
    value = encode_control_value(ControlType.KRAFT_VERSION, {"version": 0, "kRaftVersion": 1})
    key = encode_control_key(ControlType.KRAFT_VERSION)
    several = batch_v2(1, [NaiveRecord(i, 0, key, value) for i in range(3)], attributes=CONTROL)
    assert surveyed(tmp_path, batch(0) + several + batch(4)).is_whole


def test_records_that_cannot_be_decoded_go_only_when_they_are_looked_at(tmp_path: Path) -> None:
    broken = batch_v2(1, [NaiveRecord(0, 0, b"k", b"v")], payload=b"\xff\xff\xff")
    data = batch(0) + broken + batch(2)
    assert [each.code for each in surveyed(tmp_path, data).removed] == ["RECORDS_INVALID"]
    assert surveyed(tmp_path, data, deep=False).is_whole


def anywhere(tmp_path: Path, data: bytes, most: int = 100) -> list[int]:
    """The first offsets of the good batches, of whatever offsets, in a file that is named as one up to `most`."""
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(data)
    parts = [first for _, first in judged_batches(FS, path, PlausibleOffsets(0, most), anywhere=True)]
    return [offset for part in parts for offset in part.tolist()]


def test_after_damage_go_on_batches_as_those_before_it_whatever_the_name_says(tmp_path: Path) -> None:
    damaged = bytearray(batch(505, 5))
    damaged[70] ^= 1
    assert anywhere(tmp_path, batch(500, 5) + bytes(damaged) + batch(510, 5) + batch(0, 5)) == [500, 510, 0]


def test_a_run_of_batches_from_elsewhere_that_ends_at_a_good_one_is_no_damage(tmp_path: Path) -> None:
    run = batch(500, 5) + batch(505, 5)
    assert anywhere(tmp_path, b"\xee" * 200 + run + batch(0, 5)) == [500, 505, 0]
    assert anywhere(tmp_path, b"\xee" * 200 + run + b"\0" + batch(0, 5)) == [0], "a record may have held them"
    assert anywhere(tmp_path, b"\xee" * 200 + run + b"\0" + run + batch(0, 5)) == [500, 505, 0]


def test_batches_inside_a_damaged_one_are_found(tmp_path: Path) -> None:
    damaged = bytearray(batch(0, 5, value=b"x" * 200))
    inner = batch(50, 2)
    damaged[300 : 300 + len(inner)] = inner
    found = surveyed(tmp_path, bytes(damaged) + batch(60, 2))
    assert found.kept[0] == ByteRange(300, len(inner))
    assert found.batches == 2


def test_a_batch_that_a_record_holds_is_no_batch_of_the_log(tmp_path: Path) -> None:
    """Logs may carry batches as values: when their holder is damaged they must not come to life."""
    damaged = bytearray(batch(0, 5, value=batch(2, 2)))
    damaged[-1] ^= 1
    found = surveyed(tmp_path, bytes(damaged) + batch(60, 2))
    assert found.kept == [ByteRange(len(damaged), len(batch(60, 2)))]


def test_moved_batches_go_back(tmp_path: Path) -> None:
    parts = [batch(i * 5, 5) for i in range(4)]
    found = surveyed(tmp_path, parts[0] + parts[2] + parts[1] + parts[3])
    size = len(parts[0])
    assert found.moved > 0
    assert not found.removed
    assert [each.position for each in found.kept] == [0, 2 * size, size, 3 * size]
    kept = surveyed(tmp_path, parts[0] + parts[2] + parts[1] + parts[3], reorder=False)
    assert [each.code for each in kept.removed] == ["OFFSETS_NOT_ASCENDING"]


def test_a_log_of_kafka_07_is_good_up_to_its_first_bad_message(tmp_path: Path) -> None:
    parts = [encode_message(b"a" * 50), encode_message(b"b" * 50), encode_message(b"c" * 50)]
    torn = bytearray(parts[1])
    torn[-1] ^= 1
    path = tmp_path / "00000000000000000000.kafka"
    path.write_bytes(parts[0] + bytes(torn) + parts[2])
    found = survey_07(FS, path)
    assert found.kept == [ByteRange(0, len(parts[0]))]
    path.write_bytes(b"".join(parts))
    assert survey_07(FS, path).is_whole
