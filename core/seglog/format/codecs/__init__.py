"""The codecs, a module each, named as `model.Compression` names it. Its `CODEC` says how payloads are written and read.

In addition to a piece, an expansion holds: gzip 32 KiB; LZ4 a block (at most 4 MiB) and its expansion; snappy a block,
which writers make of 32 KiB, or a whole payload without framing; zstd its window, at most 128 MiB and no more than it
has written.
"""
