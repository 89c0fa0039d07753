"""dump-log where kafka-dump-log fails: damage, missing indexes, unknown files; and its reports."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seglog.format.compression import compress
from seglog.look.kafka_dump_log.decoders import PartDecoders
from seglog.look.kafka_dump_log.dump_log import DumpLogOptions, dump_log
from seglog.look.kafka_dump_log.reports import Mismatch, Report, Reports
from seglog.model import Compression
from seglog.storage.local import LocalFileSystem
from seglog.verification.findings import Finding
from tests.support import log_files as logs
from tests.support.naive import NaiveRecord, batch_v2, message

FS = LocalFileSystem()


def printed(*paths: Path, **options: Any) -> tuple[list[str], list[str], list[str]]:
    """(lines of stdout, codes of findings, lines of reports)."""
    out, codes, reports = b"", [], []
    for item in dump_log(FS, list(paths), DumpLogOptions(**options)):
        if isinstance(item, Finding):
            codes.append(item.code)
        elif isinstance(item, Report):
            reports += item.text.split("\n")
        else:
            out += bytes(item)
    return out.decode().split("\n")[:-1], codes, reports


def test_damaged_records_are_not_printed_and_the_rest_is(tmp_path: Path) -> None:
    batches = logs.plain_batches()
    batches[1] = batches[1][:-1] + bytes([batches[1][-1] ^ 1])
    path = logs.write_log(tmp_path, [*batches[:4], bytes(4096), *batches[4:]])
    lines, codes, _ = printed(path, path, print_data_log=True)
    assert codes == ["CRC_MISMATCH", "ZERO_BYTES"] * 2
    assert len([line for line in lines if line.startswith("baseOffset: ")]) == 16
    assert not any(line.startswith(("| offset: 3 ", "| offset: 4 ", "| offset: 5 ")) for line in lines)
    assert len([line for line in lines if line.startswith("| offset: ")]) == 42
    assert not any(line.startswith("Found ") for line in lines)


def test_a_torn_tail_is_counted_unless_bytes_were_limited(tmp_path: Path) -> None:
    batches = logs.plain_batches()
    path = logs.write_log(tmp_path, [*batches, batches[0][:50]])
    assert printed(path)[0][-1] == f"Found 50 invalid bytes at the end of {path.name}"
    lines, codes, _ = printed(path, max_bytes=len(batches[0]) + 10)
    assert len(lines) == 3 and codes == []


def test_a_segment_that_starts_above_zero_is_no_gap(tmp_path: Path) -> None:
    path = logs.write_log(tmp_path, logs.plain_batches(first_offset=100), base_offset=100)
    assert printed(path, deep_iteration=True)[2] == []


# kafka-dump-log 4.3 of the same bytes.
@pytest.mark.parametrize(
    ("outer", "inner", "attributes", "shown"),
    [
        (0, -1, 0, "NoTimestampType: 100"),
        (0, 0, 8, "NoTimestampType: -1"),
        (1, -1, 8, "LogAppendTime: 100"),
        (1, 0, 0, "CreateTime: -1"),
        (1, 1, 8, "LogAppendTime: 555"),
        (1, 2, 0, "CreateTime: 100"),
    ],
)
def test_messages_in_a_wrapper_show_its_timestamp_type(
    tmp_path: Path, outer: int, inner: int, attributes: int, shown: str
) -> None:
    run = message(0 if outer else 10, inner, b"k", b"v0", timestamp=100)
    value = compress(Compression.GZIP, run, magic=outer)
    wrapper = message(10, outer, None, value, timestamp=555, attributes=attributes | Compression.GZIP)
    lines, _, _ = printed(logs.write_log(tmp_path, [wrapper]), print_data_log=True)
    assert lines[-1].startswith(f"| offset: 10 {shown} keySize: 1 valueSize: 2 isValid: true crc: ")


def test_gaps_between_records_are_reported(tmp_path: Path) -> None:
    inner = [NaiveRecord(0, 0, b"k", b"v"), NaiveRecord(3, 0, b"k", b"v")]
    path = logs.write_log(tmp_path, [batch_v2(0, inner), batch_v2(9, logs.records(2))])
    _, _, reports = printed(path, deep_iteration=True)
    assert reports == [f"Non-consecutive offsets in {path}", "  0 is followed by 3", "  3 is followed by 9"]


def test_gaps_are_found_at_the_ends_of_64_bits_too(tmp_path: Path) -> None:
    first = batch_v2(-(2**63), [NaiveRecord(0, 0, b"k", b"v"), NaiveRecord(3, 0, b"k", b"v")])
    path = logs.write_log(tmp_path, [first, batch_v2(2**63 - 3, logs.records(2))])
    with np.errstate(all="raise"):
        _, _, reports = printed(path, deep_iteration=True)
    ends = [f"  {-(2**63)} is followed by {3 - 2**63}", f"  {3 - 2**63} is followed by {2**63 - 3}"]
    assert reports == [f"Non-consecutive offsets in {path}", *ends]


def test_a_time_index_without_its_offset_index_creates_nothing(tmp_path: Path) -> None:
    path = logs.write_log(tmp_path, logs.plain_batches())
    times = path.with_suffix(".timeindex")
    times.write_bytes(struct.pack(">qi", 1002, 2))
    lines, codes, reports = printed(times)
    assert (lines[1:], codes, reports) == (["timestamp: 1002 offset: 2"], [], [])
    assert not path.with_suffix(".index").exists()


def test_index_mismatches_are_reported_last_entry_first(tmp_path: Path) -> None:
    path = logs.write_log(tmp_path, logs.plain_batches())
    index = path.with_suffix(".index")
    index.write_bytes(struct.pack(">iiii", 4, len(logs.plain_batches()[0]), 8, 10**6))
    lines, _, reports = printed(index, verify_index_only=True)
    assert lines == [f"Dumping {index}"]
    assert reports == [
        f"Mismatches in :{index}",
        "  Index offset: 8, log offset: -1",
        "  Index offset: 4, log offset: 5",
    ]


def test_checkpoints_and_leftovers_are_printed_and_strangers_named(tmp_path: Path) -> None:
    path = logs.write_log(tmp_path, logs.plain_batches(1))
    deleted = path.rename(path.with_name(path.name + ".deleted"))
    epochs, stranger = path.parent / "leader-epoch-checkpoint", path.parent / "notes.txt"
    epochs.write_bytes(b"0\n1\n3 7\n")
    stranger.touch()
    lines, codes, reports = printed(deleted, epochs, stranger)
    assert any(line.startswith("baseOffset: 0 ") for line in lines)
    assert "leader_epoch epoch=3 start_offset=7" in lines
    assert codes == [] and reports == [f"Ignoring unknown file {stranger}"]
    assert lines[-1] == f"Dumping {stranger}"


def test_numbers_are_decoded(tmp_path: Path) -> None:
    record = NaiveRecord(0, 0, struct.pack(">i", -7), struct.pack(">q", 2**40))
    path = logs.write_log(tmp_path, [batch_v2(0, [record])])
    lines, _, _ = printed(path, decoder=PartDecoders("integer", "long"))
    assert lines[-1].endswith(f" key: -7 payload: {2**40}")


def test_mismatches_beyond_the_limit_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seglog.look.kafka_dump_log.reports._MOST_LINES", 2)
    reports, path = Reports(), tmp_path / "0.log"
    for offset in range(5):
        reports.note(Mismatch.GAP, path, offset, offset + 2)
    (found,) = reports.all()
    assert found.text.split("\n")[1:] == ["  0 is followed by 2", "  1 is followed by 3", "  and 3 more"]
