"""Guards of the doctor: it mends beside workers, and two of it at once."""

from __future__ import annotations

from tests.guards.guard import Guard
from tests.guards.removing import Statement

DOCTOR = (
    Guard(
        name="lock_job: lock",
        protects="F6 I4",
        without="two who mend a job at once both put it into a place",
        edits=(Statement("lock_job [postgres]", " FOR UPDATE"),),
    ),
    *(
        Guard(
            name=f"lock_places: lock in {place}",
            protects="F6 I1 I4",
            without="a job that moves on while it is mended loses its place",
            edits=(
                Statement(
                    "lock_places [postgres]",
                    f"FROM duly.{place} WHERE id = :id::uuid FOR UPDATE",
                    f"FROM duly.{place} WHERE id = :id::uuid",
                ),
            ),
        )
        for place in ("scheduled", "waiting", "parked", "running")
    ),
    Guard(
        name="insert_lost_standing: one that is there is left alone",
        protects="F7",
        without="of two who mend a recurring job at once one fails",
        edits=(Statement("insert_lost_standing", "\nON CONFLICT DO NOTHING"),),
    ),
)
