"""The completions of a repository: runs that end in the transactions of their own handlers."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING

from duly.domain.records import Claimed, Settled
from duly.store import ops_complete, ops_keys
from duly.store.call import Call, Op, rows_of
from duly.store.database import Database
from duly.store.ops_complete import Looked, Next, Pairs
from duly.store.ops_keys import Freed

if TYPE_CHECKING:
    from duly.store.ops_mirrors import Hooks

__all__ = ["Completions", "Looked", "Next"]


class Completions:
    """What completing needs of the database. Safe to use from any thread."""

    def __init__(self, database: Database, hooks: Hooks) -> None:
        self.database = database
        self._hooks = hooks
        self._shards: list[int] = []
        self._lock = threading.Lock()

    def take_shard(self) -> int:
        """A shard of the counts that no other open transaction uses: it would wait for ours to end."""
        with self._lock:
            return self._shards.pop() if self._shards else random.randrange(1, 2**31)

    def give_shard(self, shard: int) -> None:
        """The transaction has ended."""
        with self._lock:
            self._shards.append(shard)

    def check(self, job: Claimed) -> Op[None]:
        """Raise if a run has lost its job or was asked to stop: for the handler's connection."""
        return ops_complete.check_held(job)

    def is_held(self, job: Claimed) -> bool:
        """Whether a run has its job, as our own connection sees it."""
        return bool(self.database.read(lambda: rows_of(Call("run_held", {"id": job.id, "token": job.token}))))

    def complete(self, job: Claimed, settled: Settled, *, shard: int) -> Op[Next]:
        """End a run as succeeded, or raise: for the handler's connection."""
        from duly.store.ops_recurring import Recurring

        recurring = Recurring(self.database.dialect, self._hooks)
        return ops_complete.complete(recurring, job, settled, shard=shard)

    def look(self, pairs: Pairs) -> Looked:
        """See what became of runs, by (id, token), whose handlers have ended."""
        dialect = self.database.dialect
        recorded, running = self.database.read(lambda: ops_complete.look(dialect, pairs))
        rest = [pair for pair in pairs if pair[0] not in recorded]
        if not rest:
            return Looked(recorded, set(), set())
        undone = {pair[0] for pair in rest if pair[0] not in running}  # gone: others have dealt with it
        doubtful = [pair for pair in rest if pair[0] in running]
        if doubtful:  # on SQLite, only who may write knows that nobody else is about to
            undone |= self.database.write(lambda: ops_complete.let_go(dialect, doubtful))
        return Looked(recorded, undone, {pair[0] for pair in rest if pair[0] not in undone})

    def let_in(self, freed: Freed) -> None:
        """The runs of some keys have ended: count them for their breakers, and let the next jobs in."""
        self.database.write(lambda: ops_keys.freeing(self.database.dialect, freed, _nothing()))

    def keep_log(self, job_id: str, token: int, log: str) -> None:
        """Keep the lines that a run wrote after it was completed, too."""
        call = Call("set_run_log", {"id": job_id, "token": token, "log": log})
        self.database.write(lambda: rows_of(call), atomic=False)


def _nothing() -> Op[None]:
    yield from ()
