"""Guards of tenants: what belongs to one is neither seen nor changed by another."""

from __future__ import annotations

from duly.store.roles import OWN
from tests.guards.guard import Guard
from tests.guards.removing import Code, Entry, Statement

APART = "I10 P19"

STATEMENTS = {
    "is_of_tenant": " AND tenant = :tenant::text",
    "get_job_of": " AND j.tenant = :tenant::text",
    "is_recurring_of": " AND tenant = :tenant::text",
    "own": "e.tenant = :tenant::text AND e.tenant <> '' AND ",
    "count_waiting_of": " AND tenant = :tenant::text",
    "some_waiting_of": " AND tenant = :tenant::text",
    "count_scheduled_of": " WHERE tenant = :tenant::text AND tenant <> ''",
    "count_running_of": " WHERE tenant = :tenant::text",
    "count_parked_of": " WHERE tenant = :tenant::text AND tenant <> ''",
    "count_parked_jobs_of": " WHERE tenant = :tenant::text",
    "count_ended_of": " WHERE e.tenant = :tenant::text AND e.tenant <> ''",
    "count_recurring_of": " WHERE s.tenant = :tenant::text",
    "recent_runs_of": "e.tenant = :tenant::text AND e.tenant <> '' AND ",
    "list_audit_of_tenant": "tenant = :tenant::text AND tenant <> '' AND ",
    "list_audit_of": "\n  AND (:tenant::text IS NULL OR tenant = :tenant::text)",
    "pause_of": " AND name = :tenant::text",
    "limits_of_tenant": " AND name = :tenant::text",
    "weight_of": " WHERE name = :tenant::text",
    "get_recurring": " AND (:tenant::text IS NULL OR s.tenant = :tenant::text)",
    "list_recurring_of": "s.tenant = :tenant::text AND ",
    "page_minutes": " AND (:tenant::text IS NULL OR tenant = :tenant::text)",
    "page_parked": " WHERE (:tenant::text IS NULL OR tenant = :tenant::text)",
    "page_running": " WHERE (:tenant::text IS NULL OR tenant = :tenant::text)",
    "page_troubled": " AND (:tenant::text IS NULL OR s.tenant = :tenant::text)",
    "page_watched [postgres]": (
        " AND (:tenant::text IS NULL"
        " OR EXISTS (SELECT 1 FROM duly.jobs j WHERE j.id = p.id AND j.tenant = :tenant::text))"
    ),
    "page_watched [sqlite]": (
        "\n  AND (:tenant IS NULL OR EXISTS (SELECT 1 FROM duly.jobs j WHERE j.id = e.value AND j.tenant = :tenant))"
    ),
    "sum_rollups": "\n  AND (:tenant::text IS NULL OR tenant = :tenant::text)",
    "sum_usage [postgres]": "\n  AND (:tenant::text IS NULL OR tenant = :tenant::text)",
    "sum_usage [sqlite]": "(:tenant IS NULL OR r.tenant = :tenant) AND ",
}

TENANTS = (
    Guard(
        name="insert_token: once",
        protects="F14 P7",
        without="to let somebody in again after a lost reply is an error, though they are in",
        edits=(Statement("insert_token", "ON CONFLICT DO NOTHING "),),
    ),
    Guard(
        name="find_recurring: only what is this tenant's",
        protects=APART,
        without="a tenant that makes a recurring job changes the one that another has by the same key",
        edits=(Statement("find_recurring", "tenant = :tenant::text AND "),),
        red="RecurringJobNotFound",
    ),
    Guard(
        name="find_recurring_by_name: only what is this tenant's",
        protects=APART,
        without="a tenant is told which names another has given to its recurring jobs",
        edits=(Statement("find_recurring_by_name", "tenant = :tenant::text AND "),),
        red="Conflict: the name",
    ),
    *(
        Guard(
            name=f"{name}: only what is this tenant's",
            protects=APART,
            without="a tenant sees what another has",
            edits=(Statement(name, cut),),
        )
        for name, cut in STATEMENTS.items()
    ),
    Guard(
        name="tenant_standing: only what is this tenant's",
        protects=APART,
        without="what a tenant has running and parked is counted for another",
        edits=(
            Statement("tenant_standing", "duly.running WHERE tenant = :tenant::text", "duly.running"),
            Statement("tenant_standing", "duly.parked WHERE tenant = :tenant::text AND tenant <> ''", "duly.parked"),
        ),
    ),
    Guard(
        name="within(): a verb finds only its tenant's jobs",
        protects=APART,
        without="a tenant cancels, retries or deletes the jobs of another",
        edits=(
            Code(
                "duly.store.ops_jobs:within",
                'if not (yield Call("is_of_tenant", {"id": job_id, "tenant": tenant})):',
                'if not (yield Call("is_of_tenant", {"id": job_id, "tenant": tenant})) and False:',
            ),
        ),
    ),
    Guard(
        name="Recurring._sees(): only its tenant's recurring jobs",
        protects=APART,
        without="a tenant makes or finds recurring jobs of another by their keys",
        edits=(Code("duly.store.ops_recurring:Recurring._sees", "return self.tenant is None or", "return True or"),),
    ),
    *(
        Guard(
            name=f"row-level security: {table}",
            protects=APART,
            without="a program that logs in as a tenant reads the rows of others",
            edits=(Entry("duly.store.roles:OWN", table, ("true", also)),),
        )
        for table, (_, also) in OWN.items()
    ),
    *(
        Guard(
            name=f"row-level security: what is written to {table}",
            protects=APART,
            without="a program that logs in as a tenant writes rows about the jobs of others",
            edits=(Entry("duly.store.roles:OWN", table, (own, None)),),
        )
        for table, (own, also) in OWN.items()
        if also is not None
    ),
    Guard(
        name="row-level security: what is left of a rate",
        protects=APART,
        without="a tenant gives itself back what it has spent of its rate",
        edits=(
            Code(
                "duly.store.roles:_statements",
                "USING (scope IN ('minute', 'day') AND refuses)",
                "USING (true)",
            ),
        ),
    ),
    Guard(
        name="row-level security: is on",
        protects=APART,
        without="a program that logs in as a tenant reads everything",
        edits=(Code("duly.store.roles:_statements", "ENABLE ROW LEVEL SECURITY", "DISABLE ROW LEVEL SECURITY"),),
    ),
    Guard(
        name="row-level security: the view of places too",
        protects=APART,
        without="a program that logs in as a tenant sees where the jobs of others stand",
        edits=(Code("duly.store.roles:_statements", "security_invoker = true", "security_invoker = false"),),
    ),
)
