"""The records of a piece: its batches past damage, what is missing among them, what a consumer sees."""
