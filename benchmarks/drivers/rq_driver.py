"""RQ with its SimpleWorker, which runs jobs in its own process.

Settings: `chunk` (rows per bulk call, 1,000).
"""

from redis import Redis
from rq import Queue, SimpleWorker

from drivers.common import Driver, RunLog, chunks, main

log: RunLog


def noop(n: int) -> None:
    log.record(n)


class RqDriver(Driver):
    async def open(self) -> None:
        self._queue = Queue(connection=Redis.from_url(self.url))

    async def enqueue(self, number: int) -> None:
        self._queue.enqueue(noop, number)

    async def enqueue_many(self, numbers: range) -> None:
        for chunk in chunks(numbers, int(self.settings.get("chunk", "1000"))):
            self._queue.enqueue_many([Queue.prepare_data(noop, [number]) for number in chunk])

    def work(self) -> None:
        global log
        log = self.log
        connection = Redis.from_url(self.url)
        SimpleWorker([Queue(connection=connection)], connection=connection).work(logging_level="ERROR")


if __name__ == "__main__":
    from drivers import rq_driver  # jobs name their function by its module, which must not be __main__

    main(rq_driver.RqDriver)
