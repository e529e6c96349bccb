"""Huey in a SQLite file: WAL and synchronous FULL, its defaults. Settings: `workers` (threads)."""

import logging

from huey import SqliteHuey
from huey.api import Huey

from drivers.common import Driver, RunLog, main


class HueyDriver(Driver):
    def __init__(self, url: str, log: RunLog, settings: dict[str, str]) -> None:
        super().__init__(url, log, settings)
        self._huey = self._storage()
        record = log.record

        @self._huey.task()
        def noop(n: int) -> None:
            record(n)

        self._task = noop

    def _storage(self) -> Huey:
        path = self.url.removeprefix("sqlite:///")
        return SqliteHuey("bench", filename=path, results=False, journal_mode="wal", fsync=True)

    async def enqueue(self, number: int) -> None:
        self._task(number)

    def work(self) -> None:
        logging.getLogger("huey").setLevel(logging.ERROR)
        workers = int(self.settings.get("workers", "1"))
        consumer = self._huey.create_consumer(workers=workers, periodic=False, graceful_signal="TERM")
        consumer.run()


if __name__ == "__main__":
    main(HueyDriver)
