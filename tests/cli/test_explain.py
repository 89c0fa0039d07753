"""`seglog explain`: verdicts and advice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.command_line import clean_logs, json_lines, run
from tests.support.compacted_directories import broker_directory
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
        "clean", "clean", "clean up to 100", "dirty", "active: never cleaned until it is rolled",
    ]  # fmt: skip
    assert found["first_dirty_offset"] == 100
    assert not found["eligible"]
    assert any("seglog clean " in sentence for sentence in found["advice"])
    assert all("only segments below the log start" in segment["deletion"] for segment in found["segments"][:4])


def test_a_lag_says_until_when_it_holds(tmp_path: Path) -> None:
    path = broker_directory(tmp_path / "logs", {"t-0": (2, 5)})
    found = explained(*COMPACT, "--set", "min.compaction.lag.ms=2h", path / "t-0")
    assert found["segments"][0]["cleaning"] == "not yet: younger than min.compaction.lag.ms"
    assert any(
        "min.compaction.lag.ms (2h) lets go of the next segment at" in sentence for sentence in found["cleaning"]
    )


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
    from seglog.log.producers import ProducerIdentity
    from seglog.model import Record, TopicPartition
    from tests.support.compacted_directories import opened

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
