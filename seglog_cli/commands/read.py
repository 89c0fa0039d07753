"""`seglog read`: records as a broker would serve them."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from seglog_cli.exit_codes import ExitCode
from seglog_cli.failures import UsageError
from seglog_cli.options import Partition, command, size_option
from seglog_cli.selecting import BytesAs, Decode, RecordLimit, Searched, require_decoders, wants_base64
from seglog_cli.session import Session
from seglog_cli.tiering import Tiers
from seglog_cli.valuing import ShownAs, tell_values

if TYPE_CHECKING:
    from seglog.log.log import Log
    from seglog.scan.listing import PartitionListing

_SHOWN = 3


@command(urls=["partition"])
def run(
    session: Session,
    partition: Partition,
    wanted: Searched,
    shown_as: ShownAs,
    max_bytes: Annotated[
        int | None, size_option("--max-bytes", "Make one fetch of at most this size, as a consumer does.", least=0)
    ] = None,
    limit: RecordLimit = None,
    bytes_as: BytesAs = "auto",
    decode: Decode = False,
    *,
    tiers: Tiers,
) -> int:
    """Reads records from an offset or a time on.

    Reading begins at the log start, unless --from-offset or --since is given, and goes on to the end. A --from-offset
    outside the log is an error that names the valid range. --max-bytes makes one fetch as a consumer does: at least one
    batch, whatever its size.

    --isolation read_committed leaves out records of aborted transactions, and everything after the first open one.

    Damage ends the command with an error that names file, position and offsets; the exit code is then 1. That is a
    wrong checksum, bytes that are not a batch, or a log that ends within a batch. Where offsets do not ascend (a block
    that was written twice, moved, or comes from elsewhere), each offset is shown once, in the order of the files, and a
    warning names the place.

    --value-as and --key-as show values and keys as what they are: numbers, JSON, or by the schemas of a registry, whose
    topic _schemas-0 beside the log suffices. A value that does not decode is shown as bytes (value_b64 in JSON), with
    value_schema and value_error; one that decodes in part has both. With registry, what has neither frame nor schema
    and is text is shown as text, with value_error.

    Kafka's own serializers write numbers big-endian; short-le to double-le are little-endian. gzip is text that was
    compressed within the value, gzip-json a JSON document; avro-file is a file of Avro, with its schema in front, and
    shows a list of its records. msgpack and cbor show bytes as base64. Avro, Protobuf, MessagePack and CBOR need the
    extra schemas (pip install '.[schemas]' in seglog's clone).

    --decode (--key-as kafka --value-as kafka) shows records of internal topics by what the topic's name says:
    __consumer_offsets and the other ones of Kafka as kafka-dump-log's decoders do, and those of MirrorMaker, Connect,
    the schema registry and Streams; in JSON, keys and values are then objects. Secrets are (hidden) there: Connect's
    session key, passwords of connectors and of a KMS. --value-as json shows them, too.

    Of a topic whose name says nothing, such as another name for Connect's topics, --value-as (and --key-as) kafka:KIND
    says what it holds: offsets, transactions, share-states, metadata, remote-log-metadata, mirror-offset-syncs,
    mirror-checkpoints, mirror-heartbeats, connect-configs, connect-offsets, connect-status, schemas, encryption-keys,
    streams-window (changelog of a window store), streams-session, streams-windowed-key (a key with the start of its
    window), streams-outer-join, streams-suppress, streams-foreign-key, streams-subscription or streams-response.

    In a log of Kafka 0.7, offsets are byte positions: --from-offset begins at the first message there or after it.

    Examples:
      seglog read orders-lz4-0 --from-offset 700
      seglog read --json payments-0 --isolation read_committed --limit 3
      seglog read clicks-0 --since 2026-11-21T05:03 --limit 1
      seglog read customers-0 --key customer-124
      seglog read --json __consumer_offsets-0 --decode
    """
    from seglog.look.dump.render_records import render_records
    from seglog.operations.read import fetch_records
    from seglog.storage import links

    selection = wanted.selection()
    base64 = wants_base64(bytes_as)
    given = partition
    session, (partition,) = tiers.seen(session, [partition])
    values = shown_as.values(session, [given], decode=decode, base64=base64)
    require_decoders(decode, base64, [links.name_of(partition)])
    listing = _listing_07(session, partition)
    if listing is not None:
        from seglog.look.dump.file_lines import json_line, text_line
        from seglog.operations.read import read_07

        if values is not None:
            raise UsageError("messages of Kafka 0.7 are shown as they are: leave out --key-as, --value-as and --decode")
        absent = ("to_offset", "since", "until", "key", "producer_id", "isolation", "grep")
        wanted.refuse("messages of Kafka 0.7 have only an offset and a value to choose by", *absent)
        show = json_line if session.as_json else text_line
        for fields in read_07(session.fs, listing, wanted.from_offset, limit, max_bytes, base64):
            session.console.write(show("record", fields))
        return ExitCode.DONE
    logging.getLogger("seglog.log.reader").addHandler(logging.NullHandler())  # `_tell_disorders` says more
    with session.open_log(partition) as log:
        name = str(log.topic_partition)
        decoder = None if values is None else values.of_topic(log.topic_partition.topic)
        line = partial(render_records, as_json=session.as_json, base64=base64, decoder=decoder)
        try:
            for records in fetch_records(log, selection, max_bytes=max_bytes, limit=limit):
                for block in line(records, name):
                    session.console.write_dump(block)
        finally:
            _tell_disorders(session, log)
            tell_values(session, values)
    return tiers.code(ExitCode.DONE)


def _tell_disorders(session: Session, log: Log) -> None:
    for disorder in log.disorders[:_SHOWN]:
        session.console.warning(str(disorder))
    if len(log.disorders) > _SHOWN:
        session.console.warning(f"offsets do not ascend in {len(log.disorders) - _SHOWN} other segments either")


def _listing_07(session: Session, partition: Path) -> PartitionListing | None:
    """Returns the files of a log of Kafka 0.7; None for any other."""
    from seglog.scan.listing import list_partition

    status = session.fs.status(partition)
    if status is None or not status.is_directory:
        return None  # opening it reports that
    listing = list_partition(session.fs, partition)
    return listing if listing.format == "0.7" else None
