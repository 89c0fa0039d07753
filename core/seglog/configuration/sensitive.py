"""Which settings are secrets, by their names: what shows configuration shows `HIDDEN` in their place."""

from __future__ import annotations

import re

HIDDEN = "(hidden)"

_SENSITIVE = re.compile(r"password|jaas|secret|credential|private|\.key$", re.IGNORECASE)


def is_sensitive(name: str) -> bool:
    """True for the name of a setting of a broker, topic or client that may hold a secret."""
    return _SENSITIVE.search(name) is not None
