"""Adds up what ran, from the rollups."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from itertools import pairwise

from duly.store.call import Call, Dialect, Op, Rows, Value


def sum_usage(
    dialect: Dialect, bounds: Sequence[int], *, by: Collection[str], tenant: str | None, task: str | None
) -> Op[Rows]:
    """What ran in the periods between these bounds, by any of tenant, task and queue. Rows begin with the period."""
    params: dict[str, Value] = {f"by_{way}": way in by for way in ("tenant", "task", "queue")}
    params |= {"tenant": tenant, "task": task}
    if dialect is Dialect.POSTGRES:
        params |= {"starts": list(bounds[:-1]), "from_at": bounds[0], "until_at": bounds[-1]}
    else:
        params["periods"] = json.dumps(list(pairwise(bounds)))
    return (yield Call("sum_usage", params))
