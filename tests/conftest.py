"""What every test shares."""

from __future__ import annotations

from hypothesis import settings

# The first call of a kernel compiles it: time is no failure anywhere in these tests.
settings.register_profile("seglog", deadline=None)
settings.load_profile("seglog")
