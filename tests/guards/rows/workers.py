"""Guards in a worker and its upkeep: it stops by itself before its lease ends, and robs nobody that lives."""

from __future__ import annotations

from tests.guards.guard import Guard
from tests.guards.removing import Code

KEEPER = "duly.worker.keeper:Keeper"
RESCUE = "duly.maintenance.rescue"

WORKERS = (
    Guard(
        name="Keeper._fence(): stops a run before its lease ends",
        protects="F3 I4 P5",
        without="a handler goes on while another worker runs the job",
        edits=(Code(f"{KEEPER}._fence", "if not run.lost and not run.fenced and", "if False and not run.lost and"),),
    ),
    Guard(
        name="Keeper._renew(): a lease counts from before it was asked for",
        protects="F3 I4",
        without="a reply that took long makes a worker believe in a lease that is already over",
        edits=(
            Code(
                f"{KEEPER}._renew",
                "            elif asked is not None:\n                run.leased_at = sent\n",
                "            elif asked is not None:\n                run.leased_at = lease_time()\n",
            ),
        ),
    ),
    Guard(
        name="Keeper._renew(): stops what it has lost",
        protects="F2 F3 P3",
        without="a handler goes on though another worker has its job",
        edits=(Code(f"{KEEPER}._renew", "            elif run.job.id not in still and", "            elif False and"),),
    ),
    Guard(
        name="Keeper._give_up_limited(): a lapsed lease under a limit is given up",
        protects="F28 I9",
        without="a worker that stood still goes on in a slot that was given to another",
        edits=(
            Code(f"{KEEPER}._give_up_limited", "if run.limited and not run.lost and", "if False and not run.lost and"),
        ),
    ),
    Guard(
        name="Keeper._cancels(): only the run that was asked to stop",
        protects="F2 P3",
        without="a run is stopped because an earlier one was to be",
        edits=(
            Code(
                f"{KEEPER}._cancels",
                "run is not None and run.job.token == token and run.cancel_reason",
                "run is not None and run.cancel_reason",
            ),
        ),
    ),
    Guard(
        name="Worker._give_back_unknown(): what it does not know of goes back",
        protects="F4 P4",
        without="a job whose claim was never answered waits for a whole lease, and costs an attempt",
        edits=(
            Code("duly.worker.worker:Worker._claim", "            self._give_back_unknown()\n", "            pass\n"),
        ),
    ),
    Guard(
        name="Worker._give_back_unknown(): and nothing else",
        protects="F2 I4",
        without="after an outage a worker gives back the jobs that it runs",
        edits=(
            Code(
                "duly.worker.worker:Worker._give_back_unknown",
                "for pair in self._store.held_by(self.id) if pair not in known",
                "for pair in self._store.held_by(self.id)",
            ),
        ),
    ),
    Guard(
        name="rescue_lapsed(): only after a lease of unbroken contact",
        protects="F13 P5 P11",
        without="after an outage a worker robs others before they can renew",
        edits=(Code(f"{RESCUE}:rescue_lapsed", "if in_touch_us(store, lease_us) < lease_us:", "if False:"),),
    ),
    Guard(
        name="rescue_lapsed(): not its own runs",
        protects="F3 P5",
        without="a worker that stood still rescues the jobs that it is about to renew",
        edits=(
            Code(
                f"{RESCUE}:rescue_lapsed",
                ' if run.why != "lease" or not is_ours(run)]',
                "]",
            ),
        ),
    ),
    Guard(
        name="rescue_dead(): only what has certainly ended",
        protects="F5 P5",
        without="the jobs of live workers are taken away",
        edits=(Code(f"{RESCUE}:rescue_dead", "if not is_gone(worker.process):", "if False:"),),
    ),
    Guard(
        name="is_gone(): another boot proves something on one host alone",
        protects="F5 P5",
        without="the workers of all other machines are taken for dead",
        edits=(Code("duly.worker.identity:is_gone", "        return one_host\n", "        return True\n"),),
    ),
    Guard(
        name="is_gone(): a process id means nothing in another namespace",
        protects="F5 P5",
        without="the worker of another container is taken for dead",
        edits=(
            Code(
                "duly.worker.identity:is_gone",
                "    if other.pid_namespace != pid_namespace():\n        return False\n",
            ),
        ),
    ),
    Guard(
        name="is_gone(): a process id that was used again is another process",
        protects="F5 P4",
        without="a dead worker whose process id was used again is taken for alive",
        edits=(
            Code(
                "duly.worker.identity:is_gone",
                "return bool(found and other.process_started_at and found != other.process_started_at)",
                "return False",
            ),
        ),
    ),
    Guard(
        name="rescue: one row that fails keeps no other from it",
        protects="F7",
        without="one row that cannot be rescued strands all others",
        edits=(
            Code(
                f"{RESCUE}:_settle_one",
                "    except DulyError as error:\n",
                "    except ZeroDivisionError as error:\n",
            ),
        ),
        red="^call: duly.domain.errors.DatabaseError: this row cannot be rescued",
    ),
    Guard(
        name="rescue: a page that fails is rescued row by row",
        protects="F7",
        without="one row that cannot be rescued strands all others that are rescued with it",
        edits=(
            Code(
                f"{RESCUE}:_settle_plain",
                "    except DulyError as error:\n",
                "    except ZeroDivisionError as error:\n",
            ),
        ),
        red="^call: duly.domain.errors.DatabaseError: this row cannot be rescued",
    ),
)
