"""Records of internal topics: those that Kafka's own classes wrote (`tests/interop/test_internal_topics.py` writes them
anew), and bytes that are none of theirs.
"""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any

import pytest

from seglog_ask.values.internal_topics import KINDS, kind_of
from seglog_ask.values.schemas import NotDecodedError, Text

WRITTEN = Path(__file__).parents[2] / "golden" / "internal_topics.jsonl"
KEK = {
    "name": "k",
    "kmsType": "aws-kms",
    "kmsKeyId": "arn",
    "kmsProps": {"region": "x", "secret.access.key": "hush"},
    "shared": True,
}
DEK = {"kekName": "k", "algorithm": "AES256_GCM", "encryptedKeyMaterial": "ZW5j", "keyMaterial": "aHVzaA=="}


def written() -> list[dict[str, Any]]:
    return [json.loads(line) for line in WRITTEN.read_text(encoding="utf-8").splitlines()]


def data_of(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def shown(text: Text | None) -> Any:
    return json.loads(text) if isinstance(text, str) else None if text is None else f"error: {text}"


def decoded(kind: str, key: bytes | None, value: bytes | None) -> tuple[Any, Any]:
    key_text, value_text = KINDS[kind].decode(key, value, 0)
    return shown(key_text), shown(value_text)


def test_what_kafkas_classes_wrote_is_decoded() -> None:
    lines = written()
    for line in lines:
        found = decoded(line["kind"], data_of(line["key_b64"]), data_of(line["value_b64"]))
        assert found == (line["key"], line["value"]), line["topic"]
    assert {line["kind"] for line in lines} == {
        kind for kind in KINDS if kind.startswith(("mirror-", "connect-c", "connect-o", "streams-"))
    }


@pytest.mark.parametrize("topic", sorted({line["topic"] for line in written() if line["named"]}))
def test_names_say_what_topics_of_others_hold(topic: str) -> None:
    kind = kind_of(topic)
    assert kind is not None and kind.name == next(line["kind"] for line in written() if line["topic"] == topic)


@pytest.mark.parametrize(
    ("topic", "kind"),
    [
        ("mm2-offset-syncs_old_internal", "mirror-offset-syncs"),
        ("old-checkpoints-internal", "mirror-checkpoints"),
        ("a.b.heartbeats", "mirror-heartbeats"),
        ("mm2-configs.old.internal", "connect-configs"),
        ("mm2-status.old.internal", "connect-status"),
        ("_schemas", "schemas"),
        ("_dek_registry_keys", "encryption-keys"),
        ("__share_group_state", "share-states"),
        ("app-x-left-shared-join-store-changelog", "streams-outer-join"),
        ("my-heartbeats", None),
        ("heartbeats.old", None),
        ("app-counts-changelog", None),
        ("KSTREAM-OUTERSHARED-0000000016-store-changelog", None),
        ("connect-configs-2", None),
        ("__consumer_offsets2", None),
    ],
)
def test_names_that_say_nothing_have_no_kind(topic: str, kind: str | None) -> None:
    found = kind_of(topic)
    assert (None if found is None else found.name) == kind


def test_secrets_are_hidden_and_all_else_stays_as_it_was_written() -> None:
    session = b'{"key":"c2VjcmV0","creation-timestamp":1}'
    assert decoded("connect-configs", b"session-key", session)[1] == {"key": "(hidden)", "creation-timestamp": 1}
    settings = (
        b'{"properties":{"a.PASSWORD":"p","sasl.jaas.config":"j","n":1.10,"big":123456789012345678901,"e":1e999}}'
    )
    assert decoded("connect-configs", b"connector-c", settings)[1] == {
        "properties": {
            "a.PASSWORD": "(hidden)",
            "sasl.jaas.config": "(hidden)",
            "n": "1.10",
            "big": 123456789012345678901,
            "e": "1e999",
        }
    }
    key = json.dumps({"tenant": "t", "keytype": "KEK", "name": "k"}).encode()
    assert decoded("encryption-keys", key, json.dumps(KEK).encode()) == (
        json.loads(key),
        KEK | {"kmsProps": {"region": "x", "secret.access.key": "(hidden)"}},
    )
    older = b'{"tenant":"t","type":"DEK","scope":"s"}'
    assert decoded("encryption-keys", older, json.dumps(DEK).encode())[1] == DEK | {"keyMaterial": "(hidden)"}
    plain = b'{"properties":{"n":1.10,"task.class":"T"}}'
    assert KINDS["connect-configs"].decode(None, plain, 0)[1] == plain.decode()


@pytest.mark.parametrize(
    ("kind", "key", "value", "key_reason", "value_reason"),
    [
        ("connect-configs", b"konnector-a", b"[1]", "its beginning is not one of", "not an object"),
        ("connect-configs", b"task-a-x", b"{", "not end with a connector and the number", "not JSON"),
        ("connect-configs", b"task-7", b"\xff", "not end with a connector and the number", "not JSON"),
        ("connect-configs", b"\xffconnector", b"", "byte 0 is not UTF-8", "not JSON"),
        ("connect-offsets", b'["a"]', b"3", "not a list of a connector's name", "not an object"),
        ("connect-offsets", b'["a",{"n":NaN}]', b"null", "not JSON", "not an object"),
        ("connect-status", b"status-topic-t", b'"x"', "its beginning is not one of", "not an object"),
        ("schemas", b'{"keytype":7}', b"[]", "has no keytype", "not an object"),
        ("encryption-keys", b'{"tenant":"t"}', b"[]", "has no keytype", "not an object"),
        ("mirror-checkpoints", b"\0\5abc", b"\0\1" + bytes(18), "only 3 byte", "its version is 1"),
        ("mirror-heartbeats", b"\xff\xff", b"\0", "serialized as null", "bytes are expected"),
        ("mirror-offset-syncs", b"", bytes(15), "bytes are expected", "bytes are expected"),
        ("streams-window", bytes(11), b"", "at least 12", None),
        ("streams-outer-join", bytes(8) + b"\2k", b"\1\x7f\xff\xff\xff", "its side is 2", "not a list of values"),
        ("streams-outer-join", bytes(3), b"\1\0\0\0\1\0\0\0\2", "8 bytes are expected", "2 bytes are expected"),
        ("streams-suppress", b"", bytes(16) + b"\xff\xff\xff\xff" + bytes(8), None, "null that never is"),
        ("streams-suppress", b"", bytes(20) + bytes(4) + b"\x7f\0\0\0", None, "headers, in 28 bytes"),
        ("streams-foreign-key", b"\x7f\0\0\0c", b"\2\0", "bytes are expected", "its version is 2"),
        ("streams-subscription", b"", b"\x81\4", None, "its instruction is 4"),
        ("streams-response", b"", b"\0" + bytes(15), None, "16 bytes are expected"),
    ],
)
def test_bytes_that_are_none_of_a_kind_have_a_reason(
    kind: str, key: bytes, value: bytes, key_reason: str | None, value_reason: str | None
) -> None:
    for found, reason in zip(decoded(kind, key, value), (key_reason, value_reason), strict=True):
        assert (found is None) == (reason is None)
        assert reason is None or (found.startswith("error: ") and reason in found), found


@pytest.mark.parametrize("depth", [400, 900, 2_000, 200_000])
def test_json_that_is_nested_deeply_has_a_reason_or_its_text(depth: int) -> None:
    nested = b'{"properties":{"password":"p","x":' + b"[" * depth + b"]" * depth + b"}}"
    found = KINDS["connect-configs"].decode(b"connector-a", nested, 0)[1]
    assert isinstance(found, NotDecodedError) or (isinstance(found, str) and "(hidden)" in found)


def test_changed_bytes_are_decoded_or_have_a_reason() -> None:
    generator = random.Random(43)
    reasons = 0
    for line in written():
        for _ in range(40):
            sides = [bytearray(data_of(line[name]) or b"") for name in ("key_b64", "value_b64")]
            for side in sides:
                del side[generator.randrange(len(side) + 1) :]
                for _ in range(min(len(side), generator.randrange(3))):
                    side[generator.randrange(len(side))] = generator.choice((0, 1, 0x7F, 0x80, 0xFF))
            for text in KINDS[line["kind"]].decode(*map(bytes, sides), 0):
                assert text is None or isinstance(text, (str, NotDecodedError))
                if isinstance(text, str):
                    json.loads(text)
                reasons += isinstance(text, NotDecodedError)
    assert reasons > 1000
