"""Every command of README's night table, pasted in its order on the two log directories of a killed broker with a
dynamic quorum: the broker starts afterwards, and what its clients had been told of is there.

A broker of 4.3 and one of 4.4, both killed by a full disk: nothing is free, and the metadata log is torn. What needs a
second, living cluster has tests of its own.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.command_line import ROOT, json_lines, run
from tests.support.consumers import Place, librdkafka_rows
from tests.support.dead_clusters import begun, producer
from tests.support.fates import filled as filled_disk
from tests.support.kafka.jvm import KAFKA_VERSION, NEWER_KAFKA_VERSION
from tests.support.kafka.released_broker import ReleasedBroker

pytestmark = pytest.mark.kafka

KEPT = {"plain": 8, "keyed": 2, "gone": 4, "paying": 1}  # topics and their partitions
BATCHES, EACH = 5, 10
CUSTOMER = b"customer-7"
CUT_AT = 2 * EACH  # where plain-1 is truncated
OLD, OLD_BYTES = "old", 5 << 20  # a topic whose closed segments may go, on the full disk
DISK_BYTES, TORN_BYTES = 128 << 20, 5

ELSEWHERE = {  # commands that need what this broker has not, and the tests that paste them
    "seglog transplant --dry-run OLD_LOGDIR --into LOGDIR": "another cluster: test_transplant.py",
    "seglog replay --to HOST:PORT --state FILE --map FILE --groups LOGDIR/TOPIC": "a living cluster: test_replay.py",
    "seglog read --json --value-as registry PARTITION": "a registry's log: test_registry.py",
    "seglog schemas LOGDIR": "a registry's log: test_registry.py",
    "seglog replicas LOGDIR…": "several brokers: test_dead_clusters_page.py",
}


def night_table() -> list[str]:
    """The commands in README's night table."""
    text = (ROOT / "README.md").read_text()
    section = text[text.index("## 3 a.m.") : text.index("`core/DEAD_CLUSTER.md` leads")]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    return [command for row in rows for command in re.findall(r"`(seglog [^`]+)`", row)]


@dataclass
class Night:
    """A killed broker's log directories, and what its clients had been told of: (topic, number, offset) → value.

    They lie below `home`; if that is not `root`, it is a small disk, which is full.
    """

    root: Path
    home: Path
    release: str
    acknowledged: dict[tuple[str, int, int], bytes] = field(default_factory=dict)

    @property
    def disks(self) -> list[Path]:
        return [self.home / "d1", self.home / "d2"]

    @property
    def is_full(self) -> bool:
        return self.home != self.root

    def partition(self, name: str) -> Path:
        (path,) = (disk / name for disk in self.disks if (disk / name).is_dir())
        return path

    def may_free(self) -> bool:
        """True if the high watermark lets the closed segments of OLD go."""
        path = self.partition(f"{OLD}-0")
        known = (path.parent / "replication-offset-checkpoint").read_text().splitlines()[2:]
        watermarks = {tuple(words[:2]): int(words[2]) for words in map(str.split, known)}
        return watermarks.get((OLD, "0"), 0) >= max(int(log.stem) for log in path.glob("*.log"))

    def log(self, name: str) -> Path:
        return sorted(self.partition(name).glob("*.log"))[0]

    def started(self) -> ReleasedBroker:
        settings = {
            "log.dirs": ",".join(map(str, self.disks)),
            "file.delete.delay.ms": "600000",
            "replica.high.watermark.checkpoint.interval.ms": "200",
        }
        return ReleasedBroker(self.release, self.disks[0], self.root / "work", settings=settings, dynamic=True)

    def note(self, error: object, message: object) -> None:
        assert error is None
        place = message.topic(), message.partition(), message.offset()  # type: ignore[attr-defined]
        self.acknowledged[place] = message.value()  # type: ignore[attr-defined]


def filled(night: Night, bootstrap: str) -> None:
    """Records of all topics, several batches in each partition; the customer's are in plain-2."""
    writer = producer(bootstrap)
    for block in range(BATCHES):
        for topic, count in KEPT.items():
            for number in range(count if topic != "paying" else 0):
                for i in range(EACH):
                    key = (
                        b"k%d" % i if topic == "keyed" else CUSTOMER if (topic, number, i) == ("plain", 2, 3) else None
                    )
                    value = b"%s %d %d %d" % (topic.encode(), number, block, i)
                    writer.produce(topic, value, key, partition=number, on_delivery=night.note)
        assert writer.flush(60) == 0


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Where the log directories are: on a small disk, if this user can make one."""
    if os.geteuid() != 0:
        yield tmp_path
        return
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", disk], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


@pytest.fixture(params=[KAFKA_VERSION, NEWER_KAFKA_VERSION])
def killed(request: pytest.FixtureRequest, tmp_path: Path, home: Path) -> Night:
    """The topic `gone` was deleted and made again; copies of its directories are in `saved`. A transaction is open."""
    from confluent_kafka import Consumer, TopicPartition

    night = Night(tmp_path, home, request.param)
    with night.started() as broker:
        for topic, count in KEPT.items():
            broker.create_topic(topic, count, **({"cleanup_policy": "compact"} if topic == "keyed" else {}))
        filled(night, broker.bootstrap)
        if night.is_full:
            broker.create_topic(OLD, 1, segment_bytes=1 << 20)
            fill_old(broker.bootstrap)
        reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "billing"})
        reader.commit(offsets=[TopicPartition("plain", 3, 20)], asynchronous=False)
        for disk in night.disks:
            for path in disk.glob("gone-[0-9]"):
                shutil.copytree(path, tmp_path / "saved" / disk.name / path.name)
        admin = broker.admin()  # must outlive the request
        admin.delete_topics(["gone"])["gone"].result(30)
        broker.create_topic("gone", KEPT["gone"])
        opened = begun(broker.bootstrap, "t")
        opened.produce("paying", b"open", on_delivery=night.note)
        assert opened.flush(60) == 0
        while night.is_full and not night.may_free():
            time.sleep(0.1)
        broker.kill()
    if night.is_full:
        metadata = max(night.partition("__cluster_metadata-0").glob("*.log"))
        os.truncate(metadata, metadata.stat().st_size - TORN_BYTES)
        filled_disk(home, 0)
    return night


def fill_old(bootstrap: str) -> None:
    """Some closed segments."""
    writer = producer(bootstrap)
    for _ in range(OLD_BYTES // 10_000):
        writer.produce(OLD, os.urandom(10_000))
        writer.poll(0)
    assert writer.flush(60) == 0


def pasted(codes: set[int], *arguments: str | Path) -> str:
    """Runs a command as it is pasted; returns what it said."""
    done = run(*arguments)
    assert done.exit_code in codes, (arguments, done.exit_code, done.output)
    return done.stdout


def damaged(night: Night) -> None:
    """Flips a byte in the third batch of plain-0."""
    path = night.log("plain-0")
    data = bytearray(path.read_bytes())
    data[data.index(b"plain 0 2 4")] ^= 1
    path.write_bytes(data)


def rows_on_disks(night: Night) -> dict[str, Callable[[], object]]:
    """What is pasted for a command of the table that concerns the broker as a whole."""
    one, two = night.disks
    new, into = night.root / "new", [word for disk in night.disks for word in ("--into", disk)]
    code_of_torn = 3 if night.is_full else 0  # another controller's copy of the metadata log may go on there
    groups = next(disk for disk in night.disks if list(disk.glob("__consumer_offsets-*")))

    def doctored() -> None:
        said = pasted({0, 1}, "doctor", one, two)
        assert ("NO_ROOM" in said) == night.is_full
        assert ("broker would start" in said) != night.is_full

    def freed() -> None:
        planned = pasted({0, 1}, "retain", "--free", "50GB", "--dry-run", one, two)
        assert (f"{OLD}-0" in planned) == night.is_full
        pasted({0, 1}, "retain", "--free", "50GB", one, two)
        assert not night.is_full or 0 < os.statvfs(night.home).f_bavail * 4096 < OLD_BYTES

    def redacted() -> None:
        words: list[str | Path] = [one, two, "--key", CUSTOMER.decode(), "--replicas", "1"]
        pasted({0, 1}, "redact", "--dry-run", *words)
        done = run("redact", *words, "--verify", "--yes")
        assert done.exit_code == (1 if night.is_full else 0), done.output
        unsearched = [line for line in done.output.splitlines() if "not a whole batch" in line]
        assert all("__cluster_metadata-0" in line for line in unsearched) and bool(unsearched) == night.is_full

    def read_groups() -> None:
        assert "billing" in pasted({0}, "groups", one, two)
        assert pasted({0}, "groups", "--csv", one, two) == "plain,3,20\n"

    def rebuilt() -> None:
        pasted({code_of_torn}, "rebuild", "--dry-run", one, two, "-o", night.root / "rebuilt")
        pasted({code_of_torn}, "rebuild", one, two, "-o", night.root / "rebuilt")

    return {
        "seglog doctor LOGDIR…": doctored,
        "seglog retain --free 50GB --dry-run LOGDIR": freed,
        "seglog restore COPY… -o NEW": lambda: pasted(
            {0}, "restore", *sorted((night.root / "saved").glob("*/*")), "-o", new
        ),
        "seglog transplant NEW --into LOGDIR": lambda: pasted({0}, "transplant", new, *into),
        "seglog groups --at -5m LOGDIR": lambda: pasted({0}, "groups", "--at", "-5m", groups),
        "seglog recover LOGDIR": lambda: [pasted({0}, "recover", disk) for disk in night.disks],
        "seglog report LOGDIR… -o report.html": lambda: pasted(
            {0, 1}, "report", one, two, "-o", night.root / "report.html"
        ),
        "seglog redact --dry-run LOGDIR --key K --replicas N": redacted,
        "seglog groups LOGDIR…": read_groups,
        "seglog rebuild --dry-run LOGDIR… -o DIR": rebuilt,
        "seglog metadata LOGDIR": lambda: pasted(
            {code_of_torn}, "metadata", night.partition("__cluster_metadata-0").parent
        ),
    }


def rows_on_partitions(night: Night) -> dict[str, Callable[[], object]]:
    """What is pasted for a command of the table that concerns a partition or a file."""
    first, image = night.partition("plain-0"), night.root / "image"

    def verified() -> None:
        damaged(night)
        assert "CRC_MISMATCH" in pasted({1}, "verify", first)

    def repaired() -> None:
        pasted({1}, "repair", "--dry-run", first)
        pasted({4}, "repair", first)

    def undone() -> None:
        (home,) = night.home.glob(".seglog-quarantine")
        name = max(path.name for path in home.iterdir() if path.is_dir())
        pasted({0}, "undo", name, "--quarantine", home)
        repaired()

    def carved() -> None:
        image.write_bytes(bytes(4096) + night.log("plain-4").read_bytes())
        pasted({0, 1, 3}, "salvage", "--carve", image, "-o", night.root / "carved")

    def reindexed() -> None:
        night.log("plain-5").with_suffix(".index").unlink()
        pasted({0}, "reindex", night.partition("plain-5"))

    def truncated() -> None:
        pasted({0, 1, 4, 5}, "truncate", night.partition("plain-1"), "--to-offset", str(CUT_AT), "--dry-run")
        pasted({0, 4, 5}, "truncate", night.partition("plain-1"), "--to-offset", str(CUT_AT))

    def cleaned() -> None:
        pasted({0}, "clean", "--dry-run", night.partition("keyed-0"))
        pasted({0}, "clean", night.partition("keyed-0"))

    return {
        "seglog verify PARTITION": verified,
        "seglog dump --from-offset N PARTITION": lambda: pasted({0, 1, 3}, "dump", "--from-offset", "20", first),
        "seglog repair --dry-run PARTITION": repaired,
        "seglog undo RUN": undone,
        "seglog salvage PATH… -o NEW/TOPIC-N": lambda: pasted(
            {0}, "salvage", night.partition("plain-4"), "-o", night.root / "salvaged" / "plain-4"
        ),
        "seglog salvage --carve IMAGE -o NEW": carved,
        "seglog recover --dry-run PARTITION": lambda: pasted({0}, "recover", "--dry-run", night.partition("plain-6")),
        "seglog reindex PARTITION": reindexed,
        "seglog txn PARTITION open": lambda: pasted({0, 1}, "txn", night.partition("paying-0"), "open"),
        "seglog txn PARTITION abort-cmd": lambda: pasted({0, 1}, "txn", night.partition("paying-0"), "abort-cmd"),
        "seglog truncate PARTITION --to-offset N --dry-run": truncated,
        "seglog explain --advise PARTITION": lambda: pasted({0}, "explain", "--advise", night.partition("keyed-0")),
        "seglog clean --dry-run PARTITION": cleaned,
        "seglog retain --dry-run --retention-ms 7d PARTITION": lambda: pasted(
            {0}, "retain", "--dry-run", "--retention-ms", "7d", night.partition("plain-7")
        ),
        "seglog config show PARTITION": lambda: pasted({0}, "config", "show", night.partition("keyed-1")),
        "seglog verify FILE": lambda: pasted({0}, "verify", night.log("plain-7")),
        "seglog dump FILE": lambda: pasted({0}, "dump", night.log("plain-7")),
    }


def test_a_broker_goes_on_after_every_command_of_the_night_table(killed: Night) -> None:
    told = {**rows_on_disks(killed), **rows_on_partitions(killed)}
    table = night_table()
    assert {*told, *ELSEWHERE} == set(table), "a row of README's table is not pasted, or is no longer there"
    for command in dict.fromkeys(table):
        if command in told:
            told[command]()
    summary = json_lines(run("doctor", "--json", *killed.disks))[-1]
    assert summary["loads"] and not summary["blockers"]
    places: list[Place] = [(topic, number) for topic, count in KEPT.items() for number in range(count)]
    with killed.started() as broker:
        rows = librdkafka_rows(broker.bootstrap, places, "read_uncommitted")
        assert not [path for disk in killed.disks for path in disk.glob("*-stray")]
        broker.kill()
    there = {(*place, row[0]): row[3] for place, got in rows.items() for row in got}
    lost = {place for place, value in killed.acknowledged.items() if there.get(place) != value}
    cut = {place for place in killed.acknowledged if place[:2] == ("plain", 1) and place[2] >= CUT_AT}
    erased = {place for place, value in killed.acknowledged.items() if re.fullmatch(rb"plain 2 \d 3", value)}
    damage = {place for place in killed.acknowledged if place[:2] == ("plain", 0) and 20 <= place[2] < 30}
    assert len(cut) == (BATCHES - 2) * EACH and len(erased) == BATCHES
    assert cut | erased <= lost <= cut | erased | damage and lost & damage
    assert all(there[place] is None for place in erased), "an erased record keeps its offset"
