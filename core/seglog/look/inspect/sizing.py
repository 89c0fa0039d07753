"""Computes dedupe buffer sizes and whether a cleaner keeps up: rough estimates from a log's measured figures.

With S slots of 24 bytes and load factor f, Kafka's map holds L = ⌊S·f⌋ keys. A round that finds more stops there; every
further round starts with an empty map and copies the clean section again. If all of K keys are equally frequent, n
records hold K·(1-(1-1/K)^n) different ones, so a round ends after ln(1-L/K) / ln(1-1/K) records. Unequal frequencies
make rounds longer; the least number of rounds, K/L, is reached if every key occurs once.

In the steady state a log is cleaned when its dirty part D is the share r of D + C, so that C = D·(1-r)/r. A cleaner
that processes s bytes per second (of D + C, as its statistics count) needs (D + C)/s seconds, while new data arrives at
w bytes per second. It keeps up while w < s·r.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seglog.cleaner.dirtiness import LogToClean, log_to_clean
from seglog.cleaner.round import KAFKA_BYTES_PER_ENTRY
from seglog.clock import FixedClock
from seglog.configuration.keys import CleanerConfig, LogConfig
from seglog.log.log import Log
from seglog.log.opening import open_partition
from seglog.storage.filesystem import FileSystem

DAY_SECONDS = 86_400
_MOST_BUFFER_BYTES = 2**31 - 1  # of one thread, in Kafka


@dataclass(frozen=True, slots=True)
class Sizing:
    """The figures for one log. Sizes are in bytes, rates in bytes per second; None means not measured.

    `keys` is the estimated number of different keys in the whole log. `kafka_rounds` is the number of rounds that a
    broker with this buffer needs for the dirty part (for the whole of a clean log) if all keys are equally frequent,
    `recopied_bytes` the data that these rounds copy again, and `least_kafka_rounds` the number in the best case. seglog
    needs one round with `index_passes` passes. `why` says why a broker's cleaner would or would not take the log now.
    `sustainable_bytes_per_second` is the highest write rate with which the cleaner keeps up.
    """

    partition: str
    keys: int
    records: int
    log_bytes: int
    buffer_bytes: int
    threads: int
    load_factor: float
    slots: int
    capacity_keys: int
    needed_buffer_bytes: int
    kafka_rounds: int
    least_kafka_rounds: int
    recopied_bytes: int
    index_passes: int
    clean_bytes: int
    dirty_bytes: int
    dirty_ratio: float
    why: str
    write_bytes_per_second: float | None
    cleaner_bytes_per_second: float | None
    sustainable_bytes_per_second: float | None
    day_bytes: int | None
    headroom_bytes: int

    @property
    def keeps_up(self) -> bool | None:
        """True if the cleaner keeps up with the write rate; None if either rate is unknown."""
        if self.write_bytes_per_second is None or self.sustainable_bytes_per_second is None:
            return None
        return self.write_bytes_per_second < self.sustainable_bytes_per_second


@dataclass(frozen=True, slots=True)
class SizingRequest:
    """The input for sizing a partition, besides its log.

    `rounds` are its saved cleaning rounds; `write_bytes_per_second` replaces the measured rate. The dirty part is
    computed as of `now_ms` (epoch milliseconds).
    """

    config: LogConfig
    cleaner: CleanerConfig
    now_ms: int
    rounds: Sequence[Mapping[str, Any]] = ()
    write_bytes_per_second: float | None = None


def size_partition(fs: FileSystem, directory: Path, request: SizingRequest, *, keys: int, records: int) -> Sizing:
    """Returns the figures for a partition, opened for reading; cleaner-offset-checkpoint tells where it is dirty."""
    clock = FixedClock(request.now_ms)
    owner, log = open_partition(directory, fs=fs, clock=clock, config_of=lambda _: request.config, writable=False)
    with owner:
        checkpoint = owner.cleaner_offsets.get(log.topic_partition)
        return size_log(log, log_to_clean(log, checkpoint, request.now_ms), request, keys=keys, records=records)


def capacity(buffer_bytes: int, load_factor: float) -> int:
    """Returns the number of keys that Kafka's map of this many bytes holds in one round."""
    return int(buffer_bytes // KAFKA_BYTES_PER_ENTRY * load_factor)


def buffer_for(keys: int, load_factor: float) -> int:
    """Returns the smallest buffer, in bytes, that holds `keys` in one round."""
    slots = math.ceil(keys / load_factor)  # may be off by one or two because of rounding
    while slots > 0 and capacity((slots - 1) * KAFKA_BYTES_PER_ENTRY, load_factor) >= keys:
        slots -= 1
    while capacity(slots * KAFKA_BYTES_PER_ENTRY, load_factor) < keys:
        slots += 1
    return slots * KAFKA_BYTES_PER_ENTRY


def kafka_rounds(keys: int, records: int, room: int) -> tuple[int, int]:
    """Returns the rounds that a broker needs for `records` dirty records with `keys` equally frequent keys if its map
    holds `room` of them, and how many records of the clean section the rounds after the first copy again in total."""
    if keys <= room:
        return 1, 0
    missed = 1 - room / keys  # the share of all keys that a round does not see
    rounds = max(1, math.ceil(records * math.log1p(-1 / keys) / math.log(missed)))
    return rounds, round(keys * (rounds - 1 - missed * (1 - missed ** (rounds - 1)) / (1 - missed)))


def size_log(log: Log, found: LogToClean, request: SizingRequest, *, keys: int, records: int) -> Sizing:
    """Returns the figures for `log`; `found` says how dirty it is."""
    config, rate = request.cleaner, request.write_bytes_per_second
    buffer = min(config.dedupe_buffer_size // max(config.threads, 1), _MOST_BUFFER_BYTES)
    factor = config.io_buffer_load_factor
    room = max(capacity(buffer, factor), 1)
    rate = measured_write_rate(log, found) if rate is None else rate
    speed = measured_speed(request.rounds)
    least = max(1, math.ceil(keys / room))
    dirty_share = found.cleanable_bytes / log.segments.size if found.cleanable_bytes else 1.0
    rounds_needed, recopied_keys = kafka_rounds(keys, round(records * dirty_share), room)
    record_bytes = log.segments.size / records if records else 0.0
    kept = round(min(keys, records) * record_bytes)
    return Sizing(
        partition=str(log.topic_partition),
        keys=keys,
        records=records,
        log_bytes=log.segments.size,
        buffer_bytes=buffer,
        threads=config.threads,
        load_factor=factor,
        slots=buffer // KAFKA_BYTES_PER_ENTRY,
        capacity_keys=room,
        needed_buffer_bytes=buffer_for(keys, factor),
        kafka_rounds=rounds_needed,
        least_kafka_rounds=min(least, rounds_needed),
        recopied_bytes=round(recopied_keys * record_bytes),
        index_passes=least,
        clean_bytes=found.clean_bytes,
        dirty_bytes=found.cleanable_bytes,
        dirty_ratio=found.cleanable_ratio,
        why=found.why,
        write_bytes_per_second=rate,
        cleaner_bytes_per_second=speed,
        sustainable_bytes_per_second=None if speed is None else speed * max(found.min_cleanable_ratio, 0.01),
        day_bytes=None if rate is None else round(rate * DAY_SECONDS),
        headroom_bytes=min(found.total_bytes, kept or found.total_bytes),
    )


def measured_write_rate(log: Log, found: LogToClean) -> float | None:
    """Returns the write rate in bytes per second by the dirty segments' timestamps; None if they do not show it."""
    segments = [segment for segment in log.segments.from_floor(found.first_dirty_offset) if segment.size]
    if not segments:
        return None
    first, last = segments[0].first_batch_timestamp(), max(segment.max_timestamp for segment in segments)
    if first < 0 or last <= first:
        return None
    return sum(segment.size for segment in segments) * 1000 / (last - first)


def measured_speed(rounds: Sequence[Mapping[str, Any]]) -> float | None:
    """Returns the bytes per second that past rounds processed, by their statistics; None without rounds."""
    read = sum(round_.get("bytes_read", 0) for round_ in rounds)
    seconds = sum(round_.get("index_seconds", 0) + round_.get("clean_seconds", 0) for round_ in rounds)
    return read / seconds if read and seconds > 0 else None
