"""What doctor foretells of a start, what a real broker then does, and where the two differ.

`foretell` asks doctor and keeps the plans that it made; `try_start` starts a broker on the same directories, reads
what it says while it loads, and kills it; `differences` compares: whether it starts, which log directories go
offline, what is set aside or made anew, and for each log its start, end, segments, recovery and the bytes that stay.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from seglog.clock import Clock
from seglog.configuration.cluster_metadata import read_cluster_metadata
from seglog.log.loader import LoadOptions, RecoveryReport, load_log
from seglog.scan.listing import PartitionDirectory, list_log_directory
from seglog.storage.filesystem import FileSystem
from seglog.storage.local import LocalFileSystem
from seglog.storage.overlay import OverlayFileSystem
from seglog_rescue.doctor import partition_start as opening
from seglog_rescue.doctor.visit import Visit
from tests.support.command_line import run
from tests.support.kafka import NODE_ID, Broker

QUIET = {  # nothing but the load touches the logs
    "log.initial.task.delay.ms": "3600000",
    "log.cleaner.enable": "false",
    "log.segment.delete.delay.ms": "3600000",
    "log.flush.offset.checkpoint.interval.ms": "3600000",
    "log.flush.start.offset.checkpoint.interval.ms": "3600000",
    "replica.high.watermark.checkpoint.interval.ms": "3600000",
    "auto.create.topics.enable": "false",
}
SETTLING_S = 4.0  # without a word and without a new name, after which a broker is done with its start
START_LIMIT_S = 300.0
WRITTEN = ("paid", "_")  # topics that a broker itself goes on to write to: markers, offsets

_LOADED = re.compile(
    r"Completed load of \w+\(dir=([^,]+),.* with \d+ segments,"
    r" local-log-start-offset (-?\d+) and log-end-offset (-?\d+)"
)
_STRAY = re.compile(r"Log in (\S.*) marked stray and renamed to (\S.*)")
_RECOVERED = re.compile(
    r"\[LogLoader partition=(\S+), dir=([^\]]+)\] (?:Recovering unflushed segment (\d+)\.|"
    r"(?:Could not find offset index|Found a corrupted index) file corresponding to log file \S*?(\d+)\.log)"
)
_OFFLINE = re.compile(r"Stopping serving (?:logs|replicas) in (?:dir )?(/\S+)")
_ALREADY_OFFLINE = "is already offline due to a previous IO exception"


@dataclass(frozen=True)
class Log:
    """One log as it is loaded: offsets, recovered segments, and the sizes of its `.log` files by base offset."""

    start: int
    end: int
    recovered: frozenset[int]
    sizes: Mapping[int, int] | None  # None where the directory has gone since: a move that went on and ended


@dataclass
class Prognosis:
    """Doctor's rows, and the log that each partition directory would become.

    `awaited` are partitions that the controller has given to the broker, which had no directory for them yet: they held
    nothing, doctor does not miss them, and the start makes them.
    """

    rows: list[dict[str, Any]]
    awaited: set[str]
    logs: dict[Path, Log] = field(default_factory=dict)

    def named(self, code: str) -> set[str]:
        """The partitions, or files in the log directory, that have a row of that code."""
        return {row["partition"] or row["file"] for row in self.rows if row["code"] == code}


@dataclass
class Course:
    """What a broker did. `logs` by the directory as it was named before."""

    started: bool
    said: str
    offline: set[Path] = field(default_factory=set)
    logs: dict[Path, Log] = field(default_factory=dict)
    strays: set[Path] = field(default_factory=set)
    made: set[Path] = field(default_factory=set)
    metadata: str = ""  # where the metadata log was cut


def foretell(directories: Sequence[Path], *options: str) -> Prognosis:
    """What doctor says of the directories of one broker. Changes nothing.

    Partitions that doctor knows as sound by a look have no plan: then it is asked once more to examine them as others,
    and must say the same.
    """
    plans: dict[Path, tuple[LoadOptions, RecoveryReport, dict[int, int]]] = {}

    def planned(fs: FileSystem, directory: Path, clock: Clock, options: LoadOptions) -> RecoveryReport:
        overlay = OverlayFileSystem(fs)
        loaded = load_log(overlay, directory, clock, options)
        loaded.segments.close()
        loaded.report.room = overlay.room
        plans[directory] = options, loaded.report, _sizes((name, one.size) for name, one in overlay.entries(directory))
        return loaded.report

    known_at_sight: list[Path] = []
    is_unchanged = Visit.is_unchanged

    def noted(self: Visit, fs: FileSystem, partition: PartitionDirectory) -> bool:
        answer = is_unchanged(self, fs, partition)
        known_at_sight.extend([partition.path] if answer else [])
        return answer

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(opening, "plan_recovery", planned)
        patched.setattr(Visit, "is_unchanged", noted)
        lines = _doctor_lines(directories, options)
        if known_at_sight:
            patched.setattr(Visit, "is_unchanged", lambda *_: False)
            assert _doctor_lines(directories, options) == lines
    prognosis = Prognosis([row for row in lines if row["type"] == "diagnosis"], _awaited(directories))
    ends = {(row["log_directory"], row["partition"]): row for row in prognosis.rows if row["code"] == "LOG_END_WRONG"}
    for directory, (_, report, sizes) in plans.items():
        wrong = ends.get((str(directory.parent), directory.name))
        end = report.log_end_offset if wrong is None else wrong["first_offset"]
        recovered = frozenset(one.base_offset for one in report.recovered)
        prognosis.logs[directory] = Log(report.log_start_offset, end, recovered, sizes)
    return prognosis


def _doctor_lines(directories: Sequence[Path], options: Sequence[str]) -> list[dict[str, Any]]:
    done = run("doctor", "--json", *options, *directories)
    assert done.exit_code in (0, 1), done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def _awaited(directories: Sequence[Path]) -> set[str]:
    """What the metadata log lists for the broker without naming a log directory, and what lies in none of them."""
    fs = LocalFileSystem()
    metadata = read_cluster_metadata(fs, directories[0], assignments=True)
    if metadata is None or not metadata.knows_topics:
        return set()
    listed = [each for one in directories for each in list_log_directory(fs, one).partitions]
    there = {each.topic_partition for each in listed if each.state.is_served}
    assigned = [(key, found.directory_of(NODE_ID)) for key, _, found in metadata.assigned_to(NODE_ID)]
    return {str(key) for key, directory in assigned if directory is None and key not in there}


def try_start(directories: Sequence[Path], work: Path, settings: Mapping[str, str]) -> Course:
    """Starts a broker on the directories, and kills it when it has settled."""
    before = {path for one in directories for path in one.iterdir() if path.is_dir()}
    where = {"log.dirs": ",".join(map(str, directories))}
    log = work / "broker.log"
    log.unlink(missing_ok=True)
    try:
        broker = Broker(directories[0], settings={**settings, **QUIET, **where}, work_directory=work, echo=3)
    except RuntimeError:
        course = Course(started=False, said=log.read_text(errors="replace"))
    else:
        _settle(broker, log, directories)
        started = broker.process.poll() is None
        broker.kill()
        course = Course(started, log.read_text(errors="replace"))
    read_course(course)
    after = {path for one in directories for path in one.iterdir() if path.is_dir()}
    course.made = {path for path in after - before if not path.name.endswith(("-stray", "-delete", "-future"))}
    return course


def _settle(broker: Broker, log: Path, directories: Sequence[Path]) -> None:
    """Returns when the broker has ended, or has rested: a busy machine takes its time over what follows an answer."""
    begun = rested = time.monotonic()
    before: tuple[int, list[list[str]]] | None = None
    while time.monotonic() < min(rested + SETTLING_S, begun + START_LIMIT_S) and broker.process.poll() is None:
        now = log.stat().st_size, [sorted(path.name for path in one.iterdir()) for one in directories]
        if now != before:
            rested, before = time.monotonic(), now
        time.sleep(0.1)


def differences(prognosis: Prognosis, course: Course, directories: Sequence[Path]) -> Iterator[str]:
    """A sentence for each thing that doctor foretold otherwise."""
    blockers = [row for row in prognosis.rows if row["severity"] == "blocker"]
    offline = {Path(row["log_directory"]) for row in blockers if "offline" in row["broker"]}
    refusing = [row for row in blockers if "offline" not in row["broker"]]
    if course.started:  # what lies in a directory, or a partition, that failed before is not come to
        refusing = [row for row in refusing if Path(row["log_directory"]) not in offline]
    starts = not refusing and directories[0] not in offline and offline != set(directories)
    if prognosis.named("STRAY_IN_FAILED_DIRECTORY") or (offline and _ALREADY_OFFLINE in course.said):
        # Threads load a directory's logs side by side. The renaming of a stray fails only after the failure, and a log
        # that is loaded just then ends the broker.
        starts = starts and course.started
    why = "; ".join(f"{row['partition']}/{row['file']} {row['code']}" for row in blockers)
    if starts != course.started:
        yield f"doctor: {'starts' if starts else 'does not start'} ({why}); the broker: {course.started}"
    if not course.started:
        return
    if offline != course.offline:
        yield f"offline: doctor {sorted(map(str, offline))} ({why}), broker {sorted(map(str, course.offline))}"
    named = (row for row in prognosis.rows if row["code"] == "STRAY_PARTITION")
    paths = [Path(row["log_directory"]) / row["partition"] for row in named]
    strays = {path for path in paths if path.parent not in course.offline}
    if strays != course.strays:
        yield f"stray: doctor {sorted(map(str, strays))}, broker {sorted(map(str, course.strays))}"
    missing = prognosis.named("PARTITION_MISSING") | prognosis.awaited
    moving = {path.name.split(".")[0] for path in prognosis.logs if path.name.endswith("-future")}
    made = {path.name for path in course.made} - moving
    named = (row["log_directory"] for row in prognosis.rows if row["code"] == "PARTITIONS_MADE_ELSEWHERE")
    failed = {path.name for one in named for path in Path(one).iterdir() if path.is_dir()}
    if not missing <= made <= missing | failed:
        yield f"made anew: doctor and the metadata log {sorted(missing)}, broker {sorted(made)}"
    for path in sorted({*prognosis.logs, *course.logs}):
        if path.parent not in course.offline and path not in course.made:
            yield from (f"{path.parent.name}/{path.name}: {each}" for each in _unlike(path, prognosis, course))


def _unlike(path: Path, prognosis: Prognosis, course: Course) -> Iterator[str]:
    foretold, found = prognosis.logs.get(path), course.logs.get(path)
    if foretold is None or found is None:
        yield f"loaded: doctor {foretold}, broker {found}"
        return
    deleted = path.name.endswith("-delete")  # a broker does not look where it ends
    if (foretold.start, foretold.end) != (found.start, found.end) and not deleted:
        yield f"offsets: doctor {foretold.start} to {foretold.end}, broker {found.start} to {found.end}"
    twins = sum(other.name.split(".")[0] == path.name.split(".")[0] for other in prognosis.logs) > 1
    if foretold.recovered != found.recovered and not twins:
        yield f"recovered: doctor {sorted(foretold.recovered)}, broker {sorted(found.recovered)}"
    if foretold.sizes is None or found.sizes is None:
        return
    written = path.name.startswith(WRITTEN)
    known = {base for base in found.sizes if not written or base in foretold.sizes or base < found.end}
    if set(foretold.sizes) != known:
        yield f"segments: doctor {sorted(foretold.sizes)}, broker {sorted(found.sizes)}"
        return
    last = max(foretold.sizes, default=-1)
    for base, size in foretold.sizes.items():
        grown = base == last and written and found.sizes[base] > size
        if found.sizes[base] != size and not grown:
            yield f"{base:020d}.log: doctor {size} bytes, broker {found.sizes[base]}"


def read_course(course: Course) -> None:
    """Fills in what the broker's log tells."""
    recovered: dict[Path, set[int]] = {}
    renamed: dict[Path, Path] = {}
    for line in course.said.splitlines():
        if match := _OFFLINE.search(line):
            course.offline.add(Path(match[1].rstrip(".")))
        elif match := _STRAY.search(line):
            renamed[Path(match[2])] = Path(match[1])
            course.strays.add(Path(match[1]))
        elif match := _RECOVERED.search(line):
            recovered.setdefault(Path(match[2]) / match[1], set()).add(int(match[3] or match[4]))
        elif match := _LOADED.search(line):
            now = Path(match[1])
            path = renamed.get(now, now)
            key = path.with_name(re.sub(r"\.[0-9a-f]{32}-(future|delete|stray)$", "", path.name))
            files = [each for each in now.iterdir() if each.is_file()] if now.exists() else None
            sizes = None if files is None else _sizes((each.name, each.stat().st_size) for each in files)
            course.logs[path] = Log(int(match[2]), int(match[3]), frozenset(recovered.get(key, ())), sizes)


def _sizes(files: Any) -> dict[int, int]:
    return {int(name[:-4]): size for name, size in files if re.fullmatch(r"\d{20}\.log", name)}
