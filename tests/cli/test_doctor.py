"""`duly doctor`."""

from __future__ import annotations

from pathlib import Path

import pytest

from duly import Duly
from tests.cli.conftest import Project
from tests.store.raw import Raw

pytestmark = pytest.mark.requirement("C15")


def lose(project: Project) -> str:
    """A job that is in no place; returns its id."""
    job_id: str = project.ok("enqueue", "app.py", "add", "x=1", "--json").json["id"]
    raw = Raw(project.url)
    raw.rows("DELETE FROM duly.waiting")
    raw.close()
    return job_id


def test_a_sound_installation_answers_with_0(project: Project) -> None:
    project.ok("migrate")
    answer = project.ok("doctor")
    for area in ("installation", "database", "workers", "jobs", "recurring", "retention"):
        assert f"\n{area}\n" in answer.out
    assert answer.out.endswith("\nall is well\n")
    assert "\x1b" not in answer.out


def test_warnings_answer_with_1_and_errors_with_2(project: Project) -> None:
    project.ok("enqueue", "app.py", "add", "x=1")
    answer = project.duly("doctor")
    assert answer.code == 1
    assert "  warning  no worker is running, and 1 job is to run\n           -> start one: duly worker" in answer.out
    lose(project)
    answer = project.duly("doctor", "--app", "app.py")
    assert answer.code == 2
    assert answer.out.rstrip().endswith("What can be mended: duly doctor --fix")


def test_json_has_every_finding_with_evidence_and_next_step(project: Project) -> None:
    job_id = lose(project)
    answer = project.duly("doctor", "--json")
    assert (answer.code, answer.json["severity"]) == (2, "error")
    [finding] = [each for each in answer.json["findings"] if each["check"] == "nowhere"]
    assert finding["evidence"] == {"jobs": [job_id]}
    assert finding["fixable"] is True
    assert finding["next"].startswith("duly doctor --fix")
    mended = project.ok("doctor", "--json", "--fix", "--yes").json
    [finding] = [each for each in mended["findings"] if each["check"] == "nowhere"]
    assert finding["fixed"] == [f"{job_id} is back in its lane"]


def test_fix_mends_and_says_what_it_did(project: Project, jobs: Duly) -> None:
    job_id = lose(project)
    answer = project.ok("doctor", "--fix", "--yes")
    assert f"\n  {job_id} is back in its lane\n" in answer.out
    assert answer.out.endswith("all is well; 1 finding mended\n")
    project.ok("tick", "app.py")
    assert jobs.get(job_id).result() == 3


def test_fix_mends_nothing_unasked(sqlite_project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    lose(sqlite_project)
    answer = sqlite_project.duly("doctor", "--fix")
    assert (answer.code, "Say --yes" in answer.err) == (2, True)
    assert sqlite_project.duly("doctor", "--fix", "--json").code == 2
    monkeypatch.setattr("duly.cli.doctor.can_ask", lambda: True)
    answer = sqlite_project.duly("doctor", "--fix", stdin="n\n")
    assert (answer.code, "mended\n" in answer.out) == (2, False)
    answer = sqlite_project.duly("doctor", "--fix", stdin="y\n")
    assert (answer.code, "1 finding mended" in answer.out) == (0, True)


def test_a_database_that_is_not_there_is_an_error_and_not_made(bare: Project, tmp_path: Path) -> None:
    answer = bare.duly("doctor", "--url", "sqlite:///none.db")
    assert answer.code == 2
    assert "there is no database" in answer.out
    assert list(tmp_path.iterdir()) == []


def test_a_database_without_tables_is_told_the_command(bare: Project, empty_database_url: str) -> None:
    if empty_database_url.startswith("sqlite"):
        Path(empty_database_url.removeprefix("sqlite:///")).touch()
    answer = bare.duly("doctor", "--url", empty_database_url)
    assert answer.code == 2
    assert "-> run duly migrate --url " in answer.out
