"""Tokens: who else may come in. For administrators who are bound to no tenant."""

from __future__ import annotations

from typing import Any

from duly.domain.principal import TokenRecord
from duly.web.desk import Desk, verb
from duly.web.errors import missing
from duly.web.principal import Scope
from duly.web.service import shown


def _shown(record: TokenRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "name": record.name,
        "kind": record.kind,
        "scopes": record.scopes.split(),
        "tenant": record.tenant,
        "created_at": shown.time(record.created_at),
        "created_by": record.created_by,
        "expires_at": shown.time(record.expires_at),
        "last_used_at": shown.time(record.last_used_at),
    }


@verb(Scope.ADMIN, everyone=True)
def list_tokens(desk: Desk) -> dict[str, Any]:
    """Every token and session that holds, newest first. What is kept of them lets nobody in."""
    return {"items": [_shown(each) for each in desk.jobs.tokens()]}


@verb(Scope.ADMIN, everyone=True)
def create(
    desk: Desk,
    *,
    name: str,
    scopes: list[str] | None = None,
    tenant: str | None = None,
    expires: str | float | None = None,
) -> dict[str, Any]:
    """Make a token. It is in this answer and nowhere else."""
    made = desk.jobs.create_token(name, scopes or ["read"], tenant=tenant, expires=expires)
    return {**_shown(made.record), "token": made.secret}


@verb(Scope.ADMIN, everyone=True)
def revoke(desk: Desk, token_id: str) -> dict[str, Any]:
    """Let a token or session in no more."""
    if not desk.jobs.revoke_token(token_id):
        raise missing(f"there is no token {token_id[:100]!r}")
    return {"id": token_id, "revoked": True}
