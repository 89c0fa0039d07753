"""The data source `seglog` as PySpark sees it: thin classes over options, splits and views.

Rules of PySpark 4.3 that shape it: the reader is pickled before `partitions()`, so it holds options alone and a
split carries everything else; no splits become one partition without a value. `pushFilters` is not overridden:
the pushed reader is cached with the DataFrame, and later scans of it lose rows (tests/spark/test_push_filters.py).
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from dataclasses import replace
from importlib import metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)

from seglog.errors import UnsupportedError
from seglog.remote.routing import machine_files
from seglog.spark.files import files_of, sent_along
from seglog.spark.options import ReadOptions, parse_read_options
from seglog.spark.schema import Field, ddl, default_projection, projection_of
from seglog.spark.worker import read_split

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from seglog.spark.stream_sink import Sink

NAME = "seglog"


class SeglogReader(DataSourceReader):
    """Batch reader: plans on the driver, reads in the tasks."""

    def __init__(self, options: ReadOptions, projection: tuple[Field, ...]) -> None:
        self.options, self.projection = options, projection

    def partitions(self) -> list[InputPartition]:
        from seglog.spark.splits import plan_splits

        return [InputPartition(split) for split in plan_splits(files_of(self.options.store), self.options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_split(partition, self.projection, self.options)


class SeglogDataSource(DataSource):
    """`spark.read`, `readStream`, `df.write` and `writeStream` with `format("seglog")`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.options = options

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        options = _relaxed(self.options)
        return ddl(default_projection(options.view, options.columns, options.include_headers))

    def reader(self, schema: StructType) -> SeglogReader:
        options = _sendable(parse_read_options(self.options))
        return SeglogReader(options, projection_of(options.view, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from seglog.spark.stream_sink import SeglogWriter

        return SeglogWriter(self._sink(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from seglog.spark.stream_sink import SeglogStreamWriter

        return SeglogStreamWriter(self._sink(schema, overwrite))

    def _sink(self, schema: StructType, overwrite: bool) -> Sink:
        from seglog.spark.object_sink import ObjectSink, is_prefix
        from seglog.spark.write_options import check_schema, parse_write_options
        from seglog.spark.writer import LocalSink, check_place

        options = parse_write_options(self.options, overwrite=overwrite)
        check_schema(schema, options)
        if is_prefix(machine_files(), options.path):
            return ObjectSink(replace(options, store=sent_along(options.store, [options.path])))
        check_place(machine_files(), options)
        return LocalSink(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        if find_spec("pyspark.sql.streaming.datasource") is None:
            version = metadata.version("pyspark")
            raise UnsupportedError(
                f"a stream needs a later PySpark than {version}, which gives Python's sources no limits"
            )
        from seglog.spark.stream import SeglogStreamReader

        options = _sendable(parse_read_options(self.options, streaming=True))
        return SeglogStreamReader(options, projection_of(options.view, schema))


def _sendable(options: ReadOptions) -> ReadOptions:
    """The options with all that tasks must know of object stores."""
    return replace(options, store=sent_along(options.store, options.paths))


def _relaxed(options: MutableMapping[str, str]) -> ReadOptions:
    """The options as far as they decide the schema: Spark asks before it says whether the query streams."""
    ours = {key: options[key] for key in options if key.lower() in ("view", "columns", "includeheaders")}
    return parse_read_options({"path": "-", **ours})
