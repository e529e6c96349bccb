"""Recurring jobs at scale, on a PostgreSQL and an SQLite file of their own.

    python benchmarks/recurring.py                        everything (about 12 minutes)
    python benchmarks/recurring.py --only verbs keep-up   some of it
    python benchmarks/recurring.py --scale 0.02           a rehearsal: its figures mean nothing

lone: a job due in 3 s on an idle system. declared: start-up with 1,000 declarations.
verbs: look-up, disable and enable with a million rows (SQLite: 100,000).
keep-up: lateness with 5,000 due per second (SQLite: 1,000).
growth: three million runs of 1,000 jobs, with short retention.
"""

import time
from collections.abc import Callable

from places import Found, Place, main


def lone(place: Place, scale: float) -> Found:
    return place.do("lone", times=max(2, int(10 * scale)))


def declared(place: Place, scale: float) -> Found:
    return place.do("declared", count=max(10, int(1_000 * scale)))


def verbs(place: Place, scale: float) -> Found:
    rows = int((1_000_000 if place.on_postgres else 100_000) * scale)
    place.do("fill", rows=rows, every=3_600, delay=3_600)
    found = {"rows": rows, **place.do("verbs", rows=rows, times=300)}
    return {**found, "server": place.do("plans", times=60)} if place.on_postgres else found


def keep_up(place: Place, scale: float) -> Found:
    per_second = max(20, int((5_000 if place.on_postgres else 1_000) * scale))
    rows = max(1_000, int((1_000_000 if place.on_postgres else 100_000) * scale))
    delay = 15 + rows / 20_000  # until then the rows are stored and the worker is up
    first = time.monotonic() + delay
    place.do("fill", rows=rows, every=rows // per_second, delay=delay)
    with place.worker(retention=30, maintenance=5):
        time.sleep(first - time.monotonic() + (60 if scale >= 1 else 10))
    return {"rows": rows, "due_per_second": per_second, **place.do("lateness")}


def growth(place: Place, scale: float) -> Found:
    count, runs = max(50, int(1_000 * min(1.0, scale * 10))), int(3_000_000 * scale)
    place.do("make", count=count)
    samples: list[Found] = []
    began = time.monotonic()
    with place.worker(retention=5, maintenance=1):
        while not samples or samples[-1]["runs"] < runs:
            time.sleep(20 if scale >= 1 else 2)
            samples.append({"second": round(time.monotonic() - began), **place.do("sizes")})
    return {"samples": [*samples[: -1 : max(1, len(samples) // 8)], samples[-1]]}


def markdown(results: Found) -> str:
    """The page for the documentation."""
    on = {
        kind: {name: results.get(f"{name} {kind}", {}) for name in WORK} for kind in ("postgresql", "sqlite")
    }

    def row(title: str, show: Callable[[dict[str, Found]], str]) -> str:
        return f"| {title} | {_or_dash(show, on['postgresql'])} | {_or_dash(show, on['sqlite'])} |"

    rows = [
        "| | PostgreSQL | SQLite |",
        "|---|---|---|",
        row(
            "a lone job due in 3 s: worst lateness",
            lambda found: f"{found['lone']['worst_ms']} ms",
        ),
        row("start-up with declared jobs", lambda found: f"{found['declared']['declared']:,}"),
        row("... the first time", lambda found: f"{found['declared']['first_s']} s"),
        row("... again", lambda found: f"{found['declared']['again_s']} s"),
        row("rows for the verbs", lambda found: f"{found['verbs']['rows']:,}"),
        *(
            row(
                f"{verb}, median for the caller",
                lambda found, verb=verb: f"{found['verbs'][verb]['median_ms']} ms",
            )
            for verb in ("lookup", "disable", "enable")
        ),
        *(
            row(
                f"{verb}, in the server",
                lambda found, verb=verb: f"{found['verbs']['server'][f'{verb}_ms']} ms",
            )
            for verb in ("lookup", "disable", "enable")
        ),
        row("table scans of the verbs", lambda found: str(len(found["verbs"]["server"]["table_scans"]))),
        row(
            "due per second, for a minute",
            lambda found: f"{found['keep-up']['due_per_second']:,}",
        ),
        *(
            row(
                f"... started within {at}", lambda found, at=at: f"{found['keep-up']['percent_within'][at]} %"
            )
            for at in ("20ms", "100ms", "500ms", "1s")
        ),
        row("1,000 jobs due again at once, retention 5 s: runs", lambda found: f"{_last(found)['runs']:,}"),
        row("... in seconds", lambda found: str(_last(found)["second"])),
        row("... rows in `jobs`", lambda found: f"{_last(found)['jobs']:,}"),
        row("... size of all tables in MB, as it went", _sizes),
    ]
    return PAGE + "\n".join(rows) + "\n"


PAGE = """# Recurring jobs at scale

Written by `python benchmarks/recurring.py --markdown docs/benchmarks-recurring.md`: one worker process at
its defaults, PostgreSQL with fsync on, SQLite with synchronous FULL, client and server on one machine with
2 cores. Figures in the server are planning and execution time of all statements of a verb. PostgreSQL's
autovacuum looks at tables once a minute, so their size grows until its first round.

"""


def _or_dash(show: Callable[[dict[str, Found]], str], found: dict[str, Found]) -> str:
    try:
        return show(found)
    except KeyError:
        return "-"


def _last(found: dict[str, Found]) -> Found:
    last: Found = found["growth"]["samples"][-1]
    return last


def _sizes(found: dict[str, Found]) -> str:
    return ", ".join(str(round(each["megabytes"])) for each in found["growth"]["samples"])


WORK: dict[str, Callable[[Place, float], Found]] = {
    "lone": lone,
    "declared": declared,
    "verbs": verbs,
    "keep-up": keep_up,
    "growth": growth,
}


if __name__ == "__main__":
    main(str(__doc__), WORK, "duly_recurring", markdown)
