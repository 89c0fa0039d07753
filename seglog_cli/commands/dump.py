"""`seglog dump`: batches and records of any Kafka file, as text or JSON lines."""

from __future__ import annotations

from typing import Annotated

from seglog_cli.exit_codes import ExitCode
from seglog_cli.failures import UsageError
from seglog_cli.options import Paths, command, flag
from seglog_cli.selecting import BytesAs, Decode, RecordLimit, Searched, require_decoders, wants_base64
from seglog_cli.session import Session
from seglog_cli.tiering import Tiers
from seglog_cli.valuing import ShownAs, tell_values
from seglog_cli.views.findings import show_finding


@command(urls=["paths"])
def run(
    session: Session,
    paths: Paths,
    wanted: Searched,
    shown_as: ShownAs,
    records: Annotated[bool, flag("--records -r", "Show records too, not only batch headers.")] = False,
    every_file: Annotated[
        bool, flag("--all -a", "In directories, show indexes, snapshots and checkpoints too.")
    ] = False,
    untrusted: Annotated[bool, flag("--untrusted", "Show records of batches whose checksum is wrong too.")] = False,
    bytes_as: BytesAs = "auto",
    decode: Decode = False,
    limit: RecordLimit = None,
    *,
    tiers: Tiers,
) -> int:
    """Shows batches and records, and the contents of any Kafka file.

    The file's name decides how it is shown: a segment, an index, a snapshot, a checkpoint, a metadata snapshot, or a
    file of Kafka 0.7. LOGDIR/TOPIC stands for all partitions of a topic.

    Damage is reported where it is, and the dump goes on after it; the exit code is then 1. Records of a batch whose
    checksum is wrong are shown only with --untrusted, and are marked.

    With offsets or times only that part of the log is read, as the indexes show it; damage elsewhere is not seen, and
    --until ends after half a MiB of later records.

    --limit counts records, or batches if no records are shown. --isolation read_committed leaves out batches of aborted
    and open transactions, and everything after the first open one, as for a consumer.

    --value-as and --key-as show values and keys as numbers, JSON, or by the schemas of a registry (--schemas). What
    does not decode is shown as bytes, with the reason, as by seglog read.
    --decode shows records of internal topics by the topic's name, as seglog read does: Kafka's own, MirrorMaker's,
    Connect's, the schema registry's and those of Streams. --value-as kafka:KIND is for a topic of another name.

    Examples:
      seglog dump orders-lz4-0 --limit 2
      seglog dump --records --json customers-0/00000000000000000000.log
      seglog dump --records --key k1 --from-offset 100 customers-0
      seglog dump orders-lz4-0/00000000000000000000.timeindex cleaner-offset-checkpoint
    """
    from seglog.look.dump.dump import DumpOptions, dump
    from seglog.scan.listing import TargetKind, is_beside_logs, partition_names, resolve_paths
    from seglog.verification.codes import UNREADABLE, Severity
    from seglog.verification.findings import Finding

    shows_records = records or wanted.key is not None
    forms = (("--key-as", shown_as.key_as != "auto"), ("--value-as", shown_as.value_as != "auto"))
    for name, is_given in (("--untrusted", untrusted), ("--bytes", bytes_as != "auto"), ("--decode", decode), *forms):
        if is_given and not shows_records:
            raise UsageError(f"{name} is for records: give --records too")
    given = paths
    session, paths = tiers.seen(session, paths)
    base64, targets = wants_base64(bytes_as), resolve_paths(session.fs, paths)
    beside = all(target.kind is TargetKind.FILE and is_beside_logs(target.path) for target in targets)
    if beside and (records or wanted != Searched()):
        raise UsageError("--records, and options that choose records, are for logs: none of these files is a log")
    require_decoders(decode, base64, (name for target in targets for name in partition_names(session.fs, target)))
    values = shown_as.values(session, given, decode=decode, base64=base64)
    options = DumpOptions(
        json=session.as_json,
        records=records,
        untrusted=untrusted,
        base64=base64,
        values=values,
        every_file=every_file,
        selection=wanted.selection(),
        limit=limit,
        jobs=session.begin_threads(),
    )
    damaged = unreadable = False
    for item in dump(session.fs, targets, options):
        if isinstance(item, Finding):
            show_finding(session.console, item)
            unreadable = unreadable or item.code == UNREADABLE
            damaged = damaged or (item.severity is Severity.ERROR and item.code != UNREADABLE)
        else:
            session.console.write_dump(item)
    tell_values(session, values)
    return tiers.code(ExitCode.FOUND if damaged else ExitCode.INCOMPLETE if unreadable else ExitCode.DONE)
