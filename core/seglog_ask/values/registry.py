"""Asks a running schema registry over HTTP: Confluent's REST API, which Apicurio and Karapace speak too.

Each schema is asked for once. A registry that does not answer ends the work; one that does not have a schema is a
reason why values are not decoded.
"""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urlsplit, urlunsplit
from urllib.request import Request, urlopen
from uuid import UUID

from seglog.errors import ConfigError
from seglog_ask.values.schemas import AVRO, MOST_SCHEMA_BYTES, NotDecodedError, Schema, SchemaId
from seglog_ask.values.schemas_topic import reference_of

SECONDS = 10
MOST_VERSIONS = 100  # of a subject, that are asked for together

_MOST_MISSING = 1000  # ids that a registry is asked for in vain: broken values name many
_NOT_FOUND = 404


class Registry:
    """A source of schemas at an http or https URL, which may have USER:PASSWORD@ before the host."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"{parts.scheme}:… is not the URL of a schema registry")
        host = parts.netloc.rpartition("@")[2]
        self.where = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if parts.username is not None:
            words = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(words.encode()).decode()}"
        self._answers: dict[str, Any] = {}
        self._missing = 0

    def by_id(self, number: SchemaId, subject: str = "") -> Schema:  # noqa: ARG002  of other sources, which may have two
        """Returns the schema with this id or GUID; a registry has one."""
        kind = "guids" if isinstance(number, UUID) else "ids"
        fields = self._asked(f"/schemas/{kind}/{number}")
        if not isinstance(fields, dict):
            raise NotDecodedError(f"schema id {number} is not in {self.where}")
        return self._schema(fields, number)

    def latest(self, subject: str) -> Schema:
        """Returns the newest version of a subject."""
        return self._of_subject(subject, "latest")

    def version(self, subject: str, version: int) -> Schema:
        """Returns a version of a subject, also a deleted one."""
        return self._of_subject(subject, f"{version}?deleted=true")

    def versions(self, subject: str) -> list[Schema]:
        """Returns all versions of a subject, also deleted ones; the newest MOST_VERSIONS if there are more."""
        numbers = self._asked(f"/subjects/{quote(subject, safe='')}/versions?deleted=true")
        known = sorted(one for one in numbers if isinstance(one, int)) if isinstance(numbers, list) else []
        return [self.version(subject, one) for one in known[-MOST_VERSIONS:]]

    def related(self, subject: str) -> list[Schema]:
        """Returns the versions of a subject: a registry does not give all of its schemas at once."""
        return self.versions(subject)

    def _of_subject(self, subject: str, version: str) -> Schema:
        fields = self._asked(f"/subjects/{quote(subject, safe='')}/versions/{version}")
        if not isinstance(fields, dict):
            raise NotDecodedError(f"subject {subject} is not in {self.where}")
        number = fields.get("id")
        return self._schema(fields, number if isinstance(number, int) else None)

    def _schema(self, fields: dict[str, Any], number: SchemaId | None) -> Schema:
        text, kind, version = fields.get("schema"), fields.get("schemaType") or AVRO, fields.get("version")
        try:
            references = tuple(reference_of(one) for one in fields.get("references") or ())
        except (TypeError, ValueError) as error:
            raise NotDecodedError(f"{self.where} answers with {error}") from error
        if not isinstance(text, str) or not isinstance(kind, str):
            raise NotDecodedError(f"{self.where} answers without a schema")
        subject = fields.get("subject")
        return Schema(
            kind,
            text,
            number,
            subject if isinstance(subject, str) else "",
            version if isinstance(version, int) else None,
            references,
        )

    def _asked(self, path: str) -> Any:
        """Returns the answer, an object or a list; None if there is no such thing.

        Raises OSError if the registry does not answer.
        """
        if path not in self._answers:
            if self._missing >= _MOST_MISSING:
                raise NotDecodedError(f"{self.where} did not have {_MOST_MISSING} schemas, and is not asked again")
            self._answers[path] = self._fetched(path)
            self._missing += self._answers[path] is None
        return self._answers[path]

    def _fetched(self, path: str) -> Any:
        try:
            with urlopen(Request(self.where + path, headers=self._headers), timeout=SECONDS) as answer:
                data = answer.read(4 * MOST_SCHEMA_BYTES + 1)
        except HTTPError as error:
            with error:
                if error.code == _NOT_FOUND:
                    return None
                raise OSError(f"the schema registry at {self.where} answers {error.code} {error.reason}") from error
        except URLError as error:
            raise OSError(f"the schema registry at {self.where} does not answer: {error.reason}") from error
        if len(data) > 4 * MOST_SCHEMA_BYTES:
            raise NotDecodedError(f"{self.where} answers with more than {4 * MOST_SCHEMA_BYTES} bytes")
        try:
            found = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise NotDecodedError(f"{self.where} answers with what is not JSON") from error
        return found if isinstance(found, dict | list) else None
