"""Procrastinate on its psycopg connector.

Settings: `concurrency` (its default is 1), `connections` (the most in its pool), `seconds`, `payload`.
"""

import asyncio

import procrastinate

from drivers.common import AsyncDriver, RunLog, chunks, main


class ProcrastinateDriver(AsyncDriver):
    def __init__(self, url: str, log: RunLog, settings: dict[str, str]) -> None:
        super().__init__(url, log, settings)
        pool = {"max_size": int(settings["connections"])} if "connections" in settings else {}
        self._app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url, **pool))
        self._more = {"padding": self.padding} if self.padding else {}
        record, seconds = log.record, self.seconds

        @self._app.task(name="noop")
        async def noop(n: int, padding: str = "") -> None:
            record(n)
            if seconds:
                await asyncio.sleep(seconds)

        self._task = noop

    def setup(self) -> None:
        async def apply() -> None:
            async with self._app.open_async():
                await self._app.schema_manager.apply_schema_async()

        asyncio.run(apply())

    async def open(self) -> None:
        await self._app.open_async()

    async def close(self) -> None:
        await self._app.close_async()

    async def enqueue(self, number: int) -> None:
        await self._task.defer_async(n=number, **self._more)

    async def enqueue_many(self, numbers: range) -> None:
        for chunk in chunks(numbers, 1000):
            await self._task.batch_defer_async(*[{"n": number, **self._more} for number in chunk])

    def work(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        async with self._app.open_async():
            if "concurrency" in self.settings:
                await self._app.run_worker_async(concurrency=int(self.settings["concurrency"]))
            else:
                await self._app.run_worker_async()


if __name__ == "__main__":
    main(ProcrastinateDriver)
