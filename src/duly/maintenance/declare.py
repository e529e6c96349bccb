"""Makes what the code declares at start-up true: recurring jobs that must exist, those that no more should, mirrors."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

from duly.store.call import Op
from duly.store.database import Hint
from duly.store.store import Store
from duly.worker.registry import Declaration, Registry

log = logging.getLogger("duly.maintenance")
BATCH = 100


def declare(store: Store, registry: Registry) -> None:
    """Create what is missing, take over what the code says differently than before, disable what it no longer says."""
    if registry.mirror_hooks or any(task.mirror for task in registry) or registry.declarations:
        store.run(lambda: _mirrors(store, registry))
    wanted = sorted(registry.declarations, key=lambda each: each.new[1:4])  # one order for all processes: no deadlock
    made = 0
    for start in range(0, len(wanted), BATCH):
        made += store.run(lambda batch=wanted[start : start + BATCH]: _declare(store, batch))  # type: ignore[misc]
    kept = [each.new[1:4] for each in wanted]
    for module in sorted(_modules(registry)):
        for gone in store.run(lambda module=module: store.recurring.undeclare(module, kept)):  # type: ignore[misc]
            log.warning("recurring job %s is disabled: %s no longer declares it", gone, module)
    if made:
        log.info("%d recurring job%s made", made, "" if made == 1 else "s")
        store.poke(Hint("due"))


def _modules(registry: Registry) -> set[str]:
    """The modules that this process can speak for: those that it has loaded and that declare tasks."""
    modules = {str(getattr(task.fn, "__module__", "")) for task in registry}
    return {name for name in modules | {each.module for each in registry.declarations} if name in sys.modules}


def _mirrors(store: Store, registry: Registry) -> Op[None]:
    for task in registry:
        yield from store.recurring.set_mirror(task.name, task.mirror, task.name in registry.mirror_hooks)


def _declare(store: Store, batch: Sequence[Declaration]) -> Op[int]:
    made = 0
    for each in batch:
        standing = yield from store.recurring.recur(each.new, enable=False)
        made += standing.created
    return made
