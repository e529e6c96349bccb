"""Users of the settings: `NAME:SCOPES[@TENANT]:HASH`, the hash by scrypt, made by `duly tokens hash-password`."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from duly.domain.errors import ConfigurationError, InvalidOption
from duly.domain.principal import Principal

N, R, P, BYTES = 2**14, 8, 1, 32
MOST_MEMORY: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who may come in by password."""

    principal: Principal
    hash: str


def hash_password(password: str) -> str:
    """Return what to keep of a password."""
    salt = os.urandom(16)
    return f"scrypt-{N}-{R}-{P}-{_text(salt)}-{_text(_derive(password, salt, N, R, P))}"


def matches(password: str, hashed: str) -> bool:
    """Whether it is the password that was hashed."""
    n, r, p, salt, expected = _parts(hashed)
    return hmac.compare_digest(_derive(password, salt, n, r, p), expected)


@lru_cache(maxsize=1)
def nobodys() -> str:
    """What an unknown name's password is held against, so that it takes as long as a known one's."""
    return hash_password("")


def read_users(lines: Iterable[str]) -> dict[str, User]:
    """Read the users of the settings."""
    users: dict[str, User] = {}
    for line in lines:
        name, _, rest = line.partition(":")
        scopes, _, hashed = rest.rpartition(":")
        words, _, tenant = scopes.partition("@")
        try:
            principal = Principal.make(name, words.split("+"), tenant or None)
            _parts(hashed)
        except (InvalidOption, ValueError) as error:
            raise ConfigurationError(
                f"web_users: the entry of {name[:50]!r} must be NAME:SCOPES[@TENANT]:HASH, "
                f"where HASH comes from `duly tokens hash-password`. {error}"
            ) from None
        users[name] = User(principal, hashed)
    return users


def _derive(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    data = password.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(data, salt=salt, n=n, r=r, p=p, maxmem=MOST_MEMORY, dklen=BYTES)


def _text(data: bytes) -> str:
    return base64.b32encode(data).decode().rstrip("=").lower()


def _data(text: str) -> bytes:
    return base64.b32decode(text.upper() + "=" * (-len(text) % 8))


def _parts(hashed: str) -> tuple[int, int, int, bytes, bytes]:
    parts = hashed.split("-")
    if len(parts) != 6 or parts[0] != "scrypt":
        raise ValueError("the hash is not one of scrypt")
    try:
        n, r, p = (int(part) for part in parts[1:4])
        return n, r, p, _data(parts[4]), _data(parts[5])
    except (ValueError, binascii.Error):
        raise ValueError("the hash cannot be read") from None
