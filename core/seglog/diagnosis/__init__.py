"""Looking without owning: dump, verify, repair, statistics."""
