"""What is written about the code is true: architecture, formats, manual, README."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from seglog import layout
from seglog.format import filenames
from seglog_cli import manual
from seglog_cli.app import COMMANDS, VERSION

ROOT = Path(__file__).resolve().parents[2]
ARCHITECTURE = (ROOT / "core" / "ARCHITECTURE.md").read_text()
FORMAT = (ROOT / "core" / "FORMAT.md").read_text()
README = (ROOT / "README.md").read_text()

# Row of a table in FORMAT.md → the position that the code uses.
POSITIONS = {
    "base offset": layout.BASE_OFFSET_OFFSET,
    "length": layout.LENGTH_OFFSET,
    "partition leader epoch": layout.PARTITION_LEADER_EPOCH_OFFSET,
    "attributes": layout.ATTRIBUTES_OFFSET,
    "last offset delta": layout.LAST_OFFSET_DELTA_OFFSET,
    "base timestamp": layout.BASE_TIMESTAMP_OFFSET,
    "max timestamp": layout.MAX_TIMESTAMP_OFFSET,
    "producer id": layout.PRODUCER_ID_OFFSET,
    "producer epoch": layout.PRODUCER_EPOCH_OFFSET,
    "base sequence": layout.BASE_SEQUENCE_OFFSET,
    "record count": layout.RECORDS_COUNT_OFFSET,
    "records": layout.RECORD_BATCH_OVERHEAD,
}


def test_the_architecture_names_every_module_and_what_it_owns() -> None:
    made = manual.with_module_list(ARCHITECTURE, manual.module_list())
    assert made == ARCHITECTURE, "run python -m seglog_cli.manual"


def test_the_format_page_has_every_file_type() -> None:
    suffixes = {getattr(filenames, name) for name in dir(filenames) if name.endswith("_SUFFIX")}
    files = {getattr(filenames, name) for name in dir(filenames) if name.endswith(("_CHECKPOINT", "_FILE"))}
    names = {name for name in suffixes | files if isinstance(name, str)}
    assert {name for name in names if name not in FORMAT} == set()
    for words in ("leader-epoch-checkpoint", "partition.metadata", "meta.properties", "quorum-state", ".checkpoint"):
        assert words in FORMAT


@pytest.mark.parametrize("field", POSITIONS)
def test_positions_on_the_format_page_are_those_of_the_code(field: str) -> None:
    section = FORMAT.split("## Record batch, magic 2")[1].split("### Record")[0]
    assert re.search(rf"^\| {POSITIONS[field]} \| [0-9 ]*\| {field} \|", section, re.MULTILINE)


def test_entry_sizes_on_the_format_page_are_those_of_the_code() -> None:
    for heading, dtype in (
        ("## Offset index", layout.OFFSET_INDEX_ENTRY),
        ("## Time index", layout.TIME_INDEX_ENTRY),
        ("## Transaction index", layout.TRANSACTION_INDEX_ENTRY),
    ):
        assert f"{dtype.itemsize} bytes an entry" in FORMAT.split(heading)[1].split("\n## ")[0]
    snapshot = FORMAT.split("## Producer snapshot")[1].split("\n## ")[0]
    assert f"entries, {layout.SNAPSHOT_ENTRY.itemsize} bytes each" in snapshot
    for position in layout.SNAPSHOT_ENTRY.fields.values() if layout.SNAPSHOT_ENTRY.fields else ():
        assert f"| +{position[1]} |" in snapshot


def test_the_manual_is_what_the_code_says() -> None:
    made = manual.pages(ROOT)
    found = {str(p.relative_to(ROOT / "man")): p.read_text() for p in (ROOT / "man").glob("man?/*")}
    assert sorted(found) == sorted(made), "run python -m seglog_cli.manual"
    assert [name for name in made if made[name] != found[name]] == [], "run python -m seglog_cli.manual"


def test_the_readme_names_every_command() -> None:
    assert [name for name in COMMANDS if f"`{name}`" not in README] == []


def test_the_version_is_the_packages() -> None:
    assert f'version = "{VERSION}"' in (ROOT / "pyproject.toml").read_text()


def test_the_findings_page_has_every_code_of_verify_and_doctor() -> None:
    from seglog.evidence.findings import CODES
    from seglog.prognosis.cases import CASES

    page = (ROOT / "man" / "man7" / "seglog-findings.7").read_text()
    assert [code for code in (*CODES, *CASES) if f"\\fB{code}\\fR" not in page] == []


@pytest.mark.parametrize(("page", "least"), [("ARCHITECTURE.md", 20), ("DEAD_CLUSTER.md", 10)])
def test_every_test_that_a_page_names_is_there(page: str, least: int) -> None:
    sources = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    named = re.findall(r"`(test_[a-z0-9_]+)`", (ROOT / "core" / page).read_text())
    assert len(named) > least
    assert [name for name in named if f"def {name}(" not in sources] == []
