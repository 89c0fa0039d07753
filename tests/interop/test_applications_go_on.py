"""DEAD_CLUSTER.md, situation 7: Streams, Connect, MirrorMaker and a share group go on, each where it was.

One node dies with all of them. `SEGLOG_STREAMS_PROTOCOL` is the protocol of the Streams application's group: classic,
or streams (KIP-1071). `python -m tests.support.dead_applications` kills them under load, and compares with a restart.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.applications import (
    COPY,
    PARTITIONS,
    READERS,
    Files,
    Written,
    commit,
    counting,
    ends,
    is_settled,
    until,
)
from tests.support.command_line import json_lines, run
from tests.support.dead_applications import Dead, Outcome
from tests.support.kafka.jvm import KAFKA_VERSION
from tests.support.kafka.released_broker import ReleasedBroker
from tests.support.kafka.tools import SHARE_GROUPS, java, tool

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SHARED, MARKS = 60, "aaaraa"  # a record that was released comes again
TOPICS_OF_APPLICATIONS = {
    "counting-counts-changelog",
    "counting-by-value-repartition",
    "connect-configs",
    "connect-offsets",
    "connect-status",
    "mm2-offset-syncs.new.internal",
    "old.checkpoints.internal",
    COPY,
}


@pytest.fixture(scope="module")
def dead(tmp_path_factory: pytest.TempPathFactory) -> Dead:
    """A node that is killed when each application had done its work, and kept how far it was."""
    place = tmp_path_factory.mktemp("applications")
    protocol = os.environ.get("SEGLOG_STREAMS_PROTOCOL", "classic")
    killed = Dead(place / "dead" / "logs", Files(place), Written(), KAFKA_VERSION, False, protocol)

    def work(broker: ReleasedBroker, stack: ExitStack) -> None:
        bootstrap, total = broker.bootstrap, killed.written.words
        counts = stack.enter_context(
            counting(bootstrap, place / "state", protocol, total, place / "streams.log")
        ).readline()
        assert counts.strip() == killed.written.counts
        produce_shared(broker)
        read_as_share_group(broker, "earliest", MARKS)
        commit(bootstrap, READERS, "numbers", ends(bootstrap, "numbers", PARTITIONS))
        until(lambda: is_settled(bootstrap, killed.files), "Connect and MirrorMaker have not come to an end")

    killed.live(work)
    return killed


def produce_shared(broker: ReleasedBroker) -> None:
    from confluent_kafka import Producer

    client = Producer({"bootstrap.servers": broker.bootstrap})
    for n in range(SHARED):
        client.produce("shared", b"%d" % n, partition=n % PARTITIONS)
    assert client.flush(60) == 0


def read_as_share_group(broker: ReleasedBroker, reset: str, marks: str) -> None:
    command = java("seglogkafka.ShareReaders", broker.bootstrap, "shared", reset, "sharing", marks)
    subprocess.run(command, input="", text=True, check=True, timeout=240, stdout=subprocess.DEVNULL)


def require_each_once(outcome: Outcome, dead: Dead) -> None:
    """Every application has done all of its work, and none of it twice."""
    written = Written(*(count + 30 for count in vars(dead.written).values()))
    assert outcome.counts == written.counts
    assert outcome.lines == tuple(f"line {n}" for n in range(written.lines))
    assert outcome.sunk == tuple(sorted(str(n) for n in range(written.numbers)))
    assert outcome.copied == tuple(
        tuple(str(n) for n in range(number, written.numbers, PARTITIONS)) for number in range(PARTITIONS)
    )
    assert outcome.synced == tuple(len(values) for values in outcome.copied)


def test_groups_and_topics_say_what_belongs_to_the_applications(dead: Dead) -> None:
    groups = {
        row["group"]: row for row in json_lines(run("groups", "--json", dead.directory)) if row["type"] == "group"
    }
    used = {"counting": "streams", "connect-numbers": "connect-sink", "workers": "connect-workers"}
    assert {name: groups[name]["used_by"] for name in used} == used
    assert groups["sharing"]["group_type"] == "share"
    partitions = {re.sub(r"-\d+$", "", path.name) for path in dead.directory.iterdir() if path.is_dir()}
    assert partitions >= TOPICS_OF_APPLICATIONS


def test_every_application_goes_on_after_a_rebuild(dead: Dead, tmp_path: Path) -> None:
    with dead.by("rebuild", tmp_path) as broker:
        require_each_once(dead.go_on(broker), dead)
        read_as_share_group(broker, "earliest", "a" * (SHARED - MARKS.count("a")))
        broker.kill()
        rows = json_lines(run("groups", "--group", "sharing", "--json", broker.log_directory))
    assert [row["lag"] for row in rows if row["type"] == "group_offset"] == [0] * PARTITIONS


def test_every_application_goes_on_after_a_transplant_and_a_share_group_begins_anew(dead: Dead, tmp_path: Path) -> None:
    with dead.by("transplant", tmp_path) as broker:
        (said,) = [
            line for line in (tmp_path / "said").read_text().splitlines() if "share group sharing begins anew" in line
        ]
        printed = re.search(r"HOST:PORT (--reset-offsets .+?) \(or", said)
        assert printed is not None
        require_each_once(dead.go_on(broker), dead)
        tool(SHARE_GROUPS, broker, *shlex.split(printed[1]))
        read_as_share_group(broker, "latest", "a" * SHARED)
