"""`seglog latest` and `seglog where`."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import seglog
from seglog.cleaner.round import CleanerOptions
from seglog_ask.operations.partitioners import PARTITIONERS
from seglog_ask.table.engines import newest
from tests.support.command_line import clean_logs, json_lines, run


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return clean_logs(tmp_path)


def newest_offsets(path: Path, isolation: str = "read_committed") -> dict[bytes, tuple[int, bool]]:
    """The offset of each key's newest record, and whether it has a value."""
    with seglog.open_log(path) as log:
        records = log.records(isolation=isolation)
        return {record.key: (record.offset, record.value is not None) for record in records if record.key is not None}


def latest(*arguments: object) -> list[dict]:
    done = run("latest", "--json", *arguments)
    assert done.exit_code == 0, done.stderr
    return json_lines(done)


@pytest.mark.parametrize("name", ["customers-0", "payments-0", "both-0", "orders-gzip-0", "payments-compact-0"])
def test_the_newest_record_of_every_key_and_of_each(logs: Path, name: str) -> None:
    wanted = newest_offsets(logs / name)
    alive = sorted(offset for offset, has_value in wanted.values() if has_value)
    assert [row["offset"] for row in latest(logs / name)] == alive
    for key in random.Random(2).sample(sorted(wanted), min(8, len(wanted))):
        (row,) = latest(logs / name, "--key", key.decode())
        assert (row["offset"], row["value"] is not None) == wanted[key]
    uncommitted = newest_offsets(logs / name, "read_uncommitted")
    found = latest(logs / name, "--isolation", "read_uncommitted")
    assert [row["offset"] for row in found] == sorted(offset for offset, there in uncommitted.values() if there)


def test_records_of_several_partitions_stand_below_their_names(logs: Path) -> None:
    lines = run("latest", logs / "customers", "--key", "customer-124").stdout.splitlines()
    named = [line for line in lines if not line.startswith("  offset=")]
    assert named == [f"partition customers-{n}" for n in range(2) if f"partition customers-{n}" in lines] and named
    assert len(lines) == 2 * len(named)
    alone = run("latest", logs / "customers-0", "--key", "customer-124").stdout
    assert alone.startswith("  offset=") and alone.count("\n") == 1
    every = run("latest", "--limit", "5", logs / "customers").stdout.splitlines()
    assert every[0] == "partition customers-0" and len(every) == 6


def test_more_keys_than_memory_are_found_in_several_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(4)
    with seglog.open_log(tmp_path / "t-0", create=True, config={"segment.bytes": 65536}) as log:
        for _ in range(60):
            some = [seglog.Record(chance.choice([b"v", None]), b"key-%d" % chance.randrange(4000)) for _ in range(200)]
            log.append(some)
    passes = []
    begin = newest.OffsetMap.begin_pass
    monkeypatch.setattr(newest.OffsetMap, "begin_pass", lambda keys, at: (passes.append(at), begin(keys, at))[1])
    few = CleanerOptions(dedupe_buffer_bytes=20_000)
    monkeypatch.setattr(newest, "CleanerOptions", lambda **_: few)
    found = latest(tmp_path / "t-0")
    assert len(passes) > 2
    wanted = newest_offsets(tmp_path / "t-0")
    assert [row["offset"] for row in found] == sorted(offset for offset, there in wanted.values() if there)


def test_a_key_near_the_end_is_found_without_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newest, "LEAST_BYTES", 4096)
    with seglog.open_log(tmp_path / "t-0", create=True) as log:
        for i in range(400):
            log.append([seglog.Record(b"x" * 500, b"key-%d" % i)])
    (path,) = (tmp_path / "t-0").glob("*.log")
    data = bytearray(path.read_bytes())
    data[len(data) // 4] ^= 1  # damage that a full read would meet
    path.write_bytes(data)
    assert latest(tmp_path / "t-0", "--key", "key-399")[0]["offset"] == 399
    assert latest(tmp_path / "t-0", "--key", "key-250")[0]["offset"] == 250
    absent = run("latest", tmp_path / "t-0", "--key", "absent")
    assert (absent.exit_code, "is wrong; --on-corrupt skip" in absent.stderr) == (1, True)
    skipped = run("latest", tmp_path / "t-0", "--key", "absent", "--on-corrupt", "skip")
    assert skipped.exit_code == 3
    assert "no record has this key" in skipped.stderr


def test_the_partition_of_a_key_and_the_partitioner_that_the_data_obeys(tmp_path: Path) -> None:
    keys = [b"key-%d" % i for i in range(300)]
    for wanted in PARTITIONERS:
        for number in range(4):
            with seglog.open_log(tmp_path / f"{wanted.name}-{number}", create=True) as log:
                mine = [seglog.Record(b"v", key) for key in keys if wanted.partition(key, 4) == number]
                log.append([*mine, seglog.Record(b"without"), seglog.Record(b"empty", b"")])
        rows = json_lines(run("where", "--json", "--key", "key-7", tmp_path / wanted.name))
        assert {row["partitioner"]: row["partition"] for row in rows} == {
            one.name: one.partition(b"key-7", 4) for one in PARTITIONERS
        }
        assert (rows[0]["partitioner"], rows[0]["obeyed"], rows[0]["sampled"]) == (wanted.name, 300, 300)
        assert all(row["obeyed"] < 300 for row in rows[1:])
    text = run("where", "--key", "key-7", "--partitions", "4").stdout.splitlines()
    assert [line.split()[:3] for line in text[1:]] == [
        [one.name, str(one.partition(b"key-7", 4)), "-"] for one in PARTITIONERS
    ]


def test_the_partitions_of_groups_and_transactional_ids() -> None:
    assert (
        run("where", "--group", "abc").stdout == "__consumer_offsets-4 (of 50 partitions)\n"
    )  # "abc".hashCode() 96354
    assert run("where", "--txn-id", "abc", "--partitions", "7").stdout == "__transaction_state-6 (of 7 partitions)\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "give one of --key, --group and --txn-id"),
        (("--key", "a"), "--key needs the topic's PATH, or --partitions N"),
        (("--key", "a", "."), "the paths have"),
        (("--key", "a", "customers", "--partitions", "1"), "partition 1 is among the paths"),
        (("--group", "a", "customers"), "PATH is for --key"),
    ],
)
def test_what_cannot_be_told_is_refused(
    logs: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], told: str
) -> None:
    monkeypatch.chdir(logs)
    done = run("where", *arguments)
    assert (done.exit_code, told in done.stderr) == (2, True), done.stderr
