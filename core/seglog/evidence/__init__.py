"""Evidence about logs, from their own files and from the files around them."""
