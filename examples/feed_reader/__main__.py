"""`python -m examples.feed_reader` shows the feed reader at work in half a minute; with a command, it is one.

python -m examples.feed_reader                       the show, on a temporary file or on $DULY_URL
python -m examples.feed_reader subscribe ada URL
python -m examples.feed_reader unsubscribe ada URL
python -m examples.feed_reader feeds

duly worker examples.feed_reader.tasks:jobs          fetches them
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path


def main(words: list[str]) -> int:
    """Do what the command line says."""
    match words:
        case []:
            show_on_a_database_of_its_own()
        case ["feeds"]:
            from . import database, show

            database.create_tables()
            show.print_feeds()
        case [("subscribe" | "unsubscribe") as verb, reader, url]:
            from . import database, show, subscriptions, web

            database.create_tables()
            try:
                if verb == "subscribe":
                    subscriptions.subscribe(reader, url)
                else:
                    subscriptions.unsubscribe(reader, url)
            except (LookupError, web.FeedError) as error:
                print(f"error: {error}", file=sys.stderr)
                return 1
            show.print_feeds()
        case _:
            print(__doc__.strip())
            return 2
    return 0


def show_on_a_database_of_its_own() -> None:
    """Run the show. What it is told by the environment must be there before the application is imported."""
    os.environ["FEED_READER_MINUTE"] = "0.5"
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("DULY_URL", f"sqlite:///{Path(folder, 'feeds.db')}")
        from . import show

        show.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
