"""Kafka's text form of the UUIDs that name topics and log directories: base64url, no padding, 22 characters.

Kafka: org.apache.kafka.common.Uuid.
"""

from __future__ import annotations

import base64
import binascii
import re
from uuid import UUID, uuid4

ZERO_UUID = UUID(int=0)

_TEXT = re.compile(r"[A-Za-z0-9_-]{22}(==)?")


def format_uuid(value: UUID) -> str:
    """Returns the 22 characters that Kafka prints for `value`."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode("ascii")


def random_uuid() -> UUID:
    """Returns a new UUID. Its text does not begin with `-`, which Kafka's tools would take for an option (Kafka:
    Uuid.randomUuid).
    """
    while format_uuid(value := uuid4()).startswith("-"):
        pass
    return value


def parse_uuid(text: str) -> UUID:
    """Parses Kafka's text form, with or without padding. Raises `ValueError` for anything else."""
    if _TEXT.fullmatch(text) is None:
        raise ValueError(f"{text[:40]!r} is not a UUID in Kafka's text form")
    try:
        return UUID(bytes=base64.urlsafe_b64decode(text[:22] + "=="))
    except binascii.Error as error:
        raise ValueError(f"{text!r} is not a UUID in Kafka's text form") from error
