"""duly itself, every default as it is.

Settings: `handler` (async or def), `task` (noop, or stranger: a task that no worker here knows).
"""

import signal

from drivers.common import Driver, RunLog, main
from duly import Duly

log: RunLog


async def noop(n: int) -> None:
    log.record(n)


def noop_in_thread(n: int) -> None:
    log.record(n)


def stranger(n: int) -> None:
    log.record(n)


class DulyDriver(Driver):
    def _app(self) -> Duly:
        global log
        log = self.log
        return Duly(self.url)

    def setup(self) -> None:
        self._app().migrate()

    async def open(self) -> None:
        jobs = self._app()
        if self.settings.get("task") == "stranger":
            self._task = jobs.task(stranger)
        elif self.settings.get("handler") == "def":
            self._task = jobs.task(noop_in_thread)
        else:
            self._task = jobs.task(noop)

    async def enqueue(self, number: int) -> None:
        self._task.enqueue(n=number)

    async def enqueue_many(self, numbers: range) -> None:
        self._task.enqueue_many([{"n": number} for number in numbers])

    def work(self) -> None:
        jobs = self._app()
        jobs.task(noop)
        jobs.task(noop_in_thread)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        with jobs.worker():
            signal.sigwait({signal.SIGTERM})


if __name__ == "__main__":
    main(DulyDriver)
