"""The search of an erasure on Spark: each log in a task; the driver holds the locks, rewrites and swaps.

Searching reads everything, and rewriting only the segments with a hit: so the tasks read, and only the driver changes a
file. The plan, the report and the files are those of `seglog redact`. All executors must see the directories under the
same paths. Keys travel in the tasks' messages, and are in no plan that Spark shows or logs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from seglog.operations.redact import SearchAll, SearchResult, search_order
from seglog.redaction.finding import SearchOrder
from seglog.redaction.searching import Remembered
from seglog.storage.local import LocalFileSystem
from seglog_ask.spark.tasks import Watch, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def searching(spark: SparkSession, watch: Watch | None = None) -> SearchAll:
    """Returns a search of logs by tasks, for `operations.redact.redaction`."""
    return partial(_search_all, spark, watch)


def _search_all(
    spark: SparkSession, watch: Watch | None, orders: Sequence[SearchOrder], empty: Remembered
) -> list[SearchResult]:
    work = [(order, empty) for order in orders]
    return run_tasks(spark, work, _search_one, watch, sizes=[order.size for order in orders])


def _search_one(item: tuple[SearchOrder, Remembered]) -> SearchResult:
    order, empty = item
    return search_order(LocalFileSystem(), order, empty.fresh())
