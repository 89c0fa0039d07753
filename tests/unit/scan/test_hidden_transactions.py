"""Which batches are hidden by transactions: by the index, and by markers where the index is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import seglog
from seglog import layout
from seglog.scan.hidden_transactions import HiddenTransactions

DATA, MARKER = layout.TRANSACTIONAL_MASK, layout.TRANSACTIONAL_MASK | layout.CONTROL_MASK


def batches(*rows: tuple[int, int, int]) -> np.ndarray:
    """Batches of one record by (offset, producer id, attributes)."""
    made = np.zeros(len(rows), dtype=layout.BATCH)
    made["magic"] = 2
    for name, values in zip(("base_offset", "producer_id", "attributes"), zip(*rows, strict=True), strict=True):
        made[name] = values
    return made


def test_a_marker_ends_a_transaction_that_the_index_ends_later() -> None:
    rows = batches((0, 7, DATA), (1, 8, DATA), (2, 7, MARKER), (3, 7, DATA), (4, 8, DATA), (5, 7, 0), (6, 7, MARKER))
    hidden = HiddenTransactions([(7, 0, layout.INT64_MAX), (8, 1, 4)])
    assert hidden.mask(rows).tolist() == [True, True, False, False, True, False, False]
    assert hidden.mask(rows[3:]).tolist() == [False, True, False, False]  # and it stays so


def test_a_marker_of_an_earlier_transaction_ends_no_later_one() -> None:
    rows = batches((0, 7, DATA), (1, 7, MARKER), (2, 7, DATA), (3, 7, MARKER), (4, 7, DATA), (5, 7, MARKER))
    assert HiddenTransactions([(7, 0, 1), (7, 4, 5)]).mask(rows).tolist() == [True, False, False, False, True, False]


def test_a_reader_gets_what_was_committed_after_an_abort_though_the_index_is_wrong(tmp_path: Path) -> None:
    with seglog.open_log(tmp_path / "t-0", create=True) as log:
        for commits in (False, True):
            producer = seglog.ProducerIdentity(7, 0, int(commits), transactional=True)
            log.append([seglog.Record(b"%d" % commits, timestamp=1000)], producer=producer)
            log.append_end_txn_marker(producer, commits, timestamp=2000)
        log.roll()
    (index,) = (tmp_path / "t-0").glob("*.txnindex")
    data = bytearray(index.read_bytes())
    entry = np.frombuffer(data, dtype=layout.TRANSACTION_INDEX_ENTRY)
    assert entry["last_offset"].tolist() == [1]
    entry["last_offset"] = 100
    index.write_bytes(data)
    with seglog.open_log(tmp_path / "t-0") as log:
        records = list(log.records(0, isolation="read_committed"))
    assert [record.value for record in records] == [b"1"]
