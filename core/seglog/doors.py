"""The doors of the engine: what it takes from the rooms around it, each imported when it is first needed.

The engine stands alone: it imports no object store, no tier, no decoder of values and no table. Who gives it what it
asks for is written here, once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

DOORS = {
    # opens what URLs name: () -> storage.routing.StoreFiles
    "store files": ("seglog_stores.remote.routing", "shared_remote_files"),
    # shows tiers as directories: (fs, paths, options, on_remark) -> (fs, paths), None if no path is in a tier
    "tiers": ("seglog_stores.tiers.asked", "shown_tiers"),
    # whether a name in a directory is of a tier: (name) -> re.Match or None
    "name of a tier": ("seglog_stores.formats.tier_names", "is_of_a_tier"),
    # shows the snapshot that a path is in, also of a pattern: (fs, path) -> (fs, path), None if it is in none
    "snapshot": ("seglog_stores.tiers.asked", "shown_around"),
    # how tiers are read: (fs, local, keys, metadata, warn) -> tiers.tiered_partition.TierOptions
    "tier options": ("seglog_stores.tiers.asked", "tier_options"),
    # the private key of a tier's key pair: (fs, path) -> formats.tier_keys.PrivateKey
    "tier key": ("seglog_stores.tiers.segments", "read_private_key"),
    # settles an append of Spark's to several partitions that its journal shows: (fs, log directory, open_directory)
    "staged append": ("seglog_ask.spark.staged_settling", "settle_if_possible"),
    # what decodes keys and values: (fs, key, value, schemas, schema, beside) -> values.forms.Values, None for nothing
    "values": ("seglog_ask.values.sources", "values_of"),
    # what a partition directory holds by its name: (name) -> values.internal_topics.Kind or None
    "internal kind": ("seglog_ask.values.internal_topics", "kind_of_partition"),
    # the decoder of one of Kafka's own topics: (topic) -> values.internal_topics.Decoder
    "internal decoder": ("seglog_ask.values.internal_topics", "decoder_of"),
    # what a start would do with one broker's log directories: (fs, paths, clock, settings_of, deep=) -> Diagnosis rows
    "diagnoses": ("seglog_rescue.doctor.doctor", "diagnoses"),
    # the kinds of its diagnoses: () -> verification.finding_codes.Code
    "diagnosis codes": ("seglog_rescue.doctor.cases", "codes"),
    # the greatest committed offset of each partition: (fs, log directory, name of a topic id) ->
    # {TopicPartition: verification.surroundings.Committed}
    "committed offsets": ("seglog_rescue.groups.committed_offsets", "read_committed_offsets"),
    # what the consumer groups of log directories hold: (fs, targets) -> operations.groups.GroupsReport
    "groups": ("seglog_rescue.operations.groups", "read_groups"),
    # a log's records for Arrow: (columns, topic partition, directory, records) -> pyarrow.RecordBatchReader
    "arrow reader": ("seglog_ask.table.values.columns", "reader_of"),
}


@cache
def door(name: str) -> Callable[..., Any]:
    """Returns the function behind a door."""
    module, function = DOORS[name]
    opened: Callable[..., Any] = getattr(import_module(module), function)
    return opened
