"""Opening a log to change it is refused where that loses something: the refusal names the file and the way on."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.clock import FixedClock
from seglog.errors import CorruptRecordError
from seglog.log.loader import LoadOptions, plan_recovery
from seglog.log.opening import refuse_losses
from tests.support.log_files import FS, batch, files_of, write_segment

UNCLEAN = LoadOptions(clean_shutdown=False)


@pytest.mark.parametrize(
    ("swap", "reason"), [(b"", "it is empty"), (batch(20, 10), "its offsets end at 29"), (b"x" * 90, "position 0")]
)
def test_a_swap_that_holds_less_is_refused_with_its_file_and_what_to_do(
    tmp_path: Path, swap: bytes, reason: str
) -> None:
    """A cleaning that was cut short leaves one, too, where the last records of a segment have newer ones."""
    log = tmp_path / "t-0"
    for base in (0, 20, 40):
        write_segment(log, base, batch(base, 10), batch(base + 10, 10))
    path = log / f"{20:020d}.log"
    path.with_name(path.name + ".swap").write_bytes(swap)
    before = files_of(log)
    with pytest.raises(CorruptRecordError, match="`seglog recover` finishes the swap") as refused:
        refuse_losses(plan_recovery(FS, log, FixedClock(5000), UNCLEAN))
    assert str(path) in str(refused.value) and reason in str(refused.value)
    assert f"{path.name}.swap" in str(refused.value) and f"{path.stat().st_size} bytes" in str(refused.value)
    assert files_of(log) == before
