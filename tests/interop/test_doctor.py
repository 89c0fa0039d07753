"""The behaviour matrix of the specification (§10.5): what doctor says a broker does is what Kafka's classes do."""

from __future__ import annotations

import shlex
import shutil
import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from seglog import layout
from seglog.format.checkpoint import PartitionMetadata, format_partition_metadata
from seglog.model import Record
from seglog_cli.exit_codes import ExitCode
from tests.support.command_line import json_lines, run
from tests.support.fixtures import fixture_copy, fixture_now_ms
from tests.support.kafka import Broker, KafkaHarness
from tests.support.log_files import batch, encode_message_set, rewrite, write_segment
from tests.support.naive import NaiveRecord, batch_v2

pytestmark = pytest.mark.kafka

SEGMENT_BYTES, INTERVAL = 8192, 256
NOW_MS = 1_700_000_100_000
SETTINGS = ("--set", f"index.interval.bytes={INTERVAL}", "--set", f"segment.bytes={SEGMENT_BYTES}")
KAFKA_SETTINGS: dict[str, Any] = {"segment_bytes": SEGMENT_BYTES, "index_interval_bytes": INTERVAL}
LOSSES = {"RECOVERY_CUTS", "RECOVERY_DROPS_SEGMENTS", "SEGMENT_HOLE", "LOG_DROPPED"}


@pytest.fixture(scope="module")
def generated(kafka: KafkaHarness, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory with one partition of many segments and aborted transactions, closed properly."""
    root = tmp_path_factory.mktemp("doctor") / "logs"
    options = {"batch_records": 7, "records": 300, "transactional": True, "abort_ratio": 0.5, "producers": 3}
    kafka.generate(root, seed=5, **KAFKA_SETTINGS, **options)
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint"):
        (root / name).unlink()
    return root


def logs_of(partition: Path) -> list[Path]:
    return sorted(path for path in partition.glob("*.log") if path.stat().st_size)


def starts_of(data: bytes) -> list[int]:
    found, position = [], 0
    while position < len(data):
        found.append(position)
        position += layout.LOG_OVERHEAD + int(struct.unpack_from(">i", data, position + 8)[0])
    return found


def patch(path: Path, batch: int, at: int, new: bytes) -> None:
    """Overwrites bytes of the n-th batch."""
    data = bytearray(path.read_bytes())
    start = starts_of(bytes(data))[batch] + at
    data[start : start + len(new)] = new
    rewrite(path, bytes(data))


def flip_a_bit(partition: Path) -> None:
    path = logs_of(partition)[1]
    data = bytearray(path.read_bytes())
    data[starts_of(bytes(data))[4] + 40] ^= 0x10
    rewrite(path, bytes(data))


def grow(extra: bytes) -> Callable[[Path], None]:
    def damage(partition: Path) -> None:
        path = logs_of(partition)[-1]
        rewrite(path, path.read_bytes() + extra)

    return damage


def cut_the_last_batch(partition: Path) -> None:
    path = logs_of(partition)[-1]
    rewrite(path, path.read_bytes()[:-20])


def field(segment: int, batch: int, at: int, new: bytes) -> Callable[[Path], None]:
    return lambda partition: patch(logs_of(partition)[segment], batch, at, new)


def move_offset(batch: int, by: int) -> Callable[[Path], None]:
    def damage(partition: Path) -> None:
        path = logs_of(partition)[1]
        data = path.read_bytes()
        offset = int(struct.unpack_from(">q", data, starts_of(data)[batch])[0])
        patch(path, batch, 0, struct.pack(">q", offset + by))

    return damage


def lose(suffix: str, which: int = 1) -> Callable[[Path], None]:
    return lambda partition: sorted(partition.glob(f"*{suffix}"))[which].unlink()


def lose_all(suffix: str) -> Callable[[Path], None]:
    def damage(partition: Path) -> None:
        for path in partition.glob(f"*{suffix}"):
            path.unlink()

    return damage


def lose_index_and_flip(partition: Path) -> None:
    flip_a_bit(partition)
    logs_of(partition)[1].with_suffix(".index").unlink()


def preallocate(partition: Path) -> None:
    for suffix in (".index", ".timeindex"):
        path = logs_of(partition)[0].with_suffix(suffix)
        path.write_bytes(path.read_bytes() + bytes(1200))


def write(name: str, data: bytes = b"") -> Callable[[Path], None]:
    def damage(partition: Path) -> None:
        (partition / name).write_bytes(data)

    return damage


def start_above_the_end(partition: Path) -> None:
    (partition.parent / "log-start-offset-checkpoint").write_text("0\n1\nt 0 5000\n")


def damaged_swap(partition: Path) -> None:
    path = logs_of(partition)[1]
    data = bytearray(path.read_bytes())
    data[starts_of(bytes(data))[3] + 40] ^= 1
    path.with_name(path.name + ".swap").write_bytes(bytes(data))


def swap(partition: Path) -> None:
    for suffix in (".log", ".index", ".timeindex"):
        path = logs_of(partition)[1].with_suffix(suffix)
        shutil.copy2(path, f"{path}.swap")


def wrong_index(partition: Path) -> None:
    """The last entry leads beyond the file's end."""
    path = logs_of(partition)[-1].with_suffix(".index")
    data = path.read_bytes()
    path.write_bytes(data[:-4] + struct.pack(">i", 1 << 20))


@dataclass(frozen=True)
class Row:
    """A damage, and the codes it must get after a clean and after an unclean stop."""

    damage: Callable[[Path], None]
    clean: set[str]
    unclean: set[str]


CUT, DROP, SERVED = "RECOVERY_CUTS", "RECOVERY_DROPS_SEGMENTS", "DAMAGE_SERVED"
OPEN = {"TRANSACTION_OPEN", "ABORTED_EXPOSED"}  # the last batch is a marker: its transaction is open without it
SHORT = "LOG_END_MISSING"  # a snapshot says that the log was longer
MATRIX = {
    "nothing": Row(lambda partition: None, set(), set()),
    "a bit flipped in a batch": Row(flip_a_bit, {SERVED}, {CUT, DROP}),
    "the last batch cut short": Row(cut_the_last_batch, {"TAIL_STAYS", SHORT, *OPEN}, {CUT, SHORT, "TRANSACTION_OPEN"}),
    "17 stray bytes at the end": Row(grow(b"x" * 17), {"TAIL_STAYS"}, {CUT}),
    "10 zeros at the end": Row(grow(bytes(10)), {"TAIL_STAYS"}, {CUT}),
    "18 zeros at the end": Row(grow(bytes(18)), {"LOG_END_UNREADABLE"}, {CUT}),
    "300 zeros at the end": Row(grow(bytes(300)), {"LOG_END_UNREADABLE"}, {CUT}),
    "a length of 13 in a closed segment": Row(field(1, 4, 8, struct.pack(">i", 13)), {SERVED}, {CUT, DROP}),
    "a length of 13 at the log's end": Row(
        field(-1, -1, 8, struct.pack(">i", 13)), {"LOG_END_UNREADABLE", SHORT, *OPEN}, {CUT, SHORT, "TRANSACTION_OPEN"}
    ),
    "a huge length in a closed segment": Row(field(1, 4, 8, b"\x7f" * 4), {SERVED}, {CUT, DROP}),
    "a huge length at the log's end": Row(
        field(-1, -1, 8, b"\x7f" * 4), {"TAIL_STAYS", SHORT, *OPEN}, {CUT, SHORT, "TRANSACTION_OPEN"}
    ),
    "magic 3": Row(field(1, 4, 16, b"\x03"), {SERVED}, {SERVED}),
    "magic 0": Row(field(1, 4, 16, b"\x00"), {SERVED}, {CUT, DROP}),
    "magic 1": Row(field(1, 4, 16, b"\x01"), {SERVED}, {CUT, DROP}),
    "magic -1": Row(field(1, 4, 16, b"\xff"), {SERVED}, {CUT, DROP}),
    "a base offset moved within the segment": Row(move_offset(4, 2), {SERVED}, {SERVED}),
    "a base offset moved back": Row(move_offset(6, -20), {SERVED}, {CUT, DROP}),
    "a base offset below the segment": Row(field(1, 4, 0, bytes(8)), {SERVED}, {"LOAD_FAILS", SERVED}),
    "no time index": Row(lose(".timeindex"), {"TIME_INDEX_MISSING"}, set()),
    "no offset index": Row(lose(".index"), {"SEGMENT_RECOVERED"}, set()),
    # the segment is cut while it is loaded, and recovery finds nothing more to cut: later segments stay
    "no offset index, and a bit flipped": Row(lose_index_and_flip, {"SEGMENT_HOLE"}, {CUT}),
    "no transaction index": Row(lose(".txnindex", 0), {"ABORTED_EXPOSED"}, set()),
    "preallocated indexes": Row(preallocate, {"TIME_INDEX_PADDED", "INDEX_PADDED"}, set()),
    "an offset index that leads astray": Row(wrong_index, {"LOG_END_WRONG", "INDEX_TRUSTED"}, set()),
    "x.log": Row(write("x.log"), {"STRANGE_SEGMENT_NAME"}, {"STRANGE_SEGMENT_NAME"}),
    "x.index": Row(write("x.index"), {"STRANGE_SEGMENT_NAME"}, {"STRANGE_SEGMENT_NAME"}),
    "x.snapshot": Row(write("x.snapshot"), {"STRANGE_SEGMENT_NAME"}, {"STRANGE_SEGMENT_NAME"}),
    "x.swap": Row(write("x.log.swap"), {"STRANGE_SEGMENT_NAME"}, {"STRANGE_SEGMENT_NAME"}),
    "other names": Row(write("notes.txt", b"x"), set(), set()),
    "an index without a log": Row(
        write("00000000000000099999.index"), {"ORPHAN_INDEX", SHORT}, {"ORPHAN_INDEX", SHORT}
    ),
    "a broken epoch file": Row(
        write("leader-epoch-checkpoint", b"0\n5\n"), {"LEADER_EPOCHS_UNREADABLE"}, {"LEADER_EPOCHS_UNREADABLE"}
    ),
    "a broken epoch": Row(
        write("leader-epoch-checkpoint", b"0\n1\nx 0\n"), {"LEADER_EPOCHS_UNREADABLE"}, {"LEADER_EPOCHS_UNREADABLE"}
    ),
    "a log start above the end": Row(start_above_the_end, {"LOG_DROPPED", SHORT}, {"LOG_DROPPED", SHORT}),
    "a swap to be finished": Row(swap, {"LEFTOVER_SETTLED"}, {"LEFTOVER_SETTLED"}),
    "no snapshots": Row(lose_all(".snapshot"), {"SNAPSHOT_LOST"}, set()),
}


def doctored(root: Path, now_ms: int | None = None) -> list[dict[str, Any]]:
    now = () if now_ms is None else ("--now", str(now_ms))
    return [row for row in json_lines(run("doctor", "--json", *SETTINGS, *now, root)) if row["type"] == "diagnosis"]


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("name", MATRIX)
def test_doctor_foresees_whether_a_broker_starts_and_what_it_cuts(
    kafka: KafkaHarness, generated: Path, tmp_path: Path, name: str, clean: bool
) -> None:
    root = tmp_path / "logs"
    shutil.copytree(generated, root)
    if not clean:
        (root / ".kafka_cleanshutdown").unlink()
    MATRIX[name].damage(root / "t-0")
    before = {path.name: path.read_bytes() for path in (root / "t-0").iterdir()}
    rows = doctored(root)
    assert {path.name: path.read_bytes() for path in (root / "t-0").iterdir()} == before, "doctor changed something"
    answer = (kafka.load if clean else kafka.recover)(root / "t-0", **KAFKA_SETTINGS)
    blocked = [row["code"] for row in rows if row["severity"] == "blocker"]
    assert bool(blocked) == ("error" in answer), (rows, answer.get("error"))
    if not blocked:
        assert sum(row["length"] for row in rows if row["code"] in LOSSES) == answer["truncatedBytes"]
    wanted = MATRIX[name].clean if clean else MATRIX[name].unclean
    assert {row["code"] for row in rows} == wanted


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("name", MATRIX)
def test_what_doctor_advises_is_done_and_a_broker_starts_without_losing_more(
    kafka: KafkaHarness, generated: Path, tmp_path: Path, name: str, clean: bool
) -> None:
    root = tmp_path / "logs"
    shutil.copytree(generated, root)
    if not clean:
        (root / ".kafka_cleanshutdown").unlink()
    MATRIX[name].damage(root / "t-0")
    for advice in dict.fromkeys(row["command"] or "" for row in doctored(root)):
        program, *words = shlex.split(advice) or [""]
        if program == "seglog":
            done = run(*words, *SETTINGS)
            lost = "LOG_END_MISSING" in done.stdout  # a repair that cannot bring back what is gone says so
            assert done.exit_code in (
                ExitCode.DONE,
                ExitCode.REPAIRED,
                *([ExitCode.REPAIRED_IN_PART] if lost else []),
            ), done
        elif program == "mv":
            Path(words[0]).rename(tmp_path / "aside")
    rows = doctored(root)
    assert {row["code"] for row in rows if row["severity"] != "note"} <= {SHORT}, rows
    answer = kafka.load(root / "t-0", **KAFKA_SETTINGS)
    assert answer["truncatedBytes"] == 0, answer


def one(rows: list[dict[str, Any]], code: str) -> dict[str, Any]:
    found = [row for row in rows if row["code"] == code]
    assert len(found) == 1, rows
    return found[0]


@pytest.fixture
def root(generated: Path, tmp_path: Path) -> Path:
    target = tmp_path / "logs"
    shutil.copytree(generated, target)
    return target


def test_what_is_appended_after_a_tail_cannot_be_read(kafka: KafkaHarness, root: Path) -> None:
    grow(b"x" * 17)(root / "t-0")
    row = one(doctored(root), "TAIL_STAYS")
    assert row["length"] == 17
    end = row["first_offset"]
    answer = kafka.append(root / "t-0", [(b"k", b"v")], **KAFKA_SETTINGS)
    assert answer["appends"][0]["firstOffset"] == end
    result = kafka.read(root / "t-0", end, isolation="log_end", **KAFKA_SETTINGS)
    assert "error" in result or not result["results"][0].get("batches")


def test_time_retention_deletes_a_segment_whose_time_index_is_padded(kafka: KafkaHarness, root: Path) -> None:
    now = {"now_ms": 1_700_000_000_000 + 1000, "retention_ms": 3_600_000}
    assert kafka.retain(root / "t-0", **now, **KAFKA_SETTINGS)["deletedBaseOffsets"] == []
    preallocate(root / "t-0")
    assert one(doctored(root), "TIME_INDEX_PADDED")["file"] == "00000000000000000000.timeindex"
    assert kafka.retain(root / "t-0", **now, **KAFKA_SETTINGS)["deletedBaseOffsets"] == [0]


def test_a_missing_transaction_index_exposes_aborted_records(kafka: KafkaHarness, root: Path) -> None:
    path = sorted((root / "t-0").glob("*.txnindex"))[0]
    base = int(path.stem)

    def aborted() -> list[Any]:
        result = kafka.read(root / "t-0", base, isolation="txn_committed", **KAFKA_SETTINGS)["results"][0]
        found: list[Any] = result["abortedTransactions"]
        return found

    before = aborted()
    path.unlink()
    assert one(doctored(root), "ABORTED_EXPOSED")["file"] == path.name
    assert len(aborted()) < len(before)


def test_an_index_that_no_longer_fits_stops_recovery(kafka: KafkaHarness, root: Path) -> None:
    (root / ".kafka_cleanshutdown").unlink()
    (root / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    small = ("--set", "segment.index.bytes=16")
    codes = {row["code"] for row in json_lines(run("doctor", "--json", *SETTINGS, *small, root)) if "code" in row}
    assert codes == {"INDEX_TOO_LARGE"}
    assert "error" in kafka.recover(root / "t-0", **{**KAFKA_SETTINGS, "segment_index_bytes": 16})


def test_a_damaged_swap_file_replaces_good_segments(kafka: KafkaHarness, root: Path) -> None:
    damaged_swap(root / "t-0")
    row = one(doctored(root), "SWAP_DAMAGED")
    damaged = (root / "t-0" / row["file"]).read_bytes()
    assert "error" not in kafka.load(root / "t-0", **KAFKA_SETTINGS)
    assert (root / "t-0" / row["file"].removesuffix(".swap")).read_bytes() == damaged


def test_a_name_with_too_few_digits_hides_its_data(kafka: KafkaHarness, root: Path) -> None:
    path = logs_of(root / "t-0")[-1]
    base = int(path.stem)
    for suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot"):
        if path.with_suffix(suffix).exists():
            path.with_suffix(suffix).rename(root / "t-0" / f"{base}{suffix}")
    assert "SHORT_SEGMENT_NAME" in {row["code"] for row in doctored(root)}
    answer = kafka.load(root / "t-0", **KAFKA_SETTINGS)
    assert answer.get("logEndOffset", base) == base, "the data was not read"


def test_the_cleaner_launders_a_wrong_checksum(kafka: KafkaHarness, tmp_path: Path) -> None:
    options = {"records": 200, "key_space": 20, "batch_records": 10, "segment_bytes": 4096}
    kafka.generate(tmp_path, seed=3, roll_at_end=True, **options)
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 0\n")
    log = tmp_path / "t-0"
    assert doctored(tmp_path) == []
    last = logs_of(log)[-1]
    data = bytearray(last.read_bytes())
    data[-3] ^= 0x20  # within the last value
    rewrite(last, bytes(data))
    assert {row["code"] for row in doctored(tmp_path)} == {"DAMAGE_SERVED", "CLEANER_LAUNDERS"}
    assert "error" in {row["t"] for row in kafka.list(log)}
    assert "error" not in kafka.clean(log, segment_bytes=4096)["passes"][0]
    assert {row["code"] for row in doctored(tmp_path)} == set()


@pytest.mark.parametrize("kind", ["negative timestamps", "messages without a key"])
def test_what_the_cleaner_fails_on(kafka: KafkaHarness, tmp_path: Path, kind: str) -> None:
    log = tmp_path / "t-0"
    if kind == "negative timestamps":
        good = [NaiveRecord(i, i, b"n%d" % (i % 2), b"v") for i in range(4)]
        write_segment(log, 0, batch_v2(0, good, base_timestamp=-50), batch(4, 4, timestamp=1000))
        write_segment(log, 8, batch(8, 4, timestamp=2000))
    else:
        messages = [Record(b"v%d" % i, None, 1000 + i) for i in range(3)]
        keyed = [Record(b"v%d" % i, b"k", 1000 + i) for i in range(3)]
        write_segment(log, 0, encode_message_set(keyed, 0, 1) + encode_message_set(messages, 3, 1))
        write_segment(log, 6, batch(6, 4, timestamp=2000))
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 0\n")
    (tmp_path / ".kafka_cleanshutdown").touch()
    failing = one(doctored(tmp_path), "CLEANER_FAILS")
    assert failing["file"] == "00000000000000000000.log"
    answer = kafka.clean(log, now_ms=NOW_MS)
    assert "error" in answer or "error" in answer["passes"][0], answer


def test_killed_logs_recover_without_loss_as_it_says(kafka: KafkaHarness, tmp_path: Path) -> None:
    logs = fixture_copy("4.3.0/killed", tmp_path)
    rows = doctored(logs, fixture_now_ms("4.3.0/killed"))
    assert {row["severity"] for row in rows} == {"note"}
    points = (logs / "recovery-point-offset-checkpoint").read_text().split("\n")[2:-1]
    for line in points:
        topic, number, point = line.rsplit(" ", 2)
        answer = kafka.recover(logs / f"{topic}-{number}", recovery_point=int(point))
        assert "error" not in answer and answer["truncatedBytes"] == 0, (line, answer)


def test_a_broker_sets_aside_what_doctor_calls_stray_and_refuses_what_it_calls_a_blocker(tmp_path: Path) -> None:
    root = tmp_path / "logs"
    with Broker(root) as broker:
        for topic in ("kept", "nameless", "foreign", "left"):
            broker.create_topic(topic)
    shutil.copytree(root / "kept-0", root / "kept-1")  # the topic has one partition
    shutil.copytree(root / "kept-0", root / "named-0")  # and another name
    shutil.copytree(root / "kept-0", root / "with space-0")
    shutil.rmtree(root / "left-0")
    (root / "nameless-0" / "partition.metadata").unlink()
    other = PartitionMetadata(uuid.UUID("6dd59bbf-1a3b-4b3a-9e61-6cbb9f2f2fd5"))
    (root / "foreign-0" / "partition.metadata").write_bytes(format_partition_metadata(other))
    for name in IGNORED:
        (root / "kept-0" / name).write_bytes(b"x")
    (root / "kept-0" / "sub.log").mkdir()
    rows = doctored(root)
    stray = {row["partition"] or row["file"] for row in rows if row["code"] == "STRAY_PARTITION"}
    assert stray == {"nameless-0", "foreign-0", "kept-1"}
    assert [row["partition"] for row in rows if row["code"] == "FOREIGN_PARTITION"] == ["named-0"]
    assert [row["file"] for row in rows if row["code"] == "PARTITION_MISSING"] == ["left-0"]
    assert [row["file"] for row in rows if row["code"] == "MISNAMED_PARTITION"] == ["with space-0"]
    assert {row["severity"] for row in rows} <= {"danger", "note"}
    with Broker(root) as broker:
        assert {row["code"] for row in doctored(root)} >= {"BROKER_RUNS"}
        grave = {(row["partition"], row["code"]) for row in doctored(root) if row["severity"] == "danger"}
        assert grave == {("named-0", "FOREIGN_PARTITION"), ("", "MISNAMED_PARTITION")}
    strays = {path.name.split("-")[0] for path in root.iterdir() if path.name.endswith("-stray")}
    # what has a topic's id under an impossible name is loaded like what has it under another one
    assert strays == {"nameless", "foreign", "kept"}
    assert (root / "left-0").exists() and (root / "named-0").exists() and (root / "with space-0").exists()
    assert all((root / "kept-0" / name).read_bytes() == b"x" for name in IGNORED)
    shutil.rmtree(root / "with space-0")
    assert "CHECKPOINT_UNREADABLE" in {row["code"] for row in doctored(root)}, "its name broke the checkpoints"
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (root / name).unlink()
    assert {row["code"] for row in doctored(root)} >= {"SET_ASIDE_PARTITION"}
    (root / "lost+found").mkdir()
    assert one(doctored(root), "STRANGE_DIRECTORY")["severity"] == "blocker"
    with pytest.raises(RuntimeError, match="did not start"):
        Broker(root)


IGNORED = (".DS_Store", "t.wm", "notes", "x.tmp", "7.snapshotx", "x.log.bak", "a.index.gz", "quorum-state", "LOG")
