"""The Kafka versions that people run: what each broker writes is read, changed and given back to that broker.

A broker of the release writes a varied log: every codec and message format that it has, headers, transactions,
tombstones, leader epochs, DeleteRecords, a group. It is stopped in order, and later killed. Between, seglog does
everything that README's table of versions says, and the broker starts, serves, writes, cleans and deletes on. At the
end a broker of the newest release starts on it, and another one takes the partitions of all dead clusters.

Each step is a test, and `matrix.HELD_BY` says which row of the table it holds. `DEFAULT_RELEASES` run in the second
tier; all with `KAFKA_RELEASES=all`, others with their names in it (`KAFKA_RELEASES=2.5.1,3.6.2`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from seglog.kafka_version import KafkaVersion
from tests.support.command_line import run
from tests.support.kafka.released_broker import ReleasedBroker
from tests.support.versions import clients
from tests.support.versions.life import MOVED, NEWEST, SETTINGS, Life
from tests.support.versions.matrix import CHOSEN, Step, steps_of

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.xdist_group("releases")]

WALKS = [(release, step) for release in CHOSEN for step in steps_of(KafkaVersion.parse(release))]


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Life]]:
    """The clusters, by release. Each goes through all its steps before the next one begins."""
    made = {release: Life(release, tmp_path_factory.mktemp(f"kafka-{release}")) for release in CHOSEN}
    yield made
    for life in made.values():
        life.end()


@pytest.mark.parametrize(("release", "step"), WALKS, ids=lambda each: getattr(each, "__name__", each))
def test_a_broker_goes_on_with_what_seglog_made_of_its_log(lives: dict[str, Life], release: str, step: Step) -> None:
    life = lives[release]
    if life.failed:
        pytest.fail(f"{life.failed} failed before")
    life.failed = step.__name__
    step(life)
    life.failed = ""
    if step is steps_of(life.version)[-1]:
        life.end()


def test_partitions_of_all_dead_clusters_move_into_a_broker_of_the_newest_release(
    lives: dict[str, Life], tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    moved = {
        f"{life.release}-{topic}": (life, topic)
        for life in lives.values()
        for topic in (*MOVED, "trimmed", *life.formats)
        if topic in life.buried
    }
    assert {life.release for life, _ in moved.values()} == set(CHOSEN)  # each has been through its steps
    broker = ReleasedBroker(NEWEST, logs, tmp_path / "work", settings=SETTINGS)
    try:
        clients.create_topics(broker.bootstrap, {name: {} for name in moved})
    finally:
        broker.stop()
    for life in lives.values():
        topics = [f"--topic={topic}={name}" for name, (of, topic) in moved.items() if of is life]
        done = run("transplant", life.grave, "--into", logs, *topics)
        assert done.exit_code == 0, done.output
    broker = ReleasedBroker(NEWEST, logs, tmp_path / "work", settings=SETTINGS)
    try:
        found = clients.served(broker.bootstrap, list(moved))
        for name, (life, topic) in moved.items():
            assert found[name] == life.buried[topic], name
            clients.produce(broker.bootstrap, name, 5, headers=False)
    finally:
        broker.stop()
