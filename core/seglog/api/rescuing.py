"""Functions that bring records somewhere else and only read their sources: salvage, transplant, fetch, export."""

from __future__ import annotations

from typing import Literal, Unpack

from seglog.api.calling import public, public_verb
from seglog.api.valuing import values_of
from seglog.arguments import flag, instance, one_of
from seglog.look.export.export import ExportFormat, ExportOptions, FileSink
from seglog.look.export.export import export as export_records
from seglog.model import Isolation, member
from seglog.operations import transplant as transplanting
from seglog.operations.export import exported_partitions, with_types
from seglog.operations.fetch import Fetched, FetchOptions, fetch_targets
from seglog.operations.fetch import fetch as fetch_partition
from seglog.operations.transplant import TransplantArguments, TransplantKeywords, TransplantRequest
from seglog.operations.undo import remember_run
from seglog.operations.workspace import (
    Location,
    ReadArguments,
    local_path,
    looked_at,
    optional_integer,
    optional_size,
    optional_time,
    paths_of,
    request_of,
    warn,
    workspace_of,
)
from seglog.rescue.salvage.salvage import DEFAULT_SEGMENT_BYTES, SalvageOptions, SalvageReport
from seglog.rescue.salvage.salvage import salvage as salvage_logs
from seglog.rescue.transplant.apply import TransplantOutcome, carry_out
from seglog.rescue.transplant.plan import TransplantPlan
from seglog.scan.listing import resolve_paths
from seglog.scan.selection import Selection
from seglog.values.forms import KAFKA

ExportedFormat = Literal["jsonl", "csv", "parquet"]


@public
def salvage(
    *paths: Location,
    output: Location,
    carve: bool = False,
    into_one: bool = False,
    segment_bytes: int | str | None = None,
    **common: Unpack[ReadArguments],
) -> SalvageReport:
    """Copies every good batch from damaged files, after damage too, into the new partition directory `output`.

    `carve` searches every byte of any file, such as a disk image, for several logs; `output` is then the directory for
    all of them. `into_one` makes one log of everything. The report has `logs`, `sources`, `missing` offsets. The
    sources are only read. Raises RefusedError if `output` holds something, NotALogError if nothing good is found.

    >>> import tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with seglog.open_log(directory + "/t-0", create=True) as log:
    ...         for value in (b"first", b"second", b"third"):
    ...             info = log.append([seglog.Record(value, timestamp=1000)])
    ...     with open(directory + "/t-0/00000000000000000000.log", "r+b") as file:
    ...         position, written = file.seek(100), file.write(b"XXX")
    ...     report = seglog.salvage(directory + "/t-0", output=directory + "/saved-0")
    ...     report.batches, report.missing
    (2, ((1, 1),))
    """
    size = optional_size("segment_bytes", segment_bytes, 1)
    options = SalvageOptions(
        flag("carve", carve), DEFAULT_SEGMENT_BYTES if size is None else size, into_one=flag("into_one", into_one)
    )
    work, shown = looked_at(common, paths)
    return salvage_logs(work.fs, work.clock, shown, local_path("output", output), options, lambda _size: None)


@public_verb(TransplantRequest)
def plan_transplant(*sources: Location, into: Location, **given: Unpack[TransplantArguments]) -> TransplantPlan:
    """Returns what `transplant` would do now, and raises what it would raise. Changes nothing.

    `plan.partitions[i].steps()` are its sentences, `plan.left_out` what stays behind. Takes the same arguments. The
    example of `transplant` shows it.
    """
    work, keywords = request_of(given, TransplantKeywords, ())
    request = TransplantRequest.of(work.fs, paths_of(sources), into, keywords)
    return transplanting.plan_transplant(work.fs, work.clock, request, request.settings(work))


@public_verb(TransplantRequest)
def transplant(*sources: Location, into: Location, **given: Unpack[TransplantArguments]) -> TransplantOutcome:
    """Copies a dead cluster's partitions into the log directory `into` of another cluster's stopped broker.

    Offsets stay. `topics` takes only these topics, under new names if it is a mapping. `transactions_of` are further
    log directories whose `__transaction_state` says how open transactions ended. `every_replica` confirms that every
    replica gets the same data. `beside` are the broker's other log directories: partitions that it has there are left
    to a call with that directory as `into`. `undo(outcome.run)` takes it back until the broker has written. Raises,
    before anything changes, RefusedError, LockedError, NotALogError, or Obstacles for several of them.

    >>> import os, tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as place:
    ...     os.mkdir(place + "/old")
    ...     os.mkdir(place + "/new")
    ...     with seglog.open_log(place + "/old/t-0", create=True) as log:
    ...         info = log.append([seglog.Record(b"value", timestamp=1000)])
    ...     for function in (seglog.plan_transplant, seglog.transplant):
    ...         try:
    ...             function(place + "/old", into=place + "/new")
    ...         except seglog.SeglogError as error:
    ...             print(str(error).removeprefix(place).partition(":")[0])
    /new has no meta.properties
    /new has no meta.properties
    """
    work, keywords = request_of(given, TransplantKeywords, ())
    request = TransplantRequest.of(work.fs, paths_of(sources), into, keywords)
    with transplanting.locked_targets(work.fs, request):
        settings = request.settings(work)
        plan = transplanting.plan_transplant(work.fs, work.clock, request, settings)
        outcome = carry_out(work.fs, work.clock, plan, settings, lambda _size: None)
    if outcome.run is not None:
        warn(remember_run(work.fs, work.environment, outcome.run.folder))
    if outcome.failure is not None:
        raise outcome.failure
    return outcome


@public
def fetch(
    *sources: Location, output: Location, allow_gaps: bool = False, **common: Unpack[ReadArguments]
) -> list[Fetched]:
    """Copies partitions, from tiered storage or from anywhere, into a log directory; checks every batch on the way.

    `output` is LOGDIR/TOPIC-NUMBER, or a log directory for several partitions. A fetch that was killed continues where
    it stopped. Returns one result for each partition; with `allow_gaps` missing offsets are in its `gaps`, otherwise
    they are an error. Raises RefusedError, CorruptRecordError, LockedError, NotALogError, ValueError.

    >>> import tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with seglog.open_log(directory + "/t-0", create=True) as log:
    ...         info = log.append([seglog.Record(b"value", timestamp=1000)])
    ...     (done,) = seglog.fetch(directory + "/t-0", output=directory + "/copy/t-0")
    ...     done.segments, done.first_offset
    (1, 0)
    """
    options, target = FetchOptions(flag("allow_gaps", allow_gaps)), local_path("output", output)
    work, shown = looked_at(common, sources)
    local = workspace_of({"clock": work.clock})
    return [
        fetch_partition(work.fs, source, local.fs, place, options)
        for source, place in fetch_targets(work.fs, shown, target)
    ]


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
        None if key is None else instance("key", key, bytes, "bytes"),
        member(Isolation, isolation, "isolation"),
    )
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
