"""Verification finds nothing wrong with what healthy brokers wrote: stopped, killed, cleaned, of any version."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.scan.listing import resolve_paths
from seglog.storage.local import LocalFileSystem
from seglog.verification.codes import Severity
from seglog.verification.verify import Level, Verification, VerifyOptions
from tests.support.fixtures import expected, expected_partitions, fixture_copy, manifest
from tests.support.manual_clock import ManualClock

FS = LocalFileSystem()
# Remarks that say what a killed broker leaves, and what a log is allowed to be.
REMARKS = {"INDEX_PREALLOCATED", "TRANSACTION_OPEN", "LEFTOVER_FILE", "INDEX_MISSING"}


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("name", sorted(manifest()))
def test_a_healthy_log_directory_has_no_damage(name: str, level: Level, tmp_path: Path) -> None:
    targets = resolve_paths(FS, [fixture_copy(name, tmp_path)])
    verification = Verification(FS, targets, VerifyOptions(level=level), ManualClock(0))
    found = list(verification)
    assert [item for item in found if item.severity is not Severity.INFO] == []
    assert {item.code for item in found} <= REMARKS
    assert verification.summary.complete and not verification.summary.damaged
    assert verification.summary.damaged_bytes == verification.summary.lost_offsets == 0


@pytest.mark.parametrize("name", sorted(set(manifest()) - {"0.7"}))
def test_batches_and_records_are_counted_as_kafka_counts_them(name: str, tmp_path: Path) -> None:
    log_directory = fixture_copy(name, tmp_path)
    for partition in expected_partitions(name, "list_digest"):
        targets = resolve_paths(FS, [log_directory / partition])
        verification = Verification(FS, targets, VerifyOptions(level=Level.RECORD), ManualClock(0))
        assert list(verification) == []
        said = expected(name, partition, "list_digest")["full"]
        summary = verification.summary
        assert (summary.batches, summary.records) == (said["batches"], said["records"]), partition
