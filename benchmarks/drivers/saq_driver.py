"""SAQ on PostgreSQL or Redis, as the address says, under uvloop. Settings: `concurrency`."""

from typing import Any

from saq import Queue, Worker

from drivers.common import UvloopDriver, main


class SaqDriver(UvloopDriver):
    def setup(self) -> None:
        async def create() -> None:
            await self.open()
            await self.close()

        self.run(create())

    async def open(self) -> None:
        self._queue = Queue.from_url(self.url)
        await self._queue.connect()

    async def close(self) -> None:
        await self._queue.disconnect()

    async def enqueue(self, number: int) -> None:
        await self._queue.enqueue("noop", n=number)

    def work(self) -> None:
        self.run(self._work())

    async def _work(self) -> None:
        record = self.log.record

        async def noop(_context: Any, *, n: int) -> None:
            record(n)

        await self.open()
        concurrency = int(self.settings["concurrency"])
        await Worker(self._queue, functions=[("noop", noop)], concurrency=concurrency).start()


if __name__ == "__main__":
    main(SaqDriver)
