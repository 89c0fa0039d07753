"""What the library finds is what the command line shows."""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import seglog
from tests.support.command_line import json_lines, run
from tests.support.compacted_directories import broker_directory
from tests.support.log_files import files_of


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A log directory with damage in the middle of a segment and an index that is wrong."""
    path = broker_directory(tmp_path / "logs", {"t-0": (3, 5), "u-0": (1, 5)})
    with (path / "t-0" / "00000000000000000000.log").open("r+b") as file:
        file.seek(100)
        file.write(b"XXXX")
    (path / "u-0" / "00000000000000000000.timeindex").write_bytes(b"\x01" * 24)
    return path


def shown(*arguments: str | Path) -> list[dict[str, Any]]:
    return json_lines(run(*arguments, "--json"))


def test_verify_finds_what_the_command_finds_at_the_same_depth(logs: Path) -> None:
    before = files_of(logs)
    rows = shown("verify", logs)
    found = seglog.verify(logs)
    assert [one.as_dict() for one in found] == rows[:-1]
    assert found.summary.damaged
    assert {name: rows[-1][name] for name in dataclasses.asdict(found.summary)} == dataclasses.asdict(found.summary)
    assert [one.as_dict() for one in seglog.verify(str(logs), level="header")] == shown(
        "verify", "--level", "header", logs
    )[:-1]
    assert files_of(logs) == before


def test_partitions_are_those_of_ls(logs: Path) -> None:
    found = {one.partition: one for one in seglog.partitions(logs)}
    rows = {row["partition"]: row for row in shown("ls", logs) if row["type"] == "partition"}
    assert found.keys() == rows.keys()
    for name, one in found.items():
        assert (one.size, one.start_offset, one.end_offset) == (
            rows[name]["size"], rows[name]["start_offset"], rows[name]["end_offset"],
        )  # fmt: skip


def test_doctor_says_what_the_command_says(logs: Path) -> None:
    found = seglog.doctor(logs)
    *rows, summary = shown("doctor", logs)
    assert rows and [row.as_dict() for row in found] == rows
    assert found.summary.writer is not None
    counts = dataclasses.asdict(found.summary) | {"writer": str(found.summary.writer)}
    assert counts.items() <= summary.items()


@pytest.mark.parametrize("look", [seglog.verify, seglog.doctor])
def test_a_summary_covers_everything_when_asked_for_alone_or_again(logs: Path, look: Callable[[Path], Any]) -> None:
    found = look(logs)
    rows = list(found)
    assert rows and "0 errors" not in repr(found)
    alone = look(logs)
    assert alone.summary == found.summary
    assert list(alone) == rows
    assert alone.summary == found.summary
    if look is seglog.doctor:
        (logs / "u-0" / "x.log").touch()  # a broker does not start with it
        assert not look(logs).summary.loads


def test_stats_are_those_of_the_command(logs: Path) -> None:
    rows = [row for row in shown("stats", "--sizing", logs) if row["type"] in ("statistics", "sizing")]
    found = list(seglog.stats(logs, sizing=True))
    assert [one.statistics.records for one in found] == [row["records"] for row in rows if row["type"] == "statistics"]
    sizes = [row["needed_buffer_bytes"] for row in rows if row["type"] == "sizing"]
    assert [one.sizing.needed_buffer_bytes for one in found if one.sizing is not None] == sizes


@pytest.mark.parametrize("level", ["bytes", "batches", "view"])
def test_diff_finds_what_the_command_finds(logs: Path, tmp_path: Path, level: Any) -> None:
    copy = broker_directory(tmp_path / "copy", {"t-0": (3, 5), "u-0": (1, 5)})
    with seglog.open_log(copy / "u-0", writable=True) as log:
        log.append([seglog.Record(b"more", key=b"more", timestamp=1)])
    rows = [
        {name: value for name, value in row.items() if not name.startswith("key")}
        for row in shown("diff", "--level", level, copy, logs)[:-1]
    ]
    copies = [str(copy / "t-0"), str(logs / "t-0")], [str(copy / "u-0"), str(logs / "u-0")]
    found = [one.as_dict(name, copies[name == "u-0"]) for name, one in seglog.diff(copy, logs, level=level)]
    assert found == rows
    assert rows


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        (("--level", "view", "--key", "more"), {"level": "view", "key": b"more"}),
        (("--level", "view", "--key", "nobody"), {"level": "view", "key": b"nobody"}),
        (("--level", "view", "--until", "1"), {"level": "view", "until_ms": 1}),
        (("--level", "view", "--isolation", "read_uncommitted"), {"level": "view", "isolation": "read_uncommitted"}),
        (("--since", "2"), {"since_ms": 2}),
        (("--producer-id", "7"), {"producer_id": 7}),
    ],
    ids=str,
)
def test_diff_takes_the_options_of_the_command(
    logs: Path, tmp_path: Path, options: tuple[str, ...], arguments: dict[str, Any]
) -> None:
    copy = broker_directory(tmp_path / "copy", {"t-0": (3, 5), "u-0": (1, 5)})
    with seglog.open_log(copy / "u-0", writable=True) as log:
        log.append([seglog.Record(b"more", key=b"more", timestamp=1)])
    found = list(seglog.diff(copy, logs, **arguments))
    rows = shown("diff", *options, copy, logs)[:-1]
    assert [(name, one.kind, one.first_offset) for name, one in found] == [
        (row["partition"], row["kind"], row["first_offset"]) for row in rows
    ]


def test_explain_explains_as_the_command_does(logs: Path) -> None:
    (row,) = shown("explain", "--advise", "--set", "cleanup.policy=compact", logs / "u-0")
    found = seglog.explain(logs / "u-0", config={"cleanup.policy": "compact"})
    for name in ("cleaning", "deletion", "reading", "advice"):
        assert list(getattr(found, name)) == [re.sub(r"silent for \S+", "silent", text) for text in row[name]]
    codes = [{"cleaning_code": one.cleaning.code, "deletion_code": one.deletion.code} for one in found.segments]
    plain = [dataclasses.asdict(segment) for segment in found.segments]
    assert [{**one, **code} for one, code in zip(plain, codes, strict=True)] == row["segments"]


WRONG: dict[str, tuple[type[Exception], Callable[[Path], object]]] = {
    "level: 'crk' is not one of header, crc": (ValueError, lambda p: seglog.verify(p, level="crk")),  # type: ignore
    "level: 3 (int) is not a member of Level: header, crc": (TypeError, lambda p: seglog.verify(p, level=3)),  # type: ignore
    "sample: 5 is not above 0": (ValueError, lambda p: seglog.verify(p, sample=5)),
    "sample must be an integer, not True": (TypeError, lambda p: seglog.verify(p, sample=True)),
    "threads: 1025 is not from 1 to 1024": (ValueError, lambda p: seglog.verify(p, threads=1025)),
    "limit must be an integer, not True": (TypeError, lambda p: list(seglog.diff(p, p, limit=True))),
    "limit: 9223372036854775808 is not from": (ValueError, lambda p: list(seglog.diff(p, p, limit=2**63))),
    "local: a path must be text": (TypeError, lambda p: seglog.verify(p, local=5)),  # type: ignore[arg-type]
    "remote_metadata: the list is empty": (ValueError, lambda p: seglog.verify(p, remote_metadata=[])),
    "tier_keys: a path must be text": (TypeError, lambda p: seglog.verify(p, tier_keys={"a": 5})),  # type: ignore
    "config_file: '' is an empty path": (seglog.ConfigError, lambda p: seglog.verify(p, config_file="")),
    "metadata_directory: '' is an empty path": (seglog.ConfigError, lambda p: seglog.explain(p, metadata_directory="")),
    "policy: 'x' is not one of": (ValueError, lambda p: seglog.plan_repair(p, policy="x")),  # type: ignore
    "only: 'x' is not one of": (ValueError, lambda p: seglog.plan_repair(p, only="x")),
    "free: 'x' is not a size": (ValueError, lambda p: seglog.plan_retain(p, free="x")),
    "name at least one path": (TypeError, lambda _: seglog.verify()),
    "a path must be text or a pathlib.Path, not 5": (TypeError, lambda _: seglog.partitions(5)),  # type: ignore
    "'jobs' is not an argument; every function also takes config": (
        TypeError, lambda p: seglog.verify(p, jobs=3),  # type: ignore
    ),
    "threads must be an integer, not '3'": (TypeError, lambda p: seglog.verify(p, threads="3")),  # type: ignore
    "config must be a mapping from Kafka's keys to values": (TypeError, lambda p: seglog.explain(p, config="x=y")),  # type: ignore
    "needs at least two copies": (ValueError, lambda p: list(seglog.diff(p))),
    "limit must be an integer, not 1.5": (TypeError, lambda p: list(seglog.diff(p, p, limit=1.5))),  # type: ignore
    "limit: -1 is less than 0": (ValueError, lambda p: list(seglog.diff(p, p, limit=-1))),
    "from_offset: -1 is less than 0": (ValueError, lambda p: list(seglog.diff(p, p, from_offset=-1))),
    "to_offset: 5 is before from_offset, 9": (
        ValueError, lambda p: list(seglog.diff(p, p, from_offset=9, to_offset=5)),
    ),
    "the level batches compares batches, not records: do not give until_ms, key, isolation, memory_bytes": (
        ValueError,
        lambda p: list(
            seglog.diff(p, p, until_ms=5, key=b"k", isolation="read_committed", memory_bytes=1 << 20)
        ),
    ),
    "the level bytes compares whole files: do not give since_ms, producer_id": (
        ValueError, lambda p: list(seglog.diff(p, p, level="bytes", since_ms=5, producer_id=1)),
    ),
    "until_ms: 5 is before since_ms, 9": (
        ValueError, lambda p: list(seglog.diff(p, p, level="view", since_ms=9, until_ms=5)),
    ),
    "key must be bytes, not 'k'": (TypeError, lambda p: list(seglog.diff(p, p, level="view", key="k"))),  # type: ignore
    "memory_bytes: 10 is less than 1048576": (ValueError, lambda p: list(seglog.diff(p, p, memory_bytes=10))),
    "max_duration_s: -1 is less than 0": (ValueError, lambda p: seglog.verify(p, max_duration_s=-1)),
    "write_rate is for sizing": (ValueError, lambda p: list(seglog.stats(p, write_rate=5))),
    "write_rate: 0 is less than 1": (ValueError, lambda p: list(seglog.stats(p, sizing=True, write_rate=0))),
    "seglog knows no configuration key 'no'": (seglog.ConfigError, lambda p: seglog.explain(p, config={"no": 1})),
}  # fmt: skip


@pytest.mark.parametrize("told", WRONG)
def test_wrong_arguments_are_named(tmp_path: Path, told: str) -> None:
    with seglog.open_log(tmp_path / "t-0", create=True):
        pass
    kind, call = WRONG[told]
    with pytest.raises(kind, match=re.escape(told)):
        call(tmp_path / "t-0")


def test_a_place_without_a_log_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(seglog.NotALogError):
        seglog.verify(tmp_path / "none-0")
    shutil.rmtree(tmp_path)
    with pytest.raises(seglog.NotALogError):
        seglog.partitions(tmp_path)


def test_verbs_that_look_and_plans_warn_of_a_run_that_is_not_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logs = broker_directory(tmp_path / "logs", {"t-0": (3, 5)})
    partition = logs / "t-0"
    segment = sorted(partition.glob("*.log"))[0]

    def opened(path: Path) -> None:
        with seglog.open_log(path) as log:
            assert next(log.records()).offset == 0

    works: list[tuple[Callable[[Path], object], Path]] = [
        (opened, partition),
        (lambda path: list(seglog.verify(path)), segment),
        (lambda path: list(seglog.stats(path)), partition),
        (lambda path: list(seglog.diff(path, path)), partition),
        (seglog.partitions, logs),
        (seglog.explain, partition),
        (seglog.plan_retain, partition),
        (seglog.plan_recover, partition),
        (seglog.plan_repair, partition),
    ]
    for work, path in works:
        work(path)
    assert "a run of seglog" not in caplog.text
    (logs / ".seglog-run").write_text("/somewhere\n")
    for work, path in works:
        caplog.clear()
        work(path)
        told = [record.getMessage() for record in caplog.records if record.name == "seglog"]
        assert [each.startswith(f"{logs}: a run of seglog was cut short here") for each in told] == [True], (work, told)
    (logs / "seglog-run-unfinished").mkdir()
    caplog.clear()
    assert any(found.code == "RUN_UNFINISHED" for found in seglog.doctor(logs))
    assert "a run of seglog" not in caplog.text
