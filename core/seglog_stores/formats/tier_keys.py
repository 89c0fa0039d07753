"""Decrypts the objects of Aiven's plugin: data keys with an RSA key pair, chunks and indexes with the data key.

Aiven: RsaEncryptionProvider (OAEPWithSHA3-512AndMGF1Padding of Bouncy Castle: hash and mask are SHA3-512, without a
label), AesEncryptionProvider (AES-256-GCM). `cryptography` handles keys and AES, but not this padding, which is
implemented here. It does not run in constant time: it decrypts only the key owner's data, on the owner's machine, where
nobody can measure the time.

The extra `tiers` installs `cryptography`; without it, opening a key file raises ModuleNotFoundError.
"""

from __future__ import annotations

from hashlib import sha3_512
from pathlib import Path

from seglog.errors import ConfigError, CorruptTierError

IV_BYTES = 12
TAG_BYTES = 16
SEALED_BYTES = IV_BYTES + TAG_BYTES  # what encryption adds to a chunk
DATA_KEY_BYTES = 32

_HASH_BYTES = 64
_EMPTY_LABEL = sha3_512(b"").digest()


class PrivateKey:
    """The private key of a key pair (`encryption.key.pairs.<id>.private.key.file`)."""

    def __init__(self, modulus: int, exponent: int) -> None:
        self._modulus, self._exponent = modulus, exponent
        self._bytes = (modulus.bit_length() + 7) // 8

    @classmethod
    def parse(cls, pem: bytes, path: Path | str) -> PrivateKey:
        """Returns the key in a PEM file (PKCS#8, not encrypted).

        Raises ConfigError, without quoting any of the file, for anything else.
        """
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            key = load_pem_private_key(pem, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise ConfigError(f"{path}: the file has no unencrypted private key in PEM form") from error
        if not isinstance(key, RSAPrivateKey):
            raise ConfigError(f"{path}: the private key is not an RSA key")
        numbers = key.private_numbers()
        return cls(numbers.public_numbers.n, numbers.d)

    def data_key(self, encrypted: bytes, path: Path | str) -> bytes:
        """Decrypts a segment's data key. Raises CorruptTierError if it was changed, or has another key pair."""
        number = int.from_bytes(encrypted, "big")
        key = None
        if len(encrypted) == self._bytes and number < self._modulus:
            key = _unpadded(pow(number, self._exponent, self._modulus).to_bytes(self._bytes, "big"))
        if key is None:
            raise CorruptTierError(path, "its data key was not encrypted with this key pair, or has been changed")
        if len(key) != DATA_KEY_BYTES:
            raise CorruptTierError(path, f"its data key has {len(key)} bytes instead of {DATA_KEY_BYTES}")
        return key

    def __repr__(self) -> str:
        return f"<PrivateKey of {self._bytes * 8} bits>"


def _unpadded(block: bytes) -> bytes | None:
    """Returns the message in an OAEP block (RFC 8017, section 7.1.2), or None if the block is invalid."""
    if len(block) < 2 * _HASH_BYTES + 2:
        return None
    masked_seed, masked = block[1 : 1 + _HASH_BYTES], block[1 + _HASH_BYTES :]
    seed = _xor(masked_seed, _mask(masked, _HASH_BYTES))
    data = _xor(masked, _mask(seed, len(masked)))
    separator = data.find(1, _HASH_BYTES)
    is_padded = block[0] == 0 and data[:_HASH_BYTES] == _EMPTY_LABEL and separator > 0
    if not is_padded or any(data[_HASH_BYTES:separator]):
        return None
    return data[separator + 1 :]


def _mask(seed: bytes, size: int) -> bytes:
    """Returns an MGF1 mask with SHA3-512."""
    parts = (sha3_512(seed + i.to_bytes(4, "big")).digest() for i in range(-(-size // _HASH_BYTES)))
    return b"".join(parts)[:size]


def _xor(a: bytes, b: bytes) -> bytes:
    return bytes(x ^ y for x, y in zip(a, b, strict=True))


class DataKey:
    """Decryption by AES-256-GCM with the data key and the AAD of a segment."""

    def __init__(self, key: bytes, aad: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._cipher, self._key, self._aad = AESGCM(key), key, aad

    def __reduce__(self) -> tuple[type[DataKey], tuple[bytes, bytes]]:
        """Pickles the key for another process that reads the segment."""
        return DataKey, (self._key, self._aad)

    def opened(self, sealed: bytes, path: Path, position: int) -> bytes:
        """Decrypts `IV, ciphertext, tag`. Raises CorruptTierError, with path and position, if the tag is wrong."""
        from cryptography.exceptions import InvalidTag

        if len(sealed) < SEALED_BYTES:
            raise CorruptTierError(path, f"{len(sealed)} bytes are too few for encrypted data", position)
        try:
            return self._cipher.decrypt(sealed[:IV_BYTES], sealed[IV_BYTES:], self._aad)
        except InvalidTag as error:
            raise CorruptTierError(path, "the encrypted data was changed, or has another key", position) from error
