"""Limits: what each gate says, and how many may start through it now.

On PostgreSQL the function `gate_room` locks the gates and then counts, within the claim's one statement. On SQLite the
write lock is ours before the claim begins, and the reckoning is done here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from duly.domain.audit import Actor
from duly.domain.limits import BITS, Gate, Limit, Rate, Says
from duly.store.call import Call, Dialect, Op, Row
from duly.store.ops_audit import keep


def limits() -> Op[list[Limit]]:
    """Everything that is limited."""
    return [limit_of(row) for row in (yield Call("limits"))]


def special_keys(n: int) -> Op[list[Limit]]:
    """Keys that have a word of their own, are blocked, or whose breaker is not closed."""
    return [limit_of(row) for row in (yield Call("special_keys", {"n": n}))]


def limit_of(row: Row) -> Limit:
    """A row of the `limits` statement."""
    by_hand, stamped = bool(row[10]), bool(row[11])  # SQLite has them as 0 and 1
    return Limit(str(row[0]), str(row[1]), _says(row[2:10]), by_hand, stamped, *row[12:])  # type: ignore[arg-type]


def _says(row: Sequence[object]) -> Says:
    says = Says._make(row)
    return says._replace(refuses=bool(says.refuses), meters_keys=bool(says.meters_keys))


def read(scope: str, name: str) -> Op[tuple[Says, bool, str | None]]:
    """Hold a gate. Returns what it says, whether by hand, and what the code declared."""
    rows = yield Call("lock_gate", {"scope": scope, "name": name})
    if not rows:
        return Says(), False, None
    return _says(rows[0][:8]), bool(rows[0][8]), None if rows[0][9] is None else str(rows[0][9])


def write(scope: str, name: str, says: Says, *, by_hand: bool, declared: str | None) -> Op[None]:
    """State what a gate says."""
    params = {"scope": scope, "name": name, **says._asdict(), "by_hand": by_hand, "declared": declared}
    yield Call("write_gate", params)
    if says.nothing and declared is None:
        yield Call("forget_gate", params)


def set_by_hand(scope: str, name: str, says: Says, *, actor: Actor | None) -> Op[Says]:
    """State a limit by hand: it holds whatever the code declares. Returns what the gate said before."""
    before, _, declared = yield from read(scope, name)
    says = says._replace(meters_keys=before.meters_keys, breaker=says.breaker or before.breaker)
    yield from write(scope, name, says, by_hand=True, declared=declared)
    yield from _keep(actor, "set_limit", scope, name, before, says)
    return before


def unset(scope: str, name: str, *, actor: Actor | None) -> Op[Says]:
    """Take back what was said by hand: what the code declares holds again. Returns what the gate says now."""
    before, _, declared = yield from read(scope, name)
    says = Says() if declared is None else _says(json.loads(declared))
    says = says._replace(meters_keys=says.meters_keys or before.meters_keys)  # some key has a rate by hand
    yield from write(scope, name, says, by_hand=False, declared=declared)
    yield from _keep(actor, "unset_limit", scope, name, before, says)
    return says


def declare(wanted: Iterable[tuple[Gate, Says]], groups: Mapping[str, str]) -> Op[list[Gate]]:
    """Make true what the code says of its tasks, unless somebody said otherwise by hand.

    `groups`: whose keys the jobs of each task have. Returns the gates of which something else is said now.
    """
    known = {(str(row[0]), str(row[1])) for row in (yield Call("declared_gates"))}
    metered = {str(row[0]) for row in (yield Call("metered_groups"))}
    changed: list[Gate] = []
    for (scope, name), says in wanted:
        meters = says.meters_keys or (groups.get(name) if scope == "task" else name) in metered
        if says.nothing and not meters and (scope, name) not in known:
            continue
        before, by_hand, declared = yield from read(scope, name)
        text = None if says.nothing else json.dumps(says)
        kept = (before if by_hand else says)._replace(meters_keys=meters)
        if text == declared and before == kept:
            continue
        yield from write(scope, name, kept, by_hand=by_hand, declared=text)
        if before != kept:
            changed.append((scope, name))
    return changed


def meter_keys(group: str, tasks: Iterable[str] = ()) -> Op[None]:
    """Claims of these tasks, and of the one that the group is named after, take what starts off the rates of keys."""
    yield Call("meter_keys", {"scope": "keys", "name": group})
    for task in sorted({group, *tasks}):
        yield Call("meter_keys", {"scope": "task", "name": task})


def _keep(actor: Actor | None, action: str, scope: str, name: str, before: Says, after: Says) -> Op[None]:
    if actor is not None and before != after:
        yield from keep(actor, action, subject=f"{scope} {name}", before=_plain(before), after=_plain(after))


def _plain(says: Says) -> dict[str, object]:
    return {name: value for name, value in says._asdict().items() if value not in (None, False)}


def stamp(dialect: Dialect) -> Op[int]:
    """Mark the runs under limits that are new, so that they are found by their marks. Returns how many limits.

    A claim that began before a limit was made leaves runs without the mark. On PostgreSQL such claims are waited for, a
    little: if it takes longer, runs are counted by what they are until the next time.
    """
    if dialect is Dialect.POSTGRES:
        yield Call("wait_little")
        yield Call("bar_claims")
    rows = yield Call("unstamped")
    for scope, name, limited_at in rows:
        params = {"scope": str(scope), "name": str(name)}
        yield Call("stamp_running", params | {"bit": BITS[str(scope)]})
        yield Call("stamped", params | {"limited_at": int(str(limited_at))})
    return len(rows)


def opens_in(gates: Sequence[Gate]) -> Op[int | None]:
    """Microseconds until the rates of these gates let one start; None if they do now."""
    latest: int | None = None
    for scope, name in gates:
        for row in (yield Call("gate_rate", {"scope": scope, "name": name})):
            rate_n, rate_us, burst, spent_until, used, now = (None if v is None else int(str(v)) for v in row)
            rate = Rate(rate_n or 1, rate_us or 1, burst)
            wait = rate.opens_at(spent_until or 0, used or 0, now or 0) - (now or 0)
            if wait > 0:
                latest = wait if latest is None else max(latest, wait)
    return latest


def refund(gates: Mapping[Gate, int], keys: Mapping[str, int]) -> Op[None]:
    """Give rates back what was taken for runs that did not start."""
    for (scope, name), n in sorted(gates.items()):
        yield Call("refund_rate", {"scope": scope, "name": name, "n": n})
    for key, n in sorted(keys.items()):
        yield Call("refund_key", {"key": key, "n": n})


# -- in a claim -----------------------------------------------------------------------------------------------


def bits(gates: Iterable[Gate]) -> int:
    """The marks of runs that count under these gates."""
    return sum(BITS.get(scope, 0) for scope, _ in gates)


def room(gates: Iterable[Gate], most: int, ended: Sequence[tuple[str, int]]) -> Op[tuple[int, list[Gate]]]:
    """How many may start through all of these gates now, and which of them have rates. SQLite.

    `ended`: runs of which the caller knows that they have ended.
    """
    rated: list[Gate] = []
    pairs = json.dumps(ended)
    for scope, name in gates:
        rows = yield Call("gate_now", {"scope": scope, "name": name, "ended": pairs})
        if not rows:
            continue
        slots, rate_n, rate_us, burst, spent_until, used, now, live, meters_keys = (
            None if value is None else int(str(value)) for value in rows[0]
        )
        if slots is not None:
            most = min(most, slots - (live or 0))
        if meters_keys:
            rated.append((scope, name))
        if rate_n is not None and rate_us is not None:
            rated.append((scope, name))
            most = min(most, Rate(rate_n, rate_us, burst).room(spent_until or 0, used or 0, now or 0))
    return max(0, most), rated


def spend(gates: Iterable[Gate], n: int, ids: str) -> Op[None]:
    """Take what starts now off the rates. SQLite."""
    for scope, name in gates:
        yield Call("spend_rate", {"scope": scope, "name": name, "n": n})
    yield Call("spend_keys", {"ids": ids})
