"""The outside world: files, locks, throttles."""
