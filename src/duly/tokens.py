"""Tokens for the HTTP API and the dashboard: make, list, revoke. Mixed into `Duly`.

A token is 256 random bits, shown once; the database keeps its SHA-256. A session of the dashboard is a token as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from duly.domain.audit import current_actor
from duly.domain.durations import micros, to_timedelta
from duly.domain.errors import InvalidOption
from duly.domain.ids import is_job_id, uuid7
from duly.domain.principal import Principal, Scope, TokenRecord
from duly.store import ops_tokens
from duly.store.call import Call, Op

if TYPE_CHECKING:
    from duly.store.store import Store

PREFIX = "duly_"


class NewToken(NamedTuple):
    """A token that was just made. `secret` is shown this once."""

    id: str
    secret: str
    record: TokenRecord


class Tokens:
    """Who may use the HTTP API and the dashboard."""

    store: Store

    def create_token(
        self,
        name: str,
        scopes: Iterable[Scope | str] = ("read",),
        *,
        tenant: str | None = None,
        expires: timedelta | float | str | None = None,
    ) -> NewToken:
        """Make a token. `scopes`: any of read, enqueue, operate, admin. `tenant`: only this one's things.

        `expires`: how long it holds; without, until it is revoked. Its secret is in the answer and nowhere else.
        """
        return self._add_token(Principal.make(name, scopes, tenant), "token", expires, audited=True)

    def create_session(self, principal: Principal, lasts: timedelta) -> NewToken:
        """Let somebody who has signed in go on without signing in again."""
        return self._add_token(principal, "session", lasts, audited=False)

    def _add_token(
        self, principal: Principal, kind: str, expires: timedelta | float | str | None, *, audited: bool
    ) -> NewToken:
        if not principal.scopes:
            raise InvalidOption(f"a token needs a scope: {', '.join(Scope)}")
        lasts_us = None if expires is None else micros(to_timedelta(expires, "expires"))
        if lasts_us == 0:
            raise InvalidOption("expires must be longer than nothing")
        from secrets import token_urlsafe  # here, since it brings OpenSSL in

        actor, secret = current_actor(), PREFIX + token_urlsafe(32)
        record = TokenRecord(
            id=uuid7(),
            kind=kind,
            name=principal.name,
            scopes=" ".join(scope for scope in Scope if scope in principal.scopes),
            tenant=principal.tenant,
            created_at=0,
            created_by=actor.who,
            expires_at=None,
            last_used_at=None,
        )

        def op() -> Op[TokenRecord]:
            yield from ops_tokens.add(record, hashed(secret), lasts_us, actor=actor if audited else None)
            rows = yield Call("get_token", {"id": record.id})
            return TokenRecord._make(rows[0])

        return NewToken(record.id, secret, self.store.run(op))

    def token_holder(self, secret: str) -> TokenRecord | None:
        """Whom a token lets in; None: nobody."""
        database = self.store.database
        found = database.read(lambda: ops_tokens.find(hashed(secret)))
        if found is None:
            return None
        record, note = found
        if note:
            self.store.run(lambda: _note(record.id))
        return record

    def tokens(self) -> list[TokenRecord]:
        """Every token and session that holds, newest first."""
        return self.store.database.read(ops_tokens.everyone)

    def revoke_token(self, token_id: str) -> bool:
        """Let a token or session in no more. Returns whether it was."""
        if not is_job_id(token_id):
            return False
        return self.store.run(lambda: ops_tokens.remove(token_id, actor=current_actor()))


def hashed(secret: str) -> str:
    """What is kept of a token."""
    from hashlib import sha256  # here, since it brings OpenSSL in

    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _note(token_id: str) -> Op[None]:
    yield Call("use_token", {"id": token_id})
