"""Functions that erase named records for good: what an erasure request asks for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, Unpack

from seglog.api.calling import public_verb
from seglog.arguments import described, flag, integer, mapping, one_of, several, within
from seglog.format.filenames import parse_topic_partition
from seglog.layout import INT32_MAX, INT64_MAX
from seglog.model import TopicPartition
from seglog.operations.redact import RedactionReport, RedactionRequest, redaction
from seglog.operations.workspace import (
    CommonArguments,
    Location,
    Sources,
    Workspace,
    local_paths_of,
    optional_path,
    paths_of,
    request_of,
    settings_of,
)
from seglog.redaction.selection import RecordsToErase
from seglog.scan.key_set import KeySet
from seglog.scan.listing import resolve_paths
from seglog.scan.offset_set import OffsetSet

Offsets = Mapping[TopicPartition | str, Iterable[int]]


class ErasureKeywords(TypedDict, total=False):
    """The keyword arguments that say what is erased: the fields of `Erasing`."""

    keys: Iterable[bytes] | None
    offsets: Offsets | None
    erase: str
    digest_keys: bool
    drop_headers: bool
    request: str
    verify: bool


class RedactionKeywords(ErasureKeywords, total=False):
    """The keyword arguments of `redact`: the fields of `_Redacted`."""

    fill: str
    replicas: int | None
    tiers_done: bool
    metadata_directory: Location | None


class RedactionArguments(RedactionKeywords, CommonArguments, total=False):
    """Those of `redact`, and those of every function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasing:
    """What to erase, as the caller said it. `request` is its name in the operator's books."""

    keys: Iterable[bytes] | None = None
    offsets: Offsets | None = None
    erase: str = "value"
    digest_keys: bool = False
    drop_headers: bool = False
    request: str = ""
    verify: bool = False

    def requested(
        self, *, dry_run: bool, zeros: bool = False, replicas: int | None = None, tiers_done: bool = False
    ) -> RedactionRequest:
        """Returns the request. Raises TypeError, ValueError."""
        return RedactionRequest.of(
            _selection(self.keys, self.offsets),
            whole_record=one_of("erase", self.erase, ("value", "record")) == "record",
            zeros=zeros,
            digest_keys=flag("digest_keys", self.digest_keys),
            drop_headers=flag("drop_headers", self.drop_headers),
            replicas=replicas,
            tiers_done=tiers_done,
            dry_run=dry_run,
            reference=self.request,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Redacted(Erasing):
    """What to erase from the logs at `paths`."""

    paths: tuple[Path, ...]
    fill: str = "null"
    replicas: int | None = None
    tiers_done: bool = False
    metadata_directory: Location | None = None

    def report(self, work: Workspace, *, dry_run: bool) -> RedactionReport:
        """Does it, or finds out what would be done. Raises TypeError, ValueError, and the errors of `redaction`."""
        asked = self.requested(
            zeros=one_of("fill", self.fill, ("null", "zeros")) == "zeros",
            replicas=None if self.replicas is None else within("replicas", self.replicas, 1, INT32_MAX),
            tiers_done=flag("tiers_done", self.tiers_done),
            dry_run=dry_run,
        )
        verify, targets = flag("verify", self.verify), resolve_paths(work.fs, self.paths)
        sources = Sources({}, metadata_directory=optional_path("metadata_directory", self.metadata_directory))
        with redaction(
            work.fs, targets, lambda path: settings_of(work, path, sources), work.clock, asked, os.environ
        ) as begun:
            if not dry_run:
                begun.apply()
            return begun.report(begun.search() if verify else None)


@public_verb(_Redacted)
def plan_redact(*paths: Location, **given: Unpack[RedactionArguments]) -> RedactionReport:
    """Returns what `redact` would do now. Takes the same arguments, takes no lock and changes nothing.

    With `verify` it also searches every file, and so shows where copies are now.

    The example of `redact` shows it.
    """
    named = tuple(paths_of(paths))
    work, keywords = request_of(given, RedactionKeywords, named)
    return _Redacted(paths=named, **keywords).report(work, dry_run=True)


@public_verb(_Redacted)
def redact(*paths: Location, **given: Unpack[RedactionArguments]) -> RedactionReport:
    """Erases the records with these `keys`, or at these `offsets` of each partition, from every segment, for good.

    `erase` is "value" or "record" (the whole of it); an erased value becomes null or, with `fill="zeros"`, as many zero
    bytes. `digest_keys` replaces the key by a digest whose secret is thrown away; `drop_headers` takes the headers.
    Offsets, timestamps, sequences, transactions and codecs stay, and all bytes of other batches. `replicas` is how many
    copies the cluster keeps, needed if its metadata is not at hand: each broker has its own. `tiers_done` says that
    copies in tiered storage are dealt with. `request` is a name for the report.

    There is no undo. With `verify` every file below the log directories is decompressed and searched afterwards, and
    `complete` of the report says whether nothing was found.

    Raises, before anything changes: LockedError, NotALogError, CorruptRecordError for damage in a log that must be
    searched, and RefusedError for what must not be rewritten.

    >>> import tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with seglog.open_log(directory + "/t-0", create=True) as log:
    ...         for key in (b"a", b"b"):
    ...             info = log.append([seglog.Record(b"secret", key=key, timestamp=1000)])
    ...     plan = seglog.plan_redact(directory + "/t-0", keys=[b"b"])
    ...     report = seglog.redact(directory + "/t-0", keys=[b"b"], verify=True)
    ...     with seglog.open_log(directory + "/t-0") as log:
    ...         plan.found[0].records, report.complete, [(record.key, record.value) for record in log.records()]
    (1, True, [(b'a', b'secret'), (b'b', None)])
    """
    named = tuple(local_paths_of(paths))
    work, keywords = request_of(given, RedactionKeywords, named)
    return _Redacted(paths=named, **keywords).report(work, dry_run=False)


def _selection(keys: Iterable[bytes] | None, offsets: Offsets | None) -> RecordsToErase:
    if (keys is None) == (offsets is None):
        raise TypeError("say which records: `keys` or `offsets`")
    if keys is not None:
        found = several("keys", keys, "an iterable of bytes")
        for key in found:
            if not isinstance(key, bytes):
                raise TypeError(f"keys must hold bytes, not {described(key)}")
        if not found:
            raise ValueError("keys: none is given")
        return RecordsToErase(KeySet(found))
    chosen = {}
    for name, numbers in mapping("offsets", offsets, "a mapping from partitions to offsets").items():
        key = name if isinstance(name, TopicPartition) else parse_topic_partition(str(name))
        if key is None:
            raise ValueError(f"offsets: {name!r} is not of the form topic-partition")
        listed = several("offsets", numbers, "a mapping from partitions to iterables of integers")
        chosen[key] = OffsetSet(within("offsets", integer("offsets", each), 0, INT64_MAX) for each in listed)
    return RecordsToErase(offsets={key: each for key, each in chosen.items() if len(each)})
