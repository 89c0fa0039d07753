"""A log as a table: what keys and values mean, rows and columns, questions in SQL, files of other tools, Spark."""
