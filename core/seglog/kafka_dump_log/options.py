"""From the option names of kafka-dump-log to a decoder (Kafka: DumpLogSegmentsOptions.messageParser)."""

from __future__ import annotations

from collections.abc import Collection

from seglog.dump.internal_topics import DECODERS, Decoder
from seglog.errors import UnsupportedError
from seglog.kafka_dump_log.decoders import PartDecoder, PartDecoders

CLASSES: dict[str, PartDecoder] = {
    "StringDecoder": "string",
    "DefaultDecoder": "default",
    "IntegerDecoder": "integer",
    "LongDecoder": "long",
}

# In the order in which one wins over the other.
_PARSERS: dict[str, Decoder] = {
    "offsets": DECODERS["__consumer_offsets"],
    "transaction-log": DECODERS["__transaction_state"],
    "cluster-metadata": DECODERS["__cluster_metadata"],
    "remote-log-metadata": DECODERS["__remote_log_metadata"],
    "share-group-state": DECODERS["__share_group_state"],
}


def choose_decoder(parsers: Collection[str], key_class: str | None, value_class: str | None) -> Decoder | None:
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
    found = CLASSES.get(name.rpartition(".")[2])
    if found is None:
        raise UnsupportedError(f"decoder class {name[:200]}: only {', '.join(CLASSES)} are known here")
    return found
