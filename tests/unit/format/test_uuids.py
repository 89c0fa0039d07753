"""New UUIDs are such as Kafka's tools take."""

from __future__ import annotations

from uuid import UUID

import pytest

from seglog.format import uuids
from seglog.format.uuids import format_uuid, parse_uuid, random_uuid


def test_a_new_uuid_never_begins_with_a_hyphen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka 4.4.0, kafka-storage: `format -t -hQfmsevTTerg-RtECl5hA` ends with "expected one argument"."""
    drawn = iter([parse_uuid("-hQfmsevTTerg-RtECl5hA"), parse_uuid("--AAAAAAAAAAAAAAAAAAAA"), UUID(int=7)])
    monkeypatch.setattr(uuids, "uuid4", lambda: next(drawn))
    assert random_uuid() == UUID(int=7)
    assert next(drawn, None) is None


def test_a_uuid_is_what_it_was_after_its_text() -> None:
    for _ in range(100):
        value = random_uuid()
        assert parse_uuid(format_uuid(value)) == value
