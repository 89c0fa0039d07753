"""`seglog dump-log`: kafka-dump-log's options and text."""

from __future__ import annotations

from typing import Annotated

from seglog_cli.exit_codes import ExitCode
from seglog_cli.failures import UsageError
from seglog_cli.options import command, flag, option, size_option
from seglog_cli.session import Session
from seglog_cli.views.findings import finding_text

DecoderClass = Annotated[
    str | None, option("", "CLASS", "StringDecoder, DefaultDecoder, IntegerDecoder or LongDecoder.")
]


@command()
def run(
    session: Session,
    files: Annotated[str, option("--files", "FILE,…", "The files to show, separated by commas.")],
    print_data_log: Annotated[bool, flag("--print-data-log", "Show records with their keys and payloads.")] = False,
    deep_iteration: Annotated[bool, flag("--deep-iteration", "Show records without their keys and payloads.")] = False,
    key_decoder_class: DecoderClass = None,
    value_decoder_class: DecoderClass = None,
    offsets_decoder: Annotated[
        bool, flag("--offsets-decoder", "Decode records as those of __consumer_offsets.")
    ] = False,
    transaction_log_decoder: Annotated[
        bool, flag("--transaction-log-decoder", "Decode records as those of __transaction_state.")
    ] = False,
    cluster_metadata_decoder: Annotated[
        bool, flag("--cluster-metadata-decoder", "Decode records as those of __cluster_metadata.")
    ] = False,
    remote_log_metadata_decoder: Annotated[
        bool, flag("--remote-log-metadata-decoder", "Decode records as those of __remote_log_metadata.")
    ] = False,
    share_group_state_decoder: Annotated[
        bool, flag("--share-group-state-decoder", "Decode records as those of __share_group_state.")
    ] = False,
    skip_record_metadata: Annotated[
        bool, flag("--skip-record-metadata", "Show only keys and payloads of records.")
    ] = False,
    verify_index_only: Annotated[
        bool, flag("--verify-index-only", "Check indexes without showing their entries.")
    ] = False,
    index_sanity_check: Annotated[
        bool, flag("--index-sanity-check", "Check only what a broker checks in an index.")
    ] = False,
    max_bytes: Annotated[int, size_option("--max-bytes", "Read only this much of each .log file.")] = 2**31 - 1,
    max_message_size: Annotated[
        int,
        size_option("--max-message-size", "Accepted for compatibility, without effect: batches of any size are read."),
    ] = 5242880,
    untrusted: Annotated[bool, flag("--untrusted", "Show records of batches whose checksum is wrong too.")] = False,
) -> int:
    """Takes kafka-dump-log's options and prints its text.

    Where the tool of Kafka 4.3 works, standard output is the same. Older tools print some lines otherwise: the starting
    offset, snapshots, records of coordinators, headers.

    Where Kafka's tool fails, this command goes on: it reports the damage, shows what follows, and exits with 1. It does
    not show records of a batch whose checksum is wrong as if they were genuine, and it never creates a file.

    Examples:
      seglog dump-log --files orders-lz4-0/00000000000000000000.log --deep-iteration
      seglog dump-log --files customers-0/00000000000000000000.index --verify-index-only
      seglog dump-log --files __consumer_offsets-0/00000000000000000000.log --offsets-decoder
    """
    from seglog.locations import parse_location
    from seglog.look.kafka_dump_log.decoders import choose_decoder
    from seglog.look.kafka_dump_log.dump_log import DumpLogOptions, dump_log
    from seglog.look.kafka_dump_log.reports import Report
    from seglog.verification.codes import Severity
    from seglog.verification.findings import Finding

    if session.as_json:
        raise UsageError("dump-log prints kafka-dump-log's text; seglog dump --json has the same as JSON lines")
    del max_message_size
    names = [name for name in files.split(",") if name]
    if not names:
        raise UsageError("--files: name at least one file")
    asked = {
        "offsets": offsets_decoder,
        "transaction-log": transaction_log_decoder,
        "cluster-metadata": cluster_metadata_decoder,
        "remote-log-metadata": remote_log_metadata_decoder,
        "share-group-state": share_group_state_decoder,
    }
    options = DumpLogOptions(
        deep_iteration=deep_iteration,
        print_data_log=print_data_log,
        skip_record_metadata=skip_record_metadata,
        verify_index_only=verify_index_only,
        index_sanity_check=index_sanity_check,
        max_bytes=max_bytes,
        decoder=choose_decoder([n for n, on in asked.items() if on], key_decoder_class, value_decoder_class),
        untrusted=untrusted,
        jobs=session.begin_threads(),
    )
    wrong = False
    for item in dump_log(session.fs, [parse_location(name) for name in names], options):
        if isinstance(item, Finding):
            session.console.message(finding_text(session.console, item))
            wrong = wrong or item.severity is not Severity.INFO
        elif isinstance(item, Report):
            for line in item.text.split("\n"):
                session.console.message(line)
            wrong = wrong or item.wrong
        else:
            session.console.write_exactly(item)
    return ExitCode.FOUND if wrong else ExitCode.DONE
