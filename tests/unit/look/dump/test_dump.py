"""The dump: filters, limits, damage and what is trusted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seglog.look.dump.dump import DumpOptions, dump
from seglog.model import Compression, Isolation
from seglog.scan.key_set import KeySet
from seglog.scan.listing import Target, TargetKind, resolve_paths
from seglog.scan.selection import Selection
from seglog.storage.filesystem import FileStatus
from seglog.storage.local import LocalFileSystem
from seglog.verification.findings import Finding
from tests.support import log_files as logs
from tests.support.log_files import batch, marker, transactional, write_segment
from tests.support.naive import NaiveRecord, batch_v2
from tests.support.watched_files import CountingFileSystem

FS = LocalFileSystem()


def lines_and_findings(path: Path, **options: Any) -> tuple[list[dict[str, Any]], list[Finding]]:
    blocks, findings = [], []
    for item in dump(FS, resolve_paths(FS, [path]), DumpOptions(json=True, **options)):
        if isinstance(item, Finding):
            findings.append(item)
        else:
            blocks.append(bytes(item))
    return [json.loads(line) for line in b"".join(blocks).decode().split("\n")[:-1]], findings


def offsets(path: Path, **options: Any) -> list[int]:
    lines, _ = lines_and_findings(path, records=True, **options)
    return [line["offset"] for line in lines if line["type"] == "record"]


def test_null_is_null_and_empty_is_empty(tmp_path: Path) -> None:
    path = logs.write_log(tmp_path, [batch_v2(0, [NaiveRecord(0, 0, None, b""), NaiveRecord(1, 0, b"", None)])])
    records = [line for line in lines_and_findings(path, records=True)[0] if line["type"] == "record"]
    assert [(r["key"], r["value"]) for r in records] == [(None, ""), ("", None)]


def test_bytes_that_are_no_text_appear_in_base64(tmp_path: Path) -> None:
    path = logs.write_log(tmp_path, [batch_v2(0, [NaiveRecord(0, 0, b"a\xff", "é".encode())])])
    record = lines_and_findings(path, records=True)[0][1]
    assert record["key_b64"] == "Yf8=" and "key" not in record
    assert record["value"] == "é" and "value_b64" not in record


def test_offsets_are_selected_from_inside_batches(tmp_path: Path) -> None:
    path = logs.write_log(tmp_path, logs.plain_batches())
    assert offsets(path, selection=Selection(first_offset=4, end_offset=8)) == [4, 5, 6, 7]


def test_offsets_are_selected_from_inside_wrappers(tmp_path: Path) -> None:
    path = logs.write_log(tmp_path, logs.wrappers(1, Compression.LZ4))
    assert offsets(path, selection=Selection(first_offset=4, end_offset=8)) == [4, 5, 6, 7]


def test_times_keys_and_producers_select(tmp_path: Path) -> None:
    path = logs.write_log(tmp_path, logs.plain_batches())
    assert offsets(path, selection=Selection(first_timestamp=1011, end_timestamp=1021)) == [4, 5, 6]
    assert offsets(path, selection=Selection(keys=KeySet([b"key"]))) == [0, 8, 10, 12, 20, 22]
    assert offsets(path, selection=Selection(producer_id=3)) == []
    transactions = logs.write_log(tmp_path, logs.transactional_batches(), name="u-0")
    assert offsets(transactions, selection=Selection(producer_id=8)) == [3, 4, 5]


def test_a_limit_counts_records_or_batches(tmp_path: Path) -> None:
    path = logs.write_log(tmp_path, logs.plain_batches())
    logs.write_log(tmp_path, logs.plain_batches(first_offset=24), base_offset=24)
    assert offsets(path.parent, limit=4) == [0, 1, 2, 3]
    assert offsets(path.parent, limit=26) == list(range(26))
    assert [line["position"] for line in lines_and_findings(path, limit=2)[0]] == [0, len(logs.plain_batches()[0])]


def damaged(tmp_path: Path, batch: int) -> tuple[Path, int]:
    batches = logs.plain_batches()
    position = sum(map(len, batches[:batch]))
    batches[batch] = batches[batch][:-1] + bytes([batches[batch][-1] ^ 1])
    return logs.write_log(tmp_path, batches), position


def test_records_of_a_damaged_batch_are_not_shown_as_genuine(tmp_path: Path) -> None:
    path, position = damaged(tmp_path, 2)
    lines, findings = lines_and_findings(path, records=True)
    assert [line["offset"] for line in lines if line["type"] == "record"] == [
        o for o in range(24) if o not in (6, 7, 8)
    ]
    assert [line["valid"] for line in lines if line["type"] == "batch"].count(False) == 1
    assert [(f.code, f.position, f.first_offset, f.last_offset) for f in findings] == [("CRC_MISMATCH", position, 6, 8)]
    assert not any("trusted" in line for line in lines)


def test_untrusted_records_are_marked(tmp_path: Path) -> None:
    path, _ = damaged(tmp_path, 2)
    lines, _ = lines_and_findings(path, records=True, untrusted=True)
    marked = [line["offset"] for line in lines if line.get("trusted") is False]
    assert set(marked) <= {6, 7, 8} and marked
    assert all("trusted" not in line for line in lines if line["type"] == "record" and line["offset"] not in (6, 7, 8))


def test_zeros_in_the_middle_do_not_end_the_dump(tmp_path: Path) -> None:
    batches = logs.plain_batches()
    path = logs.write_log(tmp_path, [*batches[:3], bytes(4096), *batches[3:]])
    lines, findings = lines_and_findings(path)
    assert len(lines) == 8
    assert [(f.code, f.length) for f in findings] == [("ZERO_BYTES", 4096)]


def test_threads_give_the_same_bytes_in_the_same_order(tmp_path: Path) -> None:
    batches = logs.plain_batches(9000, 5)
    broken = 3000
    batches[broken] = batches[broken][:40] + bytes([batches[broken][40] ^ 1]) + batches[broken][41:]
    path = logs.write_log(tmp_path, batches)
    assert path.stat().st_size > 1 << 20
    one = lines_and_findings(path, records=True, jobs=1)
    many = lines_and_findings(path, records=True, jobs=3)
    assert one == many
    assert len(one[1]) == 1


class _Listing(LocalFileSystem):
    """Counts listings."""

    count = 0

    def entries(self, directory: Path) -> Sequence[tuple[str, FileStatus]]:
        self.count += 1
        return super().entries(directory)


def test_files_that_are_named_are_dumped_without_listing_their_directory_for_each(tmp_path: Path) -> None:
    for i in range(20):
        write_segment(tmp_path, 5 * i, batch(5 * i, 5))
    files = _Listing()
    targets = [Target(path, TargetKind.FILE) for path in sorted(tmp_path.glob("*.log"))]
    text = b"".join(bytes(one) for one in dump(files, targets, DumpOptions(json=True)) if not isinstance(one, Finding))
    assert (text.count(b"\n"), files.count) == (20, 0)


def test_how_transactions_ended_is_looked_up_once_for_all_files_of_a_partition(tmp_path: Path) -> None:
    fs, partition = CountingFileSystem(), tmp_path / "t-0"
    write_segment(partition, 0, transactional(0, 7, 0))
    write_segment(partition, 1, marker(1, 7, commit=False), transactional(2, 8, 0))
    write_segment(partition, 3, marker(3, 8, commit=True))
    logs_named = sorted(partition.glob("*.log"))
    options = DumpOptions(json=True, records=True, selection=Selection(isolation=Isolation.READ_COMMITTED))

    def dumped(paths: list[Path]) -> tuple[list[int], int]:
        fs.opened.clear()
        text = b"".join(
            bytes(item) for item in dump(fs, resolve_paths(fs, paths), options) if not isinstance(item, Finding)
        )
        rows = map(json.loads, text.splitlines())
        return [row["offset"] for row in rows if row["type"] == "record"], fs.opened[logs_named[0].name]

    _, of_one = dumped(logs_named[:1])
    found, of_all = dumped(logs_named)
    assert 2 in found and 0 not in found
    assert of_all == of_one
