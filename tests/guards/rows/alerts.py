"""Guards of alerts: one looks at a time, an alert starts and ends once, everybody is told once."""

from __future__ import annotations

from tests.guards.guard import Guard
from tests.guards.removing import Statement

ONCE = "F24"
LATE = "F6"

ALERTS = (
    Guard(
        name="take_turn: only if it is free",
        protects=ONCE,
        without="all workers look at once",
        edits=(Statement("take_turn", "\nWHERE duly.alert_turns.next_at <= :now OR :now_please::boolean"),),
    ),
    Guard(
        name="hold_turn: only if it is still ours",
        protects=LATE,
        without="a process that stood still writes down what it saw long ago",
        edits=(Statement("hold_turn", " AND turn = :turn::bigint"),),
    ),
    Guard(
        name="rest_after: only if it is still ours",
        protects=LATE,
        without="a process that stood still keeps the one whose turn it is from looking",
        edits=(Statement("rest_after", " AND turn = :turn::bigint"),),
    ),
    Guard(
        name="start_alert: one that is active is left alone",
        protects=ONCE,
        without="an alert that was started meanwhile keeps all others of the look from being written down",
        edits=(Statement("start_alert", "ON CONFLICT (rule, subject) WHERE ended_at IS NULL DO NOTHING "),),
    ),
    *(
        Guard(
            name=f"{name}: only while it is active",
            protects=LATE,
            without=harm,
            edits=(Statement(name, " AND ended_at IS NULL"),),
        )
        for name, harm in (
            ("keep_alert", "an alert that has ended is changed"),
            ("calm_alert", "an alert that has ended is changed"),
            ("end_alert", "an alert ends twice, and everybody is told twice"),
            ("ack_alert", "somebody looks after an alert that is over"),
        )
    ),
    Guard(
        name="add_notice: once",
        protects=ONCE,
        without="an alert of which somebody was told keeps the look from being written down",
        edits=(Statement("add_notice", "\nON CONFLICT (alert_id, channel, event) DO NOTHING"),),
    ),
    *(
        Guard(
            name=f"next_notice: {what} ({kind})",
            protects=ONCE,
            without=harm,
            edits=(Statement(f"next_notice [{dialect}]", cut),),
        )
        for dialect, kind in (("postgres", "PostgreSQL"), ("sqlite", "SQLite"))
        for what, cut, harm in (
            ("not what is done", "n.done_at IS NULL AND ", "somebody is told again and again"),
            (
                "not what another tells",
                " AND (n.leased_until IS NULL OR n.leased_until <= :now)",
                "two tell somebody at once",
            ),
        )
    ),
    *(
        Guard(
            name=f"next_notice: the end not before the start ({kind})",
            protects=ONCE,
            without="somebody hears that an alert is over before they hear of it",
            edits=(
                Statement(
                    f"next_notice [{dialect}]",
                    "s.event = 'started' AND s.done_at IS NULL",
                    "s.event = 'started' AND false",
                ),
            ),
        )
        for dialect, kind in (("postgres", "PostgreSQL"), ("sqlite", "SQLite"))
    ),
    Guard(
        name="next_notice: lock",
        protects=ONCE,
        without="two take one notice at once",
        edits=(Statement("next_notice [postgres]", " FOR UPDATE OF n SKIP LOCKED"),),
    ),
    *(
        Guard(
            name=f"{name}: only what is not done",
            protects=LATE,
            without=harm,
            edits=(Statement(name, cut),),
        )
        for name, cut, harm in (
            ("notice_done", " AND done_at IS NULL", "a late word changes when somebody was told"),
            ("notice_again", " AND done_at IS NULL", "a late word has what is done tried again"),
            ("drop_notices", "done_at IS NULL AND ", "what was given up is given up again, later"),
        )
    ),
)
