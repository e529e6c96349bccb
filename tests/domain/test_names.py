"""Names that people choose: what is accepted, and what the refusal says."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.domain.errors import InvalidOption
from duly.domain.names import check_queue_name, check_tag, check_task_name, check_tenant, suggest


@pytest.mark.parametrize("check", [check_task_name, check_queue_name])
@pytest.mark.parametrize("name", ["a", "shop.tasks:send_mail", "mail-2", "x" * 128])
def test_plain_names_are_accepted(check: Callable[[str], str], name: str) -> None:
    assert check(name) == name


@pytest.mark.parametrize(
    "name, fault",
    [
        ("", "is empty"),
        ("send mail", "has ' ' at position 5"),
        ("mail\n", r"has '\\n' at position 5"),
        ("größe", "has 'ö' at position 3"),
        ("x" * 129, "has 129"),
        (7, "must be text, not int: 7"),
        (None, "must be text, not NoneType"),
    ],
)
def test_other_names_are_refused_with_their_fault(name: str, fault: str) -> None:
    with pytest.raises(InvalidOption, match=f"^task name .*{fault}"):
        check_task_name(name)
    with pytest.raises(InvalidOption, match=f"^queue name .*{fault}"):
        check_queue_name(name)


@pytest.mark.parametrize("tenant", ["", "acme", "Größe & Söhne", "ü" * 127, "東京", "x" * 255])
def test_a_tenant_is_any_storable_text(tenant: str) -> None:
    assert check_tenant(tenant) == tenant


@pytest.mark.parametrize(
    "text, fault",
    [
        ("a\x00b", r"control character: 'a\\x00b', position 2"),
        ("line\nbreak", "control character.*position 5"),
        ("\x9f", "control character.*position 1"),
        ("a\ud800", "lone surrogate.*position 2"),
        ("ü" * 128, "at most 255 bytes of UTF-8, not 256"),
        (b"acme", "must be text, not bytes"),
    ],
)
def test_a_tenant_that_no_database_stores_alike_is_refused(text: str, fault: str) -> None:
    with pytest.raises(InvalidOption, match=f"^tenant .*{fault}"):
        check_tenant(text)


def test_a_tag_is_short_text_and_not_empty() -> None:
    assert check_tag("nightly import") == "nightly import"
    with pytest.raises(InvalidOption, match="tag must not be empty"):
        check_tag("")
    with pytest.raises(InvalidOption, match="tag must be at most 128 bytes of UTF-8, not 129"):
        check_tag("x" * 129)
    with pytest.raises(InvalidOption, match="tag must not contain a control character"):
        check_tag("a\tb")


@given(st.text(max_size=300))
def test_what_passes_as_a_tenant_survives_utf8_within_its_bytes(text: str) -> None:
    try:
        tenant = check_tenant(text)
    except InvalidOption:
        return
    assert len(tenant.encode()) <= 255
    assert "\x00" not in tenant


def test_a_refusal_of_huge_text_is_short() -> None:
    for check in (check_task_name, check_tenant):
        with pytest.raises(InvalidOption) as caught:
            check("x" * 1_000_000)
        assert len(str(caught.value)) < 300


def test_suggest_names_the_nearest_word_or_nothing() -> None:
    assert suggest("send_male", ["send_mail", "sweep"]) == " Did you mean 'send_mail'?"
    assert suggest("LEASE", ["lease", "grace"]) == " Did you mean 'lease'?"
    assert suggest("quux", ["send_mail"]) == ""
    assert suggest("anything", []) == ""
