"""The steps of a `Life`: each is a function whose name says what is held, and whose assertions hold it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import seglog
from tests.support.command_line import json_lines, run
from tests.support.kafka.broker import CLUSTER_ID, NODE_ID
from tests.support.rebuilt import copy_snapshots
from tests.support.versions import clients
from tests.support.versions.clients import newest, read
from tests.support.versions.life import (
    FIRST_WITH_CLUSTER_ID,
    FIRST_WITH_INTERNAL_KEY,
    MOVED,
    NEWEST,
    SEGMENT_BYTES,
    TRIMMED_TO,
    Life,
)

APPENDED = "".join(f"key{i}:appended {i}\n" for i in range(50))


def fill(life: Life) -> None:
    """The broker writes its varied log, and is stopped in order."""
    with life.broker() as broker:
        to = broker.bootstrap
        clients.create_topics(to, life.configurations)
        for codec in life.codecs:
            clients.produce(to, f"plain-{codec}", 200, codec=codec)
        for topic in life.formats:
            clients.produce(to, topic, 200, codec="gzip", headers=False)
        for topic, count in (("compacted", 600), ("trimmed", 400), ("aging", 600)):
            clients.produce(to, topic, count)
        clients.produce_transactions(to, "payments")
        clients.delete_records(to, "trimmed", TRIMMED_TO)
        clients.commit(to, "g", "plain-none", 17)
        clients.wait("the broker's cleaner", lambda: cleaned_up_to(life.logs) > 0)
        life.told = clients.served(to, life.topics)


def read_after_a_stop(life: Life) -> None:
    """seglog reads what the clients got, and shows where the trimmed log starts."""
    require_told(life)
    require_no_findings(life.logs)
    rows = json_lines(run("ls", "--json", life.logs))
    starts = {row["partition"]: row["start_offset"] for row in rows if row["type"] == "partition"}
    assert starts["trimmed-0"] == life.told["trimmed"].first == TRIMMED_TO


def doctor_after_a_stop(life: Life) -> None:
    """The doctor foresees the start that follows, and recognises who wrote the directory."""
    require_start_foreseen(life)
    summary = seglog.doctor(life.logs, quick=True).summary
    assert summary.loads and summary.writer is not None
    assert summary.writer.first <= life.version <= summary.writer.last
    assert summary.writer.zookeeper != life.is_kraft
    assert summary.kafka == str(life.version if life.is_kraft else summary.writer)


def transplant_into_it(life: Life) -> None:
    """Partitions of a dead cluster of the release are moved into one of its brokers; or it says from when on it can."""
    life.copied("dead/logs")
    life.buried = dict(life.told)
    topics = [f"--topic={old}={new}" for old, new in MOVED.items()]
    done = run("transplant", life.grave, "--into", life.logs, *topics)
    if not life.has_topic_ids:
        assert done.exit_code == 12, done.output
        assert "topic ids, which its topics do not have" in done.output
        return
    assert done.exit_code == 0, done.output


def serve_and_die(life: Life) -> None:
    """The broker serves what it had and what was moved into it, writes a second leader epoch, and is killed."""
    with life.broker(killed=True) as broker:
        before, life.told = life.told, clients.served(broker.bootstrap, life.topics)
        for topic in set(life.topics) - {"aging", "compacted"}:
            assert life.told[topic] == before[topic], topic
        if life.has_topic_ids:
            moved = clients.served(broker.bootstrap, list(MOVED.values()))
            assert all(moved[new] == before[old] for old, new in MOVED.items())
        clients.produce(broker.bootstrap, "plain-none", 60, first=1000)
        life.told |= clients.served(broker.bootstrap, ["plain-none"])


def read_after_a_kill(life: Life) -> None:
    """seglog reads what the clients got from what the kill has left."""
    require_told(life)
    require_no_findings(life.logs)


def doctor_after_a_kill(life: Life) -> None:
    """The doctor foresees that the broker would start."""
    require_start_foreseen(life)


def recover(life: Life) -> None:
    """`recover` loses nothing."""
    done = run("recover", life.logs)
    assert done.exit_code == 0, done.output
    require_told(life)


def append(life: Life) -> None:
    """Records of every codec are appended."""
    for codec in life.codecs:
        partition = life.partition(f"plain-{codec}")
        done = run("append", "--key-separator", ":", "--codec", codec, partition, input_text=APPENDED)
        assert done.exit_code == 0, done.output


def clean(life: Life) -> None:
    """Two rounds keep the last record of each key."""
    before = newest(read(life.partition("compacted")))
    for _ in range(2):
        done = run("clean", "--policy", "compact", "--roll", "--override-policy", life.partition("compacted"))
        assert done.exit_code == 0, done.output
    assert newest(read(life.partition("compacted"))) == before


def retain(life: Life) -> None:
    """The oldest segments go."""
    partition = life.partition("aging")
    before = bases(partition)
    done = run("retain", "--retention-bytes", str(SEGMENT_BYTES), "--override-policy", partition)
    assert done.exit_code == 0, done.output
    assert bases(partition)[0] > before[0]


def repair(life: Life) -> None:
    """A damaged batch goes, and no other."""
    partition = life.partition("plain-gzip")
    before = read(partition)
    with (partition / f"{bases(partition)[0]:020d}.log").open("r+b") as file:
        file.seek(200)
        file.write(b"\xff\x00\xff")
    done = run("repair", partition)
    assert done.exit_code == 4, done.output
    left = read(partition)
    assert len(before) - clients.BATCH <= len(left) < len(before)
    assert set(left) < set(before)


def truncate(life: Life) -> None:
    """The end is cut off."""
    partition = life.partition("plain-snappy")
    before = read(partition)
    done = run("truncate", partition, "--to-offset", str(before[-1].offset - 20))
    assert done.exit_code == 0, done.output
    assert read(partition) == before[: len(read(partition))] and len(read(partition)) < len(before)


def doctor_after_changes(life: Life) -> None:
    """The doctor foresees that the broker starts on what seglog has made."""
    require_start_foreseen(life)


def rebuild(life: Life) -> None:
    """The metadata is replaced by what `rebuild` makes of it."""
    shutil.move(rebuild_in_place(life, life.logs), life.directory / "metadata-before")


def go_on(life: Life) -> None:
    """The broker serves what seglog left, and writes, cleans and deletes on."""
    kept = ("payments", "compacted", *(f"plain-{codec}" for codec in life.codecs), *life.formats)
    wanted = {topic: read(life.partition(topic)) for topic in kept}
    with life.broker() as broker:
        to = broker.bootstrap
        life.told = clients.served(to, kept)
        for topic, rows in wanted.items():
            if topic == "compacted":  # it goes on cleaning meanwhile
                assert newest(life.told[topic].rows) == newest(rows)
            else:
                assert life.told[topic].rows == rows, topic
        done, first = cleaned_up_to(life.logs), bases(life.partition("aging"))[0]
        for topic in ("compacted", "aging", "plain-none"):
            clients.produce(to, topic, 400, first=5000)
        clients.wait("the broker's cleaner", lambda: cleaned_up_to(life.logs) > done)
        clients.wait("the broker's retention", lambda: bases(life.partition("aging"))[0] > first)
        if life.is_kraft and life.version < FIRST_WITH_INTERNAL_KEY:
            clients.configure(to, list(life.configurations), "segment.bytes", str(1 << 20))  # the next release's least
        life.told = clients.served(to, life.topics)
    require_no_findings(life.logs)


def foresee_strays(life: Life) -> None:
    """The doctor foresees what Kafka 4 makes of a directory of ZooKeeper: it refuses it, or serves none of its data."""
    directory = life.copied("as-it-was/logs")
    examined = seglog.doctor(directory, kafka_version=NEWEST)
    codes = {row.code for row in examined}
    if "META_PROPERTIES_INVALID" in codes:
        assert not examined.summary.loads
        with pytest.raises(RuntimeError, match="did not start"), life.newest_broker(directory):
            pass
        return
    assert "ZOOKEEPER_UPGRADE" in codes and examined.summary.loads
    with life.newest_broker(directory):
        clients.wait("strays", lambda: len(list(directory.glob("*-stray"))) >= len(life.topics))
    assert not list(directory.glob("payments-0"))


def upgrade(life: Life) -> None:
    """Kafka 4.4 serves what the release wrote: on its metadata as they are, or rebuilt where ZooKeeper had them."""
    directory = life.copied("upgraded/logs")
    if not life.is_kraft:
        rebuild_in_place(life, directory)
    examined = seglog.doctor(directory, kafka_version=NEWEST)
    codes = {row.code for row in examined}
    assert examined.summary.loads and not examined.summary.dangers
    assert ("METADATA_VERSION_STAYS" in codes) == (life.release != NEWEST)  # what rebuild makes begins with 3.7's
    assert ("OLD_MESSAGE_FORMAT" in codes) == bool(life.formats)
    with life.newest_broker(directory) as broker:
        found = clients.served(broker.bootstrap, life.topics)
        for topic, partition in life.told.items():
            if topic == "compacted":
                assert newest(found[topic].rows) == newest(partition.rows)
            elif topic != "aging":
                assert found[topic] == partition, topic
        clients.produce(broker.bootstrap, "plain-none", 20, first=9000)


# --- what several steps require


def rebuild_in_place(life: Life, directory: Path) -> Path:
    """Follows what `rebuild` says after it has read a log directory; returns where the metadata log was or would be."""
    output = directory.with_name(f"{directory.name}.rebuilt")
    named = ("--cluster-id", CLUSTER_ID, "--node", f"{directory}={NODE_ID}")
    named = named if life.version < FIRST_WITH_CLUSTER_ID else ()
    done = run("rebuild", directory, "-o", output, *named)
    assert done.exit_code == 0, done.output
    for made in filter(Path.is_file, (output / f"node-{NODE_ID}").rglob("*")):
        shutil.copy(made, Path("/") / made.relative_to(output / f"node-{NODE_ID}"))
    copy_snapshots(output, directory)
    return directory / "__cluster_metadata-0"


def require_told(life: Life) -> None:
    """seglog reads what the clients got."""
    for topic, (low, rows) in life.told.items():
        found = [row for row in read(life.partition(topic)) if row.offset >= low]  # a kill forgets where it starts
        if topic == "compacted":  # its broker went on cleaning after the client had read
            assert {row.offset for row in found} <= {row.offset for row in rows}
            assert newest(found) == newest(rows)
        elif topic != "aging":
            assert found == rows, (life.release, topic)


def require_no_findings(logs: Path) -> None:
    """verify finds nothing, and explain answers."""
    verified = run("verify", "--level", "semantic", logs)
    assert verified.exit_code == 0, verified.output
    assert run("explain", logs / "compacted-0").exit_code == 0


def require_start_foreseen(life: Life) -> None:
    """The doctor says that the release's broker starts, and sees no danger."""
    examined = seglog.doctor(life.logs, kafka_version=life.release)
    rows = list(examined)
    assert examined.summary.loads, rows
    assert not examined.summary.dangers, rows


def cleaned_up_to(logs: Path) -> int:
    """Up to where the broker's cleaner has been, by its checkpoint; -1 if it has not."""
    checkpoint = logs / "cleaner-offset-checkpoint"
    lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
    return next((int(line.split()[2]) for line in lines if line.startswith("compacted 0 ")), -1)


def bases(partition: Path) -> list[int]:
    """The base offsets of the segments."""
    return sorted(int(path.stem) for path in partition.glob("*.log"))
