"""Lets PySpark discover `format("seglog")`: it imports every top-level package named `pyspark_*`.

Nothing heavy is imported here, because one such package that fails to import disables discovery for all of them.
"""

from seglog_ask.spark.source import SeglogDataSource as DefaultSource

__all__ = ["DefaultSource"]
