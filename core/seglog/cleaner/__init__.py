"""Log compaction: which records survive, and the crash-safe rewrite."""
