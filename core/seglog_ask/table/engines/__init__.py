"""A table for each who asks: Arrow's datasets and their filters, Spark's views, DuckDB's answers, files, appends."""
