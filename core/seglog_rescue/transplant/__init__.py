"""Moves partitions of a dead cluster into the log directory of another cluster's stopped broker."""
