"""Parses and formats the names that plugins of tiered storage (KIP-405) give to the objects of segments.

Aiven: ObjectKeyFactory. Kafka: RemoteLogSegmentFileset (LocalTieredStorage). Pinterest: Utils, WatermarkFileHandler.

    Aiven               <prefix><topic>-<topic id>/<partition>/<base>-<segment id>.log | .indexes | .rsm-manifest
    LocalTieredStorage  kafka-tiered-storage/<topic>-<partition>-<topic id>/<base>-<segment id>.log | .index | …
    Pinterest           …/<topic>-<partition>/<base>.log | .index | .timeindex, and offset.wm

An id is a UUID in Kafka's text form: 22 characters, which may include `-`. So names are split from the right.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from seglog.format.filenames import OFFSET_DIGITS, parse_topic_partition, topic_name_problem
from seglog.layout import INT32_MAX, INT64_MAX
from seglog.model import TopicPartition

LOCAL_TIERED_STORAGE = "kafka-tiered-storage"
WATERMARK = "offset.wm"
COMMITTED = "_seglog"  # holds seglog's own manifests; Hadoop and Spark ignore names that begin with `_`

_ID = "[A-Za-z0-9_-]{22}"
_DIRECTORY = re.compile(rf"(.+)-({_ID})")
_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}")
# Matches names that occur in the directory of a partition, a topic or a whole tier, but not in a broker's directory.
is_of_a_tier = re.compile(
    rf"^[0-9]{{{OFFSET_DIGITS}}}-{_ID}\.|-{_ID}$|^{re.escape(WATERMARK)}$|^{LOCAL_TIERED_STORAGE}$"
).search
_PLACE = re.compile(rf"seglog-{_ID}")
_WATERMARK = re.compile(rb"([0-9]{20})\s*")


class ObjectKind(Enum):
    """The kind of an object; the value is its suffix."""

    LOG = ".log"
    INDEXES = ".indexes"  # Aiven: all indexes of a segment, one after another
    MANIFEST = ".rsm-manifest"  # Aiven: uploaded last
    OFFSET_INDEX = ".index"
    TIME_INDEX = ".timeindex"
    TRANSACTION_INDEX = ".txnindex"
    PRODUCER_SNAPSHOT = ".snapshot"  # of the offset after the segment's last
    LEADER_EPOCHS = ".leader_epoch_checkpoint"

    @property
    def is_aivens(self) -> bool:
        """True if only Aiven's plugin writes such an object."""
        return self in (ObjectKind.INDEXES, ObjectKind.MANIFEST)


@dataclass(frozen=True, slots=True)
class ObjectName:
    """The parts of `<base offset>-<segment id><suffix>`."""

    base_offset: int
    segment_id: str
    kind: ObjectKind

    def __str__(self) -> str:
        return f"{self.base_offset:0{OFFSET_DIGITS}d}-{self.segment_id}{self.kind.value}"


@dataclass(frozen=True, slots=True)
class TieredDirectory:
    """The parts of a directory's name; `partition` is None for Aiven's, whose partitions are subdirectories."""

    topic: str
    topic_id: str
    partition: int | None = None

    def __str__(self) -> str:
        number = "" if self.partition is None else f"-{self.partition}"
        return f"{self.topic}{number}-{self.topic_id}"


_SUFFIXES = "|".join(re.escape(kind.value) for kind in ObjectKind)
_OBJECT = re.compile(rf"([0-9]{{{OFFSET_DIGITS}}})-({_ID})({_SUFFIXES})")


def parse_object_name(name: str) -> ObjectName | None:
    """Returns the parts of an object's name, or None for any other name."""
    match = _OBJECT.fullmatch(name)
    if match is None or int(match[1]) > INT64_MAX:
        return None
    return ObjectName(int(match[1]), match[2], ObjectKind(match[3]))


def parse_local_tiered_directory(name: str) -> tuple[TopicPartition, str] | None:
    """Parses LocalTieredStorage's `<topic>-<partition>-<topic id>`; returns None for any other name.

    `t-3-<id>` may also be Aiven's directory of a topic named `t-3`: only the contents tell them apart.
    """
    match = _DIRECTORY.fullmatch(name)
    topic_partition = None if match is None else parse_topic_partition(match[1])
    return None if match is None or topic_partition is None else (topic_partition, match[2])


def parse_tiered_topic(name: str) -> TieredDirectory | None:
    """Parses Aiven's `<topic>-<topic id>`; returns None for any other name.

    A `key.prefix` that does not end with a slash is taken as part of the topic.
    """
    match = _DIRECTORY.fullmatch(name)
    if match is None or topic_name_problem(match[1]) is not None:
        return None
    return TieredDirectory(match[1], match[2])


def parse_partition_number(name: str) -> int | None:
    """Returns the number in the name of Aiven's partition directory, or None for any other name."""
    return int(name) if _PARTITION.fullmatch(name) and int(name) <= INT32_MAX else None


def is_place_name(name: str) -> bool:
    """True if a directory has the name for the objects of one attempt (`seglog_stores.formats.log_manifest`)."""
    return _PLACE.fullmatch(name) is not None


def parse_watermark(data: bytes) -> int | None:
    """Returns the base offset of the last segment uploaded by Pinterest (`offset.wm`), or None for other contents."""
    match = _WATERMARK.fullmatch(data)
    return int(match[1]) if match is not None and int(match[1]) <= INT64_MAX else None
