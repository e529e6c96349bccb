"""Every order in which two workers can take, hold, lose and end two jobs: a small model, searched to the last state.

A job is scheduled, waiting, running or ended; a run carries the token of its claim. A worker is what it believes to
hold, and may pause at any point: a step of it never comes, or comes late. A state is small and finite (a job is claimed
`most` times, then it can only end), so all of them can be visited, and each is judged:

    never accepted twice    of all that is said of one claim at most one thing changes the job; what has ended stays so
    a stale end is refused  what is accepted is said by whoever has the newest token
    exactly one place       each place is a table of its own here, and a job has a row in exactly one
    every job ends          in every fair run, from every state: whoever is not paused for ever goes on, leases lapse,
                            somebody looks

How the steps correspond to the statements (`duly.store.sql`; where SQLite needs several, they are one transaction):

    claim     `claim_lane`, `claim`; `lease` + `leave_lane`: out of waiting, into running with token + 1
    renew     `renew`: only where id and token hold
    expire    time passes: `leased_until <= :lease_now`, nothing is written
    rescue    `lapsed`, then `settle` with `only_expired` for that (id, token): back to waiting, or ended at the last
    finish    `settle` with state succeeded: from running to ended, only where id and token hold
    snooze    `settle` with state scheduled, no attempt counted: from running to scheduled, the same guard
    due       `promote`: from scheduled to waiting
    cancel    `take_unstarted` + `insert_ended`, or `request_cancel` while it runs: then `settle` never sends it back

With `fenced=False` the guard on the token is left out of finish, snooze and renew, as in queues that ask only whether
the job runs: the search then finds how a worker that was paused ends the run of another, and `test_exhaustive.py`
wants it to. `python -m tests.model.exhaustive` prints both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

WORKERS = ("A", "B")
JOBS = (0, 1)
UNPAUSED = ("claim", "finish", "rescue", "expire", "due")
"""The steps of a fair run: nobody pauses for ever, time passes, somebody looks."""


class Job(NamedTuple):
    """Where a job is. Places are tables, so each is a flag of its own: nothing here keeps a job from being in two."""

    scheduled: bool = False
    waiting: bool = True
    running: bool = False
    ended: bool = False
    token: int = 0
    lapsed: bool = False
    cancelled: bool = False
    ends: int = 0
    """How often it was made to end."""

    @property
    def places(self) -> int:
        return self.scheduled + self.waiting + self.running + self.ended


class State(NamedTuple):
    """All jobs, and what each worker believes to hold: (worker, job, token)."""

    most: int = 2
    """How often a job may be claimed."""
    jobs: tuple[Job, ...] = (Job(),) * len(JOBS)
    beliefs: frozenset[tuple[str, int, int]] = frozenset()
    accepted: frozenset[tuple[int, int]] = frozenset()
    """The claims of which an end was accepted."""
    wrong: str = ""


class Step(NamedTuple):
    """Something that somebody does to a job."""

    verb: str
    job: int
    worker: str = ""
    token: int = 0

    def __str__(self) -> str:
        who = f"{self.worker}: " if self.worker else ""
        return f"{who}{self.verb} job {self.job}" + (f" with token {self.token}" if self.token else "")


@dataclass
class Found:
    """What a search came to."""

    states: int
    steps: int
    counterexample: list[Step] | None = None
    wrong: str = ""

    def __str__(self) -> str:
        if self.counterexample is None:
            return f"{self.states} states, {self.steps} steps, nothing wrong"
        lines = [f"  {at}. {step}" for at, step in enumerate(self.counterexample, 1)]
        return "\n".join([f"{self.wrong}, in {len(lines)} steps:", *lines])


def steps_from(state: State) -> Iterator[Step]:
    """Everything that can happen next. A worker says only what it believes; that it believes it is not true."""
    for at, job in enumerate(state.jobs):
        if job.waiting and job.token < state.most:
            for worker in WORKERS:
                yield Step("claim", at, worker)
        if job.running and not job.lapsed:
            yield Step("expire", at)
        if job.running and job.lapsed:
            yield Step("rescue", at)
        if job.scheduled:
            yield Step("due", at)
        if not job.ended and not job.cancelled:
            yield Step("cancel", at)
    for worker, at, token in sorted(state.beliefs):
        for verb in ("renew", "finish", "snooze"):
            yield Step(verb, at, worker, token)


def after(state: State, step: Step, *, fenced: bool = True) -> State:
    """What a step makes of a state."""
    job = state.jobs[step.job]
    believed = (step.worker, step.job, step.token)
    match step.verb:
        case "claim":
            job = job._replace(waiting=False, running=True, token=job.token + 1, lapsed=False)
            return _with(state, step.job, job, beliefs=state.beliefs | {(step.worker, step.job, job.token)})
        case "expire":
            return _with(state, step.job, job._replace(lapsed=True))
        case "due":
            return _with(state, step.job, job._replace(scheduled=False, waiting=True))
        case "rescue":
            again = job.token < state.most and not job.cancelled
            gone = job._replace(running=False, lapsed=False)
            return _with(state, step.job, gone._replace(waiting=True) if again else _ended(gone))
        case "cancel":
            if job.running:
                return _with(state, step.job, job._replace(cancelled=True))
            return _with(state, step.job, _ended(job._replace(scheduled=False, waiting=False, cancelled=True)))
        case "renew":
            if _holds(job, step, fenced):
                return _with(state, step.job, job._replace(lapsed=False))
            return state._replace(beliefs=state.beliefs - {believed})
        case _:
            state = state._replace(beliefs=state.beliefs - {believed})
            return _settle(state, step, job, fenced) if _holds(job, step, fenced) else state


def _holds(job: Job, step: Step, fenced: bool) -> bool:
    """The guard: `WHERE id = :id AND token = :token`, or without the fence only `WHERE id = :id`."""
    return job.running and (job.token == step.token or not fenced)


def _settle(state: State, step: Step, job: Job, fenced: bool) -> State:
    wrong = state.wrong
    if job.token != step.token:
        wrong = "a stale end was accepted"
    if (step.job, step.token) in state.accepted:
        wrong = "an end was accepted twice"
    job = job._replace(running=False, lapsed=False)
    stays = step.verb == "snooze" and not job.cancelled and job.token < state.most
    job = job._replace(scheduled=True) if stays else _ended(job)
    return _with(state, step.job, job, accepted=state.accepted | {(step.job, step.token)}, wrong=wrong)


def _ended(job: Job) -> Job:
    return job._replace(ended=True, ends=job.ends + 1)


def _with(state: State, at: int, job: Job, **changes: object) -> State:
    jobs = tuple(job if each == at else old for each, old in enumerate(state.jobs))
    return state._replace(jobs=jobs, **changes)  # type: ignore[arg-type]


def wrong_in(state: State) -> str:
    """What of a state must never be."""
    if state.wrong:
        return state.wrong
    for at, job in enumerate(state.jobs):
        if job.places != 1:
            return f"job {at} is in {job.places} places"
        if job.ends > 1:
            return f"job {at} ended {job.ends} times"
    return ""


def search(*, fenced: bool = True, most: int = 2) -> Found:
    """Visit every state from the first, nearest first, so that what is found wrong is found by the shortest way."""
    first = State(most=most)
    came_by: dict[State, tuple[State, Step] | None] = {first: None}
    found = Found(0, 0)
    queue = deque([first])
    while queue:
        state = queue.popleft()
        found.states += 1
        found.wrong = wrong_in(state)
        for step in steps_from(state):
            found.steps += 1
            then = after(state, step, fenced=fenced)
            if then not in came_by:
                came_by[then] = (state, step)
                queue.append(then)
        if not found.wrong and fenced:
            found.wrong = endless(state)
        if found.wrong:
            found.counterexample = _way_to(state, came_by)
            return found
    return found


def _way_to(state: State, came_by: dict[State, tuple[State, Step] | None]) -> list[Step]:
    way: list[Step] = []
    while (before := came_by[state]) is not None:
        state, step = before
        way.append(step)
    return way[::-1]


def over(state: State) -> bool:
    return all(job.ended for job in state.jobs)


def endless(state: State) -> str:
    """Why a fair run from here may never come to its end, if so.

    Each fair step must bring the state further, by a number that has a bound: so a fair run is finite. And where no
    fair step is left all jobs must have ended.
    """
    fair = [step for step in steps_from(state) if step.verb in UNPAUSED]
    idle = [step for step in fair if progress(after(state, step)) <= progress(state)]
    if idle:
        return f"{idle[0]} brings nothing further"
    return "" if fair or over(state) else "nothing is left to be done, and a job has not ended"


def progress(state: State) -> int:
    """How far a state is: by claims, then by how far each job has come since its last one, then by what was said."""
    far = 0
    for job in state.jobs:
        stages = (job.running, job.running and job.lapsed, job.scheduled, job.waiting, job.ended)
        far += 10 * job.token + max(at for at, stage in enumerate(stages, 1) if stage)
    return far - len(state.beliefs)


if __name__ == "__main__":
    print(f"with the fence: {search()}")
    print(f"without the fence: {search(fenced=False)}")
