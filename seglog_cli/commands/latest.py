"""`seglog latest`: the newest value of a key, or of every key."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

from seglog_cli.options import argument, command, option, size_option
from seglog_cli.selecting import BytesAs, Isolation, RecordLimit, wants_base64
from seglog_cli.session import Session
from seglog_cli.sourcing import OnCorrupt, source_of, tell_left_out
from seglog_cli.tiering import Tiers
from seglog_cli.valuing import ShownAs, tell_values

MEMORY_BYTES = 64 << 20


@command(urls=["paths"])
def run(
    session: Session,
    paths: Annotated[list[Path], argument("PATH", "Partition directories, LOGDIR/TOPIC, or log directories.")],
    key: Annotated[str | None, option("--key", "KEY", "Take only records with this key.")] = None,
    isolation: Isolation = None,
    on_corrupt: OnCorrupt = "fail",
    memory: Annotated[
        int | None, size_option("--memory", "The memory for keys of a pass (default: 64 MiB).", least=1 << 20)
    ] = None,
    limit: RecordLimit = None,
    bytes_as: BytesAs = "auto",
    *,
    shown_as: ShownAs,
    tiers: Tiers,
) -> int:
    """Shows the newest value of a key, or of every key.

    With --key, each partition is read from its end backwards to the newest record of the key, which may be a tombstone
    (a null value). Without it, the newest record of every key is shown, in the order of offsets, unless it is a
    tombstone: what a compacted topic holds. If the keys do not fit into the memory, the log is read several times.

    Of several partitions, each has a line with its name above its records.

    --value-as and --key-as show values and keys as what they are: numbers, JSON, or by the schemas of a registry, whose
    topic _schemas-0 beside the log suffices. Avro and Protobuf need the extra schemas (pip install '.[schemas]' in
    seglog's clone).

    Only committed records count, unless --isolation read_uncommitted is given. Damage ends the command with an error
    that names file, position and offsets.

    Examples:
      seglog latest customers-0 --key customer-124
      seglog latest --json customers --key customer-124
      seglog latest customers-0 --limit 5
    """
    from seglog.look.dump.render_records import render_records
    from seglog_ask.table.engines.newest import newest_of_key, newest_of_keys

    base64 = wants_base64(bytes_as)
    values = shown_as.values(session, paths, base64=base64)
    source = source_of(session, paths, tiers, isolation or "read_committed", on_corrupt)
    line = partial(render_records, as_json=session.as_json, base64=base64)
    if key is None:
        found = newest_of_keys(source, MEMORY_BYTES if memory is None else memory)
    else:
        found = newest_of_key(source, os.fsencode(key))
    shown, headed = 0, None
    for partition, records in found:
        if limit is not None:
            records = replace(records, rows=records.rows[: limit - shown])
        shown += len(records)
        if len(source.logs) > 1 and partition != headed and len(records) and not session.as_json:
            session.console.write_dump(memoryview(f"partition {partition}\n".encode()))
            headed = partition
        decoder = None if values is None else values.of_topic(partition.topic)
        for block in line(records, str(partition), decoder=decoder):
            session.console.write_dump(block)
        if shown == limit:
            break
    tell_values(session, values)
    if not shown:
        session.console.message("no record has this key" if key is not None else "no record has a key and a value")
    return tiers.code(tell_left_out(session, source))
