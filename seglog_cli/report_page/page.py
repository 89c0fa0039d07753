"""Puts the report page together, section by section, what needs a hand first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seglog_cli.report_page.logs import partitions_section, topics_section
from seglog_cli.report_page.style import SCRIPT, STYLE, policy
from seglog_cli.report_page.surroundings import (
    hands_section,
    headline,
    leftovers_section,
    reading_section,
    settings_section,
    sides_section,
)
from seglog_cli.report_page.upkeep import compaction_section, growth_section, retention_section

if TYPE_CHECKING:
    from seglog.look.report.figures import Report


_SECTIONS = (
    headline,
    hands_section,
    topics_section,
    growth_section,
    sides_section,
    partitions_section,
    compaction_section,
    retention_section,
    settings_section,
    leftovers_section,
    reading_section,
)


def page(report: Report) -> str:
    """Returns the page: one HTML document in UTF-8 that refers to nothing outside itself."""
    sections = "".join(section(report) for section in _SECTIONS)
    return (
        "<!DOCTYPE html>\n<html lang=en><head><meta charset=utf-8>"
        f'<meta http-equiv=Content-Security-Policy content="{policy()}">'
        '<meta name=viewport content="width=device-width,initial-scale=1"><meta name=color-scheme content="light dark">'
        f"<title>Log report</title><style>{STYLE}</style></head>\n<body><main>\n"
        f"{sections}</main><script>{SCRIPT}</script></body></html>\n"
    )
