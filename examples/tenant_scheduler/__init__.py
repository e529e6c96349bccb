"""Scheduled functions of many tenants, shared by many processes. Start reading in `process.py`."""
