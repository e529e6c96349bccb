"""Measures duly on a user's own database, in a place of its own (`duly.store.scratch`). Decision 0026.

`measure.py` goes through the parts, `runlog.py` is what handlers write, `worker.py` the worker process.
"""
