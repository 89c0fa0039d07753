"""Answers fetches with a span of each partition, within the request's limits (Kafka: ReplicaManager.readFromLog).

The first partition with data gives at least its first batch, whatever its size; the others keep to the rest of the
request's limit. An answer holds a file open for each partition with data, so their number is limited too; clients fetch
the rest next, as after the limit of bytes. The logs never grow, so waiting for more bytes is useless: any data, and any
error, is answered at once. Fetch sessions are not kept (session id 0: the client sends all partitions). What the
connection read ahead is taken first (`read_ahead`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from seglog.errors import CorruptionError, OffsetOutOfRangeError
from seglog.log.log import Log
from seglog.model import Isolation
from seglog_rescue.serve.catalog import ServedPartition
from seglog_rescue.serve.endpoint import Endpoint
from seglog_rescue.serve.protocol import NO_OFFSET, ErrorCode, Values, isolation_of
from seglog_rescue.serve.read_ahead import QUICK_BYTES, Ahead, Place
from seglog_rescue.serve.spans import FileSpan, Found, find_span, is_at_hand
from seglog_rescue.serve.topics import epoch_problem

_NO_SESSION = 0
_NO_EPOCH, _FIRST_EPOCH = -1, 0  # of a session: a fetch of all partitions that it names (FetchMetadata)
_NO_PREFERENCE = -1


@dataclass(slots=True)
class Fetched:
    """The fields of an answer. `settled` is set if it holds data or an error, or the client asks for no bytes."""

    values: Values
    settled: bool = False
    file_bytes: int = 0


@dataclass(slots=True)
class _Room:
    """The bytes and open files that an answer may still take, and whether it is empty so far."""

    left: int
    files: int
    empty: bool = True

    def is_full(self, place: Place) -> bool:
        return not self.files or (place.most_bytes <= 0 and not self.empty)


def is_quick(endpoint: Endpoint, body: Any, ahead: Ahead) -> bool:
    """True if answering a fetch takes about a millisecond: it goes on where earlier ones ended, and no disk is waited
    for. The hop to a thread and back would cost a quarter of that.
    """
    asked = [(topic.topic, partition) for topic in body.topics for partition in topic.partitions]
    if not 0 < sum(int(each.partition_max_bytes) for _, each in asked) <= QUICK_BYTES:
        return False
    if len(asked) == 1 and ahead.found is not None:
        room, (topic, only) = _room(endpoint, body), asked[0]
        if _place(topic, only, room, isolation_of(body)) == ahead.expected:
            return True
    for topic, each in asked:
        partition = endpoint.catalog.find(topic, int(each.partition))
        if partition is None or not partition.is_open:
            return False
        most = max(1, int(each.partition_max_bytes))
        if not is_at_hand(partition.log.view, int(each.fetch_offset), most, partition.ends):
            return False
    return True


def fetch(endpoint: Endpoint, body: Any, ahead: Ahead) -> Fetched:
    """Answers a fetch. The files of its spans are open; the sender closes them. `ahead` is told what comes next."""
    answer = Fetched({}, settled=int(body.min_bytes) <= 0)
    if getattr(body, "session_epoch", _NO_EPOCH) not in (_NO_EPOCH, _FIRST_EPOCH):  # it goes on with a session
        return Fetched(_refused(ErrorCode.fetch_session_id_not_found), settled=True)
    if sum(len(topic.partitions) for topic in body.topics) > endpoint.limits.fetch_partitions:
        return Fetched(_refused(ErrorCode.invalid_request), settled=True)
    isolation = isolation_of(body)
    room = _room(endpoint, body)
    topics: list[dict[str, Any]] = []
    following: list[Place] = []
    try:
        for topic in body.topics:
            entries: list[dict[str, Any]] = []
            topics.append({"topic": topic.topic, "partitions": entries})
            for asked in topic.partitions:
                partition = endpoint.catalog.find(topic.topic, int(asked.partition))
                place = _place(topic.topic, asked, room, isolation)
                entry, end = _partition(endpoint, partition, asked, place, room, ahead)
                entries.append(entry)
                answer.settled |= entry["error_code"] is not ErrorCode.none or len(entry["records"]) > 0
                if isinstance(entry["records"], FileSpan):
                    answer.file_bytes += len(entry["records"])
                    following.append(replace(place, offset=end))
    except BaseException:
        for entry in (each for topic in topics for each in topic["partitions"]):
            if isinstance(entry["records"], FileSpan):
                entry["records"].file.close()
        raise
    finally:
        ahead.expect(following[0] if len(following) == 1 else None)
    answer.values = {
        "error_code": ErrorCode.none,
        "session_id": _NO_SESSION,
        "responses": topics,
    }
    return answer


def _room(endpoint: Endpoint, body: Any) -> _Room:
    return _Room(max(0, min(int(body.max_bytes), endpoint.limits.fetch_bytes)), endpoint.limits.fetch_files)


def _place(topic: str, asked: Any, room: _Room, isolation: Isolation) -> Place:
    most = min(max(0, int(asked.partition_max_bytes)), room.left)
    return Place(topic, int(asked.partition), int(asked.fetch_offset), most, isolation)


def _refused(error: ErrorCode) -> Values:
    return {"error_code": error, "session_id": _NO_SESSION, "responses": ()}


def _partition(
    endpoint: Endpoint, partition: ServedPartition | None, asked: Any, place: Place, room: _Room, ahead: Ahead
) -> tuple[dict[str, Any], int]:
    """Returns the entry of a partition, and the offset after its span."""
    entry = {
        "partition_index": asked.partition,
        "error_code": ErrorCode.none,
        "high_watermark": NO_OFFSET,
        "last_stable_offset": NO_OFFSET,
        "log_start_offset": NO_OFFSET,
        "aborted_transactions": None,
        "preferred_read_replica": _NO_PREFERENCE,
        "records": b"",
    }
    if partition is None:
        return entry | {"error_code": ErrorCode.unknown_topic_or_partition, "aborted_transactions": ()}, NO_OFFSET
    problem = epoch_problem(partition, asked)
    if problem is not ErrorCode.none:
        return entry | {"error_code": problem}, NO_OFFSET
    if not partition.is_open and room.is_full(place):  # opening what cannot be sent would delay what can
        return entry, NO_OFFSET
    found = _read(endpoint, partition, place, room, ahead)
    if isinstance(found, ErrorCode):
        return entry | {"error_code": found}, NO_OFFSET
    view = partition.log.view
    entry |= {
        "high_watermark": view.high_watermark,
        "last_stable_offset": view.last_stable_offset,
        "log_start_offset": view.log_start_offset,
        "records": found.data,
    }
    if place.isolation == Isolation.READ_COMMITTED:
        entry["aborted_transactions"] = [
            {"producer_id": each.producer_id, "first_offset": each.first_offset} for each in found.aborted
        ]
    return entry, found.end_offset


def _read(endpoint: Endpoint, partition: ServedPartition, place: Place, room: _Room, ahead: Ahead) -> Found | ErrorCode:
    """Returns the data of a partition, or the error after reporting it."""
    log = endpoint.log_of(partition)
    if log is None:
        return ErrorCode.kafka_storage_error
    try:
        return _span(endpoint, partition, log, place, room, ahead)
    except OffsetOutOfRangeError:
        return ErrorCode.offset_out_of_range
    except CorruptionError:
        return ErrorCode.corrupt_message  # find_span has reported it
    except OSError as error:
        endpoint.report_unreadable(partition.directory, error)
        return ErrorCode.kafka_storage_error


def _span(endpoint: Endpoint, partition: ServedPartition, log: Log, place: Place, room: _Room, ahead: Ahead) -> Found:
    if room.is_full(place):
        return Found(b"")
    found = ahead.take(place) or find_span(
        log.view,
        place.offset,
        place.most_bytes,
        place.isolation,
        partition.ends,
        skip_damage=endpoint.skip_damage,
        report=endpoint.report,
    )
    size = len(found.data)
    if size > room.left and not room.empty:
        if isinstance(found.data, FileSpan):
            found.data.file.close()
        return Found(b"")
    if size:
        room.empty = False
    room.left -= size
    room.files -= isinstance(found.data, FileSpan)
    return found
