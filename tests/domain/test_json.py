"""The encoder: arguments come back equal or are refused with their path; results and errors never fail."""

from __future__ import annotations

import json
import math
import random
import sys
from enum import IntEnum, StrEnum
from typing import Any, NoReturn

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from duly.domain.errors import ArgumentError, PayloadTooLarge
from duly.domain.json import JSON, MAX_BYTES, MAX_DEPTH, canonical, decode, decode_strict, encode_args, encode_result
from duly.domain.text import clean_text, describe_exception

ANY_TEXT = st.text(st.characters(exclude_categories=()))  # surrogates and NUL too
SOUND_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
BIG_INTS = st.integers(min_value=-(10**400), max_value=10**400)
SCALARS = st.none() | st.booleans() | BIG_INTS | st.floats(allow_nan=False, allow_infinity=False) | SOUND_TEXT


def nested(leaves: st.SearchStrategy[Any], keys: st.SearchStrategy[str] = SOUND_TEXT) -> st.SearchStrategy[Any]:
    return st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(keys, inner), max_leaves=12)


def is_storable(text: str) -> bool:
    return "\x00" not in text and not any("\ud800" <= char <= "\udfff" for char in text)


def strings_in(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [*value, *(text for item in value.values() for text in strings_in(item))]
    if isinstance(value, list):
        return [text for item in value for text in strings_in(item)]
    return []


def nest(depth: int) -> list[Any]:
    outer: list[Any] = []
    for _ in range(depth - 1):
        outer = [outer]
    return outer


def types_of(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: types_of(item) for key, item in value.items()}
    if isinstance(value, list):
        return [types_of(item) for item in value]
    return type(value)


# ---- Arguments


@given(nested(SCALARS))
@example({"a": 10**400, "b": -0.0, "c": 5e-324, "d": "😀\\u0000"})
def test_every_json_value_comes_back_equal_and_of_the_same_type(value: Any) -> None:
    back = decode(encode_args(value, max_bytes=2**40))
    assert back == value
    assert types_of(back) == types_of(value)


@given(nested(SCALARS))
def test_the_text_is_what_the_standard_library_writes(value: Any) -> None:
    expected = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    assert encode_args(value, max_bytes=2**40) == expected


@given(nested(st.integers() | ANY_TEXT, ANY_TEXT))
def test_a_value_is_refused_exactly_if_some_text_in_it_cannot_be_stored(value: Any) -> None:
    sound = all(is_storable(text) for text in strings_in(value))
    try:
        text = encode_args(value)
    except ArgumentError:
        assert not sound
    else:
        assert sound
        assert decode(text) == value


@pytest.mark.parametrize("text", ["\\u0000", "\\\\u0000", "\\ud800", "a\\u0000b\\"])
def test_a_backslash_before_u0000_is_no_nul(text: str) -> None:
    assert decode(encode_args({"x": text})) == {"x": text}


@pytest.mark.parametrize(
    "value, path, word",
    [
        ({"user": {"tags": ["a", "b", "c", "d\x00"]}}, "args.user.tags[3]", "NUL"),
        ({"name": "\ud800"}, "args.name", "lone surrogate"),
        ({"a": {"b\x00": 1}}, "args.a", "NUL"),
        ({"a": {"\udc80": 1}}, "args.a", "lone surrogate"),
        ({"ratio": math.nan}, "args.ratio", "nan"),
        ({"ratios": [1.0, -math.inf]}, "args.ratios[1]", "-inf"),
        ({"by_id": {1: "x"}}, "args.by_id", "the key 1"),
        ({"by_id": [{None: "x"}]}, "args.by_id[0]", "the key None"),
        ({True: 1}, "args", "the key True"),
        ({"user": {"photo": b"\xff"}}, "args.user.photo", "bytes b'\\xff'"),
        ({"headers": {"X-Id": {1, 2}}}, 'args.headers["X-Id"]', "set {1, 2}"),
        ({"rest": (1, (2, object))}, "args.rest[1][1]", "type"),
        ({"n": 10**5000}, "args.n", "digits"),
        ({"deep": nest(MAX_DEPTH)}, "args.deep" + "[0]" * (MAX_DEPTH - 1), "100 levels"),
        (object(), "args", "object"),
    ],
)
def test_a_refusal_names_the_path_and_the_reason(value: object, path: str, word: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        encode_args(value)
    assert caught.value.path == path
    assert str(caught.value).startswith(f"{path} ")
    assert word in str(caught.value)


@given(st.lists(st.integers(0, 3) | st.sampled_from(["a", "b c", "été", "x" * 300]), max_size=8))
def test_the_path_leads_to_the_value_however_deep(steps: list[int | str]) -> None:
    value: Any = object()
    for step in reversed(steps):
        value = {step: value, "other": 1} if isinstance(step, str) else [0] * step + [value]
    with pytest.raises(ArgumentError) as caught:
        encode_args(value)
    shown = "args"
    for step in steps:
        key = step if isinstance(step, int) or len(step) < 60 else step[:57] + "..."
        shown += f"[{key}]" if isinstance(key, int) else f".{key}" if key.isidentifier() else f'["{key}"]'
    assert caught.value.path == shown


def test_what_contains_itself_is_refused_with_the_path_where_it_does() -> None:
    ring: dict[str, Any] = {"next": [1]}
    ring["next"].append(ring)
    with pytest.raises(ArgumentError, match="contains itself") as caught:
        encode_args({"ring": ring})
    assert caught.value.path == "args.ring.next[1]"


def test_what_is_shared_but_does_not_contain_itself_is_accepted() -> None:
    shared = [1]
    assert encode_args({"a": shared, "b": [shared, shared]}) == '{"a":[1],"b":[[1],[1]]}'
    assert encode_args([shared, shared, "\\u0000"]) == r'[[1],[1],"\\u0000"]'  # looked at more closely


def test_a_hundred_levels_are_accepted_and_ten_thousand_refused() -> None:
    assert decode(encode_args(nest(MAX_DEPTH))) == nest(MAX_DEPTH)
    with pytest.raises(ArgumentError, match="100 levels"):
        encode_args(nest(MAX_DEPTH + 1))
    with pytest.raises(ArgumentError, match="100 levels"):
        encode_args({"a": nest(10_000)})


def test_depth_is_counted_also_where_the_levels_have_neighbours() -> None:
    outer: dict[str, Any] = {}
    for _ in range(MAX_DEPTH):
        outer = {"before": [1, {}], "in": outer, "after": "x"}
    with pytest.raises(ArgumentError, match="100 levels"):
        encode_args(outer)


def test_enums_that_are_numbers_or_text_go_as_their_values() -> None:
    number = IntEnum("number", {"ONE": 1})
    word = StrEnum("word", {"RED": "red"})
    assert encode_args({word["RED"]: [number["ONE"], word["RED"]]}) == '{"red":[1,"red"]}'


def test_the_limit_counts_bytes_not_characters() -> None:
    assert encode_args("é" * 4, max_bytes=10) == '"éééé"'
    with pytest.raises(PayloadTooLarge) as caught:
        encode_args("é" * 4, max_bytes=9)
    assert (caught.value.size, caught.value.limit) == (10, 9)
    assert "10 bytes" in str(caught.value)
    assert "limit is 9" in str(caught.value)


def test_a_hundred_megabytes_are_refused_by_default() -> None:
    with pytest.raises(PayloadTooLarge) as caught:
        encode_args({"blob": "x" * 100_000_000})
    assert caught.value.limit == MAX_BYTES == 262_144


# ---- Reading


@pytest.mark.parametrize("text", ['  {"a": 1}', '{"a":1}\n', '{"a" : 1}'])
def test_blanks_that_another_program_wrote_are_skipped(text: str) -> None:
    assert decode(text) == {"a": 1}


@pytest.mark.parametrize("text", ["", "{", '{"a":1} x', "nope"])
def test_stored_text_that_is_no_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"char \d"):
        decode(text)


@pytest.mark.parametrize(
    "text, word",
    [
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "'c' is there twice"),
        ("[NaN]", "NaN"),
        ("-Infinity", "-Infinity"),
        ('{"a": }', "line 1 column 7"),
        (b"\xff", "decode"),
        ("[" * 100_000, "100 levels"),
    ],
)
def test_strict_reading_refuses_what_is_ambiguous_or_broken(text: str | bytes, word: str) -> None:
    with pytest.raises(ArgumentError, match=word):
        decode_strict(text)


@given(nested(SCALARS))
def test_strict_reading_accepts_all_that_is_json(value: Any) -> None:
    assert decode_strict(encode_args(value, max_bytes=2**40)) == value


# ---- Unique keys


@pytest.mark.requirement("B5")
@given(nested(SCALARS), st.randoms())
def test_equal_payloads_have_one_canonical_text_whatever_their_key_order(value: Any, dice: random.Random) -> None:
    def shuffled(value: Any) -> Any:
        if isinstance(value, dict):
            keys = list(value)
            dice.shuffle(keys)
            return {key: shuffled(value[key]) for key in keys}
        if isinstance(value, list):
            return [shuffled(item) for item in value]
        return value

    twin = shuffled(value)
    assert twin == value
    assert canonical(twin) == canonical(value)


@given(nested(SCALARS), nested(SCALARS))
@example({"a": 1}, {"a": 1.0})
@example([0.0], [-0.0])
@example([1e22], [10**22])
@example([1], [True])
def test_canonical_texts_are_equal_exactly_if_the_values_are(one: Any, other: Any) -> None:
    def told_apart(value: Any) -> Any:  # JSON tells true from 1, which Python does not
        if isinstance(value, dict):
            return {key: told_apart(item) for key, item in value.items()}
        if isinstance(value, list):
            return [told_apart(item) for item in value]
        return ("bool", value) if isinstance(value, bool) else value

    assert (canonical(one) == canonical(other)) == (told_apart(one) == told_apart(other))


def test_canonical_text_is_sorted_and_compact() -> None:
    assert canonical({"b": [1.0, 1.5], "a": {"é": None, "d": "x.y"}}) == '{"a":{"d":"x.y","é":null},"b":[1,1.5]}'


# ---- Results


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class Sulking(dict[str, int]):
    def items(self) -> NoReturn:
        raise KeyboardInterrupt


ODD = st.sampled_from([object(), {1, 2}, b"\xff", Sulking(a=1), math.nan, math.inf, 1j]) | st.builds(Broken)
ODD_KEYED = st.dictionaries(st.integers() | st.none() | ANY_TEXT | st.binary(), ANY_TEXT)


@given(nested(SCALARS | ANY_TEXT | ODD | ODD_KEYED, ANY_TEXT), st.integers(100, 2_000))
def test_any_result_can_be_stored(value: object, limit: int) -> None:
    text, _ = encode_result(value, max_bytes=limit)
    if value is None:
        assert text is None
        return
    assert text is not None
    assert len(text.encode()) <= limit
    assert all(is_storable(part) for part in strings_in(json.loads(text)))


@given(nested(SCALARS))
def test_a_result_that_arguments_could_hold_is_exact(value: Any) -> None:
    text, exact = encode_result(value, max_bytes=2**40)
    assert exact
    assert (None if text is None else decode(text)) == value


@pytest.mark.parametrize(
    "value, stored",
    [
        ("a\x00b", "a\\u0000b"),
        (["\ud800"], ["\\ud800"]),
        ({"k\x00": 1}, {"k\\u0000": 1}),
        ([math.nan, math.inf, -math.inf], ["NaN", "Infinity", "-Infinity"]),
        ({1: "x", None: "y"}, {"1": "x", "None": "y"}),
        ({"x": {1}}, {"x": "{1}"}),
        ((1, b"x"), [1, "b'x'"]),
        ([2**20_000], ["int of 20001 bits"]),
    ],
)
def test_what_json_cannot_hold_is_shown_as_text(value: object, stored: JSON) -> None:
    text, exact = encode_result(value)
    assert text is not None
    assert decode(text) == stored
    assert not exact


def test_a_backslash_before_u0000_leaves_a_result_exact() -> None:
    assert encode_result("\\u0000") == ('"\\\\u0000"', True)


@pytest.mark.parametrize("raised", [ValueError, SystemExit, KeyboardInterrupt, RecursionError])
def test_an_object_whose_repr_raises_is_named_instead(raised: type[BaseException]) -> None:
    class Mute:
        def __repr__(self) -> str:
            raise raised

    text, exact = encode_result({"it": Mute()})
    assert text == f'{{"it":"<Mute that cannot be shown: {raised.__name__}>"}}'
    assert not exact


def test_a_mapping_that_raises_becomes_a_note() -> None:
    text, exact = encode_result(Sulking(a=1))
    assert text == '{"cut":"The result could not be encoded: KeyboardInterrupt."}'
    assert not exact


def test_a_result_that_contains_itself_is_stored() -> None:
    ring: list[Any] = [1]
    ring.append(ring)
    text, exact = encode_result(ring)
    assert text == '[1,"[1, [...]]"]'
    assert not exact


def test_a_deep_result_is_stored() -> None:
    text, exact = encode_result(nest(10_000))
    assert text is not None
    assert text.startswith("[" * MAX_DEPTH + '"')
    assert not exact


@pytest.mark.parametrize("value", [["x" * 50_000_000], ["\x00"] * 1_000_000, {"a": object(), "b": "y" * 300_000}])
def test_a_result_that_is_too_large_becomes_a_note_that_says_so(value: object) -> None:
    text, exact = encode_result(value)
    assert text is not None
    assert len(text) < 200
    assert str(MAX_BYTES) in decode(text)["cut"]
    assert not exact


def test_a_small_value_that_would_be_a_huge_text_is_given_up_early() -> None:
    value: Any = [object()]
    for _ in range(18):
        value = [value, value]
    text, exact = encode_result(value)
    assert text == '{"cut":"The result is more than 262144 bytes of JSON, which is the limit."}'
    assert not exact


# ---- Errors and other text


@given(ANY_TEXT, st.integers(-1, 300))
def test_clean_text_can_be_stored_and_keeps_to_its_bound(text: str, limit: int) -> None:
    cleaned = clean_text(text, limit)
    assert is_storable(cleaned)
    assert len(cleaned.encode()) <= max(limit, 0)


@given(SOUND_TEXT)
def test_text_that_is_fine_stays_as_it_is(text: str) -> None:
    assert clean_text(text) == text


def test_long_text_keeps_its_head_and_its_tail() -> None:
    text = clean_text("begin" + "é" * 1_000_000 + "end", 1_000)
    assert text.startswith("beginéé")
    assert text.endswith("ééend")
    assert "\n... [cut: 1000008 characters in all] ...\n" in text
    assert 990 <= len(text.encode()) <= 1_000


def test_nul_and_surrogates_stay_visible() -> None:
    assert clean_text("a\x00b\ud800c") == "a\\u0000b\\ud800c"


class Shop:
    class OutOfStock(Exception):
        pass


def caught(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as raised:
        return raised


def test_an_exception_is_described_by_kind_message_and_traceback() -> None:
    described = describe_exception(caught(Shop.OutOfStock("no more tea")))
    assert described.kind.endswith("test_json.Shop.OutOfStock")
    assert described.message == "no more tea"
    assert described.traceback.startswith("Traceback (most recent call last):\n")
    assert "raise error" in described.traceback
    assert described.traceback.endswith("OutOfStock: no more tea\n")
    assert describe_exception(KeyError("x")).kind == "KeyError"


def test_the_cause_of_an_exception_is_in_its_traceback() -> None:
    try:
        try:
            raise OSError("disk full")
        except OSError as cause:
            raise ValueError("not saved") from cause
    except ValueError as error:
        described = describe_exception(error)
    assert "OSError: disk full" in described.traceback
    assert "direct cause" in described.traceback


def test_long_messages_do_not_push_the_frames_out_of_a_traceback() -> None:
    error: BaseException | None = None
    for name in ("first", "second", "third"):
        outer = caught(ValueError(name + "x" * 50_000))
        outer.__cause__ = error
        error = outer
    assert error is not None
    text = describe_exception(error).traceback
    assert text.count("raise error") == 3
    assert "ValueError: secondxxx" in text


@pytest.mark.parametrize("raised", [ValueError, SystemExit, KeyboardInterrupt, RecursionError, MemoryError])
def test_an_exception_whose_str_raises_is_described(raised: type[BaseException]) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise raised

        __repr__ = __str__

    described = describe_exception(caught(Mute()))
    assert described.kind.endswith("Mute")
    assert described.message == f"<Mute that cannot be shown: {raised.__name__}>"
    assert "raise error" in described.traceback


@given(ANY_TEXT)
@settings(max_examples=30)
def test_any_message_can_be_stored(message: str) -> None:
    described = describe_exception(caught(ValueError(message)))
    assert is_storable(described.message)
    assert is_storable(described.traceback)


def test_fifty_megabytes_of_message_are_cut_in_message_and_traceback() -> None:
    described = describe_exception(caught(ValueError("x" * 50_000_000)))
    assert len(described.message) <= 16_384
    assert len(described.traceback) <= 16_384
    assert "50000000 characters" in described.message
    assert "raise error" in described.traceback


def test_a_recursion_error_is_described() -> None:
    def down(n: int) -> None:
        up(n + 1)

    def up(n: int) -> None:
        down(n + 1)

    with pytest.raises(RecursionError) as caught:
        down(0)
    described = describe_exception(caught.value)
    assert described.kind == "RecursionError"
    assert len(described.traceback.encode()) <= 16_384
    assert "in down" in described.traceback
    assert described.traceback.rstrip().splitlines()[-1].startswith("RecursionError: maximum recursion depth")


def test_a_long_chain_and_a_group_of_exceptions_are_described() -> None:
    error: Exception = ValueError("first")
    for number in range(2_000):
        outer = ValueError(f"number {number}")
        outer.__cause__ = error
        error = outer
    described = describe_exception(ExceptionGroup("many", [error] * 50))
    assert described.kind == "ExceptionGroup"
    assert 0 < len(described.traceback.encode()) <= 16_384


def test_a_str_subclass_with_methods_of_its_own_is_cut_like_any_other() -> None:
    class Loud(str):
        def __getitem__(self, key: Any) -> NoReturn:
            raise RuntimeError

        def __len__(self) -> int:
            return 3

    assert clean_text(Loud("x" * 1_000), 100) == clean_text("x" * 1_000, 100)


def test_the_recursion_limit_is_not_changed_by_any_of_this() -> None:
    before = sys.getrecursionlimit()
    encode_result(nest(10_000))
    assert sys.getrecursionlimit() == before
