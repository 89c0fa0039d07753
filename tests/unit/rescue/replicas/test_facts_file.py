"""Facts are read as they were written, and refused if they were cut or edited, or are of a newer version."""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seglog.errors import CorruptionError, SeglogError, UnsupportedError
from seglog.layout import BATCH
from seglog.storage.local import LocalFileSystem
from seglog_rescue.operations.replicas import ReplicasRequest, collect, compare, step_lines, write_collected
from seglog_rescue.replicas.digests import LogDigest
from seglog_rescue.replicas.facts import DirectoryFacts, HostFacts, ReplicaFacts
from seglog_rescue.replicas.facts_file import FactsError, parse_facts, write_facts
from seglog_rescue.replicas.keys import KeyMark, edges
from tests.support.lost_clusters import broker_directory, registration, topic_records
from tests.support.manual_clock import ManualClock
from tests.support.metadata_records import write_metadata_log

FS = LocalFileSystem()


@pytest.fixture
def data(tmp_path: Path) -> bytes:
    made = broker_directory(tmp_path / "1", 1, {"orders-0": [0, 0, 1], "orders-1": [0] * 40})
    write_metadata_log(made, [registration(1), *topic_records("orders", [[1], [1]])])
    return write_facts(collect(FS, ManualClock(5000), ReplicasRequest([made])))


def resealed(lines: list[object]) -> bytes:
    """The lines with the last line that fits them."""
    body = b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)
    end = {"type": "end", "lines": len(lines), "sha256": hashlib.sha256(body).hexdigest()}
    return body + json.dumps(end).encode() + b"\n"


def parsed_lines(data: bytes) -> list[dict[str, object]]:
    return [json.loads(line) for line in data.splitlines()[:-1]]


def test_facts_are_read_as_they_were_written_and_hold_no_record(data: bytes) -> None:
    facts = parse_facts(data, "f")
    assert write_facts(facts) == data
    assert [replica.disk_end for replica in facts.directories[0].replicas] == [3, 40]
    assert b"value" not in data


def test_an_ordinary_partition_takes_less_than_a_kilobyte(tmp_path: Path) -> None:
    made = broker_directory(tmp_path / "9", 1, {"orders-0": [epoch for epoch in range(8) for _ in range(700)]})
    lines = write_facts(collect(FS, ManualClock(), ReplicasRequest([made]))).splitlines()
    (line,) = [line for line in lines if b'"replica"' in line]
    assert len(line) <= 1000


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("first", [0, 4_000_000_000])
def test_a_partition_of_a_hundred_million_records_and_eight_epochs_takes_less_than_a_kilobyte(
    first: int, compacted: bool
) -> None:
    count, each = 20_000, 5_000
    table, numbers = np.zeros(count, dtype=BATCH), np.arange(count)
    table["base_offset"], table["last_offset"] = first + numbers * each, first + numbers * each + each - 1
    table["count"], table["magic"], table["crc"] = each, 2, numbers * 7919
    table["base_timestamp"] = table["max_timestamp"] = 1_795_870_000_000 + numbers * 977
    table["leader_epoch"] = numbers * 8 // count + 40
    digest = LogDigest()
    digest.add(table)
    end, path = first + count * each, "/var/lib/kafka/data"
    active, chance = end - count * each // 4, random.Random(1)
    keys = [KeyMark(edge, chance.randrange(1 << 20), chance.getrandbits(48)) for edge in edges(active, end)]
    replica = ReplicaFacts(
        topic="customer.orders.v1",
        partition=117,
        directory=f"{path}/customer.orders.v1-117",
        topic_id="pdX4nQ3kTkSxVdBZ0c1LsA",
        segments=12,
        bytes=9_876_543_210,
        start=first,
        end=end,
        disk_end=end,
        epochs=tuple(digest.epochs),
        high_watermark=end - 3,
        recovery_point=end - 5,
        cleaned=active - 9 if compacted else 0,
        active=active if compacted else 0,
        newest_timestamp=digest.newest_timestamp,
        marks=digest.marks(),
        keys=tuple(keys) if compacted else (),
    )
    host = HostFacts("f", 1, (DirectoryFacts(path, 1, replicas=(replica,)),))
    written = write_facts(host)
    assert parse_facts(written, "f") == host
    assert len(written.splitlines()[2]) <= 1024


@pytest.mark.parametrize("at", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_file_that_was_cut_is_refused_by_name(data: bytes, at: float) -> None:
    with pytest.raises(FactsError, match=r"^f: .*(cut|not JSON)"):
        parse_facts(data[: int(len(data) * at)], "f")


def test_every_edit_of_a_line_is_refused(data: bytes) -> None:
    for edited in (data.replace(b'"end":3', b'"end":4'), data.replace(b"orders", b"orderz", 1), data + b"{}\n"):
        assert edited != data
        with pytest.raises(FactsError):
            parse_facts(edited, "f")
    lines = data.splitlines(keepends=True)
    with pytest.raises(FactsError, match="edited, or lines of it are missing"):
        parse_facts(b"".join(lines[:2] + lines[3:]), "f")


def test_a_newer_major_version_is_refused_by_name_and_a_newer_minor_one_is_read(data: bytes) -> None:
    lines = parsed_lines(data)
    lines[0]["version"] = "2.0"
    with pytest.raises(UnsupportedError, match=r"f: facts of version 2\.0"):
        parse_facts(resealed(lines), "f")
    lines[0]["version"] = "1.7"
    lines[0]["hint"] = lines[2]["weight"] = [1, {"new": None}]
    lines.insert(2, {"type": "rack", "name": "a"})
    assert parse_facts(resealed(lines), "f") == parse_facts(data, "f")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("end", "3"),
        ("end", -7),
        ("end", 1 << 70),
        ("end", True),
        ("end", None),
        ("topic", 5),
        ("marks", [[1, 2]]),
        ("marks", {}),
        ("holes", [[1]]),
        ("epochs", [[1, 2, 3]]),
        ("epochs", 5),
    ],
)
def test_a_field_of_another_type_is_refused_with_its_line(data: bytes, field: str, value: object) -> None:
    lines = parsed_lines(data)
    number = next(i for i, line in enumerate(lines) if line["type"] == "replica")
    lines[number][field] = value
    with pytest.raises(FactsError, match=f"line {number + 1}: the field {field}"):
        parse_facts(resealed(lines), "f")


@pytest.mark.parametrize(("field", "value"), [("topic", "../orders"), ("topic", ""), ("partition", -1)])
def test_a_replica_whose_partition_is_not_one_is_refused(data: bytes, field: str, value: object) -> None:
    lines = parsed_lines(data)
    number = next(i for i, line in enumerate(lines) if line["type"] == "replica")
    lines[number][field] = value
    with pytest.raises(FactsError, match=f"line {number + 1}: its partition is invalid"):
        parse_facts(resealed(lines), "f")


@pytest.mark.parametrize(
    ("field", "value"),
    [("directory", "/"), ("directory", ""), ("directory", "/logs/clicks-7"), ("state", "-future"), ("state", "gone")],
)
def test_a_replica_whose_directory_is_not_one_of_its_partition_is_refused(data: bytes, field: str, value: str) -> None:
    lines = parsed_lines(data)
    number = next(i for i, line in enumerate(lines) if line["type"] == "replica")
    lines[number][field] = value
    with pytest.raises(FactsError, match=f"line {number + 1}: .* is not a directory of"):
        parse_facts(resealed(lines), "f")


def test_a_directory_id_that_is_not_one_is_refused(data: bytes) -> None:
    lines = parsed_lines(data)
    number = next(i for i, line in enumerate(lines) if line["type"] == "metadata")
    lines[number]["brokers"] = [{"node": 1, "directories": ["x"]}]
    with pytest.raises(FactsError, match=f"line {number + 1}: the field directories"):
        parse_facts(resealed(lines), "f")


def test_a_line_without_its_owner_or_a_field_that_must_be_there_is_refused(data: bytes) -> None:
    lines = parsed_lines(data)
    with pytest.raises(FactsError, match="no line before it"):
        parse_facts(resealed([lines[0], *[line for line in lines if line["type"] == "replica"]]), "f")
    del lines[2]["topic"]
    with pytest.raises(FactsError, match="the field topic is missing"):
        parse_facts(resealed(lines), "f")


@pytest.mark.parametrize(
    "junk", [b"", b"\n", b"\xff\xfe\n{}\n", b"[1]\n", b"[" * 5000 + b"\n\n\n", b'{"type":"facts"}\n']
)
def test_what_is_not_facts_is_refused(junk: bytes) -> None:
    with pytest.raises(CorruptionError):
        parse_facts(junk, "f")


def places_of(value: object, path: tuple[int | str, ...] = ()) -> Iterator[tuple[int | str, ...]]:
    """Where numbers, texts and lists lie in a line."""
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places_of(part, (*path, key))
    if path and not isinstance(value, dict):
        yield path


def files_of_two(tmp_path: Path) -> list[Path]:
    """Facts of two brokers whose copies differ, one of them torn."""
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0] * 4 + [2] * 3})
    two = broker_directory(tmp_path / "2", 2, {"orders-0": [0] * 30})
    log = two / "orders-0" / f"{0:020}.log"
    log.write_bytes(log.read_bytes()[:-4])
    for name in ("replication-offset-checkpoint", "cleaner-offset-checkpoint"):
        (two / name).write_text("0\n1\norders 0 20\n")
    write_metadata_log(one, [registration(1), registration(2), *topic_records("orders", [[1, 2]], epoch=2, isr=[1])])
    files = [tmp_path / f"{directory.name}.facts" for directory in (one, two)]
    for directory, file in zip((one, two), files, strict=True):
        write_collected(FS, collect(FS, ManualClock(10**15), ReplicasRequest([directory])), file)
    return files


def is_refused(files: list[Path]) -> bool:
    """True if facts are refused by an error of seglog's; else they are compared, and no line leaves a directory."""
    try:
        report = compare(FS, ManualClock(10**15), ReplicasRequest(files))
    except SeglogError:
        return True
    assert not any("/../" in line for line in step_lines(report))
    return False


def test_facts_that_were_changed_and_sealed_anew_are_refused_or_compared(tmp_path: Path) -> None:
    """`SEGLOG_FACTS_MUTATIONS` are as many as are tried (10,000 were)."""
    files = files_of_two(tmp_path)
    whole, chance, refused = [file.read_bytes() for file in files], random.Random(44), 0
    values = [0, -1, 1, 3, 50, 1 << 31, (1 << 63) - 1, -1 << 63, "", "x", "../x", [], None, True]
    rounds = int(os.environ.get("SEGLOG_FACTS_MUTATIONS", "120"))
    for _ in range(rounds):
        at = chance.randrange(2)
        lines = parsed_lines(whole[at])
        for _ in range(chance.randint(1, 3)):
            line: Any = chance.choice(lines[1:])
            *above, last = chance.choice(list(places_of(line)))
            for key in above:
                line = line[key]
            line[last] = chance.choice(values)
        files[at].write_bytes(resealed(lines))
        refused += is_refused(files)
        files[at].write_bytes(whole[at])
    assert 0 < refused < rounds


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Bytes that are changed, put in, left out, or repeated."""
    made = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        at, length = chance.randrange(len(made)), chance.choice((1, 1, 2, 7, 60))
        what = chance.randrange(5)
        if what == 0:
            made[at] ^= 1 << chance.randrange(8)
        elif what == 1:
            made[at : at + length] = b""
        elif what == 2:
            made[at:at] = chance.choice(
                (b"0", b"9", b"-", b'"', b"[", b"{", b"\n", b"\0", b"\xff", b"e9", b",", b"\\u")
            )
        elif what == 3:
            made[at:at] = made[at : at + length]
        else:
            made[at] = chance.choice(b"0123456789-[]{},:")
    return bytes(made)


def test_facts_of_which_bytes_were_changed_are_refused_and_sealed_anew_they_may_be_compared(tmp_path: Path) -> None:
    """`SEGLOG_FACTS_MUTATIONS` as above (2,000 were)."""
    files = files_of_two(tmp_path)
    whole, chance, refused = [file.read_bytes() for file in files], random.Random(45), 0
    rounds = int(os.environ.get("SEGLOG_FACTS_MUTATIONS", "120"))
    for number in range(rounds):
        at, is_sealed = chance.randrange(2), number % 2
        *body, end, _ = whole[at].split(b"\n")
        changed = mutated(b"\n".join([*body, b""]), chance)
        if is_sealed:
            values = {"type": "end", "lines": changed.count(b"\n"), "sha256": hashlib.sha256(changed).hexdigest()}
            end = json.dumps(values).encode()
        files[at].write_bytes(changed + end + b"\n")
        if is_refused(files):
            refused += is_sealed
        else:
            assert is_sealed or changed + end + b"\n" == whole[at]
        files[at].write_bytes(whole[at])
    assert 0 < refused < rounds // 2
