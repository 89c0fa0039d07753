"""The options that say what keys and values mean, for `read`, `dump`, `export`, `latest` and `sql`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from seglog_cli.failures import UsageError
from seglog_cli.options import OptionGroup, option
from seglog_cli.session import Session

if TYPE_CHECKING:
    from seglog_ask.values.forms import Values

_FORMS = (
    "auto|string|hex|base64|short|int|long|float|double|short-le|int-le|long-le|float-le|double-le|uuid|json|gzip"
    "|gzip-json|msgpack|cbor|avro-file|kafka|avro|protobuf|json-schema|registry"
)
_PLAIN, _KAFKA = "auto", "kafka"


@dataclass(frozen=True)
class ShownAs(OptionGroup):
    """The forms of keys and values, and the schemas for them."""

    key_as: Annotated[str, option("--key-as", _FORMS, "What keys are.")] = _PLAIN
    value_as: Annotated[str, option("--value-as", _FORMS, "What values are; registry goes by the frame of each.")] = (
        _PLAIN
    )
    schemas: Annotated[
        str | None,
        option("--schemas", "WHERE", "A registry's log, URL or files (default: _schemas-0)."),
    ] = None
    schema: Annotated[
        str | None, option("--schema", "FILE[:MESSAGE]", "The schema of keys or values without a frame.")
    ] = None

    def values(
        self, session: Session, paths: Iterable[Path], *, decode: bool = False, base64: bool = False
    ) -> Values | None:
        """Returns what decodes the records at these paths; None if they are shown as they are. `decode` and `base64`
        are the options --decode and --bytes base64. Raises UsageError, ConfigError.
        """
        if self == ShownAs() and not decode:
            return None
        from seglog.doors import door

        asked = self.key_as != _PLAIN or self.value_as != _PLAIN
        if asked and (decode or base64):
            older = "--decode" if decode else "--bytes base64"
            raise UsageError(f"{older} and --key-as or --value-as are forms of keys and values: give one of them")
        key, value = (_KAFKA, _KAFKA) if decode else (self.key_as, self.value_as)
        values: Values | None = door("values")(
            session.fs, key, value, schemas=self.schemas, schema=self.schema, beside=paths
        )
        return values


def tell_values(session: Session, values: Values | None) -> None:
    """Says how many keys and values each schema decoded, and warns of those that were not, or not wholly."""
    if values is None:
        return
    from seglog.units import count_is, count_text

    for (side, label), count in values.tally.decoded.most_common():
        session.console.message(f"{label}: {count_text(count, side)}")
    for (side, reason), count in values.tally.partial.most_common():
        session.console.warning(f"{count_text(count, side)} decoded in part: {reason}")
    for (side, reason), count in values.tally.failed.most_common():
        session.console.warning(f"{count_text(count, side)} not decoded: {reason}")
    for side, count in values.tally.texts.items():
        if count:
            told = f"{side} has types and is null there; {side}_bytes has the text"
            session.console.warning(f"{count_is(count, side)} plain text: the column {told}")
