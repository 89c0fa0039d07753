"""Distributed reading, writing and cleaning with PySpark (extra `spark`).

`session()` gives a session in which `format("seglog")` is known; `configuration()` what it sets, and why. `clean` and
`verify` are those of one machine, over many tasks.
"""

from seglog.spark.library import clean, verify
from seglog.spark.session import Setting, configuration, session

__all__ = ["Setting", "clean", "configuration", "session", "verify"]
