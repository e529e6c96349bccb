"""taskiq on a Redis stream under uvloop, one process without the supervisor of its command line.

Settings: `read` (messages per read), `concurrency` (tasks at once).
"""

import asyncio

from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker

from drivers.common import RunLog, UvloopDriver, asked_to_stop, main


class TaskiqDriver(UvloopDriver):
    def __init__(self, url: str, log: RunLog, settings: dict[str, str]) -> None:
        super().__init__(url, log, settings)
        self._broker = RedisStreamBroker(url, xread_count=int(settings["read"]))
        record = log.record

        @self._broker.task(task_name="noop")
        async def noop(n: int) -> None:
            record(n)

        self._task = noop

    async def open(self) -> None:
        await self._broker.startup()

    async def close(self) -> None:
        await self._broker.shutdown()

    async def enqueue(self, number: int) -> None:
        await self._task.kiq(number)

    def work(self) -> None:
        self.run(self._work())

    async def _work(self) -> None:
        concurrency = int(self.settings["concurrency"])
        receiver = asyncio.create_task(
            run_receiver_task(self._broker, max_async_tasks=concurrency, run_startup=True)
        )
        await asked_to_stop()
        receiver.cancel()
        await asyncio.gather(receiver, return_exceptions=True)
        await self.close()


if __name__ == "__main__":
    main(TaskiqDriver)
