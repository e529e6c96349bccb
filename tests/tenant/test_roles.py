"""The roles of `duly roles --sql` on PostgreSQL, tried as such roles: what each may do, and what none of them can."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import errors, sql

from duly import DatabaseError, InvalidOption, QuotaExceeded
from duly.domain.errors import ConfigurationError
from duly.domain.records import Lane
from duly.store.call import Dialect
from duly.store.postgres import PLANNER
from duly.store.roles import OWN, ROLES, TABLES, role_name, roles_sql
from duly.store.statements import Compiled
from duly.store.store import Store
from tests.databases import Databases, Kind
from tests.helpers import opened
from tests.store import invariants
from tests.store.raw import Raw
from tests.tenant.test_scope import METHODS, shown_by
from tests.tenant.world import LATER, WITH_JOB, WITH_TENANT, World

LOGINS = {role: f"a_{role}" for role in ROLES if role != "tenant"}
TENANTS = {"acme": "acme_app", "globex": "globex_app"}


def set_up(url: str, tenants: dict[str, str] = TENANTS) -> None:
    """Run what `duly roles --sql` prints, and make a login for each role."""
    with psycopg.connect(url, autocommit=True) as owner:
        for statement in roles_sql("duly", tenants):
            owner.execute(statement.encode())
        for role, login in LOGINS.items():
            if owner.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [login]).fetchone() is None:
                owner.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(login)))
            owner.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(role_name(role)), sql.Identifier(login)))


def by(url: str, user: str) -> str:
    """The same database, as somebody else."""
    return url.replace("postgres@", f"{user}@", 1)


@contextmanager
def acting(url: str, user: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(by(url, user), autocommit=True) as connection:
        yield connection


@contextmanager
def roles_removed(url: str) -> Iterator[None]:
    """Remove the roles that were made meanwhile: they belong to the whole server."""
    with psycopg.connect(url, autocommit=True) as owner:
        before = [row[0] for row in owner.execute("SELECT rolname FROM pg_roles").fetchall()]
    yield
    with psycopg.connect(url, autocommit=True) as owner:
        made = owner.execute("SELECT rolname FROM pg_roles WHERE rolname <> ALL (%s)", [before]).fetchall()
        for action in ("DROP OWNED BY {} CASCADE", "DROP ROLE {}"):
            for row in made:
                owner.execute(sql.SQL(action).format(sql.Identifier(row[0])))


@pytest.fixture(autouse=True)
def roles(request: pytest.FixtureRequest) -> Iterator[None]:
    """No test leaves a role behind."""
    if "pg_url" in request.fixturenames:
        with roles_removed(request.getfixturevalue("pg_url")):
            yield
    else:
        yield


@pytest.fixture
def raw(pg_url: str, roles: None) -> Iterator[Raw]:
    with closing(Raw(pg_url)) as raw:
        yield raw
        invariants.check(raw)


@pytest.fixture
def world(pg_url: str, raw: Raw) -> Iterator[World]:
    """Two tenants with the same of everything, and the roles; made by the owner."""
    with opened(pg_url) as jobs:
        set_up(pg_url)
        yield World(jobs, raw)


# -- who may do what --------------------------------------------------------------------------------------------------

# r may read some column, i insert, u change some column, d delete
MATRIX = """
                read  enqueue  worker  operator  tenant
jobs            r     ri       riud    riud      riud
scheduled       r     riu      riud    riud      riud
waiting         r     riu      riud    riud      riud
parked          r     riu      riud    riud      riud
running         r     -        riud    rud       rud
ended           r     -        riud    riud      riud
runs            r     -        riud    rd        rd
rollups         r     -        riud    r         r
unique_keys     r     riu      riud    riud      riud
schedules       r     -        riud    riud      riud
recurring       r     -        riud    riud      riud
mirrors         r     -        riud    riud      r
queues          r     r        riud    riud      r
gates           r     ru       riud    riud      ru
tenants         r     -        r       riud      r
keys            r     -        riud    riud      -
admitted        r     -        riud    riud      ru
workers         r     r        riud    r         r
audit           r     -        rid     ri        ri
alerts          r     -        riud    ru        -
alert_notices   r     -        riud    r         -
alert_turns     r     -        riud    r         -
alert_silences  r     -        riud    riud      -
tokens          -     -        -       riud      -
schema_version  r     r        r       r         r
tenant_roles    r     -        -       r         r
places          r     -        r       r         r
"""


def matrix() -> dict[tuple[str, str], str]:
    head, *lines = MATRIX.strip("\n").splitlines()
    roles = head.split()
    return {
        (line.split()[0], role): may.replace("-", "")
        for line in lines
        for role, may in zip(roles, line.split()[1:], strict=True)
    }


def may(connection: psycopg.Connection, statement: str) -> bool:
    """Whether a role has the right to a statement, by trying it."""
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(statement.encode())
    except errors.InsufficientPrivilege as error:
        return "row-level security" in str(error)  # the right is there, and the row was wrong
    except errors.IntegrityError:
        return True
    except (errors.ObjectNotInPrerequisiteState, errors.GeneratedAlways):
        return False  # a view of many tables, a column that nobody sets
    return True


def tried(connection: psycopg.Connection, table: str, columns: list[str]) -> str:
    first = next((each for each in columns if may(connection, f"SELECT {each} FROM duly.{table} LIMIT 1")), None)
    found = "r" if first else ""
    if may(connection, f"INSERT INTO duly.{table} DEFAULT VALUES"):
        found += "i"
    if any(may(connection, f"UPDATE duly.{table} SET {each} = NULL WHERE false") for each in columns):
        found += "u"
    return found + ("d" if may(connection, f"DELETE FROM duly.{table} WHERE false") else "")


@pytest.mark.requirement("E9")
@pytest.mark.everywhere
def test_each_role_may_do_to_each_table_what_is_written_and_nothing_else(pg_url: str) -> None:
    set_up(pg_url)
    found: dict[tuple[str, str], str] = {}
    with closing(Raw(pg_url)) as raw:
        columns: dict[str, list[str]] = {}
        for table, column in raw.rows(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'duly'"
        ):
            columns.setdefault(table, []).append(column)
    assert set(columns) == set(TABLES), (
        "a new table needs a line in roles.TABLES, here, and perhaps a policy in roles.OWN"
    )
    for role, login in {**LOGINS, "tenant": "acme_app"}.items():
        with acting(pg_url, login) as connection:
            for table, names in columns.items():
                found[table, role] = tried(connection, table, names)
            assert not may(connection, "CREATE TABLE duly.mine (n int)")
            assert not may(connection, "ALTER TABLE duly.jobs DISABLE ROW LEVEL SECURITY")
            assert not may(connection, "TRUNCATE duly.audit")
    assert found == matrix()


@pytest.mark.requirement("E9")
def test_every_table_with_a_tenant_in_it_has_a_policy(pg_url: str) -> None:
    set_up(pg_url)
    with closing(Raw(pg_url)) as raw:
        named = raw.rows(
            "SELECT table_name FROM information_schema.columns WHERE table_schema = 'duly' AND column_name = 'tenant'"
        )
        rows = raw.rows("SELECT relname FROM pg_class WHERE relnamespace = 'duly'::regnamespace AND relrowsecurity")
        keys = raw.rows(
            "SELECT table_name FROM information_schema.columns WHERE table_schema = 'duly' AND column_name = 'job_id'"
        )
    guarded = {row[0] for row in rows}
    assert guarded == set(OWN)
    assert {row[0] for row in named} <= guarded
    assert {row[0] for row in keys} <= guarded


# -- a tenant's role --------------------------------------------------------------------------------------------------


@pytest.mark.requirement("E9")
@pytest.mark.everywhere
def test_a_tenants_role_sees_all_of_its_own_rows_and_no_other(world: World, pg_url: str) -> None:
    for tenant, login in TENANTS.items():
        expected = world.rows_of(tenant)
        with closing(Raw(by(pg_url, login))) as seen:
            for table in (*WITH_TENANT, *WITH_JOB):
                assert sorted(seen.rows(f"SELECT * FROM duly.{table}"), key=repr) == expected[table], table
            assert seen.rows("SELECT name FROM duly.tenants") == [(tenant,)]
            assert {row[0] for row in seen.rows("SELECT name FROM duly.gates")} == {tenant}
            assert seen.rows("SELECT role, tenant FROM duly.tenant_roles") == [(login, tenant)]
            places = {row[0] for row in seen.rows("SELECT id FROM duly.places")}
        owned = world.acme if tenant == "acme" else world.globex
        assert places == set(owned.ids.values())


@pytest.mark.requirement("E9")
def test_a_tenants_role_sees_no_others_parked_or_admitted_jobs_nor_tokens(world: World, pg_url: str) -> None:
    with psycopg.connect(pg_url, autocommit=True) as owner:
        for owned in (world.acme, world.globex):
            job_id, tenant = owned.ids["waiting"], owned.handle.name
            for statement in (
                "INSERT INTO duly.parked (id, queue, tenant, task, run_at, priority, parked_at, reason) "
                "SELECT id, queue, tenant, task, 0, 0, 0, 'arguments' FROM duly.jobs WHERE id = %(id)s",
                "DELETE FROM duly.waiting WHERE id = %(id)s",
                "INSERT INTO duly.admitted (key, job_id) VALUES ('work/x', %(id)s)",
                "INSERT INTO duly.tokens (id, hash, kind, name, scopes, tenant, created_at) "
                "VALUES (gen_random_uuid(), %(tenant)s, 'token', 'n', 'read', %(tenant)s, 0)",
            ):
                owner.execute(statement.encode(), {"id": job_id, "tenant": tenant})
        owner.execute("GRANT SELECT ON duly.tokens TO duly_tenant")  # even if somebody does
    with closing(Raw(by(pg_url, "acme_app"))) as seen:
        mine = world.acme.ids["waiting"]
        assert seen.rows("SELECT id FROM duly.parked") == [(mine,)]
        assert seen.rows("SELECT job_id FROM duly.admitted") == [(mine,)]
        assert seen.rows("SELECT tenant FROM duly.tokens") == [("acme",)]


@pytest.mark.requirement("E9")
def test_a_tenants_role_can_change_nothing_of_another(world: World, pg_url: str) -> None:
    before = world.rows_of("globex")
    foreign = world.globex.ids
    with acting(pg_url, "acme_app") as acme:
        for table in (*WITH_TENANT, *WITH_JOB):
            columns = {"runs": "job_id", "rollups": "tenant", "unique_keys": "job_id", "audit": "id"}
            column = columns.get(table, "id")
            if "DELETE" in TABLES[table]["tenant"]:
                for job_id in foreign.values():
                    if column != "tenant":
                        acme.execute(f"DELETE FROM duly.{table} WHERE {column}::text = %s".encode(), [job_id])
        for statement in (
            "UPDATE duly.jobs SET args = '{}' WHERE id = ANY (%s)",
            "UPDATE duly.waiting SET rank = 0 WHERE id = ANY (%s)",
            "UPDATE duly.scheduled SET priority = 9 WHERE id = ANY (%s)",
            "UPDATE duly.running SET cancel_at = 1 WHERE id = ANY (%s)",
            "UPDATE duly.ended SET reason = 'x' WHERE id = ANY (%s)",
            "UPDATE duly.recurring SET enabled = false WHERE id = ANY (%s)",
            "UPDATE duly.unique_keys SET next_id = NULL WHERE job_id = ANY (%s)",
        ):
            assert acme.execute(statement.encode(), [list(foreign.values())]).rowcount == 0, statement
        with pytest.raises(errors.InsufficientPrivilege):
            acme.execute("UPDATE duly.jobs SET tenant = 'globex'")
    assert world.rows_of("globex") == before


INSERTS = {
    "a job of another": "INSERT INTO duly.jobs (id, task, tenant, created_at) "
    "VALUES (gen_random_uuid(), 'work', 'globex', 0)",
    "a job of nobody": "INSERT INTO duly.jobs (id, task, created_at) VALUES (gen_random_uuid(), 'work', 0)",
    "by the function": "SELECT duly.enqueue('work', tenant => 'globex')",
    "by the procedure": "CALL duly.store_job("
    "gen_random_uuid(), 'work', 'q', 'globex', '{}', 0::smallint, 1, 0, NULL, NULL, 0)",
    "a lane of another": "INSERT INTO duly.waiting (queue, tenant, task, rank, id, run_at, priority) "
    "VALUES ('default', 'globex', 'work', 0, gen_random_uuid(), 0, 0)",
    "a place for another's job": "INSERT INTO duly.waiting (queue, tenant, task, rank, id, run_at, priority) "
    "VALUES ('default', 'acme', 'work', 0, '{failed}', 0, 0)",
    "a time for another's job": "INSERT INTO duly.scheduled (id, run_at, queue, tenant, task, priority) "
    "VALUES ('{failed}', 0, 'default', 'acme', 'work', 0)",
    "a parking place for another's job": "INSERT INTO duly.parked "
    "(id, queue, tenant, task, run_at, priority, parked_at, reason) "
    "VALUES ('{failed}', 'default', 'acme', 'work', 0, 0, 0, 'arguments')",
    "an end for another's job": "INSERT INTO duly.ended (id, state, finished_at, token, attempt, crashes) "
    "VALUES ('{waiting}', 'failed', 0, 1, 1, 0)",
    "a key that names another's job": "INSERT INTO duly.unique_keys (tenant, key, job_id, scope) "
    "VALUES ('acme', 'k', '{running}', 2)",
    "a follower that is another's job": "UPDATE duly.unique_keys SET next_id = '{waiting}'",
    "another's key": "INSERT INTO duly.unique_keys (tenant, key, job_id, scope) "
    "VALUES ('globex', 'k', gen_random_uuid(), 2)",
    "a schedule for another's job": "INSERT INTO duly.schedules "
    "(id, tenant, task, key, rule, anchor_at, created_at, updated_at) "
    "VALUES ('{failed}', 'acme', 'work', 'k', '{{}}', 0, 0, 0)",
    "a recurring job of another": "INSERT INTO duly.recurring (id, enabled) VALUES ('{failed}', true)",
    "an audit of another": "INSERT INTO duly.audit (at, via, action, tenant) VALUES (0, 'cli', 'boost', 'globex')",
    "a job that takes a slot of another's key": "INSERT INTO duly.jobs (id, task, tenant, created_at, limit_key) "
    "VALUES (gen_random_uuid(), 'work', 'acme', 0, 'work@globex/host')",
    "a key of another": "INSERT INTO duly.keys (name, opens_at) VALUES ('work@globex/host', 0)",
    "a run": "INSERT INTO duly.running SELECT * FROM duly.running",
    "another tenant for the role": "UPDATE duly.tenant_roles SET tenant = 'globex'",
    "its own weight": "UPDATE duly.tenants SET weight = 1000",
    "its own limit": "UPDATE duly.gates SET slots = 1000",
    "its own audit": "DELETE FROM duly.audit",
    "another role": "SET ROLE globex_app",
    "no policies": "ALTER TABLE duly.jobs NO FORCE ROW LEVEL SECURITY",
    "a copy past the policies": "COPY duly.jobs (id) FROM STDIN",
    "the claim's function": "SELECT duly.gate_room('{{}}', '{{}}', '{{}}', '{{}}', 1, 0, 0, 0)",
}  # fmt: skip


@pytest.mark.requirement("E9")
@pytest.mark.everywhere
def test_a_tenants_role_cannot_write_what_is_not_its_own(world: World, pg_url: str) -> None:
    before = world.rows_of("globex"), world.rows_of("acme")
    done = []
    with acting(pg_url, "acme_app") as acme:
        for what, text in INSERTS.items():
            statement = text.format(**world.globex.ids) if "{" in text and "'{}'" not in text else text
            try:
                acme.execute(statement.encode())
                done.append(what)
            except (errors.InsufficientPrivilege, errors.FeatureNotSupported):
                pass
    assert done == []
    assert (world.rows_of("globex"), world.rows_of("acme")) == before


@pytest.mark.requirement("E9")
def test_settings_functions_and_copies_widen_nothing(world: World, pg_url: str) -> None:
    with acting(pg_url, "acme_app") as acme:
        for setting in ("duly.tenant", "duly.role", "app.tenant"):
            acme.execute(sql.SQL("SET {} = 'globex'").format(sql.SQL(setting)))
        acme.execute("CREATE TEMP TABLE tenant_roles (role name, tenant text)")  # a search path does not lead to it
        acme.execute("INSERT INTO tenant_roles VALUES ('acme_app', 'globex')")
        acme.execute("SET search_path = pg_temp, duly")
        with pytest.raises(errors.InsufficientPrivilege):
            acme.execute("SET row_security = off; SELECT * FROM duly.jobs")
        acme.execute("SET row_security = on")
        with acme.cursor().copy("COPY (SELECT * FROM duly.jobs) TO STDOUT") as out:
            copied = b"".join(bytes(chunk) for chunk in out).decode()
        assert world.acme.secret in copied
        assert world.globex.secret not in copied
        # What a function of the tenant's says of rows it sees must not be asked of rows it may not see.
        acme.execute(
            "CREATE FUNCTION pg_temp.peek(text) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS "
            "$$ BEGIN RAISE WARNING '%', $1; RETURN true; END $$"
        )
        heard: list[str] = []
        acme.add_notice_handler(lambda notice: heard.append(str(notice.message_primary)))
        acme.execute("SELECT count(*) FROM duly.jobs WHERE pg_temp.peek(args::text)")
        assert heard
        assert not [text for text in heard if world.globex.secret in text]


@pytest.mark.requirement("E9")
def test_a_role_without_a_tenant_sees_nothing_and_stores_nothing(world: World, pg_url: str) -> None:
    with psycopg.connect(pg_url, autocommit=True) as owner:
        owner.execute("CREATE ROLE stray LOGIN")
        owner.execute("GRANT duly_tenant TO stray")
    with acting(pg_url, "stray") as stray:
        for table in (*WITH_TENANT, *WITH_JOB, "places", "gates", "tenants", "tenant_roles"):
            assert stray.execute(f"SELECT * FROM duly.{table}".encode()).fetchall() == [], table
        for tenant in ("acme", ""):
            with pytest.raises(errors.InsufficientPrivilege):
                stray.execute("SELECT duly.enqueue('work', tenant => %s)", [tenant])


@pytest.mark.requirement("E9")
def test_a_program_for_many_tenants_is_one_of_them_for_a_transaction(world: World, pg_url: str) -> None:
    with psycopg.connect(pg_url, autocommit=True) as owner:
        owner.execute("CREATE ROLE web LOGIN NOINHERIT")
        owner.execute("GRANT acme_app, globex_app TO web")
    with acting(pg_url, "web") as web:
        for owned, login in ((world.acme, "acme_app"), (world.globex, "globex_app")):
            with web.transaction():
                web.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(login)))
                rows = web.execute("SELECT id::text FROM duly.jobs").fetchall()
                assert {row[0] for row in rows} == set(owned.ids.values())
                web.execute("SELECT duly.enqueue('work', tenant => %s)", [owned.handle.name])
                owned.ids |= {uuid4().hex: row[0] for row in web.execute("SELECT id::text FROM duly.jobs").fetchall()}
        with pytest.raises(errors.InsufficientPrivilege):
            web.execute("SELECT * FROM duly.jobs")
    assert world.raw.one("SELECT count(*) FROM duly.waiting WHERE tenant = 'globex' AND task = 'work'") == 2


# -- duly through the roles -------------------------------------------------------------------------------------------

BY_OPERATORS = {"pause", "resume", "why", "why_waiting", "__getitem__"}
"""A tenant's role may not pause, nor see the workers that `why` speaks of; `__getitem__` is below."""


@pytest.mark.requirement("E9")
@pytest.mark.parametrize("name", sorted(METHODS.keys() - BY_OPERATORS))
def test_every_method_of_the_handle_works_as_the_tenants_role(world: World, pg_url: str, name: str) -> None:
    before = world.rows_of("globex")
    with opened(by(pg_url, "acme_app")) as jobs:
        known = World.__new__(World)
        known.__dict__ |= world.__dict__
        known.work = jobs.task(world.work.definition.fn)
        jobs.task(world.fail.definition.fn)
        acme = jobs.tenant("acme")
        if name == "unregister":
            acme.register("same", LATER, "1h", lambda: None)
        assert world.globex.secret not in shown_by(METHODS[name](acme, known))
        with pytest.raises(DatabaseError, match="permission denied"):
            acme.pause()
    assert world.rows_of("globex") == before


@pytest.mark.requirement("E9")
def test_a_tenants_role_enqueues_in_every_way_for_itself_alone(world: World, pg_url: str) -> None:
    with opened(by(pg_url, "acme_app")) as jobs:
        work = jobs.task(world.work.definition.fn)
        acme = jobs.tenant("acme")
        made = [acme[work].enqueue(secret="s"), acme[work].using(delay="1h").enqueue(secret="s")]
        made += acme[work].enqueue_many([{"secret": str(n)} for n in range(20)])
        made += [acme[work].using(unique="k").enqueue(secret=str(n)) for n in range(2)]
        assert {job.refresh().tenant for job in made} == {"acme"}
        assert {job.id for job in jobs.list(limit=1_000)} == {job.id for job in acme.list(limit=1_000)}
        assert {row[1] for row in jobs.counts().waiting} == {"acme"}
        by_host: Any = jobs.task(name="keyed", concurrency_key=lambda args: args.secret)
        keyed = by_host(world.hold.definition.fn)
        waiting = [acme[keyed].enqueue(secret="host"), *acme[keyed].enqueue_many([{"secret": "host"}] * 2)]
        verbs: list[Callable[[str], object]] = [acme.cancel, acme.boost, acme.delete]
        for job, verb in zip(waiting, verbs, strict=True):
            verb(job.id)
        for tenant in ("globex", None):
            for enqueue in (work.using(tenant=tenant), work.using(tenant=tenant, delay="1h")):
                with pytest.raises(DatabaseError, match="row-level security"):
                    enqueue.enqueue(secret="s")
            with pytest.raises(DatabaseError, match="row-level security"):
                work.using(tenant=tenant).enqueue_many([{"secret": "s"}])
        for job_id in world.globex.ids.values():
            assert jobs.store.get(job_id) is None
    assert world.raw.one("SELECT count(*) FROM duly.jobs WHERE tenant = ''") == 0


@pytest.mark.requirement("E9")
def test_a_tenants_role_spends_its_quotas_and_cannot_raise_its_rate(world: World, pg_url: str) -> None:
    world.jobs.set_quota("acme", per_minute=3, per_day=100, over="refuse")
    world.jobs.set_limit(tenant="acme", rate="10/s")
    rate = "SELECT spent_until FROM duly.gates WHERE scope = 'tenant' AND name = 'acme'"
    world.raw.rows("UPDATE duly.gates SET spent_until = 7 WHERE scope = 'tenant' AND name = 'acme'")
    with opened(by(pg_url, "acme_app")) as jobs:
        acme = jobs.tenant("acme")[jobs.task(world.work.definition.fn)]
        for _ in range(3):
            acme.enqueue(secret="s")
        with pytest.raises(QuotaExceeded):
            acme.enqueue(secret="s")
    with acting(pg_url, "acme_app") as acme_app:
        acme_app.execute("UPDATE duly.gates SET spent_until = 0 WHERE scope = 'tenant'")
        acme_app.execute("UPDATE duly.gates SET used = 0 WHERE name = 'globex'")
    assert world.raw.one(rate) == 7


@pytest.mark.requirement("E9")
@pytest.mark.everywhere
def test_workers_work_with_the_policies_on(world: World, pg_url: str) -> None:
    with opened(by(pg_url, LOGINS["worker"])) as jobs:
        work = jobs.task(world.work.definition.fn)
        for tenant in ("acme", "globex", None):
            work.using(tenant=tenant).enqueue_many([{"secret": str(n)} for n in range(100)])  # by COPY, where one may
        work.using(tenant="acme", unique="u").enqueue(secret="s")
        with jobs.worker():
            done = [work.using(tenant=tenant).enqueue(secret="x") for tenant in ("acme", "globex")]
            assert [job.wait(20) for job in done] == ["x", "x"]
        jobs.tick(1_000)
    assert world.raw.one("SELECT count(*) FROM duly.waiting WHERE task = 'work'") == 0
    assert world.raw.one("SELECT count(*) FROM duly.ended WHERE state = 'succeeded'") >= 304


@pytest.mark.requirement("E9")
def test_a_producer_stores_jobs_and_reads_no_arguments(world: World, pg_url: str) -> None:
    with opened(by(pg_url, LOGINS["enqueue"])) as jobs:
        work = jobs.task(world.work.definition.fn)
        work.enqueue(secret="a")
        work.using(tenant="acme", delay="1h", tags=["t"]).enqueue(secret="b")
        work.enqueue_many([{"secret": str(n)} for n in range(10)])
        first = work.using(unique="p").enqueue(secret="c")
        assert work.using(unique="p").enqueue(secret="d").id == first.id
        with pytest.raises(DatabaseError, match="permission denied"):
            first.refresh()
        with pytest.raises(DatabaseError, match="permission denied"):
            jobs.cancel(first.id)
    with acting(pg_url, LOGINS["enqueue"]) as producer:
        producer.execute("SELECT duly.enqueue('work', '{\"secret\": \"sql\"}')")
        with pytest.raises(errors.InsufficientPrivilege):
            producer.execute("SELECT args FROM duly.jobs")
    assert world.raw.one("SELECT count(*) FROM duly.jobs WHERE tenant = ''") == 13


@pytest.mark.requirement("E9")
def test_an_operator_operates_and_does_not_run_jobs(world: World, pg_url: str) -> None:
    ids = world.globex.ids
    with opened(by(pg_url, LOGINS["operator"])) as jobs:
        jobs.task(world.work.definition.fn)
        assert len(jobs.list(limit=1_000)) == len(world.acme.ids) * 2
        jobs.cancel(ids["running"])
        jobs.boost(ids["waiting"])
        jobs.retry(ids["failed"])
        jobs.delete(ids["succeeded"])
        jobs.pause(tenant="globex", reason="no")
        jobs.resume(tenant="globex")
        jobs.set_weight("globex", 7)
        jobs.set_fair("default", False)
        jobs.recurring_by_id(ids["recurring"]).disable()
        jobs.recurring_by_id(ids["registered"]).delete()
        assert {each.action for each in jobs.audit(limit=20)} >= {"cancel", "retry", "delete", "pause", "set_weight"}
        with pytest.raises(DatabaseError, match="permission denied"):
            jobs.store.claim("default", [Lane("acme", "work")], 1, worker_id=str(uuid4()), lease_us=1)


def test_a_reader_only_reads(world: World, pg_url: str) -> None:
    with opened(by(pg_url, LOGINS["read"])) as jobs:
        assert len(jobs.list(limit=1_000)) == len(world.acme.ids) * 2
        assert jobs.tenant("acme").get(world.acme.ids["failed"]).last_error == world.acme.secret
        assert {each.name for each in jobs.tenants()} == set(TENANTS)
        verbs: list[Callable[[], object]] = [
            lambda: jobs.cancel(world.acme.ids["waiting"]),
            lambda: jobs.pause(tenant="acme"),
            lambda: jobs.set_weight("acme", 2),
        ]
        for verb in verbs:
            with pytest.raises(DatabaseError, match="permission denied"):
                verb()


# -- what it costs, who sets it up ------------------------------------------------------------------------------------


def test_the_claims_keep_their_plans(world: World, pg_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = Compiled(Dialect.POSTGRES, "pyformat", "duly", server_clock=True)
    calls: dict[str, Any] = {}
    database: Any = world.jobs.store.database
    real = database._execute

    def watch(connection: Any, call: Any) -> Any:
        calls[call.name] = call
        return real(connection, call)

    monkeypatch.setattr(database, "_execute", watch)
    for lanes in ([Lane("acme", "work")], [Lane("acme", "work"), Lane("globex", "work")]):
        for shares in (None, {"acme": 1, "globex": 1}):
            worker = str(uuid4())
            world.jobs.store.claim("default", lanes, 10, worker_id=worker, lease_us=1_000_000, shares=shares)
    world.jobs.store.lanes("default")
    assert {"claim_lane", "claim", "claim_shares", "lanes"} <= set(calls)
    for name in ("claim_lane", "claim", "claim_shares", "lanes"):
        call = calls[name]
        text, order = compiled.get(name)
        params = {each: call.params[each] for each in order}
        plans = []
        for user in ("postgres", LOGINS["worker"]):
            with psycopg.connect(by(pg_url, user), options=PLANNER) as connection:
                rows = connection.execute(("EXPLAIN (COSTS OFF) " + text).encode(), params).fetchall()
                plans.append("\n".join(str(row[0]) for row in rows))
        assert "waiting_lane" in plans[0], name
        assert plans[0] == plans[1], name


def test_a_tenants_role_looks_by_index(world: World, pg_url: str) -> None:
    with psycopg.connect(by(pg_url, "acme_app"), options=PLANNER) as connection:
        looks = (
            "jobs WHERE tenant <> ''",
            "waiting WHERE queue = 'default' AND suspect = 0",
            "scheduled WHERE tenant <> ''",
        )
        for table in looks:
            rows = connection.execute(f"EXPLAIN (COSTS OFF) SELECT id FROM duly.{table}".encode()).fetchall()
            plan = "\n".join(str(row[0]) for row in rows)
            assert "Index Cond" in plan, plan
            assert "InitPlan" in plan, plan


def test_it_may_be_run_again(pg_url: str) -> None:
    set_up(pg_url)
    asked = (
        "SELECT tablename, policyname, permissive, roles::text, cmd, qual, with_check FROM pg_policies ORDER BY 1, 2",
        "SELECT relname, relrowsecurity, (SELECT array_agg(a::text ORDER BY a::text) FROM unnest(relacl) a)::text "
        "FROM pg_class WHERE relnamespace = 'duly'::regnamespace ORDER BY 1",
        "SELECT proname, (SELECT array_agg(a::text ORDER BY a::text) FROM unnest(proacl) a)::text, proconfig::text "
        "FROM pg_proc WHERE pronamespace = 'duly'::regnamespace ORDER BY 1",
    )
    with closing(Raw(pg_url)) as raw:
        before = [raw.rows(question) for question in asked]
        raw.rows("GRANT DELETE ON duly.audit TO duly_operator")
        set_up(pg_url)
        assert [raw.rows(question) for question in asked] == before


@pytest.mark.everywhere
def test_a_plain_owner_sets_it_up_migrates_and_is_examined(databases: Databases, pg_kind: Kind) -> None:
    with databases.fresh(pg_kind, prepared=False) as url, roles_removed(url):
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute("CREATE ROLE plain_owner LOGIN CREATEROLE")
            place = sql.Identifier(admin.info.dbname)
            admin.execute(sql.SQL("GRANT CREATE ON DATABASE {} TO plain_owner").format(place))
        owned = by(url, "plain_owner")
        store = Store.open(owned, schema="plain")
        store.migrate()
        store.close()
        with psycopg.connect(owned, autocommit=True) as owner:
            for statement in roles_sql("plain", {"acme": "plain_app"}):
                owner.execute(statement.encode())
        with opened(owned, schema="plain") as jobs:
            jobs.task(shown_by)
            jobs.enqueue("shown_by", {"answer": 1}, tenant="acme")
            jobs.enqueue("shown_by", {"answer": 1}, tenant="other")
            assert len(jobs.list()) == 2  # the owner sees all
            assert jobs.migrate() == []
            assert [each for each in jobs.doctor() if each.severity == "error"] == []
        with opened(by(url, "plain_app"), schema="plain") as jobs:
            assert [job.tenant for job in jobs.list()] == ["acme"]


@pytest.mark.parametrize(
    "tenant", ["o'brien", 'say "x"', "$$; DROP SCHEMA duly CASCADE; $$", "back\\slash", "ünï ✓", "$role$"]
)
def test_strange_names_are_quoted(pg_url: str, tenant: str) -> None:
    role = f"r {tenant}"
    set_up(pg_url, {tenant: role})
    with closing(Raw(pg_url)) as raw, opened(pg_url) as jobs:
        assert raw.rows("SELECT role, tenant FROM duly.tenant_roles") == [(role, tenant)]
        jobs.task(shown_by)
        job = jobs.enqueue("shown_by", {"answer": 1}, tenant=tenant)
        jobs.enqueue("shown_by", {"answer": 1}, tenant="another")
        with psycopg.connect(pg_url) as connection:
            connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
            assert connection.execute("SELECT id::text FROM duly.jobs").fetchall() == [(job.id,)]


def test_names_that_cannot_be_are_refused() -> None:
    for role in ("", "pg_mine", "x" * 64, "a\0b"):
        with pytest.raises(InvalidOption, match="no name for a role"):
            list(roles_sql("duly", {"acme": role}))
    with pytest.raises(InvalidOption):
        list(roles_sql("duly", {"": "x"}))
    with pytest.raises(ConfigurationError, match="too long"):
        list(roles_sql("s" * 60))
    with pytest.raises(ConfigurationError):
        list(roles_sql('x"; DROP'))
    assert any('"jobs_2".jobs' in each for each in roles_sql("jobs_2"))
