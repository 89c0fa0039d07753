"""Kafka's wire protocol: the supported requests and versions, reading requests, writing answers.

The message types are `kio`'s, generated from Kafka's own schema. An answer is bytes with file spans in between: the
records of a fetch are never copied through Python.
"""

from __future__ import annotations

import dataclasses
import datetime
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, TypeVar, cast, get_args

from seglog.model import Isolation
from seglog_rescue.serve.request_walk import walk_of
from seglog_rescue.serve.spans import FileSpan


@contextmanager
def _without_hypothesis() -> Iterator[None]:
    """Hides hypothesis unless it is imported already. If it is installed, kio registers its types with it, and it
    makes `.hypothesis` in the working directory: in a log directory, that stops the next broker."""
    name = "hypothesis"
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]


with _without_hypothesis():
    from kio import index
    from kio.schema.errors import ErrorCode
    from kio.serial import entity_reader, entity_writer
    from kio.serial.errors import SerialError

__all__ = ["ErrorCode"]

load_request_schema, load_response_schema = cache(index.load_request_schema), cache(index.load_response_schema)

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 8, 9, 10
JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 11, 12, 13, 14
DESCRIBE_GROUPS, LIST_GROUPS, API_VERSIONS = 15, 16, 18
CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS = 19, 20, 21
INIT_PRODUCER_ID, OFFSET_FOR_LEADER_EPOCH = 22, 23
DESCRIBE_CONFIGS, CREATE_PARTITIONS, DESCRIBE_CLUSTER = 32, 37, 60
CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE, DESCRIBE_TOPIC_PARTITIONS = 68, 69, 75
SHARE_GROUP_HEARTBEAT, STREAMS_GROUP_HEARTBEAT = 76, 88

# Fetch below 13 needs no topic ids, which a directory may not have. Without Produce, librdkafka takes the endpoint for
# a broker too old to fetch from. Share groups and the streams protocol are answered by an error that says what to use
# instead. Telemetry is left out, so that no client sends any.
VERSIONS: Mapping[int, tuple[int, int]] = MappingProxyType(
    {
        PRODUCE: (3, 9),
        FETCH: (4, 12),
        LIST_OFFSETS: (1, 11),
        METADATA: (0, 13),
        OFFSET_COMMIT: (2, 10),
        OFFSET_FETCH: (1, 10),
        FIND_COORDINATOR: (0, 6),
        JOIN_GROUP: (0, 9),
        HEARTBEAT: (0, 4),
        LEAVE_GROUP: (0, 5),
        SYNC_GROUP: (0, 5),
        DESCRIBE_GROUPS: (0, 6),
        LIST_GROUPS: (0, 5),
        API_VERSIONS: (0, 4),
        CREATE_TOPICS: (2, 7),
        DELETE_TOPICS: (1, 5),
        DELETE_RECORDS: (0, 2),
        INIT_PRODUCER_ID: (0, 4),
        OFFSET_FOR_LEADER_EPOCH: (2, 4),
        DESCRIBE_CONFIGS: (1, 4),
        CREATE_PARTITIONS: (0, 3),
        DESCRIBE_CLUSTER: (0, 2),
        CONSUMER_GROUP_HEARTBEAT: (0, 1),
        CONSUMER_GROUP_DESCRIBE: (0, 1),
        DESCRIBE_TOPIC_PARTITIONS: (0, 0),
        SHARE_GROUP_HEARTBEAT: (1, 1),
        STREAMS_GROUP_HEARTBEAT: (0, 0),
    }
)

NO_OFFSET = -1
NO_NODE = -1

# Bits of AclOperation: what a reader may do. A broker tells them, too, if it is asked to.
_READ, _DESCRIBE, _DESCRIBE_CONFIGS = 1 << 3, 1 << 8, 1 << 10
TOPIC_OPERATIONS = GROUP_OPERATIONS = _READ | _DESCRIBE | _DESCRIBE_CONFIGS
CLUSTER_OPERATIONS = _DESCRIBE | _DESCRIBE_CONFIGS
NO_OPERATIONS = -(1 << 31)  # not asked for

T = TypeVar("T")

Values = Mapping[str, Any]  # the fields of an answer, or of a part of it, by kio's names

_FRONT = struct.Struct(">hhi")  # api key, version, correlation id: the same in all request headers
_SIZE = struct.Struct(">i")
_NO_THROTTLE = datetime.timedelta(0)


class HostileRequestError(Exception):
    """Raised for bytes that are not a request of a supported API and version: the connection is closed."""


@dataclass(frozen=True, slots=True)
class Request:
    """A decoded request. `body` is kio's message, None for an unsupported version of ApiVersions."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: Any


class Answer:
    """An answer to send: bytes and file spans, in order; `size` is their total."""

    def __init__(self) -> None:
        self.parts: list[bytearray | FileSpan] = [bytearray(_SIZE.size)]
        self.size = 0

    def write(self, part: bytes | FileSpan) -> None:
        """Appends a part; kio's writers call it."""
        self.size += len(part)
        if isinstance(part, FileSpan):
            self.parts += [part, bytearray()]
        else:
            last = self.parts[-1]
            assert isinstance(last, bytearray)
            last += part

    def finish(self) -> None:
        """Writes the size in front."""
        first = self.parts[0]
        assert isinstance(first, bytearray)
        first[: _SIZE.size] = _SIZE.pack(self.size)

    def close(self) -> None:
        """Closes the files of the spans."""
        for part in self.parts:
            if isinstance(part, FileSpan):
                part.file.close()


def read_request(frame: bytes) -> Request:
    """Decodes a request from its frame (without the size). Raises HostileRequestError for anything else."""
    if len(frame) < _FRONT.size:
        raise HostileRequestError(f"a request of {len(frame)} bytes")
    api_key, version, correlation_id = _FRONT.unpack_from(frame)
    least, most = VERSIONS.get(api_key, (0, -1))
    if not least <= version <= most:
        if api_key == API_VERSIONS:
            return Request(api_key, version, correlation_id, None, None)
        raise HostileRequestError(f"API {api_key} in version {version} is not supported")
    kind = load_request_schema(api_key, version)
    try:
        header, size = entity_reader(kind.__header_schema__)(frame, 0)
        walk_of(kind)(frame, size)
        body, _ = entity_reader(kind)(frame, size)  # bytes after it are ignored, as in brokers: librdkafka appends some
    except (SerialError, LookupError, ValueError, TypeError, OverflowError, MemoryError, struct.error) as error:
        reason = f"API {api_key} in version {version} cannot be decoded: {type(error).__name__}"
        raise HostileRequestError(reason) from error
    if not _nulls_fit(body):
        raise HostileRequestError(f"API {api_key} in version {version} has a null where none is allowed")
    return Request(api_key, version, correlation_id, getattr(header, "client_id", None), body)


def each_once(parts: Iterable[T]) -> Iterable[T]:
    """Returns the parts of a request without repetitions: a part of a few bytes can ask for a long answer.

    A megabyte of one topic's name would otherwise make an answer of gigabytes.
    """
    return dict.fromkeys(parts)


def isolation_of(body: Any) -> Isolation:
    """Returns a request's isolation level; versions without the field read uncommitted."""
    committed = int(getattr(body, "isolation_level", Isolation.READ_UNCOMMITTED)) == Isolation.READ_COMMITTED
    return Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED


def write_answer(request: Request, values: Values, version: int | None = None) -> Answer:
    """Writes the answer to a request; `values` are fields by kio's names, nested ones as mappings.

    Fields that the version lacks are left out, so one mapping serves all versions. No answer throttles a client.
    """
    kind = load_response_schema(request.api_key, request.version if version is None else version)
    header = {"correlation_id": request.correlation_id}
    answer = Answer()
    for each, fields in ((kind.__header_schema__, header), (kind, {"throttle_time": _NO_THROTTLE, **values})):
        write: Callable[[Answer, Any], None] = cast(Any, entity_writer(each))  # it calls only `write` of a buffer
        write(answer, message(each, fields))
    answer.finish()
    return answer


def message(kind: type[Any], values: Values) -> Any:
    """Makes an entity of `kind` from the values that it has fields for."""
    given = {}
    for name, _, nested in _fields(cast(Any, kind)):
        if name not in values:
            continue
        value = values[name]
        if nested is not None and isinstance(value, Mapping):
            value = message(nested, value)
        elif nested is not None and value is not None:
            value = tuple(message(nested, each) for each in value)
        given[name] = value
    return kind(**given)


def _nulls_fit(entity: Any) -> bool:
    """True if only nullable fields are null: kio accepts a null for any array."""
    for name, nullable, nested in _fields(cast(Any, type(entity))):
        value = getattr(entity, name)
        if value is None:
            if not nullable:
                return False
        elif nested is not None and not all(map(_nulls_fit, value if isinstance(value, tuple) else (value,))):
            return False
    return True


@cache
def _fields(kind: Any) -> tuple[tuple[str, bool, type[Any] | None], ...]:
    """Returns each field's name, whether it may be null, and the entity type that it holds, alone or in a tuple."""
    return tuple(
        (field.name, type(None) in get_args(field.type), _entity_in(field.type)) for field in dataclasses.fields(kind)
    )


def _entity_in(annotation: object) -> type[Any] | None:
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return annotation
    return next((found for each in get_args(annotation) if (found := _entity_in(each)) is not None), None)
