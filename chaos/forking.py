"""A process that forks while its connections are open, its worker runs and its threads enqueue.

    python -m chaos.forking URL LEDGER '{"forks": N, "seed": S}'

Says "ready", forks until it has done so often enough, waits for its children, says "done", and leaves when its
standard input ends.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
import traceback
import warnings
from pathlib import Path

from chaos.app import application
from chaos.ledger import Ledger
from duly import Duly

AT_ONCE = 4
"""How many children there are at a time."""
EACH = 6
"""How many times a child enqueues."""


def enqueue_some(jobs: Duly, ledger: Ledger, chance: random.Random) -> None:
    """Store some jobs, and look at one of them."""
    made = [jobs["work"].enqueue(), *jobs["awork"].enqueue_many([{}] * chance.randint(1, 5))]
    ledger.stored(job.id for job in made)
    made[0].refresh()


def in_child(jobs: Duly, ledger: Ledger, seed: int, how: str) -> None:
    """What a forked child does: enqueue, from several threads if it is a server, or run jobs too."""
    chance = random.Random(seed)

    def some() -> None:
        for _ in range(EACH):
            enqueue_some(jobs, ledger, chance)

    if how == "server":  # as a web server that has loaded the application before it forks
        threads = [threading.Thread(target=some) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    elif how == "worker":
        with jobs.worker(thread_slots=2, async_slots=2):
            some()
    else:
        some()
    if chance.random() < 0.5:
        jobs.close()


def forked(jobs: Duly, ledger: Ledger, seed: int, how: str, complaints: Path) -> int:
    """Fork by hand. Returns the child's process id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        in_child(jobs, ledger, seed, how)
    except BaseException:
        with complaints.open("a") as file:
            traceback.print_exc(file=file)
        os._exit(1)
    os._exit(0)


def main() -> None:
    """Fork again and again beside all that goes on."""
    url, path, text = sys.argv[1:4]
    options = json.loads(text)
    logging.basicConfig(level=logging.CRITICAL)
    warnings.simplefilter("ignore", DeprecationWarning)  # Python does not like forks beside threads
    chance = random.Random(options["seed"])
    ledger, complaints = Ledger(Path(path)), Path(path).with_name("complaints")
    jobs = application(url, ledger)
    over, context = threading.Event(), multiprocessing.get_context("fork")

    def go_on() -> None:
        mine = random.Random(options["seed"] + 1)
        while not over.is_set():
            try:
                enqueue_some(jobs, ledger, mine)
            except Exception:
                with complaints.open("a") as file:
                    traceback.print_exc(file=file)
            time.sleep(0.01)

    with jobs.worker(thread_slots=4, async_slots=4):
        enqueue_some(jobs, ledger, chance)
        threads = [threading.Thread(target=go_on) for _ in range(2)]
        for thread in threads:
            thread.start()
        print("ready", flush=True)
        children: list[int] = []
        for n in range(options["forks"]):
            seed, how = chance.randrange(1 << 30), chance.choice(("plain", "server", "worker", "library"))
            if how == "library":
                process = context.Process(target=in_child, args=(jobs, ledger, seed, "plain"))
                process.start()
                process.join()
                if process.exitcode:
                    complaints.open("a").write(f"a child of multiprocessing ended with {process.exitcode}\n")
                continue
            children.append(forked(jobs, ledger, seed, how, complaints))
            if n % 4 == 3 and how != "worker":  # a worker's runs would be cut short, which others look at
                time.sleep(chance.random() * 0.1)
                os.kill(children[-1], signal.SIGKILL)
            while len(children) >= AT_ONCE:
                os.waitpid(children.pop(0), 0)
        for child in children:
            os.waitpid(child, 0)
        over.set()
        for thread in threads:
            thread.join()
        print("done", flush=True)
        sys.stdin.read()
    jobs.close()


if __name__ == "__main__":
    main()
