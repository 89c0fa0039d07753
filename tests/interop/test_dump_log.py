"""`dump-log` and kafka-dump-log on the same files: every kind of file, every option, records that cannot be decoded."""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from seglog.format import coordinator, message_tables
from seglog.format.checksum import crc32c
from seglog.format.producer_snapshot import ProducerEntry, encode_snapshot
from seglog.format.wire import Field, Message, encode_message
from seglog_stores.formats.remote_metadata import REMOTE_RECORDS
from tests.support import effort
from tests.support.command_line import Ended, ended
from tests.support.fixtures import fixture_copy, manifest
from tests.support.kafka import KafkaHarness
from tests.support.kafka.kafka import DumpOutput, KafkaFailure
from tests.support.naive import NaiveRecord, batch_v2

pytestmark = pytest.mark.kafka

SEED = effort.first_seed(1)
RECORDS = effort.tries(400)  # of each kind
EVERY_FILE = effort.EVERY

OPTIONS = (
    [],
    ["--deep-iteration"],
    ["--print-data-log"],
    ["--print-data-log", "--skip-record-metadata"],
    ["--deep-iteration", "--skip-record-metadata"],
    ["--offsets-decoder"],
    ["--transaction-log-decoder"],
    ["--cluster-metadata-decoder"],
    ["--remote-log-metadata-decoder"],
    ["--share-group-state-decoder"],
    ["--offsets-decoder", "--skip-record-metadata"],
    ["--verify-index-only"],
    ["--index-sanity-check"],
    ["--max-bytes", "5000"],
    ["--max-bytes", "1"],
    ["--max-bytes", "100", "--deep-iteration"],
    ["--max-message-size", "100"],
    ["--value-decoder-class", "org.apache.kafka.tools.api.IntegerDecoder"],
    ["--key-decoder-class", "org.apache.kafka.tools.api.LongDecoder"],
)
KINDS = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint")
# kafka-dump-log says this of every segment that does not begin at offset 0
FIRST_OFFSET = re.compile(r"  -1 is followed by \d+\n")
# and this of an index that was preallocated and never written
UNWRITTEN = re.compile(r"Mismatches in .*\n  Index offset: \d+, log offset: \d+\n(?!  )")
EMPTY_TITLE = re.compile(r"Non-consecutive offsets in .*\n(?!  )")


def kafkas(kafka: KafkaHarness, *arguments: str | Path) -> DumpOutput | None:
    """What kafka-dump-log writes; None where it dies."""
    try:
        return kafka.dump_log(*arguments)
    except KafkaFailure:
        return None


def check_same(theirs: DumpOutput | None, ours: Ended, what: Sequence[str | Path]) -> None:
    assert b"Traceback" not in ours.stderr, what
    if theirs is None:
        assert ours.code in (0, 1), what
        return
    said = EMPTY_TITLE.sub("", FIRST_OFFSET.sub("", theirs.stderr))
    if str(what[1]).endswith(".index") and Path(what[1]).read_bytes()[:8] == bytes(8):
        said = UNWRITTEN.sub("", said)
    assert ours.stdout.decode() == theirs.stdout, what
    assert ours.stderr.decode() == said, what
    wrong = re.search(r"(?m)^(Mismatches|Found|The following|Snapshot)", said)
    assert ours.code == (1 if wrong else 0), what


@pytest.mark.parametrize("name", sorted(set(manifest()) - {"0.7"}))
def test_every_file_gives_the_same_text_with_every_option(name: str, kafka: KafkaHarness, tmp_path: Path) -> None:
    files = sorted(path for path in fixture_copy(name, tmp_path).rglob("*") if path.suffix in KINDS)
    turn = random.Random(f"{name}{SEED}")
    turn.shuffle(files)
    seen: dict[str, int] = {}
    for path in files:
        seen[path.suffix] = seen.get(path.suffix, 0) + 1
        for options in OPTIONS if EVERY_FILE or seen[path.suffix] == 1 else turn.sample(OPTIONS, 1):
            asked = ["--files", path, *options]
            check_same(kafkas(kafka, *asked), ended("dump-log", *asked), asked)


def test_several_files_are_dumped_in_order(kafka: KafkaHarness, tmp_path: Path) -> None:
    directory = fixture_copy("4.3.0/clean", tmp_path) / "payments-0"
    stranger = tmp_path / "stranger.txt"
    stranger.write_text("x")
    files = [*sorted(path for path in directory.iterdir() if path.suffix in KINDS), stranger, tmp_path / "nodot"]
    asked = ["--files", ",".join(map(str, files)), "--print-data-log"]
    check_same(kafkas(kafka, *asked), ended("dump-log", *asked), asked)


@pytest.mark.parametrize("name", ["0.log", "-1.log", "+7.log", "12.5.log", "bootstrap.checkpoint", "5-1.checkpoint"])
def test_a_log_of_any_name_has_the_same_title(name: str, kafka: KafkaHarness, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(batch_v2(0, [NaiveRecord(0, 0, b"k", b"v")]))
    for options in ([], ["--print-data-log"], ["--max-bytes", "0"]):
        asked = ["--files", tmp_path / name, *options]
        check_same(kafkas(kafka, *asked), ended("dump-log", *asked), asked)


def test_damaged_snapshots_and_odd_versions_have_the_same_text(kafka: KafkaHarness, tmp_path: Path) -> None:
    good = encode_snapshot([ProducerEntry(5), ProducerEntry(6, 1, 2, 3, 4, 5, 6, 7)])
    maker = Maker(f"snapshots {SEED}")
    counted = [struct.pack(">i", count) + good[10:] for count in (0, 1, 3, 92, 93, -1, 2**31 - 1)]
    contents = [good[:size] for size in (0, 1, 2, 5, 9, 10, 20, len(good) - 1)]
    contents += [good + b"x", b"\0\2", *(struct.pack(">hI", 1, crc32c(body)) + body for body in counted)]
    contents += [maker.damaged(good) for _ in range(20)]
    versions = [struct.pack(">h", version) + bytes(32) for version in (0, 1, 255, 256, -1, -256)]
    for suffix, data in [("snapshot", each) for each in contents] + [("txnindex", each) for each in versions]:
        path = tmp_path / f"{5:020d}.{suffix}"
        path.write_bytes(data)
        asked = ["--files", path]
        check_same(kafkas(kafka, *asked), ended("dump-log", *asked), [*asked, data.hex()])


def test_a_file_of_another_kind_is_ignored_as_there(kafka: KafkaHarness, tmp_path: Path) -> None:
    (tmp_path / "stranger.txt").write_text("x")
    theirs = kafka.dump_log("--files", tmp_path / "stranger.txt")
    ours = ended("dump-log", "--files", tmp_path / "stranger.txt")
    assert (ours.code, ours.stdout.decode(), ours.stderr.decode()) == (0, theirs.stdout, theirs.stderr)
    assert ours.stderr.decode() == f"Ignoring unknown file {tmp_path}/stranger.txt\n"


# --- records of Kafka's own topics, valid ones and damaged ones


class Maker:
    """Random messages of the tables."""

    def __init__(self, seed: object) -> None:
        self.random = random.Random(str(seed))

    def value(self, field: Field, version: int) -> Any:
        chosen = self.random
        if version >= field.nullable_from and chosen.random() < 0.2:
            return None
        if field.array:
            return [self.one(field.type, version) for _ in range(chosen.randrange(3))]
        return self.one(field.type, version)

    def one(self, kind: str | tuple[Field, ...], version: int) -> Any:
        chosen = self.random
        if isinstance(kind, tuple):
            return self.fields(kind, version)
        if kind == "bool":
            return chosen.random() < 0.5
        if kind == "float64":
            return chosen.choice([0.0, -0.0, 1.5, 1e7, 1e-3, 9999999.0, 1e300, 0.001234, 123456.75, float("inf")])
        if kind == "string":
            return chosen.choice(["", "topic", "ä→😀", 'a"\\/\n\t\x01\x1b\x7f\u2028', "x" * 40])
        if kind == "bytes":
            return chosen.randbytes(chosen.randrange(9))
        if kind == "uuid":
            return "".join(chosen.choices("ABCDEFGHabcdefgh0123_-", k=21)) + chosen.choice("AQgw")
        bits = {"uint16": 16}.get(kind) or int(kind.removeprefix("int"))
        if kind == "uint16":
            return chosen.randrange(1 << 16)
        return chosen.choice([0, 1, 2, 3, 5, 100 if bits > 8 else 4, -1, (1 << (bits - 1)) - 1, -(1 << (bits - 1))])

    def fields(self, fields: tuple[Field, ...], version: int) -> Mapping[str, Any]:
        present = [field for field in fields if field.exists_in(version)]
        wanted = [field for field in present if field.tag is None or self.random.random() < 0.6]
        return {field.name: self.value(field, version) for field in wanted}

    def message(self, message: Message) -> tuple[int, bytes]:
        version = self.random.randint(0, message.last_version)
        return version, encode_message(message, self.fields(message.fields, version), version)

    def damaged(self, data: bytes) -> bytes:
        """`data`, or something like it."""
        chosen, kind = self.random, self.random.randrange(6)
        if kind < 2 or not data:
            return data
        at = chosen.randrange(len(data))
        if kind == 2:
            return data[:at]
        if kind == 3:
            return data + chosen.randbytes(chosen.randrange(1, 4))
        mask = chosen.choice([0x80, 1, 0xFF, chosen.randrange(1, 256)])
        return data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]


# Java before 19 writes more digits of some numbers than it takes to tell them apart.
QUOTA = re.compile(r'"value":(-?[0-9.]+(?:E-?[0-9]+)?),')


def as_number(found: re.Match[str]) -> str:
    return f'"value":{float(found[1])},'


def framed(maker: Maker, table: str) -> Iterator[tuple[bytes | None, bytes | None]]:
    known = sorted(message_tables.messages(table).items())
    while True:
        (number, _), message = maker.random.choice(known)
        version, body = maker.message(message)
        yield None, maker.damaged(bytes([1, number, version]) + body)


def coordinated(maker: Maker, table: str) -> Iterator[tuple[bytes | None, bytes | None]]:
    known = message_tables.messages(table)
    numbers = sorted({number for number, _ in known})
    while True:
        number = maker.random.choice(numbers)
        key = struct.pack(">h", number) + maker.message(known[number, "key"])[1]
        version, body = maker.message(known[number, "value"])
        value = maker.damaged(struct.pack(">h", version) + body)
        yield maker.damaged(key), None if maker.random.random() < 0.1 else value


def of_4_4(record: NaiveRecord) -> bool:
    """Whether 4.4 has added the record (UNREGISTER_CONTROLLER_RECORD), or fields of it (a streams group)."""
    return (record.value or b"")[1:2] == b"\x1d" if record.key is None else record.key[:2] == b"\x00\x11"


@pytest.mark.parametrize(
    ("option", "make", "table"),
    [
        ("--cluster-metadata-decoder", framed, message_tables.METADATA),
        ("--remote-log-metadata-decoder", framed, REMOTE_RECORDS),
        ("--offsets-decoder", coordinated, coordinator.OFFSETS),
        ("--transaction-log-decoder", coordinated, coordinator.TRANSACTIONS),
        ("--share-group-state-decoder", coordinated, coordinator.SHARE_STATE),
    ],
    ids=lambda value: value if isinstance(value, str) and value.startswith("--") else "",
)
def test_records_of_kafkas_own_topics_read_the_same_intact_and_damaged(
    option: str, make: Any, table: str, kafka: KafkaHarness, tmp_path: Path
) -> None:
    source = make(Maker(f"{option}{SEED}"), table)
    records = [NaiveRecord(i, 0, *next(source)) for i in range(RECORDS)]
    log = tmp_path / "t-0" / f"{0:020d}.log"
    log.parent.mkdir()
    log.write_bytes(batch_v2(0, records))
    theirs = kafka.dump_log("--files", log, option).stdout.split("\n| offset: ")
    ours = ended("dump-log", "--files", log, option).stdout.decode().split("\n| offset: ")
    for number, (one, other) in enumerate(zip(theirs, ours, strict=True)):
        if number and of_4_4(records[number - 1]):
            continue
        assert QUOTA.sub(as_number, other) == QUOTA.sub(as_number, one), records[number - 1]


def test_a_record_without_a_value_is_no_end(kafka: KafkaHarness, tmp_path: Path) -> None:
    log = tmp_path / "t-0" / f"{0:020d}.log"
    log.parent.mkdir()
    log.write_bytes(batch_v2(0, [NaiveRecord(0, 0, b"k", None), NaiveRecord(1, 0, b"\xed\xa0\x80\xff", b"\xf0\x9f")]))
    for options in OPTIONS:
        asked = ["--files", log, *options]
        check_same(kafkas(kafka, *asked), ended("dump-log", *asked), asked)


@pytest.mark.parametrize(
    ("option", "table", "number"),
    [("--cluster-metadata-decoder", message_tables.METADATA, 29), ("--offsets-decoder", coordinator.OFFSETS, 17)],
    ids=["metadata", "groups"],
)
def test_what_4_4_has_added_to_internal_topics_reads_as_in_4_4(
    option: str, table: str, number: int, newer_kafka: KafkaHarness, tmp_path: Path
) -> None:
    known, maker = message_tables.messages(table), Maker(f"{option}{SEED}")
    records = []
    for i in range(100):
        key = None if number == 29 else struct.pack(">h", number) + maker.message(known[number, "key"])[1]
        (version, body) = maker.message(next(m for (n, kind), m in known.items() if n == number and kind != "key"))
        framing = bytes([1, number, version]) if key is None else struct.pack(">h", version)
        records.append(NaiveRecord(i, 0, key, framing + body))
    log = tmp_path / "t-0" / f"{0:020d}.log"
    log.parent.mkdir()
    log.write_bytes(batch_v2(0, records))
    asked = ["--files", log, option]
    check_same(kafkas(newer_kafka, *asked), ended("dump-log", *asked), asked)
