"""From the option names of kafka-dump-log to a decoder (Kafka: DumpLogSegmentsOptions.messageParser)."""

from __future__ import annotations

from collections.abc import Collection

from seglog.errors import UnsupportedError
from seglog.format import coordinator
from seglog.kafka_dump_log.decoders import (
    CoordinatorDecoder,
    Decoder,
    MetadataDecoder,
    PartDecoder,
    PartDecoders,
    RemoteMetadataDecoder,
)

_CLASSES: dict[str, PartDecoder] = {
    "StringDecoder": "string",
    "DefaultDecoder": "default",
    "IntegerDecoder": "integer",
    "LongDecoder": "long",
}

# In the order in which one wins over the other.
_PARSERS: dict[str, Decoder] = {
    "offsets": CoordinatorDecoder(coordinator.OFFSETS),
    "transaction-log": CoordinatorDecoder(coordinator.TRANSACTIONS),
    "cluster-metadata": MetadataDecoder(),
    "remote-log-metadata": RemoteMetadataDecoder(),
    "share-group-state": CoordinatorDecoder(coordinator.SHARE_STATE),
}


def choose_decoder(
    parsers: Collection[str], key_class: str | None = None, value_class: str | None = None
) -> Decoder | None:
    """The decoder for `--offsets-decoder` (`parsers` then holds `offsets`) and so on, or for decoder classes.

    Classes are named with or without their package. None when nothing was asked for. UnsupportedError for a
    class that only a JVM could load.
    """
    for name, decoder in _PARSERS.items():
        if name in parsers:
            return decoder
    if key_class is None and value_class is None:
        return None
    return PartDecoders(_part(key_class), _part(value_class))


def _part(name: str | None) -> PartDecoder:
    if name is None:
        return "string"
    found = _CLASSES.get(name.rpartition(".")[2])
    if found is None:
        raise UnsupportedError(f"decoder class {name[:200]}: only {', '.join(_CLASSES)} are known here")
    return found
