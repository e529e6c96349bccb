"""awa: its Rust engine behind a Python handler, under uvloop.

Settings: `slots` (how many handlers at once), `chunk` (rows per bulk call, 1,000).
"""

from dataclasses import dataclass
from typing import Any

from awa import AsyncClient

from drivers.common import UvloopDriver, asked_to_stop, chunks, main

QUEUE = "default"


@dataclass
class Noop:
    number: int


class AwaDriver(UvloopDriver):
    def setup(self) -> None:
        async def install() -> None:
            await self.open()
            await self._client.migrate()
            await self._client.install_queue_storage()
            await self.close()

        self.run(install())

    async def open(self) -> None:
        self._client = AsyncClient(self.url)

    async def close(self) -> None:
        await self._client.close()

    async def enqueue(self, number: int) -> None:
        await self._client.insert(Noop(number), queue=QUEUE)

    async def enqueue_many(self, numbers: range) -> None:
        for chunk in chunks(numbers, int(self.settings.get("chunk", "1000"))):
            await self._client.enqueue_many_copy([Noop(number) for number in chunk], queue=QUEUE)

    def work(self) -> None:
        self.run(self._work())

    async def _work(self) -> None:
        client = AsyncClient(self.url)
        record = self.log.record

        @client.task(Noop, queue=QUEUE)
        async def noop(job: Any) -> None:
            record(job.args.number)

        await client.start([(QUEUE, int(self.settings.get("slots", "128")))])
        await asked_to_stop()
        await client.shutdown()


if __name__ == "__main__":
    main(AwaDriver)
