"""Huey on Redis. Settings: `workers` (threads)."""

from huey import RedisHuey
from huey.api import Huey

from drivers.common import main
from drivers.huey_driver import HueyDriver


class HueyRedisDriver(HueyDriver):
    def _storage(self) -> Huey:
        return RedisHuey("bench", url=self.url, results=False)


if __name__ == "__main__":
    main(HueyRedisDriver)
