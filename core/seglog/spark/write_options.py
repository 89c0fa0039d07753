"""The options of `df.write.format("seglog")` and of the stream sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from seglog.errors import ConfigError, UnsupportedError
from seglog.model import Compression
from seglog.remote.routing import parse_location
from seglog.remote.settings import KNOWN, StoreSettings
from seglog.remote_path import RemotePath
from seglog.units import parse_duration, parse_size

NAMES = {
    "path": "the log directory to write to, or a prefix of an object store",
    "topic": "the topic of rows without a column topic",
    "partition": "the partition of rows without a column partition (default 0)",
    "compression": "none, gzip, snappy, lz4 or zstd (default none)",
    "batchSize": "bytes of a batch before compression (default 16 KiB)",
    "segmentBytes": "bytes after which a segment is rolled (default 1 GiB)",
    "lockWait": "how long another writer of the log directory is waited for (default 60s)",
}
_OF_SPARK = frozenset({"checkpointlocation", "queryname", "owner", "location", "provider", "header"})
_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
_TYPES = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "offset": ("bigint",),
    "timestamp": ("timestamp",),
    "timestampType": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What to write where. `checkpoint` is a stream's checkpoint location, where it is a mounted path."""

    path: Path
    topic: str | None
    partition: int
    codec: Compression
    batch_bytes: int
    segment_bytes: int
    lock_wait_ms: int
    checkpoint: Path | None
    store: StoreSettings


def parse_write_options(options: Mapping[str, str], *, overwrite: bool = False) -> WriteOptions:
    """The options of a writer. ConfigError and UnsupportedError say what is wrong and what is legal."""
    if overwrite:
        raise UnsupportedError(
            "overwrite: seglog appends and never replaces a log: say .mode('append'), and remove partitions that are to"
            " be replaced, or write into a new log directory"
        )
    given = {key.lower(): value for key, value in options.items()}
    legal = {name.lower() for name in (*NAMES, *KNOWN)}
    unknown = [key for key in given if key not in legal | _OF_SPARK and not key.startswith(("spark.", "kafka."))]
    if unknown:
        raise ConfigError(f"no such option: {', '.join(unknown)}; options are {', '.join(NAMES)}")
    if "path" not in given:
        raise ConfigError("a path is missing: the log directory to write to, as in .save('/data/kafka-logs')")
    path = parse_location(given["path"])
    if not path.is_absolute():
        # under Connect that directory is a temporary one, which the rows would vanish with
        raise ConfigError(f"path: {given['path']!r} is relative, and each of Spark's processes has its own directory")
    labels = {codec.label: codec for codec in Compression}
    codec = given.get("compression", "none").lower()
    if codec not in labels:
        raise ConfigError(f"compression: there is no codec '{codec}'; codecs are {', '.join(labels)}")
    return WriteOptions(
        path=path,
        topic=given.get("topic"),
        partition=_number("partition", given.get("partition", "0")),
        codec=labels[codec],
        batch_bytes=_size("batchSize", given.get("batchsize", "16KiB")),
        segment_bytes=_size("segmentBytes", given.get("segmentbytes", "1GiB")),
        lock_wait_ms=_duration("lockWait", given.get("lockwait", "60s")),
        checkpoint=_checkpoint(given.get("checkpointlocation")),
        store=StoreSettings.of(given),
    )


def check_schema(schema: object, options: WriteOptions) -> None:
    """ConfigError unless the rows have the columns of the kafka sink. `schema` is a StructType."""
    fields = {field.name: field.dataType.simpleString() for field in schema.fields}  # type: ignore[attr-defined]
    if "value" not in fields:
        raise ConfigError(f"the column 'value' is missing; columns are {', '.join(_COLUMNS)}, value alone is required")
    for name, kind in fields.items():
        if name not in _TYPES:
            raise ConfigError(f"a record has no column '{name}'; columns are {', '.join(_COLUMNS)}")
        if kind not in _TYPES[name]:
            raise ConfigError(f"column '{name}' must be {' or '.join(_TYPES[name])}, not {kind}")
    if "topic" not in fields and options.topic is None:
        raise ConfigError("rows have no column 'topic': give the option topic")


def _checkpoint(text: str | None) -> Path | None:
    """Where a stream's checkpoint lies; None for a file system that only Spark reaches."""
    if text is None:
        return None
    try:
        path = parse_location(text)
    except UnsupportedError:
        return None
    return path if path.is_absolute() and not isinstance(path, RemotePath) else None


def _duration(name: str, text: str) -> int:
    try:
        return parse_duration(text, 1000)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from error


def _number(name: str, text: str) -> int:
    if not text.isdigit():
        raise ConfigError(f"{name}: {text!r} is not a number from 0 on")
    return int(text)


def _size(name: str, text: str) -> int:
    try:
        size = parse_size(text)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from error
    if size < 1:
        raise ConfigError(f"{name}: it must be at least 1 byte")
    return size
