"""DBOS: one workflow without steps per job, from a queue.

Settings: `concurrency` (workflows at once in a worker; unlimited by default), `polling` (seconds between
looks, 1 by default).
"""

from typing import Any

from dbos import DBOS, DBOSClient, DBOSConfig

from drivers.common import Driver, RunLog, main, until_asked_to_stop

QUEUE = "default"
VERSION = "1"


class DbosDriver(Driver):
    def __init__(self, url: str, log: RunLog, settings: dict[str, str]) -> None:
        super().__init__(url, log, settings)
        record = log.record

        @DBOS.workflow(name="noop")
        def noop(n: int) -> None:
            record(n)

    def setup(self) -> None:
        self._launch()
        DBOS.destroy()

    def _launch(self) -> None:
        DBOS(
            config=DBOSConfig(
                name="bench", system_database_url=self.url, application_version=VERSION, log_level="WARNING"
            )
        )
        DBOS.launch()
        options: dict[str, Any] = {}
        if "concurrency" in self.settings:
            options["worker_concurrency"] = int(self.settings["concurrency"])
        if "polling" in self.settings:
            options["polling_interval_sec"] = float(self.settings["polling"])
        DBOS.register_queue(QUEUE, **options)

    async def open(self) -> None:
        self._client = DBOSClient(system_database_url=self.url, application_name="bench")

    async def close(self) -> None:
        self._client.destroy()

    async def enqueue(self, number: int) -> None:
        self._client.enqueue({"workflow_name": "noop", "queue_name": QUEUE, "app_version": VERSION}, number)

    def work(self) -> None:
        with until_asked_to_stop():
            self._launch()
        DBOS.destroy(workflow_completion_timeout_sec=5)


if __name__ == "__main__":
    main(DbosDriver)
