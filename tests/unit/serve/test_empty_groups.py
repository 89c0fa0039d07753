"""What is said of groups without members: their type, protocol and epoch, as a broker says it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from seglog.model import Record
from seglog_rescue.serve import protocol
from seglog_rescue.serve.committed import GroupKind
from tests.support.open_logs import opened_log
from tests.support.raw_client import RawClient
from tests.support.raw_groups import KINDS, RawGroups, make_groups
from tests.support.serving import Serving
from tests.support.wire_answers import group_answers

NO_ID = uuid.UUID(int=0)
PROTOCOL_TYPES = dict.fromkeys(KINDS, "consumer") | {"simple": "", "connect-sink": "connect"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    partition = tmp_path / "logs" / "t-0"
    with opened_log(partition) as log:
        log.append([Record(b"value", timestamp=1000)])
    return partition


@contextmanager
def served(path: Path, **how: Any) -> Iterator[tuple[Serving, RawGroups]]:
    with Serving(path, **how) as serving, RawClient(serving.address) as client:
        yield serving, RawGroups(client, "t", NO_ID)


def require_kinds(bootstrap: str) -> None:
    """Each group is listed and described as what it is, and as nothing else."""
    answers = group_answers(bootstrap, KINDS)
    listed = answers["ListGroups v5"]
    assert {name: each["group_type"] for name, each in listed.items()} == KINDS
    assert {name: each["protocol_type"] for name, each in listed.items()} == PROTOCOL_TYPES
    assert {each["group_state"] for each in listed.values()} == {"Empty"}
    for kind in ("classic", "consumer"):
        assert answers[kind] == sorted(name for name in KINDS if KINDS[name] == kind)
    for name, kind in KINDS.items():
        old, new = answers["DescribeGroups v6"][name], answers["ConsumerGroupDescribe v1"][name]
        errors = ("group_id_not_found", "none") if kind == "consumer" else ("none", "group_id_not_found")
        assert (old["error_code"], new["error_code"]) == errors
        if kind == "consumer":
            assert (old["group_state"], old["protocol_type"]) == ("Dead", "")
            assert (new["group_state"], new["assignor_name"]) == ("Empty", "uniform")
            assert new["group_epoch"] == new["assignment_epoch"]
        else:
            assert (old["group_state"], old["protocol_type"]) == ("Empty", PROTOCOL_TYPES[name])
            assert (new["group_state"], new["group_epoch"]) == ("", 0)


def test_a_group_stays_what_its_last_members_were(path: Path) -> None:
    with served(path) as (serving, groups):
        make_groups(groups)
        require_kinds(serving.bootstrap)
        epoch = serving.commits.kind_of("consumers").epoch
        assert epoch > 0
        answers = group_answers(serving.bootstrap, KINDS)
        assert answers["ConsumerGroupDescribe v1"]["consumers"]["group_epoch"] == epoch


def test_the_file_of_commits_says_what_each_group_is(path: Path, tmp_path: Path) -> None:
    with served(path, offsets=tmp_path / "offsets") as (_, groups):
        make_groups(groups)
    for _ in range(2):  # the second time from the file as the first has written it anew
        with served(path, offsets=tmp_path / "offsets") as (serving, _):
            require_kinds(serving.bootstrap)


def test_a_group_without_commits_is_forgotten_with_its_members(path: Path) -> None:
    with served(path) as (serving, groups):
        groups.consumer("g", commits=False)
        groups.classic("h", commits=False)
        assert group_answers(serving.bootstrap, {"g": "consumer", "h": "classic"})["ListGroups v5"] == {}
        assert serving.commits.size == 0


def test_what_groups_call_their_protocol_is_kept_within_the_bytes_of_commits(path: Path) -> None:
    with served(path) as (serving, groups):
        most = serving.endpoint.limits.commits_bytes
        groups.classic("g", "x" * 100)
        assert (serving.commits.kind_of("g"), serving.commits.size) == (GroupKind("classic", "x" * 100), 101)
        serving.commits.size = most - 50
        groups.consumer("g")
        assert (serving.commits.kind_of("g").protocol_type, serving.commits.size) == ("consumer", most - 142)
        serving.commits.size = most - 50
        groups.classic("g", "y" * 100)
        assert serving.commits.kind_of("g").protocol_type == "consumer"


def test_a_group_that_has_not_been_assigned_tells_no_protocol_and_no_metadata(path: Path) -> None:
    with served(path) as (serving, groups):
        groups.join("g")
        with RawClient(serving.address) as client:
            (described,) = client.ask(protocol.DESCRIBE_GROUPS, 5, {"groups": ("g",)}).groups
    assert (described.group_state, described.protocol_type, described.protocol_data) == (
        "CompletingRebalance",
        "consumer",
        "",
    )
    assert [each.member_metadata for each in described.members] == [b""]
