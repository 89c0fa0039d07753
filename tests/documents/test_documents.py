"""What is written about the code is true: architecture, formats, manual, README."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from seglog import layout
from seglog.format import filenames
from seglog_cli import manual
from seglog_cli.app import COMMANDS, VERSION
from tests.tidy.sources import ENGINE

ROOT = Path(__file__).resolve().parents[2]
PAGES = {path.name: path.read_text() for path in (*(ROOT / "core").glob("*.md"), *ROOT.glob("*.md"))}
FORMAT = PAGES["FORMAT.md"]
README = PAGES["README.md"]

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


def test_the_format_page_has_every_file_type() -> None:
    suffixes = {getattr(filenames, name) for name in dir(filenames) if name.endswith("_SUFFIX")}
    files = {getattr(filenames, name) for name in dir(filenames) if name.endswith(("_CHECKPOINT", "_FILE"))}
    names = {name for name in suffixes | files if isinstance(name, str)}
    assert {name for name in names if name not in FORMAT} == set()
    for words in ("leader-epoch-checkpoint", "partition.metadata", "meta.properties", "quorum-state", ".checkpoint"):
        assert words in FORMAT


def test_positions_on_the_format_page_are_those_of_the_code() -> None:
    section = FORMAT.split("## Record batch, magic 2")[1].split("### Record")[0]
    rows = ((field, rf"^\| {position} \| [0-9 ]*\| {field} \|") for field, position in POSITIONS.items())
    assert [field for field, row in rows if not re.search(row, section, re.MULTILINE)] == []


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
    from seglog.verification.finding_codes import CODES
    from seglog_rescue.doctor.cases import CASES

    page = (ROOT / "man" / "man7" / "seglog-findings.7").read_text()
    assert [code for code in (*CODES, *CASES) if f"\\fB{code}\\fR" not in page] == []


def test_the_map_is_short_enough_to_be_read() -> None:
    assert len(PAGES["ARCHITECTURE.md"].splitlines()) <= 300


@pytest.mark.parametrize(
    ("page", "least"), [("ROOMS.md", 20), ("DIFFERENCES.md", 60), ("SECURITY.md", 15), ("DEAD_CLUSTER.md", 10)]
)
def test_every_test_that_a_page_names_is_there(page: str, least: int) -> None:
    sources = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    named = re.findall(r"`(test_[a-z0-9_]+)`", PAGES[page])
    assert len(named) > least
    assert [name for name in named if f"def {name}(" not in sources] == []


def parameters_by_name() -> dict[str, list[list[str]]]:
    """The parameters of every function, method (as `Class.method` too) and class of the engine, by its name."""
    found: dict[str, list[list[str]]] = {}

    def take(node: ast.Module | ast.ClassDef) -> None:
        owner = node.name if isinstance(node, ast.ClassDef) else ""
        fields = [
            each.target.id for each in node.body if isinstance(each, ast.AnnAssign) and hasattr(each.target, "id")
        ]
        found.setdefault(owner, []).append(fields)
        for each in node.body:
            if isinstance(each, ast.ClassDef):
                take(each)
            elif isinstance(each, ast.FunctionDef):
                names = [one.arg for one in (*each.args.args, *each.args.kwonlyargs) if one.arg not in ("self", "cls")]
                for name in (owner,) if each.name == "__init__" else (each.name, f"{owner}.{each.name}"):
                    found.setdefault(name, []).append(names)

    for path in ENGINE:
        take(ast.parse(path.read_text()))
    return found


def quoted_signatures(page: str) -> Iterator[tuple[str, list[str]]]:
    """(name, parameters) of each `name(parameters) -> …` on a page; in a class's outline `Class.method`."""
    owner = ""
    signature = re.compile(r"(\w+)\(((?:[^()]|\([^()]*\))*)\) ->")
    for line in re.sub(r",\n +", ", ", page).splitlines():
        heading = re.match(r"class (\w+):", line)
        owner = heading[1] if heading else owner if line.startswith("    ") else ""
        for name, inside in signature.findall(line):
            given = (
                re.match(r"[\w]+", part.strip(" *"))
                for part in re.sub(r"\[(?:[^\[\]]|\[[^\]]*\])*\]", "", inside).split(",")
            )
            names = [each[0] for each in given if each and each[0] not in ("self", "cls")]
            yield f"{owner}.{name}" if owner else name, names


def test_the_signatures_that_a_page_quotes_are_those_of_the_code() -> None:
    """A page may leave parameters out, and calls none by another name or in another order."""
    known, quoted = parameters_by_name(), list(quoted_signatures(PAGES["ROOMS.md"]))
    assert len(quoted) > 40

    def stands(name: str, given: list[str]) -> bool:
        return any([each for each in names if each in given] == given for names in known.get(name, ()))

    assert [(name, given, known.get(name)) for name, given in quoted if not stands(name, given)] == []


def test_the_modules_and_names_that_the_pages_mention_exist() -> None:
    """A `module.py` in backticks is a file; in `module.name`, the module mentions the name or has such a submodule."""
    sources = [path for folder in ("core", "seglog_cli", "tests") for path in (ROOT / folder).rglob("*.py")]
    files = {path.name for path in sources}
    texts: dict[str, str] = {}
    for path in sources:
        owner = path.parent.name if path.name == "__init__.py" else path.stem
        within = [each.stem for each in path.parent.iterdir()] if path.name == "__init__.py" else []
        texts[owner] = " ".join((texts.get(owner, ""), path.read_text(), *within))
    described = ("ARCHITECTURE.md", "ROOMS.md", "DIFFERENCES.md", "SECURITY.md", "SPARK.md", "DEAD_CLUSTER.md")
    pages = "".join(PAGES[name] for name in described)
    mentioned = re.findall(r"`([a-z_][\w/]*)\.(\w+)(?:\([^`]*)?`", pages + README)
    assert len(mentioned) > 100
    assert [f"{of}.{name}" for of, name in mentioned if name == "py" and f"{of.split('/')[-1]}.py" not in files] == []
    named = [(of.split("/")[-1], name) for of, name in mentioned if name not in ("py", "md", "yaml", "properties")]
    ours = [(of, name) for of, name in named if of in texts]
    assert len(ours) > 20
    assert [f"{of}.{name}" for of, name in ours if not re.search(rf"\b{name}\b", texts[of])] == []
