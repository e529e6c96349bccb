"""Runs jobs: claims them, executes them, renews their leases, settles what became of them."""
