"""Steps for `TwinLogs`: drawn at random with regard to the log's state, then plain data, so that some can be left out.

Bytes to append are good batches of every kind (plain, compressed, of producers, transactional, markers, messages of
magic 0 and 1), several at once, and the same with a field changed, with a right or a wrong checksum, or cut off.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seglog.format import checksum
from seglog.format.compression import compress
from seglog.log.validator import AppendOrigin
from seglog.model import Compression
from tests.support.naive import NaiveRecord, message
from tests.support.twin_logs import START_MS, TwinLogs

TRANSACTIONAL, CONTROL = 0x10, 0x20
# name → (position, struct format): fields of a record batch that a step breaks
FIELDS = {
    "base_offset": (0, ">q"),
    "size": (8, ">i"),
    "leader_epoch": (12, ">i"),
    "magic": (16, ">b"),
    "crc": (17, ">I"),
    "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"),
    "base_timestamp": (27, ">q"),
    "max_timestamp": (35, ">q"),
    "producer_id": (43, ">q"),
    "producer_epoch": (51, ">h"),
    "base_sequence": (53, ">i"),
    "count": (57, ">i"),
}
_EDGES = (-(2**63), -(2**31), -2, -1, 0, 1, 2, 5, 127, 2**15 - 1, 2**31 - 1, 2**31, 2**32, 2**63 - 2, 2**63 - 1)


@dataclass(frozen=True)
class Step:
    """A method of TwinLogs and its arguments; `told` says it in a line."""

    told: str
    do: Callable[[TwinLogs], object] = field(repr=False)


@dataclass(frozen=True)
class Damage:
    """What befalls the newest `.log` files while the log is closed: `cut` bytes go at the end, one is turned over,
    `tail` is put after it.
    """

    back: int
    cut: int
    flip: int | None
    tail: bytes

    def __call__(self, directory: Path) -> None:
        logs = sorted(directory.glob("*.log"))
        path = logs[max(0, len(logs) - 1 - self.back)]
        data = bytearray(path.read_bytes())
        data = data[: max(0, len(data) - self.cut)]
        if self.flip is not None and data:
            data[self.flip % len(data)] ^= 1 << self.flip % 8
        path.write_bytes(bytes(data) + self.tail)


class Chance:
    """Draws configurations and steps."""

    def __init__(self, random: random.Random) -> None:
        self._random = random
        self._epochs: dict[int, int] = {}
        self._is_hostile = self._is_keyed = False

    def config(self) -> dict[str, Any]:
        """What a TwinLogs is made with. Compressors of other makes would make other bytes: none is asked for."""
        pick = self._random.choice
        topic = {
            "cleanup.policy": pick(["delete", "delete", "compact", "compact,delete"]),
            "compression.type": pick(["producer", "producer", "uncompressed"]),
            "max.compaction.lag.ms": pick([2**63 - 1, 2**63 - 1, 40, 100_000]),
            "message.timestamp.type": pick(["CreateTime", "CreateTime", "LogAppendTime"]),
            "message.timestamp.before.max.ms": pick([2**63 - 1, 2**63 - 1, 15, 0]),
            "message.timestamp.after.max.ms": pick([2**63 - 1, 2**63 - 1, 3_600_000, 5]),
        }
        self._is_keyed = topic["cleanup.policy"] != "delete" and self._random.random() < 0.8
        return {
            "topic": {key: str(value) for key, value in topic.items()},
            "producer_expiration_ms": pick([86_400_000, 86_400_000, 1000, 1]),
            "segment_bytes": pick([300, 700, 2000, 1 << 20]),
            "index_interval_bytes": pick([0, 80, 400, 4096]),
            "segment_index_bytes": pick([1 << 14, 1 << 14, 1 << 14, 60]),
            "max_message_bytes": pick([1 << 20, 1 << 20, 500]),
            "segment_ms": pick([604_800_000, 604_800_000, 50]),
        }

    def steps(self) -> int:
        return self._random.randrange(4, 40)

    def step(self, twins: TwinLogs) -> Step:
        kinds = [(self._append, 60), (self._truncate, 8), (self._small, 16), (self._reopen, 5), (self._kill, 6)]
        make = self._random.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]
        return make(twins)

    # --- appending ------------------------------------------------------------------------------------------

    def _append(self, twins: TwinLogs) -> Step:
        pick, end = self._random.choice, twins.log.log_end_offset
        origin = pick([AppendOrigin.CLIENT] * 3 + [AppendOrigin.REPLICATION] * 3 + [AppendOrigin.COORDINATOR])
        epoch = self._epoch(twins)
        count = pick([1, 1, 1, 2, 3]) if origin is AppendOrigin.REPLICATION or self._random.random() < 0.05 else 1
        data = b""
        told = []
        self._is_hostile = False
        self._epochs = {}  # of each producer: Kafka takes a call's batches of one producer together
        for _ in range(count):
            base = 0
            if origin is AppendOrigin.REPLICATION:
                base = end + pick([0, 0, 0, 0, 1, 7, 2**31 - 40, 2**31 + 5, -1, -3])
                base = max(0, base) if base < 2**62 else end
            own = epoch if self._random.random() < 0.8 else max(0, epoch + pick([-2, -1, 1]))
            batch, what, taken = self._batch(origin, base, own, twins, count == 1)
            told.append(what)
            data += batch
            end = base + taken
        if self._random.random() < 0.06:
            cut = self._random.randrange(1, len(data))
            data, told = data[:cut], [*told, f"cut to {cut}"]
            self._is_hostile = True
        if self._random.random() < 0.04:
            tail = self._random.randbytes(self._random.randrange(1, 80))
            data, told = data + tail, [*told, f"and {tail.hex()}"]
            self._is_hostile = True
        told_all = f"append as {origin.value}, epoch {epoch}: {', '.join(told)}"
        hostile = count > 1 or self._is_hostile
        return Step(told_all, lambda log: log.append(data, origin, epoch, hostile))

    def _epoch(self, twins: TwinLogs) -> int:
        latest = max(0, twins.log.leader_epochs.latest_epoch)
        return max(0, latest + self._random.choice([0, 0, 0, 0, 1, 1, 3, -1, -2]))

    def _batch(
        self, origin: AppendOrigin, base: int, epoch: int, twins: TwinLogs, alone: bool
    ) -> tuple[bytes, str, int]:
        """(bytes, what they are, offsets taken)."""
        chance = self._random.random()
        if chance < 0.12:
            return self._marker(origin, base, epoch)
        if chance < 0.2:
            return self._messages(base)
        count = self._random.choice([1, 1, 2, 3, 5])
        records = [self._record(i) for i in range(count)]
        attributes, producer = 0, (-1, -1, -1)
        if self._random.random() < 0.45:
            producer, attributes = self._producer(twins, count)
        codec = self._random.choice([0, 0, 0, 1, 3, 4])
        payload = b"".join(record.encode() for record in records)
        if codec:
            attributes |= codec
            payload = bytes(compress(Compression(codec), payload))
        if self._random.random() < 0.05:
            attributes |= self._random.choice([8, 0x20, 0x40])
            self._is_hostile = True
        stamp = self._stamp()
        newest = stamp + max(record.timestamp_delta for record in records)
        gap = self._random.choice([0, 0, 0, 0, 4]) if origin is AppendOrigin.REPLICATION else 0
        delta = records[-1].offset_delta + gap
        data = _v2(base, epoch, attributes, delta, stamp, newest, producer, count, payload)
        told = f"{count} records at {base} (+{delta}), epoch {epoch}, producer {producer}, attributes {attributes:#x}"
        if origin is not AppendOrigin.COORDINATOR and self._random.random() < 0.12:
            self._is_hostile = True
            data, what = self._broken(data, alone)
            told += what
        return data, told, delta + 1

    def _record(self, i: int) -> NaiveRecord:
        pick = self._random.choice
        headers = ((b"h", pick([None, b"x"])),) if self._random.random() < 0.2 else ()
        key = pick([b"", b"key"]) if self._is_keyed else pick([None, b"", b"key"])
        value = pick([None, b"", b"value", b"v" * self._random.randrange(0, 120)])
        return NaiveRecord(i, pick([0, 0, i, 5, -3]), key, value, headers)

    def _stamp(self) -> int:
        return START_MS + self._random.choice([0, 0, 1, 10, 60, -20, 1000, 10**9])

    def _producer(self, twins: TwinLogs, count: int) -> tuple[tuple[int, int, int], int]:
        producer_id = self._random.choice([1, 2, 2**40])
        known = twins.log.producers.producers.get(producer_id)
        epoch = max(0, known.epoch if known else 0) + self._random.choice([0, 0, 0, 0, 0, 1, -1])
        epoch = min(epoch, 2**15 - 1)
        epoch = self._epochs.setdefault(producer_id, epoch)
        following = 0
        if known is not None and known.epoch == epoch:
            following = (known.last_sequence + 1) & 0x7FFFFFFF
        other = [min(following + 1, 2**31 - 1), max(0, following - count), 0, 2**31 - 2, -1]
        sequence = self._random.choice([following] * 8 + other)
        in_transaction = known is not None and known.in_transaction
        transactional = in_transaction if self._random.random() < 0.9 else not in_transaction
        if not in_transaction and self._random.random() < 0.3:
            transactional = True
        return (producer_id, epoch, sequence), TRANSACTIONAL if transactional else 0

    def _marker(self, origin: AppendOrigin, base: int, epoch: int) -> tuple[bytes, str, int]:
        pick = self._random.choice
        key = struct.pack(">hh", 0, pick([0, 0, 1, 1, 1, 2, 9])) if self._random.random() < 0.95 else b"\0"
        value = struct.pack(">hi", 0, pick([0, 0, 1, 2])) if self._random.random() < 0.95 else b""
        producer_id, producer_epoch = pick([1, 2, 2**40]), pick([0, 0, 0, 1, 2])
        producer = (producer_id, self._epochs.setdefault(producer_id, producer_epoch), -1)
        stamp = self._stamp()
        payload = NaiveRecord(0, 0, key, value).encode()
        self._is_hostile |= len(key) < 4 or key[3] > 1 or not value
        count = 1 if self._random.random() < 0.95 else 0
        self._is_hostile |= not count
        data = _v2(
            base,
            epoch,
            TRANSACTIONAL | CONTROL,
            0,
            stamp,
            stamp,
            producer,
            count,
            payload if count else b"",
        )
        return data, f"marker {key.hex()} {value.hex()} at {base}, epoch {epoch}, producer {producer}", 1

    def _messages(self, base: int) -> tuple[bytes, str, int]:
        magic, count = self._random.choice([0, 1]), self._random.choice([1, 2, 3])
        stamp = self._stamp() if magic else -1
        entries = [message(base + i, magic, b"k", b"v" * i, timestamp=stamp) for i in range(count)]
        if self._random.random() < 0.4:
            inner = [message(i if magic else base + i, magic, b"k", b"v" * i, timestamp=stamp) for i in range(count)]
            packed = bytes(compress(Compression.GZIP, b"".join(inner)))
            entries = [message(base + count - 1, magic, None, packed, timestamp=stamp, attributes=1)]
        return b"".join(entries), f"{count} messages of magic {magic} at {base} in {len(entries)} entries", count

    def _broken(self, data: bytes, alone: bool) -> tuple[bytes, str]:
        names = [name for name in (*FIELDS, "bytes") if alone or not name.startswith("producer")]
        name = self._random.choice(names)
        buffer = bytearray(data)
        if name == "bytes":
            at = self._random.randrange(61, len(buffer)) if len(buffer) > 61 else 60
            buffer[at] ^= self._random.randrange(1, 256)
            told = f" with byte {at} wrong"
        else:
            position, form = FIELDS[name]
            size = struct.calcsize(form)
            before = int.from_bytes(buffer[position : position + size], "big")
            value = self._random.choice([*_EDGES, before ^ 1 << self._random.randrange(size * 8), before + 1])
            buffer[position : position + size] = (value % (1 << size * 8)).to_bytes(size, "big")
            told = f" with {name} {value}"
        if name != "crc" and self._random.random() < 0.75:
            buffer[17:21] = checksum.crc32c(bytes(buffer[21:])).to_bytes(4, "big")
            told += " under a right checksum"
        return bytes(buffer), told

    # --- everything else ------------------------------------------------------------------------------------

    def _offset(self, twins: TwinLogs) -> int:
        log, pick = twins.log, self._random.choice
        some = self._random.randint(log.log_start_offset, log.log_end_offset) if log.log_end_offset else 0
        base = pick([segment.base_offset for segment in log.segments])
        return pick([some, some, some, base, log.log_end_offset, log.log_end_offset + 3, log.log_start_offset - 1])

    def _truncate(self, twins: TwinLogs) -> Step:
        offset = self._offset(twins)
        if self._random.random() < 0.2:
            whole = max(0, offset)
            return Step(f"truncate_fully {whole}", lambda log: log.truncate_fully(whole))
        return Step(f"truncate_to {offset}", lambda log: log.truncate_to(offset))

    def _small(self, twins: TwinLogs) -> Step:
        offset, chance = self._offset(twins), self._random.randrange(7)
        if chance == 0:
            return Step("roll", lambda log: log.roll())
        if chance == 1:
            return Step("flush", lambda log: log.flush())
        if chance == 2:
            return Step(f"delete_records {offset}", lambda log: log.delete_records(offset))
        if chance == 3:
            return Step(f"high_watermark {offset}", lambda log: log.high_watermark(offset))
        if chance == 4:
            ms = self._random.choice([1, 30, 100, 10**7])
            return Step(f"wait {ms}", lambda log: log.wait(ms))
        age = self._random.choice([-1, -1, 0, 40, 10**6])
        size = self._random.choice([-1, 0, 300, 1000])
        return Step(f"retain {age} ms, {size} bytes", lambda log: log.retain(age, size))

    def _reopen(self, twins: TwinLogs) -> Step:
        return Step("reopen", lambda log: log.reopen())

    def _kill(self, twins: TwinLogs) -> Step:
        log, pick = twins.log, self._random.choice
        point = pick([0, log.recovery_point, log.log_end_offset, self._random.randint(0, log.log_end_offset)])
        damage = None
        if self._random.random() < 0.7:
            damage = Damage(
                pick([0, 0, 0, 1, 2]),
                pick([0, 0, 1, 30, 100]),
                pick([None, None, self._random.randrange(1 << 12)]),
                pick([b"", b"", bytes(40), self._random.randbytes(30)]),
            )
        return Step(f"kill, recover from {point}, {damage}", lambda log: log.kill(point, damage))


def _v2(
    base: int,
    epoch: int,
    attributes: int,
    delta: int,
    stamp: int,
    newest: int,
    producer: tuple[int, int, int],
    count: int,
    payload: bytes,
) -> bytes:
    covered = struct.pack(">hiqqqhii", attributes, delta, stamp, newest, *producer, count) + payload
    head = struct.pack(">qiibI", base, 9 + len(covered), epoch, 2, checksum.crc32c(covered))
    return head + covered
