"""`seglog replay`: produces a dead cluster's records to a running one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from seglog.errors import NotALogError
from seglog.units import count_text
from seglog_cli.console import Console
from seglog_cli.exit_codes import ExitCode
from seglog_cli.failures import UsageError
from seglog_cli.options import Directories, DryRun, command, flag, option, require_servers, size_option
from seglog_cli.session import Session
from seglog_cli.tiering import Tiers

if TYPE_CHECKING:
    from seglog_rescue.operations.groups import GroupsReport
    from seglog_rescue.serve.replay.replay import PartitionReplay, Replay, Translated
    from seglog_rescue.serve.replay.state import ReplayState


@command(urls=["paths"])
def run(
    session: Session,
    paths: Directories,
    to: Annotated[str, option("--to", "HOST:PORT", "The bootstrap servers of the target cluster.")],
    state: Annotated[
        Path, option("--state", "FILE", "The file that keeps the progress. Give the same file again to continue.")
    ],
    map_file: Annotated[
        Path | None, option("--map", "FILE", "Write the old and the new offset of the records to this file (CSV).")
    ] = None,
    groups: Annotated[
        bool, flag("--groups", "At the end, translate the groups' committed offsets and set them. This needs --map.")
    ] = False,
    topic: Annotated[
        list[str] | None, option("--topic", "OLD=NEW", "Send OLD's records to the topic NEW; repeatable.")
    ] = None,
    throttle: Annotated[
        int | None, size_option("--throttle", "Send at most this many bytes a second.", least=1)
    ] = None,
    client_property: Annotated[
        list[str] | None, option("--property", "KEY=VALUE", "A setting of the Kafka client (librdkafka); repeatable.")
    ] = None,
    property_file: Annotated[
        Path | None,
        option("--property-file", "FILE", "A file with settings of the Kafka client, one KEY=VALUE a line."),
    ] = None,
    dry_run: DryRun = False,
    *,
    tiers: Tiers,
) -> int:
    """Produces the records of partitions to another, running cluster.

    Partition, key, value, headers and timestamp stay the same; offsets change. If offsets must stay, use `seglog
    transplant` instead. The topics must exist in the other cluster, with as many partitions: each record stays in its
    partition.

    Each record arrives exactly once, even if the replay is killed: run the same command again with the same --state.
    Until the replay is complete, nobody may compact, trim or delete what it has written.

    Only committed records are sent: none of an aborted transaction, and none after the start of the first transaction
    that has no end. Internal topics are left out.

    --groups moves the consumer groups too. It reads __consumer_offsets in the log directories that are named, or that
    the named partitions are in, translates each committed offset by the --map file, and sets it in the cluster. The
    groups must have no members there. A group that has gone on since an earlier run set its offset keeps its own.

    This needs the extra kafka (pip install '.[kafka]' in seglog's clone).

    Examples:
      seglog replay --to kafka:9092 --state orders.state --map orders.csv --groups /mnt/dead/data/orders-0
      seglog replay --to kafka:9092 --state all.state --map all.csv --groups /mnt/dead1/data /mnt/dead2/data
      seglog replay --to kafka:9092 --state o.state --topic orders=orders-new --throttle 20MB /mnt/dead/data/orders-0
    """
    from seglog_rescue.serve.catalog import Catalog
    from seglog_rescue.serve.replay.replay import Replay
    from seglog_rescue.serve.replay.target import TargetCluster

    require_servers("--to", to)
    if groups and map_file is None:
        raise UsageError("--groups needs --map: committed offsets are translated by it")
    looking, paths = tiers.seen(session, paths, warn_of_runs=False)
    committed = _read_groups(looking, paths) if groups else None
    names = _pairs("--topic", topic or ())
    properties = {**_read_properties(session, property_file), **_pairs("--property", client_property or ())}
    with (
        Catalog.open(paths, fs=looking.fs, clock=session.clock, config_of=looking.config_of) as catalog,
        TargetCluster(to, properties) as cluster,
    ):
        replay = Replay(
            catalog,
            cluster,
            session.fs,
            session.clock,
            session.resolved(state),
            map_file=None if map_file is None else session.resolved(map_file),
            topics=names,
            bytes_per_second=throttle,
        )
        planned = replay.plan()
        show_plan(session.console, planned)
        left_out = list(replay.left_out(planned))
        for sentence in (*left_out, *replay.stamped(planned)):
            session.console.warning(sentence)
        code = ExitCode.INCOMPLETE if left_out else ExitCode.DONE
        if dry_run:
            return code
        with session.progress("replay", sum(one.end_offset - one.next_offset for one in planned), "offsets") as bar:
            replay.run(planned, lambda _size: bar.advance(1))
        show_replayed(session.console, replay.state)
        if committed is not None:
            _set_offsets(looking, replay, committed)
    return tiers.code(code)


def _pairs(option: str, given: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise UsageError(f"{option} {text!r} is not of the form NAME=VALUE")
        found[name.strip()] = value.strip()
    return found


def _read_properties(session: Session, path: Path | None) -> dict[str, str]:
    if path is None:
        return {}
    lines = session.fs.read_bytes(session.resolved(path)).decode("utf-8", "replace").splitlines()
    return _pairs("--property-file", [line for line in lines if line.strip() and not line.lstrip().startswith("#")])


def _read_groups(session: Session, paths: Sequence[Path]) -> GroupsReport:
    """Reads the groups of the log directories that are named, or that named partitions are in."""
    from seglog.scan.listing import Target, TargetKind, log_directory_of, resolve_paths
    from seglog_rescue.operations.groups import read_groups

    directories = list(dict.fromkeys(log_directory_of(target) for target in resolve_paths(session.fs, paths)))
    try:
        return read_groups(session.fs, [Target(path, TargetKind.LOG_DIRECTORY) for path in directories])
    except NotALogError as error:
        places = ", ".join(map(str, directories))
        raise UsageError(
            f"--groups needs __consumer_offsets, and there is none in {places}; name its log directory"
        ) from error


def _set_offsets(session: Session, replay: Replay, report: GroupsReport) -> None:
    """Translates the groups' committed offsets, shows them, and sets them in the cluster."""
    for sentence in (*report.problems, *report.notes):
        session.console.warning(sentence)
    for sentence in replay.left_behind(report.groups):
        session.console.warning(sentence)
    translated = list(replay.translate(report.groups))
    for one in translated:
        show_translated(session.console, one)
    for sentence in replay.commit(translated):
        session.console.warning(sentence)


def show_plan(console: Console, planned: Sequence[PartitionReplay]) -> None:
    """Shows the offsets of each partition to send, and the target."""
    for one in planned:
        offsets = f"from offset {one.next_offset} to {one.end_offset - 1}"
        left = offsets if one.next_offset < one.end_offset else f"nothing left from offset {one.next_offset} on"
        console.result(
            {
                "type": "replay_plan",
                "partition": str(one.source),
                "directory": str(one.directory),
                "target": str(one.target),
                "from_offset": one.next_offset,
                "to_offset": one.end_offset,
            },
            f"{one.source} → {one.target}: {left}",
        )


def show_replayed(console: Console, state: ReplayState) -> None:
    """Shows what has arrived of each partition, in this run and those before it."""
    for source, progress in sorted(state.partitions.items()):
        console.result(
            {
                "type": "replayed",
                "partition": str(source),
                "target": str(progress.target),
                "records": progress.records,
                "next_offset": progress.next_offset,
                "target_end_offset": progress.target_end,
            },
            f"{source} → {progress.target}: {count_text(progress.records, 'record')} replayed in all",
        )


def show_translated(console: Console, one: Translated) -> None:
    """Shows a group's offset, old and new."""
    console.result(
        {
            "type": "group_offset",
            "group": one.group,
            "partition": str(one.source),
            "offset": one.offset,
            "target": str(one.target),
            "new_offset": one.new_offset,
        },
        f"group {one.group}: {one.source} offset {one.offset} → {one.target} {one.new_offset}",
    )
