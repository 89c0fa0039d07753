"""Exports records to other formats: JSON lines, CSV, Parquet."""
