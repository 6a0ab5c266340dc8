"""State: what changed since the last good sync. No I/O."""
