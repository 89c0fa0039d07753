"""The conversion of a log to other codecs and formats. Its sources are only read."""

from __future__ import annotations

from typing import Literal, Unpack

from seglog.api.calling import public
from seglog.format.filenames import parse_topic_partition
from seglog.model import Compression, member
from seglog.operations.convert import Converted, ConvertOptions, convert_to, convertible
from seglog.operations.workspace import (
    Location,
    ReadArguments,
    local_path,
    looked_at,
    settings_of,
)
from seglog.storage import links


@public
def convert(
    partition: Location,
    output: Location,
    *,
    magic: Literal[0, 1, 2] = 2,
    codec: Compression | str | None = None,
    **common: Unpack[ReadArguments],
) -> Converted:
    """Rewrites a partition in another record format or codec into the new partition directory `output`.

    Offsets and timestamps stay, and the source is only read. `magic` is the record format, 0, 1 or 2. `codec` is none,
    gzip, snappy, lz4 or zstd; None keeps each batch's codec. Raises CorruptRecordError for damage, UnsupportedError for
    data that the format cannot hold, RefusedError if `output` holds something.

    >>> import tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with seglog.open_log(directory + "/t-0", create=True) as log:
    ...         info = log.append([seglog.Record(b"value" * 100, timestamp=1000)])
    ...     done = seglog.convert(directory + "/t-0", directory + "/packed-0", codec="zstd")
    ...     done.batches_written, done.bytes_written < done.bytes_read
    (1, True)
    """
    if isinstance(magic, bool) or magic not in (0, 1, 2):
        raise ValueError(f"magic: {magic!r} is not 0, 1 or 2")
    options = ConvertOptions(magic, None if codec is None else member(Compression, codec, "codec"))
    target = links.resolve(local_path("output", output))
    work, (source,) = looked_at(common, [partition])
    if parse_topic_partition(target.name) is None:
        raise ValueError(f"output: {target.name} is not of the form topic-partition")
    listing = convertible(work.fs, source)
    settings = settings_of(work, target.parent)
    return convert_to(work.fs, work.clock, listing, target, options, settings)[0]
