"""Produces a dead cluster's records into a living one, each once: `seglog replay`.

Offsets change on the way, so a replay can write an offset map and translate committed offsets. If offsets must stay the
same, transplant the partition's directory instead.
"""
