"""For each code that doctor can give and whose command mends something: a state of log directories that has it.

They are the bases of `wounded_starts`, so that a real broker can be given them, too.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from seglog.format.checkpoint import PartitionMetadata, format_partition_metadata
from seglog.repairs.undo.quarantine import mark_pending
from seglog_rescue.rebuild.metadata_snapshot import encode_metadata_record, metadata_snapshot
from tests.support.broken.wounded_starts import (
    BASES,
    LOGS,
    METADATA,
    PAID,
    PARTITION,
    SNAPSHOT_OFFSET,
    appended,
    flipped,
    half,
    snapshot_name,
    zeros,
)
from tests.support.command_line import run
from tests.support.log_files import FS, batch, write_segment

HEX = "0123456789abcdef" * 2
TIERED = {"remote.storage.enable": "true"}
Wound = Callable[[Path], object]


@dataclass(frozen=True)
class Doctored:
    """A base and a wound below its root. `settings` are the configuration that doctor knows.

    `stays`: the diagnosis is there after its command too, which only takes the records to another place, or makes files
    for which the operator has to make room.
    """

    wound: Wound
    base: str = "clean"
    settings: Mapping[str, str] = field(default_factory=dict)
    stays: bool = False

    def made(self, root: Path) -> list[Path]:
        """The log directories, below `root`."""
        directories = BASES[self.base](root)
        self.wound(root)
        return directories


def _at(where: str, wound: Wound, base: str = "clean", settings: Mapping[str, str] | None = None) -> Doctored:
    return Doctored(lambda root: wound(root / LOGS / where), base, settings or {})


def _rebuilt(where: str, wound: Wound, base: str = "clean") -> Doctored:
    return Doctored(lambda root: wound(root / LOGS / where), base, stays=True)


def _written(data: bytes) -> Wound:
    return lambda path: path.write_bytes(data)


def _longer(data: bytes) -> Wound:
    return lambda path: path.write_bytes(path.read_bytes() + data)


def _flipped_in(position: int) -> Wound:
    def flip(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[position] ^= 0x10
        path.write_bytes(data)

    return flip


def _copied(name: str, topic_id: uuid.UUID | None = None) -> Wound:
    """A copy beside the directory, of a topic that the cluster does not know if it has another id."""

    def copy(path: Path) -> None:
        shutil.copytree(path, path.with_name(name))
        if topic_id is not None:
            metadata = path.with_name(name) / "partition.metadata"
            metadata.write_bytes(format_partition_metadata(PartitionMetadata(topic_id)))

    return copy


def _with_id_of(topic: str) -> Wound:
    return lambda path: shutil.copy(path.with_name(topic) / "partition.metadata", path)


def _renamed(name: str) -> Wound:
    return lambda path: path.rename(path.with_name(name))


def _without(*names: str) -> Wound:
    def remove(path: Path) -> None:
        for name in names:
            (path / name).unlink()

    return remove


def _line_lost(beginning: str) -> Wound:
    def lose(path: Path) -> None:
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(line for line in lines if not line.startswith(beginning)).rstrip())

    return lose


def _first_snapshot_alone(path: Path) -> None:
    """The metadata begins anew, with topics where only 4.4 looks for them."""
    shutil.rmtree(path)
    path.mkdir()
    topic = encode_metadata_record("TOPIC_RECORD", {"name": "x", "topicId": "AAAAAAAAAAAAAAAAAAAAZg"})
    level = encode_metadata_record("FEATURE_LEVEL_RECORD", {"name": "metadata.version", "featureLevel": 25})
    (path / snapshot_name(0, 0)).write_bytes(metadata_snapshot([level, topic], 1_700_000_000_000))


def _hole(path: Path) -> None:
    path.with_suffix(".index").unlink()
    flipped(path)


def _stray_in_failed(root: Path) -> None:
    _copied("new-0", uuid.UUID(int=9))(root / "other" / "clicks-0")
    zeros(root / "other" / "recovery-point-offset-checkpoint")


def _promoted(root: Path) -> None:
    """The controller has recorded `logs`, where only a copy lies that has hardly begun."""
    write_segment(root / LOGS / f"clicks-0.{HEX}-future", 0, batch(0, 2))
    shutil.copy(root / "other" / "clicks-0" / "partition.metadata", root / LOGS / f"clicks-0.{HEX}-future")


def _beside(path: Path) -> None:
    _copied(f"{path.name}.{HEX}-future")(path)
    (path / f"{750:020d}.log").unlink()


def _moved_to_other(root: Path) -> None:
    shutil.move(root / LOGS / PARTITION, root / "other" / f"{PARTITION}.{HEX}-future")


def _below_base(path: Path) -> None:
    path.write_bytes(batch(100, 4))


def _foreign_snapshot(path: Path) -> None:
    shutil.copy(path.with_name(f"{265:020d}.snapshot"), path)


def _cut_run(root: Path) -> None:
    """A repair has done its work, and was cut before it said so."""
    flipped(root / LOGS / _LOG_350)
    assert run("repair", root / LOGS).exit_code == 4
    (folder,) = (root / ".seglog-quarantine").iterdir()
    mark_pending(FS, root / LOGS, folder)


def _negative(path: Path) -> None:
    write_segment(path, 790, batch(790, 3, timestamp=-90))
    write_segment(path, 793, batch(793))


_LOG_350, _LOG_500, _LOG_750 = (f"{PARTITION}/{base:020d}.log" for base in (350, 500, 750))
_COMPACTED = appended(
    encode_metadata_record(
        "CONFIG_RECORD",
        {"resourceType": 2, "resourceName": "orders-none", "name": "cleanup.policy", "value": "compact"},
    )
)
_SNAPSHOT = f"{METADATA}/{snapshot_name(SNAPSHOT_OFFSET, 1)}"
_REMOVES_UNKNOWN = encode_metadata_record("REMOVE_TOPIC_RECORD", {"topicId": "AAAAAAAAAAAAAAAAAAAAZg"})

DOCTORED: dict[str, Doctored] = {
    # --- the log directory
    "ACCESS_DENIED": _at(PARTITION, lambda path: (os.chown(path, 0, 0), path.chmod(0o700))),
    "NOT_A_FILE": _at(f"{PARTITION}/leader-epoch-checkpoint", lambda path: (path.unlink(), path.mkdir())),
    "STRANGE_DIRECTORY": _at("-stranger", Path.mkdir),
    "RUN_UNFINISHED": Doctored(_cut_run),
    "CHECKPOINT_UNREADABLE": _at("recovery-point-offset-checkpoint", zeros),
    "CHECKPOINT_IGNORED": _at("log-start-offset-checkpoint", _written(b"0\n1\nclicks 0 x\n")),
    "DUPLICATE_PARTITION": Doctored(
        lambda root: shutil.copytree(root / LOGS / PARTITION, root / "other" / PARTITION), "two"
    ),
    "STRAY_PARTITION": _at(PARTITION, _copied("-new-0", uuid.UUID(int=9))),
    "MISNAMED_PARTITION": _at(PARTITION, _copied("it's a-0")),
    "FOREIGN_PARTITION": _at("clicks-0/partition.metadata", lambda path: _with_id_of(PARTITION)(path.parent)),
    "STRAY_IN_FAILED_DIRECTORY": Doctored(_stray_in_failed, "two"),
    "FUTURE_BESIDE_PARTITION": _at(PARTITION, _beside),
    "FUTURE_PROMOTED": Doctored(_promoted, "two"),
    "FUTURE_CUT": Doctored(_moved_to_other, "two"),
    "DELETED_HOLDS_RECORDS": _at(PARTITION, _renamed(f"{PARTITION}.{HEX}-delete")),
    "STRAY_HOLDS_RECORDS": _at(PARTITION, _renamed(f"{PARTITION}.{HEX}-stray")),
    "SET_ASIDE_PARTITION": Doctored(
        lambda root: _copied(f"clicks-0.{HEX}-stray")(root / LOGS / "clicks-0"), stays=True
    ),
    "STRAY_UNSERVED": Doctored(
        lambda root: _copied(f"new-0.{HEX}-stray", uuid.UUID(int=9))(root / LOGS / "clicks-0"), stays=True
    ),
    # --- the metadata log
    "METADATA_MISSING": _rebuilt(METADATA, shutil.rmtree),
    "METADATA_CUT": _rebuilt(f"{METADATA}/{0:020d}.log", flipped),
    "METADATA_SNAPSHOT_MISSING": _rebuilt(_SNAPSHOT, Path.unlink, "snapshot"),
    "METADATA_SNAPSHOT_DAMAGED": _rebuilt(_SNAPSHOT, half, "snapshot"),
    "METADATA_RECORD_REFUSED": _rebuilt(METADATA, appended(_REMOVES_UNKNOWN)),
    "QUORUM_STATE_UNREADABLE": _at(f"{METADATA}/quorum-state", zeros),
    "NOT_THE_VOTER": _at("meta.properties", _line_lost("directory.id="), "dynamic"),
    "BOOTSTRAP_UNREADABLE": _at("bootstrap.checkpoint", zeros),
    "BOOTSTRAP_PASSED_OVER": _rebuilt(METADATA, _first_snapshot_alone),
    # --- names in a partition
    "STRANGE_SEGMENT_NAME": _at(f"{PARTITION}/x.log", Path.touch),
    "SHORT_SEGMENT_NAME": _at(f"{PARTITION}/7.log", _written(batch(7))),
    "SWAP_DAMAGED": _at(f"{_LOG_500}.swap", _written(batch(500, 8)[:-1])),
    "SWAP_SHORTER": _at(f"{_LOG_500}.swap", _written(b"")),
    "LEADER_EPOCHS_UNREADABLE": _at(f"{PARTITION}/leader-epoch-checkpoint", zeros),
    # --- starting
    "LOAD_FAILS": _at(_LOG_750, _below_base, "unclean"),
    "LOG_END_UNREADABLE": _at(_LOG_750, _longer(bytes(100))),
    "LOG_END_WRONG": _at(_LOG_750.replace(".log", ".index"), _written(bytes.fromhex("0000271000000000"))),
    "TAIL_STAYS": _at(_LOG_750, _longer(batch(790, 8)[:-1])),
    "SNAPSHOT_UNWRITABLE": _at(
        f"{PARTITION}/{790:020d}.snapshot", lambda path: (path.unlink(), path.mkdir()), "unclean"
    ),
    "RECOVERY_CUTS": _at(_LOG_750, flipped, "unclean"),
    "RECOVERY_DROPS_SEGMENTS": _at(_LOG_350, flipped, "unclean"),
    "LOG_DROPPED": _at("log-start-offset-checkpoint", _written(b"0\n1\norders-none 0 900\n")),
    "SEGMENT_HOLE": _at(_LOG_500, _hole),
    # --- indexes under a clean marker
    "TIME_INDEX_PADDED": _at(_LOG_500.replace(".log", ".timeindex"), _longer(bytes(1200))),
    "INDEX_PADDED": _at(_LOG_500.replace(".log", ".index"), _longer(bytes(800))),
    "TIME_INDEX_MISSING": _at(_LOG_500.replace(".log", ".timeindex"), Path.unlink),
    "INDEX_TRUSTED": _at(_LOG_500.replace(".log", ".index"), flipped),
    "ABORTED_EXPOSED": _at(f"{PAID}/{0:020d}.txnindex", _written(b"")),
    # --- what the data holds
    "DAMAGE_SERVED": _at(_LOG_350, flipped),
    "CLEANER_LAUNDERS": Doctored(
        lambda root: (_COMPACTED(root / LOGS / METADATA), _flipped_in(100)(root / LOGS / _LOG_350))
    ),
    "CLEANER_FAILS": Doctored(lambda root: (_COMPACTED(root / LOGS / METADATA), _negative(root / LOGS / PARTITION))),
    "SNAPSHOT_MISSING": _at(PARTITION, _without(f"{500:020d}.snapshot"), settings=TIERED),
    "SNAPSHOT_LOST": _at(PAID, _without(f"{265:020d}.snapshot", f"{399:020d}.snapshot", f"{400:020d}.snapshot")),
    "SNAPSHOT_TRUSTED": _at(f"{PAID}/{400:020d}.snapshot", _foreign_snapshot),
    "EPOCHS_WRONG": _at(f"{PARTITION}/leader-epoch-checkpoint", _written(b"0\n1\n9 0\n")),
}

# What no command of a shell mends: a broker settles it, only the operator knows what it needs, or data is lost.
WITHOUT_COMMAND = {
    "CLEANER_DROPS",
    "STATE_DELETED",
    "BROKER_RUNS",
    "DIRECTORY_LOCKED",
    "DIRECTORY_NOT_GIVEN",
    "DIRECTORY_UNREADABLE",
    "NOT_EXAMINED",
    "META_PROPERTIES_MISSING",
    "META_PROPERTIES_INVALID",
    "ZOOKEEPER_DIRECTORY",
    "BROKER_KEYS_REMOVED",
    "OLD_MESSAGE_FORMAT",
    "METADATA_VERSION_STAYS",  # it names a tool of the new release
    "META_PROPERTIES_DIFFER",
    "CLEANER_CHECKPOINT_DUPLICATE",
    "PARTITION_MISSING",
    "PARTITIONS_MADE_ELSEWHERE",
    "DELETED_PARTITION",
    "METADATA_REPLACED",
    "NODE_ID_DIFFERS",
    "VOTERS_UNKNOWN",
    "METADATA_UNREADABLE",
    "LEFTOVER_SETTLED",
    "ORPHAN_INDEX",
    "PARTITION_METADATA_UNREADABLE",
    "RECOVERY_CUTS_ZEROS",
    "SEGMENT_RECOVERED",
    "INDEX_TOO_LARGE",
    "LOG_MISSING",
    "SEGMENT_MISSING",
    "LOG_END_MISSING",
    "COMMITTED_BEYOND_END",
    "SNAPSHOT_IGNORED",
    "HEADER_ODD",
    "TRANSACTION_OPEN",
    "CHANGED_WHILE_READ",
    "CHECKPOINT_BEYOND",
}
ELSEWHERE = {  # the tests that run these commands
    "NO_ROOM": "test_a_broker_starts_on_a_full_disk_after_the_command_that_doctor_names",
    "KAFKA_07_LOG": "test_what_is_named_for_an_old_log_shows_it",
    "ZOOKEEPER_UPGRADE": "test_a_broker_goes_on_with_what_seglog_made_of_its_log",
    "TOPIC_VALUE_REFUSED": "test_what_the_doctor_says_of_an_upgrade_is_what_the_newer_broker_does",
    "TOPIC_KEYS_REMOVED": "test_removed_keys_lock_a_topic_up_to_4_2_and_are_ignored_later",
    "TRANSACTION_HANGING": "test_what_is_named_for_a_hanging_transaction_prints_the_command_that_aborts_it",
}
