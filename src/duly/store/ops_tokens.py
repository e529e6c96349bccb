"""Tokens and sessions: who may use the HTTP API and the dashboard. Only hashes get here."""

from __future__ import annotations

from duly.domain.audit import Actor
from duly.domain.principal import TokenRecord
from duly.store.call import Call, Op, Row
from duly.store.ops_audit import keep

MOST_LISTED = 10_000
NOTE_EVERY_US = 60_000_000
"""How often it is noted that a token is used: who looks at a page sends many requests."""


def add(record: TokenRecord, hashed: str, lasts_us: int | None, *, actor: Actor | None) -> Op[None]:
    """Let somebody in from now on; and forget who no longer is. May be repeated: the id is the caller's."""
    yield Call("forget_tokens")
    new = yield Call(
        "insert_token",
        {
            "id": record.id,
            "hash": hashed,
            "kind": record.kind,
            "name": record.name,
            "scopes": record.scopes,
            "tenant": record.tenant,
            "created_by": record.created_by,
            "lasts_us": lasts_us,
        },
    )
    if new and actor is not None:
        after = {"scopes": record.scopes, "lasts_us": lasts_us}
        yield from keep(actor, "create_token", tenant=record.tenant, subject=record.name, after=after)


def find(hashed: str) -> Op[tuple[TokenRecord, bool] | None]:
    """Whose token has this hash, if it holds; and whether it should be noted that it was used."""
    rows = yield Call("find_token", {"hash": hashed})
    return (_record(rows[0][:9]), int(str(rows[0][9])) > NOTE_EVERY_US) if rows else None


def everyone() -> Op[list[TokenRecord]]:
    """Every token and session that holds, newest first."""
    return [_record(row) for row in (yield Call("list_tokens", {"n": MOST_LISTED}))]


def remove(token_id: str, *, actor: Actor | None) -> Op[bool]:
    """Let somebody in no more. Returns whether they were."""
    rows = yield Call("get_token", {"id": token_id})
    if not rows:
        return False
    record = _record(rows[0])
    yield Call("delete_token", {"id": token_id})
    if actor is not None:
        before = {"scopes": record.scopes}
        yield from keep(actor, "revoke_token", tenant=record.tenant, subject=record.name, before=before)
    return True


def _record(row: Row) -> TokenRecord:
    return TokenRecord._make(row)
