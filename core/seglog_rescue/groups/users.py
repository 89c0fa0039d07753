"""What a group belongs to: a sink connector, Connect's workers, a Streams application, a schema registry.

Kafka: SinkUtils.consumerGroupId, Worker.baseConsumerConfigs, InternalTopologyBuilder.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from seglog_rescue.groups.states import SHARE, STREAMS, STREAMS_PROTOCOL, GroupState

CONNECT_SINK, CONNECT_WORKERS, STREAMS_APPLICATION = "connect-sink", "connect-workers", "streams"
SCHEMA_REGISTRY = "schema-registry"

_SINK_GROUP, _SINK_CLIENT = "connect-", "connector-consumer-"
CHANGELOG = "-changelog"
STREAMS_TOPICS = (CHANGELOG, "-repartition")
_OF_PROTOCOL_TYPE = {"connect": CONNECT_WORKERS, "sr": SCHEMA_REGISTRY}


def user_of(name: str, state: GroupState, streams_applications: Container[str]) -> str | None:
    """Returns what a group belongs to, by its protocol, its members, the topics of its name, or its name; None if
    nothing tells.
    """
    of_type = _OF_PROTOCOL_TYPE.get(state.protocol_type or "")
    if of_type is not None or state.kind == SHARE:
        return of_type
    if state.kind == STREAMS or state.protocol == STREAMS_PROTOCOL or name in streams_applications:
        return STREAMS_APPLICATION
    clients = [member.client_id for member in state.members.values()]
    is_sink = any(client.startswith(_SINK_CLIENT) for client in clients)
    return CONNECT_SINK if is_sink or (not clients and name.startswith(_SINK_GROUP)) else None


def streams_applications(groups: Container[str], topics: Iterable[str]) -> frozenset[str]:
    """Returns the groups that have changelogs or repartition topics among `topics`."""
    owners = (application_of(topic, groups) for topic in topics if topic.endswith(STREAMS_TOPICS))
    return frozenset(name for name in owners if name is not None)


def application_of(topic: str, groups: Container[str]) -> str | None:
    """Returns the group whose own a changelog or repartition topic is. Its name begins with the group's: with the
    longest one, where several fit.
    """
    return next((name for name in _beginnings(topic) if name in groups), None)


def _beginnings(topic: str) -> Iterator[str]:
    """Yields what stands before each hyphen, the longest first."""
    while "-" in topic:
        topic = topic.rpartition("-")[0]
        yield topic
