"""A log directory of a stopped broker that knows some partitions and has nothing in them, without any broker."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from seglog.clock import FixedClock
from seglog.configuration.keys import LogConfig
from seglog.format.checkpoint import PartitionMetadata, format_partition_metadata
from seglog.format.filenames import parse_topic_partition
from seglog.scan.listing import resolve_paths
from seglog.storage.filesystem import FileSystem
from seglog_rescue.operations.transplant import TransplantRequest, plan_transplant
from seglog_rescue.transplant.apply import TransplantOutcome, carry_out
from seglog_rescue.transplant.plan import TransplantPlan

TOPIC_ID = UUID(int=77)
MARKER = b'{"version":0,"brokerEpoch":5}'
CONFIG = LogConfig(retention_ms=-1)

_META = b"version=1\ncluster.id=c2VnbG9nLXRhcmdldHMtLQ\nnode.id=1\n"


def write(fs: FileSystem, path: Path, data: bytes = b"") -> None:
    """A file with these contents."""
    with fs.open(path, "create") as file:
        file.write_at(0, data)
        file.sync()


def target_directory(fs: FileSystem, path: Path, partitions: Sequence[str]) -> Path:
    """As a broker leaves it that was stopped in order before anybody wrote to these partitions."""
    fs.make_directory(path, parents=True)
    write(fs, path / "meta.properties", _META)
    write(fs, path / ".kafka_cleanshutdown", MARKER)
    lines = "".join(f"{name.rpartition('-')[0]} {name.rpartition('-')[2]} 0\n" for name in partitions)
    for name in ("recovery-point", "replication"):
        write(fs, path / f"{name}-offset-checkpoint", f"0\n{len(partitions)}\n{lines}".encode())
    for name in partitions:
        empty_partition(fs, path / name)
    fs.sync_directory(path)
    return path


def empty_partition(fs: FileSystem, path: Path) -> None:
    """A partition that nobody wrote to."""
    fs.make_directory(path)
    write(fs, path / "partition.metadata", format_partition_metadata(PartitionMetadata(TOPIC_ID)))
    for suffix in ("log", "index", "timeindex"):
        write(fs, path / f"{0:020}.{suffix}")
    write(fs, path / "leader-epoch-checkpoint", b"0\n1\n0 0\n")
    fs.sync_directory(path)


def partitions_in(source: Path) -> list[str]:
    """The names of a source's partitions that can be transplanted."""
    names = sorted(path.name for path in source.iterdir() if parse_topic_partition(path.name) is not None)
    return [name for name in names if not name.startswith(("__cluster", "__transaction"))]


def request(fs: FileSystem, into: Path, *sources: Path, **more: object) -> TransplantRequest:
    """A request as the command line makes it."""
    return TransplantRequest(resolve_paths(fs, list(sources)), into, **more)  # type: ignore[arg-type]


def planned(fs: FileSystem, now_ms: int, wanted: TransplantRequest) -> TransplantPlan:
    """The plan, for topics without retention."""
    return plan_transplant(fs, FixedClock(now_ms), wanted, lambda _topic: CONFIG)


def transplanted(fs: FileSystem, now_ms: int, wanted: TransplantRequest) -> TransplantOutcome:
    """The plan, carried out."""
    plan = planned(fs, now_ms, wanted)
    return carry_out(fs, FixedClock(now_ms), plan, lambda _topic: CONFIG, lambda _size: None)


def everything(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every file below a directory: time, inode, contents; every directory by its name."""
    found = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        data = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
        found[str(path.relative_to(root))] = status.st_mtime_ns, status.st_ino, data
    return found
