"""Erasing records, in CPU seconds: finding a key, and writing segments anew, beside a plain copy of them.

    python -m tests.benchmarks.redacting [RECORDS]

Goals (design/ask-and-see.md, section 4): the whole is at most 1.3 times finding and copying the touched segments, and
a thousand keys cost at most 1.2 times one key. The digests of each file before and after, which the report needs, are
measured apart: SHA-256 alone takes longer than a copy.
"""

from __future__ import annotations

import hashlib
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

import seglog
from seglog.configuration.keys import LogConfig
from seglog.redaction.applying import apply_found
from seglog.redaction.finding import FoundRecords, SearchOrder, find_records
from seglog.redaction.rewriting import Erasure
from seglog.scan.key_set import KeySet
from seglog.scan.selection import Selection
from seglog.storage.local import LocalFileSystem
from tests.support.open_logs import opened_log

FS, KEYS, AT_ONCE = LocalFileSystem(), 400_000, 20_000


def cpu_seconds(work: Callable[[], object], times: int = 3) -> float:
    """The least CPU seconds of this process."""
    best = float("inf")
    for _ in range(times):
        before = resource.getrusage(resource.RUSAGE_SELF)
        work()
        after = resource.getrusage(resource.RUSAGE_SELF)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best


def make_log(directory: Path, codec: str, records: int) -> None:
    """Random values of 100 bytes under keys by chance; the key `needle` five times."""
    chance = np.random.default_rng(1)
    needles = set(range(records // 10, records, records // 5))
    with seglog.open_log(directory, create=True, config={"segment.bytes": 100_000_000}) as log:
        for first in range(0, records, AT_ONCE):
            keys = chance.integers(0, KEYS, AT_ONCE).tolist()
            values = chance.bytes(60 * AT_ONCE)
            log.append(
                [
                    seglog.Record(
                        values[60 * i : 60 * i + 60] + b"x" * 40,
                        b"needle-000000" if first + i in needles else b"key-%09d" % key,
                        timestamp=1_700_000_000_000 + first + i,
                    )
                    for i, key in enumerate(keys)
                ],
                codec=codec,
            )


def measured(directory: Path, codec: str, records: int) -> None:
    """Prints the figures of one codec."""
    partition = directory / f"{codec}-0"
    make_log(partition, codec, records)

    def order(keys: list[bytes]) -> SearchOrder:
        return SearchOrder.of(log, Selection(keys=KeySet(keys)), Erasure())

    def find(keys: list[bytes]) -> FoundRecords:
        return find_records(FS, order(keys), lambda records, mask: None)

    def copy(found: FoundRecords) -> None:
        for segment in found.segments:
            shutil.copyfile(segment.path, directory / "copy")

    def digest(found: FoundRecords) -> None:
        for segment in found.segments:
            for _ in range(2):
                hashlib.sha256(segment.path.read_bytes()).hexdigest()

    needle, absent = b"needle-000000", [b"none-%08d" % i for i in range(999)]
    log = opened_log(partition, segment_bytes=LogConfig().segment_bytes)
    one, thousand = cpu_seconds(lambda: find([needle])), cpu_seconds(lambda: find([needle, *absent]))
    found = find([needle])
    copied, digested = cpu_seconds(lambda: copy(found)), cpu_seconds(lambda: digest(found))
    applied = cpu_seconds(lambda: apply_found(log, found, Erasure()), 1)
    log.close()
    whole, plain = one + applied, one + copied
    sys.stdout.write(
        f"{codec:>5}: find one key {one:.2f} s, a thousand {thousand:.2f} s ({thousand / one:.2f}, goal 1.2);"
        f" {len(found.segments)} of {len(order([needle]).segments)} segments: rewrite {applied:.2f}, copy {copied:.2f},"
        f" digests {digested:.2f}; whole {whole / plain:.2f} (goal 1.3), without digests"
        f" {(whole - digested) / plain:.2f}\n"
    )


def main(records: int) -> None:
    """Measures three codecs."""
    sys.stdout.write(f"{records} records; CPU seconds, best of 3\n")
    for codec in ("none", "lz4", "zstd"):
        with tempfile.TemporaryDirectory() as directory:
            measured(Path(directory), codec, records)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000)
