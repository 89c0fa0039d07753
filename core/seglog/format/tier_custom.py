"""The custom metadata that Aiven's plugin has Kafka keep with each segment, in `__remote_log_metadata`.

Aiven: SegmentCustomMetadataSerde, SegmentCustomMetadataField (`custom.metadata.fields.include`). Tagged fields and
nothing else: 0 the bytes that are stored (passed over here), 1 the prefix, 2 the key without prefix and suffix.
"""

from __future__ import annotations

from dataclasses import dataclass

from seglog.format import message_tables
from seglog.format.wire import WireError, decode_message


@dataclass(frozen=True, slots=True)
class CustomMetadata:
    """What overrides the keys of a segment's log and indexes; None: the plugin's configuration and its rule count."""

    prefix: str | None = None
    key: str | None = None


def parse_custom_metadata(data: bytes) -> CustomMetadata:
    """The fields of custom metadata. Raises `WireError`, also for what cannot be the name of an object here."""
    fields = decode_message(message_tables.messages(message_tables.TIER_CUSTOM)[0, "fields"], data, 0)
    found = CustomMetadata(fields.get("objectPrefix"), fields.get("objectKey"))
    named = (found.prefix or "") + ("KEY" if found.key is None else found.key)
    if "\0" in named or any(part in ("", ".", "..") for part in named.split("/")):
        raise WireError(f"prefix {found.prefix!r} and key {found.key!r} name no object")
    return found
