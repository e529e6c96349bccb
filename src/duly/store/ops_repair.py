"""Mends what a check-up found: jobs in no place or in several, keys and rows that name what is gone.

Each operation looks again once it holds what it is about, in the order in which all lock (what has ended, the unique
key, the job in its place; for a recurring job its row in `recurring` first), and leaves alone what has come right
meanwhile. So it is safe beside workers, and twice. Each returns what it did, a line for each job.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from duly.domain.records import HOLD, RunRecord
from duly.domain.recurring import RecurringRecord
from duly.domain.retry import DEFAULT
from duly.domain.states import State
from duly.schedule.plan import Ticks
from duly.schedule.schedule import Schedule
from duly.store.call import Call, Dialect, Op, Rows, Value
from duly.store.ops_doctor import Partial
from duly.store.ops_enqueue import MOVES, Unstarted, requeue, take_unstarted
from duly.store.ops_jobs import runs_of
from duly.store.ops_recurring import Recurring, describe
from duly.store.ops_results import last_run
from duly.store.ops_settle import end_unstarted
from duly.store.ops_unique import lock_key_of, pass_on, retake_key

FENCE_GAP = 1_000_000
"""How far the fence of a job that was lost moves on: farther than any claim that left no trace can have come."""
DOCTOR = "duly doctor"
_DROP = {
    "scheduled": "drop_scheduled",
    "waiting": "drop_waiting",
    "parked": "drop_parked",
    "running": "delete_running_one",
    "ended": "take_ended",
}
_TERMINAL = {"succeeded": "succeeded", "cancelled": "cancelled", "expired": "cancelled"}


class Place(NamedTuple):
    """A place that a job is in. The order is that of the statement's columns."""

    name: str
    token: int
    attempt: int
    crashes: int
    hold: int
    at: int
    why: str | None


# -- decide -------------------------------------------------------------------------------------------------------


def verdict(run: RunRecord | None, max_attempts: int) -> str | None:
    """The state in which a job ended, if its last run says so; None if it is to run again."""
    if run is None:
        return None
    if run.outcome == "failed" and run.attempt >= max_attempts:
        return "failed"
    return _TERMINAL.get(run.outcome)


def right_place(places: Sequence[Place], run: RunRecord | None, max_attempts: int) -> Place:
    """Which of several places is the right one.

    That with the highest fence, as every claim raises it. Of equals: where the job ended, if its last run bears that
    fence and was its last; else the worker that holds it; else what waits for another's unique key; else its lane.
    """
    highest = max(place.token for place in places)
    latest = [place for place in places if place.token == highest]
    over = run is not None and run.token == highest and verdict(run, max_attempts) is not None

    def order(place: Place) -> int:
        match place.name:
            case "ended":
                return 0 if over else 6
            case "running":
                return 1
            case "parked":
                return 2 if place.why == "unique" else 5
            case "waiting":
                return 3
            case _:
                return 4

    return min(latest, key=order)


def trailing_crashes(runs: Sequence[RunRecord]) -> int:
    """How many of the last runs took their worker with them."""
    n = 0
    for run in reversed(runs):
        if run.outcome != "crashed":
            break
        n += 1
    return n


# -- jobs in no place, or in several -------------------------------------------------------------------------------


def put_back(dialect: Dialect, ids: Sequence[str]) -> Op[list[str]]:
    """Give jobs that are in no place one: where they ended, if their last run says so, else their lane."""
    done: list[str] = []
    for job_id in sorted(ids):
        keys = yield from lock_key_of(dialect, job_id)
        if not (yield Call("lock_job", {"id": job_id})) or (yield Call("places_of", {"id": job_id})):
            continue
        if (yield Call("is_recurring", {"id": job_id})) or (yield Call("recurring_token", {"id": job_id})):
            continue
        runs = yield from runs_of(job_id)
        run = runs[-1] if runs else None
        state = verdict(run, (yield from _max_attempts(job_id)))
        token = (run.token if run else 0) + FENCE_GAP
        attempt = 0 if run is None else run.attempt - (run.outcome in ("snoozed", "released"))
        moved = Unstarted(job_id, token, attempt, trailing_crashes(runs), (yield from _hold_of(job_id)))
        if run is None or state is None:
            yield from requeue(moved)
            done.append(f"{job_id} is back in its lane" + (f"; its last run {run.outcome}" if run else ""))
        else:
            ended: dict[str, Value] = {"state": state, "finished_at": run.finished_at, "reason": None}
            yield Call("end_as_it_ran", moved._asdict() | ended)
            yield from pass_on(dialect, job_id, keys)
            done.append(f"{job_id} has {state}, as its last run says")
    return done


def leave_one_place(dialect: Dialect, ids: Sequence[str]) -> Op[list[str]]:
    """Take jobs that are in several places out of all but the right one."""
    done: list[str] = []
    for job_id in sorted(ids):
        yield Call("lock_recurring", {"id": job_id})
        yield Call("lock_ended", {"id": job_id})
        keys = yield from lock_key_of(dialect, job_id)
        places = yield from _hold_places(dialect, job_id)
        if len(places) < 2:
            continue
        if (yield Call("is_recurring", {"id": job_id})):  # such a job has no end
            places = [place for place in places if place.name != "ended"] or places
            yield Call("take_ended", {"id": job_id})
        right = right_place(places, (yield from last_run(job_id)), (yield from _max_attempts(job_id)))
        wrong = [place.name for place in places if place is not right]
        for name in wrong:
            yield Call(_DROP[name], {"id": job_id})
        if right.name == "ended":
            yield from pass_on(dialect, job_id, keys)
        done.append(f"{job_id} stays in {right.name} (fence {right.token}), no longer in {', '.join(wrong) or 'ended'}")
    return done


def drop_jobless(dialect: Dialect, ids: Sequence[str]) -> Op[list[str]]:
    """Remove places that name jobs which are not there: nobody knows what they were to run."""
    done: list[str] = []
    for job_id in sorted(set(ids)):
        places = yield from _hold_places(dialect, job_id)
        if (yield Call("lock_job", {"id": job_id})) or (yield Call("recurring_token", {"id": job_id})):
            continue
        for place in places:
            yield Call(_DROP[place.name], {"id": job_id})
        if places:
            done.append(f"{job_id} is no longer named in {', '.join(place.name for place in places)}")
    return done


def _hold_places(dialect: Dialect, job_id: str) -> Op[list[Place]]:
    """Hold a job in all the places that it is in, wherever it moves meanwhile, and say which they are."""
    for _ in range(MOVES):
        held = (yield Call("lock_places", {"id": job_id})) if dialect is Dialect.POSTGRES else ()
        places = yield from _places(job_id)
        live = {place.name for place in places if place.name != "ended"}
        if dialect is Dialect.SQLITE or live == {row[0] for row in held}:
            return places
    return []


def _places(job_id: str) -> Op[list[Place]]:
    return [Place._make(row) for row in (yield Call("places_of", {"id": job_id}))]


def _max_attempts(job_id: str) -> Op[int]:
    rows = yield Call("get_job", {"id": job_id})
    return int(str(rows[0][6])) if rows else 1


def _hold_of(job_id: str) -> Op[int]:
    rows = yield Call("key_held_by", {"id": job_id})
    return int(str(rows[0][0])) if rows else HOLD["none"]


# -- unique keys ----------------------------------------------------------------------------------------------------


def free_keys(dialect: Dialect, keys: Sequence[tuple[str, str]]) -> Op[list[str]]:
    """Hand keys whose holder is gone to the job that waits for them, or give them back."""
    done: list[str] = []
    for tenant, key in sorted(keys):
        params: dict[str, Value] = {"tenant": tenant, "key": key}
        locked: Rows = yield Call("lock_key", params)
        if not locked or not (yield Call("is_dead_key", params)):
            continue
        holder = str(locked[0][3])
        yield from pass_on(dialect, holder, [row[:3] for row in locked])
        if (yield Call("is_dead_key", params)):  # one that is held for a time is not given back by itself
            yield Call("drop_key", params)
        done.append(f"key {key!r} is no longer held by {holder}")
    return done


def wait_again(dialect: Dialect, ids: Sequence[str]) -> Op[list[str]]:
    """Let jobs that wait for a unique key nobody will hand them have it, or follow whoever holds it now."""
    done: list[str] = []
    for job_id in sorted(ids):
        rows = yield Call("wanted_key", {"id": job_id})
        if not rows or rows[0][1] is None:
            continue
        scope = max((place.hold for place in (yield from _places(job_id))), default=0) or HOLD["live"]
        holder = (yield from retake_key(dialect, job_id, scope)).holder
        places = yield from _hold_places(dialect, job_id)
        if [(place.name, place.why) for place in places] != [("parked", "unique")]:
            if holder == job_id and all(place.name == "ended" for place in places):
                yield Call("forget_key", {"id": job_id})
            continue
        if holder == job_id:
            place = places[0]
            yield Call("drop_parked", {"id": job_id})
            yield from requeue(Unstarted(job_id, place.token, place.attempt, place.crashes, scope))
            done.append(f"{job_id} has the key, and is in its lane")
            continue
        followed = yield from _follow(dialect, holder, job_id)
        if followed is not None:
            done.append(followed)
    return done


def hold_again(dialect: Dialect, ids: Sequence[str]) -> Op[list[str]]:
    """Give jobs the unique keys that they count on; one whose key another job has by now goes on without."""
    done: list[str] = []
    for job_id in sorted(ids):
        before = [place for place in (yield from _places(job_id)) if place.hold in (HOLD["queued"], HOLD["live"])]
        rows = yield Call("wanted_key", {"id": job_id})
        if not before or not rows:
            continue
        holder = None if rows[0][1] is None else (yield from retake_key(dialect, job_id, before[0].hold)).holder
        places = [place for place in (yield from _hold_places(dialect, job_id)) if place.name != "ended"]
        if not places and holder == job_id:
            yield Call("forget_key", {"id": job_id})
        if not places:
            continue
        if holder == job_id:
            done.append(f"{job_id} holds its key again")
            continue
        for place in places:
            yield Call(f"free_{place.name}", {"id": job_id})
        done.append(f"{job_id} goes on without its key" + ("" if holder is None else f", which {holder} has"))
    return done


def _follow(dialect: Dialect, holder: str, job_id: str) -> Op[str | None]:
    """Have a job run after the one that holds its key. If another already is to, the newer of the two stands.

    Returns what was done; None if there was nothing to do.
    """
    for tenant, key, following in (yield Call("key_of", {"id": holder})):
        other = None if following is None else str(following)
        if other == job_id:  # it has come right meanwhile, or this is a repetition
            return None
        if other is not None and other > job_id:
            yield from end_unstarted(dialect, job_id, State.CANCELLED, f"superseded by {other}")
            return f"{job_id} is cancelled: {other} is newer and has the same key"
        yield Call("set_key_next", {"tenant": str(tenant), "key": str(key), "next_id": job_id})
        if other is not None:
            yield from end_unstarted(dialect, other, State.CANCELLED, f"superseded by {job_id}")
    return f"{job_id} runs after {holder}"


# -- recurring jobs ---------------------------------------------------------------------------------------------------


def place_recurring(recurring: Recurring, ids: Sequence[str]) -> Op[list[str]]:
    """Have recurring jobs that are enabled and in no place wait for their next run again."""
    done: list[str] = []
    for job_id in sorted(ids):
        if not (yield Call("lock_recurring", {"id": job_id})):
            continue
        old = yield from recurring.get(job_id)
        places = yield from _hold_places(recurring.dialect, job_id)
        if old is None or not old.enabled or any(place.name != "ended" for place in places):
            continue
        yield Call("take_ended", {"id": job_id})
        at = _next_run(old)
        if at is None:
            yield from recurring.set_enabled(job_id, False, by="duly", reason="its schedule has ended")
            done.append(f"{describe(old)} is disabled: its schedule has ended")
            continue
        yield from recurring.put_back(old, at, (yield from _fence(job_id)) + FENCE_GAP)
        done.append(f"{describe(old)} waits for its next run again")
    return done


def _next_run(old: RecurringRecord) -> int | None:
    if old.next_run_at is not None:
        return old.next_run_at
    return Ticks(old).after(old.now) if Schedule.from_json(old.rule).rules else old.now


def _fence(job_id: str) -> Op[int]:
    """The highest fence of a recurring job that is on record."""
    kept = yield Call("recurring_token", {"id": job_id})
    run = yield from last_run(job_id)
    return max(int(str(kept[0][0])) if kept else 0, run.token if run else 0)


def leave_disabled(recurring: Recurring, ids: Sequence[str]) -> Op[list[str]]:
    """Take recurring jobs that are disabled out of their place."""
    done: list[str] = []
    for job_id in sorted(ids):
        if not (yield Call("lock_recurring", {"id": job_id})) or (yield Call("is_enabled", {"id": job_id})):
            continue
        ended = yield Call("take_ended", {"id": job_id})  # such a job has no end
        taken = yield from take_unstarted(recurring.dialect, job_id)
        if taken is not None:
            yield Call("keep_token", {"id": job_id, "token": taken.token})
        if taken is not None or ended:
            done.append(f"{job_id} is out of its place")
    return done


def complete(recurring: Recurring, found: Sequence[Partial]) -> Op[list[str]]:
    """Make recurring jobs whole whose rows miss each other, as far as the rows that are left tell."""
    done: list[str] = []
    for each in sorted(found):
        yield Call("lock_recurring", {"id": each.id})
        if each.job:
            yield Call("lock_job", {"id": each.id})
        now = yield from _partial(each.id)
        if now != each:  # it was deleted, or mended, meanwhile
            continue
        places = yield from _hold_places(recurring.dialect, each.id)
        if not each.job:
            done.append((yield from _forget(each, places)))
        elif each.schedule:
            done.append((yield from _stand_again(each.id, places)))
        else:
            done.append((yield from _run_once(each.id, places)))
    return done


def _partial(job_id: str) -> Op[Partial]:
    job = yield Call("wanted_key", {"id": job_id})
    schedule = yield Call("is_recurring", {"id": job_id})
    standing = yield Call("recurring_token", {"id": job_id})
    return Partial(job_id, bool(job), bool(schedule), bool(standing))


def _forget(found: Partial, places: Sequence[Place]) -> Op[str]:
    """What it was to run is gone: a schedule of nothing stands in the way of a new one."""
    for place in places:
        yield Call(_DROP[place.name], {"id": found.id})
    for name in ("delete_runs", "delete_recurring", "delete_schedule"):
        yield Call(name, {"id": found.id})
    return f"{found.id} is forgotten: there was no job to run"


def _stand_again(job_id: str, places: Sequence[Place]) -> Op[str]:
    """Nobody knows how it stood: enabled if it is in a place, else disabled until somebody says."""
    live = [place for place in places if place.name != "ended"]
    token = (yield from _fence(job_id)) + (0 if live else FENCE_GAP)
    params: dict[str, Value] = {"id": job_id, "enabled": bool(live), "token": token, "by": None, "reason": None}
    if not live:
        params |= {"by": DOCTOR, "reason": "it was in no place, and how it stood was lost"}
    yield Call("insert_lost_standing", params | {"next_run_at": live[0].at if live else None})
    return f"{job_id} is {'enabled' if live else 'disabled: enable it if it shall run'}"


def _run_once(job_id: str, places: Sequence[Place]) -> Op[str]:
    """Its rule is gone: it is a job as any other. One that was in no place had nothing left to do."""
    yield Call("delete_recurring", {"id": job_id})
    yield Call("limit_attempts", {"id": job_id, "most": DEFAULT.max_attempts})
    for place in places:
        if place.name == "running":  # the end of such a run is for a schedule to say: it could never end
            yield Call("delete_running_one", {"id": job_id})
            yield from requeue(Unstarted(job_id, place.token, 0, 0, HOLD["none"]))
        elif place.name != "ended":
            yield Call(f"free_{place.name}", {"id": job_id})
    if places:
        return f"{job_id} recurs no more: it runs once"
    run = yield from last_run(job_id)
    fence = (run.token if run else 0) + FENCE_GAP
    ended: dict[str, Value] = {"state": "cancelled", "finished_at": None, "reason": "its schedule is gone"}
    yield Call("end_as_it_ran", Unstarted(job_id, fence, 0, 0, HOLD["none"])._asdict() | ended)
    return f"{job_id} recurs no more, and is cancelled"
