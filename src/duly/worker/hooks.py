"""Calls what users hook in, plain functions and coroutine functions alike."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Coroutine
from typing import Any

log = logging.getLogger("duly.worker")

RunCoroutine = Callable[[Coroutine[Any, Any, object]], object]


def run_hook(hook: Callable[..., object], *args: object, on: RunCoroutine | None = None) -> None:
    """Call a hook and wait for it. A coroutine is run by `on`, else on an event loop of its own."""
    answer = hook(*args)
    if inspect.iscoroutine(answer):
        (on or _run_alone)(answer)


def run_hook_whatever(hook: Callable[..., object], *args: object, on: RunCoroutine | None = None) -> None:
    """The same, but what it raises is only logged: also SystemExit, which must end neither a slot nor a worker."""
    try:
        run_hook(hook, *args, on=on)
    except BaseException:
        log.exception("hook %r raised", hook)


def _run_alone(coroutine: Coroutine[Any, Any, object]) -> object:
    import asyncio  # here, so that `import duly` stays quick

    return asyncio.run(coroutine)
