"""The same requests to a broker and to `seglog serve`, field by field, in every version that `serve` speaks.

`wire_answers` asks them of an endpoint and returns the answers as plain values, by API, version and the request's name.
`differences` of two endpoints' answers are a place and two values; those of `UNLIKE` are meant, each with its reason.
"""

from __future__ import annotations

import dataclasses
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import Any

from kio.index import load_request_schema

from seglog_rescue.serve import protocol
from seglog_rescue.serve.endpoint import Address
from seglog_rescue.serve.protocol import VERSIONS
from tests.support.raw_client import RawClient

TOPIC, PAID, MISSING = "plain", "paid", "missing"
NO_ID = uuid.UUID(int=7)
SECONDS = timedelta(seconds=30)
COMMITTED_BEFORE = ("one", "two")  # groups
COMMON_KEYS = (
    "cleanup.policy",
    "compression.type",
    "flush.ms",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "preallocate",
    "segment.bytes",
)  # one of each type; the brokers of tests set none of them

# Why `serve` answers otherwise than a broker, and where: by API, request and field.
UNLIKE = {
    "the address": (r"\.port$",),
    "serve has the APIs that readers need": (r"^ApiVersions .*\.api_keys$",),
    "there is no cluster whose features could be told": (r"^ApiVersions .*_features(_epoch)?$",),
    "a reader may only read and describe": (r"_operations$",),
    "serve keeps no fetch sessions, as a broker without room for one": (r"^Fetch .*new session\.session_id$",),
    "writes are refused whatever they ask for": (
        r"^(Produce|InitProducerId|DeleteRecords) .*\.error_(code|message)$",
        r"^(CreateTopics|DeleteTopics|CreatePartitions) .*\.error_(code|message)$",
    ),
    "it says what to use instead": (r"^(Share|Streams)GroupHeartbeat .*\.error_message$",),
    "no transactions and share groups are coordinated": (r"^FindCoordinator .* (1 True|2 True|9 True)\.",),
    "nothing is known of them": (r"^DescribeConfigs .* (broker|group)\.results\[0\]\.configs$",),
    "values cannot be changed, and their origin is not known": (
        r"^DescribeConfigs .*\.(read_only|synonyms|documentation)$",
    ),
    "other words for the same error": (
        r"^Describe(Configs|Cluster|Groups) .*\.error_message$",
        r"^ConsumerGroup(Describe|Heartbeat) .*\.error_message$",
    ),
    "a negative offset is refused: it could not be told from none": (r"^OffsetCommit .* negative\.",),
    "serve forgets groups without members: their members join again": (
        r"^OffsetCommit .* stranger in four\.",
        r"^ConsumerGroupHeartbeat .*: unknown (group|leaves)\.error_code$",
    ),
    "serve asks for heartbeats each second": (r"^ConsumerGroupHeartbeat .*heartbeat_interval$",),
    "a broker delays assignments, and its group goes on without members": (
        r"^ConsumerGroupHeartbeat .*: (missing topic|static|static quiet|comes back)\.member_epoch$",
        r"^ConsumerGroupHeartbeat .*: (static|comes back)\.assignment\.topic_partitions$",
        r"^JoinGroup .*: static join\.generation_id$",
    ),
    "a group's epochs are not a broker's, which counts each change of its members": (
        r"^ConsumerGroupDescribe .*: empty described\..*_epoch$",
    ),
}


@dataclass(frozen=True)
class Asked:
    """One request: its API, a name for it, its fields, and the versions that it makes sense in."""

    api_key: int
    name: str
    values: Mapping[str, Any] = field(default_factory=dict)
    first: int = 0
    last: int = 99


def readings(topic_id: uuid.UUID) -> Iterator[Asked]:
    """The requests that change nothing. Topic `plain` has two partitions, with records of timestamps around 1.7e12."""
    yield from _cluster(topic_id)
    yield from _partitions()
    yield from _groups(topic_id)
    yield from _refused()


def _cluster(topic_id: uuid.UUID) -> Iterator[Asked]:
    def named(*names: str) -> list[dict[str, Any]]:
        return [{"name": name, "topic_id": None} for name in names]

    yield Asked(protocol.API_VERSIONS, "versions", {"client_software_name": "raw", "client_software_version": "1"})
    metadata = {"allow_auto_topic_creation": False}
    yield Asked(protocol.METADATA, "all", {"topics": None, **metadata}, first=1)
    yield Asked(protocol.METADATA, "none", {"topics": (), **metadata}, first=1)
    yield Asked(protocol.METADATA, "topics", {"topics": named(TOPIC, MISSING), **metadata}, first=4)
    yield Asked(protocol.METADATA, "wrong name", {"topics": named("a b", ""), **metadata}, first=4)
    operations = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    yield Asked(protocol.METADATA, "operations", {"topics": named(TOPIC), **metadata, **operations}, first=8)
    by_id = [{"name": None, "topic_id": each} for each in (topic_id, NO_ID)]
    yield Asked(protocol.METADATA, "ids", {"topics": by_id, **metadata}, first=12)
    for kind in (1, 2, 3):
        asked = {"endpoint_type": kind, "include_cluster_authorized_operations": kind == 1}
        yield Asked(protocol.DESCRIBE_CLUSTER, f"endpoint type {kind}", asked, first=0 if kind == 1 else 1)
    for name, names, limit, cursor in (
        ("all", (), 2000, None),
        ("one and missing", (TOPIC, MISSING), 2000, None),
        ("page", (TOPIC, PAID), 2, None),
        ("next page", (TOPIC, PAID), 2, {"topic_name": TOPIC, "partition_index": 1}),
        ("limit 0", (TOPIC,), 0, None),
        ("wrong cursor", (TOPIC,), 2, {"topic_name": TOPIC, "partition_index": -1}),
        ("wrong name", ("a b",), 2, None),
    ):
        asked = {"topics": [{"name": each} for each in names], "response_partition_limit": limit, "cursor": cursor}
        yield Asked(protocol.DESCRIBE_TOPIC_PARTITIONS, name, asked)
    for name, kind, resource, keys in (
        ("topic", 2, TOPIC, COMMON_KEYS),
        ("some of a topic", 2, TOPIC, ("cleanup.policy", "nonsense")),
        ("missing topic", 2, MISSING, None),
        ("wrong name", 2, "a b", None),
        ("broker", 4, "1", ("log.dirs",)),
        ("other broker", 4, "17", None),
        ("no broker", 4, "x", None),
        ("group", 32, "one", None),
        ("metrics", 16, "", None),
        ("unknown kind", 99, "x", None),
    ):
        asked = {"resource_type": kind, "resource_name": resource, "configuration_keys": keys}
        more = {"include_synonyms": True, "include_documentation": True}
        yield Asked(protocol.DESCRIBE_CONFIGS, name, {"resources": [asked], **more})


def _partitions() -> Iterator[Asked]:
    def topics(name: str, number: int, **more: object) -> dict[str, Any]:
        partition = {"partition_index": number, "partition": number, "partition_max_bytes": 1 << 20, **more}
        return {"topics": [{"name": name, "topic": name, "partitions": [partition]}], "replica_id": -1}

    for stamp in (-1, -2, -3, -4, -5, -6, -7, 0, 1_700_000_000_005, 1_800_000_000_000):
        for committed in (0, 1):
            asked = topics(TOPIC, 0, timestamp=stamp) | {"isolation_level": committed}
            yield Asked(protocol.LIST_OFFSETS, f"{stamp} {committed}", asked, first=2 * committed)
    yield Asked(protocol.LIST_OFFSETS, "open transaction", topics(PAID, 0, timestamp=-1) | {"isolation_level": 1}, 2)
    for name, number, more in (
        (MISSING, 0, {}),
        (TOPIC, 9, {}),
        (TOPIC, -1, {}),
        ("a b", 0, {}),
        (TOPIC, 0, {"current_leader_epoch": 77}),
    ):
        yield Asked(protocol.LIST_OFFSETS, f"{name} {number} {more}", topics(name, number, timestamp=-1, **more), 4)
        epochs = topics(name, number, leader_epoch=0, **more)
        yield Asked(protocol.OFFSET_FOR_LEADER_EPOCH, f"{name} {number} {more}", epochs)
        fetched = topics(name, number, fetch_offset=0, **more) | {"max_bytes": 1 << 20, "min_bytes": 1}
        yield Asked(protocol.FETCH, f"{name} {number} {more}", fetched, first=9)
    for epoch in (-1, 0, 5):
        yield Asked(protocol.OFFSET_FOR_LEADER_EPOCH, f"epoch {epoch}", topics(TOPIC, 0, leader_epoch=epoch))
    room = {"max_bytes": 1 << 20, "min_bytes": 1}
    for name, topic, offset, more in (
        ("start", TOPIC, 0, {}),
        ("end", TOPIC, 50, {}),
        ("beyond", TOPIC, 99, {}),
        ("negative", TOPIC, -1, {}),
        ("committed", PAID, 0, {"isolation_level": 1}),
        ("uncommitted", PAID, 0, {}),
    ):
        yield Asked(protocol.FETCH, name, topics(topic, 0, fetch_offset=offset) | room | more)
    for name, session in (("unknown session", (5, 1)), ("new session", (0, 0)), ("wrong epoch", (0, 4))):
        more = {"session_id": session[0], "session_epoch": session[1]}
        yield Asked(protocol.FETCH, name, topics(TOPIC, 0, fetch_offset=0) | room | more, first=7)


def _groups(topic_id: uuid.UUID) -> Iterator[Asked]:
    for kind, key in ((0, "one"), (0, ""), (1, "a"), (2, f"one:{topic_id}:0"), (9, "x")):
        asked = {"key_type": kind, "key": key, "coordinator_keys": (key,)}
        yield Asked(protocol.FIND_COORDINATOR, f"{kind} {bool(key)}", asked, first=6 if kind > 1 else min(kind, 1))
    for group in ("one", "nobody", ""):
        for name, numbers in ((TOPIC, (1, 0, 9)), (MISSING, (0,)), (None, ())):
            asked = None if name is None else [{"name": name, "partition_indexes": numbers}]
            yield Asked(protocol.OFFSET_FETCH, f"{group!r} {name}", {"group_id": group, "topics": asked}, 2, 7)
            of_group = {"groups": [{"group_id": group, "topics": asked}]}
            yield Asked(protocol.OFFSET_FETCH, f"{group!r} {name}", of_group, first=8, last=9)
        for topic, numbers in ((topic_id, (1, 0, 9)), (NO_ID, (0,)), (None, ())):
            asked = None if topic is None else [{"topic_id": topic, "partition_indexes": numbers}]
            of_group = {"groups": [{"group_id": group, "topics": asked}]}
            yield Asked(protocol.OFFSET_FETCH, f"{group!r} id {topic and topic.int == 7}", of_group, first=10)
        yield Asked(protocol.DESCRIBE_GROUPS, repr(group), {"groups": (group,), "include_authorized_operations": True})
        described = {"group_ids": (group,), "include_authorized_operations": True}
        yield Asked(protocol.CONSUMER_GROUP_DESCRIBE, repr(group), described)
    member = {"groups": [{"group_id": "one", "topics": None, "member_id": "m", "member_epoch": 3}]}
    yield Asked(protocol.OFFSET_FETCH, "stranger", member, first=9)
    for states, kinds in (((), ()), (("Empty",), ()), (("stable",), ()), ((), ("classic",)), (("nonsense",), ("x",))):
        asked = {"states_filter": states, "types_filter": kinds}
        yield Asked(protocol.LIST_GROUPS, f"{states} {kinds}", asked, first=5 if kinds else 4 if states else 0)
    for name, group, topic, number, entry in (
        ("new", "three", TOPIC, 0, {"committed_offset": 2}),
        ("metadata", "three", TOPIC, 1, {"committed_offset": 2, "committed_metadata": "m" * 5000}),
        ("no metadata", "three", TOPIC, 0, {"committed_offset": 2, "committed_metadata": None}),
        ("missing", "three", MISSING, 0, {"committed_offset": 2}),
        ("number", "three", TOPIC, 9, {"committed_offset": 2}),
        ("negative", "three", TOPIC, 0, {"committed_offset": -5}),
    ):
        partition = {"partition_index": number, "committed_leader_epoch": -1, "committed_metadata": "", **entry}
        known = topic_id if topic == TOPIC else NO_ID
        topics = [{"name": topic, "topic_id": known, "partitions": [partition]}]
        asked = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}
        yield Asked(protocol.OFFSET_COMMIT, name, {**asked, "retention_time": timedelta(milliseconds=-1)})
    partition = {"partition_index": 0, "committed_offset": 2, "committed_leader_epoch": -1, "committed_metadata": ""}
    topics = [{"name": TOPIC, "topic_id": topic_id, "partitions": [partition]}]
    for group in ("three", "four"):
        asked = {"group_id": group, "generation_id_or_member_epoch": 4, "member_id": "m", "topics": topics}
        yield Asked(protocol.OFFSET_COMMIT, f"stranger in {group}", asked, first=5)
    for name, more in (("stranger", {"group_id": "nobody"}), ("no group", {"group_id": ""})):
        asked = {**more, "member_id": "m", "generation_id": 3, "members": [{"member_id": "m"}]}
        asked |= {"members": [{"member_id": "m", "group_instance_id": None}], "protocol_type": None}
        for key in (protocol.HEARTBEAT, protocol.LEAVE_GROUP, protocol.SYNC_GROUP):
            yield Asked(key, name, asked)


def _refused() -> Iterator[Asked]:
    """Requests that a broker refuses too, for another reason."""
    wrong = {"name": "a b", "num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
    yield Asked(protocol.CREATE_TOPICS, "refused", {"topics": [wrong], "timeout": SECONDS})
    yield Asked(protocol.DELETE_TOPICS, "refused", {"topic_names": (MISSING,), "timeout": SECONDS})
    rows = [{"name": MISSING, "partitions": [{"partition_index": 0, "offset": 1}]}]
    yield Asked(protocol.DELETE_RECORDS, "refused", {"topics": rows, "timeout": timedelta(milliseconds=100)})
    grown = [{"name": MISSING, "count": 9, "assignments": None}]
    yield Asked(protocol.CREATE_PARTITIONS, "refused", {"topics": grown, "timeout": SECONDS})
    produced = [{"name": MISSING, "index": 0, "partition_data": [{"index": 0, "records": None}]}]
    yield Asked(protocol.PRODUCE, "refused", {"topic_data": produced, "acks": 1, "timeout": SECONDS})
    yield Asked(protocol.INIT_PRODUCER_ID, "refused", {"transactional_id": "", "transaction_timeout": SECONDS})
    yield Asked(protocol.SHARE_GROUP_HEARTBEAT, "refused", {"group_id": "", "member_id": "m"})
    yield Asked(protocol.STREAMS_GROUP_HEARTBEAT, "refused", {"group_id": "", "member_id": "m"})


def wire_answers(bootstrap: str) -> dict[str, Any]:
    """Asks an endpoint everything; returns the answers in plain values."""
    host, _, port = bootstrap.rpartition(":")
    answers: dict[str, Any] = {}
    with RawClient(Address(host, int(port))) as client:
        known_id = topic_id(client)
        for asked in readings(known_id):
            least, most = VERSIONS[asked.api_key]
            for version in range(max(least, asked.first), min(most, asked.last) + 1):
                key = f"{_api(asked.api_key, version)} v{version} {asked.name}"
                answers[key] = plain(client.ask(asked.api_key, version, asked.values))
                if asked.api_key == protocol.LIST_GROUPS:  # those of the steps below are there after them only
                    listed = answers[key]["groups"]
                    answers[key]["groups"] = [each for each in listed if each["group_id"] in COMMITTED_BEFORE]
        for version in (0, 1):
            answers |= ConsumerGroupSteps(client, known_id, version).answers()
        for version in range(VERSIONS[protocol.JOIN_GROUP][1] + 1):
            answers |= ClassicGroupSteps(client, version).answers()
    return answers


def group_answers(bootstrap: str, kinds: Mapping[str, str]) -> dict[str, Any]:
    """What an endpoint says of groups, some of each type (GroupType): listed and described, in every version."""
    host, _, port = bootstrap.rpartition(":")
    answers: dict[str, Any] = {}
    asked: dict[int, Mapping[str, Any]] = {
        protocol.LIST_GROUPS: {"states_filter": (), "types_filter": ()},
        protocol.DESCRIBE_GROUPS: {"groups": tuple(kinds), "include_authorized_operations": False},
        protocol.CONSUMER_GROUP_DESCRIBE: {"group_ids": tuple(kinds), "include_authorized_operations": False},
    }
    with RawClient(Address(host, int(port))) as client:
        for key, values in asked.items():
            for version in range(VERSIONS[key][0], VERSIONS[key][1] + 1):
                groups = plain(client.ask(key, version, values))["groups"]
                answers[f"{_api(key, version)} v{version}"] = {
                    each["group_id"]: {name: value for name, value in each.items() if name != "error_message"}
                    for each in groups
                    if each["group_id"] in kinds
                }
        for kind in {*kinds.values()}:
            listed = client.ask(protocol.LIST_GROUPS, 5, {"states_filter": ("empty",), "types_filter": (kind.title(),)})
            answers[kind] = sorted(each.group_id for each in listed.groups if each.group_id in kinds)
    return answers


class _Steps:
    """Requests of which each needs the answer before it, by one API's version."""

    def __init__(self, client: RawClient, title: str, version: int) -> None:
        self._client, self._title, self._version = client, title, version
        self._answers: dict[str, Any] = {}

    def _ask(self, name: str, api_key: int, version: int, values: Mapping[str, Any]) -> Any:
        answer = self._client.ask(api_key, min(version, VERSIONS[api_key][1]), values)
        self._answers[f"{_api(api_key, 0)} of {self._title} {self._version}: {name}"] = plain(answer)
        return answer


class ConsumerGroupSteps(_Steps):
    """A group of the consumer protocol from its first member to its last, with all that is refused."""

    def __init__(self, client: RawClient, topic_id: uuid.UUID, version: int) -> None:
        super().__init__(client, "consumer", version)
        self._topic_id, self._group = topic_id, f"raw consumers {version}"

    def answers(self) -> dict[str, Any]:
        self._refused_joins()
        self._ordinary_life()
        self._static_members()
        return self._answers

    def _beat(self, name: str, member: str, epoch: int, **more: Any) -> Any:
        values = {"group_id": self._group, "member_id": member, "member_epoch": epoch, "topic_partitions": None, **more}
        return self._ask(name, protocol.CONSUMER_GROUP_HEARTBEAT, self._version, values)

    def _join(self, name: str, member: str, **more: Any) -> Any:
        joining = {"rebalance_timeout": SECONDS, "subscribed_topic_names": (TOPIC,), "topic_partitions": ()}
        return self._beat(name, member, 0, **joining | more)

    def _refused_joins(self) -> None:
        self._join("no group", "m", group_id="")
        if self._version > 0:
            self._join("no member", "")
        self._beat("unknown group", "m", 5)
        self._join("no timeout", "m", rebalance_timeout=timedelta(milliseconds=-1))
        self._join("null partitions", "m", topic_partitions=None)
        self._join("owner", "m", topic_partitions=[{"topic_id": self._topic_id, "partitions": (0,)}])
        self._join("no subscription", "m", subscribed_topic_names=None)
        self._join("unknown assignor", "m", server_assignor="nonsense")
        for field_name in ("instance_id", "rack_id", "server_assignor"):
            self._join(f"empty {field_name}", "m", **{field_name: ""})
        self._beat("epoch -3", "m", -3)
        self._beat("epoch -2", "m", -2)
        self._beat("unknown leaves", "m", -1)
        if self._version > 0:
            self._join("wrong pattern", "m", subscribed_topic_names=None, subscribed_topic_regex="((")

    def _ordinary_life(self) -> None:
        epoch = self._join("empty list", "m", subscribed_topic_names=()).member_epoch
        full = {"rebalance_timeout": SECONDS, "topic_partitions": ()}
        epoch = self._beat("first topic", "m", epoch, subscribed_topic_names=(TOPIC,), **full).member_epoch
        owned = [{"topic_id": self._topic_id, "partitions": (0, 1)}]
        self._beat("owns", "m", epoch, topic_partitions=owned)
        self._beat("quiet", "m", epoch)
        self._beat("full", "m", epoch, rebalance_timeout=SECONDS, topic_partitions=owned)
        self._beat("wrong epoch", "m", epoch + 7)
        self._beat("earlier epoch", "m", epoch - 1)
        self._beat("stranger", "n", epoch)
        self._describe("one member")
        self._offsets("one member", "m", epoch)
        self._offsets("wrong epoch", "m", epoch + 1)
        self._offsets("stranger", "n", epoch)
        self._offsets("outside", "", -1)
        self._join("missing topic", "o", subscribed_topic_names=(MISSING,))
        self._beat("missing topic leaves", "o", -1)
        self._beat("leaves", "m", -1)
        self._describe("empty")

    def _static_members(self) -> None:
        epoch = self._join("static", "s", instance_id="i").member_epoch
        self._beat("static quiet", "s", epoch, instance_id="i")
        self._join("rival", "r", instance_id="i")
        self._beat("leaves for now", "s", -2, instance_id="i")
        epoch = self._join("comes back", "t", instance_id="i").member_epoch
        self._beat("old id", "s", epoch, instance_id="i")
        self._beat("static leaves", "t", -1, instance_id="i")

    def _describe(self, name: str) -> None:
        asked = {"group_ids": (self._group,), "include_authorized_operations": False}
        self._ask(f"{name} described", protocol.CONSUMER_GROUP_DESCRIBE, self._version, asked)
        asked = {"groups": (self._group,), "include_authorized_operations": False}
        self._ask(f"{name} described as classic", protocol.DESCRIBE_GROUPS, 6, asked)

    def _offsets(self, name: str, member: str, epoch: int) -> None:
        entry = {"partition_index": 0, "committed_offset": 3, "committed_leader_epoch": -1, "committed_metadata": ""}
        topics = [{"name": TOPIC, "topic_id": self._topic_id, "partitions": [entry]}]
        asked = {"group_id": self._group, "member_id": member, "generation_id_or_member_epoch": epoch}
        for version in (8, 9, 10):
            self._ask(f"{name} commits v{version}", protocol.OFFSET_COMMIT, version, {**asked, "topics": topics})
        wanted = [{"name": TOPIC, "topic_id": self._topic_id, "partition_indexes": (0,)}]
        group = {"group_id": self._group, "member_id": member or None, "member_epoch": epoch, "topics": wanted}
        for version in (9, 10):
            self._ask(f"{name} fetches v{version}", protocol.OFFSET_FETCH, version, {"groups": [group]})


class ClassicGroupSteps(_Steps):
    """A group of the classic protocol with one member, and with one that is static, and what is refused."""

    def __init__(self, client: RawClient, version: int) -> None:
        super().__init__(client, "classic", version)
        self._group = f"raw members {version}"

    def answers(self) -> dict[str, Any]:
        self._refused_joins()
        self._life("ordinary", {})
        if self._version >= 5:
            self._life("static", {"group_instance_id": "i"})
        return self._answers

    def _join(self, name: str, **more: Any) -> Any:
        named = [{"name": "range", "metadata": b"\0\1"}, {"name": "roundrobin", "metadata": b""}]
        values = {"group_id": self._group, "session_timeout": SECONDS, "rebalance_timeout": SECONDS, "member_id": ""}
        values |= {"protocol_type": "consumer", "protocols": named, "group_instance_id": None, **more}
        return self._ask(name, protocol.JOIN_GROUP, self._version, values)

    def _refused_joins(self) -> None:
        self._join("no group", group_id="")
        self._join("stranger", member_id="nobody")
        self._join("no protocol", protocols=())
        self._join("no type", protocol_type="")
        for milliseconds in (1, 1 << 30):
            self._join(f"session of {milliseconds}", session_timeout=timedelta(milliseconds=milliseconds))

    def _life(self, name: str, static: Mapping[str, Any]) -> None:
        joined = self._join(f"{name} join", **static)
        if joined.error_code.name == "member_id_required":
            joined = self._join(f"{name} join again", member_id=joined.member_id, **static)
        member, generation, version = joined.member_id, joined.generation_id, self._version
        about = {"group_id": self._group, "member_id": member, "generation_id": generation, **static}
        kinds = {"protocol_type": "consumer", "protocol_name": "range"}
        shares = {"assignments": [{"member_id": member, "assignment": b"share"}]}
        for key in (protocol.HEARTBEAT, protocol.SYNC_GROUP):
            self._ask(f"{name} wrong generation", key, version, about | {"generation_id": 99} | kinds | shares)
            self._ask(f"{name} stranger", key, version, about | {"member_id": "nobody"} | kinds | shares)
        self._ask(f"{name} wrong kind", protocol.SYNC_GROUP, version, about | kinds | {"protocol_name": "x"} | shares)
        self._ask(f"{name} sync", protocol.SYNC_GROUP, version, about | kinds | shares)
        self._ask(f"{name} sync again", protocol.SYNC_GROUP, version, about | kinds)
        self._ask(f"{name} heartbeat", protocol.HEARTBEAT, version, about)
        described = {"groups": (self._group,), "include_authorized_operations": False}
        self._ask(f"{name} described", protocol.DESCRIBE_GROUPS, version, described)
        entry = {"partition_index": 0, "committed_offset": 3, "committed_leader_epoch": -1, "committed_metadata": ""}
        topics = [{"name": TOPIC, "topic_id": None, "partitions": [entry]}]
        for commit, generation_id, member_id in (
            ("commits", generation, member),
            ("commits wrongly", generation + 1, member),
            ("commits as a stranger", generation, "nobody"),
            ("commits outside", -1, ""),
        ):
            asked = {"group_id": self._group, "generation_id_or_member_epoch": generation_id, "member_id": member_id}
            self._ask(f"{name} {commit}", protocol.OFFSET_COMMIT, 8, {**asked, **static, "topics": topics})
        leaving = [{"member_id": "" if static else member, "group_instance_id": None, **static}]
        leaving.append({"member_id": "nobody", "group_instance_id": None})
        self._ask(f"{name} leaves", protocol.LEAVE_GROUP, version, {**about, "members": leaving})
        self._ask(f"{name} left", protocol.DESCRIBE_GROUPS, version, described)


def topic_id(client: RawClient) -> uuid.UUID:
    asked = {"topics": [{"name": TOPIC, "topic_id": None}], "allow_auto_topic_creation": False}
    (topic,) = client.ask(protocol.METADATA, 12, asked).topics
    found: uuid.UUID = topic.topic_id
    return found


def differences(broker: Any, served: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yields where answers differ, with both values; lists of parts with names are compared by name."""
    if isinstance(broker, dict) and isinstance(served, dict) and broker.keys() == served.keys():
        for name, value in broker.items():
            yield from differences(value, served[name], f"{place}.{name}" if place else name)
    elif isinstance(broker, list) and isinstance(served, list) and len(broker) == len(served):
        for i, (one, other) in enumerate(zip(sorted(broker, key=_by_name), sorted(served, key=_by_name), strict=True)):
            yield from differences(one, other, f"{place}[{i}]")
    elif broker != served:
        yield place, broker, served


def _by_name(part: Any) -> str:
    return str(part.get("name") or part.get("topic_id") or part.get("group_id")) if isinstance(part, dict) else ""


def _api(api_key: int, version: int) -> str:
    name: str = load_request_schema(api_key, max(version, VERSIONS[api_key][0])).__name__
    return name.removesuffix("Request")


_MADE_ID = re.compile(r"(raw-|i-)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<=made )[\w-]{22}")


def plain(value: Any) -> Any:
    """An entity as mappings, lists and simple values; made member ids look alike."""
    if dataclasses.is_dataclass(value):
        return {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    if type(value) is str:
        return _MADE_ID.sub("ID", value)
    return value.name if isinstance(value, Enum) else value
