"""What a log holds, for other tools: the export of records, and the schemas of a registry."""

from __future__ import annotations

from typing import Literal, Unpack

from seglog.api.calling import public
from seglog.arguments import flag, in_order, instance, one_of
from seglog.model import Isolation, member
from seglog.operations.workspace import (
    Location,
    ReadArguments,
    local_path,
    looked_at,
    optional_integer,
    optional_time,
    warn,
    workspace_of,
)
from seglog.scan.key_set import KeySet
from seglog.scan.listing import resolve_paths
from seglog.scan.selection import Selection
from seglog_ask.api.valuing import values_of
from seglog_ask.operations.export import exported_partitions, with_types
from seglog_ask.operations.schemas import registry_contents
from seglog_ask.table.engines.export import ExportFormat, ExportOptions, FileSink
from seglog_ask.table.engines.export import export as export_records
from seglog_ask.values.forms import KAFKA
from seglog_ask.values.schemas import Schema

ExportedFormat = Literal["jsonl", "csv", "parquet"]


@public
def export(
    path: Location,
    output: Location,
    *,
    format: ExportedFormat | None = None,
    from_offset: int | None = None,
    to_offset: int | None = None,
    since_ms: int | str | None = None,
    until_ms: int | str | None = None,
    key: bytes | None = None,
    producer_id: int | None = None,
    isolation: Isolation | str = Isolation.READ_UNCOMMITTED,
    limit: int | None = None,
    base64: bool = False,
    decode: bool = False,
    key_as: str = "auto",
    value_as: str = "auto",
    schemas: Location | None = None,
    schema: Location | None = None,
    csv_safe: bool = False,
    replace: bool = False,
    **common: Unpack[ReadArguments],
) -> int:
    """Writes the records of a partition, of LOGDIR/TOPIC or of one segment to a file; returns their number.

    `format` is "jsonl", "csv" or "parquet" (default: by the extension of `output`). Records are chosen as by `diff`.
    `base64` writes keys and values of text formats in base64; `decode` decodes those of Kafka's internal topics;
    `key_as`, `value_as`, `schemas` and `schema` decode as for `open_table`, in Parquet to columns with types, too;
    `csv_safe` defuses formulas. Damage is skipped, with a warning to the logger `seglog`. The file appears when it is
    complete. Raises RefusedError if it exists and `replace` is not set, NotALogError, OSError, UnsupportedError,
    ConfigError for missing schemas.

    >>> import tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with seglog.open_log(directory + "/t-0", create=True) as log:
    ...         info = log.append([seglog.Record(b"value", key=b"k", timestamp=1000)])
    ...     print(seglog.export(directory + "/t-0", directory + "/t.csv"))
    ...     open(directory + "/t.csv").read().splitlines()
    1
    ['topic,partition,offset,timestamp,key,value,headers', 't,0,0,1000,k,value,']
    """
    target = local_path("output", output)
    kinds = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv", ".parquet": "parquet"}
    if format is None and target.suffix not in kinds:
        raise ValueError(f"give format, jsonl, csv or parquet: {target} has no extension that names it")
    chosen = one_of("format", kinds.get(target.suffix) if format is None else format, tuple(ExportedFormat.__args__))  # type: ignore[attr-defined]
    work, (shown,) = looked_at(common, [path])
    key_form, value_form = (KAFKA, KAFKA) if flag("decode", decode) else (key_as, value_as)
    values = values_of(work.fs, [path], key_as=key_form, value_as=value_form, schemas=schemas, schema=schema)
    selection = Selection(
        optional_integer("from_offset", from_offset, 0),
        optional_integer("to_offset", to_offset, 0),
        optional_time("since_ms", since_ms, work.clock),
        optional_time("until_ms", until_ms, work.clock),
        optional_integer("producer_id", producer_id),
        None if key is None else KeySet([instance("key", key, bytes, "bytes")]),
        member(Isolation, isolation, "isolation"),
    )
    in_order("from_offset", selection.first_offset, "to_offset", selection.end_offset)
    in_order("since_ms", selection.first_timestamp, "until_ms", selection.end_timestamp)
    options = ExportOptions(
        ExportFormat(chosen),
        selection,
        flag("base64", base64),
        values,
        flag("csv_safe", csv_safe),
        optional_integer("limit", limit, 0),
    )
    targets = resolve_paths(work.fs, [shown])
    partitions = exported_partitions(work.fs, targets, selection, limited=options.limit is not None)
    options = with_types(options, work.fs, targets)
    with FileSink(workspace_of({}).fs, target, flag("replace", replace)) as sink:
        return export_records(partitions, sink, options, lambda found: warn(f"{found.file}: {found.message}"))


@public
def schemas(path: Location, **common: Unpack[ReadArguments]) -> list[Schema]:
    """Returns what a schema registry knew, from its log: subjects, versions, ids, references and texts, by id.

    `path` is `_schemas-0`, the log directory that holds it, or one of its `.log` files. Versions that were deleted are
    there too, and marked; what is damaged is left out, with a warning to the logger `seglog`. Raises NotALogError,
    OSError.

    >>> import tempfile, seglog
    >>> key = b'{"keytype":"SCHEMA","subject":"orders-value","version":1,"magic":1}'
    >>> value = b'{"subject":"orders-value","version":1,"id":7,"schema":"int","deleted":false}'
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with seglog.open_log(directory + "/_schemas-0", create=True) as log:
    ...         info = log.append([seglog.Record(value, key=key, timestamp=1000)])
    ...     [(schema.id, schema.subject, schema.type, schema.text) for schema in seglog.schemas(directory)]
    [(7, 'orders-value', 'AVRO', 'int')]
    """
    work, (shown,) = looked_at(common, [path])
    contents = registry_contents(work.fs, shown)
    for problem in contents.problems:
        warn(problem)
    return contents.schemas
