"""Operators at work beside the workers: whoever locks must lock in the order that all others do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from typing import Any

from chaos.arena import ROOT, Arena
from chaos.place import Place
from chaos.report import Report
from chaos.scenarios import Size, scenario
from chaos.scenarios.postgres import ONLY
from duly.domain.errors import DulyError

OPERATORS = 6
PATIENCE = 1_800.0


@scenario(
    "deadlocks",
    "many who cancel, retry, delete, reschedule, prune, pause, limit and enqueue at once, beside the workers",
    databases=ONLY,
    short=Size(1_000, 1_200),
    long=Size(20_000, 15_000),
)
def deadlocks(place: Place, size: Size, seed: int) -> Report:
    """Nobody ever waits in a circle."""
    with place.arena(seed=seed, size=size, settings={"retention_cancelled": "1s", "maintenance_interval": 1}) as arena:
        arena.start(3)
        arena.produce(backlog=300, chunk=50, tasks=("limited", "heed", "awork"))
        arena.flow()
        done = _operate(arena, size.faults // OPERATORS)
        arena.faults["verbs"] = done.total()
        if rare := [verb for verb in VERBS if not done[verb]]:
            arena.problems.append(f"nobody managed to {', '.join(rare)}")
        _tidy(arena)
        arena.settle()
        return arena.report("deadlocks", place.database, log=place.log, bites=False)


VERBS = ("enqueue_many", "cancel", "cancel_many", "retry", "delete", "delete_many", "reschedule", "set_priority",
         "prune", "pause", "limit", "recur", "enable", "disable", "run_now")  # fmt: skip


def _operate(arena: Arena, n: int) -> Counter[str]:
    """Have operators do `n` things each. Returns what they did."""
    people = [
        subprocess.Popen(
            [sys.executable, "-m", "chaos.operators", arena.url, str(arena.ledger.path), str(arena.seed + i), str(n)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for i in range(OPERATORS)
    ]
    done: Counter[str] = Counter()
    try:
        for person in people:
            answer, _ = person.communicate(timeout=PATIENCE)
            told: dict[str, Any] = (
                json.loads(answer) if answer else {"done": {}, "refused": {}, "error": f"exit {person.returncode}"}
            )
            done.update(told["done"])
            arena.faults["verbs refused"] += sum(told["refused"].values())
            if told["error"]:
                arena.problems.append(f"an operator met {told['error']}")
    finally:
        for person in people:
            person.kill()
            person.wait()
    return done


def _tidy(arena: Arena, within: float = 60.0) -> None:
    """Take pauses, limits and recurring jobs away, so that all can end."""
    deadline = time.monotonic() + within
    for gate in arena.app.paused():
        arena.app.resume(**{gate.scope: gate.name})
    arena.app.unset_limit(task="limited")
    arena.app.unset_limit(keys="keyed")
    while found := arena.app.recurring_jobs():
        for job in found:
            arena.ledger.write("delete", job.id, 0)
            try:
                job.delete()
            except DulyError:
                if time.monotonic() > deadline:
                    raise
