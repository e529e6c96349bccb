"""The dashboard, the alert rules and the page about them name metrics that exist, and the page names all of them."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from duly import Duly
from duly.domain.alerts import RULES
from duly.metrics.collector import Collector
from tests.helpers import ROOT, eventually
from tests.metrics.reading import Metrics

MONITORING = ROOT / "docs" / "monitoring"
PAGE = ROOT / "docs" / "howto" / "monitor.md"
NAME = re.compile(r"\bduly_[a-z0-9_]+\b")
SUFFIXES = ("_total", "_bucket", "_sum", "_count")


@pytest.fixture
def there(lite: Duly) -> Metrics:
    """Everything that a worker shows when there is something of everything to show."""

    @lite.task
    def work(fail: bool = False) -> None:
        if fail:
            raise ValueError

    lite.alerts.configure(depth=0)
    with lite.worker() as worker:
        collector = Collector(lite.store, figures=worker.figures)
        collector.begin()
        work.enqueue()
        eventually(lambda: worker.settled == 1)
    with lite.worker(["other"]) as worker:
        work.enqueue()
        work.using(delay=timedelta(hours=1)).enqueue()
        work.recur(key="a", every="1h")
        lite.store.run(lambda: _park(lite))
        lite.store.promote()
        lite.alerts.check()
        held = lite.store.claim("default", [_lane()], 1, worker_id=worker.id, lease_us=60_000_000)
        found = Metrics.of(collector)
        lite.store.give_back([(job.id, job.token) for job in held])
    return found


def _lane() -> Any:
    from duly.domain.records import Lane

    return Lane("", "work")


def _park(jobs: Duly) -> Any:
    from duly.domain.ids import uuid7
    from duly.store.call import Call

    values: dict[str, Any] = {"id": uuid7(), "queue": "default", "tenant": "", "task": "work", "priority": 0, "hold": 0}
    yield Call("park_new", {**values, "reason": "arguments", "detail": "", "mark": ""})


def families(text: str) -> set[str]:
    return {name.removesuffix("_bucket") for name in NAME.findall(text)}


def test_every_metric_of_the_dashboard_exists(there: Metrics) -> None:
    dashboard = json.loads((MONITORING / "grafana.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    queries += [each["query"]["query"] for each in dashboard["templating"]["list"] if each["type"] == "query"]
    named = {name for query in queries for name in NAME.findall(query)}
    assert len(named) > 20
    assert named - there.names == set()


def test_every_metric_of_the_alert_rules_exists(there: Metrics) -> None:
    text = (MONITORING / "duly.rules.yml").read_text()
    queries = [line.partition("expr:")[2] for line in text.splitlines() if "expr:" in line]
    assert len(queries) == text.count("- alert:") >= 8
    assert {name for query in queries for name in NAME.findall(query)} - there.names == set()


def test_the_page_names_every_metric_and_no_other(there: Metrics) -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `duly_")]
    named = {name for line in rows for name in NAME.findall(line.split("|")[1])}
    shown = set()
    for name in there.names:
        base = next((name.removesuffix(each) for each in SUFFIXES[1:] if name.endswith(each)), name)
        shown.add(base if base in named else name)
    assert named == shown


def test_the_page_names_every_rule_and_its_default(there: Metrics) -> None:
    text = PAGE.read_text()
    assert [rule for rule in RULES if f"| `{rule}` |" not in text] == []


def test_queries_over_several_processes_do_not_add_up_what_each_of_them_shows() -> None:
    """What is about the database is the same from each process; only what is the process's own may be summed."""
    dashboard = json.loads((MONITORING / "grafana.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    for query in queries:
        for name in NAME.findall(query):
            if not name.startswith("duly_worker_"):
                assert re.search(rf"max(?: by \([a-z, ]+\))? \(?(?:rate\()?\(?{name}|max\({name}", query), query


def test_the_files_are_where_the_page_says() -> None:
    for link in re.findall(r"\]\((\.\./monitoring/[^)]+)\)", PAGE.read_text()):
        assert (PAGE.parent / Path(link)).exists()
