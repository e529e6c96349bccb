"""Waits until one of a few sockets can be read. Not `select.select`: a busy web server has more than 1,024 of them."""

from __future__ import annotations

import math
import select
from collections.abc import Sequence


def readable(files: Sequence[int], timeout: float) -> set[int]:
    """Which of these file descriptors can be read, within `timeout` seconds."""
    if not hasattr(select, "poll"):  # Windows
        return set(select.select(files, [], [], timeout)[0])
    poller = select.poll()
    for each in files:
        poller.register(each, select.POLLIN)
    return {each for each, _ in poller.poll(math.ceil(timeout * 1_000))}
