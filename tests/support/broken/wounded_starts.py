"""The states that a start may meet: every file that a broker opens, in every way that it can be wrong.

`BASES` are sound log directories made from the fixture `4.3.0/clean`. A `State` is a base and one wound. The same
states are given to a real broker (`fates`) and to doctor.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from seglog.configuration.cluster_metadata import read_cluster_metadata
from seglog.configuration.metadata_log import (
    ABORT_TRANSACTION_RECORD,
    BEGIN_TRANSACTION_RECORD,
    END_TRANSACTION_RECORD,
)
from seglog.format.builder import BatchOptions, columns_of, encode_all
from seglog.format.checkpoint import parse_meta_properties
from seglog.format.control import Voter
from seglog.format.uuids import format_uuid
from seglog.model import Record
from seglog.scan.segment_scan import SegmentScan
from seglog.storage.local import LocalFileSystem
from seglog_rescue.rebuild.metadata_snapshot import encode_metadata_record, metadata_snapshot
from tests.support.fixtures import fixture_copy
from tests.support.kafka.broker import free_ports
from tests.support.other_users import OTHER, given_to

Change = Callable[[Path], None]
METADATA = "__cluster_metadata-0"
KEPT = ("orders-none", "orders-lz4", "payments", "clicks")
PARTITION, PAID = "orders-none-0", "payments-0"
EPOCH = 2  # of the controller that wrote the end of the fixture's metadata log
SNAPSHOT_OFFSET = 110
UNCLEAN_POINTS = {"orders-none 0 790": "orders-none 0 350", "payments 0 400": "payments 0 265"}
BROKERS_USER = OTHER


@dataclass(frozen=True)
class State:
    """A base, the file that is wounded, and how; `settings` are added to server.properties.

    `free` are the bytes left on the disk of the log directories, None for all of a real disk.
    """

    base: str
    file: str
    wound: str
    change: Change
    settings: Mapping[str, str] = field(default_factory=dict)
    needs_root: bool = False
    free: int | None = None

    @property
    def name(self) -> str:
        """Names the state in the table of fates."""
        return f"{self.base} | {self.file} | {self.wound}"


# --- sound directories


@cache
def _few_partitions() -> Path:
    """The fixture with the topics of KEPT alone; the end of the metadata log removes the others."""
    root = Path(tempfile.mkdtemp(prefix="wounded-starts-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    logs = fixture_copy("4.3.0/clean", root)
    metadata = read_cluster_metadata(LocalFileSystem(), logs)
    assert metadata is not None
    removed = [one for topic, one in sorted(metadata.topic_ids.items()) if topic not in KEPT]
    appended(*(encode_metadata_record("REMOVE_TOPIC_RECORD", {"topicId": one}) for one in removed))(logs / METADATA)
    for path in logs.iterdir():
        if path.is_dir() and path.name not in (METADATA, *(f"{topic}-0" for topic in KEPT)):
            shutil.rmtree(path)
    for path in logs.glob("*-checkpoint"):
        lines = [line for line in path.read_text().splitlines()[2:] if line.split()[0] in KEPT]
        path.write_text("\n".join(["0", str(len(lines)), *lines, ""]))
    return logs


def _clean(root: Path) -> list[Path]:
    logs = root / LOGS
    shutil.copytree(_few_partitions(), logs)
    (logs / "log-start-offset-checkpoint").write_text("0\n1\nclicks 0 100\n")
    (logs / ".lock").touch()
    return [logs]


def _unclean(root: Path) -> list[Path]:
    (logs,) = _clean(root)
    (logs / ".kafka_cleanshutdown").unlink()
    points = logs / "recovery-point-offset-checkpoint"
    text = points.read_text()
    for whole, part in UNCLEAN_POINTS.items():
        text = text.replace(whole, part)
    points.write_text(text)
    return [logs]


_NOT_IN_SNAPSHOTS = (BEGIN_TRANSACTION_RECORD, END_TRANSACTION_RECORD, ABORT_TRANSACTION_RECORD, 20)  # 20: no operation


def _snapshot(root: Path) -> list[Path]:
    """The metadata log begins at a snapshot, as after its retention."""
    (logs,) = _clean(root)
    directory = logs / METADATA
    log = directory / f"{0:020d}.log"
    records, position = [], None
    for chunk in SegmentScan(LocalFileSystem(), log):
        for batch in chunk.batches:
            if batch["base_offset"] == SNAPSHOT_OFFSET:
                position = int(batch["position"])
        for part in chunk.records(chunk.batches[(chunk.batches["attributes"] & 0x20) == 0]):
            for i in range(len(part)):
                value = part.value(i) or b""
                if part.rows["offset"][i] < SNAPSHOT_OFFSET and value[1] not in _NOT_IN_SNAPSHOTS:
                    records.append(value)
    assert position is not None, "the snapshot must end where a batch begins"
    rest = log.read_bytes()[position:]
    for path in directory.glob(f"{0:020d}.*"):
        path.unlink()
    (directory / f"{SNAPSHOT_OFFSET:020d}.log").write_bytes(rest)
    (directory / snapshot_name(SNAPSHOT_OFFSET, 1)).write_bytes(metadata_snapshot(records, 1_700_000_000_000))
    (directory / "leader-epoch-checkpoint").write_text(f"0\n1\n{EPOCH} {SNAPSHOT_OFFSET}\n")
    return [logs]


def _two(root: Path) -> list[Path]:
    """A second directory with clicks-0 and orders-lz4-0."""
    (logs,) = _clean(root)
    other = root / "other"
    other.mkdir()
    meta = (logs / "meta.properties").read_text()
    (other / "meta.properties").write_text(meta.replace("directory.id=n", "directory.id=o"))
    shutil.copy(logs / ".kafka_cleanshutdown", other)
    for name in ("clicks-0", "orders-lz4-0"):
        shutil.move(logs / name, other / name)
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint"):
        lines = (logs / name).read_text().splitlines()[2:]
        there = [line for line in lines if line.startswith(("clicks 0", "orders-lz4 0"))]
        for directory, own in ((other, there), (logs, [line for line in lines if line not in there])):
            (directory / name).write_text("\n".join(["0", str(len(own)), *own, ""]))
    return [logs, other]


CONTROLLER_PORT = free_ports(1)[0]  # that the records of a dynamic quorum name
DYNAMIC = {  # a node that is the only controller of such a quorum
    "listeners": f"PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{CONTROLLER_PORT}",
    "controller.quorum.voters": "",
    "controller.quorum.bootstrap.servers": f"127.0.0.1:{CONTROLLER_PORT}",
    "initial.broker.registration.timeout.ms": "8000",
}


def voter(node: int, directory: str, port: int = CONTROLLER_PORT) -> Voter:
    """A voter of a dynamic quorum."""
    return Voter(node, directory, (("CONTROLLER", "127.0.0.1", port),), 0, 1)


def voting(*others: Voter) -> Change:
    """The first snapshot names the directory's own node as a voter, and the others."""

    def change(logs: Path) -> None:
        meta = parse_meta_properties((logs / "meta.properties").read_bytes(), logs)
        assert meta.node_id is not None and meta.directory_id is not None
        voters = (voter(meta.node_id, format_uuid(meta.directory_id)), *others)
        path = logs / METADATA / snapshot_name(0, 0)
        path.write_bytes(metadata_snapshot([], 1_700_000_000_000, voters))

    return change


def _dynamic(root: Path) -> list[Path]:
    """The node is the only voter of a dynamic quorum."""
    (logs,) = _clean(root)
    voting()(logs)
    return [logs]


BASES: dict[str, Callable[[Path], list[Path]]] = {
    "clean": _clean,
    "unclean": _unclean,
    "snapshot": _snapshot,
    "two": _two,
    "dynamic": _dynamic,
}


def made(state: State, root: Path, *, given: bool = False) -> list[Path]:
    """The log directories of a state below `root`; `given` to the broker's user, as root can."""
    directories = BASES[state.base](root)
    if given:
        for directory in directories:
            given_to(directory, BROKERS_USER)
    state.change(root)
    return directories


def snapshot_name(offset: int, epoch: int) -> str:
    """The name of a metadata snapshot."""
    return f"{offset:020d}-{epoch:010d}.checkpoint"


# --- wounds


def missing(path: Path) -> None:
    """The file, or the directory, is gone."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def half(path: Path) -> None:
    """The second half is lost."""
    os.truncate(path, path.stat().st_size // 2)


def zeros(path: Path) -> None:
    """The size is right, and every byte is zero."""
    path.write_bytes(bytes(path.stat().st_size))


def flipped(path: Path) -> None:
    """A bit in the middle is wrong."""
    data = bytearray(path.read_bytes() or b"\0")
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


def replaced(old: str, new: str) -> Change:
    """A text in the file is another one."""

    def change(path: Path) -> None:
        text = path.read_text()
        assert old in text, f"{old!r} is not in {path}"
        path.write_text(text.replace(old, new))

    return change


def filled(data: bytes) -> Change:
    """The file holds other bytes."""
    return lambda path: written(path, data)


def written(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def sequence(*changes: Change) -> Change:
    """One change after the other."""

    def change(path: Path) -> None:
        for each in changes:
            each(path)

    return change


EVERY_FILE: dict[str, Change] = {
    "missing": missing,
    "empty": filled(b""),
    "zeros": zeros,
    "half": half,
    "flipped": flipped,
}
ACCESS: dict[str, Change] = {
    "mode 000": lambda path: path.chmod(0),
    "root's": lambda path: _given_to_root(path),
}


def _given_to_root(path: Path) -> None:
    os.chown(path, 0, 0)
    path.chmod(0o700 if path.is_dir() else 0o600)


NEWER_CHECKPOINT = replaced("0\n", "1\n")
IN_DIRECTORY: dict[str, Change | None] = {
    "meta.properties": replaced("version=1", "version=2"),
    "bootstrap.checkpoint": None,
    "recovery-point-offset-checkpoint": lambda path: written(path, path.read_bytes().replace(b"0", b"1", 1)),
    "replication-offset-checkpoint": lambda path: written(path, path.read_bytes().replace(b"0", b"1", 1)),
    "log-start-offset-checkpoint": lambda path: written(path, path.read_bytes().replace(b"0", b"1", 1)),
    ".kafka_cleanshutdown": replaced('"version":0', '"version":1'),
    ".lock": None,
}
IN_METADATA: dict[str, Change | None] = {
    "quorum-state": replaced('"data_version":0', '"data_version":2'),
    "partition.metadata": replaced("version: 0", "version: 1"),
    "leader-epoch-checkpoint": lambda path: written(path, path.read_bytes().replace(b"0", b"1", 1)),
    f"{0:020d}.log": None,
    f"{0:020d}.index": None,
    f"{0:020d}.timeindex": None,
    f"{110:020d}.snapshot": None,
    f"{327:020d}.snapshot": lambda path: written(path, b"\x00\x02" + path.read_bytes()[2:]),
}
IN_PARTITION: dict[str, Change | None] = {
    "partition.metadata": replaced("version: 0", "version: 1"),
    "leader-epoch-checkpoint": lambda path: written(path, path.read_bytes().replace(b"0", b"1", 1)),
    f"{0:020d}.log": None,
    f"{500:020d}.log": None,
    f"{750:020d}.log": None,
    f"{500:020d}.index": None,
    f"{750:020d}.index": None,
    f"{500:020d}.timeindex": None,
    f"{750:020d}.timeindex": None,
    f"{790:020d}.snapshot": lambda path: written(path, b"\x00\x02" + path.read_bytes()[2:]),
}
IN_PAID: dict[str, Change | None] = {
    f"{0:020d}.txnindex": None,
    f"{265:020d}.txnindex": None,
    f"{399:020d}.txnindex": None,
    f"{400:020d}.snapshot": None,
}


def of_files(base: str, directory: str, below: str, files: Mapping[str, Change | None]) -> Iterator[State]:
    for name, newer in files.items():
        where = "/".join(part for part in (below, name) if part)
        changes = {**EVERY_FILE, **({"newer version": newer} if newer else {}), **(ACCESS if base == "clean" else {})}
        for wound, change in changes.items():
            yield wounded(base, directory, where, wound, change, needs_root=wound in ACCESS)


def owned_as(path: Path, other: Path) -> None:
    """Gives `path` the owner of `other`."""
    known = other.stat()
    os.chown(path, known.st_uid, known.st_gid)


def made_a_directory(path: Path) -> None:
    """Puts an empty directory in the place of a file."""
    path.unlink(missing_ok=True)
    path.mkdir()
    owned_as(path, path.parent)


def wounded(
    base: str,
    directory: str,
    where: str,
    wound: str,
    change: Change,
    settings: Mapping[str, str] | None = None,
    *,
    needs_root: bool = False,
) -> State:
    shown = where if directory == LOGS else f"{directory}/{where}"
    return State(base, shown, wound, lambda root: change(root / directory / where), settings or {}, needs_root)


LOGS = "logs"


def sound(base: str) -> State:
    """A base without a wound."""
    return State(base, "", "sound", lambda root: None, DYNAMIC if base == "dynamic" else {})


def appended(*values: bytes, epoch: int = EPOCH, damage: Change | None = None) -> Change:
    """A batch with these records ends the metadata log."""

    def change(path: Path) -> None:
        (directory,) = (path,)
        log = sorted(directory.glob("*.log"))[-1]
        end = 0
        for chunk in SegmentScan(LocalFileSystem(), log):
            end = int(chunk.batches["last_offset"][-1]) + 1
        batch = encode_all(
            columns_of([Record(value, timestamp=1_800_000_000_000) for value in values]),
            end,
            BatchOptions(leader_epoch=epoch),
        )
        log.write_bytes(log.read_bytes() + batch)
        if damage is not None:
            damage(log)

    return change
