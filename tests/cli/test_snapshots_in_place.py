"""A snapshot of a backup stands where a log directory stands: each command that reads, reads it in place."""

from __future__ import annotations

from pathlib import Path

import pytest

import seglog
from tests.support.command_line import clean_logs, ended


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The log directory of a stopped broker, and a snapshot of it."""
    root = tmp_path_factory.mktemp("in-place")
    logs = clean_logs(root)
    assert ended("backup", logs, "--to", root / "backup").code == 0
    return logs, root / "backup#latest"


READING = (
    ("ls", "{logs}"),
    ("ls", "{logs}/orders-*"),
    ("ls", "{logs}/{{orders-gzip,customers}}-[0-9]"),
    ("read", "{logs}/orders-gzip-0"),
    ("dump", "{logs}/orders-gzip-0"),
    ("verify", "{logs}"),
    ("verify", "{logs}/customers-*"),
    ("stats", "{logs}"),
    ("explain", "{logs}/customers-0"),
    ("groups", "{logs}"),
    ("txn", "{logs}/payments-0"),
    ("doctor", "{logs}"),
    ("report", "{logs}"),
    ("metadata", "{logs}"),
    ("diff", "{logs}/customers-0", "{logs}/customers-1"),
    ("sql", "select topic, count(*) from records group by topic order by topic", "{logs}/orders-*"),
    ("latest", "{logs}/customers-0"),
    ("export", "{logs}/orders-gzip-0", "--format", "jsonl", "-o", "-"),
)


@pytest.mark.parametrize("line", READING, ids=" ".join)
def test_each_command_that_reads_reads_a_snapshot_as_its_source(
    places: tuple[Path, Path], line: tuple[str, ...]
) -> None:
    if line[0] == "sql":
        pytest.importorskip("duckdb")
    logs, snapshot = places
    expected = ended(*(part.format(logs=logs) for part in line))
    done = ended(*(part.format(logs=snapshot) for part in line))
    assert (done.code, done.stderr.replace(str(snapshot).encode(), str(logs).encode())) == (
        expected.code,
        expected.stderr,
    )
    assert done.stdout.replace(str(snapshot).encode(), str(logs).encode()) == expected.stdout and expected.code <= 1


@pytest.mark.parametrize(
    "line",
    [
        ("top", "--once", "{}"),
        ("replicas", "{}"),
        ("clean", "-n", "--policy", "compact", "{}/customers-0"),
        ("retain", "-n", "--retention-ms", "7d", "{}"),
        ("recover", "-n", "{}"),
        ("repair", "-n", "{}/customers-0"),
        ("reindex", "{}/customers-0"),
        ("append", "{}/customers-0"),
        ("redact", "-n", "--key", "x", "{}"),
        ("rebuild", "-n", "{}", "-o", "{}-new"),
        ("backup", "{}", "--to", "{}-new"),
    ],
    ids=lambda line: line[0],
)
def test_what_needs_directories_names_the_way_to_them(places: tuple[Path, Path], line: tuple[str, ...]) -> None:
    done = ended(*(part.format(places[1]) for part in line))
    assert done.code == 10 and b"seglog backup restore" in done.stderr and b"#latest" in done.stderr


def test_the_library_opens_what_a_pattern_in_a_snapshot_names(places: tuple[Path, Path]) -> None:
    pytest.importorskip("pyarrow")
    logs, snapshot = places
    shown, table = (seglog.open_table(f"{place}/orders-*").scanner().to_table() for place in (snapshot, logs))
    assert shown.num_rows == table.num_rows > 0 and shown.schema == table.schema
