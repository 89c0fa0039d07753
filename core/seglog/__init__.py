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

The names in `__all__` are the public API; they are imported when they are first used, so that `import seglog`
costs next to nothing. Everything else may change.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seglog.api import open_log as open_log
    from seglog.api import verify as verify
    from seglog.configuration.keys import LogConfig as LogConfig
    from seglog.errors import AppendError as AppendError
    from seglog.errors import CorruptionError as CorruptionError
    from seglog.errors import OffsetOutOfRangeError as OffsetOutOfRangeError
    from seglog.errors import SeglogError as SeglogError
    from seglog.format.builder import columns_of as columns_of
    from seglog.format.builder import columns_of_arrays as columns_of_arrays
    from seglog.format.columns import Records as Records
    from seglog.log.append import AppendInfo as AppendInfo
    from seglog.log.directory import LogDirectory as LogDirectory
    from seglog.log.log import Log as Log
    from seglog.log.lookup import TimestampOffset as TimestampOffset
    from seglog.log.producers import ProducerIdentity as ProducerIdentity
    from seglog.log.reader import FetchResult as FetchResult
    from seglog.log.transfer import MessageSetSend as MessageSetSend
    from seglog.log.transfer import MultiMessageSetSend as MultiMessageSetSend
    from seglog.model import Compression as Compression
    from seglog.model import Header as Header
    from seglog.model import Isolation as Isolation
    from seglog.model import Record as Record
    from seglog.model import TimestampType as TimestampType
    from seglog.model import TopicPartition as TopicPartition

__version__ = "0.1.0"

_HOMES = {
    "AppendError": "seglog.errors",
    "AppendInfo": "seglog.log.append",
    "Compression": "seglog.model",
    "CorruptionError": "seglog.errors",
    "FetchResult": "seglog.log.reader",
    "Header": "seglog.model",
    "Isolation": "seglog.model",
    "Log": "seglog.log.log",
    "LogConfig": "seglog.configuration.keys",
    "LogDirectory": "seglog.log.directory",
    "MessageSetSend": "seglog.log.transfer",
    "MultiMessageSetSend": "seglog.log.transfer",
    "OffsetOutOfRangeError": "seglog.errors",
    "ProducerIdentity": "seglog.log.producers",
    "Record": "seglog.model",
    "Records": "seglog.format.columns",
    "SeglogError": "seglog.errors",
    "TimestampOffset": "seglog.log.lookup",
    "TimestampType": "seglog.model",
    "TopicPartition": "seglog.model",
    "columns_of": "seglog.format.builder",
    "columns_of_arrays": "seglog.format.builder",
    "open_log": "seglog.api",
    "verify": "seglog.api",
}

__all__ = [
    "AppendError",
    "AppendInfo",
    "Compression",
    "CorruptionError",
    "FetchResult",
    "Header",
    "Isolation",
    "Log",
    "LogConfig",
    "LogDirectory",
    "MessageSetSend",
    "MultiMessageSetSend",
    "OffsetOutOfRangeError",
    "ProducerIdentity",
    "Record",
    "Records",
    "SeglogError",
    "TimestampOffset",
    "TimestampType",
    "TopicPartition",
    "columns_of",
    "columns_of_arrays",
    "open_log",
    "verify",
]


if not TYPE_CHECKING:  # a type checker that sees it takes any name for one of seglog's

    def __getattr__(name: str) -> object:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'seglog' has no attribute {name!r}")
        value = getattr(importlib.import_module(home), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
