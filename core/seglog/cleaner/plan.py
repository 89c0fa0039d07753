"""What a round will do, or has done: the same figures either way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from seglog.cleaner.indexing import OffsetIndexing
from seglog.cleaner.output import SegmentSummary
from seglog.cleaner.round import CleaningRound
from seglog.cleaner.stats import CleanerStats, format_stats
from seglog.model import TopicPartition


@dataclass(frozen=True)
class CleaningResult:
    """A round's outcome, predicted (`dry_run`) or done.

    `segments_before` are (base offset, bytes) of the segments rewritten, `segments_after` what they became.
    `limit_reason` says why nothing behind `end_offset` was cleaned.
    """

    topic_partition: TopicPartition
    dry_run: bool
    first_dirty_offset: int
    end_offset: int
    segments_before: tuple[tuple[int, int], ...]
    segments_after: tuple[SegmentSummary, ...]
    stats: CleanerStats
    limit_reason: str = ""

    @classmethod
    def of(
        cls,
        round_: CleaningRound,
        indexing: OffsetIndexing,
        stats: CleanerStats,
        summaries: list[SegmentSummary],
        *,
        dry_run: bool,
    ) -> CleaningResult:
        stats.index_passes, stats.map_entries = indexing.passes, indexing.entries
        stats.map_slots = round_.options.map_slots
        stats.buffer_utilization = indexing.most_entries / max(stats.map_slots, 1)
        return cls(
            topic_partition=round_.topic_partition,
            dry_run=dry_run,
            first_dirty_offset=round_.first_dirty_offset,
            end_offset=round_.end_offset,
            segments_before=tuple((s.base_offset, size) for s, size in zip(round_.sources, round_.sizes, strict=True)),
            segments_after=tuple(summaries),
            stats=stats,
            limit_reason=round_.limit_reason,
        )

    @property
    def bytes_written(self) -> int:
        """Bytes of the new `.log` files."""
        return sum(segment.size for segment in self.segments_after)

    def text(self, thread: int = 0) -> str:
        """The block that a broker logs (specification §12.10)."""
        section = self.first_dirty_offset, self.end_offset
        return format_stats(self.stats, self.topic_partition, *section, thread, dry_run=self.dry_run)

    def to_json(self) -> dict[str, Any]:
        """The object of type `cleaning` in the command line's JSON."""
        stats = self.stats
        return {
            "type": "cleaning",
            "partition": str(self.topic_partition),
            "dry_run": self.dry_run,
            "first_dirty_offset": self.first_dirty_offset,
            "end_offset": self.end_offset,
            "index_passes": stats.index_passes,
            "map_slots": stats.map_slots,
            "map_entries": stats.map_entries,
            "buffer_utilization": stats.buffer_utilization,
            "bytes_read": stats.bytes_read,
            "bytes_written": stats.bytes_written,
            "records_read": stats.records_read,
            "records_written": stats.records_written,
            "batches_written": stats.batches_written,
            "tombstones_kept": stats.tombstones_kept,
            "reasons": stats.reasons(),
            "segments_before": [{"base_offset": base, "size": size} for base, size in self.segments_before],
            "segments_after": [{"base_offset": s.base_offset, "size": s.size} for s in self.segments_after],
            "index_seconds": stats.index_seconds,
            "clean_seconds": stats.clean_seconds,
            "phase_seconds": dict(stats.phases),
        }


@dataclass(frozen=True)
class CleaningPlan:
    """A round worked out to the byte, and the map it was worked out with, for `apply_plan`."""

    round: CleaningRound
    indexing: OffsetIndexing
    result: CleaningResult
