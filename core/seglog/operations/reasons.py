"""`Reason`: a sentence of an explanation with a code, and the sentences on the releases of Kafka that it speaks of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from seglog.configuration.writers import IN_ZOOKEEPER, Releases
from seglog.kafka_version import KafkaVersion


class Reason(str):
    """A sentence with a stable `code`; its wording may change."""

    __slots__ = ("code",)
    code: str

    def __new__(cls, code: str, text: str) -> Self:
        made = super().__new__(cls, text)
        made.code = code
        return made

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return self.code, str(self)


def releases(release: KafkaVersion, writer: Releases | None) -> Iterator[Reason]:
    """Yields whose broker is spoken of, and who wrote the log directory."""
    yield Reason("SPOKEN_FOR", f"this speaks of a broker of Kafka {release}")
    if writer is not None:
        yield Reason("WRITTEN_BY", writer.sentence)
        if writer.zookeeper:
            yield Reason("TOPICS_IN_ZOOKEEPER", IN_ZOOKEEPER)
