"""Bytes to values and back. Pure: no files, no clocks."""
