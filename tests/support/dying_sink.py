"""`seglog` whose stream sink dies in the middle of a commit: its process ends, as it does when the driver is killed.

The option `diesAfter` names a function of `staged_append`. It dies once, in its second batch: then a file `died` lies
beside the checkpoint.
"""

from __future__ import annotations

import os
from pathlib import Path

from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from seglog_ask.spark import staged_append
from seglog_ask.spark.source import SeglogDataSource, SeglogStreamWriter


def die_after(function: str, met: Path) -> None:
    """Lets this process end after the first call of a function of `staged_append`."""
    real = getattr(staged_append, function)

    def dying(*arguments: object) -> None:
        real(*arguments)
        met.touch()
        os._exit(1)

    setattr(staged_append, function, dying)


class DyingStreamWriter(SeglogStreamWriter):
    """Dies once."""

    moment: str
    met: Path

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        if batchId > 0 and not self.met.exists():
            die_after(self.moment, self.met)
        super().commit(messages, batchId)


class DyingSource(SeglogDataSource):
    """Registered as `seglog_dying`."""

    @classmethod
    def name(cls) -> str:
        return "seglog_dying"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        moment = self.options.pop("diesAfter")
        writer = super().streamWriter(schema, overwrite)
        writer.__class__, writer.moment = DyingStreamWriter, moment  # type: ignore[attr-defined]
        writer.met = Path(self.options["checkpointLocation"]).parent / "died"  # type: ignore[attr-defined]
        return writer
