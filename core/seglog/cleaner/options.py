"""The options of a cleaning round: memory, which record of a key survives, and what it does beyond a broker's round.

Strategies (KIP-280, which Kafka accepted and never shipped): `offset` keeps the record with the highest offset, as
Kafka does. `timestamp` and `header:NAME` keep the one with the highest timestamp, or the highest value of a header.
Ties go to the higher offset. A header's value is a number of 8 bytes, big-endian and signed; of several headers with
the name the last one counts; a record without such a value loses to one that has it. Whatever the strategy, the record
with the last offset of the range stays.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from seglog.errors import ConfigError
from seglog.layout import INT32_MAX

# Kafka: SkimpyOffsetMap.bytesPerEntry, an MD5 digest and an offset. Buffers are counted in these entries.
KAFKA_BYTES_PER_ENTRY = 24
DEFAULT_DEDUPE_BUFFER_BYTES = 134_217_728
DEFAULT_LOAD_FACTOR = 0.9
# What is done once a chunk is Python's, a tenth of a millisecond; what a chunk brings is better in a core's cache. Of
# 126 MB a round takes 131 ms of the CPU with chunks of 1 MiB, 110 with 4 MiB, 120 with 8 MiB.
CHUNK_BYTES = 4 << 20
PACKED_CHUNK_BYTES = 1 << 20  # where records are compressed, and a chunk opened is many times as large
# Of one chunk of each thread together: more threads make chunks smaller, not memory larger.
_CHUNKS_BYTES = 9 << 20


class StrategyKind(IntEnum):
    """How versions compare; the values are the offset map's."""

    OFFSET = 0
    TIMESTAMP = 1
    HEADER = 2


@dataclass(frozen=True, slots=True)
class Strategy:
    """A compaction strategy; `header` is the name of the header that holds the version."""

    kind: StrategyKind
    header: str = ""

    @classmethod
    def parse(cls, text: str) -> Strategy:
        """`offset`, `timestamp` or `header:NAME`; ConfigError for anything else."""
        name, colon, header = text.partition(":")
        if name == "header" and header:
            return cls(StrategyKind.HEADER, header)
        if not colon and name in ("offset", "timestamp"):
            return cls(StrategyKind[name.upper()])
        raise ConfigError(f"unknown compaction strategy {text!r}: offset, timestamp or header:NAME")

    def __str__(self) -> str:
        return f"header:{self.header}" if self.kind is StrategyKind.HEADER else self.kind.name.lower()


OFFSET = Strategy(StrategyKind.OFFSET)


@dataclass(frozen=True, slots=True)
class CleanerOptions:
    """Options of a round.

    `dedupe_buffer_bytes` and `load_factor` bound the keys of one index pass as they bound Kafka's map
    (log.cleaner.dedupe.buffer.size, log.cleaner.io.buffer.load.factor). `jobs` threads decompress, filter and
    compress. `roll` cleans the active segment too, rolling it first; `expire` removes tombstones and markers whose
    delete.retention.ms ended by their batch's own timestamp. `first_dirty_offset` and `first_uncleanable_offset`
    replace what checkpoint, transactions and lag say. `most_log_bytes` bounds a `.log` that is written; that of Kafka's
    positions is the largest. `hash_mask` weakens the hash of keys, for tests alone.
    """

    dedupe_buffer_bytes: int = DEFAULT_DEDUPE_BUFFER_BYTES
    load_factor: float = DEFAULT_LOAD_FACTOR
    strategy: Strategy = field(default=OFFSET)
    roll: bool = False
    expire: bool = False
    first_dirty_offset: int | None = None
    first_uncleanable_offset: int | None = None
    jobs: int = 1
    chunk_bytes: int = CHUNK_BYTES
    most_log_bytes: int = INT32_MAX
    hash_mask: int = -1

    def __post_init__(self) -> None:
        if self.entry_limit < 2:
            raise ConfigError(
                f"a dedupe buffer of {self.dedupe_buffer_bytes} bytes with load factor {self.load_factor} holds"
                f" {max(self.entry_limit, 0)} keys; at least 2 are needed"
            )
        if self.jobs < 1:
            raise ConfigError(f"the cleaner needs at least one thread, not {self.jobs}")

    @property
    def map_slots(self) -> int:
        """Entries of Kafka's map in a buffer of this size."""
        return self.dedupe_buffer_bytes // KAFKA_BYTES_PER_ENTRY

    @property
    def entry_limit(self) -> int:
        """Most keys of one index pass: those after which Kafka calls its map full."""
        return int(self.map_slots * self.load_factor)

    @property
    def chunks_ahead(self) -> int:
        """Chunks that are worked on at once, where there are several threads."""
        return self.jobs + 2

    @property
    def most_chunk_bytes(self) -> int:
        """Largest chunk for so many threads."""
        return max(_CHUNKS_BYTES // self.jobs, 64 << 10)
