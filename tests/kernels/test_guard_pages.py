"""No kernel leaves its arrays: ten thousand hostile logs with every array of every call beside a page nobody may touch.

The inputs run in a process of their own, which a kernel that goes too far ends with SIGSEGV; the journal that it left
says which input, which way through the engine and which kernel it was. SEGLOG_EFFORT=100 runs a million
(an hour and more). To see one again: `python -m tests.support.kernel_drives FIRST LAST 1 DIRECTORY JOURNAL`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seglog.kernels._mode import MODE, NATIVE
from tests.support import effort
from tests.support.broken.hostile_logs import hostile_log, seeds
from tests.support.guarded_kernels import DisagreementError, Guard, GuardedKernel, kernel_names
from tests.support.guarded_memory import GuardedMemory, Side, extent_of
from tests.support.kernel_drives import DRIVES

ROOT = Path(__file__).resolve().parents[2]
INPUTS = effort.tries(10000)
# One batch's checksum: `format.checksum` asks the library crc32c instead wherever the kernel is not ready at once, as
# importing that library is faster than compiling the kernel or interpreting it.
NATIVE_ONLY = {"crc32c.crc32c"}
# Interpreted kernels run beside this share of the calls, and beside the first ones of every kernel.
TWIN_EVERY = 499


def run_child(*command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'core'}{os.pathsep}{ROOT}"}
    return subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", *command],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def guarded(first: int, last: int, directory: Path) -> dict[str, Any]:
    """What the child says of inputs `first` to `last`; fails with input, way and kernel when it dies."""
    journal = directory / "journal"
    module = "tests.support.kernel_drives"
    done = run_child("-m", module, str(first), str(last), str(TWIN_EVERY), str(directory), str(journal))
    at = journal.read_bytes().split(b"\n", 1)[0].decode() if journal.exists() else "nothing"
    if done.returncode < 0:
        pytest.fail(f"{signal.Signals(-done.returncode).name} at {at}")
    assert done.returncode == 0, f"{at}\n{done.stderr[-3000:]}"
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_no_kernel_leaves_its_arrays_and_interpreted_ones_do_the_same(tmp_path: Path) -> None:
    told = guarded(0, INPUTS, tmp_path)
    reached = set(told["callable"]) - (set() if MODE.name == NATIVE else NATIVE_ONLY)
    assert set(told["calls"]) == reached, "kernels that the engine calls and no input reaches, or the reverse"
    assert set(told["twins"]) == reached
    assert NATIVE_ONLY <= set(told["callable"]) <= kernel_names()


# --- the harness finds what it is there to find ---------------------------------------------------------------

FAULTS = """
import ctypes, sys
from pathlib import Path
import numpy as np
from tests.support.guarded_memory import GuardedMemory, Journal, Side

journal = Journal(Path(sys.argv[1]))
for at, side in zip(sys.argv[2::2], sys.argv[3::2]):
    journal(f"at {at}, {side}")
    array = GuardedMemory().like(np.zeros(5, dtype=np.uint8), Side[side]).array
    print(ctypes.string_at(array.__array_interface__["data"][0] + int(at), 1)[0])
"""


@pytest.mark.parametrize(("at", "side"), [(5, "AFTER"), (-1, "BEFORE")])
def test_one_byte_too_far_ends_the_process_and_the_journal_says_where(tmp_path: Path, at: int, side: str) -> None:
    done = run_child("-c", FAULTS, str(tmp_path / "journal"), str(at), side)
    assert -done.returncode == signal.SIGSEGV
    assert (tmp_path / "journal").read_bytes().startswith(f"at {at}, {side}\n".encode())


def test_the_last_and_the_first_byte_may_be_touched(tmp_path: Path) -> None:
    bytes_touched = ["4", "AFTER", "0", "AFTER", "0", "BEFORE", "4", "BEFORE"]
    assert run_child("-c", FAULTS, str(tmp_path / "journal"), *bytes_touched).stdout == "0\n" * 4


def test_a_kernel_that_writes_what_it_is_to_read_is_found() -> None:
    def writing(data: np.ndarray, start: int, end: int) -> int:
        data[0] = 1
        return 0

    with pytest.raises(DisagreementError, match=r"xxhash\.xxh32 wrote array 0"):
        GuardedKernel("xxhash.xxh32", writing, Guard(twin_every=1))(np.zeros(5, dtype=np.uint8), 0, 5)


def test_a_kernel_with_another_result_or_output_than_its_twin_is_found() -> None:
    with pytest.raises(DisagreementError, match=r"xxhash\.xxh32 gives 3"):
        GuardedKernel("xxhash.xxh32", lambda *_: 3, Guard(twin_every=1))(np.zeros(5, dtype=np.uint8), 0, 5)
    arrays = np.zeros(5, dtype=np.uint8), 0, 5, np.zeros(9, dtype=np.uint8), 0, 9
    with pytest.raises(DisagreementError, match="array 1 is not what the interpreted kernel leaves"):
        GuardedKernel("lz4.decompress_block", lambda *a: a[3].fill(7) or -1, Guard(twin_every=1))(*arrays)


# --- its parts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", list(Side))
def test_arrays_are_copied_with_type_strides_and_flags(side: Side) -> None:
    table = np.arange(40, dtype=np.int32).reshape(10, 4).view([("a", np.int32), ("b", np.int32), ("c", np.int64)])[:, 0]
    frozen = np.arange(5, dtype=np.uint8)
    frozen.flags.writeable = False
    memory = GuardedMemory()
    for array in (table, table["b"], table["c"], table[:0], frozen, np.zeros((3, 2), dtype=np.int64)):
        placed = memory.like(array, side).array
        assert (placed == array).all() and placed.dtype == array.dtype
        assert (placed.strides, placed.flags.writeable) == (array.strides, array.flags.writeable)
    assert extent_of(table["b"]) == 9 * 16 + 4


def test_hostile_logs_are_the_same_for_the_same_number_and_nearly_all_different() -> None:
    assert [hostile_log(n) for n in range(300)] == [hostile_log(n) for n in range(300)]
    assert len({hostile_log(n) for n in range(1000)}) > 990


def test_seeds_are_of_every_magic_and_codec_and_have_control_batches() -> None:
    entries = [entry for seed in seeds() for entry in seed.entries]
    assert {(e.magic, e.codec) for e in entries} >= {(m, c) for m in (0, 1) for c in range(4)} | {
        (2, c) for c in range(5)
    }
    attributes = {e.head[22] for e in entries if e.magic == 2}
    assert any(a & 0x30 == 0x30 for a in attributes) and any(a & 0x30 == 0x10 for a in attributes)


def test_every_way_through_the_engine_is_taken() -> None:
    assert len(set(DRIVES)) == 14
