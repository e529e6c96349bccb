"""Whether a worker lives and is ready: `/healthz` and `/readyz`, for whoever starts, stops and watches processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from duly.domain.errors import DulyError
from duly.store import migrate
from duly.store.store import Store

ANSWER_SECONDS = 2.0
"""How long the database may take to answer."""
SCHEMA_EVERY = 30.0


class Watched(Protocol):
    """What is asked of a worker."""

    @property
    def state(self) -> str:
        """new, running, draining or stopped."""
        ...

    def stuck(self) -> list[str]:
        """Which of its threads do not turn."""
        ...


class Health(NamedTuple):
    """An answer: whether all is well, and each thing that was looked at in words."""

    ok: bool
    checks: dict[str, str]

    def as_dict(self) -> dict[str, object]:
        """As plain values."""
        return {"ok": self.ok, "checks": self.checks}


def alive(worker: Watched) -> Health:
    """Whether the process should go on. Not whether the database does: a restart mends no outage."""
    stuck = worker.stuck()
    return Health(not stuck, {"threads": f"do not turn: {', '.join(stuck)}" if stuck else "turn"})


class Readiness:
    """Whether a worker takes jobs: started, not stopping, and its database answers and fits."""

    def __init__(self, store: Store, worker: Watched, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._worker = worker
        self._clock = clock
        self._schema_until = float("-inf")
        self._asking = threading.Lock()
        self._answer = "no answer yet"

    def look(self) -> Health:
        """Look at everything, within some seconds."""
        state = self._worker.state
        checks = {"worker": {"running": "runs", "new": "has not started"}.get(state, f"is {state}")}
        checks["database"] = self._ask()
        return Health(state == "running" and checks["database"] == "answers", checks)

    def _ask(self) -> str:
        """Ask on another thread: a database that hangs must not hang those who ask about it."""
        if not self._asking.acquire(timeout=ANSWER_SECONDS):
            return f"has not answered for {ANSWER_SECONDS:g} s"
        thread = threading.Thread(target=self._ask_and_release, name="duly-readyz", daemon=True)
        thread.start()
        thread.join(ANSWER_SECONDS)
        return f"has not answered for {ANSWER_SECONDS:g} s" if thread.is_alive() else self._answer

    def _ask_and_release(self) -> None:
        try:
            self._store.now_us()
            if self._clock() >= self._schema_until:
                self._check_schema()
                self._schema_until = self._clock() + SCHEMA_EVERY
            self._answer = "answers"
        except DulyError as error:
            self._answer = str(error)
        except Exception as error:
            self._answer = f"{type(error).__name__}: {error}"
        finally:
            self._asking.release()

    def _check_schema(self) -> None:
        database = self._store.database
        migrate.check_version(database.schema_version(), self._store.dialect, "the database")
