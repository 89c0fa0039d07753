"""`Log` against a log made of lists: whatever is done to both, they hold the same records."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from seglog.configuration.keys import LogConfig
from seglog.log.loader import LoadOptions
from seglog.log.log import Log
from seglog.model import Compression, Record
from seglog.storage.local import LocalFileSystem
from tests.support.manual_clock import ManualClock
from tests.support.reference_log import Entry, ReferenceLog

START_MS = 1_700_000_000_000

record_values = st.tuples(
    st.integers(START_MS, START_MS + 50), st.none() | st.binary(max_size=3), st.none() | st.binary(max_size=40)
)


class LogMachine(RuleBasedStateMachine):
    """Appends, rolls, truncates, opens again (cleanly or not), reads and searches."""

    @initialize(interval=st.sampled_from([0, 60, 4096]))
    def start(self, interval: int) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="seglog-model-"))
        self.directory = self.root / "model-0"
        self.directory.mkdir()
        self.config = LogConfig(index_interval_bytes=interval)
        self.model = ReferenceLog()
        self.log = self.opened(clean=True)

    def opened(self, *, clean: bool, recovery_point: int = 0) -> Log:
        start = self.model.log_start_offset
        options = LoadOptions(clean_shutdown=clean, recovery_point=recovery_point, log_start_offset=start)
        clock = ManualClock(START_MS)
        return Log.open(self.directory, self.config, fs=LocalFileSystem(), clock=clock, options=options)

    def teardown(self) -> None:
        if hasattr(self, "root"):
            self.log.close()
            shutil.rmtree(self.root)

    @rule(
        records=st.lists(record_values, min_size=1, max_size=9),
        batch_records=st.integers(1, 4),
        codec=st.sampled_from([Compression.NONE, Compression.GZIP, Compression.LZ4]),
    )
    def append(
        self, records: list[tuple[int, bytes | None, bytes | None]], batch_records: int, codec: Compression
    ) -> None:
        before = self.model.log_end_offset
        made = [Record(value, key, timestamp) for timestamp, key, value in records]
        info = self.log.append(made, batch_records=batch_records, codec=codec)
        groups = [records[i : i + batch_records] for i in range(0, len(records), batch_records)]
        self.model.append(groups)
        assert (info.first_offset, info.last_offset) == (before, self.model.log_end_offset - 1)
        assert info.max_timestamp == max(timestamp for timestamp, _, _ in records)

    @rule()
    def roll(self) -> None:
        self.log.roll()
        self.model.roll()

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        offset = round(share * self.model.log_end_offset)
        self.log.truncate_to(offset)
        self.model.truncate_to(offset)

    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        point = self.log.recovery_point
        self.log.close()
        self.model.reopen()
        self.log = self.opened(clean=clean, recovery_point=0 if clean else min(point, self.model.log_end_offset))

    @rule(share=st.floats(0, 1), max_bytes=st.sampled_from([1, 200, 1 << 20]))
    def read(self, share: float, max_bytes: int) -> None:
        offset = round(share * self.model.log_end_offset)
        fetched = self.log.read(offset, max_bytes)
        expected = self.model.entries(offset)
        found = [Entry(r.offset, r.timestamp, r.key, r.value) for r in fetched.records()]
        assert found == expected[: len(found)]
        assert bool(found) == bool(expected)

    @rule(timestamp=st.integers(START_MS - 1, START_MS + 51))
    def search(self, timestamp: int) -> None:
        found = self.log.offset_for_timestamp(timestamp)
        assert (found and (found.timestamp, found.offset)) == self.model.search(timestamp)
        largest = self.log.offset_for_timestamp(-3)
        assert (largest and (largest.timestamp, largest.offset)) == self.model.largest()

    @invariant()
    def same_records_and_offsets(self) -> None:
        if not hasattr(self, "log"):
            return
        found = [Entry(r.offset, r.timestamp, r.key, r.value) for r in self.log.records(max_bytes=300)]
        assert found == self.model.entries()
        assert self.log.log_end_offset == self.model.log_end_offset
        assert [s.base_offset for s in self.log.segments] == [s.base_offset for s in self.model.segments]


LogMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
TestLogModel = LogMachine.TestCase
