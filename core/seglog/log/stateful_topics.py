"""Topics in which other programs of Kafka's world keep their state: deleted by age or size, it is lost.

These programs make such topics with the policy compact, or refuse to start; a broker's default or a person makes it
delete. The names are their defaults, and a program can be given others.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING

from seglog.configuration.keys import COMPACT, LogConfig

if TYPE_CHECKING:
    from seglog.log.retention import RetentionPlan

_STATES = (
    (
        r"_schemas(?:[-_.].+)?|kafkasql-(?:journal|topic)",
        "a schema registry's schemas, without which values are unreadable",
    ),
    (r"(?:.+[-_.])?connect[-_.](?:.+[-_.])?offsets?", "Kafka Connect's offsets, without which connectors begin anew"),
    (r"(?:.+[-_.])?connect[-_.](?:.+[-_.])?configs?", "Kafka Connect's connectors and their configuration"),
    (r"(?:.+[-_.])?connect[-_.](?:.+[-_.])?status(?:es)?", "the states of Kafka Connect's connectors and tasks"),
    (r"mm2-(?:offsets|configs|status)\..+\.internal", "MirrorMaker's own offsets, configuration and states"),
    (r"(?:.+\.)?mm2-offset-syncs\..+\.internal|.+\.checkpoints\.internal", "MirrorMaker's map of offsets"),
    (r".+-changelog", "the state of a Kafka Streams application, which restores it from there"),
    (r"_confluent-ksql-.+_command_topic|_confluent-command", "the statements of ksqlDB or a license"),
    (r"__strimzi_store_topic", "the state of Strimzi's topic operator"),
)

_SHOULD_COMPACT = "a topic of this name holds {}: its cleanup.policy should be compact"


def state_in(topic: str) -> str:
    """Returns what a topic of this name holds by convention, "" if nothing is known."""
    return next((what for pattern, what in _STATES if re.fullmatch(pattern, topic)), "")


def state_lost(plan: RetentionPlan, policy: Collection[str]) -> str:
    """Returns what is lost by a plan that deletes by a topic's policy, "" if it deletes nothing or nothing is known."""
    what = "" if plan.empty or COMPACT in policy else state_in(plan.topic_partition.topic)
    return _SHOULD_COMPACT.format(what) if what else ""


def state_deleted(topic: str, config: LogConfig) -> str:
    """Returns what a broker deletes of a topic by its policy sooner or later, "" if it does not, or if nothing is known
    of a topic of that name."""
    keeps = config.compact or not config.delete or (config.retention_ms < 0 and config.retention_bytes < 0)
    what = "" if keeps else state_in(topic)
    return _SHOULD_COMPACT.format(what) if what else ""
