"""Says why a job does not run: `duly why`, `Duly.why()`, `Job.why()`; and what holds all that waits.

Facts are read by `store/ops_why.py`; the modules here judge them, as functions of these values alone (`lane`, `key`,
`turn`, `job`, `run`, `waiting`), after `hide` took out what a tenant may not know. `words` makes sentences of it.
"""
