"""Renders fetched records as lines of text or JSON, with the kernel of `dump`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from seglog.escaping import json_text
from seglog.format.columns import Records
from seglog.kernels import render
from seglog.look.dump.large_records import large_line
from seglog.look.dump.rendering import blocks

if TYPE_CHECKING:
    from seglog_ask.values.forms import TopicDecoder

_BLOCK_BYTES = 1 << 20
_NO_PREFIX = np.zeros(0, dtype=np.uint8)


def record_prefix(partition: str, as_json: bool) -> np.ndarray:
    """Returns the beginning of a record's line, before its offset; in JSON it names the partition."""
    if not as_json:
        return np.frombuffer(b"  offset=", dtype=np.uint8)
    names = json_text({"type": "record", "partition": partition})
    return np.frombuffer(f'{names[:-1]},"offset":'.encode(), dtype=np.uint8)


def render_records(
    records: Records, partition: str, *, as_json: bool, base64: bool = False, decoder: TopicDecoder | None = None
) -> Iterator[memoryview]:
    """Yields blocks with one line per record of `partition`: the lines of `dump --records` without the batches."""
    lines = partial(_lines, partition=partition, as_json=as_json, base64=base64)
    if decoder is None:
        return lines(records)
    from seglog.look.dump.shown_values import with_values

    return with_values(records, decoder, as_json=as_json, base64=base64, lines=lines)


def _lines(records: Records, partition: str, as_json: bool, base64: bool) -> Iterator[memoryview]:
    style, prefix = (render.JSON if as_json else render.TEXT), record_prefix(partition, as_json)
    flags = np.full(len(records.batches), render.SHOW_RECORDS | render.VALID, dtype=np.uint8)
    arguments = (style, base64, _NO_PREFIX, prefix, records.arena, records.batches, flags, records.rows)
    write, large = partial(render.render, *arguments), partial(large_line, *arguments)
    return blocks(len(records.batches), write, large, _memory, lambda _: None)


def _memory(least: int) -> np.ndarray:
    return np.empty(max(_BLOCK_BYTES, least), dtype=np.uint8)
