"""Duties that any worker may do at any time: rescue, prune, add up. No leader; each step is guarded by itself."""
