"""Signatures: every kind of type hint comes back as it went in, and what does not fit says where and why."""

from __future__ import annotations

import functools
import inspect
import math
import subprocess
import sys
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, NewType, NotRequired, Required, TypedDict
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duly.domain.errors import ArgumentError, ArgumentsDoNotFit, ConfigurationError
from duly.domain.json import canonical, decode, encode_args
from duly.domain.signature import Signature

if TYPE_CHECKING:
    from fractions import Fraction as OnlyForTypeCheckers

UserId = NewType("UserId", int)


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Word(StrEnum):
    YES = "yes"


class Shape(Enum):
    POINT = (0, 0)
    LINE = (0, 1)


class Rights(Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: int
    y: float = 0.0


class Options(TypedDict, total=False):
    depth: Required[int]
    color: Color


class Address(TypedDict):
    street: str
    zip: NotRequired[str | None]


@dataclass(frozen=True)
class Tag:
    name: str
    weight: float = 1.0


@dataclass
class User:
    id: UUID
    name: str
    tags: list[Tag] = field(default_factory=list)
    born: date | None = None
    seen: int = field(default=0, init=False)


@dataclass
class Admin(User):
    level: Level = Level.LOW


@dataclass
class Tree:
    value: int
    children: list[Tree] = field(default_factory=list)


@dataclass
class Picky:
    n: int

    def __post_init__(self) -> None:
        if self.n < 0:
            raise ValueError("n must not be negative")


class Order(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True, extra="forbid")
    number: int = pydantic.Field(alias="orderNumber")
    at: datetime
    lines: tuple[Decimal, ...] = ()

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def total(self) -> Decimal:
        return sum(self.lines, Decimal(0))


class Cat(pydantic.BaseModel):
    name: str


class Dog(pydantic.BaseModel):
    name: str
    tricks: int


class Item(msgspec.Struct, frozen=True):
    sku: str
    price: Decimal
    blob: bytes = b""
    sizes: frozenset[int] = frozenset()


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
FINITE = st.floats(allow_nan=False, allow_infinity=False)
OFFSETS = st.integers(-86_000, 86_000).map(lambda seconds: timezone(timedelta(seconds=seconds)))
AWARE = st.datetimes(timezones=OFFSETS)
IN_MINUTES = st.integers(-1_000, 1_000).map(lambda minutes: timezone(timedelta(minutes=minutes)))
TAGS = st.builds(Tag, TEXT, FINITE)
USERS = st.builds(User, st.uuids(), TEXT, st.lists(TAGS), st.none() | st.dates())
TREES = st.recursive(
    st.builds(Tree, st.integers()), lambda inner: st.builds(Tree, st.integers(), st.lists(inner)), max_leaves=6
)
DECIMALS = st.decimals(allow_nan=False)
SMALL_DECIMALS = st.decimals(-10_000, 10_000, places=2)
ORDERS = st.builds(
    Order, orderNumber=st.integers(), at=st.datetimes(timezones=IN_MINUTES), lines=st.lists(SMALL_DECIMALS).map(tuple)
)
ITEMS = st.builds(Item, TEXT, SMALL_DECIMALS, st.binary(), st.frozensets(st.integers(0, 10**9)))
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | FINITE | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=6,
)

HINTS: list[tuple[object, st.SearchStrategy[Any]]] = [
    (int, st.integers()),
    (float, FINITE),
    (str, TEXT),
    (bool, st.booleans()),
    (None, st.none()),
    (Any, JSON_VALUES),
    (object, JSON_VALUES),
    (inspect.Parameter.empty, JSON_VALUES),
    (list, st.lists(JSON_VALUES)),
    (list[int], st.lists(st.integers())),
    (list[list[UUID]], st.lists(st.lists(st.uuids()))),
    (Sequence[str], st.lists(TEXT)),
    (Iterable[date], st.lists(st.dates())),
    (dict, st.dictionaries(TEXT, JSON_VALUES)),
    (dict[str, float], st.dictionaries(TEXT, FINITE)),
    (dict[str, Tag], st.dictionaries(TEXT, TAGS)),
    (dict[UUID, int], st.dictionaries(st.uuids(), st.integers())),
    (Mapping[Color, date], st.dictionaries(st.sampled_from(Color), st.dates())),
    (tuple, st.lists(JSON_VALUES).map(tuple)),
    (tuple[int, ...], st.lists(st.integers()).map(tuple)),
    (tuple[int, str, date], st.tuples(st.integers(), TEXT, st.dates())),
    (tuple[int | None, float], st.tuples(st.none() | st.integers(), FINITE)),
    (set[str], st.sets(TEXT)),
    (set[UUID | None], st.sets(st.none() | st.uuids())),
    (frozenset[Tag], st.frozensets(TAGS)),
    (AbstractSet[int], st.frozensets(st.integers())),
    (int | None, st.none() | st.integers()),
    (typing.Optional[Tag], st.none() | TAGS),  # noqa: UP045
    (int | str | None, st.none() | st.integers() | TEXT),
    (float | int, FINITE | st.integers()),
    (UUID | int, st.uuids() | st.integers()),
    (date | datetime, st.dates() | AWARE),
    (Tag | Point | None, st.none() | TAGS | st.builds(Point, st.integers(), FINITE)),
    (list[int] | dict[str, int], st.lists(st.integers()) | st.dictionaries(TEXT, st.integers())),
    (Literal["a", 1, True, None, Color.RED], st.sampled_from(["a", 1, True, None, Color.RED])),
    (Color, st.sampled_from(Color)),
    (Level, st.sampled_from(Level)),
    (Word, st.sampled_from(Word)),
    (Shape, st.sampled_from(Shape)),
    (Rights, st.sampled_from([Rights(0), Rights.READ, Rights.READ | Rights.WRITE])),
    (UUID, st.uuids()),
    (datetime, AWARE),
    (date, st.dates()),
    (time, st.times() | st.times(timezones=OFFSETS)),
    (timedelta, st.timedeltas()),
    (Decimal, DECIMALS),
    (Path, TEXT.map(Path)),
    (PurePosixPath, TEXT.map(PurePosixPath)),
    (bytes, st.binary()),
    (User, USERS),
    (Tree, TREES),
    (Point, st.builds(Point, st.integers(), FINITE)),
    (Options, st.fixed_dictionaries({"depth": st.integers()}, optional={"color": st.sampled_from(Color)})),
    (Address, st.fixed_dictionaries({"street": TEXT}, optional={"zip": st.none() | TEXT})),
    (UserId, st.integers()),
    (Annotated[list[UserId], "ids"], st.lists(st.integers())),
    (Order, ORDERS),
    (Cat | Dog, st.builds(Cat, name=TEXT) | st.builds(Dog, name=TEXT, tricks=st.integers())),
    (Item, ITEMS),
    (list[Item | None], st.lists(st.none() | ITEMS)),
]


def signature_of(hint: object, default: object = inspect.Parameter.empty) -> Signature:
    """Return the signature of `task(x: hint)`."""

    def task(x: Any) -> None: ...

    def task_with_default(x: Any = default) -> None: ...

    fn = task if default is inspect.Parameter.empty else task_with_default
    fn.__annotations__ = {} if hint is inspect.Parameter.empty else {"x": hint}
    return Signature.of(fn)


def stored(signature: Signature, value: object) -> Any:
    return decode(encode_args(signature.bind((), {"x": value}), max_bytes=2**40))


def kinds(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value), [kinds(item) for item in value]
    if isinstance(value, dict):
        return type(value), {key: kinds(item) for key, item in value.items()}
    return type(value)


# ---- Every kind of hint


@pytest.mark.parametrize("hint, values", HINTS, ids=lambda part: str(part)[:60] if isinstance(part, type) else None)
@given(data=st.data())
def test_a_value_comes_back_equal_and_of_its_type(
    hint: object, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    value = data.draw(values)
    signature = signature_of(hint)
    back = signature.load(stored(signature, value))["x"]
    assert back == value
    assert kinds(back) == kinds(value)


@pytest.mark.parametrize("hint, values", HINTS, ids=lambda part: str(part)[:60] if isinstance(part, type) else None)
@settings(max_examples=20)
@given(data=st.data())
def test_a_result_comes_back_equal_by_the_return_hint(
    hint: object, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    value = data.draw(values)

    def task() -> None: ...

    task.__annotations__ = {"return": hint}
    signature = Signature.of(task)
    back = signature.load_result(decode(encode_args(signature.dump_result(value), max_bytes=2**40)))
    assert back == value
    if hint is not inspect.Parameter.empty:
        assert type(back) is type(value)


@pytest.mark.parametrize(
    "hint, value, reason",
    [
        (int, "7", "expected int, got str '7'"),
        (int, True, "expected int, got bool True"),
        (int, 7.0, "expected int, got float 7.0"),
        (int, None, "expected int, got None"),
        (float, "7", "expected float, got str '7'"),
        (float, False, "expected float, got bool False"),
        (float, 10**400, "expected float, got an int too large for one"),
        (str, b"x", "expected str, got bytes b'x'"),
        (str, 7, "expected str, got int 7"),
        (bool, 1, "expected bool, got int 1"),
        (None, 0, "expected None, got int 0"),
        (int | None, "x", "expected int, got str 'x'"),
        (int | str, 1.5, "expected int | str, got float 1.5"),
        (bytes, "x", "expected bytes, got str 'x'"),
        (UUID, "c0ffee", "expected UUID, got str 'c0ffee'"),
        (Decimal, 1.5, "expected Decimal, got float 1.5"),
        (Path, "/tmp", "expected Path, got str '/tmp'"),
        (date, datetime(2024, 1, 1, tzinfo=UTC), "expected date, got datetime.datetime datetime.datetime(2024"),
        (datetime, datetime(2024, 1, 1), "2024-01-01T00:00:00 has no time zone: pass an aware"),  # noqa: DTZ001
        (datetime | str, datetime(2024, 1, 1), "2024-01-01T00:00:00 has no time zone"),  # noqa: DTZ001
        (datetime | None, datetime(2024, 1, 1), "2024-01-01T00:00:00 has no time zone"),  # noqa: DTZ001
        (time, time(12, tzinfo=ZoneInfo("Europe/Paris")), "12:00:00 has a time zone that depends on the day"),
        (time, time(12, tzinfo=timezone(timedelta(microseconds=1))), "fractions of a second"),
        (datetime, datetime(2024, 1, 1, tzinfo=timezone(timedelta(microseconds=1))), "fractions of a second"),
        (timedelta, 30, "expected timedelta, got int 30"),
        (list[int], (1, 2), "expected list[int], got tuple (1, 2)"),
        (Sequence[str], "abc", "expected list[str], got str 'abc'"),
        (tuple[int, int], (1, 2, 3), "expected tuple[int, int], got 3 items"),
        (tuple[int, ...], [1], "expected tuple[int, ...], got list [1]"),
        (set[int], [1], "expected set[int], got list [1]"),
        (dict[str, int], [1], "expected dict[str, int], got list [1]"),
        (dict[str, int], {1: 1}, "expected str, got int 1"),
        (dict[int, int], {1: 1}, "has the key 1, and JSON has only text as keys"),
        (dict[str | UUID, int], {UUID(int=1): 1, str(UUID(int=1)): 2}, "would come back as UUID"),
        (Color, "red", "expected "),
        (Literal["a", 1], True, "expected Literal['a', 1], got bool True"),
        (Literal["a"], [], "expected Literal['a'], got list []"),
        (Tag, {"name": "x"}, "expected "),
        (Point, (1, 2.0), "expected "),
        (Cat, {"name": "x"}, "expected "),
        (Item, {"sku": "x"}, "expected "),
        (User, Admin(UUID(int=1), "root"), "Admin("),
        (UUID | str, str(UUID(int=1)), "would come back as UUID: UUID | str is ambiguous in JSON"),
        (str | UUID, str(UUID(int=1)), "would come back as UUID: str | UUID is ambiguous in JSON"),
        (Color | str, "red", "is ambiguous in JSON"),
        (Any, {1, 2}, "is set {1, 2}, which JSON cannot hold: pass plain data, or give the parameter a type hint"),
        (Any, [math.nan], "is nan, and JSON has only finite numbers"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_the_reason(hint: object, value: object, reason: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        signature_of(hint).bind((), {"x": value})
    assert reason in str(caught.value)
    assert str(caught.value).startswith("task() argument x")
    assert caught.value.path.startswith("args.x")


@pytest.mark.parametrize(
    "hint, value, path",
    [
        (list[int], [1, 2, "3"], "args.x[2]"),
        (dict[str, list[str]], {"a": ["x"], "b c": ["y", 1]}, 'args.x["b c"][1]'),
        (tuple[int, dict[str, UUID]], (1, {"id": "no"}), "args.x[1].id"),
        (User, User(UUID(int=1), "x", [Tag("a"), Tag(5)]), "args.x.tags[1].name"),  # type: ignore[arg-type]
        (Tree, Tree(1, [Tree(2), Tree(3, [Tree("4")])]), "args.x.children[1].children[0].value"),  # type: ignore[arg-type]
        (Options, {"depth": 1, "color": "red"}, "args.x.color"),
        (Options, {"color": Color.RED}, "args.x.depth"),
        (Options, {"depth": 1, "colour": 2}, "args.x.colour"),
        (Tag | None, Tag("a", "heavy"), "args.x.weight"),  # type: ignore[arg-type]
        (int | list[int], [1, None], "args.x[1]"),
        (inspect.Parameter.empty, {"user": {"tags": ["a", {"b"}]}}, "args.x.user.tags[1]"),
        (Any, [{"a": object()}], "args.x[0].a"),
    ],
)
def test_the_path_leads_into_the_value(hint: object, value: object, path: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        signature_of(hint).bind((), {"x": value})
    assert caught.value.path == path
    assert str(caught.value).startswith(f"task() argument {path.removeprefix('args.')}: ")


def test_an_int_for_a_float_is_stored_as_a_float() -> None:
    assert repr(stored(signature_of(float), 2)) == "{'x': 2.0}"
    assert type(signature_of(float).load({"x": 2})["x"]) is float


def test_enums_pass_as_the_number_or_text_that_they_are() -> None:
    assert stored(signature_of(int), Level.HIGH) == {"x": 2}
    assert stored(signature_of(str), Word.YES) == {"x": "yes"}
    bound = signature_of(str).bind((), {"x": Word.YES})["x"]
    assert type(bound) is str


def test_the_stored_forms_are_readable() -> None:
    def form(hint: object, value: object) -> Any:
        return stored(signature_of(hint), value)["x"]

    assert form(datetime, datetime(2024, 5, 1, 12, tzinfo=UTC)) == "2024-05-01T12:00:00+00:00"
    assert form(timedelta, timedelta(days=1, seconds=1)) == "PT86401S"
    assert form(timedelta, timedelta(microseconds=-1)) == "-PT0.000001S"
    assert form(bytes, b"\xff\x00") == "/wA="
    assert form(Decimal, Decimal("1.10")) == "1.10"
    assert form(Color, Color.RED) == "red"
    assert form(Shape, Shape.LINE) == "LINE"
    assert form(Point, Point(1)) == {"x": 1, "y": 0.0}
    assert form(Order, Order(orderNumber=1, at=datetime(2024, 5, 1, tzinfo=UTC))) == {
        "number": 1,
        "at": "2024-05-01T00:00:00Z",
        "lines": [],
    }


@pytest.mark.parametrize(
    "text, expected",
    [("P1DT1H1M1.5S", timedelta(days=1, seconds=3661.5)), ("PT90M", timedelta(minutes=90)), ("P2D", timedelta(2))],
)
def test_durations_that_other_programs_write_are_read(text: str, expected: timedelta) -> None:
    assert signature_of(timedelta).load({"x": text}) == {"x": expected}


@given(st.sets(TEXT | st.integers() | st.none()), st.randoms())
def test_equal_sets_are_stored_alike_so_that_their_unique_keys_are_equal(values: set[Any], dice: Any) -> None:
    items = list(values)
    dice.shuffle(items)
    signature = signature_of(set[int | str | None])
    assert canonical(stored(signature, set(items))) == canonical(stored(signature, values))


def test_sets_of_text_are_stored_in_one_order_in_every_process() -> None:
    program = (
        "from duly.domain.signature import Signature\n"
        "def task(x: set[str]): ...\n"
        "print(Signature.of(task).bind(({'a', 'b', 'c', 'd', 'e'},), {}))"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert printed == {"{'x': ['a', 'b', 'c', 'd', 'e']}\n"}


def test_a_cyclic_or_bottomless_record_is_refused() -> None:
    ring = Tree(1)
    ring.children.append(ring)
    with pytest.raises(ArgumentError, match=r"task\(\) arguments are nested more than 100 levels deep"):
        signature_of(Tree).bind((), {"x": ring})


# ---- How a call is made


def send(user_id: int, name: str = "", *, retry: bool = False) -> None: ...


def spread(first: int, second: int = 2, *rest: int, flag: bool = False, **options: UUID) -> None: ...


def leading(a: int, b: int = 5, /, c: int = 6) -> None: ...


def with_name_clash(a: int, /, **options: int) -> None: ...


def unhinted(payload, mode="x"):  # type: ignore[no-untyped-def]
    return payload, mode


def test_a_call_is_stored_by_parameter_name_without_defaults() -> None:
    signature = Signature.of(send)
    assert signature.bind((1,), {}) == {"user_id": 1}
    assert signature.bind((1, "x"), {"retry": True}) == {"user_id": 1, "name": "x", "retry": True}
    assert signature.bind((), {"name": "x", "user_id": 1}) == {"user_id": 1, "name": "x"}


@pytest.mark.parametrize(
    "fn, args, kwargs, message, path",
    [
        (send, (), {}, "send() argument user_id: missing.", "args.user_id"),
        (send, (), {"name": "x"}, "send() argument user_id: missing.", "args.user_id"),
        (send, ("x",), {}, "send() argument user_id: expected int, got str 'x'.", "args.user_id"),
        (send, (1, "x", True), {}, "send() takes 2 positional arguments, got 3.", "args"),
        (send, (1,), {"user_id": 2}, "send() argument user_id: given twice, by position and by name.", "args.user_id"),
        (
            send,
            (1,),
            {"nmae": "x"},
            "send() argument nmae: unknown name. Did you mean 'name'?",
            "args.nmae",
        ),
        (send, (), {"user_id": 1, "zzz": 2}, "send() argument zzz: unknown name.", "args.zzz"),
        (leading, (), {"a": 1}, "leading() argument a: can only be given by position.", "args.a"),
        (spread, (1,), {"rest": (1,)}, "expected UUID, got tuple (1,)", "args.options.rest"),
        (spread, (1, 2, 3, "4"), {}, "spread() argument rest[1]: expected int, got str '4'.", "args.rest[1]"),
        (spread, (1,), {"x": 5}, "spread() argument options.x: expected UUID, got int 5.", "args.options.x"),
    ],
)
def test_a_wrong_call_is_refused(
    fn: Callable[..., None], args: tuple[Any, ...], kwargs: dict[str, Any], message: str, path: str
) -> None:
    with pytest.raises(ArgumentError) as caught:
        Signature.of(fn).bind(args, kwargs)
    assert message in str(caught.value)
    assert caught.value.path == path


def called(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    return inspect.signature(fn).bind(*args, **kwargs).arguments


@pytest.mark.parametrize(
    "fn, args, kwargs",
    [
        (send, (1,), {}),
        (send, (), {"user_id": 1, "retry": True}),
        (spread, (1,), {}),
        (spread, (), {"first": 1}),
        (spread, (1, 2, 3, 4), {"flag": True, "key": UUID(int=1), "rest": UUID(int=2)}),
        (spread, (1,), {"second": 3}),
        (leading, (1,), {}),
        (leading, (1, 2, 3), {}),
        (leading, (1,), {"c": 3}),
        (with_name_clash, (1,), {"a": 2, "options": 3}),
        (unhinted, ({"a": [1, None]},), {"mode": 1.5}),
    ],
)
def test_a_call_comes_back_as_it_was_made(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    signature = Signature.of(fn)
    data = decode(encode_args(signature.bind(args, kwargs)))
    again_args, again_kwargs = signature.split(signature.load(data))
    assert called(fn, tuple(again_args), again_kwargs) == called(fn, args, kwargs)


def test_gaps_before_positional_values_are_filled_with_the_defaults_of_today() -> None:
    assert called(leading, *as_call(leading, {"a": 1, "c": 3})) == {"a": 1, "c": 3}
    assert called(spread, *as_call(spread, {"first": 1, "rest": [3]})) == {"first": 1, "second": 2, "rest": (3,)}


def as_call(fn: Callable[..., Any], data: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    signature = Signature.of(fn)
    args, kwargs = signature.split(signature.load(data))
    return tuple(args), kwargs


def test_loading_and_splitting_leave_the_stored_data_alone() -> None:
    data: dict[str, Any] = {"first": 1, "rest": [3], "options": {"k": str(UUID(int=1))}}
    as_call(spread, data)
    assert data == {"first": 1, "rest": [3], "options": {"k": str(UUID(int=1))}}


def test_methods_partials_wrapped_functions_and_callable_objects_have_signatures() -> None:
    class Mailer:
        def send(self, user_id: int) -> None: ...

        def __call__(self, user_id: UserId) -> None: ...

    @functools.wraps(send)
    def wrapped(*args: Any, **kwargs: Any) -> None: ...

    for fn in (Mailer().send, Mailer(), wrapped, functools.partial(send, name="x")):
        signature = Signature.of(fn)
        assert signature.bind((), {"user_id": 1}) == {"user_id": 1}
        with pytest.raises(ArgumentError, match="expected int"):
            signature.bind((), {"user_id": "1"})


def test_what_has_no_signature_is_no_task() -> None:
    with pytest.raises(ConfigurationError, match="A task must be a function, and 5 is not"):
        Signature.of(5)  # type: ignore[arg-type]


class Extra(TypedDict):
    depth: int


def crawl(url: str, **options: typing.Unpack[Extra]) -> None: ...


def test_keywords_typed_by_a_typed_dict_are_checked() -> None:
    signature = Signature.of(crawl)
    assert signature.bind(("x",), {"depth": 1}) == {"url": "x", "options": {"depth": 1}}
    with pytest.raises(ArgumentError, match=r"options\.depth: expected int"):
        signature.bind(("x",), {"depth": "1"})


# ---- Hints


def later(x: DefinedBelow, y: list[DefinedBelow] | None = None) -> DefinedBelow:
    return x


LATER = Signature.of(later)


@dataclass
class DefinedBelow:
    n: int


def test_hints_may_name_what_is_defined_later() -> None:
    assert LATER.bind((DefinedBelow(1),), {}) == {"x": {"n": 1}}
    assert LATER.load_result({"n": 1}) == DefinedBelow(1)


def only_for_checkers(x: int, y: OnlyForTypeCheckers) -> None: ...


def returns_for_checkers(x: int) -> OnlyForTypeCheckers:
    raise NotImplementedError


def test_a_parameter_hint_that_cannot_be_resolved_is_named() -> None:
    with pytest.raises(ConfigurationError) as caught:
        Signature.of(only_for_checkers).bind((), {"x": 1})
    assert str(caught.value).startswith("only_for_checkers() parameter y: its type hint cannot be resolved")
    assert "OnlyForTypeCheckers" in str(caught.value)


def test_a_return_hint_that_cannot_be_resolved_does_no_harm() -> None:
    signature = Signature.of(returns_for_checkers)
    assert signature.bind((1,), {}) == {"x": 1}
    assert signature.load_result([1]) == [1]
    assert signature.dump_result([1]) == [1]


@dataclass
class NeedsMore:
    n: InitVar[int]


@pytest.mark.parametrize(
    "hint, word",
    [(Signature, "Signature"), (Callable[[], int], "Callable"), (NeedsMore, "needs n"), (list[type], "type")],
)
def test_a_hint_that_cannot_be_stored_is_a_configuration_error(hint: object, word: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"task\(\) parameter x: .*{word}"):
        signature_of(hint).bind((), {"x": 1})


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the syntax is new in 3.12")
def test_a_type_alias_may_contain_itself() -> None:
    names: dict[str, Any] = {}
    exec("type Nest = dict[str, Nest] | int\ndef task(x: Nest): ...", names)  # noqa: S102
    signature = Signature.of(names["task"])
    assert signature.bind(({"a": {"b": 1}},), {}) == {"x": {"a": {"b": 1}}}
    with pytest.raises(ArgumentError) as caught:
        signature.bind(({"a": {"b": "1"}},), {})
    assert caught.value.path == "args.x.a.b"


def test_a_default_of_none_lets_none_pass() -> None:
    assert signature_of(int, default=None).bind((), {"x": None}) == {"x": None}
    assert signature_of(datetime, default=None).load({"x": None}) == {"x": None}


# ---- What was stored and no longer fits


@pytest.mark.parametrize(
    "fn, data, path, word",
    [
        (send, {}, "args.user_id", "missing"),
        (send, {"user_id": 1, "old": 2}, "args.old", "unknown name"),
        (send, {"user_id": "1"}, "args.user_id", "expected int, got str '1'"),
        (send, [1], "args", "expected an object, got list [1]"),
        (send, None, "args", "expected an object, got None"),
        (spread, {"first": 1, "rest": "abc"}, "args.rest", "expected tuple"),
        (spread, {"first": 1, "options": {"k": "no"}}, "args.options.k", "expected UUID"),
    ],
)
def test_stored_arguments_that_do_not_fit_say_why(fn: Callable[..., None], data: Any, path: str, word: str) -> None:
    with pytest.raises(ArgumentsDoNotFit) as caught:
        Signature.of(fn).load(data)
    assert caught.value.path == path
    assert word in caught.value.reason
    assert caught.value.reason in str(caught.value)
    assert str(Signature.of(fn)) in str(caught.value)


@pytest.mark.parametrize(
    "hint, data",
    [
        (int, True),
        (int, 1.5),
        (float, "1"),
        (str, 1),
        (bool, 0),
        (UUID, "no"),
        (UUID, 5),
        (datetime, "2024-01-01T00:00:00"),
        (datetime, "yesterday"),
        (date, "2024-01-01T00:00:00"),
        (date, "2024-02-30"),
        (time, "25:00"),
        (timedelta, "P"),
        (timedelta, "PT"),
        (timedelta, "5 minutes"),
        (timedelta, "P9999999999D"),
        (Decimal, "ten"),
        (Decimal, 1.5),
        (bytes, "no base64!"),
        (bytes, "é"),
        (Color, "green"),
        (Color, ["red"]),
        (Level, True),
        (Shape, "CIRCLE"),
        (Shape, [0, 1]),
        (Literal[1], True),
        (list[int], {"0": 1}),
        (list[int], [None]),
        (tuple[int, int], [1]),
        (set[int], 1),
        (dict[str, int], []),
        (dict[UUID, int], {"no": 1}),
        (Tag, {"weight": 1.0}),
        (Tag, {"name": "x", "size": 1}),
        (Tag, ["x"]),
        (Picky, {"n": -1}),
        (Point, [1, 2]),
        (Options, {}),
        (Order, {"number": 1}),
        (Item, {"sku": 1, "price": "1"}),
        (Tag | Point, {"z": 1}),
        (int | str, None),
    ],
)
def test_no_kind_of_hint_accepts_what_it_did_not_store(hint: object, data: Any) -> None:
    with pytest.raises(ArgumentsDoNotFit):
        signature_of(hint).load({"x": data})


def test_a_field_with_a_default_that_was_added_since_gets_its_default() -> None:
    assert signature_of(Tag).load({"x": {"name": "a"}}) == {"x": Tag("a", 1.0)}
    assert signature_of(Tag | UUID).load({"x": {"name": "a"}}) == {"x": Tag("a", 1.0)}


def test_what_a_class_raises_on_loading_is_in_the_reason() -> None:
    with pytest.raises(ArgumentsDoNotFit, match="ValueError: n must not be negative"):
        signature_of(Picky).load({"x": {"n": -1}})


# ---- Results


def gives_user() -> User:
    raise NotImplementedError


def test_a_result_that_does_not_fit_its_hint_stays_as_it_is() -> None:
    signature = Signature.of(gives_user)
    assert signature.load_result({"gone": 1}) == {"gone": 1}
    assert signature.dump_result("a string after all") == "a string after all"
    ring = [gives_user]
    assert signature.dump_result(ring) is ring


# ---- Fingerprint


def fingerprint(source: str) -> str:
    names: dict[str, Any] = {"UUID": UUID, "Optional": typing.Optional, "Tag": Tag, "Point": Point}
    exec(f"def task({source}): ...", names)  # noqa: S102
    return Signature.of(names["task"]).fingerprint


def test_a_fingerprint_changes_with_names_kinds_defaults_and_hints() -> None:
    variants = ["", "a", "b", "a: int", "a: str", "a: int = 1", "*, a: int", "a: int, /", "*a: int", "**a: int"]
    variants += ["a, b", "b, a", "a: Tag", "a: Point", "a: list[int]", "a: list[str]", "a: int | None"]
    assert len({fingerprint(source) for source in variants}) == len(variants)


def test_a_fingerprint_stays_when_nothing_that_matters_changes() -> None:
    assert fingerprint("a: int = 1") == fingerprint("a: int = 2")
    assert fingerprint("a: int | None") == fingerprint("a: Optional[int]")
    assert fingerprint("a: 'UUID'") == fingerprint("a: UUID")
    assert fingerprint("user_id: int, name: str = ''") == "b8fb2724ea9f"
