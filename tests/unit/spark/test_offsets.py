"""Offsets as JSON: one order, because Spark compares them as text."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from seglog.model import TopicPartition
from seglog_ask.spark.read_options import format_offsets, offsets_of, parse_assign

keys = st.builds(TopicPartition, st.text(min_size=1, max_size=4), st.integers(0, 2**31 - 1))


@given(st.dictionaries(keys, st.integers(-2, 2**63 - 1), max_size=8), st.randoms())
def test_equal_offsets_are_equal_text(offsets, random):
    shuffled = list(offsets.items())
    random.shuffle(shuffled)
    assert json.dumps(format_offsets(dict(shuffled))) == json.dumps(format_offsets(offsets))
    assert offsets_of(json.loads(json.dumps(format_offsets(offsets)))) == offsets


def test_partitions_are_ordered_by_number():
    offsets = {TopicPartition("b", 10): 1, TopicPartition("b", 9): 2, TopicPartition("a", 3): 3}
    assert json.dumps(format_offsets(offsets)) == '{"a": {"3": 3}, "b": {"9": 2, "10": 1}}'


def test_assign_lists_partitions_by_topic():
    assert parse_assign('{"a":[0,2]}') == {TopicPartition("a", 0), TopicPartition("a", 2)}
