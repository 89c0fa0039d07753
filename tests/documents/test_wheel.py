"""The files that a wheel would hold, by hatchling's own plan: the pages that the installed commands show are among
them."""

from __future__ import annotations

from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[2]
WRITERS = {f"seglog_cli/{name}.py" for name in ("manual", "manual_text", "pictures", "roff")}  # of pages and pictures


def test_a_wheel_holds_the_page_on_dead_clusters_the_manual_pages_and_the_modules() -> None:
    builder = WheelBuilder(str(ROOT))
    held = {file.distribution_path: Path(file.path) for file in builder.recurse_included_files()}
    page = held["seglog_cli/DEAD_CLUSTER.md"]
    assert page.read_bytes() == (ROOT / "core" / "DEAD_CLUSTER.md").read_bytes()
    for root in (ROOT / "core", ROOT):
        for package in ("seglog", "pyspark_seglog", "seglog_cli"):
            modules = {str(path.relative_to(root)) for path in (root / package).rglob("*.py")}
            assert modules - WRITERS <= held.keys()
    assert not WRITERS & held.keys()
    assert not any(name.startswith(("tests/", "fixtures/")) for name in held)
    shared = {file.distribution_path for file in builder.recurse_explicit_files(builder.config.shared_data)}
    pages = {f"share/man/{path.relative_to(ROOT / 'man')}" for path in (ROOT / "man").rglob("*.[1-8]")}
    assert len(pages) > 30 and pages <= shared
