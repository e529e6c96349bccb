"""Short words for what tests ask of an answer, and for doing what it advises."""

from __future__ import annotations

import shlex

from click.testing import CliRunner

from duly import Duly
from duly.cli import main
from duly.why.answer import Blocker, Reason, Why


def reasons(why: Why) -> list[str]:
    """The codes of all that holds a job, the deciding one first."""
    return [str(each.reason) for each in why.blockers]


def blocker(why: Why, reason: Reason) -> Blocker:
    """The one thing of this kind that holds a job."""
    (found,) = (each for each in why.blockers if each.reason is reason)
    return found


def do(jobs: Duly, advice: Why | Blocker) -> None:
    """Do what the answer says is next, as a person would: by the command line."""
    assert advice.next is not None
    program, *words = shlex.split(advice.next)
    assert program == "duly"
    done = CliRunner().invoke(main, [*words, "--url", jobs.settings.url])
    assert done.exit_code == 0, done.output
