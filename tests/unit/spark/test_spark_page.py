"""The table of options in core/SPARK.md is that of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from seglog.errors import ConfigError
from seglog.spark.options import OPTIONS, STORE_OPTIONS, parse_read_options
from seglog.spark.write_options import NAMES

PAGE = (Path(__file__).resolve().parents[3] / "core" / "SPARK.md").read_text()
ROW = re.compile(r"^\| `(\w+)` \| ([STW ]+) \| (.*?) \| .* \|$", re.MULTILINE)


def listed(side: str) -> list[str]:
    section = PAGE[PAGE.index("## Options") : PAGE.index("## Which route prunes")]
    return [name for name, sides, _ in ROW.findall(section) if side in sides.split()]


def test_the_sinks_options_are_those_of_the_table() -> None:
    assert sorted(listed("W")) == sorted(NAMES)


def test_the_sources_options_are_those_of_the_table() -> None:
    assert sorted({*listed("S"), *listed("T")}) == sorted(OPTIONS)
    assert set(OPTIONS) - set(listed("S")) == {"maxOffsetsPerTrigger"}


@pytest.mark.parametrize("name", sorted(set(OPTIONS) - set(listed("T"))))
def test_what_is_not_a_streams_option_is_refused_there(name: str) -> None:
    value = {"view": "batches", "endingTimestamp": "1", "endingOffsets": "latest"}.get(name, '{"t":{"0":1}}')
    parse_read_options({"path": "-", name: value})
    with pytest.raises(ConfigError, match=name):
        parse_read_options({"path": "-", name: value}, streaming=True)


def test_settings_of_stores_are_all_named() -> None:
    assert [name for name in STORE_OPTIONS if f"`{name}`" not in PAGE] == []
