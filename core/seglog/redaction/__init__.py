"""Erasing named records from logs: which ones, how batches are rewritten, and the proof afterwards."""
