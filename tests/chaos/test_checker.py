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


def test_a_run_that_begins_too_late_beside_a_later_one_is_stale_unless_its_process_stood_still() -> None:
    begun = [SECOND[0], Line("start", "j", 1, 10, 8.2), Line("end", "j", 1, 10, 8.3), SECOND[1]]
    found = verdict(STORED, *begun, ended=RESCUED)
    assert (found.stale, found.robbed) == (["j"], [])
    found = verdict(STORED, *begun, ended=RESCUED, facts=Facts(disturbed=[Disturbed(10, 2.0, 8.1)]))
    assert (found.stale, found.robbed) == ([], [])


def test_a_rescue_is_timed_from_the_kill() -> None:
    facts = Facts(kills=[Kill(10, at=5.0, wall=105.0)])
    assert verdict(STORED, FIRST[0], *SECOND, ended=RESCUED, facts=facts).delays == [2.5]


def test_a_kill_of_an_earlier_process_with_the_same_number_excuses_nothing_and_times_nothing() -> None:
    before = Facts(kills=[Kill(10, at=-50.0, wall=50.0)])
    found = verdict(STORED, *FIRST, *SECOND, ended=RESCUED, facts=before)
    assert (len(found.robbed), found.delays) == (1, [])
    both = Facts(kills=[*before.kills, Kill(10, at=5.0, wall=105.0), Kill(10, at=60.0, wall=160.0)])
    found = verdict(STORED, FIRST[0], *SECOND, ended=RESCUED, facts=both)
    assert (found.robbed, found.delays) == ([], [2.5])


def test_a_run_whose_handler_never_began_is_timed_by_another_of_its_worker() -> None:
    never = Ended({"j": "succeeded"}, 0, [("k", 1, "succeeded", 1, "w"), *RESCUED.runs])
    facts = Facts(kills=[Kill(10, at=5.0, wall=105.0)])
    assert verdict(STORED, Line("start", "k", 1, 10, 4.0), *SECOND, ended=never, facts=facts).delays == [2.5]


def test_a_run_that_was_rescued_from_the_living_is_robbery_even_if_it_was_over() -> None:
    over = [FIRST[0], Line("end", "j", 1, 10, 2.0)]
    assert len(verdict(STORED, *over, *SECOND, ended=RESCUED, facts=Facts(keepers=True)).robbed) == 1
    facts = Facts(kills=[Kill(10, at=5.0, wall=105.0)], keepers=True)
    assert verdict(STORED, *over, *SECOND, ended=RESCUED, facts=facts).robbed == []


def test_a_handler_that_left_is_no_longer_under_way() -> None:
    left = [FIRST[0], Line("left", "j", 1, 10, 7.0)]
    assert verdict(STORED, *left, *SECOND, ended=ONCE).robbed == []


def test_who_was_cancelled_or_deleted_on_demand_is_not_lost_but_nobody_else() -> None:
    gone, cancelled = Ended({}, 0, []), Ended({"j": "cancelled"}, 0, [])
    for event in ("cancel", "delete"):
        assert verdict(STORED, Line(event, "j", 0, 1, 0.5), ended=gone).lost == []
    assert verdict(STORED, Line("cancel", "j", 0, 1, 0.5), ended=cancelled).lost == []
    assert verdict(STORED, Line("delete", "j", 0, 1, 0.5), ended=cancelled).lost == ["j"]
    assert verdict(STORED, ended=cancelled).lost == ["j"]


def test_a_job_that_somebody_had_run_again_may_succeed_again() -> None:
    assert verdict(STORED, *FIRST, Line("retry", "j", 0, 1, 9.5), ended=TWICE).doubled == []


def test_a_job_that_is_to_fail_is_lost_unless_it_does() -> None:
    doomed = Line("doomed", "j", 0, 1, 0.0)
    assert verdict(doomed, FIRST[0], ended=Ended({"j": "failed"}, 0, [])).lost == []
    assert verdict(doomed, FIRST[0], ended=Ended({}, 0, [])).lost == ["j"]
