"""Recurring jobs: make, find, enable, disable, edit, run now, forget. Each on any connection, the caller's included.

Every change holds the job's row in `recurring` first. Not here: what follows from a run (`ops_recurring_runs`), nor
what must happen beside a change (`ops_mirrors`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from duly.domain.audit import Actor
from duly.domain.errors import (
    Conflict,
    InvalidOption,
    RecurringJobNotFound,
)
from duly.domain.records import HOLD
from duly.domain.recurring import Change, NewRecurring, RecurringRecord
from duly.schedule.plan import Ticks, first_run
from duly.schedule.schedule import Schedule
from duly.store import ops_audit
from duly.store.call import Call, Foreign, Op, Row, Value
from duly.store.ops_enqueue import MOVES, take_unstarted
from duly.store.ops_mirrors import Mirrors, missing_params

UNDECLARED = "duly: no longer declared"
DULY = "duly"
"""Who has disabled a job that failed too often, took its workers with it, or has no next run."""


class Standing(NamedTuple):
    """How a recurring job stands after a change."""

    id: str
    enabled: bool
    next_run_at: int | None
    created: bool = False


@dataclass(frozen=True, slots=True)
class Recurring(Mirrors):
    """Operations on recurring jobs for one dialect, with the Python hooks that this process has."""

    actor: Actor | None = None
    """In whose name what is done is kept in the audit; None for what duly does by itself and the application's code."""
    tenant: str | None = None
    """The only tenant whose recurring jobs there are here; None for everybody's."""

    # -- look -------------------------------------------------------------------------------------------------

    def get(self, job_id: str) -> Op[RecurringRecord | None]:
        """One recurring job by its id."""
        rows = yield Call("get_recurring", {"id": job_id, "tenant": self.tenant})
        return record_of(rows[0]) if rows else None

    def find(self, tenant: str, task: str, key: str) -> Op[RecurringRecord | None]:
        """One recurring job by its key."""
        if not self._sees(tenant):
            return None
        rows = yield Call("find_recurring", {"tenant": tenant, "task": task, "key": key})
        return (yield from self.get(str(rows[0][0]))) if rows else None

    def find_name(self, tenant: str, name: str) -> Op[RecurringRecord | None]:
        """One recurring job by its name."""
        if not self._sees(tenant):
            return None
        rows = yield Call("find_recurring_by_name", {"tenant": tenant, "name": name})
        return (yield from self.get(str(rows[0][0]))) if rows else None

    def _sees(self, tenant: str) -> bool:
        return self.tenant is None or tenant == self.tenant

    def _is_there(self, job_id: str) -> Op[bool]:
        """Whether a job can be in sight from here: another tenant's is not there."""
        if self.tenant is None:
            return True
        return bool((yield Call("is_recurring_of", {"id": job_id, "tenant": self.tenant})))

    # -- make -------------------------------------------------------------------------------------------------

    def recur(self, new: NewRecurring, *, enable: bool = True) -> Op[Standing]:
        """Make a recurring job, or enable the one that there is. What is said differently than before is taken over.

        Without `enable` (a declaration at start-up) one that exists keeps what people made of it.
        """
        if not self._sees(new.tenant):
            raise InvalidOption(f"recurring job {describe(new)} is not of tenant {self.tenant!r}, whose handle this is")
        if self.actor is None:
            return (yield from self._recur(new, enable=enable))
        old = yield from self.find(new.tenant, new.task, new.key)
        standing = yield from self._recur(new, enable=enable)
        yield from self._keep("add" if standing.created else "edit", None if standing.created else old, standing.id)
        return standing

    def _keep(
        self,
        action: str,
        old: RecurringRecord | None,
        job_id: str,
        *,
        reason: str | None = None,
        by: str | None = None,
        always: bool = False,
    ) -> Op[None]:
        """Keep what was done, in the same transaction."""
        if self.actor is not None:
            new = yield from self.get(job_id)
            actor = self.actor.or_by(by)
            yield from ops_audit.keep_recurring(actor, action, old, new, reason=reason, always=always)

    def _recur(self, new: NewRecurring, *, enable: bool) -> Op[Standing]:
        for _ in range(MOVES):
            rows = yield Call("find_recurring", {"tenant": new.tenant, "task": new.task, "key": new.key})
            if rows:
                if (yield Call("lock_recurring", {"id": str(rows[0][0])})):
                    return (yield from self._renew(str(rows[0][0]), new, enable=enable))
                continue  # it was deleted in between
            yield from self._check_name(new.tenant, new.name, None)
            made = yield Call("insert_schedule", new._asdict())
            if made:
                return (yield from self._make(new, anchor_at=int(str(made[0][0]))))
        yield from self._check_name(new.tenant, new.name, None)
        raise Conflict(
            f"recurring job {describe(new)} is being made by another transaction that cannot be seen from here. "
            "Repeat this transaction, or use READ COMMITTED"
        )

    def _make(self, new: NewRecurring, *, anchor_at: int) -> Op[Standing]:
        at = first_run(_Ruled(new.tenant, new.task, new.key, new.rule, anchor_at), anchor_at)
        if at is None:
            raise _over(describe(new))
        params: dict[str, Value] = dict(new._asdict())
        params |= {"next_run_at": at, "disabled_by": None, "disabled_reason": None}
        if not new.enabled:
            params |= {"disabled_by": new.created_by, "disabled_reason": "made disabled"}
        yield Call("insert_recurring_job", params)
        yield Call("insert_recurring", params)
        if new.enabled:
            yield from self._place(new.id, at, 0, new.overlap)
        yield from self.mirror(
            Change(new.id, new.tenant, new.task, new.key, new.enabled, at if new.enabled else None, None, None, 0, None)
        )
        return Standing(new.id, new.enabled, at, created=True)

    def _renew(self, job_id: str, new: NewRecurring, *, enable: bool) -> Op[Standing]:
        old = yield from self._read(job_id)
        if old.declared != new.declared:
            yield from self._change(old, new)
            old = yield from self._read(job_id)
        elif old.declared_in != new.declared_in and new.declared_in is not None:
            yield Call("update_schedule", _schedule_of(old) | {"declared_in": new.declared_in})
        back = old.disabled_by == UNDECLARED
        wanted = new.enabled if enable else (old.enabled or (back and new.enabled))
        return (yield from self._set(old, wanted, by=new.created_by, reason="disabled by the code"))

    # -- change -----------------------------------------------------------------------------------------------

    def lock(self, job_id: str, by: str = "lock_recurring") -> Op[RecurringRecord]:
        """Hold a recurring job until the transaction ends, and read it as it is then."""
        if not (yield from self._is_there(job_id)) or not (yield Call(by, {"id": job_id})):
            raise RecurringJobNotFound(f"there is no recurring job {job_id}: it was deleted, or the id is wrong")
        return (yield from self._read(job_id))

    def _read(self, job_id: str) -> Op[RecurringRecord]:
        record = yield from self.get(job_id)
        if record is None:
            raise RecurringJobNotFound(f"there is no recurring job {job_id}: it was just deleted")
        return record

    def set_enabled(self, job_id: str, enabled: bool, *, by: str | None, reason: str | None) -> Op[Standing]:
        """Enable or disable."""
        old = yield from self.lock(job_id)
        return (yield from self._set_kept(old, enabled, by=by, reason=reason))

    def _set_kept(self, old: RecurringRecord, enabled: bool, *, by: str | None, reason: str | None) -> Op[Standing]:
        standing = yield from self._set(old, enabled, by=by, reason=reason)
        action, why = ("enable", None) if enabled else ("disable", reason)
        yield from self._keep(action, old, old.id, reason=why, by=by)
        return standing

    def set_enabled_if(
        self, job_id: str, sql: str, params: Mapping[str, object], *, by: str | None, reason: str | None
    ) -> Op[Standing]:
        """Enable or disable by a condition, evaluated in a statement of its own once the job is held.

        The caller's transaction may see one moment only, and would not see what another did while this one waited: it
        is refused by the database (SQLSTATE 40001), since the other has written the row too.
        """
        if missing := missing_params(sql, params):
            raise InvalidOption(missing)
        old = yield from self.lock(job_id, "touch_recurring")
        rows = yield Foreign(f"SELECT CASE WHEN ({sql}\n) THEN 1 ELSE 0 END", params)
        return (yield from self._set_kept(old, bool(rows[0][0]), by=by, reason=reason))

    def _set(self, old: RecurringRecord, enabled: bool, *, by: str | None, reason: str | None) -> Op[Standing]:
        if old.enabled == enabled:
            return Standing(old.id, enabled, old.next_run_at)
        if enabled:
            return (yield from self._enable(old))
        yield from self._disable(old, by=by, reason=reason)
        return Standing(old.id, False, old.next_run_at)

    def _enable(self, old: RecurringRecord) -> Op[Standing]:
        """It runs when it would have, or at once if that has passed."""
        at = old.next_run_at
        tick = at if old.tick_at is None else old.tick_at  # a run by hand that had not begun is forgotten
        if at is None:
            rules = Schedule.from_json(old.rule).rules
            at = tick = Ticks(old).after(old.now) if rules else old.now
            if at is None:
                raise Conflict(
                    f"recurring job {describe(old)} cannot be enabled: its schedule has ended. Edit it first"
                )
        elif at <= old.now:
            at = tick = old.now
        if old.running_since is None:
            rows = yield Call("recurring_token", {"id": old.id})
            token = int(str(rows[0][0]))
            yield from self._place(old.id, at, token, old.overlap)
        else:  # the run under way puts it back into its place when it ends
            at, tick, token = old.next_run_at or at, old.tick_at, 0
        failures = 0 if old.disabled_by == DULY else old.failures  # whoever enables what duly gave up on begins anew
        yield from self._stand(old, enabled=True, at=at, tick=tick, token=token, failures=failures)
        return Standing(old.id, True, at)

    def _disable(self, old: RecurringRecord, *, by: str | None, reason: str | None) -> Op[None]:
        taken = yield from self._take(old.id)
        yield from self._stand(
            old, enabled=False, at=old.next_run_at, tick=old.tick_at, token=taken, by=by, reason=reason or "disabled"
        )

    def _take(self, job_id: str) -> Op[int]:
        """Take a job out of its place, wherever it moves meanwhile. Returns its fence; 0 if it runs or is nowhere."""
        for _ in range(MOVES):
            taken = yield from take_unstarted(self.dialect, job_id)
            if taken is not None:
                rows = yield Call("recurring_token", {"id": job_id})
                return max(taken.token, int(str(rows[0][0])))
            if (yield Call("is_running", {"id": job_id})) or not (yield Call("is_unstarted", {"id": job_id})):
                return 0
        return 0

    def put_back(self, old: RecurringRecord, at: int, token: int) -> Op[None]:
        """Have one that is enabled, held, and in no place wait for its next run again, its fence at `token`."""
        yield from self._place(old.id, at, token, old.overlap)
        tick = at if old.tick_at is None else old.tick_at
        yield from self._stand(old, enabled=True, at=at, tick=tick, token=token)

    def _place(self, job_id: str, at: int, token: int, overlap: str) -> Op[None]:
        hold = HOLD["spawns" if overlap == "allow" else "recurs"]
        yield Call("place_recurring", {"id": job_id, "run_at": at, "token": token, "hold": hold})

    def _stand(
        self,
        old: RecurringRecord,
        *,
        enabled: bool,
        at: int | None,
        tick: int | None,
        token: int,
        failures: int | None = None,
        by: str | None = None,
        reason: str | None = None,
    ) -> Op[None]:
        """Write down how it stands now, and have the mirror see it."""
        failures = old.failures if failures is None else failures
        if token == 0:
            rows = yield Call("recurring_token", {"id": old.id})
            token = int(str(rows[0][0]))
        yield Call(
            "set_recurring",
            {
                "id": old.id,
                "enabled": enabled,
                "next_run_at": at,
                "tick_at": tick,
                "token": token,
                "failures": failures,
                "disabled_by": by,
                "disabled_reason": reason,
            },
        )
        shown = at if enabled else None
        yield from self.mirror(
            Change(old.id, old.tenant, old.task, old.key, enabled, shown, None, None, failures, old.last_run_at)
        )

    def edit(self, job_id: str, change: Callable[[RecurringRecord], NewRecurring]) -> Op[Standing]:
        """Change a recurring job; `change` says how from what it is. Its next run moves only if its rule did."""
        old = yield from self.lock(job_id)
        new = change(old)
        yield from self._change(old, new._replace(declared=old.declared or "", declared_in=old.declared_in))
        yield from self._keep("edit", old, job_id)
        after = yield from self._read(job_id)
        return Standing(job_id, after.enabled, after.next_run_at)

    def _change(self, old: RecurringRecord, new: NewRecurring) -> Op[None]:
        yield from self._check_name(new.tenant, new.name, old.id)
        params: dict[str, Value] = dict(new._asdict()) | {"id": old.id, "anchor_at": old.anchor_at}
        declared_in = new.declared_in if new.declared_in is not None else old.declared_in
        yield Call("update_schedule", params | {"declared_in": declared_in})
        same_rule = new.rule == old.rule
        same_place = (new.queue, new.priority, new.overlap) == (old.queue, old.priority, old.overlap)
        if same_rule and same_place and not (new.args != old.args and (yield Call("is_misplaced", params))):
            yield from self._write_job(params)
            return
        at, tick = old.next_run_at, old.tick_at
        if not same_rule:
            ruled = _Ruled(new.tenant, new.task, new.key, new.rule, old.anchor_at)
            at = tick = Ticks(ruled).after(old.now) if Schedule.from_json(new.rule).rules else first_run(ruled, old.now)
            if at is None:
                raise _over(describe(old))
        # Its place before its row, as all others lock them.
        token = (yield from self._take(old.id)) if old.enabled else 0
        yield from self._write_job(params)
        running = bool((yield Call("is_running", {"id": old.id})))
        by_hand = old.enabled and old.tick_at is None and new.overlap != "allow"  # somebody asked for it: it is to come
        if by_hand or running:
            tick = old.tick_at  # the run under way is still of that tick; the next follows from the new rule
        if old.enabled and not running:
            yield from self._place(old.id, old.now if by_hand or at is None else at, token, new.overlap)
        yield from self._stand(
            old,
            enabled=old.enabled,
            at=at,
            tick=tick,
            token=token,
            by=old.disabled_by,
            reason=old.disabled_reason,
        )

    def _write_job(self, params: Mapping[str, Value]) -> Op[None]:
        """Write what it runs. Tags only if they are others: a role that was made before they could change may not."""
        yield Call("update_recurring_job", params)
        if params["tags"] != "" and (yield Call("tags_of", params))[0][0] != params["tags"]:
            yield Call("set_tags", params)

    def reschedule(self, job_id: str, at: int) -> Op[Standing]:
        """Let it run next at another time; then by its rule again."""
        old = yield from self.lock(job_id)
        at = max(at, old.now)
        token = yield from self._take_waiting(old)  # also one that was disabled while it runs has none
        if old.enabled:
            yield from self._place(old.id, at, token, old.overlap)
        yield from self._stand(
            old, enabled=old.enabled, at=at, tick=at, token=token, by=old.disabled_by, reason=old.disabled_reason
        )
        yield from self._keep("reschedule", old, job_id)
        return Standing(job_id, old.enabled, at)

    def _take_waiting(self, old: RecurringRecord) -> Op[int]:
        """Take a job out of its place; one that runs has none, and what follows from its run is not known yet."""
        token = yield from self._take(old.id)
        if (yield Call("is_running", {"id": old.id})):
            raise Conflict(f"recurring job {describe(old)} is running. Wait for its run to end")
        return token

    def run_now(self, job_id: str) -> Op[Standing]:
        """Run it now, beside its schedule: the tick to come is still to come."""
        old = yield from self.lock(job_id)
        if not old.enabled:
            raise Conflict(f"recurring job {describe(old)} is disabled. Enable it first")
        if old.overlap == "allow":
            raise Conflict(f"recurring job {describe(old)} makes a job per tick. Enqueue one beside it instead")
        token = yield from self._take_waiting(old)
        yield from self._place(old.id, old.now, token, old.overlap)
        yield from self._stand(old, enabled=True, at=old.next_run_at, tick=None, token=token)
        yield from self._keep("run_now", old, job_id, always=True)
        return Standing(job_id, True, old.next_run_at)

    def delete(self, job_id: str) -> Op[bool]:
        """Forget a recurring job and its history. A run under way is not recorded. Returns whether there was one."""
        if not (yield from self._is_there(job_id)) or not (yield Call("lock_recurring", {"id": job_id})):
            return False
        old = yield from self._read(job_id)
        yield from self._take(job_id)
        yield Call("look_at_key_of", {"id": job_id})  # a run under way leaves its slot
        for name in ("delete_running_one", "delete_runs", "delete_recurring", "delete_schedule", "delete_job"):
            yield Call(name, {"id": job_id})
        yield from self.mirror(
            Change(old.id, old.tenant, old.task, old.key, False, None, None, None, old.failures, old.last_run_at)
        )
        yield from self._keep("delete", old, job_id)
        return True

    def _check_name(self, tenant: str, name: str | None, own_id: str | None) -> Op[None]:
        if name is None:
            return
        rows = yield Call("find_recurring_by_name", {"tenant": tenant, "name": name})
        if rows and str(rows[0][0]) != own_id:
            raise Conflict(
                f"the name {name!r} belongs to recurring job {rows[0][0]}. Choose another name, or rename that one"
            )

    # -- declarations -----------------------------------------------------------------------------------------

    def undeclare(self, module: str, kept: Iterable[tuple[str, str, str]]) -> Op[list[str]]:
        """Disable what a module declared before and declares no more. Returns what that was."""
        declared = set(kept)
        gone: list[str] = []
        rows = yield Call("declared_before", {"module": module})
        for job_id, tenant, task, key, _, enabled, _ in rows:
            if enabled and (str(tenant), str(task), str(key)) not in declared:
                reason = f"{module} no longer declares it"
                yield from self.set_enabled(str(job_id), False, by=UNDECLARED, reason=reason)
                gone.append(f"{task} {key!r}" if key else str(task))
        return gone


class _Ruled(NamedTuple):
    tenant: str
    task: str
    key: str
    rule: str
    anchor_at: int


def record_of(row: Row) -> RecurringRecord:
    """Make a record of one row of the `get_recurring` or list statement."""
    values = dict(zip(RecurringRecord.__dataclass_fields__, row, strict=True))
    values["enabled"] = bool(values["enabled"])
    return RecurringRecord(**values)  # type: ignore[arg-type]


def describe(job: NewRecurring | RecurringRecord) -> str:
    """A recurring job in a message."""
    tenant = f" of tenant {job.tenant!r}" if job.tenant else ""
    return f"{job.task} {job.key!r}{tenant}"


def _over(job: str) -> InvalidOption:
    return InvalidOption(f"recurring job {job} would never run: its schedule is over. Check until=", option="until")


def _schedule_of(old: RecurringRecord) -> dict[str, Value]:
    return {
        name: getattr(old, name)
        for name in (
            "id", "name", "description", "rule", "anchor_at", "misfire", "grace_us", "cap", "overlap", "failure",
            "pause_after", "declared", "declared_in",
        )
    }  # fmt: skip
