"""A replayed Kafka answers only what it was asked when it was recorded, about the same files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.kafka.recorded import RECORDED, ReplayedKafka, recorded_tests


def test_files_that_kafka_never_saw_are_no_question_that_it_can_answer(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "00000000000000000000.log").write_bytes(b"other bytes")
    kafka = ReplayedKafka()
    kafka.module = "test_cleaner"
    with pytest.raises(AssertionError, match="Kafka was not asked to clean these files"):
        kafka.clean(tmp_path / "t-0", passes=3, now_ms=1)


def test_each_archive_names_the_tests_that_run_on_it() -> None:
    archives = {path.name.removesuffix(".tar.xz") for path in RECORDED.glob("*.tar.xz")}
    assert archives == {"test_append", "test_cleaner", "test_dump_log", "test_recovery"}
    sources = {name: (RECORDED.parents[1] / "tests" / "interop" / f"{name}.py").read_text() for name in archives}
    for name in archives:
        named = recorded_tests(name)
        assert named
        assert [test for test in named if f"def {test.partition('[')[0]}(" not in sources[name]] == []
