"""Retention: what goes, what stays and why; nothing else changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.errors import RefusedError
from seglog.log.log import Log
from seglog.log.retention import RetentionRule, apply_retention, plan_freeing, plan_retention, remove_deleted
from seglog.model import Record
from seglog.storage.local import LocalFileSystem
from tests.support.open_logs import START_MS, opened_log

HOUR_MS = 3_600_000
DELETE = frozenset({"delete"})
COMPACT = frozenset({"compact"})
BOTH = frozenset({"compact", "delete"})


def log_of(
    directory: Path, segments: int = 4, records: int = 5, times: list[int] | None = None, **config: object
) -> Log:
    """A log of `segments` closed segments and an empty active one; segment i is an hour younger than the one before."""
    log = opened_log(
        directory / "t-0",
        message_timestamp_after_max_ms=1 << 60,
        **{"cleanup_policy": DELETE, "retention_ms": -1, **config},
    )
    for i in range(segments):
        at = START_MS + i * HOUR_MS if times is None else times[i]
        log.append([Record(b"v" * 50, b"k%d" % n, at) for n in range(records)])
        log.roll()
    return log


def removed(log: Log, now_ms: int, **options: int) -> list[int]:
    return [segment.base_offset for segment in plan_retention(log, now_ms, **options).removed]


def test_time_lets_go_of_segments_whose_newest_record_is_older_than_retention(tmp_path: Path) -> None:
    log = log_of(tmp_path, retention_ms=HOUR_MS)
    assert removed(log, START_MS + HOUR_MS) == []
    assert removed(log, START_MS + HOUR_MS + 1) == [0]
    plan = plan_retention(log, START_MS + 2 * HOUR_MS + 1)
    assert [(s.base_offset, s.rule) for s in plan.removed] == [(0, RetentionRule.TIME), (5, RetentionRule.TIME)]
    assert "is 1h1ms old, and retention.ms is 1h" in plan.removed[1].reason
    assert (plan.new_log_start_offset, plan.rolls) == (10, False)


def test_size_keeps_at_least_retention_bytes(tmp_path: Path) -> None:
    size = log_of(tmp_path / "measure").segments.first.size
    for keep, expected in ((4 * size, []), (4 * size - 1, []), (3 * size + 1, []), (3 * size, [0]), (size, [0, 5, 10])):
        log = log_of(tmp_path / str(keep), retention_bytes=keep)
        assert removed(log, START_MS) == expected


def test_a_size_of_nothing_takes_everything_and_rolls(tmp_path: Path) -> None:
    log = log_of(tmp_path, segments=1, retention_bytes=0)
    log.append([Record(b"v", b"k", START_MS)])
    plan = plan_retention(log, START_MS)
    assert [(s.base_offset, s.rule, s.active) for s in plan.segments] == [
        (0, RetentionRule.SIZE, False),
        (5, RetentionRule.SIZE, True),
    ]
    assert (plan.rolls, plan.new_log_start_offset) == (True, 6)


def test_rules_add_up_and_each_segment_names_its_own(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    size = log_of(tmp_path / "measure").segments.first.size
    log = log_of(tmp_path, segments=6, retention_bytes=3 * size, retention_ms=HOUR_MS)
    log.increment_log_start_offset(11)
    plan = plan_retention(log, START_MS + 5 * HOUR_MS + 1)
    assert [s.rule for s in plan.removed] == [
        RetentionRule.LOG_START,
        RetentionRule.LOG_START,
        RetentionRule.SIZE,
        RetentionRule.TIME,
        RetentionRule.TIME,
    ]
    assert plan.new_log_start_offset == 25
    with caplog.at_level("INFO", "seglog.log.swap"):
        apply_retention(log, plan)
    assert [message.partition(": deleted, ")[2] for message in caplog.messages if "deleted, " in message] == [
        f"{segment.rule.value}: {segment.reason}" for segment in plan.removed if segment.rule
    ]
    assert log.segments.base_offsets == [25, 30]


@pytest.mark.parametrize("policy", [COMPACT, frozenset()])
def test_without_delete_in_the_policy_only_the_log_start_counts(tmp_path: Path, policy: frozenset[str]) -> None:
    log = log_of(tmp_path, cleanup_policy=policy, retention_ms=0, retention_bytes=0)
    assert removed(log, START_MS + 9 * HOUR_MS) == []
    assert "only segments below the log start" in plan_retention(log, START_MS).segments[0].reason
    log.increment_log_start_offset(10)
    assert removed(log, START_MS) == [0, 5]


def test_compact_and_delete_together_delete(tmp_path: Path) -> None:
    log = log_of(tmp_path, cleanup_policy=BOTH, retention_ms=HOUR_MS)
    assert removed(log, START_MS + HOUR_MS + 1) == [0]


def test_a_tiered_topic_is_left_to_the_broker(tmp_path: Path) -> None:
    log = log_of(tmp_path, remote_storage_enable=True, retention_ms=0)
    plan = plan_retention(log, START_MS + 9 * HOUR_MS)
    assert plan.empty
    assert "tiered" in plan.segments[0].reason


LOCAL = {"remote_storage_enable": True, "local_retention_ms": HOUR_MS}


@pytest.mark.parametrize("key", ["local.retention.ms", "retention.ms"])
def test_of_a_tiered_topic_it_is_said_what_local_retention_does_with_what_was_copied(tmp_path: Path, key: str) -> None:
    limit = LOCAL if key.startswith("local") else {**LOCAL, "local_retention_ms": -2, "retention_ms": HOUR_MS}
    log = log_of(tmp_path, **limit)
    reasons = [segment.reason.partition("; ")[2] for segment in plan_retention(log, START_MS + 2 * HOUR_MS).segments]
    assert reasons == [
        f"if it was, local retention deletes it: its newest record is 2h old, and {key} is 1h",
        f"local retention keeps it: its newest record is 1h old, and {key} is 1h",
        "local retention stops before it, at segment 5",
        "local retention stops before it, at segment 5",
        "",
    ]
    forever = log_of(tmp_path / "forever", remote_storage_enable=True, local_retention_ms=-1)
    assert not any("local" in segment.reason for segment in plan_retention(forever, START_MS + 9 * HOUR_MS).segments)


@pytest.mark.parametrize("limit", [HOUR_MS, -2], ids=["1h", "as retention.ms, which is not known"])
def test_a_timestamp_in_the_future_holds_back_local_retention_and_its_batch_is_named(
    tmp_path: Path, limit: int
) -> None:
    future = START_MS + 100 * HOUR_MS
    config = {**LOCAL, "local_retention_ms": limit}
    log = log_of(tmp_path, times=[START_MS, future, START_MS, START_MS], **config)
    plan = plan_retention(log, START_MS + 5 * HOUR_MS)
    blocked, after = plan.segments[1], plan.segments[2]
    assert plan.empty and (blocked.in_future, blocked.blocking_offset, blocked.deletable_ms) == (True, 9, None)
    assert "its newest record, in the batch that ends at offset 9, lies" in blocked.reason
    assert blocked.reason.endswith("in the future and holds back local retention")
    assert after.reason.endswith("local retention stops before it, at segment 5")
    config = {**config, "cleanup_policy": COMPACT}
    compacted = plan_retention(log_of(tmp_path / "compacted", times=[future] * 4, **config), START_MS)
    assert not any(segment.in_future or "local" in segment.reason for segment in compacted.segments)


def test_a_timestamp_in_the_future_blocks_and_says_until_when(tmp_path: Path) -> None:
    future = START_MS + 100 * HOUR_MS
    log = log_of(tmp_path, times=[START_MS, future, START_MS, START_MS], retention_ms=HOUR_MS)
    now = START_MS + 5 * HOUR_MS
    plan = plan_retention(log, now)
    assert [s.base_offset for s in plan.removed] == [0]
    blocked, after = plan.segments[1], plan.segments[2]
    assert (blocked.in_future, blocked.blocking_offset, blocked.largest_timestamp) == (True, 9, future)
    assert blocked.deletable_ms == after.deletable_ms == future + HOUR_MS + 1
    assert "in the future" in blocked.reason
    assert after.reason == "after segment 5, which stays"
    assert removed(log, blocked.deletable_ms - 1) == [0]
    assert removed(log, blocked.deletable_ms) == [0, 5, 10, 15]


def test_a_record_of_this_very_moment_is_not_in_the_future(tmp_path: Path) -> None:
    log = log_of(tmp_path, segments=1, retention_ms=HOUR_MS)
    (newest, _) = plan_retention(log, START_MS).segments
    assert (newest.in_future, newest.active) == (False, False)
    assert newest.reason == "no retention.bytes; its newest record is 0ms old, and retention.ms is 1h"


@pytest.mark.parametrize("config", [{"cleanup_policy": COMPACT}, {"retention_ms": -1}], ids=str)
def test_where_time_deletes_nothing_nothing_is_in_the_future_or_has_a_day(
    tmp_path: Path, config: dict[str, object]
) -> None:
    log = log_of(tmp_path, **{"retention_ms": HOUR_MS, **config})
    plan = plan_retention(log, START_MS - HOUR_MS)
    assert [(s.in_future, s.deletable_ms) for s in plan.segments] == [(False, None)] * 5


def test_a_timestamp_of_zero_is_a_timestamp(tmp_path: Path) -> None:
    log = log_of(tmp_path, segments=1, times=[0], retention_ms=HOUR_MS)
    verdict = plan_retention(log, HOUR_MS).segments[0]
    assert (verdict.largest_timestamp, verdict.from_modified) == (0, False)
    assert removed(log, HOUR_MS + 1) == [0]


def test_a_segment_without_timestamps_counts_by_its_modification_time(tmp_path: Path) -> None:
    log = log_of(tmp_path, segments=2, records=0, retention_ms=HOUR_MS)
    log.append([Record(b"v", b"k", START_MS)])
    log.roll()
    path = log.segments.first.path
    log.close()
    path.with_suffix(".timeindex").write_bytes(b"")
    LocalFileSystem().set_modified(path, START_MS + 7 * HOUR_MS)
    again = opened_log(path.parent, cleanup_policy=DELETE, retention_ms=HOUR_MS)
    plan = plan_retention(again, START_MS + 8 * HOUR_MS)
    assert (plan.empty, plan.segments[0].from_modified) == (True, True)
    assert removed(again, START_MS + 8 * HOUR_MS + 1) == [0]


def test_nothing_above_the_high_watermark_goes(tmp_path: Path) -> None:
    log = log_of(tmp_path, retention_ms=0)
    plan = plan_retention(log, START_MS + 9 * HOUR_MS, 9)
    assert [s.base_offset for s in plan.removed] == [0]
    assert "the high watermark is 9" in plan.segments[1].reason


def test_an_empty_last_segment_stays_and_a_full_one_is_rolled(tmp_path: Path) -> None:
    log = log_of(tmp_path, retention_ms=0)
    long_after = log.segments.active.largest_timestamp() + HOUR_MS
    plan = plan_retention(log, long_after)
    assert [s.base_offset for s in plan.removed] == [0, 5, 10, 15]
    assert (plan.rolls, plan.segments[-1].reason) == (False, "the last segment, and empty")
    log.append([Record(b"v", b"k", START_MS)])
    plan = plan_retention(log, START_MS + 9 * HOUR_MS)
    assert (plan.rolls, plan.new_log_start_offset) == (True, 21)
    remove_deleted(log.fs, apply_retention(log, plan))
    assert (log.segments.base_offsets, log.log_start_offset, log.log_end_offset) == ([21], 21, 21)
    log.append([Record(b"next", b"k", START_MS)])
    assert [r.offset for r in log.records()] == [21]


def test_files_stay_as_deleted_until_they_are_removed(tmp_path: Path) -> None:
    log = log_of(tmp_path, retention_ms=0)
    pending = apply_retention(log, plan_retention(log, START_MS + HOUR_MS + 1))
    assert {path.name for path in pending} >= {"00000000000000000000.log.deleted", "00000000000000000005.index.deleted"}
    assert all(path.exists() for path in pending)
    assert (log.log_start_offset, log.segments.base_offsets[0]) == (10, 10)
    remove_deleted(log.fs, pending)
    remove_deleted(log.fs, pending)
    assert not list(log.directory.glob("*.deleted"))


def test_a_plan_for_another_state_of_the_log_is_refused(tmp_path: Path) -> None:
    log = log_of(tmp_path, retention_ms=0)
    plan = plan_retention(log, START_MS + 9 * HOUR_MS)
    log.append([Record(b"v", b"k", START_MS)])
    with pytest.raises(RefusedError, match="has changed"):
        apply_retention(log, plan)


def test_a_reader_goes_on_undisturbed_while_segments_go(tmp_path: Path) -> None:
    log = log_of(tmp_path, retention_ms=0)
    reader = log.records(0, max_bytes=100)
    first = next(reader)
    apply_retention(log, plan_retention(log, START_MS + HOUR_MS + 1))
    assert first.offset == 0
    assert [next(reader).offset for _ in range(4)] == [1, 2, 3, 4]


def test_freeing_takes_the_oldest_closed_segments_of_all_logs(tmp_path: Path) -> None:
    old = log_of(tmp_path / "old", times=[START_MS, START_MS + 1, START_MS + 6 * HOUR_MS, START_MS + 7 * HOUR_MS])
    new = log_of(tmp_path / "new", times=[START_MS + 2, START_MS + 3, START_MS + 4, START_MS + 5])
    compacted = log_of(tmp_path / "compacted", cleanup_policy=COMPACT)
    everything = plan_freeing([old, new, compacted], 1 << 40, START_MS)
    assert [len(plan.removed) for plan in everything] == [4, 4, 0]
    wanted = sum(segment.disk_bytes for segment in (*everything[0].removed[:2], everything[1].removed[0]))
    plans = plan_freeing([old, new, compacted], wanted, START_MS)
    assert [[s.base_offset for s in plan.removed] for plan in plans] == [[0, 5], [0], []]
    assert plans[0].removed[0].rule is RetentionRule.FREE
    assert not any(plan.rolls for plan in everything)


def test_freeing_goes_by_the_first_segments_of_all_logs(tmp_path: Path) -> None:
    early = log_of(tmp_path / "early", segments=2, times=[START_MS, START_MS + 9 * HOUR_MS])
    late = log_of(tmp_path / "late", segments=2, times=[START_MS + 1, START_MS + 2])
    single = log_of(tmp_path / "single", segments=1, times=[START_MS + 3])
    plans = plan_freeing([single, late, early], 1, START_MS)
    assert [[s.base_offset for s in plan.removed] for plan in plans] == [[], [], [0]]
    plans = plan_freeing([single, late, early], 1 << 40, START_MS)
    assert [[s.base_offset for s in plan.removed] for plan in plans] == [[0], [0, 5], [0, 5]]


def test_freeing_takes_nothing_above_a_brokers_high_watermark(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    for high_watermark, removed in ((4, []), (5, [0]), (9, [0]), (10, [0, 5])):
        (plan,) = plan_freeing([log], 1 << 40, START_MS, {log.topic_partition: high_watermark})
        assert [s.base_offset for s in plan.removed] == removed


def test_freeing_never_takes_the_active_segment(tmp_path: Path) -> None:
    log = log_of(tmp_path, segments=2)
    log.append([Record(b"v", b"k", START_MS)])
    (plan,) = plan_freeing([log], 1 << 40, START_MS + 99 * HOUR_MS)
    assert [s.base_offset for s in plan.removed] == [0, 5]
    assert (plan.rolls, plan.segments[2].reason) == (False, "the active segment")
    (plan,) = plan_freeing([log], 1, START_MS + 99 * HOUR_MS)
    assert [s.reason for s in plan.segments[1:]] == ["enough is free without it", "the active segment"]


def test_freeing_takes_nothing_of_a_tiered_topic(tmp_path: Path) -> None:
    """A broker deletes in the tier what lies below the log start."""
    log = log_of(tmp_path, remote_storage_enable=True)
    (plan,) = plan_freeing([log], 1 << 40, START_MS)
    assert plan.empty
    assert "tiered" in plan.segments[0].reason


def test_room_that_a_segment_takes_is_that_of_its_blocks_and_indexes(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    (plan,) = plan_freeing([log], 1, START_MS)
    files = [*(tmp_path / "t-0").glob(f"{0:020d}.*index"), log.segments.first.path]
    assert plan.freed_bytes == sum(path.stat().st_blocks * 512 for path in files)
    assert len(files) >= 3
