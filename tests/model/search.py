"""Search for steps after which a store is not what the model says: the same in the suite, others each time by hand.

    PYTHONPATH=src python -m tests.model.search sqlite:////tmp/model.db postgresql://... --minutes 30

Of several databases each must do the same as the others. What is found is printed as the shortest such story, with the
seed that finds it again.
"""

from __future__ import annotations

import argparse
import logging
import random
import time
from contextlib import ExitStack, closing

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.databases import prepare
from tests.model.machine import Machine
from tests.store.raw import Raw


def run(*raws: Raw, examples: int, steps: int, seed: int = 0) -> None:
    """Try sequences of steps: for one seed always the same ones."""
    machine = hypothesis.seed(seed)(type("Machine", (Machine,), {"raws": raws}))
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            phases=(Phase.generate, Phase.shrink),
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


def main() -> None:
    """Search until the time is over or something is found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("urls", nargs="+", metavar="URL", help="empty databases")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--steps", type=int, default=60, help="how long a story is")
    parser.add_argument("--seed", type=int, help="where to begin; each round takes the next")
    options = parser.parse_args()
    logging.basicConfig(level=logging.CRITICAL)
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    until = time.monotonic() + 60 * options.minutes
    with ExitStack() as stack:
        for url in options.urls:
            prepare(url)
        raws = [stack.enter_context(closing(Raw(url))) for url in options.urls]
        while time.monotonic() < until:
            print(f"seed {seed}", flush=True)
            run(*raws, examples=20, steps=options.steps, seed=seed)
            seed += 1


if __name__ == "__main__":
    main()
