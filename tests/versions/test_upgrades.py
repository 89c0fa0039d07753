"""What the doctor says of an upgrade, judged by brokers of the releases on both sides.

The matrix judges the rest: ZooKeeper, message formats, metadata.version.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import seglog
from tests.support.kafka.released_broker import ReleasedBroker
from tests.support.versions import clients
from tests.support.versions.matrix import CHOSEN

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.xdist_group("releases")]

OLD, LOCKING, NEW = "3.9.1", "4.2.0", "4.4.0"
REMOVED = {
    "message_timestamp_difference_max_ms": "1000000000",
    "message_downconversion_enable": "false",
}
OF_BROKERS = {"log.message.downconversion.enable": "true", "controlled.shutdown.max.retries": "3"}


@contextmanager
def broker(release: str, logs: Path) -> Iterator[ReleasedBroker]:
    """A broker with keys that 4.0 has removed."""
    made = ReleasedBroker(release, logs, logs.with_name(f"{logs.name}.work"), settings=OF_BROKERS)
    try:
        yield made
    finally:
        made.stop()


def codes(logs: Path, release: str) -> dict[str, str]:
    """What the doctor says of a release: code → gravity."""
    config = logs.with_name("logs.work") / "server.properties"
    rows = seglog.doctor(logs, kafka_version=release, config_file=config)
    return {row.code: row.gravity.value for row in rows}


@pytest.mark.skipif(not {OLD, LOCKING, NEW} <= set(CHOSEN), reason=f"needs {OLD}, {LOCKING} and {NEW}")
def test_what_the_doctor_says_of_an_upgrade_is_what_the_newer_broker_does(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    with broker(OLD, logs) as old:
        clients.create_topics(old.bootstrap, {"removed": REMOVED, "small": {"segment_bytes": 12_000}})
        clients.produce(old.bootstrap, "removed", 20)
        clients.produce(old.bootstrap, "small", 20)
    assert codes(logs, OLD) == {}
    found = codes(logs, NEW)
    assert found == {
        "TOPIC_VALUE_REFUSED": "blocker",
        "TOPIC_KEYS_REMOVED": "note",
        "BROKER_KEYS_REMOVED": "note",
        "METADATA_VERSION_STAYS": "note",
    }
    refused = Path(shutil.copytree(logs, tmp_path / "refused"))
    with pytest.raises(RuntimeError, match="Invalid value 12000 for configuration segment"), broker(NEW, refused):
        pass
    with broker(OLD, logs) as old:  # what the diagnosis names
        clients.configure(old.bootstrap, ["small"], "segment.bytes", str(1 << 20))
    assert "TOPIC_VALUE_REFUSED" not in codes(logs, NEW)
    assert codes(logs, LOCKING)["TOPIC_KEYS_REMOVED"] == "danger"
    locked = Path(shutil.copytree(logs, tmp_path / "locked"))
    with broker(LOCKING, locked) as new, pytest.raises(Exception, match="Unknown topic config name"):
        clients.configure(new.bootstrap, ["removed"], "retention.ms", "100000000")
    with broker(NEW, logs) as new:
        clients.configure(new.bootstrap, ["removed"], "retention.ms", "100000000")
        assert len(clients.served(new.bootstrap, ["removed", "small"])["small"].rows) == 20
