"""What looks like a guard and is none, or is covered by another: where it stands, what the line says, and why."""

from __future__ import annotations

UPSERT = "what is said anew takes the place of what was said; without it the primary key refuses the second word"
NAMED = "an upsert names it, and no database takes that statement without it"
ACCESS = "each id is made anew and never given in: it is there to be found by"
READ = "only tells: nothing is decided by it"
FILTER = "what an operator asks for; tenants are answered by statements of their own"
LANE = "names the lane; who may see a lane is not decided here"
GONE = "the table is replaced by a later migration"

EXCEPTIONS: dict[str, dict[str, str]] = {
    # -- statements
    "take_turn": {"ON CONFLICT": UPSERT},
    "active_alerts": {"": READ},
    "count_active_alerts": {"": READ},
    "alerts_due": {"": READ},
    "anything_to_see": {"": READ},
    "list_audit": {"": FILTER},
    "next_task [sqlite]": {"": LANE},
    "head_of_open_lane [postgres]": {"tenant = :tenant": LANE},
    "head_of_lane [sqlite]": {"": LANE},
    "pick_lane [sqlite]": {"": LANE},
    "prune_keys [postgres]": {"": "goes round keys that somebody holds, so as not to wait for them in another order"},
    "doctor_lapsed": {"": READ},
    "is_dead_key": {"": "names the key that the doctor has locked"},
    "drop_key": {"": "names the key that the doctor has locked"},
    "pause_gate": {"": UPSERT},
    "block_gate": {"": UPSERT},
    "set_fair": {"": UPSERT},
    "set_weight": {"": UPSERT},
    "set_horizon": {"": UPSERT},
    "set_mirror": {"": UPSERT},
    "insert_worker": {"": UPSERT},
    "meter_keys": {"": UPSERT},
    "write_gate": {"": UPSERT},
    "meter_key [sqlite]": {"": UPSERT},
    "pause_key": {"": UPSERT},
    "block_key": {"": UPSERT},
    "set_breaker": {"": UPSERT},
    "set_key_limit": {"": UPSERT},
    "admit [postgres]": {"ON CONFLICT (name) DO UPDATE": UPSERT},
    "admit_note [sqlite]": {"": "drop_admitted, just before it in one transaction, takes out all that could be there"},
    "add_hour [postgres]": {"": "counts are added to those that are there"},
    "add_hour [sqlite]": {"": "counts are added to those that are there"},
    "count_held [postgres]": {"ON CONFLICT": "counts are added to those that are there"},
    "add_counts [sqlite]": {"ON CONFLICT": "counts are added to those that are there"},
    "hold_key [postgres]": {
        "": "that the holder keeps the key is a row of its own; without this the primary key refuses"
    },
    "hold_key [sqlite]": {
        "": "that the holder keeps the key is a row of its own; without this the primary key refuses"
    },
    "hold_keys [postgres]": {
        "": "that the holder keeps the key is a row of its own; without this the primary key refuses"
    },
    "hold_keys [sqlite]": {
        "": "that the holder keeps the key is a row of its own; without this the primary key refuses"
    },
    "recent_runs [sqlite]": {"": FILTER},
    "recent_runs [postgres]": {"": FILTER},
    "last_activity [postgres]": {"": FILTER},
    "wanted": {"": FILTER},
    "hit": {"": FILTER},
    "ending [postgres]": {"": "what is found is ended by `settle`, which asks for the token itself"},
    "ending [sqlite]": {"": "what is found is ended by `settle_held`, which asks for the token itself"},
    "prune_recurring_runs [postgres]": {"": "names the runs that were just found, of which none is changed any more"},
    "last_runs [sqlite]": {"": READ},
    "lock_run [postgres]": {"leased_until": "`settle`, right after it, asks the same of the row that is locked here"},
    "lock_run [sqlite]": {"leased_until": "`settle_held`, right after it in one transaction, asks the same"},
    "renew [postgres]": {"r.token = free.token": "the row was locked with that token in the same statement"},
    "lapsed [postgres]": {"CASE WHEN": "tells why; which rows are found is a row of its own"},
    "lapsed [sqlite]": {"CASE WHEN": "tells why; which rows are found is a row of its own"},
    "list_waiting_of": {"": "for the index; `own`, in the same statement, says it again"},
    "list_disabled_of": {"": "for the index; `own`, in the same statement, says it again"},
    "lock_key [sqlite]": {"": "only the row that names the job itself is used, and nothing is locked"},
    "why_held_by_gate": {"": READ},
    "why_first": {"": LANE},
    "why_rate": {"": READ},
    "why_parked": {"": READ},
    "why_scheduled": {"": READ},
    "why_lapsed": {"": READ},
    # -- migrations
    "0001_core.postgres.sql": {
        "waiting_lane": "its last column is the id, which is unique by itself: an access path",
        "PRIMARY KEY (period_us": NAMED,
        "PRIMARY KEY (scope, name)": GONE,
        'name       text COLLATE "C" PRIMARY KEY': NAMED,
        "id                 uuid PRIMARY KEY": NAMED,
    },
    "0001_core.sqlite.sql": {
        "PRIMARY KEY (queue, suspect": "its last column is the id, which is unique by itself: an access path",
        "PRIMARY KEY (period_us": NAMED,
        "PRIMARY KEY (scope, name)": GONE,
        "name       text PRIMARY KEY": NAMED,
        "id                 text NOT NULL PRIMARY KEY": NAMED,
    },
    "0002_recurring.postgres.sql": {'task text COLLATE "C" PRIMARY KEY': NAMED},
    "0002_recurring.sqlite.sql": {"task text NOT NULL PRIMARY KEY": NAMED},
    "0003_gates.postgres.sql": {"": NAMED},
    "0003_gates.sqlite.sql": {"PRIMARY KEY (scope, name)": GONE, "name   text": NAMED},
    "0004_audit.postgres.sql": {"": ACCESS},
    "0004_audit.sqlite.sql": {"": ACCESS},
    "0005_limits.postgres.sql": {"ON CONFLICT": UPSERT, "name           text": NAMED},
    "0005_limits.sqlite.sql": {"ON CONFLICT": UPSERT, "PRIMARY KEY (scope, name)": NAMED, "name           text": NAMED},
    "0008_tokens.postgres.sql": {"PRIMARY KEY": ACCESS},
    "0008_tokens.sqlite.sql": {"PRIMARY KEY": ACCESS},
    "0009_alerts.postgres.sql": {"CHECK (id = 1)": NAMED, "PRIMARY KEY,": ACCESS},
    "0009_alerts.sqlite.sql": {"CHECK (id = 1)": NAMED, "PRIMARY KEY,": ACCESS},
    # -- code
    "duly.store.roles": {"AS RESTRICTIVE FOR UPDATE": "a policy for UPDATE, which is a row of its own, and no lock"},
}
