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
    from seglog.api.calling import Results as Results
    from seglog.api.cleaning import clean as clean
    from seglog.api.cleaning import plan_clean as plan_clean
    from seglog.api.cleaning import plan_retain as plan_retain
    from seglog.api.cleaning import retain as retain
    from seglog.api.creating import convert as convert
    from seglog.api.creating import plan_rebuild as plan_rebuild
    from seglog.api.creating import plan_restore as plan_restore
    from seglog.api.creating import rebuild as rebuild
    from seglog.api.creating import restore as restore
    from seglog.api.erasing import plan_redact as plan_redact
    from seglog.api.erasing import redact as redact
    from seglog.api.looking import diff as diff
    from seglog.api.looking import doctor as doctor
    from seglog.api.looking import explain as explain
    from seglog.api.looking import partitions as partitions
    from seglog.api.looking import stats as stats
    from seglog.api.looking import verify as verify
    from seglog.api.opening import open_log as open_log
    from seglog.api.repairing import plan_recover as plan_recover
    from seglog.api.repairing import plan_reindex as plan_reindex
    from seglog.api.repairing import plan_repair as plan_repair
    from seglog.api.repairing import plan_truncate as plan_truncate
    from seglog.api.repairing import recover as recover
    from seglog.api.repairing import reindex as reindex
    from seglog.api.repairing import repair as repair
    from seglog.api.repairing import truncate as truncate
    from seglog.api.repairing import undo as undo
    from seglog.api.rescuing import export as export
    from seglog.api.rescuing import fetch as fetch
    from seglog.api.rescuing import plan_transplant as plan_transplant
    from seglog.api.rescuing import salvage as salvage
    from seglog.api.rescuing import transplant as transplant
    from seglog.api.surveying import groups as groups
    from seglog.api.surveying import metadata as metadata
    from seglog.api.surveying import metadata_differences as metadata_differences
    from seglog.api.surveying import report as report
    from seglog.api.surveying import schemas as schemas
    from seglog.api.surveying import settings as settings
    from seglog.api.surveying import tier_contents as tier_contents
    from seglog.api.surveying import transactions as transactions
    from seglog.api.tables import append_table as append_table
    from seglog.api.tables import open_table as open_table
    from seglog.configuration.keys import LogConfig as LogConfig
    from seglog.configuration.precedence import ResolvedConfig as ResolvedConfig
    from seglog.errors import AppendCutShortError as AppendCutShortError
    from seglog.errors import AppendError as AppendError
    from seglog.errors import ArgumentError as ArgumentError
    from seglog.errors import ConfigError as ConfigError
    from seglog.errors import CorruptCheckpointError as CorruptCheckpointError
    from seglog.errors import CorruptIndexError as CorruptIndexError
    from seglog.errors import CorruptionError as CorruptionError
    from seglog.errors import CorruptRecordError as CorruptRecordError
    from seglog.errors import CorruptSnapshotError as CorruptSnapshotError
    from seglog.errors import CorruptTierError as CorruptTierError
    from seglog.errors import IncompleteError as IncompleteError
    from seglog.errors import InputError as InputError
    from seglog.errors import InvalidRecordError as InvalidRecordError
    from seglog.errors import InvalidTimestampError as InvalidTimestampError
    from seglog.errors import InvalidTransactionStateError as InvalidTransactionStateError
    from seglog.errors import LockedError as LockedError
    from seglog.errors import NotALogError as NotALogError
    from seglog.errors import Obstacles as Obstacles
    from seglog.errors import OffsetOutOfRangeError as OffsetOutOfRangeError
    from seglog.errors import OffsetsOutOfOrderError as OffsetsOutOfOrderError
    from seglog.errors import OutOfOrderSequenceError as OutOfOrderSequenceError
    from seglog.errors import ProducerFencedError as ProducerFencedError
    from seglog.errors import RecordBatchTooLargeError as RecordBatchTooLargeError
    from seglog.errors import RecordTooLargeError as RecordTooLargeError
    from seglog.errors import RefusedError as RefusedError
    from seglog.errors import SeglogError as SeglogError
    from seglog.errors import SegmentOffsetOverflowError as SegmentOffsetOverflowError
    from seglog.errors import UnexpectedAppendOffsetError as UnexpectedAppendOffsetError
    from seglog.errors import UnsupportedError as UnsupportedError
    from seglog.errors import UntrustedLinkError as UntrustedLinkError
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
    from seglog.look.inspect.metadata_image import MetadataImage as MetadataImage
    from seglog.look.inspect.overview import PartitionOverview as PartitionOverview
    from seglog.look.report.figures import Report as Report
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
    from seglog.operations.fetch import Fetched as Fetched
    from seglog.operations.free_space import Freed as Freed
    from seglog.operations.groups import Group as Group
    from seglog.operations.groups import GroupsReport as GroupsReport
    from seglog.operations.keeping import Truncated as Truncated
    from seglog.operations.redact import RedactionReport as RedactionReport
    from seglog.operations.repair import PlannedRepair as PlannedRepair
    from seglog.operations.repair import Repaired as Repaired
    from seglog.operations.restore import RestorePlan as RestorePlan
    from seglog.operations.retain import Retained as Retained
    from seglog.operations.retain import RetentionFailure as RetentionFailure
    from seglog.operations.stats import PartitionStatistics as PartitionStatistics
    from seglog.repairs.undo.journal import RunRecord as RunRecord
    from seglog.rescue.doctor.cases import Diagnosis as Diagnosis
    from seglog.rescue.doctor.doctor import Doctor as Doctor
    from seglog.rescue.doctor.doctor import DoctorSummary as DoctorSummary
    from seglog.rescue.rebuild.plan import RebuildPlan as RebuildPlan
    from seglog.rescue.salvage.salvage import SalvageReport as SalvageReport
    from seglog.rescue.transplant.apply import TransplantOutcome as TransplantOutcome
    from seglog.rescue.transplant.plan import TransplantPlan as TransplantPlan
    from seglog.tiers.survey import Surveyed as Surveyed
    from seglog.values.schemas import Reference as Reference
    from seglog.values.schemas import Schema as Schema
    from seglog.verification.findings import Finding as Finding
    from seglog.verification.transactions import Transaction as Transaction
    from seglog.verification.verify import Verification as Verification
    from seglog.verification.verify import VerifySummary as VerifySummary

__version__ = "0.1.0"

_MODULES = {
    "seglog.api.calling": ("Results",),
    "seglog.api.cleaning": (
        "clean",
        "plan_clean",
        "plan_retain",
        "retain",
    ),
    "seglog.api.creating": (
        "convert",
        "plan_rebuild",
        "plan_restore",
        "rebuild",
        "restore",
    ),
    "seglog.api.erasing": (
        "plan_redact",
        "redact",
    ),
    "seglog.api.looking": (
        "diff",
        "doctor",
        "explain",
        "partitions",
        "stats",
        "verify",
    ),
    "seglog.api.opening": ("open_log",),
    "seglog.api.repairing": (
        "plan_recover",
        "plan_reindex",
        "plan_repair",
        "plan_truncate",
        "recover",
        "reindex",
        "repair",
        "truncate",
        "undo",
    ),
    "seglog.api.rescuing": (
        "export",
        "fetch",
        "plan_transplant",
        "salvage",
        "transplant",
    ),
    "seglog.api.surveying": (
        "groups",
        "metadata",
        "metadata_differences",
        "report",
        "schemas",
        "settings",
        "tier_contents",
        "transactions",
    ),
    "seglog.api.tables": (
        "append_table",
        "open_table",
    ),
    "seglog.configuration.keys": ("LogConfig",),
    "seglog.configuration.precedence": ("ResolvedConfig",),
    "seglog.errors": (
        "AppendCutShortError",
        "AppendError",
        "ArgumentError",
        "ConfigError",
        "CorruptCheckpointError",
        "CorruptIndexError",
        "CorruptRecordError",
        "CorruptSnapshotError",
        "CorruptTierError",
        "CorruptionError",
        "IncompleteError",
        "InputError",
        "InvalidRecordError",
        "InvalidTimestampError",
        "InvalidTransactionStateError",
        "LockedError",
        "NotALogError",
        "Obstacles",
        "OffsetOutOfRangeError",
        "OffsetsOutOfOrderError",
        "OutOfOrderSequenceError",
        "ProducerFencedError",
        "RecordBatchTooLargeError",
        "RecordTooLargeError",
        "RefusedError",
        "SeglogError",
        "SegmentOffsetOverflowError",
        "UnexpectedAppendOffsetError",
        "UnsupportedError",
        "UntrustedLinkError",
    ),
    "seglog.format.builder": (
        "columns_of",
        "columns_of_arrays",
    ),
    "seglog.format.columns": ("Records",),
    "seglog.log.append": (
        "AppendInfo",
        "ProducerIdentity",
    ),
    "seglog.log.directory": ("LogDirectory",),
    "seglog.log.loader": ("RecoveryReport",),
    "seglog.log.log": ("Log",),
    "seglog.log.lookup": ("TimestampOffset",),
    "seglog.log.reader": ("FetchResult",),
    "seglog.log.transfer": (
        "MessageSetSend",
        "MultiMessageSetSend",
    ),
    "seglog.look.inspect.diff": ("Difference",),
    "seglog.look.inspect.metadata_image": ("MetadataImage",),
    "seglog.look.inspect.overview": ("PartitionOverview",),
    "seglog.look.report.figures": ("Report",),
    "seglog.model": (
        "Compression",
        "Header",
        "Isolation",
        "Record",
        "TimestampType",
        "TopicPartition",
    ),
    "seglog.operations.clean": (
        "Cleaned",
        "CleaningFailure",
        "Skipped",
    ),
    "seglog.operations.convert": ("Converted",),
    "seglog.operations.explain": ("Explanation",),
    "seglog.operations.fetch": ("Fetched",),
    "seglog.operations.groups": (
        "Group",
        "GroupsReport",
    ),
    "seglog.operations.keeping": ("Truncated",),
    "seglog.operations.redact": ("RedactionReport",),
    "seglog.operations.repair": (
        "PlannedRepair",
        "Repaired",
    ),
    "seglog.operations.restore": ("RestorePlan",),
    "seglog.operations.free_space": ("Freed",),
    "seglog.operations.retain": (
        "Retained",
        "RetentionFailure",
    ),
    "seglog.operations.stats": ("PartitionStatistics",),
    "seglog.repairs.undo.journal": ("RunRecord",),
    "seglog.rescue.doctor.cases": ("Diagnosis",),
    "seglog.rescue.doctor.doctor": (
        "Doctor",
        "DoctorSummary",
    ),
    "seglog.rescue.rebuild.plan": ("RebuildPlan",),
    "seglog.rescue.salvage.salvage": ("SalvageReport",),
    "seglog.rescue.transplant.apply": ("TransplantOutcome",),
    "seglog.rescue.transplant.plan": ("TransplantPlan",),
    "seglog.tiers.survey": ("Surveyed",),
    "seglog.values.schemas": (
        "Reference",
        "Schema",
    ),
    "seglog.verification.findings": ("Finding",),
    "seglog.verification.transactions": ("Transaction",),
    "seglog.verification.verify": (
        "Verification",
        "VerifySummary",
    ),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "AppendCutShortError",
    "AppendError",
    "AppendInfo",
    "ArgumentError",
    "Cleaned",
    "CleaningFailure",
    "Compression",
    "ConfigError",
    "Converted",
    "CorruptCheckpointError",
    "CorruptIndexError",
    "CorruptRecordError",
    "CorruptSnapshotError",
    "CorruptTierError",
    "CorruptionError",
    "Diagnosis",
    "Difference",
    "Doctor",
    "DoctorSummary",
    "Explanation",
    "FetchResult",
    "Fetched",
    "Finding",
    "Freed",
    "Group",
    "GroupsReport",
    "Header",
    "IncompleteError",
    "InputError",
    "InvalidRecordError",
    "InvalidTimestampError",
    "InvalidTransactionStateError",
    "Isolation",
    "LockedError",
    "Log",
    "LogConfig",
    "LogDirectory",
    "MessageSetSend",
    "MetadataImage",
    "MultiMessageSetSend",
    "NotALogError",
    "Obstacles",
    "OffsetOutOfRangeError",
    "OffsetsOutOfOrderError",
    "OutOfOrderSequenceError",
    "PartitionOverview",
    "PartitionStatistics",
    "PlannedRepair",
    "ProducerFencedError",
    "ProducerIdentity",
    "RebuildPlan",
    "Record",
    "RecordBatchTooLargeError",
    "RecordTooLargeError",
    "Records",
    "RecoveryReport",
    "RedactionReport",
    "Reference",
    "RefusedError",
    "Repaired",
    "Report",
    "ResolvedConfig",
    "RestorePlan",
    "Results",
    "Retained",
    "RetentionFailure",
    "RunRecord",
    "SalvageReport",
    "Schema",
    "SeglogError",
    "SegmentOffsetOverflowError",
    "Skipped",
    "Surveyed",
    "TimestampOffset",
    "TimestampType",
    "TopicPartition",
    "Transaction",
    "TransplantOutcome",
    "TransplantPlan",
    "Truncated",
    "UnexpectedAppendOffsetError",
    "UnsupportedError",
    "UntrustedLinkError",
    "Verification",
    "VerifySummary",
    "append_table",
    "clean",
    "columns_of",
    "columns_of_arrays",
    "convert",
    "diff",
    "doctor",
    "explain",
    "export",
    "fetch",
    "groups",
    "metadata",
    "metadata_differences",
    "open_log",
    "open_table",
    "partitions",
    "plan_clean",
    "plan_rebuild",
    "plan_recover",
    "plan_redact",
    "plan_reindex",
    "plan_repair",
    "plan_restore",
    "plan_retain",
    "plan_transplant",
    "plan_truncate",
    "rebuild",
    "recover",
    "redact",
    "reindex",
    "repair",
    "report",
    "restore",
    "retain",
    "salvage",
    "schemas",
    "settings",
    "stats",
    "tier_contents",
    "transactions",
    "transplant",
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
