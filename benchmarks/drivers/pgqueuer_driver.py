"""PgQueuer on one asyncpg connection under uvloop.

Settings: `batch` (rows per claim, its default is 10), `chunk` (rows per bulk call, 1,000), `seconds`,
`payload`.
"""

import asyncio
import signal

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from drivers.common import UvloopDriver, chunks, main


class PgQueuerDriver(UvloopDriver):
    def setup(self) -> None:
        async def install() -> None:
            await self.open()
            await self._queries.install()
            await self.close()

        self.run(install())

    async def open(self) -> None:
        self._connection = await asyncpg.connect(self.url)
        self._queries = Queries(AsyncpgDriver(self._connection))

    async def close(self) -> None:
        await self._connection.close()

    def _payload(self, number: int) -> bytes:
        return f"{number} {self.padding}".encode()

    async def enqueue(self, number: int) -> None:
        await self._queries.enqueue("noop", self._payload(number))

    async def enqueue_many(self, numbers: range) -> None:
        for chunk in chunks(numbers, int(self.settings.get("chunk", "1000"))):
            payloads: list[bytes | None] = [self._payload(number) for number in chunk]
            await self._queries.enqueue(["noop"] * len(chunk), payloads, [0] * len(chunk))

    def work(self) -> None:
        self.run(self._work())

    async def _work(self) -> None:
        queuer = PgQueuer(AsyncpgDriver(await asyncpg.connect(self.url)))
        record, seconds = self.log.record, self.seconds

        @queuer.entrypoint("noop")
        async def noop(job: Job) -> None:
            record(int((job.payload or b"").partition(b" ")[0]))
            if seconds:
                await asyncio.sleep(seconds)

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, queuer.shutdown.set)
        if "batch" in self.settings:
            await queuer.run(batch_size=int(self.settings["batch"]))
        else:
            await queuer.run()


if __name__ == "__main__":
    main(PgQueuerDriver)
