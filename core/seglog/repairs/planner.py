"""Plans the repair of a partition, from findings or, without them, by examining every file.

The planner works on an overlay, so that each step sees the result of the previous one:

1. Renames misnamed segments (`misnamed`). Settles leftovers: finishes an interrupted swap or, if its new files are
   damaged and the old ones are not, undoes it; removes `.deleted` and `.cleaned` files and orphaned indexes.
2. Surveys suspect segments for their good ranges (`segment_survey`) and moves batches in another segment's file to
   their own (`strays`); of two files that hold the same records, one stays (`repeated`). With policy `truncate`,
   recovers segments as a broker would instead.
3. Lists the indexes, snapshots and epochs that contradict the data or that the previous steps outdate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from seglog.clock import Clock
from seglog.errors import CorruptIndexError, CorruptionError, RefusedError, SegmentOffsetOverflowError
from seglog.format import filenames
from seglog.format.filenames import FileKind, PartitionState, parse_file_name, segment_file_name
from seglog.format.repair_note import Gap
from seglog.log.indexes import TransactionIndex
from seglog.log.loader import LoadOptions, plan_recovery
from seglog.log.recovered_segment import is_preallocated
from seglog.log.segment import LogSegment
from seglog.repairs.epoch_mending import EpochPatch, epoch_patches
from seglog.repairs.leftovers import settle_on
from seglog.repairs.misnamed import settle_names
from seglog.repairs.overflow import Splits, split_segments
from seglog.repairs.plan import FileRepair, PartitionPlan, Policy, RepairOptions, RepairPart, SegmentRepair
from seglog.repairs.repeated import Repeated, repeated_names
from seglog.repairs.strays import gather, may_have_strays, names_within_batches
from seglog.scan.listing import INDEX_KINDS, PartitionListing, SegmentFiles, list_partition
from seglog.scan.resync import PlausibleOffsets
from seglog.storage.filesystem import FileSystem
from seglog.storage.overlay import OverlayFileSystem
from seglog.units import count_text
from seglog.verification.codes import Severity, Trait
from seglog.verification.findings import Finding
from seglog.verification.losses import LOG_END_MISSING
from seglog.verification.segment_survey import ByteRange, RemovedRange, SegmentSurveyor, Survey, survey_07


@dataclass(slots=True)
class _Draft:
    segments: list[SegmentRepair] = field(default_factory=list)
    files: list[FileRepair] = field(default_factory=list)
    replay_from: int | None = None
    epochs: bool = False
    end_is_known: bool = False
    gaps: list[Gap] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unrepaired: list[str] = field(default_factory=list)

    def replay(self, offset: int) -> None:
        self.replay_from = offset if self.replay_from is None else min(offset, self.replay_from)


def plan_partition(
    fs: FileSystem,
    clock: Clock,
    directory: Path,
    findings: Sequence[Finding] | None,
    options: RepairOptions,
    progress: Callable[[int], None] | None = None,
) -> PartitionPlan:
    """Plans the repair of one partition. `findings` are those on this partition; None suspects every file.

    Raises RefusedError for deleted and stray partitions and for the controller's own log.
    """
    name = filenames.parse_partition_directory(directory.name)
    if name is not None and name.state in (PartitionState.DELETED, PartitionState.STRAY):
        raise RefusedError(f"{directory} is a deleted or stray partition, which only its broker may touch")
    if name is not None and name.topic_partition.topic == filenames.CLUSTER_METADATA_TOPIC:
        raise RefusedError(
            f"{directory} is the controller's own log: a gap in it would lose the cluster's metadata; let the quorum"
            " replicate it again"
        )
    return _RepairPlanner(fs, clock, directory, findings, options, progress).plan()


class _RepairPlanner:
    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        directory: Path,
        findings: Sequence[Finding] | None,
        options: RepairOptions,
        progress: Callable[[int], None] | None,
    ) -> None:
        self._fs, self._clock, self._directory, self._options = fs, clock, directory, options
        self._findings = findings
        self._overlay = OverlayFileSystem(fs)
        self._draft = _Draft()
        reorder = options.policy is Policy.SMALLEST_LOSS
        self._surveyor = SegmentSurveyor(self._overlay, reorder=reorder, progress=progress)
        self._sources: dict[str, str] = {}
        self._patches: dict[str, tuple[EpochPatch, ...]] = {}
        self._keeps_epochs = False  # the right epochs are unknown, so the checkpoint that may show them later stays
        self._left: Set[int] = frozenset()  # base offsets of segments that keep what lies beyond the next one's name
        self._ends: dict[int, int] = {}  # base offset → next offset of the segments that change

    def plan(self) -> PartitionPlan:
        draft = self._draft
        if RepairPart.LOG in self._options.only:
            self._settle_leftovers()
        listing = list_partition(self._overlay, self._directory)
        if listing.format == "0.7":
            self._plan_07(listing)
            return self._planned(0)
        if RepairPart.LOG in self._options.only:
            if self._options.policy is Policy.TRUNCATE:
                truncated = self._plan_truncation(listing)
                if truncated is None:
                    return self._planned(self._log_end_offset(listing))
                listing = truncated
            else:
                self._plan_surveys(listing)
                listing = list_partition(self._overlay, self._directory)
        end = self._log_end_offset(listing)
        self._plan_indexes(listing)
        self._plan_snapshots(listing)
        suspect = self._findings is None or any(f.file == filenames.LEADER_EPOCH_CHECKPOINT for f in self._findings)
        kept = self._keeps_epochs or self._epochs_differ_only_by_patches()
        draft.epochs = RepairPart.EPOCHS in self._options.only and suspect and not kept
        self._note_lost_markers(listing)
        self._plan_unrepaired()
        return self._planned(end)

    def _planned(self, end: int) -> PartitionPlan:
        draft = self._draft
        rebuilt = {file.name for file in draft.files if file.action == "rebuild"}
        files = [file for file in draft.files if file.action != "remove" or file.name not in rebuilt]
        return PartitionPlan(
            self._directory,
            tuple(draft.segments),
            tuple(files),
            draft.replay_from,
            draft.epochs,
            end,
            tuple(draft.gaps),
            tuple(draft.notes),
            tuple(draft.unrepaired),
            draft.end_is_known,
        )

    # --- the steps ----------------------------------------------------------------------------------------

    def _settle_leftovers(self) -> None:
        settled = []
        if self._options.policy is not Policy.TRUNCATE and (
            self._findings is None or self._has_code("OFFSET_OUT_OF_SEGMENT")
        ):
            settled += settle_names(self._overlay, self._directory)
        if self._findings is None or self._has_code("LEFTOVER_FILE", "ORPHAN_INDEX"):
            settled += settle_on(self._overlay, self._directory, self._surveyor)
        self._draft.files += settled
        self._sources = {file.name: file.source for file in settled if file.action == "move"}
        for offset in self._moved_logs():
            self._draft.replay(offset)

    def _plan_surveys(self, listing: PartitionListing) -> None:
        before = listing.segments
        splits = split_segments(self._overlay, self._surveyor, before, self._suspects)
        segments = list_partition(self._overlay, self._directory).segments if splits.surveys else before
        surveys = splits.surveys | {
            segment.log.name: self._surveyor.survey(segment.log, PlausibleOffsets.of_number(segments, i))
            for i, segment in enumerate(segments)
            if self._suspects(segment.log.name) and segment.log.name not in splits.surveys
        }
        if self._findings is None or self._has_code("LEADER_EPOCH_DECREASING"):
            kept = {name: survey.kept for name, survey in surveys.items() if name not in splits.surveys}
            logs = [(segment.log, kept.get(segment.log.name)) for segment in before]
            found = epoch_patches(self._overlay, self._directory, logs)
            # Those of a segment that is split are left to the next repair.
            self._patches = {name: patches for name, patches in found.by_log.items() if name not in splits.surveys}
            if found.left:
                self._keeps_epochs = found.noted
                checkpoint = f", and so does {filenames.LEADER_EPOCH_CHECKPOINT}" if found.noted else ""
                self._draft.notes.append(
                    f"{self._directory}: leader epochs fall at {count_text(found.left, 'batch')}, and"
                    " nothing shows which are right:"
                    f" they stay{checkpoint}"
                )
        came = splits.came
        if self._options.policy is Policy.SMALLEST_LOSS:
            segments, came = self._gather(segments, surveys, splits)
        for i, segment in enumerate(segments):
            name, base = segment.log.name, segment.base_offset
            own = PlausibleOffsets.of_number(segments, i)
            bounds = PlausibleOffsets.of_segment(base) if base in self._left else own
            if name in self._patches and name not in surveys:
                surveys[name] = self._surveyor.survey(segment.log, bounds)
            if name in splits.last and not surveys[name].kept:
                self._remove_segment(segment.files, "its name can hold none of its offsets")
            elif name in self._patches or name in came or (name in surveys and not surveys[name].is_whole):
                self._add_segment(segment, surveys[name], bounds, came.get(name, 0))
        self._plan_note(before, splits)

    def _gather(
        self, segments: tuple[SegmentFiles, ...], surveys: dict[str, Survey], splits: Splits
    ) -> tuple[tuple[SegmentFiles, ...], dict[str, int]]:
        """Updates the surveys of segments whose batches are in other segments' files.

        Returns the segments that will exist, and the number of batches that each gains, by log name.
        """
        strayed = {
            segment.base_offset
            for segment in segments
            if (survey := surveys.get(segment.log.name)) is not None
            and (may_have_strays(survey) or (segment.log.name in self._sources and not survey.is_whole))
        }
        came = Counter(splits.came)
        if not strayed:
            return segments, came
        repeated = repeated_names(self._overlay, segments, strayed)
        if repeated.contested:
            self._leave(repeated, segments, strayed, surveys)
            return segments, came
        none = names_within_batches(self._overlay, segments, self._surveys_of(segments, surveys), strayed)
        none |= repeated.names
        none -= {segment.base_offset for segment in segments if segment.log.name in splits.surveys}
        others = [segment for segment in segments if segment.base_offset in none]
        wider = [before for before, after in pairwise(segments) if after.base_offset in none]
        segments = tuple(segment for segment in segments if segment.base_offset not in none)
        survey_of = self._surveys_of(segments, surveys)
        for segment in wider:
            wide = segment in segments and segment.log.name not in splits.surveys
            if wide and surveys.pop(segment.log.name, None) is not None:
                survey_of(segment)
        found = gather(self._overlay, segments, survey_of, sorted(strayed - none), others, repeated.copies)
        for base, survey in found.surveys.items():
            surveys[segment_file_name(base, FileKind.LOG)] = survey
        for each in others:
            again = each.base_offset in repeated.names
            reason = "another segment has its records" if again else "its name lies within a batch of another segment"
            self._remove_segment(each.files, reason)
        came.update({segment_file_name(base, FileKind.LOG): count for base, count in found.came.items()})
        return segments, came

    def _leave(
        self, repeated: Repeated, segments: Sequence[SegmentFiles], strayed: Set[int], surveys: dict[str, Survey]
    ) -> None:
        """Lets every file of `strayed` keep its batches, and says why."""
        logs = {segment.base_offset: segment.log for segment in segments}
        self._left = strayed
        for base in strayed:
            surveys[logs[base].name] = self._surveyor.survey(logs[base], PlausibleOffsets.of_segment(base))
        for earlier, later in repeated.contested:
            self._draft.unrepaired.append(
                f"{logs[earlier]}: its batches and those of {logs[later].name} overlap, and each of the two holds"
                " records that the other lacks: no batch changes its file, so that none is lost"
            )

    def _surveys_of(
        self, segments: Sequence[SegmentFiles], surveys: dict[str, Survey]
    ) -> Callable[[SegmentFiles], Survey]:
        """Returns a function that gives the survey of one of `segments`, made at the first request."""
        numbers = {segment.base_offset: i for i, segment in enumerate(segments)}

        def survey_of(segment: SegmentFiles) -> Survey:
            if segment.log.name not in surveys:
                bounds = PlausibleOffsets.of_number(segments, numbers[segment.base_offset])
                surveys[segment.log.name] = self._surveyor.survey(segment.log, bounds)
            return surveys[segment.log.name]

        return survey_of

    def _plan_note(self, segments: Sequence[SegmentFiles], splits: Splits) -> None:
        """Notes the offsets lost at the ends of all segments but the last, which would look like a lost segment."""
        following = {before.base_offset: after.base_offset for before, after in pairwise(segments)}
        for repair in self._draft.segments:
            last = _offset_of(splits.last.get(repair.name, repair.name))
            first, stop = self._ends.get(last, last), following.get(repair.base_offset)
            if stop is not None and first < stop and repair.loses_its_end:
                self._draft.gaps.append((first, stop - 1))

    def _add_segment(self, segment: SegmentFiles, survey: Survey, offsets: PlausibleOffsets, came: int = 0) -> None:
        name = segment.log.name
        repair = SegmentRepair(
            segment.base_offset,
            name,
            self._sources.get(name, name),
            survey.size,
            # the plan names files as they are on disk, before misnamed ones are renamed
            tuple(replace(part, file=self._sources.get(part.file, part.file)) for part in survey.kept),
            tuple(survey.removed),
            offsets,
            survey.moved,
            self._patches.get(name, ()),
            came,
        )
        self._draft.segments.append(repair)
        self._draft.replay(segment.base_offset)
        if survey.last_offset is not None:
            self._ends[segment.base_offset] = survey.last_offset + 1

    def _plan_truncation(self, listing: PartitionListing) -> PartitionListing | None:
        """Plans the cuts and deletions of a broker's recovery from the first suspect segment on.

        Returns the listing after it, None if recovery fails or would split a segment.
        """
        suspects = [segment.base_offset for segment in listing.segments if self._suspects(segment.log.name)]
        if not suspects:
            return listing
        options = LoadOptions(
            clean_shutdown=False,
            recovery_point=suspects[0],
            log_start_offset=0,
            index_interval_bytes=self._options.interval_of(self._directory),
        )
        try:
            report = plan_recovery(self._overlay, self._directory, self._clock, options)
        except (CorruptionError, SegmentOffsetOverflowError) as error:
            other = Policy.SMALLEST_LOSS.value
            self._draft.unrepaired.append(f"a broker's recovery fails (--policy {other} does not): {error}")
            return None
        segments = {segment.base_offset: segment for segment in listing.segments}
        if any(found.base_offset not in segments for found in report.recovered):
            self._draft.unrepaired.append(
                f"{self._directory}: recovery splits a segment whose offsets do not fit it, which a repair does not do;"
                " seglog recover does, and keeps what it cuts"
            )
            return None
        for found in report.truncated_segments:
            segment = segments[found.base_offset]
            survey = Survey(segment.size)
            survey.kept = [ByteRange(0, found.valid_bytes)] if found.valid_bytes else []
            survey.removed = [RemovedRange(found.valid_bytes, found.truncated_bytes, "TORN_TAIL", found.next_offset)]
            survey.last_offset = found.next_offset - 1
            self._add_segment(segment, survey, PlausibleOffsets.of_segment(segment.base_offset))
        for base in report.deleted_segments:
            snapshots = [snapshot.path for snapshot in listing.snapshots if snapshot.offset == base]
            self._remove_segment([*segments[base].files, *snapshots], "it lies after the damage")
        return list_partition(self._overlay, self._directory)

    def _remove_segment(self, paths: Iterable[Path], reason: str) -> None:
        for path in paths:
            self._draft.files.append(FileRepair(path.name, "remove", reason))
            self._overlay.remove(path)

    def _plan_07(self, listing: PartitionListing) -> None:
        for i, segment in enumerate(listing.segments):
            if not self._suspects(segment.log.name):
                continue
            survey = survey_07(self._fs, segment.log)
            if survey.is_whole:
                continue
            if i + 1 < len(listing.segments):
                self._draft.unrepaired.append(
                    f"{segment.log}: position {survey.kept_bytes}: damaged, but in Kafka 0.7 a message's position is"
                    " its offset: nothing can be removed from a segment that others follow (salvage copies the good"
                    " messages)"
                )
            else:
                self._add_segment(segment, survey, PlausibleOffsets())
        self._draft.replay_from = None

    def _plan_indexes(self, listing: PartitionListing) -> None:
        rewritten = {segment.base_offset for segment in self._draft.segments}
        rewritten.update(self._moved_logs())
        for segment in listing.segments:
            for kind in INDEX_KINDS:
                name = segment_file_name(segment.base_offset, kind)
                if segment.base_offset in rewritten:
                    self._draft.files.append(FileRepair(name, "rebuild", "its log changes"))
                elif RepairPart.INDEX in self._options.only and self._index_is_wrong(segment, name):
                    self._draft.files.append(FileRepair(name, "rebuild", self._reason(name)))
                    if kind is FileKind.TRANSACTION_INDEX:
                        self._draft.replay(segment.base_offset)

    def _plan_snapshots(self, listing: PartitionListing) -> None:
        if RepairPart.SNAPSHOT not in self._options.only:
            return
        bases = [segment.base_offset for segment in listing.segments]
        for snapshot in listing.snapshots:
            name = snapshot.path.name
            if bases and self._is_mended(name, "recover"):
                self._draft.files.append(FileRepair(name, "rebuild", self._reason(name)))
                below = [base for base in bases if base < snapshot.offset]
                self._draft.replay(below[-1] if below else bases[0])

    def _note_lost_markers(self, listing: PartitionListing) -> None:
        """Notes transactions whose ABORT is damaged: the producer's next marker now ends them instead."""
        logs = {segment.base_offset: segment.log for segment in listing.segments}
        for repair in self._draft.segments:
            log = logs.get(repair.base_offset)
            if log is None:
                continue
            try:
                entries = TransactionIndex(self._fs, log.with_suffix(".txnindex"), repair.base_offset).entries
            except CorruptIndexError:
                continue
            for entry in entries:
                if any(_covers(found, entry.last_offset) for found in repair.removed):
                    self._draft.notes.append(
                        f"{log}: the ABORT of producer {entry.producer_id} at offset {entry.last_offset} is damaged;"
                        f" its records from offset {entry.first_offset} on now end with its next marker"
                    )

    def _plan_unrepaired(self) -> None:
        """Lists the findings that no previous step mends."""
        for each in self._findings or ():
            if each.severity is not Severity.ERROR or each.repair or self._returns(each):
                continue
            if self._is_lost_end(each):
                gone = f"offsets {each.first_offset} to {each.last_offset} are gone"
                self._draft.notes.append(f"{each.partition}/{each.file}: {gone}: {each.message}")
            else:
                self._draft.unrepaired.append(f"{each.partition}/{each.file}: {each.message}")

    # --- questions ----------------------------------------------------------------------------------------

    def _log_end_offset(self, listing: PartitionListing) -> int:
        if not listing.segments:
            return 0
        last = listing.segments[-1]
        if any(segment.base_offset == last.base_offset for segment in self._draft.segments):
            self._draft.end_is_known = True
            return self._ends.get(last.base_offset, last.base_offset)
        end, position = LogSegment(self._overlay, self._directory, last.base_offset).read_next_offset()
        self._draft.end_is_known = position == last.size or is_preallocated(self._overlay, last.log, position)
        return end

    def _suspects(self, name: str) -> bool:
        if self._findings is None or name in self._sources:
            return True
        return any(each.file == name and each.kind.leaves_the_log for each in self._findings)

    def _is_mended(self, name: str, repair: str) -> bool:
        """True if a finding on a file is one that `repair` mends, or if nothing was verified."""
        return self._findings is None or any(
            each.file == name and each.kind.repair == repair for each in self._findings
        )

    def _index_is_wrong(self, segment: SegmentFiles, name: str) -> bool:
        if self._is_mended(name, "reindex"):
            return True
        missing = name not in {path.name for path in segment.files} and not name.endswith(".txnindex")
        return missing and self._is_mended(segment.log.name, "reindex")

    def _epochs_differ_only_by_patches(self) -> bool:
        """True if the epoch checkpoint contradicts only batches whose broken epochs the plan corrects."""
        on_file = [f.code for f in self._findings or () if f.file == filenames.LEADER_EPOCH_CHECKPOINT]
        return bool(self._patches) and set(on_file) == {"LEADER_EPOCHS_DIFFER"}

    def _returns(self, found: Finding) -> bool:
        """True if the missing offsets are in segments that return under their names, or precede a wrong name."""
        if Trait.LOSS not in found.kind.traits or found.first_offset is None or found.last_offset is None:
            return False
        misnamed = [_offset_of(source) for source in self._sources.values() if source.endswith(FileKind.LOG.value)]
        returning = any(found.first_offset <= offset <= found.last_offset for offset in self._moved_logs())
        return returning or found.last_offset + 1 in misnamed

    def _is_lost_end(self, found: Finding) -> bool:
        """True if the offsets missing at the log end were in the damaged end of its last segment.

        The repair removes that end, and checkpoints and snapshots beyond it follow.
        """
        if found.code != LOG_END_MISSING:
            return False
        dropped = any(each.name == found.file and each.action == "remove" for each in self._draft.files)
        return dropped or any(each.name == found.file and each.loses_its_end for each in self._draft.segments)

    def _moved_logs(self) -> list[int]:
        """Returns the base offsets of the logs that are renamed."""
        return [_offset_of(name) for name in self._sources if name.endswith(FileKind.LOG.value)]

    def _has_code(self, *codes: str) -> bool:
        return any(each.code in codes for each in self._findings or ())

    def _reason(self, name: str) -> str:
        return next((each.code for each in self._findings or () if each.file == name), "missing, or perhaps wrong")


def _covers(removed: RemovedRange, offset: int) -> bool:
    first, last = removed.first_offset, removed.last_offset
    return first is not None and last is not None and first <= offset <= last


def _offset_of(name: str) -> int:
    parsed = parse_file_name(name)
    assert parsed is not None
    return parsed.offset
