"""Cardinality: a bounded number of names, given to the most active, and not passed around."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from duly.metrics.names import ALL_OTHERS, OTHER, Labels, Names
from duly.store.ops_observe import Key


def key(tenant: str, task: str = "send") -> Key:
    return Key("default", tenant, task)


def test_the_most_active_tenants_have_names_and_the_others_are_other() -> None:
    names = Names(tenants=2)
    names.choose({key("a"): 5, key("b"): 9, key("c"): 7, key(""): 1})
    assert names.of(key("b")).tenant == "b"
    assert names.of(key("c")).tenant == "c"
    assert names.of(key("a")).tenant == OTHER
    assert names.of(key("")).tenant == ""


def test_a_name_is_kept_until_another_is_twice_as_active() -> None:
    names = Names(tenants=1)
    names.choose({key("a"): 10})
    names.choose({key("a"): 10, key("b"): 19})
    assert names.of(key("a")).tenant == "a"
    given_up = names.choose({key("a"): 10, key("b"): 21})
    assert names.of(key("b")).tenant == "b"
    assert names.of(key("a")).tenant == OTHER
    assert given_up == set()  # the series of `a` is one of few; there is room for it


def test_who_does_nothing_for_a_while_keeps_the_name_if_nobody_needs_it() -> None:
    names = Names(tenants=2)
    names.choose({key("a"): 1})
    names.choose({})
    assert names.of(key("a")) == Labels("default", "send", "a")


def test_beyond_so_many_lanes_all_are_other_and_those_given_up_are_told() -> None:
    names = Names(tenants=10, lanes=2)
    names.choose({key("", "a"): 3, key("", "b"): 2, key("", "c"): 1})
    assert names.of(key("", "c")) == ALL_OTHERS
    assert names.choose({key("", "a"): 3, key("", "c"): 99}) == {Labels("default", "b", "")}
    assert names.of(key("", "c")).task == "c"


@given(st.lists(st.dictionaries(st.integers(0, 50), st.integers(0, 1000), max_size=40), max_size=20))
def test_there_are_never_more_names_than_allowed(looks: list[dict[int, int]]) -> None:
    names = Names(tenants=3, lanes=5)
    for look in looks:
        activity = {key(f"t{n}", f"task{n % 7}"): count for n, count in look.items()}
        names.choose(activity)
        labels = {names.of(each) for each in activity}
        assert len(labels) <= 5 + 1
        assert len({each.tenant for each in labels} - {OTHER}) <= 3
