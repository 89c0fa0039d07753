"""Data keys and chunks that Aiven's plugin has encrypted."""

from __future__ import annotations

from hashlib import sha3_512
from pathlib import Path

import pytest

from seglog.errors import ConfigError, CorruptTierError
from seglog_stores.formats.tier_keys import DataKey, PrivateKey
from tests.support.tiers import private_pem, sealed_key

# From the plugin: key 00..1f, IV 00..0b, AAD 0a0b0c0d, text "abc".
SEALED = bytes.fromhex("000102030405060708090a0b2660b50a55b3a470848b04731517c376a14293")
HERE = Path("segment.log")


def test_a_chunk_of_the_plugin_is_opened() -> None:
    key = DataKey(bytes(range(32)), bytes.fromhex("0a0b0c0d"))
    assert key.opened(SEALED, HERE, 0) == b"abc"


@pytest.mark.parametrize("at", [0, 12, 15, len(SEALED) - 1])
def test_a_changed_byte_is_noticed(at: int) -> None:
    key, wrong = DataKey(bytes(range(32)), bytes.fromhex("0a0b0c0d")), bytearray(SEALED)
    wrong[at] ^= 1
    with pytest.raises(CorruptTierError, match=r"segment\.log: position 7: the encrypted data was changed"):
        key.opened(bytes(wrong), HERE, 7)
    with pytest.raises(CorruptTierError, match="27 bytes are too few"):
        key.opened(SEALED[:27], HERE, 7)


def test_a_data_key_is_opened_with_its_key_pair_alone() -> None:
    private = PrivateKey.parse(private_pem(), "key.pem")
    key, sealed = bytes(range(32)), sealed_key(bytes(range(32)))
    assert private.data_key(sealed, HERE) == key
    for wrong in (sealed[:-1], sealed[:-1] + bytes([sealed[-1] ^ 1]), bytes(len(sealed)), b"\xff" * len(sealed)):
        with pytest.raises(CorruptTierError, match="not encrypted with this key pair"):
            private.data_key(wrong, HERE)
    with pytest.raises(CorruptTierError, match="has 5 bytes instead of 32"):
        private.data_key(sealed_key(b"short"), HERE)


def test_what_is_no_private_key_is_refused_by_name() -> None:
    for data in (b"", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"):
        with pytest.raises(ConfigError, match=r"key\.pem: the file has no unencrypted private key"):
            PrivateKey.parse(data, "key.pem")


def test_the_empty_label_is_that_of_sha3() -> None:
    assert sha3_512(b"").hexdigest().startswith("a69f73cca23a9ac5c8b567dc185a756e")
