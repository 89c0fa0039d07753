"""Groups that live and end, by requests of one connection."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

from seglog_rescue.serve import protocol
from tests.support.raw_client import RawClient

SECONDS = timedelta(seconds=30)


class RawGroups:
    """Members over one topic, which commit offset 3 of its partition 0 and leave."""

    def __init__(self, client: RawClient, topic: str, topic_id: uuid.UUID) -> None:
        self._client, self._topic, self._topic_id = client, topic, topic_id

    def commit(self, group: str, epoch: int = -1, member: str = "") -> int:
        """Commits, without a member as a consumer does that assigns itself; returns the error code."""
        entry = {"partition_index": 0, "committed_offset": 3, "committed_leader_epoch": -1, "committed_metadata": ""}
        topics = [{"name": self._topic, "topic_id": self._topic_id, "partitions": [entry]}]
        asked = {"group_id": group, "member_id": member, "generation_id_or_member_epoch": epoch, "topics": topics}
        return int(self._client.ask(protocol.OFFSET_COMMIT, 9, asked).topics[0].partitions[0].error_code)

    def consumer(self, group: str, *, commits: bool = True) -> None:
        """A member of the consumer protocol comes and goes."""
        joining = {"rebalance_timeout": SECONDS, "subscribed_topic_names": (self._topic,), "topic_partitions": ()}
        epoch = self._beat(group, 0, **joining)
        epoch = max(epoch, self._beat(group, epoch))
        if commits:
            assert self.commit(group, epoch, "m") == 0
        self._beat(group, -1)

    def classic(self, group: str, protocol_type: str = "consumer", *, commits: bool = True) -> None:
        """A member of the classic protocol comes and goes."""
        joined = self.join(group, protocol_type)
        member, generation = joined.member_id, joined.generation_id
        about = {"group_id": group, "member_id": member, "generation_id": generation, "group_instance_id": None}
        shares = [{"member_id": member, "assignment": b"\0\0\0\0\0\0\xff\xff\xff\xff"}]
        self._asked(protocol.SYNC_GROUP, 4, {**about, "assignments": shares})
        if commits:
            assert self.commit(group, generation, member) == 0
        leaving = [{"member_id": member, "group_instance_id": None}]
        self._asked(protocol.LEAVE_GROUP, 3, {"group_id": group, "members": leaving})

    def join(self, group: str, protocol_type: str = "consumer") -> Any:
        """A member of the classic protocol comes; the answer."""
        named = [{"name": "range", "metadata": b"\0\1\0\0\0\0\xff\xff\xff\xff"}]
        asked = {"group_id": group, "session_timeout": SECONDS, "rebalance_timeout": SECONDS, "member_id": ""}
        asked |= {"protocol_type": protocol_type, "protocols": named, "group_instance_id": None}
        named_now = self._client.ask(protocol.JOIN_GROUP, 5, asked)
        return self._asked(protocol.JOIN_GROUP, 5, {**asked, "member_id": named_now.member_id})

    def _beat(self, group: str, epoch: int, **more: Any) -> int:
        asked = {"group_id": group, "member_id": "m", "member_epoch": epoch, "topic_partitions": None, **more}
        return int(self._asked(protocol.CONSUMER_GROUP_HEARTBEAT, 1, asked).member_epoch)

    def _asked(self, key: int, version: int, values: dict[str, Any]) -> Any:
        answer = self._client.ask(key, version, values)
        assert answer.error_code == 0, answer
        return answer


KINDS = {
    "simple": "classic",
    "consumers": "consumer",
    "classics": "classic",
    "connect-sink": "classic",
    "to-classic": "classic",
    "to-consumer": "consumer",
    "simple-to-consumer": "consumer",
    "consumers-and-outside": "consumer",
}


def make_groups(groups: RawGroups) -> None:
    """Makes a group of each of KINDS, with a commit and without members."""
    groups.commit("simple")
    groups.consumer("consumers")
    groups.classic("classics")
    groups.classic("connect-sink", "connect")
    groups.consumer("to-classic")
    groups.classic("to-classic")
    groups.classic("to-consumer", "connect")
    groups.consumer("to-consumer")
    groups.commit("simple-to-consumer")
    groups.consumer("simple-to-consumer")
    groups.consumer("consumers-and-outside")
    groups.commit("consumers-and-outside")
