"""A podcast importer whose slow work is done by jobs inside the web server's process. Start reading in `app.py`."""
