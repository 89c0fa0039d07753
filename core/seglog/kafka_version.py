"""`KafkaVersion`: a release line of Apache Kafka, and which of them seglog knows.

Where Kafka's lines differ, a command speaks for `SPOKEN_FOR` unless somebody chooses another (`--kafka-version`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from seglog.errors import ConfigError

_TEXT = re.compile(r"(\d{1,2})\.(\d{1,2})(?:\.(?:\d{1,3}|x))*", re.ASCII)
_LAST_MINOR = {0: 11, 1: 1, 2: 8, 3: 9, 4: 4}
_FIRST_MINOR = {0: 7}


@dataclass(frozen=True, order=True, slots=True)
class KafkaVersion:
    """A release line: 4.3 is 4.3.0 and all its patches. Before 1.0 the second number is the line's (0.11)."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses `4.3`, `4.3.0`, `2.8.x` or `0.11.0.3`. Raises ConfigError for anything that is not a known line."""
        found = _TEXT.fullmatch(text.strip())
        version = cls(int(found[1]), int(found[2])) if found else None
        if version is None or not version.is_known:
            raise ConfigError(f"unknown Kafka version {text!r}: seglog knows {OLDEST} to {NEWEST}")
        return version

    @property
    def is_known(self) -> bool:
        """True if there is such a line, from 0.7 to the newest that seglog was tried with."""
        return _FIRST_MINOR.get(self.major, 0) <= self.minor <= _LAST_MINOR.get(self.major, -1)

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


OLDEST = KafkaVersion(0, 7)
NEWEST = KafkaVersion(4, 4)
SPOKEN_FOR = KafkaVersion(4, 3)
