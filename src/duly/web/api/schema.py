"""JSON Schema in few words: to say what a request and an answer hold, and to check requests by it.

What is said here goes into the OpenAPI document as it stands, so only what `check` checks may be said about requests.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

from duly.domain.ids import is_job_id
from duly.web.errors import invalid

Schema = dict[str, Any]
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
ID: Final[Schema] = {"type": "string", "format": "uuid"}
BOOLEAN: Final[Schema] = {"type": "boolean"}
ANYTHING: Final[Schema] = {}
OBJECT: Final[Schema] = {"type": "object"}
NUMBER: Final[Schema] = {"type": "number"}
TIME: Final[Schema] = {"type": "string", "format": "date-time"}


def text(most: int = 1_000, least: int = 0, **more: Any) -> Schema:
    """A text of so many characters."""
    return {"type": "string", "minLength": least, "maxLength": most, **more}


def whole(lowest: int = -(2**31), highest: int = 2**31 - 1, **more: Any) -> Schema:
    """A whole number."""
    return {"type": "integer", "minimum": lowest, "maximum": highest, **more}


def choice(*words: str) -> Schema:
    """One of these words."""
    return {"type": "string", "enum": list(words)}


def array(of: Schema, most: int | None = None, least: int = 0) -> Schema:
    """A list."""
    bounds = {"minItems": least or None, "maxItems": most}
    return {"type": "array", "items": of, **{name: n for name, n in bounds.items() if n is not None}}


def obj(*required: str, **fields: Schema) -> Schema:
    """An object with these fields and no others."""
    return {"type": "object", "properties": fields, "required": list(required), "additionalProperties": False}


def answer(**fields: Schema) -> Schema:
    """An object of an answer: every field is there."""
    return {"type": "object", "properties": fields, "required": list(fields)}


def maybe(schema: Schema) -> Schema:
    """The same, or null."""
    if "$ref" in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    made = {**schema, "type": [*kinds, "null"]}
    if "enum" in made:
        made["enum"] = [*made["enum"], None]
    return made


def ref(name: str) -> Schema:
    """A schema that has a name."""
    return {"$ref": f"#/components/schemas/{name}"}


# -- checking ---------------------------------------------------------------------------------------------------------

_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}


def check(schema: Schema, value: Any, where: str) -> Any:
    """Return a value of a request if it is as the schema says, or raise 400 that says what and where."""
    if not schema:
        return value
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if isinstance(value, float) and "integer" in kinds and "number" not in kinds and value.is_integer():
        value = int(value)  # JSON knows no difference
    if not any(_is(kind, value) for kind in kinds):
        raise invalid(f"{where} must be {' or '.join(_WORDS[kind] for kind in kinds)}, not {_shown(value)}")
    if "enum" in schema and value not in schema["enum"]:
        words = ", ".join("null" if each is None else str(each) for each in schema["enum"])
        raise invalid(f"{where} must be one of {words}, not {_shown(value)}")
    match value:
        case str():
            return _checked_text(schema, value, where)
        case bool() | None:
            pass
        case int() | float():
            _check_number(schema, value, where)
        case list():
            return _checked_list(schema, value, where)
        case dict():
            return _checked_object(schema, value, where)
        case _:
            pass
    return value


_WORDS: Final = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "object": "an object",
    "array": "a list",
    "null": "null",
}


def _is(kind: str, value: Any) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _KINDS[kind])


def _checked_text(schema: Schema, value: str, where: str) -> str:
    if len(value) > schema.get("maxLength", math.inf):
        raise invalid(f"{where} has {len(value)} characters, and {schema['maxLength']} are allowed")
    if len(value) < schema.get("minLength", 0):
        raise invalid(f"{where} must not be empty")
    if "pattern" in schema and re.search(schema["pattern"], value) is None:
        raise invalid(f"{where} must match {schema['pattern']}, and {_shown(value)} does not")
    if _UNSTORABLE.search(value):
        raise invalid(f"{where} holds NUL or half a character, which no database can store")
    if schema.get("format") == "uuid":
        value = value.lower()
        if not is_job_id(value):
            raise invalid(f"{where} must be an id like 0190f3c4-7b1e-7c3a-9f00-2a4b6c8d0e12, not {_shown(value)}")
    return value


def _check_number(schema: Schema, value: float, where: str) -> None:
    lowest, highest = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    if not lowest <= value <= highest:
        raise invalid(f"{where} must be from {lowest} to {highest}, not {_shown(value)}")


def _checked_list(schema: Schema, value: list[Any], where: str) -> list[Any]:
    if len(value) > schema.get("maxItems", math.inf):
        raise invalid(f"{where} has {len(value)} items, and {schema['maxItems']} are allowed")
    if len(value) < schema.get("minItems", 0):
        raise invalid(f"{where} must not be empty")
    return [check(schema.get("items", {}), each, f"{where}[{n}]") for n, each in enumerate(value)]


def _checked_object(schema: Schema, value: dict[str, Any], where: str) -> dict[str, Any]:
    fields = schema.get("properties")
    if fields is None:
        return value
    for name in schema["required"]:
        if name not in value:
            raise invalid(f"{where} must have {name}")
    for name in value:
        if name not in fields:
            raise invalid(f"{where} has no field {_shown(name)}. It has: {', '.join(fields)}")
    return {name: check(fields[name], each, f"{where}.{name}") for name, each in value.items()}


def _shown(value: Any) -> str:
    return repr(value)[:100]
