"""Everything that a log directory holds, as rows and rendered lines."""
