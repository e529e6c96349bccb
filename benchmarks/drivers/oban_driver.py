"""Oban for Python under uvloop.

Settings: `limit` (of the queue), `connections` (the most in its pool), `chunk` (rows per bulk call, 1,000).
"""

from typing import Any

from oban import Oban, worker
from oban.schema import install

from drivers.common import RunLog, UvloopDriver, asked_to_stop, chunks, main

log: RunLog


@worker(queue="default")
class Noop:
    async def process(self, job: Any) -> None:
        log.record(job.args["n"])


class ObanDriver(UvloopDriver):
    async def _connect(self, **options: Any) -> Oban:
        self._pool = await Oban.create_pool(self.url, max_size=int(self.settings["connections"]))
        return Oban(pool=self._pool, **options)

    def setup(self) -> None:
        async def create() -> None:
            await self._connect()
            await install(self._pool)
            await self._pool.close()

        self.run(create())

    async def open(self) -> None:
        self._oban = await self._connect()
        await self._oban.start()

    async def close(self) -> None:
        await self._oban.stop()
        await self._pool.close()

    async def enqueue(self, number: int) -> None:
        await self._oban.enqueue(Noop.new({"n": number}))

    async def enqueue_many(self, numbers: range) -> None:
        for chunk in chunks(numbers, int(self.settings.get("chunk", "1000"))):
            await self._oban.enqueue_many([Noop.new({"n": number}) for number in chunk])

    def work(self) -> None:
        global log
        log = self.log
        self.run(self._work())

    async def _work(self) -> None:
        async with await self._connect(queues={"default": int(self.settings["limit"])}):
            await asked_to_stop()
        await self._pool.close()


if __name__ == "__main__":
    main(ObanDriver)
