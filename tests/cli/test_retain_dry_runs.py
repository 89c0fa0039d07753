"""`seglog retain --dry-run` shows what the run then does, whatever the state of the indexes that it reads."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seglog.log import retention
from seglog.log.log import Log
from seglog.operations import retain_ahead
from seglog.storage.filesystem import FileSystem
from seglog.storage.lock import Holder
from tests.support.command_line import clean_logs, json_lines, run
from tests.support.compacted_directories import broker_directory
from tests.support.open_logs import START_MS

NOW = str(START_MS + 86_400_000)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def zero(path: Path) -> None:
    path.write_bytes(bytes(max(24, path.stat().st_size)))


def foreign(path: Path) -> None:
    path.write_bytes(b"".join((START_MS + 10**8 + i).to_bytes(8, "big") + i.to_bytes(4, "big") for i in range(1, 6)))


def disordered(path: Path) -> None:
    data = path.read_bytes()
    entries = [data[at : at + 12] for at in range(0, len(data), 12)]
    path.write_bytes(b"".join(reversed(entries)))


STATES: dict[str, Callable[[Path], object]] = {
    "absent": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "cut": cut,
    "zero": zero,
    "foreign": foreign,
    "disordered": disordered,
}
INDEXES = (("timeindex",), ("index",), ("timeindex", "index"))  # those that are in the state, a partition each


def deleted(*arguments: str | Path) -> list[tuple[list[int], list[tuple[int, bool]]]]:
    """Each partition's deleted segments, and the time of each segment."""
    rows = json_lines(run("retain", "--json", *arguments))
    times = [[(s["largest_timestamp"], s["from_modified"]) for s in row["segments"]] for row in rows]
    return [(row["deleted_segments"], each) for row, each in zip(rows, times, strict=True)]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory with a partition for each of INDEXES."""
    sizes = {f"t-{number}": (3, 5) for number in range(len(INDEXES))}
    return broker_directory(tmp_path_factory.mktemp("sound") / "logs", sizes, cleanup_policy=frozenset({"delete"}))


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("which", [slice(None), slice(1), slice(-1, None)], ids=["all", "first", "last"])
def test_a_dry_run_takes_the_times_that_the_run_takes(
    sound: Path, tmp_path: Path, state: str, which: slice, clean: bool
) -> None:
    path = shutil.copytree(sound, tmp_path / "logs")
    if not clean:
        (path / ".kafka_cleanshutdown").unlink()
    partitions = [path / f"t-{number}" for number in range(len(INDEXES))]
    for partition, kinds in zip(partitions, INDEXES, strict=True):
        for kind in kinds:
            for file in sorted(partition.glob(f"*.{kind}"))[which]:
                STATES[state](file)
    rule = ("--retention-ms", "1h", "--now", NOW)
    planned = deleted("--dry-run", *rule, *partitions)
    assert len(planned) == len(partitions)
    assert planned == deleted(*rule, *partitions)


def test_random_states_of_all_indexes_of_a_brokers_directory(tmp_path: Path) -> None:
    rng = random.Random(41)
    source = clean_logs(tmp_path)
    for number in range(6):
        path = tmp_path / str(number)
        shutil.copytree(source, path)
        for file in sorted((*path.rglob("*.timeindex"), *path.rglob("*.index"))):
            if rng.random() < 0.3 and not file.parent.name.startswith("__"):
                STATES[rng.choice(sorted(STATES))](file)
        if number % 2:
            (path / ".kafka_cleanshutdown").unlink()
        rule = ("--retention-ms", rng.choice(["1h", "5s", "30d"]), "--now", "2026-11-21T05:04:00Z")
        named = [str(one) for one in sorted(path.iterdir()) if one.name in ("payments-0", "orders-none-0", "clicks-0")]
        planned = deleted("--dry-run", *rule, named[0])
        assert planned == deleted(*rule, named[0]), number


def is_kept(fs: FileSystem, path: Path) -> bool:
    """True if what a trial wrote to an index is still in memory; its size is known in any case."""
    status = fs.status(path)
    assert status is not None and status.size
    try:
        return bool(fs.read_bytes(path))
    except ValueError:
        return False


@pytest.mark.parametrize("more", [("--retention-ms", "1h"), ("--free", "1GB", "--set", "cleanup.policy=delete")])
def test_a_dry_run_keeps_the_rebuilt_indexes_of_no_log_until_all_are_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    path = broker_directory(tmp_path / "logs", {"t-0": (3, 5), "t-1": (2, 5)}, cleanup_policy=frozenset({"delete"}))
    for file in (*path.rglob("*.timeindex"), *path.rglob("*.index")):
        file.unlink()
    planned: dict[str, set[bool]] = {}
    judge = retention._Judge.__init__

    def planning(self: retention._Judge, log: Log, *rest: int) -> None:
        indexes = (segment.time_index.path for segment in log.segments if segment.size)
        planned[str(log.topic_partition)] = {is_kept(log.fs, path) for path in indexes}
        judge(self, log, *rest)

    monkeypatch.setattr(retention._Judge, "__init__", planning)
    shown = run("retain", "--json", "--dry-run", *more, "--now", NOW, path / "t-0", path / "t-1")
    assert planned == {"t-0": {False}, "t-1": {False}}, shown.stderr


def test_explain_opens_a_log_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = broker_directory(tmp_path / "logs", {"t-0": (3, 5)}) / "t-0"
    opened: list[str] = []
    for name in ("open", "open_for_reading"):
        real = getattr(Log, name)

        def opening(*given: Any, name: str = name, real: Any = real, **more: Any) -> Log:
            opened.append(name)
            return real(*given, **more)

        monkeypatch.setattr(Log, name, opening)
    rule = ("--set", "cleanup.policy=delete", "--set", "retention.ms=1h", "--now", NOW)
    alone = run("explain", "--json", *rule, path).stdout
    assert opened == ["open"]
    opened.clear()
    monkeypatch.setattr(retain_ahead, "holder_of", lambda _: Holder(7, ""))
    assert run("explain", "--json", *rule, path).stdout == alone
    assert opened == ["open_for_reading"], "beside a broker nobody opens it anew"


@pytest.mark.parametrize("state", ["absent", "empty", "foreign"])
def test_explain_names_the_segments_that_the_run_deletes(tmp_path: Path, state: str) -> None:
    path = broker_directory(tmp_path / "logs", {"t-0": (3, 5)}, cleanup_policy=frozenset({"delete"})) / "t-0"
    for file in sorted((*path.glob("*.timeindex"), *path.glob("*.index"))):
        STATES[state](file)
    rule = ("--set", "cleanup.policy=delete", "--set", "retention.ms=1h", "--now", NOW)
    (row,) = [row for row in json_lines(run("explain", "--json", *rule, path)) if row["type"] == "explanation"]
    explained = [one["base_offset"] for one in row["segments"] if one["deletion_code"] == "TIME"]
    (row,) = json_lines(run("retain", "--json", *rule, path))
    assert row["deleted_segments"] == explained


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ("_schemas", "a schema registry's schemas"),
        ("connect-offsets", "Kafka Connect's offsets"),
        ("prod.connect-configs", "Kafka Connect's connectors"),
        ("connect-status", "the states of Kafka Connect's"),
        ("mm2-offset-syncs.b.internal", "MirrorMaker's map of offsets"),
        ("orders-store-changelog", "the state of a Kafka Streams application"),
    ],
)
def test_topics_that_hold_a_programs_state_are_named_before_anything_goes(
    tmp_path: Path, topic: str, said: str
) -> None:
    path = broker_directory(tmp_path / "logs", {f"{topic}-0": (3, 5)}) / f"{topic}-0"
    rule = ("--set", "cleanup.policy=delete", "--set", "retention.ms=1h", "--now", NOW)
    for command in (("retain", "--dry-run"), ("retain", "--dry-run", "--json"), ("explain",)):
        shown = run(*command, *rule, path)
        assert said in shown.stdout + shown.stderr, command
    rows = json_lines(run("doctor", "--json", *rule[:4], path.parent))
    (row,) = [row for row in rows if row.get("code") == "STATE_DELETED"]
    assert said in row["message"] and row["severity"] == "danger"
    found = json_lines(run("report", "--json", *rule, path.parent))
    assert said in next(row["message"] for row in found if row.get("code") == "STATE_DELETED")
    for kept in ("cleanup.policy=compact,delete", "cleanup.policy=compact"):  # the first is a window store's
        for command in (("retain", "--dry-run", *rule[2:], path), ("doctor", path.parent), ("report", path.parent)):
            shown = run(command[0], "--set", kept, *command[1:])
            assert said not in shown.stdout + shown.stderr, command
    for_ever = ("--set", "cleanup.policy=delete", "--set", "retention.ms=-1")
    assert "STATE_DELETED" not in run("doctor", *for_ever, path.parent).stdout
