"""Producing a dead cluster's records into a living one, each once: `seglog replay`.

Offsets change on the way, so an offset map and translated committed offsets come with it. Where offsets must stay the
same, transplanting the partition's directory is the other way.
"""
