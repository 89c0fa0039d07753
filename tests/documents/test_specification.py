"""The specification is the code's: sections that are cited exist, and its test vectors are read as it says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from seglog.format.decoder import checksums_match, decode_records, scan_batches
from seglog.format.index_entries import decode_offset_index, decode_time_index, decode_transaction_index
from seglog.format.producer_snapshot import decode_snapshot

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "core" / "SPECIFICATION.md").read_text()
SECTIONS = set(re.findall(r"^##+ (\d+(?:\.\d+)?)", PAGE, re.MULTILINE))
GAPS = set(re.findall(r"^\| (\d+) \|", PAGE.split("\n## 15. ")[1].split("\n## 16. ")[0], re.MULTILINE))
SOURCES = sorted(path for part in ("core", "seglog_cli", "tests") for path in (ROOT / part).rglob("*.py"))
VECTORS = dict(re.findall(r"^\| ([^|]+?) \| `([0-9a-f]+)` \|$", PAGE.split("## Appendix A")[1], re.MULTILINE))
TWO_RECORDS = [(100, b"k1", b"v1"), (101, b"k2", None)]


def test_every_section_that_is_cited_exists() -> None:
    cited = [(path.name, number) for path in SOURCES for number in re.findall(r"§(\d+(?:\.\d+)?)", path.read_text())]
    assert len(cited) > 20
    assert [each for each in cited if each[1] not in SECTIONS] == []
    assert {gap for path in SOURCES for gap in re.findall(r"§15, gaps? (\d+)", path.read_text())} <= GAPS


def test_numbers_of_the_specification_are_cited_by_section_sign() -> None:
    bare = re.compile(r"specification \(?\d")
    assert [path.name for path in SOURCES if path != Path(__file__) and bare.search(path.read_text())] == []


def test_sections_that_the_page_refers_to_exist() -> None:
    assert set(re.findall(r"§(\d+(?:\.\d+)?)", PAGE)) <= SECTIONS


@pytest.mark.parametrize("case", [case for case in VECTORS if re.match(r"v[012] (none|gzip|snappy|lz4|zstd)", case)])
def test_vectors_of_batches_and_messages_hold_the_two_records(case: str) -> None:
    data = np.frombuffer(bytes.fromhex(VECTORS[case]), dtype=np.uint8)
    found = scan_batches(data, 0, len(data), 0)
    assert found.consumed == len(data)
    assert checksums_match(data, found.batches, 0).all()
    records = [(row.offset, row.key, row.value) for part in decode_records(data, found.batches, 0) for row in part]
    assert records == TWO_RECORDS


@pytest.mark.parametrize("case", [case for case in VECTORS if re.match(r"v2 txn|COMMIT|LEADER_CHANGE", case)])
def test_vectors_of_transactions_and_control_batches_are_one_record(case: str) -> None:
    data = np.frombuffer(bytes.fromhex(VECTORS[case]), dtype=np.uint8)
    found = scan_batches(data, 0, len(data), 0)
    (batch,) = found.batches
    assert checksums_match(data, found.batches, 0).all()
    assert [len(part) for part in decode_records(data, found.batches, 0)] == [1]
    number = re.search(r"(?:base|offset) (\d+)", case)
    assert number is not None
    assert batch["base_offset"] == int(number[1])


def test_vectors_of_snapshot_and_indexes_are_read_as_said() -> None:
    data = {case.split(" ")[0].rstrip(":"): bytes.fromhex(text) for case, text in VECTORS.items()}
    (entry,) = decode_snapshot(data["snapshot"], "page")
    assert (entry.producer_id, entry.producer_epoch, entry.last_sequence) == (7, 3, 6)
    assert (entry.last_offset, entry.offset_delta, entry.timestamp) == (101, 1, 1005)
    assert (entry.coordinator_epoch, entry.current_txn_first_offset) == (-1, 100)
    assert [tuple(row.tolist()) for row in decode_offset_index(data["index"], 0)] == [(1, 71)]
    assert [tuple(row.tolist()) for row in decode_time_index(data["timeindex"], 0)] == [(1005, 1)]
    (aborted,) = decode_transaction_index(data["txnindex"])
    assert {7, 100, 105, 106} <= set(aborted.tolist())
