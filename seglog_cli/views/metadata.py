"""A metadata log's image as an indented tree, or JSON lines; and how two of them differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from seglog.units import count_text
from seglog_cli.console import Console

if TYPE_CHECKING:
    from seglog.inspect.metadata_image import Difference, MetadataImage

_INDENT = "  "
# The parts of the tree whose entries are lines of their own in JSON: type of the line, and the field of the key.
_LISTED = {
    "controllers": ("controller", "id"),
    "brokers": ("broker", "id"),
    "topics": ("topic", "topic"),
    "users": ("user", "user"),
    "quotas": ("quota", "entity"),
    "acls": ("acl", "id"),
    "tokens": ("delegation_token", "id"),
}
_SHOWN_EMPTY = frozenset({"isr"})  # that nobody is in sync is news


def show_metadata(console: Console, image: MetadataImage) -> None:
    """The whole image."""
    if console.as_json:
        _show_json(console, image)
        return
    begin = f"snapshot {image.snapshot} and the log" if image.snapshot else "the log"
    console.line(f"{image.source}: {begin} up to offset {image.end_offset - 1}, {count_text(image.records, 'record')}")
    if image.open_transaction is not None:
        console.line(f"a transaction from offset {image.open_transaction} on has no end: its records do not count")
    for name, part in image.tree().items():
        for line in _lines(name, part, 0):
            console.line(line)


def show_metadata_differences(
    console: Console, found: Sequence[Difference], images: tuple[MetadataImage, MetadataImage]
) -> None:
    """Each fact that differs, left and right."""
    for one in found:
        if console.as_json:
            row = {"type": "metadata_difference", "path": list(one.path), "left": one.left, "right": one.right}
            console.json(row)
        else:
            console.line(f"{'/'.join(one.path)}: {_value(one.left)} | {_value(one.right)}")
    ends = [image.end_offset for image in images]
    if console.as_json:
        console.json({"type": "summary", "differences": len(found), "end_offsets": ends})
        return
    verdict = console.styled(
        count_text(len(found), "difference") if found else "no difference", "warning" if found else "good"
    )
    console.line(f"{images[0].source} | {images[1].source}: {verdict} up to offset {min(ends) - 1}")


def _show_json(console: Console, image: MetadataImage) -> None:
    tree = image.tree()
    console.json(
        {
            "type": "metadata",
            "path": str(image.source),
            "end_offset": image.end_offset,
            "snapshot": image.snapshot,
            "records": image.records,
            "open_transaction": image.open_transaction,
            "features": tree.get("features", {}),
            "next_producer_id": image.next_producer_id,
        }
    )
    for name, (kind, field) in _LISTED.items():
        for key, facts in tree.get(name, {}).items():
            numbered = name in ("controllers", "brokers")
            row: dict[str, Any] = {"type": kind, field: int(key) if numbered else key}
            if name == "topics":
                row.update(topic_id=facts["id"], configs=facts["configs"], partitions=len(facts["partitions"]))
            elif name in ("users", "quotas"):
                row["values"] = facts
            else:
                row.update(facts if isinstance(facts, Mapping) else {"rule": facts})
            console.json(row)
            for number, partition in facts["partitions"].items() if name == "topics" else ():
                console.json({"type": "partition", "topic": key, "partition": int(number), **partition})
    for kind, named in tree.get("configs", {}).items():
        for name, values in named.items():
            console.json({"type": "config", "resource": kind, "name": name, "values": values})


def _lines(name: str, value: object, depth: int) -> Iterator[str]:
    """A mapping is a line with its plain values, and below it lines for the mappings in it; what is empty is left out.

    A part of the whole (depth 0) has a line for each plain value, too.
    """
    lead = _INDENT * depth
    if not isinstance(value, Mapping):
        yield f"{lead}{name}: {_value(value)}"
        return
    plain = {key: one for key, one in value.items() if not isinstance(one, Mapping) and _is_shown(key, one)}
    deeper = {key: one for key, one in value.items() if isinstance(one, Mapping) and one}
    if depth:
        facts = ", ".join(f"{key} {_value(one)}" for key, one in plain.items())
        yield f"{lead}{_label(name)}{': ' + facts if plain or not deeper else ''}"
    else:
        yield f"{lead}{_label(name)}"
        deeper = {**plain, **deeper}
    for key, one in deeper.items():
        yield from _lines(key, one, depth + 1)


def _is_shown(name: str, value: object) -> bool:
    return name in _SHOWN_EMPTY or value not in (None, [], "")


def _label(name: str) -> str:
    return name or "(default)"


def _value(value: object) -> str:
    if isinstance(value, list):
        return ",".join(str(one) for one in value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else str(value)
