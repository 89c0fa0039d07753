"""`seglog replicas` on log directories and facts in a bucket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from seglog_stores.remote import routing
from tests.support.command_line import ended
from tests.support.lost_clusters import broker_directory, registration, topic_records
from tests.support.metadata_records import write_metadata_log
from tests.support.s3_server import make_bucket, put_directory, s3_server


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The environment of a bucket's clients, which is this process's, too."""
    monkeypatch.setattr(routing, "_shared", None)
    with s3_server(tmp_path / "moto.log") as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        make_bucket(environment)
        yield environment


def test_replicas_in_a_bucket_and_facts_there_say_what_those_on_a_disk_say(
    bucket: dict[str, str], tmp_path: Path
) -> None:
    base = tmp_path / "brokers"
    one = broker_directory(base / "one", 1, {"orders-0": [0] * 6, "orders-1": [0] * 3})
    two = broker_directory(base / "two", 2, {"orders-0": [0] * 9, "orders-1": [0] * 3})
    write_metadata_log(two, [registration(1), registration(2), *topic_records("orders", [[1, 2], [1, 2]], isr=[1])])
    (base / "facts").mkdir()
    assert ended("replicas", "--collect", str(base / "facts" / "two.facts"), str(two)).code == 0
    urls = [put_directory(bucket, path) for path in (one, two, base / "facts")]
    local = ended("replicas", "--json", str(one), str(two))
    assert local.code == 1
    rows = [json.loads(line) for line in local.stdout.decode().splitlines()]
    for sources in ((urls[0], urls[1]), (urls[0], f"{urls[2]}/two.facts"), (str(one), urls[1])):
        done = ended("replicas", "--json", *sources)
        assert done.code == 1, done.stderr
        steps = [json.loads(line) for line in done.stdout.decode().splitlines()]
        moved = [line for row in steps if row["type"] == "step" for line in row["lines"] if line.startswith("cp ")]
        assert not any("s3:" in line for line in moved)
        text = done.stdout.decode().replace(urls[0], str(one)).replace(urls[1], str(two))
        assert next(json.loads(line) for line in text.splitlines()) == rows[0]
    collected = tmp_path / "of-url.facts"
    assert ended("replicas", "--collect", str(collected), urls[0]).code == 0
    assert (
        json.loads(ended("replicas", "--json", str(collected), str(two)).stdout.decode().splitlines()[0])["broker"] == 1
    )
