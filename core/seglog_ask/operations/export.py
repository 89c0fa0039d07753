"""Finds the logs that an export reads, and the types of what it decodes (`seglog export`)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

from seglog.errors import UnsupportedError
from seglog.format.filenames import topic_partition_of
from seglog.model import TopicPartition
from seglog.scan.listing import Target, TargetKind, list_partition
from seglog.scan.selection import Selection
from seglog.scan.view import SingleFile
from seglog.storage import links
from seglog.storage.filesystem import FileSystem
from seglog.verification.readable_files import Source, sources
from seglog_ask.table.engines.export import ExportFormat, ExportOptions

Exported = tuple[TopicPartition, Iterator[Source]]


def exported_partitions(
    fs: FileSystem, targets: Sequence[Target], selection: Selection, *, limited: bool
) -> list[Exported]:
    """Returns the partitions that the targets name, and the logs of each, which are opened when their turn comes.

    Of these only what the selection may need is read; `limited`: its first records. Raises ValueError for a log
    directory, UnsupportedError for a log of Kafka 0.7.
    """

    def logs_of(target: Target) -> Iterator[Source]:
        files = sources(fs, target, selection=selection, limited=limited)
        return (file for file in files if isinstance(file, Source))

    partitions = []
    for target in targets:
        if target.kind is TargetKind.LOG_DIRECTORY:
            path = target.path
            raise ValueError(f"{path} is a log directory; name one of its partitions, or {path}/TOPIC")
        is_file = target.kind is TargetKind.FILE
        beside = SingleFile(fs, target.path).listing if is_file else list_partition(fs, target.path)
        if beside.format == "0.7":
            raise UnsupportedError("logs of Kafka 0.7 are not exported: their messages have no offsets of their own")
        partitions.append((topic_partition_of(links.resolve(target.directory)), logs_of(target)))
    return partitions


def with_types(options: ExportOptions, fs: FileSystem, targets: Sequence[Target]) -> ExportOptions:
    """Returns the options of an export of these partitions, with the columns that `sql` has for decoded keys and values
    if its format has types (extra `arrow`).

    Damage and what is missing are left to the export, which tells of them. Raises the errors of `find_partitions`.
    """
    values = options.values
    if values is None or options.format is not ExportFormat.PARQUET or not values.forms.by_schema:
        return options
    from seglog_ask.table.engines.opening import open_source
    from seglog_ask.table.values.planned_types import typed_columns

    logging.getLogger("seglog.table.options").addHandler(logging.NullHandler())  # the export itself warns
    source = open_source(fs, [target.path for target in targets], on_corrupt="skip")
    typed = typed_columns(values.forms, values.tally, source.fs, source.logs, source.options, for_sql=True)
    return replace(options, typed=typed)
