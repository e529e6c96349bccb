"""Values of named fields are shown nowhere: in no arguments, results, errors, tracebacks, logs, searches, audit."""

from __future__ import annotations

import pytest

from duly import Duly
from duly.web.redact import MASK, Redaction
from tests.web.browser import browse

pytestmark = pytest.mark.requirement("S8")
CANARY = "canary-4711"
HIDDEN = Redaction(["password", "api_key", "Authorization"])


def test_the_canary_is_in_no_answer(jobs: Duly) -> None:
    api = browse(jobs)
    failed = jobs["send"].enqueue("nobody", password=CANARY)
    done = jobs["send"].using(unique=True).enqueue("ann", password=CANARY)
    with jobs.acting_as("ann"):
        jobs["send"].recur("k", name="n", every="1h", start_at=None, args={"to": "bob", "password": CANARY})
        jobs.recurring_job("send", "k").edit(args={"to": "cat", "password": CANARY})
    jobs.tick(10, queues="mail")
    assert CANARY in str(failed.runs[0].error)
    for path in (
        "/api/admin/jobs",
        f"/api/admin/jobs/{failed.id}",
        f"/api/admin/jobs/{failed.id}/runs",
        f"/api/admin/jobs/{failed.id}/why",
        f"/api/admin/jobs/{done.id}",
        f"/api/admin/jobs/{done.id}/runs",
        "/api/admin/runs",
        "/api/admin/scheduled-jobs",
        "/api/admin/audit",
    ):
        answer = api.get(path)
        assert answer.status_code == 200
        assert CANARY not in answer.text, path
    shown = api.ok(api.get(f"/api/admin/jobs/{done.id}/runs"))["items"][0]
    assert shown["result"] == {"to": "ann", "password": MASK, "said": f"with {MASK}"}
    assert "sending to ann" in shown["log"][0]


@pytest.mark.parametrize("text", [CANARY, CANARY[:3], f'"password":"{CANARY[:4]}'])
def test_a_search_does_not_find_what_is_hidden(jobs: Duly, text: str) -> None:
    """Else whoever may search could find out a secret letter by letter."""
    api = browse(jobs)
    jobs["send"].enqueue("ann", password=CANARY)
    assert api.ok(api.get("/api/admin/jobs", text=text))["items"] == []
    body = {"filter": {"text": text, "state": "queued"}, "dry_run": True}
    assert api.ok(api.post("/api/admin/jobs/bulk/cancel", body))["count"] == 0
    assert len(api.ok(api.get("/api/admin/jobs", text='"to":"ann"'))["items"]) == 1


def test_a_copy_has_the_real_arguments(jobs: Duly) -> None:
    api = browse(jobs)
    job = jobs["send"].enqueue("ann", password=CANARY)
    copy = api.ok(api.post(f"/api/admin/jobs/{job.id}/copy"), 201)
    assert jobs.get(copy["id"]).args == {"to": "ann", "password": CANARY}


def test_which_fields_is_a_setting(lite: Duly) -> None:
    lite["send"].enqueue("ann", password=CANARY)
    open_api, other = browse(lite, redact=[]), browse(lite, redact=["TO"])
    assert CANARY in open_api.get("/api/admin/jobs").text
    assert other.ok(other.get("/api/admin/jobs"))["items"][0]["args"] == {"to": MASK, "password": CANARY}


@pytest.mark.parametrize(
    "value, shown",
    [
        ({"password": "x"}, {"password": MASK}),
        ({"PassWord": 1, "API-Key": ["a"], "api key": {}}, {"PassWord": MASK, "API-Key": MASK, "api key": MASK}),
        ({"a": [{"b": {"password": None}}]}, {"a": [{"b": {"password": MASK}}]}),
        ({"passwords": "x", "my_password": "x"}, {"passwords": "x", "my_password": "x"}),
        (["password"], ["password"]),
        ("password", "password"),
    ],
)
def test_fields_are_masked_at_any_depth(value: object, shown: object) -> None:
    assert HIDDEN.value(value) == shown


@pytest.mark.parametrize(
    "text, shown",
    [
        ("password=abc more", f"password={MASK} more"),
        ("PASSWORD: abc", f"PASSWORD: {MASK}"),
        ('{"password": "a b", "x": 1}', f'{{"password": {MASK}, "x": 1}}'),
        ("{'api_key': 'abc'}", f"{{'api_key': {MASK}}}"),
        ("authorization: Bearer abc.def", f"authorization: Bearer {MASK}"),
        ("?api_key=abc&x=1", f"?api_key={MASK}&x=1"),
        ("the password is gone", "the password is gone"),
        ("nothing", "nothing"),
    ],
)
def test_values_are_masked_in_texts(text: str, shown: str) -> None:
    assert HIDDEN.text(text) == shown


def test_what_stands_in_a_hidden_field_is_masked_wherever_it_is_repeated() -> None:
    secrets = HIDDEN.secrets({"password": {"deep": ["swordfish", "fish", 12345, "abc", True]}, "x": "open"})
    assert secrets == ["swordfish", "12345", "fish"]
    assert HIDDEN.text("swordfish and 12345, open abc", secrets) == f"{MASK} and {MASK}, open abc"
    assert HIDDEN.text(None) is None


def test_without_names_nothing_is_hidden() -> None:
    assert Redaction().value({"password": "x"}) == {"password": "x"}
    assert Redaction([""]).text("password=x") == "password=x"
    assert not Redaction([" "])


def test_masks_that_come_back_are_taken_for_what_they_hide() -> None:
    old = {"password": "x", "list": [{"password": "y"}], "to": "a"}
    assert HIDDEN.restored({"password": MASK, "list": [{"password": MASK}], "to": "b"}, old) == {**old, "to": "b"}
    assert HIDDEN.restored({"password": "new", "other": MASK}, old) == {"password": "new", "other": MASK}
    assert HIDDEN.restored({"password": MASK}, {}) == {"password": MASK}
