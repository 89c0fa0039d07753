"""Partitions in tiered storage (KIP-405), shown as partition directories."""
