"""Distributed reading, writing and cleaning with PySpark (extra `spark`).

`session()` gives a session in which `format("seglog")` is known; `configuration()` what it sets, and why.
"""

from seglog.spark.session import Setting, configuration, session

__all__ = ["Setting", "configuration", "session"]
