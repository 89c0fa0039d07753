"""Whether there is so little to look at that compiled kernels cost more than they gain.

Loading compiled kernels takes some 0.3 s of processor time; without them a record takes 0.1 ms. So a command that
only looks runs kernels interpreted when its input is small, which must be known before the engine is imported:

1. SEGLOG_JIT, when it is set, has decided.
2. Every argument that names a file or directory is input, as is the cluster metadata beside a partition.
3. Together they are small, and every log in them is a row of sound, uncompressed batches of few records. Anything
   else is left to compiled kernels: what unpacking or damage may cost cannot be told beforehand.
"""

from __future__ import annotations

import os
import stat
import warnings
from collections.abc import Iterator, MutableMapping, Sequence
from pathlib import Path

JIT_VARIABLE = "SEGLOG_JIT"
LOOKING = ("ls", "read", "dump", "verify", "doctor", "txn", "dump-log", "config")

_MOST_BYTES = 256 << 10
_MOST_FILES = 64
_MOST_RECORDS = 2500
_CLUSTER_METADATA = "__cluster_metadata-0"

# Of a v2 batch, and as far as magic of every entry: byte positions and sizes (KIP-98).
_SIZE_AT, _OVERHEAD, _MAGIC_AT = 8, 12, 16
_ATTRIBUTES_AT, _COUNT_AT, _HEADER = 21, 57, 61
_CODEC_MASK = 7


def choose_kernels(arguments: Sequence[str], environment: MutableMapping[str, str]) -> None:
    """Sets SEGLOG_JIT to 0 in `environment` when the command line asks for little."""
    if JIT_VARIABLE in environment or not arguments or arguments[0] not in LOOKING:
        return
    if is_little(_inputs(arguments[1:])):
        environment[JIT_VARIABLE] = "0"
        warnings.simplefilter("ignore", RuntimeWarning)  # numbers of hostile batches wrap, as they do compiled


def is_little(paths: Iterator[Path]) -> bool:
    """Whether interpreted kernels are the quicker way through all of `paths` (files and directories)."""
    size = records = 0
    try:
        for number, (path, status) in enumerate(_files(paths)):
            size += status.st_size
            if not stat.S_ISREG(status.st_mode) or size > _MOST_BYTES or number >= _MOST_FILES:
                return False
            if ".index" in path.name or ".timeindex" in path.name:
                continue
            counted = _records(path.read_bytes()) if _is_log(path.name) else 0
            if counted is None or records + counted > _MOST_RECORDS:
                return False
            records += counted
    except OSError:
        return False
    return True


def _inputs(arguments: Sequence[str]) -> Iterator[Path]:
    for argument in arguments:
        for name in argument.rpartition("=")[2].split(","):
            path = Path(name)
            if name and "\0" not in name and os.path.lexists(path):
                yield path
                for beside in (path.absolute().parent, path.absolute().parent.parent):
                    if (beside / _CLUSTER_METADATA).is_dir():
                        yield beside / _CLUSTER_METADATA


def _files(paths: Iterator[Path], depth: int = 0) -> Iterator[tuple[Path, os.stat_result]]:
    for path in paths:
        status = path.stat()
        if not stat.S_ISDIR(status.st_mode):
            yield path, status
        elif depth < 2:
            yield from _files(path.iterdir(), depth + 1)


def _is_log(name: str) -> bool:
    return ".log" in name or ".kafka" in name or name.endswith(".checkpoint")


def _records(data: bytes) -> int | None:
    """How many records a log has; None unless it is nothing but whole, uncompressed batches of magic 2."""
    position = records = 0
    while position < len(data):
        header = data[position : position + _HEADER]
        size = int.from_bytes(header[_SIZE_AT:_OVERHEAD], "big", signed=True) + _OVERHEAD
        if len(header) < _HEADER or size < _HEADER or position + size > len(data):
            return None
        count = int.from_bytes(header[_COUNT_AT:_HEADER], "big", signed=True)
        if header[_MAGIC_AT] != 2 or header[_ATTRIBUTES_AT + 1] & _CODEC_MASK or count < 0:
            return None
        records += count
        position += size
    return records
