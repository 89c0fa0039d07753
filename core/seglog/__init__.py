"""seglog: Apache Kafka's log engine outside the broker.

>>> import tempfile, seglog
>>> directory = tempfile.TemporaryDirectory()
>>> with seglog.open_log(directory.name + "/clicks-0", create=True) as log:
...     info = log.append([seglog.Record(b"one", timestamp=1000), seglog.Record(b"two", timestamp=2000)])
...     log.flush()
...     columns = next(log.columns())
...     columns.rows["timestamp"].tolist()
...     for record in log.records(1):
...         print(record.offset, record.value)
[1000, 2000]
1 b'two'
>>> directory.cleanup()

The names in `__all__` are the public API. They are imported when first used, so that `import seglog` costs next to
nothing. Everything else may change.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seglog.api.cleaning import clean as clean
    from seglog.api.cleaning import plan_clean as plan_clean
    from seglog.api.cleaning import plan_retain as plan_retain
    from seglog.api.cleaning import retain as retain
    from seglog.api.creating import convert as convert
    from seglog.api.creating import plan_rebuild as plan_rebuild
    from seglog.api.creating import plan_restore as plan_restore
    from seglog.api.creating import rebuild as rebuild
    from seglog.api.creating import restore as restore
    from seglog.api.looking import diff as diff
    from seglog.api.looking import doctor as doctor
    from seglog.api.looking import explain as explain
    from seglog.api.looking import partitions as partitions
    from seglog.api.looking import stats as stats
    from seglog.api.looking import verify as verify
    from seglog.api.opening import open_log as open_log
    from seglog.api.repairing import plan_recover as plan_recover
    from seglog.api.repairing import plan_repair as plan_repair
    from seglog.api.repairing import plan_truncate as plan_truncate
    from seglog.api.repairing import recover as recover
    from seglog.api.repairing import repair as repair
    from seglog.api.repairing import truncate as truncate
    from seglog.api.repairing import undo as undo
    from seglog.configuration.keys import LogConfig as LogConfig
    from seglog.errors import AppendError as AppendError
    from seglog.errors import ConfigError as ConfigError
    from seglog.errors import CorruptionError as CorruptionError
    from seglog.errors import LockedError as LockedError
    from seglog.errors import NotALogError as NotALogError
    from seglog.errors import OffsetOutOfRangeError as OffsetOutOfRangeError
    from seglog.errors import RefusedError as RefusedError
    from seglog.errors import SeglogError as SeglogError
    from seglog.errors import UnsupportedError as UnsupportedError
    from seglog.format.builder import columns_of as columns_of
    from seglog.format.builder import columns_of_arrays as columns_of_arrays
    from seglog.format.columns import Records as Records
    from seglog.log.append import AppendInfo as AppendInfo
    from seglog.log.append import ProducerIdentity as ProducerIdentity
    from seglog.log.directory import LogDirectory as LogDirectory
    from seglog.log.loader import RecoveryReport as RecoveryReport
    from seglog.log.log import Log as Log
    from seglog.log.lookup import TimestampOffset as TimestampOffset
    from seglog.log.reader import FetchResult as FetchResult
    from seglog.log.transfer import MessageSetSend as MessageSetSend
    from seglog.log.transfer import MultiMessageSetSend as MultiMessageSetSend
    from seglog.look.inspect.diff import Difference as Difference
    from seglog.look.inspect.overview import PartitionOverview as PartitionOverview
    from seglog.model import Compression as Compression
    from seglog.model import Header as Header
    from seglog.model import Isolation as Isolation
    from seglog.model import Record as Record
    from seglog.model import TimestampType as TimestampType
    from seglog.model import TopicPartition as TopicPartition
    from seglog.operations.clean import Cleaned as Cleaned
    from seglog.operations.clean import CleaningFailure as CleaningFailure
    from seglog.operations.clean import Skipped as Skipped
    from seglog.operations.convert import Converted as Converted
    from seglog.operations.explain import Explanation as Explanation
    from seglog.operations.keeping import Truncated as Truncated
    from seglog.operations.repair import PlannedRepair as PlannedRepair
    from seglog.operations.repair import Repaired as Repaired
    from seglog.operations.retain import Freed as Freed
    from seglog.operations.retain import Retained as Retained
    from seglog.operations.retain import RetentionFailure as RetentionFailure
    from seglog.operations.stats import PartitionStatistics as PartitionStatistics
    from seglog.repairs.undo.journal import RunRecord as RunRecord
    from seglog.rescue.doctor.cases import Diagnosis as Diagnosis
    from seglog.verification.findings import Finding as Finding

__version__ = "0.1.0"

_MODULES = {
    "seglog.api.cleaning": ("clean", "plan_clean", "plan_retain", "retain"),
    "seglog.api.creating": ("convert", "plan_rebuild", "plan_restore", "rebuild", "restore"),
    "seglog.api.looking": ("diff", "doctor", "explain", "partitions", "stats", "verify"),
    "seglog.api.opening": ("open_log",),
    "seglog.api.repairing": (
        "plan_recover",
        "plan_repair",
        "plan_truncate",
        "recover",
        "repair",
        "truncate",
        "undo",
    ),
    "seglog.configuration.keys": ("LogConfig",),
    "seglog.errors": (
        "AppendError",
        "ConfigError",
        "CorruptionError",
        "LockedError",
        "NotALogError",
        "OffsetOutOfRangeError",
        "RefusedError",
        "SeglogError",
        "UnsupportedError",
    ),
    "seglog.verification.findings": ("Finding",),
    "seglog.format.builder": ("columns_of", "columns_of_arrays"),
    "seglog.format.columns": ("Records",),
    "seglog.look.inspect.diff": ("Difference",),
    "seglog.look.inspect.overview": ("PartitionOverview",),
    "seglog.log.append": ("AppendInfo", "ProducerIdentity"),
    "seglog.log.directory": ("LogDirectory",),
    "seglog.log.loader": ("RecoveryReport",),
    "seglog.log.log": ("Log",),
    "seglog.log.lookup": ("TimestampOffset",),
    "seglog.log.reader": ("FetchResult",),
    "seglog.log.transfer": ("MessageSetSend", "MultiMessageSetSend"),
    "seglog.model": ("Compression", "Header", "Isolation", "Record", "TimestampType", "TopicPartition"),
    "seglog.operations.clean": ("Cleaned", "CleaningFailure", "Skipped"),
    "seglog.operations.convert": ("Converted",),
    "seglog.operations.explain": ("Explanation",),
    "seglog.operations.keeping": ("Truncated",),
    "seglog.operations.repair": ("PlannedRepair", "Repaired"),
    "seglog.operations.retain": ("Freed", "Retained", "RetentionFailure"),
    "seglog.operations.stats": ("PartitionStatistics",),
    "seglog.rescue.doctor.cases": ("Diagnosis",),
    "seglog.repairs.undo.journal": ("RunRecord",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "AppendError",
    "AppendInfo",
    "Cleaned",
    "CleaningFailure",
    "Compression",
    "ConfigError",
    "Converted",
    "CorruptionError",
    "Diagnosis",
    "Difference",
    "Explanation",
    "FetchResult",
    "Finding",
    "Freed",
    "Header",
    "Isolation",
    "LockedError",
    "Log",
    "LogConfig",
    "LogDirectory",
    "MessageSetSend",
    "MultiMessageSetSend",
    "NotALogError",
    "OffsetOutOfRangeError",
    "PartitionOverview",
    "PartitionStatistics",
    "PlannedRepair",
    "ProducerIdentity",
    "Record",
    "Records",
    "RecoveryReport",
    "RefusedError",
    "Repaired",
    "Retained",
    "RetentionFailure",
    "RunRecord",
    "SeglogError",
    "Skipped",
    "TimestampOffset",
    "TimestampType",
    "TopicPartition",
    "Truncated",
    "UnsupportedError",
    "clean",
    "columns_of",
    "columns_of_arrays",
    "convert",
    "diff",
    "doctor",
    "explain",
    "open_log",
    "partitions",
    "plan_clean",
    "plan_rebuild",
    "plan_recover",
    "plan_repair",
    "plan_restore",
    "plan_retain",
    "plan_truncate",
    "rebuild",
    "recover",
    "repair",
    "restore",
    "retain",
    "stats",
    "truncate",
    "undo",
    "verify",
]


if not TYPE_CHECKING:  # with this function, type checkers would accept any name

    def __getattr__(name: str) -> object:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'seglog' has no attribute {name!r}")
        value = getattr(importlib.import_module(home), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
