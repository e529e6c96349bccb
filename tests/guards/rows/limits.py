"""Guards of limits: no more run than may, counted from live leases under a lock; all lock in one order."""

from __future__ import annotations

from tests.guards.guard import Guard
from tests.guards.removing import Schema, Statement

SLOTS = "F28 I9"
DEADLOCK = "F20"
WAITS = "F20 F28"
CORE = "0005_limits.postgres.sql"
BARRED = (
    "OR ((g.slots IS NOT NULL OR g.meters_keys OR (g.rate_n IS NOT NULL AND NOT g.refuses)) "
    "AND g.scope || ' ' || g.name <> ALL (:held::text[]))"
)

LIMITS = (
    *(
        Guard(
            name=f"{name}: nothing through a limit that is not held",
            protects=SLOTS,
            without="a claim that does not know of a limit takes more jobs than may run",
            edits=(Statement(f"{name} [postgres]", BARRED),),
        )
        for name in ("open_lane", "head_of_open_lane")
    ),
    Guard(
        name="open_lanes: nothing through a limit that is not held",
        protects=SLOTS,
        without="a claim that does not know of a limit takes more jobs than may run",
        edits=(
            Statement(
                "open_lanes [sqlite]",
                "OR ((g.slots IS NOT NULL OR g.meters_keys OR (g.rate_n IS NOT NULL AND NOT g.refuses))\n"
                "           AND g.scope || ' ' || g.name NOT IN (SELECT value FROM json_each(:held)))",
            ),
        ),
    ),
    Guard(
        name="gate_room(): lock",
        protects=SLOTS,
        without="two claims both count what runs and both fill the last slot",
        edits=(Schema(CORE, "PERFORM pg_advisory_xact_lock(h.lock) FROM (", "PERFORM h.lock FROM ("),),
    ),
    Guard(
        name="gate_room(): in one order",
        protects=DEADLOCK,
        without="two claims through the same two limits deadlock",
        edits=(Schema(CORE, "ORDER BY 1) h;", "ORDER BY 1 DESC) h;"),),
    ),
    *(
        Guard(
            name=f"gate_room(): only live leases of a {scope}",
            protects=SLOTS,
            without="a worker that died holds its slots until it is rescued",
            edits=(Schema(CORE, f"limited & {bit} <> 0 AND leased_until >= since", f"limited & {bit} <> 0"),),
        )
        for scope, bit in (("task", 1), ("queue", 2), ("tenant", 4))
    ),
    Guard(
        name="gate_room(): only live leases of a limit that is new",
        protects=SLOTS,
        without="a worker that died holds its slots until it is rescued",
        edits=(Schema(CORE, "WHERE leased_until > lease_now\n", "WHERE true\n"),),
    ),
    Guard(
        name="gate_room(): what has ended is counted once",
        protects=SLOTS,
        without="a run whose lease lapsed, and which was not counted, is taken off the count",
        edits=(Schema(CORE, "WHERE r.leased_until >= since AND CASE", "WHERE CASE"),),
    ),
    Guard(
        name="gate_room(): token of what has ended",
        protects=SLOTS,
        without="the run of another worker is taken off the count, and one too many starts",
        edits=(Schema(CORE, "ON r.id = ANY (ARRAY[e.id]) AND r.token = e.token", "ON r.id = ANY (ARRAY[e.id])"),),
    ),
    *(
        Guard(
            name=f"gate_now: only live leases of a {scope}",
            protects=SLOTS,
            without="a worker that died holds its slots until it is rescued",
            edits=(
                Statement(
                    "gate_now [sqlite]",
                    f"r.{scope} = :name AND r.limited & {bit} <> 0 AND r.leased_until > :lease_now",
                    f"r.{scope} = :name AND r.limited & {bit} <> 0",
                ),
            ),
        )
        for scope, bit in (("task", 1), ("queue", 2), ("tenant", 4))
    ),
    Guard(
        name="gate_now: only live leases of a limit that is new",
        protects=SLOTS,
        without="a worker that died holds its slots until it is rescued",
        edits=(Statement("gate_now [sqlite]", "r WHERE r.leased_until > :lease_now\n", "r WHERE true\n"),),
    ),
    Guard(
        name="gate_now: what has ended is counted once",
        protects=SLOTS,
        without="a run whose lease lapsed, and which was not counted, is taken off the count",
        edits=(
            Statement(
                "gate_now [sqlite]",
                "g.slots IS NOT NULL AND r.leased_until > :lease_now AND CASE",
                "g.slots IS NOT NULL AND CASE",
            ),
        ),
    ),
    Guard(
        name="gate_now: token of what has ended",
        protects=SLOTS,
        without="the run of another worker is taken off the count, and one too many starts",
        edits=(Statement("gate_now [sqlite]", " AND r.token = json_extract(e.value, '$[1]')"),),
    ),
    Guard(
        name="bar_claims: lock",
        protects=SLOTS,
        without="the run of a claim that was under way when the limit was made is never marked, and never counted",
        edits=(Statement("bar_claims [postgres]", "LOCK TABLE duly.gates IN ACCESS EXCLUSIVE MODE", "SELECT 1"),),
    ),
    Guard(
        name="stamp_running: in one order",
        protects=DEADLOCK,
        without="marking runs and ending them lock rows in opposite order, and deadlock",
        edits=(Statement("stamp_running [postgres]", "ORDER BY id FOR UPDATE", "ORDER BY id DESC FOR UPDATE"),),
    ),
    Guard(
        name="stamped: the limit that was marked",
        protects=SLOTS,
        without="a limit that was taken back and made anew counts as marked, and its runs are not",
        edits=(Statement("stamped", " AND limited_at = :limited_at::bigint"),),
    ),
    Guard(
        name="lock_gate: lock",
        protects="F6",
        without="what somebody sets by hand is lost to a declaration that was under way",
        edits=(Statement("lock_gate [postgres]", " FOR UPDATE"),),
    ),
    Guard(
        name="lock_quota: lock",
        protects="F29",
        without="two enqueues both take the last of a quota",
        edits=(Statement("lock_quota [postgres]", " FOR UPDATE"),),
    ),
    Guard(
        name="lock_keys: lock",
        protects=SLOTS,
        without="two who let jobs of a key in both fill its last slot",
        edits=(
            Statement(
                "lock_keys [postgres]",
                "count(pg_advisory_xact_lock(1685416057, b.bucket))",
                "count(b.bucket)",
            ),
        ),
    ),
    Guard(
        name="lock_keys: in one order",
        protects=DEADLOCK,
        without="two who hold the same two keys deadlock",
        edits=(
            Statement(
                "lock_keys [postgres]",
                "ORDER BY bucket",
                "ORDER BY bucket DESC",
            ),
        ),
    ),
    Guard(
        name="hold_key_rows: in one order",
        protects=DEADLOCK,
        without="the ends of runs that move breakers, and claims that spend rates, deadlock",
        edits=(Statement("hold_key_rows [postgres]", " ORDER BY name FOR UPDATE", " ORDER BY name DESC FOR UPDATE"),),
    ),
    Guard(
        name="hold_key_rows: lock",
        protects=DEADLOCK,
        without="the ends of runs move breakers in the order of the runs, and deadlock",
        edits=(Statement("hold_key_rows [postgres]", " FOR UPDATE"),),
    ),
    Guard(
        name="open_keys: in one order",
        protects=DEADLOCK,
        without="keys that open, and claims that spend their rates, deadlock",
        edits=(Statement("open_keys [postgres]", " ORDER BY name FOR UPDATE", " ORDER BY name DESC FOR UPDATE"),),
    ),
    Guard(
        name="spend: gates before keys",
        protects=DEADLOCK,
        without="a claim that spends the rates of a gate and of a key, and what gives both back, deadlock",
        edits=(Statement("spend [postgres]", " AND (SELECT count(*) FROM spent) >= 0"),),
    ),
    Guard(
        name="spend: in one order",
        protects=DEADLOCK,
        without="two claims that spend the rates of the same keys deadlock",
        edits=(
            Statement("spend [postgres]", " ORDER BY k.name FOR UPDATE OF k", " ORDER BY k.name DESC FOR UPDATE OF k"),
        ),
    ),
    *(
        Guard(
            name=f"admit: {what}",
            protects=WAITS,
            without=harm,
            edits=(Statement("admit [postgres]", cut, put),),
        )
        for what, cut, put, harm in (
            (
                "goes round what is being claimed",
                " FOR UPDATE OF w SKIP LOCKED",
                "",
                "a job that a claim under way has taken is parked as well",
            ),
            (
                "goes round what somebody moves",
                "LIMIT free.may - free.kept FOR UPDATE SKIP LOCKED",
                "LIMIT free.may - free.kept",
                "who lets jobs in waits for a caller's open transaction, or lets in a job that is gone",
            ),
            (
                "is noted once",
                " SELECT mark, id FROM taken ON CONFLICT DO NOTHING",
                " SELECT mark, id FROM taken",
                "a job that is let in a second time cannot be",
            ),
            (
                "forgets round what somebody marks",
                "job_id NOT IN (SELECT id FROM pick) FOR UPDATE SKIP LOCKED",
                "job_id NOT IN (SELECT id FROM pick)",
                "who lets jobs in waits for a caller that left word",
            ),
            (
                "hears round what somebody marks",
                "job_id NOT IN (SELECT id FROM out) FOR UPDATE SKIP LOCKED",
                "job_id NOT IN (SELECT id FROM out)",
                "who lets jobs in waits for a caller that left word",
            ),
        )
    ),
    Guard(
        name="settle_in: goes round what somebody moves",
        protects=WAITS,
        without="who lets jobs in waits for a caller's open transaction",
        edits=(Statement("settle_in [postgres]", " ORDER BY id FOR UPDATE SKIP LOCKED"),),
    ),
    *(
        Guard(
            name=f"forget_keys: not while jobs of the key are let in ({kind})",
            protects=SLOTS,
            without="a claim finds no rate to take a start off",
            edits=(
                Statement(
                    f"forget_keys [{dialect}]", "\n  AND NOT EXISTS (SELECT 1 FROM duly.admitted a WHERE a.key = name)"
                ),
            ),
        )
        for kind, dialect in (("PostgreSQL", "postgres"), ("SQLite", "sqlite"))
    ),
)
