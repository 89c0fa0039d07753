"""What a transplant and a replay say of groups: share groups' states, settings and changelogs that stay behind."""

from __future__ import annotations

from dataclasses import replace

from seglog.model import TopicPartition
from seglog_rescue.groups.committed_offsets import ShareBatch
from seglog_rescue.groups.states import CLASSIC, CONSUMER, SHARE, STREAMS, Member, Topology
from seglog_rescue.operations.groups import Group, GroupPartition
from seglog_rescue.operations.groups_left import groups_left, streams_states_left


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
    (first, second) = groups_left(groups, lambda key: targets.get(key.topic))
    assert "is not empty" not in first
    (with_members, _) = groups_left(
        [replace(groups[1], members=(Member("m", "c", "/h"),)), groups[3]], lambda key: targets.get(key.topic)
    )
    assert 'until then the tool says "is not empty". Else it begins' in with_members
    assert first.startswith("share group it's begins anew")
    assert "finished with a-0 below offset 10 and 4 records beyond it; b-0 below offset 3. Before" in first
    assert """--group 'it'"'"'s' --topic a-new --topic b --to-earliest --execute""" in first
    assert (
        """FILE is what seglog groups --group 'it'"'"'s' --format reset-csv prints of the source, with the new"""
        in first
    )
    (replayed, _) = groups_left(groups, lambda key: targets.get(key.topic), same_offsets=False)
    assert "--to-earliest --execute (or" in replayed and "--from-file" not in replayed
    assert "a-4 below offset 4; and 4 more partitions. Before" in second and "a-5 " not in second


def test_a_share_group_that_died_before_it_had_read_is_named_too() -> None:
    """Its own settings are, as well: by default it would begin at the end in the new cluster."""
    begin = {"share.auto.offset.reset": "earliest"}
    known = replace(group("known", SHARE, row("a", 0, None), row("b", 1, None)), settings=begin)
    joined = replace(group("joined", SHARE), settings=begin)
    first, second, third = groups_left([known, joined], lambda key: key.topic)
    assert "It had finished with nothing of a-0; nothing of b-1. Before" in first
    assert "--group known --topic a --topic b --to-earliest --execute" in first
    assert second.startswith("group known had settings of its own")
    assert third.startswith("group joined had settings of its own")


def test_each_group_whose_own_settings_stay_behind_is_named_with_the_command_that_sets_them() -> None:
    begin, late = {"share.auto.offset.reset": "earliest"}, {"consumer.session.timeout.ms": "50000"}
    groups = [
        replace(group("it's", CONSUMER, row("a", 0, 10)), settings=begin | late),
        replace(group("there already", STREAMS, row("a", 0, 10)), settings=begin),
        replace(group("of nothing taken", CONSUMER, row("gone", 0, 7), row("a", 1, None)), settings=begin),
        group("without", CONSUMER, row("a", 0, 10)),
    ]
    present = {"it's": late, "there already": begin}
    targets = {"a": "a-new"}
    (sentence,) = groups_left(groups, lambda key: targets.get(key.topic), lambda name: present.get(name, {}))
    assert sentence.startswith("group it's had settings of its own")
    assert sentence.endswith(
        """--entity-type groups --entity-name 'it'"'"'s' --alter --add-config share.auto.offset.reset=earliest"""
    )
    (first, _) = groups_left(groups, lambda key: targets.get(key.topic))
    assert "--add-config share.auto.offset.reset=earliest,consumer.session.timeout.ms=50000" in first


def test_each_streams_application_whose_changelogs_stay_behind_is_named_with_what_lets_it_begin_again() -> None:
    topology = Topology(7, {"0": ("words",)}, ("new-kept-changelog", "new-gone-changelog"))
    classic = group("app", CLASSIC, row("words", 0, 5), row("app-by-repartition", 0, 5), row("more", 1, 2))
    groups = [
        replace(classic, used_by="streams"),
        replace(group("app-2", CLASSIC, row("words", 0, 5)), used_by="streams"),
        replace(group("new", STREAMS, row("words", 0, 5)), used_by="streams", topology=topology),
        replace(group("elsewhere", CLASSIC, row("others", 0, 5)), used_by="streams"),
        group("plain", CONSUMER, row("words", 0, 5)),
    ]
    topics = ["words", "app-n-changelog", "app-2-n-changelog", "new-kept-changelog", "elsewhere-n-changelog"]
    taken = {"words", "app-2-n-changelog", "new-kept-changelog"}
    first, second = streams_states_left(groups, lambda key: key.topic if key.topic in taken else None, topics)
    assert first.startswith("Streams application app goes on at its committed offsets")
    assert "taken along: app-n-changelog. Where" in first
    assert first.endswith("HOST:PORT --application-id app --input-topics more,words")
    assert "taken along: new-gone-changelog. Where" in second
    assert (
        "--reset-offsets --group new --all-input-topics --to-earliest --delete-all-internal-topics --execute (it says"
        in second
    )
    assert not list(streams_states_left(groups, lambda key: key.topic, [*topics, "new-gone-changelog"]))
