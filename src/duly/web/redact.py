"""Hides the values of named fields, in arguments, results, errors and logs, before anybody sees them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

MASK: Final = "•••"
SHORTEST_SECRET: Final = 4
"""Shorter values are not looked for in texts: "1" is in every line."""


class Redaction:
    """The names of fields whose values nobody sees. Case and the signs between words make no difference."""

    __slots__ = ("_names", "_pattern")

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = frozenset(map(_folded, names)) - {""}
        self._pattern = _pattern(self._names)

    def __bool__(self) -> bool:
        return bool(self._names)

    def hides(self, name: object) -> bool:
        """Whether the value of this field is hidden."""
        return isinstance(name, str) and _folded(name) in self._names

    def value(self, value: Any) -> Any:
        """The value with hidden fields masked, at any depth."""
        if not self._names:
            return value
        if isinstance(value, Mapping):
            return {key: MASK if self.hides(key) else self.value(each) for key, each in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(each) for each in value]
        return value

    def secrets(self, *values: Any) -> list[str]:
        """The texts that stand in hidden fields, longest first."""
        found = {text for value in values for text in self._hidden(value, False) if len(text) >= SHORTEST_SECRET}
        return sorted(found, key=len, reverse=True)

    def _hidden(self, value: Any, inside: bool) -> Iterator[str]:
        if isinstance(value, Mapping):
            for key, each in value.items():
                yield from self._hidden(each, inside or self.hides(key))
        elif isinstance(value, (list, tuple)):
            for each in value:
                yield from self._hidden(each, inside)
        elif inside and isinstance(value, (str, int, float)) and not isinstance(value, bool):
            yield str(value)

    def text(self, text: str | None, secrets: Iterable[str] = ()) -> str | None:
        """A text (a log line, an error) with the values of hidden fields masked, and known secrets wherever."""
        if text is None or not self._names:
            return text
        for secret in secrets:
            text = text.replace(secret, MASK)
        return text if self._pattern is None else self._pattern.sub(rf"\g<1>{MASK}", text)

    def restored(self, new: Any, old: Any) -> Any:
        """What was meant by a value that somebody got masked and sends back: masked fields stay as they were."""
        if isinstance(new, Mapping) and isinstance(old, Mapping):
            return {
                key: old[key]
                if value == MASK and self.hides(key) and key in old
                else self.restored(value, old.get(key))
                for key, value in new.items()
            }
        if isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
            return [self.restored(a, b) for a, b in zip(new, old, strict=True)]
        return new

    def shows(self, text: str, args: str) -> bool:
        """Whether a text that stands in arguments also stands in what is shown of them."""
        if not self._names:
            return True
        hidden = self.value(json.loads(args))
        shown = (json.dumps(hidden, ensure_ascii=False, separators=each) for each in ((",", ":"), (", ", ": ")))
        return any(text in each for each in shown)


def _folded(name: str) -> str:
    return re.sub(r"[\s_.-]", "", name).casefold()


def _pattern(names: frozenset[str]) -> re.Pattern[str] | None:
    """What finds `name=value`, `"name": "value"` and `name: value` in text."""
    if not names:
        return None
    words = "|".join(r"[\s_.-]?".join(map(re.escape, name)) for name in sorted(names, key=len, reverse=True))
    return re.compile(
        rf"""((?<![A-Za-z0-9])(?:{words})["']?\s*[=:]\s*(?:(?:Bearer|Basic)\s+)?)(?:"[^"\n]*"|'[^'\n]*'|[^\s,;&)}}\]"']+)""",
        re.IGNORECASE,
    )


NOTHING_HIDDEN: Final = Redaction()
