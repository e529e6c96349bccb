"""Run the scenarios, say how each went, and write down the sum of them.

PYTHONPATH=src python -m chaos                         all of them, at length
PYTHONPATH=src python -m chaos kills --database sqlite --seed 7
PYTHONPATH=src python -m chaos --short                 as the suite does
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
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the reports there")
    parser.add_argument("--table", type=Path, metavar="FILE", help="write a table of the reports there")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in SCENARIOS]:
        parser.error(f"there is no scenario {unknown[0]!r}; there are {', '.join(SCENARIOS)}")
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
    print(f"\n{table(reports)}\nFaults in all: {listed(total_faults(reports))}")
    if options.json:
        options.json.write_text(json.dumps([asdict(each) for each in reports], indent=1) + "\n")
    if options.table:
        options.table.write_text(table(reports))
    sys.exit(not all(report.ok for report in reports))


if __name__ == "__main__":
    main()
