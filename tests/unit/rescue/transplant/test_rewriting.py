"""Batches under other names: which fields change, and that nothing else does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from seglog.format.columns import Records
from seglog.format.decoder import checksums_match, decode_records, scan_batches
from seglog.model import Record
from seglog_rescue.transplant.rewriting import FOREIGN_PRODUCERS, counted, foreign_id, rewrite, seal
from tests.support.fixtures import KAFKA

LOGS = ("4.3.0/generated/mixed-0", "4.3.0/generated/keyed-0", "4.3.0/generated/upgraded-0", "4.3.0/generated/gaps-0")


def read(partition: str) -> np.ndarray:
    files = sorted((KAFKA / partition).glob("*.log"))
    return np.frombuffer(b"".join(file.read_bytes() for file in files), dtype=np.uint8).copy()


def rows_of(data: np.ndarray) -> np.ndarray:
    return scan_batches(data, 0, len(data), 0).batches


def records_of(data: np.ndarray) -> list[Record]:
    parts: list[Records] = list(decode_records(data, rows_of(data), 0))
    return [record for part in parts for record in part]


def rewritten(data: np.ndarray) -> np.ndarray:
    new = data.copy()
    rows = rows_of(data)
    seal(new, rewrite(new, rows, 0), 0)
    return new


@pytest.mark.parametrize("partition", LOGS)
def test_no_producer_that_a_cluster_can_hand_out_is_left_and_every_checksum_is_right(partition: str) -> None:
    before = read(partition)
    after = rewritten(before)
    old, new = rows_of(before), rows_of(after)
    assert checksums_match(after, new, 0).all()
    v2 = new["magic"] >= 2
    assert (new["leader_epoch"][v2] == 0).all()
    assert ((new["producer_id"] < 0) | (new["producer_id"] >= FOREIGN_PRODUCERS)).all()
    transactional = (old["attributes"] & 0x10) != 0
    assert new["producer_id"][transactional].tolist() == [
        foreign_id(int(each)) for each in old["producer_id"][transactional]
    ]
    forgotten = new[~transactional]
    assert {(int(row["producer_id"]), int(row["producer_epoch"]), int(row["base_sequence"])) for row in forgotten} <= {
        (-1, -1, -1)
    }
    for name in ("base_offset", "last_offset", "attributes", "base_timestamp", "max_timestamp", "size", "count"):
        assert (old[name] == new[name]).all()


@pytest.mark.parametrize("partition", LOGS)
def test_records_stay_as_they_are(partition: str) -> None:
    before = read(partition)
    strip = [(each.offset, each.timestamp, each.key, each.value, each.headers) for each in records_of(before)]
    assert strip
    assert [
        (each.offset, each.timestamp, each.key, each.value, each.headers) for each in records_of(rewritten(before))
    ] == strip


def test_what_was_rewritten_once_stays_as_it_is() -> None:
    once = rewritten(read(LOGS[0]))
    assert (rewritten(once) == once).all()
    changes = counted(rows_of(once))
    assert (changes.epochs, changes.forgotten, changes.moved) == (0, 0, 0)


def test_the_counts_are_those_of_what_changes() -> None:
    data = read("4.3.0/generated/mixed-0")
    rows, changes = rows_of(data), counted(rows_of(data))
    new = rows_of(rewritten(data))
    assert changes.epochs == np.count_nonzero(rows["leader_epoch"] != new["leader_epoch"]) > 0
    assert changes.forgotten + changes.moved == np.count_nonzero(rows["producer_id"] != new["producer_id"]) > 0


def test_a_foreign_id_is_distinct_and_mapping_it_again_changes_nothing() -> None:
    assert (foreign_id(0), foreign_id(foreign_id(5))) == (1 << 62, (1 << 62) + 5)


def test_messages_of_old_formats_are_not_touched() -> None:
    for version, partition in (("0.10.2", "v1-lz4-createtime-0"), ("0.8.2", "v0-none-0")):
        path = next(Path(KAFKA / version / partition).glob("*.log"))
        data = np.frombuffer(path.read_bytes(), dtype=np.uint8)
        assert (rewritten(data) == data).all()
