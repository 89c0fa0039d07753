"""Which segments of a committed partition stay when it grows, and which are written again."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from seglog.format.checkpoint import EpochEntry
from seglog.format.filenames import FileKind
from seglog.model import TopicPartition
from seglog_ask.spark.staged_objects import JOINED_BYTES, growth_of
from seglog_stores.formats.log_manifest import ManifestPartition, ManifestSegment, StoredObject

NAME = TopicPartition("t", 0)
LARGE = 1 << 30


def segment(base: int, size: int, records: int = 1, *, snapshot: bool = True) -> ManifestSegment:
    objects = {FileKind.LOG: StoredObject(size, 0)}
    if snapshot:
        objects[FileKind.PRODUCER_SNAPSHOT] = StoredObject(10, 0)
    return ManifestSegment(base, base + records - 1, "seglog-x", objects)


def partition(*sizes: int, cleaned: int | None = None, snapshot: bool = True) -> ManifestPartition:
    """One record a segment, and none where the size is 0."""
    segments = tuple(segment(i, size, 1 if size else 0, snapshot=snapshot) for i, size in enumerate(sizes))
    return ManifestPartition(NAME, None, 0, cleaned, (EpochEntry(3, 0),), segments)


def grown(before: ManifestPartition | None, added: int, segment_bytes: int = LARGE) -> ManifestPartition:
    """The partition after an append of one record that needs one new segment."""
    growth = growth_of(NAME, before, added, segment_bytes)
    size = added + sum(one.objects[FileKind.LOG].size for one in growth.joined)
    end = growth.end_offset
    return growth.after([segment(growth.base_offset, size, end + 1 - growth.base_offset)], [EpochEntry(3, 0)])


def sizes(partition: ManifestPartition | None) -> list[int]:
    assert partition is not None
    return [one.objects[FileKind.LOG].size for one in partition.segments]


def test_what_is_at_most_twice_as_large_as_all_after_it_is_joined() -> None:
    assert sizes(grown(partition(100, 17, 5), 3)) == [100, 17, 8]
    assert sizes(grown(partition(100, 16, 5), 3)) == [100, 24]
    assert sizes(grown(partition(48, 16, 5), 3)) == [72]


def test_every_append_keeps_the_segments_in_a_row() -> None:
    now = grown(None, 10)
    for added in (10, 3, 50, 1, 1, 1, 7):
        now = grown(now, added)
        ends = [one.end_offset + 1 for one in now.segments]
        assert [one.base_offset for one in now.segments] == [0, *ends[:-1]]
    assert sum(sizes(now)) == 83


@pytest.mark.parametrize("seed", range(3))
def test_a_thousand_appends_leave_few_segments_and_copy_a_byte_few_times(seed: int) -> None:
    drawn = random.Random(seed)
    now, written, came = None, 0, 0
    for _ in range(1000):
        added = drawn.choice((1, 10, 100)) * 1000
        now = grown(now, added)
        came, written = came + added, written + sizes(now)[-1]
    assert now is not None
    assert len(now.segments) <= 14
    assert written <= 14 * came


def test_segments_are_joined_up_to_a_size() -> None:
    assert sizes(grown(partition(60, 30), 30, segment_bytes=90)) == [60, 60]
    assert sizes(grown(partition(60, 30), 30, segment_bytes=89)) == [60, 60]
    assert sizes(grown(partition(60, 30), 30, segment_bytes=59)) == [60, 30, 30]
    assert sizes(grown(partition(JOINED_BYTES), JOINED_BYTES)) == [JOINED_BYTES] * 2


def test_what_was_cleaned_is_not_joined() -> None:
    assert sizes(grown(partition(10, 10, 10, cleaned=2), 100)) == [10, 10, 110]


def test_an_empty_last_segment_goes_whatever_the_rest_says() -> None:
    growth = growth_of(NAME, partition(500, 0), 1, LARGE)
    assert (growth.base_offset, growth.end_offset, sizes(growth.before)) == (1, 1, [500, 0])
    assert sizes(grown(partition(500, 0), 1)) == [500, 1]


def test_a_log_is_not_begun_anew_where_its_producers_are_not_known() -> None:
    assert sizes(grown(partition(10, 10, snapshot=False), 100)) == [10, 10, 100]
    growth = growth_of(NAME, partition(10, 10, snapshot=False), 100, LARGE)
    assert not growth.knows_producers
    first = growth_of(NAME, partition(10, snapshot=False), 100, LARGE)
    assert first.knows_producers and first.joined
    cut = replace(partition(10), log_start_offset=500, segments=(segment(500, 10),))
    assert not growth_of(NAME, cut, 100, LARGE).joined  # retention took what producers had written before
    emptied = replace(partition(0), log_start_offset=500, segments=(segment(500, 0, 0),))
    growth = growth_of(NAME, emptied, 100, LARGE)
    assert (growth.base_offset, growth.kept, growth.knows_producers) == (500, (), False)


def test_offsets_that_one_index_cannot_count_are_not_joined() -> None:
    far = replace(partition(10, 10), segments=(segment(0, 10, 1 << 31), segment(1 << 31, 10)))
    assert sizes(grown(far, 100)) == [10, 110]


def test_epochs_that_are_new_are_added() -> None:
    after = growth_of(NAME, partition(10), 10, LARGE).after([segment(0, 20, 2)], [EpochEntry(3, 0), EpochEntry(4, 1)])
    assert after.epochs == (EpochEntry(3, 0), EpochEntry(4, 1))
    assert growth_of(NAME, partition(10), 10, LARGE).leader_epoch == 3


def test_a_new_partition_begins_at_offset_0() -> None:
    growth = growth_of(NAME, None, 10, LARGE)
    assert (growth.base_offset, growth.end_offset, growth.leader_epoch) == (0, 0, 0)
    made = growth.after([segment(0, 10)], [EpochEntry(0, 0)])
    assert (made.topic_partition, made.log_start_offset, made.log_end_offset) == (NAME, 0, 1)
