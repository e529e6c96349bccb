"""`current_job().completing(connection)`: the job ends in the transaction of its handler, or not at all.

At the start of the block: does the connection lead to our database, and is the run still ours? On SQLite the write lock
is taken, so that what the block reads still holds when it writes. At its end the run is settled by the same connection,
fenced by its token. Who commits is the caller; whether that happened is found out by looking (`afterwards`).
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING

from duly.domain.clock import to_us
from duly.domain.durations import micros
from duly.domain.errors import Conflict, DulyError, InvalidOption, JobCancelled, StaleRun
from duly.domain.json import encode_result
from duly.domain.records import HOLD, Settled
from duly.store import foreign
from duly.store.call import Op
from duly.store.completions import Completions, Next
from duly.store.foreign import Around
from duly.store.foreign_kinds import name_of

if TYPE_CHECKING:
    from duly.worker.context import Run


@dataclass(slots=True)
class Completion:
    """How a run was completed, once the statements for it have gone through; true only if they are committed."""

    completions: Completions
    settled: Settled
    shard: int
    following: Next = field(default_factory=Next)
    committed: bool = False
    """Whether that is known already."""


def completion_elsewhere(run: Run) -> Completion | None:
    """What the worker knows of a run that its child process is about to complete."""
    if run.definition.home is None:
        return None
    settled = Settled(run.job.id, run.job.token, "succeeded", "succeeded", ran_us=run.ran_us(time.monotonic_ns()))
    return Completion(run.definition.home().store.completions, settled, 0)


class Completing:
    """The block in which a handler completes its own job. Set `result` to what the handler would return."""

    def __init__(self, run: Run, connection: object) -> None:
        if run.definition.home is None:
            raise DulyError(
                f"task {run.task} cannot complete its jobs here: only its function was found in this process, not the "
                "Duly that it belongs to. Declare the task at the top level of a module, beside its Duly"
            )
        self.result: object = None
        self._run = run
        self._connection = connection
        self._home = run.definition.home()
        self._completions = self._home.store.completions
        self._database = self._home.store.database
        self._around = Around.TRANSACTION

    # -- the block ------------------------------------------------------------------------------------------------

    def __enter__(self) -> Completing:
        if foreign.is_async(self._connection):
            raise InvalidOption(
                f"completing() was given an asynchronous {name_of(self._connection)}: "
                "write `async with current_job().completing(connection)`"
            )
        self._around = foreign.begin_on(self._connection, database=self._database)
        try:
            foreign.run_on(self._connection, self._check, database=self._database, bare=True)
        except BaseException as error:
            self._roll_back()
            self._explain(error)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self._roll_back()
            return
        try:
            completion = self._begin()
            completion.following = foreign.run_on(
                self._connection, self._complete, database=self._database, bare=self._is_plain
            )
        except BaseException as refused:
            self._take_back()
            self._roll_back()
            self._explain(refused)
            raise
        if self._around is Around.AUTOCOMMIT:
            foreign.end_on(self._connection, "COMMIT")
            completion.committed = True

    async def __aenter__(self) -> Completing:
        self._around = await foreign.abegin_on(self._connection, database=self._database)
        try:
            await foreign.arun_on(self._connection, self._check, database=self._database, bare=True)
        except BaseException as error:
            await self._aroll_back()
            self._explain(error)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            await self._aroll_back()
            return
        try:
            completion = self._begin()
            completion.following = await foreign.arun_on(
                self._connection, self._complete, database=self._database, bare=self._is_plain
            )
        except BaseException as refused:
            self._take_back()
            await self._aroll_back()
            self._explain(refused)
            raise
        if self._around is Around.AUTOCOMMIT:
            await foreign.aend_on(self._connection, "COMMIT")
            completion.committed = True

    def _roll_back(self) -> None:
        """End what we have opened. What was open before is the caller's to end."""
        if self._around is not Around.TRANSACTION:
            with suppress(Exception):  # the connection is gone, and the transaction with it
                foreign.end_on(self._connection, "ROLLBACK")

    async def _aroll_back(self) -> None:
        if self._around is not Around.TRANSACTION:
            with suppress(Exception):
                await foreign.aend_on(self._connection, "ROLLBACK")

    # -- what is done there ---------------------------------------------------------------------------------------

    @property
    def _is_plain(self) -> bool:
        """Whether one statement ends the run: no key, no limit of a key, no next time."""
        return self._run.job.hold in (HOLD["none"], HOLD["window"]) and self._run.job.limit_key is None

    def _check(self) -> Op[None]:
        return self._completions.check(self._run.job)

    def _complete(self) -> Op[Next]:
        completion = self._run.completion
        assert completion is not None
        return self._completions.complete(self._run.job, completion.settled, shard=completion.shard)

    def _begin(self) -> Completion:
        """From here on it may be on record that the run has succeeded, whatever comes back."""
        self._take_back()
        completion = Completion(self._completions, self._settled(), self._completions.take_shard())
        self._run.completion = completion
        self._run.announce_completion()
        return completion

    def _take_back(self) -> None:
        """The transaction of an earlier block was rolled back, or this one cannot go on."""
        completion, self._run.completion = self._run.completion, None
        if completion is not None:
            self._completions.give_shard(completion.shard)

    def _settled(self) -> Settled:
        run, value, again_at, result = self._run, self.result, None, None
        if run.job.hold == HOLD["recurs"] and isinstance(value, (timedelta, datetime)):
            again_at, value = self._again_at(value), None
        if value is not None:
            value = run.definition.signature.dump_result(value)
            result = encode_result(value, max_bytes=self._home.max_result).text
        ran_us = 0 if self._database.clock.manual else run.ran_us(time.monotonic_ns())
        return Settled(
            run.job.id,
            run.job.token,
            "succeeded",
            "succeeded",
            ran_us=ran_us,
            result=result,
            log=run.log_text(),
            again_at=again_at,
        )

    def _again_at(self, value: timedelta | datetime) -> int:
        """When a recurring job shall run next, as `result` says."""
        if isinstance(value, datetime):
            return to_us(value, "the next run in completion.result")
        if value < timedelta(0):
            raise InvalidOption(f"completion.result is {value}, the time until the next run, and that is negative")
        return self._home.store.now_us() + micros(value)

    def _explain(self, error: BaseException) -> None:
        """Have the worker know why this run ends; raise something clearer where the words would not fit."""
        if isinstance(error, JobCancelled) and self._run.cancel_reason is None:
            self._run.cancel_reason = error.reason
        if not isinstance(error, StaleRun):
            return
        if self._run.completion is not None:
            job = f"job {self._run.id} ({self._run.task})"
            raise Conflict(f"{job} was completed before in this run, and that was committed: once is enough") from error
        if self._completions.is_held(self._run.job):
            raise InvalidOption(
                f"connection= does not see job {self._run.id}, which this run holds: it leads to another database than "
                "the one that the jobs are in, or its transaction began before the job was claimed. "
                "Pass a connection to the jobs' database, in a new transaction"
            ) from error
