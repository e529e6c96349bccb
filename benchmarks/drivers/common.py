"""What every driver shares: the job body, the producer loops and the command line.

A driver runs in its library's own virtual environment, one role per process (`python -m drivers.NAME ROLE`),
and answers with one line of JSON. Only a little of the standard library is imported here, because the memory
of an idle worker is one of the things measured.
"""

import argparse
import binascii
import json
import os
import signal
import struct
import time
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

RECORD = struct.Struct("<iid")
"""One entry of the run log, 16 bytes: job number, worker number, CLOCK_MONOTONIC when the handler started."""


TICK = 0.01
"""Seconds between the calls of a producer that keeps up a load."""


class RunLog:
    """The body of every job: one O_APPEND write, from which runs, repeats and misses are counted."""

    def __init__(self, path: str, worker: int = 0) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._worker = worker

    def record(self, number: int) -> None:
        os.write(self._file, RECORD.pack(number, self._worker, time.monotonic()))


class Driver:
    """What the harness asks of a library. As it stands it suits synchronous ones; see also `AsyncDriver`.

    Producers are coroutines so that the measuring loops below exist once. Those of a synchronous library
    never wait, and then no event loop is involved.

    Two settings mean the same wherever a driver knows them: `seconds` (how long a handler then sleeps) and
    `payload` (bytes of text that each job carries).
    """

    def __init__(self, url: str, log: RunLog, settings: Mapping[str, str]) -> None:
        self.url = url
        self.log = log
        self.settings = settings
        self.seconds = float(settings.get("seconds", "0"))
        self.padding = random_text(int(settings.get("payload", "0")))

    def setup(self) -> None:
        """Create the library's tables in an empty database."""

    async def open(self) -> None:
        """Connect the producer."""

    async def close(self) -> None:
        """Disconnect the producer."""

    async def enqueue(self, number: int) -> None:
        raise NotImplementedError

    async def enqueue_many(self, numbers: range) -> None:
        """Enqueue through the library's bulk call, if it has one."""
        for number in numbers:
            await self.enqueue(number)

    def work(self) -> None:
        """Be one worker process until SIGTERM, then finish what has started."""
        raise NotImplementedError

    async def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def run(self, producer: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine that never waits."""
        try:
            producer.send(None)
        except StopIteration as stop:
            return stop.value
        raise RuntimeError("a synchronous producer waited")


class AsyncDriver(Driver):
    """The same for libraries with an asynchronous producer."""

    async def pause(self, seconds: float) -> None:
        import asyncio

        await asyncio.sleep(seconds)

    def run(self, producer: Coroutine[Any, Any, Any]) -> Any:
        import asyncio

        return asyncio.run(producer)


class UvloopDriver(AsyncDriver):
    """The same under uvloop, for libraries that are faster with it."""

    def run(self, producer: Coroutine[Any, Any, Any]) -> Any:
        import uvloop

        return uvloop.run(producer)


async def asked_to_stop() -> None:
    """Wait for SIGTERM, in an asynchronous worker."""
    import asyncio

    asked = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked.set)
    await asked.wait()


@contextmanager
def until_asked_to_stop() -> Iterator[None]:
    """Do what is inside, then wait for SIGTERM; threads that are started inside never see the signal."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    yield
    signal.sigwait({signal.SIGTERM})


def random_text(size: int) -> str:
    """Text that no database can compress."""
    return binascii.b2a_base64(os.urandom(size), newline=False).decode()[:size]


def chunks(numbers: range, size: int) -> Iterator[range]:
    return (numbers[start : start + size] for start in range(0, len(numbers), size))


async def fill(driver: Driver, count: int, first: int) -> dict[str, float]:
    """Enqueue `count` jobs, the first by itself to warm up the connection, the others in bulk and timed."""
    await driver.open()
    await driver.enqueue(first)
    started = time.monotonic()
    if count > 1:
        await driver.enqueue_many(range(first + 1, first + count))
    seconds = time.monotonic() - started
    await driver.close()
    return {"seconds": seconds}


async def bulk(driver: Driver, count: int) -> dict[str, float]:
    """Time a bulk enqueue after one single enqueue has warmed up the connection."""
    await driver.open()
    await driver.enqueue(count)
    started = time.monotonic()
    await driver.enqueue_many(range(count))
    seconds = time.monotonic() - started
    await driver.close()
    return {"seconds": seconds}


async def one_by_one(driver: Driver, count: int, first: int, interval: float) -> dict[str, list[list[float]]]:
    """Enqueue single jobs at a steady pace; note when each call was made and when it returned."""
    await driver.open()
    calls: list[list[float]] = []
    due = time.monotonic()
    for number in range(first, first + count):
        await driver.pause(max(0.0, due - time.monotonic()))
        called_at = time.monotonic()
        await driver.enqueue(number)
        calls.append([called_at, time.monotonic()])
        due += interval
    await driver.close()
    return {"calls": calls}


async def steady(driver: Driver, count: int, first: int, rate: float) -> dict[str, list[list[float]]]:
    """Enqueue `rate` jobs a second, every `TICK` what is due; note how many, when called and returned.

    The first goes by itself, to warm up the connection, and is not among them.
    """
    await driver.open()
    await driver.enqueue(first)
    calls: list[list[float]] = []
    sent = 1
    started = wake_at = time.monotonic()
    while sent < count:
        due = min(count, 1 + max(sent, int((time.monotonic() - started) * rate)))
        called_at = time.monotonic()
        await driver.enqueue_many(range(first + sent, first + due))
        calls.append([due - sent, called_at, time.monotonic()])
        sent = due
        wake_at += TICK
        await driver.pause(max(0.0, wake_at - time.monotonic()))
    await driver.close()
    return {"calls": calls}


async def mixed(driver: Driver, count: int, first: int) -> dict[str, list[list[float]]]:
    """Enqueue as fast as the calls return, of a hundred jobs ten singly.

    Notes of each call its first number, how many, when called and when returned.
    """
    await driver.open()
    calls: list[list[float]] = []
    for hundred in chunks(range(first, first + count), 100):
        for numbers in (*(hundred[place : place + 1] for place in range(len(hundred))[:10]), hundred[10:]):
            if numbers:
                called_at = time.monotonic()
                if len(numbers) == 1:
                    await driver.enqueue(numbers[0])
                else:
                    await driver.enqueue_many(numbers)
                calls.append([numbers[0], len(numbers), called_at, time.monotonic()])
    await driver.close()
    return {"calls": calls}


def main(driver_class: type[Driver]) -> None:
    parser = argparse.ArgumentParser(description="One role of one library in one process.")
    parser.add_argument("role", choices=["setup", "fill", "bulk", "one-by-one", "steady", "mixed", "work"])
    parser.add_argument("--url", required=True)
    parser.add_argument("--log", required=True, help="the run log that handlers append to")
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the first job's number")
    parser.add_argument("--interval", type=float, default=0.0, help="seconds between single enqueues")
    parser.add_argument("--rate", type=float, default=1.0, help="jobs a second under a steady load")
    parser.add_argument("--worker", type=int, default=0, help="which of several worker processes this is")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", dest="settings")
    options = parser.parse_args()
    settings = dict(setting.split("=", 1) for setting in options.settings)
    driver = driver_class(options.url, RunLog(options.log, options.worker), settings)

    answer: Any = None
    match options.role:
        case "setup":
            driver.setup()
        case "work":
            driver.work()
        case "fill":
            answer = driver.run(fill(driver, options.count, options.first))
        case "bulk":
            answer = driver.run(bulk(driver, options.count))
        case "steady":
            answer = driver.run(steady(driver, options.count, options.first, options.rate))
        case "mixed":
            answer = driver.run(mixed(driver, options.count, options.first))
        case _:
            answer = driver.run(one_by_one(driver, options.count, options.first, options.interval))
    print(json.dumps(answer), flush=True)
