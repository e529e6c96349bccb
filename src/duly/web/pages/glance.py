"""What a snapshot means on each page: what it shows, and the parts of it that change. No database here."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from duly.domain.records import MINUTE_US
from duly.store.ops_pages import Snapshot
from duly.web.pages import charts, words
from duly.web.pages.attention import attention
from duly.web.pages.figures import for_good, grouped, oldest, rate, rate_text, states, total, whole_hour
from duly.web.pages.live import LOOK_BACK, Sample
from duly.web.pages.shell import templates
from duly.web.pages.trends import trends
from duly.worker.identity import is_alive

SHOWN_RUNNING = 8
OTHERWISE = {"waiting": "0", "running": "0", "scheduled": "0", "oldest": words.DASH, "rate": "0/min"}
"""What a figure is of a queue or a tenant that has no job any more."""


def live_parts(page: str, prefix: str, snapshot: Snapshot, samples: Sequence[Sample]) -> dict[str, Any]:
    """What changes on a page, by the name of the place: texts, and pieces of markup."""
    texts = {f"state.{state}": words.about(n) for state, n in states(snapshot).items() if n is not None}
    html: dict[str, str] = {}
    if page == "overview":
        known = overview(snapshot, samples)
        for name in ("tiles", "attention", "charts", "running"):
            html[name] = piece(f"_{name}.html", prefix, known)
    elif page == "queues":
        for line in queue_lines(snapshot).values():
            key = f"queue.{line['name']}"
            texts |= {f"{key}.{place}": words.number(line[place]) for place in ("waiting", "running", "scheduled")}
            texts |= {f"{key}.oldest": words.span(line["oldest"]), f"{key}.rate": rate_text(line["rate"])}
            html[f"{key}.spark"] = str(charts.spark(line["minutes"], f"runs per minute of {line['name']}"))
    elif page == "workers":
        html["workers"] = piece("_workers.html", prefix, {"workers": worker_lines(snapshot)})
    elif page == "tenants":
        for name, counts in grouped(snapshot, 1).items():
            texts |= {f"tenant.{name}.{place}": words.number(n) for place, n in counts.items()}
    return {"texts": texts, "html": html, "otherwise": OTHERWISE}


def piece(template: str, prefix: str, values: dict[str, Any]) -> str:
    """A part of a page, the same for everybody who sees it."""

    def link(path: str, /, **query: object) -> str:
        return f"{prefix}{path}{words.query(**query)}"

    return templates.get_template(template).render(prefix=prefix, link=link, **values)


# -- overview ---------------------------------------------------------------------------------------------------------


def overview(snapshot: Snapshot, samples: Sequence[Sample]) -> dict[str, Any]:
    """Everything of the first page."""
    minutes = whole_hour(snapshot)
    living = [worker for worker in snapshot.workers if is_alive(worker)]
    return {
        "tiles": {
            "waiting": total(snapshot.waiting),
            "oldest": oldest(snapshot),
            "parked": sum(snapshot.parked.values()),
            "running": total(snapshot.running),
            "slots": sum(worker.slots for worker in living),
            "scheduled": total(snapshot.scheduled),
            "next_due": min((row[4] for row in snapshot.scheduled), default=None),
            "failed_hour": sum(map(for_good, minutes)),
            "failed": snapshot.ended.get("failed"),
            "workers": len(living),
            "rate": rate_text(rate([minute.runs for minute in minutes], snapshot.now)),
        },
        "attention": attention(snapshot, living),
        "charts": trends(snapshot, samples),
        "busy": snapshot.busy[:SHOWN_RUNNING],
        "more_busy": max(0, total(snapshot.running) - SHOWN_RUNNING),
        "now": snapshot.now,
        "empty": not any(
            (snapshot.waiting, snapshot.scheduled, snapshot.running, any(snapshot.ended.values()), snapshot.minutes)
        ),
        "only_tenant": snapshot.tenant,
    }


# -- queues and workers -----------------------------------------------------------------------------------------------


def queue_lines(snapshot: Snapshot) -> dict[str, dict[str, Any]]:
    """How each queue stands that has jobs, or had some in the last hour."""
    counts = grouped(snapshot, 0)
    last = snapshot.now // MINUTE_US * MINUTE_US
    runs: dict[str, list[int]] = defaultdict(lambda: [0] * LOOK_BACK)
    failed: dict[str, int] = defaultdict(int)
    for minute in snapshot.minutes:
        place = LOOK_BACK - 1 - (last - minute.at) // MINUTE_US
        if 0 <= place < LOOK_BACK:
            runs[minute.queue][place] += minute.runs
        failed[minute.queue] += minute.failed
    return {
        name: {
            "name": name,
            **counts.get(name, {"waiting": 0, "running": 0, "scheduled": 0}),
            "oldest": oldest(snapshot, name),
            "minutes": runs[name],
            "rate": rate(runs[name], snapshot.now),
            "failed": failed[name],
        }
        for name in sorted({*counts, *runs})
    }


def worker_lines(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Every worker, those that live first, with what they run."""
    lines = []
    for worker in snapshot.workers:
        held = snapshot.held.get(worker.id, 0)
        lines.append(
            {
                "id": worker.id,
                "name": f"{worker.process.host}:{worker.process.pid}",
                "alive": is_alive(worker),
                "state": worker.state,
                "slots": worker.slots,
                "held": held,
                "meter": charts.meter(held / worker.slots if worker.slots else 0),
                "queues": json.loads(worker.queues),
                "tasks": json.loads(worker.tasks),
                "started_at": worker.started_at,
                "seen_at": worker.seen_at,
                "silent": worker.silent_us / 1e6,
                "version": worker.version,
                "memory": worker.memory_bytes,
                "busy": [each for each in snapshot.busy if each.worker_id == worker.id][:SHOWN_RUNNING],
            }
        )
    return sorted(lines, key=lambda line: (not line["alive"], line["name"]))
