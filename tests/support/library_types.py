"""The library as a type checker sees it: `tests/tidy` runs mypy --strict over this file, nothing runs it.

A name that seglog does not have is an error there: without one, mypy reports the `type: ignore` as unused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_type

import seglog

seglog.verfy("t-0")  # type: ignore[attr-defined]
seglog.verify("t-0", levle="crc")  # type: ignore[call-arg]
seglog.open_log(5)  # type: ignore[arg-type]

with seglog.open_log("t-0") as log:
    assert_type(log, seglog.Log)
    assert_type(log.records(0, "read_committed"), Iterator[seglog.Record])
    assert_type(log.columns(), Iterator[seglog.Records])
    assert_type(log.append([seglog.Record(b"v")], codec="lz4"), seglog.AppendInfo)

assert_type(seglog.plan_clean("t-0", policy="compact"), list[seglog.Cleaned | seglog.Skipped | seglog.CleaningFailure])
assert_type(seglog.repair("t-0"), list[seglog.Repaired])
assert_type(seglog.explain("t-0", config={"cleanup.policy": "compact"}), seglog.Explanation)
assert_type([finding.code for finding in seglog.verify("t-0", threads=2)], list[str])
seglog.verify("t-0", level="crk")  # type: ignore[arg-type]
seglog.clean("t-0", polcy="compact")  # type: ignore[call-arg]
