"""The table of options in core/SPARK.md matches the code, including the default values."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from seglog.errors import ConfigError
from seglog_ask.spark.read_options import OPTIONS, STORE_OPTIONS, parse_read_options
from seglog_ask.spark.write_options import NAMES, WriteOptions, parse_write_options
from seglog_ask.table.plan.options import ReadOptions
from seglog_ask.table.plan.splits import LEAST_SPLIT_BYTES, MOST_SPLIT_BYTES, target_bytes

PAGE = (Path(__file__).resolve().parents[3] / "core" / "SPARK.md").read_text()
ROW = re.compile(r"^\| `(\w+)` \| ([STW ]+) \| (.*?) \| .* \|$", re.MULTILINE)


USUAL = re.compile(r"(?:`(\w+)` )?\(([^()]*)\)")  # what a cell says in parentheses, and the value just before it
CODE = re.compile(r"`([^`]*)`")


def rows(side: str) -> list[tuple[str, str]]:
    """Returns (name, its values) for the options of the source (S), the stream (T) or the sink (W)."""
    section = PAGE[PAGE.index("## Options") : PAGE.index("## Which route prunes")]
    return [(name, values) for name, sides, values in ROW.findall(section) if side in sides.split()]


def listed(side: str) -> list[str]:
    return [name for name, _ in rows(side)]


def usual_values(side: str) -> dict[str, str]:
    """Returns the table's default values; `x (S), y (T)` gives each side its own."""
    found: dict[str, str] = {}
    for name, values in rows(side):
        bare = CODE.sub(
            lambda code: "" if "(" in code[1] else code[0], values
        )  # examples have parentheses of their own
        for value, said in USUAL.findall(bare):
            if said not in ("S", "T"):
                found[name] = said.partition(";")[0]
            elif said == side:
                found[name] = value
    return found


def parsed(side: str, given: dict[str, str]) -> ReadOptions | WriteOptions:
    options = {"path": "/logs", **given}
    return parse_write_options(options) if side == "W" else parse_read_options(options, streaming=side == "T")


@pytest.mark.parametrize("side", ["S", "T", "W"])
def test_a_usual_value_is_what_an_option_is_where_it_is_not_given(side: str) -> None:
    usual = {name: value for name, value in usual_values(side).items() if name not in ("columns", "maxPartitionBytes")}
    assert len(usual) >= (5 if side == "W" else 7), usual
    for name, value in usual.items():
        assert parsed(side, {name: value}) == parsed(side, {}), name


def test_without_columns_all_are_read_and_without_a_size_a_split_is_a_sixth_of_all() -> None:
    options, usual = parse_read_options({"path": "/logs"}), usual_values("S")
    assert options.columns is None and usual["columns"] == "all"
    sizes = [target_bytes(total << 20, options) >> 20 for total in (1, 6 * 100, 1 << 20)]
    assert sizes == [LEAST_SPLIT_BYTES >> 20, 100, MOST_SPLIT_BYTES >> 20]
    assert usual["maxPartitionBytes"] == f"a sixth of all, {sizes[0]} to {sizes[2]} MiB"


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
