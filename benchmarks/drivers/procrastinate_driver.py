"""Procrastinate on its psycopg connector. Settings: `concurrency` (its default is 1)."""

import asyncio

import procrastinate

from drivers.common import AsyncDriver, RunLog, main


class ProcrastinateDriver(AsyncDriver):
    def __init__(self, url: str, log: RunLog, settings: dict[str, str]) -> None:
        super().__init__(url, log, settings)
        self._app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url))
        record = log.record

        @self._app.task(name="noop")
        async def noop(n: int) -> None:
            record(n)

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
        await self._task.defer_async(n=number)

    async def enqueue_many(self, numbers: range) -> None:
        await self._task.batch_defer_async(*[{"n": number} for number in numbers])

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
