"""Logs whose offsets do not ascend are not cleaned: which record of a key is the latest, nobody can tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.errors import CorruptRecordError
from tests.support.cleaning import append, clean, compacted_log, digest, keyed


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize(("number", "base_offset"), [(0, 1), (0, 60), (2, 70), (3, 4), (3, 65), (5, 9)])
@pytest.mark.parametrize("checkpoint", [None, 8])
def test_a_base_offset_that_was_changed_is_refused_before_anything_is(
    tmp_path: Path, jobs: int, number: int, base_offset: int, checkpoint: int | None
) -> None:
    """No checksum covers it, and of a key whose later record seems to be the older one both would have to stay."""
    log = compacted_log(tmp_path)
    for i in range(6):
        append(log, keyed(("a", str(i)), (f"b{i}", "x")))
        if i in (1, 3):
            log.roll()
    log.roll()
    log.close()
    path = sorted((tmp_path / "t-0").glob("*.log"))[number // 2]
    data = bytearray(path.read_bytes())
    at = (len(data) // 2) * (number % 2)
    data[at : at + 8] = base_offset.to_bytes(8, "big")
    path.write_bytes(data)
    before = digest(tmp_path / "t-0")
    log = compacted_log(tmp_path)
    with pytest.raises(CorruptRecordError, match=f"{path.name}.*offsets do not ascend.*nothing was changed"):
        clean(log, jobs=jobs, checkpoint=checkpoint)
    assert digest(tmp_path / "t-0") == before
