"""Logs of Kafka 0.7 on the command line: they can be read, dumped and verified, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import ended, json_lines, run
from tests.support.fixtures import expected, fixture_copy, fixture_partitions

NAMES = fixture_partitions("0.7")
GENUINE = "MagicByte0-0"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return fixture_copy("0.7", tmp_path)


def rows(name: str) -> list[tuple[int, str]]:
    """Returns (offset, payload) of every record."""
    return [(row["offset"], payload) for row in expected("0.7", name, "list") for payload in row["payloads"]]


@pytest.mark.parametrize("name", NAMES)
def test_every_record_is_read_with_its_offset(logs: Path, name: str) -> None:
    found = [(row["offset"], row["value"]) for row in json_lines(run("read", "--json", logs / name))]
    assert found == rows(name)
    assert run("read", logs / name).stdout.count("record offset=") == len(found)


@pytest.mark.parametrize("name", NAMES)
def test_reading_begins_at_the_first_message_at_or_after_an_offset(logs: Path, name: str) -> None:
    offsets = sorted({offset for offset, _ in rows(name)})
    for offset in (offsets[7], offsets[7] + 1, offsets[-1], offsets[-1] + 1):
        done = run("read", "--json", "--from-offset", str(offset), logs / name)
        found = [(row["offset"], row["value"]) for row in json_lines(done)]
        assert found == [row for row in rows(name) if row[0] >= offset]
    few = json_lines(run("read", "--json", "--limit", "5", "--from-offset", str(offsets[3]), logs / name))
    assert [row["offset"] for row in few] == [o for o, _ in rows(name) if o >= offsets[3]][:5]


def test_a_fetch_takes_whole_messages_and_at_least_one(logs: Path) -> None:
    for size, count in ((1, 1), (109, 1), (217, 1), (218, 2), (1000, 9)):
        assert len(json_lines(run("read", "--json", "--max-bytes", str(size), logs / GENUINE))) == count


def test_an_offset_outside_of_the_log_and_a_time_are_refused(logs: Path) -> None:
    beyond = ended("read", "--from-offset", "10901", logs / GENUINE)
    assert beyond.code == 2 and b"the next offset to be written is 10900" in beyond.stderr
    timed = ended("read", "--since", "2011-10-01T00:00:00Z", logs / GENUINE)
    assert timed.code == 2 and b"only an offset and a value to choose by" in timed.stderr


def test_damage_ends_a_read_with_its_place(logs: Path) -> None:
    path = logs / GENUINE / f"{0:020d}.kafka"
    data = bytearray(path.read_bytes())
    data[109 * 3 + 50] ^= 1
    path.write_bytes(data)
    done = ended("read", "--json", logs / GENUINE)
    assert done.code == 1 and done.stdout.count(b'"record"') == 3
    assert b"position 327" in done.stderr and b"checksum" in done.stderr
    (finding, summary) = json_lines(run("verify", "--json", logs / GENUINE))
    assert (finding["code"], finding["position"], summary["batches"]) == ("CRC_MISMATCH", 327, 99)


def test_a_log_that_ends_within_a_message_is_read_and_says_so(logs: Path) -> None:
    path = sorted((logs / GENUINE).iterdir())[-1]
    whole = run("read", "--json", logs / GENUINE)
    path.write_bytes(path.read_bytes()[:-5])
    done = run("read", "--json", logs / GENUINE)
    assert (done.exit_code, len(json_lines(done))) == (1, len(json_lines(whole)) - 1)
    assert f"{path}: position " in done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_verify_counts_what_it_verified(logs: Path, name: str) -> None:
    summary = json_lines(run("verify", "--json", logs / name))[-1]
    assert (summary["batches"], summary["records"]) == (len(expected("0.7", name, "list")), len(rows(name)))
    (first, *_) = sorted((logs / name).iterdir())
    assert json_lines(run("verify", "--json", first))[-1]["bytes"] == first.stat().st_size


@pytest.mark.parametrize("name", NAMES)
def test_a_dump_keeps_its_limits(logs: Path, name: str) -> None:
    messages = json_lines(run("dump", "--json", logs / name))
    assert {row["type"] for row in messages} == {"message"} and len(messages) == len(expected("0.7", name, "list"))
    assert len(json_lines(run("dump", "--json", "--limit", "4", logs / name))) == 4
    few = json_lines(run("dump", "--json", "--records", "--limit", "4", "--from-offset", "3000", logs / name))
    shown = [(row["offset"], row["value"]) for row in few if row["type"] == "record"]
    assert shown == [row for row in rows(name) if row[0] >= 3000][:4]
    until = json_lines(run("dump", "--json", "--to-offset", "3000", logs / name))
    assert [r["offset"] for r in until] == [r["offset"] for r in expected("0.7", name, "list") if r["offset"] < 3000]
    assert json_lines(run("dump", "--json", "--key", "k", logs / name)) == []


@pytest.mark.parametrize(
    "command", [["append"], ["recover"], ["recover", "-n"], ["truncate", "--to-offset", "5"], ["reindex"], ["explain"]]
)
def test_what_cannot_be_done_with_it_is_refused_in_a_sentence(logs: Path, command: list[str]) -> None:
    before = {path: path.read_bytes() for path in (logs / GENUINE).iterdir()}
    done = ended(*command, logs / GENUINE, input_bytes=b"x\n")
    assert b"is a log of Kafka 0.7" in done.stderr and done.code not in (0, 70)
    assert {path: path.read_bytes() for path in (logs / GENUINE).iterdir()} == before


def test_serving_it_is_refused_with_the_way_to_a_newer_log_and_that_way_works(logs: Path, tmp_path: Path) -> None:
    refused = ended("serve", logs / GENUINE)
    assert refused.code == 13
    for command in (b"`seglog append --create --input-format jsonl`", b"`seglog read --json`"):
        assert command in refused.stderr
    shown = ended("read", "--json", logs / GENUINE).stdout
    newer = tmp_path / "newer" / "t-0"
    newer.parent.mkdir()
    assert ended("append", "--create", "--input-format", "jsonl", newer, input_bytes=shown).code == 0
    found = [(row["offset"], row["value"]) for row in json_lines(run("read", "--json", newer))]
    assert found == list(enumerate(payload for _, payload in rows(GENUINE)))


def test_recovering_a_log_directory_passes_over_it(logs: Path) -> None:
    assert run("recover", logs).exit_code == 0
    assert sorted(path.name for path in (logs / GENUINE).iterdir()) == [f"{0:020d}.kafka"]
