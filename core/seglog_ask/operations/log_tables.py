"""The tables that a query over logs may name: topics, all records, and what else a log directory tells."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from seglog.doors import door
from seglog.errors import ConfigError
from seglog.format.columns import Side
from seglog.format.filenames import parse_partition_directory
from seglog.look.inspect.overview import Unlisted, overview
from seglog.model import NO_TIMESTAMP, TopicPartition
from seglog.operations.workspace import Workspace
from seglog.scan.listing import Target, TargetKind, log_directory_of, partition_directories
from seglog.scan.view import PartitionView
from seglog.verification.transaction_coordinators import view_transactions
from seglog_ask.operations import catalog
from seglog_ask.table.engines.dataset import Table
from seglog_ask.table.engines.relations import VIEWS, Relation, relation_of_rows, view_relation
from seglog_ask.table.read.source import Source
from seglog_ask.table.values.columns import text_outputs
from seglog_ask.table.values.planned_types import typed_columns
from seglog_ask.table.values.valued import valued_outputs
from seglog_ask.values.forms import Values

RECORDS = "records"
Rows = Iterator[Sequence[Any]]

_SHOWN_NEAR = 3
_ALL: Mapping[Side, Collection[tuple[str, ...]]] = {}


@dataclass(frozen=True)
class LogTables:
    """The tables of some logs. `work` and `targets` show tiers as partition directories; `source` reads records, whose
    keys and values `values` decodes. `hidden` gets the topics that queries named and seglog's own tables hide.
    """

    source: Source
    work: Workspace
    targets: Sequence[Target]
    values: Values | None = None
    hidden: set[str] = field(default_factory=set)

    @cached_property
    def topics(self) -> frozenset[str]:
        """The names of all topics."""
        return frozenset(log.topic_partition.topic for log in self.source.logs)

    def named(self, name: str, fields: Mapping[Side, Collection[tuple[str, ...]]] = _ALL) -> Table | Relation:
        """Returns the table with this name: one of seglog's own, else a topic; upper and lower case differ only if two
        topics do. Of decoded keys and values only these `fields` are made (paths in lower case), of a side that is not
        there all. ConfigError names the nearest tables.
        """
        folded = name.lower()
        if folded in TABLES:
            self.hidden.update(topic for topic in self.topics if topic.lower() == folded)
        if folded == RECORDS:
            return self._table(self.source, fields)
        if folded in VIEWS:
            return view_relation(self.source, folded)
        if folded in _OF_ROWS:
            columns, rows = _OF_ROWS[folded]
            return relation_of_rows(columns, lambda: rows(self), self.source.failures)
        if folded == catalog.STANDARD:
            return relation_of_rows(_OF_STANDARD, lambda: _standard(self), self.source.failures)
        topics = sorted(self.topics)
        found = [topic for topic in topics if topic == name] or [topic for topic in topics if topic.lower() == folded]
        if len(found) == 1:
            logs = [log for log in self.source.logs if log.topic_partition.topic == found[0]]
            return self._table(replace(self.source, logs=logs), fields)
        if found:
            several = " and ".join(found)
            raise ConfigError(f"{several} are one name in SQL: use {RECORDS} with topic = '{found[0]}'")
        near = difflib.get_close_matches(name, [*topics, *TABLES], _SHOWN_NEAR)
        hint = f"; did you mean {' or '.join(near)}?" if near else f": there are {', '.join(TABLES)}"
        raise ConfigError(f"there is no topic or table '{name}'{hint}")

    def _table(self, source: Source, fields: Mapping[Side, Collection[tuple[str, ...]]]) -> Table:
        if self.values is None:
            return Table(source, text_outputs())
        forms, tally = self.values.forms, self.values.tally
        typed = typed_columns(forms, tally, source.fs, source.logs, source.options, for_sql=True)
        typed = {side: column.of_fields(fields.get(side)) for side, column in typed.items()}
        return Table(source, valued_outputs(text_outputs(), self.values, typed))

    def topics_within(self, text: str) -> list[str]:
        """Returns the topics whose names are in a text, longest first."""
        return sorted((topic for topic in self.topics if topic in text), key=len, reverse=True)


# --- rows -----------------------------------------------------------------------------------------------------


def _place(directory: Path) -> TopicPartition:
    parsed = parse_partition_directory(directory.name)
    return TopicPartition(directory.name, 0) if parsed is None else parsed.topic_partition


def _time(timestamp: int | None) -> int | None:
    return None if timestamp is None or timestamp == NO_TIMESTAMP else timestamp


def _partitions(tables: LogTables) -> Rows:
    for one in overview(tables.work.fs, tables.targets):
        if isinstance(one, Unlisted):
            raise one.error
        key = _place(one.directory)
        offsets = one.start_offset, one.end_offset, _time(one.modified_ms)
        place = str(one.directory), one.state
        yield key.topic, key.partition, *place, one.size, len(one.segments), *offsets, len(one.leftovers)


def _groups(tables: LogTables) -> Rows:
    directories = [target for target in tables.targets if target.kind is TargetKind.LOG_DIRECTORY]
    for group in door("groups")(tables.work.fs, directories or tables.targets).groups:
        about = group.name, group.kind, group.state, len(group.members)
        if not group.partitions:
            yield *about, None, None, None, None, None, None, None
        for one in group.partitions:
            key, member = one.partition, None if one.member is None else one.member.member_id
            offsets = one.offset, one.log_end_offset, one.lag
            yield *about, key.topic, key.partition, *offsets, _time(one.committed_ms), member


def _transactions(tables: LogTables) -> Rows:
    fs, now = tables.work.fs, tables.work.clock.now_ms()
    for directory in (path for target in tables.targets for path in partition_directories(fs, target)):
        view, key = PartitionView(fs, directory), _place(directory)
        for one in view_transactions(fs, view, now):
            producer = one.producer_id, one.producer_epoch, one.state.value
            offsets = one.first_offset, one.last_offset, _time(one.first_timestamp), _time(one.last_timestamp)
            size = one.batches, one.records, one.bytes
            yield key.topic, key.partition, *producer, *offsets, *size, one.hanging, one.file, one.position


def _configs(tables: LogTables) -> Rows:
    for log_directory in dict.fromkeys(log_directory_of(target) for target in tables.targets):
        settings = tables.work.settings(log_directory)
        for topic in [None, *sorted(tables.topics)]:
            for name, setting in settings.resolve(topic).settings.items():
                yield str(log_directory), topic, name, setting.text, setting.origin


def _names(tables: LogTables) -> Rows:
    partitions = Counter(log.topic_partition.topic for log in tables.source.logs)
    for topic in sorted(tables.topics):
        hides = topic.lower() if topic.lower() in TABLES else None
        yield topic, "topic" if hides is None else f"topic, hidden by the table {hides}", partitions[topic]
    for name in TABLES:
        yield name, "records of all topics" if name == RECORDS else "about logs", None


def _standard(tables: LogTables) -> Rows:
    for name, kind, _ in _names(tables):
        yield "logs", "logs", name, "BASE TABLE" if kind.startswith("topic") else "VIEW"


_PLACE = {"topic": "text", "partition": "int"}
_OF_ROWS: dict[str, tuple[dict[str, str], Callable[[LogTables], Rows]]] = {
    "partitions": (
        {
            **_PLACE,
            "directory": "text",
            "state": "text",
            "size": "int",
            "segments": "int",
            "start_offset": "int",
            "end_offset": "int",
            "modified": "time",
            "leftovers": "int",
        },
        _partitions,
    ),
    "groups": (
        {
            "group_id": "text",
            "type": "text",
            "state": "text",
            "members": "int",
            **_PLACE,
            "committed_offset": "int",
            "log_end_offset": "int",
            "lag": "int",
            "committed": "time",
            "member": "text",
        },
        _groups,
    ),
    "transactions": (
        {
            **_PLACE,
            "producer_id": "int",
            "producer_epoch": "int",
            "state": "text",
            "first_offset": "int",
            "last_offset": "int",
            "first_timestamp": "time",
            "last_timestamp": "time",
            "batches": "int",
            "records": "int",
            "bytes": "int",
            "hanging": "bool",
            "segment": "text",
            "position": "int",
        },
        _transactions,
    ),
    "configs": (
        {"log_directory": "text", "topic": "text", "name": "text", "value": "text", "source": "text"},
        _configs,
    ),
    catalog.TABLES: ({"name": "text", "kind": "text", "partitions": "int"}, _names),
}
_OF_STANDARD = dict.fromkeys(("table_catalog", "table_schema", "table_name", "table_type"), "text")
TABLES = (RECORDS, *VIEWS, *_OF_ROWS)
