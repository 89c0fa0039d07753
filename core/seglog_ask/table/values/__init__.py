"""Records as Arrow columns, and keys and values as the columns that their schemas make of them."""
