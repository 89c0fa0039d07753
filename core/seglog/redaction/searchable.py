"""Whether a search through a file's batches and bytes proves anything: what is packed or encoded hides its contents.

Three kinds of files hide nothing: logs of whole batches, plain text, and Kafka's indexes and snapshots, which have no
record. Whatever else is there is named, so that nobody takes a search for a proof: an archive or a packed copy, a
batch that lost a part of its bytes, text that stands for bytes.
"""

from __future__ import annotations

import codecs
import re
from pathlib import Path

from seglog.format.filenames import FileKind, FileState

_SIGNATURES = (
    (b"\x1f\x8b\x08", "gzip"),
    (b"\x1f\x9d", "compress"),
    (b"PK\x03\x04", "zip"),
    (b"PK\x05\x06", "zip"),
    (b"PK\x07\x08", "zip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"\x02\x21\x4c\x18", "lz4"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x5d\x00\x00", "lzma"),
    (b"7z\xbc\xaf\x27\x1c", "7z"),
    (b"Rar!\x1a\x07", "rar"),
    (b"LZIP", "lzip"),
    (b"\x89LZO\x00", "lzop"),
    (b"\xff\x06\x00\x00sNaPpY", "snappy"),
    (b"PAR1", "Parquet"),
    (b"ORC", "ORC"),
    (b"Obj\x01", "Avro"),
    (b"Salted__", "encrypted"),
    (b"age-encryption.org", "encrypted"),
)
_SKIPPED_ZSTD = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18")  # a frame that says nothing of what follows
_SUFFIXES: tuple[str, ...] = (
    ".gz",
    ".tgz",
    ".zip",
    ".zst",
    ".lz4",
    ".bz2",
    ".tbz",
    ".xz",
    ".txz",
    ".lzma",
    ".7z",
    ".rar",
    ".lz",
    ".lzo",
)
_SUFFIXES += (".sz", ".br", ".z", ".gpg", ".age", ".enc")
_ENCODED = re.compile(rb"[A-Za-z0-9+/]{60}")
_PLAIN = (
    FileKind.OFFSET_INDEX.value,
    FileKind.TIME_INDEX.value,
    FileKind.TRANSACTION_INDEX.value,
    FileKind.PRODUCER_SNAPSHOT.value,
)
_STATES = tuple(state.value for state in FileState if state.value)
_HEAD_BYTES = 32


class Contents:
    """Looks at the bytes of one file as they are read, from the first to the last."""

    def __init__(self, path: Path) -> None:
        self._name, self._head = path.name, b""
        self._decoder: codecs.IncrementalDecoder | None = codecs.getincrementaldecoder("utf-8")()
        self._is_encoded = self._any = False

    def take(self, data: bytes) -> None:
        """Takes the next bytes."""
        self._head += data[: _HEAD_BYTES - len(self._head)]
        self._any = self._any or any(data)
        if self._decoder is None:
            return
        self._is_encoded = self._is_encoded or _ENCODED.search(data) is not None
        try:
            self._decoder.decode(data)
        except UnicodeDecodeError:
            self._decoder = None
        else:
            self._decoder = None if b"\0" in data else self._decoder

    def packed(self) -> str:
        """Returns how the file is packed, by its first bytes or its name, "" if nothing shows that it is."""
        for signature, name in _SIGNATURES:
            if self._head.startswith(signature):
                return name
        if _SKIPPED_ZSTD.match(self._head):
            return "zstd"
        return next((end for end in _SUFFIXES if self._name.lower().endswith(end)), "")

    def hides(self) -> str:
        """Returns why a search through the bytes of a file without batches proves nothing, "" if it does."""
        if not self._any:
            return ""
        if how := self.packed():
            return f"it is packed ({how})"
        if self._decoder is not None:
            return "it has long words that look encoded, which are not decoded" if self._is_encoded else ""
        if self._plain_name().endswith(_PLAIN):
            return ""
        return "it is neither a log nor text, and may be packed"

    def _plain_name(self) -> str:
        name = self._name
        for state in _STATES:
            name = name.removesuffix(state)
        return name
