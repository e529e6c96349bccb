"""Looks, after a handler has ended, whether the transaction in which it completed its job was committed.

Only the handler's own connection was told, and a commit whose reply was lost was told to nobody; so we look. Committed:
the run is over, whatever the handler raised afterwards. Rolled back: it is as if it had not been completed. Still open:
look again; until it ends, its row is locked, and nobody else can take the job.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from duly.domain.errors import DulyError
from duly.domain.records import Settled

if TYPE_CHECKING:
    from duly.store.completions import Completions
    from duly.worker.completing import Completion
    from duly.worker.context import Run

log = logging.getLogger("duly.worker")

SOON, LATER = 0.01, 1.0
"""How soon to look again at a transaction that is still open, first and at last."""
SAY_AFTER = 5.0
IDLE = 3_600.0


@dataclass(slots=True, eq=False)
class _Ended:
    """A run whose handler has ended after it had completed the job."""

    run: Run
    completion: Completion
    error: BaseException | None
    otherwise: Callable[[], None]
    ended_ns: int
    said: bool = False


class Afterwards:
    """Takes runs from any thread. `wake` has somebody call `step`: by default whoever hands a run in, at once."""

    def __init__(self, recorded: Callable[[Run, Settled, int], None]) -> None:
        self._recorded = recorded
        self._new: deque[_Ended] = deque()
        self._pending: list[_Ended] = []
        self._pause = SOON
        self.wake: Callable[[], None] = self._finish

    def take(self, run: Run, error: BaseException | None, otherwise: Callable[[], None], value: object = None) -> None:
        """A handler has ended. `otherwise`: what to do if its transaction was not committed after all."""
        completion = run.completion
        assert completion is not None
        if value is not None and completion.settled.result is None and completion.settled.again_at is None:
            log.warning(
                "job %s (%s): what its handler returned is not kept, as the job was completed before. "
                "Set completion.result in the block instead",
                run.job.id,
                run.job.task,
            )
        self._new.append(_Ended(run, completion, error, otherwise, time.monotonic_ns()))
        self.wake()

    @property
    def idle(self) -> bool:
        """Whether what became of all is known."""
        return not self._new and not self._pending

    def _finish(self) -> None:
        while not self.idle:
            time.sleep(self.step())

    def step(self) -> float:
        """Look at all that have ended. Returns how long to wait before the next look."""
        while self._new:
            self._pending.append(self._new.popleft())
            self._pause = SOON
        if not self._pending:
            return IDLE
        by_place: dict[int, list[_Ended]] = {}
        for each in self._pending:
            by_place.setdefault(id(each.completion.completions), []).append(each)
        for some in by_place.values():
            self._look(some[0].completion.completions, some)
        if self._new or not self._pending:
            return 0.0
        self._pause = min(LATER, self._pause * 2)
        return self._pause

    def _look(self, completions: Completions, some: list[_Ended]) -> None:
        unknown = [each for each in some if not each.completion.committed]
        looked = completions.look([(each.run.job.id, each.run.job.token) for each in unknown]) if unknown else None
        for each in some:
            job_id = each.run.job.id
            if looked is None or each.completion.committed or job_id in looked.recorded:
                self._over(each)
                self._keep(completions, each)
            elif job_id in looked.undone:
                self._over(each)
                each.run.completion = None
                each.otherwise()
            else:
                self._say_open(each)

    def _over(self, each: _Ended) -> None:
        self._pending.remove(each)
        if each.completion.shard:
            each.completion.completions.give_shard(each.completion.shard)

    def _keep(self, completions: Completions, each: _Ended) -> None:
        """It is on record. Add what it logged since; say what its handler raised, which changes nothing."""
        run, settled = each.run, each.completion.settled
        if each.error is not None:
            log.warning(
                "job %s (%s) had been completed, and is not run again; its handler then raised %s: %s",
                run.job.id,
                run.job.task,
                type(each.error).__name__,
                each.error,
                exc_info=each.error,
            )
        lines = run.log_text()
        if lines is not None and lines != settled.log:
            try:
                completions.keep_log(run.job.id, run.job.token, lines)
            except DulyError as error:
                log.warning("job %s: the rest of its log could not be kept: %s", run.job.id, error)
        self._recorded(run, settled, each.ended_ns)

    def _say_open(self, each: _Ended) -> None:
        if not each.said and time.monotonic_ns() - each.ended_ns > SAY_AFTER * 1e9:
            each.said = True
            log.warning(
                "job %s (%s): its handler has ended, but the transaction in which it completed the job is still open. "
                "Commit it, or close its connection",
                each.run.job.id,
                each.run.job.task,
            )
