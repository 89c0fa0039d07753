"""What keys and values mean: the frames around them, the schemas of a registry, and the formats that these describe.

A value is decoded by what its writer said of it, and by nothing else: one that does not decode is shown as the bytes
that it is, with the reason. Every schema and every value may be hostile, so each format has limits of its own.
"""
