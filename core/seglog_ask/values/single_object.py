"""Avro's single-object encoding: C3 01, the fingerprint of the writer's schema (8 bytes), and the value.

The fingerprint is the CRC-64-AVRO of the schema's canonical form, so that the schema must be known: the given one, one
of the source, or of a registry that runs, one of the topic's subject. Apache Avro 1.12, "Single-object encoding".
"""

from __future__ import annotations

from seglog_ask.values.schemas import AVRO, NotDecodedError, Schema, SchemaSource

MARK, HEAD_BYTES = b"\xc3\x01", 10

_MOST_SCHEMAS = 10_000  # of which fingerprints are made


class Fingerprints:
    """The schemas that values of a subject may be of, by fingerprint: made when the first value asks for one."""

    def __init__(self, source: SchemaSource | None, given: Schema | None, subject: str) -> None:
        self._source, self._given, self._subject = source, given, subject
        self._known: dict[bytes, Schema] | None = None

    def schema_of(self, data: bytes) -> Schema | None:
        """Returns the schema of a value in this encoding; None for another value, and if it is not known."""
        if len(data) < HEAD_BYTES or not data.startswith(MARK):
            return None
        if self._known is None:
            self._known = self._made()
        return self._known.get(data[len(MARK) : HEAD_BYTES])

    def _made(self) -> dict[bytes, Schema]:
        from seglog_ask.values.avro import fingerprint  # with its library

        schemas = [] if self._source is None else self._source.related(self._subject)
        found: dict[bytes, Schema] = {}
        for schema in [*([] if self._given is None else [self._given]), *schemas][:_MOST_SCHEMAS]:
            if schema.type == AVRO:
                try:
                    found.setdefault(fingerprint(schema), schema)
                except NotDecodedError:
                    continue  # no value is read by it
        return found
