"""The part of the model that producers and workers see: enqueue, unique keys, lanes, claims, ends of runs, rescue."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from duly.domain.limits import Gate
from duly.domain.outcome import after_crash
from duly.domain.records import HOLD, Claimed, Lane, Lapsed, NewJob, Settled
from duly.domain.states import TERMINAL
from duly.domain.unique import storage_key
from duly.testing import TestClock
from tests.model.facts import LANE_QUEUE, Door, Job, RunFact, UniqueKey
from tests.model.schedules import Schedules

CRASH_LIMIT = 3


class Work(Schedules):
    """Jobs on their way through the places. A base of `Model`."""

    def __init__(self, clock: TestClock) -> None:
        self.clock = clock
        self.jobs: dict[str, Job] = {}
        self.runs: list[RunFact] = []
        self.keys: dict[tuple[str, str], UniqueKey] = {}
        self.doors: dict[Gate, Door] = {}
        self.group_slots: int | None = None
        self.recurring = {}
        self.lapsed: list[Lapsed] = []

    @property
    def now(self) -> int:
        return self.clock.now_us()

    @property
    def lease_now(self) -> int:
        return self.clock.lease_us()

    # -- enqueue ----------------------------------------------------------------------------------------------

    def enqueue(self, new: NewJob) -> tuple[str, bool]:
        """Store a job, unless a unique key says that another stands for it. Returns who does, and if it is new."""
        if new.unique_key is None or new.unique_mode == "none":
            self._insert(new, HOLD["none"])
            return new.id, True
        scope = HOLD[new.unique_scope]
        key = self._hold_key(new.tenant, new.unique_key, new.id, scope, new.unique_window_us, new.unique_mode)
        if key.holder == new.id:
            if not self._insert(new, scope):
                self._drop_stale_key(new.id)
            return new.id, True
        if new.id in self.jobs:  # said before, and another has taken its key since
            return new.id, True
        holder = self.jobs[key.holder]
        follower = None if key.following is None else self.jobs.get(key.following)
        if new.unique_mode == "keep_latest" and follower is not None and follower.unstarted:
            return self._replace(follower, new)
        if new.unique_mode != "skip" and holder.unstarted:
            return self._replace(holder, new)
        if new.unique_mode == "keep_latest":
            self.jobs[new.id] = Job.new(new, hold=scope, place="parked", run_at=self.now)
            self.jobs[new.id].reason, self.jobs[new.id].mark = "unique", holder.id
            key.following = new.id
            return new.id, True
        return holder.id, False

    def enqueue_many(self, news: Sequence[NewJob]) -> list[tuple[str, bool]]:
        """Those without a key first, the others in the order of their keys."""
        answers: dict[str, tuple[str, bool]] = {}
        for new in sorted(news, key=lambda each: each.unique_key or ""):
            answers[new.id] = self.enqueue(new)
        return [answers[new.id] for new in news]

    def _insert(self, new: NewJob, hold: int) -> bool:
        if new.id in self.jobs:
            return False
        job = Job.new(new, hold=hold, place="scheduled", run_at=self.now + new.delay_us)
        self.jobs[new.id] = job
        if new.delay_us == 0:
            self._make_due(job)
        return True

    def _make_due(self, job: Job) -> None:
        """Its time has come: into its lane, or aside until the key of its limits has room."""
        job.place, job.reason, job.mark = ("waiting", None, None)
        if job.limit_key is not None:
            job.place, job.reason, job.mark = "parked", "arrived", job.limit_key

    def _replace(self, job: Job, new: NewJob) -> tuple[str, bool]:
        """The newest arguments win, and it goes where they want it: to their key, out of where the old ones put it."""
        job.args = new.args
        rekeyed, job.limit_key = job.limit_key != new.limit_key, new.limit_key
        if job.reason == "arguments":
            self._requeue(job)
        elif rekeyed and job.place != "scheduled" and job.reason != "unique":
            self._make_due(job)
        if new.unique_mode == "debounce":
            self._move(job, new.delay_us)
        return job.id, False

    def _move(self, job: Job, delay_us: int) -> None:
        if delay_us:
            job.place, job.reason, job.mark, job.run_at = "scheduled", None, None, self.now + delay_us
        else:
            self._requeue(job)

    def _requeue(self, job: Job) -> None:
        job.run_at = self.now
        self._make_due(job)

    # -- unique keys ------------------------------------------------------------------------------------------

    def _hold_key(
        self, tenant: str, text: str, job_id: str, scope: int, window_us: int | None = None, mode: str = "skip"
    ) -> UniqueKey:
        """Take a key if it is free: unheld, its window over, or held only while queued by a job that has started."""
        name = (tenant, storage_key(text))
        mine = UniqueKey(job_id, scope, None if window_us is None else self.now + window_us)
        key = self.keys.setdefault(name, mine)
        over = key.until is not None and key.until <= self.now
        let_go = key.scope == HOLD["queued"] or (key.scope == HOLD["window"] and mode == "keep_latest")
        if over or (let_go and key.holder != job_id and not self.jobs[key.holder].unstarted):
            self.keys[name] = mine
        return self.keys[name]

    def _drop_stale_key(self, job_id: str) -> None:
        if self.jobs[job_id].place == "ended":
            self._release_keys(job_id)

    def _release_keys(self, job_id: str) -> None:
        for name, key in list(self.keys.items()):
            if key.holder == job_id and key.scope != HOLD["window"]:
                del self.keys[name]

    def _pass_on(self, job_id: str) -> None:
        """A job is over: its key goes to the one that waits for it, or is free."""
        for key in [each for each in self.keys.values() if each.holder == job_id]:
            following = None if key.following is None else self.jobs.get(key.following)
            if following is not None and following.unstarted:
                key.holder, key.following = following.id, None
                self._requeue(following)
            else:
                self._release_keys(job_id)

    # -- what a worker does -----------------------------------------------------------------------------------

    def look(self) -> None:
        """Put what is due into its lane, make the jobs of ticks, open gates whose time is over, let in what may."""
        for door in self.doors.values():
            if door.paused and not door.shut(self.now):
                door.paused, door.paused_until = False, None
        for job in list(self.jobs.values()):
            if job.place == "scheduled" and job.hold != HOLD["spawns"] and job.run_at <= self.now:
                self._make_due(job)
        self._spawn()
        for key in sorted({job.limit_key for job in self.jobs.values() if job.limit_key is not None}):
            self._arrange(key)
        for job in self.jobs.values():
            if job.waits_for_key:
                job.reason = "key"

    def _arrange(self, key: str) -> None:
        """Have the first jobs of a key stand in lanes, as many as it has room for."""
        mine = [job for job in self.jobs.values() if job.limit_key == key]
        door = self.doors.get(("key", key), Door())
        slots = self.group_slots if door.slots is None else door.slots
        running = sum(job.place == "running" for job in mine)
        may = len(mine) if slots is None else max(0, slots - running)
        may = 0 if door.shut(self.now) else may
        inside = sorted((job for job in mine if job.place == "waiting"), key=lambda job: job.in_turn)
        aside = sorted((job for job in mine if job.waits_for_key), key=lambda job: job.in_turn)
        if len(inside) > may or (inside and aside and aside[0].rank < inside[-1].rank):
            first = sorted(inside + aside, key=lambda job: job.in_turn)[:may]
            for job in inside:
                if job not in first:
                    job.place, job.reason, job.mark = "parked", "key", key
            inside = [job for job in inside if job in first]
        for job in aside:
            if len(inside) < may:
                job.place, job.reason, job.mark = "waiting", None, None
                inside.append(job)

    def bound_by(self, lane: Lane) -> tuple[Gate, ...]:
        """The limits that a claim of this lane must hold."""
        return tuple(
            sorted(gate for gate in gates_of(lane) if gate in self.doors and self.doors[gate].slots is not None)
        )

    def under(self, gate: Gate) -> list[Job]:
        """The live leases that count under a gate."""
        return [
            job
            for job in self.jobs.values()
            if job.place == "running" and job.leased_until > self.lease_now and gate in gates_of(job)
        ]

    def claim(
        self,
        lanes: Sequence[Lane],
        n: int,
        worker_id: str,
        lease_us: int,
        gates: Sequence[Gate],
        suspect: bool,
        shares: Mapping[str, int] | None,
    ) -> list[tuple[str, int, int]]:
        """Lease the first jobs of these lanes. Returns (id, token, attempt) of each, in their turn."""
        for gate in gates:
            slots = self.doors[gate].slots if gate in self.doors else None
            if slots is not None:
                n = min(n, slots - len(self.under(gate)))
        open_lanes = {(lane.tenant, lane.task) for lane in lanes if self._is_open(lane, gates)}
        found = [job for job in self.jobs.values() if job.place == "waiting" and job.suspect == suspect]
        found = sorted((job for job in found if (job.tenant, job.task) in open_lanes), key=lambda job: job.in_turn)
        if shares is not None:
            found = _by_share(found, shares)
        taken = sorted(found[: max(0, n)], key=lambda job: job.in_turn)
        for job in taken:
            job.place, job.token, job.attempt = "running", job.token + 1, job.attempt + 1
            job.worker_id, job.claimed_at, job.leased_until = worker_id, self.now, self.lease_now + lease_us
            job.deadline_at = None if job.timeout_us is None else self.now + job.timeout_us + lease_us
            job.cancel_at = job.cancel_reason = None
            job.limited = {scope for scope, _ in gates}
        return [(job.id, job.token, job.attempt) for job in taken]

    def _is_open(self, lane: Lane, held: Sequence[Gate]) -> bool:
        doors = [(gate, self.doors[gate]) for gate in gates_of(lane) if gate in self.doors]
        return not any(door.shut(self.now) or (door.slots is not None and gate not in held) for gate, door in doors)

    def held(self, job_id: str, token: int) -> Job | None:
        """The run that a token stands for, if it still does. Everything a worker says passes through here."""
        job = self.jobs.get(job_id)
        return job if job is not None and job.place == "running" and job.token == token else None

    def renew(self, pairs: Sequence[tuple[str, int]], lease_us: int) -> dict[str, bool]:
        """Extend leases. One that has lapsed under a limit is gone: its slot may be taken."""
        answers = {}
        for job_id, token in pairs:
            job = self.held(job_id, token)
            if job is not None and (not job.limited or job.leased_until > self.lease_now):
                job.leased_until = self.lease_now + lease_us
                answers[job_id] = job.cancel_at is not None
        return answers

    def settle(self, batch: Sequence[Settled], keys: Collection[str], *, repeated: bool = False) -> set[str]:
        """End runs. Returns which were accepted: those whose token held, and of a repetition those on record.

        `keys`: the keys of their limits, which let in the next jobs.
        """
        accepted = set()
        for settled in batch:
            job = self.held(settled.id, settled.token)
            if job is not None:
                self._end_run(job, settled)
                accepted.add(job.id)
            elif repeated and self._on_record(settled):
                accepted.add(settled.id)
        for key in sorted(keys):
            self._arrange(key)
        return accepted

    def _on_record(self, settled: Settled) -> bool:
        said = (settled.id, settled.token, settled.outcome)
        return any((run.job_id, run.token, run.outcome) == said for run in self.runs)

    def _end_run(self, job: Job, settled: Settled) -> None:
        if job.hold == HOLD["recurs"]:
            settled = self.after_recurring_run(job, settled)
        elif job.cancel_at is not None and settled.state not in TERMINAL:
            settled = settled._replace(state="cancelled", reason=job.cancel_reason)
        elif job.hold == HOLD["queued"] and settled.state not in TERMINAL:
            holder = self._hold_key(job.tenant, job.unique_key or "", job.id, job.hold).holder
            if holder != job.id:
                settled = settled._replace(state="cancelled", reason=f"superseded by {holder}")
        if settled.outcome != "released" or settled.ran_us >= 0:
            self.runs.append(RunFact(job.id, job.token, job.attempt, settled.outcome, job.worker_id or ""))
        self._leave_running(job, settled)
        if job.place == "ended" and job.hold in (HOLD["queued"], HOLD["live"]):
            self._pass_on(job.id)

    def _leave_running(self, job: Job, settled: Settled) -> None:
        job.attempt, job.crashes = job.attempt - settled.uncounted, settled.crashes
        job.worker_id = job.claimed_at = job.cancel_at = job.deadline_at = None
        match settled.state:
            case "scheduled" | "recurs":
                job.place = "scheduled"
                job.run_at = self.now + settled.delay_us if settled.again_at is None else settled.again_at
            case "queued":
                job.place = "waiting"
            case "idle":
                job.place, job.attempt, job.crashes = "nowhere", 0, 0
            case _:
                self._end(job, settled.state, settled.reason)

    def _end(self, job: Job, state: str, reason: str | None) -> None:
        job.place, job.state, job.reason, job.mark, job.finished_at = "ended", state, reason, None, self.now

    def give_back(self, pairs: Sequence[tuple[str, int]]) -> int:
        """Release runs that never started: no attempt is counted, nothing is recorded."""
        given = 0
        for job_id, token in sorted(pairs):
            job = self.held(job_id, token)
            if job is not None:
                given += 1
                back = Settled(job_id, token, "queued", "released", uncounted=1, crashes=job.crashes)
                if job.hold == HOLD["recurs"]:
                    self._give_back_recurring(job, back)
                else:
                    self._end_run(job, back)
        for key in sorted({self.jobs[each].limit_key or "" for each, _ in pairs if each in self.jobs} - {""}):
            self._arrange(key)
        return given

    def park(self, job_id: str, token: int, mark: str, keys: Collection[str]) -> bool:
        """Set a run aside whose arguments do not fit. Asked to stop, or superseded, it ends instead."""
        job = self.held(job_id, token)
        if job is not None:
            self._park(job, mark)
        for key in keys:
            self._arrange(key)
        return job is not None

    def _park(self, job: Job, mark: str) -> None:
        cancel, reason = job.cancel_at, job.cancel_reason
        self._leave_running(job, Settled(job.id, job.token, "queued", "released", uncounted=1, crashes=job.crashes))
        job.place, job.reason, job.mark = "parked", "arguments", mark
        if job.hold == HOLD["recurs"]:
            self._keep_if_disabled(job)
        elif cancel is not None:
            self._end_unstarted(job, "cancelled", reason)
        elif job.hold == HOLD["queued"]:
            holder = self._hold_key(job.tenant, job.unique_key or "", job.id, job.hold).holder
            if holder != job.id:
                self._end_unstarted(job, "cancelled", f"superseded by {holder}")

    def release_parked(self, task: str, mark: str) -> int:
        """Give jobs that other code set aside another chance."""
        stale = [job for job in self.jobs.values() if job.place == "parked" and job.reason == "arguments"]
        stale = [job for job in stale if job.task == task and job.mark != mark]
        for job in stale:
            self._requeue(job)
        return len(stale)

    def _end_unstarted(self, job: Job, state: str, reason: str | None) -> None:
        self._end(job, state, reason)
        own = self.keys.get((job.tenant, storage_key(job.unique_key or "")))
        if own is not None and own.holder == job.id:
            self._pass_on(job.id)

    def _forget(self, ids: Iterable[str]) -> None:
        gone = set(ids)
        self.jobs = {job_id: job for job_id, job in self.jobs.items() if job_id not in gone}
        self.runs = [run for run in self.runs if run.job_id not in gone]

    # -- rescue -----------------------------------------------------------------------------------------------

    def see_lapsed(self) -> list[tuple[str, int]]:
        """Which runs have lost their lease or passed their deadline, by id."""
        lapsed = [job for job in self.jobs.values() if job.place == "running" and job.expired(self.now, self.lease_now)]
        self.lapsed = [self._lapsed(job) for job in sorted(lapsed, key=lambda job: job.id)]
        return [(run.id, run.token) for run in self.lapsed]

    def rescue_seen(self) -> list[bool]:
        """Settle the runs that were seen to have lapsed, unless they were renewed or ended since."""
        rescued = []
        for run in self.lapsed:
            job = self.held(run.id, run.token)
            rescued.append(job is not None and job.expired(self.now, self.lease_now))
            if rescued[-1]:
                self._rescue(run)
            elif run.limit_key is not None:
                self._arrange(run.limit_key)
        self.lapsed = []
        return rescued

    def _lapsed(self, job: Job, why: str | None = None) -> Lapsed:
        why = why or ("lease" if job.leased_until <= self.lease_now else "deadline")
        return Lapsed(
            job.id, job.token, job.attempt, job.crashes, job.worker_id or "", job.max_attempts, job.retry, why,
            job.hold, job.limit_key,
        )  # fmt: skip

    def _rescue(self, run: Lapsed) -> None:
        keys = [] if run.limit_key is None else [run.limit_key]
        self.settle([after_crash(run, crash_limit=CRASH_LIMIT, random=lambda: 0.5)], keys)

    def rescue(self, worker_id: str | None = None) -> int:
        """Settle the runs whose lease or deadline has passed, or those of a worker that is gone."""
        if worker_id is None:
            runs = [
                job for job in self.jobs.values() if job.place == "running" and job.expired(self.now, self.lease_now)
            ]
        else:
            runs = [job for job in self.jobs.values() if job.place == "running" and job.worker_id == worker_id]
        why = None if worker_id is None else "gone"
        for run in [self._lapsed(job, why) for job in sorted(runs, key=lambda job: job.id)]:
            self._rescue(run)
        return len(runs)

    # -- what can be seen -------------------------------------------------------------------------------------

    def claimed(self, job_id: str) -> Claimed:
        """A job as the worker gets it that holds it."""
        job = self.jobs[job_id]
        return Claimed(
            job.id, job.token, job.attempt, job.crashes, LANE_QUEUE, job.tenant, job.task, job.priority, job.run_at,
            job.hold, job.args, job.max_attempts, job.retry, job.timeout_us, None, 0, None, self.now, job.limit_key, 0,
        )  # fmt: skip


def gates_of(what: Lane | Job) -> list[Gate]:
    """The gates that a lane, or a run, goes through."""
    return [("queue", LANE_QUEUE), ("task", what.task), ("tenant", what.tenant)]


def _by_share(found: list[Job], shares: Mapping[str, int]) -> list[Job]:
    """Of each tenant the first so many; if these are too many, in turn."""
    places: list[tuple[float, int, str, Job]] = []
    for tenant, share in shares.items():
        mine = [job for job in found if job.tenant == tenant][:share]
        places += [(place / share, job.rank, job.id, job) for place, job in enumerate(mine, 1)]
    return [each[3] for each in sorted(places, key=lambda each: each[:3])]
