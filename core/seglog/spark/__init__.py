"""Distributed reading, writing and cleaning with PySpark (extra `spark`).

`session()` returns a session that knows `format("seglog")`; `configuration()` lists what it sets, and why. `clean` and
`verify` are the functions of one machine, spread over many tasks.
"""

from seglog.spark.library import clean, verify
from seglog.spark.session import Setting, configuration, session

__all__ = ["Setting", "clean", "configuration", "session", "verify"]
