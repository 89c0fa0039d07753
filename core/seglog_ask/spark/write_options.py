"""The options of `df.write.format("seglog")` and of the stream sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from seglog.errors import ConfigError, UnsupportedError
from seglog.layout import INT32_MAX
from seglog.locations import parse_location
from seglog.model import Compression
from seglog.remote_path import RemotePath
from seglog.units import parse_duration, parse_size
from seglog_stores.remote.settings import KNOWN, StoreSettings

NAMES = {
    "path": "the log directory to write to, or a prefix of an object store",
    "topic": "the topic of rows without a column topic",
    "partition": "the partition of rows without a column partition (default 0)",
    "compression": f"{', '.join(codec.label for codec in Compression)} (default none)",
    "batchSize": "bytes of a batch before compression (default 16 KiB)",
    "segmentBytes": "the size at which a segment is rolled (default 1 GiB)",
    "lockWait": "how long to wait for another writer of the log directory (default 60s)",
}
_OF_SPARK = frozenset({"checkpointlocation", "queryname", "owner", "location", "provider", "header"})
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
    """The options of a write. `checkpoint` is a stream's checkpoint location if it is a mounted path."""

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
    """Parses the options of a writer. ConfigError and UnsupportedError say what is wrong and what is legal."""
    if overwrite:
        raise UnsupportedError(
            "overwrite: seglog appends and never replaces a log: use .mode('append'), after removing the partitions to"
            " replace, or write into a new log directory"
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
        # under Connect that directory is temporary, and the rows would vanish with it
        raise ConfigError(f"path: {given['path']!r} is relative, and each of Spark's processes has its own directory")
    labels = {codec.label: codec for codec in Compression}
    codec = given.get("compression", "none").lower()
    if codec not in labels:
        raise ConfigError(f"compression: there is no codec '{codec}'; codecs are {', '.join(labels)}")
    return WriteOptions(
        path=path,
        topic=given.get("topic"),
        partition=_parsed("partition", given.get("partition", "0"), _number),
        codec=labels[codec],
        batch_bytes=_parsed("batchSize", given.get("batchsize", "16KiB"), _size),
        segment_bytes=_parsed("segmentBytes", given.get("segmentbytes", "1GiB"), _size),
        lock_wait_ms=_parsed("lockWait", given.get("lockwait", "60s"), lambda text: parse_duration(text, 1000)),
        checkpoint=_checkpoint(given.get("checkpointlocation")),
        store=StoreSettings.of(given),
    )


def check_schema(schema: object, options: WriteOptions) -> None:
    """Raises ConfigError unless the rows have the columns of the kafka sink. `schema` is a StructType."""
    fields = {field.name: field.dataType.simpleString() for field in schema.fields}  # type: ignore[attr-defined]
    if "value" not in fields:
        raise ConfigError(f"the column 'value' is missing; columns are {', '.join(_TYPES)}, only value is required")
    for name, kind in fields.items():
        if name not in _TYPES:
            raise ConfigError(f"a record has no column '{name}'; columns are {', '.join(_TYPES)}")
        if kind not in _TYPES[name]:
            raise ConfigError(f"column '{name}' must be {' or '.join(_TYPES[name])}, not {kind}")
    if "topic" not in fields and options.topic is None:
        raise ConfigError("the rows have no column 'topic': set the option topic")


def _checkpoint(text: str | None) -> Path | None:
    """Returns a stream's checkpoint location; None for a file system that only Spark reaches."""
    if text is None:
        return None
    try:
        path = parse_location(text)
    except UnsupportedError:
        return None
    return path if path.is_absolute() and not isinstance(path, RemotePath) else None


def _parsed(name: str, text: str, parse: Callable[[str], int]) -> int:
    try:
        return parse(text)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from error


def _number(text: str) -> int:
    if not text.isdecimal() or int(text) > INT32_MAX:
        raise ValueError(f"{text!r} is not a partition number")
    return int(text)


def _size(text: str) -> int:
    size = parse_size(text)
    if size < 1:
        raise ValueError("it must be at least 1 byte")
    return size
