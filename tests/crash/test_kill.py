"""kill -9 while appending: everything acknowledged as flushed is there afterwards, and nothing torn is visible."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from seglog.model import Record
from tests.support.open_logs import opened_log

pytestmark = pytest.mark.slow  # processes are killed at many moments

ROOT = Path(__file__).parents[2]

# Appends for ever, rolls often, and prints the log end after each flush: that is the acknowledgement.
WRITER = """
import sys
from pathlib import Path
from seglog.model import Compression, Record
from tests.support.open_logs import opened_log

log = opened_log(Path(sys.argv[1]), clean=False, segment_bytes=20000, index_interval_bytes=200)
print("ready", log.log_end_offset, flush=True)
while True:
    end = log.log_end_offset
    records = [Record(b"value %d" % (end + i), b"k%d" % ((end + i) % 7), 1000 + end + i) for i in range(37)]
    log.append(records, batch_records=5, codec=Compression(end % 2))
    if end % 3 == 0:
        log.flush()
        print(log.log_end_offset, flush=True)
"""


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_was_flushed_survives_kill(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    directory = tmp_path / "t-0"
    directory.mkdir()
    for _ in range(3):
        acknowledged = killed_writer(directory, chance.randrange(2, 60))
        with opened_log(directory, clean=False, segment_bytes=20000, index_interval_bytes=200) as log:
            assert log.log_end_offset >= acknowledged
            records = list(log.records())
            assert [record.offset for record in records] == list(range(log.log_end_offset))
            assert [record.value for record in records] == [b"value %d" % i for i in range(len(records))]
            assert log.offset_for_timestamp(1000 + acknowledged - 1) is not None
            log.append([Record(b"value %d" % log.log_end_offset, timestamp=1000 + log.log_end_offset)])


def killed_writer(directory: Path, after_lines: int) -> int:
    """Runs the writer, kills it after so many acknowledgements, returns the last one read."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'core'}{os.pathsep}{ROOT}"}
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(directory)], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("ready")
    acknowledged = 0
    for _ in range(after_lines):
        acknowledged = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    for line in process.stdout.read().splitlines(keepends=True):
        if line.endswith("\n"):
            acknowledged = int(line)
    process.wait()
    process.stdout.close()
    return acknowledged
