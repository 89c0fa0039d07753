"""Backs up a broker that works, again and again, and compares what was stored with what its clients were told and saw.

    python -m tests.support.live_backups [--seed 1] [--brokers 4] [--runs 50] [--java] [--release 4.3.0]

Each broker (of --release; without it of 4.4.0, every fourth of 4.3.0) is a `BusyBroker`: small segments, compaction,
retention of seconds, deletions, transactions, topics that come and go, replicas that move between two log directories.
`seglog backup` runs beside it as a process, and after each run its snapshots are restored:

- each log is a prefix of what the consumers saw of it, and has what was acknowledged before the run began;
- a compacted one has the latest record of each key, and nothing that was not written;
- each partition is there once, and no group is above its log.

A quarter of the runs is killed. Others have a second writer, a bucket that fails a tenth of its requests, or a disk
that is full (a tmpfs, if this user may mount one). Whatever a run came to, each snapshot that is listed must be such.
A run holds files that the broker deleted only of the partition that it is at. At the end the broker is killed, and a
new one starts on the last snapshot. With --java Kafka's own producer, too, writes transactions (KIP-890: version 2).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from seglog.errors import SeglogError
from seglog.format import filenames
from seglog.format.checkpoint import parse_offset_checkpoint
from seglog.model import TopicPartition
from seglog.storage.routing import machine_files
from seglog_cli.exit_codes import ExitCode
from seglog_rescue.backup.repository import Repository
from seglog_rescue.backup.restoring import restore_snapshots, verify_snapshots
from tests.support.busy_broker import BusyBroker
from tests.support.command_line import COMMAND, ROOT, environment, json_lines, run
from tests.support.dead_clusters import ISOLATIONS, read_all
from tests.support.kafka.archive import loading
from tests.support.kafka.broker import QUICK_COMPILER, Broker
from tests.support.kafka.jvm import KAFKA_VERSION, NEWER_KAFKA_VERSION, find_java
from tests.support.noted_clients import FS, PLACES, Notes, Told, first_offset
from tests.support.object_server import Fault, ObjectServer, object_server

CHECKPOINTS = {"replica.high.watermark.checkpoint.interval.ms": "250"}  # a run waits for two of them
KINDS = {"alone": 9, "killed": 5, "two writers": 2, "bucket": 3, "full disk": 1}
BUCKET = "s3://bucket/backup"
FAULTS = (Fault(503, "SlowDown"), Fault(500, "InternalError"), Fault(reset=True))
DISK_BYTES = 24 << 20
LIMIT_S = 240
PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
REFUSALS = {ExitCode.REFUSED, ExitCode.IO_ERROR}


@contextmanager
def small_disk(place: Path) -> Iterator[bool]:
    """Whether a tmpfs of `DISK_BYTES` is mounted at `place` meanwhile."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(place)]
    is_there = shutil.which("mount") is not None and os.geteuid() == 0
    is_there = is_there and subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        yield is_there
    finally:
        if is_there:
            subprocess.run(["umount", str(place)], capture_output=True, check=True)


def deleted_files(process: int) -> set[Path]:
    """The files that a process has open, and that were deleted."""
    held = set()
    with os.scandir(f"/proc/{process}/fd") as entries:
        for entry in entries:
            try:
                target = str(Path(entry.path).readlink())
            except OSError:
                continue  # closed meanwhile
            if target.endswith(" (deleted)"):
                held.add(Path(target.removesuffix(" (deleted)")))
    return held


@dataclass
class LiveBackups:
    """The runs beside one broker. `wrong` are sentences about what must not be; `counts` is what there was."""

    root: Path
    chance: random.Random
    busy: BusyBroker
    notes: Notes
    server: ObjectServer
    has_small_disk: bool
    wrong: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    told: dict[tuple[Path, str], Told] = field(default_factory=dict)  # by repository and snapshot: before its run
    usual_s: float = 3.0
    number: int = 0

    @property
    def disk(self) -> Path:
        """Where the small disk is."""
        return self.root / "disk"

    def run_of(self, kind: str) -> None:
        """One run of a kind, and what it left."""
        self.number += 1
        self.counts[kind] += 1
        repository = {"bucket": self.root / "dumped", "full disk": self.disk / "backup"}.get(kind, self.root / "backup")
        place: str | Path = BUCKET if kind == "bucket" else repository
        move = threading.Thread(target=self._move) if self.chance.random() < 0.1 else None
        if move is not None:
            move.start()
            time.sleep(self.chance.uniform(0, 1.5))
        told = self.notes.told()
        if kind == "full disk":
            self._on_a_full_disk(place)
        else:
            is_killed = kind == "killed" or (kind == "bucket" and self.chance.random() < 0.25)
            self._backed_up(place, writers=2 if kind == "two writers" else 1, is_killed=is_killed)
        if move is not None:
            move.join()
            self.counts["moves"] += 1
        if kind == "bucket":
            self._dump(repository)
        self.judge_new(repository, told)

    def _move(self) -> None:
        self.busy.move("plain", self.chance.randrange(2), self.chance.choice(self.busy.directories))

    def _on_a_full_disk(self, place: str | Path) -> None:
        """A run with little room, and one with more after it."""
        filler, free = self.disk / "filler", FS.free_bytes(self.disk)
        filler.write_bytes(bytes(max(0, free - self.chance.randrange(1 << 20))))
        if self._backed_up(place, may_fail=True):
            self.counts["found room"] += 1
        filler.unlink()
        if not self._backed_up(place, may_fail=True):
            shutil.rmtree(place)  # it is full of snapshots

    # --- processes ----------------------------------------------------------------------------------------

    def _backed_up(
        self, place: str | Path, writers: int = 1, *, is_killed: bool = False, may_fail: bool = False
    ) -> bool:
        """Runs backups at the same time; True if all of them made a snapshot."""
        given = environment(**self.server.environment)
        line = [*COMMAND, "backup", *map(str, self.busy.directories), "--to", str(place), "--json"]
        pipe, began = subprocess.PIPE, time.monotonic()
        processes = [
            subprocess.Popen(line, stdout=pipe, stderr=pipe, env=given, cwd=ROOT, text=True) for _ in range(writers)
        ]
        deadline = began + (self.chance.uniform(0.2, 1.1) * self.usual_s if is_killed else LIMIT_S)
        ends = [self._ended(process, deadline) for process in processes]
        self.counts["kills"] += sum(code < 0 for code, _, _ in ends)
        if None not in ends and not is_killed and writers == 1:
            self.usual_s = 0.8 * self.usual_s + 0.2 * (time.monotonic() - began)
        allowed = REFUSALS if may_fail or writers > 1 or place == BUCKET else set()
        for code, said, complaint in ends:
            if code < 0 and is_killed:
                continue
            self.counts[f"exit code {code}"] += 1
            if code and code not in allowed:
                self.wrong.append(f"run {self.number}: exit code {code}: {said[-600:]} {complaint[-1500:]}")
            elif not code:
                summary = json.loads(said.splitlines()[-1])
                odd = summary["damage"] + summary["left_out"] + summary["remarks"]
                self.wrong += [f"run {self.number}: {sentence}" for sentence in odd]
        return not any(code for code, _, _ in ends)

    def _ended(self, process: subprocess.Popen[str], deadline: float) -> tuple[int, str, str]:
        """Exit code, output and complaints of a process, which is killed at the deadline. Looks at what it holds."""
        while process.poll() is None and time.monotonic() < deadline:
            try:
                held = deleted_files(process.pid)
            except OSError:
                continue  # it has ended
            partitions = {path.parent for path in held if path.parent.parent in self.busy.directories}
            self.counts["looks"] += 1
            self.counts["looks that saw deleted files"] += bool(partitions)
            if len(partitions) > 1:
                self.wrong.append(f"run {self.number} holds deleted files of several partitions: {sorted(held)}")
            time.sleep(0.02)
        if process.poll() is None:
            process.kill()
        said, complaint = process.communicate()
        return process.returncode, said, complaint

    def _dump(self, place: Path) -> None:
        """Writes what is in the bucket to a directory."""
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        for name, data in dict(self.server.objects).items():
            path = place / name.removeprefix("bucket/backup/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    # --- snapshots ----------------------------------------------------------------------------------------

    def judge_new(self, place: Path, told: Told) -> None:
        """Restores and judges the snapshots that are new in a repository, and sometimes an older one."""
        repository = Repository(machine_files(), place)
        ids = repository.ids() if place.exists() else []
        new = [identity for identity in ids if (place, identity) not in self.told]
        for identity in new:
            self.told[place, identity] = told
            self.counts["snapshots"] += 1
        old = [identity for identity in ids if identity not in new]
        again = [self.chance.choice(old)] if old and self.chance.random() < 0.2 else []
        for identity in (*new, *again):
            with tempfile.TemporaryDirectory(dir=self.root) as target:
                self._judge(repository, identity, Path(target) / "restored", self.told[place, identity])

    def _judge(self, repository: Repository, identity: str, target: Path, told: Told) -> None:
        name = f"run {self.number}: {repository.place.name}#{identity}"
        self.counts["restored"] += 1
        try:
            made = restore_snapshots(repository, [repository.read(identity)], FS, target, lambda _size: None)
            for place in PLACES:
                self.wrong += [f"{name}: {sentence}" for sentence in self._of_place(place, made.directories, told)]
            self.wrong += [f"{name}: {sentence}" for sentence in self._of_churn(made.directories)]
            if self.chance.random() < 0.2:
                self.counts["verified"] += 1
                self.wrong += [f"{name}: {sentence}" for sentence in verified(made.directories)]
            if self.chance.random() < 0.2:
                self.wrong += [f"{name}: {sentence}" for sentence in groups_above(made.directories)]
        except SeglogError as error:
            self.wrong.append(f"{name}: {type(error).__name__}: {error}")

    def _of_place(self, place: tuple[str, int], directories: list[Path], told: Told) -> Iterator[str]:
        topic_partition = TopicPartition(*place)
        homes = [each for each in directories if (each / str(topic_partition)).is_dir()]
        if len(homes) != 1:
            yield f"{topic_partition} is in {len(homes)} log directories"
            return
        start = max(starts_of(homes[0]).get(topic_partition, 0), first_offset(homes[0] / str(topic_partition)))
        self.counts["logs"] += 1
        yield from self.notes.differences(place, homes[0] / str(topic_partition), told, start)

    def _of_churn(self, directories: list[Path]) -> Iterator[str]:
        """Topics that come and go have the same records each time."""
        for path in (each for directory in directories for each in sorted(directory.glob("churn-*-0"))):
            values = [json.loads(line)["value"] for line in run("read", "--json", path).stdout.splitlines()]
            self.counts["logs of topics that come and go"] += 1
            if values != [f"v{n}" for n in range(len(values))]:
                yield f"{path.name} has {values[:10]}"

    def start_on_last(self, release: str) -> None:
        """Kills the broker, and starts a new one on the newest snapshot: its consumers see a prefix, too."""
        repository = Repository(machine_files(), self.root / "backup")
        identity = repository.ids()[-1]
        made = restore_snapshots(repository, [repository.read(identity)], FS, self.root / "new", lambda _size: None)
        dirs = ",".join(map(str, made.directories))
        with Broker(made.directories[0], settings={"log.dirs": dirs}, release=release) as broker:
            for isolation, logs in read_all(broker.bootstrap, PLACES).items():
                for place, rows in logs.items():
                    read = {row[0]: row[2:4] for row in rows}
                    bounds = (min(read, default=0), max(read, default=-1) + 1)
                    odd = self.notes.of_rows(place, isolation, read, *bounds)
                    self.wrong += [f"a broker of {release} on {identity}: {place}, {isolation}: {each}" for each in odd]
        self.counts["brokers started"] += 1


def starts_of(directory: Path) -> Mapping[TopicPartition, int]:
    """The log start offsets that a broker had written down."""
    path = directory / filenames.LOG_START_OFFSET_CHECKPOINT
    return parse_offset_checkpoint(path.read_bytes(), path) if path.exists() else {}


def verified(directories: list[Path]) -> Iterator[str]:
    """What `seglog verify` finds in restored directories."""
    for directory in directories:
        done = run("verify", "--level", "semantic", "--json", directory)
        grave = [row for row in json_lines(done) if row["type"] == "finding" and row["severity"] != "info"]
        if grave or done.exit_code:
            yield f"verify {directory.name}: {done.exit_code}, {grave[:5]}"


def groups_above(directories: list[Path]) -> Iterator[str]:
    """Groups whose committed offset is above the end of a restored log."""
    for row in json_lines(run("groups", "--json", *directories)):
        if row["type"] == "group_offset" and (row["offset"] or 0) > (row["log_end_offset"] or 0):
            yield f"a group is above its log: {row}"


@contextmanager
def javas_producer(bootstrap: str, said: Path) -> Iterator[None]:
    """Kafka's own producer writes transactions meanwhile."""
    settings = ["--topic", "plain", "--num-records", "100000000", "--record-size", "100", "--throughput", "150"]
    settings += ["--producer-props", f"bootstrap.servers={bootstrap}", "--transactional-id", "java"]
    settings += ["--transaction-duration-ms", "200"]
    with said.open("ab") as log:
        process = subprocess.Popen(
            [find_java(), "-Xmx128m", "-XX:+UseSerialGC", *QUICK_COMPILER, *loading(), PERFORMANCE, *settings],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def backups(root: Path, seed: int, release: str, *, java: bool = False) -> Iterator[LiveBackups]:
    """A broker at work under the eyes of its consumers, and no backup yet."""
    chance, notes, ending = random.Random(seed), Notes(), threading.Event()
    busy = BusyBroker(root, chance.getrandbits(32), pause_s=0.2, settings=CHECKPOINTS, release=release, told=notes)
    with ExitStack() as stack:
        server = stack.enter_context(object_server())
        server.fault = lambda _method, _path: chance.choice(FAULTS) if chance.random() < 0.1 else None
        has_disk = stack.enter_context(small_disk(root / "disk"))
        broker = busy.start()
        stack.callback(busy.kill)
        threads = [threading.Thread(target=notes.watch, args=(broker.bootstrap, each, ending)) for each in ISOLATIONS]
        for thread in threads:
            thread.start()
            stack.callback(thread.join)
        stack.callback(ending.set)
        if java:
            stack.enter_context(javas_producer(broker.bootstrap, root / "java.log"))
        busy.occupy()
        yield LiveBackups(root, chance, busy, notes, server, has_disk)


def runs_beside_a_broker(root: Path, seed: int, release: str, runs: int, *, java: bool = False) -> LiveBackups:
    """The runs of a seed; each kind comes in any three dozen."""
    with backups(root, seed, release, java=java) as living:
        kinds = [kind for kind in KINDS if kind != "full disk" or living.has_small_disk]
        living.run_of("alone")
        order = living.chance.choices(kinds, [KINDS[kind] for kind in kinds], k=max(0, runs - 1 - len(kinds)))
        for kind in [*kinds, *order][: runs - 1]:
            living.run_of(kind)
        living.busy.rest()
    repository = Repository(machine_files(), root / "backup")
    found = verify_snapshots(repository, repository.ids(), 1.0, living.chance, lambda _size: None)
    living.wrong += [str(problem) for problem in found.problems]
    return living


def main() -> int:
    """Runs beside some brokers, and says what there was."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--brokers", type=int, default=4)
    parser.add_argument("--runs", type=int, default=50, help="beside each broker")
    parser.add_argument("--java", action="store_true")
    parser.add_argument("--release", help="of every broker")
    asked, every, wrong = parser.parse_args(), Counter[str](), 0
    for number in range(asked.brokers):
        release = asked.release or (KAFKA_VERSION if number % 4 == 3 else NEWER_KAFKA_VERSION)
        with tempfile.TemporaryDirectory(prefix="live-backups-") as root:
            living = runs_beside_a_broker(Path(root), asked.seed + number, release, asked.runs, java=asked.java)
            living.start_on_last(release)
        every += living.counts
        wrong += len(living.wrong)
        sys.stdout.write(f"seed {asked.seed + number}, {release}: {dict(living.counts)}\n")
        sys.stdout.writelines(f"  {sentence}\n" for sentence in living.wrong)
        sys.stdout.flush()
    sys.stdout.write(f"{dict(every)}; {wrong} disagreements\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
