"""PgQueuer on one asyncpg connection under uvloop.

Settings: `batch` (rows per claim, its default is 10), `chunk` (rows per bulk call, 1,000).
"""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from drivers.common import AsyncDriver, chunks, main


class PgQueuerDriver(AsyncDriver):
    def run(self, producer: Coroutine[Any, Any, Any]) -> Any:
        return uvloop.run(producer)

    def setup(self) -> None:
        async def install() -> None:
            await self.open()
            await self._queries.install()
            await self.close()

        uvloop.run(install())

    async def open(self) -> None:
        self._connection = await asyncpg.connect(self.url)
        self._queries = Queries(AsyncpgDriver(self._connection))

    async def close(self) -> None:
        await self._connection.close()

    async def enqueue(self, number: int) -> None:
        await self._queries.enqueue("noop", str(number).encode())

    async def enqueue_many(self, numbers: range) -> None:
        for chunk in chunks(numbers, int(self.settings.get("chunk", "1000"))):
            payloads: list[bytes | None] = [str(number).encode() for number in chunk]
            await self._queries.enqueue(["noop"] * len(chunk), payloads, [0] * len(chunk))

    def work(self) -> None:
        uvloop.run(self._work())

    async def _work(self) -> None:
        queuer = PgQueuer(AsyncpgDriver(await asyncpg.connect(self.url)))
        record = self.log.record

        @queuer.entrypoint("noop")
        async def noop(job: Job) -> None:
            record(int(job.payload or b""))

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, queuer.shutdown.set)
        if "batch" in self.settings:
            await queuer.run(batch_size=int(self.settings["batch"]))
        else:
            await queuer.run()


if __name__ == "__main__":
    main(PgQueuerDriver)
