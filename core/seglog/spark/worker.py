"""What a task of Spark's does first, and reading a split in one."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from seglog.spark.files import files_of
from seglog.spark.options import ReadOptions
from seglog.spark.schema import Field

if TYPE_CHECKING:
    import pyarrow as pa

_MANY_OBJECTS = 2000


def settle_worker() -> None:
    """At the beginning of a task: takes what was loaded before it out of the garbage collector's sight.

    PySpark's daemon collects after every task; with pyarrow and pandas loaded that is 50 ms a task, frozen it is 0.
    What a worker's first task loads (kernels, most of all) is frozen by its second one.
    """
    if len(gc.get_objects()) > _MANY_OBJECTS:  # those not frozen yet
        gc.collect()
        gc.freeze()


def read_split(
    partition: InputPartition, projection: tuple[Field, ...], options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """The rows of a partition made of a split; a partition without value has none."""
    from seglog.spark.views import split_batches

    settle_worker()
    if partition.value is not None:
        yield from split_batches(files_of(options.store), partition.value, projection, options)
