"""Codecs of lists, tuples, sets and dicts, by the codecs of their items."""

from __future__ import annotations

import json
from collections import abc
from typing import Any, Final

from duly.domain.codecs.codec import Codec, Find, convert_at, demand
from duly.domain.json import JSON, Misfit
from duly.domain.text import safe_repr


def _sort_key(data: JSON) -> str:
    return json.dumps(data, sort_keys=True)


def _array(name: str, item: Codec, accepted: tuple[type, ...], make: type) -> Codec:
    def convert(values: Any, storing: bool) -> object:
        demand(name, values, accepted if storing else (list,))
        items = [convert_at(item, value, storing, index) for index, value in enumerate(values)]
        if not storing:
            return make(items)
        if make in (set, frozenset):  # they have no order, and equal sets must give equal JSON
            items.sort(key=_sort_key)
        return items

    return Codec(name=name, convert=convert)


def _fixed_tuple(name: str, codecs: list[Codec]) -> Codec:
    def convert(values: Any, storing: bool) -> object:
        demand(name, values, (tuple,) if storing else (list,))
        if len(values) != len(codecs):
            raise Misfit(f"expected {name}, got {len(values)} items")
        pairs = enumerate(zip(codecs, values, strict=True))
        items = [convert_at(codec, value, storing, index) for index, (codec, value) in pairs]
        return items if storing else tuple(items)

    return Codec(name=name, convert=convert)


def _mapping(name: str, key_codec: Codec, item: Codec, accepted: type) -> Codec:
    def convert(values: Any, storing: bool) -> object:
        demand(name, values, (accepted,) if storing else (dict,))
        converted = {}
        for key, value in values.items():
            new_key = key if type(key) in key_codec.plain else key_codec.convert(key, storing)
            if storing and type(new_key) is not str:
                raise Misfit(f"has the key {safe_repr(key)}, and JSON has only text as keys")
            converted[new_key] = convert_at(item, value, storing, new_key if storing else key)
        if len(converted) != len(values):
            raise Misfit("has different keys that JSON cannot tell apart")
        return converted

    return Codec(name=name, convert=convert)


_MAPPINGS: Final[dict[object, type]] = {dict: dict, abc.Mapping: abc.Mapping, abc.MutableMapping: dict}
_ARRAYS: Final[dict[object, tuple[tuple[type, ...], type]]] = {
    list: ((list,), list),
    tuple: ((tuple,), tuple),
    set: ((set,), set),
    frozenset: ((frozenset,), frozenset),
    abc.Set: ((set, frozenset), frozenset),
    abc.Sequence: ((list, tuple), list),
    abc.Collection: ((list, tuple), list),
    abc.Iterable: ((list, tuple), list),
}


def container(origin: object, args: tuple[object, ...], find: Find) -> Codec | None:
    if origin in _MAPPINGS:
        key, item = (find(arg) for arg in args or (str, Any))
        return _mapping(f"dict[{key.name}, {item.name}]", key, item, _MAPPINGS[origin])
    if origin is tuple and args[1:] != (Ellipsis,) and args != ():
        items = [find(arg) for arg in args]
        return _fixed_tuple(f"tuple[{', '.join(item.name for item in items)}]", items)
    if origin in _ARRAYS:
        accepted, make = _ARRAYS[origin]
        item = find(args[0] if args else Any)
        return _array(f"{make.__name__}[{item.name}{', ...' * (make is tuple)}]", item, accepted, make)
    return None
