"""`seglog explain`: why a partition is in its present state."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from seglog.units import format_time
from seglog_cli.console import Console
from seglog_cli.failures import UsageError
from seglog_cli.options import MetadataDirectory, SpokenFor, argument, command, flag
from seglog_cli.progress import bytes_text
from seglog_cli.session import Session
from seglog_cli.tables import Layout
from seglog_cli.tiering import Tiers
from seglog_cli.views.codes import explain_code, looks_like_code

if TYPE_CHECKING:
    from seglog.operations.explain import Explanation, SegmentExplanation
    from seglog.operations.reasons import Reason

_HEADING = ("SEGMENT", "SIZE", "CLEANING", "DELETION")


@command(urls=["partition", "metadata_dir"])
def run(
    session: Session,
    partition: Annotated[
        Path,
        argument("PARTITION|CODE", "A partition directory, or the code of a finding, a diagnosis or an exit."),
    ],
    advise: Annotated[bool, flag("--advise", "Name the commands that would help.")] = False,
    quick: Annotated[
        bool, flag("--quick", "Read only indexes and headers, and leave out the dry run of the round.")
    ] = False,
    metadata_dir: MetadataDirectory = None,
    kafka_version: SpokenFor = None,
    *,
    tiers: Tiers,
) -> None:
    """Explains why a log is not cleaned, deleted or readable; or a code.

    Three states are explained: not cleaned, not deleted, and not readable past an offset. Each segment gets a verdict:
    clean, dirty, or what keeps it from being cleaned (the active segment, an open transaction, min.compaction.lag.ms),
    and what keeps it from being deleted. The rules are those of `clean` and `retain`. Nothing is changed.

    A dry run of the cleaning round shows whether damage would stop it. --quick leaves that out and reads only indexes
    and headers.

    Readers are held back by the high watermark, by an open transaction, or by an end of the log that cannot be read.
    Damage before the end is found by `seglog verify`.

    What brokers do is told for the release that wrote the log directory, as far as it is recognised, else for 4.3;
    --kafka-version chooses another one. Topics of a cluster with ZooKeeper have their configuration there: the output
    says so.

    --advise names commands that clean or delete. Each one is tried in memory first, and shown only if it would do
    something.

    In JSON each reason has a code, such as OPEN_TRANSACTION, that stays the same when the sentence changes.

    In place of a partition, a code may be given, as `verify` and `doctor` show them, or the exit code of a command: the
    output says what it means, what a broker does, and what mends it.

    Examples:
      seglog explain customers-0
      seglog explain CRC_MISMATCH
      seglog explain --advise --json payments-0
    """
    if looks_like_code(partition.name) and str(partition) == partition.name and not session.fs.status(partition):
        if advise or quick or metadata_dir is not None or kafka_version is not None or tiers.given:
            raise UsageError(f"{partition} is a code: the options of explain are for a partition")
        explain_code(session.console, partition.name)
        return
    from seglog.operations.explain import ExplainRequest, explain

    session, (partition,) = tiers.seen(session, [partition])
    request = ExplainRequest(partition, quick, metadata_dir, kafka_version)
    show_explanation(session.console, explain(session.workspace("--config", "--set", "--now"), request), advise)


def show_explanation(console: Console, found: Explanation, advise: bool) -> None:
    """Shows the explanation; the advice only on request, and of which Kafka it speaks if it is an unusual one."""
    if console.as_json:
        console.json(_record(found, advise))
        return
    console.line(console.styled(found.partition, "strong"))
    for title, sentences in _sections(found).items():
        _show_section(console, title, sentences)
    if found.is_unusual:
        _show_section(console, "kafka", found.kafka)
    rows = [_row(segment) for segment in found.segments]
    console.table(_HEADING, rows, Layout(right=(1,), indent=2))
    if advise:
        advice = found.advice or ("no command of seglog would clean or delete anything here now",)
        _show_section(console, "advice", advice)


def _sections(found: Explanation) -> dict[str, tuple[Reason, ...]]:
    return {"cleaning": found.cleaning, "deletion": found.deletion, "reading": found.reading}


def _show_section(console: Console, title: str, sentences: Sequence[str]) -> None:
    """Shows sentences beside their title, which is in front of the first one."""
    for number, sentence in enumerate(sentences):
        label, hang = (f"{title}:", 10) if number == 0 else ("", 0)
        console.indented([f"{label:<10}{sentence}"], hang)


def _row(segment: SegmentExplanation) -> tuple[str, ...]:
    until = "" if segment.deletable_ms is None else f" (by time: {format_time(segment.deletable_ms)})"
    return (str(segment.base_offset), bytes_text(segment.size), segment.cleaning, segment.deletion + until)


def _record(found: Explanation, advise: bool) -> dict[str, object]:
    state, sections = found.state, {**_sections(found), "kafka": found.kafka}
    return {
        "type": "explanation",
        "partition": found.partition,
        "log_start_offset": found.log_start_offset,
        "high_watermark": found.high_watermark,
        "last_stable_offset": found.last_stable_offset,
        "log_end_offset": found.log_end_offset,
        "first_dirty_offset": state.first_dirty_offset,
        "first_uncleanable_offset": state.first_uncleanable_offset,
        "clean_bytes": state.clean_bytes,
        "cleanable_bytes": state.cleanable_bytes,
        "cleanable_ratio": state.cleanable_ratio,
        "eligible": found.eligible,
        **{name: list(reasons) for name, reasons in sections.items()},
        "codes": {name: [reason.code for reason in reasons] for name, reasons in sections.items()},
        "transactions": [dataclasses.asdict(transaction) for transaction in found.transactions],
        "segments": [
            {
                **dataclasses.asdict(segment),
                "cleaning_code": segment.cleaning.code,
                "deletion_code": segment.deletion.code,
            }
            for segment in found.segments
        ],
        **({"advice": list(found.advice)} if advise else {}),
    }
