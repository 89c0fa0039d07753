"""`seglog append`: input formats, batches, acknowledgement, refusals."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_line import COMMAND, clean_logs, environment, json_lines, run
from tests.support.log_files import contents_below


def records(partition: Path) -> list[dict[str, object]]:
    return json_lines(run("read", "--json", partition))


def batches(partition: Path) -> list[dict[str, object]]:
    return json_lines(run("dump", "--json", partition))


def test_lines_become_values_and_keys(tmp_path: Path) -> None:
    log = tmp_path / "t-0"
    done = run("append", "--create", log, "--key-separator", "=>", input_text="k=>v=>w\nä=>\n")
    assert (done.exit_code, done.stdout) == (0, "appended t-0 offsets 0 to 1 durable\n")
    assert [(r["key"], r["value"]) for r in records(log)] == [("k", "v=>w"), ("ä", "")]


def test_json_lines_are_what_dump_wrote(tmp_path: Path) -> None:
    source = clean_logs(tmp_path) / "orders-gzip-0"
    dumped = run("dump", "--records", "--json", source).stdout
    (tmp_path / "in.jsonl").write_text(dumped)
    done = run("append", "--json", "--create", tmp_path / "t-0", tmp_path / "in.jsonl", "--batch-records", "100")
    expected = records(source)
    assert json_lines(done) == [
        {
            "type": "appended",
            "partition": "t-0",
            "first_offset": 0,
            "last_offset": len(expected) - 1,
            "durable": True,
        }
    ]
    kept = ("key", "value", "timestamp", "headers")
    assert [[r[k] for k in kept] for r in records(tmp_path / "t-0")] == [[r[k] for k in kept] for r in expected]


@pytest.mark.parametrize(("topic", "codec", "warned"), [("gzip", "zstd", True), ("gzip", "gzip", False)])
def test_a_codec_that_the_topic_overrules_is_said_to_have_no_effect(
    topic: str, codec: str, warned: bool, tmp_path: Path
) -> None:
    log = tmp_path / "t-0"
    options = ("--create", "--codec", codec, "--set", f"compression.type={topic}")
    done = run("append", *options, log, input_text="a\n")
    assert done.exit_code == 0
    assert ("--codec zstd has no effect: the topic's compression.type is gzip" in done.stderr) == warned
    assert [batch["codec"] for batch in batches(log) if batch["type"] == "batch"] == [topic]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batches_hold_the_records_asked_for_in_the_codec_asked_for(codec: str, tmp_path: Path) -> None:
    log = tmp_path / "t-0"
    text = "".join(f"value {i}\n" for i in range(25))
    assert run("append", "--create", log, "--codec", codec, "--batch-records", "10", input_text=text).exit_code == 0
    found = batches(log)
    assert [b["count"] for b in found] == [10, 10, 5]
    assert {b["codec"] for b in found} == {codec}
    assert all(b["valid"] for b in found)


def test_the_number_of_records_counts_whatever_their_size(tmp_path: Path) -> None:
    text = "".join("x" * 1000 + "\n" for _ in range(100))
    run("append", "--create", tmp_path / "t-0", "--batch-records", "50", input_text=text)
    assert [b["count"] for b in batches(tmp_path / "t-0")] == [50, 50]


def test_that_no_records_came_is_said(tmp_path: Path) -> None:
    done = run("append", "--create", tmp_path / "t-0", input_text="")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "t-0: the input had no records; nothing was appended\n"


def test_each_flush_is_acknowledged(tmp_path: Path) -> None:
    done = run("append", "--create", tmp_path / "t-0", "--flush-messages", "2", input_text="a\nb\nc\n")
    assert done.stdout == "appended t-0 offsets 0 to 1 durable\nappended t-0 offsets 2 to 2 durable\n"


def test_the_log_may_set_the_timestamps(tmp_path: Path) -> None:
    log, now = tmp_path / "t-0", "2026-01-02T03:04:05.678Z"
    run("append", "--create", log, "--timestamp-type", "LogAppendTime", "--now", now, input_text="a\n")
    (batch,) = batches(log)
    assert (batch["timestamp_type"], batch["max_timestamp"]) == ("LogAppendTime", 1767323045678)


def test_a_second_append_goes_on_where_the_first_ended(tmp_path: Path) -> None:
    log = tmp_path / "t-0"
    run("append", "--create", log, input_text="a\n")
    assert run("append", log, input_text="b\n").stdout == "appended t-0 offsets 1 to 1 durable\n"


def test_a_missing_partition_is_made_only_when_asked(tmp_path: Path) -> None:
    assert run("append", tmp_path / "t-0", input_text="a\n").exit_code == 10
    assert not (tmp_path / "t-0").exists()
    assert run("append", "--create", tmp_path / "no partition", input_text="a\n").exit_code == 12


def test_a_bad_line_is_named_and_the_lines_before_it_are_kept(tmp_path: Path) -> None:
    log = tmp_path / "t-0"
    done = run("append", "--create", log, "--input-format", "jsonl", input_text='{"value":"good"}\n{"value":7}\n')
    assert done.exit_code == 2
    assert done.stdout == "appended t-0 offsets 0 to 0 durable\n"
    assert "standard input: line 2: value is neither text nor null" in done.stderr
    assert [r["value"] for r in records(log)] == ["good"]


def test_a_compacted_topic_wants_keys(tmp_path: Path) -> None:
    done = run("append", "--create", tmp_path / "t-0", "--set", "cleanup.policy=compact", input_text="a\n")
    assert done.exit_code == 12
    assert "key" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["--codec", "brotli"],
        ["--key-separator", ""],
        ["--timestamp-type", "Now"],
        ["--flush-ms", "soon"],
        ["--input-format", "jsonl", "--key-separator", ":"],
        ["--set", "no.such.key=1"],
    ],
    ids=" ".join,
)
def test_options_that_cannot_be_are_wrong_usage_and_create_nothing(arguments: list[str], tmp_path: Path) -> None:
    assert run("append", "--create", tmp_path / "t-0", *arguments, input_text="a\n").exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_slow_writers_records_are_flushed_while_it_pauses(tmp_path: Path) -> None:
    command = [*COMMAND, "append", "--create", str(tmp_path / "t-0"), "--flush-ms", "50"]
    with subprocess.Popen(
        [*command, "--batch-records", "100"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(b"a\nb\n")
        child.stdin.flush()
        assert child.stdout.readline() == b"appended t-0 offsets 0 to 1 durable\n"
        child.stdin.close()
        assert child.wait(60) == 0


def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    log = tmp_path / "t-0"
    command = [*COMMAND, "append", "--create", str(log), "--flush-messages", "3", "--json"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()) as child:
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(b"".join(b"value %d\n" % i for i in range(30)))
        child.stdin.flush()
        acknowledged = json.loads(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        child.wait(60)
    assert acknowledged["first_offset"] == 0
    found = [r["value"] for r in records(log)]
    assert found[: acknowledged["last_offset"] + 1] == [f"value {i}" for i in range(acknowledged["last_offset"] + 1)]
    after = run("append", log, "--json", input_text="after\n")
    assert json_lines(after)[0]["first_offset"] == len(found)


def test_a_locked_directory_is_left_alone(tmp_path: Path) -> None:
    run("append", "--create", tmp_path / "t-0", input_text="a\n")
    holder = (
        "import fcntl, sys, time\n"
        "file = open(sys.argv[1], 'r+')\n"
        "fcntl.lockf(file, fcntl.LOCK_EX)\n"
        "print(flush=True)\n"
        "time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", holder, str(tmp_path / ".lock")], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        done = run("append", tmp_path / "t-0", input_text="b\n")
        child.kill()
    assert done.exit_code == 11
    assert str(child.pid) in done.stderr
    assert len(records(tmp_path / "t-0")) == 1


@pytest.mark.parametrize(
    "command",
    [
        ("append",),
        ("append", "--create"),
        ("truncate", "--to-offset", "0"),
        ("read",),
        ("txn",),
        ("explain",),
        ("convert", "--codec", "lz4", "-o", "elsewhere-0"),
    ],
)
def test_a_log_directory_where_a_partition_must_be_is_refused_by_name(
    tmp_path: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = clean_logs(tmp_path)
    monkeypatch.chdir(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in logs.rglob("*") if path.name != ".lock"}
    done = run(*command, logs, input_text="value\n")
    assert done.exit_code == 10
    assert "a log directory, not a partition; name one of its 16 partitions: both-0, clicks-0," in done.stderr
    assert {path: path.stat().st_mtime_ns for path in logs.rglob("*") if path.name != ".lock"} == before
    assert not (tmp_path / "elsewhere-0").exists()


def test_a_partition_is_made_only_where_one_can_be(tmp_path: Path) -> None:
    log = tmp_path / "t-0"
    assert run("append", "--create", log, input_text="v\n").exit_code == 0
    for place, code, told in (
        (tmp_path / "topic", 12, "only a directory named TOPIC-NUMBER (orders-0) can be made a partition"),
        (log / "u-0", 12, f"{log} is a partition itself"),
        (tmp_path / "missing" / "u-0", 10, "no such directory"),
    ):
        done = run("append", "--create", place, input_text="v\n")
        assert (done.exit_code, told in done.stderr) == (code, True), done.stderr
        assert not place.exists()


def test_a_stopped_brokers_log_that_ends_because_of_damage_is_left_as_it_is(tmp_path: Path) -> None:
    """An append took the offsets of the good batches behind the damage, and cut them off."""
    log = clean_logs(tmp_path) / "both-0"
    segment = max(log.glob("*.log"))
    data = segment.read_bytes()
    segment.write_bytes(data[: len(data) // 2] + data[len(data) // 2 + 61 :])
    for index in (segment.with_suffix(".index"), segment.with_suffix(".timeindex")):
        index.write_bytes(b"")
    before = contents_below(log.parent)
    done = run("append", log, input_text="more\n")
    assert (done.exit_code, done.stdout) == (1, "")
    assert str(segment) in done.stderr and "good batches follow from offset" in done.stderr
    assert contents_below(log.parent) == before
