"""Who asks, what they may do, and whose things they may see."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from duly.domain.errors import InvalidOption
from duly.domain.names import check_tenant, check_text, suggest
from duly.domain.text import safe_repr


class Scope(StrEnum):
    """What somebody may do."""

    READ = "read"
    ENQUEUE = "enqueue"
    OPERATE = "operate"
    ADMIN = "admin"

    @classmethod
    def parse(cls, text: str) -> Scope:
        """Return the scope that `text` names."""
        try:
            return cls(text)
        except ValueError:
            known = ", ".join(cls)
            raise InvalidOption(f"Unknown scope {safe_repr(text)}.{suggest(str(text), cls)} Scopes: {known}.") from None


INCLUDES: Final = {
    Scope.READ: frozenset({Scope.READ}),
    Scope.ENQUEUE: frozenset({Scope.ENQUEUE}),
    Scope.OPERATE: frozenset({Scope.OPERATE, Scope.READ, Scope.ENQUEUE}),
    Scope.ADMIN: frozenset(Scope),
}
"""What a scope brings along: who may change jobs may see them, who may do everything may do each thing."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody who was let in. `tenant`: they see and touch nothing but this tenant's things."""

    name: str
    scopes: frozenset[Scope] = frozenset({Scope.READ})
    tenant: str | None = None

    @classmethod
    def make(cls, name: str, scopes: Iterable[Scope | str] = ("read",), tenant: str | None = None) -> Principal:
        """Make one of plain values, checked."""
        if not check_text(name, "name", 255):
            raise InvalidOption("name must not be empty: it stands in the audit")
        if tenant == "":
            raise InvalidOption("tenant must not be empty. Leave it out for somebody who may see every tenant")
        words = [scopes] if isinstance(scopes, str) else scopes
        whose = None if tenant is None else check_tenant(tenant)
        return cls(name, frozenset(Scope.parse(str(word)) for word in words), whose)

    def may(self, scope: Scope) -> bool:
        """Whether they may do what needs this scope."""
        return any(scope in INCLUDES[held] for held in self.scopes)


class TokenRecord(NamedTuple):
    """A token or a session as it is stored, without its hash. The order is that of the statement's columns."""

    id: str
    kind: str
    name: str
    scopes: str
    tenant: str | None
    created_at: int
    created_by: str | None
    expires_at: int | None
    last_used_at: int | None

    @property
    def principal(self) -> Principal:
        """Whom it lets in."""
        return Principal(self.name, frozenset(Scope(word) for word in self.scopes.split()), self.tenant)
