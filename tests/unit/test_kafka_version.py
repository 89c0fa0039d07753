"""Release lines of Kafka: what is read, how they compare, and what is refused."""

from __future__ import annotations

import pytest

from seglog.errors import ConfigError
from seglog.kafka_version import NEWEST, OLDEST, SPOKEN_FOR, KafkaVersion


@pytest.mark.parametrize(
    ("text", "line"),
    [("4.3", (4, 3)), ("4.3.0", (4, 3)), ("0.11.0.3", (0, 11)), ("2.8.x", (2, 8)), (" 3.9 ", (3, 9)), ("0.7", (0, 7))],
)
def test_a_release_belongs_to_its_line(text: str, line: tuple[int, int]) -> None:
    assert KafkaVersion.parse(text) == KafkaVersion(*line)


@pytest.mark.parametrize(
    "text", ["", "4", "4.9", "5.0", "0.6", "0.12", "1.2", "3.10", "four", "4.3-rc", "-1.0", "4..3", "9" * 99]
)
def test_what_is_no_known_line_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"seglog knows 0\.7 to 4\.4"):
        KafkaVersion.parse(text)


def test_lines_compare_by_age_and_read_back() -> None:
    lines = [
        OLDEST,
        KafkaVersion(0, 11),
        KafkaVersion(1, 1),
        KafkaVersion(2, 8),
        KafkaVersion(3, 9),
        SPOKEN_FOR,
        NEWEST,
    ]
    assert lines == sorted(lines)
    assert [KafkaVersion.parse(str(line)) for line in lines] == lines
