"""What a read asks for, which partitions and segments there are, and the pieces that are read."""
