"""A cluster's lost metadata, made anew from its log directories and what can still be read of it."""
