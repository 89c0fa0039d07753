"""Where the jars of tests with Kafka are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.kafka import jvm


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("SEGLOG_TEST_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(jvm, "CLONE", tmp_path / "clone")
    return tmp_path / "clone"


def test_jars_are_kept_in_the_users_cache(clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert jvm.cache_directory() == tmp_path / "home" / ".cache" / "seglog-tests"
    assert not clone.exists()


@pytest.mark.parametrize("home", ["/dev/null", "/dev/null/below"])
def test_jars_are_kept_in_the_clone_where_the_home_takes_no_file(
    clone: Path, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    monkeypatch.setenv("HOME", home)
    assert jvm.cache_directory() == clone / ".pytest_cache" / "seglog-tests"
    assert jvm.cache_directory().is_dir()


def test_a_place_that_was_named_is_never_replaced(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEGLOG_TEST_CACHE", "/dev/null/named")
    with pytest.raises(NotADirectoryError):
        jvm.cache_directory()
    assert not clone.exists()
