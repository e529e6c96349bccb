"""Dramatiq on Redis, one process without the supervisor of its command line. Settings: `threads`."""

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from drivers.common import Driver, RunLog, main, until_asked_to_stop


class DramatiqDriver(Driver):
    def __init__(self, url: str, log: RunLog, settings: dict[str, str]) -> None:
        super().__init__(url, log, settings)
        self._broker = RedisBroker(url=url)
        record = log.record

        @dramatiq.actor(broker=self._broker, max_retries=0)
        def noop(n: int) -> None:
            record(n)

        self._task = noop

    async def enqueue(self, number: int) -> None:
        self._task.send(number)

    def work(self) -> None:
        worker = dramatiq.Worker(self._broker, worker_threads=int(self.settings["threads"]))
        with until_asked_to_stop():
            worker.start()
        worker.stop()


if __name__ == "__main__":
    main(DramatiqDriver)
