"""What a transplant and a replay say of share groups, whose state they leave, and of groups' own settings."""

from __future__ import annotations

from dataclasses import replace

from seglog.consumer_groups.committed_offsets import ShareBatch
from seglog.consumer_groups.group_states import CONSUMER, SHARE
from seglog.model import TopicPartition
from seglog.operations.group_settings import group_settings_left
from seglog.operations.groups import Group, GroupPartition
from seglog.operations.share_groups import share_groups_left


def group(name: str, kind: str, *rows: GroupPartition) -> Group:
    return Group(name, kind, "Empty", 1, (), rows)


def row(topic: str, partition: int, offset: int | None, *batches: ShareBatch) -> GroupPartition:
    return GroupPartition(TopicPartition(topic, partition), offset, 100, None, batches=batches)


def test_each_share_group_that_had_read_what_is_taken_is_named_with_its_progress() -> None:
    ahead = (ShareBatch(12, 14, 2, 1), ShareBatch(15, 15, 0, 2), ShareBatch(16, 16, 4, 5))
    groups = [
        group("plain", CONSUMER, row("a", 0, 5)),
        group("it's", SHARE, row("a", 0, 10, *ahead), row("b", 0, 3), row("gone", 0, 7), row("a", 1, None)),
        group("elsewhere", SHARE, row("gone", 0, 7)),
        group("wide", SHARE, *(row("a", number, number) for number in range(9))),
    ]
    targets = {"a": "a-new", "b": "b"}
    (first, second) = share_groups_left(groups, lambda key: targets.get(key.topic))
    assert first.startswith("share group it's begins anew")
    assert "done with a-0 below offset 10 and 4 records beyond it; b-0 below offset 3. Before" in first
    assert """--group 'it'"'"'s' --topic a-new --topic b --to-earliest --execute""" in first
    assert "a-4 below offset 4; and 4 more partitions. Before" in second and "a-5 " not in second


def test_each_group_whose_own_settings_stay_behind_is_named_with_the_command_that_sets_them() -> None:
    begin, late = {"share.auto.offset.reset": "earliest"}, {"consumer.session.timeout.ms": "50000"}
    groups = [
        replace(group("it's", SHARE, row("a", 0, 10)), settings=begin | late),
        replace(group("there already", SHARE, row("a", 0, 10)), settings=begin),
        replace(group("of nothing taken", CONSUMER, row("gone", 0, 7), row("a", 1, None)), settings=begin),
        group("without", CONSUMER, row("a", 0, 10)),
    ]
    present = {"it's": late, "there already": begin}
    targets = {"a": "a-new"}
    (sentence,) = group_settings_left(groups, lambda key: targets.get(key.topic), lambda name: present.get(name, {}))
    assert sentence.startswith("group it's had settings of its own")
    assert sentence.endswith(
        """--entity-type groups --entity-name 'it'"'"'s' --alter --add-config share.auto.offset.reset=earliest"""
    )
    (first, _) = group_settings_left(groups, lambda key: targets.get(key.topic))
    assert "--add-config share.auto.offset.reset=earliest,consumer.session.timeout.ms=50000" in first
