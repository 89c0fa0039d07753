"""Logs that lie elsewhere: object stores, partitions in tiered storage, logs committed below a prefix."""
