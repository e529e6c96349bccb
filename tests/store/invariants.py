"""What must be true of the tables at every moment, whatever was done to them."""

from __future__ import annotations

from collections import Counter

from duly.domain.limits import Rate
from duly.domain.rank import DEFAULT_HORIZON_US
from tests.store.raw import PLACES, Raw

LIVE = ("scheduled", "waiting", "parked", "running")


def places_of(raw: Raw) -> dict[str, str]:
    """Return the one place of each job; fail if a job is in none or in several, or a place has no job."""
    found = [(str(row[0]), place) for place in PLACES for row in raw.rows(f"SELECT id FROM duly.{place}")]
    jobs = {str(row[0]) for row in raw.rows("SELECT id FROM duly.jobs")}
    times = Counter(job_id for job_id, _ in found)
    several = {job_id: [place for each, place in found if each == job_id] for job_id, n in times.items() if n > 1}
    assert not several, f"jobs in several places: {several}"
    idle = {str(row[0]) for row in raw.rows("SELECT id FROM duly.recurring WHERE NOT enabled")}
    assert not jobs - times.keys() - idle, f"jobs in no place: {jobs - times.keys() - idle}"
    assert not times.keys() - jobs, f"places without a job: {[each for each in found if each[0] not in jobs]}"
    return dict(found)


def check(raw: Raw, now: int | None = None) -> None:
    """Fail if anything that must always be true is not. With `now` also that no key with room is forgotten."""
    places = places_of(raw)
    check_limit_keys(raw, places, now)
    check_keys(raw, places)
    check_tokens(raw)
    check_lanes(raw)
    check_recurring(raw, places)
    assert not raw.rows("SELECT job_id FROM duly.runs WHERE job_id NOT IN (SELECT id FROM duly.jobs)"), "runs of no job"


def check_keys(raw: Raw, places: dict[str, str]) -> None:
    """A unique key names a job that exists and may hold it; a job that says it holds one does."""
    keys = raw.rows("SELECT job_id, scope, next_id FROM duly.unique_keys")
    for job_id, scope, _ in keys:
        assert job_id in places, f"a key is held by {job_id}, which does not exist"
        if scope in (1, 2):
            assert places[job_id] != "ended", f"{job_id} ended and still holds its key"
    owners = {str(row[0]) for row in keys}
    waits = {str(row[0]) for row in raw.rows("SELECT id FROM duly.parked WHERE reason = 'unique'")}
    assert waits <= {str(row[2]) for row in keys}, "a job waits for a key that will not come"
    for place in LIVE:
        scopes = "(1, 2)" if place != "running" else "(2)"
        holds = {str(row[0]) for row in raw.rows(f"SELECT id FROM duly.{place} WHERE hold IN {scopes}")}
        assert holds - waits <= owners, f"jobs in {place} without their key: {holds - waits - owners}"


def check_recurring(raw: Raw, places: dict[str, str]) -> None:
    """A recurring job has its three rows and, by its hold, its kind of place; disabled, it is nowhere or runs."""
    rows = raw.rows(
        "SELECT r.id, r.enabled FROM duly.recurring r"
        " JOIN duly.schedules s ON s.id = r.id JOIN duly.jobs j ON j.id = r.id"
    )
    assert len(rows) == raw.count("recurring") == raw.count("schedules"), "rows of recurring jobs without the others"
    for job_id, enabled in rows:
        place = places.get(str(job_id))
        assert place == "running" or (place is not None) == bool(enabled), f"{job_id}: {enabled=} and it is in {place}"
        assert place != "ended", f"{job_id} recurs and has ended"
    for place in LIVE:
        held = {str(row[0]) for row in raw.rows(f"SELECT id FROM duly.{place} WHERE hold IN (4, 5)")}
        assert held == {str(row[0]) for row in rows if places.get(str(row[0])) == place}, f"holds in {place}"
    behind = raw.rows(
        "SELECT r.id FROM duly.recurring r JOIN duly.runs u ON u.job_id = r.id AND u.token > r.token"
        " WHERE NOT r.enabled AND NOT EXISTS (SELECT 1 FROM duly.running x WHERE x.id = r.id)"
    )
    assert not behind, f"disabled jobs whose fence went back: {behind}"


def check_tokens(raw: Raw) -> None:
    """Tokens grow: no run on record is newer than the job itself, and none that is under way has ended."""
    for place in LIVE:
        newer = f"r.token {'>=' if place == 'running' else '>'} p.token"
        stale = raw.rows(f"SELECT p.id FROM duly.{place} p JOIN duly.runs r ON r.job_id = p.id AND {newer}")
        assert not stale, f"jobs in {place} whose token went back: {stale}"


def check_lanes(raw: Raw) -> None:
    """Every job in a lane has the rank that its priority gives it, and is a suspect if it took two workers with it."""
    aged = raw.rows("SELECT name FROM duly.queues")
    for queue, suspect, rank, run_at, priority, crashes in raw.rows(
        "SELECT queue, suspect, rank, run_at, priority, crashes FROM duly.waiting"
    ):
        assert suspect == (crashes > 1), f"suspect {suspect} after {crashes} crashes"
        if (queue,) not in aged:
            assert rank == run_at - priority * (DEFAULT_HORIZON_US // 100), f"rank {rank} of priority {priority}"


def check_limit_keys(raw: Raw, places: dict[str, str], now: int | None) -> None:
    """A job with a key is in a lane or runs only if it was let in; no key has more than its slots, nor is forgotten."""
    keys = dict(raw.rows("SELECT id, limit_key FROM duly.jobs WHERE limit_key IS NOT NULL"))
    let_in = {(str(key), str(job_id)) for key, job_id in raw.rows("SELECT key, job_id FROM duly.admitted")}
    for job_id, key in keys.items():
        if places.get(job_id) in ("waiting", "running"):
            assert (key, job_id) in let_in, f"{job_id} with key {key} is in {places[job_id]} and was never let in"
    aside = raw.rows("SELECT id, mark, reason FROM duly.parked WHERE rank IS NOT NULL")
    for job_id, mark, reason in aside:
        assert keys.get(str(job_id)) == mark, f"{job_id} waits for the key {mark}, its own is {keys.get(str(job_id))}"
        assert reason in ("arrived", "key"), f"{job_id} has a rank and is parked for {reason}"
    for key in {str(key) for key in keys.values()}:
        standing = Counter(places.get(job_id) for job_id, its in keys.items() if its == key)
        arrived = any(mark == key and reason == "arrived" for _, mark, reason in aside)
        check_room(raw, key, standing, now, arrived=arrived, left=any(mark == key for _, mark, _ in aside))


def check_room(
    raw: Raw, key: str, standing: Counter[str | None], now: int | None, *, arrived: bool, left: bool
) -> None:
    """No more of a key wait in lanes and run than may; if there is room for one that waits, somebody will look."""
    waits, runs = standing["waiting"], standing["running"]
    group = key.partition("/")[0].partition("@")[0]
    quoted = key.replace("'", "''")
    own = raw.rows(
        "SELECT own_slots, own_rate, rate_n, rate_us, burst, spent_until, opens_at, breaker_state, paused_at, "
        f"paused_until, blocked_until FROM duly.keys WHERE name = '{quoted}'"
    )
    said = raw.rows(f"SELECT slots, rate_n, rate_us, burst FROM duly.gates WHERE scope = 'keys' AND name = '{group}'")
    slots, *rate = said[0] if said else (None,) * 4
    spent, opens_at, state, paused_at, paused_until, blocked_until = 0, None, None, None, None, None
    if own:
        own_slots, own_rate, *own_bucket, spent, opens_at, state, paused_at, paused_until, blocked_until = own[0]
        slots = slots if own_slots is None else own_slots
        rate = own_bucket if own_rate else rate
    if slots is not None:
        assert not waits or waits + runs <= slots, f"key {key}: {waits} in lanes and {runs} running of {slots}"
    pending = arrived or (now is not None and opens_at is not None and opens_at <= now) or left_behind(raw, quoted)
    if now is None or pending:
        return
    assert state is None or not waits or waits + runs <= 1, f"key {key}: more than one is tried"
    ends = [end for end in (paused_until if paused_at is not None else None, blocked_until) if end and end > now]
    for_good = paused_at is not None and paused_until is None
    if for_good or ends:
        assert not waits, f"key {key} is closed and {waits} of its jobs are in lanes"
        if left and not for_good:
            assert opens_at is not None, f"key {key} opens at {ends}, and nobody will look"
            assert opens_at <= max(ends), f"key {key} opens at {ends}, looked at {opens_at}"
        return
    room = [1] + ([] if slots is None else [slots - waits - runs]) + ([] if state is None else [1 - waits - runs])
    if left and min(room) > 0:
        assert rate[0] is not None, f"key {key} has room, jobs wait for it, and nobody will look"
        bucket = Rate(*rate)
        assert bucket.room(spent, 0, now) <= waits, f"key {key} has room, jobs wait for it, and nobody will look"
        assert opens_at is not None, f"the rate of key {key} opens, jobs wait for it, and nobody will look"


def left_behind(raw: Raw, quoted: str) -> bool:
    """Whether word was left that a job of the key has gone from its lane."""
    return bool(raw.rows(f"SELECT 1 FROM duly.admitted WHERE look AND key = '{quoted}'"))
