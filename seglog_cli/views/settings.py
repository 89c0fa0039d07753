"""Configuration values and their sources, as a table or JSON lines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from seglog_cli.console import Console
from seglog_cli.tables import Cell

if TYPE_CHECKING:
    from seglog.configuration.precedence import Contradiction, ResolvedConfig

_METADATA_FILE = re.compile(
    r"(?<=__cluster_metadata-0)/\d{20}\.log"
)  # an offset alone is enough: it is in one file of the log


def show_settings(console: Console, topic: str | None, config: ResolvedConfig, every: bool) -> None:
    """Shows the values that were set, or `every` one; for a topic only the keys that a topic can have."""
    asked = [setting for setting in config.settings.values() if topic is None or setting.key.topic_level]
    listed = [setting for setting in asked if every or setting.origin != "default"]
    if console.as_json:
        for setting in listed:
            fields = {"key": setting.key.name, "value": setting.text, "origin": setting.origin}
            console.json({"type": "setting", "topic": topic, **fields})
        for contradiction in config.contradictions:
            console.json({"type": "contradiction", "topic": topic, **contradiction_record(contradiction)})
        return
    rows = [
        (setting.key.name, setting.text, Cell(setting.origin, short=_METADATA_FILE.sub("", setting.origin)))
        for setting in listed
    ]
    console.table(("KEY", "VALUE", "FROM"), rows)
    for contradiction in config.contradictions:
        console.line(f"this contradicts the cluster's configuration: {contradiction}")
    if len(listed) < len(asked):
        left = f"{len(asked) - len(listed)} other" if listed else f"all {len(asked)}"
        console.message(f"{left} keys have their defaults; --all shows them")


def contradiction_record(found: Contradiction) -> dict[str, object]:
    """Returns a contradiction as part of a JSON line."""
    return {
        "key": found.given.key.name,
        "value": found.given.text,
        "origin": found.given.origin,
        "stated_value": found.stated.text,
        "stated_origin": found.stated.origin,
    }
