"""`clean` and `verify` for Python programs: what they say before a task runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

pytest.importorskip("pyspark")

import seglog
from seglog.errors import RefusedError
from seglog_ask.spark.library import clean, verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOBODY = cast("SparkSession", None)  # no task runs in these tests


def test_odd_settings_are_reported_as_by_the_function_of_one_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with seglog.open_log(tmp_path / "t-0", create=True):
        pass
    monkeypatch.setenv("SEGLOG_SEGMENT_BITES", "1")
    found = []
    for run in (lambda: clean(NOBODY, tmp_path / "t-0"), lambda: seglog.clean(tmp_path / "t-0")):
        caplog.clear()
        with pytest.raises(RefusedError, match="state it with --policy"):
            run()
        found.append([(record.name, record.getMessage()) for record in caplog.records])
    assert found[0] == found[1]
    assert [name for name, text in found[0] if "SEGLOG_SEGMENT_BITES is set" in text] == ["seglog"]


@pytest.mark.parametrize("function", [clean, verify])
def test_a_path_is_needed(function) -> None:
    with pytest.raises(TypeError, match="name at least one path"):
        function(NOBODY)
