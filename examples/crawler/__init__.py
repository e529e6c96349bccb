"""A polite web crawler with an admin API and a dashboard. Start reading in `crawl.py`."""
