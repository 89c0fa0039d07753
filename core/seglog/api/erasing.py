"""Functions that erase named records for good: what an erasure request asks for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Unpack

import numpy as np

from seglog.api.calling import public
from seglog.arguments import described, flag, integer, mapping, one_of, several, within
from seglog.format.filenames import parse_topic_partition
from seglog.layout import INT32_MAX, INT64_MAX
from seglog.model import TopicPartition
from seglog.operations.redact import RedactionReport, RedactionRequest, redaction
from seglog.operations.workspace import (
    CommonArguments,
    Location,
    Sources,
    local_paths_of,
    optional_path,
    settings_of,
    targets_of,
    workspace_of,
)
from seglog.redaction.selection import KeySet, Selection

Offsets = Mapping[TopicPartition | str, Iterable[int]]


@public
def plan_redact(
    *paths: Location,
    keys: Iterable[bytes] | None = None,
    offsets: Offsets | None = None,
    erase: str = "value",
    fill: str = "null",
    digest_keys: bool = False,
    drop_headers: bool = False,
    replicas: int | None = None,
    tiers_done: bool = False,
    request: str = "",
    verify: bool = False,
    metadata_directory: Location | None = None,
    **common: Unpack[CommonArguments],
) -> RedactionReport:
    """Returns what `redact` would do now. Takes the same arguments, takes no lock and changes nothing.

    With `verify` it also searches every file, and so shows where copies are now.

    >>> import tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with seglog.open_log(directory + "/t-0", create=True) as log:
    ...         for key in (b"a", b"b"):
    ...             info = log.append([seglog.Record(b"secret", key=key, timestamp=1000)])
    ...     plan = seglog.plan_redact(directory + "/t-0", keys=[b"b"])
    ...     [(found.records, len(found.segments)) for found in plan.found]
    [(1, 1)]
    """
    asked = _request(keys, offsets, erase, fill, digest_keys, drop_headers, replicas, tiers_done, request, dry_run=True)
    return _redacted(asked, paths, verify, metadata_directory, common)


@public
def redact(
    *paths: Location,
    keys: Iterable[bytes] | None = None,
    offsets: Offsets | None = None,
    erase: str = "value",
    fill: str = "null",
    digest_keys: bool = False,
    drop_headers: bool = False,
    replicas: int | None = None,
    tiers_done: bool = False,
    request: str = "",
    verify: bool = False,
    metadata_directory: Location | None = None,
    **common: Unpack[CommonArguments],
) -> RedactionReport:
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
    ...     report = seglog.redact(directory + "/t-0", keys=[b"b"], verify=True)
    ...     with seglog.open_log(directory + "/t-0") as log:
    ...         report.complete, [(record.key, record.value) for record in log.records()]
    (True, [(b'a', b'secret'), (b'b', None)])
    """
    asked = _request(
        keys, offsets, erase, fill, digest_keys, drop_headers, replicas, tiers_done, request, dry_run=False
    )
    return _redacted(asked, local_paths_of(paths), verify, metadata_directory, common)


def _request(
    keys: Iterable[bytes] | None,
    offsets: Offsets | None,
    erase: str,
    fill: str,
    digest_keys: bool,
    drop_headers: bool,
    replicas: int | None,
    tiers_done: bool,
    reference: str,
    *,
    dry_run: bool,
) -> RedactionRequest:
    return RedactionRequest.of(
        _selection(keys, offsets),
        whole_record=one_of("erase", erase, ("value", "record")) == "record",
        zeros=one_of("fill", fill, ("null", "zeros")) == "zeros",
        digest_keys=flag("digest_keys", digest_keys),
        drop_headers=flag("drop_headers", drop_headers),
        replicas=None if replicas is None else within("replicas", replicas, 1, INT32_MAX),
        tiers_done=flag("tiers_done", tiers_done),
        dry_run=dry_run,
        reference=reference,
    )


def _selection(keys: Iterable[bytes] | None, offsets: Offsets | None) -> Selection:
    if (keys is None) == (offsets is None):
        raise TypeError("say which records: `keys` or `offsets`")
    if keys is not None:
        found = several("keys", keys, "an iterable of bytes")
        for key in found:
            if not isinstance(key, bytes):
                raise TypeError(f"keys holds bytes, not {described(key)}")
        if not found:
            raise ValueError("keys: there is none")
        return Selection(KeySet(found))
    chosen = {}
    for name, numbers in mapping("offsets", offsets, "a mapping from partitions to offsets").items():
        key = name if isinstance(name, TopicPartition) else parse_topic_partition(str(name))
        if key is None:
            raise ValueError(f"offsets: {name!r} is not of the form topic-partition")
        listed = several("offsets", numbers, "a mapping from partitions to iterables of integers")
        chosen[key] = np.unique([within("offsets", integer("offsets", each), 0, INT64_MAX) for each in listed])
    return Selection(offsets={key: each.astype(np.int64) for key, each in chosen.items() if len(each)})


def _redacted(
    asked: RedactionRequest,
    paths: Iterable[Location],
    verify: bool,
    metadata_directory: Location | None,
    common: CommonArguments,
) -> RedactionReport:
    work = workspace_of(common)
    targets = targets_of(work, list(paths))
    sources = Sources({}, metadata_directory=optional_path("metadata_directory", metadata_directory))
    with redaction(
        work.fs, targets, lambda path: settings_of(work, path, sources), work.clock, asked, os.environ
    ) as begun:
        if not asked.dry_run:
            begun.apply()
        return begun.report(begun.search() if flag("verify", verify) else None)
