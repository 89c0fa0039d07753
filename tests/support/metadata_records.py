"""Records of a metadata log as a controller writes them: one by name and fields, or a whole history out of a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from seglog.format.builder import BatchOptions, columns_of, encode_all
from seglog.format.uuids import format_uuid
from seglog.model import Record
from seglog_rescue.rebuild.metadata_snapshot import encode_metadata_record


def metadata_record(kind: str, /, version: int | None = None, **fields: Any) -> bytes:
    """A framed record; of `fields` tagged ones may be left out, all others are needed."""
    return encode_metadata_record(kind, fields, version)


def write_metadata_log(directory: Path, records: Sequence[bytes], *, base_offset: int = 0) -> Path:
    """`directory/__cluster_metadata-0` with one segment, a batch a record, so that damage takes just one."""
    made = directory / "__cluster_metadata-0"
    made.mkdir(parents=True, exist_ok=True)
    (made / f"{base_offset:020d}.log").write_bytes(record_batches(records, base_offset))
    return made


def record_batches(records: Sequence[bytes], base_offset: int = 0) -> bytes:
    """A batch for each record."""
    columns = (columns_of([Record(value, timestamp=1)]) for value in records)
    return b"".join(encode_all(one, base_offset + i, BatchOptions()) for i, one in enumerate(columns))


def topic_id(number: int) -> str:
    """An id by number."""
    return format_uuid(UUID(int=(0x5E << 120) + number))


class MetadataHistory:
    """What a controller wrote in a made-up life of a cluster: every kind of record, none that Kafka would refuse."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._brokers: dict[int, int] = {}  # epochs by number
        self._topics: dict[str, tuple[str, list[int]]] = {}
        self._made = 0
        self._acls: list[str] = []
        self._users: set[tuple[str, int]] = set()
        self._tokens: list[str] = []

    def records(self, steps: int) -> Iterator[bytes]:
        """Some hundred records for a hundred steps."""
        for name, level in (("metadata.version", 30), ("eligible.leader.replicas.version", 1)):
            yield metadata_record("FEATURE_LEVEL_RECORD", name=name, featureLevel=level)
        yield from self._register_broker()
        kinds = (
            *(self._register_broker, self._change_broker, self._register_controller, self._add_topic, self._add_topic),
            *(self._remove_topic, self._change_partition, self._change_partition, self._change_partition),
            *(self._configure, self._configure, self._set_feature, self._change_user, self._set_quota),
            *(self._change_acl, self._change_token, self._take_producer_ids, self._clear_eligible),
        )
        for _ in range(steps):
            yield from self._random.choice(kinds)()

    def _endpoints(self) -> list[Mapping[str, Any]]:
        names = self._random.sample(["PLAINTEXT", "INTERNAL", "CLIENTS"], self._random.randint(1, 3))
        return [
            {"name": name, "host": f"host-{name}", "port": self._random.randint(1, 65535), "securityProtocol": i % 4}
            for i, name in enumerate(names)
        ]

    def _features(self) -> list[Mapping[str, Any]]:
        return [{"name": "group.version", "minSupportedVersion": 0, "maxSupportedVersion": self._random.randint(0, 3)}]

    def _register_broker(self) -> Iterator[bytes]:
        number = self._random.randint(1, 6)
        self._made += 1
        self._brokers[number] = self._made
        yield metadata_record(
            "REGISTER_BROKER_RECORD",
            brokerId=number,
            isMigratingZkBroker=False,
            incarnationId=topic_id(1000 + self._made),
            brokerEpoch=self._made,
            endPoints=self._endpoints(),
            features=self._features(),
            rack=self._random.choice([None, "left"]),
            fenced=self._random.random() < 0.5,
            inControlledShutdown=False,
            logDirs=[topic_id(2000 + number)],
        )

    def _change_broker(self) -> Iterator[bytes]:
        number = self._random.choice(sorted(self._brokers))
        fields: dict[str, Any] = {"fenced": self._random.choice([-1, 0, 1])}
        if self._random.random() < 0.3:
            fields["inControlledShutdown"] = 1
        if self._random.random() < 0.3:
            fields["logDirs"] = [topic_id(3000 + number), topic_id(3100 + number)]
        epoch = self._brokers[number]
        yield metadata_record("BROKER_REGISTRATION_CHANGE_RECORD", brokerId=number, brokerEpoch=epoch, **fields)

    def _register_controller(self) -> Iterator[bytes]:
        self._made += 1
        yield metadata_record(
            "REGISTER_CONTROLLER_RECORD",
            controllerId=self._random.randint(3000, 3002),
            incarnationId=topic_id(4000 + self._made),
            zkMigrationReady=False,
            endPoints=self._endpoints(),
            features=self._features(),
        )

    def _add_topic(self) -> Iterator[bytes]:
        self._made += 1
        name, identity = f"topic-{self._made}", topic_id(self._made)
        partitions = list(range(self._random.randint(1, 3)))
        self._topics[name] = identity, partitions
        yield metadata_record("TOPIC_RECORD", name=name, topicId=identity)
        for number in partitions:
            replicas = self._random.sample(sorted(self._brokers), min(len(self._brokers), self._random.randint(1, 3)))
            yield metadata_record(
                "PARTITION_RECORD",
                partitionId=number,
                topicId=identity,
                replicas=replicas,
                isr=replicas[:1],
                removingReplicas=[],
                addingReplicas=[],
                leader=replicas[0],
                leaderEpoch=self._random.randint(0, 5),
                partitionEpoch=self._random.randint(0, 5),
                directories=[topic_id(2000 + each) for each in replicas],
            )

    def _some_topic(self) -> tuple[str, str, list[int]] | None:
        if not self._topics:
            return None
        name = self._random.choice(sorted(self._topics))
        return name, *self._topics[name]

    def _remove_topic(self) -> Iterator[bytes]:
        chosen = self._some_topic()
        if chosen is not None and self._random.random() < 0.4:
            del self._topics[chosen[0]]
            yield metadata_record("REMOVE_TOPIC_RECORD", topicId=chosen[1])

    def _change_partition(self) -> Iterator[bytes]:
        chosen = self._some_topic()
        if chosen is None:
            return
        fields: dict[str, Any] = {}
        replicas = self._random.sample(sorted(self._brokers), min(len(self._brokers), 2))
        if self._random.random() < 0.3:
            fields["replicas"] = replicas
            fields["directories"] = [topic_id(2000 + each) for each in replicas]
        for name in ("isr", "addingReplicas", "removingReplicas", "eligibleLeaderReplicas", "lastKnownElr"):
            if self._random.random() < 0.3:
                fields[name] = replicas[: self._random.randint(0, 2)]
        if self._random.random() < 0.5:
            fields["leader"] = self._random.choice([-1, *replicas])
        if self._random.random() < 0.2:
            fields["leaderRecoveryState"] = self._random.randint(0, 1)
        partition = self._random.choice(chosen[2])
        yield metadata_record("PARTITION_CHANGE_RECORD", partitionId=partition, topicId=chosen[1], **fields)

    def _clear_eligible(self) -> Iterator[bytes]:
        chosen = self._some_topic()
        name = "" if chosen is None or self._random.random() < 0.3 else chosen[0]
        if self._random.random() < 0.3:
            yield metadata_record("CLEAR_ELR_RECORD", topicName=name)

    def _configure(self) -> Iterator[bytes]:
        kind = self._random.choice([2, 4, 16, 32])
        chosen = self._some_topic()
        name = {2: chosen and chosen[0], 4: self._random.choice(["", "1", "2"]), 16: "metrics", 32: "group"}[kind]
        if name is None:
            return
        key = self._random.choice(["retention.ms", "segment.bytes", "ssl.keystore.password"])
        value = self._random.choice([None, "1", "2"])
        yield metadata_record("CONFIG_RECORD", resourceType=kind, resourceName=name, name=key, value=value)

    def _set_feature(self) -> Iterator[bytes]:
        name = self._random.choice(["group.version", "share.version", "transaction.version"])
        yield metadata_record("FEATURE_LEVEL_RECORD", name=name, featureLevel=self._random.randint(0, 2))

    def _change_user(self) -> Iterator[bytes]:
        user = self._random.choice("ab"), self._random.randint(1, 2)
        if user in self._users and self._random.random() < 0.5:
            self._users.discard(user)
            yield metadata_record("REMOVE_USER_SCRAM_CREDENTIAL_RECORD", name=user[0], mechanism=user[1])
            return
        self._users.add(user)
        secrets = {"salt": b"SALTSALT", "storedKey": b"STOREDKEY", "serverKey": b"SERVERKEY"}
        yield metadata_record(
            "USER_SCRAM_CREDENTIAL_RECORD", name=user[0], mechanism=user[1], iterations=4096 + self._made, **secrets
        )

    def _set_quota(self) -> Iterator[bytes]:
        kinds = self._random.choice([["user"], ["client-id"], ["user", "client-id"]])
        entity = [{"entityType": kind, "entityName": self._random.choice([None, "x", "y"])} for kind in kinds]
        yield metadata_record(
            "CLIENT_QUOTA_RECORD",
            entity=entity,
            key=self._random.choice(["producer_byte_rate", "consumer_byte_rate"]),
            value=float(self._random.randint(1, 9)) / 4,
            remove=self._random.random() < 0.3,
        )

    def _change_acl(self) -> Iterator[bytes]:
        if self._acls and self._random.random() < 0.4:
            removed = self._acls.pop(self._random.randrange(len(self._acls)))
            yield metadata_record("REMOVE_ACCESS_CONTROL_ENTRY_RECORD", id=removed)
            return
        self._made += 1
        self._acls.append(topic_id(5000 + self._made))
        yield metadata_record(
            "ACCESS_CONTROL_ENTRY_RECORD",
            id=self._acls[-1],
            resourceType=self._random.randint(2, 7),
            resourceName="r",
            patternType=self._random.randint(3, 4),
            principal="User:a",
            host="*",
            operation=self._random.randint(2, 15),
            permissionType=self._random.randint(2, 3),
        )

    def _change_token(self) -> Iterator[bytes]:
        if self._tokens and self._random.random() < 0.4:
            removed = self._tokens.pop(self._random.randrange(len(self._tokens)))
            yield metadata_record("REMOVE_DELEGATION_TOKEN_RECORD", tokenId=removed)
            return
        self._made += 1
        self._tokens.append(f"token-{self._made}")
        yield metadata_record(
            "DELEGATION_TOKEN_RECORD",
            owner="User:o",
            requester="User:r",
            renewers=["User:n"],
            issueTimestamp=1,
            maxTimestamp=9,
            expirationTimestamp=5,
            tokenId=self._tokens[-1],
        )

    def _take_producer_ids(self) -> Iterator[bytes]:
        self._made += 1
        yield metadata_record("PRODUCER_IDS_RECORD", brokerId=1, brokerEpoch=1, nextProducerId=1000 * self._made)
