"""What a read of a table asks for: which partitions, from where to where, and what damage and lost data mean."""

from __future__ import annotations

import logging
import re
from bisect import bisect_left
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from seglog.errors import IncompleteError
from seglog.model import Isolation, TopicPartition
from seglog.scan.selection import EVERYTHING, Selection
from seglog_ask.table.plan.schema import RECORDS
from seglog_stores.remote.settings import StoreSettings

_logger = logging.getLogger("seglog.table.options")

Offsets = dict[TopicPartition, int]
OptionKind = Literal["earliest", "latest", "offsets", "timestamp", "timestamps"]
OnCorrupt = Literal["fail", "skip"]
MissingTimestamp = Literal["error", "latest"]

EARLIEST = -2
LATEST = -1

_MOST_LISTINGS = 16  # with more name prefixes than this, one listing of the whole directory costs less


@dataclass(frozen=True, slots=True)
class OffsetRule:
    """Where reading begins or ends.

    `offsets` are offsets or timestamps by partition, sorted; `timestamp` applies to all partitions.
    """

    kind: OptionKind
    offsets: tuple[tuple[TopicPartition, int], ...] = ()
    timestamp: int = -1

    def of(self, key: TopicPartition) -> int | None:
        """Returns the offset or timestamp of this partition; None if it is not named."""
        i = bisect_left(self.offsets, key, key=lambda each: each[0])
        return self.offsets[i][1] if i < len(self.offsets) and self.offsets[i][0] == key else None


@dataclass(frozen=True, slots=True)
class TierNames:
    """The options of tiered storage, which name files that the driver reads.

    They are the log directory with the local parts, the private key files by the ids of their pairs, and the partition
    directories of `__remote_log_metadata`.
    """

    local: Path | None = None
    keys: tuple[tuple[str, Path], ...] = ()
    metadata: tuple[Path, ...] = ()


NO_TIER_NAMES = TierNames()


@dataclass(frozen=True, slots=True)
class ShownAs:
    """The forms of keys and values (`values.forms.FORMS`), and where the schemas for them are: `schemas` is a place,
    `schema` is FILE or FILE:MESSAGE.
    """

    key: str = "auto"
    value: str = "auto"
    schemas: str | None = None
    schema: str | None = None


AS_THEY_ARE = ShownAs()


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a read. At most one of `assign`, `subscribe` and `subscribe_pattern` is set. A path may be a glob.

    A `max_partition_bytes` or `max_offsets_per_trigger` of 0 leaves the choice to the planner. Sizes are in bytes.
    `to_skip` and `to_lose` are what errors call the options that go on past damage and past lost data.
    `with_metadata`: the cluster's metadata is a topic of a log directory, too.
    """

    paths: tuple[str, ...]
    assign: frozenset[TopicPartition] | None = None
    subscribe: frozenset[str] | None = None
    subscribe_pattern: str | None = None
    starting: OffsetRule = OffsetRule("earliest")
    ending: OffsetRule = OffsetRule("latest")
    missing_timestamp: MissingTimestamp = "latest"
    fail_on_data_loss: bool = True
    include_headers: bool = False
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    min_partitions: int = 0
    max_partition_bytes: int = 0
    max_offsets_per_trigger: int = 0
    columns: tuple[str, ...] | None = None
    view: str = RECORDS
    verify_crc: bool = True
    on_corrupt: OnCorrupt = "fail"
    store: StoreSettings = field(default_factory=StoreSettings)
    where: Selection = EVERYTHING
    tier: TierNames = NO_TIER_NAMES
    shown_as: ShownAs = AS_THEY_ARE
    to_skip: str = "on_corrupt='skip'"
    to_lose: str = "on_corrupt='skip'"
    with_metadata: bool = False

    def beginnings(self) -> tuple[str, ...] | None:
        """Returns the prefixes of the chosen partitions' directory names; None if there are too many or all count."""
        found: set[str] | None = None
        if self.assign is not None:
            found = {f"{one}/" for one in self.assign}
            found = found if len(found) <= _MOST_LISTINGS else {f"{one.topic}-" for one in self.assign}
        elif self.subscribe is not None or self.where.topics is not None:
            found = {f"{topic}-" for topic in self.subscribe or self.where.topics or ()}
        return tuple(sorted(found)) if found is not None and len(found) <= _MOST_LISTINGS else None

    def chooses(self, topic_partition: TopicPartition) -> bool:
        """True if the options select this partition."""
        if self.assign is not None:
            return topic_partition in self.assign
        if self.subscribe is not None:
            return topic_partition.topic in self.subscribe
        return self.subscribe_pattern is None or re.fullmatch(self.subscribe_pattern, topic_partition.topic) is not None

    def report_loss(self, what: str) -> None:
        """Raises IncompleteError about lost data, or logs it where `fail_on_data_loss` is false."""
        if self.fail_on_data_loss:
            raise IncompleteError(f"{what} ({self.to_lose} goes on with what is there)")
        _logger.warning("%s; going on", what)
