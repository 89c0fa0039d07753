"""Writes the answer to a fetch, the one answer whose rate counts, by a table of its fields (`format.wire`).

A consumer gets an answer for each megabyte; kio's entities and their writers would take as long as reading and checking
it. The other answers are written by `protocol.write_answer`, and a test compares both for every version.
"""

from __future__ import annotations

from seglog.format.wire import Field, Writer
from seglog_rescue.serve.protocol import Answer, Request, Values
from seglog_rescue.serve.spans import FileSpan

_FLEXIBLE_FROM = 12
_HEADER = (Field("correlation_id", "int32"),)
# FetchResponse.json, versions 4 to 12, without the tagged fields, which are never set.
_ABORTED = (Field("producer_id", "int64"), Field("first_offset", "int64"))
_PARTITION = (
    Field("partition_index", "int32"),
    Field("error_code", "int16"),
    Field("high_watermark", "int64"),
    Field("last_stable_offset", "int64"),
    Field("log_start_offset", "int64", first=5),
    Field("aborted_transactions", _ABORTED, array=True, nullable_from=4),
    Field("preferred_read_replica", "int32", first=11),
    Field("records", "bytes"),
)
_TOPIC = (Field("topic", "string"), Field("partitions", _PARTITION, array=True))
_ANSWER = (
    Field("throttle_time", "int32"),
    Field("error_code", "int16", first=7),
    Field("session_id", "int32", first=7),
    Field("responses", _TOPIC, array=True),
)


class _AnswerWriter(Writer):
    """Writes an answer, in which spans of files stay spans."""

    def __init__(self, version: int) -> None:
        super().__init__(version, version >= _FLEXIBLE_FROM)
        self._answer = Answer()

    def content(self, data: bytes | FileSpan) -> None:
        if isinstance(data, FileSpan):
            self._flush()
            self._answer.write(data)
        else:
            super().content(data)

    def finished(self) -> Answer:
        """Returns the answer."""
        self._flush()
        self._answer.finish()
        return self._answer

    def _flush(self) -> None:
        self._answer.write(bytes(self.data))
        self.data.clear()


def write_fetch_answer(request: Request, values: Values) -> Answer:
    """Returns the answer to a fetch, as `write_answer` does for the same values; no answer throttles a client."""
    writer = _AnswerWriter(request.version)
    writer.structure(_HEADER, {"correlation_id": request.correlation_id})
    writer.structure(_ANSWER, {"throttle_time": 0, **values})
    return writer.finished()
