"""How hard the searching tests search: one place for all of them.

`SEGLOG_EFFORT=10` multiplies every number of trials, cuts and seconds by ten; `SEGLOG_SEED=1000` lets every search
begin at that seed instead of its usual one. Without them a run tries what its tier has time for, and the same each
time.
"""

from __future__ import annotations

import os

EFFORT = float(os.environ.get("SEGLOG_EFFORT", "1"))
EVERY = EFFORT >= 10  # where a test takes some of the possible places, it takes each of them


def tries(usual: int) -> int:
    """How many of something to try, where a usual run tries so many."""
    return max(1, round(usual * EFFORT))


def first_seed(usual: int) -> int:
    """The first seed of a search."""
    return int(os.environ.get("SEGLOG_SEED", str(usual)))
