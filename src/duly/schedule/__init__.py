"""Schedules: which instants a rule names. Pure computation; nothing here knows of jobs, databases or the time.

    schedule.py    Schedule: rules, zone, bounds, exclusions, jitter; next_after and latest_at
    rules.py       one rule: @every, @daily and the like, cron; from text, or refused with reason and position
    cron_text.py   cron fields from text
    cron.py        cron fields to readings of a wall clock
    zones.py       instants to readings and back
    moments.py     readings that do not come, or come twice: the policy below
    describe.py    in plain English

When clocks are moved:

- `@every` counts elapsed time. Zones do not matter.
- A rule that names fixed times (neither its hour nor its minute field starts with `*`) is meant to happen then, and
  once. A time that the clocks skip runs right after the gap (`gap="next"`) or not at all (`gap="skip"`); several in one
  gap are one run. A time that comes twice runs the first time (`overlap="first"`) or both (`overlap="twice"`).
- A rule whose hour or minute is a wildcard is meant to keep a pace, and follows the clock as it really runs: it
  runs whenever the clock shows a matching time, both times if that comes twice, and nothing is made up for a gap.
  So `*/10 2 * * *` does not run on the day on which there is no 02:00.

The seconds field does not count here: `*/10 30 2 * * *` names fixed times.
"""

from duly.schedule.schedule import Schedule

__all__ = ["Schedule"]
