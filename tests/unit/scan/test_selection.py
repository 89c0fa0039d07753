"""Records are chosen by the bytes that they contain, and by nothing that only lies between them."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

import seglog
from seglog.scan.selection import Selection
from tests.support.command_line import json_lines, run
from tests.support.fixtures import fixture_copy
from tests.support.naive import message

PARTS = [b"", b"a", b"ab", b"\x00", b"\x02a\x02b", b"needle", b"nee", b"dle", b"\xff\x01", b"aaaa"]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_what_a_record_contains_is_what_its_parts_contain(tmp_path: Path, codec: str) -> None:
    chance = random.Random(3)

    def part() -> bytes | None:
        return chance.choice([None, *PARTS, b"".join(chance.choices(PARTS, k=3))])

    with seglog.open_log(tmp_path / "t-0", create=True) as log:
        for _ in range(60):
            headers = [seglog.Header((part() or b"").decode("utf-8", "surrogateescape"), part()) for _ in range(2)]
            some = [seglog.Record(part(), part(), 1000, tuple(headers[: chance.randrange(3)])) for _ in range(5)]
            log.append(some, codec=codec)
        for wanted in [*PARTS, b"needle needle", b"a\x00", b"eed"]:
            right = [record.offset for record in log.records() if contains(record, wanted)]
            chosen = [Selection(contained=wanted).of(records, True).rows["offset"] for records in log.columns()]
            assert [int(offset) for offsets in chosen for offset in offsets] == right, wanted


def contains(record: seglog.Record, wanted: bytes) -> bool:
    names = [header.key.encode("utf-8", "surrogateescape") for header in record.headers]
    parts = [record.key, record.value, *names, *(header.value for header in record.headers)]
    return not wanted or any(wanted in part for part in parts if part is not None)


def test_magic_0_and_1_and_wrappers_are_searched(tmp_path: Path) -> None:
    for name in ("0.8.2", "0.10.2"):
        for directory in sorted(fixture_copy(name, tmp_path / name).glob("*-0")):
            with seglog.open_log(directory) as log:
                records = list(log.records())
                found = [Selection(contained=b"1").of(some, True).rows["offset"] for some in log.columns()]
            wanted = [record.offset for record in records if contains(record, b"1")]
            assert [int(offset) for offsets in found for offset in offsets] == wanted


def test_the_time_of_a_wrapper_says_nothing_of_the_messages_in_it(tmp_path: Path) -> None:
    """Some old clients sent wrappers without a timestamp; `sql` shows what they hold, and so do the others."""
    (tmp_path / "t-0").mkdir()
    inner = b"".join(message(i, 1, b"k", b"v", timestamp=1000 * (i + 1)) for i in range(3))
    wrapper = message(2, 1, None, gzip.compress(inner), attributes=1)
    (tmp_path / "t-0" / f"{0:020}.log").write_bytes(wrapper)
    since = "1970-01-01T00:00:02Z"
    dumped = json_lines(run("dump", "--json", "--records", "--since", since, tmp_path / "t-0"))
    assert [row["offset"] for row in dumped if row["type"] == "record"] == [1, 2]
    exported = tmp_path / "o.jsonl"
    run("export", "--since", since, tmp_path / "t-0", "-o", exported)
    assert len(exported.read_text().splitlines()) == 2


def test_the_commands_take_the_same_records(tmp_path: Path) -> None:
    logs = fixture_copy("4.3.0/clean", tmp_path)
    read = json_lines(run("read", "--json", "--grep", "Oslo", logs / "orders-lz4-0"))
    dumped = json_lines(run("dump", "--json", "--records", "--grep", "Oslo", logs / "orders-lz4-0"))
    run("export", "--grep", "Oslo", logs / "orders-lz4-0", "-o", tmp_path / "o.jsonl")
    assert 0 < len(read) < 700
    assert all("Oslo" in row["value"] for row in read)
    offsets = [row["offset"] for row in read]
    assert [row["offset"] for row in dumped if row["type"] == "record"] == offsets
    assert len((tmp_path / "o.jsonl").read_text().splitlines()) == len(offsets)
