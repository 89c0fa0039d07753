"""Lets PySpark find `format("seglog")` by itself: it imports every top-level package called `pyspark_*`.

Nothing heavy is imported here: one such package that fails to import switches discovery off for all.
"""

from seglog.spark.source import SeglogDataSource as DefaultSource

__all__ = ["DefaultSource"]
