"""Run the scenarios, say how each went, and write down the sum of them.

PYTHONPATH=src python -m chaos                         all of them, at length
PYTHONPATH=src python -m chaos kills --database sqlite --seed 7
PYTHONPATH=src python -m chaos --short                 as the suite does
PYTHONPATH=src python -m chaos kills --json ledger.json --table chaos.md
                                                       this one anew, with what the file has of the others
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from dataclasses import asdict
from pathlib import Path

from chaos.load import load
from chaos.place import place
from chaos.report import Report, listed, table, total_faults
from chaos.scenarios import SCENARIOS, Scenario


def run(scenario: Scenario, database: str, *, short: bool, seed: int) -> Report:
    """One scenario on one database of its own."""
    with place(database) as here:
        return scenario.run(here, scenario.short if short else scenario.long, seed)


def main() -> None:
    """Run what was asked for."""
    load()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="SCENARIO", help=", ".join(SCENARIOS))
    parser.add_argument("--database", choices=["sqlite", "postgres"], help="only this one")
    parser.add_argument("--short", action="store_true", help="a few seconds each")
    parser.add_argument("--seed", type=int, help="which moments and whom to disturb")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the reports there, beside those of others")
    parser.add_argument("--table", type=Path, metavar="FILE", help="write a table of all these reports there")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in SCENARIOS]:
        parser.error(f"there is no scenario {unknown[0]!r}; there are {', '.join(SCENARIOS)}")
    kept = _kept(options.json)
    reports: list[Report] = []
    for name in options.names or SCENARIOS:
        scenario = SCENARIOS[name]
        if missing := scenario.needs():
            print(f"{name}: left out, {missing}", flush=True)
            continue
        for database in scenario.databases:
            if options.database not in (None, database):
                continue
            seed = random.randrange(1 << 32) if options.seed is None else options.seed
            print(f"{name} on {database}, seed {seed}: {scenario.title} ...", flush=True)
            reports.append(run(scenario, database, short=options.short, seed=seed))
            print(reports[-1], flush=True)
            kept[name, database] = reports[-1]
            _keep(options.json, options.table, kept)
    print(f"\n{table(reports)}\nFaults in all: {listed(total_faults(reports))}")
    sys.exit(not all(report.ok for report in reports))


HEAD = """\
# What the storms did

Each row is a scenario of `chaos/` at length: real processes under real faults, judged by a ledger that handlers write
beside the database ([decision 0025](decisions/0025-chaos.md)). Lost: a job that was stored and did not end. Doubled:
more than one accepted completion of a job. Robbed: a run taken from a worker that
lived and could renew. Cut short: runs that ended with their worker and were given to another. The delays of rescues are
beside the lease and two looks that are allowed. Written by
`PYTHONPATH=src python -m chaos --json FILE --table docs/chaos.md` (`make chaos CHAOS="..."`); the seed repeats whom and
when it struck, not the moment to the microsecond.
"""
Kept = dict[tuple[str, str], Report]


def _kept(path: Path | None) -> Kept:
    """What a file has from earlier runs."""
    if path is None or not path.exists():
        return {}
    reports = [Report(**each) for each in json.loads(path.read_text())]
    return {(report.scenario, report.database): report for report in reports}


def _keep(path: Path | None, page: Path | None, kept: Kept) -> None:
    """Write them down, in the order of the scenarios."""
    names = list(SCENARIOS)
    reports = [kept[key] for key in sorted(kept, key=lambda key: (names.index(key[0]), key[1]))]
    if path:
        path.write_text(json.dumps([asdict(each) for each in reports], indent=1) + "\n")
    if page:
        page.write_text(f"{HEAD}\n{table(reports)}\nFaults in all: {listed(total_faults(reports))}.\n")


if __name__ == "__main__":
    main()
