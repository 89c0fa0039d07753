"""The fixtures are what was recorded: no byte changed, nothing missing, nothing added, mtimes given back."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.support.fixtures import (
    EXPECTED,
    FIXTURES,
    KAFKA,
    expected,
    expected_partitions,
    fixture_copy,
    fixture_partitions,
    manifest,
)

NAMES = sorted(manifest())
LARGEST_TOTAL_BYTES = 3_000_000


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_has_the_recorded_files_bytes_and_mtimes(name: str, tmp_path: Path) -> None:
    copy = fixture_copy(name, tmp_path)
    found = {path.relative_to(copy).as_posix(): path for path in copy.rglob("*") if path.is_file()}
    files = manifest()[name]["files"]
    assert sorted(found) == sorted(files)
    for name_in_fixture, path in found.items():
        facts = files[name_in_fixture]
        assert hashlib.sha256(path.read_bytes()).hexdigest() == facts["sha256"], name_in_fixture
        assert path.stat().st_mtime_ns // 1_000_000 == facts["mtime_ms"], name_in_fixture


@pytest.mark.parametrize("name", NAMES)
def test_kafka_has_said_what_is_in_every_partition(name: str) -> None:
    kind = "list" if name == "0.7" else "list_digest"
    assert expected_partitions(name, kind) == fixture_partitions(name) != []


@pytest.mark.parametrize("name", [name for name in NAMES if name != "0.7"])
def test_recorded_lists_have_as_many_rows_as_their_digests_say(name: str) -> None:
    for partition in expected_partitions(name, "list"):
        rows = expected(name, partition, "list")
        digest = expected(name, partition, "list_digest")["full"]
        counts = [sum(row["t"] == kind for row in rows) for kind in ("batch", "record")]
        assert counts == [digest["batches"], digest["records"]], partition


def test_no_fixture_is_without_an_entry() -> None:
    plain = {path for name in NAMES if "archive" not in manifest()[name] for path in (KAFKA / name).rglob("*")}
    packed = {FIXTURES / entry["archive"] for entry in manifest().values() if "archive" in entry}
    assert {path for path in KAFKA.rglob("*") if path.is_file()} <= plain | packed


def test_the_fixtures_stay_small() -> None:
    files = [path for folder in (KAFKA, EXPECTED) for path in folder.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < LARGEST_TOTAL_BYTES
