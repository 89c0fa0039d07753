"""Records in other formats: JSON lines, CSV, Parquet."""
