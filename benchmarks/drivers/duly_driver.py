"""duly itself, every default as it is.

Settings: `handler` (async or def), `task` (noop, or stranger: a task that no worker here knows), `slots`
(for `async def` handlers), `threads` (for `def` handlers), `priority`, `seconds`, `payload`.
"""

import time

from drivers.common import Driver, RunLog, main, until_asked_to_stop
from duly import Duly

log: RunLog
seconds: float


async def noop(n: int, padding: str = "") -> None:
    log.record(n)
    if seconds:
        from asyncio import sleep

        await sleep(seconds)


def noop_in_thread(n: int, padding: str = "") -> None:
    log.record(n)
    if seconds:
        time.sleep(seconds)


def stranger(n: int) -> None:
    log.record(n)


class DulyDriver(Driver):
    def _app(self) -> Duly:
        global log, seconds
        log, seconds = self.log, self.seconds
        self._more = {"padding": self.padding} if self.padding else {}
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
        if "priority" in self.settings:
            self._task = self._task.using(priority=int(self.settings["priority"]))

    async def enqueue(self, number: int) -> None:
        self._task.enqueue(n=number, **self._more)

    async def enqueue_many(self, numbers: range) -> None:
        self._task.enqueue_many([{"n": number, **self._more} for number in numbers])

    def work(self) -> None:
        jobs = self._app()
        jobs.task(noop)
        jobs.task(noop_in_thread)
        named = {"slots": "async_slots", "threads": "thread_slots"}
        slots = {slot: int(self.settings[name]) for name, slot in named.items() if name in self.settings}
        worker = jobs.worker(**slots)
        with until_asked_to_stop():
            worker.start()
        worker.stop()


if __name__ == "__main__":
    main(DulyDriver)
