"""What decides where a misplaced job belongs: values in, values out."""

from __future__ import annotations

import pytest

from duly.doctor.words import counted, size, some
from duly.domain.records import RunRecord
from duly.store.call import Dialect
from duly.store.migrate import indexes
from duly.store.ops_repair import Place, right_place, trailing_crashes, verdict

pytestmark = pytest.mark.requirement("C15")


def run(outcome: str, token: int = 1, attempt: int = 1) -> RunRecord:
    return RunRecord("job", token, attempt, outcome, 0, 1, "worker", None, None, None, None, None)


def place(name: str, token: int = 1, why: str | None = None) -> Place:
    return Place(name, token, 1, 0, 0, 0, why)


@pytest.mark.parametrize(
    "last, state",
    [
        (None, None),
        (run("succeeded"), "succeeded"),
        (run("cancelled"), "cancelled"),
        (run("expired"), "cancelled"),
        (run("failed", attempt=3), "failed"),
        (run("failed", attempt=2), None),
        (run("snoozed", attempt=3), None),
        (run("released", attempt=3), None),
        (run("crashed", attempt=3), None),
    ],
)
def test_a_job_has_ended_only_if_its_last_run_says_so(last: RunRecord | None, state: str | None) -> None:
    assert verdict(last, 3) == state


@pytest.mark.parametrize(
    "places, last, right",
    [
        ([place("ended", 3), place("waiting", 1)], None, "ended"),
        ([place("ended", 1), place("waiting", 2)], run("succeeded"), "waiting"),
        ([place("ended"), place("waiting")], run("succeeded"), "ended"),
        ([place("ended", 2), place("waiting", 2)], run("succeeded", token=1), "waiting"),
        ([place("ended"), place("scheduled")], run("failed"), "scheduled"),
        ([place("waiting"), place("scheduled")], None, "waiting"),
        ([place("running"), place("waiting")], None, "running"),
        ([place("waiting"), place("parked", why="unique")], None, "parked"),
        ([place("waiting"), place("parked", why="arguments")], None, "waiting"),
    ],
)
def test_the_fence_decides_and_of_equals_the_history(places: list[Place], last: RunRecord | None, right: str) -> None:
    assert right_place(places, last, 3).name == right
    assert right_place(places[::-1], last, 3).name == right


def test_only_crashes_in_a_row_at_the_end_count() -> None:
    assert trailing_crashes([run("crashed"), run("failed"), run("crashed"), run("crashed")]) == 2
    assert trailing_crashes([]) == 0


def test_the_indexes_of_the_migrations_are_known_with_their_statements() -> None:
    known = indexes(Dialect.POSTGRES)
    assert str(known["waiting_lane"]).startswith("CREATE UNIQUE INDEX waiting_lane ON duly.waiting")
    assert known["jobs_pkey"] is None
    assert "duly_runs_by_time" in indexes(Dialect.SQLITE)


def test_numbers_are_told_in_words() -> None:
    assert [counted(1, "job"), counted(2_000, "job"), counted(5, "job", most=5)] == [
        "1 job",
        "2,000 jobs",
        "5 jobs or more",
    ]
    assert [size(12), size(3 << 20), size(5 << 40)] == ["12 bytes", "3 MiB", "5.0 TiB"]
    assert some(["a", "b", "c", "d"]) == "a, b, c and 1 more"
