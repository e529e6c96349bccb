"""Remembers for a short time what was looked up by a secret, without holding the secret."""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from typing import Final, Generic, TypeVar

R = TypeVar("R")
MOST: Final = 1_000


class Remembered(Generic[R]):
    """What was found by a secret, for so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._salt = secrets.token_bytes(16)
        self._found: OrderedDict[bytes, tuple[float, R]] = OrderedDict()

    def get(self, secret: str, now: float) -> tuple[R] | None:
        """What was found lately, in a tuple; None: nothing was looked up."""
        known = self._found.get(self._key(secret))
        return None if known is None or known[0] < now else (known[1],)

    def put(self, secret: str, value: R, now: float) -> None:
        """Remember what was found."""
        key = self._key(secret)
        self._found.pop(key, None)
        self._found[key] = (now + self._seconds, value)
        while len(self._found) > MOST:
            self._found.popitem(last=False)

    def clear(self) -> None:
        """Forget everything."""
        self._found.clear()

    def _key(self, secret: str) -> bytes:
        return hashlib.blake2b(secret.encode("utf-8", "surrogatepass"), key=self._salt, digest_size=16).digest()
