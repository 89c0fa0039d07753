"""`seglog explain`: verdicts and advice."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seglog.format.record_batch import RecordBatchHeader, encode_batch
from seglog.log.append import ProducerIdentity
from seglog.model import Compression, Record, TopicPartition
from tests.support.command_line import clean_logs, json_lines, run
from tests.support.compacted_directories import broker_directory, opened
from tests.support.log_files import files_of, write_segment
from tests.support.naive import NaiveRecord, batch_v2
from tests.support.open_logs import START_MS

NOW = str(START_MS + 3_600_000)
COMPACT = ("--set", "cleanup.policy=compact")


def explained(*arguments: str | Path) -> dict[str, Any]:
    result = run("explain", "--json", "--advise", "--now", NOW, *arguments)
    assert result.exit_code == 0, result.stderr
    (row,) = json_lines(result)
    return row


def test_every_segment_gets_a_verdict(tmp_path: Path) -> None:
    path = broker_directory(tmp_path / "logs", {"t-0": (4, 5)})
    (path / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 100\n")
    found = explained(*COMPACT, path / "t-0")
    assert [segment["cleaning"] for segment in found["segments"]] == [
        "clean", "clean", "clean up to 100", "dirty", "active: not cleaned before it is rolled",
    ]  # fmt: skip
    assert found["first_dirty_offset"] == 100
    assert not found["eligible"]
    assert any("seglog clean " in sentence for sentence in found["advice"])
    assert all("only segments below the log start" in segment["deletion"] for segment in found["segments"][:4])


def test_a_lag_says_until_when_it_holds(tmp_path: Path) -> None:
    path = broker_directory(tmp_path / "logs", {"t-0": (2, 5)})
    found = explained(*COMPACT, "--set", "min.compaction.lag.ms=2h", path / "t-0")
    assert found["segments"][0]["cleaning"] == "not yet: younger than min.compaction.lag.ms"
    assert any("min.compaction.lag.ms (2h) ends for the next segment at" in sentence for sentence in found["cleaning"])


def test_an_unknown_policy_is_the_first_thing_said(tmp_path: Path) -> None:
    path = broker_directory(tmp_path / "logs", {"t-0": (2, 5)})
    found = explained(path / "t-0")
    assert "policy of t is not known" in found["cleaning"][0]
    assert {segment["cleaning"] for segment in found["segments"]} == {"not compacted"}


def test_what_holds_deletion_back_is_named_with_its_time(tmp_path: Path) -> None:
    path = broker_directory(tmp_path / "logs", {"t-0": (2, 5)})
    settings = ("--set", "cleanup.policy=delete", "--set", "retention.ms=1s")
    before = run("explain", "--json", "--advise", "--now", str(START_MS - 1000), *settings, path / "t-0")
    (row,) = json_lines(before)
    assert "in the future" in row["segments"][0]["deletion"]
    assert row["segments"][0]["deletable_ms"] == START_MS + 39 + 1001
    assert any("timestamp in the future keeps segment 0" in sentence for sentence in row["advice"])
    assert explained(*settings, path / "t-0")["deletion"] == ["2 of 3 segments would be deleted now"]


def test_an_open_transaction_is_named_with_its_producer(tmp_path: Path) -> None:
    path = broker_directory(tmp_path / "logs", {"t-0": (2, 5)})
    with opened(path) as directory:
        log = directory.log(TopicPartition("t", 0))
        log.append([Record(b"v", b"k", START_MS)], producer=ProducerIdentity(77, 3, 0, transactional=True))
        log.roll()
    found = explained(*COMPACT, path / "t-0")
    assert found["transactions"][0]["producer_id"] == 77
    assert found["last_stable_offset"] == 80
    assert any("producer 77" in sentence for sentence in found["reading"])
    assert "a transaction is open" in found["segments"][2]["cleaning"]
    assert any("seglog txn" in sentence for sentence in found["advice"])


def test_the_text_shows_a_table_and_changes_nothing(tmp_path: Path) -> None:
    path = clean_logs(tmp_path)
    before = {str(f): f.read_bytes() for f in path.rglob("*") if f.is_file()}
    result = run("explain", "--advise", path / "payments-compact-0")
    assert "SEGMENT" in result.stdout
    assert "cleaning:" in result.stdout
    assert {str(f): f.read_bytes() for f in path.rglob("*") if f.is_file()} == before


# --- every cause: what is said is so, and what is advised does what it says


def closed(path: Path) -> Path:
    """Makes two closed segments over few keys, and an empty active one."""
    return broker_directory(path, {"t-0": (2, 5)})


def with_active(path: Path) -> Path:
    with opened(closed(path)) as directory:
        log = directory.log(TopicPartition("t", 0))
        log.append([Record(b"v", b"k%d" % (n % 5), START_MS) for n in range(40)], batch_records=5)
    return path


def only_active(path: Path) -> Path:
    with opened(broker_directory(path, {})) as directory:
        log = directory.log(TopicPartition("t", 0), create=True)
        log.append([Record(b"v", b"k%d" % (n % 5), START_MS) for n in range(40)], batch_records=5)
    return path


def empty(path: Path) -> Path:
    with opened(broker_directory(path, {})) as directory:
        directory.log(TopicPartition("t", 0), create=True)
    return path


def cleaned(path: Path) -> Path:
    assert run("clean", *COMPACT, "--now", NOW, closed(path) / "t-0").exit_code == 0
    return path


def with_tombstones(path: Path) -> Path:
    with opened(closed(path)) as directory:
        log = directory.log(TopicPartition("t", 0))
        log.append([Record(None, b"k%d" % n, START_MS) for n in range(5)])
        log.roll()
    return path


def with_checkpoint(name: str, offset: int) -> Callable[[Path], Path]:
    """Makes the same beside a checkpoint that has `offset` for t-0."""

    def made(path: Path) -> Path:
        closed(path)
        (path / name).write_text(f"0\n1\nt 0 {offset}\n")
        return path

    return made


below_ratio = with_checkpoint("cleaner-offset-checkpoint", 40)


def open_transaction(path: Path) -> Path:
    with opened(closed(path)) as directory:
        log = directory.log(TopicPartition("t", 0))
        log.append([Record(b"v", b"k", START_MS)], producer=ProducerIdentity(77, 3, 0, transactional=True))
        log.roll()
    return path


def damaged(path: Path) -> Path:
    log = closed(path) / "t-0" / f"{40:020d}.log"
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    return path


def unreadable_records(path: Path) -> Path:
    log = closed(path) / "t-0" / f"{40:020d}.log"
    header = RecordBatchHeader(base_offset=40, last_offset_delta=39, count=40, attributes=int(Compression.ZSTD))
    log.write_bytes(encode_batch(header, b"not zstd"))
    return path


LAG = ("--set", "min.compaction.lag.ms=2h")
NO_RETENTION = ("--set", "delete.retention.ms=1")
MAX_LAG = ("--set", "max.compaction.lag.ms=1m")
CAUSES: dict[str, tuple[Callable[[Path], Path], tuple[str, ...], bool, str, list[str]]] = {
    "eligible": (closed, COMPACT, True, "takes it now: 100.0%", ["clean"]),
    "active segment": (with_active, COMPACT, True, "from offset 80 on: the active segment", ["clean", "clean --roll"]),
    "only active": (only_active, COMPACT, False, "holds nothing outside the active segment", ["clean --roll"]),
    "empty": (empty, COMPACT, False, "holds nothing outside the active segment", []),
    "clean already": (cleaned, COMPACT, False, "everything outside the active segment is clean", []),
    "tombstones": (with_tombstones, (*COMPACT, *NO_RETENTION), True, "takes it now", ["clean", "clean --expire"]),
    "dirty ratio": (below_ratio, COMPACT, False, "not more than min.cleanable.dirty.ratio", ["clean"]),
    "max lag": (below_ratio, (*COMPACT, *MAX_LAG), True, "over max.compaction.lag.ms", ["clean"]),
    "min lag": (closed, (*COMPACT, *LAG), False, "nothing is cleanable: younger than min.compaction.lag.ms", ["clean"]),
    "min lag, active": (
        with_active,
        (*COMPACT, *LAG),
        False,
        "younger than min.compaction.lag.ms",
        ["clean", "clean --roll"],
    ),
    "open transaction": (open_transaction, COMPACT, True, "a transaction is open", ["clean", "txn open"]),
    "damage": (damaged, COMPACT, False, "fails, and then leaves it alone", ["repair --dry-run"]),
    "no records": (
        unreadable_records,
        COMPACT,
        False,
        "fails, and then leaves it alone",
        ["repair --dry-run"],
    ),
    "policy unknown": (closed, (), False, "policy of t is not known", ["config show"]),
    "not compact": (closed, ("--set", "cleanup.policy=delete"), False, "t is not compacted", []),
    "cleaner off": (closed, (*COMPACT, "--set", "log.cleaner.enable=false"), False, "log.cleaner.enable is", ["clean"]),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_what_is_said_of_a_cause_is_so_and_what_is_advised_does_something(tmp_path: Path, cause: str) -> None:
    make, options, eligible, words, verbs = CAUSES[cause]
    path = make(tmp_path / "logs") / "t-0"
    found = explained(*options, path)
    said = " | ".join(found["cleaning"])
    assert words in said, said
    assert found["eligible"] is eligible
    assert not (found["eligible"] and "it is not cleaned" in said)
    commands = [shlex.split(sentence.rpartition(": seglog ")[2]) for sentence in found["advice"]]
    said_verbs = [" ".join(word for word in without_settings(command) if word != str(path)) for command in commands]
    assert said_verbs == verbs
    before = files_of(path)
    for command in commands:
        shutil.copytree(path.parent, path.parent.with_name("tried"), dirs_exist_ok=True)
        result = run(*command, "--now", NOW)
        assert result.exit_code == (1 if command[0] in ("repair", "verify", "txn") else 0), result.stderr
        if command[0] == "clean":
            assert logs_in(files_of(path)) != logs_in(before) or "cleaner-offset" in str(list(path.parent.iterdir()))
            assert "nothing to clean" not in result.stdout
            shutil.rmtree(path.parent)
            path.parent.with_name("tried").rename(path.parent)


def test_the_metadata_that_was_named_goes_into_the_commands_that_take_it(tmp_path: Path) -> None:
    logs, elsewhere = clean_logs(tmp_path), tmp_path / "elsewhere"
    elsewhere.mkdir()
    open_transaction(elsewhere)
    (elsewhere / "t-0").rename(elsewhere / "payments-compact-0")
    (elsewhere / "meta.properties").unlink()  # which says that another cluster's metadata is not meant
    found = explained("--metadata-dir", logs, elsewhere / "payments-compact-0")
    commands = [shlex.split(sentence.rpartition(": seglog ")[2]) for sentence in found["advice"]]
    assert [command[0] for command in commands] == ["clean", "txn"]
    for command in commands:
        done = run(*command, "--now", NOW)
        assert done.exit_code == (1 if command[0] == "txn" else 0), done.stderr
        assert ("--metadata-dir" in command) is (command[0] == "clean")
        assert "no effect" not in done.stderr


def test_what_is_too_young_in_the_active_segment_is_cleaned_by_the_command_that_is_advised(tmp_path: Path) -> None:
    path = broker_directory(tmp_path / "logs", {"t-0": (1, 5)}) / "t-0"
    found = explained(*COMPACT, "--set", "min.compaction.lag.ms=1d", path)
    (command,) = [shlex.split(sentence.rpartition(": seglog ")[2]) for sentence in found["advice"]]
    assert "younger than min.compaction.lag.ms" in found["advice"][0]
    before = logs_in(files_of(path))
    assert run(*command, "--now", NOW).exit_code == 0
    assert sum(map(len, logs_in(files_of(path)).values())) < sum(map(len, before.values()))


def test_where_nothing_helps_the_advice_says_so(tmp_path: Path) -> None:
    path = closed(tmp_path / "logs") / "t-0"
    said = run("explain", "--advise", "--now", NOW, "--set", "cleanup.policy=delete", path).stdout
    assert said.splitlines()[-1] == "  advice:   no command of seglog would clean or delete anything here now"


def without_settings(command: list[str]) -> list[str]:
    """Removes the user's configuration."""
    kept: list[str] = []
    for i, word in enumerate(command):
        if word != "--set" and (i == 0 or command[i - 1] != "--set"):
            kept.append(word)
    return kept


def logs_in(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in files.items() if name.endswith(".log")}


def test_a_quick_look_reads_no_batch_and_says_nothing_of_damage(tmp_path: Path) -> None:
    found = explained("--quick", *COMPACT, damaged(tmp_path / "logs") / "t-0")
    assert found["eligible"] and not [sentence for sentence in found["advice"] if "seglog clean" in sentence]


def test_a_segment_kept_by_the_future_goes_by_the_command_that_is_advised(tmp_path: Path) -> None:
    path = closed(tmp_path / "logs") / "t-0"
    settings = ("--set", "cleanup.policy=delete", "--set", "retention.ms=1s")
    (row,) = json_lines(run("explain", "--json", "--advise", "--now", str(START_MS - 1000), *settings, path))
    (command,) = [shlex.split(text.rpartition(": seglog ")[2]) for text in row["advice"] if "in the future" in text]
    assert run(*command, "--now", str(START_MS - 1000)).exit_code == 0
    assert not (path / f"{0:020d}.log").exists() and (path / f"{40:020d}.log").exists()


def test_what_may_be_deleted_is_deleted_by_the_command_that_is_advised(tmp_path: Path) -> None:
    path = closed(tmp_path / "logs") / "t-0"
    found = explained("--set", "cleanup.policy=delete", "--set", "retention.ms=1s", path)
    (command,) = [
        shlex.split(text.rpartition(": seglog ")[2]) for text in found["advice"] if "delete the deletable" in text
    ]
    assert run(*command, "--now", NOW).exit_code == 0
    assert [f.name for f in path.glob("*.log")] == [f"{80:020d}.log"]


def test_a_policy_that_nobody_knows_promises_no_deletion(tmp_path: Path) -> None:
    path = closed(tmp_path / "logs") / "t-0"
    found = explained("--set", "retention.ms=1s", path)
    assert found["deletion"] == ["cleanup.policy is not known: only segments below the log start offset are deleted"]
    assert {segment["deletion"] for segment in found["segments"]} == {"cleanup.policy is not known"}


def test_an_empty_log_is_called_so(tmp_path: Path) -> None:
    assert explained(*COMPACT, empty(tmp_path / "logs") / "t-0")["reading"] == [
        "the log is empty; the next record gets offset 0"
    ]


def test_each_reason_has_a_code_in_json(tmp_path: Path) -> None:
    (found,) = json_lines(run("explain", "--json", clean_logs(tmp_path) / "customers-0"))
    for kind in ("cleaning", "deletion", "reading", "kafka"):
        assert len(found["codes"][kind]) == len(found[kind])
    assert found["codes"] == {
        "cleaning": ["NOT_ELIGIBLE", "UNCLEANABLE"],
        "deletion": ["NOT_DELETABLE"],
        "reading": ["OFFSETS"],
        "kafka": ["SPOKEN_FOR", "WRITTEN_BY"],
    }
    assert [(one["cleaning_code"], one["deletion_code"]) for one in found["segments"]] == [
        ("CLEAN", "KEPT"),
        ("ACTIVE", "KEPT"),
    ]


beyond_its_end = with_checkpoint("cleaner-offset-checkpoint", 9999)
half_clean = with_checkpoint("cleaner-offset-checkpoint", 50)
held_back = with_checkpoint("replication-offset-checkpoint", 60)
below_its_start = with_checkpoint("log-start-offset-checkpoint", 9999)


def torn(path: Path) -> Path:
    with (with_active(path) / "t-0" / f"{80:020d}.log").open("ab") as log:
        log.write(b"half of a batch")
    (path / ".kafka_cleanshutdown").unlink()
    return path


DELETE = ("--set", "cleanup.policy=delete")

# Each code, with a log and settings for which it is said.
CODES = {
    "NOT_COMPACTED POLICY_UNKNOWN": (closed, ()),
    "ELIGIBLE DIRTY ACTIVE OFFSETS": (closed, COMPACT),
    "CLEANER_DISABLED": (closed, (*COMPACT, "--set", "log.cleaner.enable=false")),
    "CLEANING_FAILS": (damaged, COMPACT),
    "NOT_ELIGIBLE CLEAN NOT_DELETABLE KEPT": (cleaned, COMPACT),
    "PARTLY_CLEAN": (half_clean, COMPACT),
    "CHECKPOINT_OUTSIDE_LOG": (beyond_its_end, COMPACT),
    "COMPACTION_LAG UNCLEANABLE": (closed, (*COMPACT, "--set", "min.compaction.lag.ms=2h")),
    "OPEN_TRANSACTION": (open_transaction, COMPACT),
    "RETENTION_NOT_SET": (closed, DELETE),
    "DELETABLE TIME": (closed, (*DELETE, "--set", "retention.ms=1s")),
    "SIZE": (closed, (*DELETE, "--set", "retention.bytes=1")),
    "EMPTY": (empty, COMPACT),
    "HIGH_WATERMARK": (held_back, COMPACT),
    "TORN_TAIL": (torn, COMPACT),
    "DAMAGE": (below_its_start, COMPACT),
}


@pytest.mark.parametrize("names", CODES, ids=lambda names: names.replace(" ", "+"))
def test_each_code_is_said_of_what_it_names(names: str, tmp_path: Path) -> None:
    build, settings = CODES[names]
    found = explained(*settings, build(tmp_path / "logs") / "t-0")
    said = {code for kind in found["codes"].values() for code in kind}
    said |= {segment[key] for segment in found["segments"] for key in ("cleaning_code", "deletion_code")}
    assert set(names.split()) <= said


def rewritable(directory: Path, *, first_ms: int, keys: range) -> Path:
    """Three batches in three segments; the second one has some of the first one's keys, or none."""
    for base, numbers, at in ((0, range(5), first_ms), (5, keys, first_ms), (10, range(20, 25), START_MS)):
        records = [NaiveRecord(i, 0, b"k%d" % number, b"v") for i, number in enumerate(numbers)]
        write_segment(directory / "t-0", base, batch_v2(base, records, base_timestamp=at))
    (directory / ".kafka_cleanshutdown").touch()
    return directory / "t-0"


@pytest.mark.parametrize(
    ("first_ms", "keys", "fails"),
    [(-5000, range(3, 8), True), (-2, range(3, 8), True), (-5000, range(5, 10), False), (-1, range(3, 8), False)],
    ids=["rewritten", "just below", "copied whole", "no timestamp"],
)
def test_a_brokers_cleaner_fails_where_it_rewrites_a_batch_with_a_negative_timestamp_and_seglogs_does_not(
    tmp_path: Path, first_ms: int, keys: range, fails: bool
) -> None:
    found = explained(*COMPACT, rewritable(tmp_path, first_ms=first_ms, keys=keys))
    assert found["codes"]["cleaning"][:2] == (
        ["CLEANING_FAILS", "SEGLOG_CLEANS"] if fails else ["ELIGIBLE", "UNCLEANABLE"]
    )
    assert found["eligible"] is not fails
    assert any("seglog clean " in sentence for sentence in found["advice"]) == (not fails or keys.start == 3)


def test_a_flipped_byte_in_a_value_is_laundered_by_a_brokers_cleaner_and_refused_by_seglogs(tmp_path: Path) -> None:
    partition = rewritable(tmp_path, first_ms=START_MS, keys=range(3, 8))
    log = partition / f"{5:020d}.log"
    data = bytearray(log.read_bytes())
    data[-2] ^= 1  # the value: the record ends with its number of headers
    log.write_bytes(data)
    found = explained(*COMPACT, partition)
    assert found["codes"]["cleaning"][0] == "CLEANING_LAUNDERS"
    assert "takes it now, and gives damage a valid checksum" in found["cleaning"][0]
    assert any("seglog repair" in sentence for sentence in found["advice"])


def test_nothing_is_cleanable_where_the_log_starts_above_the_active_segments_base(tmp_path: Path) -> None:
    partition = rewritable(tmp_path, first_ms=START_MS, keys=range(5))
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 12\n")
    assert explained(*COMPACT, partition)["codes"]["cleaning"][0] == "NOT_ELIGIBLE"
    done = run("clean", "--dry-run", *COMPACT, partition)
    assert "nothing to clean: everything before the active segment lies below the log start offset 12" in done.stdout


@pytest.mark.parametrize("codec", ["zstd", "none"])
def test_a_record_larger_than_44_decompresses_stops_its_cleaner(tmp_path: Path, codec: str) -> None:
    path = tmp_path / "t-0"
    segment = ("--set", f"segment.bytes={100 if codec == 'zstd' else 700}")
    for number in range(6):
        line = f"k{number}\t{'v' * 600}\n"
        done = run("append", "--create", "--codec", codec, "--key-separator", "\t", *segment, path, input_text=line)
        assert done.exit_code == 0, done.stderr
    bound = ("--set", "cleanup.policy=compact", "--set", "max.decompressed.message.bytes=608")
    (found,) = json_lines(run("explain", "--json", "--kafka-version", "4.4", *bound, path))
    stopped = "max.decompressed.message.bytes is 608" in " ".join(found["cleaning"])
    assert stopped is (codec == "zstd"), found["cleaning"]
    assert not stopped or ".log position 0: a record of 609 bytes" in found["cleaning"][0]
    fits = ("--set", "max.decompressed.message.bytes=609")
    for more in (("--kafka-version", "4.3", *bound), ("--kafka-version", "4.4", *bound[:2], *fits)):
        (found,) = json_lines(run("explain", "--json", *more, path))
        assert "a record of" not in " ".join(found["cleaning"])


def test_records_without_a_key_are_counted_before_a_round_drops_them(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    for number in range(4):
        key = ("--key-separator", "\t") if number % 2 else ()
        line = f"k{number}\tvalue\n" if number % 2 else "value\n"
        done = run("append", "--create", "--set", "segment.bytes=100", *key, path, input_text=line)
        assert done.exit_code == 0, done.stderr
    found = explained(*COMPACT, path)
    assert "a round drops 2 records without a key, as every cleaner does" in " ".join(found["cleaning"])
    assert "KEYLESS_DROPPED" in found["codes"]["cleaning"] and found["eligible"]
    assert "2 records dropped: without a key" in run("clean", "--dry-run", *COMPACT, path).stdout
    kept = explained("--set", "cleanup.policy=delete", path)
    assert "KEYLESS_DROPPED" not in kept["codes"]["cleaning"]


def test_what_holds_back_local_retention_of_a_tiered_topic_is_named(tmp_path: Path) -> None:
    path = broker_directory(tmp_path / "logs", {"t-0": (3, 5)}) / "t-0"
    early = ("--now", str(START_MS - 86_400_000))
    tiered = ("--set", "cleanup.policy=delete", "--set", "remote.storage.enable=true")
    for more in ((), ("--set", "local.retention.ms=1h")):
        (found,) = json_lines(run("explain", "--json", "--advise", *tiered, *more, *early, path))
        held = found["deletion"][found["codes"]["deletion"].index("LOCAL_RETENTION_HELD")]
        assert "in the future, in the batch that ends at offset" in held
        assert held.endswith("holds back local retention (local.retention.ms) from segment 0 on")
        assert not any("timestamp in the future keeps" in sentence for sentence in found["advice"])
    (found,) = json_lines(run("explain", "--json", *tiered, "--now", NOW, path))
    assert "LOCAL_RETENTION_HELD" not in found["codes"]["deletion"]
