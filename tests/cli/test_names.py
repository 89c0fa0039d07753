"""Names that are not UTF-8, or that a terminal or a checkpoint would obey: every command takes them."""

from __future__ import annotations

import base64
import contextlib
import csv
import io
import json
import os
import pty
import re
import shutil
import sys
import termios
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

import seglog_cli.app
from seglog.format.checkpoint import parse_offset_checkpoint
from seglog.scan.listing import list_log_directory
from seglog.storage.local import LocalFileSystem
from tests.support.command_line import clean_logs, ended, keep_partitions, run

NAME = os.fsdecode(b"\xff\xfe-0")
PARTITIONS = ("both-0", "customers-0", "orders-none-0")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Makes a log directory with three partitions, in a directory whose name is not UTF-8."""
    (tmp_path / "here\udcff").mkdir()
    logs = clean_logs(tmp_path / "here\udcff")
    keep_partitions(logs, PARTITIONS)
    return logs


def checkpoints(logs: Path) -> dict[str, dict[str, int]]:
    files = list_log_directory(LocalFileSystem(), logs).checkpoints
    return {
        name: {str(key): offset for key, offset in parse_offset_checkpoint(path.read_bytes(), path).items()}
        for name, path in files.items()
        if name.endswith("checkpoint")
    }


def test_no_command_ends_with_an_internal_error_on_such_names(logs: Path, tmp_path: Path) -> None:
    shutil.copytree(logs / "both-0", logs / NAME)
    (logs / "both-0" / "\udcff\udcfe.log").write_bytes(b"x" * 99)
    (logs / "customers-0" / f"{0:020d}.log").open("r+b").truncate(5000)
    out = tmp_path / "out\udcfe"
    for arguments in (
        ["ls", logs],
        ["dump", "-r", "-a", logs / NAME],
        ["dump", "--json", "-a", logs / NAME, logs / "both-0" / "\udcff\udcfe.log"],
        ["read", logs / NAME, "--limit", "1"],
        ["verify", logs],
        ["verify", "--json", logs],
        ["doctor", logs],
        ["stats", logs / NAME],
        ["explain", logs / NAME],
        ["txn", logs / NAME],
        ["diff", logs / NAME, logs / "customers-0"],
        ["export", logs / NAME, "-o", f"{out}.csv"],
        ["export", logs / NAME, "-o", f"{out}.jsonl"],
        ["export", logs / NAME, "-o", f"{out}.parquet"],
        ["dump", "--key", "\udcff", logs / "both-0"],
        ["verify", "--repair", "--dry-run", logs],
        ["verify", "--repair", logs],
        ["quarantine", "ls", logs],
        ["recover", logs],
        ["reindex", logs / NAME],
        ["truncate", "--to-offset", "900", logs / NAME],
        ["clean", "--policy", "compact", "--roll", logs / NAME],
        ["retain", "--retention-ms", "1", logs / NAME],
        ["convert", logs / NAME, "-o", f"{out}-0", "--codec", "zstd"],
        ["salvage", logs / NAME, "-o", f"{out}-1"],
        ["config", "show", logs / NAME, "--set", "cleanup.policy=\udcff"],
        ["config", "show", logs / NAME, "--config", "\udcff.yaml"],
        ["verify", logs / "missing\udcff"],
        ["undo", "\udcff"],
        ["ls", "--no-such\udcff"],
    ):
        done = run_whole(*arguments)
        assert done in (0, 1, 2, 3, 4, 5, 10, 12, 13), arguments


def run_whole(*arguments: str | Path) -> int:
    """Returns the exit code; checks that the output is text without a traceback."""
    done = ended(*arguments)
    assert b"Traceback" not in done.stderr, done.stderr
    done.stdout.decode()
    done.stderr.decode()
    if "--json" in arguments:
        assert [json.loads(line)["type"] for line in done.stdout.splitlines()]
    return done.code


def on_a_terminal(arguments: Sequence[str | Path]) -> bytes:
    """Returns what the command line, in this process, writes to a terminal that is its stdout and stderr."""
    ours, theirs = pty.openpty()
    settings = termios.tcgetattr(theirs)
    settings[1] &= ~termios.OPOST
    termios.tcsetattr(theirs, termios.TCSANOW, settings)
    seen = bytearray()
    reader = threading.Thread(target=_read_all, args=(ours, seen))
    reader.start()
    given = sys.stdout, sys.stderr
    with io.TextIOWrapper(io.FileIO(theirs, "w")) as terminal:
        sys.stdout = sys.stderr = terminal
        try:
            seglog_cli.app.run([str(argument) for argument in arguments])
        finally:
            sys.stdout, sys.stderr = given
    reader.join()
    os.close(ours)
    return bytes(seen)


def _read_all(descriptor: int, seen: bytearray) -> None:
    with contextlib.suppress(OSError):  # EIO: the other end is closed
        while piece := os.read(descriptor, 1 << 16):
            seen += piece


def test_no_name_and_no_value_reaches_a_terminal_unescaped(logs: Path, tmp_path: Path) -> None:
    evil = "\x1b[31mRED\x9b2J\u202e"
    shutil.copytree(logs / "both-0", logs / f"{evil}-0")
    (logs / "customers-0" / f"{evil}\n.log").write_bytes(b"x")
    record = {"key": evil, "value": evil, "headers": [{"key": evil, "value": None}]}
    (tmp_path / "evil.jsonl").write_text(json.dumps(record))
    assert run("append", logs / f"{evil}-0", tmp_path / "evil.jsonl").exit_code == 0
    segment = logs / f"{evil}-0" / f"{0:020d}.log"
    for arguments in (
        ["ls", logs],
        ["verify", logs],
        ["dump", "-r", "-a", logs / f"{evil}-0"],
        ["read", "--json", logs / f"{evil}-0"],
        ["dump-log", "--files", segment, "--print-data-log"],
        ["export", logs / f"{evil}-0", "-o", "-", "--format", "csv"],
        ["verify", "--progress", "plain", logs / evil],
        ["clean", "--dry-run", "--policy", "compact", "--roll", logs / f"{evil}-0"],
        ["read", logs / "both-0", f"--{evil}"],
    ):
        text = on_a_terminal(arguments).decode()
        text = re.sub(r"\x1b\[(?!31m)[0-9;]*m", "", text)  # colours of seglog's own, but not the one of the name
        text = re.sub(r"\r?\x1b\[(\?25[hl]|[0-9]*[AK])", "", text)  # a display of progress, where work takes a while
        assert [c for c in text if c in "\x1b\x9b\u202e\x07\b\r"] == [], (arguments, text)
        assert "RED" in text


def test_json_has_the_bytes_of_a_name_that_is_no_utf8(logs: Path) -> None:
    (logs / "both-0" / "\udcffx").write_bytes(b"x")
    listed = [json.loads(line) for line in ended("ls", "--json", logs / "both-0").stdout.splitlines()]
    partition = next(row for row in listed if row["type"] == "partition")
    assert (partition["partition"], "partition_b64" in partition) == ("both-0", False)
    assert partition["strangers"] == ["\\xffx"]
    assert [base64.b64decode(name) for name in partition["strangers_b64"]] == [b"\xffx"]
    assert base64.b64decode(partition["directory_b64"]) == os.fsencode(logs / "both-0")
    batch = json.loads(ended("dump", "--json", logs / "both-0").stdout.splitlines()[0])
    assert (batch["partition"], batch["position"]) == ("both-0", 0)


def test_a_repair_in_such_a_directory_is_found_again_and_taken_back(logs: Path) -> None:
    log = logs / "customers-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[200] ^= 1
    log.write_bytes(data)
    done = ended("verify", "--repair", "--json", logs)
    assert done.code == 4, done.stderr
    name = json.loads(done.stdout.splitlines()[-1])["run"]
    assert log.read_bytes() != data
    assert ended("undo", name).code == 0
    assert log.read_bytes() == data


def test_a_topic_of_such_a_name_is_exported_as_text(logs: Path, tmp_path: Path) -> None:
    from pyarrow import parquet

    shutil.copytree(logs / "both-0", logs / NAME)
    assert run("export", logs / NAME, "-o", tmp_path / "t.csv").exit_code == 0
    rows = list(csv.DictReader(io.StringIO((tmp_path / "t.csv").read_text())))
    assert {row["topic"] for row in rows} == {"\\xff\\xfe-0"}
    assert run("export", logs / NAME, "-o", tmp_path / "t.parquet").exit_code == 0
    assert set(parquet.read_table(tmp_path / "t.parquet")["topic"].to_pylist()) == {"\ufffd\ufffd-0"}


@pytest.mark.parametrize("name", [NAME, "\x1b[31mRED\n-0", "a b-0", "both-0.0123456789abcdef0123456789abcdef-delete"])
def test_truncate_and_clean_outside_live_partitions_change_no_checkpoint(name: str, logs: Path) -> None:
    shutil.copytree(logs / "both-0", logs / name)
    before = checkpoints(logs)
    assert ended("truncate", "--to-offset", "500", logs / name).code == 0
    assert ended("clean", "--policy", "compact", "--roll", logs / name).code == 0
    assert checkpoints(logs) == before
