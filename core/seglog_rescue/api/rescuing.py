"""Functions of rescue: whether a broker would start, and how records and partitions come to a new place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from seglog.api.calling import public, public_verb
from seglog.arguments import flag, instance, integer, mapping, several
from seglog.operations.undo import remember_run
from seglog.operations.workspace import (
    CommonArguments,
    Location,
    ReadArguments,
    Workspace,
    local_path,
    looked_at,
    optional_release,
    optional_size,
    path_of,
    paths_of,
    request_of,
    warn,
    workspace_of,
)
from seglog_rescue.doctor.doctor import Doctor
from seglog_rescue.operations import rebuild as rebuilding
from seglog_rescue.operations import restore as restoring
from seglog_rescue.operations import transplant as transplanting
from seglog_rescue.operations.rebuild import RebuildRequest
from seglog_rescue.operations.restore import RestorePlan
from seglog_rescue.operations.transplant import TransplantArguments, TransplantKeywords, TransplantRequest
from seglog_rescue.rebuild.plan import RebuildPlan
from seglog_rescue.salvage.salvage import DEFAULT_SEGMENT_BYTES, SalvageOptions, SalvageReport
from seglog_rescue.salvage.salvage import salvage as salvage_logs
from seglog_rescue.transplant.apply import TransplantOutcome, carry_out
from seglog_rescue.transplant.plan import TransplantPlan


@public
def doctor(
    *log_directories: Location, quick: bool = False, kafka_version: str | None = None, **common: Unpack[ReadArguments]
) -> Doctor:
    """Predicts whether a Kafka broker would start on these log directories, and what it would do to the data.

    Iterate over the result for its diagnoses. Its `summary` is complete after the iteration, and runs the diagnosis
    itself if nothing has iterated; `summary.loads` is True if the broker would start. Give all log directories of one
    broker together. `quick` does not read all data. `kafka_version` is the release that shall start: by default
    the one that wrote the directory, or 4.3 if nothing shows it. Raises NotALogError for a path that is not a
    directory.

    >>> import tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with seglog.open_log(directory + "/t-0", create=True) as log:
    ...         info = log.append([seglog.Record(b"value", timestamp=1000)])
    ...     diagnosis = seglog.doctor(directory)
    ...     [row.code for row in diagnosis if row.gravity.value == "blocker"], diagnosis.summary.loads
    ([], True)
    """
    work, shown = looked_at(common, log_directories, tell_of_runs=False)
    deep, kafka = not flag("quick", quick), optional_release("kafka_version", kafka_version)
    return Doctor(work.fs, shown, work.clock, work.settings, deep=deep, kafka=kafka)


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
    work, request = _request_of_transplant(work, sources, into, keywords)
    return transplanting.plan_transplant(work.fs, work.clock, request, request.settings(work))


@public_verb(TransplantRequest)
def transplant(*sources: Location, into: Location, **given: Unpack[TransplantArguments]) -> TransplantOutcome:
    """Copies a dead cluster's partitions into the log directory `into` of another cluster's stopped broker.

    Offsets stay. A source may be a snapshot of a backup, where it is. `topics` takes only these topics, under new names
    if it is a mapping. `transactions_of` are further log directories, or snapshots, whose `__transaction_state` says
    how open transactions ended. `every_replica` confirms that every replica gets the same data. `beside` are the
    broker's other log directories: partitions that it has there are left to a call with that directory as `into`.
    `undo(outcome.run)` takes it back until the broker has written. Raises, before anything changes, RefusedError,
    LockedError, NotALogError, or Obstacles for several of them.

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
    work, request = _request_of_transplant(work, sources, into, keywords)
    with transplanting.locked_targets(work.fs, request):
        settings = request.settings(work)
        plan = transplanting.plan_transplant(work.fs, work.clock, request, settings)
        outcome = carry_out(work.fs, work.clock, plan, settings, lambda _size: None)
    if outcome.run is not None:
        warn(remember_run(work.fs, work.environment, outcome.run.folder))
    if outcome.failure is not None:
        raise outcome.failure
    return outcome


def _request_of_transplant(
    work: Workspace, sources: tuple[Location, ...], into: Location, keywords: TransplantKeywords
) -> tuple[Workspace, TransplantRequest]:
    fs, request = TransplantRequest.seeing_snapshots(work.fs, paths_of(sources), into, keywords)
    return replace(work, fs=fs), request


@public
def plan_rebuild(
    *log_directories: Location,
    metadata: Sequence[Location] = (),
    nodes: Mapping[Location, int] | None = None,
    cluster_id: str | None = None,
    features: Mapping[str, int] | None = None,
    allow_missing: bool = False,
    without: Sequence[int] = (),
    **common: Unpack[CommonArguments],
) -> RebuildPlan:
    """Reconstructs a cluster's metadata from its brokers' log directories and from what remains of its metadata logs.

    Returns a plan with the `topics` and their partitions, `features`, and `notes` on what is unknown. `metadata` are
    further metadata logs or snapshots. `nodes` gives the node ids of directories without `meta.properties`.
    `cluster_id` and `features` (name to level) set what no directory tells. Raises RefusedError, or Obstacles, for
    directories that contradict each other, or that lack partitions unless `allow_missing` is set. It also refuses a set
    that lacks brokers or directories which the metadata names; `without` gives up what is missing of these brokers.

    >>> import os, tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as place:
    ...     os.mkdir(place + "/logs")
    ...     with seglog.open_log(place + "/logs/clicks-0", create=True) as log:
    ...         info = log.append([seglog.Record(b"value", timestamp=1000)])
    ...     plan = seglog.plan_rebuild(place + "/logs", nodes={place + "/logs": 1})
    ...     made = seglog.rebuild(plan, place + "/made")
    ...     [(topic.name, topic.partitions[0].log_end) for topic in plan.topics], made[0].name
    ([('clicks', 1)], 'bootstrap.checkpoint')
    """
    work = workspace_of(common)
    given_nodes = mapping("nodes", nodes, "a mapping from log directories to node ids")
    levels = mapping("features", features, "a mapping from names to levels")
    request = RebuildRequest(
        [path_of("log_directories", path) for path in log_directories],
        [path_of("metadata", path) for path in several("metadata", metadata, "a list of paths")],
        {path_of("nodes", path): integer("nodes", node) for path, node in given_nodes.items()},
        None if cluster_id is None else instance("cluster_id", cluster_id, str, "text"),
        {name: integer("features", level) for name, level in levels.items()},
        flag("allow_missing", allow_missing),
        [integer("without", node) for node in several("without", without, "a list of node ids")],
    )
    return rebuilding.plan_rebuild(work.fs, work.clock, request)


@public
def rebuild(plan: RebuildPlan, output: Location, **common: Unpack[CommonArguments]) -> list[Path]:
    """Creates the directory `output` with the plan's snapshot, and returns the files it wrote.

    The metadata log of a new controller begins with that snapshot: `bootstrap.checkpoint` for Kafka up to 4.3, the one
    in `__cluster_metadata-0` from 4.4 on. `output` also gets the small files that the log
    directories lack; the log directories themselves stay unchanged. Raises RefusedError if `output` holds something.
    The example of `plan_rebuild` shows it.
    """
    work = workspace_of(common)
    made = instance("plan", plan, RebuildPlan, "what plan_rebuild gives")
    return rebuilding.write_rebuilt(work.fs, work.clock, made, path_of("output", output))


@public
def plan_restore(
    *sources: Location, output: Location, topics: Sequence[str] = (), **common: Unpack[CommonArguments]
) -> RestorePlan:
    """Plans which partitions the directories of `sources` become in the directory `output`. Changes nothing.

    Sources are directories that a broker set aside (`-delete`, `-stray`, `-future`), a run's folder in the quarantine,
    and copies of a partition's directory. Parts of one partition are joined: `partitions[i].joined` has the offsets,
    `damage` and `missing`. `topics` are the whole names of topics that a broker cut in the names of directories, which
    have at most 255 characters. Raises NotALogError if there is nothing to restore, RefusedError, or Obstacles, for
    parts that contradict each other, a topic without its whole name, or an `output` that is a broker's log directory.
    The example of `restore` shows it.
    """
    work = workspace_of(common)
    paths = [path_of("sources", path) for path in sources]
    return restoring.plan_restore(work.fs, paths, path_of("output", output), several("topics", topics, "names"))


@public
def restore(plan: RestorePlan, **common: Unpack[CommonArguments]) -> list[Path]:
    """Creates the partitions of a plan, each completely or not at all, and returns their directories.

    Raises RefusedError if the disk lacks room, or if a target directory has appeared since the plan was made.

    >>> import os, tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as place:
    ...     os.mkdir(place + "/logs")
    ...     with seglog.open_log(place + "/logs/clicks-0", create=True) as log:
    ...         info = log.append([seglog.Record(b"value", timestamp=1000)])
    ...     os.rename(place + "/logs/clicks-0", place + "/logs/clicks-0.0123456789abcdef-stray")
    ...     plan = seglog.plan_restore(place + "/logs", output=place + "/new")
    ...     (made,) = seglog.restore(plan)
    ...     with seglog.open_log(made) as log:
    ...         [record.value for record in log.records()]
    [b'value']
    """
    work = workspace_of(common)
    return restoring.restore(work.fs, work.clock, instance("plan", plan, RestorePlan, "what plan_restore gives"))
