"""The invariants I1 to I11, judged after every step from what the database holds, without asking the model.

I1 no job vanishes; I2 at most one completion of a run is accepted; I3 tokens grow; I4 no two leases on one job; I5
attempts and crashes keep to their limits; I6 only an operator, on record, brings an ended job back; I7 a unique key has
one live job; I8 a tick has one job; I9 live leases keep to the limits; I10 a tenant sees only its own; I11 a job is in
exactly one place.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from duly.domain.records import HOLD, Filter
from tests.model.real import BOSS, Real
from tests.model.work import CRASH_LIMIT
from tests.store import invariants

FORGETS = ("delete", "prune_jobs", "delete_recurring")
BRINGS_BACK = ("retry",)
LIVE_AND_ENDED = ("scheduled", "waiting", "parked", "running", "ended")
SCOPES = {"task": "task", "tenant": "tenant", "queue": "queue"}


class Seen(NamedTuple):
    """One job as the tables have it."""

    place: str
    token: int
    attempt: int
    crashes: int
    hold: int
    state: str | None


class Promises:
    """What one store has shown so far, and must not take back."""

    def __init__(self, real: Real) -> None:
        self.real = real
        self.before: dict[str, Seen] = {}
        self.tokens: dict[str, int] = {}
        self.accepted: Counter[tuple[str, int]] = Counter()
        self.leases: Counter[tuple[str, str]] = Counter()

    def accept(self, job_id: str, token: int) -> None:
        """A completion was accepted that nobody had said before."""
        self.accepted[job_id, token] += 1

    def check(self, step: str) -> None:
        """Judge the state after a step."""
        raw = self.real.raw
        invariants.check(raw, self.real.clock.now_us())  # I11, and I7 in part
        jobs = {str(row[0]): row for row in raw.rows("SELECT id, max_attempts, tenant, unique_key FROM duly.jobs")}
        now = self._read()
        gone = self.before.keys() - jobs.keys()
        assert not gone or step in FORGETS, f"I1: {step} made jobs vanish: {gone}"
        doubled = [pair for pair, n in self.accepted.items() if n > 1]
        assert not doubled, f"I2: completions accepted twice: {doubled}"
        for job_id, seen in now.items():
            self._check_token(job_id, seen, step)
            assert seen.attempt <= jobs[job_id][1], f"I5: {job_id} is at attempt {seen.attempt} of {jobs[job_id][1]}"
            assert seen.crashes <= CRASH_LIMIT, f"I5: {job_id} took {seen.crashes} workers with it"
            self._check_end(job_id, self.before.get(job_id), seen, step)
        self._check_unique({job_id: (row[2], row[3]) for job_id, row in jobs.items()}, now)
        self._check_ticks()
        self._check_limits()
        self.before = now

    def _read(self) -> dict[str, Seen]:
        found: dict[str, Seen] = {}
        for place in LIVE_AND_ENDED:
            state = "state" if place == "ended" else "NULL"
            rows = self.real.raw.rows(
                f"SELECT id, token, attempt, COALESCE(crashes, 0), COALESCE(hold, 0), {state} FROM duly.{place}"
            )
            found |= {str(row[0]): Seen(place, *row[1:]) for row in rows}
        return found

    def _check_token(self, job_id: str, seen: Seen, step: str) -> None:
        last = self.tokens.get(job_id, 0)
        before = self.before.get(job_id)
        assert seen.token >= last, f"I3: the token of {job_id} went back from {last} to {seen.token}"
        if seen.token > last:
            assert seen.place == "running", f"I3: {job_id} got token {seen.token} without a claim"
            assert before is None or before.place != "running", f"I4: {job_id} was leased twice by {step}"
        elif seen.place == "running":
            assert before is not None, f"I3: {job_id} was claimed and kept its token {seen.token}"
            assert before.place == "running", f"I3: {job_id} was claimed again with its old token {seen.token}"
        self.tokens[job_id] = seen.token

    def _check_end(self, job_id: str, before: Seen | None, seen: Seen, step: str) -> None:
        if before is None or before.place != "ended" or (seen.place, seen.state) == ("ended", before.state):
            return
        assert step in BRINGS_BACK, f"I6: {job_id} had {before.state} and is {seen.place} after {step}"
        [row] = self.real.store.audit(job_id=job_id, n=1)
        assert (row.who, row.action) == (BOSS.who, step), f"I6: {job_id} came back, and the audit says {row}"

    def _check_unique(self, wanted: dict[str, tuple[str, str | None]], now: dict[str, Seen]) -> None:
        behind = {str(row[0]) for row in self.real.raw.rows("SELECT id FROM duly.parked WHERE reason = 'unique'")}
        live = Counter(
            wanted[job_id]
            for job_id, seen in now.items()
            if seen.hold == HOLD["live"] and seen.place != "ended" and job_id not in behind
        )
        queued = Counter(
            wanted[job_id]
            for job_id, seen in now.items()
            if seen.hold == HOLD["queued"] and seen.place in ("scheduled", "waiting", "parked")
        )
        for name, counter in (("live", live), ("queued", queued)):
            several = [key for key, n in counter.items() if n > 1]
            assert not several, f"I7: unique keys with several {name} jobs: {several}"

    def _check_ticks(self) -> None:
        rows = self.real.raw.rows("SELECT headers, count(*) FROM duly.jobs WHERE headers IS NOT NULL GROUP BY headers")
        assert all(n == 1 for _, n in rows), f"I8: ticks with several jobs: {[row for row in rows if row[1] > 1]}"

    def _check_limits(self) -> None:
        """A limit that was lowered may be exceeded by what ran before, never by more."""
        lease_now = self.real.clock.lease_us()
        rows = self.real.raw.rows(f"SELECT task, tenant, queue FROM duly.running WHERE leased_until > {lease_now}")
        leases = Counter((scope, row[at]) for row in rows for at, scope in enumerate(("task", "tenant", "queue")))
        for gate, slots in self.real.limits().items():
            most = max(slots, self.leases[gate])
            assert leases[gate] <= most, f"I9: {leases[gate]} run under {gate}, which has {slots} slots"
        self.leases = leases


def check_tenant(real: Real, tenant: str) -> None:
    """I10: a tenant's lists and counts hold its own jobs, all of them, and nobody else's."""
    own = real.store.of_tenant(tenant)
    ids = sorted(str(row[0]) for row in real.raw.rows(f"SELECT id FROM duly.jobs WHERE tenant = '{tenant}'"))
    assert sorted(record.id for record in own.find(Filter(limit=1_000))) == ids, "I10: a tenant's list is not its own"
    counts = own.counts()
    places = [*counts.waiting, *counts.scheduled, *counts.running]
    assert all(row[1] == tenant for row in places), "I10: a tenant's counts are not its own"
    disabled = real.raw.rows(
        f"SELECT r.id FROM duly.recurring r JOIN duly.schedules s ON s.id = r.id WHERE s.tenant = '{tenant}'"
        " AND NOT r.enabled AND NOT EXISTS (SELECT 1 FROM duly.running u WHERE u.id = r.id)"
    )
    total = sum(row[3] for row in places) + sum(counts.parked.values()) + sum(counts.ended.values())
    assert total + len(disabled) == len(ids), "I10: a tenant's counts are not of its own jobs"
