"""The cleaner as a service: passes, threads, stops, throttle, retention, uncleanable logs."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path

import pytest

from seglog.cleaner.manager import Uncleanable
from seglog.cleaner.output import CleaningResult
from seglog.configuration.keys import CleanerConfig
from seglog.errors import ConfigError, LockedError
from seglog.log.retention import RetentionPlan
from seglog.model import TopicPartition
from seglog.operations.cleaner import CleanerService, PassOutcome
from seglog.storage.filesystem import File, FileSystem, OpenMode
from seglog.storage.local import LocalFileSystem
from seglog.storage.lock import DirectoryLock
from seglog.storage.metered_files import CleaningStoppedError, Gate, GatedFileSystem, Meter, Throttle
from tests.support.compacted_directories import FS, Topics, broker_directory, fill, keys_of, opened
from tests.support.manual_clock import ManualClock
from tests.support.open_logs import START_MS

DAY_MS = 86_400_000


class Heard:
    """Keeps what the service tells."""

    def __init__(self) -> None:
        self.results: list[CleaningResult] = []
        self.plans: list[RetentionPlan] = []
        self.failures: list[Uncleanable] = []
        self.problems: list[str] = []
        self.passes: list[PassOutcome] = []

    def cleaned(self, result: CleaningResult, thread: int) -> None:
        self.results.append(result)

    def retained(self, plan: RetentionPlan) -> None:
        self.plans.append(plan)

    def uncleanable(self, found: Uncleanable) -> None:
        self.failures.append(found)

    def problem(self, sentence: str) -> None:
        self.problems.append(sentence)

    def passed(self, outcome: PassOutcome) -> None:
        self.passes.append(outcome)


def service_of(
    path: Path,
    heard: Heard,
    clock: ManualClock | None = None,
    config: CleanerConfig | None = None,
    fs: FileSystem = FS,
    **topics: object,
) -> CleanerService:
    chosen = Topics(**{"cleanup_policy": "compact", **topics})
    return CleanerService(
        fs,
        path,
        lambda: chosen,
        config or CleanerConfig(dedupe_buffer_size=1 << 20),
        clock or ManualClock(START_MS + DAY_MS),
        heard,
    )


def snapshot(path: Path) -> dict[str, bytes]:
    return {str(f.relative_to(path)): f.read_bytes() for f in path.rglob("*") if f.is_file() and f.name != ".lock"}


@pytest.mark.parametrize("threads", [1, 3])
def test_a_pass_cleans_everything_that_is_eligible(tmp_path: Path, threads: int) -> None:
    path = broker_directory(tmp_path / "logs", {f"t-{i}": (3, 5 + i) for i in range(5)})
    heard = Heard()
    config = CleanerConfig(dedupe_buffer_size=1 << 20, threads=threads)
    service_of(path, heard, config=config).run(passes=1)
    assert sorted(str(result.topic_partition) for result in heard.results) == [f"t-{i}" for i in range(5)]
    assert all(len(keys_of(path, f"t-{i}")) == 5 + i for i in range(5))
    with opened(path, writable=False) as directory:
        assert set(directory.cleaner_offsets.values()) == {120}
        assert directory.clean_shutdown
    assert {result.map_slots for result in heard.results} == {(1 << 20) // threads // 24}


def test_a_pass_without_work_touches_and_locks_nothing(tmp_path: Path) -> None:
    path = broker_directory(tmp_path / "logs", {"t-0": (3, 5)})
    service = service_of(path, Heard())
    service.run(passes=1)
    before = snapshot(path)
    with DirectoryLock(path):
        service.run(passes=2)
    assert snapshot(path) == before


def test_what_is_appended_between_passes_is_cleaned_by_the_next(tmp_path: Path) -> None:
    path = broker_directory(tmp_path / "logs", {"t-0": (2, 5)})
    heard = Heard()
    service = service_of(path, heard)
    service.run(passes=1)
    with opened(path) as directory:
        fill(directory, "t-0", 3, 5)
    service.run(passes=1)
    assert [(r.first_dirty_offset, r.end_offset) for r in heard.results] == [(0, 80), (80, 200)]


def test_between_passes_it_rests_for_the_backoff(tmp_path: Path) -> None:
    clock = ManualClock(START_MS)
    path = broker_directory(tmp_path / "logs", {})
    service_of(path, Heard(), clock, CleanerConfig(backoff_ms=15_000)).run(passes=3)
    assert clock.now_ms() == START_MS + 30_000


def test_a_locked_directory_costs_a_pass_and_is_reported(tmp_path: Path) -> None:
    path = broker_directory(tmp_path / "logs", {"t-0": (3, 5)})
    heard = Heard()
    service = service_of(path, heard)
    with DirectoryLock(path):
        service.run(passes=1)
    assert heard.results == [] and isinstance(heard.passes[0].error, LockedError)
    assert "locked" in heard.problems[0]
    service.run(passes=1)
    assert len(heard.results) == 1


@pytest.mark.parametrize("topics", [{"cleanup_policy": "delete"}, {}])
def test_topics_that_are_not_known_to_be_compact_are_left_alone(tmp_path: Path, topics: dict[str, object]) -> None:
    path = broker_directory(tmp_path / "logs", {"t-0": (3, 5)})
    heard = Heard()
    service = service_of(path, heard)
    service._topics = lambda: Topics(**topics)
    service.run(passes=1)
    assert heard.results == []


def test_a_damaged_log_becomes_uncleanable_and_is_tried_again_when_it_changes(tmp_path: Path) -> None:
    path = broker_directory(tmp_path / "logs", {"bad-0": (3, 5), "good-0": (3, 5)})
    segment = path / "bad-0" / "00000000000000000040.log"
    good = segment.read_bytes()
    segment.write_bytes(good[:100] + bytes([good[100] ^ 1]) + good[101:])
    before = segment.read_bytes()
    heard = Heard()
    service = service_of(path, heard)
    service.run(passes=3)
    assert [str(failure.topic_partition) for failure in heard.failures] == ["bad-0"]
    assert "00000000000000000040.log" in heard.failures[0].reason
    assert [str(result.topic_partition) for result in heard.results] == ["good-0"]
    assert segment.read_bytes() == before
    segment.write_bytes(good)
    service.run(passes=1)
    assert str(heard.results[-1].topic_partition) == "bad-0"
    assert not service.uncleanable


def test_damage_that_opening_would_cut_off_is_left_as_it_is(tmp_path: Path) -> None:
    path = broker_directory(tmp_path / "logs", {"bad-0": (3, 5)})
    (path / ".kafka_cleanshutdown").unlink()
    (path / "recovery-point-offset-checkpoint").unlink()
    segment = path / "bad-0" / "00000000000000000040.log"
    data = segment.read_bytes()
    segment.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
    before = snapshot(path)
    heard = Heard()
    service_of(path, heard).run(passes=2)
    assert len(heard.failures) == 1
    assert "opening the log would cut" in heard.failures[0].reason
    assert snapshot(path) == before


def test_a_checkpoint_that_names_a_partition_twice_is_reported_and_nothing_is_done(tmp_path: Path) -> None:
    path = broker_directory(tmp_path / "logs", {"t-0": (3, 5)})
    (path / "cleaner-offset-checkpoint").write_text("0\n2\nt 0 0\nt 0 40\n")
    before = snapshot(path)
    heard = Heard()
    service_of(path, heard).run(passes=1)
    assert "is listed twice" in heard.problems[0]
    assert snapshot(path) == before


def test_compact_delete_logs_lose_old_segments_and_compact_ones_do_not(tmp_path: Path) -> None:
    for policy, expected in (("compact", 5), ("compact,delete", 0)):
        path = broker_directory(tmp_path / policy, {"t-0": (3, 5)})
        heard = Heard()
        service_of(path, heard, cleanup_policy=policy, retention_ms=1000).run(passes=1)
        assert len(keys_of(path, "t-0")) == expected
        assert bool(heard.plans) == (expected == 0)


def test_deleted_files_go_when_their_delay_is_over(tmp_path: Path) -> None:
    path = broker_directory(tmp_path / "logs", {"t-0": (3, 5)})
    clock = ManualClock(START_MS + DAY_MS)
    config = CleanerConfig(backoff_ms=30_000)
    service = service_of(path, Heard(), clock, config, cleanup_policy="compact,delete", retention_ms=1000)
    service.run(passes=1)
    assert list(path.rglob("*.deleted"))
    service.run(passes=2)
    assert list(path.rglob("*.deleted"))
    clock.advance(30_000)
    service.run(passes=1)
    assert not list(path.rglob("*.deleted"))


def test_a_stop_at_any_read_or_write_of_a_round_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    path = broker_directory(tmp_path / "logs", {"t-0": (3, 5)})
    before = {name: data for name, data in snapshot(path).items() if name.endswith(".log")}
    heard = Heard()
    stops = 0
    while not heard.results:
        stops += 1
        service = service_of(path, heard)
        left = [stops]

        def stopped(service: CleanerService = service, left: list[int] = left) -> bool:
            left[0] -= 1
            if left[0] == 0:
                service.stop.set()
            return service.stop.is_set()

        service._gate._stopped = stopped
        service.run(passes=1)
        if not heard.results:
            assert {name: data for name, data in snapshot(path).items() if name.endswith(".log")} == before
            assert not [name for name in snapshot(path) if name.endswith((".cleaned", ".swap", ".deleted"))]
            with opened(path, writable=False) as directory:
                assert directory.clean_shutdown
                assert TopicPartition("t", 0) not in directory.cleaner_offsets
    assert stops > 5
    assert len(keys_of(path, "t-0")) == 5


@pytest.mark.parametrize("clean_shutdown", [True, False])
def test_nothing_of_a_log_is_read_or_written_after_a_stop(tmp_path: Path, clean_shutdown: bool) -> None:
    """So a stop waits for one read or write at most, however long a round is; opening a log counts too."""

    class StopAt:
        """Sets the service's stop before operation `number` on a file, and counts those after it."""

        def __init__(self, number: int) -> None:
            self.left, self.after = number, 0
            self.service: CleanerService | None = None

        def before(self) -> None:
            self.left -= 1
            if self.left == 0 and self.service is not None:
                self.service.stop.set()

        def read(self, size: int) -> None:
            self.after += self.left < 0

        written = read

        def syncing(self) -> None:
            """Nothing is shown here."""

    for number in itertools.count(1):
        path = broker_directory(tmp_path / str(number), {"t-0": (2, 5)})
        if not clean_shutdown:
            (path / ".kafka_cleanshutdown").unlink()
            (path / "recovery-point-offset-checkpoint").unlink()
        before = {name: data for name, data in snapshot(path).items() if name.endswith(".log")}
        heard, watch = Heard(), StopAt(number)
        service = service_of(path, heard, fs=OnlyLogs(watch))
        watch.service = service
        service.run(passes=1)
        if heard.results:
            break
        assert watch.after == 0
        assert not heard.problems
        found = snapshot(path)
        assert {name: data for name, data in found.items() if name.endswith(".log")} == before
        assert not [name for name in found if name.endswith((".cleaned", ".swap", ".deleted"))]
        service_of(path, heard).run(passes=1)
        assert len(heard.results) == 1
        assert len(keys_of(path, "t-0")) == 5
    assert number > 4


class OnlyLogs(GatedFileSystem):
    """Local files, of which the `.log` files, finished or not, are watched."""

    def __init__(self, watch: Meter) -> None:
        super().__init__(LocalFileSystem(), watch)

    def open(self, path: Path, mode: OpenMode) -> File:
        return super().open(path, mode) if ".log" in path.name else LocalFileSystem().open(path, mode)


def test_the_gate_throttles_and_stops_inside_rounds_alone() -> None:
    clock, stop = ManualClock(START_MS), threading.Event()
    gate = Gate(Throttle(1000, clock), stop.is_set)
    clock.advance(400)
    stop.set()
    gate.before()
    gate.read(10_000)
    assert clock.now_ms() == START_MS + 400
    with gate.cleaning(), pytest.raises(CleaningStoppedError):
        gate.before()
    with gate.opening(), pytest.raises(CleaningStoppedError):
        gate.before()
    stop.clear()
    with gate.opening():
        gate.before()
        gate.read(10_000)
    assert clock.now_ms() == START_MS + 400
    with gate.cleaning():
        gate.before()
        gate.written(10_000)
    assert clock.now_ms() == START_MS + 10_000


def test_without_threads_there_is_no_service(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least one thread"):
        service_of(tmp_path, Heard(), config=CleanerConfig(threads=0))
