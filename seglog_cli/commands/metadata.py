"""`seglog metadata`: the cluster that a controller's metadata log describes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from seglog.units import count_text
from seglog_cli.console import Console
from seglog_cli.exit_codes import ExitCode
from seglog_cli.options import argument, command, offset_option, option
from seglog_cli.session import Session

if TYPE_CHECKING:
    from seglog.look.inspect.metadata_image import Difference, MetadataImage

_INDENT = "  "
# The parts of the tree whose entries are JSON lines of their own → the line's type, and the field of the key.
_LISTED = {
    "voters": ("voter", "id"),
    "controllers": ("controller", "id"),
    "brokers": ("broker", "id"),
    "topics": ("topic", "topic"),
    "users": ("user", "user"),
    "quotas": ("quota", "entity"),
    "acls": ("acl", "id"),
    "tokens": ("delegation_token", "id"),
}
_SHOWN_EMPTY = frozenset({"isr"})  # an empty ISR matters


@command(urls=["path", "diff"])
def run(
    session: Session,
    path: Annotated[Path, argument("PATH", "A controller's log directory, its __cluster_metadata-0, or a snapshot.")],
    at: Annotated[
        int | None, offset_option("--at", "Show the cluster as it was after the record at this offset.")
    ] = None,
    diff: Annotated[Path | None, option("--diff", "OTHER", "Compare with the metadata log of another voter.")] = None,
) -> int:
    """Shows the cluster that a controller's metadata log describes.

    It reads the log of a KRaft controller; no broker is needed. The output has features, the voters of a dynamic
    quorum with the ids of their directories, controllers, brokers, topics with their partitions, replicas, ISR and
    configuration, quotas, ACLs, and the names of SCRAM users and delegation tokens. It never shows a secret: neither
    credentials nor values of sensitive keys.

    Records are decoded as Kafka 4.4 defines them, whatever release wrote them. The second line names the level of the
    metadata as Kafka does, and the release of each broker, by the last level that it has registered.

    PATH is a controller's log directory, its __cluster_metadata-0, or one snapshot (*.checkpoint). Records near the end
    may not be committed yet; only a majority of the voters knows.

    --diff compares two voters up to the smaller of their end offsets. The exit code is 1 if they differ.

    Damage ends the replay. The output names the last record before it, and the exit code is 3.

    Examples:
      seglog metadata /var/lib/kafka/data
      seglog metadata --at 300 --json /var/lib/kafka/data/__cluster_metadata-0
      seglog metadata --diff /disk2/kafka /var/lib/kafka/data
    """
    from seglog.look.inspect.metadata_image import differences, read_metadata_image
    from seglog_cli.tiering import Tiers

    session, seen = Tiers().seen(session, [path, *([] if diff is None else [diff])])
    path, diff = seen[0], None if diff is None else seen[1]
    end = None if at is None else at + 1
    image = read_metadata_image(session.fs, path, end=end)
    images = [image]
    code = ExitCode.DONE
    if diff is None:
        show_metadata(session.console, image)
    else:
        other = read_metadata_image(session.fs, diff, end=end)
        common = min(image.end_offset, other.end_offset)
        left, right = (
            side if side.end_offset == common else read_metadata_image(session.fs, side.source, end=common)
            for side in (image, other)
        )
        differing = differences(left, right)
        show_metadata_differences(session.console, differing, (image, other))
        images.append(other)
        code = ExitCode.FOUND if differing else ExitCode.DONE
    problems = [problem for image in images for problem in image.problems]
    for problem in problems:
        session.console.warning(problem)
    return code or (ExitCode.INCOMPLETE if problems else ExitCode.DONE)


def show_metadata(console: Console, image: MetadataImage) -> None:
    """Shows the whole image."""
    if console.as_json:
        _show_json(console, image)
        return
    log = f"the log up to offset {image.end_offset - 1}" if image.end_offset else "an empty log"
    begin = f"snapshot {image.snapshot} and {log}" if image.snapshot else log
    console.line(f"{image.source}: {begin}, {count_text(image.records, 'record')}")
    if image.open_transaction is not None:
        console.line(f"a transaction from offset {image.open_transaction} on has no end: its records do not count")
    if image.metadata_version:
        brokers = "".join(f", broker {number} is Kafka {release}" for number, release in image.releases().items())
        console.line(f"metadata.version {image.metadata_version}{brokers}")
    for name, part in image.tree().items():
        for line in _lines(name, part, 0):
            console.line(line)


def show_metadata_differences(
    console: Console, differing: Sequence[Difference], images: tuple[MetadataImage, MetadataImage]
) -> None:
    """Shows each fact that differs, left and right."""
    for difference in differing:
        console.result(
            {"type": "metadata_difference", **asdict(difference)},
            f"{'/'.join(difference.path)}: {_value(difference.left)} | {_value(difference.right)}",
        )
    ends = [image.end_offset for image in images]
    verdict = console.styled(
        count_text(len(differing), "difference") if differing else "no difference", "warning" if differing else "good"
    )
    console.result(
        {"type": "summary", "differences": len(differing), "end_offsets": ends},
        f"{images[0].source} | {images[1].source}: {verdict} up to offset {min(ends) - 1}",
    )


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
            "metadata_version": image.metadata_version or None,
            "releases": {str(number): str(release) for number, release in image.releases().items()},
            "next_producer_id": image.next_producer_id,
        }
    )
    for name, (kind, field) in _LISTED.items():
        for key, facts in tree.get(name, {}).items():
            numbered = name in ("voters", "controllers", "brokers")
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
    """Yields the lines of a value: a mapping is a line with its plain values, and below it come the mappings in it.

    Empty values are left out. At depth 0, each plain value has its own line too.
    """
    lead, label = _INDENT * depth, name or "(default)"
    if not isinstance(value, Mapping):
        yield f"{lead}{name}: {_value(value)}"
        return
    plain = {
        key: item
        for key, item in value.items()
        if not isinstance(item, Mapping) and (key in _SHOWN_EMPTY or item not in (None, [], ""))
    }
    deeper = {key: item for key, item in value.items() if isinstance(item, Mapping) and item}
    if depth:
        facts = ", ".join(f"{key} {_value(item)}" for key, item in plain.items())
        yield f"{lead}{label}{': ' + facts if plain or not deeper else ''}"
    else:
        yield f"{lead}{label}"
        deeper = {**plain, **deeper}
    for key, item in deeper.items():
        yield from _lines(key, item, depth + 1)


def _value(value: object) -> str:
    if isinstance(value, list):
        return ",".join(str(item) for item in value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else str(value)
