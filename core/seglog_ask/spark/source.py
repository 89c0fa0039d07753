"""The data source `seglog` as PySpark sees it: thin classes over options, splits and views.

Three rules of PySpark 4.3 shape the reader. It is pickled before `partitions()`, so it only holds options, and a split
carries everything else. No splits become one partition without a value. `pushFilters` is not overridden, because the
pushed reader is cached with the DataFrame and later scans of it lose rows (tests/spark/test_push_filters.py).

A writer is pickled into every task, and another copy commits or aborts in a process of the driver. What both must know
comes with the tasks' messages. The message of a failed task is None.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)

from seglog.errors import SeglogError, UnsupportedError
from seglog_ask.spark.read_options import parse_read_options
from seglog_ask.table.plan.options import AS_THEY_ARE, ReadOptions
from seglog_ask.table.plan.schema import Column, Field, ddl, default_projection, projection_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from seglog_ask.spark.sinks import Sink
    from seglog_ask.spark.staged_journal import StagedFile
    from seglog_ask.table.values.spark_values import SparkValues

NAME = "seglog"


class SeglogReader(DataSourceReader):
    """Batch reader: plans on the driver, reads in the tasks."""

    def __init__(self, options: ReadOptions, projection: tuple[Field, ...], values: SparkValues | None = None) -> None:
        self.options, self.projection, self.values = options, projection, values

    def partitions(self) -> list[InputPartition]:
        from seglog_ask.table.plan.files import files_of
        from seglog_ask.table.plan.splits import plan_splits

        return [InputPartition(split) for split in plan_splits(files_of(self.options.store), self.options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from seglog_ask.spark.tasks import read_split

        return read_split(partition.value, self.projection, self.options, self.values)


@dataclass
class Staged(WriterCommitMessage):
    """The files that a task has staged, and their owner: the id of a job, or of a stream's query."""

    owner: str
    files: tuple[StagedFile, ...]


class SeglogWriter(DataSourceArrowWriter):
    """Batch writer. The one that commits is a copy of those in the tasks."""

    def __init__(self, sink: Sink) -> None:
        self.sink, self.owner = sink, uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return Staged(self.owner, self.sink.stage(self.owner, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.sink.commit(self.owner, _files(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 (PySpark's signature)
        self.sink.discard(self.owner)


class SeglogStreamWriter(DataSourceStreamArrowWriter):
    """Stream writer: commits every batch exactly once, over restarts too."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from seglog_ask.spark.tasks import query_id

        owner = query_id()
        if owner is None:
            raise UnsupportedError("this stream's batches have no query id: it is not a micro-batch stream")
        return Staged(owner, self.sink.stage(owner, iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        from seglog.storage.local import LocalFileSystem
        from seglog_ask.spark.sinks import checkpoint_entry
        from seglog_ask.spark.staged_journal import StreamBatch

        entry = checkpoint_entry(LocalFileSystem(), self.sink.options, batchId)
        for owner in _owners(messages):
            self.sink.commit(owner, _files(messages), StreamBatch(owner, batchId, entry))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002 (as above)
        for owner in _owners(messages):
            self.sink.discard(owner)


def _owners(messages: Sequence[WriterCommitMessage | None]) -> set[str]:
    """Returns the one query that the tasks ran for; empty if there was no task."""
    return {message.owner for message in messages if isinstance(message, Staged)}


def _files(messages: Sequence[WriterCommitMessage | None]) -> list[StagedFile]:
    return [file for message in messages if isinstance(message, Staged) for file in message.files]


def _is_about_columns(option: str) -> bool:
    return option in ("view", "columns", "includeheaders")


def _is_about_values(option: str) -> bool:
    """True unless the option is only for batches or only for streams, or limits them."""
    return not option.startswith(("starting", "ending", "max", "min"))


def _decoded(options: ReadOptions) -> tuple[SparkValues | None, tuple[Column, ...]]:
    """Returns how keys and values are decoded, and the columns that this makes."""
    if options.shown_as == AS_THEY_ARE:
        return None, ()
    from pyspark.sql.pandas.types import from_arrow_type

    from seglog_ask.table.values.spark_values import spark_values

    values = spark_values(options)
    if values is None:
        return None, ()
    fields = [output.field for output in values.outputs]
    return values, tuple(Column(field.name, from_arrow_type(field.type).simpleString()) for field in fields)


def _struct_of(projection: Sequence[Field], values: SparkValues) -> StructType:
    """Returns the projection as Spark's type: a DDL would not take every name of a field."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import from_arrow_schema

    from seglog_ask.table.values.columns import spark_outputs

    return from_arrow_schema(pa.schema([output.field for output in spark_outputs(projection, values.outputs)]))


class SeglogDataSource(DataSource):
    """`spark.read`, `readStream`, `df.write` and `writeStream` with `format("seglog")`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.options = options

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType | str:
        # Spark asks before it says whether the query streams, so parse only the options that decide the schema
        decodes = any(key.lower() in ("keyas", "valueas", "schemas", "schema") for key in self.options)
        decides = _is_about_values if decodes else _is_about_columns
        ours = {key: self.options[key] for key in self.options if decides(key.lower())}
        options = parse_read_options({"path": "-", **ours})
        values, columns = _decoded(options)
        projection = default_projection(options.view, options.columns, options.include_headers, columns)
        return ddl(projection) if values is None else _struct_of(projection, values)

    def reader(self, schema: StructType) -> SeglogReader:
        from seglog_ask.table.plan.files import sendable

        options = sendable(parse_read_options(self.options))
        values, columns = _decoded(options)
        return SeglogReader(options, projection_of(options.view, schema, columns), values)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return SeglogWriter(self._sink(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return SeglogStreamWriter(self._sink(schema, overwrite))

    def _sink(self, schema: StructType, overwrite: bool) -> Sink:
        from seglog.storage.routing import machine_files
        from seglog_ask.spark.sinks import sink_of
        from seglog_ask.spark.write_options import check_schema, parse_write_options

        options = parse_write_options(self.options, overwrite=overwrite)
        check_schema(schema, options)
        return sink_of(machine_files(), options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        if find_spec("pyspark.sql.streaming.datasource") is None:
            version = metadata.version("pyspark")
            raise UnsupportedError(
                f"a stream needs a later PySpark than {version}, which gives Python sources no read limits"
            )
        from seglog_ask.spark.stream import RefusedStreamReader, SeglogStreamReader
        from seglog_ask.table.plan.files import sendable

        try:
            options = sendable(parse_read_options(self.options, streaming=True))
            values, columns = _decoded(options)
            return SeglogStreamReader(options, projection_of(options.view, schema, columns), values)
        except SeglogError as error:
            return RefusedStreamReader(error)
