"""Options of the data source: Kafka's names, precedence and refusals."""

from __future__ import annotations

import json

import pytest

from seglog.errors import ConfigError
from seglog.model import Isolation, TopicPartition
from seglog_ask.spark.read_options import OPTIONS, parse_read_options
from seglog_ask.table.plan.options import OffsetRule

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def parse(streaming: bool = False, **options: str):
    return parse_read_options({"path": "/logs", **options}, streaming=streaming)


def test_without_options_a_batch_reads_everything():
    options = parse()
    assert (options.starting, options.ending) == (OffsetRule("earliest"), OffsetRule("latest"))
    assert options.fail_on_data_loss and options.verify_crc and options.on_corrupt == "fail"
    assert options.isolation == Isolation.READ_UNCOMMITTED
    assert options.chooses(P0)


def test_a_stream_begins_at_latest():
    assert parse(streaming=True).starting == OffsetRule("latest")


def test_keys_are_case_insensitive():
    assert parse(INCLUDEHEADERS="TRUE").include_headers


def test_several_paths_come_as_a_json_list():
    options = parse_read_options({"paths": '["/a","/b"]'})
    assert options.paths == ("/a", "/b")


def test_a_timestamp_beats_timestamps_beats_offsets():
    stamps, offsets = json.dumps({"t": {"0": 5}}), json.dumps({"t": {"0": 7}})
    assert parse(startingOffsets=offsets).starting == OffsetRule("offsets", ((P0, 7),))
    both = {"startingOffsets": offsets, "startingOffsetsByTimestamp": stamps}
    assert parse(**both).starting == OffsetRule("timestamps", ((P0, 5),))
    assert parse(**both, startingTimestamp="3").starting == OffsetRule("timestamp", timestamp=3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries"),
        ({"startingOffsets": '{"t":{"1":-1}}'}, "startingOffsets for t-1 can't be latest"),
        ({"endingOffsets": "earliest"}, "ending offset can't be earliest for batch queries"),
        ({"endingOffsets": '{"t":{"1":-2}}'}, "ending offset for t-1 can't be earliest"),
        ({"startingOffsets": "yesterday"}, "startingOffsets: 'yesterday' is not JSON"),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "is not an offset"),
        ({"startingOffsets": '{"t":[1]}'}, "not a JSON object"),
        ({"startingTimestamp": "-1"}, "startingTimestamp: -1 is not a timestamp"),
        ({"endingOffsetsByTimestamp": '{"t":{"0":-1}}'}, "endingOffsetsByTimestamp: -1 for t-0"),
        ({"startingOffsetsByTimestampStrategy": "x"}, "neither error nor latest"),
        ({"assign": '{"t":[0]}', "subscribe": "t"}, "only one of the options"),
        ({"assign": '{"t":0}'}, "not a list of partitions"),
        ({"assign": '{"t":[-1]}'}, "not a partition number"),
        ({"assign": "{}"}, "no topic is named"),
        ({"subscribe": " , "}, "names are separated by commas"),
        ({"subscribePattern": "("}, "not a regular expression"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss: 'maybe' is neither true nor false"),
        ({"minPartitions": "0"}, "minPartitions: '0' is not positive"),
        ({"maxPartitionBytes": "many"}, "maxPartitionBytes: 'many' is not a size"),
        ({"isolationLevel": "dirty"}, "neither read_uncommitted nor read_committed"),
        (
            {"isolationLevel": "read_committed", "kafka.isolation.level": "read_uncommitted"},
            "contradict each other",
        ),
        ({"view": "verify"}, "no view 'verify'; views are records, batches, segments, findings"),
        ({"onCorrupt": "ignore"}, "neither fail nor skip"),
        ({"minOffsetsPerTrigger": "5"}, "minOffsetsPerTrigger is not supported"),
        ({"maxTriggerDelay": "5m"}, "maxTriggerDelay is not supported"),
        ({"paths": "[1]"}, "not a JSON list of strings"),
        ({"paths": "[" * 100_000}, "paths: '[[["),
        ({"tierKey": '{"a":' * 100_000}, """tierKey: '{"a":{"a":"""),
        ({"remoteMetadata": "[" * 100_000}, "remoteMetadata: '[[["),
    ],
)
def test_what_cannot_be_is_refused_in_words(options, message):
    with pytest.raises(ConfigError) as caught:
        parse_read_options({"path": "/logs", **options})
    assert message in str(caught.value)


def test_a_stream_has_no_ending():
    with pytest.raises(ConfigError, match="endingOffsets is not valid in streaming queries"):
        parse(streaming=True, endingOffsets="latest")


@pytest.mark.parametrize("view", ["batches", "segments", "findings"])
def test_a_stream_has_records_alone(view):
    with pytest.raises(ConfigError, match=f"read {view} with spark.read"):
        parse(streaming=True, view=view)


def test_an_unknown_option_names_the_nearest_and_all():
    with pytest.raises(ConfigError) as caught:
        parse(startingOffset="earliest")
    assert "did you mean startingOffsets?" in str(caught.value)
    assert all(name in str(caught.value) for name in OPTIONS)


def test_what_spark_adds_is_passed_over():
    added = {"owner": "me", "location": "file:/x", "provider": "seglog", "option.path": "/x"}
    assert parse(**added) == parse()


def test_broker_options_are_taken_and_change_nothing(caplog):
    assert parse(**{"kafka.bootstrap.servers": "b:9092", "groupIdPrefix": "g"}) == parse()
    assert "have no effect" in caplog.text


def test_a_path_is_needed():
    with pytest.raises(ConfigError, match="no path is given"):
        parse_read_options({})


def test_selection_by_assign_subscribe_and_pattern():
    assert [parse(assign='{"t":[1]}').chooses(p) for p in (P0, P1)] == [False, True]
    assert parse(subscribe="s, t").chooses(P0) and not parse(subscribe="s").chooses(P0)
    assert parse(subscribePattern="t|u").chooses(P0) and not parse(subscribePattern="t.").chooses(P0)
