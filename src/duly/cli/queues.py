"""Reads `--queue`: `mail=5,default=20` gives fixed slots, `mail*3,default` weights."""

from __future__ import annotations

import click

from duly.domain.errors import InvalidOption
from duly.domain.names import check_queue_name
from duly.worker.slots import QueueShare


def read_queues(texts: tuple[str, ...]) -> list[QueueShare] | None:
    """Return the queues that were named, or None for those of the tasks."""
    shares: dict[str, QueueShare] = {}
    for part in ",".join(texts).split(","):
        if not part.strip():
            continue
        share = _read(part.strip())
        if share.name in shares:
            raise click.BadParameter(f"queue {share.name!r} is named twice", param_hint="--queue")
        shares[share.name] = share
    if texts and not shares:
        raise click.BadParameter("it names no queue", param_hint="--queue")
    return list(shares.values()) or None


def _read(text: str) -> QueueShare:
    for sign in "=*":
        name, found, number = text.partition(sign)
        if found:
            break
    else:
        name, sign, number = text, "", "1"
    if not number.isdecimal() or not 1 <= int(number) <= 100_000:
        raise click.BadParameter(f"{text!r}: write mail=5 for 5 slots or mail*3 for weight 3", param_hint="--queue")
    try:
        check_queue_name(name.strip())
    except InvalidOption as error:
        raise click.BadParameter(str(error), param_hint="--queue") from error
    if sign == "=":
        return QueueShare(name=name.strip(), slots=int(number))
    return QueueShare(name=name.strip(), weight=int(number))
