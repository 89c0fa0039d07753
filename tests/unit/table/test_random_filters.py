"""Filters that engines push into a table leave exactly the rows that they leave of the whole table in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")
pytest.importorskip("polars")

from seglog_ask.table.engines import pruning
from tests.support.random_filters import SMALL_PIECE, far_shapes, shapes, wrong_answers


def test_a_sample_of_filters_over_every_shape_of_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "PIECE_BYTES", SMALL_PIECE)
    tried = list(shapes(tmp_path))
    assert len(tried) > 60
    wrong = [text for seed, (path, how) in enumerate(tried[::4]) for text in wrong_answers(path, 1000 + seed, 2, **how)]
    assert wrong == []


def test_a_sample_of_filters_over_tiers_and_object_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "PIECE_BYTES", SMALL_PIECE)
    with far_shapes(tmp_path) as tried:
        assert len(tried) > 30
        for seed, (path, how) in enumerate(tried[::5]):
            assert [*wrong_answers(path, 2000 + seed, 1, **how)] == []


@pytest.mark.slow
def test_more_filters_over_every_shape_of_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "PIECE_BYTES", SMALL_PIECE)
    tried = enumerate(shapes(tmp_path))
    assert [text for seed, (path, how) in tried for text in wrong_answers(path, seed, 3, **how)] == []
