"""What applications need to test their jobs: a clock to move, `drain`, assertions, a database of the test's own.

    def test_welcome(duly_jobs, duly_drain):
        sign_up("ada@example.org")
        assert_enqueued(duly_jobs, send_welcome, args={"email": "ada@example.org"})
        assert duly_drain().succeeded == 1

There is no fake: jobs go through the same tables, claims, retries and arguments as in production, on a temporary
SQLite file. The fixtures are in `duly.testing.plugin`, which pytest finds by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duly.testing.asserts import assert_enqueued, assert_not_enqueued, enqueued
    from duly.testing.clock import TestClock
    from duly.testing.drained import Drained, DrainedRun
    from duly.testing.draining import adrain, drain
    from duly.testing.isolation import isolated
else:
    from duly._lazy import importer

    __getattr__ = importer(
        __name__,
        {
            "duly.testing.asserts": ("assert_enqueued", "assert_not_enqueued", "enqueued"),
            "duly.testing.clock": ("TestClock",),
            "duly.testing.draining": ("adrain", "drain"),
            "duly.testing.drained": ("Drained", "DrainedRun"),
            "duly.testing.isolation": ("isolated",),
        },
    )

__all__ = [
    "Drained",
    "DrainedRun",
    "TestClock",
    "adrain",
    "assert_enqueued",
    "assert_not_enqueued",
    "drain",
    "enqueued",
    "isolated",
]


def __dir__() -> list[str]:
    return __all__
