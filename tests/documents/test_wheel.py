"""The files that a wheel and a source distribution would hold, by hatchling's own plan: the pages that the installed
commands show are among them."""

from __future__ import annotations

from pathlib import Path

from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from tests.tidy.sources import PACKAGES

ROOT = Path(__file__).parents[2]
WRITERS = {f"seglog_cli/{name}.py" for name in ("manual", "manual_text", "roff")}  # of pages


def test_a_wheel_holds_the_page_on_dead_clusters_the_manual_pages_and_the_modules() -> None:
    builder = WheelBuilder(str(ROOT))
    held = {file.distribution_path: Path(file.path) for file in builder.recurse_included_files()}
    page = held["seglog_cli/DEAD_CLUSTER.md"]
    assert page.read_bytes() == (ROOT / "core" / "DEAD_CLUSTER.md").read_bytes()
    for root in (ROOT / "core", ROOT):
        for package in (*PACKAGES, "pyspark_seglog", "seglog_cli"):
            modules = {str(path.relative_to(root)) for path in (root / package).rglob("*.py")}
            assert modules - WRITERS <= held.keys()
    assert not WRITERS & held.keys()
    assert not any(name.startswith(("tests/", "fixtures/")) for name in held)
    shared = {file.distribution_path for file in builder.recurse_explicit_files(builder.config.shared_data)}
    pages = {f"share/man/{path.relative_to(ROOT / 'man')}" for path in (ROOT / "man").rglob("*.[1-8]")}
    assert len(pages) > 30 and pages <= shared


def test_a_source_distribution_holds_what_a_wheel_is_made_of_and_no_tests() -> None:
    sources = {file.distribution_path for file in SdistBuilder(str(ROOT)).recurse_included_files()}
    builder = WheelBuilder(str(ROOT))
    files = [*builder.recurse_included_files(), *builder.recurse_explicit_files(builder.config.shared_data)]
    assert {str(Path(file.path).relative_to(ROOT)) for file in files} <= sources
    builders = {str(path.relative_to(ROOT)) for path in (ROOT / "core" / "native").rglob("*.[pc]*") if path.is_file()}
    assert {name for name in builders if "__pycache__" not in name} <= sources
    assert {"LICENSE", "README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "core/DEAD_CLUSTER.md"} <= sources
    assert {Path(name).parts[0] for name in sources} & {"tests", "fixtures", "findings", ".ci", ".github"} == set()
