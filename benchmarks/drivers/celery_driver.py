"""Celery on Redis, results ignored.

Settings: `pool` (solo or prefork), `children` (of prefork), `prefetch` (messages per child).
"""

from celery import Celery

from drivers.common import Driver, RunLog, main


class CeleryDriver(Driver):
    def __init__(self, url: str, log: RunLog, settings: dict[str, str]) -> None:
        super().__init__(url, log, settings)
        self._app = Celery("bench", broker=url)
        self._app.conf.update(
            task_ignore_result=True,
            broker_connection_retry_on_startup=True,
            worker_prefetch_multiplier=int(settings["prefetch"]),
        )
        record = log.record

        @self._app.task(name="noop")
        def noop(n: int) -> None:
            record(n)

        self._task = noop

    async def enqueue(self, number: int) -> None:
        self._task.delay(number)

    def work(self) -> None:
        pool = [f"--pool={self.settings['pool']}", f"--concurrency={self.settings.get('children', '1')}"]
        quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=ERROR"]
        self._app.worker_main(["worker", *pool, *quiet])


if __name__ == "__main__":
    main(CeleryDriver)
