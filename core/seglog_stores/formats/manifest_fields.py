"""Reads the fields of a JSON manifest as the types they must have.

A field that is missing or wrong raises a `CorruptTierError` that names the file and the field, at any depth. Fields
that are not asked for are ignored.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from pathlib import Path

from seglog.errors import CorruptTierError
from seglog.format.uuids import parse_uuid
from seglog.layout import INT64_MAX


def json_fields(data: bytes, path: Path | str) -> JsonFields:
    """Returns the fields of a document; `path` is used only in messages. Raises `CorruptTierError`."""
    try:
        document = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise CorruptTierError(path, f"the manifest is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise CorruptTierError(path, "the manifest is not a JSON object")
    return JsonFields(document, path)


class JsonFields:
    """A JSON object in the manifest, and its place there."""

    def __init__(self, values: Mapping[str, object], path: Path | str, place: str = "") -> None:
        self._values, self._path, self._place = values, path, place

    def wrong(self, name: str, reason: str) -> CorruptTierError:
        """Returns the error for a field."""
        return CorruptTierError(self._path, f"the manifest's field {self._place}{name}: {reason}")

    def is_null(self, name: str) -> bool:
        """True if the field is null or missing."""
        return self._values.get(name) is None

    def fields(self, name: str) -> JsonFields:
        """Returns the object in a field."""
        value = self._values.get(name)
        if not isinstance(value, dict):
            raise self._not(name, "an object")
        return JsonFields(value, self._path, f"{self._place}{name}.")

    def names(self) -> list[str]:
        """Returns the names of the fields, in order."""
        return list(self._values)

    def items(self, name: str) -> list[JsonFields]:
        """Returns the objects in a list."""
        value = self._values.get(name)
        if not isinstance(value, list):
            raise self._not(name, "a list")
        for i, each in enumerate(value):
            if not isinstance(each, dict):
                raise self.wrong(f"{name}[{i}]", "it is not an object")
        return [JsonFields(each, self._path, f"{self._place}{name}[{i}].") for i, each in enumerate(value)]

    def lists(self, name: str) -> list[list[object]]:
        """Returns the lists in a list."""
        value = self._values.get(name)
        if not isinstance(value, list):
            raise self._not(name, "a list")
        for i, each in enumerate(value):
            if not isinstance(each, list):
                raise self.wrong(f"{name}[{i}]", "it is not a list")
        return value

    def text(self, name: str) -> str:
        """Returns the text in a field, which may have bytes of a path that are not UTF-8 (PEP 383)."""
        value = self._values.get(name)
        if not isinstance(value, str):
            raise self._not(name, "a text")
        if not value.isascii():
            try:
                value.encode("utf-8", "surrogateescape")
            except UnicodeEncodeError as error:  # JSON can escape what no file can have
                raise self.wrong(name, f"{json.dumps(value)[:40]} has a lone surrogate") from error
        return value

    def boolean(self, name: str) -> bool:
        """Returns the truth value in a field."""
        value = self._values.get(name)
        if not isinstance(value, bool):
            raise self._not(name, "true or false")
        return value

    def integer(self, name: str, least: int = 0, most: int = INT64_MAX) -> int:
        """Returns the integer in a field, which must be from `least` to `most`."""
        value = self._values.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._not(name, "an integer")
        if not least <= value <= most:
            raise self.wrong(name, f"{str(value)[:40]} is not between {least} and {most}")
        return value

    def decoded(self, name: str, text: str | None = None) -> bytes:
        """Decodes base64: the whole field, or `text`, a part of it."""
        try:
            return base64.b64decode(self.text(name) if text is None else text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise self.wrong(name, f"it is not base64 ({error})") from error

    def uuid(self, name: str) -> str:
        """Returns a UUID in Kafka's text form, without padding."""
        text = self.text(name)
        try:
            parse_uuid(text)
        except ValueError as error:
            raise self.wrong(name, str(error)) from error
        return text[:22]

    def _not(self, name: str, what: str) -> CorruptTierError:
        if name not in self._values:
            return self.wrong(name, "it is missing")
        shown = json.dumps(self._values[name])
        return self.wrong(name, f"{shown[:40]} is not {what}")
