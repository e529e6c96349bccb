"""The gates of a repository: what is paused, how much may run, start and wait, and how tenants share a queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from duly.domain.errors import DatabaseError
from duly.domain.limits import Gate, Limit, Says
from duly.store import ops_gates, ops_keys, ops_limits
from duly.store.call import Call, Op, rows_of
from duly.store.database import Database, Hint

if TYPE_CHECKING:
    from duly.domain.audit import Actor
    from duly.domain.records import Pause


class Gates:
    """What can be done with gates. Safe to use from any thread."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # -- pauses -----------------------------------------------------------------------------------------------

    def pause(
        self,
        scope: str,
        name: str,
        *,
        by: str | None,
        reason: str | None,
        until: int | None,
        for_us: int | None,
        actor: Actor | None = None,
    ) -> None:
        """Close a gate: from now on no claim takes a job of that queue, task, tenant or key."""

        def op() -> Op[None]:
            if scope == "key":
                return ops_keys.pause(
                    self._database.dialect, name, by=by, reason=reason, until=until, for_us=for_us, actor=actor
                )
            return ops_gates.pause(scope, name, by=by, reason=reason, until=until, for_us=for_us, actor=actor)

        self._database.write(op)
        if until is not None or for_us is not None:
            self._database.poke(Hint("due"))

    def resume(self, scope: str, name: str, *, actor: Actor | None = None) -> bool:
        """Open a gate. Returns whether it was closed."""
        was = self._database.write(
            lambda: ops_keys.resume(name, actor=actor) if scope == "key" else ops_gates.resume(scope, name, actor=actor)
        )
        self._database.poke(Hint("look"))
        return was

    def paused(self) -> list[Pause]:
        """What is paused at this moment."""
        return self._database.read(ops_gates.paused) + self._database.read(ops_keys.paused)

    def reopen(self) -> bool:
        """Open the gates whose time is over. Returns whether there were any."""
        if not self._database.read(lambda: rows_of(Call("any_pause_over"))):
            return False
        return self._database.write(ops_gates.reopen)

    # -- shares -----------------------------------------------------------------------------------------------

    def weights(self) -> dict[str, float]:
        """How much of a shared queue tenants may have; those not named have 1."""
        return self._database.read(ops_gates.weights)

    def set_weight(self, tenant: str, weight: float, *, actor: Actor | None = None) -> None:
        """Say how much of a shared queue a tenant may have."""
        self._database.write(lambda: ops_gates.set_weight(tenant, weight, actor=actor))
        self._database.poke(Hint("gates"))

    def unfair_queues(self) -> set[str]:
        """The queues in which tenants do not take turns."""
        return self._database.read(ops_gates.unfair_queues)

    def set_fair(self, queue: str, fair: bool, *, actor: Actor | None = None) -> None:
        """Say whether tenants take turns in a queue."""
        self._database.write(lambda: ops_gates.set_fair(queue, fair, actor=actor))
        self._database.poke(Hint("gates"))

    # -- limits -----------------------------------------------------------------------------------------------

    def limits(self) -> list[Limit]:
        """Everything that is limited: how many may run, start or wait."""
        return self._database.read(ops_limits.limits)

    def special_keys(self, n: int = 1_000) -> list[Limit]:
        """Keys that have a word of their own, are blocked, or whose breaker is not closed."""
        return self._database.read(lambda: ops_limits.special_keys(n))

    def set_limit(self, scope: str, name: str, says: Says, *, actor: Actor | None = None) -> Says:
        """State a limit by hand: it holds whatever the code declares. Returns what was said before."""

        def op() -> Op[Says]:
            before = yield from ops_limits.set_by_hand(scope, name, says, actor=actor)
            if scope == "keys" and says.rate_n is not None:
                yield from ops_limits.meter_keys(name)
            return before

        before = self._database.write(op)
        self.stamp()
        self._database.poke(Hint("gates"))
        return before

    def block(self, scope: str, name: str, for_us: int, reason: str) -> None:
        """Keep a gate or a key closed for a while because what is behind it asked for it."""
        self._database.write(
            lambda: (
                ops_keys.block(self._database.dialect, name, for_us, reason)
                if scope == "key"
                else ops_gates.block(scope, name, for_us, reason)
            )
        )
        self._database.poke(Hint("due"))

    def unset_limit(self, scope: str, name: str, *, actor: Actor | None = None) -> Says:
        """Take back what was said by hand: what the code declares holds again. Returns what is said now."""
        says = self._database.write(lambda: ops_limits.unset(scope, name, actor=actor))
        self._database.poke(Hint("gates"))
        return says

    def set_quota(self, tenant: str, said: Mapping[str, Says], *, actor: Actor | None = None) -> None:
        """State what a tenant may have: by scope, what each of its gates says."""

        def op() -> Op[None]:
            for scope, says in sorted(said.items()):
                if scope == "tenant":  # its rate is not part of the quota
                    before = (yield from ops_limits.read(scope, tenant))[0]
                    says = says._replace(rate_n=before.rate_n, rate_us=before.rate_us, burst=before.burst)
                yield from ops_limits.set_by_hand(scope, tenant, says, actor=actor)

        self._database.write(op)
        self.stamp()
        self._database.poke(Hint("gates"))

    def declare(self, wanted: Iterable[tuple[Gate, Says]], groups: Mapping[str, str] | None = None) -> None:
        """Make true what the code says of its tasks, unless somebody said otherwise by hand.

        `groups`: whose keys the jobs of each task have.
        """
        wanted = sorted(wanted)  # one order for all processes: no deadlock
        if not wanted:
            return
        changed = self._database.write(lambda: ops_limits.declare(wanted, groups or {}))
        for scope, name in changed:
            if scope == "keys":
                self.rearrange(name)
        self.stamp()
        if changed:
            self._database.poke(Hint("gates"))

    def meter_keys(self, group: str, tasks: Iterable[str]) -> None:
        """Have claims of these tasks take what starts off the rates of the keys of a group."""
        self._database.write(lambda: ops_limits.meter_keys(group, tasks))

    def stamp(self) -> int:
        """Mark the runs under limits that are new, unless a claim is under way for long. Returns how many limits."""
        if not self._database.read(lambda: rows_of(Call("unstamped"))):
            return 0
        try:
            return self._database.write(lambda: ops_limits.stamp(self._database.dialect), again=False)
        except DatabaseError:
            return 0  # until it can be done, runs are counted by what they are: slower, and as exact

    # -- keys -------------------------------------------------------------------------------------------------

    def admit(self, n: int = 1_000) -> ops_keys.Lanes:
        """Let in jobs with keys that have just come or whose keys open, where there is room. Returns their lanes."""
        if not self._database.read(lambda: rows_of(Call("any_arrived"))):
            return []
        dialect = self._database.dialect
        moved = self._database.write(lambda: ops_keys.arrive(dialect, n))
        return moved + self._database.write(lambda: ops_keys.reopen(dialect))

    def sweep(self, after: str) -> str:
        """See whether the next keys that jobs wait for have room. Returns where to go on, '' for the first."""
        if not self._database.read(lambda: rows_of(Call("any_parked_by_key"))):
            return ""
        return self._database.write(lambda: ops_keys.sweep(self._database.dialect, after))

    def set_key_limit(self, key: str, says: Says, *, actor: Actor | None = None) -> None:
        """State what holds for one key, whatever its group says; nothing: its group's word holds again."""

        def op() -> Op[None]:
            if says.rate_n is not None:
                yield from ops_limits.meter_keys(ops_keys.group_of(key))
            yield from ops_keys.set_limit(self._database.dialect, key, says, actor=actor)

        self._database.write(op)
        self._database.poke(Hint("gates"))

    def rearrange(self, group: str) -> None:
        """What a group of keys says has changed: let its jobs in anew."""
        after: str | None = group
        while after is not None:
            after = self._database.write(
                lambda after=after: ops_keys.rearrange(self._database.dialect, group, after)  # type: ignore[misc]
            )
        self._database.poke(Hint("look"))  # jobs that came in stand in lanes that nobody knows of

    def refund(self, unstarted: Sequence[tuple[Sequence[Gate], str | None]]) -> None:
        """Give rates back what was taken for runs that did not start: the gates of each, and its key.

        Not repeated after a lost connection: given back twice, more would start than the rate allows.
        """
        gates = Counter(gate for some, _ in unstarted for gate in some)
        keys = Counter(key for _, key in unstarted if key is not None)
        self._database.write(lambda: ops_limits.refund(gates, keys), again=False)

    def opens_in_us(self, gates: Sequence[Gate]) -> int | None:
        """Microseconds until the rates of these gates let one start; None if it is not a rate that they wait for."""
        return self._database.read(lambda: ops_limits.opens_in(gates))
