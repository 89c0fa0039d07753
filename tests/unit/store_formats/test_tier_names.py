"""Names of objects in tiered storage, as the plugins give them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seglog.layout import INT64_MAX
from seglog.model import TopicPartition
from seglog_stores.formats.tier_names import (
    ObjectKind,
    ObjectName,
    TieredDirectory,
    parse_local_tiered_directory,
    parse_object_name,
    parse_partition_number,
    parse_tiered_topic,
    parse_watermark,
)

TOPIC_ID, SEGMENT_ID = "AAECAwQFBgcICQoLDA0ODw", "EBESExQVFhcYGRobHB0eHw"
TOPICS = st.text("ab.-_1", min_size=1, max_size=30).filter(lambda text: text not in (".", ".."))
IDS = st.text("abcXYZ019-_", min_size=22, max_size=22)


def test_the_names_of_the_plugins() -> None:
    assert parse_object_name(f"00000000000000000100-{SEGMENT_ID}.log") == ObjectName(100, SEGMENT_ID, ObjectKind.LOG)
    hyphens = "-_" * 11
    found = parse_object_name(f"00000000000000000100-{hyphens}.leader_epoch_checkpoint")
    assert found == ObjectName(100, hyphens, ObjectKind.LEADER_EPOCHS)
    assert parse_local_tiered_directory(f"a-b-3-{TOPIC_ID}") == (TopicPartition("a-b", 3), TOPIC_ID)
    assert parse_tiered_topic(f"a-b-{TOPIC_ID}") == TieredDirectory("a-b", TOPIC_ID)
    assert (parse_partition_number("0"), parse_partition_number("17")) == (0, 17)
    assert parse_watermark(b"00000000000000000042\n") == 42


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000000100.log",
        f"100-{SEGMENT_ID}.log",
        f"99999999999999999999-{SEGMENT_ID}.log",
        f"00000000000000000100-{SEGMENT_ID}.log.tmp",
        f"00000000000000000100-{SEGMENT_ID}",
        f"00000000000000000100-{SEGMENT_ID[1:]}.log",
    ],
)
def test_other_names_are_no_objects(name: str) -> None:
    assert parse_object_name(name) is None


def test_other_directories_are_none_of_theirs() -> None:
    assert parse_local_tiered_directory("orders-3") is None
    assert parse_local_tiered_directory(f"orders-{TOPIC_ID}") is None
    assert parse_tiered_topic("orders-3") is None and parse_tiered_topic(f"a b-{TOPIC_ID}") is None
    assert [parse_partition_number(name) for name in ("01", "-1", "x", "4294967296")] == [None] * 4
    assert [parse_watermark(data) for data in (b"", b"42", b"9" * 20)] == [None] * 3


@settings(max_examples=40)
@given(st.integers(0, INT64_MAX), IDS, st.sampled_from(ObjectKind))
def test_names_of_objects_go_both_ways(offset: int, segment_id: str, kind: ObjectKind) -> None:
    name = ObjectName(offset, segment_id, kind)
    assert parse_object_name(str(name)) == name


@settings(max_examples=40)
@given(TOPICS, IDS, st.integers(0, 2**31 - 1))
def test_names_of_directories_go_both_ways(topic: str, topic_id: str, partition: int) -> None:
    assert parse_tiered_topic(str(TieredDirectory(topic, topic_id))) == TieredDirectory(topic, topic_id)
    found = parse_local_tiered_directory(str(TieredDirectory(topic, topic_id, partition)))
    assert found == (TopicPartition(topic, partition), topic_id)
