"""Guards of runs: a write about a running job counts only with its token, a rescue only when the time is over."""

from __future__ import annotations

from tests.guards.guard import Guard
from tests.guards.removing import Statement

TOKEN_B = " AND r.token = json_extract(b.value, '$[1]')"
STALE = "F2 I2 P3"
RESCUE = "F6 I4 P5"

RUNS = (
    Guard(
        name="settle: token (PostgreSQL)",
        protects=STALE,
        without="a worker that lost its lease ends the run of the one that has the job now",
        edits=(Statement("settle [postgres]", " AND r.token = b.token"),),
    ),
    Guard(
        name="settle_plain: token",
        protects=STALE,
        without="a worker that lost its lease ends the run of the one that has the job now, if it succeeded",
        edits=(Statement("settle_plain [postgres]", " AND r.token = b.token"),),
    ),
    Guard(
        name="settle: token (SQLite)",
        protects=STALE,
        without="a worker that lost its lease takes the job away from the one that has it now",
        edits=(Statement("settle_held [sqlite]", TOKEN_B),),
    ),
    Guard(
        name="settle_lay_out: token",
        protects=STALE,
        without="a worker that lost its lease ends the run of the one that has the job now, if it succeeded",
        edits=(Statement("settle_lay_out [sqlite]", " AND r.token = CAST(substr(b.value, 37, 19) AS integer)"),),
    ),
    Guard(
        name="settle_lay_out: a run that is said twice in a batch",
        protects="I2 P7",
        without="a batch in which a run is named twice is refused for ever",
        edits=(Statement("settle_lay_out [sqlite]", "INSERT OR IGNORE INTO", "INSERT INTO"),),
    ),
    Guard(
        name="parked_before: token",
        protects=STALE,
        without="a worker that lost its lease is told that it set the job aside",
        edits=(Statement("parked_before", " AND token = :token::bigint"),),
    ),
    *(
        Guard(
            name=f"{name}: token (SQLite)",
            protects=STALE,
            without=f"a stale token beside the good one in a batch {harm}",
            edits=(Statement(f"{name} [sqlite]", TOKEN_B),),
        )
        for name, harm in (
            ("settle_runs", "is put on record as a run"),
            ("settle_ended", "ends the job"),
            ("settle_scheduled", "has the job run again"),
            ("settle_queued", "puts the job back into its lane"),
            ("settle_rollups", "is counted"),
        )
    ),
    Guard(
        name="settle_rollups: counts the run that ended (SQLite)",
        protects="I2",
        without="every earlier run of the job is counted again",
        edits=(Statement("settle_rollups [sqlite]", " AND u.token = r.token"),),
    ),
    Guard(
        name="settle: only what has lapsed (PostgreSQL)",
        protects=RESCUE,
        without="a rescue from a stale look takes a job whose lease was renewed meanwhile",
        edits=(
            Statement(
                "settle [postgres]",
                " AND (NOT :only_expired::boolean OR r.leased_until <= :lease_now OR r.deadline_at <= :now)",
            ),
        ),
    ),
    Guard(
        name="settle: only what has lapsed (SQLite)",
        protects=RESCUE,
        without="a rescue from a stale look takes a job whose lease was renewed meanwhile",
        edits=(
            Statement(
                "settle_held [sqlite]",
                "WHERE NOT :only_expired OR r.leased_until <= :lease_now OR r.deadline_at <= :now",
            ),
        ),
    ),
    Guard(
        name="settle: what was asked to stop does not go back (PostgreSQL)",
        protects="I6",
        without="a cancelled job that is retried or released runs again",
        edits=(
            Statement(
                "settle [postgres]",
                "r.cancel_at IS NOT NULL AND r.hold < 4 AND b.state IN",
                "r.cancel_at IS NOT NULL AND r.hold < 0 AND b.state IN",
                times=2,
            ),
        ),
    ),
    Guard(
        name="settle: what was asked to stop does not go back (SQLite)",
        protects="I6",
        without="a cancelled job that is retried or released runs again",
        edits=(
            Statement(
                "settle_held [sqlite]",
                "r.cancel_at IS NOT NULL AND r.hold < 4",
                "r.cancel_at IS NOT NULL AND r.hold < 0",
            ),
        ),
    ),
    Guard(
        name="lock_run: token (PostgreSQL)",
        protects=STALE,
        without="a handler that lost its job is not told so, and commits what it did",
        edits=(Statement("lock_run [postgres]", " AND token = :token::bigint"),),
    ),
    Guard(
        name="lock_run: token (SQLite)",
        protects=STALE,
        without="a handler that lost its job is not told so, and commits what it did",
        edits=(Statement("lock_run [sqlite]", " AND token = :token"),),
    ),
    Guard(
        name="lock_run: lock",
        protects="F14 I2 P3",
        without="a run is rescued while its handler completes it, and the handler commits all the same",
        edits=(Statement("lock_run [postgres]", "FOR UPDATE"),),
    ),
    Guard(
        name="held_pairs: token (PostgreSQL)",
        protects=STALE,
        without="a worker gives back a run that another has now",
        edits=(Statement("held_pairs [postgres]", " AND r.token = b.token"),),
    ),
    Guard(
        name="held_pairs: token (SQLite)",
        protects=STALE,
        without="a worker gives back a run that another has now",
        edits=(Statement("held_pairs [sqlite]", TOKEN_B),),
    ),
    Guard(
        name="renew: token (PostgreSQL)",
        protects="F2 F4 I4 P4",
        without="a worker that lost a job keeps the lease of the one that has it alive, and its own run going",
        edits=(Statement("renew [postgres]", " AND u.token = b.token"),),
    ),
    Guard(
        name="renew: token (SQLite)",
        protects="F2 F4 I4 P4",
        without="a worker that lost a job keeps the lease of the one that has it alive, and its own run going",
        edits=(
            Statement(
                "renew [sqlite]",
                "(id, token) IN (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM",
                "id IN (SELECT json_extract(value, '$[0]') FROM",
            ),
        ),
    ),
    Guard(
        name="renew: waits for nobody",
        protects="F10 P5",
        without="a handler that holds its own row keeps all leases of its worker from being renewed",
        edits=(Statement("renew [postgres]", " FOR NO KEY UPDATE OF u SKIP LOCKED"),),
    ),
    Guard(
        name="renew: a lapsed lease under a limit stays lapsed (PostgreSQL)",
        protects="F28 I9",
        without="a worker that stood still takes up again a slot that was given to another",
        edits=(Statement("renew [postgres]", " AND (r.limited = 0 OR r.leased_until > :lease_now)"),),
    ),
    Guard(
        name="renew: a lapsed lease under a limit stays lapsed (SQLite)",
        protects="F28 I9",
        without="a worker that stood still takes up again a slot that was given to another",
        edits=(Statement("renew [sqlite]", "\n  AND (limited = 0 OR leased_until > :lease_now)"),),
    ),
    Guard(
        name="still_held: token",
        protects=STALE,
        without="a worker takes a job for its own that another holds and is about to end",
        edits=(Statement("still_held [postgres]", " AND r.token = b.token"),),
    ),
    Guard(
        name="still_held: a lapsed lease under a limit stays lapsed",
        protects="F28 I9",
        without="a run whose row is locked goes on in a slot that was given to another",
        edits=(Statement("still_held [postgres]", " AND (r.limited = 0 OR r.leased_until > :lease_now)"),),
    ),
    Guard(
        name="set_progress: token",
        protects=STALE,
        without="a worker that lost a job writes its progress over that of the one that has it now",
        edits=(Statement("set_progress", " AND token = :token::bigint"),),
    ),
    Guard(
        name="settled_before: token",
        protects="F14 P7",
        without="an end that was refused is taken for one whose reply was lost, because an earlier run ended alike",
        edits=(Statement("settled_before", " AND token = :token::bigint"),),
    ),
    Guard(
        name="settled_before: outcome",
        protects="F14 P7",
        without="a run that the rescuer ended is taken for one whose reply was lost",
        edits=(Statement("settled_before", " AND outcome = :outcome::text"),),
    ),
    Guard(
        name="park: token (PostgreSQL)",
        protects=STALE,
        without="a worker that lost a job sets it aside while another runs it",
        edits=(Statement("park [postgres]", " AND token = :token::bigint"),),
    ),
    Guard(
        name="park_held: token (SQLite)",
        protects=STALE,
        without="a worker that lost a job sets it aside while another runs it",
        edits=(Statement("park_held [sqlite]", " AND token = :token"),),
    ),
    Guard(
        name="leave_running_one: token (SQLite)",
        protects="F2 I1 P3",
        without="a worker that lost a job takes it away from the one that has it now, and it is nowhere",
        edits=(Statement("leave_running_one [sqlite]", " AND token = :token"),),
    ),
    Guard(
        name="lapsed: lease or deadline (PostgreSQL)",
        protects=RESCUE,
        without="runs of live workers are looked at by the rescuer",
        edits=(
            Statement("lapsed [postgres]", "(leased_until <= :lease_now OR deadline_at <= :now)", "true"),
            Statement("lapsed [postgres]", "(r.leased_until <= :lease_now OR r.deadline_at <= :now)", "true"),
        ),
    ),
    Guard(
        name="lapsed: lease or deadline (SQLite)",
        protects=RESCUE,
        without="runs of live workers are looked at by the rescuer",
        edits=(Statement("lapsed [sqlite]", "(r.leased_until <= :lease_now OR r.deadline_at <= :now)", "true"),),
    ),
    Guard(
        name="lapsed: not soon after the server started",
        protects="F13 P5 P11",
        without="after an outage of the database live workers are robbed of their jobs before they can renew",
        edits=(
            Statement(
                "lapsed [postgres]",
                "\n      AND :lease_now > (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint"
                " + :lease_us::bigint",
            ),
        ),
    ),
    Guard(
        name="lapsed: not what somebody is about to end",
        protects="F7 P4",
        without="the rescuer waits for the transaction of a handler, and nobody else is rescued meanwhile",
        edits=(Statement("lapsed [postgres]", " FOR KEY SHARE OF r SKIP LOCKED"),),
    ),
    Guard(
        name="held_before_boot: claimed before the boot",
        protects="F19 P5",
        without="a run claimed since the boot is taken for one of an earlier boot",
        edits=(Statement("held_before_boot [sqlite]", "r.claimed_at < :now - :lease_now AND "),),
    ),
    Guard(
        name="held_before_boot: a lease that no worker of this boot can have",
        protects="F19 P5",
        without="a run whose worker's wall clock was set back is taken for one of an earlier boot",
        edits=(Statement("held_before_boot [sqlite]", " AND r.leased_until > :lease_now + :lease_us"),),
    ),
    Guard(
        name="held_before_boot: a worker not seen since",
        protects="F19 P5",
        without="a live worker loses its runs when the wall clock is set forward",
        edits=(
            Statement(
                "held_before_boot [sqlite]",
                "\n  AND NOT EXISTS (SELECT 1 FROM duly.workers w"
                " WHERE w.id = r.worker_id AND w.seen_at >= :now - :lease_now)",
            ),
        ),
    ),
    Guard(
        name="run_held: token",
        protects=STALE,
        without="a handler is told that its run has its job, though another has it",
        edits=(Statement("run_held", " AND token = :token::bigint"),),
    ),
    *(
        Guard(
            name=f"completed_runs: token of what {what} ({'PostgreSQL' if 'postgres' in name else 'SQLite'})",
            protects=STALE,
            without=harm,
            edits=(Statement(name, cut),),
        )
        for name, what, cut, harm in (
            ("completed_runs [postgres]", "runs", " AND r.token = b.token", "another run of the job is waited for"),
            (
                "completed_runs [postgres]",
                "ended",
                " AND u.token = b.token",
                "an earlier run that succeeded is taken for this one",
            ),
            ("completed_runs [sqlite]", "runs", TOKEN_B, "another run of the job is waited for"),
            (
                "completed_runs [sqlite]",
                "ended",
                " AND u.token = json_extract(b.value, '$[1]')",
                "an earlier run that succeeded is taken for this one",
            ),
        )
    ),
    Guard(
        name="runs_let_go: token (PostgreSQL)",
        protects=STALE,
        without="a run that is over counts as one that nobody is about to end",
        edits=(Statement("runs_let_go [postgres]", " AND r.token = b.token"),),
    ),
    Guard(
        name="runs_let_go: token (SQLite)",
        protects=STALE,
        without="a run that is over counts as one that nobody is about to end",
        edits=(Statement("runs_let_go [sqlite]", TOKEN_B),),
    ),
    Guard(
        name="runs_let_go: not what an open transaction is about to end",
        protects="F14 I2 P3",
        without="a run is taken for not completed while the transaction that completes it is still open",
        edits=(Statement("runs_let_go [postgres]", " FOR KEY SHARE OF r SKIP LOCKED"),),
    ),
    Guard(
        name="set_run_log: token",
        protects=STALE,
        without="the log of one run is kept with all runs of its job",
        edits=(Statement("set_run_log", " AND token = :token::bigint"),),
    ),
    Guard(
        name="claim: the token grows (PostgreSQL)",
        protects="F2 I3 P3",
        without="a run has the token of the one before it",
        edits=(Statement("lease_heads [postgres]", "t.token + 1 AS token", "GREATEST(t.token, 1) AS token"),),
    ),
    Guard(
        name="claim: the token grows (SQLite)",
        protects="F2 I3 P3",
        without="a run has the token of the one before it",
        edits=(Statement("leasing_from_lane [sqlite]", "w.token + 1,", "max(w.token, 1),"),),
    ),
    Guard(
        name="claim: the attempt is counted (PostgreSQL)",
        protects="F9 I5 P6",
        without="a job that takes its worker with it is tried for ever",
        edits=(Statement("lease_heads [postgres]", "t.attempt + 1 AS attempt", "GREATEST(t.attempt, 1) AS attempt"),),
    ),
    Guard(
        name="claim: the attempt is counted (SQLite)",
        protects="F9 I5 P6",
        without="a job that takes its worker with it is tried for ever",
        edits=(Statement("leasing_from_lane [sqlite]", "w.attempt + 1,", "max(w.attempt, 1),"),),
    ),
    *(
        Guard(
            name=f"{name}: goes round what others take",
            protects="F20 I4",
            without="claims queue up behind each other's open transactions",
            edits=(Statement(f"{name} [postgres]", " FOR UPDATE SKIP LOCKED"),),
        )
        for name in ("claim_lane", "claim_gated_lane", "lock_quotas")
    ),
    Guard(
        name="lock_ended: lock",
        protects="F6 I1 I4",
        without="two who retry a job at once both put it into a lane",
        edits=(Statement("lock_ended [postgres]", " FOR UPDATE"),),
    ),
    Guard(
        name="prune_jobs: only what has ended so",
        protects="F6 I1",
        without="a job that was retried, and ended in another state since it was looked for, is forgotten too soon",
        edits=(Statement("prune_jobs [postgres]", " AND state = :state::text"),),
    ),
    Guard(
        name="prune_jobs: not what somebody holds",
        protects="F20",
        without="whoever retries some jobs in one transaction and whoever prunes them wait for each other in a circle",
        edits=(Statement("prune_jobs [postgres]", " FOR UPDATE SKIP LOCKED"),),
    ),
    Guard(
        name="old_ended: not what a unique key names",
        protects="F27 I7 P13",
        without="an enqueue within a window is answered with a job that is forgotten",
        edits=(Statement("old_ended", "\nAND NOT EXISTS (SELECT 1 FROM duly.unique_keys u WHERE u.job_id = e.id)"),),
    ),
    Guard(
        name="promote: goes round what others move",
        protects="F7 F20",
        without="who promotes waits for a caller's open transaction",
        edits=(Statement("promote [postgres]", " FOR UPDATE SKIP LOCKED"),),
    ),
    Guard(
        name="promote: not schedules that make a job per tick (PostgreSQL)",
        protects="F24 I8 P8",
        without="the schedule itself is run, and never ticks again",
        edits=(Statement("promote [postgres]", " AND hold <> 5"),),
    ),
    Guard(
        name="promote: not schedules that make a job per tick (SQLite)",
        protects="F24 I8 P8",
        without="the schedule itself is run, and never ticks again",
        edits=(Statement("due_scheduled [sqlite]", " AND hold <> 5"),),
    ),
    Guard(
        name="forget_workers: not those that hold something",
        protects="F1 P4",
        without="a worker that is forgotten leaves runs of which nobody knows whose they are",
        edits=(
            Statement(
                "forget_workers", "\nAND NOT EXISTS (SELECT 1 FROM duly.running r WHERE r.worker_id = duly.workers.id)"
            ),
        ),
    ),
)
