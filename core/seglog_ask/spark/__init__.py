"""Distributed reading, writing and cleaning with PySpark (extra `spark`), offered as `seglog.spark`."""
