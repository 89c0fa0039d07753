"""Broken leader epochs are set right where the neighbours tell, and only there."""

from __future__ import annotations

import numpy as np
import pytest

from seglog.diagnosis.epoch_mending import EpochPatch, mended_epochs


@pytest.mark.parametrize(
    ("broken", "mended"),
    [
        ([3, 3, 67, 3, 3], [3, 3, 3, 3, 3]),
        ([3, 3, 2, 3, 3], [3, 3, 3, 3, 3]),
        ([3, 3, -2147483645, 5, 5], [3, 3, 3, 5, 5]),
        ([3, 3, 21, 5, 5], [3, 3, 5, 5, 5]),
        ([19, 3, 3, 4], [3, 3, 3, 4]),
        ([0, 0, 64, 0, 64, 0], [0, 0, 0, 0, 0, 0]),
    ],
)
def test_a_broken_epoch_gets_its_neighbours(broken: list[int], mended: list[int]) -> None:
    assert mended_epochs(np.array(broken, dtype=np.int32)).tolist() == mended


@pytest.mark.parametrize("epochs", [[], [7], [0, 1, 2, 2, 9], [0, 0, 8], [6, 1], [3, 3, 8, 4, 4]])
def test_what_may_be_right_or_cannot_be_known_stays(epochs: list[int]) -> None:
    assert mended_epochs(np.array(epochs, dtype=np.int32)).tolist() == epochs


def test_a_patch_reaches_into_pieces_of_a_file() -> None:
    patch = EpochPatch(position=100, before=0, after=0x01020304)
    whole = bytearray(200)
    patch.apply(whole, 0)
    for cut in range(105, 120):
        front, back = bytearray(cut), bytearray(200 - cut)
        patch.apply(front, 0)
        patch.apply(back, cut)
        assert front + back == whole
    assert whole[112:116] == b"\x01\x02\x03\x04"
