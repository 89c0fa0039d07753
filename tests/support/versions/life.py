"""`Life`: a cluster of one broker of a release, from its first record on: what its clients got, and what seglog did.

The steps are in `steps`. `topics` are what each release can have: its codecs, and the message formats of older ones.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from seglog.kafka_version import KafkaVersion
from tests.support.kafka.released_broker import FIRST_OF_KRAFT, ReleasedBroker, ZooKeeper
from tests.support.versions.clients import Partition

SEGMENT_BYTES = 12_000
TRIMMED_TO = 150
NEWEST = "4.4.0"
FIRST_WITH_ZSTD = KafkaVersion(2, 1)
FIRST_WITH_CLUSTER_ID = KafkaVersion(2, 4)  # in meta.properties
FIRST_WITH_TOPIC_IDS = KafkaVersion(3, 0)  # 2.8 has them in ZooKeeper, and writes none to its directories
LAST_WITH_FORMATS = KafkaVersion(2, 8)  # later ones write format 2 whatever the topic says
FIRST_WITH_INTERNAL_KEY = KafkaVersion(4, 1)  # segment.bytes of less than 1 MiB is refused from here on
LAST_WITH_DIFFERENCE = KafkaVersion(3, 9)
SETTINGS = {
    "log.cleaner.backoff.ms": "300",
    "log.retention.check.interval.ms": "500",
    "log.segment.delete.delay.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.initial.task.delay.ms": "100",
}
DIFFERENCE = {"log.message.timestamp.difference.max.ms": str(2**63 - 1)}
MOVED = {"payments": "moved-payments", "plain-gzip": "moved-gzip"}
FORMATS = {"format-0": "0.9.0", "format-1": "0.10.0"}  # topic → its message.format.version


class Life:
    """`directory` holds everything. `told` is what clients got last, by topic."""

    def __init__(self, release: str, directory: Path) -> None:
        self.release, self.directory = release, directory
        self.version = KafkaVersion.parse(release)
        self.logs = directory / "logs"
        self.buried: dict[str, Partition] = {}  # what clients got of the copy `grave`
        self.grave = directory / "dead" / "logs"
        self.told: dict[str, Partition] = {}
        self._zookeeper: ZooKeeper | None = None
        self.failed = ""  # the step that did not end well

    @property
    def is_kraft(self) -> bool:
        """True if the broker has its own controller, and no ZooKeeper."""
        return self.version >= FIRST_OF_KRAFT

    @property
    def has_topic_ids(self) -> bool:
        """True if its topics have ids."""
        return self.version >= FIRST_WITH_TOPIC_IDS

    @property
    def codecs(self) -> tuple[str, ...]:
        """The codecs that the release has."""
        return ("none", "gzip", "snappy", "lz4", *(("zstd",) if self.version >= FIRST_WITH_ZSTD else ()))

    @property
    def formats(self) -> Mapping[str, str]:
        """The topics of older message formats that the release can write."""
        return FORMATS if self.version <= LAST_WITH_FORMATS else {}

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics with records."""
        plain = (f"plain-{codec}" for codec in self.codecs)
        return ("payments", "compacted", "trimmed", "aging", *plain, *self.formats)

    @property
    def configurations(self) -> dict[str, dict[str, object]]:
        """All topics that are made, with their configuration."""
        key = "internal_segment_bytes" if self.version >= FIRST_WITH_INTERNAL_KEY else "segment_bytes"
        small: dict[str, object] = {key: SEGMENT_BYTES}
        made = dict.fromkeys((*self.topics, *MOVED.values()), small)
        made["compacted"] = {**small, "cleanup_policy": "compact", "delete_retention_ms": 1000}
        made["aging"] = {**small, "retention_bytes": 3 * SEGMENT_BYTES}
        for topic, version in self.formats.items():
            made[topic] = {**small, "message_format_version": version}
        return made

    def partition(self, topic: str) -> Path:
        """The directory of a topic's only partition."""
        return self.logs / f"{topic}-0"

    def _its_zookeeper(self) -> ZooKeeper | None:
        """The ZooKeeper that goes on from the first start of the broker on."""
        if self._zookeeper is None and not self.is_kraft:
            self._zookeeper = ZooKeeper(self.release, self.directory / "zookeeper")
        return self._zookeeper

    @contextmanager
    def broker(self, *, killed: bool = False) -> Iterator[ReleasedBroker]:
        """The broker, started on the log directory; stopped in order at the end, or killed."""
        settings = SETTINGS if self.version > LAST_WITH_DIFFERENCE else {**SETTINGS, **DIFFERENCE}
        work = self.directory / "work"
        broker = ReleasedBroker(self.release, self.logs, work, zookeeper=self._its_zookeeper(), settings=settings)
        try:
            yield broker
        except BaseException:
            broker.kill()
            raise
        if killed:
            broker.kill()
        else:
            broker.stop()

    def copied(self, name: str) -> Path:
        """A copy of the log directory as it is; not beside others of its cluster, whose metadata would count for it."""
        return Path(shutil.copytree(self.logs, self.directory / name))

    @contextmanager
    def newest_broker(self, directory: Path) -> Iterator[ReleasedBroker]:
        """A broker of the newest release on a log directory of this one."""
        broker = ReleasedBroker(NEWEST, directory, directory.with_name(f"{directory.name}.work"), settings=SETTINGS)
        try:
            yield broker
        finally:
            broker.stop()

    def end(self) -> None:
        """Ends what is still running."""
        if self._zookeeper is not None:
            self._zookeeper.end()
