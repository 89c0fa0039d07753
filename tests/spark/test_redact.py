"""An erasure whose search is spread over tasks ends in the files and the report of the one on one machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import seglog
from seglog.clock import SystemClock
from seglog.errors import CorruptRecordError
from seglog.operations.redact import RedactionReport, RedactionRequest, redaction
from seglog.operations.workspace import Workspace
from seglog.redaction.selection import RecordsToErase
from seglog.scan.key_set import KeySet
from seglog.scan.listing import resolve_paths
from seglog.scan.offset_set import OffsetSet
from seglog_ask.spark.redacting import searching
from tests.support import fixtures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

KEYS = [b"order-7", b"order-8"]


def on_spark(spark: SparkSession, logs: Path, selection: RecordsToErase) -> RedactionReport:
    work = Workspace()
    request = RedactionRequest.of(selection, replicas=1)
    targets = resolve_paths(work.fs, [logs])
    with redaction(work.fs, targets, work.settings, SystemClock(), request, {}, searching(spark)) as begun:
        begun.apply()
        return begun.report(begun.search())


@pytest.mark.parametrize("by", ["keys", "offsets"])
def test_files_and_report_are_those_of_one_machine(spark: SparkSession, tmp_path: Path, by: str) -> None:
    logs = [fixtures.fixture_copy("4.3.0/clean", tmp_path / name) for name in ("here", "there")]
    offsets = {seglog.TopicPartition("orders-zstd", 0): [7, 157, 300], seglog.TopicPartition("orders-none", 0): [400]}
    if by == "keys":
        alone = seglog.redact(logs[0], keys=KEYS, replicas=1, verify=True)
        found = on_spark(spark, logs[1], RecordsToErase(KeySet(KEYS)))
    else:
        alone = seglog.redact(logs[0], offsets=offsets, replicas=1, verify=True)
        sets = {key: OffsetSet(each) for key, each in offsets.items()}
        found = on_spark(spark, logs[1], RecordsToErase(offsets=sets))
    assert found.complete and alone.complete and found.files
    names = [[(file.path.parent.name, file.path.name, file.digest_after) for file in r.files] for r in (alone, found)]
    assert names[0] == names[1]


def test_damage_that_a_task_meets_refuses_the_request(spark: SparkSession, tmp_path: Path) -> None:
    logs = fixtures.fixture_copy("4.3.0/clean", tmp_path)
    log = logs / "orders-lz4-0" / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[500] ^= 1
    log.write_bytes(data)
    before = {path: path.read_bytes() for path in logs.rglob("*.log")}
    with pytest.raises(CorruptRecordError, match=r"orders-lz4-0.*checksum"):
        on_spark(spark, logs, RecordsToErase(KeySet(KEYS)))
    assert {path: path.read_bytes() for path in logs.rglob("*.log")} == before
