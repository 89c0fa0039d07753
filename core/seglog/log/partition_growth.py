"""A partition below a prefix before and after an append: which of its segments stay, and which are written again.

Objects cannot be appended to, so each append makes new segments. Those of small appends would be many: the last ones
are joined with what comes, like the digits of a counter. One is joined while it is at most twice as large as all that
comes after it, so that every byte is copied a few times, and of a thousand equal appends a handful of segments remain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from seglog.format.checkpoint import EpochEntry
from seglog.format.filenames import FileKind
from seglog.format.log_manifest import ManifestPartition, ManifestSegment
from seglog.model import TopicPartition

JOINED_BYTES = 32 << 20  # a larger segment is never copied again
_LARGER = 2
_JOINED_OFFSETS = 1 << 30  # an index counts offsets from the segment's base in 32 bits


@dataclass(frozen=True, slots=True)
class Growth:
    """A partition that is appended to: `before` (None: it is new), and the segments that are kept and joined."""

    topic_partition: TopicPartition
    before: ManifestPartition | None
    kept: tuple[ManifestSegment, ...]
    joined: tuple[ManifestSegment, ...]

    @property
    def base_offset(self) -> int:
        """Where the new segments begin."""
        return self.kept[-1].end_offset + 1 if self.kept else self.joined[0].base_offset if self.joined else 0

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return 0 if self.before is None else self.before.log_end_offset

    @property
    def epochs(self) -> tuple[EpochEntry, ...]:
        """The leader epochs so far."""
        return () if self.before is None else self.before.epochs

    @property
    def leader_epoch(self) -> int:
        """The leader epoch that the append continues."""
        return self.epochs[-1].epoch if self.epochs else 0

    @property
    def knows_producers(self) -> bool:
        """Whether the state of the producers is known where the new segments begin."""
        return FileKind.PRODUCER_SNAPSHOT in self.kept[-1].objects if self.kept else self.base_offset == 0

    @property
    def base_snapshot(self) -> ManifestSegment | None:
        """The segment whose snapshot says how producers stand where the new segments begin; None: none ever wrote."""
        return self.kept[-1] if self.kept and self.knows_producers else None

    def after(self, segments: Sequence[ManifestSegment], epochs: Sequence[EpochEntry]) -> ManifestPartition:
        """What the manifest is to say, with the new segments and the epochs of their batches."""
        known = self.epochs[-1].epoch if self.epochs else -1
        all_epochs = (*self.epochs, *(one for one in epochs if one.epoch > known))
        every = (*self.kept, *segments)
        if self.before is None:
            return ManifestPartition(self.topic_partition, None, every[0].base_offset, None, all_epochs, every)
        return replace(self.before, epochs=all_epochs, segments=every)


def beside(topic_partition: TopicPartition, before: ManifestPartition | None) -> Growth:
    """The growth that joins nothing: new segments begin where the partition ends."""
    segments = () if before is None else before.segments
    count = len(segments) - 1 if segments and not segments[-1].objects[FileKind.LOG].size else len(segments)
    return Growth(topic_partition, before, segments[:count], segments[count:])


def growth_of(
    topic_partition: TopicPartition, before: ManifestPartition | None, added: int, segment_bytes: int
) -> Growth:
    """How a partition takes `added` bytes, in segments of `segment_bytes`.

    What a cleaner has been through is not joined, nor what would have to begin where no producers' state is known. A
    last segment that is empty always goes: its name is that of the next one.
    """
    segments = () if before is None else before.segments
    clean = 0 if before is None or before.cleaned_offset is None else before.cleaned_offset
    most, total, count = min(segment_bytes, JOINED_BYTES), added, len(segments)
    while count:
        last = segments[count - 1]
        size = last.objects[FileKind.LOG].size
        knows = FileKind.PRODUCER_SNAPSHOT in segments[count - 2].objects if count > 1 else last.base_offset == 0
        near = segments[-1].end_offset - last.base_offset < _JOINED_OFFSETS and last.base_offset >= clean
        if size and not (size <= _LARGER * total and size + total <= most and near and knows):
            break
        total, count = total + size, count - 1
    return Growth(topic_partition, before, tuple(segments[:count]), tuple(segments[count:]))
