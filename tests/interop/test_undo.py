"""A real broker runs between a run and its undo: the partition is restored bit for bit, or the undo is refused before
anything changes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from seglog.format.checkpoint import parse_offset_checkpoint
from seglog.format.filenames import QUARANTINE
from seglog.model import TopicPartition
from seglog.operations.undo import undo
from seglog.repairs.undo.quarantine import find_run
from seglog.repairs.undo.since import ChangedSinceError
from seglog.scan.listing import OFFSET_CHECKPOINTS
from tests.support.command_line import process
from tests.support.kafka import Broker
from tests.support.log_files import FS, facts

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
MARKER = ".kafka_cleanshutdown"
VERBS = {"cut": "truncate", "mended": "repair", "recovered": "recover", "written": "truncate", "left": ""}
TRANSACTIONAL = "mended"


def state(logs: Path, topic: str) -> tuple[dict[str, object], dict[str, int | None]]:
    """The partition's files, and its own entries of the shared checkpoints."""
    key = TopicPartition(topic, 0)
    entries = {
        name: parse_offset_checkpoint((logs / name).read_bytes(), logs / name).get(key)
        for name in OFFSET_CHECKPOINTS
        if (logs / name).exists()
    }
    return {name: contents for name, (contents, *_) in facts(logs / f"{topic}-0").items()}, entries


def produced(broker: Broker, topic: str, count: int) -> None:
    import confluent_kafka

    settings: dict[str, Any] = {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True}
    if topic == TRANSACTIONAL:
        settings["transactional.id"] = "t"
    producer = confluent_kafka.Producer(settings)
    if topic == TRANSACTIONAL:
        producer.init_transactions(60)
    for part in range(4):
        if topic == TRANSACTIONAL:
            producer.begin_transaction()
        for number in range(count // 4):
            producer.produce(topic, key=b"k%d" % number, value=random.Random(part * count + number).randbytes(500))
        assert producer.flush(60) == 0
        if topic == TRANSACTIONAL:
            producer.commit_transaction(60) if part % 2 else producer.abort_transaction(60)


def damage(directory: Path, *, at_end: bool) -> None:
    logs = [path for path in sorted(directory.glob("*.log")) if path.stat().st_size > 500]
    path = logs[-1] if at_end else logs[0]
    data = bytearray(path.read_bytes())
    data[-1 if at_end else len(data) // 2] ^= 0x40
    path.write_bytes(data)


@pytest.mark.parametrize("killed", [False, True])
def test_a_broker_between_a_run_and_its_undo_loses_nothing_of_what_was(tmp_path: Path, killed: bool) -> None:
    pytest.importorskip("confluent_kafka", reason="needs confluent-kafka (of the group dev)")
    logs = tmp_path / "logs"
    with Broker(logs) as broker:
        for topic in VERBS:
            broker.create_topic(topic, segment_bytes=1 << 20)
        for topic in VERBS:
            produced(broker, topic, 6000)
        broker.stop()
    damage(logs / "mended-0", at_end=False)
    damage(logs / "recovered-0", at_end=True)
    before = {topic: state(logs, topic) for topic in VERBS}
    known: set[str] = set()
    runs = {}
    for topic, verb in VERBS.items():
        if verb == "recover":
            (logs / MARKER).unlink(missing_ok=True)
        if verb:
            arguments = ["--to-offset", "1000"] if verb == "truncate" else []
            done = process(verb, logs / f"{topic}-0", *arguments)
            folders = {folder.name for folder in (tmp_path / QUARANTINE).iterdir()}
            assert len(folders - known) == 1, done.stderr
            (runs[topic],) = folders - known
            known = folders
    with Broker(logs) as broker:
        produced(broker, "written", 8)
        broker.kill() if killed else broker.stop()
    for topic, name in runs.items():
        untouched = facts(logs)
        run = find_run(FS, name, [tmp_path / QUARANTINE])
        if topic == "written":
            with pytest.raises(ChangedSinceError, match="undoing would lose the change"):
                undo(FS, run)
            assert facts(logs) == untouched
            continue
        undo(FS, run)
        assert state(logs, topic) == before[topic], topic
    with Broker(logs) as broker:  # it starts on what was restored
        broker.stop()
