"""Logs as tables of Arrow: for DuckDB, Polars, pandas and pyarrow, and back (extra `arrow`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from seglog.api.opening import open_log
from seglog.arguments import one_of
from seglog.configuration.keys import LogConfig
from seglog.locations import parse_location
from seglog.model import Compression, Isolation, member
from seglog.storage.routing import machine_files

if TYPE_CHECKING:
    from seglog.storage.filesystem import FileSystem
    from seglog_ask.table.engines.dataset import Table

Location = str | Path


def open_table(
    *paths: Location,
    columns: Sequence[str] | None = None,
    isolation: Isolation | str = Isolation.READ_UNCOMMITTED,
    on_corrupt: Literal["fail", "skip"] = "fail",
    local: Location | None = None,
    tier_keys: Mapping[str, Location] | None = None,
    remote_metadata: Sequence[Location] | None = None,
    key_as: str = "auto",
    value_as: str = "auto",
    schemas: Location | None = None,
    schema: Location | None = None,
    fs: FileSystem | None = None,
) -> Table:
    """Opens partitions as one table. DuckDB, Polars, DataFusion and pyarrow push columns and filters into it; nothing
    is read yet. Its `reader(columns, filter)` is a stream for those that take no datasets.

    A path is a partition directory, a log directory, LOGDIR/TOPIC, a `.log` file, or a URL of one. The columns are
    topic, partition, offset, timestamp (null without one), key, value, headers (null without any), or those in
    `columns`, which may also be timestamp_type, producer_id, producer_epoch, sequence, leader_epoch, segment, position,
    timestamp_ms. A timestamp beyond the years -260000 to 260000, which engines do not hold, is the nearest one within,
    so that filters find it, and a warning is logged; timestamp_ms has every number as it is.
    A filter on topic, partition, offset, or a lower bound of timestamp reads only what the indexes leave.

    `isolation` "read_committed" leaves out aborted records and all from the first open transaction on. At damage a read
    raises CorruptRecordError with file, position and offsets; with `on_corrupt` "skip" it goes on, and the table's
    `left_out` says what is missing. `local`, `tier_keys` and `remote_metadata` are for paths in tiered storage.

    `value_as` "registry" decodes values by the schemas that they name: `value` is then null where one is not decoded,
    and value_schema, value_error and value_bytes tell of it; `key_as` does the same for keys. Where the paths have one
    topic, Avro and Protobuf give `value` the type of its schemas: a struct with the fields of all versions, in which a
    type that changed is the wider one, or text. Values of a schema that is not among these are not decoded. Elsewhere,
    and where no type says it, `value` is JSON text. Other forms are string, hex, base64, short, int, long, float,
    double (and short-le … double-le, little-endian), uuid (16 bytes), json, gzip, gzip-json, msgpack, cbor, avro-file,
    kafka (internal topics, by their names) or kafka:KIND, avro, protobuf, json-schema. `schemas` is a registry's log,
    URL or directory of files (default: the `_schemas-0` beside the logs), `schema` the FILE or FILE:MESSAGE for values
    without a frame (extra `schemas`). A value that is plain text where `value` has types is in value_bytes alone.

    Raises NotALogError for a path without a log, ConfigError for an unknown column or missing schemas.

    >>> import pyarrow as pa, pyarrow.compute as pc, tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     path = directory + "/orders-0"
    ...     seglog.append_table(path, pa.table({"key": ["a", "b", "a"], "value": ["1", "2", "3"]}), create=True)
    ...     orders = seglog.open_table(path)
    ...     orders.count_rows()
    ...     orders.to_table(columns=["offset", "value"], filter=pc.field("key") == b"a").to_pylist()
    range(0, 3)
    3
    [{'offset': 0, 'value': b'1'}, {'offset': 2, 'value': b'3'}]
    """
    from seglog_ask.api.valuing import values_of
    from seglog_ask.table.engines.dataset import Table
    from seglog_ask.table.engines.opening import open_source
    from seglog_ask.table.values.columns import outputs_of
    from seglog_ask.table.values.planned_types import typed_columns
    from seglog_ask.table.values.valued import valued_outputs

    if not paths:
        raise ValueError("open_table: name at least one path")
    files = machine_files() if fs is None else fs
    values = values_of(files, paths, key_as=key_as, value_as=value_as, schemas=schemas, schema=schema)
    source = open_source(
        files,
        [parse_location(path) for path in paths],
        isolation=member(Isolation, isolation, "isolation"),
        on_corrupt="skip" if one_of("on_corrupt", on_corrupt, ("fail", "skip")) == "skip" else "fail",
        local=None if local is None else parse_location(local),
        tier_keys={name: parse_location(file) for name, file in (tier_keys or {}).items()},
        remote_metadata=[parse_location(path) for path in remote_metadata or ()],
    )
    outputs = outputs_of(columns)
    if values is not None:
        typed = typed_columns(values.forms, values.tally, source.fs, source.logs, source.options)
        outputs = valued_outputs(outputs, values, typed)
    return Table(source, outputs)


def append_table(
    partition: Location,
    data: Any,
    *,
    create: bool = False,
    codec: Compression | str | None = None,
    config: LogConfig | Mapping[str, object] | None = None,
) -> range:
    """Appends the rows of a table of Arrow, pandas or Polars to a partition. Returns the offsets that they got.

    The column `value` is text or bytes; `key`, `timestamp` (a timestamp, or epoch milliseconds; null is now) and
    `headers` may be there; timestamp_ms counts more than `timestamp`. The columns topic, partition, offset and
    timestamp_type of `open_table` are ignored, as the log gives them anew. `create` and `config` are those of
    `open_log`, `codec` that of `Log.append`.

    Raises AppendError for other columns or types before anything is written, and the errors of `open_log`.

    >>> import pyarrow as pa, pyarrow.compute as pc, tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     path = directory + "/orders-0"
    ...     seglog.append_table(path, pa.table({"value": ["1", "2"]}), create=True)
    ...     seglog.append_table(directory + "/copy-0", seglog.open_table(path), create=True)
    range(0, 2)
    range(0, 2)
    """
    from seglog_ask.table.engines.incoming import batches_of, checked_reader, records_of

    reader = checked_reader(data)
    with open_log(partition, writable=True, create=create, config=config) as log:
        first = log.log_end_offset
        for batch in batches_of(reader):
            log.append(records_of(batch, log.clock.now_ms()), codec=codec)
        return range(first, log.log_end_offset)
