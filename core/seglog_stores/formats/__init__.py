"""What tiers, committed logs and snapshots are described by: bytes to values, and back."""
