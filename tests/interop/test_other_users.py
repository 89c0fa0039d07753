"""Root works on the log directory of another user's broker; that broker starts again and serves everything."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seglog.format.filenames import QUARANTINE_WITHIN
from tests.support.command_line import json_lines, process, run
from tests.support.kafka import Broker
from tests.support.other_users import OTHER, needs_root

pytestmark = [pytest.mark.kafka, pytest.mark.slow, needs_root]


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that other users can get at, which pytest's own are not; a mount point where that may be made."""
    directory = Path(tempfile.mkdtemp(prefix="seglog-"))
    directory.chmod(0o755)
    logs = directory / "logs"
    logs.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "seglog", logs], capture_output=True, check=False).returncode == 0
    os.chown(logs, OTHER, OTHER)
    logs.chmod(0o755)
    yield directory
    if mounted:
        subprocess.run(["umount", logs], check=True)
    shutil.rmtree(directory)


def values(broker: Broker, topic: str, count: int) -> list[bytes]:
    confluent_kafka = pytest.importorskip("confluent_kafka", reason="needs confluent-kafka (of the group dev)")
    settings: dict[str, Any] = {"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "error"}
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    messages = consumer.consume(count, timeout=60)
    consumer.close()
    return [message.value() for message in messages]


def produced(broker: Broker, topic: str, value: bytes) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka", reason="needs confluent-kafka (of the group dev)")
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, value=value)
    assert producer.flush(30) == 0


def test_a_broker_of_another_user_starts_on_what_root_appended_repaired_and_cut(place: Path) -> None:
    logs = place / "logs"
    with Broker(logs, user=OTHER) as broker:
        for topic in ("appended", "repaired", "cut", "kept"):
            broker.create_topic(topic)
            for i in range(3):
                produced(broker, topic, b"%d" % i)
        broker.stop()
    before = os.umask(0o077)  # what root makes is still the broker's
    try:
        assert process("append", logs / "appended-0", input_bytes=b"3\n").returncode == 0
        assert process("truncate", logs / "cut-0", "--to-offset", "2").returncode == 0
        log = logs / "repaired-0" / "00000000000000000000.log"
        data = log.read_bytes()
        log.write_bytes(data[: len(data) // 3 + 30] + b"??" + data[len(data) // 3 + 32 :])
        (logs / "repaired-0" / "00000000000000000000.timeindex").unlink()
        is_mounted = logs.stat().st_dev != place.stat().st_dev
        chosen = () if is_mounted else ("--quarantine", logs / QUARANTINE_WITHIN)
        repaired = run("verify", "--json", "--repair", logs, *chosen)
        assert repaired.exit_code == 4, repaired.stderr
    finally:
        os.umask(before)
    owners = {path.stat().st_uid for path in logs.rglob("*") if QUARANTINE_WITHIN not in path.parts}
    assert owners == {OTHER}
    with Broker(logs, user=OTHER) as broker:
        assert values(broker, "appended", 4) == [b"0", b"1", b"2", b"3"]
        assert values(broker, "repaired", 2) == [b"0", b"2"]
        assert values(broker, "cut", 2) == [b"0", b"1"]
        for topic in ("appended", "repaired", "cut"):
            produced(broker, topic, b"later")
        admin = broker.admin()  # must outlive the request
        admin.delete_topics(["kept"])["kept"].result(30)
        broker.stop()
        assert QUARANTINE_WITHIN not in broker.log_text()
    (logs / "cut-0" / "00000000000000000000.timeindex").chmod(0o400)
    (logs / ".lock").touch()
    (logs / ".lock").chmod(0o600)
    denied = [row for row in json_lines(run("doctor", "--json", logs)) if row.get("code") == "ACCESS_DENIED"]
    assert [row["file"] for row in denied] == [".lock", "00000000000000000000.timeindex"]
    with pytest.raises(RuntimeError, match="did not start"):
        Broker(logs, user=OTHER)
    for row in denied:
        subprocess.run(row["command"], shell=True, check=True)
    with Broker(logs, user=OTHER) as broker:
        assert values(broker, "cut", 3) == [b"0", b"1", b"later"]
    name = json_lines(repaired)[-1]["run"]
    assert run("quarantine", "show", name, "--quarantine", logs / QUARANTINE_WITHIN).exit_code == 0
    assert run("doctor", logs).exit_code == 0
