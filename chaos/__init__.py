"""Real processes, real kills, and a checker: each module is one storm, run by `python -m chaos.NAME URL`."""
