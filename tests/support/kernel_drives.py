"""The engine led through hostile logs, so that every kernel that it calls meets them.

Each drive is one way through the engine: the functions that commands call, over one log. What the engine says of the
log does not matter here (other tests look at that); it may refuse it with an error of its own, and with nothing else.
Buffers are made small beforehand, so that their ends are met often.

As a program (`python -m tests.support.kernel_drives`) it runs inputs FIRST to LAST and writes, before every kernel,
what it is about to do into the journal file, which its parent reads when it dies. It prints a line of JSON: calls and
compared calls by kernel, and which kernels the engine can call.
"""

from __future__ import annotations

import base64
import json
import random
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from google.protobuf import descriptor_pb2

from seglog.cleaner import chunks, offset_map, record_filter
from seglog.cleaner.cleaner import foresee_round
from seglog.cleaner.round import OFFSET, CleanerOptions, Strategy, StrategyKind, plan_round
from seglog.configuration.keys import LogConfig
from seglog.errors import SeglogError
from seglog.format import compression, decoder
from seglog.format.columns import Records
from seglog.kernels import hashing
from seglog.log.loader import LoadOptions
from seglog.log.log import Log
from seglog.log.read_loader import LogPlace
from seglog.look.dump import render_records, rendering
from seglog.look.dump.dump import DumpOptions, dump
from seglog.look.inspect.diff_view import ViewOptions, diff_view
from seglog.look.inspect.statistics import log_statistics
from seglog.look.kafka_dump_log.dump_log import DumpLogOptions, dump_log
from seglog.model import Compression, Record
from seglog.operations.convert import ConvertOptions, convert
from seglog.scan.key_set import KeySet
from seglog.scan.listing import Target, TargetKind, list_partition
from seglog.scan.selection import Selection
from seglog.storage.local import LocalFileSystem
from seglog.storage.overlay import OverlayFileSystem
from seglog.verification.verify import Level, Verification, VerifyOptions
from seglog_ask.table.values import columns, slotted, typed
from seglog_ask.values import avro_columns, protobuf_columns
from seglog_ask.values.schemas import Schema
from tests.support.broken.hostile_logs import hostile_log
from tests.support.guarded_kernels import Guard, guard_kernels
from tests.support.guarded_memory import Journal, Side
from tests.support.manual_clock import ManualClock

_NOW_MS = 1_800_000_000_000

_DISK = LocalFileSystem()

AVRO = Schema(
    "AVRO",
    """{"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "long"]}, {"name": "b", "type": [
    {"type": "record", "name": "S", "fields": [{"name": "x", "type": "string"}]}, "null"]}]}""",
)
_FIELDS = {4: 3, 6: 9, 7: 1, 12: 5, 13: 2, 14: 18}  # types by number
PROTOBUF = Schema(  # a descriptor, as no other process is to be started
    "PROTOBUF",
    base64.b64encode(
        descriptor_pb2.FileDescriptorProto(
            name="m.proto",
            message_type=[
                descriptor_pb2.DescriptorProto(
                    name="M",
                    field=[
                        descriptor_pb2.FieldDescriptorProto(name=f"f{number}", number=number, type=kind, label=1)
                        for number, kind in _FIELDS.items()
                    ],
                )
            ],
        ).SerializeToString()
    ).decode(),
)


@dataclass(frozen=True)
class Input:
    """One hostile log: its bytes, the same in the only segment of a partition, and chances that its number gives."""

    number: int
    data: np.ndarray
    log: Path
    chance: random.Random

    @property
    def partition(self) -> Path:
        return self.log.parent


Drive = Callable[[Input], object]


def decode(given: Input) -> list[Records]:
    """What every other drive does first, by itself: checksums, batches, records."""
    found = decoder.scan_batches(given.data, 0, len(given.data), 0)
    decoder.checksums(given.data, found.batches, 0)
    parts = list(
        decoder.decode_records(given.data, found.batches, 0, arena_bytes=given.chance.choice((1, 1 << 20, 1 << 20)))
    )
    for records in parts:
        for i in range(0, len(records), 5):
            records.record(i)
    return parts


def lines(given: Input) -> None:
    as_json, base64 = given.chance.random() < 0.7, given.chance.random() < 0.2
    for records in decode(given):
        for _ in render_records.render_records(records, "t-0", as_json=as_json, base64=base64):
            pass


def dumped(given: Input) -> None:
    chance = given.chance
    key = chance.choice((None, b"", b"\xff", b"key-1"))
    selection = Selection(keys=None if key is None else KeySet([key]))
    options = DumpOptions(
        chance.random() < 0.5, records=True, untrusted=True, base64=chance.random() < 0.2, selection=selection
    )
    for _ in dump(_DISK, [Target(given.log, TargetKind.FILE)], options):
        pass


def dumped_as_kafka_does(given: Input) -> None:
    chance = given.chance
    options = DumpLogOptions(
        deep_iteration=True,
        print_data_log=chance.random() < 0.8,
        skip_record_metadata=chance.random() < 0.2,
        untrusted=True,
    )
    for _ in dump_log(_DISK, [given.log], options):
        pass


def verified(given: Input) -> None:
    options = VerifyOptions(level=given.chance.choice(list(Level)), jobs=1)
    for _ in Verification(_DISK, [Target(given.partition, TargetKind.PARTITION)], options, ManualClock(_NOW_MS)):
        pass


def counted(given: Input) -> None:
    log_statistics(_DISK, list_partition(_DISK, given.partition))


def compared(given: Input) -> None:
    listing = list_partition(_DISK, given.partition)
    for _ in diff_view(_DISK, [listing, listing], ViewOptions()):
        pass


def as_arrow(given: Input) -> None:
    for records in decode(given):
        rows = records.rows
        columns.spans(records.arena, rows["key_position"], rows["key_size"])
        columns.spans(records.arena, rows["value_position"], rows["value_size"])
        columns.headers(records)
        _typed(records, given.chance.choice((0, 0, 0, 1, 5)))
        _as_keys_of_maps(records, given.chance.choice((1, 3, 20)))


def _as_keys_of_maps(records: Records, size: int) -> None:
    """The keys of records as those of maps of so many keys."""
    positions = records.rows["key_position"].astype(np.int64)
    sizes = np.maximum(records.rows["key_size"], 0)
    counts = np.full(len(sizes) // size, size, dtype=np.int64)
    seeds = np.arange(1, hashing.SEED_WORDS + 1, dtype=np.int64)
    for are_texts in (True, False):
        places = np.full(2 << size.bit_length(), -1, dtype=np.int64)
        marks = np.empty(len(counts), dtype=np.int8)
        slotted.value_slots.mark_twins(records.arena, counts, positions, sizes, are_texts, seeds, places, marks)


def _typed(records: Records, skipped: int) -> None:
    """Keys and values as those of schemas; most of them are none."""
    programs = avro_columns.described(AVRO, {}).program, protobuf_columns.described(PROTOBUF, {}, (0,)).program
    for side in ("key", "value"):
        positions, sizes = records.rows[f"{side}_position"], records.rows[f"{side}_size"]
        typed.value_slots.frame_ids(records.arena, positions, sizes, np.empty(len(sizes), dtype=np.int64))
        for program in programs:
            assert program is not None
            program.run(records.arena, positions, sizes, skipped)


def cleaned(given: Input) -> None:
    options = _cleaning(given)
    log = _opened(given, writable=False)
    foresee_round(log, plan_round(log, options, ManualClock(_NOW_MS)), ManualClock(_NOW_MS))


def cleaned_by_stages(given: Input) -> None:
    from seglog_ask.spark.cleaning_round import RoundSpec
    from seglog_ask.spark.cleaning_stages import index_group, merge_keys, rewrite_group
    from seglog_ask.spark.key_merge import MergeSpace
    from seglog_ask.spark.keys import object_blob

    log = _opened(given)
    fs = log.fs
    spec = RoundSpec.of(
        fs, plan_round(log, _cleaning(given), ManualClock(_NOW_MS)), str(given.partition / "staging"), bytes(32)
    )
    fs.make_directory(given.partition / "staging")
    to_reducers: list[list[bytes]] = [[], []]
    for number in range(spec.group_count):
        for target, blob in index_group(fs, spec.of_group(number), number, 2):
            to_reducers[target].append(blob)
    to_groups: list[list[bytes]] = [[object_blob(spec.of_group(number))] for number in range(spec.group_count)]
    for reducer, blobs in enumerate(to_reducers):
        for target, blob in merge_keys(spec.without_groups(), reducer, blobs, MergeSpace(fs, given.partition)):
            to_groups[target].append(blob)
    for blobs in to_groups:
        rewrite_group(fs, blobs, 0)


def _cleaning(given: Input) -> CleanerOptions:
    chance = given.chance
    offsets = decoder.scan_batches(given.data, 0, len(given.data), 0).batches["base_offset"].clip(0).tolist()
    strategy = chance.choice((OFFSET, Strategy(StrategyKind.TIMESTAMP), Strategy(StrategyKind.HEADER, "h")))
    return CleanerOptions(
        dedupe_buffer_bytes=chance.choice((72, 72, 1 << 16)),
        strategy=strategy,
        roll=True,
        expire=chance.random() < 0.3,
        first_dirty_offset=chance.choice((None, *offsets[1:])),
        chunk_bytes=chance.choice((64, 700, 1 << 20)),
        hash_mask=chance.choice((-1, -1, 0, 7)),
    )


def appended(given: Input) -> None:
    chance, log = (
        given.chance,
        _opened(given, empty=True, compression_type=given.chance.choice(("producer", "lz4", "zstd", "gzip"))),
    )
    data = given.data.tobytes()
    if chance.random() < 0.5:
        log.append_as_follower(data, 0)
    else:
        log.append_batches(data)


def written_anew(given: Input) -> None:
    """The records that can be read, as a producer would send them."""
    chance, log = given.chance, _opened(given, empty=True)
    for records in decode(given):
        if len(records):
            log.append(records, codec=chance.choice((None, Compression.LZ4, Compression.GZIP)))
            log.append([Record(record.value, record.key, headers=record.headers) for record in records])


def converted(given: Input) -> None:
    chance = given.chance
    magic = chance.choice((0, 1, 2))
    codecs = (None, Compression.NONE, Compression.LZ4, Compression.ZSTD) if magic == 2 else (None, Compression.LZ4)
    target = _opened(given, name="target-0")
    convert(_DISK, list_partition(_DISK, given.partition), target, ConvertOptions(magic, chance.choice(codecs)))


def decompressed_alone(given: Input) -> None:
    """Payloads by the ways that runs of batches do not take."""
    found = decoder.scan_batches(given.data, 0, len(given.data), 0)
    for row in found.batches:
        piece = given.data[int(row["position"]) + 61 : int(row["position"]) + int(row["size"])]
        codec = given.chance.choice((1, 2, 3, 4, int(row["attributes"]) & 7))
        with suppress(compression.DecompressionError):
            compression.decompress(codec, piece, magic=int(row["magic"]), limit=given.chance.choice((1, 90, 1 << 16)))


# Of each input one, by its number: every other way through the engine begins with what `decode` does.
_OTHERS = (
    *(lines, dumped, as_arrow, cleaned, lines, dumped_as_kafka_does, cleaned_by_stages, decompressed_alone),
    *(cleaned, verified, cleaned_by_stages, counted, lines, compared, appended, cleaned, written_anew, converted),
)
_DECODED = 6  # inputs that are decoded and no more, between others
DRIVES: Sequence[Drive] = tuple(way for other in _OTHERS for way in (*[decode] * _DECODED, other))


def _opened(given: Input, *, empty: bool = False, name: str = "", writable: bool = True, **config: object) -> Log:
    """The input's log, or one without records, for this drive alone: nothing of it reaches the disk."""
    fs = OverlayFileSystem(_DISK)
    directory = given.partition.with_name(name or "empty-0") if empty or name else given.partition
    if empty or name:
        fs.make_directory(directory)
    settings = LogConfig(**{"cleanup_policy": frozenset({"compact"}), **config})  # type: ignore[arg-type]
    options, clock = LoadOptions(clean_shutdown=False, writable=writable), ManualClock(_NOW_MS)
    if writable:
        return Log.open(directory, settings, fs=fs, clock=clock, options=options)
    return Log.open_for_reading(LogPlace(fs, directory, clock, 0, lambda: options), settings)


# --- small buffers --------------------------------------------------------------------------------------------

_SMALLER: tuple[tuple[object, str, int], ...] = (
    (rendering, "BLOCK_BYTES", 1200),
    (render_records, "_BLOCK_BYTES", 1200),
    (chunks, "_ARENA_BYTES", 900),
    (offset_map, "_ROWS", 5),
    (offset_map, "_KEY_BYTES", 40),
    (record_filter, "_SLACK_BYTES", 0),
    (offset_map, "KEY_STORE_BYTES", 256),
    (offset_map, "_FIRST_SLOTS", 8),
)


def make_buffers_small() -> None:
    """For this process: the engine's buffers begin as small as they can be."""
    for module, name, size in _SMALLER:
        assert isinstance(getattr(module, name), int), name
        setattr(module, name, size)


# --- running --------------------------------------------------------------------------------------------------


def drive(given: Input, which: Drive) -> None:
    """One drive over one input: it may end with an error of the engine's own, and with no other."""
    with suppress(SeglogError, ValueError):  # ValueError: convert, an unknown codec
        which(given)


def run(first: int, last: int, directory: Path, guard: Guard, journal: Journal) -> None:
    """Inputs `first` to `last` (exclusive), each through one drive; the side of the guard page alternates."""
    partition = directory / "t-0"
    partition.mkdir(parents=True, exist_ok=True)
    log = partition / f"{0:020d}.log"
    for number in range(first, last):
        data = hostile_log(number)
        log.write_bytes(data)
        which = DRIVES[number % len(DRIVES)]
        guard.side = Side.AFTER if number // len(DRIVES) % 3 else Side.BEFORE
        journal.prefix = f"input {number}, drive {which.__name__}, guard {guard.side.value}, kernel "
        journal("none yet")
        array = np.frombuffer(data, dtype=np.uint8)
        drive(Input(number, array, log, random.Random(f"drive {number}")), which)


def main(arguments: Sequence[str]) -> None:
    first, last, twin_every, directory, journal_path = arguments
    make_buffers_small()
    journal = Journal(Path(journal_path))
    guard = Guard(twin_every=int(twin_every), journal=journal)
    hostile_log(0)  # the seeds are read before anything is guarded
    with guard_kernels(guard) as callable_kernels:
        try:
            run(int(first), int(last), Path(directory), guard, journal)
        except BaseException:
            print(journal.prefix, file=sys.stderr)  # noqa: T201
            raise
    told = {"calls": guard.calls, "twins": guard.twins, "callable": sorted(callable_kernels)}
    print(json.dumps(told))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
