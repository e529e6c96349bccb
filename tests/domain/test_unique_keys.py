"""Unique keys: the deterministic text, its stored form, and the options that make no sense together."""

from __future__ import annotations

import hashlib
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.domain.errors import ArgumentError, InvalidOption
from duly.domain.unique import Unique, dedupe_key, storage_key

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
payloads = st.dictionaries(texts, json_values, max_size=5)


@pytest.mark.requirement("B5")
def test_the_key_is_type_tenant_and_sorted_json() -> None:
    assert dedupe_key("crawl", "acme", {"b": 1, "a": [True, None, "ü"]}) == ('crawl::acme::{"a":[true,null,"ü"],"b":1}')


@pytest.mark.parametrize("tenant", ["", None])
@pytest.mark.requirement("B5")
def test_without_a_tenant_the_key_says_global(tenant: str | None) -> None:
    assert dedupe_key("crawl", tenant, {}) == "crawl::global::{}"


def turned_round(value: object) -> object:
    """Return the same JSON with the keys of every object in the opposite order."""
    if isinstance(value, dict):
        return {key: turned_round(value[key]) for key in reversed(value)}
    if isinstance(value, list):
        return [turned_round(item) for item in value]
    return value


@pytest.mark.requirement("B5")
@given(payloads)
def test_equal_payloads_have_equal_keys_whatever_their_key_order(payload: dict[str, object]) -> None:
    other = turned_round(payload)
    assert isinstance(other, dict)
    assert dedupe_key("t", "", payload) == dedupe_key("t", "", other)


@pytest.mark.requirement("B5")
@given(payloads, payloads)
def test_different_payloads_have_different_keys(a: dict[str, object], b: dict[str, object]) -> None:
    if dedupe_key("t", "", a) == dedupe_key("t", "", b):
        assert a == b


@pytest.mark.parametrize("args", [{"x": object()}, {"x": float("nan")}, {"x": "a\x00"}])
def test_arguments_that_are_not_json_are_refused_with_their_path(args: dict[str, object]) -> None:
    with pytest.raises(ArgumentError, match=r"args\.x"):
        dedupe_key("crawl", "", args)


def test_a_key_is_stored_as_itself_up_to_200_bytes_and_as_its_hash_beyond() -> None:
    assert storage_key("x" * 200) == "x" * 200
    assert storage_key("ü" * 100) == "ü" * 100
    assert storage_key("x" * 201) == "sha256:" + hashlib.sha256(b"x" * 201).hexdigest()
    assert storage_key("ü" * 101).startswith("sha256:")


@given(st.text(), st.text())
def test_stored_keys_are_short_and_differ_where_the_keys_differ(a: str, b: str) -> None:
    try:
        stored_a, stored_b = storage_key(a), storage_key(b)
    except InvalidOption:
        return  # a lone surrogate
    assert len(stored_a.encode()) <= 200
    assert (stored_a == stored_b) == (a == b)


def test_of_reads_a_key_a_flag_or_the_whole() -> None:
    whole = Unique(mode="replace", scope="queued")
    assert Unique.of("welcome:42") == Unique(key="welcome:42", mode="skip", scope="live")
    assert Unique.of(True) == Unique(key=None)
    assert Unique.of(False).mode == "none"
    assert Unique.of(whole) is whole
    with pytest.raises(InvalidOption, match="unique must be a key, True, False or Unique"):
        Unique.of(42)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options, fault",
    [
        ({"key": ""}, "must not be empty"),
        ({"key": "a\x00b"}, r"NUL \(position 2\)"),
        ({"key": "a\ud800"}, r"lone surrogate \(position 2\)"),
        ({"key": 42}, "must be text, not int"),
        ({"mode": "skipp"}, "Did you mean 'skip'"),
        ({"mode": None}, "unique mode must be one of"),
        ({"scope": "que"}, "Did you mean 'queued'"),
        ({"scope": "window"}, "needs window"),
        ({"scope": "window", "window": timedelta(0)}, "longer than nothing"),
        ({"scope": "window", "window": 30}, "must be a timedelta, not int"),
        ({"window": timedelta(hours=1)}, "needs scope 'window', and scope is 'live'"),
        ({"mode": "keep_latest", "scope": "queued"}, "'keep_latest' needs scope 'live'"),
        ({"mode": "debounce", "scope": "window", "window": timedelta(hours=1)}, "not 'window'"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, object], fault: str) -> None:
    with pytest.raises(InvalidOption, match=fault):
        Unique(**options)  # type: ignore[arg-type]


def test_every_mode_and_scope_of_the_design_can_be_said() -> None:
    Unique(scope="window", window=timedelta(hours=1))
    Unique(mode="replace", scope="window", window=timedelta(hours=1))
    Unique(mode="debounce", scope="queued")
    Unique(mode="debounce")
    Unique(mode="keep_latest")
