"""The checker finds what it is there to find."""

from __future__ import annotations

from chaos.checker import Disturbed, Ended, Facts, Kill, Verdict, judge
from chaos.ledger import Line

STORED = Line("stored", "j", 0, 1, 0.0)
FIRST = [Line("start", "j", 1, 10, 1.0), Line("end", "j", 1, 10, 9.0)]
SECOND = [Line("start", "j", 2, 20, 8.0), Line("end", "j", 2, 20, 8.5)]
ONCE = Ended({"j": "succeeded"}, 0, [("j", 1, "succeeded", 9_000_000, "w")])
TWICE = Ended({"j": "succeeded"}, 0, [("j", 1, "succeeded", 1, "w"), ("j", 2, "succeeded", 2, "x")])
RESCUED = Ended({"j": "succeeded"}, 0, [("j", 1, "crashed", 107_500_000, "w"), ("j", 2, "succeeded", 108_500_000, "x")])


def verdict(*lines: Line, ended: Ended = ONCE, facts: Facts | None = None) -> Verdict:
    return judge(lines, ended, facts or Facts())


def test_all_is_well() -> None:
    found = verdict(STORED, *FIRST)
    assert (found.jobs, found.runs, found.lost, found.doubled, found.robbed, found.stale) == (1, 1, [], [], [], [])


def test_a_job_that_is_not_there_or_was_not_done_is_lost() -> None:
    assert verdict(STORED, *FIRST, ended=Ended({}, 0, [])).lost == ["j"]
    assert verdict(STORED, *FIRST, ended=Ended({"j": "failed"}, 0, [])).lost == ["j"]
    assert verdict(STORED).lost == ["j"], "no handler ever finished it"


def test_a_job_that_nobody_was_told_of_may_not_be_lost_either() -> None:
    assert verdict(FIRST[0]).lost == ["j"]


def test_two_accepted_ends_are_one_too_many() -> None:
    assert verdict(STORED, *FIRST, ended=TWICE).doubled == ["j"]


def test_a_run_beside_another_is_robbery() -> None:
    assert len(verdict(STORED, *FIRST, *SECOND, ended=RESCUED).robbed) == 1


def test_the_runs_of_the_killed_may_be_taken() -> None:
    facts = Facts(kills=[Kill(10, at=5.0, wall=105.0)])
    assert verdict(STORED, FIRST[0], *SECOND, ended=RESCUED, facts=facts).robbed == []


def test_the_runs_of_the_paused_may_be_taken_but_not_at_once() -> None:
    late, early = (Facts(disturbed=[Disturbed(10, since, 20.0)]) for since in (4.0, 7.5))
    assert verdict(STORED, *FIRST, *SECOND, ended=RESCUED, facts=late).robbed == []
    assert len(verdict(STORED, *FIRST, *SECOND, ended=RESCUED, facts=early).robbed) == 1


def test_a_fence_must_grow() -> None:
    again = Line("start", "j", 1, 30, 12.0)
    assert verdict(STORED, *FIRST, again).stale == ["j"]


def test_a_rescue_is_timed_from_the_kill() -> None:
    facts = Facts(kills=[Kill(10, at=5.0, wall=105.0)])
    assert verdict(STORED, FIRST[0], *SECOND, ended=RESCUED, facts=facts).delays == [2.5]
