"""`seglog report`: the figures, and the page, which anybody's names may be on."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog.escaping import escaped
from seglog.storage.filesystem import File, OpenMode
from seglog.storage.local import LocalFileSystem
from seglog_cli.report_page.charts import _labels, squarified
from seglog_cli.report_page.page import page
from seglog_cli.report_page.style import PALETTE, PICTURE_PAIRS, SCRIPT, TEXT_PAIRS
from tests.support.command_line import clean_logs, json_lines, run
from tests.support.log_files import files_of

TAGS = {
    *("html", "head", "meta", "title", "style", "body", "main", "script", "svg", "rect", "path", "circle", "text"),
    *("h1", "h2", "h3", "p", "br", "dl", "div", "dt", "dd", "ul", "li", "b", "span", "code", "details", "summary"),
    *("table", "caption", "thead", "tbody", "tr", "th", "td"),
}
COMPACTION = ("first_dirty_offset", "first_uncleanable_offset", "clean_bytes", "cleanable_bytes")
HOSTILE = "<img src=x onerror=alert(1)>&\"'</style><script>"


class Page(HTMLParser):
    """What a checker of accessibility looks at: headings, tables, ids, attributes, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.headings: list[int] = []
        self.heads: list[dict[str, str | None]] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.tables: list[dict[str, Any]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag == "th":
            self.heads.append(dict(attrs))
        if tag == "table":
            self.tables.append({"caption": False, "columns": 0})
        if tag == "caption":
            self.tables[-1]["caption"] = True
        if tag == "th" and dict(attrs).get("scope") == "col":
            self.tables[-1]["columns"] += 1


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return clean_logs(tmp_path)


@pytest.fixture
def hostile(logs: Path) -> Path:
    """Every name that anybody may choose holds markup, controls, or bytes that are not UTF-8."""
    (logs / "orders-none-0" / f"00000000000000000000.log.{HOSTILE.replace('/', '|')}.deleted").write_bytes(b"x")
    (logs / "orders-none-0" / HOSTILE.replace("/", "|")).write_bytes(b"x")
    (logs / "<b>bold&-0").mkdir()
    (logs / "<b>bold&-0" / "00000000000000000000.log").write_bytes(b"")
    (logs / b"t\xff\x1b[31m-0".decode("utf-8", "surrogateescape")).mkdir()
    return logs


def made(*paths: Path, **options: Any) -> str:
    return page(seglog.report(*paths, **options))


def test_the_figures_are_those_of_the_other_commands(logs: Path) -> None:
    before = files_of(logs)
    rows = json_lines(run("report", "--json", logs))
    assert files_of(logs) == before
    listed = {row["partition"]: row for row in json_lines(run("ls", "--json", logs)) if row["type"] == "partition"}
    found = {row["partition"]: row for row in rows if row["type"] == "partition"}
    assert found.keys() == listed.keys() - {"__cluster_metadata-0"}
    for name, row in found.items():
        assert (row["bytes"], row["end_offset"]) == (listed[name]["size"], listed[name]["end_offset"])
        assert len(row["segments"]) == listed[name]["segments"]
        explained = json_lines(run("explain", "--quick", "--json", logs / name))[0]
        compaction = row["compaction"]
        assert (compaction is None) == ("NOT_COMPACTED" in explained["codes"]["cleaning"])
        for own, its in (("dirty_ratio", "cleanable_ratio"), *((name, name) for name in COMPACTION)):
            assert compaction is None or compaction[own] == explained[its]
    assert rows[-1]["type"] == "summary"
    assert rows[-1]["bytes"] == sum(row["bytes"] for row in found.values())
    topics = [row for row in rows if row["type"] == "topic"]
    assert sum(row["bytes"] for row in topics) == rows[-1]["bytes"]
    settings = [row for row in rows if row["type"] == "setting" and row["topic"] == "customers"]
    assert ("cleanup.policy", "compact") in {(row["key"], row["value"]) for row in settings}


def test_no_log_file_is_opened_without_verify(logs: Path) -> None:
    opened: list[str] = []

    class Watched(LocalFileSystem):
        def open(self, path: Path, mode: OpenMode) -> File:
            opened.append(str(path))
            assert mode == "r"
            return super().open(path, mode)

    seglog.report(logs, logs / "orders-none-0", fs=Watched())
    data = [path for path in opened if path.endswith(".log") and "__cluster_metadata-0" not in path]
    assert data == []
    seglog.report(logs, verify=True, fs=Watched())
    assert any(path.endswith("/orders-none-0/00000000000000000000.log") for path in opened)


def test_verify_shows_damage_first_with_the_command_that_mends_it(logs: Path) -> None:
    log = logs / "orders-none-0" / "00000000000000000350.log"
    data = bytearray(log.read_bytes())
    data[5000:5004] = b"XXXX"
    log.write_bytes(data)
    quiet = json_lines(run("report", "--json", logs))
    assert "CRC_MISMATCH" not in {row.get("code") for row in quiet}
    for path in (logs, log.parent):
        done = run("report", "--json", "--verify", path)
        first = json_lines(done)[0]
        assert (done.exit_code, first["type"], first["partition"]) == (1, "concern", "orders-none-0")
        assert first["command"].startswith("seglog repair")
    text = made(logs, verify=True)
    assert text.index("What needs a hand") < text.index("seglog repair") < text.index("Where the bytes are")


def test_two_brokers_are_compared(logs: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    for name in ("orders-none-0", "customers-0"):
        (other / name).mkdir(parents=True)
        for path in (logs / name).iterdir():
            if not path.name.startswith(("00000000000000000750", "00000000000000000790")):
                (other / name / path.name).write_bytes(path.read_bytes())
    (other / "meta.properties").write_text("version=1\ncluster.id=abcdefghijklmnopqrstuv\nnode.id=9\n")
    rows = json_lines(run("report", "--json", logs, other))
    compared = {row["partition"]: row for row in rows if row["type"] == "comparison"}
    assert compared.keys() == {"orders-none-0", "customers-0"}
    sides = {side["broker"]: side for side in compared["orders-none-0"]["sides"]}
    assert sides["broker 1"]["behind"] == 0 < sides["broker 9"]["behind"]
    assert compared["orders-none-0"]["leader"] is None  # it stopped in order, so that the metadata has none
    assert "Brokers side by side" in made(logs, other)


def test_a_blocked_log_names_the_transaction_and_the_command(tmp_path: Path) -> None:
    directory = tmp_path / "logs" / "t-0"
    directory.parent.mkdir()
    owner = seglog.ProducerIdentity(4711, 0, 0, transactional=True)
    with seglog.open_log(directory, create=True) as log:
        log.append([seglog.Record(b"a", b"k", timestamp=1000)])
        log.roll()
        log.append([seglog.Record(b"a", b"k", timestamp=2000)], producer=owner)
        log.roll()
        log.append([seglog.Record(b"b", b"k", timestamp=3000)])
    found = seglog.report(directory.parent, config={"cleanup.policy": "compact"})
    (concern,) = [one for one in found.concerns if one.code == "CLEANING_BLOCKED"]
    assert "producer 4711" in concern.message
    assert concern.command == f"seglog txn {directory} open"
    (partition,) = found.partitions
    assert [one.state for one in partition.segments] == ["dirty", "blocked", "active"]


def test_hostile_names_stay_text(hostile: Path) -> None:
    text = made(hostile)
    parsed = Page(text)
    assert set(parsed.tags) <= TAGS
    assert parsed.tags.count("script") == parsed.tags.count("style") == 1
    assert not [name for _, name, _ in parsed.attributes if name.startswith("on") or name in ("style", "src", "href")]
    assert "&lt;img src=x onerror=alert(1)&gt;&amp;" in text
    assert "&lt;b&gt;bold&amp;-0" in text
    assert "\x1b" not in text
    text.encode()
    for row in json_lines(run("report", "--json", hostile)):
        if row["type"] == "partition":
            assert escaped(row["partition"]) == row["partition"] or row["partition"].startswith("t")


def test_the_page_refers_to_nothing_and_allows_only_its_own_style_and_script(hostile: Path) -> None:
    text = made(hostile)
    assert not re.search(r"https?:|//[a-z]|url\(|@import|srcset|xmlns", text.replace(SCRIPT, ""))
    assert "http" not in SCRIPT
    assert len(SCRIPT.strip().splitlines()) <= 100
    policy = re.search(r'Content-Security-Policy content="([^"]*)"', text)
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy[1].split(";"))
    assert rules["default-src"] == "'none'"
    for name in ("style", "script"):
        inside = re.search(f"<{name}>(.*?)</{name}>", text, re.S)
        assert inside is not None
        digest = base64.b64encode(hashlib.sha256(inside[1].encode()).digest()).decode()
        assert rules[f"{name}-src"] == f"'sha256-{digest}'"


def test_headings_are_in_order_and_table_heads_have_a_scope(hostile: Path) -> None:
    parsed = Page(made(hostile))
    assert parsed.headings[0] == 1
    assert parsed.headings.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(parsed.headings, parsed.headings[1:], strict=False))
    assert parsed.heads
    assert all(head.get("scope") in ("col", "row") for head in parsed.heads)
    assert all(table["columns"] for table in parsed.tables)
    assert ("html", "lang", "en") in parsed.attributes
    pictures = [dict(pair for pair in _attributes(tag)) for tag in re.findall(r"<svg [^>]*>", made(hostile))]
    outer = [one for one in pictures if "x" not in one]  # those within a treemap have titles
    assert all("aria-hidden" in one or "aria-label" in one for one in outer)


def _attributes(tag: str) -> list[tuple[str, str]]:
    return [(name, value) for name, value in re.findall(r'([\w-]+)=("[^"]*"|[^\s>]+)', tag)]


@pytest.mark.parametrize("column", [0, 1], ids=["light", "dark"])
def test_contrast_is_enough_in_both_schemes(column: int) -> None:
    for pairs, least in ((TEXT_PAIRS, 4.5), (PICTURE_PAIRS, 3.0)):
        for shape, ground in pairs:
            assert contrast(PALETTE[shape][column], PALETTE[ground][column]) >= least, (shape, ground)


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2."""
    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("sizes", [[1], [5, 5, 5, 5], [1000, 300, 200, 1, 1, 1], list(range(60, 0, -1))])
def test_the_areas_of_a_treemap_are_in_proportion_and_do_not_overlap(sizes: list[int]) -> None:
    tiles = list(squarified(sizes))
    for length, (x, y, width, height) in zip(sizes, tiles, strict=True):
        assert width * height == pytest.approx(10_000 * length / sum(sizes))
        assert -1e-6 <= x <= x + width <= 100 + 1e-6
        assert -1e-6 <= y <= y + height <= 100 + 1e-6
    for number, (x, y, width, height) in enumerate(tiles):
        for a, b, wide, high in tiles[number + 1 :]:
            across = min(x + width, a + wide) - max(x, a)
            down = min(y + height, b + high) - max(y, b)
            assert across < 1e-6 or down < 1e-6


@pytest.mark.parametrize(
    ("name", "share", "wide", "narrow"),
    [
        ("orders", 50, "orders", "orders"),
        ("shop.payments-settled", 20, "shop.payments-settled", "\u2026ettled"),
        ("shop.payments-settled", 12, "\u2026ayments-settled", "\u2026led"),
        ("shop.payments-settled", 2, None, None),
    ],
)
def test_a_tiles_label_is_whole_or_shows_its_end(name: str, share: float, wide: str | None, narrow: str | None) -> None:
    texts = re.findall(r"<text(?: class=(\w))? x=8 y=18>([^<]*)", _labels(name, "1 kB", share, 100))
    on = {None: {"wide", "narrow"}, "": {"wide", "narrow"}, "o": {"wide"}, "s": {"narrow"}}
    shown = {screen: text for kind, text in texts for screen in on[kind]}
    assert (shown.get("wide"), shown.get("narrow")) == (wide, narrow)


def test_what_is_folded_is_printed(logs: Path) -> None:
    page = made(logs)
    assert "details::details-content{content-visibility:visible" in page[page.index("@media print") :]
    assert 'addEventListener("beforeprint"' in page


def test_a_killed_brokers_directory_is_not_one_that_was_stopped_in_order(logs: Path, tmp_path: Path) -> None:
    shutil.copytree(logs, tmp_path / "killed")
    (tmp_path / "killed" / ".kafka_cleanshutdown").unlink(missing_ok=True)
    (logs / ".kafka_cleanshutdown").touch()
    page = made(logs, tmp_path / "killed")
    assert "<td>stopped in order" in page and "<td>killed, or not stopped in order" in page


def test_a_file_is_written_whole_and_never_over_another_by_itself(logs: Path, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    assert run("report", logs, "-o", target).exit_code in (0, 1)
    assert target.read_text().endswith("</html>\n")
    again = run("report", logs, "-o", target)
    assert (again.exit_code, "--replace" in again.stderr) == (12, True)
    assert run("report", logs, "-o", target, "--replace").exit_code in (0, 1)
    for wrong in (logs / "orders-none-0" / "00000000000000000000.log", tmp_path, tmp_path / "no" / "r.html"):
        assert run("report", logs, "-o", wrong, "--replace").exit_code in (2, 12)
    assert run("report", logs, "-o", target, "--json").exit_code == 2


def test_an_unreadable_partition_is_a_concern_and_the_others_are_shown(logs: Path) -> None:
    (logs / "orders-none-0" / "00000000000000000000.log").unlink()
    (logs / "orders-none-0" / "00000000000000000000.log").symlink_to("/dev/null")
    rows = json_lines(run("report", "--json", logs))
    assert len([row for row in rows if row["type"] == "partition"]) > 3
