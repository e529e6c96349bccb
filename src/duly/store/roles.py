"""Roles for PostgreSQL that may do what they must and no more, as SQL to review and run (`duly roles --sql`).

None of them can log in: people and programs are made members. Row-level security keeps the role of a tenant to that
tenant's rows; which tenant a role is stands in `tenant_roles`, which only the owner writes. See decision 0016. What is
printed may be run again at any time, and must be after a migration that adds tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from duly.domain.errors import ConfigurationError, InvalidOption
from duly.domain.names import check_tenant
from duly.domain.text import safe_repr
from duly.store.statements import check_schema, literal

ROLES = {
    "read": "looks at everything, of every tenant",
    "enqueue": "stores new jobs, of every tenant, and can read no arguments",
    "worker": "runs jobs: claims, settles, and does the upkeep",
    "operator": "looks at everything, cancels, retries, pauses, sets limits; may not run jobs or change the audit",
    "tenant": "does what an operator does to jobs, and enqueues, but only its own tenant's",
}
MOST_BYTES = 63

ALL = "SELECT, INSERT, UPDATE, DELETE"
READ = {"read": "SELECT"}
TABLES: dict[str, dict[str, str]] = {
    "jobs": READ | {
        "enqueue": "SELECT (id, task, queue, tenant, priority, created_at, limit_key), INSERT",
        "worker": ALL,
        "operator": ALL,
        "tenant": "SELECT, INSERT, DELETE, "
        "UPDATE (queue, args, priority, max_attempts, retry, timeout_us, enqueued_by, tags, limit_key)",
    },
    "scheduled": READ | {
        "enqueue": "SELECT (id), INSERT, UPDATE (priority)",
        "worker": ALL,
        "operator": ALL,
        "tenant": "SELECT, INSERT, DELETE, UPDATE (priority)",
    },
    "waiting": READ | {
        "enqueue": "SELECT (id), INSERT, UPDATE (priority)",
        "worker": ALL,
        "operator": ALL,
        "tenant": "SELECT, INSERT, DELETE, UPDATE (priority, rank)",
    },
    "parked": READ | {
        "enqueue": "SELECT (id), INSERT, UPDATE (priority)",
        "worker": ALL,
        "operator": ALL,
        "tenant": "SELECT, INSERT, DELETE, UPDATE (priority, rank, reason)",
    },
    "running": READ | {
        "worker": ALL,
        "operator": "SELECT, DELETE, UPDATE (cancel_at, cancel_reason)",
        "tenant": "SELECT, DELETE, UPDATE (cancel_at, cancel_reason)",
    },
    "ended": READ | {
        "worker": ALL,
        "operator": ALL,
        "tenant": "SELECT, INSERT, DELETE, UPDATE (reason)",
    },
    "runs": READ | {"worker": ALL, "operator": "SELECT, DELETE", "tenant": "SELECT, DELETE"},
    "rollups": READ | {"worker": ALL, "operator": "SELECT", "tenant": "SELECT"},
    "unique_keys": READ | {
        "enqueue": "SELECT, INSERT, UPDATE",
        "worker": ALL,
        "operator": ALL,
        "tenant": ALL,
    },
    "schedules": READ | {"worker": ALL, "operator": ALL, "tenant": ALL},
    "recurring": READ | {"worker": ALL, "operator": ALL, "tenant": ALL},
    "mirrors": READ | {"worker": ALL, "operator": ALL, "tenant": "SELECT"},
    "queues": READ | {"enqueue": "SELECT", "worker": ALL, "operator": ALL, "tenant": "SELECT"},
    "gates": READ | {
        "enqueue": "SELECT, UPDATE (spent_until, used)",
        "worker": ALL,
        "operator": ALL,
        "tenant": "SELECT, UPDATE (spent_until, used)",
    },
    "tenants": READ | {"worker": "SELECT", "operator": ALL, "tenant": "SELECT"},
    "keys": READ | {
        "worker": ALL,
        "operator": ALL,
    },
    "admitted": READ | {"worker": ALL, "operator": ALL, "tenant": "SELECT (key, job_id, look), UPDATE (look)"},
    "workers": READ | {"enqueue": "SELECT (idle)", "worker": ALL, "operator": "SELECT", "tenant": "SELECT (idle)"},
    "audit": READ | {
        "worker": "SELECT, INSERT, DELETE",
        "operator": "SELECT, INSERT",
        "tenant": "SELECT, INSERT",
    },
    "alerts": READ | {"worker": ALL, "operator": "SELECT, UPDATE (acked_at, acked_by)"},
    "alert_notices": READ | {"worker": ALL, "operator": "SELECT"},
    "alert_turns": READ | {"worker": ALL, "operator": "SELECT"},
    "alert_silences": READ | {"worker": ALL, "operator": ALL},
    "tokens": {"operator": ALL},
    "places": READ | {"worker": "SELECT", "operator": "SELECT", "tenant": "SELECT"},
    "schema_version": {role: "SELECT" for role in ROLES},
    "tenant_roles": READ | {"operator": "SELECT", "tenant": "SELECT"},
}  # fmt: skip
"""What each role may do to each table. A table that is not named here is the owner's alone."""

ROUTINES = {
    "enqueue": ("enqueue", "operator", "worker", "tenant"),
    "store_job": ("enqueue", "operator", "worker", "tenant"),
    "gate_room": ("worker",),
    "is_anothers": ("tenant",),
}

_MINE = "(SELECT m.tenant FROM duly.tenant_roles m WHERE m.role = current_user)"
_SEEN = "EXISTS (SELECT 1 FROM duly.jobs j WHERE j.id = {})"


def _key_fits(column: str) -> str:
    """Whether a limit's key (`task@tenant/key`) is this tenant's, or is not of one tenant alone (`group/key`)."""
    whose = f"split_part({column}, '/', 1)"
    return f"(strpos({whose}, '@') = 0 OR substr({whose}, strpos({whose}, '@') + 1) = replace({_MINE}, '/', '|'))"


OWN: dict[str, tuple[str, str | None]] = {
    "jobs": (f"tenant = {_MINE}", f"(limit_key IS NULL OR {_key_fits('limit_key')})"),
    "scheduled": (f"tenant = {_MINE}", "NOT duly.is_anothers(id)"),
    "waiting": (f"tenant = {_MINE}", "NOT duly.is_anothers(id)"),
    "parked": (f"tenant = {_MINE}", f"NOT duly.is_anothers(id) AND (rank IS NULL OR {_key_fits('mark')})"),
    "running": (f"tenant = {_MINE}", None),
    "ended": (_SEEN.format("ended.id"), None),
    "runs": (_SEEN.format("runs.job_id"), None),
    "rollups": (f"tenant = {_MINE}", None),
    "unique_keys": (
        f"tenant = {_MINE}",
        "NOT duly.is_anothers(job_id) AND (next_id IS NULL OR NOT duly.is_anothers(next_id))",
    ),
    "schedules": (f"tenant = {_MINE}", "NOT duly.is_anothers(id)"),
    "recurring": (_SEEN.format("recurring.id"), None),
    "audit": (f"tenant = {_MINE}", None),
    "tenants": (f"name = {_MINE}", None),
    "gates": (f"scope IN ('tenant', 'minute', 'day') AND name = {_MINE}", None),
    "admitted": (_SEEN.format("admitted.job_id"), None),
    "tokens": (f"tenant = {_MINE}", None),
    "tenant_roles": ("role = current_user", None),
}
"""Which rows of a table are a tenant's, and what beside that must hold of those it writes."""

_TENANT_ROLES = """CREATE TABLE IF NOT EXISTS duly.tenant_roles (
    role   name PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL CHECK (tenant <> '')
)"""

# Whose role asks: within the function current_user is its owner, so it goes by what was logged in or set. A role
# without a tenant gets the answer yes.
_IS_ANOTHERS = """CREATE OR REPLACE FUNCTION duly.is_anothers(job uuid) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT COALESCE((
        SELECT EXISTS (SELECT 1 FROM duly.jobs j WHERE j.id = job AND j.tenant <> m.tenant) FROM duly.tenant_roles m
        WHERE m.role = COALESCE(NULLIF(current_setting('role'), 'none')::name, session_user)), true)
$$"""


def role_name(role: str, schema: str = "duly") -> str:
    """The name of one of our roles in the database."""
    name = f"{check_schema(schema)}_{role}"
    if len(name) > MOST_BYTES:
        raise ConfigurationError(
            f"schema {schema!r} is too long for roles of its own: {name} has more than {MOST_BYTES} bytes, and "
            "PostgreSQL would cut it. Use a shorter schema name"
        )
    return name


def roles_sql(schema: str = "duly", tenants: Mapping[str, str] | None = None) -> Iterator[str]:
    """The statements that set the roles up, in order, in one transaction. `tenants`: by tenant, the role that is it."""
    for statement in _statements(schema):
        yield statement.replace("duly.", f'"{check_schema(schema)}".')
    for tenant, role in (tenants or {}).items():
        yield from _tenant_role(schema, check_tenant(tenant), role)
    yield "COMMIT"


def _statements(schema: str) -> Iterator[str]:
    names = {role: quoted(role_name(role, schema)) for role in ROLES}
    everyone, place = ", ".join(names.values()), f'"{check_schema(schema)}"'
    yield "BEGIN"
    yield "SET LOCAL lock_timeout = '3s'"  # rather fail than have everybody queue up behind this
    for role in ROLES:
        yield _create_role(role_name(role, schema))
    yield _TENANT_ROLES
    yield _IS_ANOTHERS
    yield f"REVOKE ALL ON SCHEMA {place} FROM PUBLIC"
    yield f"REVOKE ALL ON ALL TABLES IN SCHEMA {place} FROM PUBLIC, {everyone}"
    yield f"REVOKE ALL ON ALL ROUTINES IN SCHEMA {place} FROM PUBLIC, {everyone}"
    yield f"GRANT USAGE ON SCHEMA {place} TO {everyone}"
    for table, grants in TABLES.items():
        for role, privileges in grants.items():
            yield f"GRANT {privileges} ON duly.{table} TO {names[role]}"
    for routine, roles in ROUTINES.items():
        yield f"GRANT EXECUTE ON ROUTINE duly.{routine} TO {', '.join(names[role] for role in roles)}"
    for table, (own, also) in OWN.items():
        yield f"ALTER TABLE duly.{table} ENABLE ROW LEVEL SECURITY"
        yield f"DROP POLICY IF EXISTS duly_open ON duly.{table}"
        yield f"CREATE POLICY duly_open ON duly.{table} TO {everyone} USING (true) WITH CHECK (true)"
        yield f"DROP POLICY IF EXISTS duly_own ON duly.{table}"
        check = own if also is None else f"{own} AND {also}"
        yield (
            f"CREATE POLICY duly_own ON duly.{table} AS RESTRICTIVE TO {names['tenant']}\n"
            f"    USING ({own})\n    WITH CHECK ({check})"
        )
    # An enqueue counts for the quotas that refuse. No tenant empties the bucket of its rate, kept in the same column.
    yield "DROP POLICY IF EXISTS duly_spend ON duly.gates"
    yield (
        f"CREATE POLICY duly_spend ON duly.gates AS RESTRICTIVE FOR UPDATE TO {names['tenant']}\n"
        "    USING (scope IN ('minute', 'day') AND refuses)"
    )
    yield "ALTER VIEW duly.places SET (security_invoker = true)"


def _create_role(name: str, how: str = "NOLOGIN") -> str:
    mark = _dollars(name)
    return "\n".join(
        (
            f"DO {mark} BEGIN",
            f"    IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = {literal(name)}) THEN",  # noqa: S608
            f"        CREATE ROLE {quoted(name)} {how};",
            "    END IF;",
            f"END {mark}",
        )
    )


def _tenant_role(schema: str, tenant: str, role: str) -> Iterator[str]:
    """Make a role that is one tenant. It can log in only if it is given a password, or the server trusts it."""
    check_role(role)
    if tenant == "":
        raise InvalidOption("a tenant's name must not be empty: jobs of nobody in particular have no role")
    yield _create_role(role, "LOGIN")
    yield f"GRANT {quoted(role_name('tenant', schema))} TO {quoted(role)}"
    yield (
        f'INSERT INTO "{schema}".tenant_roles (role, tenant) VALUES ({literal(role)}, {literal(tenant)})\n'  # noqa: S608
        "    ON CONFLICT (role) DO UPDATE SET tenant = excluded.tenant"
    )


def check_role(name: str) -> str:
    """Refuse a name that PostgreSQL would cut, or that is one of ours."""
    if not name or "\0" in name or len(name.encode()) > MOST_BYTES or name.startswith("pg_"):
        raise InvalidOption(
            f"{safe_repr(name)} is no name for a role: use 1 to {MOST_BYTES} bytes, not beginning with pg_"
        )
    return name


def quoted(name: str) -> str:
    """A name as an identifier."""
    return '"' + name.replace('"', '""') + '"'


def _dollars(text: str) -> str:
    """A quote mark that does not stand in a text."""
    mark = "$role$"
    while mark in text:
        mark = f"${mark.strip('$')}_$"
    return mark
