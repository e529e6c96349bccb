"""A feed reader whose feeds are fetched by recurring jobs, one per feed. Start reading in `subscriptions.py`."""
