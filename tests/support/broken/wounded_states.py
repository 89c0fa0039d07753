"""Every state of `wounded_starts`: each file, in each way that it can be wrong, and what interrupted work leaves."""

from __future__ import annotations

import os
import shutil
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

from seglog.scan.segment_scan import SegmentScan
from seglog.storage.local import LocalFileSystem
from seglog_rescue.rebuild.metadata_snapshot import encode_metadata_record
from tests.support.broken.wounded_data import of_data
from tests.support.broken.wounded_ends import (
    of_empty_batches,
    of_power_cuts,
    of_read_only,
    of_replayed_indexes,
    of_twins,
)
from tests.support.broken.wounded_numbers import of_numbers
from tests.support.broken.wounded_starts import (
    ACCESS,
    EVERY_FILE,
    IN_DIRECTORY,
    IN_METADATA,
    IN_PAID,
    IN_PARTITION,
    LOGS,
    METADATA,
    PAID,
    PARTITION,
    SNAPSHOT_OFFSET,
    Change,
    State,
    appended,
    filled,
    half,
    made_a_directory,
    missing,
    of_files,
    owned_as,
    replaced,
    snapshot_name,
    wounded,
    written,
    zeros,
)
from tests.support.broken.wounded_voters import of_voters

# --- what only the metadata log and its snapshots can have


def _feature(name: str, level: int) -> bytes:
    return encode_metadata_record("FEATURE_LEVEL_RECORD", {"name": name, "featureLevel": level})


def _cut_at_batch(path: Path) -> None:
    """Half of the batches are gone, and none is torn."""
    for chunk in SegmentScan(LocalFileSystem(), path):
        middle = int(chunk.batches["position"][len(chunk.batches) // 2])
    os.truncate(path, middle)


def _without_footer(path: Path) -> None:
    for chunk in SegmentScan(LocalFileSystem(), path):
        last = int(chunk.batches["position"][-1])
    os.truncate(path, last)


def _renamed(name: str) -> Change:
    return lambda path: _moved(path, path.with_name(name))


def _moved(path: Path, to: Path) -> None:
    path.rename(to)


def _copied(name: str) -> Change:
    return lambda path: _copy(path, path.with_name(name))


def _copy(path: Path, to: Path) -> None:
    shutil.copy(path, to)
    owned_as(to, path)


def _new(name: str, data: bytes = b"") -> Change:
    def change(path: Path) -> None:
        (path / name).write_bytes(data)
        owned_as(path / name, path)

    return change


def _of_the_metadata() -> Iterator[State]:
    log, unknown = f"{METADATA}/{0:020d}.log", struct.pack(">BBBB", 1, 99, 0, 0)
    snapshot = snapshot_name(SNAPSHOT_OFFSET, 1)
    yield wounded("clean", LOGS, METADATA, "missing", missing)
    yield wounded("clean", LOGS, METADATA, "mode 000", ACCESS["mode 000"], needs_root=True)
    yield wounded("clean", LOGS, METADATA, "root's", ACCESS["root's"], needs_root=True)
    yield wounded("snapshot", LOGS, METADATA, "missing", missing)
    for level in (1, 29, 30, 31, 35):
        values = _feature("metadata.version", level)
        yield wounded("clean", LOGS, METADATA, f"metadata.version {level}", appended(values))
    yield wounded("clean", LOGS, METADATA, "group.version 9", appended(_feature("group.version", 9)))
    yield wounded("clean", LOGS, METADATA, "an unknown feature", appended(_feature("moon.version", 1)))
    yield wounded("clean", LOGS, METADATA, "an unknown record", appended(unknown))
    yield wounded("clean", LOGS, METADATA, "no frame", appended(b"\x09\x02\x00"))
    yield wounded("clean", LOGS, METADATA, "a record cut short", appended(_feature("metadata.version", 29)[:6]))
    yield wounded("clean", LOGS, METADATA, "a record without a value", appended(b""))
    newer = (
        b"\x01\x02\x63" + encode_metadata_record("TOPIC_RECORD", {"name": "x", "topicId": "AAAAAAAAAAAAAAAAAAAAZg"})[3:]
    )
    yield wounded("clean", LOGS, METADATA, "a newer version of a record", appended(newer))
    yield wounded("clean", LOGS, METADATA, "a batch of an older epoch", appended(_feature("group.version", 1), epoch=1))
    yield wounded("clean", LOGS, METADATA, "a batch of a newer epoch", appended(_feature("group.version", 1), epoch=9))
    yield wounded(
        "clean",
        LOGS,
        METADATA,
        "an open transaction",
        appended(encode_metadata_record("BEGIN_TRANSACTION_RECORD", {"name": "t"})),
    )
    yield wounded(
        "clean",
        LOGS,
        METADATA,
        "an end without a transaction",
        appended(encode_metadata_record("END_TRANSACTION_RECORD", {})),
    )
    yield wounded("clean", LOGS, log, "half of the batches", _cut_at_batch)
    yield wounded("clean", LOGS, log, "17 bytes more", lambda path: written(path, path.read_bytes() + b"x" * 17))
    yield wounded("clean", LOGS, log, "zeros after its end", lambda path: written(path, path.read_bytes() + bytes(300)))
    yield wounded("clean", LOGS, log, "begins at 110", _begins_later)
    for wound, change in {
        **EVERY_FILE,
        "without its footer": _without_footer,
        "half of the batches": _cut_at_batch,
    }.items():
        yield wounded("snapshot", LOGS, f"{METADATA}/{snapshot}", wound, change)
    for wound, change in ACCESS.items():
        yield wounded("snapshot", LOGS, f"{METADATA}/{snapshot}", wound, change, needs_root=True)
    for name in (
        snapshot + ".part",
        snapshot + ".deleted",
        snapshot_name(100, 1),
        snapshot_name(200, 2),
        snapshot_name(400, 2),
        snapshot_name(110, 9),
        snapshot_name(400, 9),
    ):
        yield wounded("snapshot", LOGS, f"{METADATA}/{snapshot}", f"named {name}", _renamed(name))
        yield wounded("snapshot", LOGS, f"{METADATA}/{snapshot}", f"a copy named {name}", _copied(name))
    yield wounded("snapshot", LOGS, METADATA, "an empty newer snapshot", _new(snapshot_name(200, 2)))
    yield wounded("snapshot", LOGS, METADATA, "zeros for a newer snapshot", _new(snapshot_name(200, 2), bytes(400)))
    yield wounded("snapshot", LOGS, METADATA, "an empty part", _new(snapshot_name(200, 2) + ".part"))
    rest = f"{METADATA}/{SNAPSHOT_OFFSET:020d}.log"
    for wound, change in {**EVERY_FILE, "half of the batches": _cut_at_batch}.items():
        yield wounded("snapshot", LOGS, rest, wound, change)
    for wound in ("missing", "empty", "zeros", "half", "flipped"):
        yield wounded("snapshot", LOGS, f"{METADATA}/quorum-state", wound, EVERY_FILE[wound])
        yield wounded("snapshot", LOGS, f"{METADATA}/leader-epoch-checkpoint", wound, EVERY_FILE[wound])
    yield wounded(
        "clean", LOGS, f"{METADATA}/quorum-state", "an older epoch", replaced('"leaderEpoch":2', '"leaderEpoch":1')
    )
    yield wounded(
        "clean", LOGS, f"{METADATA}/quorum-state", "a newer epoch", replaced('"leaderEpoch":2', '"leaderEpoch":7')
    )
    yield wounded(
        "clean", LOGS, f"{METADATA}/quorum-state", "a negative epoch", replaced('"leaderEpoch":2', '"leaderEpoch":-1')
    )
    yield wounded("clean", LOGS, f"{METADATA}/quorum-state", "another leader", replaced('"leaderId":1', '"leaderId":5'))
    yield wounded("clean", LOGS, f"{METADATA}/quorum-state", "another voter", replaced('"voterId":1', '"voterId":5'))
    yield wounded("clean", LOGS, f"{METADATA}/quorum-state", "no epoch", replaced('"leaderEpoch":2,', ""))
    yield wounded("clean", LOGS, f"{METADATA}/quorum-state", "a list", filled(b"[1]"))
    yield wounded(
        "clean",
        LOGS,
        f"{METADATA}/quorum-state",
        "a blank line first",
        lambda path: written(path, b"\n" + path.read_bytes()),
    )
    yield wounded(
        "clean",
        LOGS,
        f"{METADATA}/quorum-state",
        "an unknown field",
        replaced('"leaderId":1', '"moon":1,"leaderId":1'),
    )
    yield wounded(
        "clean", LOGS, f"{METADATA}/quorum-state", "text for a number", replaced('"leaderId":1', '"leaderId":"1"')
    )
    yield wounded("clean", LOGS, f"{METADATA}/quorum-state.tmp", "left over", filled(b"{"))
    for name in (snapshot_name(0, 0), snapshot_name(100, 1)):
        yield wounded("clean", LOGS, METADATA, f"an empty {name}", _new(name))


def _begins_later(path: Path) -> None:
    data, position = path.read_bytes(), None
    for chunk in SegmentScan(LocalFileSystem(), path):
        for batch in chunk.batches:
            position = int(batch["position"]) if batch["base_offset"] == SNAPSHOT_OFFSET else position
    for one in path.parent.glob(f"{0:020d}.*"):
        one.unlink()
    _new(f"{SNAPSHOT_OFFSET:020d}.log", data[position:])(path.parent)


# --- identity, and directories


def _of_the_identity() -> Iterator[State]:
    meta = "meta.properties"
    yield State(
        "clean",
        "server.properties",
        "node.id=7",
        lambda root: None,
        {"node.id": "7", "controller.quorum.voters": "7@127.0.0.1:1"},
    )
    yield wounded("clean", LOGS, meta, "another node.id", replaced("node.id=1", "node.id=7"))
    yield wounded("clean", LOGS, meta, "no node.id", replaced("node.id=1\n", ""))
    yield wounded(
        "clean", LOGS, meta, "no cluster.id", lambda path: written(path, path.read_bytes().split(b"cluster.id")[0])
    )
    yield wounded("clean", LOGS, meta, "no version", replaced("version=1\n", ""))
    yield wounded(
        "clean", LOGS, meta, "version 0 of a broker.id", lambda path: written(path, b"version=0\nbroker.id=1\n")
    )
    yield wounded(
        "clean",
        LOGS,
        meta,
        "no directory.id",
        lambda path: written(
            path, b"\n".join(line for line in path.read_bytes().splitlines() if not line.startswith(b"directory"))
        ),
    )
    yield wounded(
        "clean", LOGS, meta, "a reserved directory.id", replaced("nIppSnnOtj9TkVH3xtavWg", "AAAAAAAAAAAAAAAAAAAAAQ")
    )
    yield wounded(
        "clean", LOGS, meta, "another directory.id", replaced("nIppSnnOtj9TkVH3xtavWg", "oIppSnnOtj9TkVH3xtavWg")
    )
    yield wounded("clean", LOGS, meta, "a wrong directory.id", replaced("nIppSnnOtj9TkVH3xtavWg", "short"))
    for wound, change in EVERY_FILE.items():
        yield wounded("two", "other", meta, wound, change)
    yield wounded("two", "other", meta, "newer version", replaced("version=1", "version=2"))
    yield wounded("two", "other", meta, "another node.id", replaced("node.id=1", "node.id=7"))
    yield wounded("two", "other", meta, "another cluster.id", replaced("cluster.id=c", "cluster.id=d"))
    yield wounded("two", "other", meta, "the same directory.id", replaced("directory.id=o", "directory.id=n"))
    for wound, change in ACCESS.items():
        yield wounded("two", "other", meta, wound, change, needs_root=True)
        yield wounded("two", "other", "", wound, change, needs_root=True)
        yield wounded(
            "two", "other", ".lock", wound, lambda path, change=change: (path.touch(), change(path)), needs_root=True
        )
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        for wound, change in EVERY_FILE.items():
            yield wounded("two", "other", name, wound, change)
    yield wounded(
        "two", "other", METADATA, "there too", lambda path: shutil.copytree(path.parent.parent / LOGS / METADATA, path)
    )
    yield wounded("two", "other", "clicks-0/leader-epoch-checkpoint", "zeros", zeros)
    yield wounded("two", "other", "clicks-0/partition.metadata", "zeros", zeros)
    for wound, change in ACCESS.items():
        yield wounded("clean", LOGS, PARTITION, wound, change, needs_root=True)
        yield wounded("clean", LOGS, "", wound, change, needs_root=True)
    yield wounded("clean", LOGS, PARTITION, "missing", missing)


# --- what interrupted work leaves behind


def _of_leftovers() -> Iterator[State]:
    closed = f"{PARTITION}/{500:020d}"
    for suffix in (".deleted", ".cleaned"):
        for kind in (".log", ".index", ".timeindex"):
            yield wounded("clean", LOGS, closed + kind, f"a copy {suffix}", _copied(f"{500:020d}{kind}{suffix}"))
    for base in ("clean", "unclean"):
        for name, data in {"empty": b"", "zeros": bytes(500)}.items():
            yield wounded(base, LOGS, PARTITION, f"{name} .log.swap", _new(f"{500:020d}.log.swap", data))
        yield wounded(base, LOGS, closed + ".log", "a copy .swap", _copied(f"{500:020d}.log.swap"))
        yield wounded(
            base,
            LOGS,
            closed + ".log",
            "half in a .swap",
            lambda path: _copied(f"{500:020d}.log.swap")(path) or half(path.with_name(f"{500:020d}.log.swap")),
        )
        yield wounded(base, LOGS, closed + ".index", "a copy .swap", _copied(f"{500:020d}.index.swap"))
    for name in (
        "leader-epoch-checkpoint.tmp",
        "partition.metadata.tmp",
        "x.log",
        "x.snapshot",
        f"{900:020d}.index",
        f"{900:020d}.log",
        f"{900:020d}.snapshot",
        "7.log",
        "stranger",
        "remote_log_snapshot",
    ):
        yield wounded("clean", LOGS, PARTITION, f"an empty {name}", _new(name))
    for name in ("recovery-point-offset-checkpoint.tmp", "meta.properties.tmp", "stranger", "bootstrap.checkpoint.tmp"):
        yield wounded("clean", LOGS, "", f"an empty {name}", _new(name))
    yield wounded("clean", LOGS, "lost+found", "there", lambda path: path.mkdir())
    yield wounded("clean", LOGS, "remote-log-index-cache", "there", lambda path: path.mkdir())
    for where in (f"{PARTITION}/notes.txt", closed + ".log.deleted", f"{METADATA}/notes.txt", "notes.txt"):
        yield wounded("clean", LOGS, where, "unreadable", _unreadable, needs_root=True)
    for ending in ("delete", "stray", "future"):
        name = f"{PARTITION}.{'0123456789abcdef' * 2}-{ending}"
        yield wounded("clean", LOGS, PARTITION, f"set aside as -{ending}", _renamed(name))
        yield wounded("clean", LOGS, name, "an empty directory", made_a_directory)
        for wound in ("zeros", "empty", "half"):
            yield wounded(
                "clean",
                LOGS,
                f"{PARTITION}/partition.metadata",
                f"{wound}, set aside as -{ending}",
                lambda path, wound=wound, name=name: (
                    EVERY_FILE[wound](path),
                    path.parent.rename(path.parent.with_name(name)),
                ),
            )


def _unreadable(path: Path) -> None:
    path.write_bytes(b"x")
    owned_as(path, path.parent)
    path.chmod(0)


# --- the cleaner's checkpoint, and a disk without room

CLEANING = {"log.cleaner.enable": "true"}
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
FREE = (0, 1 << 12, 1 << 16, 1 << 20)


def _of_the_cleaner() -> Iterator[State]:
    """The cleaner reads its checkpoints as soon as it runs."""
    newer = replaced("0\n", "1\n")
    for wound, change in {**EVERY_FILE, "newer version": newer, **ACCESS}.items():
        yield wounded(
            "clean", LOGS, CLEANER_CHECKPOINT, wound, _after_cleaning(change), CLEANING, needs_root=wound in ACCESS
        )
    for wound in ("zeros", "half"):
        yield wounded("two", "other", CLEANER_CHECKPOINT, wound, _after_cleaning(EVERY_FILE[wound]), CLEANING)


def _after_cleaning(change: Change) -> Change:
    def changed(path: Path) -> None:
        path.write_text("0\n2\nclicks 0 100\norders-none 0 350\n")
        owned_as(path, path.parent)
        change(path)

    return changed


def _of_full_disks() -> Iterator[State]:
    for base in ("clean", "unclean"):
        for free in FREE:
            yield State(base, "disk", f"{free} bytes free", lambda root: None, needs_root=True, free=free)
    for free in FREE:
        wound = f"{free} bytes free, indexes without blocks"
        yield State("unclean", "disk", wound, indexes_without_blocks, needs_root=True, free=free)
    yield State("clean", "disk", "0 bytes free, no last snapshots", _without_last_snapshots, needs_root=True, free=0)
    yield State("unclean", "disk", "0 bytes free, no last snapshots", _without_last_snapshots, needs_root=True, free=0)


def _without_last_snapshots(root: Path) -> None:
    for partition in (root / LOGS).iterdir():
        for snapshot in sorted(partition.glob("*.snapshot"))[-1:]:
            snapshot.unlink()


def indexes_without_blocks(root: Path) -> None:
    """The indexes of the last segments are as a broker that a full disk killed left them: holes of the full size."""
    for partition in (root / LOGS).iterdir():
        for suffix, size in ((".index", 10485760), (".timeindex", 10485756)):
            for index in sorted(partition.glob(f"*{suffix}"))[-1:]:
                os.truncate(index, 0)
                os.truncate(index, size)


# --- what is no file

NO_FILES = {
    "a directory": (
        "meta.properties",
        f"{METADATA}/quorum-state",
        f"{METADATA}/{0:020d}.log",
        f"{PARTITION}/partition.metadata",
        f"{PARTITION}/leader-epoch-checkpoint",
        f"{PARTITION}/{750:020d}.timeindex",
        f"{PARTITION}/{790:020d}.snapshot",
        ".kafka_cleanshutdown",
        f"{PARTITION}/leader-epoch-checkpoint.tmp",
        f"{PARTITION}/{500:020d}.log",
        f"{PARTITION}/{500:020d}.index",
        f"{PARTITION}/{500:020d}.timeindex",
        f"{PARTITION}/{500:020d}.index.swap",
    ),
    "a dangling link": (
        ".lock",
        "recovery-point-offset-checkpoint",
        f"{PARTITION}/partition.metadata",
        f"{PARTITION}/leader-epoch-checkpoint",
        f"{PARTITION}/{500:020d}.log",
        f"{PARTITION}/{750:020d}.log",
        f"{PARTITION}/{500:020d}.index",
        f"{PARTITION}/{750:020d}.timeindex",
        f"{PARTITION}/{790:020d}.snapshot",
        f"{PAID}/{265:020d}.txnindex",
        "replication-offset-checkpoint.tmp",
        f"{PARTITION}/leader-epoch-checkpoint.tmp",
        f"{PARTITION}/{900:020d}.snapshot",
        f"{PARTITION}/{500:020d}.index.swap",
    ),
    "a socket": (
        ".lock",
        "meta.properties",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
        f"{METADATA}/quorum-state",
        f"{PARTITION}/partition.metadata",
        f"{PARTITION}/leader-epoch-checkpoint",
        f"{PARTITION}/{500:020d}.log",
        f"{PARTITION}/{500:020d}.index",
        f"{PARTITION}/{750:020d}.timeindex",
        f"{PARTITION}/{790:020d}.snapshot",
        f"{PARTITION}/{500:020d}.log.swap",
    ),
}


def _of_no_files() -> Iterator[State]:
    makers = {"a directory": made_a_directory, "a dangling link": _made_a_link, "a socket": _made_a_socket}
    for wound, files in NO_FILES.items():
        for where in files:
            yield wounded("clean", LOGS, where, wound, makers[wound])
    for offset in (350, 500, 750, 790):  # which the recovery writes
        for wound in ("a directory", "a dangling link"):
            yield wounded("unclean", LOGS, f"{PARTITION}/{offset:020d}.snapshot", wound, makers[wound])
    for wound in ("a directory", "a socket"):
        yield wounded("two", "other", "meta.properties", wound, makers[wound])


def _made_a_socket(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mknod(path, stat.S_IFSOCK | 0o600)
    owned_as(path, path.parent)


def _made_a_link(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/nowhere/file")
    os.lchown(path, path.parent.stat().st_uid, path.parent.stat().st_gid)


def states() -> list[State]:
    """Every state."""
    return [
        *of_files("clean", LOGS, "", IN_DIRECTORY),
        *of_files("clean", LOGS, METADATA, IN_METADATA),
        *_of_the_metadata(),
        *_of_the_identity(),
        *of_voters(),
        *of_files("clean", LOGS, PARTITION, IN_PARTITION),
        *_of_the_cleaner(),
        *_of_full_disks(),
        *_of_no_files(),
        *of_numbers(),
        *of_data(),
        *of_files("unclean", LOGS, PARTITION, IN_PARTITION),
        *of_files("clean", LOGS, PAID, IN_PAID),
        *of_files("unclean", LOGS, PAID, IN_PAID),
        *_of_leftovers(),
        *of_read_only(),
        *of_power_cuts(),
        *of_replayed_indexes(),
        *of_twins(),
        *of_empty_batches(),
    ]
