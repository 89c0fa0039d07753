"""dump and export of a range of offsets or times read what the indexes say that it takes, on a disk and in a store."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from seglog.model import Record
from seglog.scan.segment_scan import CHUNK_BYTES
from seglog_stores.remote import routing, traffic
from tests.support.command_line import ended
from tests.support.object_server import object_server
from tests.support.open_logs import START_MS, opened_log
from tests.support.padding import bytes_read

SEGMENTS, BATCHES, RECORDS = 8, 64, 16  # of segments, batches a segment, records a batch
COUNT = SEGMENTS * BATCHES * RECORDS
MORE = 1 << 20
VALUE = b"v" * 1500
BATCH_BYTES = 26_000

AT = START_MS
RANGES = {
    "--from-offset 8000": range(8000, COUNT),
    "--from-offset 3000 --to-offset 3010": range(3000, 3010),
    "--to-offset 20": range(20),
    "--from-offset 3000 --limit 3": range(3000, 3003),
    f"--since {AT + 8000}": range(8000, COUNT),
    f"--until {AT + 20}": range(20),
    f"--since {AT + 3000} --until {AT + 3010}": range(3000, 3010),
    f"--from-offset 100 --until {AT + 150}": range(100, 150),
}


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of eight segments of 1.6 MB; record i has timestamp START_MS + i."""
    directory = tmp_path_factory.mktemp("logs") / "orders-0"
    with opened_log(directory, segment_bytes=BATCHES * BATCH_BYTES) as log:
        for i in range(0, COUNT, RECORDS):
            if i and i % (BATCHES * RECORDS) == 0:
                log.roll()
            log.append([Record(VALUE, b"%d" % j, AT + j) for j in range(i, i + RECORDS)])
    return directory


@pytest.fixture(scope="module")
def url(partition: Path) -> Iterator[str]:
    """The same log in an object store."""
    before = dict(os.environ)
    with object_server() as server:
        for path in partition.iterdir():
            server.objects[f"backup/logs/orders-0/{path.name}"] = path.read_bytes()
        os.environ.update(server.environment)
        yield "s3://backup/logs/orders-0"
    os.environ.clear()
    os.environ.update(before)


def offsets(stdout: bytes) -> list[int]:
    rows = [json.loads(line) for line in stdout.splitlines()]
    return [row["offset"] for row in rows if row.get("type", "record") == "record"]


def command(name: str, where: str | Path, chosen: str) -> list[str | Path]:
    how = {
        "dump": ["dump", "--records", "--json"],
        "export": ["export", "-o", "-", "--format", "jsonl"],
        "read": ["read", "--json"],
    }[name]
    return [*how, *chosen.split(), where]


@pytest.mark.parametrize("chosen", RANGES)
@pytest.mark.parametrize("name", ["dump", "export", "read"])
def test_a_range_takes_its_batches_and_at_most_a_mebibyte_more(
    partition: Path, name: str, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bytes_read(monkeypatch) as read:
        found = ended(*command(name, partition, chosen))
    assert (found.code, offsets(found.stdout)) == (0, list(RANGES[chosen]))
    chunk = CHUNK_BYTES if name == "read" else 0  # it opens the log, and reads as a consumer does
    assert read.total() <= len(RANGES[chosen]) / RECORDS * BATCH_BYTES + MORE + chunk


@pytest.mark.parametrize("chosen", RANGES)
@pytest.mark.parametrize("name", ["dump", "export"])
def test_a_range_in_a_store_takes_no_more(url: str, name: str, chosen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "_shared", None)
    monkeypatch.setattr(traffic, "OF_PROCESS", traffic.Traffic())
    found = ended(*command(name, url, chosen))
    assert (found.code, offsets(found.stdout)) == (0, list(RANGES[chosen]))
    assert traffic.OF_PROCESS.bytes_read <= len(RANGES[chosen]) / RECORDS * BATCH_BYTES + MORE


@pytest.mark.parametrize("chosen", ["--from-offset 3000 --to-offset 3010", f"--since {AT + 3000} --until {AT + 3010}"])
def test_a_range_of_one_segment_is_found_in_it(partition: Path, chosen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    log = sorted(partition.glob("*.log"))[2]
    with bytes_read(monkeypatch) as read:
        assert offsets(ended(*command("dump", log, chosen)).stdout) == list(RANGES[chosen])
    assert read.total() <= BATCH_BYTES + MORE


def test_records_with_earlier_timestamps_shortly_after_later_ones_are_found(tmp_path: Path) -> None:
    """A single late timestamp ends no reading by time, and records before it in time may follow it."""
    with opened_log(tmp_path / "t-0", segment_bytes=1 << 20) as log:
        for i in range(600):
            log.append([Record(VALUE, b"k", AT + 3_000_000 if i == 3 else AT + i)])
    for chosen, wanted in {
        f"--until {AT + 300}": [i for i in range(300) if i != 3],
        f"--since {AT + 200} --until {AT + 210}": list(range(200, 210)),
        f"--since {AT + 590}": [3, *range(590, 600)],
    }.items():
        assert offsets(ended(*command("dump", tmp_path / "t-0", chosen)).stdout) == wanted, chosen


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("wound", ["missing", "zeros", "garbage", "shifted"])
def test_wrong_indexes_hide_no_record(tmp_path: Path, suffix: str, wound: str) -> None:
    directory = tmp_path / "t-0"
    with opened_log(directory, segment_bytes=400_000, index_interval_bytes=100) as log:
        for i in range(600):
            log.append([Record(VALUE, b"k", AT + i)])
    for index in sorted(directory.glob(f"*.{suffix}")):
        data = index.read_bytes()
        if wound == "missing":
            index.unlink()
        else:
            zeros, middle = bytes(len(data)), len(data) // 24 * 12
            changed = {"zeros": zeros, "garbage": b"\x07" * len(data), "shifted": data[middle:] + data[:middle]}
            index.write_bytes(changed[wound])
    for first in (5, 250, 599):
        wanted = list(range(first, 600))
        assert offsets(ended(*command("dump", directory, f"--from-offset {first}")).stdout) == wanted
        assert offsets(ended(*command("dump", directory, f"--since {AT + first}")).stdout) == wanted
        ended_at = command("export", directory, f"--to-offset {first} --until {AT + first}")
        assert offsets(ended(*ended_at).stdout) == list(range(first))
