"""Guards of recurring jobs: one by its key, one job for a tick, and a fence that never steps back."""

from __future__ import annotations

from tests.guards.guard import Guard
from tests.guards.removing import Code, Statement

RACE = "F6 I4"
FENCE = "F2 I3 P3"
TICK = "F24 I8 P8"
RUNS = "duly.store.ops_recurring_runs"

RECURRING = (
    Guard(
        name="lock_recurring: lock",
        protects=RACE,
        without="a verb and the end of a run both put the job into a place",
        edits=(Statement("lock_recurring [postgres]", " FOR UPDATE"),),
    ),
    Guard(
        name="touch_recurring: written, not only locked",
        protects="F6 F27",
        without="a condition is evaluated by what the caller's transaction saw before another changed it",
        edits=(
            Statement(
                "touch_recurring",
                "UPDATE duly.recurring SET token = token WHERE id = :id::uuid RETURNING id",
                "SELECT id FROM duly.recurring WHERE id = :id::uuid",
            ),
        ),
    ),
    Guard(
        name="insert_schedule: one that is there is left alone",
        protects="F27 P7",
        without="of two who make a recurring job at once one fails",
        edits=(Statement("insert_schedule", "ON CONFLICT DO NOTHING "),),
    ),
    Guard(
        name="lock_ending: lock",
        protects=RACE,
        without="the end of a run puts a job that is being disabled into its place",
        edits=(Statement("lock_ending [postgres]", " FOR UPDATE SKIP LOCKED"),),
    ),
    Guard(
        name="lock_ending: goes round what others hold",
        protects="F20 P4",
        without="a caller's open transaction keeps all runs of a worker from ending",
        edits=(Statement("lock_ending [postgres]", " FOR UPDATE SKIP LOCKED", " FOR UPDATE"),),
    ),
    Guard(
        name="_queue_for(): lock",
        protects=RACE,
        without="a run that waited in the queue for its job ends beside whoever holds it",
        edits=(Code(f"{RUNS}:_queue_for", " FOR UPDATE"),),
    ),
    Guard(
        name="update_ended: the fence stays (PostgreSQL)",
        protects=FENCE,
        without="a job that was disabled while it ran begins with an old token when it is enabled",
        edits=(Statement("update_ended [postgres]", ", token = b.token"),),
    ),
    Guard(
        name="update_ended: the fence stays (SQLite)",
        protects=FENCE,
        without="a job that was disabled while it ran begins with an old token when it is enabled",
        edits=(Statement("update_ended [sqlite]", ", token = :token"),),
    ),
    Guard(
        name="set_recurring: the fence stays",
        protects=FENCE,
        without="a job that is disabled while it waits begins with an old token when it is enabled",
        edits=(Statement("set_recurring", ", token = :token::bigint"),),
    ),
    Guard(
        name="keep_token: the fence stays",
        protects=FENCE,
        without="a disabled job whose run is given back begins with an old token when it is enabled",
        edits=(
            Statement(
                "keep_token",
                "token = CASE WHEN token > :token::bigint THEN token ELSE :token::bigint END",
                "token = token",
            ),
        ),
    ),
    Guard(
        name="keep_token: the fence does not step back",
        protects=FENCE,
        without="a late word about an old run sets the fence back",
        edits=(
            Statement(
                "keep_token",
                "token = CASE WHEN token > :token::bigint THEN token ELSE :token::bigint END",
                "token = :token::bigint",
            ),
        ),
    ),
    Guard(
        name="_take(): the fence does not step back",
        protects=FENCE,
        without="the fence is set back to what the place had",
        edits=(
            Code(
                "duly.store.ops_recurring:Recurring._take",
                "return max(taken.token, int(str(rows[0][0])))",
                "return taken.token",
            ),
        ),
    ),
    Guard(
        name="_enable(): begins at the fence",
        protects=FENCE,
        without="a job that is enabled again begins with the token of its first run",
        edits=(Code("duly.store.ops_recurring:Recurring._enable", "token = int(str(rows[0][0]))", "token = 0"),),
    ),
    Guard(
        name="is_enabled: a disabled job goes back to no place",
        protects="I6",
        without="a job that was disabled while it ran is put back into its lane",
        edits=(Statement("is_enabled", " AND enabled"),),
    ),
    Guard(
        name="_following(): a disabled job goes nowhere",
        protects="I6",
        without="a job that was disabled while it ran runs again",
        edits=(Code(f"{RUNS}:_following", "if not job.enabled:", "if False:"),),
    ),
    Guard(
        name="due_spawning: lock",
        protects=TICK,
        without="two who make the jobs of ticks wait for each other, or set a schedule back",
        edits=(Statement("due_spawning [postgres]", " FOR UPDATE OF r SKIP LOCKED"),),
    ),
    Guard(
        name="spawning: still due once it is held",
        protects=TICK,
        without="a tick that another has just made is made again",
        edits=(Statement("spawning", " AND d.hold = 5 AND d.run_at <= :now"),),
    ),
    Guard(
        name="spawn_job: a tick that is there is left alone",
        protects=TICK,
        without="a tick that comes twice fails, and with it all ticks after it",
        edits=(Statement("spawn_job", " ON CONFLICT DO NOTHING"),),
    ),
    Guard(
        name="id_of_tick(): always the same id",
        protects=TICK,
        without="a tick that comes twice makes two jobs",
        edits=(
            Code(
                f"{RUNS}:id_of_tick",
                'digest = hashlib.blake2b(f"{schedule_id}/{tick}".encode(), digest_size=10).digest()',
                'digest = __import__("os").urandom(10)',
            ),
        ),
    ),
)
