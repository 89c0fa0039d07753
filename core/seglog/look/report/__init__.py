"""A report on log directories: where the bytes are, what grows, what is cleaned, deleted, or needs a hand."""
